// SPDX-License-Identifier: Apache-2.0
//! The connection to the Kubernetes API: where its settings come from, and clear words when they do not work.
//!
//! Order: the flag `--kubeconfig`, the environment variable `KUBECONFIG`, the Pod's ServiceAccount,
//! `~/.kube/config`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{ClientBuilder, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::ServiceExt as _;

/// How long a TCP and TLS connection to the API may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A kubeconfig file cannot be read or understood.
    #[error("kubeconfig {file} ({origin}): {problem}. {remedy}")]
    Kubeconfig {
        /// Its path.
        file: String,
        /// Who named it.
        origin: &'static str,
        /// What failed.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A context of a kubeconfig does not lead to a server.
    #[error("kubeconfig {file} ({origin}), context {context:?}: {problem}. {remedy}")]
    Context {
        /// Path of the file.
        file: String,
        /// Who named it.
        origin: &'static str,
        /// The context that was to be used.
        context: String,
        /// What failed.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The Pod's own settings do not work.
    #[error(
        "in-cluster configuration: {0}. Is the ServiceAccount's token mounted \
         (automountServiceAccountToken)? Outside of a cluster give --kubeconfig"
    )]
    InCluster(String),
    /// Nothing names an API server.
    #[error(
        "no Kubernetes API server is configured: --kubeconfig and KUBECONFIG are not set, this is no Pod \
         (KUBERNETES_SERVICE_HOST is not set), and {0} does not exist. Give --kubeconfig=FILE"
    )]
    Nothing(String),
    /// The settings were read, but no client can be made of them.
    #[error("Kubernetes API {server}: {problem}. {remedy}")]
    Unusable {
        /// URL of the API server.
        server: String,
        /// What failed.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// Where to look for the API server.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// `--kubeconfig`.
    pub flag: Option<PathBuf>,
    /// `KUBECONFIG`: one file, or several with colons between.
    pub variable: Option<OsString>,
    /// Whether `KUBERNETES_SERVICE_HOST` says that this is a Pod.
    pub in_cluster: bool,
    /// `$HOME`.
    pub home: Option<PathBuf>,
}

impl Source {
    /// What this process was given, with the flag's value.
    pub fn of_process(flag: Option<&str>) -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            flag: flag.map(PathBuf::from),
            variable: variable("KUBECONFIG"),
            in_cluster: variable("KUBERNETES_SERVICE_HOST").is_some(),
            home: variable("HOME").map(PathBuf::from),
        }
    }
}

/// Makes a client. `agent` (`controller` or `speaker`) is the first word of the User-Agent, which the API server
/// takes as the field manager of writes that name none. Does not talk to the server yet.
///
/// # Errors
///
/// [`ClientError`] says which file or setting does not work, and what to do.
pub async fn client(source: &Source, agent: &'static str) -> Result<Client, ClientError> {
    install_crypto();
    let mut config = config(source).await?;
    let name = concat!("/v", env!("CARGO_PKG_VERSION"), " (linux) ferrolb");
    if let Ok(value) = HeaderValue::from_str(&format!("{agent}{name}")) {
        config.headers.push((USER_AGENT, value));
    }
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Whoever asks decides on repeats; a second layer of them would only hide outages.
    config.default_retry = false;
    let server = config.cluster_url.to_string();
    let no_authority = config.root_cert.is_none() && config.root_cert_file.is_none();
    connected_by(config).map_err(|error| ClientError::Unusable {
        server,
        problem: chain(&error),
        remedy: if no_authority {
            "The configuration names no certificate authority: add certificate-authority or \
             certificate-authority-data to its cluster"
        } else {
            "Check the certificates and credentials of the configuration"
        },
    })
}

/// A client as `kube` builds it, on connections that send what they have at once.
///
/// Otherwise the second small piece of a conversation, such as the first request after the handshake, waits for the
/// other side's delayed acknowledgement (RFC 1122 section 4.2.3.4), which is 40 ms on Linux.
fn connected_by(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        // Whether that works, and what to say if not, is for `kube` to know.
        return Client::try_from(config);
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    // Layers and connections have to fail alike.
    let http = http.map_err(|error| -> Box<dyn std::error::Error + Send + Sync> { Box::new(error) });
    let builder = ClientBuilder::new(http, config.default_namespace.clone());
    let builder = builder.with_layer(&config.base_uri_layer());
    let headers = config.extra_headers_layer()?;
    Ok(match config.auth_layer()? {
        Some(authorization) => builder.with_layer(&authorization).with_layer(&headers).build(),
        None => builder.with_layer(&headers).build(),
    })
}

/// Makes aws-lc-rs the cryptography of this process. Calling it again changes nothing.
pub fn install_crypto() {
    // The error is that a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

async fn config(source: &Source) -> Result<Config, ClientError> {
    if let Some(path) = &source.flag {
        return from_files(std::slice::from_ref(path), "--kubeconfig").await;
    }
    if let Some(list) = &source.variable {
        let paths: Vec<PathBuf> =
            std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect();
        return from_files(&paths, "KUBECONFIG").await;
    }
    if source.in_cluster {
        return Config::incluster().map_err(|error| ClientError::InCluster(chain(&error)));
    }
    let home = source.home.as_deref().unwrap_or(Path::new("/")).join(".kube/config");
    if home.exists() {
        return from_files(&[home], "found in the home directory").await;
    }
    Err(ClientError::Nothing(home.display().to_string()))
}

async fn from_files(paths: &[PathBuf], origin: &'static str) -> Result<Config, ClientError> {
    let named = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    let mut merged = Kubeconfig::default();
    for path in paths {
        // kubectl skips files of a list that do not exist; a file that was named alone has to.
        if paths.len() > 1 && !path.exists() {
            continue;
        }
        let read = Kubeconfig::read_from(path).map_err(|error| unreadable(path, origin, &error))?;
        merged = merged.merge(read).map_err(|error| unreadable(path, origin, &error))?;
    }
    let context = merged.current_context.clone();
    Config::from_custom_kubeconfig(merged, &KubeConfigOptions::default()).await.map_err(|error| {
        let problem = chain(&error);
        match context.filter(|name| !name.is_empty()) {
            Some(context) => ClientError::Context {
                file: named,
                origin,
                context,
                problem,
                remedy: "Look at `kubectl config view` and choose a context with `kubectl config use-context NAME`",
            },
            None => ClientError::Kubeconfig {
                file: named,
                origin,
                problem: "it has no current-context".to_owned(),
                remedy: "Choose one with `kubectl config use-context NAME`",
            },
        }
    })
}

fn unreadable(path: &Path, origin: &'static str, error: &KubeconfigError) -> ClientError {
    ClientError::Kubeconfig {
        file: path.display().to_string(),
        origin,
        problem: match error {
            KubeconfigError::ReadConfig(error, _) => format!("cannot be read: {error}"),
            other => chain(other),
        },
        remedy: match error {
            KubeconfigError::ReadConfig(..) => "Check the path and the file's permissions",
            _ => "Check that the file is a kubeconfig (kind: Config)",
        },
    }
}

/// What a request failed of, without the client's own words for the place where it failed.
pub(crate) fn failure(error: &kube::Error) -> String {
    match error {
        kube::Error::Service(error) => chain(error.as_ref()),
        kube::Error::HyperError(error) => chain(error),
        other => chain(other),
    }
}

/// An error with its causes, without saying twice what a cause repeats.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(source: &Source) -> String {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(async { client(source, "controller").await.map(|_| ()) })
            .unwrap_err()
            .to_string()
    }

    fn file(content: &str) -> (tempfile::TempDir, Source) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, content).unwrap();
        (dir, Source { flag: Some(path), ..Source::default() })
    }

    #[test]
    fn a_file_that_is_not_there_is_named_with_what_to_do() {
        let text = message(&Source { flag: Some("/nowhere/config".into()), ..Source::default() });
        assert!(text.starts_with("kubeconfig /nowhere/config (--kubeconfig): cannot be read:"), "{text}");
        assert!(text.ends_with("Check the path and the file's permissions"), "{text}");
    }

    #[test]
    fn a_file_that_is_no_kubeconfig_is_named() {
        let (_dir, source) = file("clusters: 7\n");
        let text = message(&source);
        assert!(text.contains("Check that the file is a kubeconfig"), "{text}");
    }

    #[test]
    fn a_context_that_leads_nowhere_is_named() {
        let (_dir, source) = file("apiVersion: v1\nkind: Config\ncurrent-context: lost\n");
        let text = message(&source);
        assert!(text.contains("context \"lost\""), "{text}");
        assert!(text.contains("kubectl config use-context"), "{text}");
    }

    #[test]
    fn a_file_without_a_context_says_so() {
        let (_dir, source) = file("apiVersion: v1\nkind: Config\n");
        assert!(message(&source).contains("it has no current-context"));
    }

    #[test]
    fn the_variable_comes_after_the_flag_and_before_the_cluster() {
        let source = Source { variable: Some("/nowhere/a".into()), in_cluster: true, ..Source::default() };
        assert!(message(&source).starts_with("kubeconfig /nowhere/a (KUBECONFIG)"));
    }

    #[test]
    fn nothing_at_all_says_what_was_looked_for() {
        let text = message(&Source { home: Some("/nowhere".into()), ..Source::default() });
        assert!(text.contains("/nowhere/.kube/config does not exist"), "{text}");
        assert!(text.ends_with("Give --kubeconfig=FILE"), "{text}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What a daemon finds in its environment: namespace, signals, its own Pod.

use std::ffi::OsString;
use std::time::Duration;

use ferrolb_api::event::ObjectRef;
use http::Method;
use kube::Client;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::backoff::Backoff;
use crate::common::SettingError;
use crate::reach::Reach;
use crate::request::{RequestError, send_json};

const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
const POD_LIMIT: Duration = Duration::from_secs(10);

/// MetalLB's namespace: what was given, or the ServiceAccount's.
///
/// # Errors
///
/// MetalLB's sentence when there is neither.
pub fn namespace(given: Option<&str>) -> Result<String, String> {
    given
        .map(str::to_owned)
        .or_else(|| std::fs::read_to_string(NAMESPACE_FILE).ok())
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .ok_or_else(|| {
            "Unable to get namespace from pod service account data, please specify --namespace or \
             METALLB_NAMESPACE"
                .to_owned()
        })
}

/// An environment variable of this process; an empty one counts as unset.
///
/// # Errors
///
/// [`SettingError::Other`] names one that is not UTF-8, and what it holds.
pub fn variable(name: &str) -> Result<Option<String>, SettingError> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty());
    value.map(|value| text(name, value)).transpose().map_err(SettingError::Other)
}

/// The text of a variable; the error is a sentence.
pub(crate) fn text(name: &str, value: OsString) -> Result<String, String> {
    value.into_string().map_err(|raw| format!("environment variable {name} is not UTF-8: {raw:?}"))
}

/// Whether this can be the name of an object whose names are DNS subdomains (RFC 1123): Pods, Nodes.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Whether this can be the name of an object whose names are DNS labels (RFC 1123): namespaces.
pub fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let bytes = name.as_bytes();
    bytes.len() <= 63 && bytes.iter().all(|byte| inner(*byte)) && edge(bytes.first()) && edge(bytes.last())
}

/// The signals that stop a daemon: TERM, INT and QUIT.
#[derive(Debug)]
pub struct StopSignals {
    term: Signal,
    int: Signal,
    quit: Signal,
}

impl StopSignals {
    /// From now on these signals no longer kill the process.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the handler.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Waits for the next of them; gives its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
            _ = self.quit.recv() => "SIGQUIT",
        }
    }
}

/// Looks up the daemon's own Pod, which owns what it writes. Waits for the API server as long as it takes: a
/// start during an outage must not turn into a crash loop.
pub async fn own_pod(client: &Client, reach: &Reach, namespace: &str, name: &str) -> ObjectRef {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
    let mut said = None;
    loop {
        let error = match send_json(client, Method::GET, &path, None, POD_LIMIT).await {
            Ok(pod) => {
                if said.is_some() {
                    tracing::info!(op = "startup", pod = name, "own pod found");
                }
                reach.answered();
                let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_owned();
                return ObjectRef {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    uid: text("uid"),
                    resource_version: text("resourceVersion"),
                };
            }
            Err(error) => error,
        };
        if said != Some(error.code) {
            said = Some(error.code);
            tracing::error!(
                op = "startup",
                pod = name,
                namespace,
                error = error.message.as_str(),
                remedy = remedy(&error),
                "unable to get own pod for owner references, retrying"
            );
        }
        // When anybody else gets through, there is no point in waiting on.
        tokio::select! {
            () = tokio::time::sleep(backoff.wait()) => {}
            () = reach.heard(), if error.code == 0 => {}
        }
    }
}

fn remedy(error: &RequestError) -> &'static str {
    match error.code {
        0 => "check that the API server can be reached from here",
        401 => "check the credentials of the kubeconfig or the mounted ServiceAccount token",
        403 => {
            "grant this ServiceAccount get on pods in this namespace, or set --namespace or METALLB_NAMESPACE to the Pod's"
        }
        404 => {
            "set --pod-name or METALLB_POD_NAME to metadata.name of the Pod, and --namespace or METALLB_NAMESPACE to its \
             namespace"
        }
        _ => "look at the API server's log",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn what_is_no_text_is_shown_with_the_variable_that_holds_it() {
        assert_eq!(text("V", "käse".into()), Ok("käse".to_owned()));
        let error = text("METALLB_NODE_NAME", OsString::from_vec(b"n\xff1".to_vec())).unwrap_err();
        assert_eq!(error, "environment variable METALLB_NODE_NAME is not UTF-8: \"n\\xFF1\"");
    }

    #[test]
    fn names_are_those_that_the_api_server_takes() {
        let long = "a".repeat(63);
        for (name, label, subdomain) in [
            ("metallb-system", true, true),
            ("n1", true, true),
            (long.as_str(), true, true),
            (&format!("{long}a"), false, false),
            (&[long.as_str(); 3].join("."), false, true),
            (&[long.as_str(); 4].join("."), false, false),
            ("node.example", false, true),
            ("node..example", false, false),
            ("", false, false),
            ("-n1", false, false),
            ("n1-", false, false),
            ("Node", false, false),
            ("a b", false, false),
            ("a/b", false, false),
            ("käse", false, false),
        ] {
            assert_eq!((is_label(name), is_subdomain(name)), (label, subdomain), "{name:?}");
        }
    }

    #[test]
    fn the_given_namespace_is_trimmed_and_an_empty_one_is_none() {
        assert_eq!(namespace(Some("metallb-system\n")).as_deref(), Ok("metallb-system"));
        if !std::path::Path::new(NAMESPACE_FILE).exists() {
            let text = namespace(None).unwrap_err();
            assert!(text.starts_with("Unable to get namespace from pod service account data"), "{text}");
        }
    }
}

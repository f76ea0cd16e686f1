// SPDX-License-Identifier: Apache-2.0
//! What a daemon finds in its environment: namespace, signals, its own Pod.

use std::time::Duration;

use ferrolb_api::event::ObjectRef;
use http::Method;
use kube::Client;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::backoff::Backoff;
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
    use super::*;

    #[test]
    fn the_given_namespace_is_trimmed_and_an_empty_one_is_none() {
        assert_eq!(namespace(Some("metallb-system\n")).as_deref(), Ok("metallb-system"));
        if !std::path::Path::new(NAMESPACE_FILE).exists() {
            let text = namespace(None).unwrap_err();
            assert!(text.starts_with("Unable to get namespace from pod service account data"), "{text}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The list of the speakers' Pods, as the API server has it.

use std::time::Duration;

use ferrolb_api::request::WriteError;
use ferrolb_kube_support::reach::Reach;
use ferrolb_kube_support::request::{RequestError, escape, send};
use ferrolb_speaker_core::SpeakerPod;
use http::Method;
use kube::Client;
use serde::Deserialize;

/// Lists the Pods of a namespace that this label selector takes.
///
/// # Errors
///
/// When there is no answer, or a refusal.
pub(crate) async fn list(
    client: &Client,
    reach: &Reach,
    namespace: &str,
    labels: &str,
) -> Result<Vec<SpeakerPod>, WriteError> {
    let mut pods = Vec::new();
    let mut next = String::new();
    loop {
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods?labelSelector={}&limit={PAGE}{next}",
            escape(labels)
        );
        let bytes = send(client, Method::GET, &path, None, LIMIT).await?;
        reach.answered();
        let page: Page = serde_json::from_slice(&bytes)
            .map_err(|error| RequestError::no_answer(format!("the list of Pods cannot be read: {error}")))?;
        pods.extend(page.items.unwrap_or_default().into_iter().map(SpeakerPod::from));
        match page.metadata.next.filter(|token| !token.is_empty()) {
            Some(token) => next = format!("&continue={}", escape(&token)),
            None => return Ok(pods),
        }
    }
}

/// Of a list of Pods what matters; everything else is skipped while it is read.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    items: Option<Vec<Pod>>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(rename = "deletionTimestamp")]
    deleted: Option<String>,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(rename = "nodeName")]
    node: Option<String>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(rename = "podIP")]
    ip: Option<String>,
    phase: Option<String>,
}

impl From<Pod> for SpeakerPod {
    fn from(pod: Pod) -> Self {
        Self {
            name: pod.metadata.name,
            node: pod.spec.node.unwrap_or_default(),
            ip: pod.status.ip.unwrap_or_default(),
            phase: pod.status.phase.unwrap_or_default(),
            terminating: pod.metadata.deleted.is_some(),
        }
    }
}

/// Pods per page.
const PAGE: u32 = 500;

/// How long one page may take.
const LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_reduced_to_where_it_runs_and_whether() {
        let page: Page = serde_json::from_value(json!({
            "kind": "PodList",
            "metadata": { "resourceVersion": "7", "continue": "" },
            "items": [
                {
                    "metadata": { "name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z" },
                    "spec": { "nodeName": "n1", "containers": [{ "name": "speaker" }] },
                    "status": { "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }], "phase": "Running" },
                },
                { "metadata": { "name": "b" }, "spec": {}, "status": { "phase": "Pending" } },
            ],
        }))
        .unwrap();
        let pods: Vec<SpeakerPod> = page.items.unwrap().into_iter().map(SpeakerPod::from).collect();
        let ending = SpeakerPod {
            name: "a".into(),
            node: "n1".into(),
            ip: "10.0.0.1".into(),
            phase: "Running".into(),
            terminating: true,
        };
        assert_eq!(
            pods,
            [ending, SpeakerPod { name: "b".into(), phase: "Pending".into(), ..SpeakerPod::default() }]
        );
    }

    #[test]
    fn what_go_writes_for_an_empty_list_is_one() {
        let page: Page = serde_json::from_value(json!({ "metadata": {}, "items": null })).unwrap();
        assert!(page.items.is_none());
    }
}

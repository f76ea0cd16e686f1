// SPDX-License-Identifier: Apache-2.0
//! What the core asks for because of other controllers: the Lease, a fresh reading of all Services, and who is there.
//!
//! Each request is a task of its own that brings one answer, so nothing here waits behind writes: a Lease that is
//! renewed late is lost.

use std::sync::Arc;
use std::time::Duration;

use ferrolb_api::request::WriteError;
use ferrolb_controller_core::{Effect, Input, LEASE, LeaseRequest, Neighbours, needs_nodes};
use ferrolb_kube_support::reach::Reach;
use ferrolb_kube_support::request::{RequestError, escape, send, send_json};
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::sync::mpsc::UnboundedSender;

/// A Lease is renewed every second and lost after four: an answer that takes longer is as good as none.
const LEASE_LIMIT: Duration = Duration::from_secs(3);
/// How long one page of a list may take.
const PAGE_LIMIT: Duration = Duration::from_secs(10);
/// Objects per page of a list.
const PAGE: u32 = 500;
/// For a list that is looked at before each batch of writes: as the API server has it in memory. A reading by quorum
/// waits there for the storage to tell how far it is, up to 100 ms; and a rival's Pod is there long before it acts.
const CACHED: &str = "resourceVersion=0&";
/// Labels that differ between one rollout and the next, and so say nothing of what a Pod is.
const PASSING_LABELS: [&str; 4] =
    ["pod-template-hash", "controller-revision-hash", "app.kubernetes.io/version", "helm.sh/chart"];

/// The own place among controllers.
#[derive(Clone)]
pub(crate) struct Replica {
    pub(crate) client: Client,
    pub(crate) reach: Reach,
    pub(crate) namespace: String,
    pub(crate) pod_name: String,
    pub(crate) pod_uid: String,
    /// What selects the Pods of controllers; read from the own Pod when it is first needed. `None` if nothing does.
    pub(crate) selector: Arc<OnceCell<Option<String>>>,
    pub(crate) field_manager: &'static str,
    /// Where answers go.
    pub(crate) answers: UnboundedSender<Input>,
}

impl Replica {
    /// Sends what the effect asks for, if it is about other controllers.
    pub(crate) fn carry_out(&self, effect: Effect) {
        let replica = self.clone();
        tokio::spawn(async move {
            let input = match effect {
                Effect::Lease(request) => Input::Lease(replica.lease(request).await.map(Box::new)),
                Effect::ListServices => {
                    Input::ServicesListed(replica.list::<Service>("/api/v1/services", "").await)
                }
                Effect::FindRivals => Input::RivalsFound(replica.neighbours().await),
                _ => return,
            };
            // Nobody listens only while the process ends.
            let _ = replica.answers.send(input);
        });
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Lease, WriteError> {
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace);
        let manager = format!("fieldManager={}", self.field_manager);
        let (method, path, lease) = match request {
            LeaseRequest::Read => (Method::GET, format!("{leases}/{LEASE}"), None),
            LeaseRequest::Create(lease) => (Method::POST, format!("{leases}?{manager}"), Some(lease)),
            LeaseRequest::Replace(lease) => (Method::PUT, format!("{leases}/{LEASE}?{manager}"), Some(lease)),
        };
        // A plain structure with string keys: there is nothing in it that JSON could not say.
        let body = lease.map(|lease| serde_json::to_value(lease).unwrap_or_default());
        let body = body.as_ref().map(|body| ("application/json", body));
        let answer = send_json(&self.client, method, &path, body, LEASE_LIMIT).await;
        self.heard(answer.as_ref().err());
        serde_json::from_value(answer?)
            .map_err(|error| WriteError::no_answer(format!("the answer is no Lease: {error}")))
    }

    async fn neighbours(&self) -> Result<Neighbours, WriteError> {
        let Some(selector) = self.selector.get_or_try_init(|| self.read_selector()).await? else {
            // Nothing tells a controller's Pod from any other.
            return Ok(Neighbours::default());
        };
        let path = format!("/api/v1/namespaces/{}/pods", self.namespace);
        let pods = self.list::<Pod>(&path, &format!("{CACHED}labelSelector={}&", escape(selector))).await?;
        let nodes = if needs_nodes(&pods, &self.pod_uid) {
            self.list::<Node>("/api/v1/nodes", CACHED).await?
        } else {
            vec![]
        };
        Ok(Neighbours { pods, nodes })
    }

    async fn read_selector(&self) -> Result<Option<String>, WriteError> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.pod_name);
        let own = send_json(&self.client, Method::GET, &path, None, PAGE_LIMIT).await;
        self.heard(own.as_ref().err());
        let own: Pod = serde_json::from_value(own?)
            .map_err(|error| WriteError::no_answer(format!("the answer is no Pod: {error}")))?;
        Ok(selector(&own))
    }

    /// Everything there is at one moment, after this call unless [`CACHED`] is asked for. What cannot be decoded is left out, as by the watches.
    async fn list<K: DeserializeOwned>(&self, path: &str, query: &str) -> Result<Vec<K>, WriteError> {
        let mut objects = Vec::new();
        let mut next: Option<String> = None;
        loop {
            // Without a resourceVersion by quorum; the pages that follow are of the same moment, and may not name one.
            let page = match &next {
                None => format!("{path}?{query}limit={PAGE}"),
                Some(token) => {
                    let query = query.trim_start_matches(CACHED);
                    format!("{path}?{query}limit={PAGE}&continue={}", escape(token))
                }
            };
            let bytes = send(&self.client, Method::GET, &page, None, PAGE_LIMIT).await;
            self.heard(bytes.as_ref().err());
            let page: Page = serde_json::from_slice(&bytes?)
                .map_err(|error| WriteError::no_answer(format!("the list cannot be read: {error}")))?;
            let items = page.items.unwrap_or_default().into_iter();
            objects.extend(items.filter_map(|item| serde_json::from_value::<K>(item).ok()));
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(objects);
            }
        }
    }

    fn heard(&self, error: Option<&RequestError>) {
        match error {
            Some(error) if error.code == 0 => self.reach.lost(&error.message),
            _ => self.reach.answered(),
        }
    }
}

/// One page of a list.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    items: Option<Vec<Value>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Selects the Pods that do what this one does, of whatever version; `None` if it has no label that says so.
fn selector(pod: &Pod) -> Option<String> {
    let labels = pod.metadata.labels.iter().flatten();
    let lasting = labels.filter(|(key, _)| !PASSING_LABELS.contains(&key.as_str()));
    let terms: Vec<String> = lasting.map(|(key, value)| format!("{key}={value}")).collect();
    (!terms.is_empty()).then(|| terms.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rivals_are_found_by_the_labels_that_a_rollout_keeps() {
        let pod =
            |labels: Value| serde_json::from_value(json!({ "metadata": { "labels": labels } })).unwrap();
        let labels = json!({ "app": "metallb", "component": "controller", "pod-template-hash": "6f8b9" });
        assert_eq!(selector(&pod(labels)).as_deref(), Some("app=metallb,component=controller"));
        assert_eq!(selector(&pod(json!({ "pod-template-hash": "6f8b9" }))), None);
        assert_eq!(selector(&pod(json!(null))), None);
    }
}

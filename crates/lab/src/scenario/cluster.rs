// SPDX-License-Identifier: Apache-2.0
//! What a story reads from the API server, and the few writes it makes itself where `kubectl` is not installed.
//!
//! Objects are plain JSON: a story looks at them as a user's tool would, not through the product's own types.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// A kind of object that stories deal with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    singular: &'static str,
    plural: &'static str,
    namespaced: bool,
}

impl Kind {
    const fn core(
        kind: &'static str,
        singular: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        Self { group: "", version: "v1", kind, singular, plural, namespaced }
    }

    const fn metallb(kind: &'static str, singular: &'static str, plural: &'static str) -> Self {
        Self { group: "metallb.io", version: "v1beta1", kind, singular, plural, namespaced: true }
    }

    /// The word `kubectl` takes.
    pub(crate) const fn word(self) -> &'static str {
        self.plural
    }

    /// The word for one of them.
    pub(crate) const fn singular(self) -> &'static str {
        self.singular
    }

    /// The version of the API group.
    pub(crate) const fn version(self) -> &'static str {
        self.version
    }

    /// Whether a document is of this kind and version.
    fn is_of(self, document: &Value) -> bool {
        let (group, version) =
            text(document, "/apiVersion").split_once('/').unwrap_or(("", text(document, "/apiVersion")));
        (group, version, text(document, "/kind")) == (self.group, self.version, self.kind)
    }

    fn resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(self.group, self.version, self.kind),
            self.plural,
        )
    }
}

pub(crate) const NAMESPACE: Kind = Kind::core("Namespace", "namespace", "namespaces", false);
pub(crate) const NODE: Kind = Kind::core("Node", "node", "nodes", false);
pub(crate) const POD: Kind = Kind::core("Pod", "pod", "pods", true);
pub(crate) const SERVICE: Kind = Kind::core("Service", "service", "services", true);
pub(crate) const SECRET: Kind = Kind::core("Secret", "secret", "secrets", true);
pub(crate) const EVENT: Kind = Kind::core("Event", "event", "events", true);
pub(crate) const DEPLOYMENT: Kind = Kind {
    group: "apps",
    version: "v1",
    kind: "Deployment",
    singular: "deployment",
    plural: "deployments",
    namespaced: true,
};
pub(crate) const DAEMON_SET: Kind = Kind {
    group: "apps",
    version: "v1",
    kind: "DaemonSet",
    singular: "daemonset",
    plural: "daemonsets",
    namespaced: true,
};
pub(crate) const ENDPOINT_SLICE: Kind = Kind {
    group: "discovery.k8s.io",
    version: "v1",
    kind: "EndpointSlice",
    singular: "endpointslice",
    plural: "endpointslices",
    namespaced: true,
};
pub(crate) const DEFINITION: Kind = Kind {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    singular: "customresourcedefinition",
    plural: "customresourcedefinitions",
    namespaced: false,
};
pub(crate) const LEASE: Kind = Kind {
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    singular: "lease",
    plural: "leases",
    namespaced: true,
};
pub(crate) const WEBHOOKS: Kind = Kind {
    group: "admissionregistration.k8s.io",
    version: "v1",
    kind: "ValidatingWebhookConfiguration",
    singular: "validatingwebhookconfiguration",
    plural: "validatingwebhookconfigurations",
    namespaced: false,
};
pub(crate) const POOL: Kind = Kind::metallb("IPAddressPool", "ipaddresspool", "ipaddresspools");
pub(crate) const L2_ADVERTISEMENT: Kind =
    Kind::metallb("L2Advertisement", "l2advertisement", "l2advertisements");
pub(crate) const BGP_PEER: Kind =
    Kind { version: "v1beta2", ..Kind::metallb("BGPPeer", "bgppeer", "bgppeers") };
pub(crate) const BGP_ADVERTISEMENT: Kind =
    Kind::metallb("BGPAdvertisement", "bgpadvertisement", "bgpadvertisements");
pub(crate) const COMMUNITY: Kind = Kind::metallb("Community", "community", "communities");
pub(crate) const BFD_PROFILE: Kind = Kind::metallb("BFDProfile", "bfdprofile", "bfdprofiles");
pub(crate) const SERVICE_ACCOUNT: Kind =
    Kind::core("ServiceAccount", "serviceaccount", "serviceaccounts", true);
pub(crate) const CLUSTER_ROLE: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    version: "v1",
    kind: "ClusterRole",
    singular: "clusterrole",
    plural: "clusterroles",
    namespaced: false,
};
pub(crate) const CLUSTER_ROLE_BINDING: Kind = Kind {
    kind: "ClusterRoleBinding",
    singular: "clusterrolebinding",
    plural: "clusterrolebindings",
    ..CLUSTER_ROLE
};
/// The same kind in its deprecated version.
pub(crate) const BGP_PEER_V1BETA1: Kind = Kind { version: "v1beta1", ..BGP_PEER };
pub(crate) const L2_STATUS: Kind = Kind::metallb("ServiceL2Status", "servicel2status", "servicel2statuses");
pub(crate) const BGP_STATUS: Kind =
    Kind::metallb("ServiceBGPStatus", "servicebgpstatus", "servicebgpstatuses");
pub(crate) const BGP_SESSION: Kind =
    Kind { group: "ferrolb.io", version: "v1", ..Kind::metallb("BGPSession", "bgpsession", "bgpsessions") };
pub(crate) const CONFIGURATION_STATE: Kind =
    Kind::metallb("ConfigurationState", "configurationstate", "configurationstates");

const KINDS: [Kind; 24] = [
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    EVENT,
    DEPLOYMENT,
    DAEMON_SET,
    ENDPOINT_SLICE,
    DEFINITION,
    POOL,
    L2_ADVERTISEMENT,
    L2_STATUS,
    CONFIGURATION_STATE,
    WEBHOOKS,
    LEASE,
    SECRET,
    BGP_PEER,
    BGP_PEER_V1BETA1,
    BGP_ADVERTISEMENT,
    COMMUNITY,
    BFD_PROFILE,
    SERVICE_ACCOUNT,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
];

/// An Event about an object, as a story compares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventSeen {
    /// `Normal` or `Warning`.
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// `source.component`.
    pub(crate) component: String,
    /// How often it was sent.
    pub(crate) count: u64,
}

/// The API server of the bench.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
}

impl Cluster {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client }
    }

    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
        } else {
            Api::all_with(self.client.clone(), &kind.resource())
        }
    }

    /// The object, if it is there. The namespace of a cluster-wide kind is not looked at.
    pub(crate) async fn find(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>> {
        let found = self.api(kind, namespace).get_opt(name).await;
        let found = found.with_context(|| format!("get {} {name}", kind.word()))?;
        found.map(|object| serde_json::to_value(object).map_err(Into::into)).transpose()
    }

    /// The object, which has to be there.
    pub(crate) async fn read(&self, kind: Kind, namespace: &str, name: &str) -> Result<Value> {
        self.find(kind, namespace, name)
            .await?
            .ok_or_else(|| anyhow!("there is no {} {name} in {namespace}", kind.word()))
    }

    /// Every object of the kind in the namespace.
    pub(crate) async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Value>> {
        let found = self.api(kind, namespace).list(&ListParams::default()).await;
        let found = found.with_context(|| format!("list {}", kind.word()))?;
        found.items.into_iter().map(|object| serde_json::to_value(object).map_err(Into::into)).collect()
    }

    /// The Events about the object of this name, oldest first.
    pub(crate) async fn events_on(&self, namespace: &str, name: &str) -> Result<Vec<EventSeen>> {
        let mut events = self.list(EVENT, namespace).await?;
        events.retain(|event| text(event, "/involvedObject/name") == name);
        events.sort_by_key(|event| text(event, "/firstTimestamp").to_owned());
        Ok(events
            .iter()
            .map(|event| EventSeen {
                kind: text(event, "/type").to_owned(),
                reason: text(event, "/reason").to_owned(),
                message: text(event, "/message").to_owned(),
                component: text(event, "/source/component").to_owned(),
                count: event["count"].as_u64().unwrap_or_default(),
            })
            .collect())
    }

    /// Applies one document, as `kubectl apply --server-side` does.
    pub(crate) async fn apply(&self, document: &Value) -> Result<()> {
        let kind = known(document)?;
        let name = text(document, "/metadata/name");
        let params = PatchParams::apply("ferrolb-lab").force();
        self.api(kind, text(document, "/metadata/namespace"))
            .patch(name, &params, &Patch::Apply(document))
            .await
            .with_context(|| format!("apply {} {name}", kind.word()))?;
        Ok(())
    }

    /// As [`Cluster::apply`], once and with the API server's words alone when it is refused.
    pub(crate) async fn try_apply(&self, kind: Kind, document: &Value) -> Result<()> {
        let params = PatchParams::apply("ferrolb-lab").force();
        let api = self.api(kind, text(document, "/metadata/namespace"));
        match api.patch(text(document, "/metadata/name"), &params, &Patch::Apply(document)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(anyhow!(status.message)),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the object that a document describes.
    pub(crate) async fn remove(&self, document: &Value) -> Result<()> {
        let kind = known(document)?;
        self.delete(kind, text(document, "/metadata/namespace"), text(document, "/metadata/name")).await
    }

    /// A merge patch of the object, or of its status.
    pub(crate) async fn merge(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        status: bool,
        patch: &Value,
    ) -> Result<()> {
        self.merge_as(None, kind, namespace, name, status, patch).await
    }

    /// [`Self::merge`] under the name of a field manager.
    pub(crate) async fn merge_as(
        &self,
        manager: Option<&str>,
        kind: Kind,
        namespace: &str,
        name: &str,
        status: bool,
        patch: &Value,
    ) -> Result<()> {
        let params = PatchParams { field_manager: manager.map(str::to_owned), ..PatchParams::default() };
        let (api, patch) = (self.api(kind, namespace), Patch::Merge(patch));
        let done = if status {
            api.patch_status(name, &params, &patch).await
        } else {
            api.patch(name, &params, &patch).await
        };
        done.with_context(|| format!("patch {} {name}", kind.word()))?;
        Ok(())
    }

    /// A JSON patch of the object.
    pub(crate) async fn patch_json(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<()> {
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch.clone())?);
        let done = self.api(kind, namespace).patch(name, &PatchParams::default(), &patch).await;
        done.with_context(|| format!("patch {} {name}", kind.word()))?;
        Ok(())
    }

    /// What the server would have a table print for all objects of the kind, headings first.
    pub(crate) async fn table(&self, kind: Kind, namespace: &str) -> Result<Vec<Vec<String>>> {
        let path = self.api(kind, namespace).resource_url().to_owned();
        let mut request = kube::core::Request::new(path).list(&ListParams::default())?;
        request.headers_mut().insert("accept", "application/json;as=Table;v=v1;g=meta.k8s.io".parse()?);
        let table: Value = self.client.request(request).await?;
        let columns =
            table.pointer("/columnDefinitions").and_then(Value::as_array).cloned().unwrap_or_default();
        let shown = |index: &usize| columns.get(*index).is_some_and(|column| column["priority"] == 0);
        let indexes: Vec<usize> = (0..columns.len()).filter(shown).collect();
        let headings = indexes.iter().map(|index| text(&columns[*index], "/name").to_uppercase()).collect();
        let cell = |row: &Value, index: &usize| match &row["cells"][*index] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let rows = table.pointer("/rows").and_then(Value::as_array).cloned().unwrap_or_default();
        let rows = rows.iter().map(|row| indexes.iter().map(|index| cell(row, index)).collect());
        Ok(std::iter::once(headings).chain(rows).collect())
    }

    /// Deletes the object. One that is not there is no error.
    pub(crate) async fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Result<()> {
        match self.api(kind, namespace).delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).with_context(|| format!("delete {} {name}", kind.word())),
        }
    }
}

fn known(document: &Value) -> Result<Kind> {
    let kind = text(document, "/kind");
    KINDS
        .into_iter()
        .find(|known| known.is_of(document))
        .with_context(|| format!("{kind:?} is not a kind of these stories"))
}

/// The text at a JSON pointer; empty when there is none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The addresses of a Service's load balancer, in order.
pub(crate) fn ingress(service: &Value) -> Vec<String> {
    let entries = service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    entries.into_iter().flatten().map(|entry| text(entry, "/ip").to_owned()).collect()
}

/// Looks again and again until `look` succeeds, and gives up with its last error once `limit` is over.
pub(crate) async fn eventually<T>(limit: Duration, mut look: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match look().await {
            Ok(seen) => return Ok(seen),
            Err(error) if Instant::now() >= deadline => {
                return Err(error.context(format!("not within {} s", limit.as_secs_f32())));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Sees `look` succeed during all of `window`.
pub(crate) async fn throughout(window: Duration, mut look: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    let end = Instant::now() + window;
    while Instant::now() < end {
        look().await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

const PAUSE: Duration = Duration::from_millis(25);

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[tokio::test]
    async fn waiting_ends_with_the_first_success_or_the_last_error() {
        let mut left = 3;
        let seen = eventually(Duration::from_secs(60), async || {
            left -= 1;
            if left > 0 {
                bail!("{left} left")
            }
            Ok("done")
        });
        assert_eq!(seen.await.unwrap(), "done");
        let error =
            eventually::<()>(Duration::from_millis(1), async || bail!("still dark")).await.unwrap_err();
        assert_eq!(format!("{error:#}"), "not within 0.001 s: still dark");
    }

    #[test]
    fn every_kind_is_known_by_its_name() {
        for kind in KINDS {
            assert_eq!(kind.singular, kind.kind.to_lowercase());
            let stem = kind.singular.trim_end_matches('y');
            assert!(kind.plural.starts_with(stem), "{}", kind.kind);
        }
    }
}

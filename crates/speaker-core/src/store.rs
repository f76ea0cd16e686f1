// SPDX-License-Identifier: Apache-2.0
//! What the watches delivered of Services, EndpointSlices and Nodes, reduced to what decides, and which of it
//! changed since it was last looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferrolb_announce::{Endpoint, Endpoints, Ingress, Node, Service};
use ferrolb_api::event::ObjectRef;
use ferrolb_api::{Change, labels};
use ferrolb_net_types::{IpFamily, NodeName, ServiceKey, parse_ip};
use k8s_openapi::api::core::v1;
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// The cluster as this node sees it.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) services: BTreeMap<ServiceKey, Service>,
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    /// The nodes that are known not to be ready. Nothing is announced, or not, for that.
    pub(crate) not_ready: BTreeSet<NodeName>,
    /// Every node's own address, where it has one. Nothing is announced, or not, for that either.
    pub(crate) addresses: BTreeMap<NodeName, Option<IpAddr>>,
    /// Uid and resource version of each Service, for events. Moves without anything being decided anew.
    versions: BTreeMap<ServiceKey, (String, String)>,
    slices: BTreeMap<SliceKey, Slice>,
    /// The slices of each Service, known or not: slices may come before their Service.
    slices_of: BTreeMap<ServiceKey, BTreeSet<SliceKey>>,
    changes: Changes,
    /// The same, since BGP looked.
    bgp_changes: Changes,
}

/// What is to be decided anew.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// These Services.
    pub(crate) services: BTreeSet<ServiceKey>,
    /// Every Service: something changed that all depend on.
    pub(crate) all: bool,
}

/// Namespace and name.
type SliceKey = (String, String);

#[derive(Debug, PartialEq)]
struct Slice {
    service: ServiceKey,
    endpoints: Endpoints,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.services.is_empty()
    }
}

impl Store {
    pub(crate) fn services(&mut self, change: Change<v1::Service>) {
        match change {
            Change::Applied(service) => self.apply_service(&service),
            Change::Deleted { namespace, name } => self.remove_service(&ServiceKey::new(&namespace, &name)),
            Change::Reset(services) => {
                let listed: BTreeSet<_> = services.iter().filter_map(|s| key_of(&s.metadata)).collect();
                let gone: Vec<_> =
                    self.services.keys().filter(|key| !listed.contains(*key)).cloned().collect();
                gone.iter().for_each(|key| self.remove_service(key));
                services.iter().for_each(|service| self.apply_service(service));
            }
        }
    }

    pub(crate) fn slices(&mut self, change: Change<EndpointSlice>) {
        match change {
            Change::Applied(slice) => self.apply_slice(&slice),
            Change::Deleted { namespace, name } => self.remove_slice(&(namespace, name)),
            Change::Reset(slices) => {
                let listed: BTreeSet<_> = slices.iter().filter_map(slice_key).collect();
                let gone: Vec<_> = self.slices.keys().filter(|key| !listed.contains(*key)).cloned().collect();
                gone.iter().for_each(|key| self.remove_slice(key));
                slices.iter().for_each(|slice| self.apply_slice(slice));
            }
        }
    }

    pub(crate) fn nodes(&mut self, change: &Change<v1::Node>) {
        match change {
            Change::Applied(node) => self.apply_node(node),
            Change::Deleted { name, .. } => {
                if self.nodes.remove(name.as_str()).is_some() {
                    self.touch_all();
                }
                self.not_ready.remove(name.as_str());
                self.addresses.remove(name.as_str());
            }
            Change::Reset(nodes) => {
                let listed: BTreeSet<_> = nodes.iter().filter_map(|n| n.metadata.name.as_deref()).collect();
                let known = self.nodes.len();
                self.nodes.retain(|name, _| listed.contains(name.as_str()));
                self.not_ready.retain(|name| listed.contains(name.as_str()));
                self.addresses.retain(|name, _| listed.contains(name.as_str()));
                if self.nodes.len() != known {
                    self.touch_all();
                }
                nodes.iter().for_each(|node| self.apply_node(node));
            }
        }
    }

    /// What a former process knew, until the lists say what is so.
    pub(crate) fn resume(
        &mut self,
        nodes: BTreeMap<NodeName, Node>,
        not_ready: BTreeSet<NodeName>,
        services: BTreeMap<ServiceKey, Service>,
    ) {
        (self.nodes, self.not_ready, self.services) = (nodes, not_ready, services);
    }

    /// Whether the change brings a node that was not there before, or another state of the network of this one.
    pub(crate) fn is_news(&self, change: &Change<v1::Node>, own: &NodeName) -> bool {
        let news = |node: &v1::Node| {
            let Some(name) = node.metadata.name.as_deref() else { return false };
            self.nodes.get(name).is_none_or(|known| name == own.as_str() && *known != reduce_node(node))
        };
        match change {
            Change::Applied(node) => news(node),
            Change::Deleted { .. } => false,
            Change::Reset(nodes) => nodes.iter().any(news),
        }
    }

    /// What changed since the last call.
    pub(crate) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// What changed since the last call, for BGP.
    pub(crate) fn take_bgp_changes(&mut self) -> Changes {
        std::mem::take(&mut self.bgp_changes)
    }

    /// Everything is to be decided anew.
    pub(crate) const fn decide_all(&mut self) {
        self.changes.all = true;
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The Service as an event refers to it.
    pub(crate) fn reference(&self, service: &ServiceKey) -> ObjectRef {
        let (uid, resource_version) = self.versions.get(service).cloned().unwrap_or_default();
        ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            namespace: service.namespace.to_string(),
            name: service.name.to_string(),
            uid,
            resource_version,
        }
    }

    fn touch(&mut self, service: ServiceKey) {
        self.bgp_changes.services.insert(service.clone());
        self.changes.services.insert(service);
    }

    const fn touch_all(&mut self) {
        self.bgp_changes.all = true;
        self.changes.all = true;
    }

    fn apply_service(&mut self, object: &v1::Service) {
        let Some(key) = key_of(&object.metadata) else { return };
        let service = Service { endpoints: self.endpoints(&key), ..reduce_service(object) };
        let version = (
            object.metadata.uid.clone().unwrap_or_default(),
            object.metadata.resource_version.clone().unwrap_or_default(),
        );
        self.versions.insert(key.clone(), version);
        if self.services.get(&key) != Some(&service) {
            self.services.insert(key.clone(), service);
            self.touch(key);
        }
    }

    fn remove_service(&mut self, key: &ServiceKey) {
        self.versions.remove(key);
        if self.services.remove(key).is_some() {
            self.touch(key.clone());
        }
    }

    fn apply_slice(&mut self, object: &EndpointSlice) {
        let Some(key) = slice_key(object) else { return };
        let Some(slice) = reduce_slice(object) else { return self.remove_slice(&key) };
        if self.slices.get(&key) == Some(&slice) {
            return;
        }
        // The label may have moved the slice to another Service.
        self.remove_slice(&key);
        let service = slice.service.clone();
        self.slices_of.entry(service.clone()).or_default().insert(key.clone());
        self.slices.insert(key, slice);
        self.refresh_endpoints(&service);
    }

    fn remove_slice(&mut self, key: &SliceKey) {
        let Some(slice) = self.slices.remove(key) else { return };
        if let Some(keys) = self.slices_of.get_mut(&slice.service) {
            keys.remove(key);
            if keys.is_empty() {
                self.slices_of.remove(&slice.service);
            }
        }
        self.refresh_endpoints(&slice.service);
    }

    fn refresh_endpoints(&mut self, key: &ServiceKey) {
        let endpoints = self.endpoints(key);
        if let Some(service) = self.services.get_mut(key).filter(|s| s.endpoints != endpoints) {
            service.endpoints = endpoints;
            self.touch(key.clone());
        }
    }

    fn endpoints(&self, service: &ServiceKey) -> Endpoints {
        let keys = self.slices_of.get(service).into_iter().flatten();
        keys.filter_map(|key| self.slices.get(key)).fold(Endpoints::default(), |mut all, slice| {
            all.add(&slice.endpoints);
            all
        })
    }

    fn apply_node(&mut self, object: &v1::Node) {
        let Some(name) = object.metadata.name.as_deref() else { return };
        let node = reduce_node(object);
        if self.nodes.get(name) != Some(&node) {
            self.nodes.insert(name.into(), node);
            self.touch_all();
        }
        let address = address_of(object);
        if self.addresses.get(name) != Some(&address) {
            self.addresses.insert(name.into(), address);
        }
        if !is_not_ready(object) {
            self.not_ready.remove(name);
        } else if !self.not_ready.contains(name) {
            self.not_ready.insert(name.into());
        }
    }
}

fn key_of(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Option<ServiceKey> {
    Some(ServiceKey::new(metadata.namespace.as_deref()?, metadata.name.as_deref()?))
}

fn slice_key(slice: &EndpointSlice) -> Option<SliceKey> {
    Some((slice.metadata.namespace.clone()?, slice.metadata.name.clone()?))
}

fn reduce_service(object: &v1::Service) -> Service {
    let spec = object.spec.as_ref();
    let status = object.status.as_ref().and_then(|s| s.load_balancer.as_ref());
    let ingress = status.and_then(|s| s.ingress.as_ref()).into_iter().flatten();
    Service {
        load_balancer: spec.and_then(|s| s.type_.as_deref()) == Some("LoadBalancer"),
        class: spec.and_then(|s| s.load_balancer_class.clone()),
        created: object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        labels: object.metadata.labels.clone().unwrap_or_default(),
        ingress: ingress.map(|i| Ingress::parse(i.ip.as_deref(), i.hostname.as_deref())).collect(),
        local: spec.and_then(|s| s.external_traffic_policy.as_deref()) == Some("Local"),
        endpoints: Endpoints::default(),
    }
}

fn reduce_slice(object: &EndpointSlice) -> Option<Slice> {
    let name = object.metadata.labels.as_ref()?.get(labels::ENDPOINT_SLICE_SERVICE)?;
    let service = ServiceKey::new(object.metadata.namespace.as_deref()?, name);
    let endpoints = object.endpoints.iter().map(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        Endpoint {
            ready: conditions.and_then(|c| c.ready),
            serving: conditions.and_then(|c| c.serving),
            node: endpoint.node_name.as_deref(),
        }
    });
    let family = if object.address_type == "IPv6" { IpFamily::V6 } else { IpFamily::V4 };
    Some(Slice { service, endpoints: Endpoints::of(family, endpoints) })
}

fn reduce_node(object: &v1::Node) -> Node {
    let conditions = object.status.as_ref().and_then(|s| s.conditions.as_ref()).into_iter().flatten();
    Node {
        excluded: object
            .metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(labels::EXCLUDE_FROM_LOAD_BALANCERS)),
        network_unavailable: conditions
            .into_iter()
            .any(|c| c.type_ == "NetworkUnavailable" && c.status == "True"),
    }
}

/// The address at which the node's Pods are that use its network: the first that it calls internal.
fn address_of(object: &v1::Node) -> Option<IpAddr> {
    let addresses = object.status.as_ref().and_then(|s| s.addresses.as_ref()).into_iter().flatten();
    addresses.filter(|a| a.type_ == "InternalIP").find_map(|a| parse_ip(&a.address))
}

/// Whether the node is known not to be ready. One that says nothing of it may well be.
fn is_not_ready(object: &v1::Node) -> bool {
    let conditions = object.status.as_ref().and_then(|s| s.conditions.as_ref()).into_iter().flatten();
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status != "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn service(version: &str) -> v1::Service {
        object(json!({
            "metadata": { "namespace": "demo", "name": "web", "uid": "u", "resourceVersion": version },
            "spec": { "type": "LoadBalancer", "externalTrafficPolicy": "Local" },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.168.10.200", "ipMode": "VIP" }] } },
        }))
    }

    fn slice(name: &str, service: &str, node: &str, ready: bool) -> EndpointSlice {
        object(json!({
            "metadata": {
                "namespace": "demo", "name": name, "labels": { "kubernetes.io/service-name": service },
            },
            "addressType": "IPv4",
            "endpoints": [{ "addresses": ["10.1.1.1"], "nodeName": node, "conditions": { "ready": ready } }],
        }))
    }

    fn node(value: serde_json::Value) -> Node {
        reduce_node(&object(value))
    }

    fn key() -> ServiceKey {
        ServiceKey::new("demo", "web")
    }

    fn nodes_of(store: &Store) -> Vec<&str> {
        store.services[&key()].endpoints.nodes.iter().map(NodeName::as_str).collect()
    }

    #[test]
    fn slices_of_a_service_are_merged_whatever_comes_first() {
        let mut store = Store::default();
        store.slices(Change::Applied(Box::new(slice("web-1", "web", "n1", true))));
        assert!(!store.has_changes(), "there is no such Service yet");
        store.services(Change::Applied(Box::new(service("1"))));
        store.slices(Change::Applied(Box::new(slice("web-2", "web", "n2", true))));
        assert_eq!(nodes_of(&store), ["n1", "n2"]);
        assert_eq!(store.take_changes().services, [key()].into());

        // The same endpoint by its other address.
        let six = EndpointSlice { address_type: "IPv6".into(), ..slice("web-6", "web", "n2", true) };
        store.slices(Change::Applied(Box::new(six)));
        let counts = store.services[&key()].endpoints.counts["n2"];
        assert_eq!((counts.v4, counts.v6), (1, 1));
        store.slices(Change::Deleted { namespace: "demo".into(), name: "web-6".into() });
        store.take_changes();

        store.slices(Change::Deleted { namespace: "demo".into(), name: "web-1".into() });
        assert_eq!(nodes_of(&store), ["n2"]);
        assert_eq!(store.take_changes().services, [key()].into());

        // The label moves it to another Service.
        store.slices(Change::Applied(Box::new(slice("web-2", "other", "n2", true))));
        assert_eq!(store.services[&key()].endpoints, Endpoints::default());
        store.take_changes();

        store.slices(Change::Reset(vec![slice("web-3", "web", "n3", false)]));
        assert_eq!(store.services[&key()].endpoints, Endpoints::default());
        assert!(!store.has_changes(), "an endpoint that does not serve changes nothing");
    }

    #[test]
    fn a_new_version_without_news_is_no_change() {
        let mut store = Store::default();
        store.services(Change::Reset(vec![service("1")]));
        store.take_changes();
        store.services(Change::Reset(vec![service("2")]));
        assert!(!store.has_changes());
        assert_eq!(store.reference(&key()).resource_version, "2");
        store.services(Change::Reset(vec![]));
        assert_eq!(store.take_changes().services, [key()].into());
        assert_eq!(store.reference(&key()).uid, "");
    }

    #[test]
    fn of_a_node_only_label_and_network_count() {
        let unavailable = |status| json!([{ "type": "NetworkUnavailable", "status": status }]);
        for (about, value, expected) in [
            ("nothing", json!({}), Node::default()),
            (
                "an empty label value",
                json!({ "metadata": { "labels": { labels::EXCLUDE_FROM_LOAD_BALANCERS: "" } } }),
                Node { excluded: true, ..Node::default() },
            ),
            (
                "network",
                json!({ "status": { "conditions": unavailable("True") } }),
                Node { network_unavailable: true, ..Node::default() },
            ),
            (
                "network known good",
                json!({ "status": { "conditions": unavailable("False") } }),
                Node::default(),
            ),
            (
                "cordoned and not ready",
                json!({
                    "spec": { "unschedulable": true },
                    "status": { "conditions": [{ "type": "Ready", "status": "False" }] },
                }),
                Node::default(),
            ),
        ] {
            let mut value = value;
            value["metadata"]["name"] = json!("n1");
            assert_eq!(node(value), expected, "{about}");
        }
    }

    #[test]
    fn a_deleted_node_is_forgotten_s10() {
        let mut store = Store::default();
        let one: v1::Node = object(json!({ "metadata": { "name": "n1" } }));
        store.nodes(&Change::Reset(vec![one.clone()]));
        assert!(store.take_changes().all);
        store.nodes(&Change::Applied(Box::new(one)));
        assert!(!store.has_changes());
        store.nodes(&Change::Deleted { namespace: String::new(), name: "n1".into() });
        assert!(store.take_changes().all);
        assert!(store.nodes.is_empty());
    }
}

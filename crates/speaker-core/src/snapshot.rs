// SPDX-License-Identifier: Apache-2.0
//! What decisions are made from, in a form that outlives the process: a speaker that is started again while the API
//! server is away goes on from it.
//!
//! It holds the configuration in force, nodes, Services with the nodes of their endpoints, and the other speakers:
//! reduced to what decides, so no Secret, nothing of BGP, and no object as a whole. A line with a version and a checksum
//! comes first. What does not fit is no snapshot at all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use ferrolb_announce::{Endpoints, Ingress, Node, Service};
use ferrolb_config::{Config, L2Advertisement, Labels, Pool, Selector};
use ferrolb_net_types::{InterfaceName, Interfaces, NodeName, PoolName, ServiceKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::wire::Peer;

/// What decisions are made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) config: Config,
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    pub(crate) not_ready: BTreeSet<NodeName>,
    pub(crate) services: BTreeMap<ServiceKey, Service>,
    /// `None` if there is no member list, or it is not known who should be in it.
    pub(crate) peers: Option<Vec<Peer>>,
}

/// Why something is no snapshot to go on from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It does not begin as one, or was written by a version with another form.
    #[error("it is no snapshot of this version")]
    Form,
    /// Its content is not what was written.
    #[error("it is damaged: the checksum does not fit")]
    Damaged,
    /// It cannot be understood, although it is whole.
    #[error("it cannot be understood: {0}")]
    Content(String),
    /// It is of another node.
    #[error("it is of node {0}")]
    OtherNode(NodeName),
}

impl Snapshot {
    /// The bytes to keep.
    pub(crate) fn encode(&self, node: &NodeName) -> Vec<u8> {
        let document = Document::of(node, self);
        // Maps with texts as keys, and plain values: there is nothing that JSON could not hold.
        let text = serde_json::to_string(&document).unwrap_or_default();
        format!("{HEAD}{}\n{text}\n", checksum(&text)).into_bytes()
    }

    /// What was kept for this node.
    pub(crate) fn decode(node: &NodeName, bytes: &[u8]) -> Result<Self, SnapshotError> {
        let text = std::str::from_utf8(bytes).map_err(|_| SnapshotError::Form)?;
        let (sum, text) =
            text.strip_prefix(HEAD).and_then(|rest| rest.split_once('\n')).ok_or(SnapshotError::Form)?;
        let text = text.strip_suffix('\n').ok_or(SnapshotError::Damaged)?;
        if sum != checksum(text) {
            return Err(SnapshotError::Damaged);
        }
        let content = |error: String| SnapshotError::Content(error);
        let document: Document = serde_json::from_str(text).map_err(|error| content(error.to_string()))?;
        if document.node != node.as_str() {
            return Err(SnapshotError::OtherNode(document.node.as_str().into()));
        }
        document.into_snapshot().map_err(content)
    }
}

fn checksum(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a snapshot begins with; the number is that of the form.
const HEAD: &str = "ferrolb speaker snapshot 1 ";

#[derive(Deserialize, Serialize)]
struct Document {
    node: String,
    pools: BTreeMap<String, PoolDocument>,
    pools_incomplete: bool,
    nodes: BTreeMap<String, NodeDocument>,
    services: Vec<ServiceDocument>,
    peers: Option<Vec<PeerDocument>>,
}

#[derive(Deserialize, Serialize)]
struct PoolDocument {
    blocks: Vec<String>,
    advertisements: Vec<AdvertisementDocument>,
}

#[derive(Deserialize, Serialize)]
struct AdvertisementDocument {
    name: String,
    nodes: BTreeSet<String>,
    /// `None`: all.
    interfaces: Option<BTreeSet<String>>,
    selectors: Vec<LabelSelector>,
    preferences: BTreeMap<String, u32>,
}

#[derive(Deserialize, Serialize)]
struct NodeDocument {
    excluded: bool,
    network_unavailable: bool,
    not_ready: bool,
}

#[derive(Deserialize, Serialize)]
struct ServiceDocument {
    namespace: String,
    name: String,
    class: Option<String>,
    created: i64,
    labels: Labels,
    ingress: Vec<IngressDocument>,
    local: bool,
    any_endpoint: bool,
    endpoint_nodes: BTreeSet<String>,
}

#[derive(Deserialize, Serialize)]
enum IngressDocument {
    Ip(std::net::IpAddr),
    Hostname(String),
    Invalid(String),
}

#[derive(Deserialize, Serialize)]
struct PeerDocument {
    node: String,
    address: SocketAddr,
    awaited: bool,
}

impl Document {
    fn of(node: &NodeName, snapshot: &Snapshot) -> Self {
        let pools =
            snapshot.config.pools.iter().map(|(name, pool)| (name.to_string(), PoolDocument::of(pool)));
        let nodes = snapshot.nodes.iter().map(|(name, node)| {
            let document = NodeDocument {
                excluded: node.excluded,
                network_unavailable: node.network_unavailable,
                not_ready: snapshot.not_ready.contains(name),
            };
            (name.to_string(), document)
        });
        // Whatever is no load balancer, or has no address, has no say.
        let services = snapshot.services.iter().filter(|(_, s)| s.load_balancer && !s.ingress.is_empty());
        let peers = snapshot.peers.as_ref().map(|peers| peers.iter().map(PeerDocument::of).collect());
        Self {
            node: node.to_string(),
            pools: pools.collect(),
            pools_incomplete: snapshot.config.pools_incomplete,
            nodes: nodes.collect(),
            services: services.map(|(key, service)| ServiceDocument::of(key, service)).collect(),
            peers,
        }
    }

    fn into_snapshot(self) -> Result<Snapshot, String> {
        let mut pools = BTreeMap::new();
        for (name, document) in self.pools {
            let name = PoolName::from(name.as_str());
            pools.insert(name.clone(), Arc::new(document.into_pool(name)?));
        }
        let not_ready =
            self.nodes.iter().filter(|(_, node)| node.not_ready).map(|(name, _)| name.as_str().into());
        Ok(Snapshot {
            config: Config { pools, pools_incomplete: self.pools_incomplete, ..Config::default() },
            not_ready: not_ready.collect(),
            nodes: self
                .nodes
                .iter()
                .map(|(name, document)| (name.as_str().into(), document.node()))
                .collect(),
            services: self.services.into_iter().map(ServiceDocument::into_service).collect(),
            peers: self.peers.map(|peers| peers.into_iter().map(PeerDocument::into_peer).collect()),
        })
    }
}

impl PoolDocument {
    fn of(pool: &Pool) -> Self {
        Self {
            blocks: pool.blocks.iter().map(ToString::to_string).collect(),
            advertisements: pool.l2_advertisements.iter().map(|ad| AdvertisementDocument::of(ad)).collect(),
        }
    }

    /// What bears on allocation is the controller's business, and not kept.
    fn into_pool(self, name: PoolName) -> Result<Pool, String> {
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for text in &self.blocks {
            blocks.push(text.parse().map_err(|error| format!("{text}: {error}"))?);
        }
        let mut l2_advertisements = Vec::with_capacity(self.advertisements.len());
        for advertisement in self.advertisements {
            l2_advertisements.push(Arc::new(advertisement.into_advertisement()?));
        }
        Ok(Pool {
            name,
            blocks,
            auto_assign: true,
            avoid_buggy_ips: false,
            allocation: None,
            l2_advertisements,
        })
    }
}

impl AdvertisementDocument {
    fn of(advertisement: &L2Advertisement) -> Self {
        Self {
            name: advertisement.name.to_string(),
            nodes: advertisement.nodes.iter().map(ToString::to_string).collect(),
            interfaces: match &advertisement.interfaces {
                Interfaces::All => None,
                Interfaces::Named(names) => Some(names.iter().map(ToString::to_string).collect()),
            },
            selectors: advertisement.service_selectors.iter().map(LabelSelector::from).collect(),
            preferences: advertisement
                .preferences
                .iter()
                .map(|(n, weight)| (n.to_string(), *weight))
                .collect(),
        }
    }

    fn into_advertisement(self) -> Result<L2Advertisement, String> {
        let mut service_selectors = Vec::with_capacity(self.selectors.len());
        for selector in &self.selectors {
            service_selectors.push(Selector::parse(selector).map_err(|error| error.to_string())?);
        }
        let named =
            |names: BTreeSet<String>| names.iter().map(|name| InterfaceName::from(name.as_str())).collect();
        Ok(L2Advertisement {
            name: self.name.into(),
            nodes: self.nodes.iter().map(|name| name.as_str().into()).collect(),
            interfaces: self.interfaces.map_or(Interfaces::All, |names| Interfaces::Named(named(names))),
            service_selectors,
            preferences: self.preferences.iter().map(|(n, weight)| (n.as_str().into(), *weight)).collect(),
        })
    }
}

impl NodeDocument {
    const fn node(&self) -> Node {
        Node { excluded: self.excluded, network_unavailable: self.network_unavailable }
    }
}

impl ServiceDocument {
    fn of(key: &ServiceKey, service: &Service) -> Self {
        Self {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            class: service.class.clone(),
            created: service.created,
            labels: service.labels.clone(),
            ingress: service.ingress.iter().map(IngressDocument::of).collect(),
            local: service.local,
            any_endpoint: service.endpoints.any,
            endpoint_nodes: service.endpoints.nodes.iter().map(ToString::to_string).collect(),
        }
    }

    fn into_service(self) -> (ServiceKey, Service) {
        let service = Service {
            load_balancer: true,
            class: self.class,
            created: self.created,
            labels: self.labels,
            ingress: self.ingress.into_iter().map(IngressDocument::into_ingress).collect(),
            local: self.local,
            endpoints: Endpoints {
                any: self.any_endpoint,
                nodes: self.endpoint_nodes.iter().map(|name| name.as_str().into()).collect(),
                // How many they are matters to BGP alone, which is not gone on with.
                ..Endpoints::default()
            },
        };
        (ServiceKey::new(&self.namespace, &self.name), service)
    }
}

impl IngressDocument {
    fn of(ingress: &Ingress) -> Self {
        match ingress {
            Ingress::Ip(ip) => Self::Ip(*ip),
            Ingress::Hostname(name) => Self::Hostname(name.clone()),
            Ingress::Invalid(text) => Self::Invalid(text.clone()),
        }
    }

    fn into_ingress(self) -> Ingress {
        match self {
            Self::Ip(ip) => Ingress::Ip(ip),
            Self::Hostname(name) => Ingress::Hostname(name),
            Self::Invalid(text) => Ingress::Invalid(text),
        }
    }
}

impl PeerDocument {
    fn of(peer: &Peer) -> Self {
        Self { node: peer.node.to_string(), address: peer.address, awaited: peer.awaited }
    }

    fn into_peer(self) -> Peer {
        Peer { node: self.node.as_str().into(), address: self.address, awaited: self.awaited }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot() -> Snapshot {
        let selector = |value| Selector::parse(&serde_json::from_value(value).unwrap()).unwrap();
        let advertisement = L2Advertisement {
            name: "ad".into(),
            nodes: ["n1".into(), "n2".into()].into(),
            interfaces: Interfaces::Named(["ens18".into()].into()),
            service_selectors: vec![
                selector(json!({ "matchLabels": { "app": "web" } })),
                selector(json!({ "matchExpressions": [
                    { "key": "a", "operator": "In", "values": ["x", "y"] },
                    { "key": "b", "operator": "NotIn", "values": ["z"] },
                    { "key": "c", "operator": "Exists" },
                    { "key": "d", "operator": "DoesNotExist" },
                ] })),
            ],
            preferences: [("n2".into(), 50)].into(),
        };
        let everywhere = L2Advertisement {
            interfaces: Interfaces::All,
            service_selectors: vec![],
            ..advertisement.clone()
        };
        let pool = Pool {
            name: "p".into(),
            blocks: vec!["192.168.10.0/24".parse().unwrap(), "fd00::/120".parse().unwrap()],
            auto_assign: true,
            avoid_buggy_ips: false,
            allocation: None,
            l2_advertisements: vec![Arc::new(advertisement), Arc::new(everywhere)],
        };
        let service = Service {
            load_balancer: true,
            class: Some("c".into()),
            created: 1_767_225_600,
            labels: [("app".into(), "web".into())].into(),
            ingress: vec![
                Ingress::Ip([192, 168, 10, 200].into()),
                Ingress::Ip("fd00::1".parse().unwrap()),
                Ingress::Hostname("h".into()),
                Ingress::Invalid("nonsense".into()),
            ],
            local: true,
            endpoints: Endpoints { any: true, nodes: ["n1".into()].into(), ..Endpoints::default() },
        };
        Snapshot {
            config: Config {
                pools: [("p".into(), Arc::new(pool))].into(),
                pools_incomplete: true,
                ..Config::default()
            },
            nodes: [
                ("n1".into(), Node::default()),
                ("n2".into(), Node { excluded: true, network_unavailable: true }),
            ]
            .into(),
            not_ready: ["n2".into()].into(),
            services: [(ServiceKey::new("demo", "web"), service)].into(),
            peers: Some(vec![Peer {
                node: "n2".into(),
                address: "[fd00:10::21]:7946".parse().unwrap(),
                awaited: true,
            }]),
        }
    }

    #[test]
    fn what_was_kept_is_what_comes_back() {
        let node = NodeName::from("n1");
        let kept = snapshot();
        assert_eq!(Snapshot::decode(&node, &kept.encode(&node)), Ok(kept));
    }

    #[test]
    fn services_that_have_no_say_are_not_kept() {
        let node = NodeName::from("n1");
        let mut all = snapshot();
        let (_, web) = all.services.first_key_value().unwrap();
        let (plain, pending) =
            (Service { load_balancer: false, ..web.clone() }, Service { ingress: vec![], ..web.clone() });
        all.services.insert(ServiceKey::new("demo", "plain"), plain);
        all.services.insert(ServiceKey::new("demo", "pending"), pending);
        assert_eq!(Snapshot::decode(&node, &all.encode(&node)), Ok(snapshot()));
    }

    #[test]
    fn whatever_is_damaged_is_no_snapshot() {
        let node = NodeName::from("n1");
        let good = snapshot().encode(&node);
        for (cut, flip) in (0..good.len()).map(|at| (good[..at].to_vec(), at)) {
            assert!(Snapshot::decode(&node, &cut).is_err(), "cut at {flip}");
            let mut bad = good.clone();
            bad[flip] ^= 1;
            assert!(Snapshot::decode(&node, &bad).is_err(), "another octet at {flip}");
        }
        assert_eq!(Snapshot::decode(&node, &[0xff; 64]), Err(SnapshotError::Form));
    }

    #[test]
    fn other_forms_and_other_nodes_are_refused_by_name() {
        let node = NodeName::from("n1");
        let text = String::from_utf8(snapshot().encode(&node)).unwrap();
        let later = text.replacen("snapshot 1", "snapshot 2", 1);
        assert_eq!(Snapshot::decode(&node, later.as_bytes()), Err(SnapshotError::Form));
        let other = Snapshot::decode(&"n2".into(), text.as_bytes());
        assert_eq!(other, Err(SnapshotError::OtherNode("n1".into())));
        let empty = format!("{HEAD}{}\n{{}}\n", checksum("{}"));
        assert!(matches!(Snapshot::decode(&node, empty.as_bytes()), Err(SnapshotError::Content(_))));
    }
}

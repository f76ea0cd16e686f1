// SPDX-License-Identifier: Apache-2.0
//! MetalLB v0.16.1's layer-2 decision about one Service, word for word as it is specified, apart from the product's own code: a
//! fault there must not hide itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferrolb_announce::digest;
use ferrolb_config::{Config, Labels};
use ferrolb_net_types::{Interfaces, NodeName, parse_ip};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;

/// The label that keeps a node out of the election.
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// What is known beside the Service.
pub(super) struct World<'a> {
    pub(super) node: &'a NodeName,
    pub(super) config: &'a Config,
    pub(super) nodes: &'a BTreeMap<NodeName, NodeFacts>,
    /// Alive or suspected, the own node included.
    pub(super) members: &'a BTreeSet<NodeName>,
    pub(super) ignore_exclude_lb: bool,
}

/// What of a Node bears on the election.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct NodeFacts {
    pub(super) excluded: bool,
    pub(super) network_unavailable: bool,
}

impl NodeFacts {
    pub(super) fn of(node: &Node) -> Self {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        Self {
            excluded: node.labels().contains_key(EXCLUDE),
            network_unavailable: conditions
                .into_iter()
                .any(|condition| condition.type_ == "NetworkUnavailable" && condition.status == "True"),
        }
    }
}

/// What is to be done about a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    /// Nothing at all; what is announced stays announced.
    Skip,
    /// Stop, for this reason.
    Withdraw(&'static str),
    /// Announce these, here.
    Announce(Vec<IpAddr>, Interfaces),
}

/// Decides. `None`: the Service is deleted.
pub(super) fn decide(world: &World<'_>, service: Option<&Service>, slices: &[&EndpointSlice]) -> Decision {
    let Some(service) = service else { return Decision::Withdraw("serviceDeleted") };
    let spec = service.spec.clone().unwrap_or_default();
    if spec.load_balancer_class.is_some() {
        return Decision::Skip;
    }
    if spec.type_.as_deref() != Some("LoadBalancer") {
        return Decision::Withdraw("notLoadBalancer");
    }
    let entries = service
        .status
        .iter()
        .flat_map(|status| status.load_balancer.iter())
        .flat_map(|balancer| balancer.ingress.iter().flatten());
    let addresses: Option<Vec<IpAddr>> =
        entries.map(|entry| entry.ip.as_deref().and_then(parse_ip)).collect();
    let Some(addresses) = addresses else { return Decision::Withdraw("invalidIP") };
    let Some(first) = addresses.first().copied() else { return Decision::Withdraw("noIPAllocated") };
    let Some(pool) = world.config.pool_of_all(&addresses) else { return Decision::Withdraw("ipNotAllowed") };

    let endpoints = || slices.iter().flat_map(|slice| slice.endpoints.iter());
    let serves = |conditions: &Option<k8s_openapi::api::discovery::v1::EndpointConditions>| {
        conditions
            .as_ref()
            .is_none_or(|conditions| conditions.ready.unwrap_or(true) || conditions.serving.unwrap_or(false))
    };
    if !endpoints().any(|endpoint| serves(&endpoint.conditions)) {
        return Decision::Withdraw("notOwner");
    }
    let labels: Labels = service.labels().clone();
    let matching: Vec<_> =
        pool.l2_advertisements.iter().filter(|advertisement| advertisement.selects(&labels)).collect();
    let mut here = matching.iter().filter(|advertisement| advertisement.nodes.contains(world.node));
    let Some(own) = here.next() else { return Decision::Withdraw("noMatchingAdvertisement") };
    let interfaces =
        here.fold(own.interfaces.clone(), |all, advertisement| all.union(&advertisement.interfaces));

    let local = spec.external_traffic_policy.as_deref() == Some("Local");
    let has_endpoint = |node: &NodeName| {
        endpoints().any(|endpoint| {
            serves(&endpoint.conditions) && endpoint.node_name.as_deref() == Some(node.as_str())
        })
    };
    let candidates = world.members.iter().filter(|node| {
        let facts = world.nodes.get(*node).copied().unwrap_or_default();
        !facts.network_unavailable
            && (world.ignore_exclude_lb || !facts.excluded)
            && matching.iter().any(|advertisement| advertisement.nodes.contains(*node))
            && (!local || has_endpoint(node))
    });
    if candidates.min_by_key(|node| digest(node, first)) == Some(world.node) {
        Decision::Announce(addresses, interfaces)
    } else {
        Decision::Withdraw("notOwner")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ferrolb_config::{L2Advertisement, Pool};
    use serde_json::{Value, json};

    use super::*;

    /// A pool 192.0.2.0/24 with one advertisement per set of nodes.
    fn config(advertised: &[&[&str]]) -> Config {
        let advertisements = advertised.iter().enumerate().map(|(number, nodes)| {
            Arc::new(L2Advertisement {
                name: format!("a{number}").into(),
                nodes: nodes.iter().map(|node| NodeName::from(*node)).collect(),
                interfaces: Interfaces::All,
                service_selectors: Vec::new(),
                preferences: BTreeMap::new(),
            })
        });
        let pool = Pool {
            name: "p".into(),
            blocks: vec!["192.0.2.0/24".parse().unwrap()],
            auto_assign: true,
            avoid_buggy_ips: false,
            allocation: None,
            l2_advertisements: advertisements.collect(),
        };
        Config { pools: [(pool.name.clone(), Arc::new(pool))].into(), ..Config::default() }
    }

    /// Who of a, b and c announces.
    fn announcers(
        config: &Config,
        unwell: &[(&str, NodeFacts)],
        service: &Value,
        slice: &Value,
    ) -> Vec<String> {
        let service: Service = serde_json::from_value(service.clone()).unwrap();
        let slice: EndpointSlice = serde_json::from_value(slice.clone()).unwrap();
        let names: BTreeSet<NodeName> = ["node-a", "node-b", "node-c"].map(NodeName::from).into();
        let nodes = unwell.iter().map(|(name, facts)| (NodeName::from(*name), *facts)).collect();
        let announces = |node: &&NodeName| {
            let world = World { node, config, nodes: &nodes, members: &names, ignore_exclude_lb: false };
            matches!(decide(&world, Some(&service), &[&slice]), Decision::Announce(..))
        };
        names.iter().filter(announces).map(ToString::to_string).collect()
    }

    fn service(policy: &str, address: &str) -> Value {
        json!({"metadata": {"name": "s"},
               "spec": {"type": "LoadBalancer", "externalTrafficPolicy": policy},
               "status": {"loadBalancer": {"ingress": [{"ip": address}]}}})
    }

    fn slice(nodes: &[&str]) -> Value {
        let endpoints: Vec<_> = nodes
            .iter()
            .map(|node| json!({"addresses": ["10.0.0.1"], "nodeName": node, "conditions": {"ready": true}}))
            .collect();
        json!({"metadata": {"name": "s-1"}, "addressType": "IPv4", "endpoints": endpoints})
    }

    #[test]
    fn the_first_by_the_hash_of_those_that_pass_every_filter_announces() {
        let everywhere: &[&[&str]] = &[&["node-a", "node-b", "node-c"]];
        let (out, dark) = (
            NodeFacts { excluded: true, network_unavailable: false },
            NodeFacts { excluded: false, network_unavailable: true },
        );
        // In order: 192.0.2.1 c, a, b; 192.0.2.2 b, c, a.
        for (advertised, unwell, policy, address, endpoints, expected) in [
            (everywhere, vec![], "Cluster", "192.0.2.1", vec!["node-a"], Some("node-c")),
            (everywhere, vec![], "Cluster", "192.0.2.2", vec!["node-a"], Some("node-b")),
            (everywhere, vec![("node-c", out)], "Cluster", "192.0.2.1", vec!["node-a"], Some("node-a")),
            (everywhere, vec![("node-c", dark)], "Cluster", "192.0.2.1", vec!["node-a"], Some("node-a")),
            (everywhere, vec![], "Local", "192.0.2.1", vec!["node-a", "node-b"], Some("node-a")),
            (everywhere, vec![], "Cluster", "192.0.2.1", vec![], None),
            (&[&["node-b"], &["node-a"]], vec![], "Cluster", "192.0.2.1", vec!["node-c"], Some("node-a")),
            (&[], vec![], "Cluster", "192.0.2.1", vec!["node-a"], None),
            (everywhere, vec![], "Cluster", "198.51.100.1", vec!["node-a"], None),
        ] {
            let found =
                announcers(&config(advertised), &unwell, &service(policy, address), &slice(&endpoints));
            assert_eq!(found, Vec::from_iter(expected), "{advertised:?} {unwell:?} {policy} {address}");
        }
    }
}

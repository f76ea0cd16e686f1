// SPDX-License-Identifier: Apache-2.0
//! A cluster with one pool, written down in a line or two, and what its speakers make of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_announce::{
    AddressPlan, Endpoint, Ingress, Inputs, Members, Node, NodePlan, Offer, Reason, Service, Settings,
    Standing, metallb, owner, plan,
};
use ferrolb_config::{Config, L2Advertisement, Pool, Selector};
use ferrolb_net_types::{Interfaces, NodeName, PoolName, ServiceKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) config: Config,
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    pub(crate) services: BTreeMap<ServiceKey, Service>,
    pub(crate) settings: Settings,
}

pub(crate) const IRIS1: &str = "iris1";
pub(crate) const IRIS2: &str = "iris2";

impl Cluster {
    /// Of the nodes iris1 and iris2.
    pub(crate) fn new(advertisements: impl IntoIterator<Item = L2Advertisement>) -> Self {
        Self::of(&[IRIS1, IRIS2], advertisements)
    }

    pub(crate) fn of(nodes: &[&str], advertisements: impl IntoIterator<Item = L2Advertisement>) -> Self {
        let blocks = ["10.20.30.0/24", "192.0.2.0/24", "192.168.10.0/24", "1000::/16", "2001:db8::/32"];
        let pool = Pool {
            name: PoolName::from("default"),
            blocks: blocks.map(|block| block.parse().unwrap()).into(),
            auto_assign: true,
            avoid_buggy_ips: false,
            allocation: None,
            l2_advertisements: advertisements.into_iter().map(Arc::new).collect(),
        };
        Self {
            config: Config { pools: [(pool.name.clone(), Arc::new(pool))].into(), ..Config::default() },
            nodes: nodes.iter().map(|node| (NodeName::from(*node), Node::default())).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn with(mut self, name: &str, service: Service) -> Self {
        self.services.insert(key(name), service);
        self
    }

    pub(crate) fn exclude(mut self, node: &str) -> Self {
        self.nodes.get_mut(node).unwrap().excluded = true;
        self
    }

    pub(crate) fn cut_off(mut self, node: &str) -> Self {
        self.nodes.get_mut(node).unwrap().network_unavailable = true;
        self
    }

    pub(crate) fn inputs<'a>(&'a self, node: &'a NodeName) -> Inputs<'a> {
        Inputs {
            node,
            config: &self.config,
            nodes: &self.nodes,
            services: &self.services,
            settings: &self.settings,
        }
    }

    pub(crate) fn plan(&self, node: &str) -> NodePlan {
        plan(&self.inputs(&NodeName::from(node)))
    }

    pub(crate) fn address(&self, address: &str) -> Arc<AddressPlan> {
        self.plan(IRIS1).addresses[&ip(address)].clone()
    }

    /// The word for what each of iris1 and iris2 does about the Service; "" announces.
    pub(crate) fn words(&self, service: &str) -> [&'static str; 2] {
        [IRIS1, IRIS2].map(|node| self.word(node, service, &Members::EveryNode))
    }

    /// The word for what a speaker of ours does.
    pub(crate) fn word(&self, node: &str, service: &str, members: &Members) -> &'static str {
        let verdict = self.plan(node).verdict(&node.into(), &key(service), members);
        verdict.map_or_else(|reason| reason.word(), |_| "")
    }

    /// The word for what a speaker of MetalLB does.
    pub(crate) fn metallb_word(&self, node: &str, service: &str, members: &Members) -> &'static str {
        let verdict = metallb::verdict(&self.inputs(&node.into()), &self.services[&key(service)], members);
        verdict.map_or_else(|reason| reason.word(), |()| "")
    }

    pub(crate) fn offer(&self, node: &str, service: &str) -> Offer {
        self.plan(node).services[&key(service)].as_ref().clone().unwrap()
    }

    /// The owner of the address should every node have a speaker of ours.
    pub(crate) fn owner(&self, address: &str) -> Option<String> {
        let plans = self.nodes.keys().map(|node| self.plan(node.as_str()));
        let owners: BTreeSet<_> = plans
            .map(|plan| {
                let owner = owner(&plan.addresses[&ip(address)], &Members::EveryNode);
                owner.map(ToString::to_string)
            })
            .collect();
        assert_eq!(owners.len(), 1, "every node sees the same owner: {owners:?}");
        owners.into_iter().next().unwrap()
    }

    /// Every node that answers for the address when each speaker follows its own rule.
    pub(crate) fn answering(&self, address: IpAddr, members: &BTreeMap<NodeName, Standing>) -> Vec<NodeName> {
        let known = Members::Known(members.clone());
        let answers = |(node, standing): (&NodeName, &Standing)| match standing {
            Standing::Metallb => self.services.values().any(|service| {
                service.ingress.contains(&Ingress::Ip(address))
                    && metallb::verdict(&self.inputs(node), service, &known) == Ok(())
            }),
            Standing::Ours | Standing::Stale => {
                let plan = plan(&self.inputs(node));
                plan.addresses.get(&address).and_then(|address| owner(address, &known)) == Some(node)
            }
        };
        members.iter().filter(|member| answers(*member)).map(|(node, _)| node.clone()).collect()
    }

    /// Why the node's speaker, one of ours, does not announce the Service.
    pub(crate) fn why(&self, node: &str, service: &str, members: &Members) -> Option<Reason> {
        self.plan(node).verdict(&node.into(), &key(service), members).err()
    }
}

/// Members as `a=M b=O c=S`: MetalLB's, ours, ours with a stale view.
pub(crate) fn members(text: &str) -> BTreeMap<NodeName, Standing> {
    let member = |member: &str| {
        let (node, standing) = member.split_once('=').unwrap();
        let standing = match standing {
            "M" => Standing::Metallb,
            "O" => Standing::Ours,
            "S" => Standing::Stale,
            other => panic!("no standing: {other}"),
        };
        (NodeName::from(node), standing)
    };
    text.split_whitespace().map(member).collect()
}

pub(crate) fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn ad(name: &str, nodes: &[&str]) -> L2Advertisement {
    L2Advertisement {
        name: name.into(),
        nodes: nodes.iter().map(|n| NodeName::from(*n)).collect(),
        interfaces: Interfaces::All,
        service_selectors: Vec::new(),
        preferences: BTreeMap::new(),
    }
}

pub(crate) fn both() -> Cluster {
    Cluster::new([ad("all", &[IRIS1, IRIS2])])
}

pub(crate) fn on(interfaces: &[&str], ad: L2Advertisement) -> L2Advertisement {
    L2Advertisement { interfaces: named(interfaces), ..ad }
}

pub(crate) fn preferring(weights: &[(&str, u32)], ad: L2Advertisement) -> L2Advertisement {
    L2Advertisement { preferences: weights.iter().map(|(n, w)| ((*n).into(), *w)).collect(), ..ad }
}

pub(crate) fn named(interfaces: &[&str]) -> Interfaces {
    Interfaces::Named(interfaces.iter().map(|i| (*i).into()).collect())
}

pub(crate) fn app(value: &str) -> Selector {
    let match_labels = Some([("app".to_owned(), value.to_owned())].into());
    Selector::parse(&LabelSelector { match_labels, ..LabelSelector::default() }).unwrap()
}

/// For Services with one of these values of the label `app`.
pub(crate) fn only(selectors: &[&str], ad: L2Advertisement) -> L2Advertisement {
    L2Advertisement { service_selectors: selectors.iter().map(|value| app(value)).collect(), ..ad }
}

/// An endpoint on a node, as (node, ready, serving).
pub(crate) type On = (&'static str, Option<bool>, Option<bool>);

pub(crate) const UP1: On = (IRIS1, Some(true), None);
pub(crate) const UP2: On = (IRIS2, Some(true), None);
pub(crate) const DOWN1: On = (IRIS1, Some(false), None);
pub(crate) const DOWN2: On = (IRIS2, Some(false), None);

/// A Service with these addresses, separated by commas. An endpoint on node "" is on none.
pub(crate) fn service(addresses: &str, endpoints: &[On]) -> Service {
    Service {
        load_balancer: true,
        ingress: addresses.split(',').map(|address| Ingress::Ip(ip(address))).collect(),
        endpoints: endpoints
            .iter()
            .map(|(node, ready, serving)| Endpoint {
                ready: *ready,
                serving: *serving,
                node: (!node.is_empty()).then_some(node),
            })
            .collect(),
        ..Service::default()
    }
}

pub(crate) fn local(addresses: &str, endpoints: &[On]) -> Service {
    Service { local: true, ..service(addresses, endpoints) }
}

pub(crate) fn labelled(app: &str, service: Service) -> Service {
    Service { labels: [("app".to_owned(), app.to_owned())].into(), ..service }
}

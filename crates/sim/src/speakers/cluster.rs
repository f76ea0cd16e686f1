// SPDX-License-Identifier: Apache-2.0
//! What the API holds: nodes, Services with their endpoints, advertisements, and what follows for every address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_announce::{AddressPlans, Endpoint, Ingress, Inputs, Node, Service, Settings, plan};
use ferrolb_config::{Config, L2Advertisement, Labels, Pool, Selector};
use ferrolb_net_types::{Interfaces, NodeName, PoolName, Prefix, ServiceKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Shape;
use super::oracle::Contest;
use crate::rng::Rng;

/// One state of the API.
#[derive(Clone)]
pub(super) struct Facts {
    pub(super) nodes: BTreeMap<NodeName, Node>,
    pub(super) services: BTreeMap<ServiceKey, Service>,
    config: Config,
    settings: Settings,
    names: Arc<[NodeName]>,
    /// What every speaker makes of it: that of a node which is a candidate everywhere and has no speaker.
    pub(super) plan: Arc<AddressPlans>,
    /// Who should answer for each address, by the judge's own rule.
    pub(super) contests: Arc<BTreeMap<IpAddr, Contest>>,
}

const OBSERVER: &str = "observer";

/// Which nodes an advertisement for the label `app` is for, and whom it prefers.
struct Ad {
    app: &'static str,
    some: bool,
    prefers: bool,
}

const ADS: [Ad; 3] = [
    Ad { app: "any", some: false, prefers: false },
    Ad { app: "some", some: true, prefers: false },
    Ad { app: "preferring", some: false, prefers: true },
];

impl Facts {
    pub(super) fn new(shape: Shape, names: Arc<[NodeName]>, rng: &mut Rng) -> Self {
        let pool = Pool {
            name: PoolName::from("pool"),
            blocks: BLOCKS.iter().filter_map(|block| block.parse::<Prefix>().ok()).collect(),
            auto_assign: true,
            avoid_buggy_ips: false,
            allocation: None,
            l2_advertisements: ADS.iter().map(|ad| Arc::new(advertisement(ad, &names, rng))).collect(),
        };
        let mut facts = Self {
            nodes: names.iter().map(|name| (name.clone(), Node::default())).collect(),
            services: BTreeMap::new(),
            config: Config { pools: [(pool.name.clone(), Arc::new(pool))].into(), ..Config::default() },
            settings: Settings::default(),
            names,
            plan: Arc::default(),
            contests: Arc::default(),
        };
        facts.add_services(shape, rng);
        facts.replan();
        facts
    }

    pub(super) fn inputs<'a>(&'a self, node: &'a NodeName) -> Inputs<'a> {
        Inputs {
            node,
            config: &self.config,
            nodes: &self.nodes,
            services: &self.services,
            settings: &self.settings,
        }
    }

    /// Decides everything anew after a change.
    pub(super) fn replan(&mut self) {
        let observer = NodeName::from(OBSERVER);
        self.plan = Arc::new(plan(&self.inputs(&observer)).addresses);
        self.contests = Arc::new(Contest::all(self));
    }

    /// The nodes from which a Service is advertised, and the one of them that is preferred.
    pub(super) fn advertised(&self, service: &Service) -> Option<(&BTreeSet<NodeName>, Option<&NodeName>)> {
        let app = ADS.iter().position(|ad| service.labels == label(ad.app))?;
        let ad = self.config.pools.values().next()?.l2_advertisements.get(app)?;
        Some((&ad.nodes, ad.preferences.keys().next()))
    }

    /// Moves the endpoints of a Service.
    pub(super) fn move_endpoints(&mut self, rng: &mut Rng) {
        let keys: Vec<ServiceKey> = self.services.keys().cloned().collect();
        let endpoints = somewhere(&self.names, rng);
        if let Some(service) = self.services.get_mut(&keys[rng.index(keys.len())]) {
            service.endpoints = endpoints.iter().map(endpoint).collect();
        }
    }

    fn add_services(&mut self, shape: Shape, rng: &mut Rng) {
        let count = if shape.nodes > 100 { 10 } else { 6 + u8::try_from(shape.nodes.min(10)).unwrap_or(10) };
        for number in 0..count {
            let v4 = |last: u8| Ingress::Ip(IpAddr::from([192, 168, 10, last]));
            let v6 = |last: u8| Ingress::Ip(IpAddr::from([0xfd00, 0x10, 0, 0, 0, 0, 0, u16::from(last)]));
            let (app, local, ingress) = match number % 8 {
                0 => ("any", false, vec![v4(number)]),
                1 => ("any", true, vec![v4(number)]),
                2 => ("some", false, vec![v4(number)]),
                3 => ("preferring", false, vec![v4(number)]),
                4 => ("any", false, vec![v4(number), v6(number)]),
                // Two that share an address, and differ in who can serve them.
                5 => ("any", true, vec![v4(number)]),
                6 => ("some", true, vec![v4(number - 1), v6(number - 1)]),
                _ => ("any", false, vec![v4(number), Ingress::Hostname("lb.example".into())]),
            };
            let service = Service {
                load_balancer: true,
                created: i64::from(number),
                labels: label(app),
                ingress,
                local,
                endpoints: somewhere(&self.names, rng).iter().map(endpoint).collect(),
                ..Service::default()
            };
            self.services.insert(ServiceKey::new("default", &format!("s{number}")), service);
        }
    }
}

const BLOCKS: [&str; 2] = ["192.168.10.0/24", "fd00:10::/64"];

fn label(app: &str) -> Labels {
    [("app".to_owned(), app.to_owned())].into_iter().collect()
}

fn advertisement(ad: &Ad, names: &[NodeName], rng: &mut Rng) -> L2Advertisement {
    let app = LabelSelector {
        match_labels: Some([("app".to_owned(), ad.app.to_owned())].into()),
        ..LabelSelector::default()
    };
    let nodes = if ad.some { somewhere(names, rng) } else { names.to_vec() };
    L2Advertisement {
        name: ad.app.into(),
        preferences: ad.prefers.then(|| (names[rng.index(names.len())].clone(), 50)).into_iter().collect(),
        nodes: nodes.into_iter().chain([NodeName::from(OBSERVER)]).collect(),
        interfaces: Interfaces::All,
        service_selectors: Selector::parse(&app).into_iter().collect(),
    }
}

/// One node at least, and the observer.
fn somewhere(names: &[NodeName], rng: &mut Rng) -> Vec<NodeName> {
    let first = rng.index(names.len());
    let chosen = names.iter().enumerate().filter(|(index, _)| *index == first || rng.chance(40));
    chosen.map(|(_, name)| name.clone()).chain([NodeName::from(OBSERVER)]).collect()
}

fn endpoint(node: &NodeName) -> Endpoint<'_> {
    Endpoint { ready: Some(true), serving: None, node: Some(node.as_str()) }
}

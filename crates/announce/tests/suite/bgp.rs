// SPDX-License-Identifier: Apache-2.0
//! BGP: why a node announces a Service, or not; and the law that deciding what changed is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrolb_announce::bgp::{BgpPlan, BgpReason};
use ferrolb_announce::{Ingress, Inputs, Node, Service, Settings};
use ferrolb_config::{BgpAdvertisement, BgpDefaults, BgpPeer, Config, PeerAs};
use ferrolb_net_types::{Asn, NodeName, PeerName, PoolName, Prefix, ServiceKey};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::cluster::{Cluster, DOWN1, IRIS1, IRIS2, On, UP1, UP2, key, labelled, local, service};

const VIP: &str = "10.20.30.1";

fn advertisement(name: &str, nodes: &[&str]) -> BgpAdvertisement {
    BgpAdvertisement {
        name: name.into(),
        nodes: nodes.iter().map(|node| NodeName::from(*node)).collect(),
        aggregation_v4: 32,
        aggregation_v6: 128,
        local_pref: None,
        communities: BTreeSet::new(),
        peers: None,
        service_selectors: Vec::new(),
    }
}

fn preferring(name: &str, preference: u32, peers: &[&str]) -> BgpAdvertisement {
    BgpAdvertisement {
        local_pref: Some(preference),
        peers: (!peers.is_empty()).then(|| peers.iter().map(|peer| PeerName::from(*peer)).collect()),
        ..advertisement(name, &[IRIS1])
    }
}

fn of_app(app: &str) -> BgpAdvertisement {
    let selector = crate::cluster::app(app);
    BgpAdvertisement { service_selectors: vec![selector], ..advertisement("of-app", &[IRIS1]) }
}

fn cluster(advertisements: impl IntoIterator<Item = BgpAdvertisement>, service: Service) -> Cluster {
    let mut cluster = Cluster::new([]).with("s", service);
    let all: Vec<_> = advertisements.into_iter().map(Arc::new).collect();
    cluster.config.bgp.advertisements = [(PoolName::from("default"), all)].into();
    cluster
}

/// MetalLB's word for what iris1 does: empty if it announces.
fn word(cluster: &Cluster) -> &'static str {
    let node = NodeName::from(IRIS1);
    let mut plan = BgpPlan::default();
    plan.replan(&cluster.inputs(&node), cluster.services.keys());
    plan.services[&key("s")].as_ref().as_ref().map_or_else(BgpReason::word, |_| "")
}

#[test]
fn reasons_come_in_metallbs_order_b03_to_b12_b31_to_b61() {
    let here = || advertisement("here", &[IRIS1, IRIS2]);
    let there = || advertisement("there", &[IRIS2]);
    let up = |endpoints: &[On]| service(VIP, endpoints);
    let foreign = Service { ingress: vec![Ingress::Hostname("lb.example".into())], ..up(&[UP1]) };
    let cluster_ip = Service { load_balancer: false, ..up(&[UP1]) };
    let unknown = service("10.99.0.1", &[UP1]);
    let dual = service("10.20.30.1,1000::1", &[UP1]);
    let on = |nodes: &[&str]| nodes.iter().map(|node| NodeName::from(*node)).collect::<BTreeSet<_>>();
    for (about, cluster, expected) in [
        ("B04 an endpoint elsewhere, Cluster", cluster([here()], up(&[UP2])), ""),
        ("B05 the same, Local", cluster([here()], local(VIP, &[UP2])), "noLocalEndpoints"),
        ("B06 one here", cluster([here()], local(VIP, &[UP1])), ""),
        ("B08 none", cluster([here()], up(&[])), "noEndpoints"),
        ("B09 unready ones", cluster([here()], up(&[DOWN1])), "noEndpoints"),
        ("B10 unready here, ready there", cluster([here()], up(&[DOWN1, UP2])), ""),
        ("B11 unready, and serves", cluster([here()], up(&[(IRIS1, Some(false), Some(true))])), ""),
        ("B12 ready, and does not serve", cluster([here()], up(&[(IRIS1, Some(true), Some(false))])), ""),
        ("B03 a ClusterIP", cluster([here()], cluster_ip), "notLoadBalancer"),
        ("B31 excluded", cluster([here()], up(&[UP1])).exclude(IRIS1), "nodeLabeledExcludeBalancers"),
        ("no network", cluster([here()], up(&[UP1])).cut_off(IRIS1), "nodeNetworkUnavailable"),
        ("both", cluster([here()], up(&[UP1])).exclude(IRIS1).cut_off(IRIS1), "nodeNetworkUnavailable"),
        (
            "the node before the endpoints",
            cluster([here()], up(&[])).exclude(IRIS1),
            "nodeLabeledExcludeBalancers",
        ),
        ("another node excluded", cluster([here()], up(&[UP1])).exclude(IRIS2), ""),
        ("no advertisement", cluster([], up(&[UP1])), "notOwner"),
        ("B43 one of another node", cluster([there()], up(&[UP1])), "notOwner"),
        (
            "B43 one that does not select it",
            cluster([of_app("b")], labelled("a", up(&[UP1]))),
            "noMatchingAdvertisement",
        ),
        ("B43 one that does", cluster([of_app("a")], labelled("a", up(&[UP1]))), ""),
        ("B43 one of several", cluster([of_app("b"), here()], labelled("a", up(&[UP1]))), ""),
        ("B61 outside of all pools", cluster([here()], unknown), "ipNotAllowed"),
        ("AL-14 a foreign host name", cluster([here()], foreign), "noIPAllocated"),
        ("both families", cluster([here()], dual), ""),
        ("B44", cluster([preferring("a", 1, &[]), preferring("b", 1, &[])], up(&[UP1])), ""),
        (
            "B45 other nodes",
            cluster(
                [
                    preferring("a", 1, &[]),
                    BgpAdvertisement { nodes: on(&[IRIS2]), ..preferring("b", 2, &[]) },
                ],
                up(&[UP1]),
            ),
            "",
        ),
        (
            "B46 nodes of both",
            cluster(
                [
                    preferring("a", 1, &[]),
                    BgpAdvertisement { nodes: on(&[IRIS1, IRIS2]), ..preferring("b", 2, &[]) },
                ],
                up(&[UP1]),
            ),
            "conflictingAdvertisements",
        ),
        (
            "B47 no nodes",
            cluster(
                [preferring("a", 1, &[]), BgpAdvertisement { nodes: on(&[]), ..preferring("b", 2, &[]) }],
                up(&[UP1]),
            ),
            "",
        ),
        ("B49 one", cluster([preferring("a", 1, &[])], up(&[UP1])), ""),
        ("B55 ready and not ready", cluster([here()], local(VIP, &[UP1, DOWN1])), ""),
        ("B56 the other way round", cluster([here()], local(VIP, &[DOWN1, UP1])), ""),
        ("B56 both not", cluster([here()], local(VIP, &[DOWN1, DOWN1])), "noLocalEndpoints"),
        ("B57 one of several", cluster([here()], local(VIP, &[DOWN1, DOWN1, UP1, UP2])), ""),
        ("B48", cluster([preferring("a", 1, &["p"]), preferring("b", 2, &["q"])], up(&[UP1])), ""),
        (
            "B50",
            cluster([preferring("a", 1, &[]), preferring("b", 2, &[])], up(&[UP1])),
            "conflictingAdvertisements",
        ),
        (
            "B51",
            cluster([preferring("a", 1, &["p"]), preferring("b", 2, &["p", "q"])], up(&[UP1])),
            "conflictingAdvertisements",
        ),
        (
            "B52",
            cluster([preferring("a", 1, &["p"]), preferring("b", 2, &[])], up(&[UP1])),
            "conflictingAdvertisements",
        ),
    ] {
        assert_eq!(word(&cluster), expected, "{about}");
    }
    let mut ignoring = cluster([here()], up(&[UP1])).exclude(IRIS1);
    ignoring.settings.ignore_exclude_lb = true;
    assert_eq!(word(&ignoring), "", "B32");
}

fn peer(address: &str) -> BgpPeer {
    BgpPeer {
        defaults: BgpDefaults::Native,
        my_asn: Asn::new(64512).unwrap(),
        local_asn: None,
        peer_as: PeerAs::External,
        address: address.parse().unwrap(),
        port: 179,
        source: None,
        router_id: None,
        hold_seconds: None,
        keepalive: None,
        connect_time: None,
        password: None,
        multihop: false,
        gtsm_hops: None,
        both_families: false,
        max_prefixes: None,
        link_bandwidth: None,
        capabilities: Default::default(),
    }
}

#[test]
fn of_several_preferences_for_one_prefix_the_greatest_is_told_s69() {
    let mut cluster = cluster(
        [
            BgpAdvertisement { local_pref: Some(7), ..of_app("a") },
            BgpAdvertisement { local_pref: Some(9), name: "other".into(), ..of_app("b") },
        ],
        labelled("a", service(VIP, &[UP1])),
    );
    cluster.services.insert(key("t"), labelled("b", service(VIP, &[UP1])));
    let (node, name) = (NodeName::from(IRIS1), PeerName::from("p"));
    let mut plan = BgpPlan::default();
    let touched = plan.replan(&cluster.inputs(&node), cluster.services.keys());
    let prefix = Prefix::host(VIP.parse().unwrap());
    assert_eq!(touched, [prefix].into());
    assert_eq!(plan.route(&name, &peer("192.168.10.1"), prefix).unwrap().local_pref, Some(9));
    assert_eq!(plan.route(&name, &peer("fd00::1"), prefix), None, "another family");
    cluster.services.remove(&key("t"));
    plan.replan(&cluster.inputs(&node), &[key("t")]);
    assert_eq!(plan.route(&name, &peer("192.168.10.1"), prefix).unwrap().local_pref, Some(7));
}

#[test]
fn the_endpoints_of_a_service_count_once_however_it_comes_to_a_prefix() {
    let wide = |name| BgpAdvertisement { aggregation_v4: 24, ..advertisement(name, &[IRIS1]) };
    let only = |name, peer: &str| BgpAdvertisement { peers: Some([peer.into()].into()), ..wide(name) };
    // Two addresses, three endpoints; three of the four advertisements come to the same prefix.
    let mut cluster = cluster(
        [wide("a"), wide("b"), only("c", "p"), advertisement("d", &[IRIS1])],
        local("10.20.30.1,10.20.30.2", &[UP1, UP1, UP1]),
    );
    let node = NodeName::from(IRIS1);
    let told = |cluster: &Cluster, name: &str, prefix: &str| {
        let mut plan = BgpPlan::default();
        plan.replan(&cluster.inputs(&node), cluster.services.keys());
        let route = plan.route(&name.into(), &peer("192.168.10.1"), prefix.parse().unwrap());
        route.map(|route| route.endpoints)
    };
    for name in ["p", "q"] {
        assert_eq!(told(&cluster, name, "10.20.30.0/24"), Some(Some(3)), "{name}");
        assert_eq!(told(&cluster, name, "10.20.30.1/32"), Some(Some(3)), "{name}");
    }
    // Another one adds its own, once.
    cluster.services.insert(key("t"), local("10.20.30.3", &[UP1, UP1, UP1]));
    assert_eq!(told(&cluster, "p", "10.20.30.0/24"), Some(Some(6)));
    // Over one that is reached over any node, there is no number.
    cluster.services.insert(key("u"), service("10.20.30.4", &[UP1]));
    assert_eq!(told(&cluster, "p", "10.20.30.0/24"), Some(None));
    assert_eq!(told(&cluster, "p", "10.20.30.1/32"), Some(Some(3)));
    assert_eq!(told(&cluster, "p", "10.20.30.9/32"), None);
}

fn services() -> impl Strategy<Value = BTreeMap<ServiceKey, Service>> {
    let service =
        (vec(0..6_u8, 0..3), any::<bool>(), vec(0..2_usize, 0..4)).prop_map(|(ips, local, nodes)| {
            let ips: Vec<String> = ips.iter().map(|n| format!("10.20.30.{n}")).collect();
            let up: Vec<On> = nodes.iter().map(|n| [UP1, UP2][*n]).collect();
            let mut made = service(VIP, &up);
            made.ingress = ips.iter().map(|ip| Ingress::Ip(ip.parse().unwrap())).collect();
            Service { local, ..made }
        });
    btree_map((0..5_u8).prop_map(|n| key(&format!("s{n}"))), service, 0..5)
}

proptest! {
    #[test]
    fn deciding_what_changed_gives_the_routes_of_deciding_everything(all in vec(services(), 1..5), wide in 24..=32_u8) {
        let (node, settings) = (NodeName::from(IRIS1), Settings::default());
        let mut config: Config = cluster(
            [advertisement("a", &[IRIS1]), BgpAdvertisement { aggregation_v4: wide, ..advertisement("b", &[IRIS1]) }],
            Service::default(),
        ).config;
        config.pools_incomplete = false;
        let nodes: BTreeMap<NodeName, Node> = BTreeMap::new();
        let mut incremental = BgpPlan::default();
        let mut before: BTreeMap<ServiceKey, Service> = BTreeMap::new();
        for services in all {
            let inputs = Inputs { node: &node, config: &config, nodes: &nodes, services: &services, settings: &settings };
            let keys: BTreeSet<_> = before.keys().chain(services.keys()).cloned().collect();
            let changed: Vec<_> = keys.into_iter().filter(|key| before.get(key) != services.get(key)).collect();
            let former = incremental.clone();
            let touched = incremental.replan(&inputs, &changed);
            let mut full = BgpPlan::default();
            full.replan(&inputs, services.keys());
            prop_assert_eq!(&incremental, &full);
            // Whatever is told otherwise than before was named.
            let (name, peer) = (PeerName::from("p"), peer("192.168.10.1"));
            for prefix in former.prefixes().chain(full.prefixes()) {
                let same = former.route(&name, &peer, prefix) == full.route(&name, &peer, prefix);
                prop_assert!(same || touched.contains(&prefix), "{}", prefix);
            }
            before = services;
        }
    }
}

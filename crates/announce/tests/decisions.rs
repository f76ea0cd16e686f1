// SPDX-License-Identifier: Apache-2.0
//! Who announces a Service on which interfaces, case by case: MetalLB's decisions, and ours where Services share.

#![allow(clippy::unwrap_used)] // the helpers of tests

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_announce::{
    Endpoint, Finding, Ingress, Inputs, Members, Node, NodePlan, Offer, Reason, Service, Settings, Standing,
    owner, plan, why_no_candidate,
};
use ferrolb_config::{Config, L2Advertisement, Pool, Selector};
use ferrolb_net_types::{Interfaces, NodeName, PoolName, ServiceKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// A cluster of two nodes with one pool, written down in a line or two.
#[derive(Clone, Default)]
struct Cluster {
    config: Config,
    nodes: BTreeMap<NodeName, Node>,
    services: BTreeMap<ServiceKey, Service>,
    settings: Settings,
}

const IRIS1: &str = "iris1";
const IRIS2: &str = "iris2";

impl Cluster {
    fn new(advertisements: impl IntoIterator<Item = L2Advertisement>) -> Self {
        let pool = Pool {
            name: PoolName::from("default"),
            blocks: vec!["10.20.30.0/24".parse().unwrap(), "1000::/16".parse().unwrap()],
            auto_assign: true,
            avoid_buggy_ips: false,
            allocation: None,
            l2_advertisements: advertisements.into_iter().map(Arc::new).collect(),
        };
        Self {
            config: Config { pools: [(pool.name.clone(), Arc::new(pool))].into(), ..Config::default() },
            nodes: [IRIS1, IRIS2].map(|n| (NodeName::from(n), Node::default())).into(),
            ..Self::default()
        }
    }

    fn with(mut self, name: &str, service: Service) -> Self {
        self.services.insert(ServiceKey::new("default", name), service);
        self
    }

    fn exclude(mut self, node: &str) -> Self {
        self.nodes.get_mut(node).unwrap().excluded = true;
        self
    }

    fn inputs<'a>(&'a self, node: &'a NodeName) -> Inputs<'a> {
        Inputs {
            node,
            config: &self.config,
            nodes: &self.nodes,
            services: &self.services,
            settings: &self.settings,
        }
    }

    fn plan(&self, node: &str) -> NodePlan {
        plan(&self.inputs(&NodeName::from(node)))
    }

    /// The word for what each node does about the Service; "" announces.
    fn words(&self, service: &str) -> [&'static str; 2] {
        [IRIS1, IRIS2].map(|node| {
            let verdict = self.plan(node).verdict(
                &node.into(),
                &ServiceKey::new("default", service),
                &Members::EveryNode,
            );
            verdict.map_or_else(|reason| reason.word(), |_| "")
        })
    }

    fn offer(&self, node: &str, service: &str) -> Offer {
        self.plan(node).services[&ServiceKey::new("default", service)].as_ref().clone().unwrap()
    }

    fn owner(&self, address: &str) -> Option<String> {
        let plans = [IRIS1, IRIS2].map(|node| self.plan(node));
        let owners = plans
            .each_ref()
            .map(|p| owner(&p.addresses[&ip(address)], &Members::EveryNode).map(NodeName::as_str));
        assert_eq!(owners[0], owners[1], "every node sees the same owner");
        owners[0].map(ToOwned::to_owned)
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ad(name: &str, nodes: &[&str]) -> L2Advertisement {
    L2Advertisement {
        name: name.into(),
        nodes: nodes.iter().map(|n| NodeName::from(*n)).collect(),
        interfaces: Interfaces::All,
        service_selectors: Vec::new(),
        preferences: BTreeMap::new(),
    }
}

fn both() -> Cluster {
    Cluster::new([ad("all", &[IRIS1, IRIS2])])
}

fn on(interfaces: &[&str], ad: L2Advertisement) -> L2Advertisement {
    L2Advertisement { interfaces: named(interfaces), ..ad }
}

fn named(interfaces: &[&str]) -> Interfaces {
    Interfaces::Named(interfaces.iter().map(|i| (*i).into()).collect())
}

fn app(value: &str) -> Selector {
    let match_labels = Some([("app".to_owned(), value.to_owned())].into());
    Selector::parse(&LabelSelector { match_labels, ..LabelSelector::default() }).unwrap()
}

fn only(selectors: &[&str], ad: L2Advertisement) -> L2Advertisement {
    L2Advertisement { service_selectors: selectors.iter().map(|value| app(value)).collect(), ..ad }
}

/// An endpoint on a node, as (node, ready, serving).
type On = (&'static str, Option<bool>, Option<bool>);

const UP1: On = (IRIS1, Some(true), None);
const UP2: On = (IRIS2, Some(true), None);
const DOWN1: On = (IRIS1, Some(false), None);
const DOWN2: On = (IRIS2, Some(false), None);

fn service(address: &str, endpoints: &[On]) -> Service {
    Service {
        load_balancer: true,
        ingress: vec![Ingress::Ip(ip(address))],
        endpoints: endpoints
            .iter()
            .map(|(node, ready, serving)| Endpoint { ready: *ready, serving: *serving, node: Some(node) })
            .collect(),
        ..Service::default()
    }
}

fn local(address: &str, endpoints: &[On]) -> Service {
    Service { local: true, ..service(address, endpoints) }
}

fn labelled(app: &str, service: Service) -> Service {
    Service { labels: [("app".to_owned(), app.to_owned())].into(), ..service }
}

#[test]
fn local_policy_follows_the_endpoints() {
    let (no, yes) = ("notOwner", "");
    for (endpoints, expected) in [
        (&[UP1, UP1][..], [yes, no]),
        (&[DOWN1, DOWN1], [no, no]),
        (&[UP1, UP2], [no, yes]),
        (&[DOWN1, DOWN2], [no, no]),
        (&[UP1, DOWN2], [yes, no]),
        // Three endpoints: their number has no weight.
        (&[UP1, UP2, UP2], [no, yes]),
        (&[UP1, UP1, UP2], [no, yes]),
        (&[UP1, UP2, DOWN2], [no, yes]),
        (&[UP1, DOWN1, UP2], [no, yes]),
        (&[UP1, DOWN2, DOWN2], [yes, no]),
        // No longer ready but serving; ready although it does not serve.
        (&[(IRIS1, Some(false), Some(true)), (IRIS2, Some(false), Some(true))], [no, yes]),
        (&[(IRIS1, Some(true), Some(false)), DOWN2], [yes, no]),
    ] {
        assert_eq!(both().with("s", local("10.20.30.1", endpoints)).words("s"), expected, "{endpoints:?}");
    }
}

#[test]
fn two_services_are_led_each_by_its_own_hash() {
    for (first, second) in
        [(&[UP1, UP2][..], &[UP1, UP2][..]), (&[UP1, UP2], &[UP1, DOWN2]), (&[DOWN1, UP2], &[UP1, DOWN2])]
    {
        let cluster = both().with("a", local("10.20.30.1", first)).with("b", local("10.20.30.2", second));
        assert_eq!(cluster.words("a"), ["notOwner", ""]);
        assert_eq!(cluster.words("b"), ["", "notOwner"]);
    }
}

#[test]
fn advertisements_choose_the_nodes() {
    let (no, none, yes) = ("notOwner", "noMatchingAdvertisement", "");
    let one = || ad("one", &[IRIS1]);
    let two = || ad("two", &[IRIS2]);
    let cases: [(&str, Vec<L2Advertisement>, Service, [&str; 2]); 8] = [
        ("an ad for one node", vec![one()], service("10.20.30.1", &[UP1]), [yes, none]),
        ("two ads, one node each, Local", vec![one(), two()], local("10.20.30.1", &[UP1]), [yes, no]),
        (
            "Cluster: the leader needs no endpoint",
            vec![ad("all", &[IRIS1, IRIS2])],
            service("10.20.30.1", &[UP1]),
            [no, yes],
        ),
        ("endpoints elsewhere too", vec![one()], service("10.20.30.1", &[UP1, UP2]), [yes, none]),
        ("endpoint here, ad there", vec![two()], local("10.20.30.1", &[UP1]), [none, no]),
        ("no ad at all", vec![], service("10.20.30.1", &[UP1]), [none, none]),
        ("no endpoint comes before no ad", vec![], service("10.20.30.1", &[]), [no, no]),
        (
            "an ad for another service and one for a ghost",
            vec![only(&["other"], ad("a", &[IRIS1, IRIS2])), ad("b", &["ghost"])],
            labelled("mine", service("10.20.30.1", &[UP1])),
            [none, none],
        ),
    ];
    for (about, ads, service, expected) in cases {
        assert_eq!(Cluster::new(ads).with("s", service).words("s"), expected, "{about}");
    }
}

#[test]
fn nodes_that_are_excluded_or_cut_off_are_no_candidates() {
    let one = || both().with("s", service("10.20.30.1", &[UP1, UP2]));
    assert_eq!(one().words("s"), ["notOwner", ""]);
    assert_eq!(one().exclude(IRIS2).words("s"), ["", "notOwner"]);
    assert_eq!(one().exclude(IRIS1).words("s"), ["notOwner", ""]);
    assert_eq!(one().exclude(IRIS1).exclude(IRIS2).words("s"), ["notOwner", "notOwner"]);

    let mut ignoring = both().with("s", local("10.20.30.1", &[UP1])).exclude(IRIS1).exclude(IRIS2);
    ignoring.settings.ignore_exclude_lb = true;
    assert_eq!(ignoring.words("s"), ["", "notOwner"]);

    let mut cut_off = one();
    cut_off.nodes.get_mut(IRIS2).unwrap().network_unavailable = true;
    cut_off.settings.ignore_exclude_lb = true;
    assert_eq!(cut_off.words("s"), ["", "notOwner"]);
}

#[test]
fn services_with_one_address_and_equal_candidates_have_one_leader() {
    let mut led = [0, 0];
    for n in 1..=255 {
        let address = format!("10.20.30.{n}");
        let cluster = both().with("a", service(&address, &[UP1])).with("b", service(&address, &[UP2]));
        let words = cluster.words("a");
        assert_eq!(words, cluster.words("b"), "{address}");
        let leaders: Vec<_> = (0..2).filter(|i| words[*i].is_empty()).collect();
        assert_eq!(leaders.len(), 1, "{address}");
        led[leaders[0]] += 1;
        assert_eq!(cluster.plan(IRIS1).addresses[&ip(&address)].finding, None);
    }
    assert_eq!(led, [134, 121]);
}

#[test]
fn service_selectors_are_ored_and_labels_decide_at_once() {
    let cluster = |selectors: &[&str], value| {
        Cluster::new([only(selectors, ad("x", &[IRIS1, IRIS2]))])
            .with("s", labelled(value, service("10.20.30.1", &[UP1])))
            .words("s")
    };
    assert_eq!(cluster(&[], "nginx"), ["notOwner", ""]);
    assert_eq!(cluster(&["nginx"], "nginx"), ["notOwner", ""]);
    assert_eq!(cluster(&["nginx"], "apache"), ["noMatchingAdvertisement"; 2]);
    assert_eq!(cluster(&["nginx", "apache"], "apache"), ["notOwner", ""]);
}

#[test]
fn interfaces_are_those_of_all_matching_advertisements_of_the_node() {
    let all = [IRIS1, IRIS2];
    let cases = [
        ("all", vec![ad("a", &all)], Interfaces::All, Interfaces::All),
        (
            "a list",
            vec![on(&["eth0", "eth1"], ad("a", &all))],
            named(&["eth0", "eth1"]),
            named(&["eth0", "eth1"]),
        ),
        (
            "two lists",
            vec![on(&["eth0"], ad("a", &all)), on(&["eth1"], ad("b", &all))],
            named(&["eth0", "eth1"]),
            named(&["eth0", "eth1"]),
        ),
        (
            "a list and all",
            vec![on(&["eth0"], ad("a", &all)), ad("b", &all)],
            Interfaces::All,
            Interfaces::All,
        ),
        (
            "a list per node",
            vec![on(&["eth0"], ad("a", &[IRIS1])), on(&["eth1"], ad("b", &[IRIS2]))],
            named(&["eth0"]),
            named(&["eth1"]),
        ),
        (
            "one that is for other services does not count",
            vec![on(&["eth0"], ad("a", &all)), only(&["other"], on(&["eth1"], ad("b", &all)))],
            named(&["eth0"]),
            named(&["eth0"]),
        ),
    ];
    for (about, ads, first, second) in cases {
        let cluster = Cluster::new(ads).with("s", service("10.20.30.1", &[UP1, UP2]));
        let words = cluster.words("s");
        assert_eq!(words.iter().filter(|w| w.is_empty()).count(), 1, "{about}");
        for (node, expected) in [(IRIS1, first), (IRIS2, second)] {
            assert_eq!(cluster.offer(node, "s").interfaces, expected, "{about} on {node}");
            assert_eq!(
                cluster.plan(node).addresses[&ip("10.20.30.1")].interfaces,
                expected,
                "{about} on {node}"
            );
        }
    }
}

#[test]
fn sharers_have_their_union_of_interfaces_where_they_can_be_announced() {
    let cluster = Cluster::new([
        only(&["foo"], on(&["eth0"], ad("a", &[IRIS1, IRIS2]))),
        only(&["bar"], on(&["eth1"], ad("b", &[IRIS1]))),
    ])
    .with("a", labelled("foo", service("10.20.30.1", &[UP1])))
    .with("b", labelled("bar", service("10.20.30.1", &[UP1])));
    let interfaces = |node| cluster.plan(node).addresses[&ip("10.20.30.1")].interfaces.clone();
    assert_eq!(interfaces(IRIS1), named(&["eth0", "eth1"]));
    assert_eq!(interfaces(IRIS2), named(&["eth0"]));
}

#[test]
fn sharers_led_apart_are_a_finding_and_the_address_has_one_owner() {
    let cluster = Cluster::new([only(&["foo"], ad("a", &[IRIS1])), only(&["bar"], ad("b", &[IRIS2]))])
        .with("foo", Service { created: 2, ..labelled("foo", service("10.20.30.1", &[UP1])) })
        .with("bar", Service { created: 1, ..labelled("bar", service("10.20.30.1", &[UP1])) });
    // Alone, each would be led by its own node, as MetalLB does it.
    assert_eq!(*cluster.offer(IRIS1, "foo").candidates, [NodeName::from(IRIS1)]);
    assert_eq!(*cluster.offer(IRIS1, "bar").candidates, [NodeName::from(IRIS2)]);
    // Together, the older one decides.
    assert_eq!(cluster.owner("10.20.30.1").as_deref(), Some(IRIS2));
    assert_eq!(cluster.words("bar"), ["noMatchingAdvertisement", ""]);
    assert_eq!(cluster.words("foo"), ["notOwner", "noMatchingAdvertisement"]);
    let key = |name| ServiceKey::new("default", name);
    let finding = cluster.plan(IRIS1).addresses[&ip("10.20.30.1")].finding.clone().unwrap();
    assert_eq!(
        finding,
        Finding::SharersDisagree {
            leaders: vec![(key("bar"), IRIS2.into()), (key("foo"), IRIS1.into())],
            unserved: vec![key("foo")],
        }
    );
    assert_eq!(
        finding.to_string(),
        "the Services that share the address match different nodes (default/bar: iris2, default/foo: iris1); \
         only one node answers, and it may not serve default/foo"
    );
}

#[test]
fn sharers_meet_on_a_node_that_serves_both() {
    // Alone, "a" would be led by iris2.
    let cluster = both().with("a", local("10.20.30.1", &[UP1, UP2])).with("b", local("10.20.30.1", &[UP1]));
    assert_eq!(cluster.owner("10.20.30.1").as_deref(), Some(IRIS1));
    assert_eq!(cluster.words("a"), ["", "notOwner"]);
    assert_eq!(cluster.words("b"), ["", "notOwner"]);
    // A sharer without any endpoint has no say.
    let silent = both().with("a", local("10.20.30.1", &[UP1, UP2])).with("b", local("10.20.30.1", &[]));
    assert_eq!(silent.owner("10.20.30.1").as_deref(), Some(IRIS2));
    assert_eq!(silent.plan(IRIS1).addresses[&ip("10.20.30.1")].finding, None);
}

#[test]
fn a_dual_stack_service_follows_its_first_address_and_a_shared_one_has_one_owner() {
    let dual = Service {
        ingress: vec![Ingress::Ip(ip("10.20.30.1")), Ingress::Ip(ip("1000::1"))],
        ..service("10.20.30.1", &[UP1])
    };
    let cluster = both().with("dual", dual.clone());
    assert_eq!(cluster.owner("10.20.30.1").as_deref(), Some(IRIS2));
    assert_eq!(cluster.owner("1000::1").as_deref(), Some(IRIS2));
    for n in 1..50 {
        let (mut dual, v6) = (dual.clone(), format!("1000::{n:x}"));
        dual.ingress[1] = Ingress::Ip(ip(&v6));
        let shared = both().with("dual", dual).with("six", service(&v6, &[UP1]));
        assert_eq!(shared.owner(&v6).as_deref(), Some(IRIS2), "the older one's order holds for {v6}");
    }
}

#[test]
fn a_preferred_node_leads_while_it_is_eligible() {
    let preferring = |weights: &[(&str, u32)]| L2Advertisement {
        preferences: weights.iter().map(|(n, w)| ((*n).into(), *w)).collect(),
        ..ad("p", &[IRIS1, IRIS2])
    };
    let words =
        |ads: Vec<L2Advertisement>| Cluster::new(ads).with("s", service("10.20.30.1", &[UP1])).words("s");
    assert_eq!(words(vec![preferring(&[(IRIS1, 10)])]), ["", "notOwner"]);
    // Weights of several advertisements add up; equal sums leave it to the hash.
    assert_eq!(words(vec![preferring(&[(IRIS1, 10)]), preferring(&[(IRIS2, 10)])]), ["notOwner", ""]);
    assert_eq!(
        words(vec![preferring(&[(IRIS1, 10)]), preferring(&[(IRIS2, 10)]), preferring(&[(IRIS1, 1)])]),
        ["", "notOwner"]
    );
    // A preference makes nobody eligible.
    let other = L2Advertisement { preferences: [(IRIS1.into(), 100)].into(), ..ad("p", &[IRIS2]) };
    assert_eq!(words(vec![other]), ["noMatchingAdvertisement", ""]);
    let excluded =
        Cluster::new([preferring(&[(IRIS1, 10)])]).with("s", service("10.20.30.1", &[UP1])).exclude(IRIS1);
    assert_eq!(excluded.words("s"), ["notOwner", ""]);
}

#[test]
fn only_living_members_lead() {
    let cluster = both().with("s", service("10.20.30.1", &[UP1]));
    let alone = Members::from_iter([(IRIS1, Standing::Ours)]);
    let key = ServiceKey::new("default", "s");
    let verdict = cluster.plan(IRIS1).verdict(&IRIS1.into(), &key, &alone);
    assert_eq!(verdict, Ok([ip("10.20.30.1")].into()));
    let verdict = cluster.plan(IRIS1).verdict(&IRIS1.into(), &key, &Members::EveryNode);
    assert_eq!(verdict, Err(Reason::Outranked(IRIS2.into())));
    let nobody = Members::Known(BTreeMap::new());
    assert_eq!(owner(&cluster.plan(IRIS1).addresses[&ip("10.20.30.1")], &nobody), None);
}

#[test]
fn what_is_wrong_with_a_service_comes_first() {
    let good = || service("10.20.30.1", &[UP1]);
    let text = |t: &str| Ingress::parse(Some(t), None);
    let cases = [
        ("notLoadBalancer", Service { load_balancer: false, ..good() }),
        ("notLoadBalancer", Service { class: Some("x".into()), ..good() }),
        ("noIPAllocated", Service { ingress: vec![], ..good() }),
        ("noIPAllocated", Service { ingress: vec![Ingress::parse(None, Some("a.example"))], ..good() }),
        ("invalidIP", Service { ingress: vec![text("10.20.30.1"), text("nonsense")], ..good() }),
        ("ipNotAllowed", service("10.20.31.1", &[UP1])),
        ("ipNotAllowed", Service { ingress: vec![text("10.20.30.1"), text("2000::1")], ..good() }),
    ];
    for (word, service) in cases {
        assert_eq!(both().with("s", service.clone()).words("s"), [word; 2], "{service:?}");
    }
    let deleted = both().plan(IRIS1).verdict(&IRIS1.into(), &ServiceKey::new("d", "s"), &Members::EveryNode);
    assert_eq!(deleted, Err(Reason::ServiceDeleted));
}

#[test]
fn a_foreign_host_name_beside_our_address_changes_nothing() {
    let mut with_name = service("10.20.30.1", &[UP1]);
    with_name.ingress.insert(0, Ingress::parse(None, Some("a.example")));
    assert_eq!(both().with("s", with_name).words("s"), ["notOwner", ""]);
}

#[test]
fn the_class_must_be_the_one_asked_for() {
    let words = |service_class: Option<&str>, ours: Option<&str>| {
        let mut cluster = both()
            .with("s", Service { class: service_class.map(Into::into), ..service("10.20.30.1", &[UP1]) });
        cluster.settings.lb_class = ours.map(Into::into);
        cluster.words("s")[1]
    };
    assert_eq!(words(None, None), "");
    assert_eq!(words(Some("x"), Some("x")), "");
    for (service, ours) in [(None, Some("x")), (Some("x"), None), (Some("x"), Some("y"))] {
        assert_eq!(words(service, ours), "notLoadBalancer", "{service:?} {ours:?}");
    }
}

#[test]
fn every_refusal_of_a_node_has_its_own_sentence() {
    let mut cluster = Cluster::new([ad("a", &[IRIS1, IRIS2])])
        .with("s", local("10.20.30.1", &[UP1]))
        .with("idle", service("10.20.30.2", &[]));
    let why = |cluster: &Cluster, service: &str, node: &str| {
        let reason = why_no_candidate(
            &cluster.inputs(&IRIS1.into()),
            &ServiceKey::new("default", service),
            &node.into(),
        );
        reason.map(|r| r.to_string())
    };
    assert_eq!(why(&cluster, "s", IRIS1), None);
    assert_eq!(
        why(&cluster, "s", IRIS2).as_deref(),
        Some("externalTrafficPolicy is Local and no endpoint on node iris2 serves")
    );
    assert_eq!(
        why(&cluster, "s", "iris3").as_deref(),
        Some("no L2Advertisement of pool default is both for this Service and for node iris3")
    );
    assert_eq!(why(&cluster, "idle", IRIS1).as_deref(), Some("no endpoint of the Service serves"));
    assert_eq!(why(&cluster, "none", IRIS1).as_deref(), Some("the Service does not exist"));
    cluster.nodes.get_mut(IRIS1).unwrap().network_unavailable = true;
    assert_eq!(why(&cluster, "s", IRIS1).as_deref(), Some("node iris1 has the condition NetworkUnavailable"));
    cluster.nodes.get_mut(IRIS1).unwrap().network_unavailable = false;
    assert_eq!(
        why(&cluster.exclude(IRIS1), "s", IRIS1).as_deref(),
        Some("node iris1 has the label node.kubernetes.io/exclude-from-external-load-balancers")
    );
}

// SPDX-License-Identifier: Apache-2.0
//! Who announces a Service on which interfaces, case by case: ours where Services share, status entries of strangers,
//! preferences, and the sentence for each refusal.

use std::collections::BTreeMap;

use ferrolb_announce::{Finding, Ingress, Members, Reason, Service, Standing, owner, why_no_candidate};
use ferrolb_config::L2Advertisement;
use ferrolb_net_types::{NodeName, ServiceKey};

use crate::cluster::{
    self, Cluster, IRIS1, IRIS2, UP1, UP2, ad, both, ip, key, labelled, local, named, on, only, service,
};

#[test]
fn a_node_without_a_network_is_no_candidate_whatever_the_flags() {
    let mut cluster = both().with("s", service("10.20.30.1", &[UP1, UP2])).cut_off(IRIS2);
    assert_eq!(cluster.words("s"), ["", "notOwner"]);
    cluster.settings.ignore_exclude_lb = true;
    assert_eq!(cluster.words("s"), ["", "notOwner"]);
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
fn a_dual_stack_service_follows_its_first_address_and_a_shared_one_has_one_owner_e08() {
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
    let preferring = |weights: &[(&str, u32)]| cluster::preferring(weights, ad("p", &[IRIS1, IRIS2]));
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
    let other = cluster::preferring(&[(IRIS1, 100)], ad("p", &[IRIS2]));
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
    let cluster = Cluster::new([ad("a", &[IRIS1, IRIS2])])
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
    assert_eq!(
        why(&cluster.clone().cut_off(IRIS1), "s", IRIS1).as_deref(),
        Some("node iris1 has the condition NetworkUnavailable")
    );
    assert_eq!(
        why(&cluster.exclude(IRIS1), "s", IRIS1).as_deref(),
        Some("node iris1 has the label node.kubernetes.io/exclude-from-external-load-balancers")
    );
}

// SPDX-License-Identifier: Apache-2.0
//! Clusters with speakers of MetalLB and of ours, one row per way in which the two rules can differ: each speaker
//! follows its own, and the row says who answers then.
//!
//! By digest 192.0.2.1 goes to C, A, B in this order, 192.0.2.2 to B, C, A, 2001:db8::1 to B, A, C.

use std::collections::BTreeMap;

use ferrolb_announce::{Ingress, Members, Reason, Service, metallb_owners, owner};
use ferrolb_api::{IPAddressPool, IPAddressPoolSpec, L2AdvertisementSpec};
use ferrolb_config::{LastGood, Resources, evaluate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::cluster::{Cluster, On, ad, ip, labelled, local, members, on, only, preferring, service};

const A: &str = "node-a";
const B: &str = "node-b";
const C: &str = "node-c";
const ALL: [&str; 3] = [A, B, C];
const UP: [On; 3] = [(A, Some(true), None), (B, Some(true), None), (C, Some(true), None)];
const UP_A: [On; 1] = [(A, Some(true), None)];
const UP_B: [On; 1] = [(B, Some(true), None)];

const ONE: &str = "192.0.2.1";
const TWO: &str = "192.0.2.2";
const SIX: &str = "2001:db8::1";

/// A case: what differs, the cluster, the members (`a=M` is MetalLB's on node-a, O ours, S ours with a stale view),
/// the address, and who answers for it.
type Row = (&'static str, Cluster, &'static str, &'static str, &'static [&'static str]);

fn rows() -> Vec<Row> {
    let any = |service| Cluster::of(&ALL, [ad("any", &ALL)]).with("s", service);
    let plain = || any(service(ONE, &UP));
    let preferring_b =
        || Cluster::of(&ALL, [preferring(&[(B, 50)], ad("any", &ALL))]).with("s", service(ONE, &UP));
    // Two Services of one address: the older for A alone, the other for B alone.
    let apart = || {
        Cluster::of(&ALL, [only(&["x"], ad("x", &[A])), only(&["y"], ad("y", &[B]))])
            .with("x", labelled("x", service(ONE, &UP)))
            .with("y", labelled("y", service(ONE, &UP)))
    };
    let policies = || any(service(ONE, &UP)).with("t", local(ONE, &UP_A));
    let endpoints = || any(local(ONE, &UP_A)).with("t", local(ONE, &UP_B));
    let dual = |addresses| any(service(addresses, &UP));
    let dual_and_six = || any(service("192.0.2.1,2001:db8::1", &UP)).with("t", service(SIX, &UP));
    let named = || {
        let mut named = service(ONE, &UP);
        named.ingress.push(Ingress::Hostname("lb.example".into()));
        named
    };
    let spoiled = || {
        let mut spoiled = service(ONE, &UP);
        spoiled.ingress.push(Ingress::Invalid("192.0.2".into()));
        spoiled
    };
    let classed = |class: Option<&str>, ours: Option<&str>| {
        let mut cluster = any(Service { class: class.map(Into::into), ..service(ONE, &UP) });
        cluster.settings.lb_class = ours.map(Into::into);
        cluster
    };
    let ignoring = || {
        let mut cluster = plain().exclude(C);
        cluster.settings.ignore_exclude_lb = true;
        cluster
    };
    let interfaces = || Cluster::of(&ALL, [on(&["eth9"], ad("any", &ALL))]).with("s", service(ONE, &UP));
    vec![
        // The same candidates, the same digest.
        ("13.5 all are MetalLB's", plain(), "a=M b=M c=M", ONE, &[C]),
        ("13.5 all are ours", plain(), "a=O b=O c=O", ONE, &[C]),
        ("13.5 the leader is MetalLB's", plain(), "a=O b=O c=M", ONE, &[C]),
        ("13.5 the leader is ours", plain(), "a=M b=M c=O", ONE, &[C]),
        ("13.5 the leader is gone", plain(), "a=M b=O", ONE, &[A]),
        ("13.5 the leader is gone, the heir is ours", plain(), "a=O b=M", ONE, &[A]),
        // A fresh speaker of ours is no member until it is eligible.
        ("S30 the leader-to-be only reads yet", plain(), "a=M b=O", ONE, &[A]),
        ("S30 the others are ours too", plain(), "a=O b=O", ONE, &[A]),
        // Services that share an address and differ.
        ("S31 two MetalLB leaders: MetalLB's own fault", apart(), "a=M b=M c=O", ONE, &[A, B]),
        ("S31 one leader is MetalLB's", apart(), "a=M b=O c=O", ONE, &[A]),
        ("S31 the younger one's leader is MetalLB's", apart(), "a=O b=M c=O", ONE, &[B]),
        ("S31 both leaders are ours, MetalLB's leads none", apart(), "a=O b=O c=M", ONE, &[A]),
        ("S31 all are ours", apart(), "a=O b=O c=O", ONE, &[A]),
        ("S31 policies differ, all MetalLB's", policies(), "a=M b=M c=M", ONE, &[A, C]),
        ("S31 policies differ, C ours", policies(), "a=M b=M c=O", ONE, &[A]),
        ("S31 policies differ, A ours", policies(), "a=O b=M c=M", ONE, &[C]),
        ("S31 policies differ, A and C ours", policies(), "a=O b=M c=O", ONE, &[A]),
        ("S31 endpoints differ, all MetalLB's", endpoints(), "a=M b=M c=M", ONE, &[A, B]),
        ("S31 endpoints differ, A ours", endpoints(), "a=O b=M c=M", ONE, &[B]),
        ("S31 endpoints differ, B ours", endpoints(), "a=M b=O c=M", ONE, &[A]),
        ("S31 endpoints differ, A and B ours", endpoints(), "a=O b=O c=M", ONE, &[A]),
        // The interfaces that an advertisement names have no say in who leads.
        ("S32 the leader may lack the interface", interfaces(), "a=O b=O c=M", ONE, &[C]),
        ("S32 also when it is ours", interfaces(), "a=M b=O c=O", ONE, &[C]),
        // Both addresses of a Service follow the first.
        ("dual stack: the first address", dual("192.0.2.1,2001:db8::1"), "a=O b=O c=M", ONE, &[C]),
        ("dual stack: the second follows it", dual("192.0.2.1,2001:db8::1"), "a=O b=O c=M", SIX, &[C]),
        ("dual stack: the leader is ours", dual("192.0.2.1,2001:db8::1"), "a=M b=M c=O", SIX, &[C]),
        ("dual stack in the other order", dual("2001:db8::1,192.0.2.1"), "a=O b=O c=M", ONE, &[B]),
        (
            "dual stack in the other order, B MetalLB's",
            dual("2001:db8::1,192.0.2.1"),
            "a=O b=M c=O",
            ONE,
            &[B],
        ),
        ("one holder's second address, all MetalLB's", dual_and_six(), "a=M b=M c=M", SIX, &[B, C]),
        ("one holder's second address, B MetalLB's", dual_and_six(), "a=O b=M c=O", SIX, &[B]),
        ("one holder's second address, C MetalLB's", dual_and_six(), "a=O b=O c=M", SIX, &[C]),
        ("one holder's second address, A MetalLB's", dual_and_six(), "a=M b=O c=O", SIX, &[C]),
        // Preferences are ours alone.
        ("a preferred node of ours, the leader MetalLB's", preferring_b(), "a=O b=O c=M", ONE, &[C]),
        ("a preferred node of ours, the leader ours", preferring_b(), "a=M b=O c=O", ONE, &[B]),
        ("the preferred node is MetalLB's, the leader ours", preferring_b(), "a=O b=M c=O", ONE, &[C]),
        ("a preferred node, all ours", preferring_b(), "a=O b=O c=O", ONE, &[B]),
        ("a preferred node, all MetalLB's", preferring_b(), "a=M b=M c=M", ONE, &[C]),
        // MetalLB gives up a Service for an entry that is no address.
        ("a host name: MetalLB's leader is silent", any(named()), "a=O b=O c=M", ONE, &[A]),
        ("a host name, all MetalLB's: nobody", any(named()), "a=M b=M c=M", ONE, &[]),
        (
            "a host name, one of two sharers",
            any(named()).with("t", service(ONE, &UP)),
            "a=O b=O c=M",
            ONE,
            &[C],
        ),
        (
            "a host name, the other sharer's leader is MetalLB's",
            any(named()).with("t", local(ONE, &UP_B)),
            "a=O b=M c=O",
            ONE,
            &[B],
        ),
        ("a text that is no address: nobody's", any(spoiled()), "a=O b=M c=M", ONE, &[]),
        // What a speaker without the API is.
        ("stale: MetalLB's leader does not care", plain(), "a=S b=S c=M", ONE, &[C]),
        ("stale: the leader of ours makes way among ours only", plain(), "a=M b=O c=S", ONE, &[B]),
        ("stale: there is no other of ours", plain(), "a=M b=M c=S", ONE, &[C]),
        ("stale: all of ours are", plain(), "a=S b=M c=S", ONE, &[C]),
        ("stale: one that may not announce takes nothing", plain().exclude(B), "a=M b=O c=S", ONE, &[C]),
        // Nodes.
        ("MetalLB's leader is excluded", plain().exclude(C), "a=O b=M c=M", ONE, &[A]),
        ("our leader is excluded", plain().exclude(C), "a=M b=O c=O", ONE, &[A]),
        ("excluded, and the flag says never mind", ignoring(), "a=O b=O c=M", ONE, &[C]),
        ("MetalLB's leader has no network", plain().cut_off(C), "a=O b=M c=M", ONE, &[A]),
        ("our leader has no network", plain().cut_off(C), "a=M b=O c=O", ONE, &[A]),
        ("all of ours are excluded", plain().exclude(A).exclude(B), "a=O b=O c=M", ONE, &[C]),
        (
            "no node object of a member",
            Cluster { nodes: Default::default(), ..plain() },
            "a=O b=O c=M",
            ONE,
            &[C],
        ),
        ("a member that no advertisement is for", plain(), "d=M a=O", ONE, &[A]),
        // Classes.
        ("a class that both serve", classed(Some("x"), Some("x")), "a=O b=O c=M", ONE, &[C]),
        ("a class that neither serves", classed(Some("y"), Some("x")), "a=O b=O c=M", ONE, &[]),
        ("no class where one is asked for", classed(None, Some("x")), "a=M b=M c=O", ONE, &[]),
        // Nothing sticks: who comes back takes what it leads.
        ("stickiness: before", any(service(TWO, &UP)), "a=M c=O", TWO, &[C]),
        ("stickiness: MetalLB's leader comes", any(service(TWO, &UP)), "a=M b=M c=O", TWO, &[B]),
        ("stickiness: it is replaced by ours", any(service(TWO, &UP)), "a=M b=O c=O", TWO, &[B]),
    ]
}

fn full_names(text: &str) -> String {
    text.split_whitespace().map(|member| format!("node-{member} ")).collect()
}

#[test]
fn each_way_to_differ_has_its_outcome() {
    for (case, cluster, text, address, expected) in rows() {
        let members = members(&full_names(text));
        let answering = cluster.answering(ip(address), &members);
        assert_eq!(answering.iter().map(|node| node.as_str()).collect::<Vec<_>>(), expected, "{case}");
        // Ours know who: the plan of any of them names the one, and all of MetalLB's.
        let known = Members::Known(members);
        if let Some(plan) = cluster.plan(B).addresses.get(&ip(address)) {
            let named = owner(plan, &known).map(|node| node.as_str());
            assert_eq!(named.is_none(), expected.is_empty(), "{case}");
            assert!(named.is_none_or(|named| expected.contains(&named)), "{case}: {named:?}");
            let mut theirs: Vec<_> = metallb_owners(plan, &known).map(|node| node.as_str()).collect();
            theirs.sort_unstable();
            theirs.dedup();
            if !theirs.is_empty() {
                assert_eq!(theirs, expected, "{case}");
            }
        }
    }
}

#[test]
fn who_stands_back_says_for_whom() {
    let plain = || Cluster::of(&ALL, [ad("any", &ALL)]).with("s", service(ONE, &UP));
    let rows = [
        ("a=O b=O c=M", Some(Reason::LedByMetallb(C.into()))),
        ("a=O b=O c=O", Some(Reason::Outranked(C.into()))),
        ("a=S b=O c=S", Some(Reason::ViewStale(B.into()))),
        ("a=S b=M c=S", Some(Reason::Outranked(C.into()))),
        ("a=O b=O c=S", None),
        ("b=O c=O", Some(Reason::NotEligible)),
        ("", Some(Reason::NotEligible)),
    ];
    for (text, expected) in rows {
        let why = plain().why(A, "s", &Members::Known(members(&full_names(text))));
        assert_eq!(why, expected, "{text}");
    }
    for (reason, sentence) in [
        (
            Reason::LedByMetallb(C.into()),
            "node node-c, whose speaker is MetalLB's, comes first in MetalLB's election",
        ),
        (
            Reason::ViewStale(B.into()),
            "the speaker has lost the Kubernetes API, and node node-b, whose speaker has it, takes its place",
        ),
        (Reason::NotEligible, "the speaker has not heard from the other speakers yet"),
        (
            Reason::Gated,
            "the speaker stood still for so long that others may have taken over, and none has answered it since",
        ),
    ] {
        assert_eq!((reason.word(), reason.to_string().as_str()), ("notOwner", sentence));
    }
}

/// A MetalLB speaker keeps the last configuration that it accepted as a whole, while an evaluation of ours takes what
/// is good of each object: beside MetalLB's, only what it accepted may be in force.
#[test]
fn a_configuration_that_metallb_refuses_makes_two_owners_unless_ours_hold_it_back() {
    let pool = |name: &str, range: &str| {
        let spec = IPAddressPoolSpec { addresses: vec![range.to_owned()], ..IPAddressPoolSpec::default() };
        IPAddressPool::new(name, spec)
    };
    let advertisement = |zone: &str| {
        let zone = LabelSelector { match_labels: Some(label(zone)), ..LabelSelector::default() };
        let spec = L2AdvertisementSpec { node_selectors: vec![zone], ..L2AdvertisementSpec::default() };
        ferrolb_api::L2Advertisement::new("any", spec)
    };
    let mut resources = Resources {
        pools: vec![pool("p", "192.0.2.0/24")],
        l2_advertisements: vec![advertisement("old")],
        nodes: [(A, "new"), (B, "new"), (C, "old")]
            .map(|(node, zone)| (node.into(), label(zone).into_iter().collect()))
            .into(),
        ..Resources::default()
    };
    let accepted = evaluate(&resources, &LastGood::default());
    assert_eq!(accepted.verdict, Ok(()));
    resources.l2_advertisements = vec![advertisement("new")];
    resources.pools.push(pool("q", "nonsense"));
    let refused = evaluate(&resources, &accepted.last_good);
    assert!(refused.verdict.is_err());

    let under = |config| Cluster { config, ..Cluster::of(&ALL, []).with("s", service(ONE, &UP)) };
    let answering = |config, node| under(config).answering(ip(ONE), &members(node));
    let both = "node-a=O node-b=O node-c=M";
    assert_eq!(
        answering(accepted.config.clone(), both),
        [C.into()],
        "what the MetalLB speaker does in any case"
    );
    assert_eq!(answering(refused.config, both), [A.into()], "what ours would do beside it");
    assert_eq!(answering(accepted.config, "node-a=O node-b=O"), [], "nothing is held back for nobody");
}

fn label(zone: &str) -> BTreeMap<String, String> {
    [("zone".to_owned(), zone.to_owned())].into()
}

// SPDX-License-Identifier: Apache-2.0
//! Peers that exclude each other on a node: no session ends for the sake of another one.

use std::collections::BTreeSet;

use ferrolb_api::BGPPeer;
use ferrolb_config::state::Outcome;
use ferrolb_config::{BgpType, Evaluation, Resources, Undecodable, evaluate};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use proptest::prelude::*;
use serde_json::{Value, json};
use similar_asserts::assert_eq;

use crate::bgp_values::{OWN, peer_created, sessions, speaker, then, with};
use crate::build::{fresh, labels};

fn of(bgp_type: BgpType, peers: &[&BGPPeer]) -> Resources {
    Resources { bgp_peers: peers.iter().map(|peer| (*peer).clone()).collect(), ..speaker(bgp_type) }
}

/// What is said of a peer.
fn told<'a>(evaluation: &'a Evaluation, name: &str) -> Vec<&'a str> {
    let faults = evaluation.diagnostics.iter().filter(|fault| fault.name == name);
    faults.map(|fault| fault.message.as_str()).collect()
}

fn stays(rival: &str) -> String {
    format!(
        "the session with 192.168.10.1 stays as it was: on one node it excludes that of BGPPeer {rival}, which was there \
         before"
    )
}

fn not_opened(rival: &str, why: &str) -> String {
    format!(
        "the session with 192.168.10.1 is not opened: on one node it excludes that of BGPPeer {rival}, which {why}"
    )
}

#[test]
fn of_two_peers_that_exclude_each_other_the_older_is_opened_after_a_start_bg_18() {
    let text = not_opened("q", "is older");
    for (bgp_type, more, excluded) in [
        (BgpType::Native, json!({}), true),
        (BgpType::Native, json!({ "myASN": 64999, "holdTime": "9s" }), true),
        (BgpType::Native, json!({ "peerPort": 1179 }), false),
        (BgpType::Native, json!({ "sourceAddress": "192.168.10.99" }), false),
        (BgpType::Native, json!({ "sourceAddress": "0.0.0.0" }), true),
        (BgpType::Native, json!({ "sourceAddress": "::" }), true),
        (BgpType::Native, json!({ "peerAddress": "192.168.10.2", "routerID": "1.1.1.1" }), false),
        (BgpType::Frr, json!({ "peerPort": 1179 }), true),
        (BgpType::Native, json!({ "nodeSelectors": [{ "matchLabels": { "name": "n2" } }] }), false),
    ] {
        // Before q by name, after it by age.
        let peers = [peer_created("a", 9, &more), peer_created("q", 1, &json!({}))];
        let evaluation = with(bgp_type, &peers);
        let here = more.get("nodeSelectors").is_none();
        assert_eq!(sessions(&evaluation.config).contains(&"a"), !excluded && here, "{more}");
        assert!(evaluation.config.bgp.peers.contains_key("q"), "{more}");
        assert_eq!(told(&evaluation, "a").contains(&text.as_str()), excluded, "{more}");
        assert_eq!(told(&evaluation, "a").is_empty(), !excluded, "{more}");
    }
}

#[test]
fn an_edit_that_gets_in_the_way_of_another_session_is_not_taken_over_whichever_is_older() {
    for edited in ["older", "younger"] {
        let (older, younger) = match edited {
            "older" => (json!({ "peerPort": 180 }), json!({})),
            _ => (json!({}), json!({ "peerPort": 180 })),
        };
        let older = peer_created("older", 1, &older);
        let younger = peer_created("younger", 2, &younger);
        let before = fresh(&of(BgpType::Native, &[&older, &younger]));
        assert_eq!(sessions(&before.config), ["older", "younger"], "{edited}");

        let aged = if edited == "older" { 1 } else { 2 };
        let edit = peer_created(edited, aged, &json!({ "peerPort": 179 }));
        let rest = if edited == "older" { &younger } else { &older };
        let after = then(&before, &of(BgpType::Native, &[&edit, rest]));
        assert_eq!(after.config.bgp, before.config.bgp, "{edited}");
        assert_eq!(told(&after, edited), [stays(rest.metadata.name.as_deref().unwrap())]);
        // It is at rest, and the other one may still change whatever does not matter.
        let again = then(&after, &of(BgpType::Native, &[&edit, rest]));
        assert_eq!((&again.config, &again.diagnostics), (&after.config, &after.diagnostics), "{edited}");
        let mut slower = rest.clone();
        slower.spec.hold_time = Some("9s".parse().unwrap());
        let other = then(&after, &of(BgpType::Native, &[&edit, &slower]));
        let name = rest.metadata.name.as_deref().unwrap();
        assert_eq!(other.config.bgp.peers[name].hold_seconds, Some(9), "{edited}");
        // Once the other one is gone, the edit is taken over.
        let alone = then(&after, &of(BgpType::Native, &[&edit]));
        assert_eq!((alone.config.bgp.peers[edited].port, alone.diagnostics.len()), (179, 0), "{edited}");
    }
}

#[test]
fn an_older_peer_that_comes_onto_the_node_waits_for_the_one_that_is_there() {
    let selective = json!({ "nodeSelectors": [{ "matchLabels": { "rack": "a" } }] });
    let older = peer_created("older", 1, &selective);
    let younger = peer_created("younger", 2, &json!({}));
    let resources = of(BgpType::Native, &[&older, &younger]);
    let before = fresh(&resources);
    assert_eq!(sessions(&before.config), ["younger"]);

    // By a label of the node …
    let mut labelled = resources.clone();
    labelled.nodes.insert(OWN.into(), labels(&[("name", OWN), ("rack", "a")]));
    // … by an edit of the selector …
    let selects = of(BgpType::Native, &[&peer_created("older", 1, &json!({})), &younger]);
    for (how, resources) in [("label", &labelled), ("selector", &selects)] {
        let after = then(&before, resources);
        assert_eq!(after.config.bgp, before.config.bgp, "{how}");
        assert_eq!(told(&after, "older"), [not_opened("younger", "was there before")], "{how}");
        assert_eq!(told(&after, "younger"), Vec::<&str>::new(), "{how}");
        // … and where none was there before, as after a start, the older one has it.
        assert_eq!(sessions(&fresh(resources).config), ["older"], "{how}");
        assert_eq!(told(&fresh(resources), "younger"), [not_opened("older", "is older")], "{how}");
    }
    // With the label gone everything is as it was.
    let gone = then(&then(&before, &labelled), &resources);
    assert_eq!((&gone.config, gone.diagnostics.len()), (&before.config, 0));
}

#[test]
fn in_type_frr_another_router_id_or_system_of_one_peer_closes_no_other_session() {
    let peer = |n: u8, age: u32, more: &Value| {
        let mut peer = peer_created(&format!("p{n}"), age, more);
        peer.spec.peer_address = format!("192.168.10.{n}");
        peer
    };
    let (second, third) = (peer(2, 2, &json!({})), peer(3, 3, &json!({})));
    for more in [json!({ "routerID": "10.0.0.1" }), json!({ "myASN": 64999 })] {
        let before = fresh(&of(BgpType::Frr, &[&peer(1, 1, &json!({})), &second, &third]));
        assert_eq!(sessions(&before.config), ["p1", "p2", "p3"]);
        // The oldest first: whoever is edited stays as it was until all of them are.
        let one = then(&before, &of(BgpType::Frr, &[&peer(1, 1, &more), &second, &third]));
        assert_eq!(one.config, before.config, "{more}");
        assert_eq!(told(&one, "p1").len(), 1, "{:?}", one.diagnostics);
        assert!(one.verdict.is_err(), "MetalLB refuses them");
        let two = then(&one, &of(BgpType::Frr, &[&peer(1, 1, &more), &peer(2, 2, &more), &third]));
        assert_eq!(two.config, before.config, "{more}");
        let all = of(BgpType::Frr, &[&peer(1, 1, &more), &peer(2, 2, &more), &peer(3, 3, &more)]);
        let three = then(&two, &all);
        assert_eq!((&three.config, three.diagnostics.len()), (&fresh(&all).config, 0), "{more}");
    }
}

#[test]
fn a_secret_that_comes_opens_no_session_in_the_place_of_another_one() {
    let older = peer_created("older", 1, &json!({ "passwordSecret": { "name": "s" } }));
    let younger = peer_created("younger", 2, &json!({}));
    let missing = of(BgpType::Native, &[&older, &younger]);
    let mut secret = Secret { type_: Some("kubernetes.io/basic-auth".to_owned()), ..Secret::default() };
    secret.metadata.name = Some("s".to_owned());
    secret.data = Some([("password".to_owned(), ByteString(b"x".to_vec()))].into());
    let there = Resources { secrets: vec![secret], ..missing.clone() };

    let before = fresh(&missing);
    assert_eq!(sessions(&before.config), ["younger"], "it does not exist");
    let after = then(&before, &there);
    assert_eq!(after.config, before.config);
    assert_eq!(told(&after, "older"), [not_opened("younger", "was there before")]);

    // After a start the older one has its place as soon as its object is there, whenever its Secret comes.
    let awaited = Resources { awaited_secrets: BTreeSet::from(["s".to_owned()]), ..missing.clone() };
    let waiting = fresh(&awaited);
    assert_eq!(sessions(&waiting.config), Vec::<&str>::new());
    assert_eq!(told(&waiting, "younger"), [not_opened("older", "is older")]);
    assert_eq!(sessions(&then(&waiting, &there).config), ["older"]);
    assert_eq!(sessions(&then(&waiting, &missing).config), ["younger"], "it does not exist");
}

#[test]
fn a_peer_that_cannot_be_decoded_keeps_its_session_from_an_older_one() {
    let younger = peer_created("younger", 2, &json!({}));
    let before = fresh(&of(BgpType::Native, &[&younger]));
    let mut resources = of(BgpType::Native, &[&peer_created("older", 1, &json!({}))]);
    resources.undecodable =
        vec![Undecodable { kind: "BGPPeer", name: "younger".to_owned(), message: "no number".to_owned() }];
    let after = then(&before, &resources);
    assert_eq!(after.config, before.config);
    assert_eq!(told(&after, "older"), [not_opened("younger", "was there before")]);
}

#[test]
fn two_peers_may_swap_what_they_have() {
    let on = |name: &str, age: u32, port: u16| peer_created(name, age, &json!({ "peerPort": port }));
    let before = fresh(&of(BgpType::Native, &[&on("a", 1, 179), &on("b", 2, 180)]));
    let after = then(&before, &of(BgpType::Native, &[&on("a", 1, 180), &on("b", 2, 179)]));
    let ports = |name: &str| after.config.bgp.peers[name].port;
    assert_eq!((ports("a"), ports("b"), after.diagnostics.len()), (180, 179, 0));
}

#[test]
fn what_is_not_taken_over_does_not_pass_for_valid_and_a_remark_does() {
    let good = || peer_created("q", 1, &json!({}));
    let annotated = |key: &str, value: &str| {
        let mut peer = good();
        peer.spec.hold_time = Some("30s".parse().unwrap());
        peer.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
        peer
    };
    for (about, peers, shown) in [
        (
            "a rival",
            vec![good(), peer_created("r", 2, &json!({}))],
            Some("BGPPeer r: the session with 192.168.10.1"),
        ),
        (
            "an annotation, beside a field of the same object",
            vec![annotated("ferrolb.io/gtsm-hops", "0")],
            Some("BGPPeer q: metadata.annotations[ferrolb.io/gtsm-hops]: expected a number from 1 to 254"),
        ),
        (
            "a router ID that MetalLB takes",
            vec![peer_created("q", 1, &json!({ "routerID": "fd00::1" }))],
            Some("BGPPeer q: invalid router ID"),
        ),
        ("a remark", vec![peer_created("q", 1, &json!({ "holdTime": "65537s" }))], None),
        ("nothing", vec![good()], None),
    ] {
        let before = with(BgpType::Native, &[good()]);
        let after = then(&before, &of(BgpType::Native, &peers.iter().collect::<Vec<_>>()));
        assert_eq!(after.verdict, Ok(()), "{about}: MetalLB would take it");
        let outcome = Outcome::from(&after);
        let text = outcome.verdict.err();
        assert_eq!(text.is_some(), shown.is_some(), "{about}: {text:?}");
        assert!(text.unwrap_or_default().starts_with(shown.unwrap_or_default()), "{about}");
        // What is shown as the error is not shown a second time.
        let further = after.diagnostics.len() - usize::from(shown.is_some());
        assert_eq!(outcome.further.len(), further, "{about}: {:?}", outcome.further);
    }
}

/// A peer among few addresses, ports, numbers and nodes: most exclude each other.
fn some_peer() -> impl Strategy<Value = Option<Value>> {
    let spec = (0_u8..2, 179_u16..181, 64512_u32..64514, 0_u8..4).prop_map(|(address, port, asn, selected)| {
        json!({
            "peerAddress": format!("192.168.10.{address}"), "peerPort": port, "myASN": asn,
            "nodeSelectors": if selected == 0 { json!([{ "matchLabels": { "rack": "a" } }]) } else { json!([]) },
        })
    });
    prop::option::weighted(0.8, spec)
}

proptest! {
    #[test]
    fn no_session_ends_or_changes_for_what_becomes_of_others(
        frr: bool,
        steps in prop::collection::vec((0_usize..5, some_peer(), prop::bool::weighted(0.2)), 1..12),
    ) {
        let bgp_type = if frr { BgpType::Frr } else { BgpType::Native };
        let mut resources = speaker(bgp_type);
        let mut specs: [Option<Value>; 5] = Default::default();
        let mut before = fresh(&resources);
        for (n, spec, label) in steps {
            let name = format!("p{n}");
            let edited = specs[n] != spec;
            specs[n] = spec;
            // A label comes and goes with some of the edits, which may bring others onto the node, or take them away.
            let rack = if label { "a" } else { "b" };
            resources.nodes.insert(OWN.into(), labels(&[("name", OWN), ("rack", rack)]));
            resources.bgp_peers = (0..5_u32)
                .filter_map(|n| Some(peer_created(&format!("p{n}"), 9 - n, specs[n as usize].as_ref()?)))
                .collect();
            let after = evaluate(&resources, &before.last_good);
            for (other, session) in &before.config.bgp.peers {
                let object = resources.bgp_peers.iter().find(|o| o.metadata.name.as_deref() == Some(other.as_str()));
                let here = object.is_some_and(|o| o.spec.node_selectors.is_empty() || label);
                if !here {
                    continue;
                }
                let now = after.config.bgp.peers.get(other);
                prop_assert!(now.is_some(), "{other} has lost its session");
                let as_wanted = told(&before, other.as_str()).is_empty();
                if as_wanted && !(edited && other.as_str() == name) {
                    prop_assert_eq!(now, Some(session), "{} is another one", other);
                }
            }
            // Nobody waits for nothing, and what is settled stays settled.
            for object in &resources.bgp_peers {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                let here = object.spec.node_selectors.is_empty() || label;
                let opened = after.config.bgp.peers.contains_key(name);
                prop_assert!(!here || opened || !told(&after, name).is_empty(), "nothing is said of {}", name);
            }
            let again = evaluate(&resources, &after.last_good);
            prop_assert_eq!(&again.config, &after.config);
            before = after;
        }
    }
}

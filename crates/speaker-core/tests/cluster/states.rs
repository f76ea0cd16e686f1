// SPDX-License-Identifier: Apache-2.0
//! ConfigurationState in the situations that MetalLB's own tests play, as its native mode answers them, as far as layer
//! 2 goes; and what a bad object does to the rest.

use ferrolb_config::Undecodable;
use ferrolb_speaker_core::Input;
use serde_json::{Value, json};

use crate::bench::{Bench, MASTER, NODE1, NODE2, NODES, config, endpoints, service};

const IP: &str = "192.168.10.200";
const NEW: &str = "192.168.20.5";

fn web() -> Bench {
    let mut bench = Bench::started();
    bench.api.put("EndpointSlice", endpoints("web", &[NODE1, NODE2]));
    bench.api.put("Service", service("web", IP));
    bench.settle();
    bench
}

fn state(bench: &Bench, node: &str) -> Value {
    let name = json!(format!("speaker-{node}"));
    let object = bench.api.list("ConfigurationState").find(|object| object["metadata"]["name"] == name);
    object.map(|object| object["status"].clone()).unwrap_or_default()
}

/// What each of the three says: `Valid`, or the error.
pub(crate) fn said(bench: &Bench) -> Vec<String> {
    let of = |node| {
        let status = state(bench, node);
        let error = status["errorSummary"].as_str();
        error.or(status["result"].as_str()).unwrap_or("nothing").to_owned()
    };
    NODES.map(of).into()
}

pub(crate) fn all(text: &str) -> Vec<String> {
    vec![text.to_owned(); 3]
}

fn undecodable(bench: &mut Bench, kind: &'static str) {
    let broken = Undecodable { kind, name: "broken".into(), message: "spec: no such form".into() };
    for node in NODES {
        bench.hear(node, Input::Undecodable(vec![broken.clone()]));
    }
}

#[test]
fn a_clean_start_has_one_valid_object_per_speaker_c01() {
    let bench = web();
    assert_eq!(said(&bench), all("Valid"));
    assert_eq!(bench.api.list("ConfigurationState").count(), 3);
}

#[test]
fn a_bfd_profile_is_refused_by_every_speaker_of_the_native_mode_c03() {
    let mut bench = web();
    bench.api.put("BFDProfile", config("fast", json!({})));
    bench.settle();
    assert_eq!(said(&bench), all("configuration error: bfd profiles section set"));
    bench.api.delete("BFDProfile", "metallb-system", "fast");
    bench.settle();
    assert_eq!(said(&bench), all("Valid"));
}

#[test]
fn an_alias_that_no_community_defines_is_named_until_one_does_c05() {
    let mut bench = web();
    bench.api.put("BGPAdvertisement", config("ad", json!({ "communities": ["nobody"] })));
    bench.settle();
    let undefined = "configuration error: invalid community format: nobody\ninvalid community \"nobody\" in BGP advertisement";
    assert_eq!(said(&bench), all(undefined));
    let spec = json!({ "communities": [{ "name": "nobody", "value": "64512:7" }] });
    bench.api.put("Community", config("names", spec));
    bench.settle();
    assert!(said(&bench).iter().all(|text| text != undefined), "{:?}", said(&bench));
    bench.api.delete("Community", "metallb-system", "names");
    bench.settle();
    assert_eq!(said(&bench), all(undefined));
}

#[test]
fn of_two_bad_objects_the_first_is_shown_and_then_the_other_c06() {
    let mut bench = web();
    let backwards = |last: u8| json!({ "addresses": [format!("10.0.0.{last}-10.0.0.1")] });
    bench.api.put("IPAddressPool", config("b", backwards(9)));
    bench.api.put("IPAddressPool", config("a", backwards(8)));
    bench.settle();
    let of = |name: &str, bench: &Bench| {
        assert!(said(bench).iter().all(|text| text.contains(&format!("\"{name}\""))), "{:?}", said(bench));
    };
    of("a", &bench);
    bench.api.delete("IPAddressPool", "metallb-system", "a");
    bench.settle();
    of("b", &bench);
    bench.api.delete("IPAddressPool", "metallb-system", "b");
    bench.settle();
    assert_eq!(said(&bench), all("Valid"));
}

#[test]
fn objects_that_are_deleted_are_made_again_as_they_were_c09_c11() {
    let mut bench = web();
    for invalid in [false, true] {
        if invalid {
            bench.api.put("BFDProfile", config("fast", json!({})));
            bench.settle();
        }
        let before = said(&bench);
        for nodes in [&NODES[..1], &NODES[..]] {
            for node in nodes {
                bench.api.delete("ConfigurationState", "metallb-system", &format!("speaker-{node}"));
            }
            bench.settle();
            assert_eq!(said(&bench), before);
        }
    }
}

#[test]
fn what_somebody_else_writes_beside_the_own_state_is_no_reason_to_write_a20() {
    let mut bench = web();
    bench.take_writes();
    let other = config("somebody", json!({}));
    bench.api.put("ConfigurationState", other);
    bench.settle();
    bench.api.patch("ConfigurationState", "metallb-system", "somebody", &json!({ "spec": { "x": "y" } }));
    bench.settle();
    bench.api.delete("ConfigurationState", "metallb-system", "somebody");
    bench.settle();
    assert_eq!(bench.take_writes(), Vec::<String>::new());
}

#[test]
fn what_is_for_some_nodes_concerns_their_speakers_alone_and_follows_the_label_c10_a16() {
    let mut bench = web();
    let labelled = |value: Value| json!({ "metadata": { "labels": { "rack": value } } });
    bench.api.patch("Node", "", NODE1, &labelled(json!("a")));
    let spec = json!({ "communities": ["nobody"], "nodeSelectors": [{ "matchLabels": { "rack": "a" } }] });
    bench.api.put("BGPAdvertisement", config("ad", spec));
    bench.settle();
    let valid = |bench: &Bench| NODES.map(|node| state(bench, node)["result"] == "Valid");
    assert_eq!(valid(&bench), NODES.map(|node| node != NODE1));
    bench.api.patch("Node", "", NODE1, &labelled(Value::Null));
    bench.api.patch("Node", "", MASTER, &labelled(json!("a")));
    bench.settle();
    assert_eq!(valid(&bench), NODES.map(|node| node != MASTER));
}

#[test]
fn a_selector_that_means_nothing_shows_and_freezes_nothing_else_s06() {
    let selector = json!([{ "matchExpressions": [{ "key": "a", "operator": "Near", "values": ["b"] }] }]);
    for kind in ["L2Advertisement", "BGPAdvertisement"] {
        let mut bench = web();
        bench.api.put(kind, config("broken", json!({ "nodeSelectors": selector })));
        bench.settle();
        assert_eq!(state(&bench, NODE1)["result"], "Invalid", "{kind}");
        assert!(bench.speakers[NODE1].stale, "{kind}");
        lives(bench, kind);
    }
}

#[test]
fn an_object_that_cannot_be_read_shows_and_freezes_nothing_else_s06() {
    for kind in ["IPAddressPool", "L2Advertisement", "BGPAdvertisement", "BGPPeer", "BFDProfile", "Community"]
    {
        let mut bench = web();
        undecodable(&mut bench, kind);
        bench.settle();
        assert!(
            said(&bench).iter().all(|text| text.contains(&format!("{kind} broken cannot be read"))),
            "{:?}",
            said(&bench)
        );
        lives(bench, kind);
    }
}

/// Whatever is good is in force: what there was, a new pool, a new Service, a changed advertisement.
fn lives(mut bench: Bench, about: &str) {
    assert_eq!(bench.owner(IP), Some(NODE1), "{about}");
    bench.api.put("IPAddressPool", config("new", json!({ "addresses": ["192.168.20.0/24"] })));
    bench.api.put("EndpointSlice", endpoints("new", &[NODE1]));
    bench.api.put("Service", service("new", NEW));
    bench.settle();
    assert!(bench.owner(NEW).is_some(), "{about}");
    bench.api.delete("L2Advertisement", "metallb-system", "l2");
    bench.settle();
    assert_eq!((bench.owner(IP), bench.owner(NEW)), (None, None), "{about}");
}

#[test]
fn the_condition_is_of_what_is_in_force_whatever_else_happens_s05() {
    let mut bench = web();
    bench.api.put("BFDProfile", config("fast", json!({})));
    bench.settle();
    let before = said(&bench);
    bench.api.patch("Node", "", NODE2, &json!({ "metadata": { "labels": { "touched": "1" } } }));
    bench.api.put("Namespace", json!({ "metadata": { "name": "another", "labels": {} } }));
    bench.settle();
    assert_eq!(said(&bench), before);
    assert!(bench.speakers[NODE1].stale);
}

#[test]
fn an_empty_configuration_is_a_valid_one_that_was_loaded_me_6() {
    let mut bench = web();
    assert!(bench.speakers[NODE1].loaded);
    bench.api.delete("L2Advertisement", "metallb-system", "l2");
    bench.api.delete("IPAddressPool", "metallb-system", "pool");
    bench.settle();
    assert!(bench.speakers[NODE1].loaded && !bench.speakers[NODE1].stale);
    assert_eq!(said(&bench), all("Valid"));
    assert_eq!(bench.owner(IP), None);
}

/// Whatever else is wrong with a configuration, each object of it is taken or left as a whole: here a peer goes, another one's
/// edit makes no sense, and a third is new, all at once.
#[test]
fn peers_that_go_and_come_beside_one_that_is_spoilt_do_so_and_that_one_stays_as_it_was_s09() {
    let mut bench = web();
    let peer = |last: u8, more: serde_json::Map<String, Value>| {
        let mut spec =
            json!({ "myASN": 64512, "peerASN": 64513, "peerAddress": format!("192.168.10.{last}") });
        spec.as_object_mut().unwrap().extend(more);
        spec
    };
    let none = serde_json::Map::new;
    bench.api.put("BGPPeer", config("goes", peer(1, none())));
    bench.api.put("BGPPeer", config("spoilt", peer(2, none())));
    bench.settle();
    let sessions = |bench: &Bench| {
        let sessions = bench.speakers[NODE1].sessions.clone();
        sessions.into_iter().map(|(name, plan)| (name.to_string(), plan)).collect::<Vec<_>>()
    };
    let before = sessions(&bench);
    assert_eq!(before.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["goes", "spoilt"]);

    let too_short = json!({ "spec": { "holdTime": "1s", "peerAddress": "192.168.10.9" } });
    bench.api.delete("BGPPeer", "metallb-system", "goes");
    bench.api.patch("BGPPeer", "metallb-system", "spoilt", &too_short);
    bench.api.put("BGPPeer", config("comes", peer(3, none())));
    bench.settle();
    let after = sessions(&bench);
    assert_eq!(after.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["comes", "spoilt"]);
    assert_eq!(after[1], before[1], "as it was");
    assert_ne!(said(&bench), all("Valid"));
}

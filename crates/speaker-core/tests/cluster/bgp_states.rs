// SPDX-License-Identifier: Apache-2.0
//! ConfigurationState in the situations of MetalLB's own tests that are about peers and their Secrets.

use serde_json::{Value, json};

use crate::bench::{Bench, NODE1, config};
use crate::bgp::{edit, label, peer};
use crate::states::{all, said};

const NAMESPACE: &str = "metallb-system";

/// Three speakers of a type of BGP, with nothing of it configured.
fn speakers(bgp_type: &'static str) -> Bench {
    let mut bench = Bench::new();
    bench.settings = match bgp_type {
        "frr" => |settings| settings.bgp_type = "frr".to_owned(),
        _ => |_| {},
    };
    bench.start_all();
    bench.settle();
    assert_eq!(said(&bench), all("Valid"));
    bench
}

fn secret(kind: &str) -> Value {
    json!({
        "metadata": { "namespace": NAMESPACE, "name": "bgp-password" },
        "type": kind,
        "data": { "password": "b25l" },
    })
}

fn by_secret(more: &Value) -> Value {
    let mut spec = peer(json!({ "passwordSecret": { "name": "bgp-password" } }));
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// What all say but node 1.
fn but_node1(bench: &Bench) -> (String, Vec<String>) {
    let mut said = said(bench);
    (said.remove(1), said)
}

fn valid() -> Vec<String> {
    vec!["Valid".to_owned(); 2]
}

const WRONG_TYPE: &str = "configuration error: parsing peer peer1 secret type mismatch on \"metallb-system\"/\"bgp-password\", type \
                          \"kubernetes.io/basic-auth\" is expected \nfailed to parse peer peer1 password secret";

#[test]
fn a_secret_of_a_wrong_type_is_named_by_the_speaker_that_needs_it_alone_c02() {
    for bgp_type in ["native", "frr"] {
        let mut bench = speakers(bgp_type);
        label(&mut bench, NODE1, &json!({ "rack": "one" }));
        bench.api.put("Secret", secret("Opaque"));
        let here = json!({ "nodeSelectors": [{ "matchLabels": { "rack": "one" } }] });
        bench.api.put("BGPPeer", config("peer1", by_secret(&here)));
        bench.settle();
        assert_eq!(but_node1(&bench), (WRONG_TYPE.to_owned(), valid()), "{bgp_type}");
        assert!(bench.speakers[NODE1].sessions.is_empty(), "{bgp_type}");
        bench.api.delete("Secret", NAMESPACE, "bgp-password");
        bench.settle();
        bench.api.put("Secret", secret("kubernetes.io/basic-auth"));
        bench.settle();
        assert_eq!(said(&bench), all("Valid"), "{bgp_type}");
        assert!(bench.speakers[NODE1].sessions["peer1"].password.is_some(), "{bgp_type}");
    }
}

#[test]
fn a_profile_that_does_not_exist_is_named_by_every_speaker_c04() {
    let mut bench = speakers("frr");
    bench.api.put("BFDProfile", config("fast", json!({})));
    bench.api.put("BGPPeer", config("peer1", peer(json!({}))));
    bench.settle();
    assert_eq!(said(&bench), all("Valid"));
    edit(&mut bench, "BGPPeer", "peer1", &json!({ "bfdProfile": "slow" }));
    assert_eq!(
        said(&bench),
        all("configuration error: peer peer1 referencing non existing bfd profile slow")
    );
    edit(&mut bench, "BGPPeer", "peer1", &json!({ "bfdProfile": null }));
    assert_eq!(said(&bench), all("Valid"));
}

#[test]
fn of_two_broken_peers_one_is_shown_after_the_other_c06() {
    let missing = "configuration error: parsing peer peer2 secret ref not found for peer config \"metallb-system\"/\"peer2\"\n\
                   failed to parse peer peer2 password secret";
    for (bgp_type, first) in [
        ("frr", "configuration error: peer peer1 referencing non existing bfd profile slow"),
        ("native", "configuration error: peer 192.168.10.1 has bfd-profile set on native bgp mode"),
    ] {
        let mut bench = speakers(bgp_type);
        bench.api.put("BGPPeer", config("peer1", peer(json!({ "bfdProfile": "slow" }))));
        bench.api.put("BGPPeer", config("peer2", by_secret(&json!({ "peerAddress": "192.168.10.2" }))));
        bench.settle();
        assert_eq!(said(&bench), all(first), "{bgp_type}");
        bench.api.delete("BGPPeer", NAMESPACE, "peer1");
        bench.settle();
        assert_eq!(said(&bench), all(missing), "{bgp_type}");
        bench.api.delete("BGPPeer", NAMESPACE, "peer2");
        bench.settle();
        assert_eq!(said(&bench), all("Valid"), "{bgp_type}");
    }
}

#[test]
fn a_peer_with_its_secret_is_valid_everywhere_c07() {
    for bgp_type in ["native", "frr"] {
        let mut bench = speakers(bgp_type);
        bench.api.put("Secret", secret("kubernetes.io/basic-auth"));
        bench.api.put("BGPPeer", config("peer1", by_secret(&json!({}))));
        bench.settle();
        assert_eq!(said(&bench), all("Valid"), "{bgp_type}");
        assert!(bench.speakers.values().all(|speaker| speaker.sessions["peer1"].password.is_some()));
    }
}

#[test]
fn a_node_that_two_peers_of_one_address_come_to_says_so_until_it_is_one_again_c08() {
    let frr = "configuration error: peer 192.168.10.1 already exists, FRR mode doesn't support duplicate BGPPeers selecting the \
               same node";
    let native = "configuration error: BGPPeer peer2: the session with 192.168.10.1 is not opened: on one node it excludes that \
                  of BGPPeer peer1, which was there before";
    for (bgp_type, text) in [("frr", frr), ("native", native)] {
        let mut bench = speakers(bgp_type);
        for (name, rack) in [("peer1", "one"), ("peer2", "two")] {
            let there = json!({ "nodeSelectors": [{ "matchLabels": { rack: "" } }] });
            bench.api.put("BGPPeer", config(name, peer(there)));
        }
        label(&mut bench, NODE1, &json!({ "one": "" }));
        assert_eq!(said(&bench), all("Valid"), "{bgp_type}");
        let sessions = |bench: &Bench| {
            bench.speakers[NODE1].sessions.keys().map(ToString::to_string).collect::<Vec<_>>()
        };
        label(&mut bench, NODE1, &json!({ "two": "" }));
        assert_eq!(but_node1(&bench), (text.to_owned(), valid()), "{bgp_type}");
        assert_eq!(sessions(&bench), ["peer1"], "{bgp_type}");
        label(&mut bench, NODE1, &json!({ "one": null }));
        assert_eq!(said(&bench), all("Valid"), "{bgp_type}");
        assert_eq!(sessions(&bench), ["peer2"], "{bgp_type}");
    }
}

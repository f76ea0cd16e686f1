// SPDX-License-Identifier: Apache-2.0
//! The catalogue of admission: what the webhooks answer, one case per row, exact texts.
//!
//! `W` are the webhooks' own rules, `H` the refusals that users meet first, `VA` what users reported.

use ferrolb_config::admission::{List, Operation, Target};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, NAMESPACE};

use Target::{
    BFDProfile as Profile, BGPAdvertisement as Bgp, BGPPeer as Peer, Community, IPAddressPool as Pool,
    L2Advertisement as L2,
};

fn pool(addresses: &[&str]) -> Value {
    json!({ "addresses": addresses })
}

fn peer(more: &Value) -> Value {
    let mut spec = json!({ "myASN": 64512, "peerASN": 64513, "peerAddress": "10.0.0.1" });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    spec
}

fn aliases(pairs: &[(&str, &str)]) -> Value {
    let list: Vec<Value> =
        pairs.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    json!({ "communities": list })
}

fn on(node: &str) -> Value {
    json!([{ "matchLabels": { "name": node } }])
}

/// What is stored, what is written then, and the refusal, if there is one.
struct Case<'a> {
    id: &'a str,
    bgp: &'a str,
    stored: Vec<(Target, &'a str, Value)>,
    written: (Target, &'a str, Value),
    refused: Option<&'a str>,
}

fn rows(table: Vec<Case<'_>>) {
    for Case { id, bgp, stored, written: (target, name, spec), refused } in table {
        let mut server = ApiServer::new(bgp);
        for (target, name, spec) in stored {
            server.admits(target, name, &spec);
        }
        let answer = server.write(target, name, &spec);
        let said = (!answer.allowed).then_some(answer.message.as_str());
        assert_eq!(said, refused, "{id}: {target} {name} {spec}");
        assert_eq!(answer.code, if refused.is_some() { 403 } else { 200 }, "{id}");
    }
}

#[test]
fn refusals() {
    let first = || vec![(Pool, "pool1", pool(&["1.1.1.1-1.1.1.100"]))];
    let overlap = r#"CIDR "1.1.1.15/32" in pool "pool2" overlaps with already defined CIDR "1.1.1.8/29""#;
    let marker = |value: &str| {
        format!(
            r#"parsing community "c": invalid community value: invalid marker for large community, expected community to be of format large:<uint32>:<uint32>:<uint32> but got "{value}" instead"#
        )
    };
    let section = r#"parsing community "c": invalid community value: invalid section "99999999" of community "99999999:1", err: "strconv.ParseUint: parsing \"99999999\": value out of range""#;
    let exists =
        "peer 10.0.0.1 already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node";
    let marker = marker("lar:123:9999:123");
    rows(vec![
        Case {
            id: "H01",
            bgp: "native",
            stored: first(),
            written: (Pool, "pool2", pool(&["1.1.1.15-1.1.1.20"])),
            refused: Some(overlap),
        },
        Case {
            id: "W2, W6, H01: an update",
            bgp: "native",
            stored: vec![(Pool, "pool1", pool(&["1.1.1.0/24"])), (Pool, "pool2", pool(&["1.1.2.0/24"]))],
            written: (Pool, "pool2", pool(&["1.1.1.15-1.1.1.15"])),
            refused: Some(
                r#"CIDR "1.1.1.15/32" in pool "pool2" overlaps with already defined CIDR "1.1.1.0/24""#,
            ),
        },
        Case {
            id: "W2: its own former addresses are not in its way",
            bgp: "native",
            stored: first(),
            written: (Pool, "pool1", pool(&["1.1.1.1-1.1.1.50"])),
            refused: None,
        },
        Case {
            id: "W6: a block against a range",
            bgp: "native",
            stored: vec![(Pool, "pool1", pool(&["1.1.1.0/24"]))],
            written: (Pool, "pool2", pool(&["1.1.1.15-1.1.1.15"])),
            refused: Some(
                r#"CIDR "1.1.1.15/32" in pool "pool2" overlaps with already defined CIDR "1.1.1.0/24""#,
            ),
        },
        Case {
            id: "H02",
            bgp: "native",
            stored: vec![(Pool, "pool1", pool(&["1.1.1.0/28"]))],
            written: (Bgp, "adv1", json!({ "aggregationLength": 26, "ipAddressPools": ["pool1"] })),
            refused: Some(
                "invalid aggregation length 26: prefix 28 in this pool is more specific than the aggregation length for addresses 1.1.1.0/28",
            ),
        },
        Case {
            id: "H03, VA-6",
            bgp: "native",
            stored: vec![],
            written: (
                Bgp,
                "adv1",
                json!({ "aggregationLength": 24, "serviceSelectors": [{ "matchLabels": { "a": "b" } }] }),
            ),
            refused: Some(
                "serviceSelectors and aggregationLength are mutually exclusive, both cannot be set in adv1",
            ),
        },
        Case {
            id: "H04",
            bgp: "native",
            stored: vec![],
            written: (Peer, "peer1", peer(&json!({ "peerAddress": "1.1.1.1.1" }))),
            refused: Some(r#"parsing peer peer1 invalid BGPPeer address "1.1.1.1.1""#),
        },
        Case {
            id: "H05, W8: overlapping",
            bgp: "frr",
            stored: vec![(Peer, "a", peer(&json!({ "nodeSelectors": on("n1") })))],
            written: (
                Peer,
                "b",
                peer(
                    &json!({ "nodeSelectors": [{ "matchExpressions": [{ "key": "name", "operator": "In", "values": ["n1", "n2"] }] }] }),
                ),
            ),
            refused: Some(exists),
        },
        Case {
            id: "H05, W8, BG-19: disjoint",
            bgp: "frr-k8s",
            stored: vec![(Peer, "a", peer(&json!({ "nodeSelectors": on("n1") })))],
            written: (Peer, "b", peer(&json!({ "nodeSelectors": on("n2") }))),
            refused: None,
        },
        Case {
            id: "H06: created",
            bgp: "native",
            stored: vec![],
            written: (Community, "c", aliases(&[("c", "99999999:1")])),
            refused: Some(section),
        },
        Case {
            id: "H06: updated",
            bgp: "native",
            stored: vec![(Community, "c", aliases(&[("c", "1111:2222")]))],
            written: (Community, "c", aliases(&[("c", "99999999:1")])),
            refused: Some(section),
        },
        Case {
            id: "H06, W7: created",
            bgp: "frr",
            stored: vec![],
            written: (Community, "c", aliases(&[("c", "lar:123:9999:123")])),
            refused: Some(&marker),
        },
        Case {
            id: "H06, W7: updated",
            bgp: "frr",
            stored: vec![(Community, "c", aliases(&[("c", "1111:2222")]))],
            written: (Community, "c", aliases(&[("c", "lar:123:9999:123")])),
            refused: Some(&marker),
        },
        Case {
            id: "H07: in one object",
            bgp: "native",
            stored: vec![],
            written: (Community, "c", aliases(&[("c", "1:1"), ("c", "1:2")])),
            refused: Some(r#"duplicate definition of community "c""#),
        },
        Case {
            id: "H07: in two objects, large",
            bgp: "frr",
            stored: vec![(Community, "a", aliases(&[("c", "large:1:1:1")]))],
            written: (Community, "b", aliases(&[("c", "large:1:1:2")])),
            refused: Some(r#"duplicate definition of community "c""#),
        },
        Case {
            id: "W3: an unknown profile",
            bgp: "frr",
            stored: vec![],
            written: (Peer, "q", peer(&json!({ "bfdProfile": "later" }))),
            refused: None,
        },
        Case {
            id: "W3: no Secret yet",
            bgp: "native",
            stored: vec![],
            written: (Peer, "q", peer(&json!({ "passwordSecret": { "name": "later" } }))),
            refused: None,
        },
        Case {
            id: "W4: a name",
            bgp: "native",
            stored: vec![],
            written: (Bgp, "a", json!({ "communities": ["alias"] })),
            refused: None,
        },
        Case {
            id: "W4: no number",
            bgp: "native",
            stored: vec![],
            written: (Bgp, "a", json!({ "communities": ["11111:11aaaa"] })),
            refused: Some(
                "invalid community value: invalid section \"11aaaa\" of community \"11111:11aaaa\", err: \"strconv.ParseUint: parsing \\\"11aaaa\\\": invalid syntax\"\ninvalid community \"11111:11aaaa\" in BGP advertisement",
            ),
        },
        Case {
            id: "W4: another marker",
            bgp: "frr",
            stored: vec![],
            written: (Bgp, "a", json!({ "communities": ["larg:1:2:3"] })),
            refused: Some(
                "invalid community value: invalid marker for large community, expected community to be of format large:<uint32>:<uint32>:<uint32> but got \"larg:1:2:3\" instead\ninvalid community \"larg:1:2:3\" in BGP advertisement",
            ),
        },
        Case {
            id: "W12: one length differs",
            bgp: "frr",
            stored: vec![
                (Pool, "p", pool(&["10.0.0.0/16", "fd00::/64"])),
                (Bgp, "a", json!({ "localPref": 100 })),
            ],
            written: (Bgp, "b", json!({ "localPref": 200, "aggregationLength": 24 })),
            refused: Some(
                "invalid local preference 200: local preferernce 100 was already set for the same type of BGP update. Check existing BGP advertisements with common pools and aggregation lengths",
            ),
        },
        Case {
            id: "W12: both lengths differ",
            bgp: "frr",
            stored: vec![
                (Pool, "p", pool(&["10.0.0.0/16", "fd00::/64"])),
                (Bgp, "a", json!({ "localPref": 100 })),
            ],
            written: (
                Bgp,
                "b",
                json!({ "localPref": 200, "aggregationLength": 24, "aggregationLengthV6": 80 }),
            ),
            refused: None,
        },
        Case {
            id: "VA-3: a range reversed",
            bgp: "native",
            stored: vec![],
            written: (Pool, "p", pool(&["192.0.2.9-192.0.2.1"])),
            refused: Some(
                r#"parsing address pool p: invalid CIDR "192.0.2.9-192.0.2.1" in pool "p": invalid IP range "192.0.2.9-192.0.2.1": start IP "192.0.2.9" is after the end IP "192.0.2.1""#,
            ),
        },
        Case {
            id: "VA-3: a range of two families",
            bgp: "native",
            stored: vec![],
            written: (Pool, "p", pool(&["192.0.2.1-fd00::1"])),
            refused: Some(
                r#"parsing address pool p: invalid CIDR "192.0.2.1-fd00::1" in pool "p": invalid IP range "192.0.2.1-fd00::1": start IP "192.0.2.1" and end IP "fd00::1" have different families"#,
            ),
        },
        Case {
            id: "VA-3: an overlap names the pool",
            bgp: "native",
            stored: vec![(Pool, "p", pool(&["192.0.2.0/25"]))],
            written: (Pool, "q", pool(&["192.0.2.100/32"])),
            refused: Some(
                r#"CIDR "192.0.2.100/32" in pool "q" overlaps with already defined CIDR "192.0.2.0/25""#,
            ),
        },
        Case {
            id: "VA-6: a password twice",
            bgp: "native",
            stored: vec![],
            written: (Peer, "q", peer(&json!({ "password": "x", "passwordSecret": { "name": "s" } }))),
            // The reference is left out of admission, since the Secret may come later.
            refused: None,
        },
        Case {
            id: "VA-6: an AS twice",
            bgp: "frr",
            stored: vec![],
            written: (Peer, "q", peer(&json!({ "dynamicASN": "external" }))),
            refused: Some("parsing peer q both peer ASN and dynamicASN specified"),
        },
        Case {
            id: "VA-6: an address and an interface",
            bgp: "frr",
            stored: vec![],
            written: (Peer, "q", peer(&json!({ "interface": "ens18" }))),
            refused: Some("parsing peer q peer has both Address and Interface specified"),
        },
        Case {
            id: "VA-6: a selector twice",
            bgp: "native",
            stored: vec![],
            written: (
                L2,
                "l",
                json!({ "nodeSelectors": [{ "matchLabels": { "a": "b" } }, { "matchLabels": { "a": "b" } }] }),
            ),
            refused: Some("duplicate definition of nodeSelectors a=b"),
        },
        Case {
            id: "VA-7: the largest numbers",
            bgp: "frr",
            stored: vec![],
            written: (Peer, "q", peer(&json!({ "myASN": 4_294_967_295_u32, "localASN": 4_200_000_000_u32 }))),
            refused: None,
        },
    ]);
}

#[test]
fn w1_h09_va_5_every_kind_belongs_into_the_namespace_of_the_daemons() {
    for (target, spec) in [
        (Pool, pool(&["10.0.0.0/24"])),
        (L2, json!({})),
        (Bgp, json!({})),
        (Peer, peer(&json!({}))),
        (Community, aliases(&[])),
        (Profile, json!({})),
    ] {
        let mut server = ApiServer::new("frr");
        let mut object = server.object(target, "x", &spec);
        object["metadata"]["namespace"] = json!("default");
        let answer = server.ask(target, &object);
        let said = (answer.allowed, answer.code, answer.message);
        assert_eq!(
            said,
            (false, 403, format!("resource must be created in {NAMESPACE} namespace")),
            "{target}"
        );
    }
}

#[test]
fn w5_h08_a_profile_goes_once_no_peer_names_it() {
    let mut server = ApiServer::new("frr");
    server.admits(Profile, "fast", &json!({}));
    server.admits(Peer, "q", &peer(&json!({ "bfdProfile": "fast" })));
    let answer = server.delete(Profile, "fast");
    assert_eq!(
        (answer.allowed, answer.code, answer.message.as_str()),
        (false, 403, "failed to delete BFDProfile fast, used by BGPPeer q")
    );
    server.delete(Peer, "q");
    assert!(server.delete(Profile, "fast").allowed);
}

#[test]
fn w9_a_flag_without_effect_is_admitted_with_a_warning() {
    let warnings = ApiServer::new("frr").admits(Peer, "q", &peer(&json!({ "disableMP": true })));
    assert_eq!(warnings, ["disable mp is deprecated and has no effect since it's the default behavior now"]);
    // What MetalLB lets pass beside the flag is judged here (S7).
    let said =
        ApiServer::new("frr").denies(Peer, "q", &peer(&json!({ "disableMP": true, "peerAddress": "x" })));
    assert_eq!(said, r#"parsing peer q invalid BGPPeer address "x""#);
}

#[test]
fn w10_two_peers_that_a_label_brought_together_refuse_only_each_other() {
    let mut server = ApiServer::new("frr");
    server.admits(Peer, "a", &peer(&json!({ "nodeSelectors": on("n1") })));
    server.admits(Peer, "b", &peer(&json!({ "nodeSelectors": [{ "matchLabels": { "rack": "2" } }] })));
    server.label(List::Nodes, "n1", &json!({ "name": "n1", "rack": "2" }));
    let exists =
        "peer 10.0.0.1 already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node";
    let warnings =
        server.admits(Peer, "c", &peer(&json!({ "peerAddress": "10.0.0.9", "nodeSelectors": on("n3") })));
    assert!(warnings[0].ends_with(exists), "MetalLB refuses it with that text: {warnings:?}");
    let again = peer(&json!({ "nodeSelectors": on("n1"), "holdTime": "30s" }));
    assert_eq!(server.denies(Peer, "a", &again), exists, "one of the two");
    server.label(List::Nodes, "n1", &json!({ "name": "n1" }));
    assert_eq!(server.admits(Peer, "a", &again), [] as [&str; 0], "the label is gone");
}

#[test]
fn w11_va_14_whatever_others_name_may_be_deleted() {
    let mut server = ApiServer::new("frr");
    server.admits(Pool, "p", &pool(&["10.0.0.0/24"]));
    server.admits(Community, "c", &aliases(&[("x", "1:1")]));
    server.admits(Peer, "q", &peer(&json!({})));
    server.admits(Bgp, "a", &json!({ "ipAddressPools": ["p"], "communities": ["x"], "peers": ["q"] }));
    server.admits(L2, "l", &json!({ "ipAddressPools": ["p"] }));
    for (target, name) in [(Pool, "p"), (Community, "c"), (Peer, "q"), (Bgp, "a"), (L2, "l")] {
        let operations = target.operations();
        assert!(!operations.contains(&Operation::Delete), "nobody is asked about {target}");
        assert!(server.delete(target, name).allowed, "{target}");
    }
}

/// Five objects that need each other arrive in any order: each is admitted, and none is said to be missing for good.
#[test]
fn va_1_the_order_of_a_first_apply_does_not_matter() {
    let objects = [
        (Pool, "p", pool(&["10.0.0.0/24"])),
        (Bgp, "a", json!({ "ipAddressPools": ["p"], "communities": ["x"], "peers": ["q"] })),
        (Community, "c", aliases(&[("x", "1:1")])),
        (Peer, "q", peer(&json!({ "bfdProfile": "f" }))),
        (Profile, "f", json!({})),
    ];
    let mut orders = vec![Vec::new()];
    for _ in 0..objects.len() {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                let rest: Vec<usize> = (0..objects.len()).filter(|i| !order.contains(i)).collect();
                rest.into_iter().map(move |i| [order.clone(), vec![i]].concat())
            })
            .collect();
    }
    assert_eq!(orders.len(), 120);
    for order in orders {
        let mut server = ApiServer::new("frr");
        for i in &order {
            let (target, name, spec) = &objects[*i];
            server.admits(*target, name, spec);
        }
        for (target, name, spec) in &objects {
            let mut warnings = server.admits(*target, name, spec);
            warnings.retain(|warning| !warning.contains("spec.bfdProfile is not served"));
            assert_eq!(warnings, [] as [&str; 0], "{order:?}: all is there at last");
        }
    }
}

/// A change of a Community that would make it unreadable is refused with a text that names it.
#[test]
fn va_2_a_refused_community_is_named() {
    let mut server = ApiServer::new("native");
    server.admits(Community, "c", &aliases(&[("a", "64512:1")]));
    let said = server.denies(Community, "c", &aliases(&[("a", "64512:70000")]));
    assert_eq!(
        said,
        r#"parsing community "a": invalid community value: invalid section "70000" of community "64512:70000", err: "strconv.ParseUint: parsing \"70000\": value out of range""#
    );
}

/// Whatever is said of an object is said of it alone: a read that fails refuses, and changes nothing that is stored.
#[test]
fn a_list_that_cannot_be_read_refuses_with_its_cause() {
    let mut server = ApiServer::new("native");
    server.fail(List::BGPPeers, "the server is on fire");
    let object = server.object(Peer, "q", &peer(&json!({})));
    let answer = server.ask(Peer, &object);
    assert_eq!(
        (answer.allowed, answer.message.as_str()),
        (false, "failed to get existing BGPPeer objects: the server is on fire")
    );
    assert!(server.stored(Peer, "q").is_none());
}

#[test]
fn s26_a_namespace_that_is_not_looked_at_is_warned_about() {
    let mut server = ApiServer::new("native");
    let spec = peer(&json!({ "passwordSecret": { "name": "s", "namespace": "elsewhere" } }));
    let warnings = server.admits(Peer, "q", &spec);
    assert!(
        warnings.iter().any(|text| text.starts_with("spec.passwordSecret.namespace: has no effect")),
        "{warnings:?}"
    );
}

#[test]
fn s17_what_only_the_speakers_would_refuse_is_a_warning() {
    let mut server = ApiServer::new("native");
    let warnings = server.admits(Profile, "f", &json!({}));
    assert!(
        warnings.iter().any(|text| text == "the speakers will report: bfd profiles section set"),
        "{warnings:?}"
    );
}

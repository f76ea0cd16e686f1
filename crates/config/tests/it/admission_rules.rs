// SPDX-License-Identifier: Apache-2.0
//! Who is admitted beside whom: the modes of BGP, the webhooks' own rules, stored faults.

use ferrolb_config::admission::{List, Target};
use serde_json::{Value, json};
use similar_asserts::assert_eq;

use crate::api_server::{ApiServer, NAMESPACE};

use Target::{
    BFDProfile as Profile, BGPAdvertisement as Bgp, BGPPeer as Peer, Community, IPAddressPool as Pool,
    L2Advertisement as L2,
};

const DISABLE_MP: &str = "disable mp is deprecated and has no effect since it's the default behavior now";

/// A good peer, with these fields set otherwise.
fn peer(more: &Value) -> Value {
    let mut spec = json!({ "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1" });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    spec
}

fn pool(addresses: &[&str]) -> Value {
    json!({ "addresses": addresses })
}

fn on_node(node: &str) -> Value {
    json!([{ "matchLabels": { "name": node } }])
}

/// What is said of an object beside those that are stored: the refusal, or none.
fn said(server: &mut ApiServer, target: Target, name: &str, spec: &Value) -> Option<String> {
    let answer = server.write(target, name, spec);
    (!answer.allowed).then_some(answer.message)
}

#[test]
fn native_bgp_refuses_what_it_does_not_do() {
    for (more, refusal) in [
        (json!({ "keepaliveTime": "10s" }), "keepalive-time"),
        (json!({ "vrf": "red" }), "vrf"),
        (json!({ "connectTime": "10s" }), "connect time"),
        (json!({ "enableGracefulRestart": true }), "EnableGracefulRestart flag"),
        (json!({ "dualStackAddressFamily": true }), "dualstackaddressfamily flag"),
        (json!({ "dynamicASN": "external", "peerASN": null }), "dynamicASN"),
        (json!({ "localASN": 64999 }), "localASN"),
        // The first in this order is told.
        (json!({ "localASN": 64999, "vrf": "red", "connectTime": "10s" }), "vrf"),
    ] {
        let mut native = ApiServer::new("native");
        let text = format!("peer 192.168.10.1 has {refusal} set on native bgp mode");
        assert_eq!(native.denies(Peer, "q", &peer(&more)), text);
        for other in ["frr", "frr-k8s", "something-else"] {
            assert_eq!(said(&mut ApiServer::new(other), Peer, "q", &peer(&more)), None, "{other} {more}");
        }
    }
    let mut native = ApiServer::new("");
    assert_eq!(
        native.denies(Peer, "q", &peer(&json!({ "interface": "ens18", "peerAddress": null }))),
        "peer  has interface set on native bgp mode"
    );
    // An update with the flag is judged, other than a creation.
    native.admits(Peer, "q", &peer(&json!({ "keepaliveTime": "0s" })));
    assert_eq!(
        native.denies(Peer, "q", &peer(&json!({ "disableMP": true }))),
        "peer 192.168.10.1 has disable MP flag set on native bgp mode"
    );
}

#[test]
fn ipv6_and_large_communities_are_admitted_whatever_the_type_of_bgp_s77() {
    for bgp_type in ["native", "frr"] {
        let mut server = ApiServer::new(bgp_type);
        server.admits(Pool, "six", &pool(&["fd00:10::200/126"]));
        server.admits(Bgp, "all", &json!({ "communities": ["large:1:2:3"] }));
        server.admits(Bgp, "named", &json!({ "ipAddressPools": ["six"] }));
        server.admits(Community, "c", &json!({ "communities": [{ "name": "big", "value": "large:1:2:3" }] }));
    }
}

#[test]
fn frr_refuses_peers_that_contradict_each_other_on_a_node() {
    let router_id = |a: &str, b: &str| {
        format!(
            "peer {a} has RouterID different from {b}, in FRR mode peers selecting the same node must all have the same RouterID"
        )
    };
    let twice = |id: &str| {
        format!(
            "peer {id} already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node"
        )
    };
    let other = json!({ "peerAddress": "192.168.10.2" });
    let with = |base: &Value, more: Value| {
        let mut spec = base.clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let unnumbered = |interface: &str| json!({ "peerAddress": null, "interface": interface });
    let two_nodes = json!([{ "matchLabels": { "name": "n1" } }, { "matchLabels": { "name": "n2" } }]);
    for (first, second, refusal) in [
        (json!({ "routerID": "10.0.0.1" }), with(&other, json!({ "routerID": "10.0.0.1" })), None),
        (
            json!({ "routerID": "10.0.0.1" }),
            with(&other, json!({ "routerID": "10.0.0.2" })),
            Some(router_id("10.0.0.2", "10.0.0.1")),
        ),
        (json!({ "routerID": "10.0.0.1" }), other.clone(), Some(router_id("", "10.0.0.1"))),
        (json!({}), with(&other, json!({ "routerID": "10.0.0.1" })), Some(router_id("10.0.0.1", ""))),
        (json!({}), other.clone(), None),
        (
            json!({}),
            with(&other, json!({ "myASN": 64514 })),
            Some(
                "peer 192.168.10.2 has myAsn different from 192.168.10.1, in FRR mode peers selecting the same node must have the same myAsn within the same VRF"
                    .to_owned(),
            ),
        ),
        (json!({}), with(&other, json!({ "myASN": 64514, "vrf": "red" })), None),
        (json!({}), json!({}), Some(twice("192.168.10.1"))),
        (json!({}), json!({ "vrf": "red" }), None),
        (json!({ "vrf": "red" }), json!({ "vrf": "red" }), Some(twice("192.168.10.1-red"))),
        (unnumbered("ens18"), unnumbered("ens18"), Some(twice("ens18"))),
        (unnumbered("ens18"), unnumbered("ens19"), None),
        (json!({ "nodeSelectors": on_node("n1") }), json!({ "nodeSelectors": on_node("n2") }), None),
        (json!({ "nodeSelectors": on_node("nowhere") }), json!({}), None),
        (json!({ "nodeSelectors": on_node("n1") }), json!({}), Some(twice("192.168.10.1"))),
        (
            json!({ "nodeSelectors": two_nodes }),
            json!({ "nodeSelectors": on_node("n2") }),
            Some(twice("192.168.10.1")),
        ),
    ] {
        for bgp_type in ["frr", "frr-k8s"] {
            let mut server = ApiServer::new(bgp_type);
            server.admits(Peer, "q", &peer(&first));
            assert_eq!(said(&mut server, Peer, "r", &peer(&second)), refusal, "{first} {second}");
        }
        let mut other = ApiServer::new("something-else");
        other.admits(Peer, "q", &peer(&first));
        assert_eq!(said(&mut other, Peer, "r", &peer(&second)), None);
    }
}

#[test]
fn without_known_nodes_every_two_peers_share_one() {
    let mut server = ApiServer::new("frr");
    for node in ["n1", "n2", "n3"] {
        server.forget(List::Nodes, node);
    }
    server.admits(Peer, "q", &peer(&json!({ "nodeSelectors": on_node("n1") })));
    assert_eq!(
        server.denies(Peer, "r", &peer(&json!({ "nodeSelectors": on_node("n2") }))),
        "peer 192.168.10.1 already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node"
    );
}

#[test]
fn the_third_peer_is_judged_against_both_others() {
    let mut server = ApiServer::new("frr");
    server.admits(Peer, "b", &peer(&json!({ "nodeSelectors": on_node("n1") })));
    server.admits(Peer, "c", &peer(&json!({ "nodeSelectors": on_node("n2") })));
    for name in ["a", "d"] {
        let overlapping = json!({ "nodeSelectors": [{ "matchLabels": { "name": "n3" } }, { "matchLabels": { "name": "n1" } }] });
        assert!(server.denies(Peer, name, &peer(&overlapping)).contains("already exists"));
    }
}

#[test]
fn objects_outside_the_namespace_are_not_created() {
    for (target, spec) in [
        (Pool, pool(&["nonsense"])),
        (L2, json!({})),
        (Bgp, json!({})),
        (Peer, peer(&json!({}))),
        (Community, json!({})),
        (Profile, json!({})),
    ] {
        let mut server = ApiServer::new("native");
        // Nothing needs to be read for that.
        List::ALL.into_iter().for_each(|list| server.fail(list, "down"));
        let mut object = server.object(target, "o", &spec);
        object["metadata"]["namespace"] = json!("default");
        let answer = server.write_object(target, object);
        assert_eq!(
            (answer.code, answer.message.as_str()),
            (403, "resource must be created in metallb-system namespace")
        );
        assert_eq!(answer.warnings, [""; 0]);
    }
}

#[test]
fn an_update_replaces_its_namesake_and_a_creation_is_added() {
    let mut server = ApiServer::new("native");
    server.admits(Pool, "a", &pool(&["192.168.10.200/30"]));
    server.admits(Pool, "b", &pool(&["192.168.10.208/29"]));
    server.admits(Pool, "a", &pool(&["192.168.10.200/29"]));
    for (name, addresses, refusal) in [
        (
            "c",
            "192.168.10.204-192.168.10.220",
            r#"CIDR "192.168.10.204/30" in pool "c" overlaps with already defined CIDR "192.168.10.200/29""#,
        ),
        // In order of names, whoever came first.
        (
            "a",
            "192.168.10.200-192.168.10.209",
            r#"CIDR "192.168.10.208/29" in pool "b" overlaps with already defined CIDR "192.168.10.208/31""#,
        ),
        (
            "0",
            "192.168.10.208/29",
            r#"CIDR "192.168.10.208/29" in pool "b" overlaps with already defined CIDR "192.168.10.208/29""#,
        ),
    ] {
        assert_eq!(server.denies(Pool, name, &pool(&[addresses])), refusal);
    }
}

#[test]
fn references_that_may_be_filled_later_are_admitted() {
    let mut server = ApiServer::new("frr");
    server.admits(Peer, "q", &peer(&json!({ "bfdProfile": "none" })));
    server.admits(
        Peer,
        "r",
        &peer(&json!({ "peerAddress": "192.168.10.2", "passwordSecret": { "name": "none" } })),
    );
    server.admits(Bgp, "a", &json!({ "communities": ["alias", "12345", ""] }));
    for (community, error) in [
        (
            "11111:11aaaa",
            "invalid section \"11aaaa\" of community \"11111:11aaaa\", err: \"strconv.ParseUint: parsing \\\"11aaaa\\\": invalid syntax\"",
        ),
        (
            "larg:1:2:3",
            "invalid marker for large community, expected community to be of format large:<uint32>:<uint32>:<uint32> but got \"larg:1:2:3\" instead",
        ),
    ] {
        assert_eq!(
            server.denies(Bgp, "b", &json!({ "communities": ["alias", community] })),
            format!("invalid community value: {error}\ninvalid community {community:?} in BGP advertisement")
        );
    }
}

#[test]
fn only_a_profile_in_use_cannot_be_deleted() {
    let mut server = ApiServer::new("frr");
    server.admits(Pool, "p", &pool(&["192.168.10.200/30"]));
    server.admits(Community, "c", &json!({ "communities": [{ "name": "x", "value": "1:2" }] }));
    server.admits(Profile, "f", &json!({}));
    server.admits(Profile, "g", &json!({}));
    server.admits(Bgp, "a", &json!({ "ipAddressPools": ["p"], "communities": ["x"], "peers": ["r", "q"] }));
    server.admits(L2, "l", &json!({ "ipAddressPools": ["p"] }));
    server.admits(Peer, "r", &peer(&json!({ "bfdProfile": "f" })));
    server.admits(Peer, "q", &peer(&json!({ "bfdProfile": "f", "peerAddress": "192.168.10.2" })));

    let refused = server.delete(Profile, "f");
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (403, "failed to delete BFDProfile f, used by BGPPeer q")
    );
    for (target, name) in
        [(Profile, "g"), (Pool, "p"), (Community, "c"), (Peer, "q"), (Peer, "r"), (L2, "l"), (Bgp, "a")]
    {
        assert!(server.delete(target, name).allowed, "{target} {name}");
    }
    assert!(server.delete(Profile, "f").allowed);
}

#[test]
fn communities_are_refused_in_metallbs_words() {
    let mut server = ApiServer::new("frr");
    let community = |value: &str| json!({ "communities": [{ "name": "a", "value": value }] });
    server.admits(Community, "c", &community("1:2"));
    let refusal = "parsing community \"a\": invalid community value: invalid marker for large community, expected community to be of format large:<uint32>:<uint32>:<uint32> but got \"lar:123:9999:123\" instead";
    for name in ["c", "d"] {
        assert_eq!(server.denies(Community, name, &community("lar:123:9999:123")), refusal);
    }
    assert_eq!(server.denies(Community, "d", &community("3:4")), r#"duplicate definition of community "a""#);
}

#[test]
fn s7_a_flag_without_effect_is_warned_about_and_everything_else_judged() {
    for bgp_type in ["native", "frr"] {
        let mut server = ApiServer::new(bgp_type);
        let warnings = server.admits(Peer, "q", &peer(&json!({ "disableMP": true })));
        assert_eq!(warnings[0], DISABLE_MP);

        let bad = server.write(Peer, "r", &peer(&json!({ "disableMP": true, "peerAddress": "x" })));
        assert_eq!(bad.message, r#"parsing peer r invalid BGPPeer address "x""#);
        assert_eq!(bad.warnings, [DISABLE_MP]);

        let mut elsewhere = server.object(Peer, "s", &peer(&json!({ "disableMP": true })));
        elsewhere["metadata"]["namespace"] = json!("default");
        let answer = server.write_object(Peer, elsewhere);
        assert_eq!(answer.message, "resource must be created in metallb-system namespace");
        assert_eq!(answer.warnings, [DISABLE_MP]);
    }
}

#[test]
fn a_stored_contradiction_refuses_only_those_who_take_part_in_it() {
    let mut server = ApiServer::new("frr");
    let on = |node: &str| json!({ "nodeSelectors": [{ "matchLabels": { node: "yes" } }] });
    server.label(List::Nodes, "n1", &json!({ "first": "yes" }));
    server.label(List::Nodes, "n2", &json!({ "second": "yes" }));
    server.admits(Peer, "p", &peer(&on("first")));
    server.admits(Peer, "q", &peer(&on("second")));
    // A label brings the two together.
    server.label(List::Nodes, "n2", &json!({ "first": "yes", "second": "yes" }));

    let conflict = "peer 192.168.10.1 already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node";
    let unrelated = peer(&json!({ "peerAddress": "192.168.10.9" }));
    assert_eq!(
        server.admits(Peer, "r", &unrelated),
        [format!("the stored configuration is at fault, though not because of this object: {conflict}")]
    );
    // Those two are refused as they are, and may be mended.
    for name in ["p", "q"] {
        let former = server.stored(Peer, name).unwrap()["spec"].clone();
        assert_eq!(server.denies(Peer, name, &former), conflict);
    }
    // One that joins them is refused, though the first text of the whole would be about the others.
    assert_eq!(
        server.denies(Peer, "s", &peer(&json!({ "peerAddress": "192.168.10.9" }))),
        "peer 192.168.10.9 already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node"
    );
    assert_eq!(server.denies(Peer, "s", &peer(&json!({ "myASN": 0 }))), "parsing peer s missing local ASN");

    server.label(List::Nodes, "n2", &json!({ "second": "yes" }));
    assert_eq!(server.admits(Peer, "r", &unrelated), [""; 0]);
}

#[test]
fn a_stored_fault_of_another_kind_or_object_refuses_nobody_else() {
    let mut server = ApiServer::new("frr");
    let bad = server.object(Pool, "bad", &pool(&["nonsense"]));
    server.put(Pool, bad);
    for name in ["x", "y"] {
        let overlapping = server.object(Pool, name, &pool(&["192.168.30.0/24"]));
        server.put(Pool, overlapping);
    }
    let fault = "the stored configuration is at fault, though not because of this object: parsing address pool bad: \
                 invalid CIDR \"nonsense\" in pool \"bad\": invalid CIDR \"nonsense\"";
    for (target, name, spec) in [
        (Pool, "good", pool(&["192.168.20.0/24"])),
        (L2, "l", json!({})),
        (Bgp, "b", json!({ "ipAddressPools": ["good"] })),
    ] {
        assert_eq!(server.admits(target, name, &spec)[0], fault);
    }
    // What takes part is refused with its own fault.
    for (target, name, spec, refusal) in [
        (
            Pool,
            "z",
            pool(&["192.168.30.128/25"]),
            r#"CIDR "192.168.30.128/25" in pool "z" overlaps with already defined CIDR "192.168.30.0/24""#,
        ),
        (Pool, "z", pool(&[]), "parsing address pool z: pool has no prefixes defined"),
        (
            Bgp,
            "c",
            json!({ "aggregationLength": 20 }),
            "invalid aggregation length 20: prefix 24 in this pool is more specific than the aggregation length for addresses 192.168.20.0/24",
        ),
        (
            Bgp,
            "c",
            json!({ "localPref": 7 }),
            "invalid local preference 7: local preferernce 0 was already set for the same type of BGP update. Check existing BGP advertisements with common pools and aggregation lengths",
        ),
        (L2, "m", json!({ "ipAddressPools": ["a", "a"] }), r#"duplicate definition of ipAddressPools "a""#),
    ] {
        assert_eq!(server.denies(target, name, &spec), refusal, "{name}");
    }
    // Mending is always possible.
    server.admits(Pool, "bad", &pool(&["192.168.40.0/24"]));
    server.admits(Pool, "x", &pool(&["192.168.50.0/24"]));
    assert_eq!(server.admits(L2, "l", &json!({})), [""; 0]);
}

#[test]
fn a_stored_object_that_cannot_be_read_refuses_nobody_else() {
    let mut server = ApiServer::new("native");
    let odd = server.object(Pool, "odd", &json!({ "addresses": 7 }));
    server.put(Pool, odd);
    let warnings = server.admits(Pool, "p", &pool(&["192.168.10.200/30"]));
    assert!(warnings[0].contains("IPAddressPool odd cannot be read"), "{warnings:?}");
    server.admits(Pool, "odd", &pool(&["192.168.20.200/30"]));
    let warnings = server.admits(Pool, "p", &pool(&["192.168.10.200/30"]));
    assert!(!warnings[0].contains("odd"), "{warnings:?}");
}

#[test]
fn bg_21_preferences_conflict_only_where_routes_are_the_same() {
    let conflict = |new: u32, old: u32| {
        Some(format!(
            "invalid local preference {new}: local preferernce {old} was already set for the same type of BGP update. Check existing BGP advertisements with common pools and aggregation lengths"
        ))
    };
    let mixed = ["192.168.20.0/24", "fd00:10::/64"];
    for (addresses, first, second, refusal) in [
        (&mixed[..1], json!({}), json!({}), conflict(200, 100)),
        (&mixed[..1], json!({}), json!({ "aggregationLength": 24 }), None),
        (&mixed[..1], json!({}), json!({ "aggregationLengthV6": 64 }), conflict(200, 100)),
        (&mixed, json!({}), json!({ "aggregationLength": 24 }), conflict(200, 100)),
        (&mixed, json!({}), json!({ "aggregationLengthV6": 64 }), conflict(200, 100)),
        (&mixed, json!({}), json!({ "aggregationLength": 24, "aggregationLengthV6": 64 }), None),
        (&mixed, json!({ "nodeSelectors": on_node("n1") }), json!({ "nodeSelectors": on_node("n2") }), None),
        (
            &mixed,
            json!({ "nodeSelectors": on_node("n1") }),
            json!({ "nodeSelectors": on_node("n1") }),
            conflict(200, 100),
        ),
        (&mixed, json!({ "peers": ["x"] }), json!({ "peers": ["y"] }), None),
        (&mixed, json!({ "peers": ["x"] }), json!({}), conflict(200, 100)),
        (&mixed, json!({}), json!({ "serviceSelectors": [{}] }), None),
        (&mixed, json!({}), json!({ "ipAddressPools": ["other"] }), None),
    ] {
        let mut server = ApiServer::new("frr");
        server.admits(Pool, "p", &pool(addresses));
        let with = |spec: &Value, preference: u32| {
            let mut spec = spec.clone();
            spec["localPref"] = json!(preference);
            spec
        };
        server.admits(Bgp, "a", &with(&first, 100));
        assert_eq!(said(&mut server, Bgp, "b", &with(&second, 200)), refusal, "{first} {second}");
    }
}

#[test]
fn a_list_that_cannot_be_read_refuses_what_needs_it() {
    let peer = peer(&json!({}));
    for (target, list, refusal) in [
        (Peer, List::BGPPeers, "failed to get existing BGPPeer objects: down"),
        (Peer, List::Nodes, "failed to get existing Node objects: down"),
        (Pool, List::IPAddressPools, "down\nfailed to get existing IPAddressPool objects"),
        (Bgp, List::BGPAdvertisements, "down\nfailed to get existing BGPAdvertisement objects"),
        (Bgp, List::IPAddressPools, "down\nfailed to get existing IPAddressPool objects"),
        (Bgp, List::Nodes, "down\nfailed to get existing Node objects"),
        (L2, List::L2Advertisements, "down\nfailed to get existing v1beta1.L2Advertisement objects"),
        (L2, List::IPAddressPools, "down\nfailed to get existing IPAddressPool objects"),
        (Community, List::Communities, "down\nfailed to get existing Community objects"),
    ] {
        let mut server = ApiServer::new("native");
        server.fail(list, "down");
        let spec = match target {
            Peer => peer.clone(),
            Pool => pool(&["10.0.0.0/24"]),
            _ => json!({}),
        };
        assert_eq!(server.denies(target, "o", &spec), refusal);
    }
    let mut server = ApiServer::new("native");
    server.admits(Profile, "f", &json!({}));
    server.fail(List::BGPPeers, "down");
    assert_eq!(server.delete(Profile, "f").message, "down\nfailed to get existing BGPPeer objects");
}

#[test]
fn lists_that_only_warnings_need_may_be_missing() {
    for (target, spec) in [
        (Peer, peer(&json!({ "bfdProfile": "f" }))),
        (Pool, pool(&["10.0.0.0/24"])),
        (Bgp, json!({ "ipAddressPools": [], "peers": ["x"], "communities": ["y"] })),
        (L2, json!({ "nodeSelectors": on_node("nowhere") })),
        (Community, json!({ "communities": [{ "name": "x", "value": "1:2" }] })),
        (Profile, json!({})),
    ] {
        let mut server = ApiServer::new("frr");
        for list in target.reads(ferrolb_config::admission::Operation::Create).helpful {
            server.fail(*list, "down");
        }
        let warnings = server.admits(target, "o", &spec);
        // What needs no list is said all the same.
        let about_lists =
            warnings.iter().filter(|warning| !warning.contains("is not served by this version"));
        assert_eq!(about_lists.count(), 0, "{target}: {warnings:?}");
    }
}

#[test]
fn an_object_that_is_going_may_lose_its_finalizer() {
    let mut server = ApiServer::new("frr");
    for name in ["q", "r"] {
        let mut twin = server.object(Peer, name, &peer(&json!({})));
        twin["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        server.put(Peer, twin);
    }
    let mut going = server.stored(Peer, "q").unwrap();
    going["metadata"]["finalizers"] = json!([]);
    assert!(!server.ask(Peer, &going).allowed);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    assert!(server.ask(Peer, &going).allowed);
    going["spec"]["myASN"] = json!(0);
    assert!(!server.ask(Peer, &going).allowed);
}

#[test]
fn an_update_outside_the_namespace_is_judged_and_has_no_effect() {
    let mut server = ApiServer::new("native");
    let mut outside = server.object(Pool, "p", &pool(&["10.0.0.0/24"]));
    outside["metadata"]["namespace"] = json!("default");
    server.put(Pool, outside.clone());
    let answer = server.ask(Pool, &outside);
    assert_eq!(answer.warnings, [format!("only objects in namespace {NAMESPACE} have an effect")]);
    outside["spec"] = pool(&["10.0.0.0"]);
    assert!(!server.ask(Pool, &outside).allowed);
}

// SPDX-License-Identifier: Apache-2.0
//! Warnings about what is legal but surely a mistake.

use ferrolb_config::admission::{List, Target};
use serde_json::{Value, json};
use similar_asserts::assert_eq;

use crate::api_server::ApiServer;

use Target::{
    BFDProfile as Profile, BGPAdvertisement as Bgp, BGPPeer as Peer, Community, IPAddressPool as Pool,
    L2Advertisement as L2,
};

const NONE: [&str; 0] = [];

fn pool(addresses: &str) -> Value {
    json!({ "addresses": [addresses] })
}

fn peer(address: &str, more: &Value) -> Value {
    let mut spec = json!({ "myASN": 64512, "peerASN": 64513, "peerAddress": address });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// A server where everything is in order.
fn bench(bgp_type: &str) -> ApiServer {
    let mut server = ApiServer::new(bgp_type);
    let labelled = |mut object: Value| {
        object["metadata"]["labels"] = json!({ "tier": "front" });
        object
    };
    assert_eq!(server.admits(L2, "l", &json!({})), NONE);
    let front = server.object(Pool, "front", &pool("192.168.10.0/24"));
    assert_eq!(server.write_object(Pool, labelled(front)).warnings, NONE);
    assert_eq!(
        server.admits(Community, "c", &json!({ "communities": [{ "name": "known", "value": "1:2" }] })),
        NONE
    );
    assert_eq!(server.admits(Peer, "router", &peer("192.168.10.1", &json!({}))), NONE);
    if bgp_type != "native" {
        assert_eq!(server.admits(Profile, "fast", &json!({})), NONE);
    }
    server
}

#[test]
fn references_to_nothing_and_selectors_without_a_match_are_named() {
    let nothing = json!([{ "matchLabels": { "no": "such" } }]);
    let expression =
        json!([{ "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["front"] }] }]);
    for (target, spec, warnings) in [
        (L2, json!({ "ipAddressPools": ["front"] }), vec![]),
        (
            L2,
            json!({ "ipAddressPools": ["front", "back"] }),
            vec![r#"spec.ipAddressPools[1]: there is no IPAddressPool "back""#],
        ),
        (L2, json!({ "ipAddressPoolSelectors": [{ "matchLabels": { "tier": "front" } }, {}] }), vec![]),
        (
            L2,
            json!({ "ipAddressPoolSelectors": expression }),
            vec!["spec.ipAddressPoolSelectors[0]: no IPAddressPool matches tier notin (front)"],
        ),
        (L2, json!({ "nodeSelectors": [{ "matchLabels": { "name": "n1" } }] }), vec![]),
        (
            L2,
            json!({ "nodeSelectors": [{ "matchLabels": { "name": "n1" } }, { "matchLabels": { "no": "such" } }] }),
            vec!["spec.nodeSelectors[1]: no Node matches no=such"],
        ),
        (
            L2,
            json!({ "preferredNodeSelectors": [{ "weight": 1, "preference": nothing[0] }] }),
            vec!["spec.preferredNodeSelectors[0].preference: no Node matches no=such"],
        ),
        (
            Bgp,
            json!({ "ipAddressPools": ["front"], "peers": ["router"], "communities": ["known", "3:4"] }),
            vec![],
        ),
        (
            Bgp,
            json!({ "ipAddressPools": ["back"], "ipAddressPoolSelectors": nothing, "nodeSelectors": nothing,
                    "peers": ["nobody"], "communities": ["known", "unknown", "12"] }),
            vec![
                r#"spec.ipAddressPools[0]: there is no IPAddressPool "back""#,
                "spec.ipAddressPoolSelectors[0]: no IPAddressPool matches no=such",
                "spec.nodeSelectors[0]: no Node matches no=such",
                r#"spec.peers[0]: there is no BGPPeer "nobody""#,
                r#"spec.communities[1]: no Community defines "unknown""#,
                r#"spec.communities[2]: no Community defines "12""#,
            ],
        ),
        (Peer, peer("192.168.10.9", &json!({ "bfdProfile": "fast" })), vec![BFD]),
        (
            Peer,
            peer("192.168.10.9", &json!({ "bfdProfile": "slow", "nodeSelectors": nothing })),
            vec![
                "spec.nodeSelectors[0]: no Node matches no=such",
                BFD,
                "the speakers will report: peer new referencing non existing bfd profile slow",
            ],
        ),
        (
            Pool,
            json!({ "addresses": ["192.168.20.0/24"], "serviceAllocation": {
                "namespaces": ["team-a", "team-b"],
                "namespaceSelectors": [{ "matchLabels": { "team": "a" } }, { "matchLabels": { "team": "b" } }],
            } }),
            vec![
                r#"spec.serviceAllocation.namespaces[1]: there is no Namespace "team-b""#,
                "spec.serviceAllocation.namespaceSelectors[1]: no Namespace matches team=b",
            ],
        ),
        (
            Community,
            json!({ "communities": [{ "name": "x", "value": "1:2" }, { "value": "3:4" }] }),
            vec!["spec.communities[1]: without a name, no BGPAdvertisement can use it"],
        ),
    ] {
        assert_eq!(bench("frr").admits(target, "new", &spec), warnings, "{target} {spec}");
    }
}

#[test]
fn a_pool_that_nothing_announces_is_a_mistake_unless_it_says_otherwise() {
    let none = r#"no L2Advertisement and no BGPAdvertisement announces this pool; if that is meant, annotate it with ferrolb.io/allocate-only: "true""#;
    for (advertisement, spec, warnings) in [
        (None, json!({}), vec![none]),
        (Some(L2), json!({}), vec![]),
        (Some(Bgp), json!({}), vec![]),
        (Some(L2), json!({ "ipAddressPools": ["p"] }), vec![]),
        (Some(Bgp), json!({ "ipAddressPools": ["other"] }), vec![none]),
        (Some(L2), json!({ "ipAddressPoolSelectors": [{ "matchLabels": { "a": "b" } }] }), vec![]),
        (Some(Bgp), json!({ "ipAddressPoolSelectors": [{ "matchLabels": { "a": "c" } }] }), vec![none]),
    ] {
        let mut server = ApiServer::new("native");
        if let Some(target) = advertisement {
            server.admits(target, "adv", &spec);
        }
        let mut object = server.object(Pool, "p", &pool("192.168.10.0/24"));
        object["metadata"]["labels"] = json!({ "a": "b" });
        assert_eq!(server.ask(Pool, &object).warnings, warnings, "{spec}");

        object["metadata"]["annotations"] = json!({ "ferrolb.io/allocate-only": "true" });
        assert_eq!(server.ask(Pool, &object).warnings, NONE);
        object["metadata"]["annotations"] = json!({ "ferrolb.io/allocate-only": "false" });
        assert_eq!(server.ask(Pool, &object).warnings, warnings);
    }
}

#[test]
fn unknown_annotations_of_our_own_are_named() {
    let mut server = bench("frr");
    let mut object = server.object(Pool, "front", &pool("192.168.10.0/24"));
    object["metadata"]["annotations"] =
        json!({ "ferrolb.io/allocate-only": "yes", "ferrolb.io/typo": "1", "example.com/x": "2" });
    assert_eq!(
        server.ask(Pool, &object).warnings,
        [
            r#"metadata.annotations[ferrolb.io/allocate-only]: expected true or false, found "yes""#,
            "metadata.annotations: ferrolb.io/typo is not known here",
        ]
    );
    let mut object = server.object(L2, "l", &json!({}));
    object["metadata"]["annotations"] = json!({ "ferrolb.io/allocate-only": "true" });
    assert_eq!(
        server.ask(L2, &object).warnings,
        ["metadata.annotations: ferrolb.io/allocate-only is not known here"]
    );
}

const BFD: &str = "spec.bfdProfile is not served by this version: the session is not opened, or stays as it was before \
                   the field was set; all others run";

const VRF: &str = "spec.vrf is not served by this version: the session is not opened, or stays as it was before the \
                   field was set; all others run";

#[test]
fn fields_without_effect_are_named() {
    let secret = |namespace: &str| json!({ "passwordSecret": { "name": "s", "namespace": namespace } });
    let multi_hop = json!({ "ebgpMultiHop": true });
    let elsewhere =
        "spec.passwordSecret.namespace: has no effect, the Secret is looked for in metallb-system";
    for (bgp_type, target, spec, warnings) in [
        ("frr", Peer, peer("192.168.10.9", &secret("")), vec![]),
        ("frr", Peer, peer("192.168.10.9", &secret("metallb-system")), vec![]),
        ("frr", Peer, peer("192.168.10.9", &secret("default")), vec![elsewhere]),
        ("frr", Peer, peer("192.168.10.9", &multi_hop), vec![]),
        (
            "native",
            Peer,
            peer("192.168.10.9", &multi_hop),
            vec!["spec.ebgpMultiHop: has no effect in native BGP mode"],
        ),
        ("native", Bgp, json!({ "aggregationLengthV6": 64 }), vec![]),
        ("frr", Peer, peer("192.168.10.9", &json!({ "vrf": "red" })), vec![VRF]),
        ("native", Profile, json!({}), vec!["the speakers will report: bfd profiles section set"]),
        (
            "native",
            Peer,
            peer("192.168.10.9", &json!({ "bfdProfile": "slow" })),
            vec![
                "the speakers will report: peer 192.168.10.9 has bfd-profile set on native bgp mode",
                "the speakers will report: peer new referencing non existing bfd profile slow",
            ],
        ),
    ] {
        assert_eq!(bench(bgp_type).admits(target, "new", &spec), warnings, "{bgp_type} {target} {spec}");
    }
}

#[test]
fn what_only_those_see_who_see_all_kinds_is_told_before() {
    let mut server = bench("frr");
    let both = peer("192.168.10.9", &json!({ "password": "x", "passwordSecret": { "name": "s" } }));
    assert_eq!(
        server.admits(Peer, "both", &both),
        [
            r#"the speakers will report: parsing peer both can not have both password and secret ref set in peer config "metallb-system"/"both""#
        ]
    );
    server.delete(Peer, "both");

    // An alias that somebody uses goes.
    server.admits(Bgp, "b", &json!({ "ipAddressPools": ["front"], "communities": ["known"] }));
    assert_eq!(
        server.admits(Community, "c", &json!({})),
        [
            r#"the speakers will report of BGPAdvertisement b: invalid community format: known; invalid community "known" in BGP advertisement"#
        ]
    );
    // Said once: the next update changes nothing of that.
    assert_eq!(server.admits(Community, "c", &json!({})), NONE);

    // A pool shrinks below the length that is announced for it.
    server.admits(Bgp, "wide", &json!({ "ipAddressPools": ["front"], "aggregationLength": 24 }));
    let narrow = server.admits(Pool, "front", &pool("192.168.10.0/28"));
    assert_eq!(
        narrow,
        [
            "the speakers will report of BGPAdvertisement wide: invalid aggregation length 24: prefix 28 in this pool \
             is more specific than the aggregation length for addresses 192.168.10.0/28"
        ]
    );

    // IPv6 towards a peer that is watched with echo packets.
    server.admits(Profile, "echo", &json!({ "echoMode": true }));
    server.admits(Pool, "six", &pool("fd00:10::/120"));
    server.admits(Bgp, "six", &json!({ "ipAddressPools": ["six"] }));
    assert_eq!(
        server.admits(Peer, "echoing", &peer("192.168.10.8", &json!({ "bfdProfile": "echo" }))),
        [
            BFD,
            "the speakers will report: pool six has bgpadvertisement six which references peer echoing which has bfd \
             echo enabled, which is not possible"
        ]
    );

    let mut native = bench("native");
    native.admits(Bgp, "all", &json!({}));
    assert_eq!(native.admits(Pool, "six", &pool("fd00:10::200/126")), Vec::<String>::new(), "IPv6 is served");
}

#[test]
fn a_field_that_metallb_does_not_know_is_never_a_reason_to_refuse() {
    let spec = json!({ "preferredNodeSelectors": [{ "weight": 0, "preference": {} }] });
    assert_eq!(
        bench("native").admits(L2, "new", &spec),
        [
            "the speakers will report: invalid weight 0, must be in 1-100 range; failed to parse preferred node \
             selectors for new"
        ]
    );
}

#[test]
fn many_consequences_are_counted() {
    let mut server = bench("frr");
    for i in 0..12 {
        server.admits(
            Bgp,
            &format!("b{i:02}"),
            &json!({ "ipAddressPools": ["front"], "communities": ["known"] }),
        );
    }
    let warnings = server.admits(Community, "c", &json!({}));
    assert_eq!(warnings.len(), 9);
    assert_eq!(warnings[8], "the speakers will report 4 faults more");
}

#[test]
fn a_warning_is_one_line_of_printable_text() {
    let mut server = bench("frr");
    server.label(List::Nodes, "n1", &json!({}));
    let spec = json!({ "ipAddressPools": ["a\nb"], "nodeSelectors": [{ "matchLabels": { "x": "y" } }] });
    for warning in server.admits(L2, "new", &spec) {
        assert!(!warning.chars().any(char::is_control), "{warning:?}");
    }
}

#[test]
fn a_peer_that_speakers_will_not_open_or_not_change_is_warned_of() {
    let not_opened = |rival: &str| {
        format!(
            "the speakers will report: the session with 192.168.10.1 is not opened: on one node it excludes that of \
             BGPPeer {rival}, which was there before"
        )
    };
    let stays = |rival: &str| {
        format!(
            "the speakers will report: the session with 192.168.10.1 stays as it was: on one node it excludes that of \
             BGPPeer {rival}, which was there before"
        )
    };
    let either = |rival: &str| {
        format!(
            "on one node the session with 192.168.10.1 and that of BGPPeer {rival} exclude each other: where the other \
             one is there, this change has no effect"
        )
    };
    let spec = |more: Value| peer("192.168.10.1", &more);
    let mut server = bench("native");
    server.label(List::Nodes, "n1", &json!({ "rack": "a" }));
    server.label(List::Nodes, "n2", &json!({ "rack": "b" }));
    assert_eq!(server.admits(Peer, "twice", &spec(json!({}))), [not_opened("router")]);
    // Which of the two a speaker has only the speaker knows; what changes nothing is not worth a word.
    assert_eq!(server.admits(Peer, "twice", &spec(json!({}))), NONE);
    assert_eq!(server.admits(Peer, "twice", &spec(json!({ "holdTime": "30s" }))), [either("router")]);
    assert_eq!(server.admits(Peer, "router", &spec(json!({ "holdTime": "30s" }))), [either("twice")]);
    // Out of each other's way, and back into it, by either of them.
    assert_eq!(server.admits(Peer, "twice", &spec(json!({ "peerPort": 180 }))), NONE);
    assert_eq!(server.admits(Peer, "router", &spec(json!({ "peerPort": 180 }))), [stays("twice")]);
    assert_eq!(server.admits(Peer, "router", &spec(json!({}))), NONE);
    assert_eq!(server.admits(Peer, "twice", &spec(json!({}))), [stays("router")]);
    assert_eq!(server.admits(Peer, "twice", &spec(json!({ "sourceAddress": "192.168.10.9" }))), NONE);

    // Nodes are what it is about.
    let on = |rack: &str| json!({ "nodeSelectors": [{ "matchLabels": { "rack": rack } }] });
    server.admits(Peer, "router", &spec(on("a")));
    assert_eq!(server.admits(Peer, "twice", &spec(on("b"))), NONE);
    assert_eq!(server.admits(Peer, "twice", &spec(on("a"))), [stays("router")]);
    assert_eq!(server.admits(Peer, "third", &spec(on("b"))), NONE);
    // Secrets are not read, and decide nothing.
    let secret = |more: Value| {
        let mut spec = spec(more);
        spec["passwordSecret"] = json!({ "name": "s" });
        spec
    };
    assert_eq!(server.admits(Peer, "fourth", &secret(on("b"))), [not_opened("third")]);

    // MetalLB refuses them by the text of their addresses.
    let mut frr = bench("frr");
    frr.admits(Peer, "six", &peer("fd00:10::1", &json!({})));
    let warnings = frr.admits(Peer, "again", &peer("fd00:10:0::1", &json!({})));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("excludes that of BGPPeer six"), "{warnings:?}");
}

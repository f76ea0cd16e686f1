// SPDX-License-Identifier: Apache-2.0
//! Peers, communities, and the rules of the types of BGP.

use serde_json::{Value, json};

use super::{bad, good, on, only_metallb, peer, pool, rows};

#[test]
fn peers() {
    rows(vec![
        bad(
            "P12",
            "no local AS",
            "frr",
            json!({ "peer": { "q": peer(json!({ "myASN": 0 })) } }),
            "parsing peer q missing local ASN",
        ),
        bad(
            "P12",
            "no AS of the peer",
            "frr",
            json!({ "peer": { "q": peer(json!({ "peerASN": null })) } }),
            "parsing peer q missing peer ASN and dynamicASN",
        ),
        bad(
            "P12",
            "a bad address",
            "frr",
            json!({ "peer": { "q": peer(json!({ "peerAddress": "1.2.3.400" })) } }),
            r#"parsing peer q invalid BGPPeer address "1.2.3.400""#,
        ),
        bad(
            "P12",
            "more than one hop within an AS",
            "frr",
            json!({ "peer": { "q": peer(json!({ "peerASN": 42, "ebgpMultiHop": true })) } }),
            "parsing peer q invalid ebgp-multihop parameter set for an ibgp peer",
        ),
        bad(
            "P12",
            "a bad router ID",
            "frr",
            json!({ "peer": { "q": peer(json!({ "routerID": "oh god how do I BGP" })) } }),
            r#"parsing peer q invalid router ID "oh god how do I BGP""#,
        ),
        bad(
            "P13",
            "keepalive above hold",
            "frr",
            json!({ "peer": { "q": peer(json!({ "holdTime": "30s", "keepaliveTime": "90s" })) } }),
            r#"parsing peer q invalid BGPPeer timers: invalid keepaliveTime "1m30s", must be lower than holdTime "30s""#,
        ),
        bad(
            "P13",
            "a hold time of one second",
            "frr",
            json!({ "peer": { "q": peer(json!({ "holdTime": "1s" })) } }),
            r#"parsing peer q invalid BGPPeer timers: invalid hold time "1s": must be 0 or >=3s"#,
        ),
        good("P14", "hold only", "frr", json!({ "peer": { "q": peer(json!({ "holdTime": "180s" })) } })),
        good(
            "P14",
            "keepalive only",
            "frr",
            json!({ "peer": { "q": peer(json!({ "keepaliveTime": "60s" })) } }),
        ),
        good(
            "P14",
            "both zero",
            "frr",
            json!({ "peer": { "q": peer(json!({ "holdTime": "0s", "keepaliveTime": "0s" })) } }),
        ),
        good("P14", "none", "frr", json!({ "peer": { "q": peer(json!({})) } })),
        bad(
            "P15",
            "an expression without a key",
            "frr",
            json!({ "peer": { "q": peer(json!({ "nodeSelectors": [{ "matchExpressions": [{ "key": "", "operator": "In", "values": ["b"] }] }] })) } }),
            "parsing peer q key: Invalid value: \"\": name part must be non-empty; name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\nfailed to convert peer q node selector",
        ),
        bad(
            "P15",
            "an expression without an operator",
            "frr",
            json!({ "peer": { "q": peer(json!({ "nodeSelectors": [{ "matchExpressions": [{ "key": "a", "operator": "", "values": ["b"] }] }] })) } }),
            "parsing peer q \"\" is not a valid label selector operator\nfailed to convert peer q node selector",
        ),
        bad(
            "P15",
            "an unknown operator",
            "frr",
            json!({ "peer": { "q": peer(json!({ "nodeSelectors": [{ "matchExpressions": [{ "key": "a", "operator": "surrounds", "values": ["b"] }] }] })) } }),
            "parsing peer q \"surrounds\" is not a valid label selector operator\nfailed to convert peer q node selector",
        ),
        bad(
            "P15",
            "a value twice",
            "frr",
            json!({ "peer": { "q": peer(json!({ "nodeSelectors": [{ "matchExpressions": [{ "key": "a", "operator": "In", "values": ["b", "b"] }] }] })) } }),
            r#"parsing peer q duplicate definition of match expression value in label selector "b""#,
        ),
        // Without names two peers cannot be told apart; objects of a cluster have them.
        bad(
            "P16",
            "two equal peers for one node (S38)",
            "frr",
            json!({ "peer": { "q": peer(json!({})), "r": peer(json!({})) } }),
            "peer 1.2.3.4 already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node",
        ),
        good(
            "P17",
            "a dynamic AS alone",
            "frr",
            json!({ "peer": { "q": peer(json!({ "peerASN": null, "dynamicASN": "internal" })) } }),
        ),
        bad(
            "P17",
            "neither",
            "frr",
            json!({ "peer": { "q": peer(json!({ "peerASN": null })) } }),
            "parsing peer q missing peer ASN and dynamicASN",
        ),
        bad(
            "P17",
            "both",
            "frr",
            json!({ "peer": { "q": peer(json!({ "dynamicASN": "internal" })) } }),
            "parsing peer q both peer ASN and dynamicASN specified",
        ),
        good(
            "P18",
            "an interface alone",
            "frr",
            json!({ "peer": { "q": peer(json!({ "peerAddress": null, "interface": "eth0" })) } }),
        ),
        bad(
            "P18",
            "neither",
            "frr",
            json!({ "peer": { "q": peer(json!({ "peerAddress": null })) } }),
            "parsing peer q peer has no Address or Interface specified",
        ),
        bad(
            "P18",
            "both",
            "frr",
            json!({ "peer": { "q": peer(json!({ "interface": "eth0" })) } }),
            "parsing peer q peer has both Address and Interface specified",
        ),
        bad(
            "P19",
            "a password and a Secret",
            "frr",
            json!({ "peer": { "q": peer(json!({ "password": "x", "passwordSecret": { "name": "s" } })) } }),
            r#"parsing peer q can not have both password and secret ref set in peer config "metallb-system"/"q""#,
        ),
        bad(
            "P19",
            "a Secret of another type",
            "frr",
            json!({ "peer": { "q": peer(json!({ "passwordSecret": { "name": "s" } })) },
                    "secret": { "s": { "type": "Opaque", "key": "password" } } }),
            "parsing peer q secret type mismatch on \"metallb-system\"/\"s\", type \"kubernetes.io/basic-auth\" is expected \nfailed to parse peer q password secret",
        ),
        bad(
            "P19",
            "a Secret without a password",
            "frr",
            json!({ "peer": { "q": peer(json!({ "passwordSecret": { "name": "s" } })) },
                    "secret": { "s": { "type": "kubernetes.io/basic-auth", "key": "secret" } } }),
            "parsing peer q password not specified in the secret \"metallb-system\"/\"s\"\nfailed to parse peer q password secret",
        ),
        bad(
            "P19",
            "no Secret",
            "frr",
            json!({ "peer": { "q": peer(json!({ "passwordSecret": { "name": "s" } })) } }),
            "parsing peer q secret ref not found for peer config \"metallb-system\"/\"q\"\nfailed to parse peer q password secret",
        ),
        good(
            "P20",
            "a good Secret",
            "frr",
            json!({ "peer": { "q": peer(json!({ "passwordSecret": { "name": "s" } })) },
                    "secret": { "s": { "type": "kubernetes.io/basic-auth", "key": "password" } } }),
        ),
        bad(
            "P21",
            "an unknown profile",
            "frr",
            json!({ "peer": { "q": peer(json!({ "bfdProfile": "f" })) } }),
            "peer q referencing non existing bfd profile f",
        ),
        bad(
            "P22",
            "an interval too short",
            "frr",
            json!({ "bfd": { "f": { "receiveInterval": 2 } } }),
            "parsing bfd profile #1: invalid value 2, must be in 10-60000 range\ninvalid receive interval value",
        ),
        bad(
            "P22",
            "an interval too long",
            "frr",
            json!({ "bfd": { "f": { "receiveInterval": 90000 } } }),
            "parsing bfd profile #1: invalid value 90000, must be in 10-60000 range\ninvalid receive interval value",
        ),
        bad(
            "P22",
            "two profiles of a name",
            "frr",
            json!({ "bfd": [["f", {}], ["f", {}]] }),
            "found duplicate bfd profile name f",
        ),
    ]);
}

#[test]
fn communities() {
    let in_object =
        |value: &str| json!({ "comm": { "c": { "communities": [{ "name": "a", "value": value }] } } });
    let in_advertisement = |value: &str| json!({ "adv": { "a": { "communities": [value] } } });
    rows(vec![
        bad(
            "P31",
            "no number pair, in an object",
            "frr",
            in_object("1234"),
            r#"parsing community "a": invalid community format: 1234"#,
        ),
        bad(
            "P31",
            "the first too large, in an object",
            "frr",
            in_object("99999999:1"),
            r#"parsing community "a": invalid community value: invalid section "99999999" of community "99999999:1", err: "strconv.ParseUint: parsing \"99999999\": value out of range""#,
        ),
        bad(
            "P31",
            "the second too large, in an object",
            "frr",
            in_object("1:99999999"),
            r#"parsing community "a": invalid community value: invalid section "99999999" of community "1:99999999", err: "strconv.ParseUint: parsing \"99999999\": value out of range""#,
        ),
        bad(
            "P31",
            "no number pair",
            "frr",
            in_advertisement("1234"),
            "invalid community format: 1234\ninvalid community \"1234\" in BGP advertisement",
        ),
        bad(
            "P31",
            "the first too large",
            "frr",
            in_advertisement("99999999:1"),
            "invalid community value: invalid section \"99999999\" of community \"99999999:1\", err: \"strconv.ParseUint: parsing \\\"99999999\\\": value out of range\"\ninvalid community \"99999999:1\" in BGP advertisement",
        ),
        bad(
            "P31",
            "an unknown alias",
            "frr",
            in_advertisement("flub"),
            "invalid community format: flub\ninvalid community \"flub\" in BGP advertisement",
        ),
        bad(
            "P32",
            "an alias in two objects",
            "frr",
            json!({ "comm": { "c": { "communities": [{ "name": "a", "value": "1:1" }] }, "d": { "communities": [{ "name": "a", "value": "2:2" }] } } }),
            r#"duplicate definition of community "a""#,
        ),
        bad(
            "P32",
            "an alias twice in one object",
            "frr",
            json!({ "comm": { "c": { "communities": [{ "name": "a", "value": "1:1" }, { "name": "a", "value": "1:1" }] } } }),
            r#"duplicate definition of community "a""#,
        ),
        good(
            "P33",
            "an alias of a large one",
            "frr",
            json!({ "comm": { "c": { "communities": [{ "name": "a", "value": "large:123:64512:1234" }] } }, "adv": { "a": { "communities": ["a"] } } }),
        ),
        good(
            "K2",
            "both forms",
            "frr",
            json!({ "adv": { "a": { "communities": ["12345:12345", "large:1:2:3"] } } }),
        ),
        bad(
            "K2",
            "one part",
            "frr",
            in_advertisement("12345"),
            "invalid community format: 12345\ninvalid community \"12345\" in BGP advertisement",
        ),
        bad(
            "K2",
            "three parts",
            "frr",
            in_advertisement("1:2:3"),
            "invalid community format: 1:2:3\ninvalid community \"1:2:3\" in BGP advertisement",
        ),
    ]);
}

#[test]
fn types_of_bgp() {
    let native = |what: &'static str, more: Value, said: &'static str| {
        bad("V1", what, "native", json!({ "peer": { "q": peer(more) } }), said)
    };
    let two = |first: Value, second: Value| json!({ "peer": { "a": peer(first), "b": peer(second) } });
    let other = |mut more: Value| {
        more["peerAddress"] = json!("1.2.3.5");
        more
    };
    let exists =
        "peer 1.2.3.4 already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node";
    let reached = |pools: &[&str]| {
        json!({ "pool": { "four": pool(&["10.0.0.0/24"]), "six": { "labels": { "v": "6" }, "addresses": ["fd00::/64"] } },
                "adv": { "a": { "ipAddressPools": pools } } })
    };
    rows(vec![
        native(
            "a profile",
            json!({ "bfdProfile": "f" }),
            "peer 1.2.3.4 has bfd-profile set on native bgp mode",
        ),
        native(
            "graceful restart",
            json!({ "enableGracefulRestart": true }),
            "peer 1.2.3.4 has EnableGracefulRestart flag set on native bgp mode",
        ),
        native(
            "no multiprotocol",
            json!({ "disableMP": true }),
            "peer 1.2.3.4 has disable MP flag set on native bgp mode",
        ),
        native(
            "a dynamic AS",
            json!({ "peerASN": null, "dynamicASN": "external" }),
            "peer 1.2.3.4 has dynamicASN set on native bgp mode",
        ),
        native(
            "an interface",
            json!({ "peerAddress": null, "interface": "eth0" }),
            "peer  has interface set on native bgp mode",
        ),
        native(
            "a local AS",
            json!({ "localASN": 64999 }),
            "peer 1.2.3.4 has localASN set on native bgp mode",
        ),
        native(
            "a keepalive time",
            json!({ "keepaliveTime": "10s" }),
            "peer 1.2.3.4 has keepalive-time set on native bgp mode",
        ),
        native(
            "a connect time",
            json!({ "connectTime": "10s" }),
            "peer 1.2.3.4 has connect time set on native bgp mode",
        ),
        native("a VRF", json!({ "vrf": "red" }), "peer 1.2.3.4 has vrf set on native bgp mode"),
        native(
            "both families",
            json!({ "dualStackAddressFamily": true }),
            "peer 1.2.3.4 has dualstackaddressfamily flag set on native bgp mode",
        ),
        bad("V1", "a profile object", "native", json!({ "bfd": { "f": {} } }), "bfd profiles section set"),
        only_metallb(
            "V2",
            "reached by name",
            "native",
            reached(&["six"]),
            r#"pool "six" has ipv6 CIDR fd00::/64, native bgp mode does not support ipv6"#,
        ),
        only_metallb(
            "V2",
            "reached with all",
            "native",
            reached(&[]),
            r#"pool "six" has ipv6 CIDR fd00::/64, native bgp mode does not support ipv6"#,
        ),
        good("V2", "not reached", "native", reached(&["four"])),
        only_metallb(
            "V3",
            "a large community",
            "native",
            json!({ "adv": { "a": { "communities": ["large:1:2:3"] } } }),
            r#"native BGP mode only supports legacy communities, BGP advertisement "a" has non legacy community "large:1:2:3""#,
        ),
        only_metallb(
            "V3",
            "a large community in an object",
            "native",
            json!({ "comm": { "c": { "communities": [{ "name": "big", "value": "large:1:2:3" }] } } }),
            r#"native BGP mode only supports legacy communities, BGP community CR "c" has non legacy community {"big" "large:1:2:3"}"#,
        ),
        good(
            "V4",
            "one router ID",
            "frr",
            two(json!({ "routerID": "1.1.1.1" }), other(json!({ "routerID": "1.1.1.1" }))),
        ),
        bad(
            "V4",
            "two router IDs",
            "frr",
            two(json!({ "routerID": "1.1.1.1" }), other(json!({ "routerID": "2.2.2.2" }))),
            "peer 2.2.2.2 has RouterID different from 1.1.1.1, in FRR mode peers selecting the same node must all have the same RouterID",
        ),
        bad(
            "V4",
            "one without",
            "frr",
            two(json!({ "routerID": "1.1.1.1" }), other(json!({}))),
            "peer  has RouterID different from 1.1.1.1, in FRR mode peers selecting the same node must all have the same RouterID",
        ),
        good("V5", "one local AS", "frr", two(json!({}), other(json!({})))),
        bad(
            "V5",
            "two local AS",
            "frr",
            two(json!({}), other(json!({ "myASN": 43 }))),
            "peer 1.2.3.5 has myAsn different from 1.2.3.4, in FRR mode peers selecting the same node must have the same myAsn within the same VRF",
        ),
        good("V5", "in another VRF", "frr", two(json!({}), other(json!({ "myASN": 43, "vrf": "red" })))),
        bad("V6", "one address", "frr", two(json!({}), json!({})), exists),
        good("V6", "in another VRF", "frr", two(json!({}), json!({ "vrf": "red" }))),
        bad(
            "V6",
            "in the same VRF",
            "frr",
            two(json!({ "vrf": "red" }), json!({ "vrf": "red" })),
            "peer 1.2.3.4-red already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node",
        ),
        bad(
            "V7",
            "one interface",
            "frr",
            two(
                json!({ "peerAddress": null, "interface": "eth0" }),
                json!({ "peerAddress": null, "interface": "eth0" }),
            ),
            "peer eth0 already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node",
        ),
        good(
            "V7",
            "two interfaces",
            "frr",
            two(
                json!({ "peerAddress": null, "interface": "eth0" }),
                json!({ "peerAddress": null, "interface": "eth1" }),
            ),
        ),
        good(
            "V8",
            "on other nodes",
            "frr",
            two(json!({ "nodeSelectors": on("first") }), json!({ "nodeSelectors": on("second") })),
        ),
        bad(
            "V8",
            "on the same node",
            "frr",
            two(json!({ "nodeSelectors": on("first") }), json!({ "nodeSelectors": on("first") })),
            exists,
        ),
        bad("V8", "one on all", "frr", two(json!({ "nodeSelectors": on("first") }), json!({})), exists),
        bad(
            "V8",
            "no nodes known",
            "frr",
            json!({ "nodes": {}, "peer": { "a": peer(json!({ "nodeSelectors": on("first") })), "b": peer(json!({ "nodeSelectors": on("second") })) } }),
            exists,
        ),
        bad(
            "V9",
            "the third meets the first",
            "frr",
            json!({ "peer": { "a": peer(json!({ "nodeSelectors": on("first") })), "b": peer(json!({ "nodeSelectors": on("second") })),
                              "c": peer(json!({ "nodeSelectors": on("first") })) } }),
            exists,
        ),
        bad(
            "V9",
            "one of several selectors meets",
            "frr",
            two(
                json!({ "nodeSelectors": [{ "matchLabels": { "node": "first" } }, { "matchLabels": { "node": "second" } }] }),
                json!({ "nodeSelectors": on("second") }),
            ),
            exists,
        ),
    ]);
}

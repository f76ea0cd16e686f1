// SPDX-License-Identifier: Apache-2.0
//! The catalogue of configurations: what MetalLB v0.16.1 says of each, one row per case, exact texts.
//!
//! `P` are rules of objects, `V` rules of the type of BGP. What becomes of an accepted configuration stands beside the
//! table. Where a text of MetalLB has a value in it that its language garbles (a number printed as a character, a
//! selector printed as a structure), ours has the value itself.

use std::collections::BTreeMap;

use ferrolb_api::Community;
use ferrolb_config::{BgpType, Config, Resources};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::build::{blocks, fresh, labels, object, valid};

/// One configuration and what is said of it; `None` is nothing.
struct Case {
    id: &'static str,
    about: &'static str,
    bgp: &'static str,
    objects: Value,
    /// What MetalLB says of the whole.
    said: Option<&'static str>,
    /// The same is said here.
    ours: bool,
}

fn good(id: &'static str, about: &'static str, bgp: &'static str, objects: Value) -> Case {
    Case { id, about, bgp, objects, said: None, ours: true }
}

fn bad(id: &'static str, about: &'static str, bgp: &'static str, objects: Value, said: &'static str) -> Case {
    Case { id, about, bgp, objects, said: Some(said), ours: true }
}

/// What MetalLB refuses and is served here.
fn only_metallb(
    id: &'static str,
    about: &'static str,
    bgp: &'static str,
    objects: Value,
    said: &'static str,
) -> Case {
    Case { id, about, bgp, objects, said: Some(said), ours: false }
}

/// `{kind: {name: spec}}`, or `{kind: [[name, spec], …]}` where a name comes twice. Nodes are `first` and `second`
/// with their names as labels, unless `nodes` says otherwise.
fn resources(bgp: &str, objects: &Value) -> Resources {
    fn all<T: DeserializeOwned>(objects: &Value, kind: &str) -> Vec<T> {
        let pairs: Vec<(String, Value)> = match &objects[kind] {
            Value::Object(map) => map.iter().map(|(name, spec)| (name.clone(), spec.clone())).collect(),
            Value::Array(list) => {
                list.iter().map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].clone())).collect()
            }
            _ => Vec::new(),
        };
        let age = |i: usize| u32::try_from(i).unwrap();
        pairs
            .iter()
            .enumerate()
            .map(|(i, (name, spec))| object(name, age(i), &spec["labels"], spec))
            .collect()
    }
    let known = ["pool", "l2", "adv", "peer", "bfd", "comm", "secret", "nodes", "ns"];
    assert!(objects.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{objects}");
    let names = |key: &str, default: Value| -> BTreeMap<String, ferrolb_config::Labels> {
        let map = if objects[key].is_null() { default } else { objects[key].clone() };
        serde_json::from_value::<BTreeMap<String, BTreeMap<String, String>>>(map)
            .unwrap()
            .into_iter()
            .map(|(name, pairs)| {
                let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                (name, labels(&pairs))
            })
            .collect()
    };
    let nodes = names("nodes", json!({ "first": { "node": "first" }, "second": { "node": "second" } }));
    let secrets = objects["secret"].as_object().into_iter().flatten().map(|(name, secret)| {
        let mut made = Secret { type_: secret["type"].as_str().map(str::to_owned), ..Secret::default() };
        made.metadata.name = Some(name.clone());
        made.metadata.namespace = Some("metallb-system".to_owned());
        let key = secret["key"].as_str().unwrap().to_owned();
        made.data = Some(BTreeMap::from([(key, ByteString(b"nopass".to_vec()))]));
        made
    });
    let mut peers: Vec<ferrolb_api::BGPPeer> = all(objects, "peer");
    for peer in &mut peers {
        peer.metadata.namespace = Some("metallb-system".to_owned());
    }
    Resources {
        bgp_type: bgp.parse::<BgpType>().unwrap(),
        pools: all(objects, "pool"),
        l2_advertisements: all(objects, "l2"),
        bgp_advertisements: all(objects, "adv"),
        bgp_peers: peers,
        bfd_profiles: all(objects, "bfd"),
        communities: all::<Community>(objects, "comm"),
        secrets: secrets.collect(),
        nodes: nodes.into_iter().map(|(name, labels)| (name.as_str().into(), labels)).collect(),
        namespaces: names("ns", json!({ "ns1": {}, "ns2": { "team": "a" } })),
        ..Resources::default()
    }
}

fn pool(addresses: &[&str]) -> Value {
    json!({ "addresses": addresses })
}

/// A good peer with these fields set otherwise; `null` takes one away.
fn peer(more: Value) -> Value {
    let mut spec = json!({ "myASN": 42, "peerASN": 142, "peerAddress": "1.2.3.4" });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    spec
}

fn on(node: &str) -> Value {
    json!([{ "matchLabels": { "node": node } }])
}

fn rows(table: Vec<Case>) {
    for Case { id, about, bgp, objects, said, ours } in table {
        let evaluation = fresh(&resources(bgp, &objects));
        let said = said.map_or(Ok(()), |said| Err(said.to_owned()));
        assert_eq!(evaluation.metallb, said, "{id}: {about}");
        assert_eq!(evaluation.verdict, if ours { said } else { Ok(()) }, "{id}: {about}, here");
    }
}

#[test]
fn pools() {
    rows(vec![
        good("P1", "nothing", "native", json!({})),
        good(
            "P2",
            "ranges with and without blanks, one address",
            "native",
            json!({ "pool": { "p": pool(&["40.0.0.150-40.0.0.200", "40.0.0.210 - 40.0.0.240", "40.0.0.250 - 40.0.0.250"]) } }),
        ),
        bad(
            "P5",
            "a namespace twice",
            "native",
            json!({ "pool": { "p": { "addresses": ["10.0.0.0/8"], "serviceAllocation": { "namespaces": ["a", "a"] } } } }),
            "parsing address pool p: duplicate definition in namespaces field",
        ),
        bad(
            "P5",
            "a selector of namespaces twice",
            "native",
            json!({ "pool": { "p": { "addresses": ["10.0.0.0/8"], "serviceAllocation": { "namespaceSelectors": [
                { "matchLabels": { "a": "b" } }, { "matchLabels": { "a": "b" } }] } } } }),
            "parsing address pool p: duplicate definition of namespaceSelectors a=b",
        ),
        bad(
            "P5",
            "a value twice in a selector",
            "native",
            json!({ "pool": { "p": { "addresses": ["10.0.0.0/8"], "serviceAllocation": { "namespaceSelectors": [
                { "matchExpressions": [{ "key": "foo", "operator": "In", "values": ["bar", "bar"] }] }] } } } }),
            r#"parsing address pool p: duplicate definition of match expression value in label selector "bar""#,
        ),
        bad(
            "P7",
            "no addresses",
            "native",
            json!({ "pool": { "p": pool(&[]) } }),
            "parsing address pool p: pool has no prefixes defined",
        ),
        bad(
            "P7",
            "no name",
            "native",
            json!({ "pool": { "": pool(&["10.0.0.0/8"]) } }),
            "parsing address pool : missing pool name",
        ),
        bad(
            "P8",
            "octets too large",
            "native",
            json!({ "pool": { "p": pool(&["100.200.300.400/24"]) } }),
            r#"parsing address pool p: invalid CIDR "100.200.300.400/24" in pool "p": invalid CIDR "100.200.300.400/24""#,
        ),
        bad(
            "P8",
            "a prefix too long",
            "native",
            json!({ "pool": { "p": pool(&["1.2.3.0/33"]) } }),
            r#"parsing address pool p: invalid CIDR "1.2.3.0/33" in pool "p": invalid CIDR "1.2.3.0/33""#,
        ),
        bad(
            "P8",
            "a range reversed",
            "native",
            json!({ "pool": { "p": pool(&["1.2.3.10-1.2.3.1"]) } }),
            r#"parsing address pool p: invalid CIDR "1.2.3.10-1.2.3.1" in pool "p": invalid IP range "1.2.3.10-1.2.3.1": start IP "1.2.3.10" is after the end IP "1.2.3.1""#,
        ),
        bad(
            "P9",
            "a leading blank",
            "native",
            json!({ "pool": { "p": pool(&[" 10.0.0.0/8"]) } }),
            r#"parsing address pool p: invalid CIDR " 10.0.0.0/8" in pool "p": invalid CIDR " 10.0.0.0/8""#,
        ),
        bad(
            "P10",
            "one block in another",
            "native",
            json!({ "pool": { "a": pool(&["10.0.0.0/8"]), "b": pool(&["10.0.0.0/16"]) } }),
            r#"CIDR "10.0.0.0/16" in pool "b" overlaps with already defined CIDR "10.0.0.0/8""#,
        ),
        bad(
            "P10",
            "the same block twice",
            "native",
            json!({ "pool": { "a": pool(&["10.0.0.0/8"]), "b": pool(&["10.0.0.0/8"]) } }),
            r#"CIDR "10.0.0.0/8" in pool "b" overlaps with already defined CIDR "10.0.0.0/8""#,
        ),
        bad(
            "P11",
            "two pools of a name",
            "native",
            json!({ "pool": [["p", pool(&["10.0.0.0/16"])], ["p", pool(&["10.1.0.0/16"])]] }),
            r#"duplicate definition of pool "p""#,
        ),
    ]);
}

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
fn advertisements() {
    let echo = |addresses: &str| {
        json!({ "pool": { "p": pool(&[addresses]) }, "adv": { "a": {} }, "bfd": { "f": { "echoMode": true } },
                "peer": { "q": peer(json!({ "bfdProfile": "f" })) } })
    };
    let preferences = |addresses: &[&str], first: Value, second: Value| {
        let with = |preference: u32, mut more: Value| {
            more["localPref"] = json!(preference);
            more
        };
        json!({ "pool": { "p": pool(addresses) }, "adv": { "a": with(100, first), "b": with(200, second) } })
    };
    let conflict = "invalid local preference 200: local preferernce 100 was already set for the same type of BGP update. Check existing BGP advertisements with common pools and aggregation lengths";
    let advertised =
        |addresses: &[&str], spec: Value| json!({ "pool": { "p": pool(addresses) }, "adv": { "a": spec } });
    let selects = json!([{ "matchLabels": { "app": "web" } }]);
    rows(vec![
        bad(
            "P23",
            "echo and IPv6",
            "frr",
            echo("fd00::/64"),
            "pool p has bgpadvertisement a which references peer q which has bfd echo enabled, which is not possible",
        ),
        good("P23", "echo and IPv4", "frr", echo("10.0.0.0/24")),
        bad(
            "P24",
            "an aggregate longer than an address",
            "frr",
            advertised(&["10.0.0.0/24"], json!({ "aggregationLength": 34 })),
            "invalid aggregation length 34 for IPv4",
        ),
        bad(
            "P25",
            "an aggregate larger than one entry",
            "frr",
            advertised(&["10.20.30.40/24", "1.2.3.0/28"], json!({ "aggregationLength": 26 })),
            "invalid aggregation length 26: prefix 28 in this pool is more specific than the aggregation length for addresses 1.2.3.0/28",
        ),
        good(
            "P26",
            "a range that holds an aggregate",
            "frr",
            advertised(&["3.3.3.2-3.3.3.254"], json!({ "aggregationLength": 26 })),
        ),
        bad(
            "P26",
            "a range that holds none",
            "frr",
            advertised(&["3.3.3.2-3.3.3.254"], json!({ "aggregationLength": 24 })),
            "invalid aggregation length 24: prefix 26 in this pool is more specific than the aggregation length for addresses 3.3.3.2-3.3.3.254",
        ),
        bad(
            "P27",
            "two preferences for one route",
            "frr",
            preferences(&["10.0.0.0/16"], json!({}), json!({})),
            conflict,
        ),
        good(
            "P28",
            "other lengths, an IPv4 pool",
            "frr",
            preferences(&["10.0.0.0/16"], json!({ "aggregationLength": 24 }), json!({})),
        ),
        good(
            "P28",
            "both lengths differ, a mixed pool",
            "frr",
            preferences(
                &["10.0.0.0/16", "fd00::/16"],
                json!({ "aggregationLength": 24, "aggregationLengthV6": 64 }),
                json!({}),
            ),
        ),
        good(
            "P29",
            "other nodes",
            "frr",
            preferences(
                &["10.0.0.0/16"],
                json!({ "nodeSelectors": on("first") }),
                json!({ "nodeSelectors": on("second") }),
            ),
        ),
        good(
            "P29",
            "other peers",
            "frr",
            preferences(&["10.0.0.0/16"], json!({ "peers": ["x"] }), json!({ "peers": ["y"] })),
        ),
        bad(
            "P30",
            "a pool twice",
            "frr",
            json!({ "adv": { "a": { "ipAddressPools": ["p", "p"] } } }),
            r#"duplicate definition of ipAddressPools "p""#,
        ),
        bad(
            "P30",
            "a peer twice",
            "frr",
            json!({ "adv": { "a": { "peers": ["q", "q"] } } }),
            r#"duplicate definition of peers "q""#,
        ),
        bad(
            "P30",
            "a community twice",
            "frr",
            json!({ "adv": { "a": { "communities": ["1:2", "1:2"] } } }),
            r#"duplicate definition of community "1:2""#,
        ),
        good(
            "P34",
            "an unknown pool",
            "frr",
            json!({ "adv": { "a": { "ipAddressPools": ["p"] } }, "l2": { "l": { "ipAddressPools": ["p"] } } }),
        ),
        bad(
            "P36",
            "a selector twice, BGP",
            "frr",
            json!({ "adv": { "a": { "ipAddressPoolSelectors": [{ "matchLabels": { "a": "b" } }, { "matchLabels": { "a": "b" } }] } } }),
            "duplicate definition of ipAddressPoolSelectors a=b",
        ),
        bad(
            "P36",
            "a selector twice, layer 2",
            "frr",
            json!({ "l2": { "a": { "ipAddressPoolSelectors": [{ "matchLabels": { "a": "b" } }, { "matchLabels": { "a": "b" } }] } } }),
            "duplicate definition of ipAddressPoolSelectors a=b",
        ),
        bad(
            "P38",
            "the same expression in another order",
            "frr",
            json!({ "l2": { "a": { "nodeSelectors": [{ "matchExpressions": [
                { "key": "k", "operator": "In", "values": ["first", "second"] },
                { "key": "k", "operator": "In", "values": ["second", "first"] }] }] } } }),
            "duplicate definition of match expressions k in (first,second)",
        ),
        bad(
            "P41",
            "a selector and an aggregate",
            "frr",
            json!({ "adv": { "a": { "serviceSelectors": selects, "aggregationLength": 24 } } }),
            "serviceSelectors and aggregationLength are mutually exclusive, both cannot be set in a",
        ),
        bad(
            "P41",
            "a selector and an IPv6 aggregate",
            "frr",
            json!({ "adv": { "a": { "serviceSelectors": selects, "aggregationLengthV6": 64 } } }),
            "serviceSelectors and aggregationLengthV6 are mutually exclusive, both cannot be set in a",
        ),
        good(
            "P41",
            "a selector and the defaults",
            "frr",
            json!({ "adv": { "a": { "serviceSelectors": selects, "aggregationLength": 32, "aggregationLengthV6": 128 } } }),
        ),
        bad(
            "P42",
            "a selector of Services twice",
            "frr",
            json!({ "adv": { "a": { "serviceSelectors": [{ "matchLabels": { "a": "b" } }, { "matchLabels": { "a": "b" } }] } } }),
            "duplicate definition of serviceSelectors a=b",
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

/// What becomes of configurations that are accepted.
fn config(objects: &Value) -> Config {
    valid(&resources("frr", objects))
}

#[test]
fn p2_ranges_become_their_smallest_list_of_blocks() {
    let entries = ["40.0.0.150-40.0.0.200", "40.0.0.210 - 40.0.0.240", "40.0.0.250 - 40.0.0.250"];
    let config = config(&json!({ "pool": { "p": pool(&entries) } }));
    let first = ["40.0.0.150/31", "40.0.0.152/29", "40.0.0.160/27", "40.0.0.192/29", "40.0.0.200/32"];
    let second = ["40.0.0.210/31", "40.0.0.212/30", "40.0.0.216/29", "40.0.0.224/28", "40.0.0.240/32"];
    let expected: Vec<&str> = first.into_iter().chain(second).chain(["40.0.0.250/32"]).collect();
    assert_eq!(blocks(&config.pools["p"]), expected);
}

#[test]
fn p3_a_pool_is_used_unasked_unless_it_says_otherwise() {
    let spec = |auto: Value| json!({ "addresses": ["10.0.0.0/24"], "autoAssign": auto });
    for (objects, expected) in [
        (json!({ "pool": { "p": pool(&["10.0.0.0/24"]) } }), true),
        (json!({ "pool": { "p": spec(json!(true)) } }), true),
        (json!({ "pool": { "p": spec(json!(false)) } }), false),
    ] {
        assert_eq!(config(&objects).pools["p"].auto_assign, expected, "{objects}");
    }
}

#[test]
fn va_9_a_reference_to_nothing_is_one_fault_until_there_is_something() {
    for (spec, missing, there) in [
        (
            json!({ "bfdProfile": "f" }),
            "peer q referencing non existing bfd profile f",
            json!({ "bfd": { "f": {} } }),
        ),
        (
            json!({ "passwordSecret": { "name": "s" } }),
            "parsing peer q secret ref not found for peer config \"metallb-system\"/\"s\"",
            json!({ "secret": { "s": { "type": "kubernetes.io/basic-auth", "key": "password" } } }),
        ),
    ] {
        let mut objects = json!({ "peer": { "q": peer(spec) } });
        let before = fresh(&resources("frr", &objects));
        assert_eq!(before.diagnostics.len(), 1, "{missing}");
        assert!(before.verdict.is_err());
        objects.as_object_mut().unwrap().extend(there.as_object().unwrap().clone());
        let after = fresh(&resources("frr", &objects));
        assert_eq!((after.diagnostics.len(), after.verdict), (0, Ok(())), "{missing}");
    }
}

#[test]
fn p4_p6_restrictions_are_the_union_of_names_and_selected_namespaces() {
    let restricted = |allocation: Value| {
        let objects =
            json!({ "pool": { "p": { "addresses": ["10.0.0.0/24"], "serviceAllocation": allocation } } });
        config(&objects).pools["p"].allocation.clone().unwrap()
    };
    let namespaces = |allocation: Value| {
        let found = restricted(allocation).namespaces;
        found.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let team = |team: &str| json!([{ "matchLabels": { "team": team } }]);
    assert_eq!(namespaces(json!({ "namespaces": ["ns1"] })), Some(vec!["ns1".to_owned()]), "P4");
    assert_eq!(namespaces(json!({ "namespaceSelectors": team("a") })), Some(vec!["ns2".to_owned()]), "P4");
    // MetalLB takes an empty set for no restriction (S5); it matches nothing here.
    assert_eq!(namespaces(json!({ "namespaceSelectors": team("z") })), Some(vec![]), "P4");
    let only_priority = restricted(json!({ "priority": 7 }));
    assert_eq!((only_priority.priority, only_priority.namespaces), (7, None), "P6");
    assert!(only_priority.service_selectors[0].matches(&labels(&[("any", "thing")])), "P6");
}

#[test]
fn p34_p35_advertisements_are_attached_to_what_they_name_or_select() {
    let pools = json!({ "pool": { "p": { "addresses": ["10.0.0.0/24"] } } });
    let mut labelled: ferrolb_api::IPAddressPool =
        object("q", 1, &json!({ "tier": "gold" }), &pool(&["10.0.1.0/24"]));
    labelled.metadata.namespace = Some("metallb-system".to_owned());
    let select = |tier: &str| json!({ "ipAddressPoolSelectors": [{ "matchLabels": { "tier": tier } }] });
    for (id, spec, on_p, on_q) in [
        ("P34", json!({ "ipAddressPools": ["unknown"] }), false, false),
        ("P34", json!({ "ipAddressPools": ["unknown", "p"] }), true, false),
        ("P35", select("gold"), false, true),
        ("P35", select("silver"), false, false),
    ] {
        let mut resources = resources("frr", &pools);
        resources.pools.push(labelled.clone());
        resources.l2_advertisements = vec![object("l", 0, &json!({}), &spec)];
        let config = valid(&resources);
        let attached = |pool: &str| !config.pools[pool].l2_advertisements.is_empty();
        assert_eq!((attached("p"), attached("q")), (on_p, on_q), "{id}: {spec}");
    }
}

#[test]
fn p37_p39_nodes_and_interfaces_are_those_named_or_all() {
    let announced = |spec: Value| {
        let config = config(&json!({ "pool": { "p": pool(&["10.0.0.0/24"]) }, "l2": { "l": spec } }));
        let advertisement = config.pools["p"].l2_advertisements[0].clone();
        let nodes: Vec<String> = advertisement.nodes.iter().map(ToString::to_string).collect();
        (nodes.join(" "), format!("{:?}", advertisement.interfaces))
    };
    assert_eq!(announced(json!({})), ("first second".to_owned(), "All".to_owned()), "P37, P39");
    assert_eq!(announced(json!({ "nodeSelectors": on("second") })).0, "second", "P37");
    let (_, named) = announced(json!({ "interfaces": ["eth0", "eth1"] }));
    assert!(named.contains("eth0") && named.contains("eth1"), "P39: {named}");
}

#[test]
fn p40_equal_advertisements_of_a_pool_count_once() {
    let both = json!([{ "matchLabels": { "node": "first" } }, { "matchLabels": { "node": "second" } }]);
    let reversed = json!([{ "matchLabels": { "node": "second" } }, { "matchLabels": { "node": "first" } }]);
    for (first, second, count) in [
        (json!({ "nodeSelectors": both }), json!({ "nodeSelectors": reversed }), 1),
        (json!({ "interfaces": ["a", "b"] }), json!({ "interfaces": ["b", "a"] }), 1),
        (json!({ "nodeSelectors": on("first") }), json!({ "nodeSelectors": on("second") }), 2),
        (json!({ "interfaces": ["a"] }), json!({ "interfaces": ["b"] }), 2),
        (json!({ "interfaces": ["a"] }), json!({}), 2),
        (json!({ "serviceSelectors": [{ "matchLabels": { "a": "b" } }] }), json!({}), 2),
    ] {
        let config =
            config(&json!({ "pool": { "p": pool(&["10.0.0.0/24"]) }, "l2": { "a": first, "b": second } }));
        assert_eq!(config.pools["p"].l2_advertisements.len(), count, "{first} {second}");
    }
}

#[test]
fn p42_selectors_of_services_are_alternatives() {
    let web_or_db = json!([{ "matchLabels": { "app": "web" } }, { "matchLabels": { "app": "db" } }]);
    let config = config(
        &json!({ "pool": { "p": pool(&["10.0.0.0/24"]) }, "l2": { "l": { "serviceSelectors": web_or_db } } }),
    );
    let advertisement = &config.pools["p"].l2_advertisements[0];
    for (app, expected) in [("web", true), ("db", true), ("mail", false)] {
        assert_eq!(advertisement.selects(&labels(&[("app", app)])), expected, "{app}");
    }
}

#[test]
fn p43_p44_neither_order_nor_strangers_change_a_configuration() {
    let objects = json!({
        "pool": { "p": pool(&["10.0.0.0/24"]), "q": pool(&["10.0.1.0/24"]), "r": pool(&["10.0.2.0/24"]) },
        "l2": { "a": { "ipAddressPools": ["p"] }, "b": { "ipAddressPools": ["q", "r"] } },
        "comm": { "c": { "communities": [{ "name": "x", "value": "1:1" }] } },
    });
    let expected = config(&objects);
    let mut shuffled = resources("frr", &objects);
    shuffled.pools.reverse();
    shuffled.l2_advertisements.reverse();
    assert_eq!(valid(&shuffled), expected, "P43");
    let mut with_secret = resources("frr", &objects);
    with_secret.secrets.push(Secret::default());
    assert_eq!(valid(&with_secret), expected, "P44");
}

#[test]
fn k3_a_standard_community_is_ordered_as_a_large_one() {
    let community = |text: &str| text.parse::<ferrolb_config::BgpCommunity>().unwrap();
    assert!(community("0:1234") >= community("large:123:456:789"), "it counts as 1234, 0, 0");
    assert!(community("0:1") < community("large:2:0:0"));
    assert!(community("large:1:2:3") < community("large:1:2:4"));
}

#[test]
fn sharp_edges() {
    let advertised =
        |addresses: &[&str], spec: Value| json!({ "pool": { "p": pool(addresses) }, "adv": { "a": spec } });
    rows(vec![
        bad(
            "S15",
            "a range of two families, which MetalLB accepts and crashes on later",
            "frr",
            json!({ "pool": { "p": pool(&["10.0.0.1-fd00::1"]) } }),
            r#"parsing address pool p: invalid CIDR "10.0.0.1-fd00::1" in pool "p": invalid IP range "10.0.0.1-fd00::1": start IP "10.0.0.1" and end IP "fd00::1" have different families"#,
        ),
        bad(
            "S16",
            "the number, not a character",
            "frr",
            advertised(&["10.0.0.0/24"], json!({ "aggregationLength": 33 })),
            "invalid aggregation length 33 for IPv4",
        ),
        bad(
            "S16",
            "the length that is at fault",
            "frr",
            advertised(&["fd00::/126"], json!({ "aggregationLengthV6": 64 })),
            "invalid aggregation length 64: prefix 126 in this pool is more specific than the aggregation length for addresses fd00::/126",
        ),
        bad(
            "S24",
            "a negative preference",
            "frr",
            advertised(&["10.0.0.0/24"], json!({ "localPref": -1 })),
            "invalid local preference -1 in a, must be in 0-4294967295 range",
        ),
        good(
            "S33",
            "more than one hop, whatever AS it turns out to be",
            "frr",
            json!({ "peer": { "q": peer(json!({ "peerASN": null, "dynamicASN": "internal", "ebgpMultiHop": true })) } }),
        ),
        good(
            "S33",
            "a hold time that BGP cannot say",
            "frr",
            json!({ "peer": { "q": peer(json!({ "holdTime": "1000h" })) } }),
        ),
        good(
            "S33",
            "a fraction of a second counts as zero",
            "frr",
            json!({ "peer": { "q": peer(json!({ "holdTime": "900ms" })) } }),
        ),
        bad(
            "S39",
            "blocks are not trimmed, ends of ranges are",
            "frr",
            json!({ "pool": { "p": pool(&[" 10.0.0.1 - 10.0.0.9 "]), "q": pool(&["10.1.0.0/24 "]) } }),
            r#"parsing address pool q: invalid CIDR "10.1.0.0/24 " in pool "q": invalid CIDR "10.1.0.0/24 ""#,
        ),
    ]);
}

#[test]
fn s34_a_pool_that_is_named_and_selected_is_attached_once() {
    let mut labelled = resources(
        "frr",
        &json!({ "l2": { "l": {
        "ipAddressPools": ["p"], "ipAddressPoolSelectors": [{ "matchLabels": { "tier": "gold" } }] } } }),
    );
    labelled.pools = vec![object("p", 1, &json!({ "tier": "gold" }), &pool(&["10.0.1.0/24"]))];
    assert_eq!(valid(&labelled).pools["p"].l2_advertisements.len(), 1);
}

/// MetalLB's log shows the password that it read from a Secret.
#[test]
fn s9_no_text_of_an_evaluation_holds_a_password() {
    let inline = peer(json!({ "password": "hunter2" }));
    let both =
        peer(json!({ "password": "hunter2", "passwordSecret": { "name": "s" }, "peerAddress": "1.2.3.5" }));
    let by_secret =
        peer(json!({ "passwordSecret": { "name": "s" }, "peerAddress": "1.2.3.6", "routerID": "x" }));
    for kind in ["kubernetes.io/basic-auth", "Opaque"] {
        for bgp in ["native", "frr"] {
            let mut objects = resources(
                bgp,
                &json!({
                    "peer": { "a": inline, "b": both, "c": by_secret },
                    "secret": { "s": { "type": kind, "key": "password" } },
                }),
            );
            let data = objects.secrets[0].data.as_mut().unwrap();
            data.insert("password".to_owned(), ByteString(b"hunter2".to_vec()));
            let evaluation = fresh(&objects);
            assert!(evaluation.verdict.is_err(), "{kind} {bgp}");
            let told = format!(
                "{:?} {:?} {:?} {:?}",
                evaluation.diagnostics, evaluation.unsupported, evaluation.verdict, evaluation.config
            );
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
}

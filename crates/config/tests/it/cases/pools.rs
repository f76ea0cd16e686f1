// SPDX-License-Identifier: Apache-2.0
//! Pools, what advertises them, and where MetalLB's own answers are sharp edges.

use serde_json::{Value, json};

use super::{bad, good, on, peer, pool, rows};

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

// SPDX-License-Identifier: Apache-2.0
//! BGP objects: what is refused, in which words, in which order.

use std::collections::BTreeMap;

use ferrolb_config::state::Outcome;
use ferrolb_config::{BgpType, Resources, evaluate};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use similar_asserts::assert_eq;

use crate::build::{addresses, community, fresh, labels, object};

/// A bench with three nodes and the rules of FRR.
fn bench() -> Resources {
    let node = |name: &str| (name.into(), labels(&[("name", name), ("all", "yes")]));
    Resources {
        bgp_type: BgpType::Frr,
        nodes: BTreeMap::from(["n1", "n2", "n3"].map(node)),
        ..Resources::default()
    }
}

fn named<T: serde::de::DeserializeOwned>(name: &str, spec: &Value) -> T {
    object(name, 0, &json!({}), spec)
}

fn merged(mut base: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

/// A good peer, with these fields set otherwise; `null` takes one away.
fn peer_spec(more: &Value) -> Value {
    let mut spec = merged(json!({ "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1" }), more);
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    // The one field that the schema requires.
    spec.as_object_mut().unwrap().entry("myASN").or_insert(json!(0));
    spec
}

fn verdict_on_peer(more: &Value) -> Result<(), String> {
    fresh(&Resources { bgp_peers: vec![named("q", &peer_spec(more))], ..bench() }).verdict
}

fn refused(text: &str) -> Result<(), String> {
    Err(text.to_owned())
}

#[test]
fn peers_are_refused_in_metallbs_words() {
    for (more, error) in [
        (json!({ "myASN": null }), "missing local ASN"),
        (json!({ "peerASN": null }), "missing peer ASN and dynamicASN"),
        (json!({ "dynamicASN": "external" }), "both peer ASN and dynamicASN specified"),
        (json!({ "peerASN": null, "dynamicASN": "both" }), "invalid dynamicASN both"),
        (
            json!({ "peerASN": 64512, "ebgpMultiHop": true }),
            "invalid ebgp-multihop parameter set for an ibgp peer",
        ),
        (json!({ "peerAddress": null }), "peer has no Address or Interface specified"),
        (json!({ "interface": "ens18" }), "peer has both Address and Interface specified"),
        (json!({ "peerAddress": "router.example" }), r#"invalid BGPPeer address "router.example""#),
        (json!({ "routerID": "nine" }), r#"invalid router ID "nine""#),
        (json!({ "sourceAddress": "192.168.10" }), r#"invalid source IP "192.168.10""#),
        (json!({ "holdTime": "1s" }), r#"invalid BGPPeer timers: invalid hold time "1s": must be 0 or >=3s"#),
        (
            json!({ "holdTime": "2999ms" }),
            r#"invalid BGPPeer timers: invalid hold time "2.999s": must be 0 or >=3s"#,
        ),
        (
            json!({ "holdTime": "30s", "keepaliveTime": "90s" }),
            r#"invalid BGPPeer timers: invalid keepaliveTime "1m30s", must be lower than holdTime "30s""#,
        ),
        (
            json!({ "nodeSelectors": [{ "matchLabels": { "a": "b" } }, { "matchLabels": { "a": "b" } }] }),
            "duplicate definition of nodeSelectors a=b",
        ),
        (
            json!({ "nodeSelectors": [{ "matchExpressions": [{ "key": "a", "operator": "surrounds", "values": ["b"] }] }] }),
            "\"surrounds\" is not a valid label selector operator\nfailed to convert peer q node selector",
        ),
        // The first fault in this order is the one that is told.
        (json!({ "myASN": null, "peerAddress": "x", "routerID": "y" }), "missing local ASN"),
        (
            json!({ "peerAddress": "x", "holdTime": "1s" }),
            r#"invalid BGPPeer timers: invalid hold time "1s": must be 0 or >=3s"#,
        ),
    ] {
        assert_eq!(verdict_on_peer(&more), refused(&format!("parsing peer q {error}")), "{more}");
    }
}

#[test]
fn peers_that_metallb_accepts_are_accepted() {
    for more in [
        json!({}),
        json!({ "peerASN": null, "dynamicASN": "internal" }),
        json!({ "peerASN": null, "dynamicASN": "internal", "ebgpMultiHop": true }),
        json!({ "peerAddress": null, "interface": "ens18" }),
        json!({ "peerASN": 64512 }),
        json!({ "ebgpMultiHop": true }),
        json!({ "routerID": "fd00::1" }),
        json!({ "holdTime": "180s" }),
        json!({ "keepaliveTime": "60s" }),
        json!({ "holdTime": "0s", "keepaliveTime": "0s" }),
        json!({ "holdTime": "900ms" }),
        json!({ "holdTime": "3s" }),
        json!({ "holdTime": "1000h" }),
        json!({ "localASN": 64512 }),
    ] {
        assert_eq!(verdict_on_peer(&more), Ok(()), "{more}");
    }
}

#[test]
fn bg_41_a_peer_of_the_own_system_that_says_it_is_far_away_is_invalid_and_any_other_is_not() {
    let far = |peer: Value| {
        let mut spec = peer_spec(&peer);
        spec["ebgpMultiHop"] = json!(true);
        spec
    };
    for bgp_type in [BgpType::Native, BgpType::Frr] {
        let of = |spec: &Value| {
            fresh(&Resources { bgp_type: bgp_type.clone(), bgp_peers: vec![named("q", spec)], ..bench() })
        };
        let inner = far(json!({ "peerASN": 64512 }));
        let text = "parsing peer q invalid ebgp-multihop parameter set for an ibgp peer";
        assert_eq!(of(&inner).verdict, refused(text), "{bgp_type:?}");
        let outer = of(&far(json!({})));
        assert_eq!(outer.verdict, Ok(()), "{bgp_type:?}");
        assert!(outer.config.bgp.peers["q"].multihop, "{bgp_type:?}");
        let near = of(&peer_spec(&json!({})));
        assert!(!near.config.bgp.peers["q"].multihop, "{bgp_type:?}");
    }
}

#[test]
fn who_names_a_secret_of_which_nothing_is_known_yet_stays_as_it_was() {
    let by_secret = || named("q", &peer_spec(&json!({ "passwordSecret": { "name": "s" } })));
    let awaited =
        |peer| Resources { bgp_peers: vec![peer], awaited_secrets: ["s".to_owned()].into(), ..bench() };
    let new = fresh(&awaited(by_secret()));
    assert_eq!((&new.verdict, &new.diagnostics), (&Ok(()), &vec![]));
    assert!(new.config.bgp.peers.is_empty());
    let plain = fresh(&Resources { bgp_peers: vec![named("q", &peer_spec(&json!({})))], ..bench() });
    assert_eq!(plain.config.bgp.peers.len(), 1);
    let later = evaluate(&awaited(by_secret()), &plain.last_good);
    assert_eq!((&later.verdict, &later.config.bgp.peers), (&Ok(()), &plain.config.bgp.peers));
    // Its other faults are known at once.
    let bad = named("q", &peer_spec(&json!({ "myASN": 0, "passwordSecret": { "name": "s" } })));
    assert!(fresh(&awaited(bad)).verdict.is_err());
}

fn secret(name: &str, kind: &str, key: &str) -> Secret {
    let mut secret = Secret { type_: Some(kind.to_owned()), ..Secret::default() };
    secret.metadata.name = Some(name.to_owned());
    secret.data = Some(BTreeMap::from([(key.to_owned(), ByteString(b"x".to_vec()))]));
    secret
}

#[test]
fn passwords_come_from_one_place_that_exists() {
    let by_secret = json!({ "passwordSecret": { "name": "s" } });
    let wrapped = |text: &str| format!("parsing peer q {text}\nfailed to parse peer q password secret");
    for (more, secrets, expected, transient) in [
        (&by_secret, vec![secret("s", "kubernetes.io/basic-auth", "password")], Ok(()), false),
        (
            &json!({ "password": "x", "passwordSecret": { "name": "s" } }),
            vec![],
            Err(r#"parsing peer q can not have both password and secret ref set in peer config "ns"/"q""#
                .to_owned()),
            false,
        ),
        (&json!({ "password": "x", "passwordSecret": { "namespace": "elsewhere" } }), vec![], Ok(()), false),
        (&by_secret, vec![], Err(wrapped(r#"secret ref not found for peer config "ns"/"q""#)), true),
        (
            &by_secret,
            vec![secret("s", "Opaque", "password")],
            Err(wrapped(r#"secret type mismatch on "ns"/"s", type "kubernetes.io/basic-auth" is expected "#)),
            false,
        ),
        (
            &by_secret,
            vec![secret("s", "kubernetes.io/basic-auth", "secret")],
            Err(wrapped(r#"password not specified in the secret "ns"/"s""#)),
            false,
        ),
    ] {
        let mut peer: ferrolb_api::BGPPeer = named("q", &peer_spec(more));
        peer.metadata.namespace = Some("ns".to_owned());
        let evaluation = fresh(&Resources { bgp_peers: vec![peer], secrets, ..bench() });
        assert_eq!(evaluation.verdict, expected, "{more}");
        assert_eq!(evaluation.diagnostics.first().is_some_and(|d| d.transient), transient, "{more}");
    }
}

#[test]
fn profiles_have_ranges_and_peers_name_profiles_that_exist() {
    for (spec, error) in [
        (
            json!({ "receiveInterval": 2 }),
            "invalid value 2, must be in 10-60000 range\ninvalid receive interval value",
        ),
        (
            json!({ "receiveInterval": 90000 }),
            "invalid value 90000, must be in 10-60000 range\ninvalid receive interval value",
        ),
        (
            json!({ "detectMultiplier": 1, "echoInterval": 1 }),
            "invalid value 1, must be in 2-255 range\ninvalid detect multiplier value",
        ),
        (
            json!({ "minimumTtl": 255 }),
            "invalid value 255, must be in 1-254 range\ninvalid minimum ttl value",
        ),
    ] {
        let profiles = vec![named("good", &json!({})), named("second", &spec)];
        let verdict = fresh(&Resources { bfd_profiles: profiles, ..bench() }).verdict;
        assert_eq!(verdict, refused(&format!("parsing bfd profile #2: {error}")), "{spec}");
    }
    let twice = vec![named("f", &json!({})), object("f", 1, &json!({}), &json!({}))];
    assert_eq!(
        fresh(&Resources { bfd_profiles: twice, ..bench() }).verdict,
        refused("found duplicate bfd profile name f")
    );
    let dangling = fresh(&Resources {
        bgp_peers: vec![named("q", &peer_spec(&json!({ "bfdProfile": "f" })))],
        ..bench()
    });
    assert_eq!(dangling.verdict, refused("peer q referencing non existing bfd profile f"));
    assert!(dangling.diagnostics[0].transient);
}

fn verdict_on_advertisements(pools: &[(&str, &[&str])], specs: &[Value]) -> Result<(), String> {
    let resources = Resources {
        pools: pools.iter().map(|(name, entries)| addresses(name, entries)).collect(),
        bgp_advertisements: specs
            .iter()
            .enumerate()
            .map(|(i, spec)| named(&format!("adv{i}"), spec))
            .collect(),
        ..bench()
    };
    fresh(&resources).verdict
}

#[test]
fn an_advertisement_that_is_refused_is_named_with_its_field_beside_metallbs_words() {
    let bad = json!([{ "matchExpressions": [{ "key": "a", "operator": "surrounds", "values": ["b"] }] }]);
    let pools: &[(&str, &[&str])] = &[("p", &["10.0.0.0/24"])];
    for (spec, place) in [
        (json!({ "communities": ["1:2", "nope"] }), r#"spec.communities "nope""#),
        (json!({ "communities": ["larg:1:2:3"] }), r#"spec.communities "larg:1:2:3""#),
        (json!({ "communities": ["1:2", "1:2"] }), "spec.communities"),
        (json!({ "peers": ["q", "q"] }), "spec.peers"),
        (json!({ "aggregationLength": 34 }), "spec.aggregationLength 34"),
        (json!({ "aggregationLengthV6": 129 }), "spec.aggregationLengthV6 129"),
        (json!({ "aggregationLength": 20 }), "spec.aggregationLength 20 on IPAddressPool p"),
        (json!({ "localPref": -1 }), "spec.localPref -1"),
        (json!({ "nodeSelectors": bad }), "spec.nodeSelectors"),
        (json!({ "localPref": 7 }), "spec.localPref 7 beside 0 of BGPAdvertisement adv0 on IPAddressPool p"),
    ] {
        let resources = Resources {
            pools: pools.iter().map(|(name, entries)| addresses(name, entries)).collect(),
            bgp_advertisements: vec![named("adv0", &json!({})), named("adv1", &spec)],
            ..bench()
        };
        let outcome = Outcome::from(&fresh(&resources));
        let text = outcome.verdict.unwrap_err();
        assert!(!text.contains("BGPAdvertisement"), "it is MetalLB's: {text}");
        assert_eq!(outcome.further, [format!("BGPAdvertisement adv1, {place}: {text}")]);
    }
}

#[test]
fn bg_22_aggregates_must_lie_within_every_entry_of_the_pool() {
    let four: &[(&str, &[&str])] = &[("p", &["10.20.30.40/24", "1.2.3.0/28"])];
    let range: &[(&str, &[&str])] = &[("p", &["3.3.3.2-3.3.3.254"])];
    let six: &[(&str, &[&str])] = &[("p", &["fd00::/126"])];
    for (pools, spec, expected) in [
        (four, json!({ "aggregationLength": 34 }), refused("invalid aggregation length 34 for IPv4")),
        (four, json!({ "aggregationLengthV6": 129 }), refused("invalid aggregation length 129 for IPv6")),
        (four, json!({ "aggregationLengthV6": -1 }), Ok(())),
        (
            four,
            json!({ "aggregationLength": 26 }),
            refused(
                "invalid aggregation length 26: prefix 28 in this pool is more specific than the aggregation length for addresses 1.2.3.0/28",
            ),
        ),
        (four, json!({ "aggregationLength": 28 }), Ok(())),
        (four, json!({ "aggregationLength": 8, "ipAddressPools": ["unknown"] }), Ok(())),
        (range, json!({ "aggregationLength": 26 }), Ok(())),
        (
            range,
            json!({ "aggregationLength": 24 }),
            refused(
                "invalid aggregation length 24: prefix 26 in this pool is more specific than the aggregation length for addresses 3.3.3.2-3.3.3.254",
            ),
        ),
        (
            six,
            json!({ "aggregationLengthV6": 64 }),
            refused(
                "invalid aggregation length 64: prefix 126 in this pool is more specific than the aggregation length for addresses fd00::/126",
            ),
        ),
    ] {
        assert_eq!(verdict_on_advertisements(pools, std::slice::from_ref(&spec)), expected, "{spec}");
    }
}

#[test]
fn two_preferences_for_one_route_conflict() {
    let conflict = refused(
        "invalid local preference 200: local preferernce 100 was already set for the same type of BGP update. \
         Check existing BGP advertisements with common pools and aggregation lengths",
    );
    let on = |name: &str| json!([{ "matchLabels": { "name": name } }]);
    let web = json!([{ "matchLabels": { "app": "web" } }]);
    let v4: &[&str] = &["10.0.0.0/16"];
    let v6: &[&str] = &["fd00::/16"];
    let both: &[&str] = &["10.0.0.0/16", "fd00::/16"];
    for (entries, first, second, conflicts) in [
        (v4, json!({}), json!({}), true),
        (v4, json!({ "localPref": 200 }), json!({}), false),
        (v4, json!({ "aggregationLength": 24 }), json!({}), false),
        (v4, json!({ "aggregationLengthV6": 64 }), json!({}), true),
        (v6, json!({ "aggregationLengthV6": 64 }), json!({}), false),
        (v6, json!({ "aggregationLength": 24 }), json!({}), true),
        (both, json!({ "aggregationLength": 24 }), json!({}), true),
        (both, json!({ "aggregationLength": 24, "aggregationLengthV6": 64 }), json!({}), false),
        (v4, json!({ "nodeSelectors": on("n1") }), json!({ "nodeSelectors": on("n2") }), false),
        (v4, json!({ "nodeSelectors": on("n1") }), json!({}), true),
        (v4, json!({ "peers": ["x"] }), json!({ "peers": ["y"] }), false),
        (v4, json!({ "peers": ["x"] }), json!({ "peers": ["y", "x"] }), true),
        (v4, json!({ "peers": ["x"] }), json!({}), true),
        (v4, json!({ "serviceSelectors": web }), json!({}), false),
        (v4, json!({ "ipAddressPools": ["other"] }), json!({}), false),
    ] {
        let specs =
            [merged(json!({ "localPref": 100 }), &first), merged(json!({ "localPref": 200 }), &second)];
        let expected = if conflicts { conflict.clone() } else { Ok(()) };
        assert_eq!(verdict_on_advertisements(&[("p", entries)], &specs), expected, "{entries:?} {specs:?}");
    }
}

#[test]
fn advertisements_are_refused_in_metallbs_words() {
    let web = json!([{ "matchLabels": { "app": "web" } }]);
    let bad = json!([{ "matchExpressions": [{ "key": "a", "operator": "surrounds", "values": ["b"] }] }]);
    let cause = r#""surrounds" is not a valid label selector operator"#;
    for (spec, text) in [
        (json!({ "ipAddressPools": ["p", "p"] }), r#"duplicate definition of ipAddressPools "p""#.to_owned()),
        (json!({ "peers": ["q", "q"] }), r#"duplicate definition of peers "q""#.to_owned()),
        (json!({ "communities": ["1:2", "1:2"] }), r#"duplicate definition of community "1:2""#.to_owned()),
        (
            json!({ "serviceSelectors": web, "aggregationLength": 24 }),
            "serviceSelectors and aggregationLength are mutually exclusive, both cannot be set in adv0".to_owned(),
        ),
        (
            json!({ "serviceSelectors": web, "aggregationLengthV6": 64 }),
            "serviceSelectors and aggregationLengthV6 are mutually exclusive, both cannot be set in adv0".to_owned(),
        ),
        (
            json!({ "communities": ["nope"] }),
            "invalid community format: nope\ninvalid community \"nope\" in BGP advertisement".to_owned(),
        ),
        (
            json!({ "communities": ["larg:1:2:3"] }),
            "invalid community value: invalid marker for large community, expected community to be of format \
             large:<uint32>:<uint32>:<uint32> but got \"larg:1:2:3\" instead\ninvalid community \"larg:1:2:3\" in BGP \
             advertisement"
                .to_owned(),
        ),
        (json!({ "ipAddressPoolSelectors": bad }), format!("{cause}\ninvalid label selector a surrounds (b)")),
        (
            json!({ "nodeSelectors": bad }),
            format!("{cause}\ninvalid label selector a surrounds (b)\nfailed to parse node selector for adv0"),
        ),
        (
            json!({ "serviceSelectors": bad }),
            format!("invalid service selector a surrounds (b): {cause}\nfailed to parse service selector for adv0"),
        ),
        (
            json!({ "localPref": -1 }),
            "invalid local preference -1 in adv0, must be in 0-4294967295 range".to_owned(),
        ),
    ] {
        assert_eq!(verdict_on_advertisements(&[], std::slice::from_ref(&spec)), Err(text), "{spec}");
    }
    assert_eq!(
        verdict_on_advertisements(&[], &[json!({ "serviceSelectors": web, "aggregationLength": 32 })]),
        Ok(())
    );
}

#[test]
fn a_community_may_be_a_name_and_a_name_wins() {
    let resources = |list: Value| Resources {
        communities: vec![community("c", &[("vpn", "large:123:64512:1234"), ("99999999:1", "1:1")])],
        bgp_advertisements: vec![named("a", &json!({ "communities": list }))],
        ..bench()
    };
    assert_eq!(fresh(&resources(json!(["vpn", "99999999:1", "64512:7"]))).verdict, Ok(()));
    let unknown = fresh(&resources(json!(["later"])));
    assert_eq!(
        unknown.verdict,
        refused("invalid community format: later\ninvalid community \"later\" in BGP advertisement")
    );
    assert!(unknown.diagnostics[0].transient, "the name may be defined later");
    assert!(!fresh(&resources(json!(["1:x"]))).diagnostics[0].transient);
}

#[test]
fn echo_mode_and_ipv6_exclude_each_other() {
    let resources = |entry: &str, peers: Value| Resources {
        pools: vec![addresses("p", &[entry])],
        bfd_profiles: vec![named("f", &json!({ "echoMode": true }))],
        bgp_peers: vec![named("q", &peer_spec(&json!({ "bfdProfile": "f" })))],
        bgp_advertisements: vec![named("a", &json!({ "peers": peers }))],
        ..bench()
    };
    let text = "pool p has bgpadvertisement a which references peer q which has bfd echo enabled, which is not possible";
    assert_eq!(fresh(&resources("fd00::/64", json!([]))).verdict, refused(text));
    assert_eq!(fresh(&resources("fd00::/64", json!(["q"]))).verdict, refused(text));
    assert_eq!(fresh(&resources("fd00::/64", json!(["other"]))).verdict, Ok(()));
    assert_eq!(fresh(&resources("10.0.0.0/24", json!([]))).verdict, Ok(()));
}

#[test]
fn native_bgp_refuses_what_it_does_not_do() {
    for (more, what, field) in [
        (json!({ "bfdProfile": "f", "vrf": "red" }), "bfd-profile", "bfdProfile f"),
        (json!({ "keepaliveTime": "10s" }), "keepalive-time", "keepaliveTime 10s"),
        (json!({ "vrf": "red" }), "vrf", "vrf red"),
        (json!({ "connectTime": "10s" }), "connect time", "connectTime 10s"),
        (
            json!({ "enableGracefulRestart": true }),
            "EnableGracefulRestart flag",
            "enableGracefulRestart true",
        ),
        (json!({ "disableMP": true }), "disable MP flag", "disableMP true"),
        (
            json!({ "dualStackAddressFamily": true }),
            "dualstackaddressfamily flag",
            "dualStackAddressFamily true",
        ),
        (json!({ "dynamicASN": "external" }), "dynamicASN", "dynamicASN external"),
        (json!({ "interface": "ens18" }), "interface", "interface ens18"),
        (json!({ "localASN": 64999 }), "localASN", "localASN 64999"),
    ] {
        let peers = vec![named("q", &peer_spec(&more))];
        let evaluation = fresh(&Resources { bgp_type: BgpType::Native, bgp_peers: peers, ..bench() });
        let text = format!("peer 192.168.10.1 has {what} set on native bgp mode");
        assert_eq!(evaluation.verdict, refused(&text), "{more}");
        // The object is named after it.
        let named = evaluation.further().next().map(ToString::to_string);
        assert_eq!(named, Some(format!("BGPPeer q, spec.{field}: {text}")), "{more}");
    }
    let keepalive_zero =
        vec![named("q", &peer_spec(&json!({ "keepaliveTime": "0s", "enableGracefulRestart": false })))];
    assert_eq!(
        fresh(&Resources { bgp_type: BgpType::Native, bgp_peers: keepalive_zero, ..bench() }).verdict,
        Ok(())
    );
    let profile = vec![named("f", &json!({}))];
    let evaluation = fresh(&Resources { bgp_type: BgpType::Native, bfd_profiles: profile, ..bench() });
    assert_eq!(evaluation.verdict, refused("bfd profiles section set"));
    let named: Vec<_> = evaluation.further().map(ToString::to_string).collect();
    assert_eq!(named, ["BFDProfile f, METALLB_BGP_TYPE native: bfd profiles section set"]);
}

#[test]
fn peers_of_frr_that_share_a_node_must_agree() {
    let on = |name: &str| json!([{ "matchLabels": { "name": name } }]);
    let everywhere = json!([{ "matchLabels": { "all": "yes" } }]);
    let nowhere = json!([{ "matchLabels": { "name": "gone" } }]);
    let duplicate = "peer 192.168.10.1 already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node";
    let router_id = |a: &str, b: &str| {
        format!(
            "peer {a} has RouterID different from {b}, in FRR mode peers selecting the same node must all have the same RouterID"
        )
    };
    let other = json!("192.168.10.2");
    for (first, second, expected) in [
        (json!({}), json!({ "peerAddress": other }), Ok(())),
        (json!({ "routerID": "10.0.0.1" }), json!({ "peerAddress": other, "routerID": "10.0.0.1" }), Ok(())),
        (
            json!({ "routerID": "10.0.0.1" }),
            json!({ "peerAddress": other, "routerID": "10.0.0.2" }),
            Err(router_id("10.0.0.2", "10.0.0.1")),
        ),
        (json!({ "routerID": "10.0.0.1" }), json!({ "peerAddress": other }), Err(router_id("", "10.0.0.1"))),
        (
            json!({}),
            json!({ "peerAddress": other, "vrf": "red", "routerID": "10.0.0.1" }),
            Err(router_id("10.0.0.1", "")),
        ),
        (
            json!({}),
            json!({ "peerAddress": other, "myASN": 64999 }),
            refused(
                "peer 192.168.10.2 has myAsn different from 192.168.10.1, in FRR mode peers selecting the same node must have the same myAsn within the same VRF",
            ),
        ),
        (json!({}), json!({ "peerAddress": other, "myASN": 64999, "vrf": "red" }), Ok(())),
        (json!({}), json!({}), refused(duplicate)),
        (json!({}), json!({ "vrf": "red" }), Ok(())),
        (
            json!({ "vrf": "red" }),
            json!({ "vrf": "red" }),
            refused(
                "peer 192.168.10.1-red already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node",
            ),
        ),
        (
            json!({ "peerAddress": null, "interface": "ens18" }),
            json!({ "peerAddress": null, "interface": "ens18" }),
            refused(
                "peer ens18 already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node",
            ),
        ),
        (json!({ "nodeSelectors": on("n1") }), json!({ "nodeSelectors": on("n2") }), Ok(())),
        (json!({ "nodeSelectors": on("n1") }), json!({ "nodeSelectors": everywhere }), refused(duplicate)),
        (json!({ "nodeSelectors": on("n1") }), json!({}), refused(duplicate)),
        (json!({ "nodeSelectors": nowhere }), json!({}), Ok(())),
    ] {
        let peers = vec![named("a", &peer_spec(&first)), named("b", &peer_spec(&second))];
        let resources = Resources { bgp_peers: peers, ..bench() };
        assert_eq!(fresh(&resources).verdict, expected, "{first} {second}");
    }
    // With no nodes known, all share.
    let apart = vec![
        named("a", &peer_spec(&json!({ "nodeSelectors": on("n1") }))),
        named("b", &peer_spec(&json!({ "nodeSelectors": on("n2") }))),
    ];
    let unknown = Resources { bgp_peers: apart, nodes: BTreeMap::new(), ..bench() };
    assert_eq!(fresh(&unknown).verdict, refused(duplicate));
}

#[test]
fn an_unknown_type_of_bgp_has_the_rules_of_frr_in_speakers_and_none_in_the_controller() {
    let peers = || vec![named("a", &peer_spec(&json!({}))), named("b", &peer_spec(&json!({})))];
    let resources = |own_node| Resources {
        bgp_type: BgpType::Other("x".to_owned()),
        own_node,
        bgp_peers: peers(),
        ..bench()
    };
    assert_eq!(fresh(&resources(None)).verdict, Ok(()));
    assert!(fresh(&resources(Some("n1".into()))).verdict.is_err());
}

#[test]
fn a_speaker_judges_only_what_concerns_its_node() {
    let bad =
        peer_spec(&json!({ "peerAddress": "x", "nodeSelectors": [{ "matchLabels": { "name": "n2" } }] }));
    let on =
        |node: &str| Resources { own_node: Some(node.into()), bgp_peers: vec![named("q", &bad)], ..bench() };
    assert_eq!(fresh(&on("n1")).verdict, Ok(()));
    assert_eq!(fresh(&on("n2")).verdict, refused(r#"parsing peer q invalid BGPPeer address "x""#));
}

#[test]
fn kinds_are_judged_in_metallbs_order() {
    let everything = Resources {
        bfd_profiles: vec![named("f", &json!({ "receiveInterval": 1 }))],
        bgp_peers: vec![named("q", &peer_spec(&json!({ "peerAddress": "x" })))],
        communities: vec![community("c", &[("a", "1")])],
        pools: vec![addresses("p", &[])],
        l2_advertisements: vec![named("l", &json!({ "ipAddressPools": ["p", "p"] }))],
        bgp_advertisements: vec![named("b", &json!({ "peers": ["q", "q"] }))],
        ..bench()
    };
    let kinds: Vec<&str> = fresh(&everything).diagnostics.iter().map(|d| d.kind).collect();
    assert_eq!(
        kinds,
        ["BFDProfile", "BGPPeer", "Community", "IPAddressPool", "L2Advertisement", "BGPAdvertisement"]
    );
}

// SPDX-License-Identifier: Apache-2.0
//! L2Advertisements: attachment, nodes, interfaces, preferences; communities; what is not served yet.

use std::collections::BTreeMap;

use ferrolb_api::IPAddressPool;
use ferrolb_config::{BgpType, Config, Resources};
use ferrolb_net_types::{Interfaces, NodeName};
use serde_json::{Value, json};
use similar_asserts::assert_eq;

use crate::build::{addresses, community, fresh, l2, labels, object, valid};

/// Two pools, one of them labelled, and three nodes.
fn bench(advertisements: &[(&str, Value)]) -> Resources {
    let labelled: IPAddressPool =
        object("gold", 0, &json!({ "tier": "gold" }), &json!({ "addresses": ["10.0.1.0/24"] }));
    let node = |name: &str, zone: &str| (NodeName::from(name), labels(&[("zone", zone), ("name", name)]));
    Resources {
        pools: vec![addresses("plain", &["10.0.0.0/24"]), labelled],
        l2_advertisements: advertisements.iter().map(|(name, spec)| l2(name, spec)).collect(),
        nodes: BTreeMap::from([node("n1", "a"), node("n2", "a"), node("n3", "b")]),
        ..Resources::default()
    }
}

fn attached(config: &Config, pool: &str) -> Vec<String> {
    config.pools[pool].l2_advertisements.iter().map(|a| a.name.to_string()).collect()
}

#[test]
fn an_advertisement_is_attached_to_pools_it_names_or_selects_or_else_to_all() {
    let gold = json!([{ "matchLabels": { "tier": "gold" } }]);
    let silver = json!([{ "matchLabels": { "tier": "silver" } }]);
    for (spec, plain, labelled) in [
        (json!({}), true, true),
        (json!({ "ipAddressPools": ["plain"] }), true, false),
        (json!({ "ipAddressPoolSelectors": gold }), false, true),
        (json!({ "ipAddressPools": ["plain"], "ipAddressPoolSelectors": gold }), true, true),
        (json!({ "ipAddressPoolSelectors": silver }), false, false),
        (json!({ "ipAddressPools": ["unknown"] }), false, false),
        (json!({ "ipAddressPools": ["gold"], "ipAddressPoolSelectors": gold }), false, true),
    ] {
        let config = valid(&bench(&[("a", spec.clone())]));
        assert_eq!(!attached(&config, "plain").is_empty(), plain, "{spec}");
        assert_eq!(!attached(&config, "gold").is_empty(), labelled, "{spec}");
    }
}

#[test]
fn nodes_are_those_that_a_selector_selects_or_all() {
    let zone = |zone: &str| json!({ "matchLabels": { "zone": zone } });
    for (spec, expected) in [
        (json!({}), vec!["n1", "n2", "n3"]),
        (json!({ "nodeSelectors": [zone("a")] }), vec!["n1", "n2"]),
        (json!({ "nodeSelectors": [zone("a"), zone("b")] }), vec!["n1", "n2", "n3"]),
        (json!({ "nodeSelectors": [zone("c")] }), vec![]),
        (json!({ "nodeSelectors": [{}] }), vec!["n1", "n2", "n3"]),
    ] {
        let config = valid(&bench(&[("a", spec.clone())]));
        let advertisement = &config.pools["plain"].l2_advertisements[0];
        assert_eq!(advertisement.nodes.iter().map(NodeName::as_str).collect::<Vec<_>>(), expected, "{spec}");
    }
}

#[test]
fn interfaces_are_those_named_or_all() {
    let config = valid(&bench(&[("a", json!({})), ("b", json!({ "interfaces": ["ens18", "eth0"] }))]));
    let advertisements = &config.pools["plain"].l2_advertisements;
    assert_eq!(advertisements[0].interfaces, Interfaces::All);
    assert_eq!(advertisements[1].interfaces, Interfaces::Named(["ens18".into(), "eth0".into()].into()));
}

#[test]
fn an_advertisement_equal_to_another_one_on_the_pool_is_attached_once() {
    let zone_a = json!({ "matchLabels": { "zone": "a" } });
    let one_by_one = json!([{ "matchLabels": { "name": "n2" } }, { "matchLabels": { "name": "n1" } }]);
    let web = json!({ "matchLabels": { "app": "web" } });
    let db = json!({ "matchLabels": { "app": "db" } });
    for (first, second, expected) in [
        (json!({}), json!({}), 1),
        (json!({ "nodeSelectors": [zone_a] }), json!({ "nodeSelectors": one_by_one }), 1),
        (json!({ "interfaces": ["x", "y"] }), json!({ "interfaces": ["y", "x"] }), 1),
        (json!({ "serviceSelectors": [web, db] }), json!({ "serviceSelectors": [db, web] }), 1),
        (json!({}), json!({ "nodeSelectors": [zone_a] }), 2),
        (json!({}), json!({ "interfaces": ["x"] }), 2),
        (json!({ "interfaces": ["x"] }), json!({ "interfaces": ["y"] }), 2),
        (json!({}), json!({ "serviceSelectors": [web] }), 2),
        // Preferences of equal advertisements add up, so both are needed.
        (
            json!({ "preferredNodeSelectors": [{ "weight": 5, "preference": zone_a }] }),
            json!({ "preferredNodeSelectors": [{ "weight": 5, "preference": zone_a }] }),
            2,
        ),
    ] {
        let config = valid(&bench(&[("a", first.clone()), ("b", second.clone())]));
        assert_eq!(config.pools["plain"].l2_advertisements.len(), expected, "{first} {second}");
    }
}

#[test]
fn preferences_add_up_per_node_that_may_announce() {
    let spec = json!({
        "nodeSelectors": [{ "matchLabels": { "zone": "a" } }],
        "preferredNodeSelectors": [
            { "weight": 10, "preference": { "matchLabels": { "zone": "a" } } },
            { "weight": 5, "preference": { "matchLabels": { "name": "n2" } } },
            { "weight": 100, "preference": { "matchLabels": { "zone": "b" } } },
        ],
    });
    let config = valid(&bench(&[("a", spec)]));
    let preferences = &config.pools["plain"].l2_advertisements[0].preferences;
    assert_eq!(preferences, &BTreeMap::from([("n1".into(), 10), ("n2".into(), 15)]));
}

#[test]
fn service_selectors_are_ored() {
    let spec = json!({ "serviceSelectors": [{ "matchLabels": { "app": "web" } }, { "matchLabels": { "app": "db" } }] });
    let config = valid(&bench(&[("a", spec), ("b", json!({}))]));
    let [some, all] = config.pools["plain"].l2_advertisements.as_slice() else { panic!() };
    assert!(some.selects(&labels(&[("app", "db")])));
    assert!(!some.selects(&labels(&[("app", "x")])));
    assert!(all.selects(&labels(&[])));
}

#[test]
fn a_bad_advertisement_is_refused_in_metallbs_words_and_the_others_go_on() {
    let x = json!({ "matchLabels": { "x": "y" } });
    let bad = json!({ "matchExpressions": [{ "key": "a", "operator": "surrounds", "values": ["b"] }] });
    let cause = r#""surrounds" is not a valid label selector operator"#;
    for (spec, message) in [
        (json!({ "ipAddressPools": ["p", "p"] }), r#"duplicate definition of ipAddressPools "p""#.to_owned()),
        (
            json!({ "ipAddressPoolSelectors": [x, x] }),
            "duplicate definition of ipAddressPoolSelectors x=y".to_owned(),
        ),
        (json!({ "nodeSelectors": [x, x] }), "duplicate definition of nodeSelectors x=y".to_owned()),
        (json!({ "serviceSelectors": [x, x] }), "duplicate definition of serviceSelectors x=y".to_owned()),
        (
            json!({ "ipAddressPoolSelectors": [bad] }),
            format!("{cause}\ninvalid label selector a surrounds (b)"),
        ),
        (
            json!({ "nodeSelectors": [bad] }),
            format!("{cause}\ninvalid label selector a surrounds (b)\nfailed to parse node selector for a"),
        ),
        (
            json!({ "serviceSelectors": [bad] }),
            format!(
                "invalid service selector a surrounds (b): {cause}\nfailed to parse service selector for a"
            ),
        ),
    ] {
        let evaluation = fresh(&bench(&[("a", spec.clone()), ("b", json!({}))]));
        assert_eq!(evaluation.verdict, Err(message), "{spec}");
        assert_eq!(attached(&evaluation.config, "plain"), ["b"], "{spec}");
        assert!(!evaluation.config.pools_incomplete, "{spec}: the pools are all there");
    }
}

#[test]
fn a_bad_preference_is_told_although_metallb_does_not_know_the_field() {
    for (preferred, message) in [
        (
            json!([{ "weight": 1, "preference": { "matchExpressions": [{ "key": "a", "operator": "Near" }] } }]),
            "\"Near\" is not a valid label selector operator\ninvalid label selector a Near ()\nfailed to parse preferred node selectors for a",
        ),
        (
            json!([{ "weight": 101, "preference": {} }]),
            "invalid weight 101, must be in 1-100 range\nfailed to parse preferred node selectors for a",
        ),
    ] {
        let evaluation = fresh(&bench(&[("a", json!({ "preferredNodeSelectors": preferred }))]));
        assert_eq!(evaluation.verdict, Ok(()));
        assert_eq!(evaluation.further().map(|d| d.message.as_str()).collect::<Vec<_>>(), [message]);
    }
}

#[test]
fn communities_are_judged_in_order_of_their_objects() {
    let out_of_range = r#"invalid community value: invalid section "99999999" of community "99999999:1", err: "strconv.ParseUint: parsing \"99999999\": value out of range""#;
    for (objects, expected) in [
        (vec![community("c", &[("a", "12345:12345"), ("b", "64512:1")])], Ok(())),
        (
            vec![community("c", &[("a", "1234")])],
            Err(r#"parsing community "a": invalid community format: 1234"#.to_owned()),
        ),
        (
            vec![community("c", &[("a", "99999999:1")])],
            Err(format!(r#"parsing community "a": {out_of_range}"#)),
        ),
        (
            vec![community("d", &[("a", "1:1")]), community("c", &[("a", "2:2")])],
            Err(r#"duplicate definition of community "a""#.to_owned()),
        ),
        (
            vec![community("c", &[("a", "1:1"), ("a", "1:2")])],
            Err(r#"duplicate definition of community "a""#.to_owned()),
        ),
    ] {
        assert_eq!(fresh(&Resources { communities: objects, ..Resources::default() }).verdict, expected);
    }
}

#[test]
fn a_large_community_is_refused_by_metallbs_native_bgp_only() {
    let resources = |bgp_type| Resources {
        bgp_type,
        communities: vec![community("c", &[("big", "large:64512:1:2")])],
        ..Resources::default()
    };
    assert_eq!(
        fresh(&resources(BgpType::Native)).metallb.unwrap_err(),
        r#"native BGP mode only supports legacy communities, BGP community CR "c" has non legacy community {"big" "large:64512:1:2"}"#
    );
    for other in [BgpType::Native, BgpType::Frr, BgpType::FrrK8s, BgpType::Other("x".to_owned())] {
        valid(&resources(other));
    }
}

#[test]
fn bgp_objects_of_this_node_are_named_as_not_served_and_layer_two_goes_on() {
    let mut resources = bench(&[("l", json!({}))]);
    resources.own_node = Some("n1".into());
    resources.bgp_type = BgpType::FrrK8s;
    let elsewhere = json!([{ "matchLabels": { "zone": "b" } }]);
    let peer = json!({ "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1" });
    let mut far = peer.clone();
    far["nodeSelectors"] = elsewhere.clone();
    resources.bgp_peers = vec![object("far", 0, &json!({}), &far), object("near", 0, &json!({}), &peer)];
    resources.bgp_advertisements = vec![
        object("all", 0, &json!({}), &json!({})),
        object("there", 0, &json!({}), &json!({ "nodeSelectors": elsewhere })),
    ];
    let evaluation = fresh(&resources);
    assert_eq!(evaluation.verdict, Ok(()));
    let named: Vec<String> = evaluation.further().map(ToString::to_string).collect();
    assert_eq!(named.len(), 2);
    let text = "this version does not serve METALLB_BGP_TYPE=frr-k8s";
    assert!(named[0].starts_with(&format!("BGPAdvertisement all: {text}")), "{named:?}");
    assert!(named[1].starts_with(&format!("BGPPeer near: {text}")), "{named:?}");
    assert_eq!(evaluation.config.bgp, ferrolb_config::Bgp::default());
    assert_eq!(attached(&evaluation.config, "plain"), ["l"]);
}

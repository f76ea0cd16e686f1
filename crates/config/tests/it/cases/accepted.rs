// SPDX-License-Identifier: Apache-2.0
//! What becomes of configurations that are accepted, and what no text of an evaluation holds.

use ferrolb_config::Config;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use super::{on, peer, pool, resources};
use crate::build::{blocks, fresh, labels, object, valid};

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
fn s34_a_pool_that_is_named_and_selected_is_attached_once() {
    let mut labelled = resources(
        "frr",
        &json!({ "l2": { "l": {
        "ipAddressPools": ["p"], "ipAddressPoolSelectors": [{ "matchLabels": { "tier": "gold" } }] } } }),
    );
    labelled.pools = vec![object("p", 1, &json!({ "tier": "gold" }), &pool(&["10.0.1.0/24"]))];
    assert_eq!(valid(&labelled).pools["p"].l2_advertisements.len(), 1);
}

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

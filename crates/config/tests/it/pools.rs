// SPDX-License-Identifier: Apache-2.0
//! Pools: addresses, restrictions, faults, overlaps.

use std::collections::BTreeSet;

use ferrolb_config::Resources;
use serde_json::{Value, json};
use similar_asserts::assert_eq;

use crate::build::{addresses, blocks, fresh, labels, object, pool, refusal_of_pools, valid};

#[test]
fn nothing_is_valid_and_empty() {
    let config = valid(&Resources::default());
    assert!(config.pools.is_empty());
}

#[test]
fn ranges_become_prefixes_in_place_and_host_bits_are_masked() {
    for (entries, expected) in [
        (
            vec!["40.0.0.150-40.0.0.200"],
            vec!["40.0.0.150/31", "40.0.0.152/29", "40.0.0.160/27", "40.0.0.192/29", "40.0.0.200/32"],
        ),
        (
            vec!["40.0.0.210 - 40.0.0.240"],
            vec!["40.0.0.210/31", "40.0.0.212/30", "40.0.0.216/29", "40.0.0.224/28", "40.0.0.240/32"],
        ),
        (vec!["40.0.0.250 - 40.0.0.250"], vec!["40.0.0.250/32"]),
        (
            vec!["10.0.1.5/24", "10.0.0.0-10.0.0.1", "fd00::5/120"],
            vec!["10.0.1.0/24", "10.0.0.0/31", "fd00::/120"],
        ),
        (vec!["::ffff:10.0.0.0/120"], vec!["10.0.0.0/24"]),
        (vec!["fd00::fffe-fd00::1:1"], vec!["fd00::fffe/127", "fd00::1:0/127"]),
    ] {
        let config = valid(&Resources { pools: vec![addresses("p", &entries)], ..Resources::default() });
        assert_eq!(blocks(&config.pools["p"]), expected, "{entries:?}");
    }
}

#[test]
fn what_a_pool_leaves_out_has_its_default() {
    let config = valid(&Resources { pools: vec![addresses("p", &["10.0.0.0/24"])], ..Resources::default() });
    let pool = &config.pools["p"];
    assert!(pool.auto_assign);
    assert!(!pool.avoid_buggy_ips);
    assert_eq!(pool.allocation, None);
}

#[test]
fn a_bad_address_is_refused_in_metallbs_words() {
    for (entry, cause) in [
        ("100.200.300.400/24", r#"invalid CIDR "100.200.300.400/24""#),
        ("1.2.3.0/33", r#"invalid CIDR "1.2.3.0/33""#),
        ("1.2.3.4", r#"invalid CIDR "1.2.3.4""#),
        ("", r#"invalid CIDR """#),
        (" 10.0.0.0/8", r#"invalid CIDR " 10.0.0.0/8""#),
        ("10.0.0.010/24", r#"invalid CIDR "10.0.0.010/24""#),
        ("fe80::%eth0/64", r#"invalid CIDR "fe80::%eth0/64""#),
        (
            "1.2.3.10-1.2.3.1",
            r#"invalid IP range "1.2.3.10-1.2.3.1": start IP "1.2.3.10" is after the end IP "1.2.3.1""#,
        ),
        ("1.2.3-1.2.3.9", r#"invalid IP range "1.2.3-1.2.3.9": invalid start IP "1.2.3""#),
        ("1.2.3.4 - x ", r#"invalid IP range "1.2.3.4 - x ": invalid end IP " x ""#),
        (
            "1.2.3.4-1.2.3.5-1.2.3.6",
            r#"invalid IP range "1.2.3.4-1.2.3.5-1.2.3.6": invalid end IP "1.2.3.5-1.2.3.6""#,
        ),
        (
            "192.168.10.200-fd00:10::200",
            r#"invalid IP range "192.168.10.200-fd00:10::200": start IP "192.168.10.200" and end IP "fd00:10::200" have different families"#,
        ),
    ] {
        let expected = format!("parsing address pool p: invalid CIDR {entry:?} in pool \"p\": {cause}");
        assert_eq!(refusal_of_pools(vec![addresses("p", &[entry])]), expected, "{entry:?}");
    }
}

#[test]
fn a_pool_needs_a_name_and_addresses() {
    assert_eq!(
        refusal_of_pools(vec![addresses("", &["1.0.0.0/8"])]),
        "parsing address pool : missing pool name"
    );
    assert_eq!(
        refusal_of_pools(vec![addresses("p", &[])]),
        "parsing address pool p: pool has no prefixes defined"
    );
}

#[test]
fn of_pools_of_one_name_the_first_counts() {
    let pools = vec![
        addresses("p", &["10.0.0.0/24"]),
        object("p", 5, &json!({}), &json!({ "addresses": ["10.0.1.0/24"] })),
    ];
    let evaluation = fresh(&Resources { pools, ..Resources::default() });
    assert_eq!(evaluation.verdict, Err(r#"duplicate definition of pool "p""#.to_owned()));
    assert_eq!(blocks(&evaluation.config.pools["p"]), ["10.0.0.0/24"]);
    assert!(!evaluation.config.pools_incomplete);
}

#[test]
fn of_overlapping_pools_the_later_one_is_refused() {
    for (first, second, message) in [
        (
            "10.0.0.0/8",
            "10.0.0.0/16",
            r#"CIDR "10.0.0.0/16" in pool "a" overlaps with already defined CIDR "10.0.0.0/8""#,
        ),
        (
            "10.0.0.0/16",
            "10.0.0.0/8",
            r#"CIDR "10.0.0.0/8" in pool "a" overlaps with already defined CIDR "10.0.0.0/16""#,
        ),
        (
            "10.0.0.0/8",
            "10.0.0.0/8",
            r#"CIDR "10.0.0.0/8" in pool "a" overlaps with already defined CIDR "10.0.0.0/8""#,
        ),
        (
            "192.168.10.200/29",
            "192.168.10.207-192.168.10.220",
            r#"CIDR "192.168.10.207/32" in pool "a" overlaps with already defined CIDR "192.168.10.200/29""#,
        ),
    ] {
        // The names are against the order of creation, which is what counts.
        let pools = vec![
            object("a", 2, &json!({}), &json!({ "addresses": [second] })),
            object("b", 1, &json!({}), &json!({ "addresses": [first] })),
        ];
        let evaluation = fresh(&Resources { pools, ..Resources::default() });
        assert_eq!(evaluation.verdict, Err(message.to_owned()));
        assert_eq!(evaluation.diagnostics.len(), 1);
        assert_eq!(
            (evaluation.diagnostics[0].kind, evaluation.diagnostics[0].name.as_str()),
            ("IPAddressPool", "a")
        );
        assert!(evaluation.config.pools.contains_key("b"), "the other one goes on");
        assert!(!evaluation.config.pools.contains_key("a"));
        assert!(
            evaluation.config.pools_incomplete,
            "addresses of the refused pool are not free to be cleared"
        );
    }
}

#[test]
fn without_different_times_of_creation_the_name_decides() {
    let pools = vec![addresses("b", &["10.0.0.0/24"]), addresses("a", &["10.0.0.0/24"])];
    let evaluation = fresh(&Resources { pools, ..Resources::default() });
    assert_eq!(
        evaluation.verdict.unwrap_err(),
        r#"CIDR "10.0.0.0/24" in pool "b" overlaps with already defined CIDR "10.0.0.0/24""#
    );
}

#[test]
fn a_pool_must_not_overlap_itself() {
    assert_eq!(
        refusal_of_pools(vec![addresses("p", &["10.0.0.0/24", "10.0.0.0-10.0.0.9"])]),
        r#"CIDR "10.0.0.0/29" in pool "p" overlaps with already defined CIDR "10.0.0.0/24""#
    );
}

#[test]
fn every_fault_is_told_and_the_first_by_name_is_the_verdict() {
    let pools = vec![addresses("z", &[]), addresses("b", &["x"]), addresses("good", &["10.0.0.0/24"])];
    let evaluation = fresh(&Resources { pools, ..Resources::default() });
    let told: Vec<&str> = evaluation.diagnostics.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(told, ["b", "z"]);
    assert_eq!(evaluation.verdict, Err(evaluation.diagnostics[0].message.clone()));
    assert_eq!(evaluation.further().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["z"]);
    assert!(evaluation.config.pools.contains_key("good"));
}

fn allocation(spec: &Value) -> Resources {
    let namespaces = [("ns1", labels(&[])), ("ns2", labels(&[("team", "a")])), ("ns3", labels(&[]))];
    Resources {
        pools: vec![pool("p", &json!({ "addresses": ["10.0.0.0/24"], "serviceAllocation": spec }))],
        namespaces: namespaces.into_iter().map(|(name, labels)| (name.to_owned(), labels)).collect(),
        ..Resources::default()
    }
}

#[test]
fn namespaces_are_those_named_and_those_selected() {
    let team_a = json!({ "matchLabels": { "team": "a" } });
    let nobody = json!({ "matchLabels": { "team": "nobody" } });
    for (spec, expected) in [
        (json!({ "namespaces": ["ns1"] }), Some(vec!["ns1"])),
        (json!({ "namespaceSelectors": [team_a] }), Some(vec!["ns2"])),
        (json!({ "namespaces": ["ns1"], "namespaceSelectors": [team_a] }), Some(vec!["ns1", "ns2"])),
        // A restriction that nothing satisfies admits nothing.
        (json!({ "namespaceSelectors": [nobody] }), Some(vec![])),
        (json!({ "namespaces": ["not-there-yet"] }), Some(vec!["not-there-yet"])),
        (json!({ "priority": 5 }), None),
        (json!({}), None),
    ] {
        let config = valid(&allocation(&spec));
        let namespaces = config.pools["p"].allocation.as_ref().unwrap().namespaces.clone();
        let expected = expected.map(|names| names.into_iter().map(Into::into).collect::<BTreeSet<_>>());
        assert_eq!(namespaces, expected, "{spec}");
    }
}

#[test]
fn a_pool_admits_what_satisfies_both_restrictions() {
    let web = labels(&[("app", "web")]);
    let other = labels(&[]);
    let by_label = json!({ "serviceSelectors": [{ "matchLabels": { "app": "web" } }] });
    let by_namespace = json!({ "namespaces": ["ns1"] });
    let both = json!({ "namespaces": ["ns1"], "serviceSelectors": [{ "matchLabels": { "app": "web" } }] });
    let nothing = json!({ "namespaceSelectors": [{ "matchLabels": { "team": "nobody" } }] });
    for (spec, namespace, labels, expected) in [
        (&json!({}), "ns3", &other, true),
        (&by_namespace, "ns1", &other, true),
        (&by_namespace, "ns2", &other, false),
        (&by_label, "ns2", &web, true),
        (&by_label, "ns2", &other, false),
        (&both, "ns1", &web, true),
        (&both, "ns1", &other, false),
        (&both, "ns2", &web, false),
        (&nothing, "ns1", &web, false),
    ] {
        let config = valid(&allocation(spec));
        assert_eq!(config.pools["p"].admits(namespace, labels), expected, "{spec} {namespace}");
    }
}

#[test]
fn an_allocation_without_restriction_selects_everything() {
    let config = valid(&allocation(&json!({ "priority": -3 })));
    let allocation = config.pools["p"].allocation.clone().unwrap();
    assert_eq!(allocation.priority, -3);
    assert_eq!(allocation.service_selectors.len(), 1);
    assert!(allocation.service_selectors[0].matches(&labels(&[])));
}

#[test]
fn a_bad_allocation_is_refused_in_metallbs_words() {
    let x = json!({ "matchLabels": { "x": "y" } });
    for (spec, message) in [
        (json!({ "namespaces": ["a", "b", "a"] }), "duplicate definition in namespaces field"),
        (json!({ "namespaceSelectors": [x, x] }), "duplicate definition of namespaceSelectors x=y"),
        (json!({ "serviceSelectors": [x, x] }), "duplicate definition of serviceSelectors x=y"),
        (
            json!({ "namespaceSelectors": [{ "matchExpressions": [{ "key": "foo", "operator": "In", "values": ["bar", "bar"] }] }] }),
            r#"duplicate definition of match expression value in label selector "bar""#,
        ),
        (
            json!({ "serviceSelectors": [{ "matchExpressions": [{ "key": "a", "operator": "surrounds", "values": ["b"] }] }] }),
            "\"surrounds\" is not a valid label selector operator\ninvalid service label selector a surrounds (b) in ip pool p",
        ),
        (
            json!({ "namespaceSelectors": [{ "matchExpressions": [{ "key": "a", "operator": "In" }] }] }),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty\ninvalid namespace label selector a in () in ip pool p",
        ),
    ] {
        let verdict = fresh(&allocation(&spec)).verdict.unwrap_err();
        assert_eq!(verdict, format!("parsing address pool p: {message}"), "{spec}");
    }
}

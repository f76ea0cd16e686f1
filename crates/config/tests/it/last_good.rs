// SPDX-License-Identifier: Apache-2.0
//! What goes bad stays in force as it was good last.

use ferrolb_config::{Evaluation, LastGood, Resources, Undecodable, evaluate};
use serde_json::json;
use similar_asserts::assert_eq;

use crate::build::{addresses, blocks, fresh, l2, labels, object, pool};

fn then(before: &Evaluation, resources: &Resources) -> Evaluation {
    evaluate(resources, &before.last_good)
}

fn of(pools: Vec<ferrolb_api::IPAddressPool>) -> Resources {
    Resources { pools, ..Resources::default() }
}

#[test]
fn a_pool_that_goes_bad_keeps_its_addresses_until_it_is_mended() {
    let good = fresh(&of(vec![addresses("p", &["10.0.0.0/24"])]));
    let bad = then(&good, &of(vec![addresses("p", &["10.0.0.9-10.0.0.1"])]));
    assert!(bad.verdict.is_err());
    assert_eq!(blocks(&bad.config.pools["p"]), ["10.0.0.0/24"]);
    assert!(!bad.config.pools_incomplete);
    let still = then(&bad, &of(vec![addresses("p", &[])]));
    assert_eq!(blocks(&still.config.pools["p"]), ["10.0.0.0/24"]);
    let mended = then(&still, &of(vec![addresses("p", &["10.0.5.0/24"])]));
    assert_eq!(mended.verdict, Ok(()));
    assert_eq!(blocks(&mended.config.pools["p"]), ["10.0.5.0/24"]);
}

#[test]
fn without_a_past_a_bad_pool_is_unknown_and_the_pools_incomplete() {
    let evaluation = evaluate(&of(vec![addresses("p", &["nonsense"])]), &LastGood::default());
    assert!(evaluation.config.pools.is_empty());
    assert!(evaluation.config.pools_incomplete);
}

#[test]
fn a_deleted_pool_is_gone_and_another_one_of_its_name_has_no_part_in_it() {
    let good = fresh(&of(vec![addresses("p", &["10.0.0.0/24"])]));
    let gone = then(&good, &of(vec![]));
    assert!(gone.config.pools.is_empty());
    assert!(!gone.config.pools_incomplete);

    let mut another = addresses("p", &["nonsense"]);
    another.metadata.uid = Some("another".to_owned());
    let recreated = then(&good, &of(vec![another]));
    assert!(recreated.config.pools.is_empty());
    assert!(recreated.config.pools_incomplete);
}

#[test]
fn a_pool_that_cannot_be_decoded_keeps_its_addresses() {
    let good = fresh(&of(vec![addresses("p", &["10.0.0.0/24"])]));
    let undecodable = Resources {
        undecodable: vec![Undecodable {
            kind: "IPAddressPool",
            name: "p".to_owned(),
            message: "no number".to_owned(),
        }],
        ..Resources::default()
    };
    let evaluation = then(&good, &undecodable);
    assert_eq!(blocks(&evaluation.config.pools["p"]), ["10.0.0.0/24"]);
    assert_eq!(evaluation.verdict, Err("IPAddressPool p cannot be read: no number".to_owned()));
    assert!(fresh(&undecodable).config.pools_incomplete);
}

#[test]
fn an_edit_that_takes_another_pools_addresses_is_refused_and_changes_nothing() {
    let a = |addresses: &[&str]| object("a", 1, &json!({}), &json!({ "addresses": addresses }));
    let b = || object("b", 2, &json!({}), &json!({ "addresses": ["10.0.1.0/24"] }));
    let good = fresh(&of(vec![a(&["10.0.0.0/24"]), b()]));
    let edited = then(&good, &of(vec![a(&["10.0.0.0/23"]), b()]));
    assert_eq!(
        edited.verdict.clone().unwrap_err(),
        r#"CIDR "10.0.0.0/23" in pool "a" overlaps with already defined CIDR "10.0.1.0/24""#
    );
    assert_eq!(edited.config, good.config);
}

#[test]
fn a_new_pool_that_wants_the_addresses_of_one_in_its_last_good_version_is_named() {
    let good = fresh(&of(vec![addresses("p", &["10.0.0.0/24"])]));
    let evaluation = then(&good, &of(vec![addresses("p", &["x"]), addresses("a", &["10.0.0.0/25"])]));
    // MetalLB would stop at the pool that cannot be read.
    assert_eq!(
        evaluation.verdict.clone().unwrap_err(),
        r#"parsing address pool p: invalid CIDR "x" in pool "p": invalid CIDR "x""#
    );
    let told: Vec<String> = evaluation.further().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            r#"IPAddressPool a: CIDR "10.0.0.0/25" in pool "a" overlaps with already defined CIDR "10.0.0.0/24""#
        ]
    );
    assert!(evaluation.config.pools_incomplete);
}

#[test]
fn versions_that_overlap_only_each_other_are_refused_as_metallb_would() {
    // Each edit wants the other's old addresses and both want 10.0.2.0/24, so neither is in force.
    let good = fresh(&of(vec![addresses("a", &["10.0.0.0/24"]), addresses("b", &["10.0.1.0/24"])]));
    let edited = of(vec![
        addresses("a", &["10.0.1.0/24", "10.0.2.0/24"]),
        addresses("b", &["10.0.0.0/24", "10.0.2.0/24"]),
    ]);
    let evaluation = then(&good, &edited);
    assert_eq!(evaluation.config, good.config);
    assert_eq!(
        evaluation.verdict.unwrap_err(),
        r#"CIDR "10.0.2.0/24" in pool "b" overlaps with already defined CIDR "10.0.2.0/24""#
    );
}

#[test]
fn namespaces_are_resolved_anew_for_a_last_good_version() {
    let restricted = json!({
        "addresses": ["10.0.0.0/24"],
        "serviceAllocation": { "namespaceSelectors": [{ "matchLabels": { "team": "a" } }] },
    });
    let good = fresh(&of(vec![pool("p", &restricted)]));
    let mut resources = of(vec![addresses("p", &[])]);
    resources.namespaces.insert("new".to_owned(), labels(&[("team", "a")]));
    let evaluation = then(&good, &resources);
    assert!(evaluation.config.pools["p"].admits("new", &labels(&[])));
    assert!(!evaluation.config.pools["p"].admits("old", &labels(&[])));
}

#[test]
fn an_advertisement_that_goes_bad_goes_on_as_it_was() {
    let resources = |spec: serde_json::Value| Resources {
        pools: vec![addresses("p", &["10.0.0.0/24"])],
        l2_advertisements: vec![l2("a", &spec)],
        ..Resources::default()
    };
    let good = fresh(&resources(json!({ "interfaces": ["ens18"] })));
    let bad = then(&good, &resources(json!({ "interfaces": ["eth0"], "ipAddressPools": ["p", "p"] })));
    assert!(bad.verdict.is_err());
    assert_eq!(bad.config, good.config);
    let gone = then(&bad, &Resources { l2_advertisements: vec![], ..resources(json!({})) });
    assert!(gone.config.pools["p"].l2_advertisements.is_empty());
}

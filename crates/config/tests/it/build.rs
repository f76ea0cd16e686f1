// SPDX-License-Identifier: Apache-2.0
//! Short ways to build objects and to ask for an evaluation.

use ferrolb_api::{Community, IPAddressPool, L2Advertisement};
use ferrolb_config::{Config, Evaluation, Labels, LastGood, Pool, Resources, evaluate};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An object of a kind, created `age` seconds after the others' epoch.
pub(crate) fn object<T: DeserializeOwned>(name: &str, age: u32, labels: &Value, spec: &Value) -> T {
    let created = format!("2026-01-01T00:{:02}:{:02}Z", age / 60, age % 60);
    let metadata =
        json!({ "name": name, "uid": format!("uid-{name}"), "creationTimestamp": created, "labels": labels });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

pub(crate) fn pool(name: &str, spec: &Value) -> IPAddressPool {
    object(name, 0, &json!({}), spec)
}

pub(crate) fn addresses(name: &str, addresses: &[&str]) -> IPAddressPool {
    pool(name, &json!({ "addresses": addresses }))
}

pub(crate) fn l2(name: &str, spec: &Value) -> L2Advertisement {
    object(name, 0, &json!({}), spec)
}

pub(crate) fn community(name: &str, aliases: &[(&str, &str)]) -> Community {
    let list: Vec<Value> =
        aliases.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    object(name, 0, &json!({}), &json!({ "communities": list }))
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// An evaluation without a past.
pub(crate) fn fresh(resources: &Resources) -> Evaluation {
    evaluate(resources, &LastGood::default())
}

/// The configuration of what must be free of faults.
pub(crate) fn valid(resources: &Resources) -> Config {
    let evaluation = fresh(resources);
    assert_eq!(evaluation.diagnostics, []);
    assert_eq!(evaluation.verdict, Ok(()));
    assert!(!evaluation.config.pools_incomplete);
    evaluation.config
}

/// The verdict on pools alone, which must be a refusal.
pub(crate) fn refusal_of_pools(pools: Vec<IPAddressPool>) -> String {
    fresh(&Resources { pools, ..Resources::default() }).verdict.unwrap_err()
}

pub(crate) fn blocks(pool: &Pool) -> Vec<String> {
    pool.blocks.iter().map(ToString::to_string).collect()
}

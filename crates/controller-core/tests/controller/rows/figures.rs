// SPDX-License-Identifier: Apache-2.0
//! Figures and reports: counters of pools, metrics, the ConfigurationState, events in other namespaces.

use serde_json::{Value, json};

use crate::cluster::{Cluster, SYSTEM};

/// `[assigned IPv4, assigned IPv6, available IPv4, available IPv6]` of a pool's status; the figures for the metrics
/// have to agree.
fn figures(cluster: &Cluster, pool: &str) -> [i64; 4] {
    let status = &cluster.object("ipaddresspools", SYSTEM, pool).unwrap()["status"];
    let of = |field: &str| status[field].as_i64().unwrap();
    let figures = [of("assignedIPv4"), of("assignedIPv6"), of("availableIPv4"), of("availableIPv6")];
    let shown = cluster.counters[pool];
    let shown = [shown.ipv4.in_use, shown.ipv6.in_use, shown.ipv4.available(), shown.ipv6.available()];
    assert_eq!(figures, shown, "status and metrics of {pool}");
    figures
}

fn with(pools: &[Value]) -> Cluster {
    let mut cluster = Cluster::new();
    for pool in pools {
        cluster.pool(pool.clone());
    }
    cluster.quiet();
    cluster.writes.clear();
    cluster
}

#[test]
fn capacities() {
    for (id, addresses, avoid, expected) in [
        ("A34", json!(["1.2.3.0/24"]), false, [256, 0]),
        ("A35", json!(["1.2.3.0/24", "1.2.4.128/25"]), false, [384, 0]),
        ("A35", json!(["1.2.3.0/24", "1.2.4.128/25"]), true, [381, 0]),
        ("A36", json!(["1.2.3.0/24", "1.2.4.128/25", "1000::/64"]), true, [381, i64::MAX]),
        ("A37", json!(["1.2.3.0/31", "1000::/127"]), true, [1, 2]),
        ("AL-26", json!(["2001:db8:0:2::/64", "192.0.2.100/30"]), false, [4, i64::MAX]),
        ("AL-26", json!(["192.0.2.100/30", "2001:db8:0:2::/64"]), false, [4, i64::MAX]),
        ("AL-26", json!(["::/1", "8000::/1", "0.0.0.0/1"]), false, [1 << 31, i64::MAX]),
        ("S21", json!(["1.2.3.0/32", "1.2.3.255/32"]), true, [0, 0]),
        ("size", json!(["10.0.0.0/8"]), true, [254 << 16, 0]),
    ] {
        let cluster = with(&[json!({ "name": "p", "addresses": addresses, "avoidBuggyIPs": avoid })]);
        assert_eq!(figures(&cluster, "p"), [0, 0, expected[0], expected[1]], "{id}: {addresses} {avoid}");
        let total = cluster.counters["p"].total();
        assert_eq!(total.capacity, expected[0].saturating_add(expected[1]), "{id}: {addresses} {avoid}");
        assert!(total.available() >= 0, "{id}");
    }
}

#[test]
fn counters_follow_what_is_held() {
    // A38, A39, A40, ST-5, ME-1, ME-3.
    let mut cluster = with(&[
        json!({ "name": "p", "addresses": ["10.0.0.0/30", "1000::/126"] }),
        json!({ "name": "q", "addresses": ["11.0.0.0/31"] }),
    ]);
    assert_eq!(figures(&cluster, "p"), [0, 0, 4, 4]);
    for (name, port) in [("a", 80), ("b", 81), ("c", 82)] {
        cluster.service(json!({ "name": name, "ann": { "allow-shared-ip": "k" }, "ports": [port] }));
        cluster.quiet();
        assert_eq!(figures(&cluster, "p"), [1, 0, 3, 4], "A38 and ME-1: one address, whoever shares it");
    }
    assert_eq!(
        cluster.writes.iter().filter(|write| write.name.as_deref() == Some("p")).count(),
        1,
        "A40: a status is written when its figures change, not with every Service"
    );
    cluster.service(json!({ "name": "d", "dual": true }));
    cluster.quiet();
    assert_eq!(figures(&cluster, "p"), [2, 1, 2, 3], "a pair counts in both families");
    for (name, left) in [("a", 2), ("b", 2), ("c", 1)] {
        cluster.delete_service(name);
        cluster.quiet();
        assert_eq!(figures(&cluster, "p"), [left, 1, 4 - left, 3], "A38: until the last one leaves");
    }
    cluster.stop();
    cluster.start();
    cluster.quiet();
    assert_eq!(figures(&cluster, "p"), [1, 1, 3, 3], "ST-5: a restart");
    cluster.pool(json!({ "name": "p", "addresses": ["10.0.0.0/29", "1000::/126"] }));
    cluster.quiet();
    assert_eq!(figures(&cluster, "p"), [1, 1, 7, 3], "ST-5: an edit");
    cluster.service(json!({ "name": "d", "type": "ClusterIP" }));
    cluster.quiet();
    assert_eq!(figures(&cluster, "p"), [0, 0, 8, 4], "ST-5: another type");
    cluster.service(json!({ "name": "e" }));
    cluster.quiet();
    cluster.delete("ipaddresspools", SYSTEM, "p");
    cluster.quiet();
    assert_eq!(
        cluster.counters.keys().collect::<Vec<_>>(),
        ["q"],
        "A39 and ME-3: the figures of a pool that is gone"
    );
    assert_eq!(cluster.ips("e"), "11.0.0.0");
    assert_eq!(figures(&cluster, "q"), [1, 0, 1, 0]);
}

#[test]
fn me_2_the_total_follows_an_edit_of_the_pool() {
    let mut cluster = with(&[json!({ "name": "p", "addresses": ["10.0.0.0/30"] })]);
    assert_eq!(cluster.counters["p"].total().capacity, 4);
    cluster.pool(json!({ "name": "p", "addresses": ["10.0.0.0/29"] }));
    cluster.quiet();
    assert_eq!(cluster.counters["p"].total().capacity, 8);
}

#[test]
fn al_17_an_address_that_is_held_but_not_to_be_given_again_takes_no_other_away() {
    let mut cluster = with(&[json!({ "name": "p", "addresses": ["10.0.0.0/30"] })]);
    cluster.service(json!({ "name": "a" }));
    cluster.quiet();
    assert_eq!(figures(&cluster, "p"), [1, 0, 3, 0]);
    cluster.pool(json!({ "name": "p", "addresses": ["10.0.0.0/30"], "avoidBuggyIPs": true }));
    cluster.quiet();
    assert_eq!(figures(&cluster, "p"), [1, 0, 3, 0]);
    for name in ["b", "c", "d", "e"] {
        cluster.service(json!({ "name": name }));
    }
    cluster.quiet();
    assert_eq!(figures(&cluster, "p"), [4, 0, 0, 0]);
    cluster.delete_service("a");
    cluster.quiet();
    assert_eq!(figures(&cluster, "p"), [3, 0, 0, 0]);
}

#[test]
fn me_6_a_configuration_that_is_empty_again_was_loaded_once() {
    // The gauge says "at least once", as MetalLB's does; an empty configuration is a good one.
    let mut cluster = with(&[json!({ "name": "p", "addresses": ["10.0.0.0/30"] })]);
    assert_eq!(cluster.configuration, Some((true, false)));
    cluster.delete("ipaddresspools", SYSTEM, "p");
    cluster.quiet();
    assert_eq!(cluster.configuration, Some((true, false)));
    let mut cluster = Cluster::new();
    cluster.stop();
    cluster.pool(json!({ "name": "p", "addresses": ["nonsense"] }));
    cluster.start();
    cluster.quiet();
    assert_eq!(cluster.configuration, Some((false, true)), "this one never was");
}

#[test]
fn r7_figures_that_somebody_edits_are_put_right() {
    let mut cluster = with(&[json!({ "name": "p", "addresses": ["10.0.0.0/30"] })]);
    for nonsense in [json!({ "assignedIPv4": 7 }), json!({ "availableIPv6": -1 }), json!(null)] {
        cluster.patch("ipaddresspools", SYSTEM, "p", &json!({ "status": nonsense }));
        cluster.quiet();
        assert_eq!(figures(&cluster, "p"), [0, 0, 4, 0]);
    }
    assert_eq!(cluster.writes.len(), 3);
}

#[test]
fn st_7_events_stand_in_the_namespace_of_their_service() {
    let mut cluster = with(&[json!({ "name": "p", "addresses": ["10.0.0.0/30"] })]);
    cluster.namespace("team-x", json!({}));
    cluster.service(json!({ "name": "s", "ns": "team-x" }));
    cluster.quiet();
    let places: Vec<_> = cluster.events.iter().map(|event| event.regarding.namespace.as_str()).collect();
    assert_eq!(places, ["team-x"]);
    assert_eq!(cluster.told(), [r#"s Normal IPAllocated: Assigned IP ["10.0.0.0"]"#]);
}

fn state(cluster: &Cluster) -> (usize, Value) {
    let all: Vec<&Value> = cluster.objects("configurationstates").collect();
    let mut status = all.first().map_or(Value::Null, |object| object["status"].clone());
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition.as_object_mut().unwrap().remove("lastTransitionTime");
    }
    (all.len(), status)
}

fn valid() -> (usize, Value) {
    (
        1,
        json!({ "result": "Valid", "conditions": [
            { "type": "poolReconcilerValid", "status": "True", "reason": "Reconciled", "message": "" }] }),
    )
}

#[test]
fn the_configuration_state_of_the_controller() {
    // C01: after a clean installation there is one, and it is valid.
    let mut cluster = with(&[]);
    assert_eq!(state(&cluster), valid(), "C01");
    let object = cluster.objects("configurationstates").next().unwrap();
    assert_eq!(object["metadata"]["name"], "controller");
    assert_eq!(object["metadata"]["labels"], json!({ "metallb.io/component-type": "controller" }));

    // C11: deleted, it comes back.
    assert!(cluster.delete("configurationstates", SYSTEM, "controller"));
    cluster.quiet();
    assert_eq!(state(&cluster), valid(), "C11");

    // C09 and R1: it says what is wrong, also when it was deleted meanwhile, and that it is right again.
    cluster.pool(json!({ "name": "pool1", "addresses": [] }));
    cluster.quiet();
    let text = "configuration error: parsing address pool pool1: pool has no prefixes defined";
    let invalid = (
        1,
        json!({ "result": "Invalid", "errorSummary": text, "conditions": [
            { "type": "poolReconcilerValid", "status": "False", "reason": "ConfigurationError", "message": text }] }),
    );
    assert_eq!(state(&cluster), invalid, "R1");
    assert!(cluster.delete("configurationstates", SYSTEM, "controller"));
    cluster.quiet();
    assert_eq!(state(&cluster), invalid, "C09: created anew, and still invalid");
    cluster.pool(json!({ "name": "pool1", "addresses": ["10.0.0.0/30"] }));
    cluster.quiet();
    assert_eq!(state(&cluster), valid(), "C09: fixed");
    assert!(cluster.delete("configurationstates", SYSTEM, "controller"));
    cluster.quiet();
    assert_eq!(state(&cluster), valid(), "C09: created anew, and valid");
}

#[test]
fn r6_an_update_of_a_namespace_that_leaves_its_labels_is_nothing() {
    let mut cluster = with(&[json!({ "name": "p", "addresses": ["10.0.0.0/30"],
        "serviceAllocation": { "namespaceSelectors": [{ "matchLabels": { "team": "a" } }] } })]);
    cluster.namespace("team-x", json!({ "team": "a" }));
    cluster.quiet();
    cluster.reconciled = 0;
    cluster.patch("namespaces", "", "team-x", &json!({ "metadata": { "annotations": { "a": "b" } } }));
    cluster.quiet();
    assert_eq!(cluster.reconciled, 0);
}

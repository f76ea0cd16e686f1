// SPDX-License-Identifier: Apache-2.0
//! What MetalLB v0.16.1 answered in a real cluster, played again: addresses, annotations, events, counters,
//! ConfigurationState.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::{Cluster, NS, SYSTEM};

#[test]
fn every_recorded_case_ends_as_it_did_there() {
    let corpus: Value = serde_json::from_str(include_str!("../data/metallb-allocation.json")).unwrap();
    let mut played = 0;
    for case in corpus["cases"].as_array().unwrap() {
        // Where MetalLB leaves the outcome to chance there is nothing to compare.
        if case.get("varies").is_some() {
            continue;
        }
        play(case);
        played += 1;
    }
    assert_eq!(played, 25);
}

fn play(case: &Value) {
    let id = case["id"].as_str().unwrap();
    let mut cluster = Cluster::new();
    cluster.namespace("other", json!({}));
    cluster.quiet();
    for (n, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let at = format!("{id}, step {n}: {}", step["do"]);
        let refused = step["answer"]["code"].as_u64().is_some_and(|code| code >= 300);
        if !refused {
            act(&mut cluster, &step["do"]);
        }
        cluster.quiet();
        if let Some(metrics) = step["answer"].get("metrics") {
            assert_eq!(figures(&cluster), *metrics, "{at}");
        }
        compare(&mut cluster, &step["seen"], &at);
    }
}

fn act(cluster: &mut Cluster, step: &Value) {
    let (verb, what) = step.as_object().unwrap().iter().find(|(verb, _)| *verb != "note").unwrap();
    // The recordings write the namespace of the case as `$ns`.
    let what: Value = serde_json::from_str(&what.to_string().replace("$ns", NS)).unwrap();
    match verb.as_str() {
        "pool" => cluster.pool(what),
        "comm" => cluster.community(what),
        "svc" => cluster.service(what),
        "patch" => cluster.patch("services", NS, what["svc"].as_str().unwrap(), &with_status(&what["body"])),
        "status" => {
            cluster.foreign_status(what["svc"].as_str().unwrap(), what["ingress"].clone(), "somebody");
        }
        "delete" => {
            let (kind, name) = what.as_object().unwrap().iter().next().unwrap();
            let name = name.as_str().unwrap();
            match kind.as_str() {
                "svc" => cluster.delete("services", NS, name),
                "pool" => cluster.delete("ipaddresspools", SYSTEM, name),
                "state" => cluster.delete("configurationstates", SYSTEM, name),
                other => panic!("delete {other}"),
            };
        }
        "restart" => {
            cluster.stop();
            cluster.start();
        }
        "stop" => cluster.stop(),
        "start" => cluster.start(),
        "wait" | "scrape" => {}
        other => panic!("{other}"),
    }
}

/// The API server itself empties the status of what is no load balancer.
fn with_status(patch: &Value) -> Value {
    let mut patch = patch.clone();
    if patch["spec"]["type"].as_str().is_some_and(|kind| kind != "LoadBalancer") {
        patch["status"] = json!({ "loadBalancer": null });
    }
    patch
}

fn compare(cluster: &mut Cluster, seen: &Value, at: &str) {
    for (name, expected) in seen["services"].as_object().into_iter().flatten() {
        let object = cluster.object("services", NS, name).unwrap_or_else(|| panic!("{at}: {name}"));
        let listed: Vec<Value> = object["status"]["loadBalancer"]["ingress"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| entry["ip"].clone())
            .collect();
        assert_eq!(Value::from(listed), expected["ingress"], "{at}: addresses of {name}");
        let notes: BTreeMap<&String, &Value> =
            object["metadata"]["annotations"].as_object().into_iter().flatten().collect();
        let expected: BTreeMap<&String, &Value> =
            expected["annotations"].as_object().into_iter().flatten().collect();
        assert_eq!(notes, expected, "{at}: annotations of {name}");
    }
    for (name, expected) in seen["pools"].as_object().into_iter().flatten() {
        let object = cluster.object("ipaddresspools", SYSTEM, name).unwrap();
        assert_eq!(object["status"], *expected, "{at}: status of pool {name}");
    }
    if let Some(expected) = seen["configuration_state"].get("controller") {
        let object = cluster.object("configurationstates", SYSTEM, "controller").unwrap();
        let mut status = object["status"].clone();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition.as_object_mut().unwrap().remove("lastTransitionTime");
            // An API server stores the required message even when it is empty.
            condition["message"] = condition["message"].as_str().unwrap_or_default().into();
        }
        assert_eq!(status, *expected, "{at}: ConfigurationState");
    }
    let comparable = |message: &str| !message.contains("<nil>");
    let mut expected = BTreeSet::new();
    // A failure that MetalLB repeats on every pass is told once here.
    let mut tolerated = BTreeSet::new();
    for event in seen["events"].as_array().into_iter().flatten() {
        let text = |field: &str| event[field].as_str().unwrap().replace("$ns", NS);
        let line = format!("{} {} {}: {}", text("on"), text("type"), text("reason"), text("message"));
        if comparable(&line) {
            if event["again"] == json!(true) { &mut tolerated } else { &mut expected }.insert(line);
        }
    }
    let told: BTreeSet<String> = cluster
        .told()
        .into_iter()
        // Where MetalLB prints `<nil>` there are better texts here.
        .filter(|line| !line.contains("AdditionalAssignFailed") && !line.ends_with("for ipv4 IPFamily"))
        .collect();
    let unexpected: Vec<_> = told.difference(&expected).filter(|line| !tolerated.contains(*line)).collect();
    let missing: Vec<_> = expected.difference(&told).collect();
    assert!(
        unexpected.is_empty() && missing.is_empty(),
        "{at}: unexpected {unexpected:?}, missing {missing:?}"
    );
}

fn figures(cluster: &Cluster) -> Value {
    let mut figures = serde_json::Map::new();
    for (pool, counters) in &cluster.counters {
        let mut figure = |family: &str, capacity: i64, in_use: i64| {
            let name = |what: &str| format!("metallb_allocator_{family}addresses_{what}{{pool=\"{pool}\"}}");
            figures.insert(name("total"), json!(capacity as f64));
            figures.insert(name("in_use_total"), json!(in_use as f64));
        };
        let total = counters.total();
        figure("", total.capacity, total.in_use);
        figure("ipv4_", counters.ipv4.capacity, counters.ipv4.in_use);
        figure("ipv6_", counters.ipv6.capacity, counters.ipv6.in_use);
    }
    let (loaded, stale) = cluster.configuration.unwrap();
    figures.insert("metallb_k8s_client_config_loaded_bool".to_owned(), json!(f64::from(u8::from(loaded))));
    figures.insert("metallb_k8s_client_config_stale_bool".to_owned(), json!(f64::from(u8::from(stale))));
    figures.into()
}

// SPDX-License-Identifier: Apache-2.0
//! What MetalLB v0.16.1 answered in a real cluster, played again: addresses, annotations, events, counters,
//! ConfigurationState.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::{Cluster, NS, SYSTEM};

/// One thing that is seen otherwise here than there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
struct Difference {
    case: String,
    /// The index of the step.
    step: usize,
    /// `services/NAME`, `pools/NAME`, `configuration_state`, `metrics` or `events`.
    at: String,
    /// What MetalLB v0.16.1 had there, as compact JSON; for events, one that is not sent here.
    #[serde(default)]
    theirs: Option<String>,
    /// What is there here.
    #[serde(default)]
    ours: Option<String>,
}

/// Differences that are meant, with the reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Intended {
    #[allow(dead_code)] // read by people
    name: String,
    #[allow(dead_code)] // read by people
    reason: String,
    shown: Vec<Difference>,
}

#[test]
fn every_recorded_case_is_as_it_was_there_but_for_what_is_meant_to_differ() {
    let corpus: Value = serde_json::from_str(include_str!("../data/metallb-allocation.json")).unwrap();
    let intended: Vec<Intended> =
        serde_json::from_str(include_str!("../data/metallb-allocation-differences.json")).unwrap();
    let cases = corpus["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 28);
    let mut found: Vec<Difference> = cases.iter().flat_map(play).collect();
    let mut meant: Vec<Difference> = intended.into_iter().flat_map(|intended| intended.shown).collect();
    found.sort();
    meant.sort();
    // In the form of the file, to be judged and perhaps put there.
    let lines = |all: &[Difference], but: &[Difference]| {
        let lines = all.iter().filter(|difference| !but.contains(difference));
        lines.map(|difference| serde_json::to_string(difference).unwrap() + "\n").collect::<String>()
    };
    let (unexpected, untrue) = (lines(&found, &meant), lines(&meant, &found));
    assert!(unexpected.is_empty() && untrue.is_empty(), "not meant:\n{unexpected}\nno longer so:\n{untrue}");
}

/// Plays a case; what is otherwise than recorded. Where MetalLB leaves the outcome to chance, what it did is one of
/// several outcomes, and ours is one that is meant, so it is compared like any other.
fn play(case: &Value) -> Vec<Difference> {
    let id = case["id"].as_str().unwrap();
    let mut cluster = Cluster::new();
    cluster.namespace("other", json!({}));
    cluster.quiet();
    let mut differences = Vec::new();
    for (n, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        // What a webhook refused never reached the controller.
        let refused = step["answer"]["code"].as_u64().is_some_and(|code| code >= 300);
        if !refused {
            act(&mut cluster, &step["do"]);
        }
        cluster.quiet();
        let mut note = |at: String, theirs: Option<String>, ours: Option<String>| {
            if theirs != ours {
                differences.push(Difference { case: id.to_owned(), step: n, at, theirs, ours });
            }
        };
        if let Some(metrics) = step["answer"].get("metrics") {
            note("metrics".to_owned(), Some(metrics.to_string()), Some(figures(&cluster).to_string()));
        }
        compare(&mut cluster, &step["seen"], note);
    }
    differences
}

/// Does what a step of a recording says.
pub(crate) fn act(cluster: &mut Cluster, step: &Value) {
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
        "ns" => cluster.namespace(what["name"].as_str().unwrap(), what["labels"].clone()),
        "touch" => {
            let name = what["svc"].as_str().or(what.as_str()).unwrap();
            cluster.patch("services", NS, name, &json!({ "metadata": { "labels": { "touched": "yes" } } }));
        }
        "relist" => cluster.relist(),
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

/// Compares everything that was seen there.
fn compare(
    cluster: &mut Cluster,
    seen: &Value,
    mut note: impl FnMut(String, Option<String>, Option<String>),
) {
    let maps = [
        ("services", services(cluster)),
        ("pools", statuses(cluster, "ipaddresspools")),
        ("configuration_state", statuses(cluster, "configurationstates")),
    ];
    for (kind, ours) in maps {
        let Some(theirs) = seen.get(kind) else { continue };
        let theirs: BTreeMap<String, String> = theirs
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, object)| (name.clone(), object.to_string()))
            .collect();
        let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
        for name in names {
            note(format!("{kind}/{name}"), theirs.get(name).cloned(), ours.get(name).cloned());
        }
    }
    let mut expected = BTreeSet::new();
    // A failure that MetalLB repeats at every pass: whether it is repeated says nothing.
    let mut repeated = BTreeSet::new();
    for event in seen["events"].as_array().into_iter().flatten() {
        let text = |field: &str| event[field].as_str().unwrap().replace("$ns", NS);
        let line = format!("{} {} {}: {}", text("on"), text("type"), text("reason"), text("message"));
        if event["again"] == json!(true) { &mut repeated } else { &mut expected }.insert(line);
    }
    let told: BTreeSet<String> = cluster.told().into_iter().collect();
    for line in expected.difference(&told) {
        note("events".to_owned(), Some(line.clone()), None);
    }
    for line in told.difference(&expected).filter(|line| !repeated.contains(*line)) {
        note("events".to_owned(), None, Some(line.clone()));
    }
}

/// Addresses and annotations of every Service, as the recordings have them.
fn services(cluster: &Cluster) -> BTreeMap<String, String> {
    let entry = |entry: &Value| match entry.as_object() {
        Some(fields) if fields.keys().all(|key| key == "ip" || key == "ipMode") => entry["ip"].clone(),
        _ => entry.clone(),
    };
    let seen = |object: &Value| {
        let entries = object["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
        let mut seen = json!({ "ingress": entries.map(entry).collect::<Vec<Value>>() });
        let notes = object["metadata"]["annotations"].as_object().into_iter().flatten();
        let notes: serde_json::Map<String, Value> = notes
            .filter(|(key, _)| key.starts_with("metallb"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !notes.is_empty() {
            seen["annotations"] = notes.into();
        }
        let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        let name = if text("namespace") == NS {
            text("name")
        } else {
            format!("{}/{}", text("namespace"), text("name"))
        };
        (name, seen.to_string())
    };
    cluster.objects("services").map(seen).collect()
}

/// The statuses of all objects of a kind, without times.
fn statuses(cluster: &Cluster, plural: &str) -> BTreeMap<String, String> {
    let status = |object: &Value| {
        let mut status = object["status"].clone();
        for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            condition.as_object_mut().unwrap().remove("lastTransitionTime");
            // An API server stores the required message even when it is empty.
            condition["message"] = condition["message"].as_str().unwrap_or_default().into();
        }
        (object["metadata"]["name"].as_str().unwrap().to_owned(), status.to_string())
    };
    cluster.objects(plural).map(status).collect()
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

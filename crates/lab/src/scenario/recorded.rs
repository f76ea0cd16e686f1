// SPDX-License-Identifier: Apache-2.0
//! The story's objects beside those that MetalLB v0.16.1 left in the same situation.
//!
//! Both are reduced to what other programs read: labels, annotations and owners, fields and their values, who manages
//! which field through which subresource. Names, times, uids and counters are the run's own and are left out.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value, json};

use super::cluster::{CONFIGURATION_STATE, EVENT, L2_STATUS, POOL, SERVICE, eventually, text};
use super::stage::{SOON, Stage};
use super::story::Seen;

const RECORDING: &str = include_str!("../../data/metallb-v0.16.1.json");

/// The daemons' field managers. Those of whoever else wrote the object are not compared.
const MANAGERS: [&str; 4] = ["controller", "speaker", "poolReconciler", "configReconciler"];

/// Names in the recording, and the same things' names in the story.
const NAMES: [(&str, &str); 4] =
    [("node2", "k8s-node-1"), ("four", "hello-lb"), ("default", "demo"), ("pool", "lan")];

/// The step: every object of the story is as recorded.
pub(super) async fn objects(stage: &mut Stage<'_>) -> Seen {
    let recording: Value = serde_json::from_str(RECORDING).context("read the recording")?;
    let mut told = Vec::new();
    for (what, recorded) in recording.as_object().into_iter().flatten().filter(|(_, value)| value.is_object())
    {
        let expected = reduce(&renamed(recorded));
        eventually(SOON, async || {
            let live = reduce(&find(stage, what).await?);
            match difference("", &expected, &live) {
                None => Ok(()),
                Some(difference) => bail!("{what}: {difference}"),
            }
        })
        .await?;
        told.push(what.as_str());
    }
    ensure!(!told.is_empty(), "the recording is empty");
    Ok(format!("as recorded: {}", told.join(", ")))
}

/// The story's object for an entry of the recording.
async fn find(stage: &Stage<'_>, what: &str) -> Result<Value> {
    let cluster = &stage.cluster;
    match what {
        "Service" => cluster.read(SERVICE, "demo", "hello-lb").await,
        "IPAddressPool" => cluster.read(POOL, "metallb-system", "lan").await,
        "ConfigurationState controller" => {
            cluster.read(CONFIGURATION_STATE, "metallb-system", "controller").await
        }
        "ConfigurationState speaker" => {
            cluster.read(CONFIGURATION_STATE, "metallb-system", "speaker-k8s-node-1").await
        }
        "ServiceL2Status" => {
            let all = cluster.list(L2_STATUS, "metallb-system").await?;
            let own = all.into_iter().find(|status| text(status, "/status/serviceName") == "hello-lb");
            own.context("there is no ServiceL2Status of demo/hello-lb")
        }
        _ => {
            let reason =
                what.strip_prefix("Event ").with_context(|| format!("{what} is not in this story"))?;
            let all = cluster.list(EVENT, "demo").await?;
            let own = all.into_iter().find(|event| {
                text(event, "/reason") == reason && text(event, "/involvedObject/name") == "hello-lb"
            });
            own.with_context(|| format!("there is no event {reason} on demo/hello-lb"))
        }
    }
}

/// The recorded object with the story's names: where a text is a name, names the speaker of one, or quotes one.
fn renamed(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let mut text = text.clone();
            for (from, to) in NAMES {
                if text == from {
                    text = to.to_owned();
                } else if text == format!("speaker-{from}") {
                    text = format!("speaker-{to}");
                } else {
                    text = text.replace(&format!("\"{from}\""), &format!("\"{to}\""));
                }
            }
            text.into()
        }
        Value::Array(items) => items.iter().map(renamed).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), renamed(value))).collect(),
        other => other.clone(),
    }
}

/// What is compared of an object.
fn reduce(object: &Value) -> Value {
    let empty = Map::new();
    let metadata = object["metadata"].as_object().unwrap_or(&empty);
    let mut kept = Map::new();
    for key in ["generateName", "namespace", "labels"] {
        if let Some(value) = metadata.get(key) {
            kept.insert(key.to_owned(), value.clone());
        }
    }
    // A generated name differs from run to run, a ConfigurationState's does not.
    if object.pointer("/status/result").is_some() {
        kept.insert("name".to_owned(), object["metadata"]["name"].clone());
    }
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    let own: Map<String, Value> = annotations
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with("metallb.io/"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !own.is_empty() {
        kept.insert("annotations".to_owned(), own.into());
    }
    if let Some(owners) = metadata.get("ownerReferences").and_then(Value::as_array) {
        kept.insert(
            "ownerReferences".to_owned(),
            owners.iter().map(|owner| blank(owner, &["name", "uid"])).collect(),
        );
    }
    kept.insert("managedFields".to_owned(), managers(metadata.get("managedFields")).into());

    let times = ["firstTimestamp", "lastTimestamp", "lastTransitionTime", "uid", "resourceVersion"];
    let object = blank(object, &times);
    let mut reduced = Map::from_iter([("metadata".to_owned(), Value::Object(kept))]);
    for (key, value) in object.as_object().into_iter().flatten() {
        // Spec belongs to the user; only the empty one of a status object is the daemons'.
        let skipped = ["metadata", "kind", "apiVersion", "count"].contains(&key.as_str())
            || (key == "spec" && value != &json!({}))
            || value.is_null();
        if !skipped {
            reduced.insert(key.clone(), value.clone());
        }
    }
    // How many addresses there are is the pool's own affair; that they are counted is not.
    if let Some(status) = reduced.get_mut("status").and_then(Value::as_object_mut) {
        status.values_mut().filter(|value| value.is_number()).for_each(|value| *value = json!(0));
    }
    Value::Object(reduced)
}

/// The value with the texts of these fields, at any depth, left out.
fn blank(value: &Value, keys: &[&str]) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| {
                let value = if keys.contains(&key.as_str()) { json!("…") } else { blank(value, keys) };
                (key.clone(), value)
            })
            .collect(),
        Value::Array(items) => items.iter().map(|item| blank(item, keys)).collect(),
        other => other.clone(),
    }
}

/// The daemons' entries of `managedFields`, in order: manager, operation, version, subresource, paths.
fn managers(entries: Option<&Value>) -> Vec<Value> {
    let mut kept: Vec<Value> = entries
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|entry| MANAGERS.contains(&text(entry, "/manager")))
        .map(|entry| {
            let mut paths: Vec<String> = match entry.get("fields").and_then(Value::as_array) {
                Some(recorded) => recorded.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                None => paths("", &entry["fieldsV1"]),
            };
            paths.sort();
            json!({
                "manager": entry["manager"],
                "operation": entry["operation"],
                "apiVersion": entry["apiVersion"],
                "subresource": entry.get("subresource").cloned().unwrap_or_default(),
                "fields": paths,
            })
        })
        .collect();
    kept.sort_by_key(|entry| entry.to_string());
    kept
}

/// The leaves of a `fieldsV1` as paths: `status.conditions[{"type":"x"}].reason`.
fn paths(prefix: &str, fields: &Value) -> Vec<String> {
    let children = fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".");
    let mut found = Vec::new();
    for (key, below) in children {
        let path = match key.split_once(':') {
            Some(("f", name)) if prefix.is_empty() => name.to_owned(),
            Some(("f", name)) => format!("{prefix}.{name}"),
            Some(("k", selector)) if selector.starts_with(r#"{"uid":"#) => {
                format!(r#"{prefix}[{{"uid":"{{uid}}"}}]"#)
            }
            Some((_, selector)) => format!("{prefix}[{selector}]"),
            None => continue,
        };
        let deeper = paths(&path, below);
        if deeper.is_empty() {
            found.push(path);
        } else {
            found.extend(deeper);
        }
    }
    found
}

/// The first place where two values differ.
fn difference(path: &str, expected: &Value, seen: &Value) -> Option<String> {
    match (expected, seen) {
        (Value::Object(a), Value::Object(b)) => {
            a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))).find_map(|key| {
                let nothing = Value::Null;
                let path = format!("{path}.{key}");
                difference(&path, a.get(key).unwrap_or(&nothing), b.get(key).unwrap_or(&nothing))
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .find_map(|(index, (a, b))| difference(&format!("{path}[{index}]"), a, b)),
        _ => (expected != seen).then(|| format!("{path} is {seen}, recorded is {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorded ServiceL2Status as an API server would return the story's.
    fn live() -> Value {
        json!({
            "apiVersion": "metallb.io/v1beta1", "kind": "ServiceL2Status",
            "metadata": {
                "name": "l2-x7k2p", "generateName": "l2-", "namespace": "metallb-system", "uid": "1",
                "labels": {"metallb.io/node": "k8s-node-1", "metallb.io/service-name": "hello-lb",
                    "metallb.io/service-namespace": "demo"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "speaker-abcde", "uid": "2"}],
                "managedFields": [
                    {"manager": "speaker", "operation": "Update", "apiVersion": "metallb.io/v1beta1",
                     "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "subresource": "status",
                     "fieldsV1": {"f:status": {".": {}, "f:interfaces": {}, "f:node": {}, "f:serviceName": {},
                        "f:serviceNamespace": {}}}},
                    {"manager": "speaker", "operation": "Update", "apiVersion": "metallb.io/v1beta1",
                     "fieldsV1": {"f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:metallb.io/node": {},
                        "f:metallb.io/service-name": {}, "f:metallb.io/service-namespace": {}},
                        "f:ownerReferences": {".": {}, "k:{\"uid\":\"2\"}": {}}}, "f:spec": {}}},
                    {"manager": "somebody", "operation": "Update", "apiVersion": "v1", "fieldsV1": {}}
                ]
            },
            "spec": {},
            "status": {"interfaces": [{"name": "ens18"}], "node": "k8s-node-1", "serviceName": "hello-lb",
                "serviceNamespace": "demo"}
        })
    }

    fn recorded(what: &str) -> Value {
        reduce(&renamed(&serde_json::from_str::<Value>(RECORDING).unwrap()[what]))
    }

    #[test]
    fn the_same_object_under_other_names_has_no_difference() {
        assert_eq!(difference("", &recorded("ServiceL2Status"), &reduce(&live())), None);
    }

    #[test]
    fn every_fact_that_is_compared_is_noticed_when_it_changes() {
        for (pointer, value) in [
            ("/metadata/labels/metallb.io~1node", json!("k8s-node-2")),
            ("/metadata/ownerReferences/0/kind", json!("DaemonSet")),
            (
                "/metadata/ownerReferences/0",
                json!({"kind": "Pod", "apiVersion": "v1", "name": "", "uid": "", "controller": true}),
            ),
            ("/metadata/managedFields/0/manager", json!("kubectl")),
            ("/metadata/managedFields/0/subresource", Value::Null),
            ("/metadata/managedFields/1/fieldsV1/f:metadata", json!({})),
            ("/status/interfaces", json!([])),
            ("/spec", Value::Null),
        ] {
            let mut object = live();
            *object.pointer_mut(pointer).unwrap() = value;
            assert!(difference("", &recorded("ServiceL2Status"), &reduce(&object)).is_some(), "{pointer}");
        }
    }

    #[test]
    fn names_in_the_recording_become_the_story_s() {
        assert_eq!(
            recorded("Event nodeAssigned")["message"],
            r#"announcing from node "k8s-node-1" with protocol "layer2""#
        );
        assert_eq!(recorded("ConfigurationState speaker")["metadata"]["name"], "speaker-k8s-node-1");
        assert_eq!(
            recorded("Service")["metadata"]["annotations"]["metallb.io/ip-allocated-from-pool"],
            "lan"
        );
    }
}

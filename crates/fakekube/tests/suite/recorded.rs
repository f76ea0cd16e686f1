// SPDX-License-Identifier: Apache-2.0
//! `tests/data/recorded.json`: requests in order, with what a real API server (1.36) answered. Names of the
//! moment are made equal before answers are compared: UIDs, revisions, times, addresses and ports that the
//! server chose.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use crate::target::{JSON, Target, until};

#[tokio::test]
async fn answers_are_those_of_a_real_api_server() {
    answers(&Target::fake().await).await;
}

pub(crate) async fn answers(target: &Target) {
    let recorded: Vec<Value> =
        serde_json::from_str(include_str!("../data/recorded.json")).expect("the recording is JSON");
    assert!(recorded.len() > 100);
    let mut different = Vec::new();
    for entry in recorded {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        let (method, path) = text("request").split_once(' ').expect("method and path");
        if method == "WAIT" {
            until("a new kind is served", async || (target.get(path).await.code == 200).then_some(())).await;
            continue;
        }
        let body = match entry.get("raw") {
            Some(raw) => raw.as_str().unwrap_or_default().to_owned(),
            None => entry.get("body").map(Value::to_string).unwrap_or_default(),
        };
        let media = if body.is_empty() { "" } else { entry["type"].as_str().unwrap_or(JSON) };
        let answer = target.send(method, path, media, body.clone().into_bytes(), text("accept")).await;
        let mut wrong = Vec::new();
        if u64::from(answer.code) != entry["code"].as_u64().unwrap_or(0) {
            wrong.push(format!("code {} instead of {}: {}", answer.code, entry["code"], answer.body));
        } else if let Some(expected) = entry.get("answer") {
            differences(&plain(expected, ""), &plain(&answer.body, ""), "", &mut wrong);
        }
        if answer.warning != text("warning") {
            wrong.push(format!("warning {:?} instead of {:?}", answer.warning, text("warning")));
        }
        if !wrong.is_empty() {
            different.push(format!("{method} {path} {body}\n    {}", wrong.join("\n    ")));
        }
    }
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
}

fn plain(value: &Value, under: &str) -> Value {
    const CHOSEN: &[&str] = &[
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "time",
        "deletionTimestamp",
        "lastTransitionTime",
        "clusterIP",
        "nodePort",
        "healthCheckNodePort",
    ];
    // What no client of this server looks at.
    const LEFT_OUT: &[&str] = &[
        "selfLink",
        "storageVersionHash",
        "serverAddressByClientCIDRs",
        "description",
        "remainingItemCount",
    ];
    match value {
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, member) in map {
                if member.is_null() || LEFT_OUT.contains(&key.as_str()) {
                    continue;
                }
                let chosen = CHOSEN.contains(&key.as_str()) && (member.is_string() || member.is_number());
                let member = if chosen && member != "None" {
                    Value::from("*")
                } else if key == "clusterIPs" && member[0] != "None" {
                    member.as_array().into_iter().flatten().map(|_| Value::from("*")).collect()
                } else {
                    plain(member, key)
                };
                out.insert(key.clone(), member);
            }
            Value::Object(out)
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| plain(item, "")).collect();
            if matches!(under, "verbs" | "causes") {
                items.sort_by_key(Value::to_string);
            }
            if under == "managedFields" {
                // A server orders them by time in between, in whole seconds: as if all were of the same one.
                let word = |item: &Value, key: &str| item[key].as_str().unwrap_or_default().to_owned();
                items.sort_by_cached_key(|item| {
                    ["operation", "manager", "apiVersion", "subresource"].map(|key| word(item, key))
                });
            }
            Value::Array(items)
        }
        Value::String(text) => {
            static NAMES: LazyLock<[(Regex, &str); 4]> = LazyLock::new(|| {
                [
                    ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
                    (r"\bg-[a-z0-9]{5}\b", "g-xxxxx"),
                    ("^[0-9]+[smh]$", "AGE"),
                    ("current: [0-9]+", "current: N"),
                ]
                .map(|(pattern, name)| (Regex::new(pattern).expect("a pattern"), name))
            });
            let mut text = text.clone();
            for (pattern, name) in NAMES.iter() {
                text = pattern.replace_all(&text, *name).into_owned();
            }
            Value::String(text)
        }
        other => other.clone(),
    }
}

fn differences(expected: &Value, found: &Value, path: &str, out: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                match b.get(key) {
                    Some(other) => differences(value, other, &format!("{path}.{key}"), out),
                    None => out.push(format!("{path}.{key} is missing: {value}")),
                }
            }
            for (key, value) in b.iter().filter(|(key, _)| !a.contains_key(*key)) {
                out.push(format!("{path}.{key} is too much: {value}"));
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &format!("{path}[{i}]"), out);
            }
        }
        (a, b) if a != b => out.push(format!("{path} is {b} instead of {a}")),
        _ => {}
    }
}

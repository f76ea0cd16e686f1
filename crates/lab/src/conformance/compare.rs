// SPDX-License-Identifier: Apache-2.0
//! What was recorded against what is: every field, and what is not compared.
//!
//! Not compared are: the notation of selectors (it is the language's), a failure that was told before (how often depends
//! on how often somebody looked), and what was seen of something that never came to rest. Events are a set.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

/// One field that is not as recorded.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Difference {
    /// Where: `answer.code`, `services.a.ingress`, `events.a.Warning.AllocationFailed`, …
    pub(crate) path: String,
    /// What was recorded; `None` if nothing.
    pub(crate) expected: Option<Value>,
    /// What is; `None` if nothing.
    pub(crate) got: Option<Value>,
}

/// An event as it is compared.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct Told {
    pub(crate) on: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Compares answers. Where nothing was recorded there is nothing to compare.
pub(crate) fn answers(expected: Option<&Map<String, Value>>, got: &Map<String, Value>) -> Vec<Difference> {
    let mut found = Vec::new();
    let Some(expected) = expected else { return found };
    if expected.contains_key("code") {
        if is_refusal(expected) != is_refusal(got) {
            // One difference, since nothing else of the two answers can be compared.
            let [expected, got] = [expected, got].map(|answer| Some(outcome(answer).into()));
            return vec![Difference { path: "answer".to_owned(), expected, got }];
        }
        compare(&mut found, "answer.code", expected.get("code"), got.get("code"));
        let texts = [expected, got].map(|answer| answer.get("message").and_then(Value::as_str));
        if !texts[0].zip(texts[1]).is_some_and(|(expected, got)| same_text(expected, got)) {
            compare(&mut found, "answer.message", expected.get("message"), got.get("message"));
        }
        compare(&mut found, "answer.reason", expected.get("reason"), got.get("reason"));
        let (missing, more) = unequal(warnings(expected), warnings(got));
        let missing = missing.into_iter().map(|text| (Some(text.into()), None));
        for (expected, got) in missing.chain(more.into_iter().map(|text| (None, Some(text.into())))) {
            found.push(Difference { path: "answer.warnings".to_owned(), expected, got });
        }
    }
    if expected.contains_key("apiVersion") {
        compare(&mut found, "answer.apiVersion", expected.get("apiVersion"), got.get("apiVersion"));
    }
    for key in ["spec", "metrics"] {
        if let Some(expected) = expected.get(key) {
            match got.get(key) {
                Some(got) => fields(&mut found, &format!("answer.{key}"), expected, got),
                None => compare(&mut found, &format!("answer.{key}"), Some(expected), None),
            }
        }
    }
    found
}

fn is_refusal(answer: &Map<String, Value>) -> bool {
    answer.get("code").and_then(Value::as_u64).is_some_and(|code| code >= 400)
}

/// An answer in one line: `403 Forbidden: message; warned: one | two`.
fn outcome(answer: &Map<String, Value>) -> String {
    let mut text = answer.get("code").map(Value::to_string).unwrap_or_default();
    for (between, key) in [(" ", "reason"), (": ", "message")] {
        if let Some(part) = answer.get(key).and_then(Value::as_str) {
            text += between;
            text += part;
        }
    }
    let warnings = warnings(answer);
    if !warnings.is_empty() {
        text += "; warned: ";
        text += &warnings.join(" | ");
    }
    text
}

/// Compares what was seen of Services, pools and ConfigurationStates.
pub(crate) fn states(expected: &Map<String, Value>, got: &Map<String, Value>) -> Vec<Difference> {
    let mut found = Vec::new();
    for (part, depth) in [("services", 2), ("pools", 2), ("configuration_state", 2)] {
        let nothing = Value::Object(Map::new());
        let [expected, got] = [expected, got].map(|seen| by_type(seen.get(part).unwrap_or(&nothing).clone()));
        nested(&mut found, part, &expected, &got, depth);
    }
    found
}

/// Compares events: `before` was told in earlier steps of the case.
pub(crate) fn events(
    expected: &[Told],
    repeated: &[Told],
    got: &[Told],
    before: &BTreeSet<Told>,
) -> Vec<Difference> {
    let news = |event: &&Told| !before.contains(*event) && !repeated.contains(*event);
    let mut missing: Vec<&Told> =
        expected.iter().filter(|event| !got.iter().any(|other| same_event(event, other))).collect();
    let mut more: Vec<&Told> = got
        .iter()
        .filter(news)
        .filter(|event| !expected.iter().any(|other| same_event(other, event)))
        .collect();
    let mut found = Vec::new();
    // The same kind of news in other words is one difference, not two.
    missing.retain(|event| {
        let about = |other: &&Told| {
            (&other.on, &other.kind, &other.reason) == (&event.on, &event.kind, &event.reason)
        };
        let Some(place) = more.iter().position(about) else { return true };
        let other = more.remove(place);
        found.push(difference(event, Some(&event.message), Some(&other.message)));
        false
    });
    found.extend(missing.into_iter().map(|event| difference(event, Some(&event.message), None)));
    found.extend(more.into_iter().map(|event| difference(event, None, Some(&event.message))));
    found
}

fn difference(event: &Told, expected: Option<&String>, got: Option<&String>) -> Difference {
    let path = format!("events.{}.{}.{}", event.on, event.kind, event.reason);
    Difference {
        path,
        expected: expected.map(|text| text.as_str().into()),
        got: got.map(|text| text.as_str().into()),
    }
}

fn same_event(expected: &Told, got: &Told) -> bool {
    (&expected.on, &expected.kind, &expected.reason) == (&got.on, &got.kind, &got.reason)
        && same_text(&expected.message, &got.message)
}

/// Whether two texts are the same but for the notation of selectors.
pub(crate) fn same_text(expected: &str, got: &str) -> bool {
    let (mut expected, mut got) = (expected.lines(), got.lines());
    loop {
        match (expected.next(), got.next()) {
            (None, None) => return true,
            (Some(expected), Some(got)) if without_notation(expected) == without_notation(got) => {}
            _ => return false,
        }
    }
}

/// A line up to where a selector is written out.
fn without_notation(line: &str) -> &str {
    for start in ["invalid label selector", "invalid service selector"] {
        if let Some(place) = line.find(start) {
            return line.get(..place + start.len()).unwrap_or(line);
        }
    }
    if let Some(place) = line.find("duplicate definition of ")
        && let Some(end) = line.get(place..).and_then(|rest| rest.find("Selectors "))
    {
        return line.get(..place + end + "Selectors".len()).unwrap_or(line);
    }
    line
}

/// The warnings of an answer, as a recorder and an API server may quote them.
fn warnings(answer: &Map<String, Value>) -> Vec<String> {
    let texts =
        answer.get("warnings").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    texts.map(unquoted).collect()
}

/// A text without the backslashes of an HTTP quoted-string (RFC 9110 section 5.6.4).
fn unquoted(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.extend(characters.next()),
            character => plain.push(character),
        }
    }
    plain
}

/// What is only in the first list, and only in the second.
fn unequal(mut one: Vec<String>, other: Vec<String>) -> (Vec<String>, Vec<String>) {
    let mut more = Vec::new();
    for text in other {
        match one.iter().position(|candidate| *candidate == text) {
            Some(place) => drop(one.remove(place)),
            None => more.push(text),
        }
    }
    (one, more)
}

/// Conditions as a map by their type: their order means nothing.
fn by_type(mut value: Value) -> Value {
    for state in value.as_object_mut().into_iter().flat_map(|map| map.values_mut()) {
        let Some(conditions) = state.get("conditions").and_then(Value::as_array) else { continue };
        let named = conditions.iter().map(|condition| {
            let mut condition = condition.clone();
            let name = condition.as_object_mut().and_then(|map| map.remove("type")).unwrap_or_default();
            (name.as_str().unwrap_or_default().to_owned(), condition)
        });
        let named: Map<String, Value> = named.collect();
        if let Some(map) = state.as_object_mut() {
            map.insert("conditions".to_owned(), named.into());
        }
    }
    value
}

/// Compares maps of maps; an object that is there once only is one difference.
fn nested(found: &mut Vec<Difference>, path: &str, expected: &Value, got: &Value, depth: usize) {
    let (Some(one), Some(other)) = (expected.as_object(), got.as_object()) else {
        return compare(found, path, Some(expected), Some(got));
    };
    for key in keys(one, other) {
        let path = format!("{path}.{key}");
        match (one.get(key), other.get(key)) {
            (Some(expected), Some(got)) if depth > 1 => nested_fields(found, &path, expected, got),
            (expected, got) => compare(found, &path, expected, got),
        }
    }
}

fn nested_fields(found: &mut Vec<Difference>, path: &str, expected: &Value, got: &Value) {
    let (Some(one), Some(other)) = (expected.as_object(), got.as_object()) else {
        return compare(found, path, Some(expected), Some(got));
    };
    for key in keys(one, other) {
        let path = format!("{path}.{key}");
        let nothing = Value::Object(Map::new());
        // No annotations and no condition are as good as an empty map of them.
        let [expected, got] = [one.get(key), other.get(key)];
        let is_map = [expected, got].into_iter().flatten().all(Value::is_object);
        if is_map && (expected.is_some() || got.is_some()) {
            fields(found, &path, expected.unwrap_or(&nothing), got.unwrap_or(&nothing));
        } else {
            compare(found, &path, expected, got);
        }
    }
}

/// Compares two values leaf by leaf; lists are leaves.
fn fields(found: &mut Vec<Difference>, path: &str, expected: &Value, got: &Value) {
    match (expected.as_object(), got.as_object()) {
        (Some(one), Some(other)) => {
            for key in keys(one, other) {
                let path = format!("{path}.{key}");
                match (one.get(key), other.get(key)) {
                    (Some(expected), Some(got)) => fields(found, &path, expected, got),
                    (expected, got) => compare(found, &path, expected, got),
                }
            }
        }
        _ => compare(found, path, Some(expected), Some(got)),
    }
}

fn keys<'a>(one: &'a Map<String, Value>, other: &'a Map<String, Value>) -> BTreeSet<&'a String> {
    one.keys().chain(other.keys()).collect()
}

fn compare(found: &mut Vec<Difference>, path: &str, expected: Option<&Value>, got: Option<&Value>) {
    if !equal(expected, got) {
        found.push(Difference { path: path.to_owned(), expected: expected.cloned(), got: got.cloned() });
    }
}

/// Numbers are equal by value: `2` and `2.0` are one.
fn equal(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (Some(Value::Number(one)), Some(Value::Number(other))) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn paths(found: &[Difference]) -> Vec<&str> {
        found.iter().map(|difference| difference.path.as_str()).collect()
    }

    fn told(message: &str) -> Told {
        let text = str::to_owned;
        Told { on: text("a"), kind: text("Warning"), reason: text("R"), message: text(message) }
    }

    #[test]
    fn each_field_of_an_answer_can_differ() {
        let answer = json!({
            "code": 403, "message": "m", "reason": "Forbidden", "warnings": ["w"], "apiVersion": "v",
            "spec": {"a": {"b": 1}}, "metrics": {"m{x=\"1\"}": 2.0},
        });
        assert_eq!(answers(Some(&map(answer.clone())), &map(answer.clone())), []);
        for (pointer, value, path) in [
            ("/code", json!(422), "answer.code"),
            ("/message", json!("n"), "answer.message"),
            ("/reason", json!("Invalid"), "answer.reason"),
            ("/warnings/0", json!("v"), "answer.warnings"),
            ("/apiVersion", json!("w"), "answer.apiVersion"),
            ("/spec/a/b", json!(2), "answer.spec.a.b"),
            ("/metrics/m{x=\"1\"}", json!(3), "answer.metrics.m{x=\"1\"}"),
        ] {
            let mut other = answer.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            let found = answers(Some(&map(other.clone())), &map(answer.clone()));
            assert!(paths(&found).contains(&path), "{pointer}: {found:?}");
            assert!(!answers(Some(&map(answer.clone())), &map(other)).is_empty());
        }
        for key in ["message", "reason", "warnings", "spec", "metrics", "apiVersion"] {
            let mut less = map(answer.clone());
            less.remove(key);
            assert!(!answers(Some(&map(answer.clone())), &less).is_empty(), "{key}");
        }
        let recorded = map(json!({"code": 201}));
        let warned = map(json!({"code": 201, "warnings": ["w"]}));
        assert_eq!(paths(&answers(Some(&recorded), &warned)), ["answer.warnings"]);
        assert_eq!(answers(None, &warned), []);
    }

    #[test]
    fn a_refusal_in_the_place_of_a_success_is_one_difference_with_all_that_was_said() {
        let good = map(json!({"code": 201, "warnings": ["v", "w"], "spec": {}}));
        let bad = map(json!({"code": 403, "reason": "Forbidden", "message": "m"}));
        let found = answers(Some(&good), &bad);
        assert_eq!(paths(&found), ["answer"]);
        assert_eq!(
            (&found[0].expected, &found[0].got),
            (&Some(json!("201; warned: v | w")), &Some(json!("403 Forbidden: m")))
        );
        assert_eq!(paths(&answers(Some(&bad), &good)), ["answer"]);
    }

    #[test]
    fn each_field_that_was_seen_can_differ() {
        let seen = json!({
            "services": {"a": {"ingress": ["1.2.3.4", {"hostname": "h"}], "annotations": {"metallb.io/x": "1"}}},
            "pools": {"p": {"assignedIPv4": 1, "availableIPv4": 2}},
            "configuration_state": {"controller": {
                "conditions": [{"type": "T", "status": "True", "reason": "R", "message": ""}],
                "result": "Valid", "errorSummary": "e",
            }},
        });
        assert_eq!(states(&map(seen.clone()), &map(seen.clone())), []);
        for (pointer, value, path) in [
            ("/services/a/ingress", json!([{"hostname": "h"}, "1.2.3.4"]), "services.a.ingress"),
            ("/services/a/annotations/metallb.io~1x", json!("2"), "services.a.annotations.metallb.io/x"),
            ("/services/a/annotations", json!({}), "services.a.annotations.metallb.io/x"),
            ("/services", json!({}), "services.a"),
            ("/pools/p/assignedIPv4", json!(2), "pools.p.assignedIPv4"),
            ("/pools/p", json!({"assignedIPv4": 1}), "pools.p.availableIPv4"),
            (
                "/configuration_state/controller/result",
                json!("Invalid"),
                "configuration_state.controller.result",
            ),
            (
                "/configuration_state/controller/errorSummary",
                json!("f"),
                "configuration_state.controller.errorSummary",
            ),
            (
                "/configuration_state/controller/conditions/0/status",
                json!("False"),
                "configuration_state.controller.conditions.T.status",
            ),
            (
                "/configuration_state/controller/conditions/0/message",
                json!("m"),
                "configuration_state.controller.conditions.T.message",
            ),
            (
                "/configuration_state/controller/conditions",
                json!([]),
                "configuration_state.controller.conditions.T",
            ),
        ] {
            let mut other = seen.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            assert_eq!(paths(&states(&map(seen.clone()), &map(other.clone()))), [path], "{pointer}");
            assert_eq!(paths(&states(&map(other), &map(seen.clone()))), [path], "{pointer}");
        }
        let bare = json!({"services": {"a": {"ingress": []}}});
        let empty = json!({"services": {"a": {"ingress": [], "annotations": {}}}});
        assert_eq!(states(&map(bare), &map(empty)), []);
    }

    #[test]
    fn events_are_a_set_and_each_part_of_one_can_differ() {
        let compared = |expected: &[Told], got: &[Told]| events(expected, &[], got, &BTreeSet::new());
        let (one, two) = ([told("1")], [told("2")]);
        let both = [told("1"), told("2")];
        assert_eq!(compared(&both, &[told("2"), told("1"), told("1")]), []);
        let found = compared(&one, &two);
        assert_eq!(
            (found.len(), &found[0].expected, &found[0].got),
            (1, &Some(json!("1")), &Some(json!("2")))
        );
        for other in [
            Told { on: "b".to_owned(), ..told("1") },
            Told { kind: "Normal".to_owned(), ..told("1") },
            Told { reason: "S".to_owned(), ..told("1") },
        ] {
            let found = compared(&one, &[other]);
            assert_eq!(found.iter().map(|found| found.got.is_some()).collect::<Vec<_>>(), [false, true]);
        }
        assert_eq!(compared(&one, &[]).len(), 1);
        assert_eq!(compared(&[], &one).len(), 1);
    }

    #[test]
    fn what_was_told_before_is_not_compared() {
        let before = BTreeSet::from([told("1")]);
        assert_eq!(events(&[], &[], &[told("1")], &before), []);
        assert_eq!(events(&[], &[told("2")], &[told("2")], &before), []);
        assert_eq!(events(&[], &[told("2")], &[], &before), []);
        assert_eq!(events(&[told("3")], &[], &[told("1")], &before).len(), 1);
    }

    #[test]
    fn the_notation_of_selectors_is_not_compared_and_everything_around_it_is() {
        for (one, other, same) in [
            ("x invalid label selector {map[]}\ny", "x invalid label selector a=b\ny", true),
            ("x invalid label selector {map[]}\ny", "x invalid label selector a=b\nz", false),
            ("w invalid label selector {map[]}", "x invalid label selector {map[]}", false),
            ("invalid service selector {m}: c", "invalid service selector n: d", true),
            ("duplicate definition of nodeSelectors {m}", "duplicate definition of nodeSelectors n", true),
            (
                "duplicate definition of nodeSelectors {m}",
                "duplicate definition of serviceSelectors {m}",
                false,
            ),
            ("duplicate definition of peers \"a\"", "duplicate definition of peers \"b\"", false),
            ("a\nb", "a", false),
        ] {
            assert_eq!(same_text(one, other), same, "{one:?} {other:?}");
        }
    }

    #[test]
    fn warnings_are_compared_without_the_quoting_of_their_header() {
        let recorded = map(json!({"code": 201, "warnings": ["unknown field \\\"spec.x\\\""]}));
        let plain = map(json!({"code": 201, "warnings": ["unknown field \"spec.x\""]}));
        assert_eq!(answers(Some(&recorded), &plain), []);
    }

    #[test]
    fn numbers_are_equal_by_value() {
        let one = map(json!({"metrics": {"m": 2.0}}));
        assert_eq!(answers(Some(&one), &map(json!({"metrics": {"m": 2}}))), []);
        assert_eq!(answers(Some(&one), &map(json!({"metrics": {"m": 3}}))).len(), 1);
    }

    /// Pointers to everything in a value that is not made of other values.
    fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
        let inner: Vec<(String, &Value)> = match value {
            Value::Object(map) => {
                map.iter().map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value)).collect()
            }
            Value::Array(list) => list.iter().enumerate().map(|(n, value)| (n.to_string(), value)).collect(),
            _ => Vec::new(),
        };
        if inner.is_empty() {
            found.push(path.to_owned());
        }
        for (key, value) in inner {
            leaves(value, &format!("{path}/{key}"), found);
        }
    }

    /// Another value of the same kind.
    fn other(value: &Value) -> Value {
        match value {
            Value::String(text) => format!("~{text}").into(),
            Value::Number(number) => (number.as_f64().unwrap() + 1.0).into(),
            Value::Bool(value) => (!value).into(),
            Value::Array(_) => json!(["~"]),
            Value::Object(_) => json!({"~": "~"}),
            Value::Null => json!("~"),
        }
    }

    /// Every value with one leaf altered.
    fn altered(value: &Value) -> Vec<(String, Value)> {
        let mut pointers = Vec::new();
        leaves(value, "", &mut pointers);
        let alter = |pointer: String| {
            let mut altered = value.clone();
            let leaf = altered.pointer_mut(&pointer)?;
            *leaf = other(leaf);
            Some((pointer, altered))
        };
        pointers.into_iter().filter_map(alter).collect()
    }

    /// The events of a step that are compared.
    fn news(seen: &Value) -> Vec<Told> {
        let text = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
        let events = seen["events"].as_array().into_iter().flatten();
        let events = events.filter(|event| event["again"] != json!(true));
        let told = |event: &Value| Told {
            on: text(event, "on"),
            kind: text(event, "type"),
            reason: text(event, "reason"),
            message: text(event, "message"),
        };
        events.map(told).collect()
    }

    #[test]
    fn no_recorded_value_can_be_altered_unnoticed() {
        let mut count = 0;
        for text in [
            include_str!("../../tests/data/metallb/allocation.json"),
            include_str!("../../tests/data/metallb/webhook.json"),
            include_str!("../../tests/data/metallb/webhook_frr.json"),
        ] {
            let corpus: Value = serde_json::from_str(text).unwrap();
            let cases = corpus["cases"].as_array().unwrap().iter();
            for step in cases.flat_map(|case| case["steps"].as_array().unwrap()) {
                if step["answer"].is_object() {
                    let recorded = map(step["answer"].clone());
                    assert_eq!(answers(Some(&recorded), &recorded), []);
                    for (pointer, altered) in altered(&step["answer"]) {
                        assert!(!answers(Some(&map(altered)), &recorded).is_empty(), "{pointer} of {step}");
                        count += 1;
                    }
                }
                let mut seen = step["seen"].clone();
                let told = news(&seen);
                for (n, event) in told.iter().enumerate() {
                    for altered in [
                        Told { on: format!("~{}", event.on), ..event.clone() },
                        Told { kind: format!("~{}", event.kind), ..event.clone() },
                        Told { reason: format!("~{}", event.reason), ..event.clone() },
                        Told { message: format!("~{}", event.message), ..event.clone() },
                    ] {
                        let mut others = told.clone();
                        others[n] = altered;
                        assert!(
                            !events(&others, &[], &told, &BTreeSet::new()).is_empty(),
                            "{event:?} of {step}"
                        );
                        count += 1;
                    }
                }
                if let Some(seen) = seen.as_object_mut() {
                    seen.remove("events");
                    assert_eq!(states(seen, seen), []);
                    for (pointer, altered) in altered(&step["seen"]) {
                        if pointer.starts_with("/events") {
                            continue;
                        }
                        assert!(!states(&map(altered), seen).is_empty(), "{pointer} of {step}");
                        count += 1;
                    }
                }
            }
        }
        assert!(count > 3000, "only {count} values were altered");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Events of the core group and of `events.k8s.io` are the same objects under other field names.

use serde_json::{Map, Value};

/// Field of the core group, field of `events.k8s.io`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The form of the core group, in which Events are stored.
pub(crate) fn to_core_group(event: &Value) -> Value {
    let mut event = rename(event, |(core, new)| (new, core));
    event["apiVersion"] = "v1".into();
    // What the core form always shows.
    for (key, empty) in [("reportingComponent", Value::from("")), ("reportingInstance", Value::from(""))] {
        if event.get(key).is_none() {
            event[key] = empty;
        }
    }
    event
}

/// The form of `events.k8s.io`.
pub(crate) fn to_events_group(event: &Value) -> Value {
    let mut event = rename(event, |(core, new)| (core, new));
    event["apiVersion"] = "events.k8s.io/v1".into();
    event
}

fn rename(
    event: &Value,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Value {
    let mut renamed = Map::new();
    for (key, value) in event.as_object().into_iter().flatten() {
        let pair = NAMES.iter().map(|&pair| direction(pair)).find(|(from, _)| from == key);
        let key = pair.map_or(key.as_str(), |(_, to)| to);
        renamed.insert(key.to_owned(), value.clone());
    }
    Value::Object(renamed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_survives_the_way_there_and_back() {
        let core = json!({
            "apiVersion": "v1", "involvedObject": { "name": "s" }, "message": "m", "reason": "r", "count": 2,
            "reportingComponent": "c", "reportingInstance": "",
        });
        let other = to_events_group(&core);
        assert_eq!(other["regarding"]["name"], "s");
        assert_eq!(other["note"], "m");
        assert_eq!(to_core_group(&other), core);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Objects are JSON values; here is how their metadata is read and written.

use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

/// Text at `path`, or "" when it is absent or no text.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Value at `path`, if present and not null.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let mut here = value;
    for step in path {
        here = here.get(step)?;
    }
    (!here.is_null()).then_some(here)
}

/// List at `path`, or an empty one.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// `metadata.name`.
pub(crate) fn name(value: &Value) -> &str {
    text(value, &["metadata", "name"])
}

/// `metadata.namespace`.
pub(crate) fn namespace(value: &Value) -> &str {
    text(value, &["metadata", "namespace"])
}

/// `metadata.uid`.
pub(crate) fn uid(value: &Value) -> &str {
    text(value, &["metadata", "uid"])
}

/// `metadata.resourceVersion`.
pub(crate) fn resource_version(value: &Value) -> &str {
    text(value, &["metadata", "resourceVersion"])
}

/// Whether `metadata.deletionTimestamp` is set.
pub(crate) fn is_terminating(value: &Value) -> bool {
    at(value, &["metadata", "deletionTimestamp"]).is_some()
}

/// The object itself; anything else becomes an empty object first.
pub(crate) fn object_mut(value: &mut Value) -> &mut Object {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object above"),
    }
}

/// The object under `key`, made when it is absent.
pub(crate) fn child_mut<'a>(value: &'a mut Value, key: &str) -> &'a mut Object {
    object_mut(object_mut(value).entry(key).or_insert(Value::Null))
}

/// `metadata`, made when it is absent.
pub(crate) fn metadata_mut(value: &mut Value) -> &mut Object {
    child_mut(value, "metadata")
}

/// Copies `key` from one object to another, or removes it where the source has none.
pub(crate) fn carry(from: &Value, to: &mut Value, key: &str) {
    match from.get(key) {
        Some(value) => {
            object_mut(to).insert(key.to_owned(), value.clone());
        }
        None => {
            object_mut(to).remove(key);
        }
    }
}

/// Removes every null member of every object: Go's decoder reads null as absent.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, member| !member.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Now, as `metadata.creationTimestamp` has it: whole seconds, UTC.
pub(crate) fn now_text() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

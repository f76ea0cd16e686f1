// SPDX-License-Identifier: Apache-2.0
//! Strategic merge patch: a merge patch in which lists of some fields merge, objects by a key and scalars as
//! a set, with directives (`$patch`, `$deleteFromPrimitiveList/…`, `$setElementOrder/…`, `$retainKeys`).

use serde_json::{Map, Value};

use crate::error::{ApiError, Result};
use crate::schema::{MergeStrategy, Schema};

/// Merges a patch into an object of this shape.
pub(crate) fn merge(object: &mut Value, patch: &Value, schema: &Schema) -> Result<()> {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return Ok(());
    };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            let kept = patch.iter().filter(|(key, _)| *key != "$patch");
            *object = Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect());
            return Ok(());
        }
        Some("delete") => {
            *object = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(ApiError::bad_request(format!("unknown patch type {other:?} of $patch"))),
    }
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(map) = object else { return Ok(()) };
    if let Some(Value::Array(keep)) = patch.get("$retainKeys") {
        map.retain(|key, _| keep.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(items)), Value::Array(gone)) = (map.get_mut(field), value) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if let (Some(field), Value::Array(order)) = (key.strip_prefix("$setElementOrder/"), value)
            && !patch.contains_key(field)
            && let Some(Value::Array(items)) = map.get_mut(field)
        {
            let before = items.clone();
            let by = match schema.member(field).map(|child| &child.merge) {
                Some(MergeStrategy::Merge(by)) => by.as_deref(),
                _ => None,
            };
            sort(items, order, &before, by);
        }
        if key.starts_with('$') {
            continue;
        }
        if value.is_null() {
            map.remove(key);
            continue;
        }
        static FREE: std::sync::LazyLock<Schema> = std::sync::LazyLock::new(Schema::default);
        let child = schema.member(key).map_or(&*FREE, |child| child);
        match value {
            Value::Object(_) => {
                let member = map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
                merge(member, value, child)?;
            }
            Value::Array(items) => {
                let MergeStrategy::Merge(by) = &child.merge else {
                    map.insert(key.clone(), without_directives(value));
                    continue;
                };
                let member = map.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
                if !member.is_array() {
                    *member = Value::Array(Vec::new());
                }
                let Value::Array(present) = member else { continue };
                let before = present.clone();
                match by {
                    Some(by) => merge_list(present, items, by, child.items.as_deref().unwrap_or(&FREE), key)?,
                    None => {
                        for item in items {
                            if !present.contains(item) {
                                present.push(item.clone());
                            }
                        }
                    }
                }
                let order = patch.get(&format!("$setElementOrder/{key}")).and_then(Value::as_array);
                sort(present, order.unwrap_or(items), &before, by.as_deref());
            }
            scalar => {
                map.insert(key.clone(), scalar.clone());
            }
        }
    }
    Ok(())
}

fn merge_list(
    present: &mut Vec<Value>,
    items: &[Value],
    by: &str,
    schema: &Schema,
    field: &str,
) -> Result<()> {
    if items.iter().any(|item| item.get("$patch").is_some_and(|p| p == "replace")) {
        *present = items.iter().filter(|item| item.get("$patch").is_none()).cloned().collect();
        return Ok(());
    }
    for item in items {
        let Some(id) = item.get(by) else {
            return Err(ApiError::bad_request(format!(
                "map: {item} does not contain declared merge key: {by} (in the list {field})"
            )));
        };
        if item.get("$patch").is_some_and(|directive| directive == "delete") {
            present.retain(|known| known.get(by) != Some(id));
            continue;
        }
        match present.iter_mut().find(|known| known.get(by) == Some(id)) {
            Some(known) => merge(known, item, schema)?,
            None => {
                let mut new = Value::Object(Map::new());
                merge(&mut new, item, schema)?;
                present.push(new);
            }
        }
    }
    Ok(())
}

/// Brings a merged list into order: the patch's items as the patch has them; those that only the server has
/// keep their order and stand before the first item of the patch that they preceded.
fn sort(items: &mut Vec<Value>, order: &[Value], before: &[Value], by: Option<&str>) {
    let place = |list: &[Value], item: &Value| {
        list.iter().position(|other| match by {
            Some(by) => other.get(by).is_some_and(|id| item.get(by) == Some(id)),
            None => other == item,
        })
    };
    let (mut theirs, ours): (Vec<Value>, Vec<Value>) =
        std::mem::take(items).into_iter().partition(|item| place(order, item).is_some());
    theirs.sort_by_key(|item| place(order, item));
    let mut theirs = theirs.into_iter().peekable();
    let mut ours = ours.into_iter().peekable();
    loop {
        let ours_first = match (ours.peek(), theirs.peek()) {
            (None, None) => return,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(our), Some(their)) => match (place(before, our), place(before, their)) {
                (Some(our), Some(their)) => our < their,
                _ => false,
            },
        };
        items.extend(if ours_first { ours.next() } else { theirs.next() });
    }
}

fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(key, _)| !key.starts_with('$'))
                .map(|(key, value)| (key.clone(), without_directives(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_directives).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::built_in;

    fn merged(kind: &str, mut object: Value, patch: Value) -> Value {
        let schema = built_in(&format!("io.k8s.api.{kind}")).expect("bundled");
        merge(&mut object, &patch, &schema).expect("merges");
        object
    }

    #[test]
    fn ports_merge_by_their_number_and_can_be_deleted() {
        let object = json!({ "spec": { "ports": [{ "port": 80, "name": "a" }, { "port": 81 }] } });
        let patch = json!({ "spec": { "ports": [
            { "port": 80, "nodePort": 30080 }, { "port": 81, "$patch": "delete" }, { "port": 82 },
        ] } });
        let expected =
            json!({ "spec": { "ports": [{ "port": 80, "name": "a", "nodePort": 30080 }, { "port": 82 }] } });
        assert_eq!(merged("core.v1.Service", object, patch), expected);
    }

    #[test]
    fn atomic_lists_are_replaced_and_finalizers_united() {
        let object = json!({ "metadata": { "finalizers": ["a"] }, "spec": { "externalIPs": ["1.1.1.1"] } });
        let patch = json!({ "metadata": { "finalizers": ["b"] }, "spec": { "externalIPs": ["2.2.2.2"] } });
        let expected =
            json!({ "metadata": { "finalizers": ["b", "a"] }, "spec": { "externalIPs": ["2.2.2.2"] } });
        assert_eq!(merged("core.v1.Service", object, patch), expected);
    }

    #[test]
    fn an_order_and_deletions_of_scalars_are_followed() {
        let object = json!({ "metadata": { "finalizers": ["a", "b", "c"] } });
        let patch = json!({ "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["b"], "$setElementOrder/finalizers": ["d", "c", "a"],
            "finalizers": ["d"],
        } });
        let expected = json!({ "metadata": { "finalizers": ["d", "c", "a"] } });
        assert_eq!(merged("core.v1.ConfigMap", object, patch), expected);
    }

    #[test]
    fn a_list_item_without_its_key_is_refused() {
        let schema = built_in("io.k8s.api.core.v1.Service").expect("bundled");
        let mut object = json!({});
        let patch = json!({ "spec": { "ports": [{ "name": "x" }] } });
        assert!(merge(&mut object, &patch, &schema).is_err());
    }
}

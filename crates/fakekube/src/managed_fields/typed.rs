// SPDX-License-Identifier: Apache-2.0
//! What a schema says about a value's parts: which paths it has, how two values differ, how one is laid over
//! another.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::managed_fields::set::Set;
use crate::schema::{ListType, Schema};

static FREE: LazyLock<Schema> = LazyLock::new(Schema::default);

/// Paths of a value that an applier gave.
pub(crate) fn fields_of(schema: &Schema, value: &Value) -> Set {
    let mut set = Set::default();
    match parts(schema, value) {
        Parts::Whole => {}
        Parts::Fields(map) => {
            for (key, member) in map {
                let step = format!("f:{key}");
                let child = child_of(schema, key);
                let empty = member.as_object().is_some_and(Map::is_empty);
                let is_leaf = member.is_null() || empty || matches!(parts(child, member), Parts::Whole);
                // Members of maps are members of the set, named fields of structs only if they are leaves.
                if is_leaf || !schema.properties.contains_key(key) {
                    set.insert(step.clone());
                }
                if !is_leaf {
                    set.nest(step, fields_of(child, member));
                }
            }
        }
        Parts::Items(items) => {
            let child = schema.items.as_deref().unwrap_or(&FREE);
            for item in items {
                let step = step_of(schema, item);
                set.insert(step.clone());
                set.nest(step, fields_of(child, item));
            }
        }
    }
    set
}

/// How two values differ.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// Paths only the new one has.
    pub(crate) added: Set,
    /// Paths whose value differs.
    pub(crate) modified: Set,
    /// Paths only the old one has.
    pub(crate) removed: Set,
}

impl Difference {
    /// Compares two values of one shape.
    pub(crate) fn between(schema: &Schema, old: Option<&Value>, new: Option<&Value>) -> Self {
        let mut difference = Self::default();
        let empty = |value: &Option<&Value>| value.is_none_or(is_empty);
        if empty(&old) && empty(&new) {
            return difference;
        }
        let map = |value: Option<&Value>| -> BTreeMap<String, Value> {
            value.map(|value| members(schema, value)).unwrap_or_default()
        };
        let (before, after) = (map(old), map(new));
        let steps = before.keys().chain(after.keys().filter(|step| !before.contains_key(*step)));
        for step in steps {
            let child = match step.strip_prefix("f:") {
                Some(key) => child_of(schema, key),
                None => schema.items.as_deref().unwrap_or(&FREE),
            };
            let (old, new) = (before.get(step), after.get(step));
            let some = new.or(old);
            let both_empty = old.is_none_or(is_empty) && new.is_none_or(is_empty);
            let leaf = both_empty
                || some.is_none_or(|value| matches!(parts(child, value), Parts::Whole))
                || old.is_some_and(|value| !is_empty(value) && matches!(parts(child, value), Parts::Whole));
            match (old, new) {
                (None, Some(_)) => difference.added.insert(step.clone()),
                (Some(_), None) => difference.removed.insert(step.clone()),
                (Some(old), Some(new)) if leaf && old != new => difference.modified.insert(step.clone()),
                _ => {}
            }
            if !leaf {
                let below = Self::between(child, old, new);
                difference.added.nest(step.clone(), below.added);
                difference.modified.nest(step.clone(), below.modified);
                difference.removed.nest(step.clone(), below.removed);
            }
        }
        difference
    }
}

/// Lays what an applier gave over a value.
pub(crate) fn merge(schema: &Schema, live: &Value, config: &Value) -> Value {
    match (parts(schema, config), live) {
        (Parts::Fields(given), Value::Object(live)) => {
            let mut merged = live.clone();
            for (key, value) in given {
                let new = match live.get(key) {
                    Some(present) => merge(child_of(schema, key), present, value),
                    None => value.clone(),
                };
                merged.insert(key.clone(), new);
            }
            Value::Object(merged)
        }
        (Parts::Items(given), Value::Array(live)) => {
            let child = schema.items.as_deref().unwrap_or(&FREE);
            let find =
                |items: &[Value], step: &str| items.iter().position(|item| step_of(schema, item) == step);
            // Items keep the live order; the applier's new ones follow, before live ones that come after
            // the applier's previous item.
            let mut merged: Vec<Value> = Vec::with_capacity(live.len() + given.len());
            let steps: Vec<String> = given.iter().map(|item| step_of(schema, item)).collect();
            for item in live {
                let step = step_of(schema, item);
                match find(given, &step) {
                    Some(i) => merged.push(merge(child, item, &given[i])),
                    None => merged.push(item.clone()),
                }
            }
            for (i, item) in given.iter().enumerate() {
                if find(live, &steps[i]).is_none() {
                    merged.push(item.clone());
                }
            }
            in_given_order(schema, &mut merged, &steps);
            Value::Array(merged)
        }
        _ => config.clone(),
    }
}

/// Removes the paths of a set from a value. A field below which somebody else owns something stays.
pub(crate) fn remove(schema: &Schema, value: &mut Value, gone: &Set, others: &Set) {
    match value {
        Value::Object(map) if !schema.atomic_map => {
            map.retain(|key, member| {
                let step = format!("f:{key}");
                let owned_below = others.below(&step).is_some_and(|below| !below.is_empty());
                if gone.has(&step) && !owned_below {
                    return false;
                }
                let Some(below) = gone.below(&step).filter(|below| !below.is_empty()) else { return true };
                let was_empty = is_empty(member);
                let none = Set::default();
                remove(child_of(schema, key), member, below, others.below(&step).unwrap_or(&none));
                was_empty || !is_empty(member) || others.has(&step)
            });
        }
        Value::Array(items) if schema.list != ListType::Atomic => {
            let child = schema.items.as_deref().unwrap_or(&FREE);
            items.retain_mut(|item| {
                let step = step_of(schema, item);
                if gone.has(&step) {
                    return false;
                }
                if let Some(below) = gone.below(&step) {
                    let none = Set::default();
                    remove(child, item, below, others.below(&step).unwrap_or(&none));
                }
                true
            });
        }
        _ => {}
    }
}

enum Parts<'a> {
    /// One value, owned as a whole.
    Whole,
    Fields(&'a Map<String, Value>),
    Items(&'a [Value]),
}

fn parts<'a>(schema: &Schema, value: &'a Value) -> Parts<'a> {
    match value {
        Value::Object(map) if !schema.atomic_map => Parts::Fields(map),
        Value::Array(items) if schema.list != ListType::Atomic => Parts::Items(items),
        _ => Parts::Whole,
    }
}

fn members(schema: &Schema, value: &Value) -> BTreeMap<String, Value> {
    match parts(schema, value) {
        Parts::Whole => BTreeMap::new(),
        Parts::Fields(map) => map.iter().map(|(key, value)| (format!("f:{key}"), value.clone())).collect(),
        Parts::Items(items) => items.iter().map(|item| (step_of(schema, item), item.clone())).collect(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn child_of<'a>(schema: &'a Schema, key: &str) -> &'a Schema {
    schema.member(key).map_or(&*FREE, |child| child)
}

/// The step that leads to a list item.
fn step_of(schema: &Schema, item: &Value) -> String {
    let ListType::Map(keys) = &schema.list else { return format!("v:{item}") };
    let mut named = BTreeMap::new();
    for key in keys {
        let default = || {
            schema.items.as_ref().and_then(|items| items.properties.get(key)).and_then(|p| p.default.clone())
        };
        if let Some(value) = item.get(key).cloned().or_else(default) {
            named.insert(key.clone(), value);
        }
    }
    let named: Map<String, Value> = named.into_iter().collect();
    format!("k:{}", Value::Object(named))
}

/// Brings the items that the applier gave into its order, in the places they hold.
fn in_given_order(schema: &Schema, items: &mut [Value], order: &[String]) {
    let places: Vec<usize> =
        (0..items.len()).filter(|&i| order.contains(&step_of(schema, &items[i]))).collect();
    let mut theirs: Vec<Value> = places.iter().map(|&i| items[i].clone()).collect();
    theirs.sort_by_key(|item| order.iter().position(|step| *step == step_of(schema, item)));
    for (place, item) in places.into_iter().zip(theirs) {
        items[place] = item;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::built_in;

    fn service() -> std::sync::Arc<Schema> {
        built_in("io.k8s.api.core.v1.Service").expect("bundled")
    }

    #[test]
    fn an_applied_object_has_its_leaves_and_list_items_as_fields() {
        let object = json!({ "metadata": { "labels": { "a": "b" } },
            "spec": { "ports": [{ "port": 80 }], "selector": { "x": "y" } } });
        let expected = json!({
            "f:metadata": { "f:labels": { "f:a": {} } },
            "f:spec": {
                "f:ports": { "k:{\"port\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:port": {} } },
                "f:selector": {},
            },
        });
        assert_eq!(fields_of(&service(), &object).write(), expected);
    }

    #[test]
    fn what_is_new_is_added_with_the_maps_around_it() {
        let old = json!({ "metadata": {}, "spec": { "type": "ClusterIP" } });
        let new = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "type": "NodePort" } });
        let difference = Difference::between(&service(), Some(&old), Some(&new));
        assert_eq!(difference.added.write(), json!({ "f:metadata": { "f:labels": { ".": {}, "f:a": {} } } }));
        assert_eq!(difference.modified.write(), json!({ "f:spec": { "f:type": {} } }));
        assert!(difference.removed.is_empty());
    }

    #[test]
    fn items_merge_by_key_and_keep_the_live_order() {
        let live = json!({ "spec": { "ports": [{ "port": 1, "protocol": "TCP", "nodePort": 9 }, { "port": 2, "protocol": "TCP" }] } });
        let config = json!({ "spec": { "ports": [{ "port": 3 }, { "port": 1, "name": "a" }] } });
        let merged = merge(&service(), &live, &config);
        let ports: Vec<i64> = merged["spec"]["ports"]
            .as_array()
            .expect("list")
            .iter()
            .filter_map(|p| p["port"].as_i64())
            .collect();
        assert_eq!(ports, [3, 2, 1]);
    }
}

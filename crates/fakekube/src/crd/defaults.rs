// SPDX-License-Identifier: Apache-2.0
//! Defaults of custom resources, filled in on every write and on what is stored.

use serde_json::Value;

use crate::schema::Schema;

/// Fills in the defaults of a schema; `root` is the whole object, whose metadata has none.
pub(crate) fn fill(schema: &Schema, value: &mut Value, root: bool) {
    match value {
        Value::Object(map) => {
            for (key, child) in &schema.properties {
                if root && matches!(key.as_str(), "metadata" | "apiVersion" | "kind") {
                    continue;
                }
                // An explicit null asks for the default where null is not a value of its own.
                if map.get(key).is_some_and(Value::is_null) && !child.nullable && child.default.is_some() {
                    map.remove(key);
                }
                if let Some(default) = &child.default
                    && !map.contains_key(key)
                {
                    map.insert(key.clone(), default.clone());
                }
                if map.get(key).is_some_and(Value::is_null) && !child.nullable && child.default.is_none() {
                    // Dropped, as a real server drops it.
                    map.remove(key);
                }
            }
            for (key, member) in map {
                if root && key == "metadata" {
                    continue;
                }
                if let Some(child) = schema.member(key) {
                    fill(child, member, false);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                items.iter_mut().for_each(|item| fill(schema, item, false));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_fill_what_is_there_and_go_deep() {
        let schema = Schema::structural(&json!({ "type": "object", "properties": { "spec": {
            "type": "object", "properties": {
                "auto": { "type": "boolean", "default": true },
                "inner": { "type": "object", "default": {}, "properties": {
                    "n": { "type": "integer", "default": 7 } } },
                "list": { "type": "array", "items": { "type": "object", "properties": {
                    "p": { "type": "string", "default": "x" } } } },
            } } } }));
        let mut value = json!({ "spec": { "auto": null, "list": [{}] } });
        fill(&schema, &mut value, true);
        assert_eq!(value, json!({ "spec": { "auto": true, "inner": { "n": 7 }, "list": [{ "p": "x" }] } }));
        let mut value = json!({});
        fill(&schema, &mut value, true);
        assert_eq!(value, json!({}), "there is no spec to fill");
    }
}

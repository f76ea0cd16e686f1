// SPDX-License-Identifier: Apache-2.0
//! Pruning: fields that a custom resource's schema does not know are dropped.

use serde_json::Value;

use crate::schema::{Schema, Type, object_meta};

/// Drops unknown fields and lists their paths.
pub(crate) fn prune(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let dot = if path.is_empty() { "" } else { "." };
            map.retain(|key, member| {
                let here = format!("{path}{dot}{key}");
                if schema.embedded && matches!(key.as_str(), "apiVersion" | "kind") {
                    return true;
                }
                if schema.embedded && key == "metadata" {
                    prune(object_meta(), member, &here, unknown);
                    return true;
                }
                match schema.member(key) {
                    Some(child) => {
                        prune(child, member, &here, unknown);
                        true
                    }
                    None if schema.preserve_unknown || free(schema) => true,
                    None => {
                        unknown.push(here);
                        false
                    }
                }
            });
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (i, item) in items.iter_mut().enumerate() {
                    prune(schema, item, &format!("{path}[{i}]"), unknown);
                }
            }
        }
        _ => {}
    }
}

/// A value of unknown type holds anything.
fn free(schema: &Schema) -> bool {
    schema.ty == Type::Any && schema.properties.is_empty() && schema.preserve_unknown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_go_unless_the_schema_keeps_them() {
        let schema = Schema::structural(&json!({ "type": "object", "properties": {
            "a": { "type": "object", "properties": { "b": { "type": "string" } } },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": { "c": { "type": "object" } } },
            "list": { "type": "array", "items": { "type": "object", "properties": {} } },
            "map": { "type": "object", "additionalProperties": { "type": "string" } },
        } }));
        let mut value = json!({
            "a": { "b": "1", "x": 1 }, "free": { "y": 1, "c": { "z": 1 } },
            "list": [{ "w": 1 }], "map": { "k": "v" }, "gone": null,
        });
        let mut unknown = Vec::new();
        prune(&schema, &mut value, "", &mut unknown);
        unknown.sort();
        assert_eq!(unknown, ["a.x", "free.c.z", "gone", "list[0].w"]);
        assert_eq!(
            value,
            json!({ "a": { "b": "1" }, "free": { "y": 1, "c": {} }, "list": [{}], "map": { "k": "v" } })
        );
    }
}

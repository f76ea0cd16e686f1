// SPDX-License-Identifier: Apache-2.0
//! Validation of custom resources by their structural schema, with the messages of a real API server.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use crate::error::{FieldError, FieldErrorKind};
use crate::schema::{Limits, ListType, Schema, Type};

/// What is wrong with an object. Where an old object is given, a value that did not change is not held
/// against an update.
pub(crate) fn errors(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Value::Object(map) = new else { return errors };
    for (key, child) in &schema.properties {
        if matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(member) = map.get(key) {
            walk(child, member, old.and_then(|old| old.get(key)), key, &mut errors);
        }
    }
    for key in &schema.required {
        if !map.contains_key(key) {
            errors.push(FieldError::required(key, ""));
        }
    }
    errors
}

fn walk(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    if value.is_null() {
        if !schema.nullable && schema.ty != Type::Any {
            errors.push(wrong_type(path, value, schema.ty));
        }
        return;
    }
    let matches = match schema.ty {
        Type::Any => true,
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Integer => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
        Type::IntOrString => value.is_string() || value.is_i64() || value.is_u64(),
    };
    if !matches {
        errors.push(wrong_type(path, value, schema.ty));
        return;
    }
    if old != Some(value) {
        format(schema, value, path, errors);
        limits(&schema.limits, value, path, errors);
    }
    match value {
        Value::Object(map) => {
            for key in &schema.required {
                if !map.contains_key(key) {
                    errors.push(FieldError::required(format!("{path}.{key}"), ""));
                }
            }
            for (key, member) in map {
                if let Some(child) = schema.member(key) {
                    let here = format!("{path}.{key}");
                    walk(child, member, old.and_then(|old| old.get(key)), &here, errors);
                }
            }
        }
        Value::Array(items) => {
            if old != Some(value) {
                duplicates(&schema.list, items, path, errors);
            }
            if let Some(child) = &schema.items {
                for (i, item) in items.iter().enumerate() {
                    let before = old.and_then(|old| old.as_array()).and_then(|old| match &schema.list {
                        ListType::Map(keys) => {
                            old.iter().find(|other| keys.iter().all(|key| other.get(key) == item.get(key)))
                        }
                        _ => old.get(i),
                    });
                    walk(child, item, before, &format!("{path}[{i}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn wrong_type(path: &str, value: &Value, expected: Type) -> FieldError {
    let expected = match expected {
        Type::Any => "any",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
    };
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let shown = match value {
        Value::Object(_) | Value::Array(_) => Value::String(found.to_owned()),
        scalar => Value::String(match scalar {
            Value::String(_) => "string".to_owned(),
            _ => found.to_owned(),
        }),
    };
    let detail = format!("{path} in body must be of type {expected}: {found:?}");
    FieldError::of(FieldErrorKind::TypeInvalid, path, Some(shown), detail)
}

fn limits(limits: &Limits, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut invalid = |detail: String| {
        errors.push(FieldError::invalid(path, value.clone(), detail));
    };
    if let Some(n) = value.as_f64() {
        if let Some(least) = limits.minimum {
            if limits.exclusive_minimum && n <= least {
                invalid(format!("{path} in body should be greater than {least}"));
            } else if n < least {
                invalid(format!("{path} in body should be greater than or equal to {least}"));
            }
        }
        if let Some(most) = limits.maximum {
            if limits.exclusive_maximum && n >= most {
                invalid(format!("{path} in body should be less than {most}"));
            } else if n > most {
                invalid(format!("{path} in body should be less than or equal to {most}"));
            }
        }
        if let Some(step) = limits.multiple_of
            && (n / step).fract() != 0.0
        {
            invalid(format!("{path} in body should be a multiple of {step}"));
        }
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count();
        if let Some(least) = limits.min_length
            && length < least
        {
            invalid(format!("{path} in body should be at least {least} chars long"));
        }
        if let Some(pattern) = &limits.pattern
            && !pattern.is_match(text)
        {
            invalid(format!("{path} in body should match '{pattern}'"));
        }
        if let Some(most) = limits.max_length
            && length > most
        {
            let detail = format!("may not be more than {most} bytes");
            errors.push(FieldError::of(FieldErrorKind::TooLong, path, None, detail));
        }
    }
    if let Some(items) = value.as_array() {
        if let Some(least) = limits.min_items
            && items.len() < least
        {
            let detail = format!("{path} in body should have at least {least} items");
            errors.push(FieldError::invalid(path, items.len(), detail));
        }
        if let Some(most) = limits.max_items
            && items.len() > most
        {
            let detail = format!("must have at most {most} items");
            errors.push(FieldError::of(FieldErrorKind::TooMany, path, Some(items.len().into()), detail));
        }
        if limits.unique_items && items.iter().enumerate().any(|(i, item)| items[..i].contains(item)) {
            errors.push(FieldError::invalid(
                path,
                value.clone(),
                format!("{path} in body shouldn't contain duplicates"),
            ));
        }
    }
    if let Some(map) = value.as_object() {
        if let Some(least) = limits.min_properties
            && map.len() < least
        {
            let detail = format!("{path} in body should have at least {least} properties");
            errors.push(FieldError::invalid(path, map.len(), detail));
        }
        if let Some(most) = limits.max_properties
            && map.len() > most
        {
            let detail = format!("must have at most {most} items");
            errors.push(FieldError::of(FieldErrorKind::TooMany, path, Some(map.len().into()), detail));
        }
    }
    if !limits.enumeration.is_empty() && !limits.enumeration.contains(value) {
        errors.push(FieldError::not_supported(path, value.clone(), &limits.enumeration));
    }
    junctors(limits, value, path, errors);
}

fn junctors(limits: &Limits, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let fits = |schema: &Schema| {
        let mut found = Vec::new();
        walk(schema, value, None, path, &mut found);
        found.is_empty()
    };
    for schema in &limits.all_of {
        walk(schema, value, None, path, errors);
    }
    // These errors of a real server name the field in the text only.
    let mut invalid = |detail: &str| {
        errors.push(FieldError::invalid("<nil>", "", format!("{path:?} {detail}")));
    };
    if !limits.any_of.is_empty() && !limits.any_of.iter().any(|schema| fits(schema)) {
        invalid("must validate at least one schema (anyOf)");
    }
    if !limits.one_of.is_empty() {
        let fitting = limits.one_of.iter().filter(|schema| fits(schema)).count();
        match fitting {
            1 => {}
            0 => invalid("must validate one and only one schema (oneOf). Found none valid"),
            n => invalid(&format!(
                "must validate one and only one schema (oneOf). Found {n} valid alternatives"
            )),
        }
    }
    if let Some(not) = &limits.not
        && fits(not)
    {
        invalid("must not validate the schema (not)");
    }
}

fn format(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let fits = match (schema.format.as_str(), value) {
        ("int32", Value::Number(n)) => {
            n.as_f64().is_some_and(|n| n >= f64::from(i32::MIN) && n <= f64::from(i32::MAX))
        }
        ("int64", Value::Number(n)) => {
            n.is_i64() || n.as_f64().is_some_and(|n| n.fract() == 0.0 && n.abs() < 9.3e18)
        }
        ("date-time", Value::String(text)) => text.parse::<jiff::Timestamp>().is_ok(),
        ("date", Value::String(text)) => text.parse::<jiff::civil::Date>().is_ok(),
        ("ipv4", Value::String(text)) => text.parse::<Ipv4Addr>().is_ok(),
        ("ipv6", Value::String(text)) => text.parse::<Ipv6Addr>().is_ok(),
        ("byte", Value::String(text)) => {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        ("uuid", Value::String(text)) => {
            text.len() == 36 && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
        }
        _ => true,
    };
    if fits {
        return;
    }
    let format = &schema.format;
    errors.push(if value.is_number() {
        let detail = format!("Checked value must be of type integer with format {format} in {path}");
        FieldError::invalid("<nil>", "", detail)
    } else {
        let detail = format!("{path} in body must be of type {format}: {value}");
        FieldError::of(FieldErrorKind::TypeInvalid, path, Some(value.clone()), detail)
    });
}

fn duplicates(list: &ListType, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    for (i, item) in items.iter().enumerate() {
        let twin = match list {
            ListType::Atomic => None,
            ListType::Set => items[..i].contains(item).then(|| item.clone()),
            ListType::Map(keys) => {
                let id = |value: &Value| -> Vec<Option<Value>> {
                    keys.iter().map(|key| value.get(key).cloned()).collect()
                };
                items[..i].iter().any(|other| id(other) == id(item)).then(|| {
                    Value::Object(
                        keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone()))).collect(),
                    )
                })
            }
        };
        if let Some(twin) = twin {
            errors.push(FieldError::of(FieldErrorKind::Duplicate, format!("{path}[{i}]"), Some(twin), ""));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_outside_the_schema_are_named_with_their_path() {
        let schema = Schema::custom(
            &json!({ "type": "object", "required": ["spec"], "properties": { "spec": {
            "type": "object", "required": ["addresses"], "properties": {
                "addresses": { "type": "array", "items": { "type": "string", "pattern": "^[0-9]+$" }, "minItems": 1 },
                "n": { "type": "integer", "format": "int32", "minimum": 0, "maximum": 10 },
                "mode": { "type": "string", "enum": ["a", "b"] },
            } } } }),
        );
        let of = |object: Value| -> Vec<String> {
            errors(&schema, &object, None).iter().map(ToString::to_string).collect()
        };
        assert_eq!(of(json!({})), ["spec: Required value"]);
        assert_eq!(of(json!({ "spec": {} })), ["spec.addresses: Required value"]);
        assert_eq!(
            of(json!({ "spec": { "addresses": ["x"], "n": 11, "mode": "c" } })),
            [
                "spec.addresses[0]: Invalid value: \"x\": spec.addresses[0] in body should match '^[0-9]+$'",
                "spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\"",
                "spec.n: Invalid value: 11: spec.n in body should be less than or equal to 10",
            ]
        );
        assert_eq!(
            of(json!({ "spec": { "addresses": "x" } })),
            [
                "spec.addresses: Invalid value: \"string\": spec.addresses in body must be of type array: \"string\""
            ]
        );
    }
}

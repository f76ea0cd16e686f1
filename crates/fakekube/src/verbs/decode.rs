// SPDX-License-Identifier: Apache-2.0
//! From a body to an object of its kind: unknown fields are found and dropped, wrong types refused,
//! defaults filled in.

use serde_json::{Map, Value};

use crate::builtin;
use crate::error::{ApiError, Result};
use crate::kinds::Resource;
use crate::object::{at, drop_nulls, object_mut};
use crate::request::Request;
use crate::schema::{Schema, Type};

/// Brings a body into its kind's shape and fills in defaults. What comes back are warnings for the client.
pub(crate) fn decode(resource: &Resource, object: &mut Value, request: &Request) -> Result<Vec<String>> {
    let warnings = shape(resource, object, request)?;
    default(resource, object);
    Ok(warnings)
}

/// Drops what the kind does not have, refuses what has the wrong type.
pub(crate) fn shape(resource: &Resource, object: &mut Value, request: &Request) -> Result<Vec<String>> {
    let strict = request.query.text("fieldValidation");
    if !matches!(strict, "" | "Ignore" | "Warn" | "Strict") {
        return Err(ApiError::bad_request(format!(
            "fieldValidation: Unsupported value: {strict:?}: supported values: \"Ignore\", \"Warn\", \"Strict\""
        )));
    }
    let mut unknown = Vec::new();
    if resource.custom.is_none() {
        drop_nulls(object);
        let mut wrong = None;
        check(&resource.schema, object, "", &mut unknown, &mut wrong);
        if let Some((path, found, expected)) = wrong {
            return Err(ApiError::bad_request(format!(
                "{kind} in version {:?} cannot be handled as a {kind}: json: cannot unmarshal {found} into Go \
                 struct field {kind}.{path} of type {expected}",
                resource.version,
                kind = resource.kind,
            )));
        }
    } else {
        crate::crd::prune::prune(&resource.schema, object, "", &mut unknown);
        if let Some(Value::Object(_)) = object.get("metadata") {
            let metadata = &mut object["metadata"];
            drop_nulls(metadata);
            let mut wrong = None;
            check(crate::schema::object_meta(), metadata, "metadata", &mut Vec::new(), &mut wrong);
            if let Some((path, found, expected)) = wrong {
                return Err(ApiError::bad_request(format!(
                    "json: cannot unmarshal {found} into Go struct field ObjectMeta.{path} of type {expected}"
                )));
            }
        }
    }
    let unknown: Vec<String> = unknown.into_iter().map(|field| format!("unknown field {field:?}")).collect();
    match strict {
        "Ignore" => Ok(Vec::new()),
        "Strict" if !unknown.is_empty() => {
            let message = format!("strict decoding error: {}", unknown.join(", "));
            Err(ApiError::bad_request(if resource.custom.is_some() {
                message
            } else {
                format!(
                    "{kind} in version {:?} cannot be handled as a {kind}: {message}",
                    resource.version,
                    kind = resource.kind
                )
            }))
        }
        _ => Ok(unknown),
    }
}

/// Fills in defaults.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    match &resource.custom {
        Some(_) => crate::crd::defaults::fill(&resource.schema, object, true),
        None => {
            zero_values(&resource.schema, object);
            builtin::defaults(resource, object);
        }
    }
}

type Wrong = Option<(String, &'static str, &'static str)>;

/// Drops unknown fields of a built-in object and finds the first value of a wrong type.
fn check(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<String>, wrong: &mut Wrong) {
    let mut fail = |found: &Value, expected: &'static str| {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        wrong.get_or_insert((path.to_owned(), found, expected));
    };
    match (schema.ty, &mut *value) {
        (Type::Any, _) => {}
        (Type::Object, Value::Object(map)) => {
            if schema.preserve_unknown {
                return;
            }
            let dot = if path.is_empty() { "" } else { "." };
            map.retain(|key, member| {
                let here = format!("{path}{dot}{key}");
                match schema.member(key) {
                    Some(child) => {
                        check(child, member, &here, unknown, wrong);
                        true
                    }
                    None => {
                        unknown.push(here);
                        false
                    }
                }
            });
        }
        (Type::Array, Value::Array(items)) => {
            if let Some(schema) = &schema.items {
                for (i, item) in items.iter_mut().enumerate() {
                    check(schema, item, &format!("{path}[{i}]"), unknown, wrong);
                }
            }
        }
        (Type::String, Value::String(_)) | (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_)) => {}
        (Type::IntOrString, Value::String(_)) => {}
        (Type::IntOrString, Value::Number(n)) if n.is_i64() => {}
        (Type::Integer, Value::Number(n)) if n.is_i64() || n.is_u64() => {
            if schema.format == "int32" && n.as_i64().is_none_or(|n| i32::try_from(n).is_err()) {
                fail(value, "int32");
            }
        }
        (Type::Object, found) => fail(found, "object"),
        (Type::Array, found) => fail(found, "array"),
        (Type::String, found) => fail(found, "string"),
        (Type::Boolean, found) => fail(found, "bool"),
        (Type::Number, found) => fail(found, "float64"),
        (Type::IntOrString, found) => fail(found, "intstr.IntOrString"),
        (Type::Integer, found) => fail(found, if schema.format == "int32" { "int32" } else { "int64" }),
    }
}

/// Fields that Go writes even when they are empty: the defaults of the OpenAPI document.
fn zero_values(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, child) in &schema.properties {
                if let Some(default) = &child.default
                    && !map.contains_key(key)
                {
                    map.insert(key.clone(), default.clone());
                }
            }
            for (key, member) in map {
                if let Some(child) = schema.member(key) {
                    zero_values(child, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                items.iter_mut().for_each(|item| zero_values(schema, item));
            }
        }
        _ => {}
    }
}

/// Whether a member is an empty object.
pub(crate) fn is_empty_object(value: &Value, path: &[&str]) -> bool {
    at(value, path).and_then(Value::as_object).is_some_and(Map::is_empty)
}

/// Removes a member if it is an empty object.
pub(crate) fn drop_empty(value: &mut Value, key: &str) {
    if is_empty_object(value, &[key]) {
        object_mut(value).remove(key);
    }
}

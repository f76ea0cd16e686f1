// SPDX-License-Identifier: Apache-2.0
//! From a body to an object of its kind: unknown fields are found and dropped, wrong types refused,
//! defaults filled in.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::builtin;
use crate::error::{ApiError, Result};
use crate::kinds::Resource;
use crate::object::{self, drop_nulls};
use crate::request::Request;
use crate::schema::{Schema, Type};

/// Brings a body into its kind's shape and fills in defaults.
pub(crate) fn decode(resource: &Resource, object: &mut Value, request: &Request) -> Result<()> {
    shape(resource, object, request)?;
    default(resource, object);
    Ok(())
}

/// As [`shape`], for an applier's wishes: it owns what it names, so it can name only what there is.
pub(crate) fn applied(resource: &Resource, config: &mut Value, request: &Request) -> Result<()> {
    let given = config.clone();
    request.field_validation()?;
    match fit(resource, config)?.first() {
        None => Ok(()),
        Some(field) => Err(ApiError::unexplained(format!(
            "failed to create typed patch object ({}/{}; {}, Kind={}): .{field}: field not declared in schema",
            object::namespace(&given),
            object::name(&given),
            resource.api_version(),
            resource.kind
        ))),
    }
}

/// Drops what the kind does not have, and warns of it; refuses what has the wrong type.
fn shape(resource: &Resource, object: &mut Value, request: &Request) -> Result<()> {
    let mode = request.field_validation()?;
    let unknown: Vec<String> =
        fit(resource, object)?.into_iter().map(|field| format!("unknown field {field:?}")).collect();
    match mode {
        "Ignore" => Ok(()),
        "Strict" if !unknown.is_empty() => Err(ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: strict decoding error: {}",
            resource.version,
            unknown.join(", "),
            kind = resource.kind
        ))),
        _ => {
            unknown.into_iter().for_each(|warning| request.warn(warning));
            Ok(())
        }
    }
}

/// Drops unknown fields and tells which; a wrong type is an error.
fn fit(resource: &Resource, object: &mut Value) -> Result<Vec<String>> {
    let mut unknown = Vec::new();
    if resource.custom.is_none() {
        drop_nulls(object);
        let mut wrong = None;
        check(&resource.schema, object, "", &mut unknown, &mut wrong);
        if let Some((path, "base64", _)) = wrong {
            return Err(ApiError::bad_request(format!(
                "{kind} in version {:?} cannot be handled as a {kind}: illegal base64 data in {path}",
                resource.version,
                kind = resource.kind,
            )));
        }
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
    Ok(unknown)
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
        (Type::String, Value::String(text)) => {
            if schema.format == "byte" && STANDARD.decode(text).is_err() {
                wrong.get_or_insert((path.to_owned(), "base64", "[]byte"));
            }
        }
        (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_)) => {}
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

/// What Go's encoder makes of empty values: some fields are written even so (they have a default in the OpenAPI
/// document), the others are left out.
fn zero_values(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, member| {
                let Some(child) = schema.properties.get(key) else { return true };
                // An empty holder of a Lease means something: nobody. And an EndpointSlice always has its list.
                let exempt = matches!(key.as_str(), "holderIdentity" | "endpoints");
                let written = child.default.is_some() || schema.required.contains(key) || exempt;
                let is_map = child.additional.is_some() && child.properties.is_empty();
                written
                    || match member {
                        Value::String(text) => !text.is_empty(),
                        Value::Array(items) => !items.is_empty(),
                        Value::Object(map) => !(is_map && map.is_empty()),
                        _ => true,
                    }
            });
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

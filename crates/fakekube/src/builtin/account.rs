// SPDX-License-Identifier: Apache-2.0
//! The small kinds: Secrets, ConfigMaps, bindings, Leases.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::builtin::default_text;
use crate::error::FieldError;
use crate::object::{at, child_mut, object_mut, text};

/// `stringData` becomes `data`; a Secret has a type.
pub(crate) fn secret_defaults(secret: &mut Value) {
    default_text(secret, "type", "Opaque");
    if let Some(Value::Object(plain)) = object_mut(secret).remove("stringData") {
        let data = child_mut(secret, "data");
        for (key, value) in plain {
            data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
        }
    }
}

/// An immutable Secret or ConfigMap stays as it is; a Secret's type never changes.
pub(crate) fn immutable_errors(old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(old) = old else { return errors };
    if text(new, &["kind"]) == "Secret" && old.get("type") != new.get("type") {
        errors.push(FieldError::invalid("type", new["type"].clone(), "field is immutable"));
    }
    if at(old, &["immutable"]) == Some(&Value::Bool(true)) {
        if at(new, &["immutable"]) != Some(&Value::Bool(true)) {
            errors.push(FieldError::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for key in ["data", "binaryData"] {
            if old.get(key) != new.get(key) {
                errors.push(FieldError::forbidden(key, "field is immutable when `immutable` is set"));
            }
        }
    }
    errors
}

/// Defaults of role bindings.
pub(crate) fn binding_defaults(binding: &mut Value) {
    if let Some(role) = binding.get_mut("roleRef") {
        default_text(role, "apiGroup", "rbac.authorization.k8s.io");
    }
    let Some(Value::Array(subjects)) = binding.get_mut("subjects") else { return };
    for subject in subjects {
        if matches!(text(subject, &["kind"]), "User" | "Group") {
            default_text(subject, "apiGroup", "rbac.authorization.k8s.io");
        }
    }
}

/// A binding's role never changes.
pub(crate) fn binding_errors(old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    match old {
        Some(old) if old.get("roleRef") != new.get("roleRef") => {
            vec![FieldError::invalid("roleRef", new["roleRef"].clone(), "cannot change roleRef")]
        }
        _ => Vec::new(),
    }
}

/// A Lease's numbers are positive.
pub(crate) fn lease_errors(lease: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(seconds) = at(lease, &["spec", "leaseDurationSeconds"]).and_then(Value::as_i64)
        && seconds <= 0
    {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
    if let Some(count) = at(lease, &["spec", "leaseTransitions"]).and_then(Value::as_i64)
        && count < 0
    {
        errors.push(FieldError::invalid(
            "spec.leaseTransitions",
            count,
            "must be greater than or equal to 0",
        ));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn string_data_becomes_data() {
        let mut secret = json!({ "data": { "a": "QQ==" }, "stringData": { "b": "x" } });
        secret_defaults(&mut secret);
        assert_eq!(secret, json!({ "type": "Opaque", "data": { "a": "QQ==", "b": "eA==" } }));
    }
}

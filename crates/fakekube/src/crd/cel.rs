// SPDX-License-Identifier: Apache-2.0
//! `x-kubernetes-validations`: the CEL rules of a schema.

use kube_cel::{CompiledSchema, ErrorKind, Validator, compile_schema};
use serde_json::Value;

use crate::error::{FieldError, FieldErrorKind};
use crate::object::at;

/// Compiled rules.
pub(crate) struct Rules {
    /// `None` where the schema has no rule at all, which is most of them.
    compiled: Option<(CompiledSchema, Validator)>,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("present", &self.compiled.is_some()).finish()
    }
}

impl Rules {
    /// Compiles all rules of a schema.
    pub(crate) fn compile(schema: &Value) -> Self {
        let compiled = has_rules(schema).then(|| (compile_schema(schema), Validator::new()));
        Self { compiled }
    }

    /// Whether there is any rule.
    pub(crate) const fn any(&self) -> bool {
        self.compiled.is_some()
    }

    /// Rules of the schema that do not compile, as text.
    pub(crate) fn compile_errors(schema: &Value) -> Vec<String> {
        if !has_rules(schema) {
            return Vec::new();
        }
        compile_schema(schema).compilation_errors().iter().map(ToString::to_string).collect()
    }

    /// Rules that do not hold.
    pub(crate) fn errors(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let Some((compiled, validator)) = &self.compiled else { return Vec::new() };
        let Err(errors) = validator.validate_compiled(compiled, new, old) else { return Vec::new() };
        errors
            .into_iter()
            .map(|error| {
                let path = error.field_path.clone();
                // A real server shows scalars only.
                let value = shown(new, &path).filter(|value| !value.is_object() && !value.is_array());
                let message = match error.kind {
                    ErrorKind::ValidationFailure => error.message.clone(),
                    _ => format!("rule: {}: {}", error.rule, error.message),
                };
                let kind = match error.reason.as_deref() {
                    Some("FieldValueRequired") => return FieldError::required(path, message),
                    Some("FieldValueForbidden") => return FieldError::forbidden(path, message),
                    Some("FieldValueDuplicate") => FieldErrorKind::Duplicate,
                    _ => FieldErrorKind::Invalid,
                };
                FieldError::of(kind, if path.is_empty() { "<nil>".to_owned() } else { path }, value, message)
            })
            .collect()
    }
}

/// The value an error shows, found by its path.
fn shown(object: &Value, path: &str) -> Option<Value> {
    let mut here = object;
    for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
        let part = part.trim_end_matches(']');
        here = match (part.parse::<usize>(), here) {
            (Ok(i), Value::Array(items)) => items.get(i)?,
            _ => at(here, &[part.trim_matches('"')])?,
        };
    }
    Some(here.clone())
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key("x-kubernetes-validations") || map.values().any(has_rules),
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn transition_rules_compare_with_the_old_object() {
        let rules = Rules::compile(&json!({ "type": "object", "properties": { "spec": { "type": "object",
            "properties": { "a": { "type": "string",
                "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "a is immutable" }] } } } } }));
        let object = |a: &str| json!({ "spec": { "a": a } });
        assert!(rules.errors(&object("x"), None).is_empty());
        assert!(rules.errors(&object("x"), Some(&object("x"))).is_empty());
        let errors = rules.errors(&object("y"), Some(&object("x")));
        assert_eq!(errors[0].to_string(), "spec.a: Invalid value: \"y\": a is immutable");
    }
}

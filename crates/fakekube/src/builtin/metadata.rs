// SPDX-License-Identifier: Apache-2.0
//! Rules of `metadata` that hold for every kind: names, labels, annotations, finalizers, owners.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::error::{FieldError, FieldErrorKind};
use crate::kinds::Resource;
use crate::object::{at, list, name, text};

static SUBDOMAIN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
        .expect("a constant pattern; a test uses it")
});
static LABEL_1123: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$").expect("a constant pattern; a test uses it")
});
static LABEL_1035: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[a-z]([-a-z0-9]*[a-z0-9])?$").expect("a constant pattern; a test uses it")
});
static WORD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$").expect("a constant pattern; a test uses it")
});

const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1123_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const KEY_TEXT: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Errors of an object's metadata.
pub(crate) fn errors(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    name_errors(resource, name(object), &mut errors);
    for (key, value) in at(object, &["metadata", "labels"]).and_then(Value::as_object).into_iter().flatten() {
        key_errors("metadata.labels", key, &mut errors);
        let value = value.as_str().unwrap_or_default();
        if value.len() > 63 {
            errors.push(FieldError::invalid("metadata.labels", value, "must be no more than 63 bytes"));
        }
        if !value.is_empty() && !WORD.is_match(value) {
            errors.push(FieldError::invalid("metadata.labels", value, VALUE_TEXT));
        }
    }
    let mut size = 0;
    for (key, value) in
        at(object, &["metadata", "annotations"]).and_then(Value::as_object).into_iter().flatten()
    {
        key_errors("metadata.annotations", &key.to_lowercase(), &mut errors);
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > 256 * 1024 {
        let detail = "may not be more than 262144 bytes";
        errors.push(FieldError::of(FieldErrorKind::TooLong, "metadata.annotations", None, detail));
    }
    for finalizer in list(object, &["metadata", "finalizers"]).iter().filter_map(Value::as_str) {
        key_errors("metadata.finalizers", finalizer, &mut errors);
        let plain = ["foregroundDeletion", "orphan", "kubernetes"].contains(&finalizer);
        if !finalizer.contains('/') && !plain {
            errors.push(FieldError::invalid(
                "metadata.finalizers",
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    let mut controllers = 0;
    for (i, owner) in list(object, &["metadata", "ownerReferences"]).iter().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &[key]).is_empty() {
                let field = format!("metadata.ownerReferences[{i}].{key}");
                let detail = if key == "apiVersion" {
                    "version must not be empty".to_owned()
                } else {
                    format!("{key} must not be empty")
                };
                errors.push(FieldError::invalid(field, "", detail));
            }
        }
        controllers += usize::from(owner.get("controller") == Some(&Value::Bool(true)));
    }
    if controllers > 1 {
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            at(object, &["metadata", "ownerReferences"]).cloned().unwrap_or_default(),
            "Only one reference can have Controller set to true",
        ));
    }
    errors
}

fn name_errors(resource: &Resource, name: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        return;
    }
    let (fits, text, limit) = match (resource.group.as_str(), resource.plural.as_str()) {
        ("rbac.authorization.k8s.io", _) => (
            !matches!(name, "." | "..") && !name.contains(['/', '%']),
            "may not contain '/' or '%'",
            usize::MAX,
        ),
        ("", "namespaces") => (LABEL_1123.is_match(name), LABEL_1123_TEXT, 63),
        ("", "services") => (LABEL_1035.is_match(name), LABEL_1035_TEXT, 63),
        _ => (SUBDOMAIN.is_match(name), SUBDOMAIN_TEXT, 253),
    };
    if name.len() > limit {
        errors.push(FieldError::invalid(
            "metadata.name",
            name,
            format!("must be no more than {limit} bytes"),
        ));
    }
    if !fits {
        errors.push(FieldError::invalid("metadata.name", name, text));
    }
}

/// Whether a text is a name of the usual form.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && SUBDOMAIN.is_match(text)
}

/// Whether a text is a label of RFC 1123.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63 && LABEL_1123.is_match(text)
}

/// What is said of a text that is no label.
pub(crate) const fn label_text() -> &'static str {
    LABEL_1123_TEXT
}

fn key_errors(field: &str, key: &str, errors: &mut Vec<FieldError>) {
    let (prefix, word) = match key.split_once('/') {
        Some((prefix, word)) => (Some(prefix), word),
        None => (None, key),
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            errors.push(FieldError::invalid(field, key, "prefix part must be non-empty"));
        } else if !is_subdomain(prefix) {
            errors.push(FieldError::invalid(field, key, format!("prefix part {SUBDOMAIN_TEXT}")));
        }
    }
    if word.is_empty() {
        errors.push(FieldError::invalid(field, key, "name part must be non-empty"));
    } else if word.len() > 63 {
        errors.push(FieldError::invalid(field, key, "name part must be no more than 63 bytes"));
    }
    if !WORD.is_match(word) {
        errors.push(FieldError::invalid(field, key, KEY_TEXT));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Registry;

    #[test]
    fn names_follow_the_rule_of_their_kind() {
        let registry = Registry::new();
        for (group, plural, name, fits) in [
            ("", "configmaps", "a.b-c", true),
            ("", "configmaps", "A", false),
            ("", "services", "0a", false),
            ("", "services", "a.b", false),
            ("", "namespaces", "0a", true),
            ("rbac.authorization.k8s.io", "clusterroles", "system:node", true),
            ("rbac.authorization.k8s.io", "clusterroles", "a/b", false),
        ] {
            let resource = registry.find(group, "v1", plural).expect(plural);
            let found = errors(&resource, &json!({ "metadata": { "name": name } }));
            assert_eq!(found.is_empty(), fits, "{plural} {name}: {found:?}");
        }
    }

    #[test]
    fn labels_and_owners_are_checked() {
        let resource = Registry::new().find("", "v1", "configmaps").expect("built in");
        let object = json!({ "metadata": { "name": "a", "labels": { "ok/x": "-bad" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p" }] } });
        let fields: Vec<String> = errors(&resource, &object).iter().map(|e| e.field().to_owned()).collect();
        assert_eq!(fields, ["metadata.labels", "metadata.ownerReferences[0].uid"]);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Label and field selectors of list, watch and deletecollection.

use serde_json::Value;

use crate::error::{ApiError, Result};
use crate::kinds::Resource;
use crate::object::{at, text};

/// What an object must be like.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Selector {
    labels: Vec<(String, Requirement)>,
    fields: Vec<(String, Requirement)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Requirement {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::In(allowed) => value.is_some_and(|v| allowed.iter().any(|a| a == v)),
            Self::NotIn(banned) => !value.is_some_and(|v| banned.iter().any(|b| b == v)),
            Self::Greater(n) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *n),
            Self::Less(n) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *n),
        }
    }
}

impl Selector {
    /// Reads both selectors of a request; a field this resource cannot select by is refused.
    pub(crate) fn parse(labels: &str, fields: &str, resource: &Resource) -> Result<Self> {
        let fields = parse_fields(fields)?;
        for (field, _) in &fields {
            if !selectable(resource, field) {
                let message = if resource.custom.is_some() {
                    format!("field label not supported: {field}")
                } else {
                    format!("field label not supported: {field:?} for {}", resource.qualified())
                };
                return Err(ApiError::bad_request(message));
            }
        }
        Ok(Self { labels: parse_labels(labels)?, fields })
    }

    /// Whether the object is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|(key, requirement)| {
            requirement.holds(at(object, &["metadata", "labels", key]).and_then(Value::as_str))
        }) && self.fields.iter().all(|(field, requirement)| {
            let path: Vec<&str> = field.split('.').collect();
            let owned;
            let value = match at(object, &path) {
                Some(Value::String(text)) => text.as_str(),
                Some(other) => {
                    owned = other.to_string();
                    &owned
                }
                None => event_field(object, field),
            };
            requirement.holds(Some(value))
        })
    }

    /// Whether everything is selected.
    pub(crate) const fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// Fields that are called differently in the stored form (an Event's `source`, `reason`).
fn event_field<'a>(object: &'a Value, field: &str) -> &'a str {
    match field {
        "source" => text(object, &["source", "component"]),
        "reportingController" => text(object, &["reportingComponent"]),
        other => other.strip_prefix("regarding.").map_or("", |rest| text(object, &["involvedObject", rest])),
    }
}

fn selectable(resource: &Resource, field: &str) -> bool {
    if field == "metadata.name" || (resource.namespaced && field == "metadata.namespace") {
        return true;
    }
    if let Some(custom) = &resource.custom {
        return custom.selectable.iter().any(|known| known == field);
    }
    let known: &[&str] = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("apps", "replicasets") => &["status.replicas"],
        _ => &[],
    };
    known.contains(&field)
}

fn parse_labels(input: &str) -> Result<Vec<(String, Requirement)>> {
    let fail =
        |part: &str| ApiError::bad_request(format!("unable to parse requirement: {part:?} in {input:?}"));
    let mut requirements = Vec::new();
    for part in split_outside_parentheses(input) {
        let part = part.trim();
        if part.is_empty() {
            continue;
        }
        let (key, requirement) = if let Some((left, list)) = part.split_once('(') {
            let words: Vec<&str> = left.split_whitespace().collect();
            let values = list.strip_suffix(')').ok_or_else(|| fail(part))?;
            let values = values.split(',').map(|v| v.trim().to_owned()).collect();
            match words.as_slice() {
                [key, "in"] => (*key, Requirement::In(values)),
                [key, "notin"] => (*key, Requirement::NotIn(values)),
                _ => return Err(fail(part)),
            }
        } else if let Some((key, value)) = part.split_once("!=") {
            (key, Requirement::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (key, Requirement::In(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = part.split_once('>') {
            (key, Requirement::Greater(value.trim().parse().map_err(|_| fail(part))?))
        } else if let Some((key, value)) = part.split_once('<') {
            (key, Requirement::Less(value.trim().parse().map_err(|_| fail(part))?))
        } else if let Some(key) = part.strip_prefix('!') {
            (key, Requirement::Absent)
        } else {
            (part, Requirement::Exists)
        };
        let key = key.trim();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(fail(part));
        }
        requirements.push((key.to_owned(), requirement));
    }
    Ok(requirements)
}

fn parse_fields(input: &str) -> Result<Vec<(String, Requirement)>> {
    let mut requirements = Vec::new();
    for part in input.split(',').filter(|part| !part.is_empty()) {
        let (field, requirement) = if let Some((field, value)) = part.split_once("!=") {
            (field, Requirement::NotIn(vec![value.to_owned()]))
        } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (field, Requirement::In(vec![value.to_owned()]))
        } else {
            let message = format!("invalid selector: {input:?}; can't understand {part:?}");
            return Err(ApiError::bad_request(message));
        };
        requirements.push((field.trim().to_owned(), requirement));
    }
    Ok(requirements)
}

fn split_outside_parentheses(input: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (i, c) in input.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&input[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&input[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_select_as_kubectl_users_expect() {
        let object = json!({ "metadata": { "labels": { "app": "web", "tier": "2" } } });
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=2", true),
            ("app!=web", false),
            ("nope!=web", true),
            ("app in (api, web)", true),
            ("app notin (api,web),tier", false),
            ("tier", true),
            ("!tier", false),
            ("tier>1", true),
            ("tier<2", false),
        ] {
            let selector_value = Selector { labels: parse_labels(selector).expect(selector), fields: vec![] };
            assert_eq!(selector_value.matches(&object), expected, "{selector}");
        }
        assert!(parse_labels("a in b").is_err());
    }

    #[test]
    fn an_absent_field_equals_the_empty_text() {
        let fields = parse_fields("spec.nodeName=").expect("parses");
        let selector = Selector { labels: vec![], fields };
        assert!(selector.matches(&json!({ "spec": {} })));
        assert!(!selector.matches(&json!({ "spec": { "nodeName": "n1" } })));
    }
}

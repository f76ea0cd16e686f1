// SPDX-License-Identifier: Apache-2.0
//! Kubernetes label selectors, parsed once and matched often.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::label_syntax::{key_faults, value_faults};

/// An object's labels.
pub type Labels = BTreeMap<String, String>;

/// A parsed `LabelSelector`: all requirements must hold. Without requirements it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    /// In canonical order, so that equal selectors compare equal.
    requirements: BTreeSet<Requirement>,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

/// Why a `LabelSelector` means nothing; printed as the Kubernetes label library says it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseSelectorError(String);

impl Selector {
    /// The selector that matches everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Parses a selector as Kubernetes does.
    pub fn parse(selector: &LabelSelector) -> Result<Self, ParseSelectorError> {
        let mut requirements = BTreeSet::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.insert(requirement(key, "In", Some(std::slice::from_ref(value)))?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            requirements.insert(requirement(
                &expression.key,
                &expression.operator,
                expression.values.as_deref(),
            )?);
        }
        Ok(Self { requirements })
    }

    /// Whether an object with these labels is selected. A missing label satisfies `NotIn`, as in Kubernetes.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|r| {
            let value = labels.get(&r.key);
            match &r.operator {
                Operator::In(values) => value.is_some_and(|v| values.contains(v)),
                Operator::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

/// A `LabelSelector` that [`Selector::parse`] turns into an equal selector.
impl From<&Selector> for LabelSelector {
    fn from(selector: &Selector) -> Self {
        let expression = |requirement: &Requirement| {
            let list = |values: &BTreeSet<String>| Some(values.iter().cloned().collect());
            let (operator, values) = match &requirement.operator {
                Operator::In(values) => ("In", list(values)),
                Operator::NotIn(values) => ("NotIn", list(values)),
                Operator::Exists => ("Exists", None),
                Operator::DoesNotExist => ("DoesNotExist", None),
            };
            LabelSelectorRequirement { key: requirement.key.clone(), operator: operator.to_owned(), values }
        };
        let expressions: Vec<_> = selector.requirements.iter().map(expression).collect();
        Self { match_expressions: Some(expressions).filter(|list| !list.is_empty()), match_labels: None }
    }
}

/// Prints a selector as it is written on kubectl's command line: `app=web,tier in (a,b),!old`.
pub(crate) fn written(selector: &LabelSelector) -> String {
    let mut parts = Vec::new();
    for (key, value) in selector.match_labels.iter().flatten() {
        parts.push(format!("{key}={value}"));
    }
    for expression in selector.match_expressions.iter().flatten() {
        parts.push(written_expression(&expression.key, &expression.operator, expression.values.as_deref()));
    }
    if parts.is_empty() { "<everything>".to_owned() } else { parts.join(",") }
}

/// Prints one expression of a selector in the same notation.
pub(crate) fn written_expression(key: &str, operator: &str, values: Option<&[String]>) -> String {
    let list = || values.unwrap_or_default().join(",");
    match operator {
        "In" => format!("{key} in ({})", list()),
        "NotIn" => format!("{key} notin ({})", list()),
        "Exists" => key.to_owned(),
        "DoesNotExist" => format!("!{key}"),
        other => format!("{key} {other} ({})", list()),
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.requirements.is_empty() {
            return f.write_str("<everything>");
        }
        for (i, Requirement { key, operator }) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            let list = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(",");
            match operator {
                Operator::In(values) => write!(f, "{key} in ({})", list(values))?,
                Operator::NotIn(values) => write!(f, "{key} notin ({})", list(values))?,
                Operator::Exists => write!(f, "{key}")?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

fn requirement(
    key: &str,
    operator: &str,
    values: Option<&[String]>,
) -> Result<Requirement, ParseSelectorError> {
    let given = values.unwrap_or_default();
    let set = || given.iter().cloned().collect();
    let (parsed, wants_values) = match operator {
        "In" => (Operator::In(set()), true),
        "NotIn" => (Operator::NotIn(set()), true),
        "Exists" => (Operator::Exists, false),
        "DoesNotExist" => (Operator::DoesNotExist, false),
        other => return Err(ParseSelectorError(format!("{other:?} is not a valid label selector operator"))),
    };
    let mut faults = Vec::new();
    let of_key = key_faults(key);
    if !of_key.is_empty() {
        faults.push(format!("key: Invalid value: {key:?}: {}", of_key.join("; ")));
    }
    if wants_values && given.is_empty() {
        // An absent list and an empty one print differently in Go.
        let shown = if values.is_some() { "[]" } else { "null" };
        faults.push(format!(
            "values: Invalid value: {shown}: for 'in', 'notin' operators, values set can't be empty"
        ));
    }
    if !wants_values && !given.is_empty() {
        let shown = given.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(",");
        faults.push(format!(
            "values: Invalid value: [{shown}]: values set must be empty for exists and does not exist"
        ));
    }
    for (i, value) in given.iter().enumerate() {
        let of_value = value_faults(value);
        if !of_value.is_empty() {
            faults.push(format!("values[{i}][{key}]: Invalid value: {value:?}: {}", of_value.join("; ")));
        }
    }
    match faults.len() {
        0 => Ok(Requirement { key: key.to_owned(), operator: parsed }),
        1 => Err(ParseSelectorError(faults.remove(0))),
        _ => Err(ParseSelectorError(format!("[{}]", faults.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: serde_json::Value) -> Result<Selector, String> {
        let selector: LabelSelector = serde_json::from_value(value).unwrap();
        Selector::parse(&selector).map_err(|e| e.to_string())
    }

    fn expression(value: serde_json::Value) -> Result<Selector, String> {
        parse(json!({ "matchExpressions": [value] }))
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn requirements_hold_as_in_kubernetes() {
        let web = labels(&[("app", "web"), ("tier", "front")]);
        let none = Labels::new();
        for (selector, on_web, on_none) in [
            (json!({}), true, true),
            (json!({ "matchLabels": { "app": "web" } }), true, false),
            (json!({ "matchLabels": { "app": "web", "tier": "back" } }), false, false),
            (
                json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["web", "x"] }] }),
                true,
                false,
            ),
            (
                json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["web"] }] }),
                false,
                true,
            ),
            (json!({ "matchExpressions": [{ "key": "app", "operator": "Exists" }] }), true, false),
            (json!({ "matchExpressions": [{ "key": "app", "operator": "DoesNotExist" }] }), false, true),
        ] {
            let parsed = parse(selector.clone()).unwrap();
            assert_eq!(parsed.matches(&web), on_web, "{selector}");
            assert_eq!(parsed.matches(&none), on_none, "{selector}");
        }
    }

    #[test]
    fn a_bad_requirement_is_refused_in_the_words_of_the_kubernetes_library() {
        for (value, message) in [
            (
                json!({ "key": "a", "operator": "surrounds", "values": ["b"] }),
                r#""surrounds" is not a valid label selector operator"#,
            ),
            (
                json!({ "key": "a", "operator": "", "values": ["b"] }),
                r#""" is not a valid label selector operator"#,
            ),
            (
                json!({ "key": "a", "operator": "In" }),
                "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                json!({ "key": "a", "operator": "NotIn", "values": [] }),
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                json!({ "key": "a", "operator": "Exists", "values": ["b"] }),
                r#"values: Invalid value: ["b"]: values set must be empty for exists and does not exist"#,
            ),
            (
                json!({ "key": "bad key!", "operator": "Exists" }),
                "key: Invalid value: \"bad key!\": name part must consist of alphanumeric characters, '-', '_' or '.', \
                 and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
                 regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ),
        ] {
            assert_eq!(expression(value.clone()).unwrap_err(), message, "{value}");
        }
        let both = expression(json!({ "key": "-", "operator": "In", "values": ["a b"] })).unwrap_err();
        assert!(both.starts_with("[key: Invalid value: \"-\": name part"), "{both}");
        assert!(both.contains(", values[0][-]: Invalid value: \"a b\": a valid label"), "{both}");
    }

    #[test]
    fn equal_selectors_are_equal_whatever_their_order() {
        let a = parse(json!({ "matchExpressions": [
            { "key": "a", "operator": "In", "values": ["x", "y"] }, { "key": "b", "operator": "Exists" },
        ] }));
        let b = parse(json!({ "matchExpressions": [
            { "key": "b", "operator": "Exists" }, { "key": "a", "operator": "In", "values": ["y", "x"] },
        ] }));
        assert_eq!(a, b);
        assert_eq!(a.unwrap().to_string(), "a in (x,y),b");
    }
}

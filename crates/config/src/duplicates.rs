// SPDX-License-Identifier: Apache-2.0
//! Lists that must not say a thing twice.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::selector::{written, written_expression};

/// Refuses a text that stands twice in a list. `kind` is the list's name in the message.
pub(crate) fn texts(kind: &str, list: &[String]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    match list.iter().find(|text| !seen.insert(*text)) {
        Some(twice) => Err(format!("duplicate definition of {kind} {twice:?}")),
        None => Ok(()),
    }
}

/// Refuses a selector that stands twice in a list, and one that says a thing twice.
///
/// The order of an expression's values does not matter, that of expressions does, as in MetalLB.
pub(crate) fn selectors(kind: &str, list: &[LabelSelector]) -> Result<(), String> {
    let mut seen: Vec<LabelSelector> = Vec::new();
    for selector in list {
        let sorted = with_sorted_values(selector);
        let mut expressions = Vec::new();
        for expression in sorted.match_expressions.iter().flatten() {
            texts(
                "match expression value in label selector",
                expression.values.as_deref().unwrap_or_default(),
            )?;
            if expressions.contains(&expression) {
                let text =
                    written_expression(&expression.key, &expression.operator, expression.values.as_deref());
                return Err(format!("duplicate definition of match expressions {text}"));
            }
            expressions.push(expression);
        }
        if seen.contains(&sorted) {
            return Err(format!("duplicate definition of {kind} {}", written(&sorted)));
        }
        seen.push(sorted);
    }
    Ok(())
}

/// The selector in a form in which equal ones are equal: absent and empty parts are the same.
fn with_sorted_values(selector: &LabelSelector) -> LabelSelector {
    let mut sorted = selector.clone();
    for expression in sorted.match_expressions.iter_mut().flatten() {
        expression.values.get_or_insert_default().sort();
    }
    sorted.match_expressions.get_or_insert_default();
    sorted.match_labels.get_or_insert_default();
    sorted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(value: serde_json::Value) -> Result<(), String> {
        let list: Vec<LabelSelector> = serde_json::from_value(value).unwrap();
        selectors("nodeSelectors", &list)
    }

    #[test]
    fn what_is_said_once_is_fine() {
        assert_eq!(texts("peers", &["a".to_owned(), "b".to_owned()]), Ok(()));
        assert_eq!(check(json!([])), Ok(()));
        assert_eq!(
            check(json!([{ "matchLabels": { "x": "y" } }, { "matchLabels": { "x": "z" } }, {}])),
            Ok(())
        );
    }

    #[test]
    fn what_is_said_twice_is_named() {
        assert_eq!(
            texts("ipAddressPools", &["p".to_owned(), "p".to_owned()]),
            Err(r#"duplicate definition of ipAddressPools "p""#.to_owned())
        );
        for (list, message) in [
            (
                json!([{ "matchLabels": { "x": "y" } }, { "matchLabels": { "x": "y" } }]),
                "duplicate definition of nodeSelectors x=y",
            ),
            (
                json!([{ "matchExpressions": [{ "key": "k", "operator": "In", "values": ["b", "a"] }] },
                       { "matchExpressions": [{ "key": "k", "operator": "In", "values": ["a", "b"] }] }]),
                "duplicate definition of nodeSelectors k in (a,b)",
            ),
            (
                json!([{ "matchExpressions": [
                    { "key": "k", "operator": "In", "values": ["first", "second"] },
                    { "key": "k", "operator": "In", "values": ["second", "first"] },
                ] }]),
                "duplicate definition of match expressions k in (first,second)",
            ),
            (
                json!([{ "matchExpressions": [{ "key": "k", "operator": "In", "values": ["bar", "bar"] }] }]),
                r#"duplicate definition of match expression value in label selector "bar""#,
            ),
            (json!([{}, { "matchLabels": {} }]), "duplicate definition of nodeSelectors <everything>"),
        ] {
            assert_eq!(check(list.clone()), Err(message.to_owned()), "{list}");
        }
    }
}

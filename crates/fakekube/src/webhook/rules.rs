// SPDX-License-Identifier: Apache-2.0
//! Which requests a webhook wants to see: rules over operations and resources, and selectors over labels.

use serde_json::Value;

use crate::object::{list, text};

/// What a rule is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// API group.
    pub(crate) group: &'a str,
    /// Version.
    pub(crate) version: &'a str,
    /// Plural name.
    pub(crate) resource: &'a str,
    /// Subresource, or "".
    pub(crate) subresource: &'a str,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub(crate) operation: &'a str,
    /// Whether its objects live in namespaces.
    pub(crate) namespaced: bool,
}

/// Whether one of a webhook's rules covers the subject.
pub(crate) fn cover(webhook: &Value, subject: &Subject<'_>) -> bool {
    list(webhook, &["rules"]).iter().any(|rule| covers(rule, subject))
}

fn covers(rule: &Value, subject: &Subject<'_>) -> bool {
    let named = |key: &str, wanted: &str| {
        list(rule, &[key]).iter().filter_map(Value::as_str).any(|given| given == "*" || given == wanted)
    };
    let scope = match text(rule, &["scope"]) {
        "Namespaced" => subject.namespaced,
        "Cluster" => !subject.namespaced,
        _ => true,
    };
    let resource = list(rule, &["resources"]).iter().filter_map(Value::as_str).any(|given| {
        let (resource, subresource) = given.split_once('/').unwrap_or((given, ""));
        (resource == "*" || resource == subject.resource)
            && (subresource == "*" || subresource == subject.subresource)
    });
    scope
        && resource
        && named("operations", subject.operation)
        && named("apiGroups", subject.group)
        && named("apiVersions", subject.version)
}

/// Whether a LabelSelector selects an object by its labels.
pub(crate) fn selects(selector: &Value, object: &Value) -> bool {
    let label = |key: &str| object["metadata"]["labels"].get(key).and_then(Value::as_str);
    let equal = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, value)| label(key).is_some_and(|found| value == found));
    equal
        && list(selector, &["matchExpressions"]).iter().all(|expression| {
            let found = label(text(expression, &["key"]));
            let listed = found.is_some_and(|found| list(expression, &["values"]).iter().any(|v| v == found));
            match text(expression, &["operator"]) {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PEER: Subject<'_> = Subject {
        group: "metallb.io",
        version: "v1beta2",
        resource: "bgppeers",
        subresource: "",
        operation: "CREATE",
        namespaced: true,
    };

    #[test]
    fn rules_name_what_they_cover() {
        let rule = |groups: &str, versions: &str, operations: &str, resources: &str, scope: &str| {
            json!({ "rules": [{ "apiGroups": [groups], "apiVersions": [versions], "operations": [operations],
                "resources": [resources], "scope": scope }] })
        };
        let status = Subject { subresource: "status", ..PEER };
        for (webhook, plain, sub) in [
            (rule("metallb.io", "v1beta2", "CREATE", "bgppeers", "*"), true, false),
            (rule("*", "*", "*", "*", "*"), true, false),
            (rule("*", "*", "*", "*/*", "*"), true, true),
            (rule("metallb.io", "*", "*", "bgppeers/*", "*"), true, true),
            (rule("metallb.io", "*", "*", "bgppeers/status", "*"), false, true),
            (rule("metallb.io", "*", "*", "*/status", "Namespaced"), false, true),
            (rule("metallb.io", "v1beta1", "*", "bgppeers", "*"), false, false),
            (rule("metallb.io", "v1beta2", "DELETE", "bgppeers", "*"), false, false),
            (rule("", "v1beta2", "CREATE", "bgppeers", "*"), false, false),
            (rule("metallb.io", "v1beta2", "CREATE", "communities", "*"), false, false),
            (rule("metallb.io", "v1beta2", "CREATE", "bgppeers", "Cluster"), false, false),
        ] {
            assert_eq!((cover(&webhook, &PEER), cover(&webhook, &status)), (plain, sub), "{webhook}");
        }
    }

    #[test]
    fn selectors_are_those_of_labels() {
        let object = json!({ "metadata": { "labels": { "a": "1", "b": "2" } } });
        let expression = |operator: &str, key: &str, values: Value| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        for (selector, selected) in [
            (json!({}), true),
            (json!({ "matchLabels": { "a": "1" } }), true),
            (json!({ "matchLabels": { "a": "2" } }), false),
            (json!({ "matchLabels": { "c": "" } }), false),
            (expression("In", "b", json!(["1", "2"])), true),
            (expression("NotIn", "b", json!(["2"])), false),
            (expression("NotIn", "c", json!(["2"])), true),
            (expression("Exists", "c", Value::Null), false),
            (expression("DoesNotExist", "c", Value::Null), true),
            (expression("Near", "a", json!(["1"])), false),
        ] {
            assert_eq!(selects(&selector, &object), selected, "{selector}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! ValidatingWebhookConfiguration: defaults and rules.

use serde_json::{Value, json};

use crate::builtin::{default_text, default_value};
use crate::error::{FieldError, FieldErrorKind};
use crate::object::{at, list, text};
use crate::webhook::certificates;

/// Fills in what a configuration leaves open.
pub(crate) fn defaults(configuration: &mut Value) {
    let Some(Value::Array(webhooks)) = configuration.get_mut("webhooks") else { return };
    for webhook in webhooks {
        default_text(webhook, "failurePolicy", "Fail");
        default_text(webhook, "matchPolicy", "Equivalent");
        default_value(webhook, "namespaceSelector", json!({}));
        default_value(webhook, "objectSelector", json!({}));
        default_value(webhook, "timeoutSeconds", json!(10));
        if let Some(service) = webhook.get_mut("clientConfig").and_then(|config| config.get_mut("service")) {
            default_value(service, "port", json!(443));
        }
        if let Some(Value::Array(rules)) = webhook.get_mut("rules") {
            rules.iter_mut().for_each(|rule| default_text(rule, "scope", "*"));
        }
    }
}

/// What is wrong with a configuration.
pub(crate) fn errors(configuration: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = Vec::new();
    for (i, webhook) in list(configuration, &["webhooks"]).iter().enumerate() {
        let path = format!("webhooks[{i}]");
        let name = text(webhook, &["name"]);
        if name.split('.').filter(|segment| !segment.is_empty()).count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            errors.push(FieldError::invalid(format!("{path}.name"), name, detail));
        }
        if names.contains(&name) {
            errors.push(FieldError::of(
                FieldErrorKind::Duplicate,
                format!("{path}.name"),
                Some(name.into()),
                "",
            ));
        }
        names.push(name);
        webhook_errors(&path, webhook, &mut errors);
    }
    errors
}

fn webhook_errors(path: &str, webhook: &Value, errors: &mut Vec<FieldError>) {
    for (key, known) in [
        ("failurePolicy", &["Fail", "Ignore"]),
        ("matchPolicy", &["Equivalent", "Exact"]),
        ("sideEffects", &["None", "NoneOnDryRun"]),
    ] {
        let given = webhook.get(key).cloned().unwrap_or(Value::Null);
        if !known.iter().any(|&known| given == known) {
            let known = known.map(Value::from);
            errors.push(FieldError::not_supported(format!("{path}.{key}"), given, &known));
        }
    }
    let versions = list(webhook, &["admissionReviewVersions"]);
    let versions_path = format!("{path}.admissionReviewVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(versions_path, "must specify one of v1, v1beta1"));
    } else if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(versions_path, versions.to_vec(), detail));
    }
    if let Some(seconds) = webhook.get("timeoutSeconds").and_then(Value::as_i64)
        && !(1..=30).contains(&seconds)
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(format!("{path}.timeoutSeconds"), seconds, detail));
    }
    errors.extend(client_errors(&format!("{path}.clientConfig"), &webhook["clientConfig"]));
    if let Some(bundle) = at(webhook, &["clientConfig", "caBundle"]).and_then(Value::as_str)
        && let Err(why) = certificates(bundle)
    {
        errors.push(FieldError::invalid(format!("{path}.clientConfig.caBundle"), bundle, why));
    }
    for (i, rule) in list(webhook, &["rules"]).iter().enumerate() {
        rule_errors(&format!("{path}.rules[{i}]"), rule, errors);
    }
}

fn rule_errors(path: &str, rule: &Value, errors: &mut Vec<FieldError>) {
    const OPERATIONS: [&str; 5] = ["*", "CREATE", "UPDATE", "DELETE", "CONNECT"];
    for key in ["operations", "apiGroups", "apiVersions", "resources"] {
        let given = list(rule, &[key]);
        if given.is_empty() {
            errors.push(FieldError::required(format!("{path}.{key}"), ""));
        }
        if key != "resources" && given.len() > 1 && given.iter().any(|item| item == "*") {
            let detail = "if '*' is present, must not specify other values";
            errors.push(FieldError::invalid(format!("{path}.{key}"), given.to_vec(), detail));
        }
    }
    for (i, operation) in list(rule, &["operations"]).iter().enumerate() {
        if !OPERATIONS.iter().any(|known| operation == known) {
            let path = format!("{path}.operations[{i}]");
            errors.push(FieldError::not_supported(path, operation.clone(), &OPERATIONS.map(Value::from)));
        }
    }
    let scope = rule.get("scope").cloned().unwrap_or(Value::Null);
    let scopes = ["*", "Cluster", "Namespaced"];
    if !scopes.iter().any(|&known| scope == known) {
        errors.push(FieldError::not_supported(format!("{path}.scope"), scope, &scopes.map(Value::from)));
    }
}

/// What is wrong with a `clientConfig`: it names a URL or a Service, and a good one.
pub(crate) fn client_errors(path: &str, config: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match (at(config, &["url"]).and_then(Value::as_str), at(config, &["service"])) {
        (Some(url), None) => url_errors(&format!("{path}.url"), url, &mut errors),
        (None, Some(service)) => service_errors(&format!("{path}.service"), service, &mut errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
    errors
}

fn url_errors(path: &str, url: &str, errors: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(path, scheme, detail));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let host = rest.split('/').next().unwrap_or_default();
    if host.is_empty() {
        errors.push(FieldError::invalid(path, "", format!("host must be specified{FORM}")));
    }
    if let Some((user, _)) = host.rsplit_once('@') {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    if !fragment.is_empty() {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if !query.is_empty() {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
}

fn service_errors(path: &str, service: &Value, errors: &mut Vec<FieldError>) {
    for key in ["name", "namespace"] {
        if text(service, &[key]).is_empty() {
            errors.push(FieldError::required(format!("{path}.{key}"), ""));
        }
    }
    let given = text(service, &["path"]);
    let at_path = || format!("{path}.path");
    if !given.is_empty() && given != "/" {
        if !given.starts_with('/') {
            errors.push(FieldError::invalid(at_path(), given, "must start with a '/'"));
        }
        let rest = given.get(1..).unwrap_or_default();
        for (i, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
            if segment.is_empty() {
                errors.push(FieldError::invalid(at_path(), given, format!("segment[{i}] may not be empty")));
            }
        }
    }
    if let Some(port) = service.get("port").and_then(Value::as_i64)
        && !(1..=65_535).contains(&port)
    {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{path}.port"), port, detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(edit: impl Fn(&mut Value)) -> Value {
        let mut webhook = json!({
            "name": "hook.example.com", "clientConfig": { "url": "https://127.0.0.1/x" }, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }],
        });
        edit(&mut webhook);
        let mut configuration = json!({ "webhooks": [webhook] });
        defaults(&mut configuration);
        configuration
    }

    #[test]
    fn what_is_left_open_is_filled_in() {
        let webhook = &configuration(|w| w["clientConfig"] = json!({ "service": {} }))["webhooks"][0];
        assert_eq!(webhook["failurePolicy"], "Fail");
        assert_eq!(webhook["matchPolicy"], "Equivalent");
        assert_eq!(webhook["timeoutSeconds"], 10);
        assert_eq!(webhook["rules"][0]["scope"], "*");
        assert_eq!(webhook["clientConfig"]["service"]["port"], 443);
        assert_eq!(errors(&configuration(|_| {})), []);
    }

    #[test]
    fn mistakes_are_told_in_a_real_servers_words() {
        type Edit = fn(&mut Value);
        let cases: &[(Edit, &str)] = &[
            (
                |w| w["sideEffects"] = Value::Null,
                "webhooks[0].sideEffects: Unsupported value: null: supported values: \"None\", \"NoneOnDryRun\"",
            ),
            (
                |w| w["failurePolicy"] = "x".into(),
                "webhooks[0].failurePolicy: Unsupported value: \"x\": supported values: \"Fail\", \"Ignore\"",
            ),
            (
                |w| w["admissionReviewVersions"] = json!([]),
                "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
            ),
            (
                |w| w["timeoutSeconds"] = 31.into(),
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            ),
            (
                |w| w["name"] = "x".into(),
                "webhooks[0].name: Invalid value: \"x\": should be a domain with at least three segments separated \
                 by dots",
            ),
            (
                |w| w["clientConfig"] = json!({}),
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ),
            (
                |w| w["clientConfig"]["url"] = "http://a/b".into(),
                "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; \
                 desired format: https://host[/path]",
            ),
            (
                |w| w["clientConfig"]["url"] = "https://a/b?y=z".into(),
                "webhooks[0].clientConfig.url: Invalid value: \"y=z\": query parameters are not permitted in the URL",
            ),
            (
                |w| w["clientConfig"]["caBundle"] = "eHg=".into(),
                "webhooks[0].clientConfig.caBundle: Invalid value: \"eHg=\": unable to load root certificates: \
                 unable to parse bytes as PEM block",
            ),
            (
                |w| w["clientConfig"] = json!({ "service": { "name": "a" } }),
                "webhooks[0].clientConfig.service.namespace: Required value",
            ),
            (|w| w["rules"][0]["operations"] = json!([]), "webhooks[0].rules[0].operations: Required value"),
        ];
        for (edit, message) in cases {
            let found: Vec<String> = errors(&configuration(edit)).iter().map(ToString::to_string).collect();
            assert_eq!(found, [message.to_string()]);
        }
        let mut twice = configuration(|_| {});
        twice["webhooks"] = json!([twice["webhooks"][0], twice["webhooks"][0]]);
        let found: Vec<String> = errors(&twice).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["webhooks[1].name: Duplicate value: \"hook.example.com\""]);
    }
}

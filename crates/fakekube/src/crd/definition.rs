// SPDX-License-Identifier: Apache-2.0
//! The CustomResourceDefinition itself: defaults, rules, and the conditions that say it is served.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::builtin::{default_text, default_value, webhook};
use crate::crd::cel::Rules;
use crate::error::FieldError;
use crate::object::{self, at, list, now_text, object_mut, text};

/// Defaults of a definition.
pub(crate) fn defaults(definition: &mut Value) {
    let spec = &mut definition["spec"];
    let kind = text(spec, &["names", "kind"]).to_owned();
    if let Some(names) = spec.get_mut("names") {
        default_text(names, "singular", &kind.to_lowercase());
        default_text(names, "listKind", &format!("{kind}List"));
    }
    default_value(spec, "conversion", json!({ "strategy": "None" }));
    if let Some(service) = spec
        .get_mut("conversion")
        .and_then(|conversion| conversion.get_mut("webhook"))
        .and_then(|webhook| webhook.get_mut("clientConfig"))
        .and_then(|config| config.get_mut("service"))
    {
        default_value(service, "port", json!(443));
    }
    // False is what Go leaves out.
    if at(spec, &["preserveUnknownFields"]) == Some(&Value::Bool(false)) {
        object_mut(spec).remove("preserveUnknownFields");
    }
}

/// Writes the status that the controllers of a real server would write a moment later.
pub(crate) fn set_status(old: Option<&Value>, definition: &mut Value) {
    let names = definition["spec"]["names"].clone();
    let mut stored: Vec<Value> =
        old.map(|old| list(old, &["status", "storedVersions"]).to_vec()).unwrap_or_default();
    let storage = storage_version(definition);
    if !storage.is_null() && !stored.contains(&storage) {
        stored.push(storage);
    }
    let since = |kind: &str| -> Value {
        let before = old.into_iter().flat_map(|old| list(old, &["status", "conditions"]));
        before
            .into_iter()
            .find(|condition| condition["type"] == kind)
            .map_or_else(|| now_text().into(), |condition| condition["lastTransitionTime"].clone())
    };
    definition["status"] = json!({
        "acceptedNames": names,
        "conditions": [
            {
                "type": "NamesAccepted", "status": "True", "reason": "NoConflicts",
                "message": "no conflicts found", "lastTransitionTime": since("NamesAccepted"),
            },
            {
                "type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted", "lastTransitionTime": since("Established"),
            },
        ],
        "storedVersions": stored,
    });
}

fn storage_version(definition: &Value) -> Value {
    list(definition, &["spec", "versions"])
        .iter()
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .map_or(Value::Null, |version| version["name"].clone())
}

/// What is wrong with a definition.
pub(crate) fn errors(old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    let (group, plural) = (text(spec, &["group"]), text(spec, &["names", "plural"]));
    for (path, value) in [
        ("spec.group", group),
        ("spec.names.plural", plural),
        ("spec.names.kind", text(spec, &["names", "kind"])),
    ] {
        if value.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
    }
    if !group.is_empty() && !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    }
    let expected = format!("{plural}.{group}");
    if object::name(new) != expected {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", object::name(new), detail));
    }
    let scope = text(spec, &["scope"]);
    if !matches!(scope, "Namespaced" | "Cluster") {
        let known = ["Cluster".into(), "Namespaced".into()];
        errors.push(if scope.is_empty() {
            FieldError::required("spec.scope", "")
        } else {
            FieldError::not_supported("spec.scope", scope, &known)
        });
    }
    if at(spec, &["preserveUnknownFields"]) == Some(&Value::Bool(true)) {
        let detail = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
    }
    let versions = list(spec, &["versions"]);
    let stored = versions.iter().filter(|version| version.get("storage") == Some(&Value::Bool(true))).count();
    if stored != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", spec["versions"].clone(), detail));
    }
    let mut names = BTreeSet::new();
    for (i, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{i}]");
        let name = text(version, &["name"]);
        if !crate::builtin::metadata::is_label(name) || !names.insert(name) {
            errors.push(FieldError::invalid(
                format!("{path}.name"),
                name,
                "must be a label, each version once",
            ));
        }
        if !matches!(at(version, &["subresources", "scale"]), None | Some(Value::Null)) {
            let detail = "the scale subresource is not supported by this server";
            errors.push(FieldError::forbidden(format!("{path}.subresources.scale"), detail));
        }
        match at(version, &["schema", "openAPIV3Schema"]) {
            None => errors
                .push(FieldError::required(format!("{path}.schema.openAPIV3Schema"), "schemas are required")),
            Some(schema) => schema_errors(&format!("{path}.schema.openAPIV3Schema"), schema, &mut errors),
        }
    }
    if let Some(old) = old {
        for key in ["group", "scope"] {
            if old["spec"].get(key) != spec.get(key) {
                errors.push(FieldError::invalid(
                    format!("spec.{key}"),
                    spec[key].clone(),
                    "field is immutable",
                ));
            }
        }
        for key in ["plural", "kind"] {
            if old["spec"]["names"].get(key) != spec["names"].get(key) {
                let path = format!("spec.names.{key}");
                errors.push(FieldError::invalid(path, spec["names"][key].clone(), "field is immutable"));
            }
        }
    }
    conversion_errors(spec, &mut errors);
    errors
}

/// What is wrong with `spec.conversion`; paths are those of a real server, which looks at its inner form.
fn conversion_errors(spec: &Value, errors: &mut Vec<FieldError>) {
    const CLIENT: &str = "spec.conversion.webhookClientConfig";
    const VERSIONS: &str = "spec.conversion.conversionReviewVersions";
    let strategy = text(spec, &["conversion", "strategy"]);
    if !matches!(strategy, "None" | "Webhook") {
        let known = ["None".into(), "Webhook".into()];
        errors.push(FieldError::not_supported("spec.conversion.strategy", strategy, &known));
    }
    let webhook = at(spec, &["conversion", "webhook"]);
    let client = webhook.and_then(|webhook| at(webhook, &["clientConfig"]));
    let versions = webhook.map(|webhook| list(webhook, &["conversionReviewVersions"])).unwrap_or_default();
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        for (path, given) in [(CLIENT, client.is_some()), (VERSIONS, !versions.is_empty())] {
            if given {
                errors.push(FieldError::forbidden(path, detail));
            }
        }
        return;
    }
    match client {
        None => errors.push(FieldError::required(CLIENT, "required when strategy is set to Webhook")),
        Some(client) => errors.extend(webhook::client_errors(CLIENT, client)),
    }
    if versions.is_empty() {
        errors.push(FieldError::required(VERSIONS, ""));
    } else if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(VERSIONS, versions.to_vec(), detail));
    }
}

fn schema_errors(path: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    if text(schema, &["type"]) != "object" {
        errors.push(FieldError::invalid(
            format!("{path}.type"),
            schema["type"].clone(),
            "must be object at the root",
        ));
    }
    structural(path, schema, errors);
    for error in Rules::compile_errors(schema) {
        errors.push(FieldError::invalid(format!("{path}.x-kubernetes-validations"), Value::Null, error));
    }
}

/// A structural schema says the type of everything and uses no references.
fn structural(path: &str, schema: &Value, errors: &mut Vec<FieldError>) {
    if schema.get("$ref").is_some() {
        errors.push(FieldError::forbidden(format!("{path}.$ref"), "$ref is not supported"));
    }
    let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let free = flag("x-kubernetes-preserve-unknown-fields") || flag("x-kubernetes-int-or-string");
    if text(schema, &["type"]).is_empty() && !free {
        errors.push(FieldError::required(
            format!("{path}.type"),
            "must not be empty for specified object fields",
        ));
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && let Err(error) = regex::Regex::new(pattern)
    {
        errors.push(FieldError::invalid(
            format!("{path}.pattern"),
            pattern,
            format!("must be a valid regular expression: {error}"),
        ));
    }
    for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        structural(&format!("{path}.properties[{key}]"), property, errors);
    }
    match schema.get("items") {
        Some(items @ Value::Object(_)) => structural(&format!("{path}.items"), items, errors),
        Some(_) => errors.push(FieldError::forbidden(
            format!("{path}.items"),
            "items must be a schema object and not an array",
        )),
        None if text(schema, &["type"]) == "array" => {
            errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
        }
        None => {}
    }
    if let Some(additional @ Value::Object(_)) = schema.get("additionalProperties") {
        structural(&format!("{path}.additionalProperties"), additional, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Value {
        let mut definition = json!({ "metadata": { "name": "as.b.c" }, "spec": {
            "group": "b.c", "scope": "Namespaced", "names": { "plural": "as", "kind": "A" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": { "type": "object" } } } } }],
        } });
        defaults(&mut definition);
        definition
    }

    #[test]
    fn a_good_definition_is_established_with_its_names() {
        let mut definition = definition();
        assert_eq!(errors(None, &definition), []);
        set_status(None, &mut definition);
        assert_eq!(definition["status"]["acceptedNames"]["listKind"], "AList");
        assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
        let before = definition.clone();
        set_status(Some(&before), &mut definition);
        assert_eq!(definition, before, "a second look changes no time");
    }

    #[test]
    fn bad_definitions_are_told_what_is_wrong() {
        let bad = |edit: fn(&mut Value)| {
            let mut definition = definition();
            edit(&mut definition);
            errors(None, &definition).iter().map(|e| e.field().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(bad(|d| d["metadata"]["name"] = "x".into()), ["metadata.name"]);
        assert_eq!(bad(|d| d["spec"]["versions"][0]["storage"] = false.into()), ["spec.versions"]);
        let schema = |d: &mut Value| {
            d["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["x"] = json!({})
        };
        assert_eq!(bad(schema), ["spec.versions[0].schema.openAPIV3Schema.properties[x].type"]);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The generated definitions against tables of what MetalLB ships, property by property.

use std::collections::BTreeMap;

use ferrolb_api::{crds, manifests};
use serde_json::Value;
use similar_asserts::assert_eq;

const TABLES: &str = include_str!("../data/crds.txt");

/// One line for each fact about a definition; two definitions are equal when their lines are.
type Facts = Vec<String>;

#[test]
fn the_definitions_say_what_the_tables_say_and_nothing_else() {
    let expected = expected();
    let generated: BTreeMap<String, Facts> = manifests("metallb-system")
        .iter()
        .map(|crd| (text(&crd["spec"]["names"]["kind"]), facts_of(crd)))
        .collect();
    assert_eq!(expected.keys().collect::<Vec<_>>(), generated.keys().collect::<Vec<_>>(), "the kinds");
    for (kind, facts) in &expected {
        assert_eq!(facts, &generated[kind], "{kind}");
    }
}

#[test]
fn bgp_peers_are_converted_by_the_webhook_and_nothing_else_is() {
    for crd in manifests("elsewhere") {
        let conversion = &crd["spec"]["conversion"];
        if crd["spec"]["names"]["kind"] == "BGPPeer" {
            let expected = serde_json::json!({
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {
                        "service": { "name": "metallb-webhook-service", "namespace": "elsewhere", "path": "/convert" },
                    },
                    "conversionReviewVersions": ["v1beta1", "v1beta2"],
                },
            });
            assert_eq!(conversion, &expected);
        } else {
            assert_eq!(conversion, &Value::Null);
        }
    }
}

#[test]
fn every_definition_names_itself_and_has_no_short_names_and_no_categories() {
    for crd in crds() {
        assert_eq!(crd.metadata.name, Some(format!("{}.metallb.io", crd.spec.names.plural)));
        assert_eq!(crd.spec.group, "metallb.io");
        assert_eq!(crd.spec.scope, "Namespaced");
        assert_eq!(crd.spec.names.list_kind, Some(format!("{}List", crd.spec.names.kind)));
        assert_eq!(crd.spec.names.short_names, None);
        assert_eq!(crd.spec.names.categories, None);
        assert_eq!(crd.spec.preserve_unknown_fields, None);
    }
}

#[test]
fn every_field_explains_itself() {
    fn undescribed(path: &str, schema: &Value, found: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if property["description"].as_str().is_none_or(str::is_empty) && path != ".metadata" {
                found.push(path.clone());
            }
            undescribed(&path, property, found);
            undescribed(&format!("{path}[]"), &property["items"], found);
        }
    }
    let mut found = Vec::new();
    for crd in manifests("metallb-system") {
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let kind = text(&crd["spec"]["names"]["kind"]);
            let mut of_kind = Vec::new();
            undescribed("", &version["schema"]["openAPIV3Schema"], &mut of_kind);
            // The `status` that nothing uses, and the `spec` of what has none to speak of, need no sentence.
            of_kind.retain(|path| path != ".status" && path != ".spec");
            found.extend(of_kind.into_iter().map(|path| format!("{kind}{path}")));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// The facts of a generated definition.
fn facts_of(crd: &Value) -> Facts {
    let names = &crd["spec"]["names"];
    let mut facts = vec![format!("names {} {}", text(&names["plural"]), text(&names["singular"]))];
    for version in crd["spec"]["versions"].as_array().unwrap() {
        let name = text(&version["name"]);
        for flag in ["served", "storage", "deprecated"] {
            if version[flag] == true {
                facts.push(format!("{name} {flag}"));
            }
        }
        let warning = version["deprecationWarning"].as_str();
        facts.extend(warning.map(|warning| format!("{name} warns: {warning}")));
        facts.push(format!("{name} subresources {}", version["subresources"]));
        for column in version["additionalPrinterColumns"].as_array().into_iter().flatten() {
            facts.push(format!(
                "{name} column {} | {} | {} | {}",
                text(&column["name"]),
                text(&column["jsonPath"]),
                text(&column["type"]),
                column["priority"].as_i64().unwrap_or(0)
            ));
        }
        let mut fields = Facts::new();
        schema_facts(&name, "", false, &version["schema"]["openAPIV3Schema"], &mut fields);
        fields.sort();
        facts.append(&mut fields);
    }
    facts
}

/// One line for the schema itself, then those of what it contains. A keyword that no line knows is shown as it is.
fn schema_facts(version: &str, path: &str, required: bool, schema: &Value, facts: &mut Facts) {
    let mut kind = text(&schema["type"]);
    if let Some(format) = schema["format"].as_str() {
        kind = format!("{kind}/{format}");
    }
    let mut limits = Vec::new();
    for (keyword, value) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "type" | "format" | "description" | "required" => {}
            "properties" => {
                for (name, property) in value.as_object().unwrap() {
                    let required = schema["required"]
                        .as_array()
                        .is_some_and(|list| list.contains(&name.as_str().into()));
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    schema_facts(version, &path, required, property, facts);
                }
            }
            "items" => schema_facts(version, &format!("{path}[]"), false, value, facts),
            "additionalProperties" => schema_facts(version, &format!("{path}{{}}"), false, value, facts),
            "x-kubernetes-validations" => {
                for rule in value.as_array().unwrap() {
                    assert_eq!(rule.as_object().unwrap().len(), 2, "{path}: a rule and a message, no more");
                    let (rule, message) = (text(&rule["rule"]), text(&rule["message"]));
                    facts.push(format!("{version} rule {path} | {rule} | {message}"));
                }
            }
            "enum" => {
                let values: Vec<String> = value.as_array().unwrap().iter().map(text).collect();
                limits.push(format!("enum={}", values.join(",")));
            }
            other => limits.push(format!("{}={}", short(other), value.to_string().trim_matches('"'))),
        }
    }
    limits.sort();
    let star = if required { "*" } else { "" };
    facts.push(format!("{version} field {path}{star} {kind} {}", limits.join(" ")).trim_end().to_owned());
}

/// The facts that the tables state, by kind.
fn expected() -> BTreeMap<String, Facts> {
    let mut all: BTreeMap<String, Facts> = BTreeMap::new();
    let mut kind = String::new();
    let mut version = String::new();
    let mut fields = Facts::new();
    let close = |all: &mut BTreeMap<String, Facts>, kind: &str, fields: &mut Facts| {
        fields.sort();
        if let Some(facts) = all.get_mut(kind) {
            facts.append(fields);
        }
    };
    for line in TABLES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap();
        match word {
            "kind" => {
                close(&mut all, &kind, &mut fields);
                let (name, names) = rest.split_once(' ').unwrap();
                kind = name.to_owned();
                all.insert(kind.clone(), vec![format!("names {names}")]);
            }
            "version" => {
                close(&mut all, &kind, &mut fields);
                let mut words = rest.split(' ');
                version = words.next().unwrap().to_owned();
                let facts = all.get_mut(&kind).unwrap();
                for flag in words {
                    facts.push(format!("{version} {flag}"));
                    if flag == "deprecated" {
                        facts.push(format!("{version} warns: v1beta1 is deprecated, please use v1beta2"));
                    }
                }
                facts.push(format!(r#"{version} subresources {{"status":{{}}}}"#));
                // What every object has.
                fields.extend(
                    [" object", "apiVersion string", "kind string", "metadata object"]
                        .map(|field| format!("{version} field {field}")),
                );
            }
            "column" => all.get_mut(&kind).unwrap().push(format!("{version} column {rest}")),
            "rule" => fields.push(format!("{version} rule {rest}")),
            "field" => expand(&version, rest, &mut fields),
            other => panic!("no such line: {other}"),
        }
    }
    close(&mut all, &kind, &mut fields);
    all
}

/// Writes out the schemas that have a name of their own.
fn expand(version: &str, field: &str, fields: &mut Facts) {
    let (path, kind) = field.split_once(' ').unwrap();
    let standard: &[&str] = match kind {
        "LabelSelector" => LABEL_SELECTOR,
        "Conditions" => CONDITIONS,
        _ => {
            let mut words = kind.split(' ');
            let kind = words.next().unwrap();
            let mut limits: Vec<&str> = words.collect();
            limits.sort_unstable();
            fields.push(format!("{version} field {path} {kind} {}", limits.join(" ")).trim_end().to_owned());
            return;
        }
    };
    let plain = path.trim_end_matches('*');
    for (i, line) in standard.iter().enumerate() {
        let base = if i == 0 { path } else { plain };
        fields.push(format!("{version} field {base}{line}"));
    }
}

const LABEL_SELECTOR: &[&str] = &[
    " object mapType=atomic",
    ".matchLabels object",
    ".matchLabels{} string",
    ".matchExpressions array listType=atomic",
    ".matchExpressions[] object",
    ".matchExpressions[].key* string",
    ".matchExpressions[].operator* string",
    ".matchExpressions[].values array listType=atomic",
    ".matchExpressions[].values[] string",
];

const CONDITIONS: &[&str] = &[
    r#" array listMapKeys=["type"] listType=map"#,
    "[] object",
    "[].type* string maxLength=316 pattern=^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
    "[].status* string enum=True,False,Unknown",
    "[].reason* string maxLength=1024 minLength=1 pattern=^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    "[].message* string maxLength=32768",
    "[].lastTransitionTime* string/date-time",
    "[].observedGeneration integer/int64 min=0",
];

fn short(keyword: &str) -> &str {
    match keyword {
        "minimum" => "min",
        "maximum" => "max",
        "x-kubernetes-list-type" => "listType",
        "x-kubernetes-list-map-keys" => "listMapKeys",
        "x-kubernetes-map-type" => "mapType",
        other => other,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

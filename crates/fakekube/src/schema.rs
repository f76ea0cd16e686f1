// SPDX-License-Identifier: Apache-2.0
//! The shape of objects: one type for the built-in kinds (read from the bundled OpenAPI document) and for
//! custom resources (read from their structural schema). Defaulting, pruning, validation, merging and
//! field ownership all walk it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use regex::Regex;
use serde_json::{Value, json};

use crate::object::{list, text};

/// JSON type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Type {
    /// Anything.
    #[default]
    Any,
    /// An object with properties or a map.
    Object,
    /// A list.
    Array,
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// true or false.
    Boolean,
    /// A whole number or text.
    IntOrString,
}

/// Who may own what in a list, and how lists merge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// Scalars, each once.
    Set,
    /// Objects told apart by these keys.
    Map(Vec<String>),
}

/// How a strategic merge patch treats a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum MergeStrategy {
    /// The patch's list replaces the list.
    #[default]
    Replace,
    /// Scalars are added; objects merge by this key.
    Merge(Option<String>),
}

/// Shape of one value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schema {
    pub(crate) ty: Type,
    pub(crate) format: String,
    pub(crate) nullable: bool,
    pub(crate) default: Option<Value>,
    pub(crate) properties: BTreeMap<String, Arc<Self>>,
    pub(crate) additional: Option<Arc<Self>>,
    pub(crate) items: Option<Arc<Self>>,
    pub(crate) required: Vec<String>,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    pub(crate) list: ListType,
    pub(crate) atomic_map: bool,
    pub(crate) merge: MergeStrategy,
    pub(crate) limits: Limits,
}

/// Value validations of a schema, OpenAPI's words.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    pub(crate) enumeration: Vec<Value>,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<usize>,
    pub(crate) max_length: Option<usize>,
    pub(crate) pattern: Option<Regex>,
    pub(crate) min_items: Option<usize>,
    pub(crate) max_items: Option<usize>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<usize>,
    pub(crate) max_properties: Option<usize>,
    pub(crate) all_of: Vec<Arc<Schema>>,
    pub(crate) any_of: Vec<Arc<Schema>>,
    pub(crate) one_of: Vec<Arc<Schema>>,
    pub(crate) not: Option<Arc<Schema>>,
}

impl Schema {
    /// Reads a structural schema (a JSONSchemaProps value) that has no references.
    #[cfg(test)]
    pub(crate) fn structural(value: &Value) -> Arc<Self> {
        Arc::new(read(value, &mut |_| Arc::new(Self::default())))
    }

    /// A custom resource's whole object: its schema with the metadata of every object in it.
    pub(crate) fn custom(value: &Value) -> Arc<Self> {
        let mut schema = read(value, &mut |_| Arc::new(Self::default()));
        schema.ty = Type::Object;
        let text = Arc::new(Self { ty: Type::String, ..Self::default() });
        schema.properties.insert("apiVersion".into(), Arc::clone(&text));
        schema.properties.insert("kind".into(), text);
        schema.properties.insert("metadata".into(), Arc::clone(object_meta()));
        Arc::new(schema)
    }

    /// The schema of a member of an object, if the shape knows one.
    pub(crate) fn member(&self, key: &str) -> Option<&Arc<Self>> {
        self.properties.get(key).or(self.additional.as_ref())
    }
}

/// Shape of `metadata`.
pub(crate) fn object_meta() -> &'static Arc<Schema> {
    static META: LazyLock<Arc<Schema>> =
        LazyLock::new(|| built_in("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").unwrap_or_default());
    &META
}

/// Shape of a definition of the bundled document.
pub(crate) fn built_in(definition: &str) -> Option<Arc<Schema>> {
    DOCUMENT.schemas.get(definition).cloned()
}

/// The bundled document: definition name to OpenAPI schema.
pub(crate) fn document() -> &'static BTreeMap<String, Value> {
    &DOCUMENT.definitions
}

/// Name of the definition of a built-in kind.
pub(crate) fn definition_of(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    document().iter().find_map(|(name, schema)| {
        list(schema, &["x-kubernetes-group-version-kind"])
            .iter()
            .any(|gvk| {
                text(gvk, &["group"]) == group
                    && text(gvk, &["version"]) == version
                    && text(gvk, &["kind"]) == kind
            })
            .then_some(name.as_str())
    })
}

struct Document {
    definitions: BTreeMap<String, Value>,
    schemas: HashMap<String, Arc<Schema>>,
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    let mut definitions: BTreeMap<String, Value> = serde_json::from_str(include_str!("../data/openapi.json"))
        .expect("the bundled OpenAPI document is valid JSON; a test reads all of it");
    let extra: BTreeMap<String, Value> = serde_json::from_str(include_str!("../data/apiextensions.json"))
        .expect("the bundled OpenAPI document is valid JSON; a test reads all of it");
    definitions.extend(extra);
    let mut schemas = HashMap::new();
    for name in definitions.keys() {
        resolve(name, &definitions, &mut schemas, &mut Vec::new());
    }
    Document { definitions, schemas }
});

fn resolve(
    name: &str,
    document: &BTreeMap<String, Value>,
    done: &mut HashMap<String, Arc<Schema>>,
    open: &mut Vec<String>,
) -> Arc<Schema> {
    if let Some(schema) = done.get(name) {
        return Arc::clone(schema);
    }
    let Some(value) = document.get(name) else { return Arc::new(Schema::default()) };
    if open.iter().any(|other| other == name) {
        // A type that contains itself is not followed further: what lies below is one free value.
        return Arc::new(Schema { preserve_unknown: true, ..Schema::default() });
    }
    open.push(name.to_owned());
    let schema = Arc::new(read(value, &mut |target| resolve(target, document, done, open)));
    open.pop();
    done.insert(name.to_owned(), Arc::clone(&schema));
    schema
}

fn read(value: &Value, reference: &mut dyn FnMut(&str) -> Arc<Schema>) -> Schema {
    let mut schema = match value.get("$ref").and_then(Value::as_str) {
        Some(target) => (*reference(target.rsplit('/').next().unwrap_or(target))).clone(),
        None => Schema::default(),
    };
    if let Some(ty) = value.get("type").and_then(Value::as_str) {
        schema.ty = match ty {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => Type::Any,
        };
    }
    let flag = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(false);
    let size = |key: &str| value.get(key).and_then(Value::as_u64).map(|n| n as usize);
    if let Some(format) = value.get("format").and_then(Value::as_str) {
        schema.format = format.to_owned();
    }
    if flag("x-kubernetes-int-or-string") || schema.format == "int-or-string" {
        schema.ty = Type::IntOrString;
    }
    schema.nullable |= flag("nullable");
    if let Some(default) = value.get("default") {
        schema.default = Some(default.clone());
    }
    if let Some(Value::Object(properties)) = value.get("properties") {
        for (key, property) in properties {
            schema.properties.insert(key.clone(), Arc::new(read(property, reference)));
        }
    }
    match value.get("additionalProperties") {
        Some(Value::Bool(true)) => {
            schema.additional = Some(Arc::new(Schema { preserve_unknown: true, ..Schema::default() }));
        }
        Some(other @ Value::Object(_)) => schema.additional = Some(Arc::new(read(other, reference))),
        _ => {}
    }
    if let Some(items) = value.get("items") {
        schema.items = Some(Arc::new(read(items, reference)));
    }
    schema.required.extend(list(value, &["required"]).iter().filter_map(Value::as_str).map(str::to_owned));
    schema.preserve_unknown |= flag("x-kubernetes-preserve-unknown-fields");
    schema.embedded |= flag("x-kubernetes-embedded-resource");
    match text(value, &["x-kubernetes-list-type"]) {
        "set" => schema.list = ListType::Set,
        "map" => {
            let keys = list(value, &["x-kubernetes-list-map-keys"]);
            schema.list = ListType::Map(keys.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        }
        _ => {}
    }
    schema.atomic_map |= text(value, &["x-kubernetes-map-type"]) == "atomic";
    if text(value, &["x-kubernetes-patch-strategy"]).split(',').any(|word| word == "merge") {
        let key = value.get("x-kubernetes-patch-merge-key").and_then(Value::as_str).map(str::to_owned);
        schema.merge = MergeStrategy::Merge(key);
    }
    let number = |key: &str| value.get(key).and_then(Value::as_f64);
    let mut several = |key: &str| -> Vec<Arc<Schema>> {
        list(value, &[key]).iter().map(|one| Arc::new(read(one, reference))).collect()
    };
    let (all_of, any_of, one_of) = (several("allOf"), several("anyOf"), several("oneOf"));
    schema.limits = Limits {
        enumeration: list(value, &["enum"]).to_vec(),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: size("minLength"),
        max_length: size("maxLength"),
        pattern: value.get("pattern").and_then(Value::as_str).and_then(|p| Regex::new(p).ok()),
        min_items: size("minItems"),
        max_items: size("maxItems"),
        unique_items: flag("uniqueItems"),
        min_properties: size("minProperties"),
        max_properties: size("maxProperties"),
        all_of,
        any_of,
        one_of,
        not: value.get("not").map(|one| Arc::new(read(one, reference))),
    };
    schema
}

/// A definition as it is served to clients, for a custom resource.
pub(crate) fn published(mut schema: Value, group: &str, version: &str, kind: &str) -> Value {
    if !schema.is_object() {
        schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    }
    schema["x-kubernetes-group-version-kind"] = json!([{ "group": group, "version": version, "kind": kind }]);
    let meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert("metadata".into(), json!({ "$ref": meta }));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_of_the_bundled_document_resolves() {
        for name in document().keys() {
            assert!(built_in(name).is_some(), "{name}");
        }
        assert!(document().len() > 150);
    }

    #[test]
    fn ports_of_a_service_are_keyed_by_port_and_protocol() {
        let service = built_in("io.k8s.api.core.v1.Service").expect("Service is bundled");
        let ports = &service.properties["spec"].properties["ports"];
        assert_eq!(ports.list, ListType::Map(vec!["port".into(), "protocol".into()]));
        assert_eq!(ports.merge, MergeStrategy::Merge(Some("port".into())));
    }
}

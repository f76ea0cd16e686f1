// SPDX-License-Identifier: Apache-2.0
//! CustomResourceDefinitions: from the stored definition to served resources.

pub(crate) mod cel;
pub(crate) mod defaults;
pub(crate) mod definition;
pub(crate) mod prune;
pub(crate) mod validate;

use std::sync::Arc;

use serde_json::Value;

use crate::api::Cluster;
use crate::error::FieldError;
use crate::kinds::{Resource, api_version};
use crate::object::{at, list, text};
use crate::schema::Schema;
use crate::webhook::conversion::Conversion;

/// The rules of one version of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// Kind of a list.
    pub(crate) list_kind: String,
    /// The schema as it was given.
    pub(crate) raw_schema: Value,
    /// Columns of its tables.
    pub(crate) columns: Vec<Value>,
    /// Fields that a field selector may name.
    pub(crate) selectable: Vec<String>,
    /// What clients of a deprecated version are told.
    pub(crate) deprecation: Option<String>,
    /// How objects get into this version and out of it.
    pub(crate) conversion: Conversion,
    /// `apiVersion` in which objects are stored.
    pub(crate) stored_as: String,
    /// Shape of stored objects.
    pub(crate) stored_schema: Arc<Schema>,
    schema: Arc<Schema>,
    rules: cel::Rules,
}

impl CustomVersion {
    /// What is wrong with an object.
    pub(crate) fn validate(&self, new: &Value, old: Option<&Value>, subresource: &str) -> Vec<FieldError> {
        // Errors that an update does not touch are left alone, so that objects older than a rule stay usable.
        let mut errors = validate::errors(&self.schema, new, old);
        if subresource == "status" {
            errors.retain(|error| error.field().starts_with("status"));
        }
        if self.rules.any() {
            if errors.iter().any(FieldError::blocks_rules) {
                errors.push(FieldError::invalid(
                    "<nil>",
                    Value::Null,
                    "some validation rules were not checked because the object was invalid; correct the existing \
                     errors to complete validation",
                ));
            } else {
                errors.extend(self.rules.errors(new, old));
            }
        }
        errors
    }
}

/// Serves what a definition says, after it was written (`new`) or deleted.
pub(crate) fn changed(cluster: &Arc<Cluster>, old: Option<&Value>, new: Option<&Value>) {
    let Some(definition) = new.or(old) else { return };
    let (group, plural) =
        (text(definition, &["spec", "group"]), text(definition, &["spec", "names", "plural"]));
    let rows = match new {
        Some(definition) => rows(definition),
        None => {
            // Out of service first: watches end with the next change, and there is one.
            cluster.registry.replace_custom(group, plural, Vec::new());
            let storage = format!("{group}/{plural}");
            let (_, objects) = cluster.store.list(&storage, None);
            for stored in objects {
                let key = crate::store::key_of(&stored.object);
                // Whoever changed it meanwhile changed an object whose kind is gone.
                let _ = cluster.store.commit(&storage, &key, Some(stored.revision), None);
            }
            cluster.store.wake();
            Vec::new()
        }
    };
    let same =
        new.is_some() && old.is_some_and(|old| new.is_some_and(|new| old.get("spec") == new.get("spec")));
    if !same {
        cluster.registry.replace_custom(group, plural, rows);
    }
}

fn rows(definition: &Value) -> Vec<Resource> {
    let names = &definition["spec"]["names"];
    let strings = |key: &str| -> Vec<String> {
        list(names, &[key]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (group, plural) = (text(definition, &["spec", "group"]), text(names, &["plural"]));
    let versions = list(definition, &["spec", "versions"]);
    let flag = |version: &Value, key: &str| version.get(key).and_then(Value::as_bool) == Some(true);
    let schema_of =
        |version: &Value| at(version, &["schema", "openAPIV3Schema"]).cloned().unwrap_or(Value::Null);
    // Validation has seen to it that there is exactly one.
    let stored = versions.iter().find(|version| flag(version, "storage")).unwrap_or(&Value::Null);
    let stored_as = api_version(group, text(stored, &["name"]));
    let stored_schema = Schema::custom(&schema_of(stored));
    let conversion = Conversion::of(definition);
    let served = versions.iter().filter(|version| flag(version, "served"));
    served
        .map(|version| {
            let raw = schema_of(version);
            let deprecation =
                flag(version, "deprecated").then(|| match text(version, &["deprecationWarning"]) {
                    "" => format!(
                        "{} {} is deprecated",
                        api_version(group, text(version, &["name"])),
                        text(names, &["kind"])
                    ),
                    given => given.to_owned(),
                });
            let schema = Schema::custom(&raw);
            let selectable = list(version, &["selectableFields"])
                .iter()
                .map(|field| text(field, &["jsonPath"]).trim_start_matches('.').to_owned())
                .collect();
            Resource {
                group: group.to_owned(),
                version: text(version, &["name"]).to_owned(),
                kind: text(names, &["kind"]).to_owned(),
                plural: plural.to_owned(),
                singular: text(names, &["singular"]).to_owned(),
                short_names: strings("shortNames"),
                categories: strings("categories"),
                namespaced: text(definition, &["spec", "scope"]) == "Namespaced",
                status: version["subresources"].get("status").is_some_and(|status| !status.is_null()),
                subresources: &[],
                storage: format!("{group}/{plural}"),
                schema: Arc::clone(&schema),
                custom: Some(Arc::new(CustomVersion {
                    list_kind: text(names, &["listKind"]).to_owned(),
                    columns: list(version, &["additionalPrinterColumns"]).to_vec(),
                    selectable,
                    deprecation,
                    conversion: conversion.clone(),
                    stored_as: stored_as.clone(),
                    stored_schema: Arc::clone(&stored_schema),
                    rules: cel::Rules::compile(&raw),
                    raw_schema: raw,
                    schema,
                })),
                review: false,
            }
        })
        .collect()
}

// SPDX-License-Identifier: Apache-2.0
//! OpenAPI: schemas of everything served, and of the paths only what clients look for (that PATCH takes
//! `fieldValidation` and `dryRun`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header;
use serde_json::{Map, Value, json};

use crate::api::Cluster;
use crate::kinds::Resource;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::schema;

/// Answers `/openapi/v3…`; `None` for other paths.
pub(crate) fn answer(cluster: &Cluster, request: &Request) -> Option<Answer> {
    if request.path == "/openapi/v2" {
        return Some(version_2(request));
    }
    let rest = request.path.strip_prefix("/openapi/v3")?;
    let rows = cluster.registry.all();
    let mut versions: BTreeMap<String, Vec<Arc<Resource>>> = BTreeMap::new();
    for row in rows {
        let root = if row.group.is_empty() { "api" } else { "apis" };
        versions.entry(format!("{root}/{}", row.api_version())).or_default().push(row);
    }
    let wanted = rest.trim_matches('/');
    if wanted.is_empty() {
        // The revision stands in for a hash: clients only use it to notice a change.
        let revision = cluster.store.revision();
        let paths: Map<String, Value> = versions
            .keys()
            .map(|key| {
                (key.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{key}?hash={revision}") }))
            })
            .collect();
        return Some(respond::json(200, &json!({ "paths": paths })));
    }
    Some(respond::json(200, &document(versions.get(wanted)?)))
}

/// The old form, without schemas: kubectl asks for it about kinds that no group serves, and then says so.
fn version_2(request: &Request) -> Answer {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    if request.header(header::ACCEPT).contains("protobuf") {
        // An empty message is a valid document.
        return respond::typed(200, PROTOBUF, Bytes::new());
    }
    let info = json!({ "title": "Kubernetes", "version": "v1.33.0" });
    respond::json(200, &json!({ "swagger": "2.0", "info": info, "paths": {}, "definitions": {} }))
}

fn document(rows: &[Arc<Resource>]) -> Value {
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for row in rows {
        let definition = match (&row.custom, schema::definition_of(&row.group, &row.version, &row.kind)) {
            (Some(custom), _) => {
                let reversed = row.group.split('.').rev().collect::<Vec<_>>().join(".");
                let name = format!("{reversed}.{}.{}", row.version, row.kind);
                let published =
                    schema::published(custom.raw_schema.clone(), &row.group, &row.version, &row.kind);
                schemas.insert(name.clone(), published);
                collect("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", &mut schemas);
                name
            }
            (None, Some(name)) => {
                collect(name, &mut schemas);
                name.to_owned()
            }
            (None, None) => continue,
        };
        add_paths(row, &definition, &mut paths);
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": "v1.33.0" },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

/// Adds a definition and all that it refers to.
fn collect(name: &str, schemas: &mut Map<String, Value>) {
    if schemas.contains_key(name) {
        return;
    }
    let Some(definition) = schema::document().get(name) else { return };
    schemas.insert(name.to_owned(), definition.clone());
    references(definition, &mut |target| collect(target, schemas));
}

fn references(value: &Value, found: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(map) => {
            for (key, member) in map {
                match member {
                    Value::String(target) if key == "$ref" => {
                        found(target.rsplit('/').next().unwrap_or_default());
                    }
                    other => references(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

fn add_paths(row: &Resource, definition: &str, paths: &mut Map<String, Value>) {
    let root = if row.group.is_empty() { "api" } else { "apis" };
    let scope = if row.namespaced { "namespaces/{namespace}/" } else { "" };
    let path = format!("/{root}/{}/{scope}{}", row.api_version(), row.plural);
    let gvk = json!({ "group": row.group, "version": row.version, "kind": row.kind });
    let schema = json!({ "$ref": format!("#/components/schemas/{definition}") });
    let operation = |action: &str, parameters: &[&str]| {
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|name| {
                let ty = if *name == "force" { "boolean" } else { "string" };
                json!({ "name": name, "in": "query", "schema": { "type": ty } })
            })
            .collect();
        json!({
            "operationId": format!("{action}_{}_{}_{}", row.group, row.version, row.kind),
            "parameters": parameters,
            "responses": { "200": {
                "description": "OK", "content": { "application/json": { "schema": schema } },
            } },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
        })
    };
    const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
    if row.review {
        paths.insert(path, json!({ "post": operation("post", WRITE) }));
        return;
    }
    paths.insert(
        format!("{path}/{{name}}"),
        json!({
            "get": operation("get", &[]),
            "put": operation("put", WRITE),
            "patch": operation("patch", &["dryRun", "fieldManager", "fieldValidation", "force"]),
            "delete": operation("delete", &["dryRun"]),
        }),
    );
    paths.insert(path, json!({ "get": operation("list", &[]), "post": operation("post", WRITE) }));
}

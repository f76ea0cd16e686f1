// SPDX-License-Identifier: Apache-2.0
//! Tables: what `kubectl get` prints.

mod columns;
mod jsonpath;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::Resource;
use crate::object::{self, text};
use crate::verbs::read::partial;

/// Objects as a table.
pub(crate) fn render(resource: &Resource, objects: &[Value], metadata: Value, include: &str) -> Value {
    let now = Timestamp::now();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells = match &resource.custom {
                Some(custom) => custom_cells(&custom.columns, object, now),
                None => columns::cells(&resource.kind, object, now),
            };
            let mut row = json!({ "cells": cells });
            match include {
                "None" => {}
                "Object" => row["object"] = object.clone(),
                _ => row["object"] = partial(object.clone()),
            }
            row
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions(resource), "rows": rows,
    })
}

/// A bookmark in the form of a table.
pub(crate) fn bookmark(resource: &Resource, object: Value) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "resourceVersion": object["metadata"]["resourceVersion"] },
        "columnDefinitions": definitions(resource),
        "rows": [{ "cells": [], "object": partial(object) }],
    })
}

fn definitions(resource: &Resource) -> Vec<Value> {
    let column = |name: &str, ty: &str, format: &str, priority: i64, description: &str| json!({ "name": name, "type": ty, "format": format, "description": description, "priority": priority });
    let mut all = vec![column("Name", "string", "name", 0, "Name must be unique within a namespace.")];
    match &resource.custom {
        Some(custom) if custom.columns.is_empty() => all.push(column("Age", "date", "", 0, "")),
        Some(custom) => all.extend(custom.columns.iter().map(|given| {
            let priority = given.get("priority").and_then(Value::as_i64).unwrap_or(0);
            let get = |key: &str| text(given, &[key]);
            column(get("name"), get("type"), get("format"), priority, get("description"))
        })),
        None => all.extend(
            columns::of(&resource.kind)
                .iter()
                .map(|(name, wide)| column(name, "string", "", i64::from(*wide), "")),
        ),
    }
    // Events are listed by their time, so their name is not the first column.
    if resource.custom.is_none() && resource.kind == "Event" {
        all.remove(0);
    }
    all
}

fn custom_cells(columns: &[Value], object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![object::name(object).into()];
    if columns.is_empty() {
        cells.push(columns::age_of(object, &["metadata", "creationTimestamp"], now).into());
    }
    for column in columns {
        let found = jsonpath::find(object, text(column, &["jsonPath"]));
        let kind = text(column, &["type"]);
        cells.push(match (found.as_slice(), kind) {
            ([], _) => Value::Null,
            ([Value::String(time)], "date") => match time.parse::<Timestamp>() {
                Ok(time) => columns::age(time, now).into(),
                Err(_) => "<invalid>".into(),
            },
            ([one], "integer" | "number" | "boolean") => (*one).clone(),
            ([Value::String(text)], _) => text.clone().into(),
            ([one], _) => one.to_string().into(),
            (many, _) => {
                let texts: Vec<String> = many
                    .iter()
                    .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                    .collect();
                texts.join(",").into()
            }
        });
    }
    cells
}

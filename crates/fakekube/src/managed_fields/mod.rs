// SPDX-License-Identifier: Apache-2.0
//! Who owns which field: `metadata.managedFields` kept true on every write, and server-side apply on top of
//! it.

mod set;
mod typed;

use serde_json::{Map, Value, json};

use crate::error::{ApiError, Result};
use crate::kinds::Resource;
use crate::managed_fields::set::Set;
use crate::managed_fields::typed::Difference;
use crate::object::{list, metadata_mut, now_text, object_mut, text};
use crate::request::Request;
use crate::schema::{Schema, Type};

/// Who writes.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    manager: String,
    api_version: String,
    subresource: String,
    time: String,
}

impl Writer {
    /// The writer of a request.
    pub(crate) fn of(request: &Request, resource: &Resource, subresource: &str) -> Self {
        Self {
            manager: request.field_manager(),
            api_version: resource.api_version(),
            subresource: subresource.to_owned(),
            time: now_text(),
        }
    }

    fn entry(&self, operation: &'static str) -> Entry {
        Entry {
            manager: self.manager.clone(),
            operation: operation.to_owned(),
            api_version: self.api_version.clone(),
            subresource: self.subresource.clone(),
            time: self.time.clone(),
            set: Set::default(),
        }
    }
}

/// Records a create or update: the writer owns what it changed, nobody owns what is gone.
pub(crate) fn on_update(resource: &Resource, old: Option<&Value>, new: &mut Value, writer: &Writer) {
    let live = old.map(Entry::read_all).unwrap_or_default();
    let given = list(new, &["metadata", "managedFields"]).to_vec();
    let reset = given.len() == 1 && given[0].as_object().is_some_and(Map::is_empty);
    let mut entries = if reset {
        Vec::new()
    } else if writer.subresource.is_empty() && !given.is_empty() {
        Entry::read_all(new)
    } else {
        live
    };
    metadata_mut(new).remove("managedFields");
    if old.is_some() && entries.is_empty() {
        // Nobody tracks this object's fields until somebody applies it.
        return;
    }
    let empty;
    let before = match old {
        Some(old) => old,
        None => {
            empty = blank(resource, new);
            &empty
        }
    };
    let difference = Difference::between(&resource.schema, Some(before), Some(new));
    let changed = difference.added.union(&difference.modified);
    let mine = writer.entry("Update");
    for entry in &mut entries {
        entry.set = entry.set.difference(&changed).difference(&difference.removed);
    }
    let owned = changed.difference(&stripped()).without(&reset_fields(resource, &writer.subresource));
    if !owned.is_empty() {
        match entries.iter_mut().find(|entry| entry.same_writer(&mine)) {
            Some(entry) => {
                entry.set = std::mem::take(&mut entry.set).union(&owned);
                entry.time.clone_from(&writer.time);
            }
            None => entries.push(Entry { set: owned, ..mine }),
        }
    }
    cap(&mut entries);
    Entry::write_all(entries, new);
}

/// Server-side apply: `config` laid over the live object, what the writer applied before and no longer does
/// removed, conflicts with other owners refused unless forced.
pub(crate) fn apply(
    resource: &Resource,
    live: Option<&Value>,
    config: &Value,
    writer: &Writer,
    force: bool,
) -> Result<Value> {
    let schema = &resource.schema;
    let mut config = config.clone();
    metadata_mut(&mut config).remove("managedFields");
    let mut before = live.cloned().unwrap_or_else(|| blank(resource, &config));
    let mut entries = Entry::read_all(&before);
    metadata_mut(&mut before).remove("managedFields");
    if live.is_some() && entries.is_empty() {
        let blank = blank(resource, &before);
        let owned = Difference::between(schema, Some(&blank), Some(&before)).added.difference(&stripped());
        let first =
            Writer { manager: "before-first-apply".into(), subresource: String::new(), ..writer.clone() };
        entries.push(Entry { set: owned, ..first.entry("Update") });
    }
    let mine = writer.entry("Apply");
    let set = typed::fields_of(schema, &config)
        .difference(&stripped())
        .without(&reset_fields(resource, &writer.subresource));
    let mut merged = typed::merge(schema, &before, &config);

    let position = entries.iter().position(|entry| entry.same_writer(&mine));
    let last = position.map(|i| entries.remove(i));
    if let Some(last) = &last {
        let others = entries.iter().fold(set.clone(), |all, entry| all.union(&entry.set));
        let gone = last.set.difference(&others);
        typed::remove(schema, &mut merged, &gone, &others);
    }
    let difference = Difference::between(schema, Some(&before), Some(&merged));
    let changed = difference.added.union(&difference.modified);
    let mut conflicts = Vec::new();
    for entry in &mut entries {
        let lost = entry.set.intersection(&changed);
        if !lost.is_empty() {
            conflicts.push((entry.described(), lost.paths()));
        }
        entry.set = entry.set.difference(&changed).difference(&difference.removed);
    }
    if !force && !conflicts.is_empty() {
        return Err(conflict(&conflicts));
    }
    if !set.is_empty() {
        let time = match &last {
            Some(last) if last.set == set && before == merged => last.time.clone(),
            _ => mine.time.clone(),
        };
        entries.push(Entry { set, time, ..mine });
    }
    Entry::write_all(entries, &mut merged);
    Ok(merged)
}

fn conflict(conflicts: &[(String, Vec<String>)]) -> ApiError {
    let count: usize = conflicts.iter().map(|(_, paths)| paths.len()).sum();
    let mut causes = Vec::new();
    let mut parts = Vec::new();
    for (who, paths) in conflicts {
        for path in paths {
            causes.push(json!({
                "reason": "FieldManagerConflict", "message": format!("conflict with {who}"), "field": path,
            }));
        }
        parts.push(match paths.as_slice() {
            [one] => format!("conflict with {who}: {one}"),
            many => format!("conflicts with {who}:\n- {}", many.join("\n- ")),
        });
    }
    let plural = if count == 1 { "" } else { "s" };
    let text = format!("Apply failed with {count} conflict{plural}: {}", parts.join("\n"));
    ApiError::apply_conflict(text, causes)
}

#[derive(Debug, Clone)]
struct Entry {
    manager: String,
    operation: String,
    api_version: String,
    subresource: String,
    time: String,
    set: Set,
}

impl Entry {
    fn read_all(object: &Value) -> Vec<Self> {
        list(object, &["metadata", "managedFields"])
            .iter()
            .map(|entry| Self {
                manager: text(entry, &["manager"]).to_owned(),
                operation: text(entry, &["operation"]).to_owned(),
                api_version: text(entry, &["apiVersion"]).to_owned(),
                subresource: text(entry, &["subresource"]).to_owned(),
                time: text(entry, &["time"]).to_owned(),
                set: Set::read(&entry["fieldsV1"]),
            })
            .collect()
    }

    fn write_all(mut entries: Vec<Self>, object: &mut Value) {
        entries.retain(|entry| !entry.set.is_empty());
        entries.sort_by(|a, b| {
            let key = |e: &Self| {
                (
                    e.operation.clone(),
                    e.time.clone(),
                    e.manager.clone(),
                    e.api_version.clone(),
                    e.subresource.clone(),
                )
            };
            key(a).cmp(&key(b))
        });
        let entries: Vec<Value> = entries.iter().map(Self::write).collect();
        if entries.is_empty() {
            metadata_mut(object).remove("managedFields");
        } else {
            metadata_mut(object).insert("managedFields".into(), entries.into());
        }
    }

    fn write(&self) -> Value {
        let mut entry = json!({
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.set.write(),
        });
        if !self.time.is_empty() {
            entry["time"] = self.time.clone().into();
        }
        if !self.subresource.is_empty() {
            entry["subresource"] = self.subresource.clone().into();
        }
        entry
    }

    fn same_writer(&self, other: &Self) -> bool {
        // An applier is the same whatever version it applies in.
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == "Apply" || self.api_version == other.api_version)
    }

    fn described(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == "Update" {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

/// At most so many updaters are told apart; the oldest beyond them become one.
const UPDATERS: usize = 10;
/// The one that they become.
const ANCIENT: &str = "ancient-changes";

fn cap(entries: &mut Vec<Entry>) {
    let mut updaters: Vec<usize> = (0..entries.len())
        .filter(|&i| entries[i].operation == "Update" && entries[i].manager != ANCIENT)
        .collect();
    updaters.sort_by_key(|&i| entries[i].time.clone());
    let excess = updaters.len().saturating_sub(UPDATERS);
    let mut oldest = updaters[..excess].to_vec();
    oldest.sort_unstable_by(|a, b| b.cmp(a));
    for i in oldest {
        let entry = entries.remove(i);
        let bucket = Entry { manager: ANCIENT.into(), subresource: String::new(), ..entry };
        match entries.iter_mut().find(|entry| entry.same_writer(&bucket)) {
            Some(entry) => entry.set = std::mem::take(&mut entry.set).union(&bucket.set),
            None => entries.push(bucket),
        }
    }
}

/// What the object is before anybody wrote it. Go's built-in types always have their structs, so those are
/// nobody's.
fn blank(resource: &Resource, like: &Value) -> Value {
    let mut blank = json!({ "apiVersion": like["apiVersion"], "kind": like["kind"], "metadata": {} });
    if resource.custom.is_none() {
        structs(&resource.schema, &mut blank);
    }
    object_mut(&mut blank).retain(|_, value| !value.is_null());
    blank
}

fn structs(schema: &Schema, value: &mut Value) {
    for (key, child) in &schema.properties {
        if let Some(default) = &child.default {
            let member = object_mut(value).entry(key.clone()).or_insert_with(|| default.clone());
            if member.is_object() {
                structs(child, member);
            }
        } else if schema.required.contains(key) && child.ty == Type::Array {
            // A list that Go does not leave out is there as null.
            object_mut(value).insert(key.clone(), Value::Null);
        }
    }
}

/// Fields that nobody is said to own.
fn stripped() -> Set {
    Set::read(&json!({
        "f:apiVersion": {}, "f:kind": {},
        "f:metadata": {
            ".": {}, "f:name": {}, "f:namespace": {}, "f:creationTimestamp": {}, "f:selfLink": {}, "f:uid": {},
            "f:clusterName": {}, "f:generation": {}, "f:managedFields": {}, "f:resourceVersion": {},
        },
    }))
}

/// Fields that a write to this subresource does not reach.
fn reset_fields(resource: &Resource, subresource: &str) -> Set {
    let fields = match (subresource, resource.status, resource.kind.as_str()) {
        ("status", true, _) if resource.custom.is_some() => {
            let mut fields = json!({ "f:metadata": {} });
            for key in resource.schema.properties.keys() {
                if !matches!(key.as_str(), "status" | "apiVersion" | "kind") {
                    fields[format!("f:{key}")] = json!({});
                }
            }
            fields
        }
        ("status", true, "CustomResourceDefinition") => json!({ "f:metadata": {}, "f:spec": {} }),
        ("status", true, "Deployment") => json!({ "f:spec": {}, "f:metadata": { "f:labels": {} } }),
        ("status", true, "Pod") => json!({
            "f:spec": {}, "f:metadata": { "f:deletionTimestamp": {}, "f:ownerReferences": {} },
        }),
        ("status", true, _) => json!({ "f:spec": {} }),
        (_, true, _) => json!({ "f:status": {} }),
        _ => json!({}),
    };
    Set::read(&fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Registry;

    fn services() -> Resource {
        (*Registry::new().find("", "v1", "services").expect("built in")).clone()
    }

    fn writer(manager: &str) -> Writer {
        Writer {
            manager: manager.into(),
            api_version: "v1".into(),
            subresource: String::new(),
            time: "2026-01-01T00:00:00Z".into(),
        }
    }

    fn config(labels: Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s", "labels": labels } })
    }

    #[test]
    fn what_an_applier_no_longer_gives_is_removed_unless_another_owns_it() {
        let services = services();
        let a = writer("a");
        let live =
            apply(&services, None, &config(json!({ "x": "1", "y": "1" })), &a, false).expect("applies");
        let live =
            apply(&services, Some(&live), &config(json!({ "y": "1" })), &writer("b"), false).expect("shares");
        let live = apply(&services, Some(&live), &config(json!({})), &a, false).expect("applies");
        assert_eq!(live["metadata"]["labels"], json!({ "y": "1" }));
    }

    #[test]
    fn a_conflict_names_the_other_manager_and_the_field() {
        let services = services();
        let live =
            apply(&services, None, &config(json!({ "x": "1" })), &writer("a"), false).expect("applies");
        let error = apply(&services, Some(&live), &config(json!({ "x": "2" })), &writer("b"), false)
            .expect_err("conflict");
        assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"a\": .metadata.labels.x");
        let live =
            apply(&services, Some(&live), &config(json!({ "x": "2" })), &writer("b"), true).expect("forced");
        assert_eq!(list(&live, &["metadata", "managedFields"]).len(), 1);
    }

    #[test]
    fn an_update_takes_what_it_changes_from_the_others() {
        let services = services();
        let live = apply(&services, None, &config(json!({ "x": "1", "z": "1" })), &writer("a"), false)
            .expect("applies");
        let mut new = live.clone();
        new["metadata"]["labels"]["x"] = "2".into();
        on_update(&services, Some(&live), &mut new, &writer("b"));
        let entries = list(&new, &["metadata", "managedFields"]);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0]["fieldsV1"], json!({ "f:metadata": { "f:labels": { "f:z": {} } } }));
        assert_eq!(entries[1]["manager"], "b");
        assert_eq!(entries[1]["fieldsV1"], json!({ "f:metadata": { "f:labels": { "f:x": {} } } }));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Which parts of an object a request may write: it is of the kind and name that the path says, what only the
//! server writes stays, status and everything else are written apart, and changes are counted.

use serde_json::Value;

use crate::error::{ApiError, Named, Result};
use crate::kinds::{CRDS, Resource};
use crate::object::{self, at, carry, metadata_mut, object_mut, text};
use crate::request::Target;

/// A custom resource must say what it is.
pub(crate) fn named_kind(resource: &Resource, object: &Value) -> Result<()> {
    if resource.custom.is_none() {
        return Ok(());
    }
    for (key, title) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        if text(object, &[key]).is_empty() {
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object '{title}' is missing in '{object}'",
                resource.kind
            )));
        }
    }
    Ok(())
}

/// The body must be of the kind that the path serves; a body that does not say is taken at the path's word.
pub(crate) fn check_kind(resource: &Resource, object: &mut Value) -> Result<()> {
    let (api_version, kind) = (resource.api_version(), resource.kind.as_str());
    let (given_version, given_kind) = (text(object, &["apiVersion"]), text(object, &["kind"]));
    if !given_kind.is_empty() && given_kind != kind {
        return Err(ApiError::bad_request(format!(
            "{given_kind} in version {:?} cannot be handled as a {kind}: no kind {given_kind:?} is registered \
             for that path",
            if given_version.is_empty() { &resource.version } else { given_version },
        )));
    }
    if !given_version.is_empty() && given_version != api_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version \
             ({api_version})"
        )));
    }
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    if at(object, &["metadata"]).is_some_and(|metadata| !metadata.is_object()) {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: metadata is not an object",
            resource.version
        )));
    }
    Ok(())
}

/// A body that names itself is the object of the path.
pub(crate) fn same_identity(new: &Value, target: &Target, name: &str) -> Result<()> {
    let given = object::name(new);
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let given = object::namespace(new);
    if let Some(namespace) = &target.namespace
        && !given.is_empty()
        && given != namespace
    {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// A body that carries a UID means that very object.
pub(crate) fn same_uid(live: &Value, new: &Value, named: Named<'_>) -> Result<()> {
    let (given, uid) = (object::uid(new), object::uid(live));
    if given.is_empty() || given == uid {
        return Ok(());
    }
    Err(ApiError::conflict(
        named,
        format!("Precondition failed: UID in precondition: {given}, UID in object meta: {uid}"),
    ))
}

/// Metadata that only the server writes comes from the stored object.
pub(crate) fn keep_system_fields(old: &Value, new: &mut Value) {
    let before = &old["metadata"];
    let metadata = object_mut(new).entry("metadata").or_insert(Value::Null);
    for key in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "generateName",
    ] {
        carry(before, metadata, key);
    }
}

/// Status and everything else are written by different requests.
pub(crate) fn separate(row: &Resource, subresource: &str, old: &Value, new: &mut Value) {
    if !row.status {
        return;
    }
    if subresource != "status" {
        carry(old, new, "status");
        return;
    }
    let keep_metadata = row.custom.is_some() || row.storage == CRDS;
    let managed = new["metadata"].get("managedFields").cloned();
    let status = new.get("status").cloned();
    let metadata = new["metadata"].clone();
    *new = old.clone();
    match status {
        Some(status) => new["status"] = status,
        None => {
            object_mut(new).remove("status");
        }
    }
    if !keep_metadata {
        new["metadata"] = metadata;
        if matches!(row.kind.as_str(), "Pod") {
            let mut to = new["metadata"].take();
            carry(&old["metadata"], &mut to, "ownerReferences");
            new["metadata"] = to;
        }
        if row.group == "apps" && row.kind == "Deployment" {
            let mut to = new["metadata"].take();
            carry(&old["metadata"], &mut to, "labels");
            new["metadata"] = to;
        }
    }
    match managed {
        Some(managed) => new["metadata"]["managedFields"] = managed,
        None => {
            metadata_mut(new).remove("managedFields");
        }
    }
}

/// Counts changes of what is asked for.
pub(crate) fn bump_generation(row: &Resource, subresource: &str, old: &Value, new: &mut Value) {
    if !row.has_generation() || subresource == "status" {
        return;
    }
    let generation = at(old, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(1);
    let changed = |key: &str| old.get(key) != new.get(key);
    let changed = if row.custom.is_some()
        || matches!(row.kind.as_str(), "EndpointSlice" | "ValidatingWebhookConfiguration")
    {
        let keys = object_keys(old).chain(object_keys(new));
        keys.filter(|&key| key != "metadata" && key != "apiVersion" && !(row.status && key == "status"))
            .any(changed)
    } else {
        changed("spec")
    };
    let next = if changed { generation + 1 } else { generation };
    metadata_mut(new).insert("generation".into(), next.into());
}

fn object_keys(value: &Value) -> impl Iterator<Item = &str> {
    value.as_object().into_iter().flat_map(|map| map.keys().map(String::as_str))
}

/// Whether two states of an object differ in nothing but the times at which managers are said to have
/// written.
pub(crate) fn unchanged(old: &Value, new: &Value) -> bool {
    let plain = |object: &Value| {
        let mut object = object.clone();
        let map = object_mut(&mut object);
        map.remove("apiVersion");
        let metadata = metadata_mut(&mut object);
        metadata.remove("resourceVersion");
        if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
            for entry in entries {
                object_mut(entry).remove("time");
            }
        }
        object
    };
    plain(old) == plain(new)
}

impl Resource {
    /// Whether its objects count changes of what is asked for in `metadata.generation`.
    pub(crate) fn has_generation(&self) -> bool {
        self.custom.is_some()
            || matches!(
                self.kind.as_str(),
                "CustomResourceDefinition"
                    | "DaemonSet"
                    | "Deployment"
                    | "EndpointSlice"
                    | "NetworkPolicy"
                    | "Pod"
                    | "PodDisruptionBudget"
                    | "ReplicaSet"
                    | "ValidatingWebhookConfiguration"
            )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_time_of_a_manager_is_no_change() {
        let at = |time: &str, data: &str| {
            json!({
                "metadata": { "resourceVersion": time, "managedFields": [{ "manager": "a", "time": time }] },
                "data": data,
            })
        };
        assert!(unchanged(&at("1", "x"), &at("2", "x")));
        assert!(!unchanged(&at("1", "x"), &at("1", "y")));
    }
}

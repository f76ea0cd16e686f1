// SPDX-License-Identifier: Apache-2.0
//! What the built-in kinds do beyond being stored: defaults, allocations, validation, side effects.

pub(crate) mod account;
pub(crate) mod event;
pub(crate) mod metadata;
pub(crate) mod service;
pub(crate) mod webhook;
pub(crate) mod workload;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::Cluster;
use crate::builtin::service::Reservation;
use crate::crd::definition;
use crate::error::{FieldError, Result};
use crate::kinds::{Resource, SERVICES};
use crate::object::{self, at, carry, child_mut, metadata_mut, object_mut, text};

/// Fills in defaults, as decoding does in a real server: on every write.
pub(crate) fn defaults(resource: &Resource, object: &mut Value) {
    match resource.kind.as_str() {
        "Service" => service::defaults(object),
        "Pod" => workload::pod_defaults(object),
        "Deployment" | "DaemonSet" | "ReplicaSet" => workload::defaults(&resource.kind, object),
        "Secret" => account::secret_defaults(object),
        "Endpoints" | "EndpointSlice" => workload::endpoint_defaults(object),
        "Namespace" => {
            let name = object::name(object).to_owned();
            if !name.is_empty() {
                let labels = metadata_mut(object).entry("labels").or_insert_with(|| json!({}));
                object_mut(labels).insert("kubernetes.io/metadata.name".into(), name.into());
            }
        }
        "CustomResourceDefinition" => definition::defaults(object),
        "ValidatingWebhookConfiguration" => webhook::defaults(object),
        "RoleBinding" | "ClusterRoleBinding" => account::binding_defaults(object),
        _ => {}
    }
}

/// What a new object starts with, whatever its creator said.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    if resource.custom.is_some() {
        if resource.status {
            object_mut(object).remove("status");
        }
        return;
    }
    match resource.kind.as_str() {
        "Namespace" => {
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
            object["status"] = json!({ "phase": "Active" });
        }
        // A kubelet registers its Node with its status.
        "Node" => {}
        "Pod" => {
            object["status"] = json!({ "phase": "Pending", "qosClass": workload::quality(object) });
        }
        "Service" => object["status"] = json!({ "loadBalancer": {} }),
        "CustomResourceDefinition" => {
            object_mut(object).remove("status");
            definition::set_status(None, object);
        }
        "DaemonSet" => {
            object["status"] = json!({
                "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
            });
        }
        "ReplicaSet" => object["status"] = json!({ "replicas": 0 }),
        "PodDisruptionBudget" => {
            object["status"] = json!({
                "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
            });
        }
        "Deployment" => object["status"] = json!({}),
        _ => {}
    }
}

/// What an update cannot change, or changes besides.
pub(crate) fn prepare_update(resource: &Resource, subresource: &str, old: &Value, new: &mut Value) {
    if resource.custom.is_some() {
        return;
    }
    match resource.kind.as_str() {
        // Only the finalize subresource touches these.
        "Namespace" if subresource != "finalize" => carry(old, new, "spec"),
        "CustomResourceDefinition" if subresource != "status" => definition::set_status(Some(old), new),
        "Service" => service::prepare_update(old, new),
        _ => {}
    }
}

/// Takes addresses and ports for a Service; what is reserved is given back unless the commit succeeds.
pub(crate) fn allocate<'a>(
    cluster: &'a Cluster,
    resource: &Resource,
    subresource: &str,
    old: Option<&Value>,
    new: &mut Value,
) -> Result<Reservation<'a>> {
    if resource.storage != SERVICES || !subresource.is_empty() {
        return Ok(Reservation::none(&cluster.services));
    }
    cluster.services.allocate(old, new)
}

/// What is wrong with an object.
pub(crate) fn validate(
    resource: &Resource,
    subresource: &str,
    old: Option<&Value>,
    new: &Value,
) -> Vec<FieldError> {
    if resource.custom.is_some() {
        return Vec::new();
    }
    match (resource.kind.as_str(), subresource) {
        ("Service", "") => service::errors(old, new),
        ("Service", "status") => service::status_errors(new),
        ("CustomResourceDefinition", "") => definition::errors(old, new),
        ("Secret" | "ConfigMap", "") => account::immutable_errors(old, new),
        ("Pod", "") => workload::pod_errors(old, new),
        ("Deployment" | "DaemonSet" | "ReplicaSet", "") => workload::errors(old, new),
        ("RoleBinding" | "ClusterRoleBinding", "") => account::binding_errors(old, new),
        ("ValidatingWebhookConfiguration", "") => webhook::errors(new),
        ("Lease", "") => account::lease_errors(new),
        ("EndpointSlice", "") => workload::slice_errors(old, new),
        _ => Vec::new(),
    }
}

/// What follows from a stored change.
pub(crate) fn committed(
    cluster: &Arc<Cluster>,
    resource: &Resource,
    old: Option<&Value>,
    new: Option<&Value>,
) {
    if resource.storage == SERVICES {
        cluster.services.settle(old, new);
    }
    if resource.storage == "serviceaccounts"
        && let (Some(old), None) = (old, new)
    {
        cluster.credentials.revoke(object::uid(old));
    }
}

/// Sets a text member where there is none.
pub(crate) fn default_text(value: &mut Value, key: &str, default: &str) {
    if text(value, &[key]).is_empty() {
        object_mut(value).insert(key.into(), default.into());
    }
}

/// Sets a member where there is none.
pub(crate) fn default_value(value: &mut Value, key: &str, default: Value) {
    if at(value, &[key]).is_none() {
        object_mut(value).insert(key.into(), default);
    }
}

/// The items of a list member.
pub(crate) fn items_mut<'a>(value: &'a mut Value, parent: &str, key: &str) -> &'a mut [Value] {
    match child_mut(value, parent).get_mut(key) {
        Some(Value::Array(items)) => items,
        _ => &mut [],
    }
}

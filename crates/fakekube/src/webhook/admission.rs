// SPDX-License-Identifier: Apache-2.0
//! Validating admission: every webhook that a ValidatingWebhookConfiguration names for a write is asked, all at
//! once, after the server's own checks and before anything is stored.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Cluster;
use crate::error::{ApiError, Result};
use crate::kinds::{NAMESPACES, Resource, VALIDATING_WEBHOOKS};
use crate::object::{self, at, list, text};
use crate::random;
use crate::request::Request;
use crate::verbs::form;
use crate::webhook::call;
use crate::webhook::rules::{self, Subject};

/// A write that is about to happen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt<'a> {
    /// Who asks for what.
    pub(crate) request: &'a Request,
    /// The resource in whose version the objects are.
    pub(crate) resource: &'a Arc<Resource>,
    /// Subresource, or "".
    pub(crate) subresource: &'a str,
    /// What is done.
    pub(crate) operation: Operation,
    /// Namespace, or "".
    pub(crate) namespace: &'a str,
    /// Object name; "" while the server has yet to make one.
    pub(crate) name: &'a str,
    /// The object as it would be; none when it is deleted.
    pub(crate) object: Option<&'a Value>,
    /// The object as it is; none when it is created.
    pub(crate) old: Option<&'a Value>,
    /// Whether nothing is to be stored.
    pub(crate) dry_run: bool,
}

/// What is done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A new object.
    Create,
    /// A change.
    Update,
    /// A deletion.
    Delete,
}

impl Operation {
    const fn text(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// Asks all webhooks that want to see the write; the first that refuses it decides. Their warnings go to the
/// client in either case.
pub(crate) async fn admit(cluster: &Cluster, attempt: Attempt<'_>) -> Result<()> {
    // Who could refuse changes of the webhooks themselves could lock everybody out.
    if attempt.resource.group == "admissionregistration.k8s.io" {
        return Ok(());
    }
    let (_, configurations) = cluster.store.list(VALIDATING_WEBHOOKS, None);
    let mut calls = Vec::new();
    for stored in &configurations {
        for webhook in list(&stored.object, &["webhooks"]) {
            if !selected(cluster, webhook, &attempt) {
                continue;
            }
            if let Some(seen_as) = seen_as(cluster, webhook, &attempt) {
                calls.push(ask(cluster, webhook, seen_as, attempt));
            }
        }
    }
    futures::future::join_all(calls).await.into_iter().collect()
}

/// Whether the labels are those that the webhook asks for.
fn selected(cluster: &Cluster, webhook: &Value, attempt: &Attempt<'_>) -> bool {
    let objects = || attempt.object.into_iter().chain(attempt.old);
    let by_object = at(webhook, &["objectSelector"])
        .is_none_or(|selector| objects().any(|object| rules::selects(selector, object)));
    let by_namespace = at(webhook, &["namespaceSelector"]).is_none_or(|selector| {
        if attempt.resource.storage == NAMESPACES {
            return objects().next().is_none_or(|namespace| rules::selects(selector, namespace));
        }
        let key = (String::new(), attempt.namespace.to_owned());
        let namespace = cluster.store.find(NAMESPACES, &key);
        // What lives in no namespace is not selected by one.
        namespace.is_none_or(|namespace| rules::selects(selector, &namespace.object))
    });
    by_object && by_namespace
}

/// The version in which a webhook wants to see the write; `None` when it does not.
fn seen_as(cluster: &Cluster, webhook: &Value, attempt: &Attempt<'_>) -> Option<Arc<Resource>> {
    let covers = |resource: &Resource| {
        let subject = Subject {
            group: &resource.group,
            version: &resource.version,
            resource: &resource.plural,
            subresource: attempt.subresource,
            operation: attempt.operation.text(),
            namespaced: resource.namespaced,
        };
        rules::cover(webhook, &subject)
    };
    if covers(attempt.resource) {
        return Some(Arc::clone(attempt.resource));
    }
    if text(webhook, &["matchPolicy"]) == "Exact" {
        return None;
    }
    let same = |row: &Arc<Resource>| row.storage == attempt.resource.storage;
    cluster.registry.all().into_iter().filter(same).find(|row| covers(row))
}

/// Asks one webhook.
async fn ask(cluster: &Cluster, webhook: &Value, seen_as: Arc<Resource>, attempt: Attempt<'_>) -> Result<()> {
    let name = text(webhook, &["name"]);
    let effects = text(webhook, &["sideEffects"]);
    if attempt.dry_run && !matches!(effects, "None" | "NoneOnDryRun") {
        return Err(ApiError::bad_request(format!("admission webhook {name:?} does not support dry run")));
    }
    let seconds = webhook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10);
    let answer = judgement(cluster, webhook, &seen_as, &attempt, Duration::from_secs(seconds)).await;
    let response = match answer {
        Ok(response) => response,
        Err(why) if text(webhook, &["failurePolicy"]) == "Ignore" => {
            tracing::warn!(webhook = name, why, "failed calling webhook, failing open");
            return Ok(());
        }
        Err(why) => return Err(ApiError::internal(format!("failed calling webhook {name:?}: {why}"))),
    };
    for warning in list(&response, &["warnings"]).iter().filter_map(Value::as_str) {
        attempt.request.warn(warning);
    }
    if response.get("allowed").and_then(Value::as_bool) == Some(true) {
        return Ok(());
    }
    Err(ApiError::denied(name, &response["status"]))
}

/// What a webhook answers; the error is why it could not be heard.
async fn judgement(
    cluster: &Cluster,
    webhook: &Value,
    seen_as: &Arc<Resource>,
    attempt: &Attempt<'_>,
    timeout: Duration,
) -> Result<Value, String> {
    let versions = list(webhook, &["admissionReviewVersions"]);
    let version =
        versions.iter().filter_map(Value::as_str).find(|version| matches!(*version, "v1" | "v1beta1"));
    let version = version.ok_or("webhook does not accept known AdmissionReview versions (v1, v1beta1)")?;
    let api_version = format!("admission.k8s.io/{version}");
    let uid = random::uid();
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": api_version,
        "request": request(cluster, seen_as, attempt, &uid).await?,
    });
    let answer = call::post(cluster, &webhook["clientConfig"], timeout, &review)
        .await
        .map_err(|why| format!("failed to call webhook: {why}"))?;
    let invalid = |why: String| format!("received invalid webhook response: {why}");
    let (found_version, found_kind) = (text(&answer, &["apiVersion"]), text(&answer, &["kind"]));
    if found_kind == "AdmissionReview"
        && !matches!(found_version, "admission.k8s.io/v1" | "admission.k8s.io/v1beta1")
    {
        return Err(format!(
            "failed to call webhook: no kind \"AdmissionReview\" is registered for version {found_version:?} in \
             scheme \"pkg/util/webhook/client.go:71\""
        ));
    }
    if (found_version, found_kind) != (&api_version, "AdmissionReview") {
        return Err(invalid(format!(
            "expected webhook response of {api_version}, Kind=AdmissionReview, got {found_version}, Kind={found_kind}"
        )));
    }
    let Some(response) = at(&answer, &["response"]) else {
        return Err(invalid("webhook response was absent".into()));
    };
    let found = text(response, &["uid"]);
    if found != uid {
        return Err(invalid(format!("expected response.uid={uid:?}, got {found:?}")));
    }
    for key in ["patch", "patchType"] {
        if at(response, &[key]).is_some() {
            return Err(invalid(format!("validating webhook may not return response.{key}")));
        }
    }
    Ok(response.clone())
}

/// The `request` of an AdmissionReview.
async fn request(
    cluster: &Cluster,
    seen_as: &Arc<Resource>,
    attempt: &Attempt<'_>,
    uid: &str,
) -> Result<Value, String> {
    let kind = |row: &Resource| json!({ "group": row.group, "version": row.version, "kind": row.kind });
    let resource =
        |row: &Resource| json!({ "group": row.group, "version": row.version, "resource": row.plural });
    let mut request = json!({
        "uid": uid,
        "kind": kind(seen_as),
        "resource": resource(seen_as),
        "requestKind": kind(attempt.resource),
        "requestResource": resource(attempt.resource),
        "operation": attempt.operation.text(),
        "userInfo": attempt.request.user.to_json(),
        "object": seen(cluster, seen_as, attempt.object).await?,
        "oldObject": seen(cluster, seen_as, attempt.old).await?,
        "dryRun": attempt.dry_run,
        "options": options(attempt),
    });
    for (key, value) in [
        ("name", attempt.name),
        ("namespace", attempt.namespace),
        ("subResource", attempt.subresource),
        ("requestSubResource", attempt.subresource),
    ] {
        if !value.is_empty() {
            request[key] = value.into();
        }
    }
    Ok(request)
}

/// An object in the version that a webhook wants.
async fn seen(cluster: &Cluster, seen_as: &Arc<Resource>, object: Option<&Value>) -> Result<Value, String> {
    match object {
        Some(object) => form::shown(cluster, seen_as, object).await.map_err(|error| error.to_string()),
        None => Ok(Value::Null),
    }
}

fn options(attempt: &Attempt<'_>) -> Value {
    let request = attempt.request;
    // A patch arrives as what it comes to: a change, or a new object where it is applied to none.
    let kind = match attempt.operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    };
    let mut options = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
    for key in ["fieldManager", "fieldValidation"] {
        let value = request.query.text(key);
        if attempt.operation != Operation::Delete && !value.is_empty() {
            options[key] = value.into();
        }
    }
    if attempt.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    if attempt.operation == Operation::Delete
        && let Ok(Value::Object(body)) = serde_json::from_slice(&request.body)
    {
        for (key, value) in body {
            if !matches!(key.as_str(), "kind" | "apiVersion") {
                options[key] = value;
            }
        }
    }
    options
}

impl<'a> Attempt<'a> {
    /// A write to an object that exists, under its own name.
    pub(crate) fn on(
        request: &'a Request,
        resource: &'a Arc<Resource>,
        subresource: &'a str,
        operation: Operation,
        old: &'a Value,
    ) -> Self {
        Self {
            request,
            resource,
            subresource,
            operation,
            namespace: object::namespace(old),
            name: object::name(old),
            object: None,
            old: Some(old),
            dry_run: false,
        }
    }
}

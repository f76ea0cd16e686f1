// SPDX-License-Identifier: Apache-2.0
//! Delete, deletecollection and eviction: preconditions, finalizers, grace.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::Cluster;
use crate::error::{ApiError, Named, Result};
use crate::kinds::{NAMESPACES, Resource};
use crate::object::{self, at, list, metadata_mut, text};
use crate::request::{Request, Target, parse_body};
use crate::respond::{self, Answer};
use crate::selector::Selector;
use crate::store::{Key, key_of};
use crate::verbs::form;
use crate::verbs::read::object_answer;
use crate::verbs::write::{after_commit, is_finished};
use crate::webhook::admission::{self, Attempt, Operation};

/// DELETE of one object.
pub(crate) async fn one(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    target: &Target,
    name: &str,
) -> Result<Answer> {
    let key = (target.namespace.clone().unwrap_or_default(), name.to_owned());
    let orders = Orders::read(request)?;
    match remove(cluster, request, resource, &key, &orders).await? {
        Removed::Gone(last)
            if resource.custom.is_none() && resource.storage != NAMESPACES && resource.kind != "Pod" =>
        {
            let mut details = json!({ "name": name, "kind": resource.plural, "uid": object::uid(&last) });
            if !resource.group.is_empty() {
                details["group"] = resource.group.clone().into();
            }
            Ok(respond::json(200, &success(details)))
        }
        Removed::Gone(last) if resource.custom.is_some() => {
            let details = json!({
                "name": name, "group": resource.group, "kind": resource.plural, "uid": object::uid(&last),
            });
            Ok(respond::json(200, &success(details)))
        }
        Removed::Gone(last) | Removed::Marked(last) => {
            object_answer(cluster, request, resource, &last, 200).await
        }
    }
}

/// DELETE of a collection.
pub(crate) async fn collection(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    target: &Target,
) -> Result<Answer> {
    let query = &request.query;
    let selector = Selector::parse(query.text("labelSelector"), query.text("fieldSelector"), resource)?;
    let orders = Orders::read(request)?;
    let (revision, objects) = cluster.store.list(&resource.storage, target.namespace.as_deref());
    let mut items = Vec::new();
    for stored in objects.iter().filter(|stored| selector.matches(&stored.object)) {
        match remove(cluster, request, resource, &key_of(&stored.object), &orders).await {
            Ok(Removed::Gone(last) | Removed::Marked(last)) => {
                items.push(form::shown(cluster, resource, &last).await?);
            }
            // Somebody else deleted it meanwhile, which is what was asked for.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let kind = format!("{}List", resource.kind);
    Ok(respond::json(
        200,
        &json!({
            "kind": kind, "apiVersion": resource.api_version(),
            "metadata": { "resourceVersion": revision.to_string() }, "items": items,
        }),
    ))
}

/// `POST pods/NAME/eviction`: a delete that respects disruption budgets.
pub(crate) async fn evict(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    target: &Target,
    name: &str,
) -> Result<Answer> {
    let body = request.object()?;
    let namespace = target.namespace.clone().unwrap_or_default();
    let key = (namespace.clone(), name.to_owned());
    let named = Named { group: "", resource: "pods", name };
    let pod = cluster.store.find(&resource.storage, &key).ok_or_else(|| ApiError::not_found(named))?;
    let (_, budgets) = cluster.store.list("policy/poddisruptionbudgets", Some(&namespace));
    for budget in budgets {
        let labels = at(&budget.object, &["spec", "selector", "matchLabels"]).and_then(Value::as_object);
        let Some(labels) = labels else { continue };
        let covered =
            labels.iter().all(|(key, value)| at(&pod.object, &["metadata", "labels", key]) == Some(value));
        let allowed = at(&budget.object, &["status", "disruptionsAllowed"]).and_then(Value::as_i64);
        if covered && allowed.unwrap_or(0) < 1 {
            return Err(ApiError::too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
            ));
        }
    }
    let options = body.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
    let orders = Orders::from_body(&options, request)?;
    remove(cluster, request, resource, &key, &orders).await?;
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    Ok(respond::json(201, &status))
}

fn success(details: Value) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

/// DeleteOptions.
#[derive(Debug, Default)]
struct Orders {
    uid: String,
    resource_version: String,
    grace: Option<i64>,
    propagation: String,
    dry_run: bool,
}

impl Orders {
    fn read(request: &Request) -> Result<Self> {
        let body = if request.body.is_empty() {
            json!({})
        } else if request.content_type() == "application/vnd.kubernetes.protobuf" {
            request.object()?
        } else {
            parse_body(&request.body, request.content_type().contains("yaml"))?
        };
        Self::from_body(&body, request)
    }

    fn from_body(body: &Value, request: &Request) -> Result<Self> {
        let query = &request.query;
        let grace = match at(body, &["gracePeriodSeconds"]) {
            Some(seconds) => seconds.as_i64(),
            None => query.number("gracePeriodSeconds")?.and_then(|n| i64::try_from(n).ok()),
        };
        let mut propagation = text(body, &["propagationPolicy"]).to_owned();
        if propagation.is_empty() {
            propagation = query.text("propagationPolicy").to_owned();
        }
        if at(body, &["orphanDependents"]).and_then(Value::as_bool) == Some(true)
            || query.flag("orphanDependents")
        {
            propagation = "Orphan".into();
        }
        if !matches!(propagation.as_str(), "" | "Background" | "Foreground" | "Orphan") {
            return Err(ApiError::invalid(
                "",
                "DeleteOptions",
                "",
                &[crate::error::FieldError::not_supported(
                    "propagationPolicy",
                    propagation,
                    &["Foreground".into(), "Background".into(), "Orphan".into(), "nil".into()],
                )],
            ));
        }
        let dry_run = request.dry_run()? || list(body, &["dryRun"]).iter().any(|value| value == "All");
        Ok(Self {
            uid: text(body, &["preconditions", "uid"]).to_owned(),
            resource_version: text(body, &["preconditions", "resourceVersion"]).to_owned(),
            grace,
            propagation,
            dry_run,
        })
    }
}

enum Removed {
    /// It is gone; this was its last state.
    Gone(Arc<Value>),
    /// Something holds it still: it is marked.
    Marked(Arc<Value>),
}

async fn remove(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    key: &Key,
    orders: &Orders,
) -> Result<Removed> {
    let named = Named { group: &resource.group, resource: &resource.plural, name: &key.1 };
    if resource.storage == NAMESPACES && matches!(key.1.as_str(), "default" | "kube-system" | "kube-public") {
        return Err(ApiError::forbidden(named, "this namespace may not be deleted"));
    }
    loop {
        let stored = cluster.store.find(&resource.storage, key).ok_or_else(|| ApiError::not_found(named))?;
        let old = &*stored.object;
        if !orders.uid.is_empty() && orders.uid != object::uid(old) {
            return Err(ApiError::conflict(
                Named { resource: &resource.kind, ..named },
                format!(
                    "the UID in the precondition ({}) does not match the UID in record ({}). The object might \
                     have been deleted and then recreated",
                    orders.uid,
                    object::uid(old)
                ),
            ));
        }
        if !orders.resource_version.is_empty() && orders.resource_version != object::resource_version(old) {
            return Err(ApiError::conflict(
                Named { resource: &resource.kind, ..named },
                format!(
                    "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record \
                     ({}). The object might have been modified",
                    orders.resource_version,
                    object::resource_version(old)
                ),
            ));
        }
        let attempt =
            Attempt { dry_run: orders.dry_run, ..Attempt::on(request, resource, "", Operation::Delete, old) };
        admission::admit(cluster, attempt).await?;
        let mut marked = old.clone();
        mark(cluster, resource, &mut marked, orders);
        if is_finished(resource, &marked) {
            if orders.dry_run {
                return Ok(Removed::Gone(stored.object));
            }
            if let Ok(last) = cluster.store.commit(&resource.storage, key, Some(stored.revision), None) {
                after_commit(cluster, resource, Some(old), None);
                return Ok(Removed::Gone(last));
            }
        } else if marked == *old || orders.dry_run {
            return Ok(Removed::Marked(Arc::new(marked)));
        } else if let Ok(written) =
            cluster.store.commit(&resource.storage, key, Some(stored.revision), Some(marked))
        {
            return Ok(Removed::Marked(written));
        }
    }
}

/// Writes into an object that its deletion was asked for.
fn mark(cluster: &Cluster, resource: &Resource, object: &mut Value, orders: &Orders) {
    let now = Timestamp::now();
    let grace = if resource.kind == "Pod" && resource.custom.is_none() && cluster.graceful_pods {
        let bound = !text(object, &["spec", "nodeName"]).is_empty();
        let over = matches!(text(object, &["status", "phase"]), "Succeeded" | "Failed");
        let own = at(object, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
        if bound && !over { orders.grace.or(own).unwrap_or(30).max(0) } else { 0 }
    } else {
        0
    };
    let hold = match orders.propagation.as_str() {
        "Foreground" => Some("foregroundDeletion"),
        "Orphan" => Some("orphan"),
        _ => None,
    };
    let was_marked = object::is_terminating(object);
    let metadata = metadata_mut(object);
    if let Some(hold) = hold.filter(|_| !was_marked) {
        let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Value::Array(finalizers) = finalizers
            && !finalizers.iter().any(|known| known == hold)
        {
            finalizers.push(hold.into());
        }
    }
    let before = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    // A second request may only shorten the grace of the first.
    if !was_marked || before.is_some_and(|before| grace < before) {
        let when = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
        let when = when.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        metadata.insert("deletionTimestamp".into(), when.into());
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        if !was_marked && resource.has_generation() {
            let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
            metadata.insert("generation".into(), (generation + 1).into());
        }
    }
    if resource.storage == NAMESPACES {
        object["status"]["phase"] = "Terminating".into();
    }
}

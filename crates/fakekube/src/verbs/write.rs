// SPDX-License-Identifier: Apache-2.0
//! Create, update, patch and apply. Each computes the new object from one snapshot, asks the webhooks, and
//! commits against that snapshot's revision; when somebody else was faster and the client named no revision, it
//! starts over. Nothing is locked while webhooks are asked.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::Cluster;
use crate::builtin::{self, event};
use crate::error::{ApiError, FieldError, Named, Result};
use crate::kinds::{CRDS, EVENTS, NAMESPACES, Resource};
use crate::managed_fields::{self, Writer};
use crate::object::{self, at, list, metadata_mut, text};
use crate::patch::Patch;
use crate::request::{Request, Target, parse_body};
use crate::respond::Answer;
use crate::store::{Key, Stored};
use crate::verbs::parts::{
    bump_generation, check_kind, keep_system_fields, named_kind, same_identity, same_uid, separate, unchanged,
};
use crate::verbs::read::object_answer;
use crate::verbs::{decode, form};
use crate::webhook::admission::{self, Attempt, Operation};
use crate::{crd, random};

/// POST to a collection.
pub(crate) async fn create(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    target: &Target,
) -> Result<Answer> {
    let mut object = request.object()?;
    named_kind(resource, &object)?;
    check_kind(resource, &mut object)?;
    decode::decode(resource, &mut object, request)?;
    let row = storage_row(cluster, resource, &mut object);
    let writer = Writer::of(request, resource, "");
    let created = insert(cluster, request, &row, target, object, Some(&writer)).await?;
    object_answer(cluster, request, resource, &created, 201).await
}

/// PUT of an object or one of its subresources.
pub(crate) async fn update(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    target: &Target,
    name: &str,
    subresource: &str,
) -> Result<Answer> {
    let mut object = request.object()?;
    check_kind(resource, &mut object)?;
    if object::name(&object).is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    let edit = Edit::Replace(object);
    let outcome = change(cluster, request, resource, target, name, subresource, &edit).await?;
    object_answer(cluster, request, resource, &outcome.object, 200).await
}

/// PATCH of an object or its status, in any of the four forms.
pub(crate) async fn patch(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    target: &Target,
    name: &str,
    subresource: &str,
) -> Result<Answer> {
    let edit = match request.content_type() {
        "application/json-patch+json" => Edit::Patch(Patch::json(&request.body)?),
        "application/merge-patch+json" => Edit::Patch(Patch::merge(&request.body)?),
        "application/strategic-merge-patch+json" if resource.custom.is_none() => {
            Edit::Patch(Patch::strategic(&request.body)?)
        }
        "application/apply-patch+yaml" => {
            if request.query.text("fieldManager").is_empty() {
                let error = FieldError::required("fieldManager", "is required for apply patch");
                return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
            }
            let mut config = parse_body(&request.body, true)?;
            if text(&config, &["apiVersion"]).is_empty() || text(&config, &["kind"]).is_empty() {
                return Err(ApiError::bad_request(format!(
                    "invalid object type: {}, Kind={}",
                    text(&config, &["apiVersion"]),
                    text(&config, &["kind"])
                )));
            }
            check_kind(resource, &mut config)?;
            if !list(&config, &["metadata", "managedFields"]).is_empty() {
                return Err(ApiError::bad_request("metadata.managedFields must be nil"));
            }
            Edit::Apply { config, force: request.query.flag("force") }
        }
        other => {
            let mut accepted = vec![
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ];
            if resource.custom.is_none() {
                accepted.insert(2, "application/strategic-merge-patch+json");
            }
            let accepted = accepted.join(", ");
            tracing::debug!(media = other, "patch in an unknown form");
            return Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            )));
        }
    };
    if !matches!(edit, Edit::Apply { .. }) && request.query.flag("force") {
        let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
        return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
    }
    let outcome = change(cluster, request, resource, target, name, subresource, &edit).await?;
    let code = if outcome.created { 201 } else { 200 };
    object_answer(cluster, request, resource, &outcome.object, code).await
}

/// `POST pods/NAME/binding`: what a scheduler does.
pub(crate) async fn bind(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    target: &Target,
    name: &str,
) -> Result<Answer> {
    let binding = request.object()?;
    let node = text(&binding, &["target", "name"]).to_owned();
    if node.is_empty() {
        let error = FieldError::required("target.name", "");
        return Err(ApiError::invalid("", "Binding", name, &[error]));
    }
    let key = (target.namespace.clone().unwrap_or_default(), name.to_owned());
    loop {
        let stored = find(cluster, resource, &key)?;
        let bound = text(&stored.object, &["spec", "nodeName"]);
        if !bound.is_empty() {
            let why = format!("pod {name} is already assigned to node {bound:?}");
            return Err(ApiError::conflict(Named { group: "", resource: "pods/binding", name }, why));
        }
        let mut pod = (*stored.object).clone();
        pod["spec"]["nodeName"] = node.clone().into();
        if cluster.store.commit(&resource.storage, &key, Some(stored.revision), Some(pod)).is_ok() {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
            });
            return Ok(crate::respond::json(201, &status));
        }
    }
}

enum Edit {
    Replace(Value),
    Patch(Patch),
    Apply { config: Value, force: bool },
}

struct Outcome {
    object: Arc<Value>,
    created: bool,
}

/// How often a change is computed anew because somebody else was faster.
const ATTEMPTS: usize = 64;

async fn change(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    target: &Target,
    name: &str,
    subresource: &str,
    edit: &Edit,
) -> Result<Outcome> {
    let key = (target.namespace.clone().unwrap_or_default(), name.to_owned());
    let dry_run = request.dry_run()?;
    let named = Named { group: &resource.group, resource: &resource.plural, name };
    let writer = Writer::of(request, resource, subresource);
    for _ in 0..ATTEMPTS {
        let Some(stored) = cluster.store.find(&resource.storage, &key) else {
            return match edit {
                Edit::Apply { config, force } if subresource.is_empty() => {
                    apply_new(cluster, request, resource, target, name, config, *force, &writer).await
                }
                _ => Err(ApiError::not_found(named)),
            };
        };
        let live = form::shown(cluster, resource, &stored.object).await?;
        let mut new = edited(request, resource, edit, &live, &writer)?;
        same_identity(&new, target, name)?;
        let given = object::resource_version(&new).to_owned();
        if given.is_empty() && resource.custom.is_some() && matches!(edit, Edit::Replace(_)) {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            return Err(ApiError::invalid(&resource.group, &resource.plural, name, &[error]));
        }
        if !given.is_empty() && given != "0" && given != object::resource_version(&live) {
            return Err(ApiError::modified(named));
        }
        same_uid(&live, &new, named)?;

        let row = storage_row(cluster, resource, &mut new);
        // Custom resources are judged in the version of the request, everything else in the stored form.
        let old = if row.custom.is_some() { &live } else { &*stored.object };
        keep_system_fields(old, &mut new);
        separate(&row, subresource, old, &mut new);
        if !matches!(edit, Edit::Apply { .. }) {
            managed_fields::on_update(&row, Some(old), &mut new, &writer);
        }
        builtin::prepare_update(&row, subresource, old, &mut new);
        bump_generation(&row, subresource, old, &mut new);
        let mut errors = metadata_errors(&row, Some(old), &new);
        errors.extend(builtin::validate(&row, subresource, Some(old), &new));
        if let Some(custom) = &row.custom {
            errors.extend(custom.validate(&new, Some(old), subresource));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid(&row.group, &row.kind, name, &errors));
        }
        let reservation = builtin::allocate(cluster, &row, subresource, Some(old), &mut new)?;
        let attempt = Attempt {
            object: Some(&new),
            dry_run,
            ..Attempt::on(request, &row, subresource, Operation::Update, old)
        };
        admission::admit(cluster, attempt).await?;
        let new = form::stored(cluster, &row, new).await?;
        let finished = is_finished(&row, &new);
        if !finished && unchanged(&stored.object, &new) {
            return Ok(Outcome { object: stored.object, created: false });
        }
        if dry_run {
            return Ok(Outcome { object: Arc::new(new), created: false });
        }
        let after = if finished { None } else { Some(new.clone()) };
        match cluster.store.commit(&row.storage, &key, Some(stored.revision), after) {
            Ok(written) => {
                reservation.keep();
                after_commit(cluster, &row, Some(&stored.object), (!finished).then_some(&*written));
                let object = if finished { Arc::new(new) } else { written };
                return Ok(Outcome { object, created: false });
            }
            Err(_) if given.is_empty() || !matches!(edit, Edit::Replace(_)) => {}
            Err(_) => return Err(ApiError::modified(named)),
        }
    }
    Err(ApiError::modified(named))
}

/// The object after the edit, decoded and defaulted.
fn edited(
    request: &Request,
    resource: &Arc<Resource>,
    edit: &Edit,
    live: &Value,
    writer: &Writer,
) -> Result<Value> {
    match edit {
        Edit::Replace(object) => {
            let mut new = object.clone();
            decode::decode(resource, &mut new, request)?;
            Ok(new)
        }
        Edit::Patch(patch) => {
            let mut new = patch.apply(live, &resource.schema)?;
            check_kind(resource, &mut new)?;
            decode::decode(resource, &mut new, request)?;
            Ok(new)
        }
        Edit::Apply { config, force } => {
            let mut config = config.clone();
            decode::applied(resource, &mut config, request)?;
            let mut new = managed_fields::apply(resource, Some(live), &config, writer, *force)?;
            let version = object::resource_version(&config);
            let version = if version.is_empty() { object::resource_version(live) } else { version };
            metadata_mut(&mut new).insert("resourceVersion".into(), version.into());
            decode::default(resource, &mut new);
            Ok(new)
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "one caller, and each is a different part of the request")]
async fn apply_new(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    target: &Target,
    name: &str,
    config: &Value,
    force: bool,
    writer: &Writer,
) -> Result<Outcome> {
    let mut config = config.clone();
    decode::applied(resource, &mut config, request)?;
    same_identity(&config, target, name)?;
    if !object::uid(&config).is_empty() {
        let named = Named { group: &resource.group, resource: &resource.plural, name };
        return Err(ApiError::conflict(
            named,
            format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                object::uid(&config)
            ),
        ));
    }
    let mut new = managed_fields::apply(resource, None, &config, writer, force)?;
    metadata_mut(&mut new).insert("name".into(), name.into());
    decode::default(resource, &mut new);
    let row = storage_row(cluster, resource, &mut new);
    let object = insert(cluster, request, &row, target, new, None).await?;
    Ok(Outcome { object, created: true })
}

/// Stores a new object; its fields are the writer's, unless they are somebody's already.
async fn insert(
    cluster: &Arc<Cluster>,
    request: &Request,
    row: &Arc<Resource>,
    target: &Target,
    mut object: Value,
    writer: Option<&Writer>,
) -> Result<Arc<Value>> {
    let dry_run = request.dry_run()?;
    if !object::resource_version(&object).is_empty() {
        return Err(ApiError::unexplained("resourceVersion should not be set on objects to be created"));
    }
    let namespace = target.namespace.clone().unwrap_or_default();
    match object::namespace(&object) {
        "" => {}
        _ if !row.namespaced => {
            metadata_mut(&mut object).remove("namespace");
        }
        given if given == namespace => {}
        _ => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    let metadata = metadata_mut(&mut object);
    for key in ["uid", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        metadata.remove(key);
    }
    if row.namespaced {
        metadata.insert("namespace".into(), namespace.clone().into());
    }
    metadata.insert("creationTimestamp".into(), object::now_text().into());
    metadata.insert("uid".into(), random::uid().into());
    if let Some(writer) = writer {
        managed_fields::on_update(row, None, &mut object, writer);
    }
    let generated = object::name(&object).is_empty();
    let base = text(&object, &["metadata", "generateName"]).to_owned();
    for _ in 0..8 {
        if generated && !base.is_empty() {
            let cut: String = base.chars().take(58).collect();
            metadata_mut(&mut object).insert("name".into(), format!("{cut}{}", random::suffix()).into());
        }
        let mut new = object.clone();
        let name = object::name(&new).to_owned();
        if row.namespaced {
            check_namespace(cluster, row, &namespace, &name)?;
        }
        builtin::prepare_create(row, &mut new);
        if row.has_generation() {
            metadata_mut(&mut new).insert("generation".into(), 1.into());
        }
        let mut errors = metadata_errors(row, None, &new);
        errors.extend(builtin::validate(row, "", None, &new));
        if let Some(custom) = &row.custom {
            errors.extend(custom.validate(&new, None, ""));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid(&row.group, &row.kind, &name, &errors));
        }
        let reservation = builtin::allocate(cluster, row, "", None, &mut new)?;
        let attempt = Attempt {
            request,
            resource: row,
            subresource: "",
            operation: Operation::Create,
            namespace: object::namespace(&new),
            name: object::name(&object),
            object: Some(&new),
            old: None,
            dry_run,
        };
        admission::admit(cluster, attempt).await?;
        let new = form::stored(cluster, row, new).await?;
        let key: Key = (if row.namespaced { namespace.clone() } else { String::new() }, name.clone());
        let named = Named { group: &row.group, resource: &row.plural, name: &name };
        if dry_run {
            return match cluster.store.find(&row.storage, &key) {
                Some(_) => Err(ApiError::already_exists(named)),
                None => Ok(Arc::new(new)),
            };
        }
        match cluster.store.commit(&row.storage, &key, None, Some(new)) {
            Ok(written) => {
                reservation.keep();
                after_commit(cluster, row, None, Some(&written));
                return Ok(written);
            }
            Err(_) if generated => {}
            Err(_) => return Err(ApiError::already_exists(named)),
        }
    }
    Err(ApiError::already_exists(Named { group: &row.group, resource: &row.plural, name: &base }))
}

/// What follows from a stored change: served resources, released addresses, forgotten tokens.
pub(crate) fn after_commit(cluster: &Arc<Cluster>, row: &Resource, old: Option<&Value>, new: Option<&Value>) {
    builtin::committed(cluster, row, old, new);
    if row.storage == CRDS {
        crd::changed(cluster, old, new);
    }
}

/// Whether nothing holds the object any more after its deletion was asked for.
pub(crate) fn is_finished(row: &Resource, object: &Value) -> bool {
    let held = !list(object, &["metadata", "finalizers"]).is_empty()
        || (row.storage == NAMESPACES && !list(object, &["spec", "finalizers"]).is_empty())
        || at(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0) > 0;
    object::is_terminating(object) && !held
}

/// The row whose form the store keeps; the object is converted to it.
fn storage_row(cluster: &Cluster, resource: &Arc<Resource>, object: &mut Value) -> Arc<Resource> {
    if resource.storage == EVENTS && resource.group == "events.k8s.io" {
        *object = event::to_core_group(object);
        if let Some(core) = cluster.registry.find("", "v1", "events") {
            return core;
        }
    }
    Arc::clone(resource)
}

fn find(cluster: &Cluster, resource: &Resource, key: &Key) -> Result<Stored> {
    cluster.store.find(&resource.storage, key).ok_or_else(|| {
        ApiError::not_found(Named { group: &resource.group, resource: &resource.plural, name: &key.1 })
    })
}

fn check_namespace(cluster: &Cluster, row: &Resource, namespace: &str, name: &str) -> Result<()> {
    let stored = find(
        cluster,
        &*cluster.registry.find("", "v1", "namespaces").ok_or_else(ApiError::no_resource)?,
        &(String::new(), namespace.to_owned()),
    )?;
    if object::is_terminating(&stored.object) {
        let named = Named { group: &row.group, resource: &row.plural, name };
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut error = ApiError::forbidden(named, &why);
        error.details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        return Err(error);
    }
    Ok(())
}

/// Errors of names, labels, annotations, owner references and finalizers.
fn metadata_errors(row: &Resource, old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = builtin::metadata::errors(row, new);
    if let Some(old) = old.filter(|old| object::is_terminating(old)) {
        let before = list(old, &["metadata", "finalizers"]);
        let added: Vec<String> = list(new, &["metadata", "finalizers"])
            .iter()
            .filter(|finalizer| !before.contains(finalizer))
            .map(ToString::to_string)
            .collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers \
                     []string{{{}}}",
                    added.join(", ")
                ),
            ));
        }
    }
    errors
}

// SPDX-License-Identifier: Apache-2.0
//! Create, update, patch and apply. Each computes the new object from one snapshot and commits it against
//! that snapshot's revision; when somebody else was faster and the client named no revision, it starts over.

use std::sync::Arc;

use http::{HeaderValue, header};
use serde_json::{Value, json};

use crate::api::Cluster;
use crate::builtin::{self, event};
use crate::error::{ApiError, FieldError, Named, Result};
use crate::kinds::{CRDS, EVENTS, NAMESPACES, Resource};
use crate::managed_fields::{self, Writer};
use crate::object::{self, at, carry, list, metadata_mut, object_mut, text};
use crate::patch::Patch;
use crate::request::{Request, Target, parse_body};
use crate::respond::Answer;
use crate::store::{Key, Stored};
use crate::verbs::decode;
use crate::verbs::read::{object_answer, presented};
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
    let warnings = decode::decode(resource, &mut object, request)?;
    let row = storage_row(cluster, resource, &mut object);
    let writer = Writer::of(request, resource, "");
    let created = insert(cluster, request, &row, target, object, |row, object| {
        managed_fields::on_update(row, None, object, &writer);
    })?;
    answer(request, resource, &created, 201, &warnings)
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
    let outcome = change(cluster, request, resource, target, name, subresource, &edit)?;
    answer(request, resource, &outcome.object, 200, &outcome.warnings)
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
    let outcome = change(cluster, request, resource, target, name, subresource, &edit)?;
    let code = if outcome.created { 201 } else { 200 };
    answer(request, resource, &outcome.object, code, &outcome.warnings)
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
    warnings: Vec<String>,
}

/// How often a change is computed anew because somebody else was faster.
const ATTEMPTS: usize = 64;

fn change(
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
                    apply_new(cluster, request, resource, target, name, config, *force, &writer)
                }
                _ => Err(ApiError::not_found(named)),
            };
        };
        let live = presented(resource, &stored.object);
        let (mut new, warnings) = edited(request, resource, edit, &live, &writer)?;
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
        let old = &*stored.object;
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
        let finished = is_finished(&row, &new);
        if !finished && unchanged(old, &new) {
            return Ok(Outcome { object: stored.object, created: false, warnings });
        }
        if dry_run {
            return Ok(Outcome { object: Arc::new(new), created: false, warnings });
        }
        let after = if finished { None } else { Some(new.clone()) };
        match cluster.store.commit(&row.storage, &key, Some(stored.revision), after) {
            Ok(written) => {
                reservation.keep();
                after_commit(cluster, &row, Some(old), (!finished).then_some(&*written));
                let object = if finished { Arc::new(new) } else { written };
                return Ok(Outcome { object, created: false, warnings });
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
) -> Result<(Value, Vec<String>)> {
    match edit {
        Edit::Replace(object) => {
            let mut new = object.clone();
            let warnings = decode::decode(resource, &mut new, request)?;
            Ok((new, warnings))
        }
        Edit::Patch(patch) => {
            let mut new = patch.apply(live, &resource.schema)?;
            check_kind(resource, &mut new)?;
            let warnings = decode::decode(resource, &mut new, request)?;
            Ok((new, warnings))
        }
        Edit::Apply { config, force } => {
            let mut config = config.clone();
            let warnings = decode::applied(resource, &mut config, request)?;
            let mut new = managed_fields::apply(resource, Some(live), &config, writer, *force)?;
            let version = object::resource_version(&config);
            let version = if version.is_empty() { object::resource_version(live) } else { version };
            metadata_mut(&mut new).insert("resourceVersion".into(), version.into());
            decode::default(resource, &mut new);
            Ok((new, warnings))
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "one caller, and each is a different part of the request")]
fn apply_new(
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
    let warnings = decode::applied(resource, &mut config, request)?;
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
    let object = insert(cluster, request, &row, target, new, |_, _| {})?;
    Ok(Outcome { object, created: true, warnings })
}

/// Stores a new object; `own` records who set its fields.
fn insert(
    cluster: &Arc<Cluster>,
    request: &Request,
    row: &Arc<Resource>,
    target: &Target,
    mut object: Value,
    own: impl Fn(&Resource, &mut Value),
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
    own(row, &mut object);
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

fn answer(
    request: &Request,
    resource: &Resource,
    object: &Value,
    code: u16,
    warnings: &[String],
) -> Result<Answer> {
    let mut answer = object_answer(request, resource, object, code)?;
    for warning in warnings {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
    Ok(answer)
}

fn find(cluster: &Cluster, resource: &Resource, key: &Key) -> Result<Stored> {
    cluster.store.find(&resource.storage, key).ok_or_else(|| {
        ApiError::not_found(Named { group: &resource.group, resource: &resource.plural, name: &key.1 })
    })
}

/// A custom resource must say what it is.
fn named_kind(resource: &Resource, object: &Value) -> Result<()> {
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
fn check_kind(resource: &Resource, object: &mut Value) -> Result<()> {
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

fn same_identity(new: &Value, target: &Target, name: &str) -> Result<()> {
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

fn same_uid(live: &Value, new: &Value, named: Named<'_>) -> Result<()> {
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
fn keep_system_fields(old: &Value, new: &mut Value) {
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
fn separate(row: &Resource, subresource: &str, old: &Value, new: &mut Value) {
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

fn bump_generation(row: &Resource, subresource: &str, old: &Value, new: &mut Value) {
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
fn unchanged(old: &Value, new: &Value) -> bool {
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

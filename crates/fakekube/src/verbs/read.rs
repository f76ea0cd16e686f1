// SPDX-License-Identifier: Apache-2.0
//! Get and list: selectors, pages, older revisions, and the forms in which objects are shown.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header;
use serde_json::{Map, Value, json};

use crate::api::Cluster;
use crate::error::{ApiError, Named, Result};
use crate::kinds::Resource;
use crate::object::{self, object_mut};
use crate::request::{Request, Target};
use crate::respond::{self, Answer, Form, accepted_form};
use crate::selector::Selector;
use crate::store::{Key, Store, Stored};
use crate::table;
use crate::verbs::form;

/// GET of one object.
pub(crate) async fn get(
    cluster: &Cluster,
    request: &Request,
    resource: &Resource,
    target: &Target,
    name: &str,
) -> Result<Answer> {
    let key = (target.namespace.clone().unwrap_or_default(), name.to_owned());
    let stored = cluster.store.find(&resource.storage, &key).ok_or_else(|| {
        ApiError::not_found(Named { group: &resource.group, resource: &resource.plural, name })
    })?;
    object_answer(cluster, request, resource, &stored.object, 200).await
}

/// GET of a collection.
pub(crate) async fn list(
    cluster: &Cluster,
    request: &Request,
    resource: &Resource,
    target: &Target,
) -> Result<Answer> {
    let form = accepted_form(request.header(header::ACCEPT))?;
    let query = &request.query;
    let selector = Selector::parse(query.text("labelSelector"), query.text("fieldSelector"), resource)?;
    let limit = query.number("limit")?.filter(|&limit| limit > 0);
    let wanted = query.text("resourceVersion");
    let exactly = query.text("resourceVersionMatch") == "Exact";
    let namespace = target.namespace.as_deref();

    let (revision, start) = match query.text("continue") {
        "" if exactly => (Some(parse_revision(wanted)?), None),
        "" => {
            let least = if wanted.is_empty() { 0 } else { parse_revision(wanted)? };
            let now = cluster.store.revision();
            if least > now {
                return Err(too_large(least, now));
            }
            (None, None)
        }
        _ if !wanted.is_empty() && wanted != "0" => {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        token => {
            let (revision, key) = read_token(token)?;
            (Some(revision), Some(key))
        }
    };
    let (revision, objects) = objects_at(&cluster.store, &resource.storage, namespace, revision)?;
    let selected = objects.iter().filter(|stored| {
        start.as_ref().is_none_or(|start| crate::store::key_of(&stored.object) > *start)
            && selector.matches(&stored.object)
    });
    let mut rest: Vec<&Stored> = selected.collect();
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if let Some(limit) = limit {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if rest.len() > limit {
            let remaining = rest.len() - limit;
            rest.truncate(limit);
            if let Some(last) = rest.last() {
                metadata["continue"] = write_token(revision, &crate::store::key_of(&last.object)).into();
            }
            // The number is exact only where nothing is selected away, as in a real server.
            if selector.is_empty() {
                metadata["remainingItemCount"] = remaining.into();
            }
        }
    }
    let objects = form::shown_all(cluster, resource, rest.iter().map(|stored| &*stored.object))
        .await
        .map_err(|why| ApiError::no_storage(resource, &why))?;
    let value = match form {
        Form::Table => table::render(resource, &objects, metadata, query.text("includeObject")),
        Form::Metadata | Form::MetadataList => {
            let items: Vec<Value> = objects.into_iter().map(partial).collect();
            json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata, "items": items,
            })
        }
        Form::Plain => {
            let items: Vec<Value> = objects
                .into_iter()
                .map(|mut item| {
                    if resource.custom.is_none() {
                        let item = object_mut(&mut item);
                        item.remove("apiVersion");
                        item.remove("kind");
                    }
                    item
                })
                .collect();
            let kind = match &resource.custom {
                Some(custom) => custom.list_kind.clone(),
                None => format!("{}List", resource.kind),
            };
            if resource.custom.is_some() && metadata.get("continue").is_none() {
                metadata["continue"] = "".into();
            }
            json!({
                "kind": kind, "apiVersion": resource.api_version(), "metadata": metadata, "items": items,
            })
        }
    };
    Ok(respond::json(200, &value))
}

/// An answer with one object in the form the client accepts.
pub(crate) async fn object_answer(
    cluster: &Cluster,
    request: &Request,
    resource: &Resource,
    object: &Value,
    code: u16,
) -> Result<Answer> {
    let form = accepted_form(request.header(header::ACCEPT))?;
    let object = form::shown(cluster, resource, object).await?;
    let value = match form {
        Form::Plain => object,
        Form::Table => {
            let metadata = json!({ "resourceVersion": object::resource_version(&object) });
            table::render(resource, &[object], metadata, request.query.text("includeObject"))
        }
        Form::Metadata | Form::MetadataList => partial(object),
    };
    Ok(respond::json(code, &value))
}

/// An object's metadata alone.
pub(crate) fn partial(mut object: Value) -> Value {
    let metadata = object_mut(&mut object).remove("metadata").unwrap_or_else(|| Value::Object(Map::new()));
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
}

/// A resourceVersion of a request.
pub(crate) fn parse_revision(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        ApiError::bad_request(format!("resourceVersion: Invalid value: {text:?}: must be a number"))
    })
}

/// Objects as they were at a revision (now, where none is given).
fn objects_at(
    store: &Store,
    kind: &str,
    namespace: Option<&str>,
    revision: Option<u64>,
) -> Result<(u64, Vec<Stored>)> {
    let (now, objects) = store.list(kind, namespace);
    let Some(revision) = revision.filter(|&revision| revision != now) else { return Ok((now, objects)) };
    if revision > now {
        return Err(too_large(revision, now));
    }
    let Some((_, changes)) = store.changes_since(kind, revision) else {
        return Err(ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a \
             new list without the continue parameter.",
        ));
    };
    // What changed since is undone, newest first.
    let mut map: std::collections::BTreeMap<Key, Stored> =
        objects.into_iter().map(|stored| (crate::store::key_of(&stored.object), stored)).collect();
    for change in changes.iter().rev() {
        let Some(some) = change.after.as_ref().or(change.last.as_ref()) else { continue };
        let key = crate::store::key_of(some);
        if namespace.is_some_and(|namespace| namespace != key.0) {
            continue;
        }
        match &change.before {
            Some(before) => {
                let revision = object::resource_version(before).parse().unwrap_or_default();
                map.insert(key, Stored { revision, object: std::sync::Arc::clone(before) });
            }
            None => {
                map.remove(&key);
            }
        }
    }
    map.retain(|_, stored| stored.revision <= revision);
    Ok((revision, map.into_values().collect()))
}

fn too_large(wanted: u64, now: u64) -> ApiError {
    ApiError {
        code: 504,
        reason: "Timeout".into(),
        message: format!("Timeout: Too large resource version: {wanted}, current: {now}"),
        details: json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        }),
    }
}

fn write_token(revision: u64, (namespace, name): &Key) -> String {
    URL_SAFE_NO_PAD.encode(json!({ "rv": revision, "namespace": namespace, "name": name }).to_string())
}

fn read_token(token: &str) -> Result<(u64, Key)> {
    let read = || -> Option<(u64, Key)> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let value: Value = serde_json::from_slice(&bytes).ok()?;
        let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
        Some((value.get("rv")?.as_u64()?, (text("namespace")?, text("name")?)))
    };
    read().ok_or_else(|| ApiError::bad_request("continue key is not valid"))
}

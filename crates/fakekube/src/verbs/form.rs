// SPDX-License-Identifier: Apache-2.0
//! The forms of an object: as it is stored, and as a version of its resource shows it.

use serde_json::Value;

use crate::api::Cluster;
use crate::builtin::event;
use crate::crd::{defaults, prune};
use crate::error::Result;
use crate::kinds::{EVENTS, Resource};
use crate::object::{object_mut, text};
use crate::schema::Schema;
use crate::webhook::conversion;

/// Stored objects as this version of their resource shows them, in the same order.
pub(crate) async fn shown_all<'a>(
    cluster: &Cluster,
    resource: &Resource,
    stored: impl Iterator<Item = &'a Value>,
) -> Result<Vec<Value>> {
    let objects = stored.map(|object| unconverted(resource, object)).collect();
    let mut objects =
        converted(cluster, resource, &resource.api_version(), &resource.schema, objects).await?;
    for object in &mut objects {
        let map = object_mut(object);
        map.insert("apiVersion".into(), resource.api_version().into());
        map.insert("kind".into(), resource.kind.clone().into());
    }
    Ok(objects)
}

/// A stored object as this version of its resource shows it.
pub(crate) async fn shown(cluster: &Cluster, resource: &Resource, stored: &Value) -> Result<Value> {
    let mut shown = shown_all(cluster, resource, std::iter::once(stored)).await?;
    Ok(shown.pop().unwrap_or_default())
}

/// An object of any version of a custom resource in the form in which it is stored.
pub(crate) async fn stored(cluster: &Cluster, resource: &Resource, object: Value) -> Result<Value> {
    let Some(custom) = &resource.custom else { return Ok(object) };
    if custom.stored_as == text(&object, &["apiVersion"]) {
        return Ok(object);
    }
    let objects = vec![object];
    let mut objects = converted(cluster, resource, &custom.stored_as, &custom.stored_schema, objects).await?;
    let mut object = objects.pop().unwrap_or_default();
    defaults::fill(&custom.stored_schema, &mut object, true);
    Ok(object)
}

fn unconverted(resource: &Resource, object: &Value) -> Value {
    if resource.storage == EVENTS && resource.group == "events.k8s.io" {
        event::to_events_group(object)
    } else {
        object.clone()
    }
}

/// Objects in a version of a custom resource, without what that version does not have.
async fn converted(
    cluster: &Cluster,
    resource: &Resource,
    wanted: &str,
    schema: &Schema,
    objects: Vec<Value>,
) -> Result<Vec<Value>> {
    if resource.custom.is_none() {
        return Ok(objects);
    }
    let foreign: Vec<bool> = objects.iter().map(|object| text(object, &["apiVersion"]) != wanted).collect();
    let mut objects = conversion::convert(cluster, resource, wanted, objects).await?;
    for (object, _) in objects.iter_mut().zip(foreign).filter(|(_, foreign)| *foreign) {
        prune::prune(schema, object, "", &mut Vec::new());
    }
    Ok(objects)
}

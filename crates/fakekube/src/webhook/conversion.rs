// SPDX-License-Identifier: Apache-2.0
//! Between versions of a custom resource: by name alone, or by a webhook that is given all objects of a request
//! at once. A webhook changes fields, labels and annotations; everything else of the metadata stays.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Cluster;
use crate::error::{ApiError, Result};
use crate::kinds::Resource;
use crate::object::{self, at, carry, list, text};
use crate::random;
use crate::webhook::call;

/// How a definition says that its objects are converted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Conversion {
    /// Only `apiVersion` is rewritten.
    None,
    /// A webhook does it.
    Webhook {
        /// `clientConfig`.
        config: Value,
        /// Version of the ConversionReview that both sides know.
        review: String,
    },
}

impl Conversion {
    /// Reads `spec.conversion` of a definition.
    pub(crate) fn of(definition: &Value) -> Self {
        let conversion = &definition["spec"]["conversion"];
        if text(conversion, &["strategy"]) != "Webhook" {
            return Self::None;
        }
        let versions = list(conversion, &["webhook", "conversionReviewVersions"]);
        let known =
            versions.iter().filter_map(Value::as_str).find(|version| matches!(*version, "v1" | "v1beta1"));
        Self::Webhook {
            config: conversion["webhook"]["clientConfig"].clone(),
            review: known.unwrap_or("v1").to_owned(),
        }
    }
}

/// How long a conversion may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Objects of a resource as another version of it has them, in the same order. Objects that are in it already
/// cost nothing, and no webhook is asked about them.
pub(crate) async fn convert(
    cluster: &Cluster,
    resource: &Resource,
    wanted: &str,
    mut objects: Vec<Value>,
) -> Result<Vec<Value>> {
    let Some(custom) = &resource.custom else { return Ok(objects) };
    let foreign: Vec<usize> =
        (0..objects.len()).filter(|&i| text(&objects[i], &["apiVersion"]) != wanted).collect();
    let Some(&first) = foreign.first() else { return Ok(objects) };
    match &custom.conversion {
        Conversion::None => {
            for i in foreign {
                objects[i]["apiVersion"] = wanted.into();
            }
        }
        Conversion::Webhook { config, review } => {
            let from = text(&objects[first], &["apiVersion"]).to_owned();
            let whose = format!("conversion webhook for {from}, Kind={}", resource.kind);
            let sent: Vec<Value> = foreign.iter().map(|&i| without_revision(&objects[i])).collect();
            let count = sent.len();
            let converted = ask(cluster, config, review, wanted, sent)
                .await
                .map_err(|why| ApiError::unexplained(format!("{whose} failed: {why}")))?;
            if converted.len() != count {
                return Err(ApiError::unexplained(format!(
                    "{whose} returned {} objects, expected {count}",
                    converted.len()
                )));
            }
            for (at, (i, mut object)) in foreign.into_iter().zip(converted).enumerate() {
                let found = text(&object, &["apiVersion"]);
                if found != wanted {
                    return Err(ApiError::unexplained(format!(
                        "{whose} returned invalid object at index {at}: invalid groupVersion (expected {wanted}, \
                         received {found})"
                    )));
                }
                restore(&objects[i], &mut object).map_err(|why| {
                    ApiError::unexplained(format!("{whose} returned invalid object: {why}"))
                })?;
                objects[i] = object;
            }
        }
    }
    Ok(objects)
}

/// Asks the webhook.
async fn ask(
    cluster: &Cluster,
    config: &Value,
    version: &str,
    wanted: &str,
    objects: Vec<Value>,
) -> Result<Vec<Value>, String> {
    let uid = random::uid();
    let api_version = format!("apiextensions.k8s.io/{version}");
    let review = json!({
        "kind": "ConversionReview",
        "apiVersion": api_version,
        "request": { "uid": uid, "desiredAPIVersion": wanted, "objects": objects },
    });
    let mut answer = call::post(cluster, config, TIMEOUT, &review).await?;
    let (found_version, found_kind) = (text(&answer, &["apiVersion"]), text(&answer, &["kind"]));
    if (found_version, found_kind) != (&api_version, "ConversionReview") {
        return Err(format!(
            "expected webhook response of {api_version}, Kind=ConversionReview, got {found_version}, Kind={found_kind}"
        ));
    }
    let Some(response) = at(&answer, &["response"]) else {
        return Err("no response provided".into());
    };
    let found = text(response, &["uid"]);
    if found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    let status = text(response, &["result", "status"]);
    if status != "Success" {
        let message = text(response, &["result", "message"]);
        return Err(if message.is_empty() {
            format!("response.result.status was '{status}', not 'Success'")
        } else {
            message.to_owned()
        });
    }
    match answer["response"]["convertedObjects"].take() {
        Value::Array(objects) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

/// Webhooks see objects as they are stored, and the revision is not part of that.
fn without_revision(object: &Value) -> Value {
    let mut object = object.clone();
    object::metadata_mut(&mut object).remove("resourceVersion");
    object
}

/// Checks that an object is still the same one, and undoes what a webhook may not change.
fn restore(original: &Value, converted: &mut Value) -> Result<(), String> {
    for (path, word) in [
        (&["kind"][..], "kind"),
        (&["metadata", "name"], "name"),
        (&["metadata", "namespace"], "namespace"),
        (&["metadata", "uid"], "UID"),
    ] {
        let (before, after) = (text(original, path), text(converted, path));
        if before != after {
            return Err(format!("must have the same {word}: {before} != {after}"));
        }
    }
    let given = converted["metadata"].take();
    let mut metadata = original["metadata"].clone();
    for key in ["labels", "annotations"] {
        carry(&given, &mut metadata, key);
    }
    converted["metadata"] = metadata;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_changes_labels_and_annotations_of_the_metadata_and_nothing_else() {
        let metadata = json!({ "name": "a", "uid": "u", "resourceVersion": "7", "labels": { "a": "b" },
            "annotations": { "c": "d" } });
        let original = json!({ "kind": "K", "metadata": metadata });
        let mut converted = json!({ "kind": "K", "metadata": { "name": "a", "uid": "u", "generation": 9,
            "labels": { "x": "y" } }, "spec": { "f": 1 } });
        assert_eq!(restore(&original, &mut converted), Ok(()));
        let metadata = json!({ "name": "a", "uid": "u", "resourceVersion": "7", "labels": { "x": "y" } });
        assert_eq!(converted, json!({ "kind": "K", "metadata": metadata, "spec": { "f": 1 } }));
    }

    #[test]
    fn an_object_that_became_another_is_refused() {
        let original = json!({ "kind": "K", "metadata": { "name": "a", "namespace": "n", "uid": "u" } });
        for (key, text) in
            [("name", "name: a != z"), ("namespace", "namespace: n != z"), ("uid", "UID: u != z")]
        {
            let mut converted = original.clone();
            converted["metadata"][key] = "z".into();
            assert_eq!(restore(&original, &mut converted), Err(format!("must have the same {text}")));
        }
    }
}

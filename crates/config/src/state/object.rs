// SPDX-License-Identifier: Apache-2.0
//! The ConfigurationState object: what should stand in it, and the requests that bring that about.

use ferrolb_api::request::{ApiRequest, Resource, Verb};
use ferrolb_api::{
    ConfigurationResult, ConfigurationState, DIAGNOSTICS_CONDITION, MEMBERS_CONDITION, labels,
};
use ferrolb_net_types::NodeName;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use serde_json::{Map, Value, json};

use super::Outcome;

/// Whose state it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Component {
    /// The controller.
    Controller,
    /// The speaker of a node.
    Speaker(NodeName),
}

/// The Pod a daemon runs in; it owns the object, so that it goes with the Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPod {
    /// The Pod's name.
    pub name: String,
    /// The Pod's uid.
    pub uid: String,
}

/// Who reports, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Whose state it is.
    pub component: Component,
    /// The namespace of the `metallb.io` objects.
    pub namespace: String,
    /// The own Pod; `None` if the daemon does not run in one.
    pub pod: Option<OwnPod>,
}

impl Identity {
    /// The object's name: `controller`, or `speaker-` and the node's name.
    pub fn object_name(&self) -> String {
        match &self.component {
            Component::Controller => "controller".to_owned(),
            Component::Speaker(node) => {
                labels::bounded(&format!("speaker-{node}"), MAX_OBJECT_NAME).into_owned()
            }
        }
    }

    /// The request that creates the object.
    pub(super) fn create(&self) -> ApiRequest {
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), json!(self.object_name()));
        metadata.insert("namespace".to_owned(), json!(self.namespace));
        metadata.insert("labels".to_owned(), self.labels());
        if let Some(pod) = &self.pod {
            metadata.insert("ownerReferences".to_owned(), json!([reference(pod)]));
        }
        let body = json!({
            "apiVersion": RESOURCE.api_version(),
            "kind": RESOURCE.kind(),
            "metadata": metadata,
            "status": { "result": ConfigurationResult::Unknown },
        });
        ApiRequest::create(RESOURCE, &self.namespace, body)
    }

    /// The request that puts labels and owner right, if they are not.
    pub(super) fn adopt(&self, object: &ConfigurationState) -> Option<ApiRequest> {
        let present = object.metadata.labels.clone().unwrap_or_default();
        let labelled = self.labels().as_object().is_some_and(|wanted| {
            wanted.iter().all(|(key, value)| present.get(key).map(String::as_str) == value.as_str())
        });
        let owners: &[OwnerReference] = object.metadata.owner_references.as_deref().unwrap_or_default();
        let owned = self.pod.as_ref().is_none_or(|pod| owners.iter().any(|owner| owner.uid == pod.uid));
        if labelled && owned {
            return None;
        }
        let mut metadata = Map::new();
        if !labelled {
            metadata.insert("labels".to_owned(), self.labels());
        }
        if let Some(pod) = self.pod.as_ref().filter(|_| !owned) {
            // A patch replaces the whole list, so it must not be sent on an outdated one.
            let mut list: Vec<Value> = owners.iter().map(|owner| json!(owner)).collect();
            list.push(reference(pod));
            metadata.insert("ownerReferences".to_owned(), Value::Array(list));
            metadata.insert("resourceVersion".to_owned(), json!(object.metadata.resource_version));
        }
        let request = self.status(Verb::MergePatch { manager: None }, json!({ "metadata": metadata }));
        Some(ApiRequest { subresource: None, ..request })
    }

    /// The request that puts the conditions right, if they are not.
    pub(super) fn conditions(
        &self,
        object: &ConfigurationState,
        outcome: &Outcome,
        wall: Timestamp,
    ) -> Option<ApiRequest> {
        let present = object.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let wanted = self.wanted_conditions(outcome);
        let same = |a: &Condition, b: &Condition| {
            a.status == b.status && a.reason == b.reason && a.message == b.message
        };
        let find = |kind: &str| present.iter().find(|c| c.type_ == kind);
        let extra = [DIAGNOSTICS_CONDITION, MEMBERS_CONDITION]
            .into_iter()
            .any(|kind| find(kind).is_some() && !wanted.iter().any(|c| c.type_ == kind));
        if !extra && wanted.iter().all(|c| find(&c.type_).is_some_and(|p| same(p, c))) {
            return None;
        }
        // One apply holds all conditions of ours: one that is left out is removed by the API server.
        let conditions: Vec<Value> = wanted
            .into_iter()
            .map(|mut condition| {
                // Seconds are what the API server's type has.
                let now = Timestamp::from_second(wall.as_second()).unwrap_or(wall);
                let unchanged = find(&condition.type_).filter(|p| same(p, &condition));
                condition.last_transition_time =
                    unchanged.map_or(Time(now), |p| p.last_transition_time.clone());
                json!(condition)
            })
            .collect();
        let manager = match self.component {
            Component::Controller => "poolReconciler",
            Component::Speaker(_) => "configReconciler",
        };
        let body = json!({
            "apiVersion": RESOURCE.api_version(),
            "kind": RESOURCE.kind(),
            "metadata": { "name": self.object_name(), "namespace": self.namespace },
            "status": { "conditions": conditions },
        });
        Some(self.status(Verb::Apply { manager, force: true }, body))
    }

    /// The request that puts result and summary right, if they do not follow from the conditions.
    pub(super) fn result(&self, object: &ConfigurationState) -> Option<ApiRequest> {
        let status = object.status.clone().unwrap_or_default();
        let (result, summary) = conclusion(&status.conditions);
        let mut changes = Map::new();
        if status.result != Some(result) {
            changes.insert("result".to_owned(), json!(result));
        }
        if status.error_summary != summary {
            changes.insert("errorSummary".to_owned(), json!(summary));
        }
        let body = json!({ "status": changes });
        (!changes.is_empty()).then(|| self.status(Verb::MergePatch { manager: None }, body))
    }

    fn wanted_conditions(&self, outcome: &Outcome) -> Vec<Condition> {
        let condition = |kind: &str, status: &str, reason: &str, message: String| Condition {
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            message: within_limit(message),
            observed_generation: None,
            reason: reason.to_owned(),
            status: status.to_owned(),
            type_: kind.to_owned(),
        };
        let kind = match self.component {
            Component::Controller => "poolReconcilerValid",
            Component::Speaker(_) => "configReconcilerValid",
        };
        let verdict = match &outcome.verdict {
            Ok(()) => condition(kind, "True", "Reconciled", String::new()),
            Err(error) => {
                condition(kind, "False", CONFIGURATION_ERROR, format!("configuration error: {error}"))
            }
        };
        let further = (!outcome.further.is_empty()).then(|| {
            condition(DIAGNOSTICS_CONDITION, "True", "FurtherDiagnostics", outcome.further.join("\n"))
        });
        // Its reason is none that makes the configuration invalid, for MetalLB's rule neither.
        let members = (!outcome.members.is_empty())
            .then(|| condition(MEMBERS_CONDITION, "False", "Unreachable", outcome.members.join("\n")));
        [verdict].into_iter().chain(further).chain(members).collect()
    }

    fn labels(&self) -> Value {
        match &self.component {
            Component::Controller => json!({ labels::COMPONENT_TYPE: "controller" }),
            Component::Speaker(node) => json!({
                labels::COMPONENT_TYPE: "speaker",
                labels::NODE_NAME: labels::value(node.as_str()),
            }),
        }
    }

    fn status(&self, verb: Verb, body: Value) -> ApiRequest {
        ApiRequest::status(verb, RESOURCE, &self.namespace, &self.object_name(), body)
    }
}

/// What follows from the conditions: the result, and the messages of those that make it invalid.
pub(super) fn conclusion(conditions: &[Condition]) -> (ConfigurationResult, Option<String>) {
    if conditions.is_empty() {
        return (ConfigurationResult::Unknown, None);
    }
    let errors: Vec<&str> = conditions
        .iter()
        .filter(|c| c.status == "False" && c.reason == CONFIGURATION_ERROR)
        .map(|c| c.message.as_str())
        .collect();
    match errors.as_slice() {
        [] => (ConfigurationResult::Valid, None),
        errors => (ConfigurationResult::Invalid, Some(errors.join("\n"))),
    }
}

fn reference(pod: &OwnPod) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid })
}

/// Cuts a message down to what the schema allows.
fn within_limit(message: String) -> String {
    if message.chars().count() <= MAX_MESSAGE {
        return message;
    }
    let mut cut: String = message.chars().take(MAX_MESSAGE - ELLIPSIS.len()).collect();
    cut.push_str(ELLIPSIS);
    cut
}

const RESOURCE: Resource = Resource::ConfigurationStates;
const CONFIGURATION_ERROR: &str = "ConfigurationError";
const MAX_MESSAGE: usize = 32768;
const MAX_OBJECT_NAME: usize = 253;
const ELLIPSIS: &str = "\n(more is left out)";

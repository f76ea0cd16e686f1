// SPDX-License-Identifier: Apache-2.0
//! A Kubernetes API in memory, as far as speakers use it: objects with versions, the writes they send, and a log of
//! changes from which every watcher reads at its own pace.

use std::collections::BTreeMap;

use ferrolb_api::Change;
use ferrolb_api::request::{ApiRequest, Resource, Verb, WriteError, WriteResult};
use ferrolb_speaker_core::Input;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) const KINDS: [&str; 13] = [
    "Service",
    "EndpointSlice",
    "Node",
    "Namespace",
    "IPAddressPool",
    "L2Advertisement",
    "BGPAdvertisement",
    "BGPPeer",
    "BFDProfile",
    "Community",
    "ServiceL2Status",
    "ServiceBGPStatus",
    "ConfigurationState",
];

/// Kind, namespace (empty for cluster-scoped kinds), name.
pub(crate) type Key = (&'static str, String, String);

#[derive(Default)]
pub(crate) struct Api {
    pub(crate) objects: BTreeMap<Key, Value>,
    /// Every change: the object, or `None` where it was deleted.
    pub(crate) log: Vec<(Key, Option<Value>)>,
    /// Every write of a speaker that changed something, or was meant to.
    pub(crate) requests: Vec<ApiRequest>,
    /// While set, every write fails like this.
    pub(crate) outage: Option<WriteError>,
    version: u64,
}

impl Api {
    /// Creates or replaces an object, as a user would.
    pub(crate) fn put(&mut self, kind: &'static str, mut object: Value) {
        let key = key(kind, &object);
        let known = self.objects.get(&key).cloned();
        object["metadata"]["uid"] = known
            .map_or_else(|| json!(format!("uid-{}", self.version + 1)), |o| o["metadata"]["uid"].clone());
        self.store(key, object);
    }

    /// Changes an object by merge patch, as a user would.
    pub(crate) fn patch(&mut self, kind: &'static str, namespace: &str, name: &str, patch: &Value) {
        let key = (kind, namespace.to_owned(), name.to_owned());
        let mut object = self.objects[&key].clone();
        merge(&mut object, patch);
        if object != self.objects[&key] {
            self.store(key, object);
        }
    }

    pub(crate) fn delete(&mut self, kind: &'static str, namespace: &str, name: &str) {
        let key = (kind, namespace.to_owned(), name.to_owned());
        self.objects.remove(&key).unwrap();
        self.log.push((key, None));
    }

    pub(crate) fn list(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(key, _)| key.0 == kind).map(|(_, object)| object)
    }

    /// The complete list of a kind, as a watch begins with.
    pub(crate) fn reset(&self, kind: &'static str) -> Input {
        match kind {
            "Service" => Input::Services(self.all(kind)),
            "EndpointSlice" => Input::EndpointSlices(self.all(kind)),
            "Node" => Input::Nodes(self.all(kind)),
            "Namespace" => Input::Namespaces(self.all(kind)),
            "IPAddressPool" => Input::Pools(self.all(kind)),
            "L2Advertisement" => Input::L2Advertisements(self.all(kind)),
            "BGPAdvertisement" => Input::BGPAdvertisements(self.all(kind)),
            "BGPPeer" => Input::BGPPeers(self.all(kind)),
            "BFDProfile" => Input::BFDProfiles(self.all(kind)),
            "Community" => Input::Communities(self.all(kind)),
            "ServiceL2Status" => Input::L2Statuses(self.all(kind)),
            "ServiceBGPStatus" => Input::BGPStatuses(self.all(kind)),
            "ConfigurationState" => Input::ConfigurationStates(self.all(kind)),
            _ => panic!("no such kind: {kind}"),
        }
    }

    /// One entry of the log, as a watch delivers it.
    pub(crate) fn change(&self, index: usize) -> Input {
        let (key, object) = &self.log[index];
        match key.0 {
            "Service" => Input::Services(one(key, object)),
            "EndpointSlice" => Input::EndpointSlices(one(key, object)),
            "Node" => Input::Nodes(one(key, object)),
            "Namespace" => Input::Namespaces(one(key, object)),
            "IPAddressPool" => Input::Pools(one(key, object)),
            "L2Advertisement" => Input::L2Advertisements(one(key, object)),
            "BGPAdvertisement" => Input::BGPAdvertisements(one(key, object)),
            "BGPPeer" => Input::BGPPeers(one(key, object)),
            "BFDProfile" => Input::BFDProfiles(one(key, object)),
            "Community" => Input::Communities(one(key, object)),
            "ServiceL2Status" => Input::L2Statuses(one(key, object)),
            "ServiceBGPStatus" => Input::BGPStatuses(one(key, object)),
            "Secret" => self.secret(&key.2),
            "BGPSession" => Input::BGPSessions(one(key, object)),
            "ConfigurationState" => Input::ConfigurationStates(one(key, object)),
            kind => panic!("no such kind: {kind}"),
        }
    }

    /// A Secret as it is, or that there is none.
    pub(crate) fn secret(&self, name: &str) -> Input {
        let key = ("Secret", "metallb-system".to_owned(), name.to_owned());
        let secret = self.objects.get(&key).map(|object| Box::new(decode(object)));
        Input::Secret { name: name.to_owned(), secret }
    }

    /// Executes a write of a speaker.
    pub(crate) fn execute(&mut self, request: &ApiRequest) -> WriteResult {
        self.requests.push(request.clone());
        if let Some(error) = &self.outage {
            return Err(error.clone());
        }
        let kind = match request.resource {
            Resource::ServiceL2Statuses => "ServiceL2Status",
            Resource::ServiceBGPStatuses => "ServiceBGPStatus",
            Resource::BGPSessions => "BGPSession",
            Resource::ConfigurationStates => "ConfigurationState",
            other => panic!("speakers do not write {other:?}"),
        };
        let namespace = request.namespace.clone().unwrap();
        let body = request.body.clone().unwrap_or_default();
        if request.verb == Verb::Create {
            let mut object = body;
            if let Some(prefix) = object["metadata"]["generateName"].as_str() {
                object["metadata"]["name"] = json!(format!("{prefix}{:05}", self.version));
            }
            object.as_object_mut().unwrap().remove("status"); // It is a subresource.
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version + 1));
            let key = key(kind, &object);
            if self.objects.contains_key(&key) {
                return Err(error(409, "AlreadyExists"));
            }
            return Ok(self.store(key, object));
        }
        let key = (kind, namespace, request.name.clone().unwrap());
        let Some(known) = self.objects.get(&key) else { return Err(error(404, "NotFound")) };
        let mut object = known.clone();
        match request.verb {
            Verb::Delete => {
                let uid = request.precondition_uid.as_deref();
                if uid.is_some_and(|uid| object["metadata"]["uid"] != uid) {
                    return Err(error(409, "Conflict"));
                }
                self.objects.remove(&key);
                self.log.push((key, None));
                return Ok(json!({ "kind": "Status", "status": "Success" }));
            }
            Verb::MergePatch { .. } => {
                let part = if request.subresource == Some("status") { "status" } else { "metadata" };
                let mut patch = json!({});
                patch[part] = body[part].clone();
                merge(&mut object, &patch);
            }
            // One manager only, so what is applied is what is there.
            Verb::Apply { .. } => object["status"]["conditions"] = body["status"]["conditions"].clone(),
            Verb::Create | Verb::Put => panic!("speakers do not {:?}", request.verb),
        }
        for field in ["node", "serviceName", "serviceNamespace"] {
            let (old, new) = (&known["status"][field], &object["status"][field]);
            if kind.starts_with("Service") && !old.is_null() && old != new {
                return Err(error(422, "Invalid"));
            }
        }
        if object == *known { Ok(object) } else { Ok(self.store(key, object)) }
    }

    fn store(&mut self, key: Key, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.log.push((key.clone(), Some(object.clone())));
        self.objects.insert(key, object.clone());
        object
    }

    fn all<K: DeserializeOwned>(&self, kind: &str) -> Change<K> {
        Change::Reset(self.list(kind).map(decode).collect())
    }
}

fn one<K: DeserializeOwned>(key: &Key, object: &Option<Value>) -> Change<K> {
    match object {
        Some(object) => Change::Applied(Box::new(decode(object))),
        None => Change::Deleted { namespace: key.1.clone(), name: key.2.clone() },
    }
}

fn decode<K: DeserializeOwned>(object: &Value) -> K {
    serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"))
}

fn key(kind: &'static str, object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (kind, text("namespace"), text("name"))
}

fn error(code: u16, reason: &str) -> WriteError {
    WriteError::refused(code, reason, reason)
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(field);
        } else {
            merge(&mut target[field], value);
        }
    }
}

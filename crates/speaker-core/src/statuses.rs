// SPDX-License-Identifier: Apache-2.0
//! Keeps the ServiceL2Status and ServiceBGPStatus objects true: one of this node per Service that it announces, none
//! for others.
//!
//! Level-triggered: the objects that exist are compared with what should exist, one request per Service at a time,
//! and nothing is written when they agree. Any number of nodes announce by BGP; layer 2 has one owner. Where another node's object contradicts ours, the network is given time
//! to settle; a stale one is then deleted once. If it comes back, somebody alive insists: it is left alone, and an
//! object of ours that was deleted comes back ever more slowly, so that two who disagree never keep each other
//! writing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrolb_api::request::{ApiRequest, Resource, Verb, WriteError, WriteResult};
use ferrolb_api::{Change, ServiceBGPStatus, ServiceL2Status, labels};
use ferrolb_config::state::OwnPod;
use ferrolb_net_types::{InterfaceName, PeerName, ServiceKey, Time};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::io::{Protocol, Settings, WriteId};
use crate::pause::{after, doubled, is_trouble};

/// How long a contradicting object of another node is left to its own speaker.
const SETTLE: Duration = Duration::from_secs(2);
/// At least this long between two objects of ours for one Service, and from when one is missed until the next.
const RECREATE: Duration = Duration::from_secs(1);
/// The first pause after a failed request; it doubles.
const RETRY: Duration = Duration::from_millis(200);
/// What failed because the server was in trouble is not tried again out of turn more often than this.
const RELEASE: Duration = Duration::from_secs(1);
/// Requests under way at a time.
const PARALLEL: usize = 16;

/// What the status of an announced Service should say beside who and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    /// The interfaces that answer, none for all; or the peers that are told. In order.
    list: Vec<String>,
}

impl Desired {
    /// Of a Service on layer 2: the interfaces that answer; `None` for all.
    pub(crate) fn interfaces(interfaces: Option<&BTreeSet<InterfaceName>>) -> Self {
        Self { list: interfaces.into_iter().flatten().map(ToString::to_string).collect() }
    }

    /// Of a Service over BGP: the peers that are told; nothing is to be said without any.
    pub(crate) fn peers(peers: &BTreeSet<&PeerName>) -> Option<Self> {
        (!peers.is_empty()).then(|| Self { list: peers.iter().map(ToString::to_string).collect() })
    }
}

#[derive(Debug)]
pub(crate) struct Statuses {
    protocol: Protocol,
    settings: Settings,
    /// The own node's name as a label value.
    label: String,
    objects: BTreeMap<ServiceKey, BTreeMap<String, Object>>,
    service_of: BTreeMap<String, ServiceKey>,
    desired: BTreeMap<ServiceKey, Desired>,
    work: BTreeMap<ServiceKey, Work>,
    queue: BTreeSet<ServiceKey>,
    waiting: BTreeSet<(Time, ServiceKey)>,
    under_way: BTreeMap<WriteId, (ServiceKey, Operation)>,
    /// Something failed because the server was in trouble, and when what did so was last tried again out of turn.
    trouble: bool,
    released: Option<Time>,
    /// The ways in which the server refused that users were told of, until a request succeeds.
    complained: BTreeSet<u16>,
    /// It is known what this node announces; before, nothing may be called untrue.
    settled: bool,
    /// Services of which other nodes had an object before that: somebody else may have announced them meanwhile.
    elsewhere: BTreeSet<ServiceKey>,
}

/// An object of either kind, as far as it matters here.
#[derive(Debug)]
pub(crate) struct Stored {
    metadata: ObjectMeta,
    said: Said,
}

impl From<ServiceL2Status> for Stored {
    fn from(object: ServiceL2Status) -> Self {
        let status = object.status.unwrap_or_default();
        let said = Said {
            node: status.node,
            service_name: status.service_name,
            service_namespace: status.service_namespace,
            list: status.interfaces.into_iter().map(|interface| interface.name).collect(),
        };
        Self { metadata: object.metadata, said }
    }
}

impl From<ServiceBGPStatus> for Stored {
    fn from(object: ServiceBGPStatus) -> Self {
        let status = object.status.unwrap_or_default();
        let said = Said {
            node: status.node,
            service_name: status.service_name,
            service_namespace: status.service_namespace,
            list: status.peers,
        };
        Self { metadata: object.metadata, said }
    }
}

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq)]
struct Object {
    uid: String,
    version: Option<u64>,
    /// The node of its label.
    node: String,
    /// The uids of its owners.
    owners: Vec<String>,
    said: Said,
    /// We deleted it; the watch has not confirmed it yet.
    deleted: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    node: String,
    service_name: String,
    service_namespace: String,
    /// Interfaces or peers.
    list: Vec<String>,
}

/// What is going on about one Service.
#[derive(Debug, Default)]
struct Work {
    under_way: bool,
    /// The last request failed; how many in a row did.
    failed: bool,
    failures: u32,
    not_before: Option<Time>,
    /// How many objects were created since the Service was gained, and when the last one was.
    created: u32,
    last_created: Option<Time>,
    /// Since when there has been none.
    gone: Option<Time>,
    /// Since when objects of other nodes have been in the way.
    contested_since: Option<Time>,
    /// Nodes whose object we deleted since the Service was gained.
    answered: BTreeSet<String>,
}

#[derive(Clone, Debug)]
enum Operation {
    Create,
    Patch(String),
    Delete(String),
}

enum Step {
    Write(Operation, ApiRequest),
    Wait(Time),
    Done,
}

impl Statuses {
    pub(crate) fn new(protocol: Protocol, settings: Settings) -> Self {
        Self {
            protocol,
            label: labels::value(settings.node.as_str()).into_owned(),
            settings,
            objects: BTreeMap::new(),
            service_of: BTreeMap::new(),
            desired: BTreeMap::new(),
            work: BTreeMap::new(),
            queue: BTreeSet::new(),
            waiting: BTreeSet::new(),
            under_way: BTreeMap::new(),
            trouble: false,
            released: None,
            complained: BTreeSet::new(),
            settled: false,
            elsewhere: BTreeSet::new(),
        }
    }

    /// The own Pod is known now.
    pub(crate) fn introduce(&mut self, settings: &Settings) {
        self.settings.clone_from(settings);
    }

    pub(crate) fn watched<K: Into<Stored>>(&mut self, change: Change<K>) {
        match change {
            Change::Applied(object) => self.apply((*object).into()),
            Change::Deleted { namespace, name } if namespace == self.settings.namespace => self.remove(&name),
            Change::Deleted { .. } => {}
            Change::Reset(objects) => {
                let objects: Vec<Stored> = objects.into_iter().map(Into::into).collect();
                let listed: BTreeSet<_> = objects.iter().filter_map(|o| o.metadata.name.clone()).collect();
                let known: Vec<_> = self.service_of.keys().cloned().collect();
                known
                    .iter()
                    .filter(|name| !listed.contains(name.as_str()))
                    .for_each(|name| self.remove(name));
                objects.into_iter().for_each(|object| self.apply(object));
            }
        }
    }

    /// Says what this node announces of the Service from now on.
    pub(crate) fn want(&mut self, service: &ServiceKey, desired: Option<Desired>) {
        if self.desired.get(service) == desired.as_ref() {
            return;
        }
        match desired {
            Some(desired) => {
                if self.desired.insert(service.clone(), desired).is_none()
                    && let Some(work) = self.work.get_mut(service)
                {
                    (work.created, work.last_created, work.gone, work.contested_since) =
                        (0, None, None, None);
                    work.answered.clear();
                }
            }
            None => {
                self.desired.remove(service);
            }
        }
        self.queue.insert(service.clone());
    }

    /// From now on what was not asked for by [`Statuses::want`] is untrue.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
        self.elsewhere.clear();
        self.queue.extend(self.objects.keys().chain(self.desired.keys()).cloned());
    }

    /// Whether an object says already that this node announces the Service, and none says so of another.
    pub(crate) fn says_ours(&self, service: &ServiceKey) -> bool {
        if self.elsewhere.contains(service) {
            return false;
        }
        let mut objects = self.objects.get(service).into_iter().flat_map(BTreeMap::values);
        objects.any(|o| !o.deleted && o.node == self.label && o.said.node == self.settings.node.as_str())
    }

    /// Whether an object of this node lists this peer for the Service.
    pub(crate) fn lists(&self, service: &ServiceKey, peer: &PeerName) -> bool {
        let mut objects = self.objects.get(service).into_iter().flat_map(BTreeMap::values);
        objects
            .any(|o| !o.deleted && o.node == self.label && o.said.list.iter().any(|one| one == peer.as_str()))
    }

    /// The next request, if one is due.
    pub(crate) fn poll(&mut self, now: Time, id: impl FnOnce() -> WriteId) -> Option<(WriteId, ApiRequest)> {
        while self.settled && self.under_way.len() < PARALLEL {
            let service = self.queue.pop_first()?;
            let work = self.work.entry(service.clone()).or_default();
            if work.under_way {
                continue; // Its result queues the Service again.
            }
            let step = match work.not_before.filter(|time| *time > now) {
                Some(time) => Step::Wait(time),
                None => self.step(now, &service),
            };
            match step {
                Step::Write(operation, request) => {
                    let id = id();
                    if let Some(work) = self.work.get_mut(&service) {
                        work.under_way = true;
                    }
                    self.under_way.insert(id, (service, operation));
                    return Some((id, request));
                }
                Step::Wait(time) => {
                    self.waiting.insert((time, service));
                }
                Step::Done => {
                    let idle = !self.objects.contains_key(&service) && !self.desired.contains_key(&service);
                    if idle {
                        self.work.remove(&service);
                    }
                }
            }
        }
        None
    }

    /// Takes a result; `false` if the write was not one of these.
    pub(crate) fn written(&mut self, now: Time, id: WriteId, result: &WriteResult) -> bool {
        let Some((service, operation)) = self.under_way.remove(&id) else { return false };
        let work = self.work.entry(service.clone()).or_default();
        work.under_way = false;
        match result {
            Ok(object) => {
                (work.failed, work.failures, work.not_before) = (false, 0, None);
                self.complained.clear();
                if self.trouble && self.released.is_none_or(|last| now.since(last) >= RELEASE) {
                    self.released = Some(now);
                    self.try_again();
                }
                match operation {
                    Operation::Create | Operation::Patch(_) => {
                        match self.protocol.stored(object) {
                            Some(object) => self.apply(object),
                            // The watch will bring it; asking again at once could make a second one.
                            None => {
                                let work = self.work.entry(service.clone()).or_default();
                                work.not_before = Some(now + RECREATE);
                            }
                        }
                    }
                    Operation::Delete(name) => self.mark_deleted(&service, &name),
                }
            }
            Err(error) => match operation {
                // It is gone, or another one by now: what we knew of it is void, and the watch brings the rest.
                Operation::Patch(name) | Operation::Delete(name)
                    if error.is_not_found() || error.is_conflict() =>
                {
                    self.remove(&name);
                }
                Operation::Create | Operation::Patch(_) | Operation::Delete(_) => {
                    work.failed = true;
                    work.failures = work.failures.saturating_add(1);
                    work.not_before = Some(now + after(error, RETRY, work.failures));
                    self.trouble |= is_trouble(error);
                    self.complain(&service, error);
                }
            },
        }
        self.queue.insert(service);
        true
    }

    /// The API server answers again: what failed is tried again at once, a few at a time.
    pub(crate) fn api_answers(&mut self) {
        for work in self.work.values_mut() {
            work.failures = 0;
        }
        self.try_again();
    }

    fn try_again(&mut self) {
        self.trouble = false;
        for (service, work) in self.work.iter_mut().filter(|(_, work)| work.failed) {
            (work.failed, work.not_before) = (false, None);
            self.queue.insert(service.clone());
        }
    }

    /// Says what is wrong, once for all that it keeps from being written. Of a server that does not answer whoever asks
    /// it says so.
    fn complain(&mut self, service: &ServiceKey, error: &WriteError) {
        let (controller, kind) = (self.protocol.reconciler(), self.protocol.resource().kind());
        if error.code != 0 && self.complained.insert(error.code) {
            tracing::warn!(controller, service = %service, error = %error, "the {kind} could not be written, retrying");
        } else {
            tracing::debug!(controller, service = %service, error = %error, "the {kind} could not be written, retrying");
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        while let Some((time, _)) = self.waiting.first()
            && *time <= now
        {
            self.queue.extend(self.waiting.pop_first().map(|(_, service)| service));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.waiting.first().map(|(time, _)| *time)
    }

    fn apply(&mut self, object: Stored) {
        let Stored { metadata, said } = &object;
        let Some(name) = &metadata.name else { return };
        if metadata.namespace.as_deref() != Some(self.settings.namespace.as_str()) {
            return;
        }
        let label = |key| metadata.labels.as_ref().and_then(|labels| labels.get(key));
        let (Some(node), Some(service_name), Some(service_namespace)) =
            (label(labels::NODE), label(labels::SERVICE_NAME), label(labels::SERVICE_NAMESPACE))
        else {
            return self.remove(name); // Nobody's.
        };
        if self.protocol == Protocol::Bgp && *node != self.label {
            return self.remove(name); // That node's own affair.
        }
        let service = ServiceKey::new(service_namespace, service_name);
        let mut new = Object {
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.as_deref().and_then(|v| v.parse().ok()),
            node: node.clone(),
            owners: metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect(),
            said: said.clone(),
            deleted: false,
        };
        if self.service_of.get(name).is_some_and(|known| *known != service) {
            self.remove(name); // Its labels were edited.
        }
        if !self.settled && new.node != self.label {
            self.elsewhere.insert(service.clone());
        }
        let objects = self.objects.entry(service.clone()).or_default();
        if let Some(known) = objects.get(name).filter(|known| known.uid == new.uid) {
            if known.version > new.version {
                return; // The watch lags behind the answer to our own write.
            }
            new.deleted = known.deleted;
            if *known == new {
                return;
            }
        }
        objects.insert(name.clone(), new);
        self.service_of.insert(name.clone(), service.clone());
        self.queue.insert(service);
    }

    fn remove(&mut self, name: &str) {
        let Some(service) = self.service_of.remove(name) else { return };
        if let Some(objects) = self.objects.get_mut(&service) {
            objects.remove(name);
            if objects.is_empty() {
                self.objects.remove(&service);
            }
        }
        self.queue.insert(service);
    }

    fn mark_deleted(&mut self, service: &ServiceKey, name: &str) {
        if let Some(object) = self.objects.get_mut(service).and_then(|objects| objects.get_mut(name)) {
            object.deleted = true;
        }
    }

    /// The first difference between what is and what should be.
    fn step(&mut self, now: Time, service: &ServiceKey) -> Step {
        let own_node = self.settings.node.as_str();
        let nothing = BTreeMap::new();
        let live = self.objects.get(service).unwrap_or(&nothing).iter().filter(|(_, object)| !object.deleted);
        let (own, foreign): (Vec<_>, Vec<_>) = live.partition(|(_, object)| object.node == self.label);
        let Some(desired) = self.desired.get(service) else {
            return own.first().map_or(Step::Done, |(name, object)| self.delete(name, object));
        };
        let desired = said(own_node, service, desired);
        let work = self.work.entry(service.clone()).or_default();
        work.contested_since = (!foreign.is_empty()).then(|| work.contested_since.unwrap_or(now));

        let keep = own.iter().max_by_key(|(_, o)| (o.said.can_become(&desired), o.said == desired));
        let Some((kept_name, kept)) = keep else {
            // Who deletes an object that was just made may know better who announces the Service: it is not made again
            // before that had time to become known here.
            let gone = *work.gone.get_or_insert(now);
            let time = work.last_created.map(|last| match foreign.is_empty() {
                true => gone.max(last) + RECREATE,
                false => (gone + RECREATE).max(last + doubled(RECREATE, work.created)),
            });
            if let Some(time) = time.filter(|time| *time > now) {
                return Step::Wait(time);
            }
            work.gone = None;
            work.created += 1;
            work.last_created = Some(now);
            return self.create(service);
        };
        work.gone = None;
        if !kept.said.can_become(&desired) {
            return self.delete(kept_name, kept); // What it says cannot be changed.
        }
        if self.settings.pod.as_ref().is_some_and(|pod| kept.owners != [pod.uid.as_str()]) {
            let body = json!({ "metadata": { "ownerReferences": self.owners() } });
            let request = ApiRequest { subresource: None, ..self.patch(kept_name, body) };
            return Step::Write(Operation::Patch((*kept_name).clone()), request);
        }
        if kept.said != desired {
            let body = json!({ "status": kept.said.difference(&desired, self.protocol) });
            return Step::Write(Operation::Patch((*kept_name).clone()), self.patch(kept_name, body));
        }
        if let Some((name, object)) = own.iter().find(|(name, _)| name != kept_name) {
            return self.delete(name, object); // A duplicate.
        }
        let Some((name, object)) = foreign.iter().find(|(_, object)| !work.answered.contains(&object.node))
        else {
            return Step::Done;
        };
        match work.contested_since.map(|since| since + SETTLE).filter(|time| *time > now) {
            Some(time) => Step::Wait(time),
            None => {
                work.answered.insert(object.node.clone());
                self.delete(name, object)
            }
        }
    }

    fn create(&self, service: &ServiceKey) -> Step {
        let body = json!({
            "apiVersion": self.protocol.resource().api_version(),
            "kind": self.protocol.resource().kind(),
            "metadata": {
                "namespace": self.settings.namespace,
                "generateName": self.protocol.name_prefix(),
                "labels": {
                    labels::NODE: self.label,
                    labels::SERVICE_NAME: &*service.name,
                    labels::SERVICE_NAMESPACE: &*service.namespace,
                },
                "ownerReferences": self.owners(),
            },
            "spec": {},
        });
        let namespace = &self.settings.namespace;
        Step::Write(Operation::Create, ApiRequest::create(self.protocol.resource(), namespace, body))
    }

    fn patch(&self, name: &str, body: Value) -> ApiRequest {
        let verb = Verb::MergePatch { manager: None };
        ApiRequest::status(verb, self.protocol.resource(), &self.settings.namespace, name, body)
    }

    fn delete(&self, name: &str, object: &Object) -> Step {
        let namespace = &self.settings.namespace;
        let request = ApiRequest::delete(self.protocol.resource(), namespace, name, Some(&object.uid));
        Step::Write(Operation::Delete(name.to_owned()), request)
    }

    fn owners(&self) -> Vec<Value> {
        let reference =
            |pod: &OwnPod| json!({ "apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid });
        self.settings.pod.iter().map(reference).collect()
    }
}

impl Protocol {
    const fn resource(self) -> Resource {
        match self {
            Self::Layer2 => Resource::ServiceL2Statuses,
            Self::Bgp => Resource::ServiceBGPStatuses,
        }
    }

    const fn name_prefix(self) -> &'static str {
        match self {
            Self::Layer2 => "l2-",
            Self::Bgp => "bgp-",
        }
    }

    /// MetalLB's name for what does this, as its logs have it.
    const fn reconciler(self) -> &'static str {
        match self {
            Self::Layer2 => "Layer2StatusReconciler",
            Self::Bgp => "ServiceBGPStatus",
        }
    }

    fn stored(self, object: &Value) -> Option<Stored> {
        let object = object.clone();
        match self {
            Self::Layer2 => serde_json::from_value::<ServiceL2Status>(object).ok().map(Into::into),
            Self::Bgp => serde_json::from_value::<ServiceBGPStatus>(object).ok().map(Into::into),
        }
    }
}

impl Said {
    /// Whether a patch can turn this into `other`: who and what cannot be changed once they are set.
    fn can_become(&self, other: &Self) -> bool {
        let fits = |is: &str, wanted: &str| is.is_empty() || is == wanted;
        fits(&self.node, &other.node)
            && fits(&self.service_name, &other.service_name)
            && fits(&self.service_namespace, &other.service_namespace)
    }

    /// The merge patch that turns this into `other`.
    fn difference(&self, other: &Self, protocol: Protocol) -> Value {
        let mut patch = Map::new();
        for (key, is, wanted) in [
            ("node", &self.node, &other.node),
            ("serviceName", &self.service_name, &other.service_name),
            ("serviceNamespace", &self.service_namespace, &other.service_namespace),
        ] {
            if is != wanted {
                patch.insert(key.to_owned(), json!(wanted));
            }
        }
        if self.list != other.list {
            let (field, list): (_, Vec<_>) = match protocol {
                Protocol::Layer2 => {
                    ("interfaces", other.list.iter().map(|name| json!({ "name": name })).collect())
                }
                Protocol::Bgp => ("peers", other.list.iter().map(|name| json!(name)).collect()),
            };
            let value = if list.is_empty() { Value::Null } else { Value::Array(list) };
            patch.insert(field.to_owned(), value);
        }
        Value::Object(patch)
    }
}

fn said(node: &str, service: &ServiceKey, desired: &Desired) -> Said {
    Said {
        node: node.to_owned(),
        service_name: service.name.to_string(),
        service_namespace: service.namespace.to_string(),
        list: desired.list.clone(),
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The API server: objects with versions, refusals of outdated writes, and what its watches tell.

use std::rc::Rc;

use ferrolb_api::request::{ApiRequest, Resource, Verb, WriteError, WriteResult};
use ferrolb_api::servicel2status::ServiceL2StatusSpec;
use ferrolb_api::{
    ALLOCATED_CONDITION, ANNOUNCED_CONDITION, Change, ConfigurationState, IPAddressPool, IPAddressPoolStatus,
    ServiceL2Status, ServiceL2StatusStatus,
};
use ferrolb_controller_core::{Input, LeaseRequest};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Namespace, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Condition, FieldsV1, ManagedFieldsEntry, ObjectMeta, Time as MetaTime,
};
use serde_json::{Map, Value, json};

use super::facts::Facts;
use super::shape::{
    NAMESPACES, POOL_NAMES, POOLS, PoolShape, SERVICES, SYSTEM, ServiceShape, pool_slot, service_name,
    service_slot,
};

/// One version of a Service.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) slot: usize,
    pub(crate) object: Service,
    /// Its resourceVersion.
    pub(crate) number: u64,
    pub(crate) facts: Facts,
    pub(crate) author: Author,
}

/// Who wrote a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    User,
    Stranger,
    Controller,
}

/// What a controller's write came to.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    /// It was refused, or is of no interest to the rules.
    Nothing,
    /// A Service, as it was and as it is now.
    Service { before: Rc<Version>, after: Rc<Version> },
    /// A pool, as it is now.
    Pool(Rc<IPAddressPool>),
}

/// The kinds that a controller watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Services,
    Pools,
    Communities,
    Namespaces,
    States,
    L2Statuses,
    BgpStatuses,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Services,
        Self::Pools,
        Self::Communities,
        Self::Namespaces,
        Self::States,
        Self::L2Statuses,
        Self::BgpStatuses,
    ];
}

/// What a watch tells.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Service(Rc<Version>),
    ServiceGone(usize),
    Services(Vec<Rc<Version>>),
    Pool(Rc<IPAddressPool>),
    PoolGone(usize),
    Pools(Vec<Rc<IPAddressPool>>),
    Communities,
    Namespace(Rc<Namespace>),
    Namespaces(Vec<Rc<Namespace>>),
    State(Rc<Value>),
    StateGone,
    States(Option<Rc<Value>>),
    Announced(usize),
    NotAnnounced(usize),
    AllAnnounced([bool; SERVICES]),
    BgpStatuses,
}

impl News {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Service(_) | Self::ServiceGone(_) | Self::Services(_) => Kind::Services,
            Self::Pool(_) | Self::PoolGone(_) | Self::Pools(_) => Kind::Pools,
            Self::Communities => Kind::Communities,
            Self::Namespace(_) | Self::Namespaces(_) => Kind::Namespaces,
            Self::State(_) | Self::StateGone | Self::States(_) => Kind::States,
            Self::Announced(_) | Self::NotAnnounced(_) | Self::AllAnnounced(_) => Kind::L2Statuses,
            Self::BgpStatuses => Kind::BgpStatuses,
        }
    }

    /// The same as the core hears it.
    pub(crate) fn input(&self) -> Input {
        let deleted = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        // What was stored was a ConfigurationState before.
        let state =
            |value: &Value| serde_json::from_value::<ConfigurationState>(value.clone()).unwrap_or_default();
        match self {
            Self::Service(version) => Input::Services(Change::Applied(Box::new(version.object.clone()))),
            Self::ServiceGone(slot) => {
                let (namespace, name) = service_name(*slot);
                let (namespace, name) = deleted(namespace, name);
                Input::Services(Change::Deleted { namespace, name })
            }
            Self::Services(list) => {
                Input::Services(Change::Reset(list.iter().map(|version| version.object.clone()).collect()))
            }
            Self::Pool(pool) => Input::Pools(Change::Applied(Box::new(IPAddressPool::clone(pool)))),
            Self::PoolGone(slot) => {
                let (namespace, name) = deleted(SYSTEM, POOL_NAMES[*slot]);
                Input::Pools(Change::Deleted { namespace, name })
            }
            Self::Pools(list) => {
                Input::Pools(Change::Reset(list.iter().map(|pool| IPAddressPool::clone(pool)).collect()))
            }
            Self::Communities => Input::Communities(Change::Reset(vec![])),
            Self::Namespace(namespace) => {
                Input::Namespaces(Change::Applied(Box::new(Namespace::clone(namespace))))
            }
            Self::Namespaces(list) => Input::Namespaces(Change::Reset(
                list.iter().map(|namespace| Namespace::clone(namespace)).collect(),
            )),
            Self::State(value) => Input::ConfigurationStates(Change::Applied(Box::new(state(value)))),
            Self::StateGone => {
                let (namespace, name) = deleted(SYSTEM, STATE);
                Input::ConfigurationStates(Change::Deleted { namespace, name })
            }
            Self::States(value) => {
                Input::ConfigurationStates(Change::Reset(value.iter().map(|value| state(value)).collect()))
            }
            Self::Announced(slot) => Input::L2Statuses(Change::Applied(Box::new(announcement(*slot)))),
            Self::NotAnnounced(slot) => {
                let name = announcement(*slot).metadata.name.unwrap_or_default();
                Input::L2Statuses(Change::Deleted { namespace: SYSTEM.to_owned(), name })
            }
            Self::AllAnnounced(which) => {
                let slots = (0..SERVICES).filter(|slot| which[*slot]);
                Input::L2Statuses(Change::Reset(slots.map(announcement).collect()))
            }
            Self::BgpStatuses => Input::BgpStatuses(Change::Reset(vec![])),
        }
    }
}

const STATE: &str = "controller";

/// The status object of a speaker that announces a Service.
fn announcement(slot: usize) -> ServiceL2Status {
    let (namespace, name) = service_name(slot);
    let mut object = ServiceL2Status::new(&format!("l2-{name}"), ServiceL2StatusSpec {});
    object.metadata.namespace = Some(SYSTEM.to_owned());
    object.status = Some(ServiceL2StatusStatus {
        node: "node-1".to_owned(),
        service_name: name.to_owned(),
        service_namespace: namespace.to_owned(),
        interfaces: vec![],
    });
    object
}

/// The objects.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) services: [Option<Rc<Version>>; SERVICES],
    /// Every version there was, oldest first.
    pub(crate) history: [Vec<Rc<Version>>; SERVICES],
    pub(crate) service_shapes: [Option<ServiceShape>; SERVICES],
    pub(crate) pools: [Option<Rc<IPAddressPool>>; POOLS],
    pub(crate) pool_shapes: [Option<PoolShape>; POOLS],
    namespaces: [Rc<Namespace>; 2],
    state: Option<Rc<Value>>,
    pub(crate) lease: Option<Lease>,
    /// Whether a speaker announces the Service of each slot.
    pub(crate) announced: [bool; SERVICES],
    version: u64,
    /// What watches have to tell, in the order of its making.
    pub(crate) news: Vec<News>,
}

impl Api {
    pub(crate) fn new() -> Self {
        let namespace = |name: &str| {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            Rc::new(Namespace { metadata, ..Namespace::default() })
        };
        Self {
            services: Default::default(),
            history: Default::default(),
            service_shapes: Default::default(),
            pools: Default::default(),
            pool_shapes: Default::default(),
            namespaces: NAMESPACES.map(namespace),
            state: None,
            lease: None,
            announced: [false; SERVICES],
            version: 100,
            news: Vec::new(),
        }
    }

    /// What a list of this kind answers now.
    pub(crate) fn list(&self, kind: Kind) -> News {
        match kind {
            Kind::Services => News::Services(self.services.iter().flatten().cloned().collect()),
            Kind::Pools => News::Pools(self.pools.iter().flatten().cloned().collect()),
            Kind::Communities => News::Communities,
            Kind::Namespaces => News::Namespaces(self.namespaces.to_vec()),
            Kind::States => News::States(self.state.clone()),
            Kind::L2Statuses => News::AllAnnounced(self.announced),
            Kind::BgpStatuses => News::BgpStatuses,
        }
    }

    /// What the Services say that the controller has to do with.
    pub(crate) fn ours(&self) -> Vec<(usize, &Facts)> {
        let facts = self.services.iter().flatten().map(|version| (version.slot, &version.facts));
        facts.filter(|(_, facts)| facts.is_ours()).collect()
    }

    fn metadata(&mut self, namespace: &str, name: &str, wall: Timestamp) -> ObjectMeta {
        self.version += 1;
        ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(format!("u{}", self.version)),
            creation_timestamp: Some(seconds(wall)),
            ..ObjectMeta::default()
        }
    }

    /// A user creates or changes a Service. Its status stays.
    pub(crate) fn apply_service(&mut self, slot: usize, shape: &ServiceShape, wall: Timestamp) {
        let (namespace, name) = service_name(slot);
        let (mut object, author) = match &self.services[slot] {
            Some(version) => (version.object.clone(), Author::User),
            None => {
                let metadata = self.metadata(namespace, name, wall);
                (Service { metadata, ..Service::default() }, Author::User)
            }
        };
        let mut notes = shape.annotations();
        let mark = "metallb.io/ip-allocated-from-pool";
        if let Some(pool) = object.metadata.annotations.as_ref().and_then(|notes| notes.get(mark)) {
            notes.insert(mark.to_owned(), pool.clone());
        }
        object.metadata.annotations = (!notes.is_empty()).then_some(notes);
        object.metadata.labels = shape.labels();
        object.spec = Some(shape.spec());
        // As an API server does it.
        if !shape.load_balancer
            && let Some(status) = &mut object.status
        {
            status.load_balancer = Some(LoadBalancerStatus::default());
        }
        self.service_shapes[slot] = Some(shape.clone());
        self.store_service(slot, object, author);
    }

    /// Somebody changes something of a Service.
    pub(crate) fn change_service(
        &mut self,
        slot: usize,
        author: Author,
        change: impl FnOnce(&mut Service),
    ) -> bool {
        let Some(version) = &self.services[slot] else { return false };
        let mut object = version.object.clone();
        change(&mut object);
        default_modes(&mut object);
        if object == version.object {
            return false;
        }
        self.store_service(slot, object, author);
        true
    }

    pub(crate) fn delete_service(&mut self, slot: usize) -> bool {
        let existed = self.services[slot].take().is_some();
        if existed {
            self.version += 1;
            self.service_shapes[slot] = None;
            self.news.push(News::ServiceGone(slot));
        }
        existed
    }

    fn store_service(&mut self, slot: usize, mut object: Service, author: Author) -> Rc<Version> {
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        let facts = Facts::of(&object);
        let version = Rc::new(Version { slot, object, number: self.version, facts, author });
        self.services[slot] = Some(Rc::clone(&version));
        self.history[slot].push(Rc::clone(&version));
        self.news.push(News::Service(Rc::clone(&version)));
        version
    }

    /// Somebody who is not the controller writes the status of a Service.
    pub(crate) fn steal_status(&mut self, slot: usize, entries: &[(&str, &str)], wall: Timestamp) -> bool {
        let ingress: Vec<LoadBalancerIngress> = entries
            .iter()
            .map(|(ip, hostname)| LoadBalancerIngress {
                ip: (!ip.is_empty()).then(|| (*ip).to_owned()),
                hostname: (!hostname.is_empty()).then(|| (*hostname).to_owned()),
                ..LoadBalancerIngress::default()
            })
            .collect();
        self.change_service(slot, Author::Stranger, |object| {
            let ingress = (!ingress.is_empty()).then_some(ingress);
            object.status.get_or_insert_default().load_balancer = Some(LoadBalancerStatus { ingress });
            object.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
                manager: Some("other-lb".to_owned()),
                time: Some(seconds(wall)),
                subresource: Some("status".to_owned()),
                fields_v1: Some(FieldsV1(json!({ "f:status": { "f:loadBalancer": {} } }))),
                ..ManagedFieldsEntry::default()
            }]);
        })
    }

    pub(crate) fn apply_pool(&mut self, slot: usize, shape: &PoolShape, wall: Timestamp) {
        let mut object = match &self.pools[slot] {
            Some(pool) => IPAddressPool::clone(pool),
            None => {
                let metadata = self.metadata(SYSTEM, POOL_NAMES[slot], wall);
                IPAddressPool { metadata, ..IPAddressPool::default() }
            }
        };
        object.spec = shape.spec();
        self.pool_shapes[slot] = Some(shape.clone());
        self.store_pool(slot, object);
    }

    pub(crate) fn steal_pool_status(&mut self, slot: usize) -> bool {
        let Some(pool) = &self.pools[slot] else { return false };
        let mut object = IPAddressPool::clone(pool);
        object.status = Some(IPAddressPoolStatus { assigned_ipv4: 7, ..IPAddressPoolStatus::default() });
        self.store_pool(slot, object);
        true
    }

    pub(crate) fn delete_pool(&mut self, slot: usize) -> bool {
        let existed = self.pools[slot].take().is_some();
        if existed {
            self.version += 1;
            self.pool_shapes[slot] = None;
            self.news.push(News::PoolGone(slot));
        }
        existed
    }

    fn store_pool(&mut self, slot: usize, mut object: IPAddressPool) -> Rc<IPAddressPool> {
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        let object = Rc::new(object);
        self.pools[slot] = Some(Rc::clone(&object));
        self.news.push(News::Pool(Rc::clone(&object)));
        object
    }

    pub(crate) fn label_namespace(&mut self, index: usize, tier: &str) {
        let mut object = Namespace::clone(&self.namespaces[index]);
        object.metadata.labels =
            (!tier.is_empty()).then(|| [("tier".to_owned(), tier.to_owned())].into_iter().collect());
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        self.namespaces[index] = Rc::new(object);
        self.news.push(News::Namespace(Rc::clone(&self.namespaces[index])));
    }

    pub(crate) fn delete_state(&mut self) -> bool {
        let existed = self.state.take().is_some();
        if existed {
            self.news.push(News::StateGone);
        }
        existed
    }

    /// Does what a controller asks for.
    pub(crate) fn execute(&mut self, request: &ApiRequest) -> (WriteResult, Stored) {
        let name = request.name.as_deref().unwrap_or_default();
        let no_body = Value::Null;
        let body = request.body.as_ref().unwrap_or(&no_body);
        match (request.resource, request.verb) {
            (Resource::Services, Verb::Put) => match service_slot(name) {
                Some(slot) => self.put_service(slot, body),
                None => (Err(refusal(404, "NotFound")), Stored::Nothing),
            },
            (Resource::IPAddressPools, Verb::Put) => match pool_slot(name) {
                Some(slot) => self.put_pool(slot, body),
                None => (Err(refusal(404, "NotFound")), Stored::Nothing),
            },
            (Resource::ConfigurationStates, verb) => (self.write_state(verb, request, body), Stored::Nothing),
            _ => (Err(refusal(405, "MethodNotAllowed")), Stored::Nothing),
        }
    }

    fn put_service(&mut self, slot: usize, body: &Value) -> (WriteResult, Stored) {
        let Some(before) = self.services[slot].clone() else {
            return (Err(refusal(404, "NotFound")), Stored::Nothing);
        };
        if let Err(conflict) = up_to_date(&before.object.metadata, body) {
            return (Err(conflict), Stored::Nothing);
        }
        let mut object = before.object.clone();
        let metadata = &body["metadata"];
        object.metadata.annotations =
            serde_json::from_value(metadata["annotations"].clone()).unwrap_or_default();
        let balancer: Option<LoadBalancerStatus> =
            serde_json::from_value(body["status"]["loadBalancer"].clone()).unwrap_or_default();
        if let Some(balancer) = balancer {
            object.status.get_or_insert_default().load_balancer = Some(balancer);
        }
        let conditions = &body["status"]["conditions"];
        if !conditions.is_null() || object.status.as_ref().is_some_and(|status| status.conditions.is_some()) {
            object.status.get_or_insert_default().conditions =
                serde_json::from_value(conditions.clone()).unwrap_or_default();
        }
        default_modes(&mut object);
        let after = if object == before.object {
            Rc::clone(&before)
        } else {
            // Its own writes are filed under its own name.
            object.metadata.managed_fields = None;
            self.store_service(slot, object, Author::Controller)
        };
        let answer =
            serde_json::to_value(&after.object).map_err(|error| WriteError::no_answer(error.to_string()));
        (answer, Stored::Service { before, after })
    }

    fn put_pool(&mut self, slot: usize, body: &Value) -> (WriteResult, Stored) {
        let Some(before) = self.pools[slot].clone() else {
            return (Err(refusal(404, "NotFound")), Stored::Nothing);
        };
        if let Err(conflict) = up_to_date(&before.metadata, body) {
            return (Err(conflict), Stored::Nothing);
        }
        let status = serde_json::from_value(body["status"].clone()).unwrap_or_default();
        let mut after = before;
        if after.status != status {
            let object = IPAddressPool { status, ..IPAddressPool::clone(&after) };
            after = self.store_pool(slot, object);
        }
        let answer = serde_json::to_value(&*after).map_err(|error| WriteError::no_answer(error.to_string()));
        (answer, Stored::Pool(after))
    }

    /// A request about the Lease.
    pub(crate) fn execute_lease(&mut self, request: &LeaseRequest) -> Result<Lease, WriteError> {
        let mut lease = match (request, &self.lease) {
            (LeaseRequest::Read, Some(stored)) => return Ok(stored.clone()),
            (LeaseRequest::Read | LeaseRequest::Replace(_), None) => return Err(refusal(404, "NotFound")),
            (LeaseRequest::Create(_), Some(_)) => return Err(refusal(409, "AlreadyExists")),
            (LeaseRequest::Create(new), None) => Lease::clone(new),
            (LeaseRequest::Replace(new), Some(stored)) => {
                if new.metadata.resource_version != stored.metadata.resource_version {
                    return Err(refusal(409, "Conflict"));
                }
                Lease::clone(new)
            }
        };
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        Ok(lease)
    }

    /// A stranger writes conditions of a Service: its own, or ours.
    pub(crate) fn steal_conditions(&mut self, slot: usize, how: u64, wall: Timestamp) -> bool {
        let condition = |kind: &str, status: &str| Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: "Stolen".to_owned(),
            message: String::new(),
            last_transition_time: seconds(wall),
            observed_generation: None,
        };
        self.change_service(slot, Author::Stranger, |object| {
            let conditions = object.status.get_or_insert_default().conditions.get_or_insert_default();
            match how {
                0 => conditions.clear(),
                1 => conditions.push(condition("example.com/Other", "True")),
                2 => {
                    conditions.retain(|condition| condition.type_ != ALLOCATED_CONDITION);
                    conditions.push(condition(ALLOCATED_CONDITION, "False"));
                }
                _ => {
                    conditions.retain(|condition| condition.type_ != ANNOUNCED_CONDITION);
                    conditions.push(condition(ANNOUNCED_CONDITION, "Unknown"));
                }
            }
        })
    }

    /// A speaker begins or ceases to announce a Service.
    pub(crate) fn announce(&mut self, slot: usize) -> bool {
        let announced = !self.announced[slot];
        self.announced[slot] = announced;
        self.news.push(if announced { News::Announced(slot) } else { News::NotAnnounced(slot) });
        announced
    }

    fn write_state(&mut self, verb: Verb, request: &ApiRequest, body: &Value) -> WriteResult {
        let mut object = match (verb, &self.state) {
            (Verb::Create, Some(_)) => return Err(refusal(409, "AlreadyExists")),
            (Verb::Create, None) => {
                let mut object = body.clone();
                if let Some(fields) = object.as_object_mut() {
                    fields.remove("status");
                }
                object["metadata"]["uid"] = json!(format!("u{}", self.version));
                object
            }
            (_, None) => return Err(refusal(404, "NotFound")),
            (Verb::Apply { .. }, Some(state)) if request.subresource == Some("status") => {
                let mut object = Value::clone(state);
                object["status"]["conditions"] = body["status"]["conditions"].clone();
                object
            }
            (Verb::MergePatch { .. }, Some(state)) => {
                let mut object = Value::clone(state);
                merge(&mut object, body);
                object
            }
            _ => return Err(refusal(405, "MethodNotAllowed")),
        };
        if self.state.as_deref() != Some(&object) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            let object = Rc::new(object.clone());
            self.state = Some(Rc::clone(&object));
            self.news.push(News::State(object));
        }
        Ok(object)
    }
}

pub(crate) fn refusal(code: u16, reason: &str) -> WriteError {
    WriteError::refused(code, reason, "")
}

fn up_to_date(stored: &ObjectMeta, body: &Value) -> Result<(), WriteError> {
    let says = |field: &str| body["metadata"][field].as_str();
    let same =
        says("uid") == stored.uid.as_deref() && says("resourceVersion") == stored.resource_version.as_deref();
    if same { Ok(()) } else { Err(refusal(409, "Conflict")) }
}

/// The API server gives each entry with an address a mode.
fn default_modes(object: &mut Service) {
    let balancer = object.status.as_mut().and_then(|status| status.load_balancer.as_mut());
    for entry in balancer.and_then(|balancer| balancer.ingress.as_mut()).into_iter().flatten() {
        if entry.ip.is_some() && entry.ip_mode.is_none() {
            entry.ip_mode = Some("VIP".to_owned());
        }
    }
}

fn seconds(wall: Timestamp) -> MetaTime {
    MetaTime(Timestamp::from_second(wall.as_second()).unwrap_or(wall))
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

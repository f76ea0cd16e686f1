// SPDX-License-Identifier: Apache-2.0
//! A cluster that fits into a test: the core, the few verbs of an API server that it needs, and a clock to turn.
//!
//! Like an API server it numbers versions, refuses outdated ones, fills in defaults, and feeds every change back
//! through watches. It can be told to refuse writes.

use std::collections::{BTreeMap, VecDeque};

use ferrolb_api::event::Event;
use ferrolb_api::request::{ApiRequest, Resource, Verb, WriteError, WriteResult};
use ferrolb_api::{Change, Clock};
use ferrolb_controller_core::{Core, Effect, Input, Settings};
use ferrolb_ipam::Counters;
use ferrolb_net_types::Time;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Namespace of the configuration objects.
pub(crate) const SYSTEM: &str = "metallb-system";
/// Namespace of the Services, unless they say another one.
pub(crate) const NS: &str = "demo";

type Key = (String, String);
type Fate = Box<dyn FnMut(&ApiRequest) -> Option<WriteError>>;

pub(crate) struct Cluster {
    pub(crate) settings: Settings,
    core: Option<Core>,
    pub(crate) now: Time,
    objects: BTreeMap<&'static str, BTreeMap<Key, Value>>,
    version: u64,
    created: i64,
    inputs: VecDeque<Input>,
    /// Watch events are kept back while this is set.
    pub(crate) watches_lag: bool,
    lagging: VecDeque<Input>,
    /// The API server has no IPv6: whoever would like two families gets one.
    pub(crate) single_stack: bool,
    /// Where watch events go instead, if somebody else hands them over.
    pub(crate) news: Option<Vec<Input>>,
    /// Decides the fate of a write; `None` lets it pass.
    pub(crate) fate: Fate,
    /// Somebody who answers every write of a Service before the writer hears how it ended.
    pub(crate) rival: Option<&'static str>,
    pub(crate) events: Vec<Event>,
    pub(crate) writes: Vec<ApiRequest>,
    pub(crate) counters: BTreeMap<String, Counters>,
    pub(crate) configuration: Option<(bool, bool)>,
    pub(crate) reconciled: usize,
    /// How many writes the API server itself refused.
    pub(crate) refused: usize,
}

impl Cluster {
    /// A cluster with a running controller.
    pub(crate) fn new() -> Self {
        let mut cluster = Self::stopped(Settings {
            namespace: SYSTEM.to_owned(),
            pod_name: "controller-0".to_owned(),
            pod_uid: "pod-uid".to_owned(),
            field_manager: "controller".to_owned(),
            ..Settings::default()
        });
        cluster.start();
        cluster.quiet();
        cluster
    }

    /// A cluster whose controller does not run yet.
    pub(crate) fn stopped(settings: Settings) -> Self {
        let mut cluster = Self {
            settings,
            core: None,
            now: Time::millis(1),
            objects: BTreeMap::new(),
            version: 100,
            created: 1_700_000_000,
            inputs: VecDeque::new(),
            watches_lag: false,
            lagging: VecDeque::new(),
            single_stack: false,
            news: None,
            fate: Box::new(|_| None),
            rival: None,
            events: vec![],
            writes: vec![],
            counters: BTreeMap::new(),
            configuration: None,
            reconciled: 0,
            refused: 0,
        };
        cluster.namespace(NS, json!({}));
        cluster
    }

    /// A controller of this class.
    pub(crate) fn of_class(lb_class: &str) -> Self {
        let mut cluster = Self::new();
        cluster.stop();
        cluster.settings.lb_class = lb_class.to_owned();
        cluster.start();
        cluster.quiet();
        cluster
    }

    pub(crate) fn start(&mut self) {
        self.core = Some(Core::new(self.clock(), self.settings.clone()));
        self.inputs.clear();
        self.counters.clear();
        self.relist();
    }

    pub(crate) fn stop(&mut self) {
        self.core = None;
        self.inputs.clear();
    }

    /// Starts a controller and delivers its first lists in this order, a permutation of 0..5.
    pub(crate) fn start_in_order(&mut self, order: &[usize]) {
        self.start();
        let lists: Vec<Input> = self.inputs.drain(..).collect();
        self.inputs.extend(order.iter().map(|&n| lists[n].clone()));
    }

    /// Puts the inputs that wait to be delivered in this order.
    pub(crate) fn shuffle_inputs(&mut self, order: &[usize]) {
        let inputs: Vec<Input> = self.inputs.drain(..).collect();
        assert_eq!(inputs.len(), order.len());
        self.inputs.extend(order.iter().map(|&n| inputs[n].clone()));
    }

    /// Starts a controller to which Services are listed in this order.
    pub(crate) fn start_with_services_in_order(&mut self, order: &[usize]) {
        self.start();
        for input in &mut self.inputs {
            if let Input::Services(Change::Reset(services)) = input {
                assert_eq!(services.len(), order.len());
                *services = order.iter().map(|&n| services[n].clone()).collect();
            }
        }
    }

    /// Every watch lists anew.
    pub(crate) fn relist(&mut self) {
        self.inputs.push_back(Input::Services(Change::Reset(self.list("services"))));
        self.inputs.push_back(Input::Pools(Change::Reset(self.list("ipaddresspools"))));
        self.inputs.push_back(Input::Communities(Change::Reset(self.list("communities"))));
        self.inputs.push_back(Input::Namespaces(Change::Reset(self.list("namespaces"))));
        self.inputs.push_back(Input::ConfigurationStates(Change::Reset(self.list("configurationstates"))));
        if self.settings.conditions {
            self.inputs.push_back(Input::L2Statuses(Change::Reset(self.list("servicel2statuses"))));
            self.inputs.push_back(Input::BgpStatuses(Change::Reset(self.list("servicebgpstatuses"))));
        }
    }

    pub(crate) fn list<T: DeserializeOwned>(&self, plural: &str) -> Vec<T> {
        let objects = self.objects.get(plural).into_iter().flat_map(BTreeMap::values);
        objects.map(|object| serde_json::from_value(object.clone()).unwrap()).collect()
    }

    pub(crate) fn clock(&self) -> Clock {
        let wall = jiff::Timestamp::from_second(1_700_000_000).unwrap() + self.now.since_start();
        Clock { now: self.now, wall }
    }

    /// Lets everything happen that happens by itself within ten seconds.
    pub(crate) fn quiet(&mut self) {
        self.run_until(self.now + std::time::Duration::from_secs(10));
    }

    /// Lets everything happen that happens until then.
    pub(crate) fn run_until(&mut self, end: Time) {
        for _ in 0..1_000_000 {
            if self.step() {
                continue;
            }
            let Some(deadline) = self.core.as_ref().and_then(Core::next_deadline).filter(|at| *at <= end)
            else {
                self.now = end;
                return;
            };
            self.now = self.now.max(deadline);
            let clock = self.clock();
            if let Some(core) = &mut self.core {
                core.handle_timeout(clock);
            }
        }
        let last: Vec<_> = self.writes.iter().rev().take(4).collect();
        panic!("it does not come to rest at {:?}, last writes {last:#?}", self.now);
    }

    /// Hands over all inputs, or else takes one effect.
    fn step(&mut self) -> bool {
        let clock = self.clock();
        let Some(core) = &mut self.core else { return false };
        let mut moved = false;
        for input in self.inputs.drain(..) {
            core.handle(clock, input);
            moved = true;
        }
        let Some(effect) = core.poll() else { return moved };
        match effect {
            Effect::Event(event) => self.events.push(event),
            Effect::PoolCounters { pool, counters: Some(counters) } => {
                self.counters.insert(pool.to_string(), counters);
            }
            Effect::PoolCounters { pool, counters: None } => {
                self.counters.remove(pool.as_str());
            }
            Effect::Configuration { loaded, stale } => self.configuration = Some((loaded, stale)),
            Effect::Reconciled { .. } => self.reconciled += 1,
            Effect::Lease(_) | Effect::ListServices | Effect::FindRivals | Effect::Leads(_) => {
                unreachable!("this controller is alone")
            }
            Effect::Write { id, request } => {
                let result = match (self.fate)(&request) {
                    Some(error) => Err(error),
                    None => self.execute(&request),
                };
                self.refused += usize::from(result.is_err());
                if let Some(rival) = self.rival
                    && request.resource == Resource::Services
                    && result.is_ok()
                {
                    self.foreign_status(request.name.as_deref().unwrap(), json!(["9.9.9.9"]), rival);
                }
                self.writes.push(request);
                self.inputs.push_back(Input::Written { id, result });
            }
        }
        true
    }

    /// What an API server does with a write.
    pub(crate) fn execute(&mut self, request: &ApiRequest) -> WriteResult {
        let plural = request.resource.plural();
        let body = request.body.clone().unwrap_or_default();
        let name = request.name.clone().or_else(|| body["metadata"]["name"].as_str().map(str::to_owned));
        let key = (request.namespace.clone().unwrap(), name.unwrap());
        let old = self.objects.get(plural).and_then(|objects| objects.get(&key)).cloned();
        let mut new = match (&request.verb, old.clone()) {
            (Verb::Create, Some(_)) => return Err(refused(409, "AlreadyExists")),
            (Verb::Create, None) => {
                let mut object = body;
                object.as_object_mut().unwrap().remove("status");
                object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
                object
            }
            (_, None) => return Err(refused(404, "NotFound")),
            (Verb::Put, Some(old)) => {
                if body["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]
                    || body["metadata"]["uid"] != old["metadata"]["uid"]
                {
                    return Err(refused(409, "Conflict"));
                }
                let mut object = old;
                object["status"] = body["status"].clone();
                object["metadata"]["annotations"] = body["metadata"]["annotations"].clone();
                object
            }
            (Verb::MergePatch { .. }, Some(mut old)) => {
                merge(&mut old, &body);
                old
            }
            (Verb::Apply { .. }, Some(mut old)) => {
                old["status"]["conditions"] = body["status"]["conditions"].clone();
                old
            }
            (Verb::Delete, _) => unreachable!("the controller deletes nothing"),
        };
        if request.resource == Resource::Services {
            default_service_status(&mut new);
        }
        if old.as_ref().is_some_and(|old| prune(old.clone()) == prune(new.clone())) {
            return Ok(old.unwrap());
        }
        Ok(self.store(plural, new))
    }

    /// Stores an object as if somebody had written it, and tells the watches.
    pub(crate) fn store(&mut self, plural: &'static str, object: Value) -> Value {
        self.version += 1;
        let mut object = prune(object);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let key = key_of(&object);
        self.objects.entry(plural).or_default().insert(key, object.clone());
        let input = applied(plural, &object);
        self.deliver(input);
        object
    }

    fn deliver(&mut self, input: Input) {
        if let Some(news) = &mut self.news {
            news.push(input);
            return;
        }
        if self.core.is_none() {
            return;
        }
        if self.watches_lag { &mut self.lagging } else { &mut self.inputs }.push_back(input);
    }

    /// Watches catch up.
    pub(crate) fn catch_up(&mut self) {
        self.watches_lag = false;
        self.inputs.append(&mut self.lagging);
    }

    pub(crate) fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(plural)?.get(&(namespace.to_owned(), name.to_owned()))
    }

    pub(crate) fn objects(&self, plural: &str) -> impl Iterator<Item = &Value> {
        self.objects.get(plural).into_iter().flat_map(BTreeMap::values)
    }

    /// Creates or replaces a pool; `short` holds `name`, the fields of its spec, and perhaps `labels`.
    pub(crate) fn pool(&mut self, short: Value) {
        self.configure("ipaddresspools", "IPAddressPool", short);
    }

    pub(crate) fn community(&mut self, short: Value) {
        self.configure("communities", "Community", short);
    }

    fn configure(&mut self, plural: &'static str, kind: &str, mut short: Value) {
        let fields = short.as_object_mut().unwrap();
        let name = fields.remove("name").unwrap();
        let labels = fields.remove("labels");
        let old = self.object(plural, SYSTEM, name.as_str().unwrap()).cloned();
        let mut object = old.unwrap_or_else(|| {
            self.created += 1;
            json!({
                "apiVersion": "metallb.io/v1beta1", "kind": kind,
                "metadata": {
                    "name": name, "namespace": SYSTEM, "uid": format!("uid-{}", self.version),
                    "creationTimestamp": timestamp(self.created),
                },
            })
        });
        object["metadata"]["labels"] = labels.unwrap_or_default();
        object["spec"] = short;
        self.store(plural, object);
    }

    /// A namespace with these labels.
    pub(crate) fn namespace(&mut self, name: &str, labels: Value) {
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
        self.store("namespaces", object);
    }

    /// Creates a Service, or changes one, in the short form of the recordings.
    ///
    /// `ann` are annotations (keys without `/` are under `metallb.io/`, `null` removes), `st` a status that is there
    /// from the beginning, `dual`, `prefer`, `v6` families, `ports` numbers or maps; the rest is spec.
    pub(crate) fn service(&mut self, short: Value) {
        let mut fields = short.as_object().unwrap().clone();
        let name = fields.remove("name").unwrap().as_str().unwrap().to_owned();
        let namespace = fields.remove("ns").map_or(NS.to_owned(), |ns| ns.as_str().unwrap().to_owned());
        let mut metadata = Map::new();
        if let Some(Value::Object(notes)) = fields.remove("ann") {
            let full = |key: String| if key.contains('/') { key } else { format!("metallb.io/{key}") };
            let notes: Map<String, Value> =
                notes.into_iter().map(|(key, value)| (full(key), value)).collect();
            metadata.insert("annotations".to_owned(), notes.into());
        }
        if let Some(labels) = fields.remove("labels") {
            metadata.insert("labels".to_owned(), labels);
        }
        let status = fields.remove("st").map(ingress);
        let mut spec = Map::new();
        if let Some(ports) = fields.remove("ports") {
            let port = |(n, port): (usize, &Value)| match port {
                Value::Number(number) => {
                    json!({ "name": format!("p{n}"), "port": number, "protocol": "TCP" })
                }
                other => {
                    let mut port = other.clone();
                    port["name"] = json!(format!("p{n}"));
                    port
                }
            };
            let ports: Vec<Value> = ports.as_array().unwrap().iter().enumerate().map(port).collect();
            spec.insert("ports".to_owned(), ports.into());
        }
        let families = [("dual", "RequireDualStack"), ("prefer", "PreferDualStack"), ("v6", "SingleStack")];
        let is_new = self.object("services", &namespace, &name).is_none();
        let mut cluster_ips = is_new.then(|| json!(["10.96.0.1"]));
        for (word, policy) in families {
            if fields.remove(word) == Some(json!(true)) {
                spec.insert("ipFamilyPolicy".to_owned(), json!(policy));
                cluster_ips = Some(match word {
                    "v6" => json!(["fd00:96::1"]),
                    "prefer" if self.single_stack => json!(["10.96.0.1"]),
                    _ => json!(["10.96.0.1", "fd00:96::1"]),
                });
                let families = match (word, self.single_stack) {
                    ("v6", _) => json!(["IPv6"]),
                    ("prefer", true) => json!(["IPv4"]),
                    _ => json!(["IPv4", "IPv6"]),
                };
                spec.insert("ipFamilies".to_owned(), families);
            }
        }
        if let Some(ips) = cluster_ips {
            spec.insert("clusterIP".to_owned(), ips[0].clone());
            spec.insert("clusterIPs".to_owned(), ips);
        }
        spec.extend(fields);
        let change = json!({ "metadata": metadata, "spec": spec });
        let mut object = if is_new {
            self.created += 1;
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {
                    "name": name, "namespace": namespace, "uid": format!("uid-{}", self.version),
                    "creationTimestamp": timestamp(self.created),
                },
                "spec": {
                    "type": "LoadBalancer", "selector": { "app": name },
                    "ports": [{ "name": "p0", "port": 80, "protocol": "TCP" }],
                },
            })
        } else {
            self.object("services", &namespace, &name).unwrap().clone()
        };
        merge(&mut object, &change);
        if let Some(ingress) = status {
            object["status"]["loadBalancer"]["ingress"] = ingress;
        }
        default_service_status(&mut object);
        self.store("services", object);
    }

    /// Somebody called `manager` writes a Service's status: texts are `ip`s.
    pub(crate) fn foreign_status(&mut self, name: &str, list: Value, manager: &str) {
        let mut object = self.object("services", NS, name).unwrap().clone();
        object["status"]["loadBalancer"] = json!({ "ingress": ingress(list) });
        object["metadata"]["managedFields"] = json!([{
            "manager": manager, "operation": "Update", "subresource": "status", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": { "f:status": { "f:loadBalancer": { "f:ingress": {} } } },
            "time": timestamp(self.created),
        }]);
        default_service_status(&mut object);
        self.store("services", object);
    }

    /// Merges into an object as somebody else would.
    pub(crate) fn patch(&mut self, plural: &'static str, namespace: &str, name: &str, patch: &Value) {
        let mut object = self.object(plural, namespace, name).unwrap().clone();
        merge(&mut object, patch);
        self.store(plural, object);
    }

    pub(crate) fn delete(&mut self, plural: &'static str, namespace: &str, name: &str) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        if self.objects.get_mut(plural).is_none_or(|objects| objects.remove(&key).is_none()) {
            return false;
        }
        self.version += 1;
        let input = deleted(plural, namespace, name);
        self.deliver(input);
        true
    }

    pub(crate) fn delete_service(&mut self, name: &str) {
        assert!(self.delete("services", NS, name), "no Service {name}");
    }

    /// The addresses in a Service's status, with a blank between.
    pub(crate) fn ips(&self, name: &str) -> String {
        let object = self.object("services", NS, name).unwrap_or_else(|| panic!("no Service {name}"));
        let entries = object["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
        let text = |entry: &Value| entry["ip"].as_str().unwrap_or("hostname").to_owned();
        entries.iter().map(text).collect::<Vec<_>>().join(" ")
    }

    /// The pool that a Service's annotation names.
    pub(crate) fn pool_of(&self, name: &str) -> Option<&str> {
        let object = self.object("services", NS, name).unwrap();
        object["metadata"]["annotations"]["metallb.io/ip-allocated-from-pool"].as_str()
    }

    /// The events since this was asked last, as `name Type Reason: message`.
    pub(crate) fn told(&mut self) -> Vec<String> {
        let line = |e: Event| format!("{} {} {}: {}", e.regarding.name, e.kind.as_str(), e.reason, e.message);
        self.events.drain(..).map(line).collect()
    }

    /// The writes to Services since this was asked last.
    pub(crate) fn service_writes(&mut self) -> Vec<ApiRequest> {
        let is_service = |request: &mut ApiRequest| request.resource == Resource::Services;
        self.writes.extract_if(.., is_service).collect()
    }
}

fn refused(code: u16, reason: &str) -> WriteError {
    WriteError::refused(code, reason, reason)
}

fn timestamp(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}

fn ingress(list: Value) -> Value {
    let entry = |entry: &Value| match entry {
        Value::String(ip) => json!({ "ip": ip }),
        other => other.clone(),
    };
    list.as_array().unwrap().iter().map(entry).collect()
}

/// An API server gives every entry that has an address a mode, and a Service that is no load balancer no status.
fn default_service_status(object: &mut Value) {
    if object["spec"]["type"] != "LoadBalancer" {
        object["status"] = json!({ "loadBalancer": {} });
    }
    if let Some(entries) = object["status"]["loadBalancer"]["ingress"].as_array_mut() {
        for entry in entries {
            if entry["ip"].is_string() && entry["ipMode"].is_null() {
                entry["ipMode"] = json!("VIP");
            }
        }
    }
}

fn key_of(object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

fn applied(plural: &str, object: &Value) -> Input {
    fn change<T: DeserializeOwned>(object: &Value) -> Change<T> {
        Change::Applied(Box::new(serde_json::from_value(object.clone()).unwrap()))
    }
    match plural {
        "services" => Input::Services(change(object)),
        "ipaddresspools" => Input::Pools(change(object)),
        "communities" => Input::Communities(change(object)),
        "namespaces" => Input::Namespaces(change(object)),
        "servicel2statuses" => Input::L2Statuses(change(object)),
        "servicebgpstatuses" => Input::BgpStatuses(change(object)),
        _ => Input::ConfigurationStates(change(object)),
    }
}

fn deleted(plural: &str, namespace: &str, name: &str) -> Input {
    fn change<T>(namespace: &str, name: &str) -> Change<T> {
        Change::Deleted { namespace: namespace.to_owned(), name: name.to_owned() }
    }
    match plural {
        "services" => Input::Services(change(namespace, name)),
        "ipaddresspools" => Input::Pools(change(namespace, name)),
        "communities" => Input::Communities(change(namespace, name)),
        "namespaces" => Input::Namespaces(change(namespace, name)),
        "servicel2statuses" => Input::L2Statuses(change(namespace, name)),
        "servicebgpstatuses" => Input::BgpStatuses(change(namespace, name)),
        _ => Input::ConfigurationStates(change(namespace, name)),
    }
}

/// JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// Leaves out what is null or empty, as stored objects do, and what changes with every write.
fn prune(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let keep = |(key, value): (String, Value)| {
                let value = prune(value);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                (!empty || key == "spec" || key == "serviceAllocation").then_some((key, value))
            };
            Value::Object(fields.into_iter().filter_map(keep).collect())
        }
        other => other,
    }
}

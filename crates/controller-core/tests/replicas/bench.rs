// SPDX-License-Identifier: Apache-2.0
//! Several controllers on one API server: with the Lease, Pods and nodes, pauses, deaths, late writes and outages.
//!
//! Whatever a test does, the bench watches over the rule that everything rests on: no address is written that did not
//! stand in the Lease, as an intent for that version of that Service, in an update of the writer's that succeeded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ferrolb_api::event::Event;
use ferrolb_api::request::{ApiRequest, Resource, WriteError, WriteResult};
use ferrolb_api::{Change, Clock};
use ferrolb_controller_core::{Core, Effect, Input, LeaseRequest, Neighbours, Replicas, Settings, WriteId};
use ferrolb_net_types::Time;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};

use crate::cluster::{Cluster, SYSTEM};

/// A write that was sent and is still on its way.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    replica: usize,
    id: WriteId,
    request: ApiRequest,
}

/// One controller.
pub(crate) struct Replica {
    core: Option<Core>,
    settings: Settings,
    inputs: VecDeque<Input>,
    /// It neither hears nor does anything; its clock goes on.
    pub(crate) paused: bool,
    /// Its watches deliver nothing.
    pub(crate) blind: bool,
    /// Writes of Services' statuses stay on their way.
    pub(crate) slow: bool,
    /// What it did not see of the watches.
    unseen: VecDeque<Input>,
    pub(crate) leads: bool,
    pub(crate) events: Vec<Event>,
    /// Every write it sent.
    pub(crate) sent: Vec<ApiRequest>,
    pub(crate) counters: BTreeMap<String, i64>,
    /// Intents that stood in the Lease by an update of its own, by uid and version.
    committed: BTreeSet<(String, String, String)>,
}

type Fate<T> = Box<dyn FnMut(usize, &T) -> Option<WriteError>>;

pub(crate) struct Bench {
    pub(crate) api: Cluster,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) now: Time,
    pub(crate) lease: Option<Lease>,
    version: u64,
    /// The API server answers nobody.
    pub(crate) away: bool,
    pub(crate) late: Vec<Late>,
    /// Decides the fate of a write; `None` lets it pass.
    pub(crate) fate: Fate<ApiRequest>,
    /// The same for requests about the Lease.
    pub(crate) lease_fate: Fate<LeaseRequest>,
    /// Readings of all Services that wait for their answer, if they are held.
    pub(crate) hold_readings: bool,
    readings: Vec<(usize, Input)>,
    pub(crate) neighbours: Result<Neighbours, WriteError>,
    /// Looks for rivals.
    pub(crate) looks: usize,
    /// Requests about the Lease.
    pub(crate) lease_requests: usize,
    /// Every annotation of intents that was stored.
    pub(crate) annotations: Vec<String>,
}

pub(crate) fn identity(n: usize) -> String {
    format!("controller-{n}_uid-controller-{n}")
}

impl Bench {
    /// A cluster with these pools, and this many controllers that share a Lease.
    pub(crate) fn with_lease(count: usize) -> Self {
        Self::new(count, |n| Replicas::Lease { identity: identity(n) })
    }

    /// One controller that looks for rivals.
    pub(crate) fn with_rivals() -> Self {
        Self::new(1, |_| Replicas::Rivals)
    }

    fn new(count: usize, replicas: impl Fn(usize) -> Replicas) -> Self {
        let settings = |n: usize| Settings {
            namespace: SYSTEM.to_owned(),
            pod_name: format!("controller-{n}"),
            pod_uid: format!("uid-controller-{n}"),
            field_manager: "controller".to_owned(),
            replicas: replicas(n),
            ..Settings::default()
        };
        let mut api = Cluster::stopped(settings(0));
        api.news = Some(vec![]);
        api.pool(json!({ "name": "p", "addresses": ["1.2.3.0/29"] }));
        let replica = |n| Replica {
            core: None,
            settings: settings(n),
            inputs: VecDeque::new(),
            paused: false,
            blind: false,
            slow: false,
            unseen: VecDeque::new(),
            leads: false,
            events: vec![],
            sent: vec![],
            counters: BTreeMap::new(),
            committed: BTreeSet::new(),
        };
        Self {
            api,
            replicas: (0..count).map(replica).collect(),
            now: Time::millis(1),
            lease: None,
            version: 1_000_000,
            away: false,
            late: vec![],
            fate: Box::new(|_, _| None),
            lease_fate: Box::new(|_, _| None),
            hold_readings: false,
            readings: vec![],
            neighbours: Ok(Neighbours::default()),
            looks: 0,
            lease_requests: 0,
            annotations: vec![],
        }
    }

    /// Conditions are written.
    pub(crate) fn conditions(mut self) -> Self {
        for replica in &mut self.replicas {
            replica.settings.conditions = true;
        }
        self
    }

    pub(crate) fn start(&mut self, n: usize) {
        self.spread();
        let clock = self.clock();
        let replica = &mut self.replicas[n];
        replica.core = Some(Core::new(clock, replica.settings.clone()));
        replica.inputs.clear();
        replica.unseen.clear();
        replica.committed.clear();
        (replica.leads, replica.paused, replica.blind, replica.slow) = (false, false, false, false);
        self.relist(n);
    }

    /// All watches of a replica start over.
    pub(crate) fn relist(&mut self, n: usize) {
        self.spread();
        let replica = &mut self.replicas[n];
        let inputs = [
            Input::Services(Change::Reset(self.api.list("services"))),
            Input::Pools(Change::Reset(self.api.list("ipaddresspools"))),
            Input::Communities(Change::Reset(vec![])),
            Input::Namespaces(Change::Reset(self.api.list("namespaces"))),
            Input::ConfigurationStates(Change::Reset(self.api.list("configurationstates"))),
            Input::L2Statuses(Change::Reset(self.api.list("servicel2statuses"))),
            Input::BgpStatuses(Change::Reset(self.api.list("servicebgpstatuses"))),
        ];
        replica.unseen.clear();
        replica.inputs.extend(inputs);
    }

    /// A replica hears this next.
    pub(crate) fn deliver(&mut self, n: usize, input: Input) {
        self.replicas[n].inputs.push_back(input);
    }

    /// It dies, without a word.
    pub(crate) fn kill(&mut self, n: usize) {
        self.replicas[n].core = None;
        self.replicas[n].leads = false;
    }

    /// It is told to end.
    pub(crate) fn stop(&mut self, n: usize) {
        self.replicas[n].inputs.push_back(Input::Stopping);
    }

    pub(crate) fn is_stopped(&self, n: usize) -> bool {
        self.replicas[n].core.as_ref().is_some_and(Core::is_stopped)
    }

    /// A replica sees what it missed.
    pub(crate) fn open_eyes(&mut self, n: usize) {
        self.spread();
        let replica = &mut self.replicas[n];
        replica.blind = false;
        replica.inputs.append(&mut replica.unseen);
    }

    pub(crate) fn clock(&self) -> Clock {
        let wall = jiff::Timestamp::from_second(1_700_000_000).unwrap() + self.now.since_start();
        Clock { now: self.now, wall }
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    pub(crate) fn run_until(&mut self, end: Time) {
        for _ in 0..1_000_000 {
            if self.step() {
                continue;
            }
            let awake = self.replicas.iter().filter(|replica| !replica.paused);
            let deadlines = awake.filter_map(|replica| replica.core.as_ref()?.next_deadline());
            let Some(deadline) = deadlines.min().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(deadline);
            let clock = self.clock();
            for replica in self.replicas.iter_mut().filter(|replica| !replica.paused) {
                if let Some(core) = &mut replica.core
                    && core.next_deadline().is_some_and(|at| at <= clock.now)
                {
                    core.handle_timeout(clock);
                }
            }
        }
        panic!("it does not come to rest at {:?}", self.now);
    }

    /// Runs until something is so; how long that took.
    pub(crate) fn until(&mut self, limit: Duration, is_so: impl Fn(&Self) -> bool) -> Duration {
        let start = self.now;
        while !is_so(self) {
            assert!(self.now - start < limit, "not within {limit:?}");
            self.run_for(Duration::from_millis(10));
        }
        self.now - start
    }

    /// Hands what is new to every replica.
    fn spread(&mut self) {
        for input in std::mem::take(self.api.news.as_mut().unwrap()) {
            for replica in &mut self.replicas {
                let queue = if replica.blind { &mut replica.unseen } else { &mut replica.inputs };
                queue.push_back(input.clone());
            }
        }
    }

    fn step(&mut self) -> bool {
        self.spread();
        let clock = self.clock();
        let mut moved = false;
        for n in 0..self.replicas.len() {
            let replica = &mut self.replicas[n];
            let Some(core) = &mut replica.core else {
                replica.inputs.clear();
                continue;
            };
            if replica.paused {
                continue;
            }
            for input in replica.inputs.drain(..) {
                core.handle(clock, input);
                moved = true;
            }
            while let Some(effect) = self.replicas[n].core.as_mut().and_then(Core::poll) {
                self.carry_out(n, effect);
                moved = true;
            }
        }
        moved
    }

    fn carry_out(&mut self, n: usize, effect: Effect) {
        let input = match effect {
            Effect::Event(event) => {
                self.replicas[n].events.push(event);
                return;
            }
            Effect::PoolCounters { pool, counters } => {
                let in_use = counters.map_or(-1, |counters| counters.ipv4.in_use);
                self.replicas[n].counters.insert(pool.to_string(), in_use);
                return;
            }
            Effect::Leads(leads) => {
                self.replicas[n].leads = leads;
                return;
            }
            Effect::Configuration { .. } | Effect::Reconciled { .. } => return,
            Effect::Write { id, request } => {
                self.check(n, &request);
                self.replicas[n].sent.push(request.clone());
                if self.replicas[n].slow && request.resource == Resource::Services {
                    self.late.push(Late { replica: n, id, request });
                    return;
                }
                let result = self.write(n, &request);
                Input::Written { id, result }
            }
            Effect::Lease(request) => {
                self.lease_requests += 1;
                let refused = (self.lease_fate)(n, &request);
                let result = match refused {
                    Some(error) => Err(error),
                    None if self.away => Err(WriteError::no_answer("away")),
                    None => self.lease(n, request),
                };
                Input::Lease(result.map(Box::new))
            }
            Effect::ListServices => {
                let list = self.api.list("services");
                let result = if self.away { Err(WriteError::no_answer("away")) } else { Ok(list) };
                if self.hold_readings {
                    self.readings.push((n, Input::ServicesListed(result)));
                    return;
                }
                Input::ServicesListed(result)
            }
            Effect::FindRivals => {
                self.looks += 1;
                Input::RivalsFound(self.neighbours.clone())
            }
        };
        self.replicas[n].inputs.push_back(input);
    }

    fn write(&mut self, n: usize, request: &ApiRequest) -> WriteResult {
        if let Some(error) = (self.fate)(n, request) {
            return Err(error);
        }
        if self.away { Err(WriteError::no_answer("away")) } else { self.api.execute(request) }
    }

    /// Answers the readings that were held.
    pub(crate) fn release_readings(&mut self) {
        self.hold_readings = false;
        for (n, input) in std::mem::take(&mut self.readings) {
            self.replicas[n].inputs.push_back(input);
        }
    }

    pub(crate) fn held_readings(&self) -> usize {
        self.readings.len()
    }

    /// The writes that are on their way arrive. Their senders hear of it.
    pub(crate) fn arrive(&mut self) -> Vec<WriteResult> {
        let mut results = vec![];
        for late in std::mem::take(&mut self.late) {
            let result = self.write(late.replica, &late.request);
            let input = Input::Written { id: late.id, result: result.clone() };
            self.replicas[late.replica].inputs.push_back(input);
            results.push(result);
        }
        results
    }

    /// Their senders give up waiting for the writes that are on their way; they may still arrive.
    pub(crate) fn give_up_waiting(&mut self) {
        for late in &self.late {
            let result = Err(WriteError::no_answer("no answer within 15 s"));
            self.replicas[late.replica].inputs.push_back(Input::Written { id: late.id, result });
        }
    }

    fn lease(&mut self, n: usize, request: LeaseRequest) -> Result<Lease, WriteError> {
        let refused = |code, reason: &str| Err(WriteError::refused(code, reason, reason));
        let mut new = match (request, &self.lease) {
            (LeaseRequest::Read, Some(lease)) => return Ok(lease.clone()),
            (LeaseRequest::Read | LeaseRequest::Replace(_), None) => return refused(404, "NotFound"),
            (LeaseRequest::Create(_), Some(_)) => return refused(409, "AlreadyExists"),
            (LeaseRequest::Create(lease), None) => lease,
            (LeaseRequest::Replace(new), Some(lease)) => {
                if new.metadata.resource_version != lease.metadata.resource_version {
                    return refused(409, "Conflict");
                }
                new
            }
        };
        self.version += 1;
        new.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(*new.clone());
        for intent in self.intents() {
            let text = |field: &str| intent[field].as_str().unwrap().to_owned();
            self.replicas[n].committed.insert((text("uid"), text("rv"), intent["ips"].to_string()));
        }
        self.annotations.extend(self.annotation());
        Ok(*new)
    }

    fn annotation(&self) -> Option<String> {
        self.lease.as_ref()?.metadata.annotations.as_ref()?.get("ferrolb.io/intents").cloned()
    }

    /// What stands in the Lease.
    pub(crate) fn intents(&self) -> Vec<Value> {
        self.annotation().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    pub(crate) fn holder(&self) -> String {
        let spec = self.lease.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        spec.holder_identity.unwrap_or_default()
    }

    /// Somebody changes the Lease by hand.
    pub(crate) fn edit_lease(&mut self, edit: impl FnOnce(&mut Lease)) {
        self.version += 1;
        let lease = self.lease.as_mut().unwrap();
        edit(lease);
        lease.metadata.resource_version = Some(self.version.to_string());
    }

    /// A Lease that a controller which is gone left, with these intents.
    pub(crate) fn leave_lease(&mut self, intents: &Value) {
        let lease = json!({
            "metadata": {
                "name": "ferrolb-controller", "namespace": SYSTEM, "resourceVersion": "1",
                "annotations": { "ferrolb.io/intents": intents.to_string() },
            },
            "spec": { "holderIdentity": "gone_uid", "leaseDurationSeconds": 4 },
        });
        self.lease = Some(serde_json::from_value(lease).unwrap());
    }

    /// No address is written that was not announced in the Lease.
    fn check(&self, n: usize, request: &ApiRequest) {
        let replica = &self.replicas[n];
        if request.resource != Resource::Services
            || !matches!(replica.settings.replicas, Replicas::Lease { .. })
        {
            return;
        }
        let body = request.body.as_ref().unwrap();
        let ips = |status: &Value| {
            let list = status["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
            Value::Array(list.iter().map(|entry| entry["ip"].clone()).collect())
        };
        let name = request.name.as_deref().unwrap();
        let namespace = request.namespace.as_deref().unwrap();
        let stored = self.api.object("services", namespace, name);
        let same_version = stored
            .filter(|stored| stored["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"]);
        if same_version.is_some_and(|stored| ips(&stored["status"]) == ips(&body["status"])) {
            return;
        }
        let text = |field: &str| body["metadata"][field].as_str().unwrap().to_owned();
        let intent = (text("uid"), text("resourceVersion"), ips(&body["status"]).to_string());
        // A write of conditions alone repeats the addresses of its version.
        let repeats = stored.is_some()
            && same_version.is_none()
            && ips(&body["status"]) == ips(&stored.unwrap()["status"]);
        assert!(repeats || replica.committed.contains(&intent), "{intent:?} was not committed by {n}");
    }

    /// The statuses of Services that a replica sent, by name.
    pub(crate) fn sent(&self, n: usize) -> Vec<String> {
        let writes = self.replicas[n].sent.iter().filter(|request| request.resource == Resource::Services);
        writes.map(|request| request.name.clone().unwrap()).collect()
    }

    pub(crate) fn service(&mut self, short: Value) {
        self.api.service(short);
    }

    pub(crate) fn ips(&self, name: &str) -> String {
        self.api.ips(name)
    }
}

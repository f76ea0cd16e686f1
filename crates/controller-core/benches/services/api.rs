// SPDX-License-Identifier: Apache-2.0
//! The other side of the controller's core: texts as they come over the wire, and a stopwatch that runs only while
//! the controller works.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ferrolb_api::request::{ApiRequest, Resource};
use ferrolb_api::{Change, Clock};
use ferrolb_controller_core::{Core, Effect, Input, Settings};
use ferrolb_net_types::Time;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::table::cpu_time;

/// The namespace of the configuration.
const SYSTEM: &str = "metallb-system";

/// An API server of Services and pools, and a controller that has to do with it.
///
/// Measured is what a controller does with each object: reading the text of a watch event, deciding, writing the text
/// of a request, reading the text of its answer. What the server does with a write is not.
pub(crate) struct Api {
    core: Core,
    now: u64,
    /// Texts by name.
    services: BTreeMap<String, String>,
    pools: BTreeMap<String, String>,
    /// The ConfigurationState.
    state: Value,
    events: VecDeque<String>,
    version: u64,
    worked: Duration,
    /// Writes of a Service's status so far.
    pub(crate) service_writes: usize,
    /// All other writes so far.
    pub(crate) other_writes: usize,
}

impl Api {
    /// A server without objects, and a controller that has not listed them yet.
    pub(crate) fn new() -> Self {
        Self {
            core: Core::new(clock(0), settings()),
            now: 1,
            services: BTreeMap::new(),
            pools: BTreeMap::new(),
            state: json!({}),
            events: VecDeque::new(),
            version: 1_000,
            worked: Duration::ZERO,
            service_writes: 0,
            other_writes: 0,
        }
    }

    /// A controller starts among what is there.
    pub(crate) fn start(&mut self) {
        self.core = Core::new(clock(self.now), settings());
        let (services, pools): (Vec<&String>, Vec<&String>) =
            (self.services.values().collect(), self.pools.values().collect());
        let start = cpu_time();
        let now = clock(self.now);
        self.core
            .handle(now, Input::Services(Change::Reset(services.into_iter().map(|s| read(s)).collect())));
        self.core.handle(now, Input::Pools(Change::Reset(pools.into_iter().map(|p| read(p)).collect())));
        self.core.handle(now, Input::Communities(Change::Reset(vec![])));
        self.core.handle(now, Input::Namespaces(Change::Reset(vec![])));
        self.core.handle(now, Input::ConfigurationStates(Change::Reset(vec![])));
        self.worked += cpu_time() - start;
    }

    /// Creates Services, or replaces them; the controller hears of them with the next [`Api::quiet`].
    pub(crate) fn put_services(
        &mut self,
        names: impl IntoIterator<Item = usize>,
        change: impl Fn(&mut Value),
    ) {
        for n in names {
            let name = format!("service-{n:05}");
            let mut object = match self.services.get(&name) {
                Some(text) => serde_json::from_str(text).unwrap(),
                None => service(&name, n),
            };
            change(&mut object);
            self.store(object, false);
        }
    }

    /// Creates or replaces a pool.
    pub(crate) fn put_pool(&mut self, addresses: &[&str]) {
        let object = json!({
            "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
            "metadata": { "name": "p", "namespace": SYSTEM, "uid": "uid-p", "creationTimestamp": "2024-01-01T00:00:00Z" },
            "spec": { "addresses": addresses },
        });
        self.store(object, true);
    }

    /// Deletes a Service.
    pub(crate) fn delete_service(&mut self, n: usize) {
        let name = format!("service-{n:05}");
        self.services.remove(&name);
        let start = cpu_time();
        let change = Change::Deleted { namespace: "demo".to_owned(), name };
        self.core.handle(clock(self.now), Input::Services(change));
        self.worked += cpu_time() - start;
    }

    /// Lets the controller do everything that there is to do; how long it worked since this was asked last.
    pub(crate) fn quiet(&mut self) -> Duration {
        loop {
            self.deliver();
            let start = cpu_time();
            let effect = self.core.poll();
            let request = match effect {
                Some(Effect::Write { id, request }) => {
                    let text = serde_json::to_vec(&request.wire_body()).unwrap();
                    Some((id, request, text))
                }
                Some(_) => None,
                None => {
                    let deadline = self.core.next_deadline();
                    self.worked += cpu_time() - start;
                    let Some(deadline) = deadline.filter(|at| *at < Time::millis(self.now + 10_000)) else {
                        break;
                    };
                    self.now = self.now.max(u64::try_from(deadline.since_start().as_millis()).unwrap());
                    self.core.handle_timeout(clock(self.now));
                    continue;
                }
            };
            self.worked += cpu_time() - start;
            let Some((id, request, text)) = request else { continue };
            let answer = self.write(&request, &text);
            let start = cpu_time();
            let stored: Value = read(&answer);
            self.core.handle(clock(self.now), Input::Written { id, result: Ok(stored) });
            self.worked += cpu_time() - start;
        }
        std::mem::take(&mut self.worked)
    }

    /// Hands over what the watches have.
    fn deliver(&mut self) {
        while let Some(text) = self.events.pop_front() {
            let start = cpu_time();
            let input = if text.contains(r#""kind":"IPAddressPool""#) {
                Input::Pools(Change::Applied(Box::new(read(&text))))
            } else {
                Input::Services(Change::Applied(Box::new(read(&text))))
            };
            self.core.handle(clock(self.now), input);
            self.worked += cpu_time() - start;
        }
    }

    /// What the server does with a write; its answer.
    fn write(&mut self, request: &ApiRequest, text: &[u8]) -> String {
        let body: Value = serde_json::from_slice(text).unwrap();
        match request.resource {
            Resource::Services => {
                self.service_writes += 1;
                let mut stored: Value =
                    serde_json::from_str(&self.services[request.name.as_ref().unwrap()]).unwrap();
                stored["status"] = body["status"].clone();
                stored["metadata"]["annotations"] = body["metadata"]["annotations"].clone();
                for entry in stored["status"]["loadBalancer"]["ingress"].as_array_mut().into_iter().flatten()
                {
                    entry["ipMode"] = json!("VIP");
                }
                self.store(stored, false)
            }
            Resource::IPAddressPools => {
                self.other_writes += 1;
                self.store(body, true)
            }
            _ => {
                self.other_writes += 1;
                self.version += 1;
                merge(&mut self.state, &body);
                self.state["metadata"]["resourceVersion"] = json!(self.version.to_string());
                self.state["metadata"]["uid"] = json!("uid-state");
                self.state.to_string()
            }
        }
    }

    fn store(&mut self, mut object: Value, is_pool: bool) -> String {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let text = object.to_string();
        if is_pool { &mut self.pools } else { &mut self.services }.insert(name, text.clone());
        self.events.push_back(text.clone());
        text
    }

    /// How many Services have an address.
    pub(crate) fn served(&self) -> usize {
        self.services.values().filter(|text| text.contains(r#""ingress":[{"#)).count()
    }
}

/// What creating, patching and applying come to where nothing is removed.
fn merge(target: &mut Value, new: &Value) {
    match (target, new) {
        (Value::Object(target), Value::Object(new)) => {
            for (key, value) in new {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, new) => *target = new.clone(),
    }
}

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

fn clock(millis: u64) -> Clock {
    let wall = jiff::Timestamp::from_second(1_700_000_000).unwrap() + Duration::from_millis(millis);
    Clock { now: Time::millis(millis), wall }
}

fn settings() -> Settings {
    Settings { namespace: SYSTEM.to_owned(), field_manager: "controller".to_owned(), ..Settings::default() }
}

/// A Service as an API server tells of it, `managedFields` and all.
fn service(name: &str, n: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "namespace": "demo", "uid": format!("4d2f8a1c-0000-4000-8000-{n:012}"),
            "creationTimestamp": "2024-01-01T00:00:00Z",
            "labels": { "app": name, "app.kubernetes.io/managed-by": "Helm", "team": "payments" },
            "annotations": { "meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": "demo" },
            "managedFields": [{
                "manager": "helm", "operation": "Update", "apiVersion": "v1", "time": "2024-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": { "f:annotations": { ".": {}, "f:meta.helm.sh/release-name": {} },
                        "f:labels": { ".": {}, "f:app": {}, "f:team": {} } },
                    "f:spec": { "f:allocateLoadBalancerNodePorts": {}, "f:externalTrafficPolicy": {},
                        "f:internalTrafficPolicy": {}, "f:ports": { ".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {
                            ".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {} } },
                        "f:selector": {}, "f:sessionAffinity": {}, "f:type": {} },
                },
            }],
        },
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "allocateLoadBalancerNodePorts": true,
            "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "ports": [{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30000 }],
            "selector": { "app": name },
        },
        "status": { "loadBalancer": {} },
    })
}

// SPDX-License-Identifier: Apache-2.0
//! Rows of behaviour, one per case, under the id that the case has in our catalogue: what is done, step by step, and
//! everything that can be seen of it afterwards, in the exact words.
//!
//! What is seen is a list of lines. A Service that is new, or whose addresses or pool annotation changed, is one
//! line, `name: addresses (pool)` or `name: none`; then come the events, as they are told. A step that changes and
//! tells nothing has no line. Every row is played three times: as it is, with a `loadBalancerClass` on both sides,
//! and, where it has one family only, on an API server that knows no other. In all of them every Service that
//! changes costs one write, others none, and a restart at the end writes nothing and moves nobody.

mod created;
mod edges;
mod families;
mod figures;
mod lifetime;
mod pools;
mod services;
mod sharing;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cluster::{Cluster, NS};
use crate::recorded::act;

/// One case.
pub(crate) struct Row {
    id: &'static str,
    about: &'static str,
    steps: Vec<Step>,
}

struct Step {
    acts: Vec<Value>,
    seen: Vec<String>,
}

/// A case without steps yet. Where MetalLB v0.16.1 does otherwise, `about` says what and why ours is wanted.
pub(crate) fn row(id: &'static str, about: &'static str) -> Row {
    Row { id, about, steps: vec![] }
}

impl Row {
    /// Does one thing, a verb with its object, and compares what is seen then.
    pub(crate) fn then<S: Into<String>>(self, act: Value, seen: impl IntoIterator<Item = S>) -> Self {
        self.then_at_once(vec![act], seen)
    }

    /// Does several things before anything is decided, and compares what is seen then.
    pub(crate) fn then_at_once<S: Into<String>>(
        mut self,
        acts: Vec<Value>,
        seen: impl IntoIterator<Item = S>,
    ) -> Self {
        self.steps.push(Step { acts, seen: seen.into_iter().map(Into::into).collect() });
        self
    }

    /// Begins with pools, of which nothing is seen at Services.
    pub(crate) fn pools(self, pools: Vec<Value>) -> Self {
        let pools = pools.into_iter().map(|pool| json!({ "pool": pool })).collect();
        self.then_at_once(pools, NOTHING)
    }

    fn mentions(&self, word: &str) -> bool {
        let quoted = format!("\"{word}\"");
        self.steps.iter().flat_map(|step| &step.acts).any(|act| act.to_string().contains(&quoted))
    }
}

/// Nothing is seen.
pub(crate) const NOTHING: [&str; 0] = [];

/// The pools of the catalogue's first chapter: two of each family, one of each for those who ask.
pub(crate) fn plain_pools() -> Vec<Value> {
    vec![
        json!({ "name": "p1", "addresses": ["1.2.3.0/31"] }),
        json!({ "name": "p2", "addresses": ["3.4.5.6/32"], "autoAssign": false }),
        json!({ "name": "p3", "addresses": ["1000::/127"] }),
        json!({ "name": "p4", "addresses": ["2000::1/128"], "autoAssign": false }),
    ]
}

/// The pool of both families.
pub(crate) fn dual_pool() -> Vec<Value> {
    vec![json!({ "name": "p5", "addresses": ["1.2.3.0/31", "1000::/127"] })]
}

/// A Service of the short form in one word and the rest.
pub(crate) fn svc(name: &str, mut rest: Value) -> Value {
    rest["name"] = json!(name);
    json!({ "svc": rest })
}

/// A pool of these addresses.
pub(crate) fn pool(name: &str, addresses: &[&str]) -> Value {
    json!({ "pool": { "name": name, "addresses": addresses } })
}

/// Deletes a Service.
pub(crate) fn delete(name: &str) -> Value {
    json!({ "delete": { "svc": name } })
}

/// `["a" "b"]` of `a b`.
fn quoted(ips: &str) -> String {
    let quoted: Vec<String> = ips.split(' ').map(|ip| format!("{ip:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

pub(crate) fn assigned(name: &str, ips: &str) -> String {
    format!("{name} Normal IPAllocated: Assigned IP {}", quoted(ips))
}

pub(crate) fn added(name: &str, ip: &str) -> String {
    format!("{name} Normal IPAllocated: Assigned additional IP {ip:?}")
}

pub(crate) fn not_added(name: &str, why: &str) -> String {
    format!("{name} Normal AdditionalAssignFailed: cannot assign additional IP in PreferDualStack: {why}")
}

pub(crate) fn failed(name: &str, why: &str) -> String {
    format!(r#"{name} Warning AllocationFailed: Failed to allocate IP for "demo/{name}": {why}"#)
}

pub(crate) fn cleared(name: &str, why: &str) -> String {
    format!(
        r#"{name} Normal ClearAssignment: current IP for "demo/{name}" not allowed by config, will attempt for new IP assignment: {why}"#
    )
}

pub(crate) fn deprecated(name: &str, key: &str) -> String {
    format!("{name} Warning deprecatedAnnotation: Service uses deprecated annotation {key}")
}

/// How a row is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Plain,
    /// Services have a class, and the controller is told to serve it.
    OfClass,
    /// The API server has no IPv6: a Service that would like two families gets one cluster IP.
    SingleStack,
}

/// Plays every row in every setting that it fits.
pub(crate) fn play(rows: Vec<Row>) {
    for row in &rows {
        play_in(Setting::Plain, row);
        // An API server drops the class of what is no load balancer, so that it is no longer ours to clean up.
        if !row.mentions("type") && !row.mentions("loadBalancerClass") {
            play_in(Setting::OfClass, row);
        }
        if !["dual", "prefer", "v6", "ipFamilyPolicy", "clusterIPs"].iter().any(|word| row.mentions(word)) {
            play_in(Setting::SingleStack, row);
        }
    }
}

/// Plays rows on an API server that has no IPv6.
pub(crate) fn play_single_stack(rows: &[Row]) {
    for row in rows {
        play_in(Setting::SingleStack, row);
    }
}

fn play_in(setting: Setting, row: &Row) {
    const CLASS: &str = "example.com/lb";
    let mut cluster = if setting == Setting::OfClass { Cluster::of_class(CLASS) } else { Cluster::new() };
    cluster.single_stack = setting == Setting::SingleStack;
    cluster.namespace("other", json!({}));
    cluster.quiet();
    let mut writes = 0;
    let mut changes = 0;
    for (n, step) in row.steps.iter().enumerate() {
        let before = holdings(&cluster);
        for act_as_written in &step.acts {
            let mut what = act_as_written.clone();
            if setting == Setting::OfClass
                && let Some(service) = what.get_mut("svc")
            {
                service["loadBalancerClass"] = json!(CLASS);
            }
            act(&mut cluster, &what);
        }
        let touched = holdings(&cluster);
        cluster.quiet();
        let after = holdings(&cluster);
        let mut seen: Vec<String> = after
            .iter()
            .filter(|(name, holding)| before.get(*name) != Some(holding))
            .map(|(name, holding)| format!("{name}: {holding}"))
            .collect();
        seen.extend(cluster.told());
        assert_eq!(seen, step.seen, "{} ({}), {setting:?}, step {n}: {:?}", row.id, row.about, step.acts);
        writes += cluster.service_writes().len();
        changes += after.iter().filter(|(name, holding)| touched.get(*name) != Some(holding)).count();
    }
    assert_eq!(writes, changes, "{} ({}), {setting:?}: writes", row.id, row.about);
    let before = holdings(&cluster);
    cluster.stop();
    cluster.start();
    cluster.quiet();
    assert_eq!(holdings(&cluster), before, "{} ({}), {setting:?}, after a restart", row.id, row.about);
    assert_eq!(cluster.service_writes(), [], "{} ({}), {setting:?}, after a restart", row.id, row.about);
}

/// What every Service has: addresses as they stand in its status, and the pool annotation.
fn holdings(cluster: &Cluster) -> BTreeMap<String, String> {
    let holding = |object: &Value| {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let entries = object["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
        let entry = |entry: &Value| {
            let parts = [text(&entry["ip"]), text(&entry["hostname"])];
            let ports = entry["ports"].is_array().then(|| "ports".to_owned());
            parts.into_iter().flatten().chain(ports).collect::<Vec<_>>().join("/")
        };
        let ips: Vec<String> = entries.iter().map(entry).collect();
        let mut holding = if ips.is_empty() { "none".to_owned() } else { ips.join(" ") };
        if let Some(pool) = text(&object["metadata"]["annotations"]["metallb.io/ip-allocated-from-pool"]) {
            holding = format!("{holding} ({pool})");
        }
        let name = text(&object["metadata"]["name"]).unwrap_or_default();
        let namespace = text(&object["metadata"]["namespace"]).unwrap_or_default();
        let name = if namespace == NS { name } else { format!("{namespace}/{name}") };
        (name, holding)
    };
    cluster.objects("services").map(holding).collect()
}

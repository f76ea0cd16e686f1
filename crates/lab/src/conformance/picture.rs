// SPDX-License-Identifier: Apache-2.0
//! What is there, in the form in which it was recorded.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::compare::Told;

/// Lists as the API server gives them.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Lists {
    pub(crate) services: Vec<Value>,
    pub(crate) events: Vec<Value>,
    pub(crate) pools: Vec<Value>,
    pub(crate) states: Vec<Value>,
}

/// How the texts of one case are made comparable, and which namespaces belong to it.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The case's own namespace; it is written `$ns`.
    pub(crate) namespace: String,
    /// Others that it has Services in.
    pub(crate) others: BTreeSet<String>,
    /// Cluster IPs that its Services have, or had.
    cluster_ips: BTreeSet<String>,
}

/// Events by their uid, with how often they were counted.
pub(crate) type Counts = BTreeMap<String, i64>;

impl Frame {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), others: BTreeSet::new(), cluster_ips: BTreeSet::new() }
    }

    /// Services, pools and ConfigurationStates, as recorded.
    pub(crate) fn state(&self, lists: &Lists) -> Map<String, Value> {
        let mut seen = Map::new();
        let services = lists.services.iter().filter_map(|service| {
            let name = self.name(text(service, "/metadata/namespace"), text(service, "/metadata/name"))?;
            Some((name, self.service(service)))
        });
        let named = |objects: &[Value]| {
            objects
                .iter()
                .map(|object| {
                    let status = without_times(object.get("status").cloned().unwrap_or_default());
                    (text(object, "/metadata/name").to_owned(), status)
                })
                .collect::<Map<_, _>>()
        };
        seen.insert("services".to_owned(), services.collect::<Map<_, _>>().into());
        seen.insert("pools".to_owned(), named(&lists.pools).into());
        seen.insert("configuration_state".to_owned(), named(&lists.states).into());
        seen
    }

    /// The events that appeared, or were counted up, since `before`; and all counts as they are now.
    pub(crate) fn events(&self, lists: &Lists, before: &Counts) -> (Vec<Told>, Counts) {
        let mut counts = Counts::new();
        let mut told = Vec::new();
        for event in &lists.events {
            let object = |field| text(event, &format!("/involvedObject/{field}"));
            let Some(on) = self.name(object("namespace"), object("name")) else { continue };
            if object("kind") != "Service" {
                continue;
            }
            let uid = text(event, "/metadata/uid").to_owned();
            let count = event.get("count").and_then(Value::as_i64).unwrap_or(1);
            if before.get(&uid).is_none_or(|before| *before < count) {
                told.push(Told {
                    on,
                    kind: text(event, "/type").to_owned(),
                    reason: text(event, "/reason").to_owned(),
                    message: self.comparable(text(event, "/message")),
                });
            }
            counts.insert(uid, count);
        }
        (told, counts)
    }

    /// Remembers the cluster IPs of the case's Services: texts may name them when the Services are gone.
    pub(crate) fn learn(&mut self, lists: &Lists) {
        for service in &lists.services {
            if self.name(text(service, "/metadata/namespace"), "").is_some() {
                let ips = service.pointer("/spec/clusterIPs").and_then(Value::as_array).into_iter().flatten();
                let ips = ips.filter_map(Value::as_str).filter(|ip| !ip.is_empty() && *ip != "None");
                self.cluster_ips.extend(ips.map(str::to_owned));
            }
        }
    }

    /// A text with the placeholders of the recordings.
    pub(crate) fn comparable(&self, message: &str) -> String {
        // Names of other namespaces may begin with that of the case.
        let in_name = |c: char, after: bool| c.is_ascii_alphanumeric() || c == '-' && !after;
        let in_address = |c: char, _| c.is_ascii_hexdigit() || c == '.' || c == ':';
        let mut message = replaced(message, &self.namespace, "$ns", in_name);
        for ip in &self.cluster_ips {
            let placeholder = if ip.contains(':') { "{clusterIP6}" } else { "{clusterIP}" };
            message = replaced(&message, ip, placeholder, in_address);
        }
        message
    }

    /// An object's name as recorded; `None` if it is none of the case's.
    fn name(&self, namespace: &str, name: &str) -> Option<String> {
        if namespace == self.namespace {
            return Some(name.to_owned());
        }
        self.others.contains(namespace).then(|| self.comparable(&format!("{namespace}/{name}")))
    }

    fn service(&self, service: &Value) -> Value {
        let ingress = service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
        let ingress: Vec<Value> = ingress.into_iter().flatten().map(entry).collect();
        let annotations = service.pointer("/metadata/annotations").and_then(Value::as_object);
        let annotations = annotations.into_iter().flatten().filter(|(key, _)| key.starts_with("metallb"));
        let annotations = annotations.map(|(key, value)| {
            (key.clone(), value.as_str().map_or_else(|| value.clone(), |text| self.comparable(text).into()))
        });
        let annotations: Map<String, Value> = annotations.collect();
        if annotations.is_empty() {
            json!({ "ingress": ingress })
        } else {
            json!({ "ingress": ingress, "annotations": annotations })
        }
    }
}

/// An ingress entry: its address, or a map where it is more than that.
fn entry(entry: &Value) -> Value {
    let Some(map) = entry.as_object() else { return entry.clone() };
    let mut map = map.clone();
    if map.get("ipMode").is_some_and(|mode| mode == "VIP") {
        map.remove("ipMode");
    }
    match (map.len(), map.get("ip")) {
        (1, Some(ip)) => ip.clone(),
        _ => map.into(),
    }
}

fn without_times(mut status: Value) -> Value {
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove("lastTransitionTime");
    }
    status
}

/// `text` with every `word` replaced that is not a part of a longer one: `belongs` says which characters before and
/// after it make it one.
fn replaced(text: &str, word: &str, by: &str, belongs: impl Fn(char, bool) -> bool) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(word) {
        let is_part = before.chars().next_back().is_some_and(|c| belongs(c, false))
            || after.chars().next().is_some_and(|c| belongs(c, true));
        done.push_str(before);
        done.push_str(if is_part { word } else { by });
        rest = after;
    }
    done + rest
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(namespace: &str, name: &str, ingress: Value) -> Value {
        json!({
            "metadata": {"namespace": namespace, "name": name,
                         "annotations": {"metallb.io/a": "1", "metallb.universe.tf/b": "in case-1", "other/c": "3"}},
            "spec": {"clusterIPs": ["10.96.0.1", "fd00:10:96::1"]},
            "status": {"loadBalancer": {"ingress": ingress}},
        })
    }

    fn event(uid: &str, namespace: &str, count: Value, message: &str) -> Value {
        json!({
            "metadata": {"uid": uid, "namespace": namespace}, "count": count, "message": message,
            "type": "Normal", "reason": "R", "involvedObject": {"kind": "Service", "namespace": namespace, "name": "a"},
        })
    }

    #[test]
    fn services_pools_and_states_take_the_recorded_form() {
        let mut frame = Frame::new("case-1");
        frame.others.insert("other".to_owned());
        let lists = Lists {
            services: vec![
                service(
                    "case-1",
                    "a",
                    json!([{"ip": "1.2.3.4", "ipMode": "VIP"}, {"hostname": "h"}, {"ip": "x", "ipMode": "Proxy"}]),
                ),
                service("other", "b", json!([])),
                service("default", "kubernetes", json!([])),
            ],
            pools: vec![json!({"metadata": {"name": "p"}, "status": {"assignedIPv4": 1}})],
            states: vec![json!({"metadata": {"name": "controller"}, "status": {
                "result": "Valid", "conditions": [{"type": "T", "lastTransitionTime": "now"}]}})],
            events: Vec::new(),
        };
        let annotations = json!({"metallb.io/a": "1", "metallb.universe.tf/b": "in $ns"});
        assert_eq!(
            Value::Object(frame.state(&lists)),
            json!({
                "services": {
                    "a": {"ingress": ["1.2.3.4", {"hostname": "h"}, {"ip": "x", "ipMode": "Proxy"}], "annotations": annotations},
                    "other/b": {"ingress": [], "annotations": annotations},
                },
                "pools": {"p": {"assignedIPv4": 1}},
                "configuration_state": {"controller": {"result": "Valid", "conditions": [{"type": "T"}]}},
            })
        );
    }

    #[test]
    fn events_are_those_that_are_new_or_were_counted_up() {
        let frame = Frame::new("case-1");
        let mut lists = Lists {
            events: vec![event("1", "case-1", json!(1), "x"), event("2", "elsewhere", json!(1), "y")],
            ..Lists::default()
        };
        let (told, counts) = frame.events(&lists, &Counts::new());
        assert_eq!((told.len(), told[0].message.as_str()), (1, "x"));
        assert_eq!(frame.events(&lists, &counts).0, []);
        lists.events[0]["count"] = json!(2);
        assert_eq!(frame.events(&lists, &counts).0, told);
        lists.events.push(event("3", "case-1", Value::Null, "z"));
        assert_eq!(frame.events(&lists, &counts).0.len(), 2);
    }

    #[test]
    fn namespaces_and_cluster_ips_become_placeholders_where_they_stand_alone() {
        let mut frame = Frame::new("case-1");
        frame.learn(&Lists {
            services: vec![service("case-1", "a", json!([])), service("x", "b", json!([]))],
            ..Lists::default()
        });
        for (message, expected) in [
            ("for \"case-1/a\" and case-12/b", "for \"$ns/a\" and case-12/b"),
            ("case-1-more/a a-case-1/b", "$ns-more/a a-case-1/b"),
            ("[\"10.96.0.1\" \"fd00:10:96::1\"]", "[\"{clusterIP}\" \"{clusterIP6}\"]"),
            ("10.96.0.12 fd00:10:96::1f", "10.96.0.12 fd00:10:96::1f"),
        ] {
            assert_eq!(frame.comparable(message), expected);
        }
    }
}

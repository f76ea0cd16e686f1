// SPDX-License-Identifier: Apache-2.0
//! Between a Service object and what `ipam` knows of it: reading a claim, writing a decision.

use std::collections::BTreeMap;

use ferrolb_api::annotations::{self, ADDRESS_POOL, ALLOW_SHARED_IP, LOAD_BALANCER_IPS};
use ferrolb_ipam::{Claim, Decision, IpFamilyPolicy, Keys, PoolMark, Port, Protocol, requested_ips};
use ferrolb_net_types::{IpFamily, ServiceKey, parse_ip};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ManagedFieldsEntry};

use crate::conditions;

/// The key of a Service object.
pub(crate) fn key(service: &Service) -> ServiceKey {
    ServiceKey::new(
        service.metadata.namespace.as_deref().unwrap_or_default(),
        service.metadata.name.as_deref().unwrap_or_default(),
    )
}

/// Reads what a Service is, wants and holds.
pub(crate) fn claim(service: &Service) -> Claim {
    let default = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&default);
    let notes = service.metadata.annotations.as_ref();
    let text = |key: annotations::Key| key.of(notes).unwrap_or_default();
    Claim {
        service: key(service),
        labels: service.metadata.labels.clone().unwrap_or_default(),
        load_balancer: spec.type_.as_deref() == Some("LoadBalancer"),
        cluster_ips: spec.cluster_ips.clone().unwrap_or_default(),
        cluster_ip: spec.cluster_ip.clone().unwrap_or_default(),
        policy: match spec.ip_family_policy.as_deref() {
            Some("PreferDualStack") => IpFamilyPolicy::PreferDualStack,
            Some("RequireDualStack") => IpFamilyPolicy::RequireDualStack,
            _ => IpFamilyPolicy::SingleStack,
        },
        preferred_family: match spec.ip_families.as_deref() {
            Some([first, ..]) if first == "IPv6" => IpFamily::V6,
            _ => IpFamily::V4,
        },
        requested_ips: requested_ips(
            text(LOAD_BALANCER_IPS),
            spec.load_balancer_ip.as_deref().unwrap_or_default(),
        ),
        requested_pool: text(ADDRESS_POOL).to_owned(),
        keys: Keys { sharing: text(ALLOW_SHARED_IP).to_owned(), backend: backend_key(spec) },
        ports: ports(spec),
        held: ingress(service).iter().filter_map(|entry| entry.ip.as_deref()).map(parse_ip).collect(),
    }
}

/// Whether a Service is for a controller of this class; empty means the default one.
pub(crate) fn is_of_class(service: &Service, lb_class: &str) -> bool {
    let class = service.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_deref());
    class.unwrap_or_default() == lb_class
}

/// The entries of a Service's load-balancer status.
pub(crate) fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref())
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default()
}

/// The pool annotation of a Service.
pub(crate) fn pool_annotation(service: &Service) -> Option<&str> {
    service.metadata.annotations.as_ref()?.get(annotations::IP_ALLOCATED_FROM_POOL).map(String::as_str)
}

/// What of a Service's object the controller writes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    ingress: Vec<LoadBalancerIngress>,
    pool: Option<String>,
    conditions: Vec<(String, String, String, String)>,
}

/// What a Service's object holds of what the controller writes, which includes `conditions` or does not.
pub(crate) fn stored(service: &Service, conditions: bool) -> Stored {
    Stored {
        ingress: ingress(service).to_vec(),
        pool: pool_annotation(service).map(str::to_owned),
        conditions: if conditions { conditions::own(self::conditions(service)) } else { vec![] },
    }
}

/// The conditions of a Service.
pub(crate) fn conditions(service: &Service) -> &[Condition] {
    service.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// The Service with these conditions.
pub(crate) fn with_conditions(service: &Service, conditions: Vec<Condition>) -> Service {
    let mut service = service.clone();
    service.status.get_or_insert_default().conditions = (!conditions.is_empty()).then_some(conditions);
    service
}

/// Changes nothing but the time of our condition; whether that is a change.
pub(crate) fn touch(service: &mut Service, wall: Timestamp) -> bool {
    let conditions = service.status.as_mut().and_then(|status| status.conditions.as_deref_mut());
    conditions.is_some_and(|conditions| conditions::touched(conditions, wall))
}

/// Changes nothing but our condition, whatever it says; whether that is a change.
pub(crate) fn mark_taken_over(service: &mut Service, wall: Timestamp) -> bool {
    let status = service.status.get_or_insert_default();
    conditions::mark_taken_over(status.conditions.get_or_insert_default(), wall)
}

/// The Service as a decision wants it stored; `None` if it is stored so already.
///
/// The API server gives each new entry an `ipMode`; that of an address that stays is left as it is.
pub(crate) fn decided(service: &Service, decision: &Decision) -> Option<Service> {
    let current = ingress(service);
    let wanted: Vec<LoadBalancerIngress> = decision
        .ingress
        .iter()
        .map(|ip| LoadBalancerIngress {
            ip: Some(ip.to_string()),
            ip_mode: current
                .iter()
                .find(|entry| entry.ip.as_deref().and_then(parse_ip) == Some(*ip))
                .and_then(|entry| entry.ip_mode.clone()),
            ..LoadBalancerIngress::default()
        })
        .collect();
    let stored_so = wanted.len() == current.len()
        && wanted.iter().zip(current).all(|(wanted, entry)| {
            let ports = entry.ports.as_ref().is_some_and(|ports| !ports.is_empty());
            wanted.ip == entry.ip && entry.hostname.as_ref().is_none_or(String::is_empty) && !ports
        });
    let marked_so = match &decision.pool {
        PoolMark::Is(pool) => pool_annotation(service) == Some(pool.as_str()),
        PoolMark::Absent => pool_annotation(service).is_none(),
        PoolMark::Unchanged => true,
    };
    if stored_so && marked_so {
        return None;
    }
    let mut service = service.clone();
    if !stored_so {
        let ingress = (!wanted.is_empty()).then_some(wanted);
        service.status.get_or_insert_default().load_balancer = Some(LoadBalancerStatus { ingress });
    }
    match &decision.pool {
        PoolMark::Is(pool) => {
            let notes = service.metadata.annotations.get_or_insert_default();
            notes.insert(annotations::IP_ALLOCATED_FROM_POOL.to_owned(), pool.to_string());
        }
        PoolMark::Absent => {
            if let Some(notes) = &mut service.metadata.annotations {
                notes.remove(annotations::IP_ALLOCATED_FROM_POOL);
            }
        }
        PoolMark::Unchanged => {}
    }
    Some(service)
}

/// The deprecated annotation keys of a Service.
pub(crate) fn deprecated_annotations(service: &Service) -> impl Iterator<Item = &str> {
    notes(service).keys().map(String::as_str).filter(|key| key.starts_with(annotations::DEPRECATED_PREFIX))
}

/// Annotation keys of a Service that look like ours and are none.
pub(crate) fn unknown_annotations(service: &Service) -> impl Iterator<Item = &str> {
    const KNOWN: [&str; 4] = [
        ADDRESS_POOL.name,
        LOAD_BALANCER_IPS.name,
        ALLOW_SHARED_IP.name,
        annotations::IP_ALLOCATED_FROM_POOL,
    ];
    let ours = |key: &&str| key.starts_with("metallb.io/") && !KNOWN.contains(key);
    notes(service).keys().map(String::as_str).filter(ours)
}

/// Who wrote the load-balancer status of a Service last, other than `own`, as far as `managedFields` tells.
pub(crate) fn foreign_status_writer(entries: &[ManagedFieldsEntry], own: &str) -> Option<String> {
    let writes_status = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.and_then(|fields| fields.get("f:status")?.get("f:loadBalancer")).is_some()
    };
    entries
        .iter()
        .filter(writes_status)
        .filter(|entry| entry.manager.as_deref() != Some(own))
        .max_by_key(|entry| entry.time.clone())
        .and_then(|entry| entry.manager.clone())
}

fn notes(service: &Service) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    service.metadata.annotations.as_ref().unwrap_or(&NONE)
}

/// Where the traffic of a Service must end: anywhere, or on the nodes of the Pods that its selector finds.
fn backend_key(spec: &ServiceSpec) -> String {
    if spec.external_traffic_policy.as_deref() != Some("Local") {
        return String::new();
    }
    let pairs = spec.selector.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}

fn ports(spec: &ServiceSpec) -> Vec<Port> {
    let port = |port: &k8s_openapi::api::core::v1::ServicePort| {
        let protocol = match port.protocol.as_deref() {
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            _ => Protocol::Tcp,
        };
        // The API server admits 1 to 65535 only.
        Some(Port { protocol, number: u16::try_from(port.port).ok()? })
    };
    spec.ports.iter().flatten().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use ferrolb_ipam::Outcome;
    use serde_json::json;

    use super::*;

    fn service(value: serde_json::Value) -> Service {
        serde_json::from_value(value).unwrap()
    }

    fn decision(ips: &[&str], pool: PoolMark) -> Decision {
        Decision {
            ingress: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            pool,
            notices: vec![],
            outcome: Outcome::Kept,
            cleared: None,
            lack: None,
            waits_for: None,
        }
    }

    #[test]
    fn classes_match_exactly() {
        for (flag, class, expected) in [
            ("", None, true),
            ("", Some("x"), false),
            ("x", None, false),
            ("x", Some("y"), false),
            ("x", Some("x"), true),
        ] {
            let service = service(json!({ "spec": { "loadBalancerClass": class } }));
            assert_eq!(is_of_class(&service, flag), expected, "{flag:?} {class:?}");
        }
    }

    #[test]
    fn the_backend_key_is_the_sorted_selector_of_a_local_service() {
        for (policy, selector, expected) in [
            ("Cluster", json!({ "b": "2", "a": "1" }), ""),
            ("Local", json!({ "b": "2", "a": "1" }), "a=1,b=2"),
            ("Local", json!(null), ""),
        ] {
            let service =
                service(json!({ "spec": { "externalTrafficPolicy": policy, "selector": selector } }));
            assert_eq!(claim(&service).keys.backend, expected);
        }
    }

    #[test]
    fn what_the_api_server_adds_to_a_status_is_no_difference() {
        let stored = service(json!({
            "metadata": { "annotations": { "metallb.io/ip-allocated-from-pool": "p" } },
            "status": { "loadBalancer": { "ingress": [{ "ip": "10.0.0.1", "ipMode": "VIP" }] } },
        }));
        assert_eq!(decided(&stored, &decision(&["10.0.0.1"], PoolMark::Is("p".into()))), None);
        assert_eq!(decided(&stored, &decision(&["10.0.0.1"], PoolMark::Unchanged)), None);
        let empty = service(json!({ "status": { "loadBalancer": { "ingress": [] } } }));
        assert_eq!(decided(&empty, &decision(&[], PoolMark::Absent)), None);
    }

    #[test]
    fn a_written_status_keeps_the_mode_of_addresses_that_stay_and_nothing_of_others() {
        let stored = service(json!({
            "metadata": { "annotations": { "metallb.io/ip-allocated-from-pool": "q", "other": "x" } },
            "status": { "loadBalancer": { "ingress": [
                { "hostname": "foo.example" },
                { "ip": "10.0.0.1", "ipMode": "Proxy" },
                { "ip": "10.9.9.9", "ipMode": "VIP" },
            ] } },
        }));
        let written =
            decided(&stored, &decision(&["10.0.0.1", "fd00::1"], PoolMark::Is("p".into()))).unwrap();
        let body = serde_json::to_value(&written).unwrap();
        assert_eq!(
            body["status"],
            json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.0.1", "ipMode": "Proxy" }, { "ip": "fd00::1" }] } })
        );
        assert_eq!(
            body["metadata"]["annotations"],
            json!({ "metallb.io/ip-allocated-from-pool": "p", "other": "x" })
        );
        let cleared = decided(&stored, &decision(&[], PoolMark::Absent)).unwrap();
        let body = serde_json::to_value(&cleared).unwrap();
        assert_eq!(body["status"], json!({ "loadBalancer": {} }));
        assert_eq!(body["metadata"]["annotations"], json!({ "other": "x" }));
    }

    #[test]
    fn the_last_foreign_writer_of_the_status_is_named() {
        let service = service(json!({ "metadata": { "managedFields": [
            { "manager": "kubectl", "time": "2024-01-01T00:00:03Z", "fieldsV1": { "f:spec": {} } },
            { "manager": "old", "time": "2024-01-01T00:00:01Z", "subresource": "status",
              "fieldsV1": { "f:status": { "f:loadBalancer": {} } } },
            { "manager": "other-lb", "time": "2024-01-01T00:00:02Z", "subresource": "status",
              "fieldsV1": { "f:status": { "f:loadBalancer": {} } } },
            { "manager": "controller", "time": "2024-01-01T00:00:04Z", "subresource": "status",
              "fieldsV1": { "f:status": { "f:loadBalancer": {} } } },
        ] } }));
        let entries = service.metadata.managed_fields.unwrap();
        assert_eq!(foreign_status_writer(&entries, "controller").as_deref(), Some("other-lb"));
        assert_eq!(foreign_status_writer(&entries[..1], "controller"), None);
    }
}

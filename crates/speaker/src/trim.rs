// SPDX-License-Identifier: Apache-2.0
//! What the speaker keeps of the objects it watches: on a large cluster, most of a Node or an EndpointSlice
//! is of no use to it and would be most of its memory.

use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// The condition that keeps a node from announcing, and the one without which nobody waits for its speaker.
const CONDITIONS: [&str; 2] = ["NetworkUnavailable", "Ready"];

/// Keeps labels, the first internal address, and the conditions of network and readiness.
pub(crate) fn node(node: &mut Node) {
    node.metadata.annotations = None;
    if let Some(status) = &mut node.status {
        let conditions = status.conditions.take().map(|mut conditions| {
            conditions.retain(|condition| CONDITIONS.contains(&condition.type_.as_str()));
            for condition in &mut conditions {
                // The kubelet renews it every few seconds.
                condition.last_heartbeat_time = None;
                condition.last_transition_time = None;
                condition.message = None;
                condition.reason = None;
            }
            conditions
        });
        let addresses = status.addresses.take().map(|mut addresses| {
            addresses.retain(|address| address.type_ == "InternalIP");
            addresses.truncate(1);
            addresses
        });
        *status = k8s_openapi::api::core::v1::NodeStatus { conditions, addresses, ..Default::default() };
    }
}

/// Keeps labels.
pub(crate) fn namespace(namespace: &mut Namespace) {
    namespace.metadata.annotations = None;
    namespace.spec = None;
    namespace.status = None;
}

/// Keeps the type and the password: whatever else it holds, annotations too, is nobody's business here.
pub(crate) fn secret(secret: &mut Secret) {
    secret.metadata.annotations = None;
    secret.metadata.labels = None;
    secret.string_data = None;
    if let Some(data) = &mut secret.data {
        data.retain(|key, _| key == "password");
    }
}

/// Drops what only kube-proxy and the cloud read.
pub(crate) fn service(service: &mut Service) {
    if let Some(status) = &mut service.status {
        status.conditions = None;
    }
}

/// Keeps addresses, conditions and nodes of the endpoints.
pub(crate) fn endpoint_slice(slice: &mut EndpointSlice) {
    slice.metadata.annotations = None;
    slice.ports = None;
    for endpoint in &mut slice.endpoints {
        endpoint.deprecated_topology = None;
        endpoint.hints = None;
        endpoint.hostname = None;
        endpoint.target_ref = None;
        endpoint.zone = None;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_keeps_what_decides_and_nothing_else() {
        let mut given: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"big": "text"}},
            "status": {
                "images": [{"names": ["x"], "sizeBytes": 1}],
                "addresses": [
                    {"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "InternalIP", "address": "fd00::1"},
                ],
                "conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting"},
                    {"type": "NetworkUnavailable", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
                ],
            },
        }))
        .unwrap();
        node(&mut given);
        let left = serde_json::to_value(&given).unwrap();
        assert_eq!(
            left["status"],
            json!({
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "conditions": [
                    {"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "False"},
                ],
            })
        );
        assert_eq!(left["metadata"], json!({"name": "n1", "labels": {"a": "b"}}));
    }

    #[test]
    fn an_endpoint_keeps_address_condition_and_node() {
        let mut given: EndpointSlice = serde_json::from_value(json!({
            "addressType": "IPv4",
            "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n1", "zone": "z",
                "targetRef": {"kind": "Pod", "name": "p"}}],
            "ports": [{"port": 80}],
        }))
        .unwrap();
        endpoint_slice(&mut given);
        let left = serde_json::to_value(&given).unwrap();
        assert_eq!(
            left["endpoints"],
            json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n1"}])
        );
        assert_eq!(left["metadata"]["labels"]["kubernetes.io/service-name"], "web");
    }
}

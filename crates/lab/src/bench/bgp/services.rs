// SPDX-License-Identifier: Apache-2.0
//! Services with addresses, up to ten thousand, announced by BGP from one node to the peers of the measurement.
//!
//! There is no controller meanwhile: the measurement gives a Service its address, and takes it away.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use anyhow::Result;
use http::{Method, Request};
use serde_json::{Value, json};

use super::peers::{self, ASN, THEIRS};
use crate::bench::address::crew::Whole;
use crate::bench::ground::{self, NAMESPACE};
use crate::host::Host;

/// The address of a Service: what is announced as /32.
pub(super) fn address(index: usize) -> Ipv4Addr {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 200, 1, 0]).saturating_add(index))
}

/// Pool, advertisement and peers.
pub(super) fn manifest(node: Host, peers: usize) -> String {
    let mut text = ground::manifest("BGPAdvertisement");
    for index in 0..peers {
        let address = peers::address(index);
        let _ = write!(
            text,
            "---
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {{name: peer-{index}, namespace: metallb-system}}
spec:
  myASN: {THEIRS}
  peerASN: {ASN}
  peerAddress: {address}
  nodeSelectors: [{{matchLabels: {{kubernetes.io/hostname: {node}}}}}]
"
        );
    }
    text
}

/// A Service without an address.
pub(super) fn service(index: usize) -> Result<Whole> {
    request(
        Method::POST,
        &format!("/api/v1/namespaces/{NAMESPACE}/services"),
        &json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name(index), "namespace": NAMESPACE},
            // The range of node ports has room for fewer Services than are created.
            "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                "ports": [{"port": 80, "protocol": "TCP"}]},
        }),
    )
}

/// Gives a Service its address, or takes it away.
pub(super) fn addressed(index: usize, is: bool) -> Result<Whole> {
    let ingress = if is { json!([{"ip": address(index).to_string()}]) } else { json!(null) };
    request(
        Method::PATCH,
        &format!("/api/v1/namespaces/{NAMESPACE}/services/{}/status", name(index)),
        &json!({"status": {"loadBalancer": {"ingress": ingress}}}),
    )
}

/// What the EndpointSlice controller would write for a Service with one ready Pod.
pub(super) fn slice(index: usize, node: Host) -> Result<Whole> {
    let name = name(index);
    request(
        Method::POST,
        &format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"),
        &json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [endpoint(node, true)],
            "ports": [{"port": 8080, "protocol": "TCP"}],
        }),
    )
}

/// Says of the Pod of a Service whether it is ready.
pub(super) fn ready(index: usize, node: Host, is: bool) -> Result<Whole> {
    request(
        Method::PATCH,
        &format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{}", name(index)),
        &json!({"endpoints": [endpoint(node, is)]}),
    )
}

/// Removes the advertisement.
pub(super) fn silence() -> Result<Whole> {
    let path = "/apis/metallb.io/v1beta1/namespaces/metallb-system/bgpadvertisements/wide";
    request(Method::DELETE, path, &json!({}))
}

fn endpoint(node: Host, ready: bool) -> Value {
    json!({"addresses": ["172.20.1.99"], "conditions": {"ready": ready}, "nodeName": node.name()})
}

fn name(index: usize) -> String {
    format!("service-{index}")
}

fn request(method: Method, path: &str, body: &Value) -> Result<Whole> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = serde_json::to_vec(body)?;
    Ok(Request::builder().method(method).uri(path).header("content-type", kind).body(body)?)
}

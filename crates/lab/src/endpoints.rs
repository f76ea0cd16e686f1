// SPDX-License-Identifier: Apache-2.0
//! The EndpointSlice controller stand-in: one IPv4 slice per Service with a selector, true to its Pods' readiness.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::view::View;
use crate::workloads::{is_ending, is_ready};

/// Keeps the slices, for ever.
pub(crate) async fn run(view: View) {
    view.clone()
        .on_every_change("endpoint slices", async || {
            for service in view.services.state() {
                pass(&view, &service).await?;
            }
            Ok(())
        })
        .await;
}

async fn pass(view: &View, service: &Service) -> Result<()> {
    let pods = view.pods.state();
    let Some(wanted) = slice(service, &pods.iter().map(AsRef::as_ref).collect::<Vec<_>>()) else {
        return Ok(());
    };
    let (namespace, name) = (service.namespace().unwrap_or_default(), slice_name(service));
    let api = Api::<EndpointSlice>::namespaced(view.client.clone(), &namespace);
    let key = kube::runtime::reflector::ObjectRef::<EndpointSlice>::new(&name).within(&namespace);
    let context = || format!("write the EndpointSlice {namespace}/{name}");
    let written: EndpointSlice = serde_json::from_value(wanted.clone()).with_context(context)?;
    match view.slices.get(&key) {
        None => match api.create(&PostParams::default(), &written).await {
            // Created by the pass before; the watch will tell.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop).with_context(context),
        },
        Some(stored) if stored.endpoints == written.endpoints && stored.ports == written.ports => Ok(()),
        Some(_) => {
            let body = json!({"endpoints": wanted.get("endpoints"), "ports": wanted.get("ports")});
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(body)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                other => other.map(drop).with_context(context),
            }
        }
    }
}

fn slice_name(service: &Service) -> String {
    format!("{}-ipv4", service.name_any())
}

/// The slice a Service should have; `None` for one without a selector, or on its way out.
fn slice(service: &Service, pods: &[&Pod]) -> Option<Value> {
    let spec = service.spec.as_ref()?;
    let selector = spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
    if service.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let namespace = service.metadata.namespace.as_deref();
    let mut chosen: Vec<&Pod> = pods
        .iter()
        .copied()
        .filter(|pod| pod.metadata.namespace.as_deref() == namespace && selects(selector, pod))
        .filter(|pod| address(pod).is_some())
        .collect();
    chosen.sort_by_key(|pod| pod.name_any());
    let endpoints: Vec<Value> = chosen
        .iter()
        .map(|pod| {
            let (ready, ending) = (is_ready(pod), is_ending(pod));
            let published = spec.publish_not_ready_addresses == Some(true);
            json!({
                "addresses": [address(pod)],
                "conditions": {"ready": (ready && !ending) || published, "serving": ready, "terminating": ending},
                "nodeName": pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
                "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod.name_any(), "uid": pod.uid()},
            })
        })
        .collect();
    let ports: Vec<Value> = spec
        .ports
        .iter()
        .flatten()
        .filter_map(|port| {
            let number = match &port.target_port {
                Some(IntOrString::Int(number)) if *number != 0 => *number,
                Some(IntOrString::String(name)) => chosen.iter().find_map(|pod| container_port(pod, name))?,
                _ => port.port,
            };
            Some(json!({
                "name": port.name.clone().unwrap_or_default(), "port": number,
                "protocol": port.protocol.as_deref().unwrap_or("TCP"),
            }))
        })
        .collect();
    Some(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": slice_name(service), "namespace": namespace,
            "labels": {
                "kubernetes.io/service-name": service.name_any(),
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": service.name_any(), "uid": service.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
    }))
}

fn selects(selector: &BTreeMap<String, String>, pod: &Pod) -> bool {
    selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
}

fn address(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.pod_ip.as_deref().filter(|ip| ip.parse::<std::net::Ipv4Addr>().is_ok())
}

fn container_port(pod: &Pod, name: &str) -> Option<i32> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": "hello-lb", "namespace": "demo", "uid": "u1"},
            "spec": {"selector": {"app": "hello"}, "ports": [
                {"name": "http", "port": 80, "targetPort": "web"},
                {"name": "echo", "port": 81, "targetPort": 8081, "protocol": "UDP"},
                {"name": "same", "port": 82}]},
        }))
        .unwrap()
    }

    fn pod(name: &str, ready: bool, ending: bool) -> Pod {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "demo", "labels": {"app": "hello", "x": "y"}},
            "spec": {"nodeName": "k8s-node-1", "containers": [
                {"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
            "status": {"podIP": "172.20.1.2",
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        }))
        .unwrap();
        if ending {
            pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
        pod
    }

    #[test]
    fn conditions_follow_readiness_and_ending() {
        for (ready, ending, expected) in [
            (true, false, json!({"ready": true, "serving": true, "terminating": false})),
            (false, false, json!({"ready": false, "serving": false, "terminating": false})),
            (true, true, json!({"ready": false, "serving": true, "terminating": true})),
        ] {
            let slice = slice(&service(), &[&pod("a", ready, ending)]).unwrap();
            assert_eq!(slice.pointer("/endpoints/0/conditions"), Some(&expected));
        }
    }

    #[test]
    fn ports_are_found_by_name_by_number_and_by_default() {
        let slice = slice(&service(), &[&pod("a", true, false)]).unwrap();
        let numbers: Vec<_> =
            slice["ports"].as_array().unwrap().iter().map(|port| port["port"].as_i64().unwrap()).collect();
        assert_eq!(numbers, [8080, 8081, 82]);
    }

    #[test]
    fn pods_of_other_namespaces_and_labels_and_those_without_an_address_stay_out() {
        let (mut elsewhere, mut other, mut young) =
            (pod("a", true, false), pod("b", true, false), pod("c", true, false));
        elsewhere.metadata.namespace = Some("other".to_owned());
        other.metadata.labels = Some([("app".to_owned(), "bye".to_owned())].into());
        young.status = None;
        let slice = slice(&service(), &[&elsewhere, &other, &young]).unwrap();
        assert_eq!(slice["endpoints"], json!([]));
    }

    #[test]
    fn a_service_without_a_selector_is_left_alone() {
        let mut service = service();
        service.spec.as_mut().unwrap().selector = None;
        assert_eq!(slice(&service, &[]), None);
    }
}

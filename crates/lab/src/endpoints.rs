// SPDX-License-Identifier: Apache-2.0
//! The EndpointSlice controller stand-in: one slice per Service with a selector and family, true to its Pods' readiness.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
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
    let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
    for family in [Family::Four, Family::Six] {
        put(view, service, family, slice(service, family, &pods)).await?;
    }
    Ok(())
}

async fn put(view: &View, service: &Service, family: Family, wanted: Option<Value>) -> Result<()> {
    let (namespace, name) = (service.namespace().unwrap_or_default(), slice_name(service, family));
    let api = Api::<EndpointSlice>::namespaced(view.client.clone(), &namespace);
    let key = kube::runtime::reflector::ObjectRef::<EndpointSlice>::new(&name).within(&namespace);
    let context = || format!("write the EndpointSlice {namespace}/{name}");
    let stored = view.slices.get(&key);
    let Some(wanted) = wanted else {
        // A Service that has given up a family; what is about to go takes its slices along.
        if stored.is_some() && service.metadata.deletion_timestamp.is_none() && has_selector(service) {
            return match api.delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                other => other.map(drop).with_context(context),
            };
        }
        return Ok(());
    };
    let written: EndpointSlice = serde_json::from_value(wanted.clone()).with_context(context)?;
    match stored {
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

/// Of which addresses a slice is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    Four,
    Six,
}

impl Family {
    /// The word of the API.
    const fn name(self) -> &'static str {
        match self {
            Self::Four => "IPv4",
            Self::Six => "IPv6",
        }
    }
}

fn slice_name(service: &Service, family: Family) -> String {
    format!("{}-{}", service.name_any(), family.name().to_ascii_lowercase())
}

fn has_selector(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| !selector.is_empty())
}

/// The slice that a Service should have for a family; `None` for one without a selector, without that family, or on its way out.
fn slice(service: &Service, family: Family, pods: &[&Pod]) -> Option<Value> {
    let spec = service.spec.as_ref()?;
    let selector = spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
    let families = spec.ip_families.as_deref().unwrap_or_default();
    // A Service that says nothing is one of IPv4.
    let is_its =
        families.iter().any(|own| own == family.name()) || families.is_empty() && family == Family::Four;
    if service.metadata.deletion_timestamp.is_some() || !is_its {
        return None;
    }
    let namespace = service.metadata.namespace.as_deref();
    let mut chosen: Vec<&Pod> = pods
        .iter()
        .copied()
        .filter(|pod| pod.metadata.namespace.as_deref() == namespace && selects(selector, pod))
        .filter(|pod| address(pod, family).is_some())
        .collect();
    chosen.sort_by_key(|pod| pod.name_any());
    let endpoints: Vec<Value> = chosen
        .iter()
        .map(|pod| {
            let (ready, ending) = (is_ready(pod), is_ending(pod));
            let published = spec.publish_not_ready_addresses == Some(true);
            json!({
                "addresses": [address(pod, family)],
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
            "name": slice_name(service, family), "namespace": namespace,
            "labels": {
                "kubernetes.io/service-name": service.name_any(),
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": service.name_any(), "uid": service.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "addressType": family.name(), "endpoints": endpoints, "ports": ports,
    }))
}

fn selects(selector: &BTreeMap<String, String>, pod: &Pod) -> bool {
    selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
}

fn address(pod: &Pod, family: Family) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let all = status
        .pod_ip
        .iter()
        .map(String::as_str)
        .chain(status.pod_ips.iter().flatten().map(|own| own.ip.as_str()));
    all.into_iter().find(|ip| match ip.parse() {
        Ok(IpAddr::V4(_)) => family == Family::Four,
        Ok(IpAddr::V6(_)) => family == Family::Six,
        Err(_) => false,
    })
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
            let slice = slice(&service(), Family::Four, &[&pod("a", ready, ending)]).unwrap();
            assert_eq!(slice.pointer("/endpoints/0/conditions"), Some(&expected));
        }
    }

    #[test]
    fn ports_are_found_by_name_by_number_and_by_default() {
        let slice = slice(&service(), Family::Four, &[&pod("a", true, false)]).unwrap();
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
        let slice = slice(&service(), Family::Four, &[&elsewhere, &other, &young]).unwrap();
        assert_eq!(slice["endpoints"], json!([]));
    }

    #[test]
    fn a_service_without_a_selector_is_left_alone() {
        let mut service = service();
        service.spec.as_mut().unwrap().selector = None;
        assert_eq!(slice(&service, Family::Four, &[]), None);
    }

    #[test]
    fn each_family_of_a_service_has_a_slice_with_the_addresses_of_that_family() {
        let mut service = service();
        let mut both = pod("a", true, false);
        let ips = json!([{"ip": "172.20.1.2"}, {"ip": "fd00:20:0:1::2"}]);
        both.status.as_mut().unwrap().pod_ips = serde_json::from_value(ips).unwrap();
        let single = pod("b", true, false);
        let addresses = |service: &Service, family| -> Option<Vec<Value>> {
            let slice = slice(service, family, &[&both, &single])?;
            Some(
                slice["endpoints"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|own| own["addresses"][0].clone())
                    .collect(),
            )
        };
        assert_eq!(addresses(&service, Family::Six), None);
        service.spec.as_mut().unwrap().ip_families = Some(vec!["IPv6".to_owned(), "IPv4".to_owned()]);
        assert_eq!(addresses(&service, Family::Six), Some(vec![json!("fd00:20:0:1::2")]));
        assert_eq!(addresses(&service, Family::Four).map(|all| all.len()), Some(2));
    }
}

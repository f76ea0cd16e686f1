// SPDX-License-Identifier: Apache-2.0
//! Services: what a server adds to them and takes back.

use ferrolb_fakekube::Options;
use serde_json::{Value, json};

use crate::target::{MERGE, STRATEGIC, Target, on_fake};

on_fake! {
    addresses_and_ports_are_released => super::addresses_and_ports_are_released,
    a_status_gets_its_ip_mode => super::a_status_gets_its_ip_mode,
}

fn load_balancer(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "type": "LoadBalancer", "selector": { "a": "b" }, "ports": [{ "port": 80 }] } })
}

pub(crate) async fn addresses_and_ports_are_released(target: &Target) {
    let path = target.namespace("released").await + "/services";
    let one = target.post(&path, load_balancer("one")).await.ok();
    let (ip, port) = (one["spec"]["clusterIP"].clone(), one["spec"]["ports"][0]["nodePort"].clone());
    assert!(port.as_u64().is_some_and(|port| (30000..=32767).contains(&port)), "{port}");
    let wants = |name: &str| {
        let mut wants = load_balancer(name);
        wants["spec"]["clusterIP"] = ip.clone();
        wants["spec"]["ports"][0]["nodePort"] = port.clone();
        wants
    };
    target.post(&path, wants("two")).await.refused(422, "already allocated");
    // Losing the type gives the port back, deletion the address too.
    target.patch(&format!("{path}/one"), MERGE, json!({ "spec": { "type": "ClusterIP" } })).await.ok();
    let mut only_port = wants("three");
    only_port["spec"]["clusterIP"] = "".into();
    target.post(&path, only_port).await.ok();
    target.delete(&format!("{path}/three")).await.ok();
    target.delete(&format!("{path}/one")).await.ok();
    let two = target.post(&path, wants("two")).await.ok();
    assert_eq!(two["spec"]["clusterIP"], ip);
    assert_eq!(two["spec"]["ports"][0]["nodePort"], port);
}

pub(crate) async fn a_status_gets_its_ip_mode(target: &Target) {
    let path = target.namespace("mode").await + "/services";
    let mut service = target.post(&path, load_balancer("s")).await.ok();
    service["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
    service["metadata"]["annotations"] = json!({ "example.com/pool": "p" });
    service["spec"]["selector"] = json!({ "a": "c" });
    let written = target.put(&format!("{path}/s/status"), &service).await.ok();
    assert_eq!(written["metadata"]["annotations"]["example.com/pool"], "p");
    assert_eq!(written["spec"]["selector"]["a"], "b", "the status subresource does not touch the spec");
    assert_eq!(written["status"]["loadBalancer"]["ingress"], json!([{ "ip": "192.0.2.1", "ipMode": "VIP" }]));
    let spec = json!({ "spec": { "type": "ClusterIP" }, "status": { "loadBalancer": {} } });
    let plain = target.patch(&format!("{path}/s"), MERGE, spec).await.ok();
    assert_eq!(plain["status"]["loadBalancer"], json!({}), "who is no load balancer has no address");
}

#[tokio::test]
async fn local_traffic_takes_a_port_for_health_checks() {
    let target = Target::fake().await;
    let path = target.namespace("local").await + "/services";
    let made = target.post(&path, load_balancer("s")).await.ok();
    assert_eq!(made["spec"].get("healthCheckNodePort"), None);
    let path = path + "/s";
    let local =
        target.patch(&path, STRATEGIC, json!({ "spec": { "externalTrafficPolicy": "Local" } })).await.ok();
    let port = local["spec"]["healthCheckNodePort"].as_u64().expect("a port");
    assert_ne!(Some(port), local["spec"]["ports"][0]["nodePort"].as_u64());
    let other = json!({ "spec": { "healthCheckNodePort": port + 1 } });
    target.patch(&path, MERGE, other).await.refused(422, "field is immutable");
    let cluster =
        target.patch(&path, STRATEGIC, json!({ "spec": { "externalTrafficPolicy": "Cluster" } })).await.ok();
    assert_eq!(cluster["spec"].get("healthCheckNodePort"), None);
}

#[tokio::test]
async fn a_dual_stack_cluster_gives_two_addresses_where_asked() {
    let service_cidrs = vec!["10.96.0.0/16".into(), "fd00:10:96::/112".into()];
    let target = Target::fake_with(Options { service_cidrs, ..Options::default() }).await;
    let path = target.namespace("dual").await + "/services";
    let mut service = load_balancer("s");
    let plain = target.post(&path, load_balancer("plain")).await.ok();
    assert_eq!(plain["spec"]["ipFamilies"], json!(["IPv4"]));
    service["spec"]["ipFamilyPolicy"] = "PreferDualStack".into();
    let made = target.post(&path, service).await.ok();
    assert_eq!(made["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    let second = made["spec"]["clusterIPs"][1].as_str().expect("a second address");
    assert!(second.starts_with("fd00:10:96::"), "{second}");
    let single = json!({ "spec": { "ipFamilyPolicy": "SingleStack" } });
    let single = target.patch(&format!("{path}/s"), MERGE, single).await.ok();
    assert_eq!(single["spec"]["clusterIPs"].as_array().map(Vec::len), Some(1));
    let both = json!({ "spec": { "ipFamilyPolicy": "RequireDualStack" } });
    let both = target.patch(&format!("{path}/s"), MERGE, both).await.ok();
    assert_eq!(both["spec"]["clusterIPs"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn mistakes_in_a_service_are_named() {
    let target = Target::fake().await;
    let path = target.namespace("mistakes").await + "/services";
    for (spec, field) in [
        (json!({ "type": "LoadBalancer", "ports": [] }), "spec.ports: Required value"),
        (json!({ "ports": [{ "port": 70000 }] }), "spec.ports[0].port: Invalid value: 70000"),
        (json!({ "ports": [{ "port": 1, "nodePort": 30000 }] }), "spec.ports[0].nodePort: Forbidden"),
        (json!({ "ports": [{ "port": 1 }], "loadBalancerClass": "x" }), "spec.loadBalancerClass: Forbidden"),
        (
            json!({ "type": "LoadBalancer", "clusterIP": "None", "ports": [{ "port": 1 }] }),
            "spec.clusterIPs[0]",
        ),
        (
            json!({ "ports": [{ "port": 1 }], "externalIPs": ["x"] }),
            "spec.externalIPs[0]: Invalid value: \"x\"",
        ),
        (
            json!({ "ports": [{ "port": 1 }], "sessionAffinity": "x" }),
            "spec.sessionAffinity: Unsupported value",
        ),
        (json!({ "ports": [{ "port": 1, "name": "a" }, { "port": 1, "name": "b" }] }), "Duplicate value"),
    ] {
        let service = json!({ "metadata": { "name": "s" }, "spec": spec });
        target.post(&path, service).await.refused(422, field);
    }
}

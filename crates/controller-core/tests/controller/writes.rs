// SPDX-License-Identifier: Apache-2.0
//! What is written, in which form, and how often.

use ferrolb_api::request::{Resource, Verb};
use serde_json::json;

use crate::cluster::{Cluster, NS, SYSTEM};

fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["192.168.10.200-192.168.10.220"] }));
    cluster.quiet();
    cluster.writes.clear();
    cluster
}

#[test]
fn a_service_is_put_whole_with_its_version_and_without_a_mode() {
    let mut cluster = cluster();
    cluster.service(json!({ "name": "hello-lb", "labels": { "app": "hello" }, "ann": { "other/x": "y" } }));
    let before = cluster.object("services", NS, "hello-lb").unwrap().clone();
    cluster.quiet();
    let writes = cluster.service_writes();
    assert_eq!(writes.len(), 1);
    let write = &writes[0];
    assert_eq!(write.verb, Verb::Put);
    assert_eq!(write.path_and_query(), "/api/v1/namespaces/demo/services/hello-lb/status");
    let mut expected = before;
    expected["metadata"]["annotations"]["metallb.io/ip-allocated-from-pool"] = json!("p");
    expected["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.168.10.200" }] } });
    assert_eq!(write.body.as_ref().unwrap(), &expected);
    // What the API server makes of it.
    let stored = cluster.object("services", NS, "hello-lb").unwrap();
    assert_eq!(
        stored["status"]["loadBalancer"]["ingress"],
        json!([{ "ip": "192.168.10.200", "ipMode": "VIP" }])
    );
}

#[test]
fn a_pool_is_put_whole_with_four_numbers() {
    let mut cluster = cluster();
    cluster.service(json!({ "name": "s" }));
    let before = cluster.object("ipaddresspools", SYSTEM, "p").unwrap().clone();
    cluster.quiet();
    let writes: Vec<_> =
        cluster.writes.iter().filter(|write| write.resource == Resource::IPAddressPools).collect();
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0].verb, Verb::Put);
    assert_eq!(
        writes[0].path_and_query(),
        "/apis/metallb.io/v1beta1/namespaces/metallb-system/ipaddresspools/p/status"
    );
    let body = writes[0].body.as_ref().unwrap();
    assert_eq!(
        body["status"],
        json!({ "assignedIPv4": 1, "assignedIPv6": 0, "availableIPv4": 20, "availableIPv6": 0 })
    );
    assert_eq!(body["metadata"], before["metadata"]);
    assert_eq!(body["spec"]["addresses"], before["spec"]["addresses"]);
}

#[test]
fn an_event_refers_to_its_service() {
    let mut cluster = cluster();
    cluster.service(json!({ "name": "s" }));
    let version = cluster.object("services", NS, "s").unwrap()["metadata"].clone();
    cluster.quiet();
    let regarding = &cluster.events[0].regarding;
    assert_eq!((regarding.api_version.as_str(), regarding.kind.as_str()), ("v1", "Service"));
    assert_eq!((regarding.namespace.as_str(), regarding.name.as_str()), (NS, "s"));
    assert_eq!(json!(regarding.uid), version["uid"]);
    assert_eq!(json!(regarding.resource_version), version["resourceVersion"]);
}

#[test]
fn many_services_at_once_cost_one_write_each_and_few_of_the_pool() {
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["10.0.0.0/16"] }));
    cluster.quiet();
    cluster.writes.clear();
    for n in 0..200 {
        cluster.service(json!({ "name": format!("s{n:03}") }));
    }
    cluster.quiet();
    assert_eq!(cluster.service_writes().len(), 200);
    assert_eq!(cluster.writes.len(), 1, "counters are written once things are quiet");
    let pool = cluster.object("ipaddresspools", SYSTEM, "p").unwrap();
    assert_eq!(pool["status"]["assignedIPv4"], 200);
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let mut cluster = cluster();
    for n in 0..10 {
        cluster.service(json!({ "name": format!("s{n}"), "st": [format!("192.168.10.{}", 219 - n)] }));
    }
    cluster.service(json!({ "name": "pending", "loadBalancerIP": "9.9.9.9" }));
    cluster.quiet();
    cluster.writes.clear();
    cluster.told();
    // AL-2: a restart.
    cluster.stop();
    cluster.start();
    cluster.quiet();
    assert_eq!(cluster.writes, []);
    assert_eq!(cluster.told().len(), 1, "who waits is told once more");
    // A watch that lists anew, a label without meaning, another namespace, a community.
    cluster.relist();
    cluster.quiet();
    cluster.service(json!({ "name": "s3", "labels": { "touched": "yes" } }));
    cluster.quiet();
    cluster.namespace("elsewhere", json!({ "a": "b" }));
    cluster.quiet();
    cluster.community(json!({ "name": "c", "communities": [{ "name": "x", "value": "1:2" }] }));
    cluster.quiet();
    assert_eq!(cluster.writes, []);
    assert_eq!(cluster.told(), Vec::<String>::new());
}

#[test]
fn a_change_of_one_service_looks_at_that_service_only() {
    let mut cluster = cluster();
    for n in 0..20 {
        cluster.service(json!({ "name": format!("s{n}") }));
    }
    cluster.quiet();
    cluster.reconciled = 0;
    cluster.service(json!({ "name": "s3", "labels": { "touched": "yes" } }));
    cluster.quiet();
    assert_eq!(cluster.reconciled, 1);
}

#[test]
fn somebody_elses_figures_in_a_pool_status_are_put_right() {
    let mut cluster = cluster();
    cluster.patch("ipaddresspools", SYSTEM, "p", &json!({ "status": { "assignedIPv4": 7 } }));
    cluster.quiet();
    assert_eq!(cluster.object("ipaddresspools", SYSTEM, "p").unwrap()["status"]["assignedIPv4"], 0);
    assert_eq!(cluster.writes.len(), 1);
}

#[test]
fn a_pool_that_goes_takes_its_figures_along() {
    let mut cluster = cluster();
    assert!(cluster.counters.contains_key("p"));
    cluster.delete("ipaddresspools", SYSTEM, "p");
    cluster.quiet();
    assert!(cluster.counters.is_empty());
}

#[test]
fn the_configuration_state_is_created_and_comes_back() {
    let mut cluster = cluster();
    let state = cluster.object("configurationstates", SYSTEM, "controller").unwrap();
    assert_eq!(state["metadata"]["labels"], json!({ "metallb.io/component-type": "controller" }));
    assert_eq!(state["metadata"]["ownerReferences"][0]["uid"], "pod-uid");
    assert_eq!(state["status"]["result"], "Valid");
    cluster.delete("configurationstates", SYSTEM, "controller");
    cluster.quiet();
    let state = cluster.object("configurationstates", SYSTEM, "controller").unwrap();
    assert_eq!(state["status"]["conditions"][0]["reason"], "Reconciled");
}

#[test]
fn objects_of_other_namespaces_configure_nothing() {
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["10.0.0.0/24"] }));
    cluster.patch("ipaddresspools", SYSTEM, "p", &json!({ "metadata": { "namespace": "elsewhere" } }));
    cluster.delete("ipaddresspools", SYSTEM, "p");
    cluster.service(json!({ "name": "s" }));
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "");
}

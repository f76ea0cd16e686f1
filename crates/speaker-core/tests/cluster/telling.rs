// SPDX-License-Identifier: Apache-2.0
//! What users are told: events, ConfigurationState, counters.

use ferrolb_api::event::EventKind;
use ferrolb_speaker_core::Input;
use serde_json::{Value, json};

use crate::bench::{Bench, NODE1, NODE2, config, endpoints, service};

const IP: &str = "192.168.10.200";

fn web(mut bench: Bench) -> Bench {
    bench.api.put("EndpointSlice", endpoints("web", &[NODE1]));
    bench.api.put("Service", service("web", IP));
    bench.settle();
    bench
}

fn state(bench: &Bench, node: &str) -> Value {
    let name = json!(format!("speaker-{node}"));
    let object = bench.api.list("ConfigurationState").find(|object| object["metadata"]["name"] == name);
    object.unwrap()["status"].clone()
}

#[test]
fn a_gain_is_told_once_in_metallbs_words_s14_st_6_st_7() {
    let mut bench = web(Bench::started());
    let version = bench.api.list("Service").next().unwrap()["metadata"]["resourceVersion"].clone();
    let (node, event) = &bench.events[0];
    assert_eq!(*node, NODE1);
    assert_eq!((event.kind, event.reason), (EventKind::Normal, "nodeAssigned"));
    assert_eq!(event.message, "announcing from node \"k8s-node-1\" with protocol \"layer2\"");
    let regarding = &event.regarding;
    assert_eq!((regarding.api_version.as_str(), regarding.kind.as_str()), ("v1", "Service"));
    assert_eq!((regarding.namespace.as_str(), regarding.name.as_str()), ("demo", "web"));
    assert!(!regarding.uid.is_empty());
    assert_eq!(json!(regarding.resource_version), version);
    // Nothing that leaves the announcement as it is says it again.
    bench.take_events();
    bench.api.put("EndpointSlice", endpoints("web", &[NODE1, NODE2]));
    bench.api.patch("Service", "demo", "web", &json!({ "metadata": { "labels": { "touched": "1" } } }));
    bench.api.patch("IPAddressPool", "metallb-system", "pool", &json!({ "spec": { "autoAssign": false } }));
    bench.settle();
    assert_eq!(bench.take_events(), Vec::<String>::new());
}

#[test]
fn an_interface_that_no_node_has_is_told_once_and_the_address_is_not_announced_s33_s34() {
    let mut bench = web(Bench::started());
    bench.take_events();
    bench.api.patch("L2Advertisement", "metallb-system", "l2", &json!({ "spec": { "interfaces": ["foo"] } }));
    bench.settle();
    let (node, event) = &bench.events[0];
    assert_eq!(*node, NODE1);
    assert_eq!((event.kind, event.reason), (EventKind::Warning, "announceFailed"));
    assert_eq!(
        event.message,
        "the interfaces specified by LB IP \"192.168.10.200\" doesn't exist in assigned node \"k8s-node-1\" \
         with protocol \"layer2\""
    );
    assert_eq!(bench.take_events().len(), 1);
    assert_eq!(bench.owner(IP), None, "the earlier selection is taken back");
    assert!(bench.speakers[NODE1].announced.is_empty());
    assert_eq!(bench.statuses(), Vec::<String>::new());

    let now = bench.now;
    bench.speakers.get_mut(NODE1).unwrap().interfaces(now, &["ens18", "foo"]);
    bench.settle();
    assert_eq!(bench.take_events(), ["k8s-node-1: nodeAssigned web"]);
    assert_eq!(bench.statuses(), ["demo/web@k8s-node-1 foo"]);
}

#[test]
fn an_interface_that_is_there_and_cannot_answer_is_no_interface_s35() {
    let mut bench = web(Bench::started());
    bench.take_events();
    // It is down, enslaved or without ARP: the wire side does not count it.
    let now = bench.now;
    bench.speakers.get_mut(NODE1).unwrap().interfaces(now, &["lo1"]);
    bench.settle();
    assert_eq!(bench.take_events(), ["k8s-node-1: announceFailed web"]);
    assert!(bench.speakers[NODE1].announced.is_empty());
}

#[test]
fn an_address_that_one_of_its_interfaces_can_serve_has_not_failed() {
    let mut bench = web(Bench::started());
    bench.take_events();
    let some = json!({ "spec": { "interfaces": ["ens18", "nowhere"] } });
    bench.api.patch("L2Advertisement", "metallb-system", "l2", &some);
    bench.settle();
    assert_eq!(bench.take_events(), Vec::<String>::new());
    assert_eq!(bench.statuses(), ["demo/web@k8s-node-1 ens18"], "and only where it is served");
}

#[test]
fn an_interface_that_comes_back_is_announced_on() {
    let mut bench = web(Bench::started());
    let now = bench.now;
    bench.speakers.get_mut(NODE1).unwrap().interfaces(now, &[]);
    bench.settle();
    assert!(bench.speakers[NODE1].announced.is_empty());
    bench.gratuitous.clear();
    let now = bench.now;
    bench.speakers.get_mut(NODE1).unwrap().interfaces(now, &["ens18"]);
    bench.settle();
    assert_eq!(bench.gratuitous.len(), 10);
    assert_eq!(bench.owner(IP), Some(NODE1));
}

#[test]
fn counters_follow_the_traffic() {
    let mut bench = web(Bench::started());
    for _ in 0..3 {
        bench.arping(IP);
    }
    bench.settle();
    let counters = bench.speakers[NODE1].counters[&IP.parse().unwrap()];
    assert_eq!((counters.requests, counters.responses, counters.gratuitous), (3, 3, 10));
    assert!(bench.speakers[NODE2].counters.is_empty());
}

#[test]
fn series_of_an_address_go_with_it_s43() {
    let mut bench = web(Bench::started());
    assert_eq!(bench.speakers[NODE1].announced.len(), 1);
    bench.api.delete("Service", "demo", "web");
    bench.run(std::time::Duration::from_secs(1));
    assert!(bench.speakers[NODE1].announced.is_empty(), "the gauge at once");
    assert_eq!(bench.speakers[NODE1].counters.len(), 1, "counters are scraped once more");
    bench.run(std::time::Duration::from_secs(610));
    assert!(bench.speakers[NODE1].counters.is_empty());
}

#[test]
fn each_speaker_has_a_configuration_state_and_writes_it_once_c01_s08() {
    let mut bench = web(Bench::started());
    for node in [NODE1, NODE2] {
        let status = state(&bench, node);
        assert_eq!(status["result"], "Valid");
        assert_eq!(status["conditions"][0]["type"], "configReconcilerValid");
        assert_eq!(status["conditions"][0]["reason"], "Reconciled");
    }
    bench.take_writes();
    bench.api.patch("IPAddressPool", "metallb-system", "pool", &json!({ "spec": { "autoAssign": false } }));
    bench.settle();
    assert_eq!(bench.take_writes(), Vec::<String>::new(), "the configuration is as valid as before");
}

#[test]
fn a_bad_pool_shows_and_the_last_good_one_goes_on_s05_s07() {
    let mut bench = web(Bench::started());
    let backwards = json!({ "spec": { "addresses": ["192.168.10.220-192.168.10.200"] } });
    bench.api.patch("IPAddressPool", "metallb-system", "pool", &backwards);
    bench.api.put("EndpointSlice", endpoints("new", &[NODE1]));
    bench.api.put("Service", service("new", "192.168.10.210"));
    bench.settle();
    let status = state(&bench, NODE1);
    assert_eq!(status["result"], "Invalid");
    assert!(status["errorSummary"].as_str().unwrap().starts_with("configuration error: "), "{status}");
    assert!(bench.speakers[NODE1].stale);
    assert_eq!(bench.owner(IP), Some(NODE1));
    assert!(bench.owner("192.168.10.210").is_some(), "also for a Service that came later");

    let good = json!({ "spec": { "addresses": ["192.168.10.200-192.168.10.220"] } });
    bench.api.patch("IPAddressPool", "metallb-system", "pool", &good);
    bench.settle();
    assert_eq!(state(&bench, NODE1)["result"], "Valid");
    assert!(!bench.speakers[NODE1].stale);
}

#[test]
fn objects_of_bgp_are_named_as_not_served_and_layer_2_goes_on() {
    let mut bench = Bench::new();
    bench.settings = |settings| settings.bgp_type = "frr-k8s".into();
    bench.start_all();
    let mut bench = web(bench);
    bench.api.put(
        "BGPPeer",
        config("router", json!({ "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1" })),
    );
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    let status = state(&bench, NODE1);
    assert_eq!(status["result"], "Invalid", "what is not served must not pass for valid: {status}");
    let summary = status["errorSummary"].as_str().unwrap();
    assert!(summary.starts_with("configuration error: BGPPeer router"), "{summary}");

    bench.api.delete("BGPPeer", "metallb-system", "router");
    bench.settle();
    assert_eq!(state(&bench, NODE1)["result"], "Valid");
}

#[test]
fn objects_of_other_namespaces_are_nobodys() {
    let mut bench = web(Bench::started());
    bench.take_writes();
    let mut pool = config("elsewhere", json!({ "addresses": ["192.168.10.200-192.168.10.220"] }));
    pool["metadata"]["namespace"] = json!("default");
    bench.api.put("IPAddressPool", pool);
    bench.settle();
    assert_eq!(bench.take_writes(), Vec::<String>::new());
    assert_eq!(bench.owner(IP), Some(NODE1));
}

#[test]
fn an_object_that_cannot_be_read_is_named_and_its_last_good_version_stays_s06() {
    let mut bench = web(Bench::started());
    let broken = ferrolb_config::Undecodable {
        kind: "IPAddressPool",
        name: "pool".into(),
        message: "spec.addresses: invalid type: integer `7`, expected a string".into(),
    };
    bench.hear(NODE1, Input::Undecodable(vec![broken]));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    let status = state(&bench, NODE1);
    assert_eq!(status["result"], "Invalid");
    assert!(
        status["errorSummary"].as_str().unwrap().contains("IPAddressPool pool cannot be read"),
        "{status}"
    );

    bench.hear(NODE1, Input::Undecodable(Vec::new()));
    bench.settle();
    assert_eq!(state(&bench, NODE1)["result"], "Valid");
}

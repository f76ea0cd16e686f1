// SPDX-License-Identifier: Apache-2.0
//! Without the right to use Leases: other controllers' Pods are waited for.

use std::time::Duration;

use ferrolb_api::request::WriteError;
use ferrolb_controller_core::Neighbours;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::bench::Bench;

const SECOND: Duration = Duration::from_secs(1);
const OURS: &str = "ghcr.example/ferrolb/controller:v1";
const THEIRS: &str = "quay.io/metallb/controller:v0.16.1";

fn pod(name: &str, created: u8, image: &str) -> Pod {
    pod_with(name, created, image, json!({}))
}

fn pod_with(name: &str, created: u8, image: &str, metadata: Value) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": name, "uid": format!("uid-{name}"),
            "creationTimestamp": format!("2024-01-01T00:00:{created:02}Z"),
        },
        "spec": { "nodeName": "n1", "containers": [{ "name": "controller", "image": image }] },
        "status": { "phase": "Running" },
    });
    pod["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    serde_json::from_value(pod).unwrap()
}

/// The own Pod, created at second 5, and these.
fn among(bench: &mut Bench, others: Vec<Pod>) {
    let status = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    let node: Node =
        serde_json::from_value(json!({ "metadata": { "name": "n1" }, "status": status })).unwrap();
    let pods = [pod("controller-0", 5, OURS)].into_iter().chain(others).collect();
    bench.neighbours = Ok(Neighbours { pods, nodes: vec![node] });
}

fn bench(others: Vec<Pod>) -> Bench {
    let mut bench = Bench::with_rivals();
    among(&mut bench, others);
    bench.start(0);
    bench
}

#[test]
fn alone_it_looks_once_per_batch_and_never_when_idle() {
    let mut bench = bench(vec![]);
    bench.run_for(10 * SECOND);
    let looks = bench.looks;
    for n in 0..5 {
        bench.service(json!({ "name": format!("s{n}") }));
    }
    bench.run_for(Duration::from_millis(1));
    assert_eq!(bench.sent(0).len(), 5);
    assert_eq!(bench.looks, looks + 1);
    bench.run_for(10 * SECOND);
    let looks = bench.looks;
    // A change that is no reason to write is none to look either.
    bench.service(json!({ "name": "s0", "labels": { "touched": "yes" } }));
    bench.relist(0);
    bench.run_for(3600 * SECOND);
    assert_eq!((bench.looks, bench.sent(0).len()), (looks, 5));
}

#[test]
fn services_that_are_created_one_after_the_other_do_not_wait_for_a_look_each() {
    let mut bench = bench(vec![]);
    bench.api.pool(json!({ "name": "p", "addresses": ["1.2.3.0/24"] }));
    bench.run_for(10 * SECOND);
    let looks = bench.looks;
    for n in 0..100 {
        bench.service(json!({ "name": format!("s{n}") }));
        bench.run_for(Duration::from_millis(1));
        assert_ne!(bench.ips(&format!("s{n}")), "");
    }
    assert_eq!(bench.looks, looks + 1);
    // One that comes meanwhile is seen before another tenth of a second is over.
    among(&mut bench, vec![pod("metallb", 1, THEIRS)]);
    bench.run_for(Duration::from_millis(100));
    bench.service(json!({ "name": "late" }));
    bench.run_for(10 * SECOND);
    assert_eq!(bench.ips("late"), "");
}

#[test]
fn nothing_is_written_or_told_while_another_controller_is_there() {
    let mut bench = bench(vec![pod("metallb", 1, THEIRS)]);
    bench.service(json!({ "name": "a" }));
    bench.service(json!({ "name": "bad", "loadBalancerIP": "9.9.9.9" }));
    bench.run_for(59 * SECOND);
    assert!(bench.replicas[0].sent.is_empty(), "{:?}", bench.replicas[0].sent);
    assert!(bench.replicas[0].events.is_empty());
    assert!((55..=65).contains(&bench.looks), "{} looks in a minute", bench.looks);
    among(&mut bench, vec![]);
    bench.run_for(SECOND);
    assert_eq!(bench.ips("a"), "1.2.3.0");
    let reasons: Vec<_> = bench.replicas[0].events.iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["IPAllocated", "AllocationFailed"], "each once");
}

#[test]
fn whoever_waits_for_an_address_hears_of_it_though_the_one_that_frees_it_waits_for_a_look() {
    let mut bench = bench(vec![]);
    bench.service(json!({ "name": "a", "loadBalancerIP": "1.2.3.5" }));
    bench.run_for(10 * SECOND);
    bench.service(json!({ "name": "b", "loadBalancerIP": "1.2.3.5" }));
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("1.2.3.5", ""));
    // The API server itself empties the status of what is no load balancer any more: only the annotation is left to write.
    bench.service(json!({ "name": "a", "type": "ClusterIP", "st": [] }));
    bench.run_for(SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("", "1.2.3.5"));
}

#[test]
fn what_the_other_one_writes_meanwhile_is_respected() {
    let mut bench = bench(vec![pod("metallb", 1, THEIRS)]);
    bench.service(json!({ "name": "a" }));
    bench.service(json!({ "name": "b" }));
    bench.run_for(10 * SECOND);
    // It decided in another order.
    bench.service(json!({ "name": "b", "st": ["1.2.3.0"], "ann": { "ip-allocated-from-pool": "p" } }));
    bench.run_for(10 * SECOND);
    among(&mut bench, vec![]);
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("1.2.3.1", "1.2.3.0"));
    assert_eq!(bench.sent(0), ["a"]);
}

#[test]
fn after_a_minute_it_goes_on_and_says_so_once() {
    let mut bench = bench(vec![pod("metallb", 1, THEIRS)]);
    bench.service(json!({ "name": "a" }));
    let took = bench.until(62 * SECOND, |bench| bench.ips("a") == "1.2.3.0");
    assert!(took >= 60 * SECOND, "{took:?}");
    bench.run_for(10 * SECOND);
    // From now on nothing is delayed.
    bench.service(json!({ "name": "b" }));
    bench.run_for(Duration::from_millis(1));
    assert_eq!(bench.ips("b"), "1.2.3.1");
    let told: Vec<_> =
        bench.replicas[0].events.iter().filter(|event| event.reason == "OtherController").collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].regarding.kind, "Pod");
    assert!(told[0].message.contains("(metallb)"), "{}", told[0].message);
}

#[test]
fn of_two_of_ours_the_older_goes_on_and_the_younger_waits_for_ever() {
    for (created, goes_on) in [(9, true), (1, false)] {
        let mut bench = bench(vec![pod("other", created, OURS)]);
        bench.service(json!({ "name": "a" }));
        bench.run_for(300 * SECOND);
        assert_eq!(bench.ips("a") == "1.2.3.0", goes_on, "{created}");
    }
}

#[test]
fn a_younger_one_that_sees_everything_done_by_the_older_looks_no_more() {
    let mut bench = bench(vec![]);
    bench.run_for(10 * SECOND);
    among(&mut bench, vec![pod("other", 1, OURS)]);
    bench.service(json!({ "name": "a" }));
    let looks = bench.looks;
    bench.run_for(10 * SECOND);
    assert!(bench.looks > looks + 5, "it has something to do");
    bench.service(json!({ "name": "a", "st": ["1.2.3.0"], "ann": { "ip-allocated-from-pool": "p" } }));
    let counts = json!({ "assignedIPv4": 1, "assignedIPv6": 0, "availableIPv4": 7, "availableIPv6": 0 });
    bench.api.patch("ipaddresspools", "metallb-system", "p", &json!({ "status": counts }));
    bench.run_for(10 * SECOND);
    let looks = bench.looks;
    bench.run_for(60 * SECOND);
    assert_eq!(bench.looks, looks);
}

#[test]
fn a_pod_that_ends_is_no_rival() {
    let ending = json!({ "deletionTimestamp": "2024-01-01T00:00:00Z" });
    let mut bench = bench(vec![pod_with("metallb", 1, THEIRS, ending)]);
    bench.service(json!({ "name": "a" }));
    bench.run_for(Duration::from_millis(1));
    assert_eq!(bench.ips("a"), "1.2.3.0");
}

#[test]
fn who_may_not_look_goes_on_and_says_so_once() {
    let mut bench = bench(vec![]);
    bench.neighbours = Err(WriteError::refused(403, "Forbidden", "pods is forbidden"));
    bench.service(json!({ "name": "a" }));
    bench.run_for(SECOND);
    bench.service(json!({ "name": "b" }));
    bench.run_for(SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("1.2.3.0", "1.2.3.1"));
    let told = bench.replicas[0].events.iter().filter(|event| event.reason == "OtherController").count();
    assert_eq!(told, 1);
}

#[test]
fn conditions_that_are_there_stay_as_they_are() {
    let mut bench = bench(vec![]);
    bench.service(json!({ "name": "a" }));
    let theirs = json!([
        { "type": "ferrolb.io/Allocated", "status": "False", "reason": "X", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z" },
        { "type": "theirs", "status": "True", "reason": "Y", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z" },
    ]);
    bench.api.patch("services", "demo", "a", &json!({ "status": { "conditions": theirs } }));
    bench.run_for(SECOND);
    assert_eq!(bench.ips("a"), "1.2.3.0");
    assert_eq!(bench.api.object("services", "demo", "a").unwrap()["status"]["conditions"], theirs);
}

#[test]
fn an_address_whose_write_got_no_answer_is_free_once_the_api_server_has_given_it_up() {
    let mut bench = bench(vec![]);
    let only_for = |bench: &mut Bench, names: &[&str]| {
        let selectors: Vec<Value> =
            names.iter().map(|name| json!({ "matchLabels": { "app": name } })).collect();
        let allocation = json!({ "serviceSelectors": selectors });
        bench.api.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"], "serviceAllocation": allocation }));
    };
    only_for(&mut bench, &["a"]);
    bench.run_for(SECOND);
    bench.replicas[0].slow = true;
    bench.service(json!({ "name": "a", "labels": { "app": "a" } }));
    bench.run_for(SECOND);
    // There is nothing to write about it any more.
    only_for(&mut bench, &["b"]);
    bench.service(json!({ "name": "b", "labels": { "app": "b" } }));
    bench.give_up_waiting();
    bench.late.clear();
    bench.replicas[0].slow = false;
    bench.run_for(59 * SECOND);
    assert_eq!(bench.ips("b"), "", "it may still arrive");
    // What cannot be read settles nothing.
    bench.away = true;
    bench.run_for(10 * SECOND);
    bench.away = false;
    assert_eq!(bench.ips("b"), "");
    bench.hold_readings = true;
    bench.until(6 * SECOND, |bench| bench.held_readings() == 1);
    bench.release_readings();
    bench.run_for(Duration::from_millis(1));
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("", "1.2.3.0"));
    // That was all there was to read.
    bench.hold_readings = true;
    bench.run_for(3600 * SECOND);
    assert_eq!(bench.held_readings(), 0);
}

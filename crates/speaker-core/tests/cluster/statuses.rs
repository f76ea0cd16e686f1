// SPDX-License-Identifier: Apache-2.0
//! ServiceL2Status objects: their form, their repair, and peace between speakers that disagree.

use std::time::Duration;

use ferrolb_api::request::WriteError;
use ferrolb_speaker_core::Input;
use serde_json::{Value, json};

use crate::bench::{Bench, EXCLUDE, NODE1, NODE2, NODES, config, endpoints, service};

const IP: &str = "192.168.10.200";

fn one_service() -> Bench {
    let mut bench = Bench::started();
    bench.api.put("EndpointSlice", endpoints("four", &[NODE1]));
    bench.api.put("Service", service("four", IP));
    bench.settle();
    bench.take_writes();
    bench
}

/// The same, and room for more.
fn many_services() -> Bench {
    let mut bench = one_service();
    bench.api.put("IPAddressPool", config("more", json!({ "addresses": ["192.168.10.100-192.168.10.199"] })));
    bench.settle();
    bench.take_writes();
    bench
}

fn status_name(bench: &Bench) -> String {
    let object = bench.api.list("ServiceL2Status").next().unwrap();
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// A status object of another node, as its speaker left it.
fn foreign(name: &str, node: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "metallb-system",
            "name": name,
            "labels": {
                "metallb.io/node": node,
                "metallb.io/service-name": "four",
                "metallb.io/service-namespace": "demo",
            },
        },
        "spec": {},
        "status": { "node": node, "serviceName": "four", "serviceNamespace": "demo" },
    })
}

#[test]
fn the_object_is_metallbs() {
    let mut bench = Bench::new();
    bench.api.patch("L2Advertisement", "metallb-system", "l2", &json!({ "spec": { "interfaces": null } }));
    bench.start_all();
    bench.api.put("EndpointSlice", endpoints("four", &[NODE1]));
    bench.api.put("Service", service("four", IP));
    bench.settle();
    let mut ours = bench.api.list("ServiceL2Status").next().unwrap().clone();
    let recorded = include_str!("../data/servicel2status.json")
        .replace("node2", NODE1)
        .replace("\"default\"", "\"demo\"");
    let mut theirs: Value = serde_json::from_str(&recorded).unwrap();
    for object in [&mut ours, &mut theirs] {
        let metadata = object["metadata"].as_object_mut().unwrap();
        for varying in ["creationTimestamp", "generation", "managedFields", "name", "resourceVersion", "uid"]
        {
            metadata.remove(varying);
        }
        metadata["ownerReferences"][0]["uid"] = json!("{uid}");
        object.as_object_mut().unwrap().retain(|key, _| !["apiVersion", "kind"].contains(&key.as_str()));
    }
    similar_asserts::assert_eq!(ours, theirs);

    let requests: Vec<_> =
        bench.api.requests.iter().filter(|r| r.resource.plural() == "servicel2statuses").collect();
    assert_eq!(requests.len(), 2, "created, then its status");
    assert_eq!(
        requests[1].body,
        Some(json!({ "status": { "node": NODE1, "serviceName": "four", "serviceNamespace": "demo" } }))
    );
}

#[test]
fn interfaces_follow_the_advertisement_in_order_s51() {
    let mut bench = one_service();
    assert_eq!(bench.statuses(), ["demo/four@k8s-node-1 ens18"]);
    let set = |bench: &mut Bench, interfaces: Value| {
        let patch = json!({ "spec": { "interfaces": interfaces } });
        bench.api.patch("L2Advertisement", "metallb-system", "l2", &patch);
        bench.settle();
        assert_eq!(bench.take_writes(), ["PATCH servicel2statuses/status"]);
    };
    set(&mut bench, Value::Null);
    assert_eq!(bench.statuses(), ["demo/four@k8s-node-1"]);
    let now = bench.now;
    bench.speakers.get_mut(NODE1).unwrap().interfaces(now, &["ens18", "ens19"]);
    bench.settle();
    assert_eq!(bench.take_writes(), Vec::<String>::new());
    set(&mut bench, json!(["ens19", "ens18", "absent"]));
    assert_eq!(bench.statuses(), ["demo/four@k8s-node-1 ens18,ens19"]);
}

#[test]
fn what_others_do_to_it_is_repaired() {
    let mut bench = one_service();
    let name = status_name(&bench);
    bench.api.patch(
        "ServiceL2Status",
        "metallb-system",
        &name,
        &json!({ "status": { "interfaces": [{ "name": "nonsense" }] } }),
    );
    bench.settle();
    assert_eq!(bench.statuses(), ["demo/four@k8s-node-1 ens18"]);
    bench.api.delete("ServiceL2Status", "metallb-system", &name);
    bench.settle();
    assert_eq!(bench.statuses(), ["demo/four@k8s-node-1 ens18"]);
    // What cannot be changed is replaced.
    let name = status_name(&bench);
    bench.api.patch("ServiceL2Status", "metallb-system", &name, &json!({ "status": { "node": "nobody" } }));
    bench.settle();
    assert_eq!(bench.statuses(), ["demo/four@k8s-node-1 ens18"]);
    assert_ne!(status_name(&bench), name);
    // A second one of ours goes.
    bench.api.put("ServiceL2Status", foreign("l2-twice", NODE1));
    bench.settle();
    assert_eq!(bench.statuses(), ["demo/four@k8s-node-1 ens18"]);
    // So does one for a Service that nobody announces.
    let mut ghost = foreign("l2-ghost", NODE2);
    ghost["metadata"]["labels"]["metallb.io/service-name"] = json!("ghost");
    bench.api.put("ServiceL2Status", ghost);
    bench.settle();
    assert_eq!(bench.statuses(), ["demo/four@k8s-node-1 ens18"]);
}

#[test]
fn a_dead_speakers_object_is_deleted_once_it_had_time_to_do_so_itself_a17() {
    let mut bench = one_service();
    bench.api.put("ServiceL2Status", foreign("l2-left", "k8s-node-9"));
    bench.run(Duration::from_millis(1_500));
    assert_eq!(bench.statuses().len(), 2);
    bench.run(Duration::from_secs(1));
    assert_eq!(bench.statuses(), ["demo/four@k8s-node-1 ens18"]);
    assert_eq!(bench.take_writes(), ["DELETE servicel2statuses"]);
}

#[test]
fn a_speaker_that_is_no_owner_leaves_others_objects_alone_a18() {
    let mut bench = one_service();
    bench.stop(NODE1);
    let orphan = bench.statuses();
    bench.settle();
    assert_eq!(bench.statuses(), orphan);
    assert_eq!(bench.take_writes(), Vec::<String>::new());
}

#[test]
fn an_object_that_comes_back_is_somebodys_who_lives_and_is_left_alone() {
    let mut bench = one_service();
    for round in 0..5 {
        bench.api.put("ServiceL2Status", foreign(&format!("l2-insists-{round}"), "k8s-node-9"));
        bench.settle();
    }
    assert_eq!(bench.take_writes(), ["DELETE servicel2statuses"]);
}

#[test]
fn against_one_who_deletes_ours_we_come_back_ever_more_slowly() {
    let mut bench = one_service();
    bench.api.put("ServiceL2Status", foreign("l2-rival", "k8s-node-9"));
    bench.settle();
    bench.api.put("ServiceL2Status", foreign("l2-rival-again", "k8s-node-9"));
    bench.settle();
    bench.take_writes();
    // The rival looks every 100 ms, for five minutes.
    for _ in 0..3_000 {
        let ours =
            bench.api.list("ServiceL2Status").find(|o| o["metadata"]["labels"]["metallb.io/node"] == NODE1);
        if let Some(name) = ours.and_then(|o| o["metadata"]["name"].as_str()).map(ToOwned::to_owned) {
            bench.api.delete("ServiceL2Status", "metallb-system", &name);
        }
        bench.run(Duration::from_millis(100));
    }
    let writes = bench.take_writes();
    assert!((5..=30).contains(&writes.len()), "{writes:?}");
}

#[test]
fn a_failing_api_is_tried_again_with_pauses_until_all_is_true() {
    let mut bench = one_service();
    bench.api.outage = Some(WriteError::no_answer("connection refused"));
    bench.api.put("EndpointSlice", endpoints("five", &[NODE1]));
    bench.api.put("Service", service("five", "192.168.10.201"));
    bench.api.delete("Service", "demo", "four");
    bench.run(Duration::from_secs(60));
    assert!(bench.owner("192.168.10.201").is_some(), "the network does not wait for the API");
    assert_eq!(bench.owner(IP), None);
    let attempts = bench.take_writes().len();
    assert!((4..=30).contains(&attempts), "{attempts}");
    bench.api.outage = None;
    bench.run(Duration::from_secs(120));
    let owner = bench.owner("192.168.10.201").unwrap();
    assert_eq!(bench.statuses(), [format!("demo/five@{owner} ens18")]);
}

#[test]
fn what_an_outage_kept_from_being_written_is_written_as_soon_as_the_api_answers() {
    for minutes in [1, 4, 60] {
        let mut bench = many_services();
        bench.api.outage = Some(WriteError::no_answer("connection refused"));
        let since = bench.now;
        for n in 0..100 {
            bench.api.put("Service", service(&format!("more-{n}"), &format!("192.168.10.{}", 100 + n)));
            bench.api.put("EndpointSlice", endpoints(&format!("more-{n}"), &[NODE1, NODE2]));
        }
        bench.api.delete("Service", "demo", "four");
        bench.run(Duration::from_secs(12));
        for node in NODES {
            bench.hear(node, Input::ApiSilent { since });
        }
        bench.take_writes();
        bench.run(Duration::from_secs(minutes * 60));
        // What was under way when that became known, of statuses and of the ConfigurationState.
        let tried = bench.take_writes().len();
        assert!(tried <= NODES.len() * 17, "{tried}: a silent server is not asked the same again and again");
        bench.api.outage = None;
        for node in NODES {
            bench.hear(node, Input::ApiAnswers);
        }
        // What was sent and not answered may have been done: whether it was is waited for, for a second.
        bench.run(Duration::from_millis(1_200));
        let statuses = bench.statuses();
        assert_eq!(statuses.len(), 100, "{statuses:?}");
        for n in 0..100 {
            let owner = bench.owner(&format!("192.168.10.{}", 100 + n)).unwrap();
            assert!(statuses.contains(&format!("demo/more-{n}@{owner} ens18")), "{n}");
        }
    }
}

#[test]
fn when_a_server_in_trouble_takes_a_write_what_failed_is_tried_again_at_once() {
    let mut bench = many_services();
    bench.api.outage = Some(WriteError::refused(500, "InternalError", "etcdserver: request timed out"));
    for n in 0..30 {
        bench.api.put("Service", service(&format!("more-{n}"), &format!("192.168.10.{}", 100 + n)));
        bench.api.put("EndpointSlice", endpoints(&format!("more-{n}"), &[NODE1]));
    }
    bench.run(Duration::from_secs(1800));
    bench.take_writes();
    bench.run(Duration::from_secs(300));
    let writes = bench.take_writes().len();
    assert!(writes <= 31 * 11 + 20, "{writes}: twice a minute each");
    bench.api.outage = None;
    // The first that is due, half a minute later at the latest, brings all others with it.
    let tried = (0..300).find(|_| {
        bench.run(Duration::from_millis(100));
        !bench.take_writes().is_empty()
    });
    assert!(tried.is_some());
    bench.run(Duration::from_secs(1));
    assert_eq!(bench.statuses().len(), 31);
}

#[test]
fn each_move_ends_with_one_object_of_the_right_node_within_a_second_st_1() {
    let mut bench = one_service();
    let mut nodes = [NODE2, NODE1].into_iter().cycle();
    for round in 0..20 {
        let node = nodes.next().unwrap();
        let value = if node == NODE2 { json!("") } else { Value::Null };
        bench.api.patch("Node", "", NODE1, &json!({ "metadata": { "labels": { EXCLUDE: value } } }));
        bench.run(Duration::from_millis(1_000));
        assert!(bench.statuses().contains(&format!("demo/four@{node} ens18")), "round {round}");
        bench.run(Duration::from_millis(1_000));
        assert_eq!(bench.statuses(), [format!("demo/four@{node} ens18")], "round {round}");
    }
}

#[test]
fn who_writes_into_it_all_the_time_is_answered_without_an_error_st_3() {
    let mut bench = one_service();
    let name = status_name(&bench);
    for n in 0..250 {
        let patch = json!({ "metadata": { "annotations": { "n": n.to_string() } } });
        bench.api.patch("ServiceL2Status", "metallb-system", &name, &patch);
        if n % 50 == 0 {
            let interfaces = json!({ "status": { "interfaces": [{ "name": "nonsense" }] } });
            bench.api.patch("ServiceL2Status", "metallb-system", &name, &interfaces);
        }
        bench.run(Duration::from_millis(20));
    }
    assert_eq!(bench.statuses(), ["demo/four@k8s-node-1 ens18"]);
    let writes = bench.take_writes();
    assert_eq!(writes, ["PATCH servicel2statuses/status"; 5], "what is of no concern is not answered");
}

#[test]
fn the_first_address_that_is_announced_speaks_for_all_s53() {
    let mut bench = one_service();
    let both =
        json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.168.10.203" }, { "ip": IP }] } } });
    bench.api.patch("Service", "demo", "four", &both);
    bench.settle();
    let all: Vec<_> = bench.statuses();
    let owners: Vec<_> = ["192.168.10.203", IP].map(|ip| bench.owner(ip).unwrap()).into();
    for node in owners {
        assert!(all.contains(&format!("demo/four@{node} ens18")), "{all:?}");
    }
}

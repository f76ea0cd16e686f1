// SPDX-License-Identifier: Apache-2.0
//! Who answers for an address, and how it moves.

use std::time::Duration;

use ferrolb_l2::wire::Operation;
use serde_json::json;

use crate::bench::{Bench, EXCLUDE, MASTER, NODE1, NODE2, NODES, config, endpoints, service};

const IP: &str = "192.168.10.200";

/// The tutorial's Service: two Pods on node 2, one on node 1.
fn hello() -> Bench {
    let mut bench = Bench::started();
    bench.api.put("EndpointSlice", endpoints("hello-lb", &[NODE2, NODE2, NODE1]));
    bench.api.put("Service", service("hello-lb", IP));
    bench.settle();
    bench
}

#[test]
fn one_node_answers_and_it_is_the_one_of_the_formula() {
    let mut bench = hello();
    assert_eq!(bench.owner(IP), Some(NODE1));
    assert_eq!(bench.owner("192.168.10.201"), None, "an address that nobody holds");
    assert_eq!(bench.take_events(), ["k8s-node-1: nodeAssigned hello-lb"]);
    assert_eq!(bench.statuses(), ["demo/hello-lb@k8s-node-1 ens18"]);
    for node in NODES {
        let expected = usize::from(node == NODE1);
        assert_eq!(bench.speakers[node].announced.len(), expected, "{node}");
    }
}

#[test]
fn the_exclusion_label_moves_the_address_and_its_removal_brings_it_back_e06() {
    let mut bench = hello();
    bench.gratuitous.clear();
    bench.take_events();
    bench.api.patch("Node", "", NODE1, &json!({ "metadata": { "labels": { EXCLUDE: "" } } }));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE2));
    assert_eq!(bench.statuses(), ["demo/hello-lb@k8s-node-2 ens18"]);
    assert_eq!(bench.take_events(), ["k8s-node-2: nodeAssigned hello-lb"]);

    // Five pairs, request form first, 1.1 s apart, by the new owner only.
    let start = bench.gratuitous[0].0;
    let pairs: Vec<_> =
        bench.gratuitous.iter().map(|(at, node, _, form)| (at - start, *node, *form)).collect();
    let expected: Vec<_> = [0, 1_100, 2_200, 3_300, 4_400]
        .into_iter()
        .flat_map(|at| [(at, NODE2, Operation::Request), (at, NODE2, Operation::Reply)])
        .collect();
    assert_eq!(pairs, expected);

    bench.api.patch("Node", "", NODE1, &json!({ "metadata": { "labels": { EXCLUDE: null } } }));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    assert_eq!(bench.statuses(), ["demo/hello-lb@k8s-node-1 ens18"]);
    assert_eq!(bench.take_events(), ["k8s-node-1: nodeAssigned hello-lb"]);
}

#[test]
fn a_lost_network_moves_the_address_e05_l2_11() {
    let mut bench = hello();
    let network =
        |status| json!({ "status": { "conditions": [{ "type": "NetworkUnavailable", "status": status }] } });
    bench.api.patch("Node", "", NODE1, &network("True"));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE2));
    bench.api.patch("Node", "", NODE1, &network("False"));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
}

#[test]
fn cordon_drain_and_not_ready_move_nothing_and_write_nothing_s49() {
    let mut bench = hello();
    bench.take_writes();
    bench.take_events();
    bench.gratuitous.clear();
    bench.api.patch("Node", "", NODE1, &json!({ "spec": { "unschedulable": true } }));
    bench.api.patch(
        "Node",
        "",
        NODE1,
        &json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
    );
    // The drain evicts the Pod of node 1.
    bench.api.put("EndpointSlice", endpoints("hello-lb", &[NODE2, NODE2, NODE2]));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    assert_eq!((bench.take_writes(), bench.take_events()), (vec![], vec![]));
    assert!(bench.gratuitous.is_empty());
}

#[test]
fn an_excluded_master_takes_part_only_when_told_to_l2_10() {
    let mut bench = hello();
    bench.api.patch("Node", "", NODE1, &json!({ "metadata": { "labels": { EXCLUDE: "" } } }));
    bench.api.patch("Node", "", NODE2, &json!({ "metadata": { "labels": { EXCLUDE: "true" } } }));
    bench.settle();
    assert_eq!(bench.owner(IP), None, "everybody is excluded");
    assert_eq!(bench.statuses(), Vec::<String>::new());

    bench.settings = |settings| settings.ignore_exclude_lb = true;
    bench.start_all();
    bench.settle();
    assert_eq!(bench.owner(IP), Some(MASTER), "among all three the formula gives it to the master");
    bench.stop(MASTER);
    assert_eq!(bench.owner(IP), None, "without membership a dead speaker is not noticed");
}

#[test]
fn local_policy_follows_the_pods_e03() {
    let mut bench = hello();
    bench.api.patch("Service", "demo", "hello-lb", &json!({ "spec": { "externalTrafficPolicy": "Local" } }));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    bench.api.put("EndpointSlice", endpoints("hello-lb", &[NODE2]));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE2));
    assert_eq!(bench.statuses(), ["demo/hello-lb@k8s-node-2 ens18"]);
    bench.api.put("EndpointSlice", endpoints("hello-lb", &[]));
    bench.settle();
    assert_eq!(bench.owner(IP), None);
    assert_eq!(bench.statuses(), Vec::<String>::new());
}

#[test]
fn a_deleted_service_falls_silent_e02() {
    let mut bench = hello();
    bench.gratuitous.clear();
    bench.api.delete("Service", "demo", "hello-lb");
    bench.run(Duration::from_millis(100));
    assert_eq!(bench.owner(IP), None);
    assert_eq!(bench.statuses(), Vec::<String>::new());
    assert!(bench.speakers.values().all(|speaker| speaker.announced.is_empty()));
    bench.settle();
    assert!(bench.gratuitous.is_empty(), "nothing is said on withdrawal");
}

#[test]
fn a_shared_address_is_answered_until_its_last_service_goes_a01_e08() {
    let mut bench = hello();
    bench.api.put("EndpointSlice", endpoints("second", &[NODE1]));
    bench.api.put("Service", service("second", IP));
    bench.settle();
    bench.gratuitous.clear();
    assert_eq!(bench.statuses(), ["demo/hello-lb@k8s-node-1 ens18", "demo/second@k8s-node-1 ens18"]);
    bench.api.delete("Service", "demo", "hello-lb");
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    assert_eq!(bench.statuses(), ["demo/second@k8s-node-1 ens18"]);
    assert!(bench.gratuitous.is_empty(), "nothing was gained");
    bench.api.delete("Service", "demo", "second");
    bench.settle();
    assert_eq!(bench.owner(IP), None);
}

#[test]
fn sharers_with_different_advertisements_have_one_owner_s31() {
    let mut bench = Bench::new();
    bench.api.delete("L2Advertisement", "metallb-system", "l2");
    for (app, node) in [("a", NODE1), ("b", NODE2)] {
        bench.api.put(
            "L2Advertisement",
            config(
                app,
                json!({
                    "serviceSelectors": [{ "matchLabels": { "app": app } }],
                    "nodeSelectors": [{ "matchLabels": { "kubernetes.io/hostname": node } }],
                }),
            ),
        );
        let hostname = json!({ "metadata": { "labels": { "kubernetes.io/hostname": node } } });
        bench.api.patch("Node", "", node, &hostname);
        bench.api.put("EndpointSlice", endpoints(app, &[NODE1, NODE2]));
        let mut sharer = service(app, IP);
        sharer["metadata"]["labels"] = json!({ "app": app });
        bench.api.put("Service", sharer);
    }
    bench.start_all();
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1), "of equal age, the first by name decides");
    assert_eq!(bench.statuses(), ["demo/a@k8s-node-1"]);
    // Its users are told by the one who announces it, once.
    let told: Vec<_> = bench.events.iter().filter(|(_, event)| event.reason == "sharersDisagree").collect();
    let about: Vec<_> = told.iter().map(|(node, event)| (*node, event.regarding.name.as_str())).collect();
    assert_eq!(about, [(NODE1, "a"), (NODE1, "b")]);
    let text = &told[0].1.message;
    assert!(text.contains(IP) && text.contains("demo/a: k8s-node-1, demo/b: k8s-node-2"), "{text}");
    bench.take_events();
    bench.api.patch("Service", "demo", "a", &json!({ "metadata": { "labels": { "more": "1" } } }));
    bench.start(NODE2, "1");
    bench.settle();
    assert_eq!(bench.take_events(), Vec::<String>::new());

    bench.api.delete("Service", "demo", "a");
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE2));
    assert_eq!(bench.take_events(), ["k8s-node-2: nodeAssigned b"]);
}

#[test]
fn a_service_that_leaves_our_class_is_withdrawn_s03_x12() {
    let mut bench = Bench::new();
    bench.settings = |settings| settings.lb_class = "ferrolb".into();
    bench.api.put("EndpointSlice", endpoints("web", &[NODE1]));
    bench.api.put("Service", service("web", IP));
    bench.start_all();
    bench.settle();
    assert_eq!(bench.owner(IP), None, "it has no class");
    bench.api.patch("Service", "demo", "web", &json!({ "spec": { "loadBalancerClass": "ferrolb" } }));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    // Kubernetes drops the class together with the type.
    let gone = json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null } });
    bench.api.patch("Service", "demo", "web", &gone);
    bench.settle();
    assert_eq!(bench.owner(IP), None);
    assert_eq!(bench.statuses(), Vec::<String>::new());
}

#[test]
fn an_address_that_leaves_the_pools_is_withdrawn_and_nothing_else_stops_s04() {
    let mut bench = hello();
    bench.api.put("EndpointSlice", endpoints("second", &[NODE1]));
    bench.api.put("Service", service("second", "192.168.10.210"));
    bench.settle();
    let addresses = json!({ "spec": { "addresses": ["192.168.10.205-192.168.10.220"] } });
    bench.api.patch("IPAddressPool", "metallb-system", "pool", &addresses);
    bench.settle();
    assert_eq!(bench.owner(IP), None);
    assert!(bench.owner("192.168.10.210").is_some());
    assert!(bench.speakers.values().all(|speaker| !speaker.stale));
}

#[test]
fn a_changed_address_is_answered_instead_of_the_old_one() {
    let mut bench = hello();
    let moved = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.168.10.201" }] } } });
    bench.api.patch("Service", "demo", "hello-lb", &moved);
    bench.settle();
    assert_eq!(bench.owner(IP), None);
    let owner = bench.owner("192.168.10.201").unwrap();
    assert_eq!(bench.statuses(), [format!("demo/hello-lb@{owner} ens18")]);
}

#[test]
fn a_new_owner_announces_within_100_ms_of_the_change_and_for_5_s_an_15() {
    let mut bench = hello();
    bench.gratuitous.clear();
    let changed = bench.now;
    bench.api.patch("Node", "", NODE1, &json!({ "metadata": { "labels": { EXCLUDE: "" } } }));
    bench.settle();
    let changed = u64::try_from(changed.since_start().as_millis()).unwrap();
    let times: Vec<u64> = bench.gratuitous.iter().map(|(at, ..)| *at - changed).collect();
    assert!(times.first().is_some_and(|first| *first <= 100), "{times:?}");
    assert!(times.last().is_some_and(|last| (4_000..=5_000).contains(last)), "{times:?}");
}

#[test]
fn a_node_that_an_advertisement_selects_leads_on_its_interface_and_follows_the_label_e20() {
    let mut bench = Bench::new();
    bench.api.delete("L2Advertisement", "metallb-system", "l2");
    for (name, zone) in [("here", "a"), ("there", "b")] {
        let spec = json!({
            "interfaces": ["ens18"],
            "nodeSelectors": [{ "matchLabels": { "zone": zone } }],
        });
        bench.api.put("L2Advertisement", config(name, spec));
    }
    bench.api.put("EndpointSlice", endpoints("hello-lb", &[NODE1, NODE2]));
    bench.api.put("Service", service("hello-lb", IP));
    bench.start_all();
    bench.settle();
    assert_eq!(bench.owner(IP), None);
    let label = |bench: &mut Bench, node: &str, zone: Option<&str>| {
        bench.api.patch("Node", "", node, &json!({ "metadata": { "labels": { "zone": zone } } }));
        bench.settle();
    };
    for (node, other) in [(NODE1, NODE2), (NODE2, NODE1)] {
        label(&mut bench, other, None);
        label(&mut bench, node, Some("a"));
        assert_eq!(bench.owner(IP), Some(node));
        assert_eq!(bench.statuses(), [format!("demo/hello-lb@{node} ens18")]);
    }
    label(&mut bench, NODE2, Some("elsewhere"));
    assert_eq!(bench.owner(IP), None);
}

/// MetalLB asks for no family either; whether the Service can be reached by it is for its owner to see.
#[test]
fn an_ipv6_address_with_ipv4_endpoints_is_announced_s50() {
    let mut bench = Bench::new();
    bench.api.put("IPAddressPool", config("six", json!({ "addresses": ["fd00:10::200/124"] })));
    bench.api.put("EndpointSlice", endpoints("six", &[NODE1, NODE2]));
    bench.api.put("Service", service("six", "fd00:10::201"));
    bench.start_all();
    bench.settle();
    // The one that leads says that none of its interfaces speaks IPv6 here.
    let events = bench.take_events();
    assert!(matches!(&events[..], [one] if one.contains("announceFailed six")), "{events:?}");
}

/// Passwords of BGP sessions, right or wrong, are no matter of layer 2, which reads no Secret.
#[test]
fn a_peer_with_a_password_changes_nothing_of_layer_2_c02_c07() {
    let mut bench = hello();
    bench.gratuitous.clear();
    bench.take_events();
    let spec = json!({
        "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1",
        "passwordSecret": { "name": "missing", "namespace": "metallb-system" },
    });
    bench.api.put("BGPPeer", config("peer", spec));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    assert_eq!(bench.statuses(), ["demo/hello-lb@k8s-node-1 ens18"]);
    assert!(bench.gratuitous.is_empty());
    assert_eq!(bench.take_events(), Vec::<String>::new());
    bench.api.delete("BGPPeer", "metallb-system", "peer");
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    assert!(bench.gratuitous.is_empty());
}

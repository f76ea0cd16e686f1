// SPDX-License-Identifier: Apache-2.0
//! Beside speakers of MetalLB, which refuse a configuration as a whole: what they do not take is not taken here either,
//! since they elect by what they have.

use ferrolb_announce::Standing;
use ferrolb_config::Undecodable;
use ferrolb_speaker_core::Input;
use serde_json::{Value, json};

use crate::bench::{Bench, EXCLUDE, MASTER, NODE1, NODE2, config, endpoints, service};

const IP: &str = "192.168.10.200";
const NEW: &str = "10.9.9.9";

/// A speaker of MetalLB's on a node beside these three.
const BESIDE: [(&str, Standing); 4] =
    [(MASTER, Standing::Ours), (NODE1, Standing::Ours), (NODE2, Standing::Ours), ("old", Standing::Metallb)];
const AMONG_OURS: [(&str, Standing); 3] =
    [(MASTER, Standing::Ours), (NODE1, Standing::Ours), (NODE2, Standing::Ours)];

fn web() -> Bench {
    let mut bench = Bench::started();
    bench.api.put("EndpointSlice", endpoints("web", &[NODE1, NODE2]));
    bench.api.put("Service", service("web", IP));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    bench
}

/// A change that moves the address from NODE1 to NODE2, wherever it is in force.
fn only_node2(bench: &mut Bench) {
    let nodes = json!([{ "matchLabels": { "kubernetes.io/hostname": NODE2 } }]);
    bench.api.patch(
        "Node",
        "",
        NODE2,
        &json!({ "metadata": { "labels": { "kubernetes.io/hostname": NODE2 } } }),
    );
    bench.api.patch(
        "L2Advertisement",
        "metallb-system",
        "l2",
        &json!({ "spec": { "nodeSelectors": nodes } }),
    );
}

/// What v0.16.1 makes of objects beside the good ones, and ours beside it: a name, how they come, how they go.
type Case = (&'static str, fn(&mut Bench), fn(&mut Bench));

const REFUSED: &[Case] = &[
    (
        "a pool whose range is backwards",
        |bench| {
            bench.api.put("IPAddressPool", config("bad", json!({ "addresses": ["10.0.0.9-10.0.0.1"] })));
        },
        |bench| bench.api.delete("IPAddressPool", "metallb-system", "bad"),
    ),
    (
        "a pool that overlaps",
        |bench| {
            bench.api.put("IPAddressPool", config("bad", json!({ "addresses": ["192.168.10.210/32"] })));
        },
        |bench| bench.api.delete("IPAddressPool", "metallb-system", "bad"),
    ),
    (
        "an advertisement whose selector means nothing",
        |bench| {
            let selector =
                json!([{ "matchExpressions": [{ "key": "a", "operator": "Near", "values": ["b"] }] }]);
            bench.api.put("L2Advertisement", config("bad", json!({ "nodeSelectors": selector })));
        },
        |bench| bench.api.delete("L2Advertisement", "metallb-system", "bad"),
    ),
    (
        "a community that is none",
        |bench| {
            let spec = json!({ "communities": [{ "name": "x", "value": "1:2:3:4:5" }] });
            bench.api.put("Community", config("bad", spec));
        },
        |bench| bench.api.delete("Community", "metallb-system", "bad"),
    ),
    (
        "a BFDProfile, which its native mode refuses",
        |bench| bench.api.put("BFDProfile", config("bad", json!({}))),
        |bench| bench.api.delete("BFDProfile", "metallb-system", "bad"),
    ),
    (
        "a BGP advertisement that names no community",
        |bench| bench.api.put("BGPAdvertisement", config("bad", json!({ "communities": ["nobody"] }))),
        |bench| bench.api.delete("BGPAdvertisement", "metallb-system", "bad"),
    ),
    (
        "an object that cannot be read",
        |bench| {
            let broken = Undecodable { kind: "IPAddressPool", name: "bad".into(), message: "no list".into() };
            for node in [MASTER, NODE1, NODE2] {
                bench.hear(node, Input::Undecodable(vec![broken.clone()]));
            }
        },
        |bench| {
            for node in [MASTER, NODE1, NODE2] {
                bench.hear(node, Input::Undecodable(Vec::new()));
            }
        },
    ),
];

#[test]
fn what_metallb_refuses_as_a_whole_changes_nothing_beside_it_and_all_once_it_is_gone_or_good() {
    for (about, spoil, mend) in REFUSED {
        for ended_by_mending in [true, false] {
            let mut bench = web();
            bench.members(&BESIDE, &[]);
            bench.settle();
            spoil(&mut bench);
            bench.settle();
            only_node2(&mut bench);
            bench.settle();
            assert_eq!(bench.owner(IP), Some(NODE1), "{about}: as MetalLB's speakers still have it");
            assert!(bench.speakers[NODE1].stale, "{about}");
            if ended_by_mending {
                mend(&mut bench);
            } else {
                bench.members(&AMONG_OURS, &[]);
            }
            bench.settle();
            assert_eq!(bench.owner(IP), Some(NODE2), "{about}, mended: {ended_by_mending}");
            assert_eq!(bench.speakers[NODE1].stale, !ended_by_mending, "{about}");
        }
    }
}

#[test]
fn among_ours_what_is_good_is_in_force_whatever_else_is_bad() {
    for (about, spoil, _) in REFUSED {
        let mut bench = web();
        bench.members(&AMONG_OURS, &[]);
        spoil(&mut bench);
        only_node2(&mut bench);
        bench.settle();
        assert_eq!(bench.owner(IP), Some(NODE2), "{about}");
    }
}

#[test]
fn what_metallb_takes_is_in_force_beside_it_at_once() {
    let mut bench = web();
    bench.members(&BESIDE, &[]);
    bench.settle();
    only_node2(&mut bench);
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE2));
}

#[test]
fn services_and_the_state_of_nodes_pass_while_the_configuration_is_held_back() {
    let mut bench = web();
    bench.members(&BESIDE, &[]);
    (REFUSED[0].1)(&mut bench);
    bench.settle();
    // MetalLB serves new Services by its last good configuration, too.
    bench.api.put("EndpointSlice", endpoints("new", &[NODE1]));
    bench.api.put("Service", service("new", "192.168.10.201"));
    bench.settle();
    assert!(bench.owner("192.168.10.201").is_some());
    // The label that excludes a node is no part of the configuration …
    bench.api.patch("Node", "", NODE1, &json!({ "metadata": { "labels": { EXCLUDE: "" } } }));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE2));
    bench.api.patch("Node", "", NODE1, &json!({ "metadata": { "labels": { EXCLUDE: null } } }));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    // … and no more is that a Service exists.
    bench.api.delete("Service", "demo", "web");
    bench.settle();
    assert_eq!(bench.owner(IP), None);
}

#[test]
fn node_selectors_are_resolved_by_the_labels_that_metallb_has_taken() {
    let mut bench = web();
    only_node2(&mut bench);
    bench.settle();
    bench.members(&BESIDE, &[]);
    (REFUSED[0].1)(&mut bench);
    bench.settle();
    let unlabelled = json!({ "metadata": { "labels": { "kubernetes.io/hostname": null } } });
    bench.api.patch("Node", "", NODE2, &unlabelled);
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE2));
    (REFUSED[0].2)(&mut bench);
    bench.settle();
    assert_eq!(bench.owner(IP), None);
}

#[test]
fn an_address_that_would_leave_the_pools_holds_everything_back_until_it_is_moved_s04() {
    let mut bench = web();
    bench.members(&BESIDE, &[]);
    bench.api.put("EndpointSlice", endpoints("other", &[NODE1, NODE2]));
    bench.api.put("Service", service("other", "192.168.10.215"));
    bench.settle();
    bench.take_writes();
    let smaller = json!({ "spec": { "addresses": ["192.168.10.200-192.168.10.209", "10.9.9.0/24"] } });
    bench.api.patch("IPAddressPool", "metallb-system", "pool", &smaller);
    only_node2(&mut bench);
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    assert!(bench.owner("192.168.10.215").is_some());
    let status = state(&bench, NODE1);
    assert_eq!(status["errorSummary"], "configuration error: general handler sync state error", "{status}");
    let further = &status["conditions"][1];
    assert_eq!(further["type"], "ferrolb.io/Diagnostics");
    let text = further["message"].as_str().unwrap();
    assert!(text.contains("Service demo/other is announced with 192.168.10.215"), "{text}");

    // The controller moves it, which is all that MetalLB's speakers wait for.
    let moved = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": NEW }] } } });
    bench.api.patch("Service", "demo", "other", &moved);
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE2));
    assert_eq!(bench.owner(NEW), Some(NODE2));
    assert_eq!(state(&bench, NODE1)["result"], "Valid");
}

#[test]
fn an_address_that_leaves_the_pools_among_ours_stops_nothing_else_s04() {
    let mut bench = web();
    bench.members(&AMONG_OURS, &[]);
    bench.api.put("EndpointSlice", endpoints("other", &[NODE1, NODE2]));
    bench.api.put("Service", service("other", "192.168.10.215"));
    bench.settle();
    let smaller = json!({ "spec": { "addresses": ["192.168.10.200-192.168.10.209"] } });
    bench.api.patch("IPAddressPool", "metallb-system", "pool", &smaller);
    only_node2(&mut bench);
    bench.settle();
    assert_eq!((bench.owner(IP), bench.owner("192.168.10.215")), (Some(NODE2), None));
    assert_eq!(state(&bench, NODE1)["result"], "Valid");
}

#[test]
fn a_service_that_nobody_announces_holds_nothing_back() {
    let mut bench = web();
    bench.members(&BESIDE, &[]);
    bench.api.put("Service", service("silent", "192.168.10.215"));
    bench.settle();
    let smaller = json!({ "spec": { "addresses": ["192.168.10.200-192.168.10.209"] } });
    bench.api.patch("IPAddressPool", "metallb-system", "pool", &smaller);
    only_node2(&mut bench);
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE2), "it has no endpoints");
}

fn state(bench: &Bench, node: &str) -> Value {
    let name = json!(format!("speaker-{node}"));
    let object = bench.api.list("ConfigurationState").find(|object| object["metadata"]["name"] == name);
    object.unwrap()["status"].clone()
}

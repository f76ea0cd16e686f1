// SPDX-License-Identifier: Apache-2.0
//! BGP from objects to sessions and routes, and back to ServiceBGPStatuses.

use std::sync::Arc;
use std::time::Duration;

use ferrolb_announce::Standing;
use ferrolb_bgp::wire::{Capability, ExtendedCommunity, Families, HoldTime};
use ferrolb_bgp::{PeerAs, State, Untold};
use ferrolb_net_types::{Asn, PeerName};
use ferrolb_speaker_core::Input;
use ferrolb_speaker_core::bgp::{Hops, PeerReport};
use serde_json::{Value, json};

use crate::bench::{Bench, EXCLUDE, MASTER, NODE1, NODE2, Speaker, config, endpoints, service};

const NAMESPACE: &str = "metallb-system";
const A: &str = "192.168.20.100";
const B: &str = "192.168.20.101";

pub(crate) fn peer(more: Value) -> Value {
    let mut spec = json!({ "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1" });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

/// Three speakers with a pool for BGP, its advertisement, and the peer `router`; no pool is announced on layer 2.
pub(crate) fn tutorial() -> Bench {
    let mut bench = unstarted();
    bench.start_all();
    bench.settle();
    bench
}

/// The same, where nothing answers at the router's address.
pub(crate) fn without_router() -> Bench {
    let mut bench = unstarted();
    bench.start_all();
    bench.speakers.values_mut().for_each(|speaker| speaker.peers_answer = false);
    bench.settle();
    bench
}

fn unstarted() -> Bench {
    let mut bench = Bench::new();
    bench.api.delete("L2Advertisement", NAMESPACE, "l2");
    bench.api.put("IPAddressPool", config("bgp", json!({ "addresses": ["192.168.20.100/30"] })));
    bench.api.put("BGPAdvertisement", config("adv", json!({ "ipAddressPools": ["bgp"] })));
    bench.api.put("BGPPeer", config("router", peer(json!({}))));
    bench
}

pub(crate) fn serve(bench: &mut Bench, name: &str, ip: &str, nodes: &[&str]) {
    bench.api.put("EndpointSlice", endpoints(name, nodes));
    bench.api.put("Service", service(name, ip));
    bench.settle();
}

pub(crate) fn edit(bench: &mut Bench, kind: &'static str, name: &str, spec: &Value) {
    bench.api.patch(kind, NAMESPACE, name, &json!({ "spec": spec }));
    bench.settle();
}

pub(crate) fn label(bench: &mut Bench, node: &str, labels: &Value) {
    bench.api.patch("Node", "", node, &json!({ "metadata": { "labels": labels } }));
    bench.settle();
}

fn of<'a>(bench: &'a mut Bench, node: &str) -> &'a mut Speaker {
    bench.speakers.get_mut(node).unwrap()
}

/// What node 1 tells a peer.
pub(crate) fn table(bench: &Bench, peer: &str) -> Vec<String> {
    bench.speakers[NODE1].table(peer)
}

/// What node 1 did about sessions and routes since the last call.
pub(crate) fn take_log(bench: &mut Bench) -> Vec<String> {
    std::mem::take(&mut of(bench, NODE1).bgp_log)
}

/// The status objects, as `service@node: peers`.
pub(crate) fn statuses(bench: &Bench) -> Vec<String> {
    let one = |object: &Value| {
        let status = &object["status"];
        let peers: Vec<_> = status["peers"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
        format!(
            "{}@{}: {}",
            status["serviceName"].as_str().unwrap(),
            status["node"].as_str().unwrap(),
            peers.join(" ")
        )
    };
    let mut all: Vec<_> = bench.api.list("ServiceBGPStatus").map(one).collect();
    all.sort();
    all
}

#[test]
fn each_worker_tells_the_router_a_host_route_and_the_master_none() {
    let mut bench = tutorial();
    assert_eq!(take_log(&mut bench), ["open router"], "a session that has nothing to tell yet");
    serve(&mut bench, "web", A, &[NODE2]);
    for node in [NODE1, NODE2] {
        assert_eq!(bench.speakers[node].table("router"), [format!("{A}/32")]);
        assert_eq!(bench.speakers[node].announced_bgp, [("demo/web".to_owned(), A.to_owned())].into());
        assert!(bench.speakers[node].announced.is_empty());
    }
    assert!(bench.speakers[MASTER].table("router").is_empty(), "it is excluded");
    assert!(bench.speakers[MASTER].sessions.contains_key("router"), "and has its session");
    let events = bench.take_events();
    assert_eq!(
        events,
        [format!("{NODE1}: nodeAssigned web"), format!("{NODE2}: nodeAssigned web")],
        "one per node"
    );
    assert_eq!(statuses(&bench), [format!("web@{NODE1}: router"), format!("web@{NODE2}: router")]);
    assert_eq!(bench.owner(A), None, "nobody answers ARP for it");
}

#[test]
fn the_status_object_is_metallbs() {
    let mut bench = tutorial();
    serve(&mut bench, "web", A, &[NODE2]);
    let mut ours = bench.api.list("ServiceBGPStatus").next().unwrap().clone();
    let recorded = include_str!("../data/servicebgpstatus.json")
        .replace("master1", ours["status"]["node"].as_str().unwrap())
        .replace("\"tor\"", "\"router\"")
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
    let of_node1 = |r: &&ferrolb_api::request::ApiRequest| {
        let named = r.body.as_ref().is_some_and(|body| body.to_string().contains(NODE1));
        r.resource.plural() == "servicebgpstatuses" && named
    };
    let requests: Vec<_> = bench.api.requests.iter().filter(of_node1).collect();
    assert_eq!(requests.len(), 2, "created, then its status");
    assert_eq!(
        requests[1].body,
        Some(json!({ "status": {
            "node": NODE1, "serviceName": "web", "serviceNamespace": "demo", "peers": ["router"],
        } }))
    );
}

#[test]
fn what_a_plan_says_follows_the_type_and_the_fields() {
    type Check = fn(&ferrolb_speaker_core::bgp::PeerPlan) -> bool;
    let seconds = |s: u16| HoldTime::seconds(s).unwrap();
    assert_eq!(seconds(90).duration(), Duration::from_secs(90));
    let table: [(&str, Value, &str, Check); 13] = [
        ("", json!({ "holdTime": "65537s" }), "the longest hold time there is", |p| {
            p.settings.hold_time == HoldTime::seconds(65_535).unwrap()
        }),
        ("", json!({}), "native, S68, S81", |p| {
            p.settings.hold_time == HoldTime::seconds(90).unwrap()
                && p.settings.families == Families::V4
                && p.settings.offered == Families::BOTH
                && p.settings.local_pref == 0
                && p.hops == Hops::Unlimited
                && p.settings.dials
        }),
        ("native", json!({ "ebgpMultiHop": true }), "multihop is no news there, BG-41", |p| {
            p.hops == Hops::Unlimited
        }),
        ("native", json!({ "peerAddress": "fd00:10::1" }), "IPv6, S61, X14", |p| {
            p.remote.to_string() == "[fd00:10::1]:179" && p.settings.families == Families::V6
        }),
        ("frr", json!({}), "frr, S68, BG-41: a peer that is not on the link is not reached", |p| {
            p.settings.hold_time == HoldTime::seconds(180).unwrap()
                && p.settings.families == Families::V4
                && p.settings.offered == Families::V4
                && p.settings.local_pref == 100
                && p.hops == Hops::Direct
        }),
        ("frr", json!({ "ebgpMultiHop": true }), "multihop", |p| p.hops == Hops::Multihop),
        ("frr", json!({ "peerASN": 64512 }), "iBGP", |p| p.hops == Hops::Multihop),
        ("frr", json!({ "dualStackAddressFamily": true }), "both", |p| p.settings.families == Families::BOTH),
        ("frr", json!({ "localASN": 64999 }), "local AS", |p| p.settings.asn == Asn::new(64999).unwrap()),
        ("frr", json!({ "peerASN": 0, "dynamicASN": "external" }), "dynamic", |p| {
            p.settings.peer == PeerAs::External
        }),
        ("frr", json!({ "holdTime": "0s", "keepaliveTime": "0s" }), "no hold time", |p| {
            p.settings.hold_time == HoldTime::ZERO
        }),
        ("frr", json!({ "connectTime": "5s" }), "connect time", |p| {
            p.settings.retry_at_most == Duration::from_secs(5)
        }),
        (
            "frr",
            json!({ "routerID": "10.10.10.1", "sourceAddress": "192.168.10.20", "peerPort": 180 }),
            "ends",
            |p| {
                p.router_id.unwrap().to_string() == "10.10.10.1"
                    && p.source.unwrap().to_string() == "192.168.10.20"
                    && p.remote.to_string() == "192.168.10.1:180"
            },
        ),
    ];
    for (bgp_type, more, about, holds) in table {
        let mut bench = Bench::bare(match bgp_type {
            "frr" => |settings| settings.bgp_type = "frr".to_owned(),
            "native" => |settings| settings.bgp_type = "native".to_owned(),
            _ => |_| {},
        });
        bench.api.put("Node", json!({ "metadata": { "name": NODE1 } }));
        bench.api.put("BGPPeer", config("q", peer(more)));
        bench.start(NODE1, "1");
        bench.settle();
        let plan = &bench.speakers[NODE1].sessions["q"];
        assert!(holds(plan), "{about}: {plan:?}");
    }
}

#[test]
fn services_and_advertisements_that_come_to_one_prefix_are_counted_b19_b20_bg_23() {
    let mut bench = tutorial();
    edit(&mut bench, "BGPAdvertisement", "adv", &json!({ "communities": ["64512:2"] }));
    serve(&mut bench, "one", A, &[NODE1]);
    serve(&mut bench, "two", A, &[NODE1]);
    take_log(&mut bench);
    bench.api.delete("Service", "demo", "one");
    bench.settle();
    assert_eq!(take_log(&mut bench), [""; 0], "B20: the other one still has it");

    // BG-23, G19: united; edits replace attributes, and never withdraw.
    bench.api.put(
        "BGPAdvertisement",
        config("more", json!({ "ipAddressPools": ["bgp"], "communities": ["64512:1"] })),
    );
    bench.settle();
    assert_eq!(table(&bench, "router"), [format!("{A}/32 64512:1 64512:2")]);
    edit(&mut bench, "BGPAdvertisement", "more", &json!({ "communities": ["64512:3", "large:1:2:3"] }));
    assert_eq!(table(&bench, "router"), [format!("{A}/32 64512:2 64512:3 1:2:3")]);
    bench.api.delete("BGPAdvertisement", NAMESPACE, "more");
    bench.settle();
    assert_eq!(take_log(&mut bench), vec![format!("router +{A}/32"); 3]);
    bench.api.delete("Service", "demo", "two");
    bench.settle();
    assert_eq!(take_log(&mut bench), [format!("router -{A}/32")], "it goes with the last");
}

#[test]
fn one_service_changed_is_one_prefix_told_and_pools_in_turn_leave_earlier_routes_alone_g15() {
    let mut bench = tutorial();
    serve(&mut bench, "one", A, &[NODE1]);
    take_log(&mut bench);
    serve(&mut bench, "two", B, &[NODE1]);
    assert_eq!(take_log(&mut bench), [format!("router +{B}/32")]);
    bench.api.put("IPAddressPool", config("next", json!({ "addresses": ["192.168.21.0/28"] })));
    edit(&mut bench, "BGPAdvertisement", "adv", &json!({ "ipAddressPools": ["bgp", "next"] }));
    serve(&mut bench, "three", "192.168.21.1", &[NODE1]);
    assert_eq!(take_log(&mut bench), ["router +192.168.21.1/32"]);
    // G16: a peer that comes is told everything, and the others nothing.
    bench.api.put("BGPPeer", config("second", peer(json!({ "peerAddress": "192.168.10.2" }))));
    bench.settle();
    let prefixes = [A, B, "192.168.21.1"];
    let mut expected = vec!["open second".to_owned()];
    expected.extend(prefixes.map(|ip| format!("second +{ip}/32")));
    assert_eq!(take_log(&mut bench), expected);
    bench.api.delete("BGPPeer", NAMESPACE, "second");
    bench.settle();
    assert_eq!(take_log(&mut bench), ["close second"]);
}

#[test]
fn endpoints_and_the_node_decide_and_the_session_stays_b05_to_b12_b31_s98_bg_26() {
    let mut bench = tutorial();
    serve(&mut bench, "web", A, &[NODE2]);
    take_log(&mut bench);
    let (gone, back) = (vec![format!("router -{A}/32")], vec![format!("router +{A}/32")]);
    let local = |bench: &mut Bench, policy: &str| {
        bench.api.patch("Service", "demo", "web", &json!({ "spec": { "externalTrafficPolicy": policy } }));
        bench.settle();
    };
    local(&mut bench, "Local");
    assert_eq!(take_log(&mut bench), gone, "B05");
    serve_endpoints(&mut bench, &[NODE1, NODE2]);
    assert_eq!(take_log(&mut bench), back, "B06");
    local(&mut bench, "Cluster");
    serve_endpoints(&mut bench, &[NODE2]);
    assert_eq!(take_log(&mut bench), [""; 0]);
    serve_endpoints(&mut bench, &[]);
    assert_eq!(take_log(&mut bench), gone, "B08");
    serve_endpoints(&mut bench, &[NODE2]);
    assert_eq!(take_log(&mut bench), back);
    label(&mut bench, NODE1, &json!({ EXCLUDE: "" }));
    assert_eq!(take_log(&mut bench), gone, "B31");
    assert_eq!(statuses(&bench), [format!("web@{NODE2}: router")]);
    label(&mut bench, NODE1, &json!({ EXCLUDE: null }));
    assert_eq!(take_log(&mut bench), back);
    let network = |status: &str| json!({ "status": { "conditions": [{ "type": "NetworkUnavailable", "status": status }] } });
    bench.api.patch("Node", "", NODE1, &network("True"));
    bench.settle();
    assert_eq!(take_log(&mut bench), gone, "G05");
    bench.api.patch("Node", "", NODE1, &network("False"));
    bench.settle();
    assert_eq!(take_log(&mut bench), back);
    bench.api.patch(
        "Service",
        "demo",
        "web",
        &json!({ "status": { "loadBalancer": { "ingress": [{ "ip": B }] } } }),
    );
    bench.settle();
    assert_eq!(take_log(&mut bench), [format!("router -{A}/32"), format!("router +{B}/32")], "B62");
    bench.api.patch("Service", "demo", "web", &json!({ "spec": { "type": "ClusterIP" } }));
    bench.settle();
    assert_eq!(take_log(&mut bench), [format!("router -{B}/32")], "B03");
    assert_eq!(statuses(&bench), [""; 0]);
    assert!(bench.speakers[NODE1].announced_bgp.is_empty());
}

fn serve_endpoints(bench: &mut Bench, nodes: &[&str]) {
    bench.api.put("EndpointSlice", endpoints("web", nodes));
    bench.settle();
}

#[test]
fn sessions_follow_the_labels_of_the_node_b23_to_b30_bg_25_g39() {
    let mut bench = tutorial();
    serve(&mut bench, "web", A, &[NODE1]);
    let selectors = json!([{ "matchLabels": { "rack": "one" } }, { "matchLabels": { "rack": "two" } }]);
    bench.api.put(
        "BGPPeer",
        config("leaf", peer(json!({ "peerAddress": "192.168.10.2", "nodeSelectors": selectors }))),
    );
    bench.settle();
    take_log(&mut bench);
    label(&mut bench, NODE1, &json!({ "rack": "one" }));
    assert_eq!(take_log(&mut bench), ["open leaf".to_owned(), format!("leaf +{A}/32")], "B25, BG-25");
    assert_eq!(statuses(&bench), [format!("web@{NODE1}: leaf router"), format!("web@{NODE2}: router")]);
    label(&mut bench, NODE1, &json!({ "rack": "two" }));
    assert_eq!(take_log(&mut bench), [""; 0], "B30");
    label(&mut bench, NODE1, &json!({ "rack": "three" }));
    assert_eq!(take_log(&mut bench), ["close leaf"], "B26");
    assert_eq!(statuses(&bench), [format!("web@{NODE1}: router"), format!("web@{NODE2}: router")]);
    edit(
        &mut bench,
        "BGPPeer",
        "leaf",
        &json!({ "nodeSelectors": [{ "matchLabels": { "rack": "three" } }] }),
    );
    assert_eq!(take_log(&mut bench), ["open leaf".to_owned(), format!("leaf +{A}/32")], "B27");
}

#[test]
fn each_peer_sees_its_own_and_each_service_names_its_own_g33_g34_g45_s98() {
    let mut bench = tutorial();
    bench.api.put("BGPPeer", config("second", peer(json!({ "peerAddress": "192.168.10.2" }))));
    bench.api.put("BGPPeer", config("six", peer(json!({ "peerAddress": "fd00:10::1" }))));
    bench
        .api
        .put("IPAddressPool", config("bgp", json!({ "addresses": ["192.168.20.0/24", "fd00:20::/120"] })));
    edit(
        &mut bench,
        "BGPAdvertisement",
        "adv",
        &json!({ "peers": ["router", "six", "nobody"], "communities": ["64512:1"], "localPref": 200 }),
    );
    let mut wide = json!({ "ipAddressPools": ["bgp"], "peers": ["second"], "communities": ["64512:2"] });
    wide["aggregationLength"] = json!(24);
    wide["aggregationLengthV6"] = json!(120);
    bench.api.put("BGPAdvertisement", config("wide", wide));
    let dual = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": A }, { "ip": "fd00:20::1" }] } } });
    serve(&mut bench, "web", A, &[NODE1]);
    bench.api.patch("Service", "demo", "web", &dual);
    bench.settle();
    assert_eq!(table(&bench, "router"), [format!("{A}/32 lp 200 64512:1")]);
    assert_eq!(table(&bench, "second"), ["192.168.20.0/24 64512:2"]);
    assert_eq!(table(&bench, "six"), ["fd00:20::1/128 lp 200 64512:1"], "S77");
    // G41: a host route for the Services that are selected, beside the aggregate of all.
    let web = json!([{ "matchLabels": { "tier": "web" } }]);
    edit(&mut bench, "BGPAdvertisement", "adv", &json!({ "peers": null, "serviceSelectors": web }));
    assert_eq!(table(&bench, "second"), ["192.168.20.0/24 64512:2"]);
    assert_eq!(table(&bench, "router"), [""; 0]);
    assert_eq!(statuses(&bench), [format!("web@{NODE1}: second"), format!("web@{NODE2}: second")]);
    bench.api.patch("Service", "demo", "web", &json!({ "metadata": { "labels": { "tier": "web" } } }));
    bench.settle();
    assert_eq!(
        table(&bench, "second"),
        ["192.168.20.0/24 64512:2".to_owned(), format!("{A}/32 lp 200 64512:1")]
    );
    assert_eq!(table(&bench, "router"), [format!("{A}/32 lp 200 64512:1")]);
    let all = "router second six";
    assert_eq!(statuses(&bench), [format!("web@{NODE1}: {all}"), format!("web@{NODE2}: {all}")]);
}

#[test]
fn two_advertisements_that_want_different_preferences_withdraw_the_service_b53_b54() {
    let mut bench = tutorial();
    serve(&mut bench, "web", A, &[NODE1]);
    let select = |tier: &str| json!([{ "matchLabels": { "tier": tier } }]);
    edit(
        &mut bench,
        "BGPAdvertisement",
        "adv",
        &json!({ "localPref": 1, "serviceSelectors": select("web") }),
    );
    let other = json!({ "ipAddressPools": ["bgp"], "localPref": 2, "serviceSelectors": select("db") });
    bench.api.put("BGPAdvertisement", config("other", other));
    bench.api.patch("Service", "demo", "web", &json!({ "metadata": { "labels": { "tier": "web" } } }));
    bench.settle();
    assert_eq!(table(&bench, "router"), [format!("{A}/32 lp 1")], "B54");
    edit(&mut bench, "BGPAdvertisement", "other", &json!({ "serviceSelectors": select("web") }));
    assert_eq!(table(&bench, "router"), [""; 0], "B53");
}

#[test]
fn a_secret_that_is_not_heard_of_holds_up_its_peer_alone() {
    let mut bench = tutorial();
    of(&mut bench, NODE1).secrets_unheard = true;
    let spec = |address, more: &Value| {
        let mut spec = peer(json!({ "peerAddress": address }));
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config("x", spec)
    };
    let named = |name: &str, mut object: Value| {
        object["metadata"]["name"] = json!(name);
        object
    };
    let by_secret = json!({ "passwordSecret": { "name": "pw" } });
    bench.api.put("BGPPeer", named("secretive", spec("192.168.10.2", &by_secret)));
    bench.run(Duration::from_millis(500));
    bench.api.put("BGPPeer", named("open", spec("192.168.10.3", &json!({}))));
    bench.api.put("IPAddressPool", config("bgp", json!({ "addresses": ["192.168.20.96/29"] })));
    bench.run(Duration::from_millis(500));
    let sessions = |bench: &Bench| bench.speakers[NODE1].sessions.keys().cloned().collect::<Vec<_>>();
    assert_eq!(sessions(&bench), ["open", "router"].map(PeerName::from));
    // What never comes counts as missing: that is a fault of the peer, and of nobody else.
    bench.run(Duration::from_secs(6));
    assert_eq!(sessions(&bench), ["open", "router"].map(PeerName::from));
    let secret = json!({
        "metadata": { "namespace": NAMESPACE, "name": "pw" },
        "type": "kubernetes.io/basic-auth",
        "data": { "password": "b25l" },
    });
    bench.api.put("Secret", secret);
    bench.settle();
    assert_eq!(sessions(&bench), ["open", "router", "secretive"].map(PeerName::from));
}

#[test]
fn a_peer_waits_for_its_secret_and_a_new_password_is_an_edit_b34() {
    let mut bench = tutorial();
    let secret = |value: &str| {
        let metadata = json!({ "namespace": NAMESPACE, "name": "pw" });
        json!({ "metadata": metadata, "type": "kubernetes.io/basic-auth", "data": { "password": value } })
    };
    edit(&mut bench, "BGPPeer", "router", &json!({ "passwordSecret": { "name": "pw" } }));
    assert_eq!(bench.speakers[NODE1].secrets, ["pw".to_owned()].into());
    assert!(bench.speakers[NODE1].sessions["router"].password.is_none(), "as it was, until there is one");
    take_log(&mut bench);
    bench.api.put("Secret", secret("b25l"));
    bench.settle();
    let password = |bench: &Bench| {
        bench.speakers[NODE1].sessions["router"].password.as_ref().map(|p| p.bytes().to_vec())
    };
    assert_eq!(password(&bench), Some(b"one".to_vec()));
    bench.api.put("Secret", secret("dHdv"));
    bench.settle();
    assert_eq!(password(&bench), Some(b"two".to_vec()));
    assert_eq!(take_log(&mut bench), ["edit router", "edit router"]);
    edit(&mut bench, "BGPPeer", "router", &json!({ "passwordSecret": null }));
    assert!(bench.speakers[NODE1].secrets.is_empty());
    assert_eq!(password(&bench), None);
}

#[test]
fn statuses_of_a_former_process_are_taken_over_and_nobody_is_told_again() {
    let mut bench = tutorial();
    serve(&mut bench, "web", A, &[NODE1]);
    let names = |bench: &Bench| -> Vec<String> {
        bench.api.list("ServiceBGPStatus").map(|o| o["metadata"]["name"].to_string()).collect()
    };
    let before = names(&bench);
    bench.stop(NODE1);
    bench.api.put("Service", service("late", B));
    bench.api.put("EndpointSlice", endpoints("late", &[NODE1]));
    bench.api.delete("Service", "demo", "web");
    bench.take_events();
    bench.start(NODE1, "2");
    bench.settle();
    assert_eq!(statuses(&bench), [format!("late@{NODE1}: router"), format!("late@{NODE2}: router")]);
    bench.take_events();
    bench.stop(NODE1);
    let kept = names(&bench);
    assert!(before.iter().all(|name| !kept.contains(name)));
    bench.start(NODE1, "3");
    bench.settle();
    assert_eq!(names(&bench), kept, "the objects are the same");
    assert_eq!(bench.take_events(), [""; 0]);
    let owners =
        bench.api.list("ServiceBGPStatus").map(|o| o["metadata"]["ownerReferences"][0]["uid"].clone());
    assert!(owners.into_iter().any(|uid| uid == json!(format!("pod-{NODE1}-3"))));
}

#[test]
fn beside_metallb_only_layer_two_waits_for_what_it_takes_s77() {
    let mut bench = tutorial();
    let with_one_of_metallbs = [
        (MASTER, Standing::Ours),
        (NODE1, Standing::Ours),
        (NODE2, Standing::Ours),
        ("old", Standing::Metallb),
    ];
    bench.members(&with_one_of_metallbs, &[]);
    bench.settle();
    edit(&mut bench, "BGPAdvertisement", "adv", &json!({ "communities": ["large:1:2:3"] }));
    serve(&mut bench, "web", A, &[NODE1]);
    assert_eq!(table(&bench, "router"), [format!("{A}/32 1:2:3")]);
    bench.api.put("IPAddressPool", config("more", json!({ "addresses": ["10.9.9.0/28"] })));
    edit(&mut bench, "BGPAdvertisement", "adv", &json!({ "ipAddressPools": ["bgp", "more"] }));
    serve(&mut bench, "late", "10.9.9.9", &[NODE1]);
    assert!(bench.speakers[NODE1].stale, "layer 2 goes by what MetalLB's speakers go by");
    assert_eq!(table(&bench, "router"), ["10.9.9.9/32 1:2:3".to_owned(), format!("{A}/32 1:2:3")]);
}

#[test]
fn routes_say_by_request_how_many_endpoints_lie_behind_them_bg_39() {
    let mut bench = tutorial();
    let mut weighted = config("router", peer(json!({})));
    weighted["metadata"]["annotations"] = json!({ "ferrolb.io/link-bandwidth": "non-transitive" });
    bench.api.put("BGPPeer", weighted);
    serve(&mut bench, "web", A, &[NODE1, NODE1, NODE1, NODE2]);
    let bandwidth = |bench: &Bench, node: &str| {
        let told = &bench.speakers[node].told["router"];
        let route = told.values().next().unwrap();
        route.extended_communities.iter().next().copied()
    };
    assert_eq!(bandwidth(&bench, NODE1), None, "traffic goes on to any node");
    bench.api.patch("Service", "demo", "web", &json!({ "spec": { "externalTrafficPolicy": "Local" } }));
    bench.settle();
    let of = |endpoints: f32| {
        Some(ExtendedCommunity::link_bandwidth(Asn::new(64512).unwrap(), endpoints * 125_000_000.0, false))
    };
    assert_eq!((bandwidth(&bench, NODE1), bandwidth(&bench, NODE2)), (of(3.0), of(1.0)));
    bench.run(Duration::from_secs(10));
    take_log(&mut bench);
    scale(&mut bench, &[NODE1, NODE1, NODE2]);
    assert_eq!(bandwidth(&bench, NODE1), of(2.0), "the first change is told at once");
    assert_eq!(take_log(&mut bench), [format!("router +{A}/32")], "never withdrawn for it");

    // What follows soon comes as one, ten seconds after the last.
    bench.run(Duration::from_secs(3));
    for endpoints in 3..=6 {
        let mut nodes = vec![NODE1; endpoints];
        nodes.push(NODE2);
        scale(&mut bench, &nodes);
    }
    assert_eq!((take_log(&mut bench), bandwidth(&bench, NODE1)), (vec![], of(2.0)));
    bench.run(Duration::from_secs(10));
    assert_eq!(take_log(&mut bench), [format!("router +{A}/32")]);
    assert_eq!((bandwidth(&bench, NODE1), bandwidth(&bench, NODE2)), (of(6.0), of(1.0)));
    // There and back again is nothing.
    scale(&mut bench, &[NODE1, NODE2]);
    scale(&mut bench, &[[NODE1; 6].as_slice(), &[NODE2]].concat());
    bench.run(Duration::from_secs(60));
    assert_eq!(take_log(&mut bench), [""; 0]);
    // Other changes do not wait, and take the weight with them; nor does the end.
    scale(&mut bench, &[NODE1, NODE1, NODE2]);
    scale(&mut bench, &[NODE1, NODE2]);
    assert_eq!((take_log(&mut bench).len(), bandwidth(&bench, NODE1)), (1, of(2.0)));
    let more = json!({ "spec": { "communities": ["64512:9"] } });
    bench.api.patch("BGPAdvertisement", NAMESPACE, "adv", &more);
    bench.run(MOMENT);
    assert_eq!(take_log(&mut bench), [format!("router +{A}/32")]);
    assert_eq!(bandwidth(&bench, NODE1), of(1.0));
    scale(&mut bench, &[NODE1, NODE1, NODE2]);
    scale(&mut bench, &[NODE2]);
    assert_eq!(take_log(&mut bench), [format!("router -{A}/32")]);
    scale(&mut bench, &[NODE1, NODE2]);
    assert_eq!(bandwidth(&bench, NODE1), of(1.0), "a route that comes has its weight");
}

/// Other endpoints, and no more time than it takes to hear of them.
fn scale(bench: &mut Bench, nodes: &[&str]) {
    bench.api.put("EndpointSlice", endpoints("web", nodes));
    bench.run(MOMENT);
}

const MOMENT: Duration = Duration::from_millis(100);

#[test]
fn what_the_open_offers_beside_metallbs_capabilities_is_a_setting_of_the_peer() {
    let mut bench = tutorial();
    assert_eq!(bench.speakers[NODE1].sessions["router"].settings.capabilities, []);
    let annotation =
        json!({ "metadata": { "annotations": { "ferrolb.io/capabilities": "route-refresh, fqdn" } } });
    bench.api.patch("BGPPeer", NAMESPACE, "router", &annotation);
    bench.settle();
    assert_eq!(
        bench.speakers[NODE1].sessions["router"].settings.capabilities,
        [Capability::RouteRefresh, Capability::fqdn(NODE1)]
    );
    assert_eq!(
        bench.speakers[NODE2].sessions["router"].settings.capabilities[1],
        Capability::fqdn(NODE2),
        "each node by its name"
    );
}

#[test]
fn readiness_waits_for_sessions_and_no_longer_than_thirty_seconds() {
    let mut bench = without_router();
    assert!(!bench.speakers[NODE1].ready);
    let up = report(&bench, State::Established);
    hear(&mut bench, up);
    assert!(bench.speakers[NODE1].ready && !bench.speakers[NODE2].ready);
    bench.run(Duration::from_secs(30));
    assert!(bench.speakers[NODE2].ready);
}

#[test]
fn a_status_lists_no_peer_that_was_never_up() {
    let mut bench = without_router();
    serve(&mut bench, "web", A, &[NODE1]);
    assert_eq!(statuses(&bench), [""; 0], "there is nobody who could have been told");
    assert_eq!(table(&bench, "router"), [format!("{A}/32")], "what is to be told waits for the session");
    let up = report(&bench, State::Established);
    hear(&mut bench, up);
    assert_eq!(statuses(&bench), [format!("web@{NODE1}: router")]);
    // Losing it for a while writes nothing.
    bench.take_writes();
    let down = report(&bench, State::Idle);
    hear(&mut bench, down);
    bench.settle();
    assert_eq!(bench.take_writes(), [""; 0]);
    // A peer at another address is another one.
    edit(&mut bench, "BGPPeer", "router", &json!({ "peerAddress": "192.168.10.9" }));
    assert_eq!(statuses(&bench), [""; 0]);
    let up = report(&bench, State::Established);
    hear(&mut bench, up);
    assert_eq!(statuses(&bench), [format!("web@{NODE1}: router")]);

    // What a former process said holds until sessions have had their time.
    bench.take_writes();
    bench.start(NODE1, "2");
    of(&mut bench, NODE1).peers_answer = false;
    bench.run(Duration::from_secs(29));
    assert_eq!(statuses(&bench), [format!("web@{NODE1}: router")]);
    bench.run(Duration::from_secs(3));
    assert_eq!(statuses(&bench), [""; 0]);
}

#[test]
fn a_status_lists_no_peer_that_is_not_told_of_the_service_and_lists_it_again_once_it_is() {
    let mut bench = without_router();
    bench.api.patch(
        "BGPPeer",
        NAMESPACE,
        "router",
        &json!({ "metadata": { "annotations": { "ferrolb.io/max-prefixes": "1" } } }),
    );
    serve(&mut bench, "web", A, &[NODE1]);
    serve(&mut bench, "api", B, &[NODE1]);
    bench.take_writes();
    let of = |name: &str| format!("{name}@{NODE1}: router");
    let untold = |prefixes: &[&str]| {
        let prefixes = prefixes.iter().map(|ip| format!("{ip}/32").parse().unwrap()).collect();
        Arc::new(Untold { families: Families::NONE, prefixes })
    };
    // The fuse is blown: of two prefixes there is room for one.
    let blown = PeerReport { untold: untold(&[B]), ..report(&bench, State::Established) };
    hear(&mut bench, blown.clone());
    bench.settle();
    assert_eq!(statuses(&bench), [of("web")]);
    // What comes now is not told either, and nobody says first that it were.
    bench.take_writes();
    serve(&mut bench, "more", "192.168.20.102", &[NODE1]);
    assert_eq!(bench.take_writes(), [""; 0]);
    let both = PeerReport { untold: untold(&[B, "192.168.20.102"]), ..blown.clone() };
    hear(&mut bench, both.clone());
    // Nor does a session that ends and comes back make writes; while it tells, it has not told.
    let down = report(&bench, State::Idle);
    hear(&mut bench, down);
    let telling = PeerReport { settled: false, ..report(&bench, State::Established) };
    hear(&mut bench, telling);
    hear(&mut bench, both);
    bench.settle();
    assert_eq!((statuses(&bench), bench.take_writes()), (vec![of("web")], vec![]));
    // There is room again: the next one is told.
    bench.api.delete("Service", "demo", "web");
    let freed = PeerReport { settled: false, untold: untold(&["192.168.20.102"]), ..blown.clone() };
    hear(&mut bench, freed.clone());
    bench.settle();
    assert_eq!(statuses(&bench), [""; 0], "not before it is told");
    hear(&mut bench, PeerReport { settled: true, ..freed });
    bench.settle();
    assert_eq!(statuses(&bench), [of("api")]);
    // The peer does not take the family any more.
    let families = Arc::new(Untold { families: Families::V4, ..Untold::default() });
    hear(&mut bench, PeerReport { untold: families, ..blown.clone() });
    bench.settle();
    assert_eq!(statuses(&bench), [""; 0]);
    hear(&mut bench, PeerReport { untold: untold(&[]), ..blown });
    bench.settle();
    assert_eq!(statuses(&bench), [of("api"), of("more")]);
}

pub(crate) fn report(bench: &Bench, state: State) -> PeerReport {
    crate::bench::report(bench.now, state)
}

/// Node 1 hears of its session with `router`.
pub(crate) fn hear(bench: &mut Bench, report: PeerReport) {
    bench.hear(NODE1, Input::Peer { peer: PeerName::from("router"), report: Some(Box::new(report)) });
    bench.run(Duration::from_millis(100));
}

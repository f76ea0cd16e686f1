// SPDX-License-Identifier: Apache-2.0
//! The rows of MetalLB's suites about BGP that are stories of one speaker, or of two: sessions and lists (B), routes at
//! the routers of both (G), with peers, pools, advertisements and Services as they are there.

use std::time::Duration;

use ferrolb_bgp::State;
use ferrolb_speaker_core::Input;
use serde_json::{Value, json};

use crate::bench::{Bench, EXCLUDE, NODE1, NODE2, config, endpoints, report, service};
use crate::bgp::{edit, label, peer, serve, statuses, table, take_log, tutorial};

const NAMESPACE: &str = "metallb-system";

/// A speaker on node 1, and nothing else.
fn bare() -> Bench {
    let mut bench = Bench::bare(|_| {});
    for node in [NODE1, NODE2] {
        bench.api.put("Node", json!({ "metadata": { "name": node } }));
    }
    bench.start(NODE1, "1");
    bench.settle();
    bench
}

fn put(bench: &mut Bench, kind: &'static str, object: Value) {
    bench.api.put(kind, object);
    bench.settle();
}

fn sessions(bench: &Bench) -> Vec<String> {
    bench.speakers[NODE1].sessions.keys().map(ToString::to_string).collect()
}

fn patch_service(bench: &mut Bench, name: &str, patch: &Value) {
    bench.api.patch("Service", "demo", name, patch);
    bench.settle();
}

#[test]
fn lists_of_one_speaker_b01_to_b22() {
    let mut bench = bare();
    serve(&mut bench, "one", "10.20.30.1", &[NODE2]);
    assert_eq!((sessions(&bench).len(), take_log(&mut bench).len()), (0, 0), "B01");
    bench.api.delete("Service", "demo", "one");
    put(&mut bench, "BGPPeer", config("peer1", peer(json!({}))));
    put(&mut bench, "IPAddressPool", config("default", json!({ "addresses": ["10.20.30.0/24"] })));
    put(&mut bench, "BGPAdvertisement", config("adv", json!({})));
    assert_eq!(take_log(&mut bench), ["open peer1"], "B02");
    let mut cluster_ip = service("one", "10.20.30.1");
    cluster_ip["spec"]["type"] = json!("ClusterIP");
    put(&mut bench, "Service", cluster_ip);
    assert_eq!(take_log(&mut bench), [""; 0], "B03");
    put(&mut bench, "Service", service("one", "10.20.30.1"));
    assert_eq!(table(&bench, "peer1"), ["10.20.30.1/32"], "B04");

    // B07: one address twice, in two slices, of which one calls it ready.
    patch_service(&mut bench, "one", &json!({ "spec": { "externalTrafficPolicy": "Local" } }));
    put(&mut bench, "EndpointSlice", endpoints("one", &[NODE1]));
    let mut unready = endpoints("one", &[NODE1]);
    unready["metadata"]["name"] = json!("one-fghij");
    unready["endpoints"][0]["conditions"] = json!({ "ready": false, "serving": false });
    put(&mut bench, "EndpointSlice", unready);
    assert_eq!(table(&bench, "peer1"), ["10.20.30.1/32"], "B07");
    patch_service(&mut bench, "one", &json!({ "spec": { "externalTrafficPolicy": "Cluster" } }));

    let narrow = json!({ "localPref": 100, "communities": ["0:1234", "0:2345"] });
    edit(&mut bench, "BGPAdvertisement", "adv", &narrow);
    let wide = json!({ "aggregationLength": 24, "localPref": 1000 });
    put(&mut bench, "BGPAdvertisement", config("wide", wide));
    let (host, net) = ("10.20.30.1/32 lp 100 0:1234 0:2345", "10.20.30.0/24 lp 1000");
    assert_eq!(table(&bench, "peer1"), [net, host], "B13");
    let on = |node: &str| json!({ "nodeSelectors": [{ "matchLabels": { "name": node } }] });
    label(&mut bench, NODE1, &json!({ "name": "pandora" }));
    label(&mut bench, NODE2, &json!({ "name": "iris" }));
    edit(&mut bench, "BGPAdvertisement", "wide", &on("iris"));
    assert_eq!(table(&bench, "peer1"), [host], "B14");
    edit(&mut bench, "BGPAdvertisement", "wide", &json!({ "nodeSelectors": null }));
    edit(&mut bench, "BGPAdvertisement", "adv", &json!({ "peers": ["peer1"] }));
    assert_eq!(table(&bench, "peer1"), [net, host], "B15");
    bench.api.delete("BGPAdvertisement", NAMESPACE, "wide");
    let plain = json!({ "peers": null, "localPref": null, "communities": null });
    edit(&mut bench, "BGPAdvertisement", "adv", &plain);

    put(&mut bench, "BGPPeer", config("peer2", peer(json!({ "peerAddress": "192.168.10.2" }))));
    let both = |bench: &Bench| [table(bench, "peer1"), table(bench, "peer2")];
    let same = |prefixes: &[&str]| {
        [prefixes.to_vec(), prefixes.to_vec()]
            .map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(both(&bench), same(&["10.20.30.1/32"]), "B16");
    take_log(&mut bench);
    let mut pending = service("two", "10.20.30.5");
    pending["status"] = json!({});
    put(&mut bench, "EndpointSlice", endpoints("two", &[NODE2]));
    put(&mut bench, "Service", pending);
    assert_eq!(take_log(&mut bench), [""; 0], "B17");
    put(&mut bench, "Service", service("two", "10.20.30.5"));
    assert_eq!(both(&bench), same(&["10.20.30.1/32", "10.20.30.5/32"]), "B18");
    put(&mut bench, "Service", service("two", "10.20.30.1"));
    assert_eq!(both(&bench), same(&["10.20.30.1/32"]), "B19");
    take_log(&mut bench);
    bench.api.delete("Service", "demo", "one");
    bench.settle();
    assert_eq!((take_log(&mut bench), both(&bench)), (vec![], same(&["10.20.30.1/32"])), "B20");
    bench.api.delete("BGPPeer", NAMESPACE, "peer2");
    bench.settle();
    assert_eq!(
        (take_log(&mut bench), sessions(&bench)),
        (vec!["close peer2".to_owned()], vec!["peer1".to_owned()]),
        "B21"
    );
    bench.api.delete("Service", "demo", "two");
    bench.settle();
    assert_eq!(table(&bench, "peer1"), [""; 0], "B22");
}

#[test]
fn sessions_by_labels_and_passwords_b23_to_b33() {
    let mut bench = bare();
    put(&mut bench, "BGPPeer", config("all", peer(json!({}))));
    let selectors = |keys: &[&str]| {
        let one = |key: &&str| json!({ "matchLabels": { *key: "y" } });
        json!({ "nodeSelectors": keys.iter().map(one).collect::<Vec<_>>() })
    };
    let mut some = peer(json!({ "peerAddress": "192.168.10.2" }));
    some["nodeSelectors"] = selectors(&["a"])["nodeSelectors"].clone();
    put(&mut bench, "BGPPeer", config("some", some));
    assert_eq!(sessions(&bench), ["all"], "B23, B24");
    label(&mut bench, NODE1, &json!({ "a": "y" }));
    assert_eq!(sessions(&bench), ["all", "some"], "B25");
    take_log(&mut bench);
    label(&mut bench, NODE1, &json!({ "c": "y" }));
    label(&mut bench, NODE1, &json!({ "c": null }));
    assert_eq!(take_log(&mut bench), [""; 0], "B28: kept");
    edit(&mut bench, "BGPPeer", "some", &selectors(&["a", "b"]));
    assert_eq!((sessions(&bench).len(), take_log(&mut bench).len()), (2, 0), "B29");
    edit(&mut bench, "BGPPeer", "all", &json!({ "password": "nopass" }));
    let plan = &bench.speakers[NODE1].sessions["all"];
    assert_eq!(plan.password.as_ref().map(|password| password.bytes()), Some(&b"nopass"[..]), "B33");
}

#[test]
fn which_peers_a_service_is_told_to_b37_to_b42() {
    let mut bench = tutorial();
    bench.api.put("BGPPeer", config("second", peer(json!({ "peerAddress": "192.168.10.2" }))));
    put(&mut bench, "IPAddressPool", config("other", json!({ "addresses": ["192.168.21.0/28"] })));
    put(&mut bench, "BGPAdvertisement", config("of-other", json!({ "ipAddressPools": ["other"] })));
    let own = |bench: &Bench| {
        let all = statuses(bench).into_iter().filter(|status| status.contains(NODE1));
        all.map(|status| status.replace(&format!("@{NODE1}"), "")).collect::<Vec<_>>()
    };
    assert_eq!(own(&bench), [""; 0], "B37");
    serve(&mut bench, "one", "192.168.20.100", &[NODE1]);
    assert_eq!(own(&bench), ["one: router second"], "B38");
    bench.take_writes();
    serve(&mut bench, "two", "192.168.21.1", &[NODE1]);
    assert_eq!(own(&bench), ["one: router second", "two: router second"], "B39");
    let writes = bench.take_writes();
    let written = writes.iter().filter(|write| write.contains("servicebgpstatuses")).count();
    assert_eq!(written, 4, "B39: two nodes, for the second alone: {writes:?}");
    edit(&mut bench, "BGPAdvertisement", "adv", &json!({ "peers": ["router"] }));
    assert_eq!(own(&bench), ["one: router", "two: router second"], "B40");
    bench.api.delete("Service", "demo", "one");
    bench.settle();
    assert_eq!(own(&bench), ["two: router second"], "B41");
    bench.api.delete("BGPPeer", NAMESPACE, "router");
    bench.settle();
    assert_eq!(own(&bench), ["two: second"], "B42");
}

#[test]
fn layer_2_and_bgp_at_once_and_apart_b58_to_b60_g29() {
    let mut bench = tutorial();
    put(&mut bench, "L2Advertisement", config("l2", json!({ "interfaces": ["ens18"] })));
    serve(&mut bench, "web", "192.168.20.100", &[NODE1, NODE2]);
    assert!(bench.owner("192.168.20.100").is_some(), "B58");
    assert_eq!(table(&bench, "router"), ["192.168.20.100/32"], "B58");
    take_log(&mut bench);
    bench.api.delete("L2Advertisement", NAMESPACE, "l2");
    bench.settle();
    assert_eq!(bench.owner("192.168.20.100"), None, "B59");
    assert_eq!(take_log(&mut bench), [""; 0], "B59, G29: nothing is said of the route");
    bench.take_writes();
    bench.api.delete("BGPAdvertisement", NAMESPACE, "adv");
    bench.settle();
    assert_eq!(take_log(&mut bench), ["router -192.168.20.100/32"], "B60");
    let writes = bench.take_writes();
    assert!(!writes.iter().any(|write| write.contains("servicel2")), "B60: {writes:?}");
}

/// Advertisements, Services (name, address, labels), and what node 1 and node 2 tell.
struct Row {
    about: &'static str,
    advertisements: Vec<(&'static str, Value)>,
    services: Vec<(&'static str, &'static str, Value)>,
    told: [&'static [&'static str]; 2],
}

const A: &str = "192.168.20.100";
const B: &str = "192.168.20.101";
const A32: &str = "192.168.20.100/32";
const B32: &str = "192.168.20.101/32";

fn rows() -> Vec<Row> {
    let by = |key: &str, value: &str| json!([{ "matchLabels": { key: value } }]);
    let one = || vec![("a", A, json!({}))];
    let tiers = |a: &str, b: &str| vec![("a", A, json!({ "tier": a })), ("b", B, json!({ "tier": b }))];
    let row = |about, advertisements, services, told| Row { about, advertisements, services, told };
    vec![
        row(
            "G17 a community and a preference",
            vec![("x", json!({ "communities": ["65535:65283"], "localPref": 50 }))],
            one(),
            [&["192.168.20.100/32 lp 50 65535:65283"]; 2],
        ),
        row(
            "G17 only a preference",
            vec![("x", json!({ "localPref": 50 }))],
            one(),
            [&["192.168.20.100/32 lp 50"]; 2],
        ),
        row(
            "G17 a community by its name",
            vec![("x", json!({ "communities": ["no-advertise"] }))],
            one(),
            [&["192.168.20.100/32 65535:65282"]; 2],
        ),
        row(
            "G17 a pool by its labels",
            vec![("x", json!({ "ipAddressPoolSelectors": by("kind", "bgp"), "communities": ["64512:1"] }))],
            one(),
            [&["192.168.20.100/32 64512:1"]; 2],
        ),
        row(
            "G18 a large community",
            vec![("x", json!({ "communities": ["large:123:456:7890"] }))],
            one(),
            [&["192.168.20.100/32 123:456:7890"]; 2],
        ),
        row(
            "G19 two communities",
            vec![("x", json!({ "communities": ["64512:2"] })), ("y", json!({ "communities": ["64512:1"] }))],
            one(),
            [&["192.168.20.100/32 64512:1 64512:2"]; 2],
        ),
        row("G35 no node", vec![("x", json!({ "nodeSelectors": by("rack", "none") }))], one(), [&[]; 2]),
        row("G35 one node", vec![("x", json!({ "nodeSelectors": by("rack", "one") }))], one(), [&[A32], &[]]),
        row(
            "G36 the nodes of two",
            vec![
                ("x", json!({ "nodeSelectors": by("rack", "one") })),
                ("y", json!({ "nodeSelectors": by("rack", "two") })),
            ],
            one(),
            [&[A32], &[A32]],
        ),
        row(
            "G41 the Service that is selected",
            vec![("x", json!({ "serviceSelectors": by("tier", "web") }))],
            tiers("web", "db"),
            [&[A32]; 2],
        ),
        row(
            "G41 another pool",
            vec![("x", json!({ "ipAddressPools": ["pool"] }))],
            tiers("web", "db"),
            [&[]; 2],
        ),
        row(
            "G41 the pool, and neither label",
            vec![("x", json!({ "ipAddressPools": ["bgp"], "serviceSelectors": by("tier", "none") }))],
            tiers("web", "db"),
            [&[]; 2],
        ),
        row(
            "G42 either of two selectors",
            vec![(
                "x",
                json!({ "serviceSelectors": [{ "matchLabels": { "tier": "web" } }, { "matchLabels": { "tier": "db" } }] }),
            )],
            vec![
                ("a", A, json!({ "tier": "web" })),
                ("b", B, json!({ "tier": "db" })),
                ("c", "192.168.20.102", json!({ "tier": "cache" })),
            ],
            [&[A32, B32]; 2],
        ),
        row(
            "G45 a host route and an aggregate",
            vec![
                ("x", json!({ "serviceSelectors": by("tier", "web") })),
                ("y", json!({ "aggregationLength": 30 })),
            ],
            tiers("web", "db"),
            [&["192.168.20.100/30", A32]; 2],
        ),
        row(
            "G46 a community for all and one for some",
            vec![
                ("x", json!({ "communities": ["64512:1"] })),
                ("y", json!({ "communities": ["64512:2"], "serviceSelectors": by("env", "prod") })),
            ],
            vec![("a", A, json!({ "env": "prod" })), ("b", B, json!({ "env": "staged" }))],
            [&["192.168.20.100/32 64512:1 64512:2", "192.168.20.101/32 64512:1"]; 2],
        ),
        row(
            "G47 to each its own",
            vec![
                ("x", json!({ "communities": ["64512:1"], "serviceSelectors": by("env", "prod") })),
                ("y", json!({ "communities": ["64512:2"], "serviceSelectors": by("env", "staged") })),
            ],
            vec![("a", A, json!({ "env": "prod" })), ("b", B, json!({ "env": "staged" }))],
            [&["192.168.20.100/32 64512:1", "192.168.20.101/32 64512:2"]; 2],
        ),
    ]
}

#[test]
fn what_advertisements_come_to_g17_to_g19_g35_to_g47() {
    let mut bench = tutorial();
    let mut pool = config("bgp", json!({ "addresses": ["192.168.20.100/30"] }));
    pool["metadata"]["labels"] = json!({ "kind": "bgp" });
    bench.api.put("IPAddressPool", pool);
    let communities = json!({ "communities": [{ "name": "no-advertise", "value": "65535:65282" }] });
    bench.api.put("Community", config("known", communities));
    label(&mut bench, NODE1, &json!({ "rack": "one" }));
    label(&mut bench, NODE2, &json!({ "rack": "two" }));
    bench.api.delete("BGPAdvertisement", NAMESPACE, "adv");
    for Row { about, advertisements, services, told } in rows() {
        for (name, spec) in &advertisements {
            bench.api.put("BGPAdvertisement", config(name, spec.clone()));
        }
        for (name, ip, labels) in &services {
            let mut object = service(name, ip);
            object["metadata"]["labels"] = labels.clone();
            bench.api.put("EndpointSlice", endpoints(name, &[NODE1, NODE2]));
            bench.api.put("Service", object);
        }
        bench.settle();
        for (node, told) in [NODE1, NODE2].into_iter().zip(told) {
            assert_eq!(bench.speakers[node].table("router"), told, "{about}, {node}");
        }
        for (name, _) in advertisements {
            bench.api.delete("BGPAdvertisement", NAMESPACE, name);
        }
        for (name, ..) in services {
            bench.api.delete("Service", "demo", name);
        }
        bench.settle();
        assert_eq!(table(&bench, "router"), [""; 0], "{about}");
    }
}

#[test]
fn routes_swap_when_selectors_or_labels_do_and_attributes_are_replaced_g20_g37_g38_g43_g44() {
    let mut bench = tutorial();
    let env = |value: &str| json!({ "serviceSelectors": [{ "matchLabels": { "env": value } }] });
    let labelled = |value: &str| json!({ "metadata": { "labels": { "env": value } } });
    serve(&mut bench, "a", A, &[NODE1]);
    serve(&mut bench, "b", B, &[NODE1]);
    patch_service(&mut bench, "a", &labelled("prod"));
    patch_service(&mut bench, "b", &labelled("staged"));
    edit(&mut bench, "BGPAdvertisement", "adv", &env("prod"));
    assert_eq!(table(&bench, "router"), [A32]);
    edit(&mut bench, "BGPAdvertisement", "adv", &env("staged"));
    assert_eq!(table(&bench, "router"), [B32], "G43");
    patch_service(&mut bench, "a", &labelled("staged"));
    patch_service(&mut bench, "b", &labelled("prod"));
    assert_eq!(table(&bench, "router"), [A32], "G44");
    edit(&mut bench, "BGPAdvertisement", "adv", &json!({ "serviceSelectors": null }));

    let more = json!({ "communities": ["64512:7"], "localPref": 70 });
    edit(&mut bench, "BGPAdvertisement", "adv", &more);
    take_log(&mut bench);
    edit(
        &mut bench,
        "BGPAdvertisement",
        "adv",
        &json!({ "aggregationLength": 30, "communities": ["64512:8"] }),
    );
    assert_eq!(table(&bench, "router"), ["192.168.20.100/30 lp 70 64512:8"], "G20");
    edit(&mut bench, "BGPAdvertisement", "adv", &json!({ "aggregationLength": 32 }));
    assert_eq!(table(&bench, "router").len(), 2);

    let rack = |value: &str| json!({ "nodeSelectors": [{ "matchLabels": { "rack": value } }] });
    edit(&mut bench, "BGPAdvertisement", "adv", &rack("late"));
    assert_eq!(table(&bench, "router"), [""; 0], "G37");
    label(&mut bench, NODE1, &json!({ "rack": "late" }));
    assert_eq!((table(&bench, "router").len(), bench.speakers[NODE2].table("router").len()), (2, 0), "G37");

    // G38: one that no longer selects anything takes nothing with it.
    put(&mut bench, "BGPAdvertisement", config("second", env("prod")));
    edit(&mut bench, "BGPAdvertisement", "adv", &env("staged"));
    assert_eq!(table(&bench, "router").len(), 2);
    take_log(&mut bench);
    edit(&mut bench, "BGPAdvertisement", "second", &env("none"));
    assert_eq!(take_log(&mut bench), [format!("router -{B32}")]);
}

#[test]
fn a_system_for_each_node_g40_and_peers_where_they_are_selected_g39() {
    let mut bench = tutorial();
    bench.api.delete("BGPPeer", NAMESPACE, "router");
    for (name, node, asn) in [("rack-1", NODE1, 64_601), ("rack-2", NODE2, 64_602)] {
        label(&mut bench, node, &json!({ "rack": name }));
        let selected = json!({ "myASN": asn, "nodeSelectors": [{ "matchLabels": { "rack": name } }] });
        put(&mut bench, "BGPPeer", config(name, peer(selected)));
    }
    for (node, name, asn) in [(NODE1, "rack-1", 64_601), (NODE2, "rack-2", 64_602)] {
        let sessions = &bench.speakers[node].sessions;
        let (peer, plan) = sessions.first_key_value().unwrap();
        assert_eq!((sessions.len(), peer.as_str(), plan.settings.asn.number()), (1, name, asn));
    }
}

#[test]
fn from_status_to_route_it_takes_no_longer_than_the_news_bg_31() {
    let mut bench = tutorial();
    bench.api.put("EndpointSlice", endpoints("web", &[NODE1]));
    bench.settle();
    bench.api.put("Service", service("web", A));
    // The bench's news take 3 ms.
    bench.run(Duration::from_millis(3));
    assert_eq!(table(&bench, "router"), [A32]);
}

#[test]
fn endpoints_that_go_by_the_hundred_cost_a_look_each_bg_27() {
    let mut bench = tutorial();
    serve(&mut bench, "web", A, &[NODE1; 100]);
    take_log(&mut bench);
    bench.take_writes();
    for left in (1..100).rev() {
        bench.api.put("EndpointSlice", endpoints("web", &vec![NODE1; left]));
        // A loop that finds no end would not come back from here.
        bench.run(Duration::from_millis(10));
    }
    assert_eq!((take_log(&mut bench), bench.take_writes()), (vec![], vec![]));
    bench.api.put("EndpointSlice", endpoints("web", &[]));
    bench.run(Duration::from_secs(60));
    assert_eq!(take_log(&mut bench), [format!("router -{A32}")]);
    assert_eq!(bench.take_writes(), ["DELETE servicebgpstatuses"; 2], "by each node its own");
}

#[test]
fn a_cordoned_node_goes_on_announcing_bg_37() {
    let mut bench = tutorial();
    serve(&mut bench, "web", A, &[NODE1]);
    take_log(&mut bench);
    bench.api.patch("Node", "", NODE1, &json!({ "spec": { "unschedulable": true } }));
    bench.settle();
    assert_eq!(take_log(&mut bench), [""; 0]);
    label(&mut bench, NODE1, &json!({ EXCLUDE: "" }));
    assert_eq!(take_log(&mut bench), [format!("router -{A32}")]);
}

/// Every gratuitous frame of a story in which the owner's node goes: when, and whose.
fn failover(peers: &[(&str, State)]) -> Vec<(u64, &'static str)> {
    let mut bench = tutorial();
    bench.api.delete("BGPPeer", NAMESPACE, "router");
    put(&mut bench, "L2Advertisement", config("l2", json!({ "interfaces": ["ens18"] })));
    for (number, (name, _)) in peers.iter().enumerate() {
        bench
            .api
            .put("BGPPeer", config(name, peer(json!({ "peerAddress": format!("192.0.2.{}", number + 1) }))));
    }
    bench.speakers.values_mut().for_each(|speaker| speaker.peers_answer = false);
    bench.settle();
    serve(&mut bench, "web", A, &[NODE1, NODE2]);
    let owner = bench.owner(A).unwrap();
    let heir = if owner == NODE1 { NODE2 } else { NODE1 };
    bench.gratuitous.clear();
    let begun = bench.now;
    label(&mut bench, owner, &json!({ EXCLUDE: "" }));
    for _ in 0..20 {
        // Its sessions come to nothing, over and over.
        for (name, state) in peers {
            let report = report(bench.now, *state);
            bench.hear(heir, Input::Peer { peer: (*name).into(), report: Some(Box::new(report)) });
        }
        bench.run(Duration::from_millis(100));
    }
    assert_eq!(bench.owner(A), Some(heir));
    let begun = u64::try_from(begun.since_start().as_millis()).unwrap();
    bench.gratuitous.iter().map(|(at, node, ..)| (at - begun, *node)).collect()
}

#[test]
fn x15_peers_that_are_dead_mute_or_stuck_leave_layer_2_failover_as_it_is() {
    let without = failover(&[]);
    assert!(!without.is_empty());
    let all = [("swallows-syns", State::Connect), ("mute", State::OpenSent), ("stuck", State::Established)];
    assert_eq!(failover(&all), without, "the same frames at the same times");
}

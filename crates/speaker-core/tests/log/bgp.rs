// SPDX-License-Identifier: Apache-2.0
//! The lines about BGP.

use ferrolb_api::Change;
use ferrolb_speaker_core::Input;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Line, Log, assert_has, decode};

const IP: &str = "192.168.10.200";

fn config<K: DeserializeOwned>(name: &str, spec: &Value) -> Change<K> {
    Change::Applied(Box::new(decode(json!({
        "metadata": { "namespace": "metallb-system", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": spec,
    }))))
}

fn gone<K: Resource>(name: &str) -> Change<K> {
    Change::Deleted { namespace: "metallb-system".to_owned(), name: name.to_owned() }
}

fn advertisement(name: &str, spec: &Value) -> Input {
    Input::BGPAdvertisements(config(name, spec))
}

fn peer(more: &Value) -> Input {
    let mut spec =
        json!({ "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1", "peerPort": 1179 });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Input::BGPPeers(config("router", &spec))
}

fn node(labels: &Value, unavailable: bool) -> Input {
    let status = if unavailable { "True" } else { "False" };
    let object = json!({
        "metadata": { "name": "n1", "labels": labels },
        "status": { "conditions": [{ "type": "NetworkUnavailable", "status": status }] },
    });
    Input::Nodes(Change::Applied(Box::new(decode(object))))
}

fn endpoints(ready: bool) -> Input {
    let object = json!({
        "metadata": { "namespace": "demo", "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.1.1.1"], "nodeName": "n2", "conditions": { "ready": ready } }],
    });
    Input::EndpointSlices(Change::Applied(Box::new(decode(object))))
}

fn service(spec: &Value, ingress: &Value) -> Input {
    let object = json!({
        "metadata": { "namespace": "demo", "name": "web" },
        "spec": spec,
        "status": { "loadBalancer": { "ingress": ingress } },
    });
    Input::Services(Change::Applied(Box::new(decode(object))))
}

fn load_balancer() -> Input {
    service(&json!({ "type": "LoadBalancer" }), &json!([{ "ip": IP }]))
}

/// A pool that an advertisement announces, a peer, and nothing to announce yet.
fn begun() -> Log {
    let mut log = Log::new();
    log.input(advertisement("adv", &json!({ "ipAddressPools": ["c"] })));
    log.input(peer(&json!({})));
    log
}

/// The same, with a Service.
fn announcing() -> Log {
    let mut log = begun();
    log.input(load_balancer());
    log
}

/// An advertisement that wants another preference than the first one; only for a Service is that known.
fn conflicting() -> Input {
    let web = json!([{ "matchExpressions": [{ "key": "other", "operator": "DoesNotExist" }] }]);
    advertisement("other", &json!({ "localPref": 7, "serviceSelectors": web }))
}

/// The lines that name BGP.
fn of_bgp(lines: Vec<Line>) -> Vec<Line> {
    lines.into_iter().filter(|line| line.get("protocol").is_some_and(|protocol| protocol == "bgp")).collect()
}

#[test]
fn what_is_announced_is_said_with_how_many_advertisements_and_again_when_those_are_others() {
    let mut log = begun();
    let lines = of_bgp(log.input(load_balancer()));
    let every = [("level", "info"), ("service", "demo/web"), ("ips", "[\"192.168.10.200\"]"), ("pool", "c")];
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_has(&lines[0], &every);
    let updated = [("event", "updatedAdvertisements"), ("message", "making advertisements using BGP")];
    assert_has(&lines[0], &updated);
    assert_has(&lines[0], &[("numAds", "1")]);
    assert_has(&lines[1], &every);
    assert_has(&lines[1], &[("event", "serviceAnnounced"), ("message", "service has IP, announcing")]);
    // Nothing new, no line; endpoints that come and go are none.
    assert_eq!(of_bgp(log.input(load_balancer())), Vec::<Line>::new());
    assert_eq!(of_bgp(log.input(endpoints(true))), Vec::<Line>::new());
    let lines = of_bgp(log.input(advertisement("more", &json!({ "ipAddressPools": ["c"] }))));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_has(&lines[0], &updated);
    assert_has(&lines[0], &[("numAds", "2")]);
    let lines = of_bgp(log.input(advertisement("more", &json!({ "communities": ["1:2"] }))));
    assert_has(&lines[0], &updated);
}

#[test]
fn what_is_withdrawn_is_said_with_metallbs_word_for_the_reason() {
    let elsewhere = json!({ "nodeSelectors": [{ "matchLabels": { "rack": "z" } }] });
    let others = json!({ "serviceSelectors": [{ "matchLabels": { "app": "other" } }] });
    let excluded = json!({ "node.kubernetes.io/exclude-from-external-load-balancers": "" });
    let local = json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local" });
    let balanced = json!({ "type": "LoadBalancer" });
    let deleted = Change::Deleted { namespace: "demo".to_owned(), name: "web".to_owned() };
    for (word, input) in [
        ("loadBalancerIPChanged", service(&balanced, &json!([{ "ip": "192.168.10.201" }]))),
        ("notLoadBalancer", service(&json!({ "type": "ClusterIP" }), &json!([{ "ip": IP }]))),
        ("noIPAllocated", service(&balanced, &json!([]))),
        ("invalidIP", service(&balanced, &json!([{ "ip": "nonsense" }]))),
        ("ipNotAllowed", service(&balanced, &json!([{ "ip": "10.0.0.1" }]))),
        ("serviceDeleted", Input::Services(deleted)),
        ("notOwner", advertisement("adv", &elsewhere)),
        ("notOwner", Input::BGPAdvertisements(gone("adv"))),
        ("noMatchingAdvertisement", advertisement("adv", &others)),
        ("conflictingAdvertisements", conflicting()),
        ("nodeNetworkUnavailable", node(&json!({}), true)),
        ("nodeLabeledExcludeBalancers", node(&excluded, false)),
        ("noLocalEndpoints", service(&local, &json!([{ "ip": IP }]))),
        ("noEndpoints", endpoints(false)),
    ] {
        let mut log = announcing();
        let lines = log.input(input);
        let withdrawn: Vec<_> = of_bgp(lines)
            .into_iter()
            .filter(|line| line.get("event").is_some_and(|event| event == "serviceWithdrawn"))
            .collect();
        assert_eq!(withdrawn.len(), 1, "{word}: {withdrawn:?}");
        assert_has(
            &withdrawn[0],
            &[
                ("level", "info"),
                ("service", "demo/web"),
                ("ip", "[\"192.168.10.200\"]"),
                ("reason", word),
                ("message", "withdrawing service announcement"),
            ],
        );
        assert!(withdrawn[0]["why"].contains(' '), "{word}: a sentence beside the word");
    }
}

#[test]
fn a_service_that_this_node_skips_is_said_once_in_metallbs_words() {
    let elsewhere = json!({ "nodeSelectors": [{ "matchLabels": { "rack": "z" } }] });
    let others = json!({ "serviceSelectors": [{ "matchLabels": { "app": "other" } }] });
    let excluded = || json!({ "node.kubernetes.io/exclude-from-external-load-balancers": "" });
    let label = "speaker's node has labeled 'node.kubernetes.io/exclude-from-external-load-balancers'";
    for (level, sentence, input) in [
        ("warn", label, node(&excluded(), false)),
        ("warn", "speaker's node has NodeNetworkUnavailable condition", node(&json!({}), true)),
        ("debug", "pool not matching my node", advertisement("adv", &elsewhere)),
        ("debug", "no advertisement matching service", advertisement("adv", &others)),
    ] {
        let mut log = begun();
        log.input(input);
        let lines = of_bgp(log.input(load_balancer()));
        assert_eq!(lines.len(), 1, "{sentence}: {lines:?}");
        assert_has(
            &lines[0],
            &[
                ("level", level),
                ("event", "skipping should announce bgp"),
                ("service", "demo/web"),
                ("ips", "[\"192.168.10.200\"]"),
                ("pool", "c"),
                ("reason", sentence),
            ],
        );
        assert_eq!(of_bgp(log.input(load_balancer())), Vec::<Line>::new(), "{sentence}");
    }
    let mut log = announcing();
    let lines = of_bgp(log.input(conflicting()));
    let line = lines.iter().find(|line| line["level"] == "error").unwrap_or_else(|| panic!("{lines:?}"));
    assert_has(
        line,
        &[
            ("event", "conflictingAdvertisements"),
            ("service", "demo/web"),
            ("error", "advertisements 'adv' and 'other' have conflicting LOCAL_PREF (0 vs 7)"),
        ],
    );
}

#[test]
fn peers_that_come_and_go_are_said_with_the_reason() {
    let mut log = Log::new();
    let router = [("level", "info"), ("peer", "192.168.10.1"), ("port", "1179"), ("name", "router")];
    let only = |lines: Vec<Line>, event: &str| {
        let lines: Vec<_> =
            lines.into_iter().filter(|line| line.get("event").is_some_and(|e| e == event)).collect();
        assert_eq!(lines.len(), 1, "{event}: {lines:?}");
        assert_has(&lines[0], &router);
        lines[0].clone()
    };
    let added = only(log.input(peer(&json!({}))), "peerAdded");
    assert_has(&added, &[("message", "peer configured, starting BGP session")]);
    let selected = json!({ "nodeSelectors": [{ "matchLabels": { "rack": "a" } }] });
    let message = ("message", "peer deconfigured, closing BGP session");
    let removed = only(log.input(peer(&selected)), "peerRemoved");
    assert_has(&removed, &[("reason", "filteredByNodeSelector"), message]);
    only(log.input(node(&json!({ "rack": "a" }), false)), "peerAdded");
    let removed = only(log.input(node(&json!({ "rack": "b" }), false)), "peerRemoved");
    assert_has(&removed, &[("reason", "filteredByNodeSelector"), message]);
    only(log.input(peer(&json!({}))), "peerAdded");
    let removed = only(log.input(Input::BGPPeers(gone("router"))), "peerRemoved");
    assert_has(&removed, &[("reason", "removedFromConfig"), message]);
}

#[test]
fn other_labels_of_the_own_node_are_said_and_those_of_others_are_not() {
    let mut log = Log::new();
    let said = |lines: &[Line]| {
        lines
            .iter()
            .filter(|line| line.get("event").is_some_and(|event| event == "nodeLabelsChanged"))
            .count()
    };
    let lines = log.input(node(&json!({ "rack": "a" }), false));
    assert_eq!(said(&lines), 1, "{lines:?}");
    let line = lines.iter().find(|line| line.get("event").is_some_and(|event| event == "nodeLabelsChanged"));
    assert_has(line.unwrap(), &[("level", "info"), ("message", "Node labels changed, resyncing BGP peers")]);
    assert_eq!(said(&log.input(node(&json!({ "rack": "a" }), true))), 0);
    let other = decode(json!({ "metadata": { "name": "n2", "labels": { "rack": "a" } } }));
    assert_eq!(said(&log.input(Input::Nodes(Change::Applied(Box::new(other))))), 0);
}

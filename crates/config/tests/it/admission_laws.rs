// SPDX-License-Identifier: Apache-2.0
//! What holds of every admission: it never panics, and it refuses exactly those who break a consistent part of what is
//! stored.

use std::collections::BTreeSet;

use ferrolb_api::conversion;
use ferrolb_config::admission::{List, Review, Stored, Target, judge};
use ferrolb_config::{LastGood, Resources, evaluate};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, NAMESPACE, review};

/// Any JSON, with the words that are looked for more often than chance would have it.
fn any_json() -> impl Strategy<Value = Value> {
    let word = select(
        &[
            "",
            "kind",
            "metadata",
            "name",
            "namespace",
            "spec",
            "addresses",
            "nodeSelectors",
            "matchExpressions",
            "key",
            "operator",
            "values",
            "In",
            "apiVersion",
            "metallb.io/v1beta1",
            "BGPPeer",
            "myASN",
            "holdTime",
            "10.0.0.0/8",
            "::-ff::",
            "-",
            "0s",
            "\u{0}",
            "é",
            NAMESPACE,
        ][..],
    );
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..4)
                .prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

/// Every place in a document.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| places(item, &format!("{at}/{i}"), found));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), found));
        }
        _ => {}
    }
}

/// An object that uses every field.
fn rich(target: Target) -> Value {
    let selectors = json!([{ "matchLabels": { "a": "b" },
                            "matchExpressions": [{ "key": "k", "operator": "In", "values": ["v"] }] }]);
    let spec = match target {
        Target::BGPPeer => json!({
            "myASN": 1, "peerASN": 2, "localASN": 3, "dynamicASN": "", "peerAddress": "192.0.2.1", "interface": "",
            "sourceAddress": "192.0.2.2", "peerPort": 179, "holdTime": "90s", "keepaliveTime": "30s",
            "connectTime": "10s", "routerID": "192.0.2.3", "nodeSelectors": selectors, "password": "x",
            "passwordSecret": { "name": "s", "namespace": "n" }, "bfdProfile": "f", "enableGracefulRestart": true,
            "ebgpMultiHop": true, "vrf": "red", "disableMP": false, "dualStackAddressFamily": false,
        }),
        Target::IPAddressPool => json!({
            "addresses": ["10.0.0.0/24", "10.0.1.1-10.0.1.9", "fd00::/64"], "autoAssign": true, "avoidBuggyIPs": true,
            "serviceAllocation": { "priority": 1, "namespaces": ["n"], "namespaceSelectors": selectors,
                                   "serviceSelectors": selectors },
        }),
        Target::BGPAdvertisement => json!({
            "aggregationLength": 32, "aggregationLengthV6": 128, "localPref": 7, "communities": ["1:2", "x"],
            "ipAddressPools": ["p"], "ipAddressPoolSelectors": selectors, "nodeSelectors": selectors, "peers": ["q"],
            "serviceSelectors": selectors,
        }),
        Target::L2Advertisement => json!({
            "ipAddressPools": ["p"], "ipAddressPoolSelectors": selectors, "nodeSelectors": selectors,
            "preferredNodeSelectors": [{ "weight": 1, "preference": selectors[0] }], "interfaces": ["ens18"],
            "serviceSelectors": selectors,
        }),
        Target::Community => json!({ "communities": [{ "name": "x", "value": "1:2" }] }),
        Target::BFDProfile => json!({ "receiveInterval": 300, "echoMode": true, "minimumTtl": 254 }),
    };
    json!({ "apiVersion": format!("metallb.io/{}", target.version()), "kind": target.kind(),
            "metadata": { "name": "o", "namespace": NAMESPACE, "labels": { "a": "b" },
                          "annotations": { "ferrolb.io/allocate-only": "true" } },
            "spec": spec })
}

/// The document with another value in some places.
fn spoiled(mut document: Value, spoils: &[(Index, Value)]) -> Value {
    for (index, value) in spoils {
        let mut all = Vec::new();
        places(&document, "", &mut all);
        let place = index.get(&all);
        if let Some(here) = document.pointer_mut(place) {
            *here = value.clone();
        }
    }
    document
}

fn spoils() -> impl Strategy<Value = Vec<(Index, Value)>> {
    prop::collection::vec((any::<Index>(), any_json()), 0..3)
}

proptest! {
    #[test]
    fn no_review_and_no_stored_object_makes_it_panic(
        target in select(&Target::ALL[..]),
        operation in select(&["CREATE", "UPDATE", "DELETE", "CONNECT"][..]),
        bgp_type in select(&["native", "frr", "else"][..]),
        of_review in spoils(),
        stored in prop::collection::vec((select(&Target::ALL[..]), spoils()), 0..6),
        lists in prop::collection::vec((select(&List::ALL[..]), prop::collection::vec(any_json(), 0..2)), 0..2),
    ) {
        let setup = ApiServer::new(bgp_type).setup;
        let body = spoiled(review(operation, &rich(target), &rich(target)), &of_review).to_string();
        let answer = match Review::decode(target, body.as_bytes()) {
            Err(answer) => {
                prop_assert_eq!(answer.code, 400);
                answer
            }
            Ok(decoded) => {
                let mut read = Stored::new();
                for list in List::ALL {
                    let of_kind = stored.iter().filter(|(target, _)| target.kind() == list.kind());
                    let items = of_kind.map(|(target, spoils)| spoiled(rich(*target), spoils)).collect();
                    read.insert(list, items);
                }
                for (list, items) in lists {
                    read.insert(list, items);
                }
                judge(&decoded, &read, &setup)
            }
        };
        prop_assert_eq!(answer.allowed, answer.code == 200);
        prop_assert_eq!(answer.allowed, answer.message.is_empty());
        prop_assert_eq!(answer.reason, (answer.code == 403).then_some("Forbidden"));
        prop_assert!(answer.warnings.iter().all(|w| !w.is_empty() && !w.chars().any(char::is_control)));
    }

    #[test]
    fn no_document_makes_it_panic(target in select(&Target::ALL[..]), body in any_json(), bytes: Vec<u8>) {
        for body in [body.to_string().into_bytes(), bytes] {
            if let Err(answer) = Review::decode(target, &body) {
                prop_assert_eq!(answer.code, 400);
            }
        }
    }

    #[test]
    fn no_document_makes_a_conversion_panic(
        document in any_json(),
        spoils in spoils(),
        desired in select(&["metallb.io/v1beta1", "metallb.io/v1beta2"][..]),
    ) {
        let review = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
            "uid": "u", "desiredAPIVersion": desired, "objects": [rich(Target::BGPPeer), document],
        } });
        if let Ok(answer) = conversion::review(&spoiled(review, &spoils)) {
            prop_assert!(answer["response"].is_object());
        }
    }

    #[test]
    fn those_are_refused_who_break_a_consistent_part(
        bgp_type in select(&["native", "frr"][..]),
        target in select(&Target::ALL[..5]),
        stored in prop::collection::vec((0_usize..4, any::<Index>()), 0..4),
        pools in prop::collection::vec(any::<Index>(), 0..4),
        name in 0_usize..4,
        incoming: Index,
    ) {
        let mut server = ApiServer::new(bgp_type);
        let with_pools = matches!(target, Target::BGPAdvertisement | Target::L2Advertisement);
        for (i, spec) in pools.iter().enumerate().filter(|_| with_pools) {
            let mut pool = server.object(Target::IPAddressPool, &format!("pool{i}"), spec.get(&specs(Target::IPAddressPool)));
            pool["metadata"]["labels"] = json!({ "parity": (i % 2).to_string() });
            server.put(Target::IPAddressPool, pool);
        }
        for (name, spec) in &stored {
            let object = server.object(target, &format!("o{name}"), spec.get(&specs(target)));
            server.put(target, object);
        }
        let name = format!("o{name}");
        let object = server.object(target, &name, incoming.get(&specs(target)));
        let answer = server.ask(target, &object);

        // By definition, trying every part.
        let scene = Scene { server: &server, target, object: &object };
        let others: Vec<(Target, String)> = scene.others();
        let breaks = |part: &BTreeSet<(Target, String)>| {
            (scene.verdict(part, false).is_ok()).then(|| scene.verdict(part, true).err()).flatten()
        };
        let whole: BTreeSet<_> = others.iter().cloned().collect();
        let parts = (0_u32..1 << others.len()).map(|chosen| {
            let chosen = others.iter().enumerate().filter(|(i, _)| chosen >> i & 1 == 1);
            chosen.map(|(_, object)| object.clone()).collect::<BTreeSet<_>>()
        });
        let broken: Vec<String> = parts.filter_map(|part| breaks(&part)).collect();
        prop_assert_eq!(answer.allowed, broken.is_empty(), "{:?} {:?}", answer, broken);

        let said_by_metallb = scene.verdict(&whole, true);
        if !answer.allowed {
            prop_assert!(said_by_metallb.is_err(), "refused only what MetalLB refuses");
            prop_assert!(broken.contains(&answer.message), "{} {:?}", answer.message, broken);
        }
        if scene.verdict(&whole, false).is_ok() {
            // The whole stays consistent, and the words are MetalLB's.
            prop_assert_eq!(answer.allowed.then_some(()).ok_or(answer.message), said_by_metallb);
        } else if answer.allowed {
            prop_assert!(answer.warnings[0].starts_with("the stored configuration is at fault"));
        }
    }
}

/// Parts of what is stored, with and without the object that comes in.
struct Scene<'a> {
    server: &'a ApiServer,
    target: Target,
    object: &'a Value,
}

impl Scene<'_> {
    fn others(&self) -> Vec<(Target, String)> {
        let all = (0..4)
            .flat_map(|i| [(self.target, format!("o{i}")), (Target::IPAddressPool, format!("pool{i}"))]);
        all.filter(|(target, name)| {
            *name != self.object["metadata"]["name"] && self.server.stored(*target, name).is_some()
        })
        .collect()
    }

    fn verdict(&self, part: &BTreeSet<(Target, String)>, with_the_object: bool) -> Result<(), String> {
        let mut resources =
            Resources { bgp_type: self.server.setup.bgp_type.clone(), ..Resources::default() };
        let stored = part.iter().map(|(target, name)| (*target, self.server.stored(*target, name).unwrap()));
        let incoming = with_the_object.then(|| (self.target, self.object.clone()));
        for (target, mut object) in stored.chain(incoming) {
            object["metadata"]["creationTimestamp"] = Value::Null;
            match target {
                Target::BGPPeer => resources.bgp_peers.push(decoded(object)),
                Target::IPAddressPool => resources.pools.push(decoded(object)),
                Target::BGPAdvertisement => resources.bgp_advertisements.push(decoded(object)),
                Target::L2Advertisement => resources.l2_advertisements.push(decoded(object)),
                Target::Community => resources.communities.push(decoded(object)),
                Target::BFDProfile => unreachable!(),
            }
        }
        if matches!(self.target, Target::BGPPeer | Target::BGPAdvertisement) {
            let node = |name: &str| (name.into(), [("name".to_owned(), name.to_owned())].into());
            resources.nodes = ["n1", "n2", "n3"].map(node).into();
        }
        evaluate(&resources, &LastGood::default()).verdict
    }
}

fn decoded<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// Good and bad objects that often contradict each other.
fn specs(target: Target) -> Vec<Value> {
    let on = |node: &str| json!([{ "matchLabels": { "name": node } }]);
    let bad_selector = json!([{ "matchExpressions": [{ "key": "a", "operator": "surrounds" }] }]);
    match target {
        Target::IPAddressPool => vec![
            json!({ "addresses": ["10.0.0.0/24"] }),
            json!({ "addresses": ["10.0.1.0/24"] }),
            json!({ "addresses": ["10.0.2.0/28"] }),
            json!({ "addresses": ["10.0.0.128-10.0.1.3"] }),
            json!({ "addresses": ["10.0.3.0/24", "fd00::/120"] }),
            json!({ "addresses": ["10.0.4.0/24", "nonsense"] }),
            json!({ "addresses": [] }),
        ],
        Target::BGPPeer => {
            let peer = |more: Value| {
                let mut spec = json!({ "myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1" });
                spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                spec
            };
            vec![
                peer(json!({})),
                peer(json!({ "peerAddress": "192.0.2.2" })),
                peer(json!({ "peerAddress": "192.0.2.3", "routerID": "10.0.0.1" })),
                peer(json!({ "peerAddress": "192.0.2.4", "myASN": 64514 })),
                peer(json!({ "nodeSelectors": on("n1") })),
                peer(json!({ "nodeSelectors": on("n2") })),
                peer(
                    json!({ "peerAddress": "192.0.2.5", "nodeSelectors": on("n2"), "routerID": "10.0.0.1" }),
                ),
                peer(json!({ "peerAddress": "nonsense" })),
                peer(json!({ "nodeSelectors": bad_selector })),
                peer(json!({ "vrf": "red" })),
            ]
        }
        Target::BGPAdvertisement => vec![
            json!({}),
            json!({ "localPref": 100 }),
            json!({ "localPref": 200, "ipAddressPools": ["pool0"] }),
            json!({ "localPref": 300, "ipAddressPools": ["pool1"], "aggregationLength": 26 }),
            json!({ "localPref": 300, "ipAddressPoolSelectors": [{ "matchLabels": { "parity": "1" } }] }),
            json!({ "localPref": 400, "nodeSelectors": on("n1") }),
            json!({ "localPref": 500, "peers": ["x"], "nodeSelectors": on("n2") }),
            json!({ "aggregationLength": 24 }),
            json!({ "communities": ["1:2", "1:2"] }),
            json!({ "communities": ["large:1:2:3"], "ipAddressPools": ["pool2"] }),
            json!({ "ipAddressPools": ["pool3"], "nodeSelectors": bad_selector }),
        ],
        Target::L2Advertisement => vec![
            json!({}),
            json!({ "ipAddressPools": ["pool0", "pool0"] }),
            json!({ "nodeSelectors": bad_selector }),
            json!({ "ipAddressPools": ["pool1"], "interfaces": ["x"] }),
        ],
        Target::Community => {
            let alias =
                |name: &str, value: &str| json!({ "communities": [{ "name": name, "value": value }] });
            vec![
                json!({}),
                alias("a", "1:1"),
                alias("a", "1:2"),
                alias("b", "1:1"),
                alias("c", "large:1:2:3"),
                alias("d", "no"),
                json!({ "communities": [{ "name": "e", "value": "1:1" }, { "name": "e", "value": "1:1" }] }),
                json!({ "communities": [{ "name": "a", "value": "1:1" }, { "name": "b", "value": "1:1" }] }),
            ]
        }
        Target::BFDProfile => vec![json!({})],
    }
}

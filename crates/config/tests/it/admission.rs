// SPDX-License-Identifier: Apache-2.0
//! Admission against what MetalLB's webhooks answered to the same objects.

use ferrolb_api::{
    BFDProfile, BGPAdvertisement, BGPPeer, Community, IPAddressPool, L2Advertisement, conversion,
};
use ferrolb_config::admission::{Answer, Target};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use similar_asserts::assert_eq;

use crate::api_server::{ApiServer, NAMESPACE};

/// The recordings, with the type of BGP they were made with.
const RECORDED: [(&str, &str); 2] =
    [("native", include_str!("../data/webhook.json")), ("frr", include_str!("../data/webhook_frr.json"))];

#[test]
fn objects_are_admitted_and_denied_as_recorded() {
    let mut compared = 0;
    let mut differed = Vec::new();
    for (bgp_type, text) in RECORDED {
        let recorded: Value = serde_json::from_str(text).unwrap();
        for case in recorded["cases"].as_array().unwrap() {
            let id = case["id"].as_str().unwrap();
            let mut server = ApiServer::new(bgp_type);
            for (i, step) in case["steps"].as_array().unwrap().iter().enumerate() {
                let Some(ours) = played(&mut server, step) else { continue };
                compared += 1;
                let theirs = expected(step);
                match DIFFERENCES.iter().find(|(case, at, ..)| *case == id && *at == i) {
                    Some((_, _, intended, reason)) => {
                        differed.push((id.to_owned(), i));
                        let intended: Value = serde_json::from_str(intended).unwrap();
                        assert_eq!(ours, intended, "{id}, step {i}: {reason}");
                        assert_ne!(ours, theirs, "{id}, step {i} does not differ any more");
                    }
                    None => assert_eq!(ours, theirs, "{id}, step {i}: {}", step["do"]),
                }
            }
        }
    }
    assert!(compared > 130, "only {compared} answers were compared");
    assert_eq!(
        differed,
        DIFFERENCES.map(|(case, step, ..)| (case.to_owned(), step)),
        "every difference is met"
    );
}

/// Where the answer is meant to be another: case, step, answer, reason.
const DIFFERENCES: [(&str, usize, &str, &str); 12] = [
    (
        "adv-aggregation",
        1,
        r#"{ "code": 403, "reason": "Forbidden", "message": "invalid aggregation length 34 for IPv4" }"#,
        "a number instead of a character",
    ),
    (
        "adv-aggregation",
        6,
        r#"{ "code": 403, "reason": "Forbidden", "message": "invalid aggregation length 129 for IPv6" }"#,
        "a number instead of a character",
    ),
    ("adv-large-native", 0, r#"{ "code": 201 }"#, "large communities are served"),
    ("adv-large-native", 1, r#"{ "code": 201 }"#, "large communities are served"),
    ("adv-v6-native", 4, r#"{ "code": 201 }"#, "IPv6 is served"),
    ("adv-v6-native", 5, r#"{ "code": 201 }"#, "IPv6 is served"),
    ("adv-v6-native", 6, r#"{ "code": 201 }"#, "IPv6 is served"),
    (
        "peer-v1beta1",
        1,
        r#"{ "disableMP": false, "dualStackAddressFamily": false, "myASN": 64512, "passwordSecret": {},
             "peerASN": 64513, "peerAddress": "192.168.10.1", "peerPort": 179 }"#,
        "absent timers stay absent",
    ),
    (
        "peer-v1beta1",
        3,
        r#"{ "disableMP": false, "dualStackAddressFamily": false, "ebgpMultiHop": true, "holdTime": "1m30s",
             "myASN": 64512, "nodeSelectors": [{ "matchExpressions": [{ "key": "k", "operator": "In", "values": ["v"] }],
             "matchLabels": { "a": "b" } }], "password": "secret", "passwordSecret": {}, "peerASN": 64513,
             "peerAddress": "192.168.10.2", "peerPort": 1179, "routerID": "10.0.0.1", "sourceAddress": "192.168.10.20" }"#,
        "absent timers stay absent",
    ),
    (
        "peer-v1beta1",
        5,
        r#"{ "myASN": 64512, "nodeSelectors": [{ "matchLabels": { "x": "y" } }], "peerASN": 64513,
             "peerAddress": "192.168.10.3", "peerPort": 179 }"#,
        "absent timers stay absent",
    ),
    (
        "pool-mixed-family",
        0,
        r#"{ "code": 403, "reason": "Forbidden", "message": "parsing address pool p: invalid CIDR \"192.168.10.200-fd00:10::200\" in pool \"p\": invalid IP range \"192.168.10.200-fd00:10::200\": start IP \"192.168.10.200\" and end IP \"fd00:10::200\" have different families" }"#,
        "a range across families has no addresses, and crashes MetalLB's evaluation later",
    ),
    (
        "frr-large",
        3,
        r#"{ "code": 403, "reason": "Forbidden", "message": "invalid aggregation length 64: prefix 126 in this pool is more specific than the aggregation length for addresses fd00:10::200/126" }"#,
        "the length that is at fault",
    ),
];

/// The recorded answer of the webhook, or the object read.
fn expected(step: &Value) -> Value {
    let answer = &step["answer"];
    if !answer["spec"].is_null() {
        return answer["spec"].clone();
    }
    let mut expected = json!({ "code": answer["code"] });
    if let Some(message) = answer["message"].as_str() {
        let (webhook, message) = message
            .strip_prefix("admission webhook \"")
            .unwrap()
            .split_once("\" denied the request: ")
            .unwrap();
        assert_eq!(webhook, target(step).0.webhook_name());
        expected["message"] = json!(without_renderings(message));
        expected["reason"] = answer["reason"].clone();
    }
    expected
}

/// Our answer to one step, in the recorded form; `None` if the schema answers. Stored is what was stored then.
fn played(server: &mut ApiServer, step: &Value) -> Option<Value> {
    let code = &step["answer"]["code"];
    let (verb, argument) = step["do"].as_object().unwrap().iter().next().unwrap();
    let (target, _) = target(step);
    match verb.as_str() {
        "get" => {
            let (verb, name) = argument.as_object().unwrap().iter().next().unwrap();
            let mut object = server.stored(target, name.as_str().unwrap()).unwrap();
            if verb == "peer1" {
                object = converted(&object, "metallb.io/v1beta1");
            }
            assert_eq!(object["apiVersion"], step["answer"]["apiVersion"]);
            return Some(object["spec"].clone());
        }
        "delete" => {
            let name = argument.as_object().unwrap().values().next().unwrap().as_str().unwrap();
            return Some(outcome(&server.delete(target, name), "200"));
        }
        _ if code == 422 => return None,
        _ => {}
    }
    let name = argument["name"].as_str().unwrap();
    let mut object = server.object(target, name, &spec(argument));
    for (field, metadata) in [("labels", "labels"), ("in", "namespace")] {
        if !argument[field].is_null() {
            object["metadata"][metadata] = argument[field].clone();
        }
    }
    if verb == "peer1" {
        object["apiVersion"] = json!("metallb.io/v1beta1");
        object = converted(&object, "metallb.io/v1beta2");
    }
    let object = with_defaults(target, &object);
    let created = server.stored(target, name).is_none();
    let answer = server.ask(target, &object);
    // What the API server says by itself, which MetalLB's webhooks did not.
    assert!(!answer.warnings.iter().any(|w| w.starts_with("disable mp")), "{:?}", answer.warnings);
    if code == 200 || code == 201 {
        assert_eq!(object["metadata"]["namespace"], NAMESPACE);
        server.put(target, object);
    }
    Some(outcome(&answer, if created { "201" } else { "200" }))
}

fn outcome(answer: &Answer, code_if_allowed: &str) -> Value {
    if answer.allowed {
        return json!({ "code": code_if_allowed.parse::<u16>().unwrap() });
    }
    json!({ "code": answer.code, "reason": answer.reason, "message": without_renderings(&answer.message) })
}

/// The kind a step is about, and the verb that names it.
fn target(step: &Value) -> (Target, String) {
    let (mut verb, argument) = step["do"].as_object().unwrap().iter().next().unwrap();
    if verb == "get" || verb == "delete" {
        verb = argument.as_object().unwrap().keys().next().unwrap();
    }
    let target = match verb.as_str() {
        "pool" => Target::IPAddressPool,
        "l2" => Target::L2Advertisement,
        "adv" => Target::BGPAdvertisement,
        "peer" | "peer1" => Target::BGPPeer,
        "bfd" => Target::BFDProfile,
        "comm" => Target::Community,
        other => panic!("no such verb: {other}"),
    };
    (target, verb.clone())
}

fn spec(argument: &Value) -> Value {
    if !argument["spec"].is_null() {
        return argument["spec"].clone();
    }
    let mut spec = argument.clone();
    for metadata in ["name", "labels", "in", "nonsense"] {
        spec.as_object_mut().unwrap().remove(metadata);
    }
    spec
}

/// As the API server asks for it.
fn converted(object: &Value, desired: &str) -> Value {
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "ConversionReview",
        "request": { "uid": "u", "desiredAPIVersion": desired, "objects": [object] },
    });
    let answer = conversion::review(&review).unwrap();
    assert_eq!(answer["response"]["result"]["status"], "Success");
    answer["response"]["convertedObjects"][0].clone()
}

/// The object with the defaults of its schema, which our types write out.
fn with_defaults(target: Target, object: &Value) -> Value {
    fn through<K: DeserializeOwned + Serialize>(object: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<K>(object.clone()).unwrap()).unwrap()
    }
    match target {
        Target::BGPPeer => through::<BGPPeer>(object),
        Target::IPAddressPool => through::<IPAddressPool>(object),
        Target::BGPAdvertisement => through::<BGPAdvertisement>(object),
        Target::L2Advertisement => through::<L2Advertisement>(object),
        Target::Community => through::<Community>(object),
        Target::BFDProfile => through::<BFDProfile>(object),
    }
}

/// Selectors are printed in the notation of the language, which is no part of the text.
fn without_renderings(text: &str) -> String {
    let cut = |line: &str| {
        for start in [
            "invalid label selector ",
            "invalid service selector ",
            "duplicate definition of match expressions ",
        ] {
            if line.contains(start) {
                let cause =
                    line.split_once("}: ").or_else(|| line.split_once("): ")).map_or("", |(_, cause)| cause);
                return format!("{start}… {cause}");
            }
        }
        for (start, end) in [
            ("invalid namespace label selector ", " in ip pool "),
            ("invalid service label selector ", " in ip pool "),
        ] {
            if line.starts_with(start) {
                return format!("{start}…{end}{}", line.split_once(end).unwrap().1);
            }
        }
        match line.find("Selectors ") {
            Some(place) if line.contains("duplicate definition of ") => format!("{}…", &line[..place]),
            _ => line.to_owned(),
        }
    };
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

// SPDX-License-Identifier: Apache-2.0
//! The verdict against what MetalLB's webhooks answered to the same objects.

use std::collections::BTreeMap;

use ferrolb_api::{BFDProfile, BGPAdvertisement, BGPPeer, Community, IPAddressPool, L2Advertisement};
use ferrolb_config::Resources;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use similar_asserts::assert_eq;

use crate::build::{fresh, labels, object};

const RECORDED: &str = include_str!("../data/admission.json");

/// The objects that were admitted, by kind and name, each with the time it came.
type Stored = BTreeMap<(String, String), (u32, Value)>;

#[test]
fn objects_are_admitted_and_denied_as_recorded() {
    let cases: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    let mut compared = 0;
    for case in &cases {
        let mut stored = Stored::new();
        for (time, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let Some(answer) = judged(case, step, &mut stored, u32::try_from(time).unwrap()) else {
                continue;
            };
            compared += 1;
            let recorded = match step["answer"]["code"].as_u64() {
                Some(403) => Err(without_renderings(step["answer"]["message"].as_str().unwrap())),
                _ => Ok(()),
            };
            let expected = improved(case["id"].as_str().unwrap(), step, recorded);
            assert_eq!(
                answer.map_err(|e| without_renderings(&e)),
                expected,
                "{}: {}",
                case["id"],
                step["do"]
            );
        }
    }
    assert!(compared > 100, "only {compared} answers were compared");
}

/// Our answer to one step, which is applied to what is stored. `None` if it is not for the configuration to answer:
/// what the schema refuses, other namespaces, deletions.
fn judged(case: &Value, step: &Value, stored: &mut Stored, time: u32) -> Option<Result<(), String>> {
    let (verb, argument) = step["do"].as_object().unwrap().iter().next().unwrap();
    if verb == "delete" {
        let (kind, name) = argument.as_object().unwrap().iter().next().unwrap();
        if step["answer"]["code"] == 200 {
            stored.remove(&(kind.clone(), name.as_str().unwrap().to_owned()));
        }
        return None;
    }
    if verb == "get" || step["answer"]["code"] == 422 || !argument["in"].is_null() {
        return None;
    }
    // The deprecated version has the same names for the fields it has.
    let kind = if verb == "peer1" { "peer".to_owned() } else { verb.clone() };
    let key = (kind.clone(), argument["name"].as_str().unwrap().to_owned());
    let before = stored.get(&key).cloned();
    // An update does not change when the object was created.
    let created = before.as_ref().map_or(time, |(created, _)| *created);
    stored.insert(key.clone(), (created, argument.clone()));
    let answer = fresh(&resources(&kind, case["bgp_type"].as_str().unwrap(), stored)).verdict;
    if step["answer"]["code"] == 403 {
        match before {
            Some(before) => stored.insert(key, before),
            None => stored.remove(&key),
        };
    }
    Some(answer)
}

/// What the webhook of a kind looks at, without references that may be filled later.
fn resources(kind: &str, bgp_type: &str, stored: &Stored) -> Resources {
    let node = |name: &str| (name.into(), labels(&[("kubernetes.io/hostname", name)]));
    let mut resources = Resources {
        bgp_type: bgp_type.parse().unwrap(),
        nodes: BTreeMap::from(["master1", "node1", "node2"].map(node)),
        ..Resources::default()
    };
    match kind {
        "pool" => resources.pools = all::<IPAddressPool>("pool", stored),
        "comm" => resources.communities = all::<Community>("comm", stored),
        "bfd" => {
            // The new object alone, and only what the schema cannot see; native mode admits it.
            resources.bgp_type = "frr".parse().unwrap();
            resources.bfd_profiles = all::<BFDProfile>("bfd", stored);
        }
        "l2" => {
            resources.pools = all::<IPAddressPool>("pool", stored);
            resources.l2_advertisements = all::<L2Advertisement>("l2", stored);
        }
        "adv" => {
            resources.pools = all::<IPAddressPool>("pool", stored);
            resources.bgp_advertisements = all::<BGPAdvertisement>("adv", stored);
            for advertisement in &mut resources.bgp_advertisements {
                advertisement.spec.communities.retain(|community| community.contains(':'));
            }
        }
        "peer" => {
            resources.bgp_peers = all::<BGPPeer>("peer", stored);
            for peer in &mut resources.bgp_peers {
                peer.spec.bfd_profile.clear();
                peer.spec.password_secret = None;
            }
        }
        other => panic!("no such verb: {other}"),
    }
    resources
}

fn all<T: DeserializeOwned>(kind: &str, stored: &Stored) -> Vec<T> {
    let of_kind = stored.iter().filter(|((its, _), _)| its == kind);
    of_kind
        .map(|((_, name), (created, body))| {
            let mut spec = body["spec"].clone();
            if spec.is_null() {
                spec = body.clone();
                for metadata in ["name", "labels"] {
                    spec.as_object_mut().unwrap().remove(metadata);
                }
            }
            let labels = if body["labels"].is_null() { json!({}) } else { body["labels"].clone() };
            object(name, *created, &labels, &spec)
        })
        .collect()
}

/// What is meant to differ: numbers instead of characters, the length that is at fault, ranges across families.
fn improved(case: &str, step: &Value, recorded: Result<(), String>) -> Result<(), String> {
    let object = step["do"].as_object().unwrap().values().next().unwrap();
    match case {
        "adv-aggregation" if object["aggregationLength"] == 34 => {
            Err("invalid aggregation length 34 for IPv4".to_owned())
        }
        "adv-aggregation" if object["aggregationLengthV6"] == 129 => {
            Err("invalid aggregation length 129 for IPv6".to_owned())
        }
        "frr-large" if object["aggregationLengthV6"] == 64 => recorded
            .map_err(|text| text.replace("invalid aggregation length 32:", "invalid aggregation length 64:")),
        "pool-mixed-family" => Err(concat!(
            r#"parsing address pool p: invalid CIDR "192.168.10.200-fd00:10::200" in pool "p": "#,
            r#"invalid IP range "192.168.10.200-fd00:10::200": "#,
            r#"start IP "192.168.10.200" and end IP "fd00:10::200" have different families"#,
        )
        .to_owned()),
        _ => recorded,
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

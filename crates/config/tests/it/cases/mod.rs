// SPDX-License-Identifier: Apache-2.0
//! The catalogue of configurations: what MetalLB v0.16.1 says of each, one row per case, exact texts.
//!
//! `P` are rules of objects, `V` rules of the type of BGP. What becomes of an accepted configuration stands beside the
//! tables. Where a text of MetalLB has a value in it that its language garbles (a number printed as a character, a
//! selector printed as a structure), ours has the value itself.

mod accepted;
mod pools;
mod routers;

use std::collections::BTreeMap;

use ferrolb_api::Community;
use ferrolb_config::{BgpType, Resources};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::build::{fresh, labels, object};

/// One configuration and what is said of it; `None` is nothing.
pub(super) struct Case {
    id: &'static str,
    about: &'static str,
    bgp: &'static str,
    objects: Value,
    /// What MetalLB says of the whole.
    said: Option<&'static str>,
    /// The same is said here.
    ours: bool,
}

pub(super) fn good(id: &'static str, about: &'static str, bgp: &'static str, objects: Value) -> Case {
    Case { id, about, bgp, objects, said: None, ours: true }
}

pub(super) fn bad(
    id: &'static str,
    about: &'static str,
    bgp: &'static str,
    objects: Value,
    said: &'static str,
) -> Case {
    Case { id, about, bgp, objects, said: Some(said), ours: true }
}

/// What MetalLB refuses and is served here.
pub(super) fn only_metallb(
    id: &'static str,
    about: &'static str,
    bgp: &'static str,
    objects: Value,
    said: &'static str,
) -> Case {
    Case { id, about, bgp, objects, said: Some(said), ours: false }
}

/// `{kind: {name: spec}}`, or `{kind: [[name, spec], …]}` where a name comes twice. Nodes are `first` and `second`
/// with their names as labels, unless `nodes` says otherwise.
pub(super) fn resources(bgp: &str, objects: &Value) -> Resources {
    fn all<T: DeserializeOwned>(objects: &Value, kind: &str) -> Vec<T> {
        let pairs: Vec<(String, Value)> = match &objects[kind] {
            Value::Object(map) => map.iter().map(|(name, spec)| (name.clone(), spec.clone())).collect(),
            Value::Array(list) => {
                list.iter().map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].clone())).collect()
            }
            _ => Vec::new(),
        };
        let age = |i: usize| u32::try_from(i).unwrap();
        pairs
            .iter()
            .enumerate()
            .map(|(i, (name, spec))| object(name, age(i), &spec["labels"], spec))
            .collect()
    }
    let known = ["pool", "l2", "adv", "peer", "bfd", "comm", "secret", "nodes", "ns"];
    assert!(objects.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{objects}");
    let names = |key: &str, default: Value| -> BTreeMap<String, ferrolb_config::Labels> {
        let map = if objects[key].is_null() { default } else { objects[key].clone() };
        serde_json::from_value::<BTreeMap<String, BTreeMap<String, String>>>(map)
            .unwrap()
            .into_iter()
            .map(|(name, pairs)| {
                let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                (name, labels(&pairs))
            })
            .collect()
    };
    let nodes = names("nodes", json!({ "first": { "node": "first" }, "second": { "node": "second" } }));
    let secrets = objects["secret"].as_object().into_iter().flatten().map(|(name, secret)| {
        let mut made = Secret { type_: secret["type"].as_str().map(str::to_owned), ..Secret::default() };
        made.metadata.name = Some(name.clone());
        made.metadata.namespace = Some("metallb-system".to_owned());
        let key = secret["key"].as_str().unwrap().to_owned();
        made.data = Some(BTreeMap::from([(key, ByteString(b"nopass".to_vec()))]));
        made
    });
    let mut peers: Vec<ferrolb_api::BGPPeer> = all(objects, "peer");
    for peer in &mut peers {
        peer.metadata.namespace = Some("metallb-system".to_owned());
    }
    Resources {
        bgp_type: bgp.parse::<BgpType>().unwrap(),
        pools: all(objects, "pool"),
        l2_advertisements: all(objects, "l2"),
        bgp_advertisements: all(objects, "adv"),
        bgp_peers: peers,
        bfd_profiles: all(objects, "bfd"),
        communities: all::<Community>(objects, "comm"),
        secrets: secrets.collect(),
        nodes: nodes.into_iter().map(|(name, labels)| (name.as_str().into(), labels)).collect(),
        namespaces: names("ns", json!({ "ns1": {}, "ns2": { "team": "a" } })),
        ..Resources::default()
    }
}

pub(super) fn pool(addresses: &[&str]) -> Value {
    json!({ "addresses": addresses })
}

/// A good peer with these fields set otherwise; `null` takes one away.
pub(super) fn peer(more: Value) -> Value {
    let mut spec = json!({ "myASN": 42, "peerASN": 142, "peerAddress": "1.2.3.4" });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    spec
}

pub(super) fn on(node: &str) -> Value {
    json!([{ "matchLabels": { "node": node } }])
}

pub(super) fn rows(table: Vec<Case>) {
    for Case { id, about, bgp, objects, said, ours } in table {
        let evaluation = fresh(&resources(bgp, &objects));
        let said = said.map_or(Ok(()), |said| Err(said.to_owned()));
        assert_eq!(evaluation.metallb, said, "{id}: {about}");
        assert_eq!(evaluation.verdict, if ours { said } else { Ok(()) }, "{id}: {about}, here");
    }
}

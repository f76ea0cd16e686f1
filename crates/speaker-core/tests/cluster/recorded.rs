// SPDX-License-Identifier: Apache-2.0
//! A row of situations as MetalLB v0.16.1 answered them on its three nodes: who announces, what the status objects say,
//! what each speaker says of the configuration, which events are new. What ours says otherwise is said here.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::bench::{Bench, EXCLUDE, config};

const NODES: [&str; 3] = ["master1", "node1", "node2"];

/// What stood after a situation.
#[derive(Deserialize)]
struct Recorded {
    about: String,
    /// Service and node of each ServiceL2Status, with its interfaces.
    statuses: BTreeMap<String, Vec<String>>,
    /// What each speaker's ConfigurationState said: `Valid`, or the error.
    states: BTreeMap<String, String>,
    /// Events of layer 2 that came or were repeated.
    events: Vec<String>,
}

/// Brings a situation about.
fn play(bench: &mut Bench, about: &str) {
    let of_node = |bench: &mut Bench, name: &str, value: Value| {
        bench.api.patch("Node", "", name, &json!({ "metadata": { "labels": { EXCLUDE: value } } }));
    };
    let interfaces = |bench: &mut Bench, names: Value| {
        bench.api.patch(
            "L2Advertisement",
            "metallb-system",
            "ad",
            &json!({ "spec": { "interfaces": names } }),
        );
    };
    match about {
        "both daemons run, there is no configuration object" => bench.start_all(),
        "an IPAddressPool 192.168.10.200-209 is created" => {
            let spec = json!({ "addresses": ["192.168.10.200-192.168.10.209"] });
            bench.api.put("IPAddressPool", config("pool", spec));
        }
        "an L2Advertisement for it is created" => {
            bench.api.put("L2Advertisement", config("ad", json!({ "ipAddressPools": ["pool"] })));
        }
        "a Service with endpoints is created: layer 2" => serve(bench, "four", "192.168.10.200"),
        "the BGPAdvertisement names a community alias that does not exist" => {
            bench.api.put("BGPAdvertisement", config("bgp", json!({ "communities": ["nope"] })));
        }
        "meanwhile a Service of the layer-2 pool is created" => serve(bench, "during", "192.168.10.201"),
        "two overlapping pools (admission bypassed)" => {
            // The alias is no longer at fault: what BGP there was ended before.
            bench.api.delete("BGPAdvertisement", "metallb-system", "bgp");
            bench.api.put("IPAddressPool", config("over", json!({ "addresses": ["192.168.10.205/32"] })));
        }
        "meanwhile a Service is created" => serve(bench, "during2", "192.168.10.202"),
        "the second pool is deleted" => bench.api.delete("IPAddressPool", "metallb-system", "over"),
        "the L2Advertisement names an interface that no node has" => interfaces(bench, json!(["foo"])),
        "it names ens18" => interfaces(bench, json!(["ens18"])),
        "the owner's node gets the exclusion label" => {
            interfaces(bench, Value::Null);
            of_node(bench, "node2", json!(""));
        }
        "the label is removed" => of_node(bench, "node2", Value::Null),
        "someone deletes a ServiceL2Status" => {
            let name = bench.api.list("ServiceL2Status").next().unwrap()["metadata"]["name"].clone();
            bench.api.delete("ServiceL2Status", "metallb-system", name.as_str().unwrap());
        }
        "someone deletes the ConfigurationState of the controller and of the owner's speaker" => {
            bench.api.delete("ConfigurationState", "metallb-system", "speaker-node2");
        }
        "all Services are deleted" => {
            for name in ["four", "during", "during2"] {
                bench.api.delete("Service", "default", name);
            }
        }
        "all configuration objects are deleted" => {
            bench.api.delete("L2Advertisement", "metallb-system", "ad");
            bench.api.delete("IPAddressPool", "metallb-system", "pool");
        }
        other => panic!("nobody knows how to play {other:?}"),
    }
}

fn serve(bench: &mut Bench, name: &str, ip: &str) {
    let metadata =
        json!({ "namespace": "default", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z" });
    bench.api.put(
        "EndpointSlice",
        json!({
            "metadata": {
                "namespace": "default", "name": name, "labels": { "kubernetes.io/service-name": name },
            },
            "addressType": "IPv4",
            "endpoints": [{ "addresses": ["10.1.1.1"], "nodeName": "node1", "conditions": { "ready": true } }],
        }),
    );
    bench.api.put(
        "Service",
        json!({
            "metadata": metadata,
            "spec": { "type": "LoadBalancer" },
            "status": { "loadBalancer": { "ingress": [{ "ip": ip, "ipMode": "VIP" }] } },
        }),
    );
}

/// What MetalLB's answer is with us, where it is meant to differ, given who announced what before.
fn as_meant(recorded: &mut Recorded, before: &BTreeMap<String, Vec<String>>) {
    if recorded.about == "the L2Advertisement names an interface that no node has" {
        // What nobody answers for is not announced: MetalLB answers on the former interface (S33, S34).
        recorded.statuses.clear();
    }
    // Who announced it before goes on: MetalLB says so again at every pass, ours when it has become so (S14).
    let statuses = &recorded.statuses;
    recorded.events.retain(|event| {
        let gained = statuses.keys().filter(|key| !before.contains_key(*key)).any(|key| {
            let (service, node) = key.split_once('@').unwrap();
            let service = service.trim_start_matches("default/");
            event.starts_with(&format!("{service}: ")) && event.contains(&format!("{node:?}"))
        });
        gained || event.contains("announceFailed")
    });
}

fn statuses(bench: &Bench) -> BTreeMap<String, Vec<String>> {
    let of = |object: &Value| {
        let status = &object["status"];
        let text = |field: &str| status[field].as_str().unwrap_or("?");
        let interfaces = status["interfaces"].as_array().into_iter().flatten();
        let names = interfaces.map(|interface| interface["name"].as_str().unwrap().to_owned());
        let key = format!("{}/{}@{}", text("serviceNamespace"), text("serviceName"), text("node"));
        (key, names.collect())
    };
    bench.api.list("ServiceL2Status").map(of).collect()
}

fn states(bench: &Bench) -> BTreeMap<String, String> {
    let of = |object: &Value| {
        let status = &object["status"];
        let said = status["errorSummary"].as_str().or(status["result"].as_str()).unwrap_or_default();
        (object["metadata"]["name"].as_str().unwrap().to_owned(), said.to_owned())
    };
    bench.api.list("ConfigurationState").map(of).collect()
}

#[test]
fn situations_end_as_they_did_with_metallb() {
    let recorded = include_str!("../data/layer2-situations.json");
    let recorded: Vec<Recorded> = serde_json::from_str(recorded).unwrap();
    let mut bench = Bench::bare(|_| {});
    bench.nodes = NODES;
    for name in NODES {
        bench.api.put("Node", json!({ "metadata": { "name": name, "labels": {} } }));
    }
    let mut before = BTreeMap::new();
    for mut recorded in recorded {
        play(&mut bench, &recorded.about);
        bench.settle();
        as_meant(&mut recorded, &before);
        let about = &recorded.about;
        assert_eq!(statuses(&bench), recorded.statuses, "{about}");
        // Which of two overlapping pools is named is chance with MetalLB, and both were recorded.
        let said = states(&bench);
        assert!(said.keys().eq(recorded.states.keys()), "{about}: {said:?}");
        for text in said.values() {
            assert!(recorded.states.values().any(|known| known == text), "{about}: {text}");
        }
        let events: BTreeSet<String> = std::mem::take(&mut bench.events)
            .into_iter()
            .map(|(_, event)| format!("{}: {}: {}", event.regarding.name, event.reason, event.message))
            .collect();
        let expected: BTreeSet<String> = recorded.events.into_iter().collect();
        assert_eq!(events, expected, "{about}");
        before = statuses(&bench);
    }
}

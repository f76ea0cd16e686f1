// SPDX-License-Identifier: Apache-2.0
//! Replays what MetalLB v0.16.1 was asked and how it announced (`tests/data/arp.json`), and compares.

#![allow(clippy::unwrap_used)] // a failure in a helper is a failure of the test

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ferrolb_l2::wire::{Frame, Operation};
use ferrolb_l2::{Engine, Input, Interface, Output};
use ferrolb_net_types::{IfIndex, Interfaces, Mac, Time};
use serde_json::Value;

const ENS18: IfIndex = IfIndex(2);

/// Where we are silent and MetalLB answers, or the other way round; with the reason.
const DIFFERENCES: [(&str, &str); 5] = [
    ("gratuitous-request", "sender and target are the same: somebody announces the address, nobody asks"),
    ("htype-6", "hardware addresses of another kind are not ours to answer with"),
    ("htype-0", "the same"),
    ("ptype-86dd", "protocol addresses of another kind are not ours"),
    ("vlan-5", "another VLAN is another network"),
];

/// Who answered is not a speaker but the node's kernel.
const ANSWERED_BY_THE_KERNEL: [&str; 1] = ["node-address"];

#[test]
fn answers_byte_for_byte_as_recorded_but_for_the_named_differences() {
    let recording = recording();
    let mut compared = 0;
    for case in recording["requests"].as_array().unwrap() {
        let name = case["case"].as_str().unwrap();
        let request = bytes(&case["request"]);
        let mut nodes = nodes(&recording);
        if name != "after-deletion" {
            announce(&recording, nodes.get_mut("node1").unwrap());
        }
        let mut answers = Vec::new();
        for _ in 0..case["sent"].as_u64().unwrap() {
            for (node, engine) in &mut nodes {
                let input = Input::Frame { interface: ENS18, vlan: None, bytes: &request };
                engine.handle(Time::millis(60_000), input);
                while let Some(Output::Send { frame, .. }) = engine.poll() {
                    answers.push((node.clone(), frame.to_vec()));
                }
            }
        }
        let named = DIFFERENCES.iter().any(|(difference, _)| *difference == name);
        if named || ANSWERED_BY_THE_KERNEL.contains(&name) {
            assert_eq!(case["replies"], 1, "{name}: there would be no difference");
            assert_eq!(answers, [], "{name}");
        } else {
            assert_eq!(Some(answers.len() as u64), case["replies"].as_u64(), "{name}");
            for (node, frame) in &answers {
                assert_eq!(case["from"], serde_json::json!([node]), "{name}");
                assert_eq!(*frame, bytes(&case["reply"]), "{name}");
            }
        }
        compared += 1;
    }
    assert_eq!(compared, 40);
}

#[test]
fn a_gain_is_announced_in_the_recorded_form_and_rhythm() {
    let recording = recording();
    let mut compared = 0;
    for (event, node) in [
        ("assigned", "node1"),
        ("node-excluded", "master1"),
        ("node-included", "node1"),
        ("speaker-start", "node1"),
    ] {
        let all = recording["announcements"].as_array().unwrap();
        let recorded = all.iter().find(|entry| entry["event"] == event).unwrap();
        let mut engine = nodes(&recording).remove(node).unwrap();
        announce(&recording, &mut engine);
        let frames = run(&mut engine);
        let theirs = recorded["frames"].as_array().unwrap();
        assert_eq!(frames.len(), theirs.len(), "{event}");
        let start = theirs[0]["at_s"].as_f64().unwrap();
        for ((at, frame), their) in frames.iter().zip(theirs) {
            let ours = Frame::parse(frame).unwrap();
            assert_eq!(Some(u64::from(ours.packet.operation.number())), their["op"].as_u64(), "{event}");
            assert_eq!(their["from"], node, "{event}");
            let late = their["at_s"].as_f64().unwrap() - start - at.since_start().as_secs_f64();
            assert!(late.abs() < 0.05, "{event}: {late} s");
            let form = if ours.packet.operation == Operation::Request { "request" } else { "reply" };
            let key = format!("{node} ARP {form} {}", vip(&recording));
            assert_eq!(frame.to_vec(), bytes(&recorded["first_frames"][key]), "{event}");
            compared += 1;
        }
    }
    assert_eq!(compared, 40);
}

/// A change that gains nothing is not announced again, although MetalLB does for some of them.
#[test]
fn no_burst_without_a_gain() {
    let recording = recording();
    let mut engine = nodes(&recording).remove("node1").unwrap();
    announce(&recording, &mut engine);
    run(&mut engine);
    for event in ["service-label", "endpoints-change", "adv-change"] {
        announce(&recording, &mut engine);
        assert_eq!(run(&mut engine), [], "{event}");
    }
    engine.handle(Time::millis(99_000), Input::Withdraw { address: vip(&recording) });
    assert_eq!(run(&mut engine), [], "service-deleted");
}

fn recording() -> Value {
    serde_json::from_str(include_str!("../data/arp.json")).unwrap()
}

/// One engine per node, with the node's interface and no address.
fn nodes(recording: &Value) -> BTreeMap<String, Engine> {
    let nodes = recording["lab"]["nodes"].as_object().unwrap();
    let engine = |node: &Value| {
        let mac: Mac = node["mac"].as_str().unwrap().parse().unwrap();
        let mut engine = Engine::new();
        let interface = Interface { index: ENS18, name: "ens18".into(), mac };
        engine.handle(Time::ZERO, Input::Interfaces(&[interface]));
        engine
    };
    nodes.iter().map(|(name, node)| (name.clone(), engine(node))).collect()
}

fn announce(recording: &Value, engine: &mut Engine) {
    let input = Input::Announce { address: vip(recording), interfaces: &Interfaces::All };
    engine.handle(Time::ZERO, input);
}

/// Everything the engine sends of its own accord.
fn run(engine: &mut Engine) -> Vec<(Time, [u8; 60])> {
    let mut frames = Vec::new();
    while let Some(at) = engine.next_deadline().filter(|at| *at < Time::millis(60_000)) {
        engine.handle_timeout(at);
        while let Some(Output::Send { frame, .. }) = engine.poll() {
            frames.push((at, frame));
        }
    }
    frames
}

fn vip(recording: &Value) -> Ipv4Addr {
    recording["lab"]["vip"].as_str().unwrap().parse().unwrap()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

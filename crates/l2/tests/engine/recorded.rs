// SPDX-License-Identifier: Apache-2.0
//! Replays what MetalLB v0.16.1 was asked and how it announced (`tests/data/arp.json`, `ndp.json`), and compares.

#![allow(clippy::unwrap_used)] // a failure in a helper is a failure of the test

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use ferrolb_l2::wire::Bytes;
use ferrolb_l2::{Engine, Input, Interface, Output};
use ferrolb_net_types::{IfIndex, Interfaces, Mac, Time};
use serde_json::Value;

const ENS18: IfIndex = IfIndex(2);

/// What we do where MetalLB does something else, or who it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ours {
    /// We are silent where it answers.
    Silence,
    /// We answer where it is silent.
    Answer,
    /// We answer to another place.
    Elsewhere,
    /// We answer once where it answers twice.
    Once,
    /// It was not a speaker but the node's kernel.
    KernelsBusiness,
}

/// Where we do something else, with the reason.
const ARP: [(&str, Ours, &str); 6] = [
    ("gratuitous-request", Ours::Silence, "sender and target are the same: somebody announces the address"),
    ("htype-6", Ours::Silence, "hardware addresses of another kind are not ours to answer with"),
    ("htype-0", Ours::Silence, "the same"),
    ("ptype-86dd", Ours::Silence, "protocol addresses of another kind are not ours"),
    ("vlan-5", Ours::Silence, "another VLAN is another network"),
    ("node-address", Ours::KernelsBusiness, "the node's own address"),
];

const NDP: [(&str, Ours, &str); 12] = [
    ("multicast-no-slla", Ours::Answer, "X06 is void: RFC 4861 section 7.2.4 asks for an answer"),
    ("multicast-no-slla-global", Ours::Answer, "the same"),
    ("dad", Ours::Answer, "AN-19: who would use the address as well has to hear that it is taken"),
    ("unicast-vip", Ours::Answer, "S46: a probe of reachability"),
    ("unicast-vip-no-slla", Ours::Answer, "AN-18: the same"),
    ("unicast-owner-ll-no-slla", Ours::Answer, "the same"),
    ("hop-64", Ours::Silence, "AN-21, S44: it came through a router, RFC 4861 section 7.1.1"),
    ("hop-1", Ours::Silence, "the same"),
    ("code-1", Ours::Silence, "RFC 4861 section 7.1.1 knows no other code than 0"),
    ("slla-differs", Ours::Elsewhere, "RFC 4861 section 7.2.3: the option says where the asker is"),
    ("group-unicast-mac", Ours::Once, "one question, one answer"),
    ("node-address", Ours::KernelsBusiness, "the node's own address"),
];

/// Requests for an address that its Service has lost.
const NOT_ANNOUNCED: [&str; 2] = ["after-deletion", "after-no-endpoints"];

#[test]
fn answers_byte_for_byte_as_recorded_but_for_the_named_differences() {
    for (recording, differences, cases) in [(arp(), &ARP[..], 40), (ndp(), &NDP, 31)] {
        let mut named = 0;
        let requests = recording["requests"].as_array().unwrap();
        assert_eq!(requests.len(), cases);
        for case in requests {
            let name = case["case"].as_str().unwrap();
            let answers = ask(&recording, case);
            let theirs = case["replies"].as_u64().unwrap();
            let ours = answers.len() as u64;
            let difference = differences.iter().find(|(difference, ..)| *difference == name);
            named += usize::from(difference.is_some());
            match difference.map(|(_, difference, _)| *difference) {
                Some(Ours::Silence | Ours::KernelsBusiness) => assert_eq!((theirs, ours), (1, 0), "{name}"),
                Some(Ours::Answer) => assert_eq!((theirs, ours), (0, 1), "{name}"),
                Some(Ours::Elsewhere) => {
                    assert_eq!((theirs, ours), (1, 1), "{name}");
                    assert_eq!(answers[0].1[6..], recorded(&case["reply"])[6..], "{name}");
                    assert_ne!(answers[0].1[..6], recorded(&case["reply"])[..6], "{name}");
                }
                once => {
                    assert_eq!(ours, if once == Some(Ours::Once) { theirs / 2 } else { theirs }, "{name}");
                    for (node, frame) in &answers {
                        assert_eq!(case["from"], serde_json::json!([node]), "{name}");
                        assert_eq!(frame[..], recorded(&case["reply"]), "{name}");
                    }
                }
            }
            assert!(answers.iter().all(|(node, _)| node == "node1"), "{name}");
        }
        assert_eq!(named, differences.len(), "a difference that does not show");
    }
}

#[test]
fn a_gain_is_announced_in_the_recorded_form_and_rhythm() {
    let mut compared = 0;
    for (recording, event, node) in [
        (arp(), "assigned", "node1"),
        (arp(), "node-excluded", "master1"),
        (arp(), "node-included", "node1"),
        (arp(), "speaker-start", "node1"),
        (ndp(), "assigned-v6", "node1"),
        (ndp(), "node-excluded", "node2"),
        (ndp(), "node-included", "node1"),
        (ndp(), "speaker-sigterm", "node2"),
        (ndp(), "speaker-start", "node1"),
        (ndp(), "speaker-sigkill", "node2"),
        (ndp(), "speaker-start-2", "node1"),
    ] {
        let all = recording["announcements"].as_array().unwrap();
        let entry = all.iter().find(|entry| entry["event"] == event).unwrap();
        let mut engine = nodes(&recording).remove(node).unwrap();
        announce(&recording, &mut engine);
        let frames = run(&mut engine);
        let theirs = entry["frames"].as_array().unwrap();
        assert_eq!(frames.len(), theirs.len(), "{event}");
        let start = theirs[0]["at_s"].as_f64().unwrap();
        for ((at, frame), their) in frames.iter().zip(theirs) {
            assert_eq!(their["from"], node, "{event}");
            let late = their["at_s"].as_f64().unwrap() - start - at.since_start().as_secs_f64();
            assert!(late.abs() < 0.05, "{event}: {late} s");
            // IPv4: the operation of ARP. IPv6: a Neighbor Advertisement, whatever the kernel made of its flow label.
            let form = match their["op"].as_u64() {
                Some(1) => "ARP request",
                Some(2) => "ARP reply",
                _ => "NA",
            };
            assert_eq!(their["op"].as_u64().unwrap_or(u64::from(frame[21])) as u8, frame[21], "{event}");
            let first = &entry["first_frames"][format!("{node} {form} {}", vip(&recording))];
            assert_eq!(frame[..], recorded(first), "{event}");
            compared += 1;
        }
    }
    assert_eq!(compared, 4 * 10 + 7 * 5);
}

/// One of ours asks one host as the recording's client does, and takes what MetalLB answers to that, and what a kernel
/// answers that has the address itself.
#[test]
fn a_question_to_one_host_is_one_that_metallb_answers() {
    let recording = ndp();
    let lab = &recording["lab"];
    let mac = |who: &str| -> Mac { lab[who].as_str().unwrap().parse().unwrap() };
    let (own, of) = (mac("client_mac"), mac("owner_mac"));
    let link_local = Some(lab["client_link_local"].as_str().unwrap().parse().unwrap());
    let mut engine = Engine::new();
    let interface = Interface { index: ENS18, name: "ens18".into(), mac: own, arp: true, link_local };
    engine.handle(Time::ZERO, Input::Interfaces(&[interface]));
    let node: IpAddr = lab["nodes"]["node1"]["ip6"].as_str().unwrap().parse().unwrap();
    for (address, name) in [(vip(&recording), "group-unicast-mac"), (node, "node-address")] {
        let requests = recording["requests"].as_array().unwrap();
        let case = requests.iter().find(|case| case["case"] == name).unwrap();
        engine.handle(Time::ZERO, Input::Ask { interface: ENS18, address, of });
        let Some(Output::Send { frame, .. }) = engine.poll() else { panic!("no question") };
        // The kernel was asked in a frame for all of the group.
        let request = bytes(&case["request"]);
        assert_eq!((&frame[..6], &frame[6..]), (&of.0[..], &request[6..]), "{name}");
        assert!(name == "node-address" || frame[..] == request[..]);
        let told = bytes(&case["reply"]);
        engine.handle(Time::ZERO, Input::Frame { interface: ENS18, vlan: None, bytes: &told });
        assert_eq!(engine.poll(), Some(Output::Answered { interface: ENS18, address, mac: of }), "{name}");
    }
}

/// A change that gains nothing is not announced again, although MetalLB does for some of them.
#[test]
fn no_burst_without_a_gain() {
    for recording in [arp(), ndp()] {
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
}

/// The groups that the owner has beside those of its own addresses, and another node has not.
#[test]
fn the_owner_is_in_the_group_of_the_address() {
    let recording = ndp();
    let mut engine = nodes(&recording).remove("node1").unwrap();
    announce(&recording, &mut engine);
    let group: Ipv6Addr = "ff02::1:ff00:201".parse().unwrap();
    assert_eq!(engine.poll(), Some(Output::Join { interface: ENS18, group }));
    let lists = &recording["lab"]["multicast_groups"];
    let listed = |who: &str| lists[who].as_array().unwrap().contains(&group.to_string().into());
    assert_eq!((listed("owner"), listed("another_node")), (true, false));
}

fn arp() -> Value {
    serde_json::from_str(include_str!("../data/arp.json")).unwrap()
}

fn ndp() -> Value {
    serde_json::from_str(include_str!("../data/ndp.json")).unwrap()
}

/// What the nodes answer to a request of the recording.
fn ask(recording: &Value, case: &Value) -> Vec<(String, Bytes)> {
    let request = bytes(&case["request"]);
    let mut nodes = nodes(recording);
    if !NOT_ANNOUNCED.contains(&case["case"].as_str().unwrap()) {
        announce(recording, nodes.get_mut("node1").unwrap());
    }
    let mut answers = Vec::new();
    for _ in 0..case["sent"].as_u64().unwrap() {
        for (node, engine) in &mut nodes {
            let input = Input::Frame { interface: ENS18, vlan: None, bytes: &request };
            engine.handle(Time::millis(60_000), input);
            while let Some(output) = engine.poll() {
                if let Output::Send { frame, .. } = output {
                    answers.push((node.clone(), frame));
                }
            }
        }
    }
    answers
}

/// One engine per node, with the node's interface and no address.
fn nodes(recording: &Value) -> BTreeMap<String, Engine> {
    let nodes = recording["lab"]["nodes"].as_object().unwrap();
    let engine = |node: &Value| {
        let mac: Mac = node["mac"].as_str().unwrap().parse().unwrap();
        let Mac([a, b, c, d, e, f]) = mac;
        // The address that the kernel makes of the hardware address (RFC 4291 appendix A).
        let local = [a ^ 2, b, c, 0xff, 0xfe, d, e, f];
        let local = Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(u64::from_be_bytes(local)));
        let mut engine = Engine::new();
        let interface =
            Interface { index: ENS18, name: "ens18".into(), mac, arp: true, link_local: Some(local) };
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
fn run(engine: &mut Engine) -> Vec<(Time, Bytes)> {
    let mut frames = Vec::new();
    while let Some(at) = engine.next_deadline().filter(|at| *at < Time::millis(60_000)) {
        engine.handle_timeout(at);
        while let Some(output) = engine.poll() {
            if let Output::Send { frame, .. } = output {
                frames.push((at, frame));
            }
        }
    }
    frames
}

fn vip(recording: &Value) -> IpAddr {
    recording["lab"]["vip"].as_str().unwrap().parse().unwrap()
}

/// A frame that MetalLB sent, without the flow label of IPv6, which is the kernel's.
fn recorded(hex: &Value) -> Vec<u8> {
    let mut frame = bytes(hex);
    if frame[12..14] == [0x86, 0xdd] {
        frame[15] &= 0xf0;
        frame[16..18].fill(0);
    }
    frame
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

// SPDX-License-Identifier: Apache-2.0
//! Whatever is said to a wire side, and in whatever order: it announces nothing before it knows who else does, obeys a
//! stop, and asks for nothing in the past.

use std::time::Duration;

use ferrolb_gossip::wire::{Message, PushPull, StreamMessage};
use ferrolb_gossip::{Settings, StreamFailure, StreamId};
use ferrolb_net_types::{IfIndex, Mac, Time};
use ferrolb_speaker_core::wire::{Gossip, Input, Interface, Output, Peer, Wire};
use proptest::prelude::*;

use super::network::{SECRET, codec};
use super::numbers::{address, name};
use super::{millis, network::Network};

#[derive(Clone, Debug)]
enum Step {
    Peers(Vec<usize>),
    Plan(usize),
    Api(bool),
    Interfaces(u8),
    Stop,
    Resync,
    Garbage(Vec<u8>),
    Ping(usize),
    Connected(u64),
    Exchange(u64, bool),
    Refused(u64),
    Accepted(u64),
    Asked(u64),
    Closed(u64),
    /// Milliseconds go by; timers run, or the process does not.
    Time(u64, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop::collection::vec(1_usize..4, 0..4).prop_map(Step::Peers),
        (0_usize..4).prop_map(Step::Plan),
        any::<bool>().prop_map(Step::Api),
        (0_u8..3).prop_map(Step::Interfaces),
        Just(Step::Stop),
        Just(Step::Resync),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Garbage),
        (1_usize..4).prop_map(Step::Ping),
        (0_u64..9).prop_map(Step::Connected),
        (0_u64..9, any::<bool>()).prop_map(|(stream, reader)| Step::Exchange(stream, reader)),
        (0_u64..9).prop_map(Step::Refused),
        (0_u64..4).prop_map(Step::Accepted),
        (0_u64..4).prop_map(Step::Asked),
        (0_u64..4).prop_map(Step::Closed),
        (0_u64..7000, prop::bool::weighted(0.8)).prop_map(|(millis, runs)| Step::Time(millis, runs)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn any_order_of_anything_is_survived(steps in prop::collection::vec(step(), 1..60)) {
        let plans = Network::new(1, 4, 3);
        let settings = Settings::speaker(name(0).as_str().into(), address(0), codec(SECRET));
        let mut wire = Wire::new(name(0), Some(Gossip { settings, seed: [7; 32] }));
        let mut now = Time::millis(1000);
        let (mut planned, mut peered, mut plugged, mut stopping, mut stopped) = (false, false, false, None, false);
        for step in steps {
            match step.clone() {
                Step::Peers(nodes) => {
                    let peer = |node: usize| Peer { node: name(node), address: address(node), awaited: node != 3 };
                    let peers: Vec<Peer> = nodes.into_iter().map(peer).collect();
                    wire.handle(now, Input::Peers(&peers));
                    peered = true;
                }
                Step::Plan(addresses) => {
                    wire.handle(now, Input::Plan(plans.plan(0, addresses)));
                    planned = true;
                }
                Step::Api(working) => wire.handle(now, Input::Api { working }),
                Step::Interfaces(count) => {
                    let interfaces: Vec<Interface> = (0..count)
                        .map(|n| Interface {
                            index: IfIndex(u32::from(n) + 2),
                            name: format!("e{n}").as_str().into(),
                            mac: Mac([2, 0, 0, 0, 0, n]),
                            arp: true,
                            link_local: None,
                        })
                        .collect();
                    wire.handle(now, Input::Interfaces(&interfaces));
                    plugged = true;
                }
                Step::Stop => {
                    wire.handle(now, Input::Stop);
                    stopping.get_or_insert(now);
                }
                Step::Resync => wire.handle(now, Input::Resync),
                Step::Garbage(bytes) => {
                    let input = ferrolb_gossip::Input::Datagram { source: address(2), bytes: &bytes };
                    wire.handle(now, Input::Gossip(input));
                }
                Step::Ping(node) => {
                    let bytes = codec(SECRET).packet(Message::Nack { sequence: 1 }.encode(), false, &[1; 12]);
                    let input = ferrolb_gossip::Input::Datagram { source: address(node), bytes: &bytes };
                    wire.handle(now, Input::Gossip(input));
                }
                Step::Connected(stream) => {
                    wire.handle(now, Input::Gossip(ferrolb_gossip::Input::Connected(StreamId::Dialled(stream))));
                }
                Step::Exchange(stream, reader) => {
                    let states = if reader { Vec::new() } else { vec![state(1), state(2)] };
                    let message = StreamMessage::PushPull(PushPull { join: false, states, user_state: Vec::new() });
                    let stream = StreamId::Dialled(stream);
                    wire.handle(now, Input::Gossip(ferrolb_gossip::Input::Received { stream, message }));
                }
                Step::Refused(stream) => {
                    let (stream, failure) = (StreamId::Dialled(stream), StreamFailure::Refused);
                    wire.handle(now, Input::Gossip(ferrolb_gossip::Input::Failed { stream, failure }));
                }
                Step::Accepted(stream) => {
                    let input = ferrolb_gossip::Input::Accepted { stream, source: address(1) };
                    wire.handle(now, Input::Gossip(input));
                }
                Step::Asked(stream) => {
                    let message = StreamMessage::PushPull(PushPull { join: true, states: vec![state(1)], user_state: Vec::new() });
                    let stream = StreamId::Accepted(stream);
                    wire.handle(now, Input::Gossip(ferrolb_gossip::Input::Received { stream, message }));
                }
                Step::Closed(stream) => {
                    wire.handle(now, Input::Gossip(ferrolb_gossip::Input::Closed(StreamId::Accepted(stream))));
                }
                Step::Time(passes, runs) => {
                    let end = now + millis(passes);
                    let mut turns = 0;
                    while runs && let Some(at) = wire.next_deadline().filter(|at| *at <= end) {
                        now = now.max(at);
                        wire.handle_timeout(now);
                        turns += 1;
                        prop_assert!(turns < 20_000, "it never rests");
                        while let Some(output) = wire.poll(now) {
                            stopped |= output == Output::Stopped;
                        }
                    }
                    now = end;
                    if let Some(since) = stopping && runs {
                        prop_assert!(stopped || now - since < Duration::from_millis(600), "{:?}", now - since);
                    }
                }
            }
            while let Some(output) = wire.poll(now) {
                let sends = matches!(output, Output::Send { .. });
                prop_assert!(!sends || (planned && peered && plugged), "{step:?}");
                stopped |= output == Output::Stopped;
            }
            prop_assert!(wire.owned().count() == 0 || (planned && peered && plugged));
        }
    }
}

fn state(node: usize) -> ferrolb_gossip::wire::NodeState {
    ferrolb_gossip::wire::NodeState {
        name: name(node).as_str().into(),
        address: match address(node).ip() {
            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
        },
        port: 7946,
        meta: None,
        incarnation: 1,
        state: ferrolb_gossip::wire::State::Alive,
        versions: Some(ferrolb_gossip::VERSIONS.to_vec()),
    }
}

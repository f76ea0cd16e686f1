// SPDX-License-Identifier: Apache-2.0
//! What holds whatever happens: the engine never panics, speaks only for what it announces, listens to just the groups
//! it needs, and comes to rest.

#![allow(clippy::unwrap_used)] // a failure in a helper is a failure of the test

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ferrolb_l2::wire::ipv6::solicited_node;
use ferrolb_l2::wire::{Frame, MINIMUM, Operation, Packet, ndp};
use ferrolb_l2::{Engine, Input, Interface, Output, Purpose, ROUNDS};
use ferrolb_net_types::{IfIndex, InterfaceName, Interfaces, Mac, Time};
use proptest::prelude::*;

/// One thing that happens; small ranges, so that things meet.
#[derive(Clone, Debug)]
enum Step {
    /// Index, hardware address, whether by ARP and by NDP.
    Interfaces(Vec<(u32, u8, bool, bool)>),
    Announce(u8, Option<Vec<u32>>),
    Withdraw(u8),
    Request {
        on: u32,
        to: Mac,
        sender: u8,
        target: u8,
        operation: u16,
        vlan: Option<u16>,
    },
    Solicitation {
        on: u32,
        sender: u8,
        target: u8,
        option: bool,
        vlan: Option<u16>,
    },
    Noise(u32, Vec<u8>),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let index = 1..4_u32;
    let mac = prop_oneof![Just(Mac::BROADCAST), Just(Mac::ZERO), (0..3_u8).prop_map(own_mac)];
    let vlan = prop::option::of(0..2_u16);
    prop_oneof![
        prop::collection::vec((index.clone(), 0..3_u8, any::<bool>(), any::<bool>()), 0..4)
            .prop_map(Step::Interfaces),
        (0..8_u8, prop::option::of(prop::collection::vec(index.clone(), 0..3)))
            .prop_map(|(address, on)| Step::Announce(address, on)),
        (0..8_u8).prop_map(Step::Withdraw),
        (index.clone(), mac, 0..6_u8, 0..4_u8, 0..4_u16, vlan.clone()).prop_map(
            |(on, to, sender, target, operation, vlan)| Step::Request {
                on,
                to,
                sender,
                target,
                operation,
                vlan
            }
        ),
        (index.clone(), 4..9_u8, 4..8_u8, any::<bool>(), vlan).prop_map(
            |(on, sender, target, option, vlan)| Step::Solicitation { on, sender, target, option, vlan }
        ),
        (index, prop::collection::vec(any::<u8>(), 0..70)).prop_map(|(on, bytes)| Step::Noise(on, bytes)),
        (0..3_000_u64).prop_map(Step::Wait),
    ]
}

fn own_mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 1, number])
}

/// The first four are IPv4 addresses; of the others two share a group.
fn address(number: u8) -> IpAddr {
    match number {
        0..4 => Ipv4Addr::new(192, 0, 2, number).into(),
        _ => Ipv6Addr::new(0x2001, 0xdb8, 0, u16::from(number), 0, 0, 0, u16::from(number / 2)).into(),
    }
}

fn name(index: u32) -> InterfaceName {
    format!("eth{index}").into()
}

/// What the engine was told, in the simplest form.
#[derive(Default)]
struct Model {
    interfaces: BTreeMap<u32, Interface>,
    announced: BTreeMap<IpAddr, Interfaces>,
    /// Where it listens.
    joined: BTreeSet<(u32, Ipv6Addr)>,
}

impl Model {
    fn answers(&self, address: IpAddr, index: u32) -> Option<Mac> {
        let covers = self.announced.get(&address).is_some_and(|on| on.covers(name(index).as_str()));
        let interface = self.interfaces.get(&index).filter(|_| covers)?;
        let able = if address.is_ipv4() { interface.arp } else { interface.link_local.is_some() };
        able.then_some(interface.mac)
    }

    fn groups(&self) -> BTreeSet<(u32, Ipv6Addr)> {
        let able = self.interfaces.values().filter(|interface| interface.link_local.is_some());
        let group = |address: &IpAddr| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(solicited_node(*address)),
        };
        able.flat_map(|interface| {
            self.announced.keys().filter_map(group).map(|group| (interface.index.0, group))
        })
        .collect()
    }
}

/// Who sends the frame and for which address it speaks; it must be of one of the two protocols.
fn speaker(frame: &[u8]) -> (Mac, Mac, IpAddr) {
    if let Ok(frame) = Frame::parse(frame) {
        return (frame.source, frame.packet.sender_mac, frame.packet.sender_ip.into());
    }
    let ndp::Frame { source, packet, .. } = ndp::Frame::parse(frame).unwrap();
    let ndp::Message::Advertisement(told) = packet.message else { panic!("{packet}") };
    (source, told.target_mac.unwrap(), told.target.into())
}

proptest! {
    #[test]
    fn it_speaks_only_for_what_it_announces_and_comes_to_rest(steps in prop::collection::vec(step(), 0..60)) {
        let mut engine = Engine::new();
        let mut model = Model::default();
        let mut now = Time::ZERO;
        for step in steps {
            let mut expected = None;
            match step {
                Step::Interfaces(list) => {
                    let interface = |&(index, mac, arp, ndp): &(u32, u8, bool, bool)| Interface {
                        index: IfIndex(index),
                        name: name(index),
                        mac: own_mac(mac),
                        arp,
                        link_local: ndp.then(|| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, index as u16)),
                    };
                    model.interfaces = list.iter().map(|entry| (entry.0, interface(entry))).collect();
                    // An interface that stops speaking NDP loses its groups.
                    let Model { interfaces, joined, .. } = &mut model;
                    joined.retain(|(index, _)| interfaces.get(index).is_some_and(|i| i.link_local.is_some()));
                    let interfaces: Vec<_> = interfaces.values().cloned().collect();
                    engine.handle(now, Input::Interfaces(&interfaces));
                }
                Step::Announce(number, on) => {
                    let on = on.map_or(Interfaces::All, |on| {
                        Interfaces::Named(on.into_iter().map(name).collect())
                    });
                    engine.handle(now, Input::Announce { address: address(number), interfaces: &on });
                    model.announced.insert(address(number), on);
                }
                Step::Withdraw(number) => {
                    engine.handle(now, Input::Withdraw { address: address(number) });
                    model.announced.remove(&address(number));
                }
                Step::Request { on, to, sender, target, operation, vlan } => {
                    let packet = Packet {
                        operation: Operation::from_number(operation),
                        sender_mac: Mac([2, 0, 0, 0, 9, sender]),
                        sender_ip: Ipv4Addr::new(192, 0, 2, sender),
                        target_mac: Mac::ZERO,
                        target_ip: Ipv4Addr::new(192, 0, 2, target),
                    };
                    let bytes = Frame { destination: to, source: packet.sender_mac, packet }.emit();
                    engine.handle(now, Input::Frame { interface: IfIndex(on), vlan, bytes: &bytes });
                    expected = model.answers(address(target), on).filter(|own| {
                        operation == 1
                            && sender != target
                            && vlan.unwrap_or(0) == 0
                            && (to == Mac::BROADCAST || to == *own)
                    });
                }
                Step::Solicitation { on, sender, target, option, vlan } => {
                    let (IpAddr::V6(asked), IpAddr::V6(from)) = (address(target), address(sender)) else {
                        panic!("both are of IPv6")
                    };
                    let mac = Mac([2, 0, 0, 0, 9, sender]);
                    let solicitation = ndp::Solicitation { target: asked, source_mac: option.then_some(mac) };
                    let message = ndp::Message::Solicitation(solicitation);
                    let packet = ndp::Packet { source: from, destination: solicited_node(asked), message };
                    let bytes = ndp::Frame { destination: Mac::BROADCAST, source: mac, packet }.emit();
                    engine.handle(now, Input::Frame { interface: IfIndex(on), vlan, bytes: &bytes });
                    expected = model
                        .answers(asked.into(), on)
                        .filter(|_| sender != target && vlan.unwrap_or(0) == 0);
                }
                Step::Noise(on, bytes) => {
                    engine.handle(now, Input::Frame { interface: IfIndex(on), vlan: None, bytes: &bytes });
                }
                Step::Wait(ms) => now = now + Duration::from_millis(ms),
            }
            let mut answers = 0;
            engine.handle_timeout(now);
            while let Some(output) = engine.poll() {
                match output {
                    Output::Send { interface, address, purpose, frame } => {
                        prop_assert!(frame.len() >= MINIMUM);
                        let own = model.answers(address, interface.0);
                        prop_assert!(own.is_some());
                        let (source, said, about) = speaker(&frame);
                        prop_assert_eq!((Some(source), Some(said), about), (own, own, address));
                        answers += usize::from(purpose == Purpose::Answer);
                    }
                    Output::Join { interface, group } => {
                        prop_assert!(model.joined.insert((interface.0, group)), "joined twice");
                    }
                    Output::Leave { interface, group } => {
                        prop_assert!(model.joined.remove(&(interface.0, group)), "never joined");
                    }
                    Output::Claimed { address, mac, .. } => {
                        prop_assert!(model.announced.contains_key(&address));
                        prop_assert!(model.interfaces.values().all(|own| own.mac != mac));
                    }
                    Output::Answered { .. } => prop_assert!(false, "nobody asked"),
                }
            }
            prop_assert_eq!(answers, usize::from(expected.is_some()));
            prop_assert!(engine.next_deadline().is_none_or(|at| at > now));
            prop_assert_eq!(&model.joined, &model.groups());
            for address in model.announced.keys() {
                let count = model.interfaces.keys().filter(|on| model.answers(*address, **on).is_some()).count();
                prop_assert_eq!(engine.answering(*address).count(), count);
            }
        }
        // Left alone it falls silent after the bursts in progress, and forgets what it no longer announces.
        let longest = usize::from(ROUNDS) * model.announced.len() * model.interfaces.len();
        let mut wake_ups = 0;
        while let Some(at) = engine.next_deadline() {
            engine.handle_timeout(at);
            while engine.poll().is_some() {}
            wake_ups += 1;
            prop_assert!(wake_ups <= longest + 8, "no rest after {} wake-ups", wake_ups);
        }
        let left: Vec<_> = engine.counters().map(|(address, _)| address).collect();
        prop_assert_eq!(left, model.announced.into_keys().collect::<Vec<_>>());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What holds whatever happens: the engine never panics, speaks only for what it announces, and comes to rest.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use ferrolb_l2::wire::{Frame, MINIMUM, Operation, Packet};
use ferrolb_l2::{Engine, Input, Interface, Output, Purpose, ROUNDS};
use ferrolb_net_types::{IfIndex, InterfaceName, Interfaces, Mac, Time};
use proptest::prelude::*;

/// One thing that happens; small ranges, so that things meet.
#[derive(Clone, Debug)]
enum Step {
    Interfaces(Vec<(u32, u8)>),
    Announce(u8, Option<Vec<u32>>),
    Withdraw(u8),
    Request { on: u32, to: Mac, sender: u8, target: u8, operation: u16, vlan: Option<u16> },
    Noise(u32, Vec<u8>),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let index = 1..4_u32;
    let mac = prop_oneof![Just(Mac::BROADCAST), Just(Mac::ZERO), (0..3_u8).prop_map(own_mac)];
    prop_oneof![
        prop::collection::vec((index.clone(), 0..3_u8), 0..4).prop_map(Step::Interfaces),
        (0..4_u8, prop::option::of(prop::collection::vec(index.clone(), 0..3)))
            .prop_map(|(address, on)| Step::Announce(address, on)),
        (0..4_u8).prop_map(Step::Withdraw),
        (index.clone(), mac, 0..6_u8, 0..5_u8, 0..4_u16, prop::option::of(0..2_u16)).prop_map(
            |(on, to, sender, target, operation, vlan)| Step::Request {
                on,
                to,
                sender,
                target,
                operation,
                vlan
            }
        ),
        (index, prop::collection::vec(any::<u8>(), 0..70)).prop_map(|(on, bytes)| Step::Noise(on, bytes)),
        (0..3_000_u64).prop_map(Step::Wait),
    ]
}

fn own_mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 1, number])
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, number)
}

fn name(index: u32) -> InterfaceName {
    format!("eth{index}").into()
}

/// What the engine was told, in the simplest form.
#[derive(Default)]
struct Model {
    interfaces: BTreeMap<u32, Mac>,
    announced: BTreeMap<Ipv4Addr, Interfaces>,
}

impl Model {
    fn answers(&self, address: Ipv4Addr, index: IfIndex) -> Option<Mac> {
        let covers = self.announced.get(&address).is_some_and(|on| on.covers(name(index.0).as_str()));
        self.interfaces.get(&index.0).copied().filter(|_| covers)
    }
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
                    model.interfaces = list.iter().map(|(index, mac)| (*index, own_mac(*mac))).collect();
                    let interfaces: Vec<_> = model
                        .interfaces
                        .iter()
                        .map(|(index, mac)| Interface { index: IfIndex(*index), name: name(*index), mac: *mac })
                        .collect();
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
                        sender_ip: address(sender),
                        target_mac: Mac::ZERO,
                        target_ip: address(target),
                    };
                    let bytes = Frame { destination: to, source: packet.sender_mac, packet }.emit();
                    let interface = IfIndex(on);
                    engine.handle(now, Input::Frame { interface, vlan, bytes: &bytes });
                    expected = model.answers(packet.target_ip, interface).filter(|own| {
                        operation == 1
                            && sender != target
                            && vlan.unwrap_or(0) == 0
                            && (to == Mac::BROADCAST || to == *own)
                    });
                }
                Step::Noise(on, bytes) => {
                    engine.handle(now, Input::Frame { interface: IfIndex(on), vlan: None, bytes: &bytes });
                }
                Step::Wait(ms) => now = now + Duration::from_millis(ms),
            }
            let mut answers = 0;
            engine.handle_timeout(now);
            while let Some(Output::Send { interface, address, purpose, frame }) = engine.poll() {
                prop_assert_eq!(frame.len(), MINIMUM);
                let frame = Frame::parse(&frame).unwrap();
                prop_assert_eq!(Some(frame.source), model.answers(address, interface));
                prop_assert_eq!((frame.packet.sender_mac, frame.packet.sender_ip), (frame.source, address));
                answers += usize::from(purpose == Purpose::Answer);
            }
            prop_assert_eq!(answers, usize::from(expected.is_some()));
            prop_assert!(engine.next_deadline().is_none_or(|at| at > now));
            for (address, on) in &model.announced {
                let count = model.interfaces.keys().filter(|index| on.covers(name(**index).as_str())).count();
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
            prop_assert!(wake_ups <= longest + 4, "no rest after {} wake-ups", wake_ups);
        }
        let left: Vec<_> = engine.counters().map(|(address, _)| address).collect();
        prop_assert_eq!(left, model.announced.into_keys().collect::<Vec<_>>());
    }
}

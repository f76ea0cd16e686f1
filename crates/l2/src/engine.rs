// SPDX-License-Identifier: Apache-2.0
//! The engine: who answers for what on which interface, and what was sent.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

use ferrolb_net_types::{IfIndex, InterfaceName, Interfaces, Mac, Time};

use crate::DropReason;
use crate::burst::Bursts;
use crate::wire::{Frame, MINIMUM, Operation, Packet, ethernet};

/// Answers ARP requests and announces gains. See the [crate] for how it is driven.
#[derive(Debug, Default)]
pub struct Engine {
    interfaces: BTreeMap<IfIndex, Interface>,
    addresses: BTreeMap<Ipv4Addr, Address>,
    bursts: Bursts,
    /// Withdrawn addresses whose counters are still shown, by the time they go.
    fading: BTreeSet<(Time, Ipv4Addr)>,
    output: VecDeque<Output>,
}

/// A network interface that can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: IfIndex,
    /// Its name, by which advertisements choose it.
    pub name: InterfaceName,
    /// Its hardware address: what answers say.
    pub mac: Mac,
}

/// What happens to the engine.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// These are the interfaces now, all of them. One that is new, or has a new hardware address or name,
    /// announces what it answers for.
    Interfaces(&'a [Interface]),
    /// From now on this node answers for the address on these interfaces. Again is no gain: only interfaces that
    /// were not covered before announce it.
    Announce {
        /// The address.
        address: Ipv4Addr,
        /// Where.
        interfaces: &'a Interfaces,
    },
    /// The node no longer answers for the address.
    Withdraw {
        /// The address.
        address: Ipv4Addr,
    },
    /// An Ethernet frame came in.
    Frame {
        /// The interface it came in on.
        interface: IfIndex,
        /// The VLAN of a tag that was taken off before the frame was handed over; `None` if there was none.
        vlan: Option<u16>,
        /// The frame. If it still has its tag, that counts too.
        bytes: &'a [u8],
    },
    /// A frame that the engine gave out could not be sent.
    SendFailed {
        /// Its address.
        address: Ipv4Addr,
        /// What it was for.
        purpose: Purpose,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this frame.
    Send {
        /// The interface.
        interface: IfIndex,
        /// The address it is about.
        address: Ipv4Addr,
        /// What it is for.
        purpose: Purpose,
        /// The frame, padded.
        frame: [u8; MINIMUM],
    },
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It answers a request.
    Answer,
    /// It tells everybody that the address is here.
    Gratuitous,
}

/// What was done for one address. They only grow, and are kept for ten minutes after the address was withdrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that were to be answered.
    pub requests: u64,
    /// Answers sent.
    pub responses: u64,
    /// Gratuitous frames sent; a round on one interface is two.
    pub gratuitous: u64,
}

#[derive(Debug)]
struct Address {
    state: State,
    counters: Counters,
}

#[derive(Debug)]
enum State {
    /// Answered for here.
    Announced(Interfaces),
    /// Not answered for; its counters are shown until then.
    Withdrawn(Time),
}

impl Address {
    /// Where it is answered for; `None` once withdrawn.
    fn interfaces(&self) -> Option<&Interfaces> {
        match &self.state {
            State::Announced(interfaces) => Some(interfaces),
            State::Withdrawn(_) => None,
        }
    }
}

impl Engine {
    /// An engine without interfaces and addresses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Interfaces(interfaces) => self.set_interfaces(now, interfaces),
            Input::Announce { address, interfaces } => self.announce(now, address, interfaces),
            Input::Withdraw { address } => self.withdraw(now, address),
            Input::Frame { interface, vlan, bytes } => {
                if let Ok(answer) = self.answer(interface, vlan, bytes) {
                    let address = answer.packet.sender_ip;
                    if let Some(entry) = self.addresses.get_mut(&address) {
                        entry.counters.requests += 1;
                    }
                    self.send(interface, Purpose::Answer, &answer);
                }
            }
            Input::SendFailed { address, purpose } => {
                if let Some(entry) = self.addresses.get_mut(&address) {
                    let counter = entry.counters.of(purpose);
                    *counter = counter.saturating_sub(1);
                }
            }
        }
    }

    /// Does what is due. After a gain of many addresses it does a part of it and is due again at once, so that
    /// requests are answered in between.
    pub fn handle_timeout(&mut self, now: Time) {
        const PER_CALL: usize = 64;
        for _ in 0..PER_CALL {
            let Some((address, index)) = self.bursts.take_due(now) else { break };
            let Some(interface) = self.interfaces.get(&index) else { continue };
            for frame in announcement(address, interface.mac) {
                self.send(index, Purpose::Gratuitous, &frame);
            }
        }
        while let Some(&(at, address)) = self.fading.first().filter(|(at, _)| *at <= now) {
            self.fading.remove(&(at, address));
            self.addresses.remove(&address);
        }
    }

    /// Takes the next thing to do; call until `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next; not before then, and not at all if `None`.
    pub fn next_deadline(&self) -> Option<Time> {
        let fading = self.fading.first().map(|(at, _)| *at);
        self.bursts.next_deadline().into_iter().chain(fading).min()
    }

    /// The answer to a frame, or why there is none. Changes nothing: [`handle`](Self::handle) uses it.
    ///
    /// # Errors
    ///
    /// The first [`DropReason`] that applies.
    pub fn answer(&self, interface: IfIndex, vlan: Option<u16>, bytes: &[u8]) -> Result<Frame, DropReason> {
        let interface = self.interfaces.get(&interface).ok_or(DropReason::Closed)?;
        let view = ethernet::View::new(bytes).map_err(DropReason::Malformed)?;
        // IEEE 802.1Q: a tag of VLAN 0 carries a priority only; any other is a network of its own.
        if let Some(vlan) = [vlan, view.vlan()].into_iter().flatten().find(|vlan| *vlan != 0) {
            return Err(DropReason::Vlan(vlan));
        }
        let request = Frame::parse(bytes).map_err(DropReason::Malformed)?;
        let asked = match request.packet {
            Packet { operation: Operation::Request, target_ip, .. } => target_ip,
            Packet { operation: Operation::Reply, .. } => return Err(DropReason::ArpReply),
            Packet { operation: Operation::Unknown(number), .. } => {
                return Err(DropReason::MessageType(number));
            }
        };
        if request.destination != Mac::BROADCAST && request.destination != interface.mac {
            return Err(DropReason::EthernetDestination);
        }
        let announced = self.addresses.get(&asked).and_then(Address::interfaces);
        let announced = announced.ok_or(DropReason::AnnounceIp(asked))?;
        if request.packet.sender_ip == asked {
            return Err(DropReason::Announcement(asked));
        }
        if !announced.covers(interface.name.as_str()) {
            return Err(DropReason::NotMatchInterface(asked));
        }
        Ok(Frame {
            destination: request.packet.sender_mac,
            source: interface.mac,
            packet: Packet {
                operation: Operation::Reply,
                sender_mac: interface.mac,
                sender_ip: asked,
                target_mac: request.packet.sender_mac,
                target_ip: request.packet.sender_ip,
            },
        })
    }

    /// Whether the engine answers for the address on some interface, should it have one.
    pub fn announces(&self, address: Ipv4Addr) -> bool {
        self.addresses.get(&address).and_then(Address::interfaces).is_some()
    }

    /// The addresses the engine answers for and where, ascending.
    pub fn announced(&self) -> impl Iterator<Item = (Ipv4Addr, &Interfaces)> {
        self.addresses.iter().filter_map(|(address, entry)| Some((*address, entry.interfaces()?)))
    }

    /// The interfaces that answer for the address now, by index.
    pub fn answering(&self, address: Ipv4Addr) -> impl Iterator<Item = &Interface> {
        let announced = self.addresses.get(&address).and_then(Address::interfaces);
        let covers =
            move |interface: &&Interface| announced.is_some_and(|on| on.covers(interface.name.as_str()));
        self.interfaces.values().filter(covers)
    }

    /// What was done for each address, ascending.
    pub fn counters(&self) -> impl Iterator<Item = (Ipv4Addr, Counters)> {
        self.addresses.iter().map(|(address, entry)| (*address, entry.counters))
    }

    fn set_interfaces(&mut self, now: Time, interfaces: &[Interface]) {
        let new: BTreeMap<_, _> = interfaces.iter().map(|i| (i.index, i.clone())).collect();
        if new == self.interfaces {
            return;
        }
        let old = std::mem::replace(&mut self.interfaces, new);
        for (address, entry) in &self.addresses {
            let Some(announced) = entry.interfaces() else { continue };
            for index in old.keys().filter(|index| !self.interfaces.contains_key(index)) {
                self.bursts.stop((*address, *index));
            }
            for (index, interface) in &self.interfaces {
                let covered = announced.covers(interface.name.as_str());
                if !covered {
                    self.bursts.stop((*address, *index));
                } else if old.get(index) != Some(interface) {
                    self.bursts.start(now, (*address, *index));
                }
            }
        }
    }

    fn announce(&mut self, now: Time, address: Ipv4Addr, interfaces: &Interfaces) {
        let announced = State::Announced(interfaces.clone());
        let before = match self.addresses.entry(address) {
            Entry::Occupied(entry) => Some(std::mem::replace(&mut entry.into_mut().state, announced)),
            Entry::Vacant(entry) => {
                entry.insert(Address { state: announced, counters: Counters::default() });
                None
            }
        };
        let before = match before {
            Some(State::Announced(before)) => Some(before),
            Some(State::Withdrawn(until)) => {
                self.fading.remove(&(until, address));
                None
            }
            None => None,
        };
        if before.as_ref() == Some(interfaces) {
            return;
        }
        for interface in self.interfaces.values() {
            let name = interface.name.as_str();
            let was = before.as_ref().is_some_and(|before| before.covers(name));
            match (was, interfaces.covers(name)) {
                (false, true) => self.bursts.start(now, (address, interface.index)),
                (true, false) => self.bursts.stop((address, interface.index)),
                (true, true) | (false, false) => {}
            }
        }
    }

    fn withdraw(&mut self, now: Time, address: Ipv4Addr) {
        let Some(entry) = self.addresses.get_mut(&address) else { return };
        if entry.interfaces().is_none() {
            return;
        }
        let until = now + COUNTERS_KEPT;
        entry.state = State::Withdrawn(until);
        self.fading.insert((until, address));
        for index in self.interfaces.keys() {
            self.bursts.stop((address, *index));
        }
    }

    fn send(&mut self, interface: IfIndex, purpose: Purpose, frame: &Frame) {
        let address = frame.packet.sender_ip;
        if let Some(entry) = self.addresses.get_mut(&address) {
            *entry.counters.of(purpose) += 1;
        }
        self.output.push_back(Output::Send { interface, address, purpose, frame: frame.emit() });
    }
}

impl Counters {
    /// The counter of frames sent for this purpose.
    fn of(&mut self, purpose: Purpose) -> &mut u64 {
        match purpose {
            Purpose::Answer => &mut self.responses,
            Purpose::Gratuitous => &mut self.gratuitous,
        }
    }
}

/// One round: first as a request, then as a reply, since some hosts heed only the one or the other.
fn announcement(address: Ipv4Addr, mac: Mac) -> [Frame; 2] {
    [Operation::Request, Operation::Reply].map(|operation| Frame {
        destination: Mac::BROADCAST,
        source: mac,
        packet: Packet {
            operation,
            sender_mac: mac,
            sender_ip: address,
            target_mac: Mac::BROADCAST,
            target_ip: address,
        },
    })
}

/// How long the counters of a withdrawn address stay.
const COUNTERS_KEPT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GAP, ROUNDS};

    const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 9]);
    const ENS18: IfIndex = IfIndex(2);
    const ENS19: IfIndex = IfIndex(3);

    fn interface(index: IfIndex, name: &str, mac: Mac) -> Interface {
        Interface { index, name: name.into(), mac }
    }

    fn named(names: &[&str]) -> Interfaces {
        Interfaces::Named(names.iter().map(|name| InterfaceName::from(*name)).collect())
    }

    fn request(destination: Mac, operation: Operation, target_ip: Ipv4Addr) -> [u8; MINIMUM] {
        let sender_ip = Ipv4Addr::new(192, 0, 2, 50);
        let packet = Packet { operation, sender_mac: OTHER, sender_ip, target_mac: Mac::ZERO, target_ip };
        Frame { destination, source: OTHER, packet }.emit()
    }

    /// An engine with ens18 and ens19 that announces the address there; its bursts are over.
    fn engine(on: &Interfaces) -> Engine {
        let mut engine = Engine::new();
        let both = [interface(ENS18, "ens18", OWN), interface(ENS19, "ens19", OWN)];
        engine.handle(Time::ZERO, Input::Interfaces(&both));
        engine.handle(Time::ZERO, Input::Announce { address: VIP, interfaces: on });
        sent(&mut engine);
        engine
    }

    /// Runs the engine until it is idle (counters of withdrawn addresses apart): (ms, interface) of every frame.
    fn sent(engine: &mut Engine) -> Vec<(u128, IfIndex)> {
        let mut frames = Vec::new();
        for _ in 0..1_000 {
            let Some(at) = engine.bursts.next_deadline() else { return frames };
            engine.handle_timeout(at);
            while let Some(Output::Send { interface, purpose, address, frame }) = engine.poll() {
                assert_eq!((purpose, address), (Purpose::Gratuitous, VIP));
                assert!(Frame::parse(&frame).is_ok());
                frames.push((at.since_start().as_millis(), interface));
            }
        }
        panic!("still busy after a thousand rounds");
    }

    #[test]
    fn each_frame_that_is_not_answered_has_its_reason() {
        let engine = engine(&named(&["ens18"]));
        let ask = |destination, operation, target| request(destination, operation, target);
        let unknown = Ipv4Addr::new(192, 0, 2, 1);
        let mut announcement = request(Mac::BROADCAST, Operation::Request, VIP);
        announcement[28..32].copy_from_slice(&VIP.octets());
        for (interface, vlan, bytes, wanted) in [
            (ENS18, None, ask(Mac::BROADCAST, Operation::Request, VIP), None),
            (ENS18, None, ask(OWN, Operation::Request, VIP), None),
            (ENS18, Some(0), ask(OWN, Operation::Request, VIP), None),
            (ENS18, Some(7), ask(OWN, Operation::Request, VIP), Some(DropReason::Vlan(7))),
            (ENS18, None, ask(OTHER, Operation::Request, VIP), Some(DropReason::EthernetDestination)),
            (ENS18, None, ask(Mac::ZERO, Operation::Request, VIP), Some(DropReason::EthernetDestination)),
            (ENS18, None, ask(Mac::BROADCAST, Operation::Reply, VIP), Some(DropReason::ArpReply)),
            (ENS18, None, ask(Mac::BROADCAST, Operation::Unknown(3), VIP), Some(DropReason::MessageType(3))),
            (
                ENS18,
                None,
                ask(Mac::BROADCAST, Operation::Request, unknown),
                Some(DropReason::AnnounceIp(unknown)),
            ),
            (ENS18, None, announcement, Some(DropReason::Announcement(VIP))),
            (ENS19, None, ask(OWN, Operation::Request, VIP), Some(DropReason::NotMatchInterface(VIP))),
            (IfIndex(9), None, ask(OWN, Operation::Request, VIP), Some(DropReason::Closed)),
        ] {
            assert_eq!(engine.answer(interface, vlan, &bytes).err(), wanted, "{interface:?} {bytes:02x?}");
        }
        let reason = engine.answer(ENS18, None, &[0; 13]).unwrap_err();
        assert_eq!(
            (reason.to_string().as_str(), matches!(reason, DropReason::Malformed(_))),
            ("error", true)
        );
    }

    #[test]
    fn a_gain_is_announced_five_times_where_it_is_chosen_and_counted() {
        let mut engine = Engine::new();
        let both = [interface(ENS18, "ens18", OWN), interface(ENS19, "ens19", OWN)];
        engine.handle(Time::ZERO, Input::Interfaces(&both));
        assert_eq!(engine.next_deadline(), None);
        let at = Time::millis(50);
        engine.handle(at, Input::Announce { address: VIP, interfaces: &named(&["ens18", "eth9"]) });
        assert_eq!(engine.next_deadline(), Some(at));
        let times = [50, 50, 1150, 1150, 2250, 2250, 3350, 3350, 4450, 4450];
        assert_eq!(sent(&mut engine), times.map(|ms| (ms, ENS18)));
        let counters = Counters { gratuitous: 10, ..Counters::default() };
        assert_eq!(engine.counters().collect::<Vec<_>>(), [(VIP, counters)]);
        assert_eq!(engine.answering(VIP).map(|i| i.index).collect::<Vec<_>>(), [ENS18]);
    }

    #[test]
    fn announcing_again_is_no_gain() {
        let mut engine = engine(&Interfaces::All);
        engine.handle(Time::millis(9_000), Input::Announce { address: VIP, interfaces: &Interfaces::All });
        assert_eq!(sent(&mut engine), []);
        // Fewer interfaces: those left were told already.
        let fewer = named(&["ens18"]);
        engine.handle(Time::millis(9_000), Input::Announce { address: VIP, interfaces: &fewer });
        assert_eq!(sent(&mut engine), []);
        // More: only the new one is told.
        engine.handle(Time::millis(9_000), Input::Announce { address: VIP, interfaces: &Interfaces::All });
        assert!(sent(&mut engine).iter().all(|(_, index)| *index == ENS19));
    }

    #[test]
    fn a_loss_ends_the_burst_and_the_answers_and_the_counters_stay_for_a_while() {
        let mut engine = engine(&Interfaces::All);
        engine.handle(Time::millis(9_000), Input::Withdraw { address: VIP });
        engine.handle(Time::millis(9_100), Input::Announce { address: VIP, interfaces: &Interfaces::All });
        engine.handle_timeout(Time::millis(9_100));
        engine.handle(Time::millis(9_200), Input::Withdraw { address: VIP });
        while engine.poll().is_some() {}
        assert_eq!(sent(&mut engine), []);
        assert!(!engine.announces(VIP));
        let bytes = request(Mac::BROADCAST, Operation::Request, VIP);
        engine.handle(Time::millis(9_300), Input::Frame { interface: ENS18, vlan: None, bytes: &bytes });
        assert_eq!(engine.poll(), None);
        assert_eq!(engine.counters().count(), 1);
        let gone = engine.next_deadline().unwrap();
        assert_eq!(gone, Time::millis(9_200) + COUNTERS_KEPT);
        engine.handle_timeout(gone);
        assert_eq!((engine.counters().count(), engine.next_deadline()), (0, None));
    }

    #[test]
    fn an_interface_that_comes_back_or_has_another_mac_announces_what_it_answers_for() {
        let mut engine = engine(&Interfaces::All);
        let same = [interface(ENS18, "ens18", OWN), interface(ENS19, "ens19", OWN)];
        engine.handle(Time::millis(9_000), Input::Interfaces(&same));
        assert_eq!(sent(&mut engine), []);
        engine.handle(Time::millis(9_000), Input::Interfaces(&same[..1]));
        assert_eq!(sent(&mut engine), []);
        engine.handle(Time::millis(10_000), Input::Interfaces(&same));
        let again = sent(&mut engine);
        assert_eq!((again.len(), again[0]), (usize::from(ROUNDS) * 2, (10_000, ENS19)));

        let moved = [interface(ENS18, "ens18", OTHER), interface(ENS19, "ens19", OWN)];
        engine.handle(Time::millis(20_000), Input::Interfaces(&moved));
        engine.handle_timeout(Time::millis(20_000));
        let Some(Output::Send { frame, interface, .. }) = engine.poll() else { panic!("nothing sent") };
        assert_eq!((Frame::parse(&frame).unwrap().packet.sender_mac, interface), (OTHER, ENS18));
    }

    #[test]
    fn ten_thousand_gains_at_once_are_spread_over_many_calls() {
        let mut engine = Engine::new();
        engine.handle(Time::ZERO, Input::Interfaces(&[interface(ENS18, "ens18", OWN)]));
        for number in 0..10_000 {
            let address = Ipv4Addr::from_bits(0x0a00_0000 + number);
            engine.handle(Time::ZERO, Input::Announce { address, interfaces: &Interfaces::All });
        }
        let mut calls = 0;
        while engine.next_deadline() < Some(Time::ZERO + GAP) {
            engine.handle_timeout(Time::ZERO);
            let frames = std::iter::from_fn(|| engine.poll()).count();
            assert!(frames <= 128, "{frames} frames in one call");
            calls += 1;
        }
        assert_eq!(calls, 10_000_usize.div_ceil(64));
    }

    #[test]
    fn a_frame_that_could_not_be_sent_is_not_counted() {
        let mut engine = engine(&Interfaces::All);
        let bytes = request(Mac::BROADCAST, Operation::Request, VIP);
        for _ in 0..2 {
            engine.handle(Time::ZERO, Input::Frame { interface: ENS18, vlan: None, bytes: &bytes });
        }
        engine.handle(Time::ZERO, Input::SendFailed { address: VIP, purpose: Purpose::Answer });
        let (_, counters) = engine.counters().next().unwrap();
        assert_eq!((counters.requests, counters.responses), (2, 1));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The engine: who answers for what on which interface, and what was sent.

mod arp;
mod ndp;
#[cfg(test)]
mod tests;

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ferrolb_net_types::{IfIndex, InterfaceName, Interfaces, Mac, Time};

use crate::DropReason;
use crate::burst::Bursts;
use crate::groups::Groups;
use crate::wire::{Bytes, Error, Field, ethernet, ipv6};

/// Answers who asks for an address, and announces gains. See the [crate] for how it is driven.
#[derive(Debug, Default)]
pub struct Engine {
    interfaces: BTreeMap<IfIndex, Interface>,
    addresses: BTreeMap<IpAddr, Address>,
    groups: Groups,
    bursts: Bursts,
    /// What others were asked about, until that is forgotten.
    asked: BTreeSet<IpAddr>,
    /// Withdrawn addresses whose counters are still shown, by the time they go.
    fading: BTreeSet<(Time, IpAddr)>,
    output: VecDeque<Output>,
    changes: Changes,
}

/// Which addresses were gained, and whether any was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that the engine answers for, or asks about, and did not before; some may be lost again.
    pub gained: Vec<IpAddr>,
    /// Whether there is one for which it does no longer answer, or about which it asks no longer.
    pub lost: bool,
}

/// A network interface that can answer by one protocol at least. The two do not depend on each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: IfIndex,
    /// Its name, by which advertisements choose it.
    pub name: InterfaceName,
    /// Its hardware address: what answers say.
    pub mac: Mac,
    /// Whether IPv4 addresses are answered for there, by ARP.
    pub arp: bool,
    /// The address from which IPv6 addresses are answered for there, by NDP; `None`: they are not.
    pub link_local: Option<Ipv6Addr>,
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
        address: IpAddr,
        /// Where.
        interfaces: &'a Interfaces,
    },
    /// Others may look for the address elsewhere by now: every interface that answers for it announces it anew.
    Again {
        /// The address.
        address: IpAddr,
    },
    /// The node no longer answers for the address.
    Withdraw {
        /// The address.
        address: IpAddr,
    },
    /// Ask one host, and nobody else, whether it has an address. Until that is forgotten its answers are passed on.
    Ask {
        /// The interface to ask on.
        interface: IfIndex,
        /// The address.
        address: IpAddr,
        /// The host's hardware address.
        of: Mac,
    },
    /// Answers about this address are of no interest any more.
    Forget {
        /// The address.
        address: IpAddr,
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
        address: IpAddr,
        /// What it was for.
        purpose: Purpose,
    },
}

/// What is to be done, or was noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this frame.
    Send {
        /// The interface.
        interface: IfIndex,
        /// The address it is about.
        address: IpAddr,
        /// What it is for.
        purpose: Purpose,
        /// The frame.
        frame: Bytes,
    },
    /// Listen to an IPv6 multicast group, so that switches pass on who asks. An interface that stops answering by NDP
    /// leaves its groups without being told.
    Join {
        /// The interface.
        interface: IfIndex,
        /// The group.
        group: Ipv6Addr,
    },
    /// Listen no longer.
    Leave {
        /// The interface.
        interface: IfIndex,
        /// The group.
        group: Ipv6Addr,
    },
    /// Somebody else announced an address that this node answers for. The engine goes on answering.
    Claimed {
        /// The interface on which it was heard.
        interface: IfIndex,
        /// The address.
        address: IpAddr,
        /// The hardware address that it should have. Never one of this engine's interfaces.
        mac: Mac,
    },
    /// Somebody has an address that was asked about.
    Answered {
        /// The interface on which it said so.
        interface: IfIndex,
        /// The address.
        address: IpAddr,
        /// The hardware address that it has. Never one of this engine's interfaces.
        mac: Mac,
    },
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It answers a request.
    Answer,
    /// It tells everybody that the address is here.
    Gratuitous,
    /// It asks one host whether it has the address. Not counted.
    Question,
}

/// The answer to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The address that was asked for.
    pub address: IpAddr,
    /// What to send, on the interface on which the question came in.
    pub frame: Bytes,
}

/// What was done for one address. They only grow, and are kept for ten minutes after the address was withdrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that were to be answered.
    pub requests: u64,
    /// Answers sent.
    pub responses: u64,
    /// Gratuitous frames sent; a round on one interface is two for an IPv4 address, one for an IPv6 address.
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

impl Interface {
    /// Whether it answers for an address of this family, if that is announced on these interfaces.
    fn answers(&self, address: IpAddr, announced: &Interfaces) -> bool {
        let able = match address {
            IpAddr::V4(_) => self.arp,
            IpAddr::V6(_) => self.link_local.is_some(),
        };
        able && announced.covers(self.name.as_str())
    }

    /// Whether answers for the address say the same on both.
    fn same_for(&self, other: &Self, address: IpAddr) -> bool {
        let answer = match address {
            IpAddr::V4(_) => self.arp == other.arp,
            IpAddr::V6(_) => self.link_local == other.link_local,
        };
        answer && self.mac == other.mac && self.name == other.name
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
            Input::Again { address } => {
                let places: Vec<IfIndex> = self.answering(address).map(|interface| interface.index).collect();
                places.into_iter().for_each(|index| self.bursts.start(now, (address, index)));
            }
            Input::Withdraw { address } => self.withdraw(now, address),
            Input::Ask { interface, address, of } => self.ask(interface, address, of),
            Input::Forget { address } => {
                self.changes.lost |= self.asked.remove(&address) && address.is_ipv6();
            }
            Input::Frame { interface, vlan, bytes } => match self.answer(interface, vlan, bytes) {
                Ok(Answer { address, frame }) => {
                    if let Some(entry) = self.addresses.get_mut(&address) {
                        entry.counters.requests += 1;
                    }
                    self.send(interface, address, Purpose::Answer, frame);
                }
                // On a segment with two of its interfaces a node hears itself.
                Err(DropReason::Announcement { mac, .. } | DropReason::Answer { mac, .. })
                    if self.interfaces.values().any(|own| own.mac == mac) => {}
                Err(DropReason::Announcement { address, mac }) => {
                    self.output.push_back(Output::Claimed { interface, address, mac });
                }
                Err(DropReason::Answer { address, mac }) => {
                    self.output.push_back(Output::Answered { interface, address, mac });
                }
                Err(_) => {}
            },
            Input::SendFailed { address, purpose } => {
                let entry = self.addresses.get_mut(&address);
                if let Some(counter) = entry.and_then(|entry| entry.counters.of(purpose)) {
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
            match (address, interface.link_local) {
                (IpAddr::V4(ip), _) => {
                    for frame in arp::announcement(ip, interface.mac) {
                        self.send(index, address, Purpose::Gratuitous, frame.emit().into());
                    }
                }
                (IpAddr::V6(ip), Some(link_local)) => {
                    let frame = ndp::announcement(ip, interface.mac, link_local);
                    self.send(index, address, Purpose::Gratuitous, frame.emit());
                }
                (IpAddr::V6(_), None) => {}
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
    pub fn answer(&self, interface: IfIndex, vlan: Option<u16>, bytes: &[u8]) -> Result<Answer, DropReason> {
        let interface = self.interfaces.get(&interface).ok_or(DropReason::Closed)?;
        let view = ethernet::View::new(bytes).map_err(DropReason::Malformed)?;
        // IEEE 802.1Q: a tag of VLAN 0 carries a priority only; any other is a network of its own.
        if let Some(vlan) = [vlan, view.vlan()].into_iter().flatten().find(|vlan| *vlan != 0) {
            return Err(DropReason::Vlan(vlan));
        }
        match (view.kind(), interface.link_local) {
            (ethernet::ARP, _) if interface.arp => self.answer_arp(interface, bytes),
            (ipv6::IPV6, Some(link_local)) => self.answer_ndp(interface, link_local, bytes),
            (ethernet::ARP | ipv6::IPV6, _) => Err(DropReason::Closed),
            (found, _) => Err(DropReason::Malformed(Error::Unexpected {
                field: Field::EtherType,
                offset: 12,
                found,
                wanted: ethernet::ARP,
            })),
        }
    }

    /// Whether the engine answers for the address on some interface, should it have one.
    pub fn announces(&self, address: IpAddr) -> bool {
        self.addresses.get(&address).and_then(Address::interfaces).is_some()
    }

    /// What has changed since this was asked last.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// The addresses the engine answers for and where, ascending, IPv4 first.
    pub fn announced(&self) -> impl Iterator<Item = (IpAddr, &Interfaces)> {
        self.addresses.iter().filter_map(|(address, entry)| Some((*address, entry.interfaces()?)))
    }

    /// The interfaces that answer for the address now, by index.
    pub fn answering(&self, address: IpAddr) -> impl Iterator<Item = &Interface> {
        let announced = self.addresses.get(&address).and_then(Address::interfaces);
        let answers =
            move |interface: &&Interface| announced.is_some_and(|on| interface.answers(address, on));
        self.interfaces.values().filter(answers)
    }

    /// IPv6 addresses that are asked about: what is said of them has to reach the engine. Answers about IPv4 addresses come
    /// without a target.
    pub fn asked(&self) -> impl Iterator<Item = IpAddr> {
        self.asked.iter().copied().filter(IpAddr::is_ipv6)
    }

    /// What was done for each address, ascending, IPv4 first.
    pub fn counters(&self) -> impl Iterator<Item = (IpAddr, Counters)> {
        self.addresses.iter().map(|(address, entry)| (*address, entry.counters))
    }

    /// Where an address that somebody asks for is answered for.
    fn asked_for(&self, address: IpAddr) -> Result<&Interfaces, DropReason> {
        let announced = self.addresses.get(&address).and_then(Address::interfaces);
        announced.ok_or(DropReason::AnnounceIp(address))
    }

    fn set_interfaces(&mut self, now: Time, interfaces: &[Interface]) {
        let new: BTreeMap<_, _> = interfaces.iter().map(|i| (i.index, i.clone())).collect();
        if new == self.interfaces {
            return;
        }
        let old = std::mem::replace(&mut self.interfaces, new);
        for (index, interface) in &self.interfaces {
            let had = old.get(index).is_some_and(|former| former.link_local.is_some());
            if interface.link_local.is_some() && !had {
                let joins = self.groups.all().map(|group| Output::Join { interface: *index, group });
                self.output.extend(joins);
            }
        }
        for (address, entry) in &self.addresses {
            let Some(announced) = entry.interfaces() else { continue };
            for index in old.keys().filter(|index| !self.interfaces.contains_key(index)) {
                self.bursts.stop((*address, *index));
            }
            for (index, interface) in &self.interfaces {
                if !interface.answers(*address, announced) {
                    self.bursts.stop((*address, *index));
                } else if !old.get(index).is_some_and(|former| former.same_for(interface, *address)) {
                    self.bursts.start(now, (*address, *index));
                }
            }
        }
    }

    fn announce(&mut self, now: Time, address: IpAddr, interfaces: &Interfaces) {
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
        if before.is_none() {
            self.changes.gained.push(address);
        }
        if before.is_none()
            && let Some(group) = self.groups.add(address)
        {
            self.everywhere(|interface| Output::Join { interface, group });
        }
        for interface in self.interfaces.values() {
            let was = before.as_ref().is_some_and(|before| interface.answers(address, before));
            match (was, interface.answers(address, interfaces)) {
                (false, true) => self.bursts.start(now, (address, interface.index)),
                (true, false) => self.bursts.stop((address, interface.index)),
                (true, true) | (false, false) => {}
            }
        }
    }

    fn withdraw(&mut self, now: Time, address: IpAddr) {
        let Some(entry) = self.addresses.get_mut(&address) else { return };
        if entry.interfaces().is_none() {
            return;
        }
        self.changes.lost = true;
        let until = now + COUNTERS_KEPT;
        entry.state = State::Withdrawn(until);
        self.fading.insert((until, address));
        for index in self.interfaces.keys() {
            self.bursts.stop((address, *index));
        }
        if let Some(group) = self.groups.remove(address) {
            self.everywhere(|interface| Output::Leave { interface, group });
        }
    }

    /// One output for each interface that answers by NDP, whatever the address's selection: a selection that is
    /// widened finds the group joined.
    fn everywhere(&mut self, output: impl Fn(IfIndex) -> Output) {
        let able = self.interfaces.values().filter(|interface| interface.link_local.is_some());
        self.output.extend(able.map(|interface| output(interface.index)));
    }

    fn ask(&mut self, index: IfIndex, address: IpAddr, of: Mac) {
        if self.asked.insert(address) && address.is_ipv6() {
            self.changes.gained.push(address);
        }
        let Some(interface) = self.interfaces.get(&index) else { return };
        let frame = match (address, interface.link_local) {
            (IpAddr::V4(ip), _) if interface.arp => arp::question(ip, of, interface.mac).emit().into(),
            (IpAddr::V6(ip), Some(link_local)) => ndp::question(ip, of, interface.mac, link_local).emit(),
            _ => return,
        };
        self.send(index, address, Purpose::Question, frame);
    }

    fn send(&mut self, interface: IfIndex, address: IpAddr, purpose: Purpose, frame: Bytes) {
        let entry = self.addresses.get_mut(&address);
        if let Some(counter) = entry.and_then(|entry| entry.counters.of(purpose)) {
            *counter += 1;
        }
        self.output.push_back(Output::Send { interface, address, purpose, frame });
    }
}

impl Counters {
    /// The counter of frames sent for this purpose, if they are counted.
    const fn of(&mut self, purpose: Purpose) -> Option<&mut u64> {
        match purpose {
            Purpose::Answer => Some(&mut self.responses),
            Purpose::Gratuitous => Some(&mut self.gratuitous),
            Purpose::Question => None,
        }
    }
}

/// How long the counters of a withdrawn address stay.
const COUNTERS_KEPT: Duration = Duration::from_secs(600);

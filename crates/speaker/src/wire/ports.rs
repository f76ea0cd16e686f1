// SPDX-License-Identifier: Apache-2.0
//! The interfaces that can answer, each with a socket per protocol and the multicast groups of NDP.
//!
//! Each interface is on its own, and so is each protocol of it: one that cannot be read or opened stops no other, and
//! one whose socket fails is left alone for a while before it is tried again, longer each time.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ferrolb_linux::packet::{Frames, PacketSocket};
use ferrolb_linux::{Error, Groups, Netlink, Poller, inspect};
use ferrolb_net_types::{IfIndex, Mac, Time};
use ferrolb_speaker_core::wire::Interface;

use crate::Excluded;

/// The open ports of the node.
pub(super) struct Ports {
    excluded: Excluded,
    opener: Opener,
    open: BTreeMap<IfIndex, Port>,
    failed: BTreeMap<Place, Failure>,
    /// Groups that are still to be joined or left, with the last wish for each.
    groups_due: BTreeMap<(IfIndex, Ipv6Addr), bool>,
}

/// How a socket is opened.
pub(super) type Opener = Box<dyn Fn(IfIndex, Frames) -> Result<PacketSocket, Error> + Send>;

/// By which protocol an interface answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Arp,
    Ndp,
}

/// A protocol of an interface.
pub(super) type Place = (IfIndex, Protocol);

/// An interface that can answer.
struct Port {
    /// What it could do.
    able: Interface,
    arp: Option<PacketSocket>,
    ndp: Option<(PacketSocket, Groups)>,
}

/// Trouble with one protocol of an interface.
#[derive(Clone, Copy, Debug)]
struct Failure {
    retry: Time,
    pause: Duration,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::Arp, Self::Ndp];

    /// The protocol by which addresses of this family are answered for.
    pub(super) const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Arp,
            IpAddr::V6(_) => Self::Ndp,
        }
    }

    /// MetalLB's words in its log: `createARPResponder`, "created ARP responder …".
    const fn name(self) -> &'static str {
        match self {
            Self::Arp => "ARP",
            Self::Ndp => "NDP",
        }
    }
}

/// What the poller calls a socket: below 2^33.
pub(super) fn token((index, protocol): Place) -> u64 {
    u64::from(index.0) << 1 | u64::from(protocol == Protocol::Ndp)
}

/// The socket that has this token; `None` if it is no socket's.
pub(super) fn place(token: u64) -> Option<Place> {
    let protocol = if token & 1 == 0 { Protocol::Arp } else { Protocol::Ndp };
    u32::try_from(token >> 1).ok().map(|index| (IfIndex(index), protocol))
}

impl Ports {
    /// No port; interfaces on this list never become one.
    pub(super) fn new(excluded: Excluded) -> Self {
        Self::opened_by(Box::new(PacketSocket::open), excluded)
    }

    /// The same, with sockets that are opened so.
    pub(super) fn opened_by(opener: Opener, excluded: Excluded) -> Self {
        let (open, failed, groups_due) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { excluded, opener, open, failed, groups_due }
    }

    /// Looks at all interfaces: opens what can answer, closes what no longer can, takes over new names and
    /// addresses. Whether anything changed.
    ///
    /// # Errors
    ///
    /// If the interfaces cannot be listed. Everything stays as it was then.
    pub(super) fn scan(&mut self, now: Time, netlink: &mut Netlink, poller: &Poller) -> Result<bool, Error> {
        let mut wanted: BTreeMap<IfIndex, Interface> = inspect::interfaces(netlink)?
            .into_iter()
            .filter(|found| !self.excluded.contains(found.name.as_str()))
            .filter_map(|found| Some((found.index, able(&found)?)))
            .collect();

        let before = self.interfaces();
        self.open.retain(|index, port| {
            let able = wanted.remove(index);
            if let Some(able) = &able {
                port.follow(able);
            }
            for protocol in Protocol::ALL {
                if !able.as_ref().is_some_and(|able| speaks(able, protocol)) {
                    port.close(protocol);
                }
            }
            able.is_some()
        });
        for able in wanted.into_values() {
            self.open.insert(able.index, Port { able, arp: None, ndp: None });
        }
        let possible = |(index, protocol): &Place| {
            self.open.get(index).is_some_and(|port| speaks(&port.able, *protocol))
        };
        self.failed.retain(|place, _| possible(place));
        let closed: Vec<_> = self
            .open
            .iter()
            .flat_map(|(index, port)| {
                let closed = move |protocol: &Protocol| {
                    speaks(&port.able, *protocol) && port.socket(*protocol).is_none()
                };
                Protocol::ALL.into_iter().filter(closed).map(|protocol| (*index, protocol))
            })
            .collect();
        for place in closed {
            if self.failed.get(&place).is_none_or(|failure| failure.retry <= now) {
                self.open(now, place, poller);
            }
        }
        Ok(self.interfaces() != before)
    }

    /// Closes a socket that failed.
    pub(super) fn fail(&mut self, now: Time, place: Place, cause: &std::io::Error) {
        let (index, protocol) = place;
        let Some(port) = self.open.get_mut(&index) else { return };
        let op = format!("receive{}", protocol.name());
        let interface = &port.able.name;
        tracing::warn!(op, %interface, error = %cause, "the socket failed; it is opened again");
        port.close_quietly(protocol);
        self.postpone(now, place);
    }

    /// The sockets of all interfaces.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (Place, &PacketSocket)> {
        Protocol::ALL.into_iter().flat_map(move |protocol| {
            self.open
                .iter()
                .filter_map(move |(index, port)| Some(((*index, protocol), port.socket(protocol)?)))
        })
    }

    /// A socket.
    pub(super) fn socket(&self, (index, protocol): Place) -> Option<&PacketSocket> {
        self.open.get(&index)?.socket(protocol)
    }

    /// The interfaces that answer by one protocol at least, by index.
    pub(super) fn interfaces(&self) -> Vec<Interface> {
        self.open.values().map(Port::interface).filter(|i| i.arp || i.link_local.is_some()).collect()
    }

    /// The interface's name; empty if it has no port.
    pub(super) fn name(&self, index: IfIndex) -> &str {
        self.open.get(&index).map_or("", |port| port.able.name.as_str())
    }

    /// Wants to be in a group on an interface, or out of it.
    pub(super) fn want_group(&mut self, index: IfIndex, group: Ipv6Addr, joined: bool) {
        self.groups_due.insert((index, group), joined);
    }

    /// Joins and leaves some of the groups that are wanted, so that a gain of many addresses delays no answer. Whether
    /// there is more to do at once.
    pub(super) fn tend_groups(&mut self) -> bool {
        const PER_CALL: usize = 64;
        let mut failed = BTreeMap::new();
        let mut cause = None;
        for _ in 0..PER_CALL {
            let Some(((index, group), joined)) = self.groups_due.pop_first() else { break };
            // Without a port there is no membership, and one that opens is told what to join.
            let Some(Port { ndp: Some((_, groups)), .. }) = self.open.get_mut(&index) else { continue };
            if !joined {
                groups.leave(group);
            } else if let Err(error) = groups.join(group) {
                failed.insert((index, group), joined);
                cause = Some(error);
            }
        }
        if let Some(error) = cause {
            tracing::error!(
                op = "watchMulticastGroup",
                groups = failed.len(),
                %error,
                "failed to watch NDP multicast group for IP, NDP responder will not respond to requests for this \
                 address"
            );
            // Again with the next scan.
            self.groups_due.extend(failed);
            return false;
        }
        !self.groups_due.is_empty()
    }

    /// When a socket that failed is to be tried again.
    pub(super) fn next_retry(&self) -> Option<Time> {
        let closed = self.failed.iter().filter(|(place, _)| self.socket(**place).is_none());
        closed.map(|(_, failure)| failure.retry).min()
    }

    fn open(&mut self, now: Time, place: Place, poller: &Poller) {
        let (index, protocol) = place;
        let frames = match protocol {
            Protocol::Arp => Frames::ArpRequests,
            Protocol::Ndp => Frames::NeighborDiscovery,
        };
        let opened = (self.opener)(index, frames)
            .and_then(|socket| poller.add(&socket, token(place)).map(|()| socket));
        let Some(port) = self.open.get_mut(&index) else { return };
        let (name, interface) = (protocol.name(), &port.able.name);
        let what = format!("create{name}Responder");
        match opened {
            Ok(socket) => {
                tracing::info!(event = what, %interface, "created {name} responder for interface");
                match protocol {
                    Protocol::Arp => port.arp = Some(socket),
                    Protocol::Ndp => port.ndp = Some((socket, Groups::new(index))),
                }
            }
            Err(error) => {
                tracing::error!(op = what, %interface, %error, "failed to create {name} responder");
                self.postpone(now, place);
            }
        }
    }

    /// The pause doubles while failures follow each other, and starts over when there was none for long.
    fn postpone(&mut self, now: Time, place: Place) {
        let before = self.failed.get(&place).filter(|before| now.since(before.retry) < LONGEST_PAUSE);
        let pause = before.map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        self.failed.insert(place, Failure { retry: now + pause, pause });
    }
}

impl Port {
    /// What the interface answers by now.
    fn interface(&self) -> Interface {
        let link_local = self.able.link_local.filter(|_| self.ndp.is_some());
        Interface { arp: self.able.arp && self.arp.is_some(), link_local, ..self.able.clone() }
    }

    const fn socket(&self, protocol: Protocol) -> Option<&PacketSocket> {
        match (protocol, &self.arp, &self.ndp) {
            (Protocol::Arp, Some(socket), _) | (Protocol::Ndp, _, Some((socket, _))) => Some(socket),
            _ => None,
        }
    }

    /// Takes over what the interface is now.
    fn follow(&mut self, able: &Interface) {
        if self.able.mac != able.mac || self.able.name != able.name {
            tracing::info!(
                event = "interfaceChanged",
                interface = %able.name,
                from = %self.able.mac,
                to = %able.mac,
                "an interface changed"
            );
        }
        self.able = able.clone();
    }

    fn close(&mut self, protocol: Protocol) {
        if self.close_quietly(protocol) {
            let (name, interface) = (protocol.name(), &self.able.name);
            let event = format!("delete{name}Responder");
            tracing::info!(event, %interface, "deleted {name} responder for interface");
        }
    }

    /// Whether it was open.
    fn close_quietly(&mut self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Arp => self.arp.take().is_some(),
            Protocol::Ndp => self.ndp.take().is_some(),
        }
    }
}

/// What an interface could answer by; `None` if by nothing.
fn able(found: &inspect::Interface) -> Option<Interface> {
    let mac = found.mac.filter(|mac| *mac != Mac::ZERO)?;
    if !found.up || found.master.is_some() || found.noarp {
        return None;
    }
    let (index, name, link_local) = (found.index, found.name.clone(), found.link_local());
    let able = Interface { index, name, mac, arp: found.broadcast, link_local };
    (able.arp || able.link_local.is_some()).then_some(able)
}

const fn speaks(able: &Interface, protocol: Protocol) -> bool {
    match protocol {
        Protocol::Arp => able.arp,
        Protocol::Ndp => able.link_local.is_some(),
    }
}

/// The pause after a first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause. A socket that worked for as long is trusted again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "fe80::1";

    fn plain() -> inspect::Interface {
        inspect::Interface {
            index: IfIndex(2),
            name: "ens18".into(),
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            up: true,
            carrier: true,
            running: true,
            broadcast: true,
            noarp: false,
            loopback: false,
            master: None,
            addresses: vec![(LOCAL.parse().unwrap(), 64)],
            tentative: Vec::new(),
        }
    }

    /// AN-5, AN-6, AN-11, AN-25 and AN-26, S35 and S36: what the kernel says of an interface, and what it answers by.
    #[test]
    fn each_protocol_asks_for_what_it_needs_of_an_interface() {
        let (both, arp, ndp, none) = ((true, true), (true, false), (false, true), (false, false));
        let tentative = vec![LOCAL.parse().unwrap()];
        for (what, interface, wanted) in [
            ("as it should be", plain(), both),
            ("without carrier", inspect::Interface { carrier: false, running: false, ..plain() }, both),
            ("without any address", inspect::Interface { addresses: Vec::new(), ..plain() }, arp),
            (
                "its link-local address is looked for or taken",
                inspect::Interface { tentative, ..plain() },
                arp,
            ),
            ("without broadcast", inspect::Interface { broadcast: false, ..plain() }, ndp),
            ("down", inspect::Interface { up: false, ..plain() }, none),
            ("a port of a bridge", inspect::Interface { master: Some(IfIndex(3)), ..plain() }, none),
            ("without ARP", inspect::Interface { noarp: true, ..plain() }, none),
            ("not Ethernet", inspect::Interface { mac: None, ..plain() }, none),
            ("without a hardware address", inspect::Interface { mac: Some(Mac::ZERO), ..plain() }, none),
        ] {
            let able = able(&interface);
            let by = |protocol| able.as_ref().is_some_and(|able| speaks(able, protocol));
            assert_eq!((by(Protocol::Arp), by(Protocol::Ndp)), wanted, "{what}");
        }
    }

    /// S41: nothing fails in a busy loop.
    #[test]
    fn a_failing_socket_is_tried_less_and_less_often_and_trusted_again_later() {
        let mut ports = Ports::new(Excluded::default());
        let mut now = Time::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            ports.postpone(now, (IfIndex(2), Protocol::Arp));
            let retry = ports.next_retry().unwrap();
            pauses.push(retry.since(now).as_millis());
            now = retry;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        // The other protocol of the interface has failed for the first time.
        ports.postpone(now, (IfIndex(2), Protocol::Ndp));
        assert_eq!(ports.next_retry(), Some(now));
        ports.postpone(now + LONGEST_PAUSE, (IfIndex(2), Protocol::Arp));
        assert_eq!(ports.failed[&(IfIndex(2), Protocol::Arp)].pause, FIRST_PAUSE);
    }

    #[test]
    fn every_socket_has_a_token_of_its_own() {
        for index in [1, 2, u32::MAX].map(IfIndex) {
            for protocol in Protocol::ALL {
                assert_eq!(place(token((index, protocol))), Some((index, protocol)));
            }
        }
        assert_eq!(place(1 << 33), None);
    }
}

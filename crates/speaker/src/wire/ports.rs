// SPDX-License-Identifier: Apache-2.0
//! The interfaces that can answer, each with its packet socket.
//!
//! Each interface is on its own: one that cannot be read or opened stops no other, and one whose socket fails is
//! left alone for a while before it is tried again, longer each time.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolb_linux::inspect;
use ferrolb_linux::packet::{Frames, PacketSocket};
use ferrolb_linux::{Error, Netlink, Poller};
use ferrolb_net_types::{IfIndex, Mac, Time};
use ferrolb_speaker_core::wire::Interface;

use crate::Excluded;

/// The open ports of the node.
pub(super) struct Ports {
    excluded: Excluded,
    open: BTreeMap<IfIndex, Port>,
    failed: BTreeMap<IfIndex, Failure>,
}

struct Port {
    interface: Interface,
    socket: PacketSocket,
}

/// Trouble with one interface.
#[derive(Clone, Copy, Debug)]
struct Failure {
    retry: Time,
    pause: Duration,
}

impl Ports {
    /// No port; interfaces on this list never become one.
    pub(super) fn new(excluded: Excluded) -> Self {
        Self { excluded, open: BTreeMap::new(), failed: BTreeMap::new() }
    }

    /// Looks at all interfaces: opens what can answer, closes what no longer can, takes over new names and
    /// hardware addresses. Whether anything changed.
    ///
    /// # Errors
    ///
    /// If the interfaces cannot be listed. Everything stays as it was then.
    pub(super) fn scan(&mut self, now: Time, netlink: &mut Netlink, poller: &Poller) -> Result<bool, Error> {
        let mut wanted: BTreeMap<IfIndex, Interface> = inspect::interfaces(netlink)?
            .into_iter()
            .filter(|found| can_answer(found) && !self.excluded.contains(found.name.as_str()))
            .filter_map(|found| {
                let mac = found.mac?;
                Some((
                    found.index,
                    Interface { index: found.index, name: found.name, mac, arp: true, link_local: None },
                ))
            })
            .collect();

        let mut changed = false;
        self.open.retain(|index, port| {
            let stays = wanted.contains_key(index);
            if !stays {
                changed = true;
                let interface = &port.interface.name;
                tracing::info!(event = "deleteARPResponder", %interface, "deleted ARP responder for interface");
            }
            stays
        });
        self.failed.retain(|index, _| wanted.contains_key(index));
        for (index, port) in &mut self.open {
            let Some(interface) = wanted.remove(index) else { continue };
            if port.interface != interface {
                tracing::info!(
                    event = "interfaceChanged",
                    interface = %interface.name,
                    from = %port.interface.mac,
                    to = %interface.mac,
                    "an interface changed"
                );
                port.interface = interface;
                changed = true;
            }
        }
        for interface in wanted.into_values() {
            if self.failed.get(&interface.index).is_none_or(|failure| failure.retry <= now) {
                changed |= self.open(now, interface, poller);
            }
        }
        Ok(changed)
    }

    /// Closes the port of an interface whose socket failed.
    pub(super) fn fail(&mut self, now: Time, index: IfIndex, cause: &std::io::Error) {
        if let Some(port) = self.open.remove(&index) {
            let interface = &port.interface.name;
            tracing::warn!(op = "receiveARP", %interface, error = %cause, "the socket failed; it is opened again");
            self.postpone(now, index);
        }
    }

    /// The sockets of all interfaces.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &PacketSocket> {
        self.open.values().map(|port| &port.socket)
    }

    /// The socket of an interface.
    pub(super) fn socket(&self, index: IfIndex) -> Option<&PacketSocket> {
        self.open.get(&index).map(|port| &port.socket)
    }

    /// The interfaces that can answer, by index.
    pub(super) fn interfaces(&self) -> Vec<Interface> {
        self.open.values().map(|port| port.interface.clone()).collect()
    }

    /// When an interface that failed is to be tried again.
    pub(super) fn next_retry(&self) -> Option<Time> {
        let closed = self.failed.iter().filter(|(index, _)| !self.open.contains_key(index));
        closed.map(|(_, failure)| failure.retry).min()
    }

    fn open(&mut self, now: Time, interface: Interface, poller: &Poller) -> bool {
        let opened = PacketSocket::open(interface.index, Frames::ArpRequests)
            .and_then(|socket| poller.add(&socket, interface.index.0.into()).map(|()| socket));
        match opened {
            Ok(socket) => {
                tracing::info!(
                    event = "createARPResponder",
                    interface = %interface.name,
                    "created ARP responder for interface"
                );
                self.open.insert(interface.index, Port { interface, socket });
                true
            }
            Err(error) => {
                tracing::error!(
                    op = "createARPResponder",
                    interface = %interface.name,
                    %error,
                    "failed to create ARP responder"
                );
                self.postpone(now, interface.index);
                false
            }
        }
    }

    /// The pause doubles while failures follow each other, and starts over when there was none for long.
    fn postpone(&mut self, now: Time, index: IfIndex) {
        let before = self.failed.get(&index).filter(|before| now.since(before.retry) < LONGEST_PAUSE);
        let pause = before.map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        self.failed.insert(index, Failure { retry: now + pause, pause });
    }
}

/// Whether ARP can be answered on an interface.
fn can_answer(interface: &inspect::Interface) -> bool {
    let ethernet = interface.mac.is_some_and(|mac| mac != Mac::ZERO);
    interface.up && interface.master.is_none() && !interface.noarp && interface.broadcast && ethernet
}

/// The pause after a first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause. An interface that worked for as long is trusted again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

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
            addresses: Vec::new(),
        }
    }

    #[test]
    fn an_interface_that_is_down_enslaved_or_without_arp_does_not_answer() {
        assert!(can_answer(&plain()));
        assert!(can_answer(&inspect::Interface { carrier: false, running: false, ..plain() }));
        for (what, interface) in [
            ("down", inspect::Interface { up: false, ..plain() }),
            ("a port of a bridge", inspect::Interface { master: Some(IfIndex(3)), ..plain() }),
            ("without ARP", inspect::Interface { noarp: true, ..plain() }),
            ("without broadcast", inspect::Interface { broadcast: false, ..plain() }),
            ("not Ethernet", inspect::Interface { mac: None, ..plain() }),
            ("without an address", inspect::Interface { mac: Some(Mac::ZERO), ..plain() }),
        ] {
            assert!(!can_answer(&interface), "{what}");
        }
    }

    #[test]
    fn a_failing_interface_is_tried_less_and_less_often_and_trusted_again_later() {
        let mut ports = Ports::new(Excluded::default());
        let mut now = Time::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            ports.postpone(now, IfIndex(2));
            let retry = ports.next_retry().unwrap();
            pauses.push(retry.since(now).as_millis());
            now = retry;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        ports.postpone(now + LONGEST_PAUSE, IfIndex(2));
        assert_eq!(ports.next_retry(), Some(now + LONGEST_PAUSE + FIRST_PAUSE));
    }
}

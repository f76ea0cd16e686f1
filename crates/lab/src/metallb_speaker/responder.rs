// SPDX-License-Identifier: Apache-2.0
//! The stand-in's responders: ARP (RFC 826) and neighbour advertisements (RFC 4861) as v0.16.1 sends them, on a thread of their own.
//!
//! Interfaces are looked at every ten seconds. A responder that comes later neither repeats an announcement nor joins the groups
//! of addresses that are announced already: so does v0.16.1.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ferrolb_linux::packet::Frames;
use ferrolb_linux::{Netlink, PacketSocket, Poller, Waker, inspect};
use ferrolb_net_types::{IfIndex, InterfaceName, Interfaces, Mac, ServiceKey};
use regex::Regex;
use serde::Deserialize;
use serde_json::json;
use socket2::{Domain, Protocol, Socket, Type};

use super::log;

/// The way to the thread.
pub(super) struct Responder {
    orders: Sender<Order>,
    waker: Waker,
    /// Every interface that is not excluded, whatever its state.
    local: Arc<Mutex<BTreeSet<InterfaceName>>>,
}

enum Order {
    Register(ServiceKey, IpAddr, Interfaces),
    Unregister(ServiceKey),
}

impl Responder {
    /// Looks at the interfaces and answers from now on for what is registered.
    ///
    /// # Errors
    /// The excluded interfaces cannot be read, or a poller not be made.
    pub(super) fn start() -> Result<Self> {
        let excluded = excluded()?;
        let (orders, inbox) = channel();
        let poller = Poller::new()?;
        let waker = poller.waker();
        let local = Arc::new(Mutex::new(BTreeSet::new()));
        let mut thread = Thread {
            inbox,
            excluded,
            local: Arc::clone(&local),
            registered: BTreeMap::new(),
            bursts: BTreeMap::new(),
            tick: None,
            ports: BTreeMap::new(),
        };
        thread.scan(&poller);
        std::thread::Builder::new().name("responder".to_owned()).spawn(move || thread.run(poller))?;
        Ok(Self { orders, waker, local })
    }

    /// Whether any of the interfaces exists here.
    pub(super) fn has_any(&self, interfaces: &Interfaces) -> bool {
        let local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        match interfaces {
            Interfaces::All => true,
            Interfaces::Named(names) => names.iter().any(|name| local.contains(name)),
        }
    }

    /// Answers for the address, and announces it, whether it did before or not.
    pub(super) fn register(&self, service: &ServiceKey, address: IpAddr, interfaces: &Interfaces) {
        self.order(Order::Register(service.clone(), address, interfaces.clone()));
    }

    /// Forgets the Service's addresses.
    pub(super) fn unregister(&self, service: &ServiceKey) {
        self.order(Order::Unregister(service.clone()));
    }

    fn order(&self, order: Order) {
        if self.orders.send(order).is_ok() {
            self.waker.wake();
        }
    }
}

struct Thread {
    inbox: Receiver<Order>,
    excluded: Option<Regex>,
    local: Arc<Mutex<BTreeSet<InterfaceName>>>,
    registered: BTreeMap<ServiceKey, BTreeMap<IpAddr, Interfaces>>,
    /// Until when each address is announced again at every tick, and where.
    bursts: BTreeMap<IpAddr, (Instant, Interfaces)>,
    tick: Option<Instant>,
    ports: BTreeMap<IfIndex, Port>,
}

/// An interface with its responders.
struct Port {
    name: InterfaceName,
    mac: Mac,
    arp: Option<PacketSocket>,
    ndp: Option<Neighbours>,
}

impl Thread {
    fn run(mut self, mut poller: Poller) {
        let mut scan = Instant::now() + SCAN;
        loop {
            let until = self.tick.map_or(scan, |tick| tick.min(scan));
            let ready: Vec<u64> = match poller.wait(Some(until)) {
                Ok(tokens) => tokens.collect(),
                Err(_) => return,
            };
            while let Ok(order) = self.inbox.try_recv() {
                self.obey(order);
            }
            for token in ready {
                self.receive(token);
            }
            let now = Instant::now();
            if self.tick.is_some_and(|tick| tick <= now) {
                self.tick(now);
            }
            if scan <= now {
                self.scan(&poller);
                scan = Instant::now() + SCAN;
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Register(service, address, interfaces) => {
                if self.count(address) == 0 {
                    self.join_groups(address, true);
                }
                self.registered.entry(service).or_default().insert(address, interfaces.clone());
                let now = Instant::now();
                let fresh = !self.bursts.contains_key(&address);
                self.bursts.insert(address, (now + BURST, interfaces.clone()));
                if fresh {
                    self.announce(address, &interfaces);
                }
                self.tick.get_or_insert(now + GAP);
            }
            Order::Unregister(service) => {
                for address in self.registered.remove(&service).unwrap_or_default().into_keys() {
                    if self.count(address) == 0 {
                        self.join_groups(address, false);
                    }
                }
            }
        }
    }

    fn count(&self, address: IpAddr) -> usize {
        self.registered.values().filter(|own| own.contains_key(&address)).count()
    }

    fn tick(&mut self, now: Instant) {
        self.bursts.retain(|_, (until, _)| *until > now);
        for (address, (_, interfaces)) in self.bursts.clone() {
            if self.count(address) > 0 {
                self.announce(address, &interfaces);
            }
        }
        self.tick = (!self.bursts.is_empty()).then(|| now + GAP);
    }

    fn announce(&self, address: IpAddr, interfaces: &Interfaces) {
        for port in self.ports.values().filter(|port| interfaces.covers(port.name.as_str())) {
            match (address, &port.arp, &port.ndp) {
                (IpAddr::V4(address), Some(arp), _) => {
                    for operation in [REQUEST, REPLY] {
                        let frame = arp_frame(
                            Mac::BROADCAST,
                            port.mac,
                            operation,
                            address,
                            (Mac::BROADCAST, address),
                        );
                        // A frame that cannot be sent is one that is lost; the next round comes.
                        let _ = arp.send(&frame);
                    }
                }
                (IpAddr::V6(address), _, Some(ndp)) => ndp.announce(address, port.mac),
                _ => {}
            }
        }
    }

    fn covers(&self, address: IpAddr, interface: &str) -> bool {
        self.registered.values().filter_map(|own| own.get(&address)).any(|own| own.covers(interface))
    }

    fn receive(&self, token: u64) {
        let index = IfIndex(u32::try_from(token / 2).unwrap_or(0));
        let Some(port) = self.ports.get(&index) else { return };
        let mut buffer = [0; 1500];
        if token.is_multiple_of(2) {
            let Some(arp) = &port.arp else { return };
            while let Ok(Some(received)) = arp.receive(&mut buffer) {
                let frame = buffer.get(..received.length).unwrap_or_default();
                if let Some((mac, asker, target)) = arp_request(frame, port.mac)
                    && self.covers(target.into(), port.name.as_str())
                {
                    let _ = arp.send(&arp_frame(mac, port.mac, REPLY, target, (mac, asker)));
                }
            }
        } else if let Some(ndp) = &port.ndp {
            while let Ok((length, source)) = ndp.socket.recv_from(&mut buffer) {
                let SocketAddr::V6(source) = source else { continue };
                let message = buffer.get(..length).unwrap_or_default();
                if *source.ip() != ndp.own
                    && let Some(target) = solicitation(message)
                    && self.covers(target.into(), port.name.as_str())
                {
                    ndp.answer(source, target, port.mac);
                }
            }
        }
    }

    /// Looks at every interface: responders come and go.
    fn scan(&mut self, poller: &Poller) {
        let found = Netlink::open().and_then(|mut netlink| inspect::interfaces(&mut netlink));
        let Ok(found) = found else { return };
        let mut local = BTreeSet::new();
        let mut present = BTreeSet::new();
        for interface in found {
            if self.excluded.as_ref().is_some_and(|excluded| excluded.is_match(interface.name.as_str())) {
                continue;
            }
            local.insert(interface.name.clone());
            let usable = interface.up && interface.master.is_none() && !interface.noarp;
            let (Some(mac), true) = (interface.mac, usable) else { continue };
            present.insert(interface.index);
            let index = interface.index;
            let port = self.ports.entry(index).or_insert_with(|| Port {
                name: interface.name.clone(),
                mac,
                arp: None,
                ndp: None,
            });
            if interface.broadcast && port.arp.is_none() {
                let opened = PacketSocket::open(index, Frames::ArpRequests);
                match opened.and_then(|socket| poller.add(&socket, u64::from(index.0) * 2).map(|()| socket)) {
                    Ok(socket) => port.arp = Some(socket),
                    Err(error) => {
                        log("error", "failed to create ARP responder", &json!({"error": error.to_string()}));
                        continue;
                    }
                }
            }
            if let (Some(own), None) = (interface.link_local(), &port.ndp) {
                match Neighbours::open(own, index, poller) {
                    Ok(ndp) => port.ndp = Some(ndp),
                    Err(error) => {
                        log("error", "failed to create NDP responder", &json!({"error": error.to_string()}));
                    }
                }
            }
        }
        self.ports.retain(|index, _| present.contains(index));
        *self.local.lock().unwrap_or_else(PoisonError::into_inner) = local;
    }

    fn join_groups(&self, address: IpAddr, join: bool) {
        let IpAddr::V6(address) = address else { return };
        for ndp in self.ports.values().filter_map(|port| port.ndp.as_ref()) {
            ndp.group(address, join);
        }
    }
}

/// A socket for ICMPv6 on an interface's link-local address.
struct Neighbours {
    socket: UdpSocket,
    own: Ipv6Addr,
    index: IfIndex,
    /// How many addresses share each group.
    groups: Mutex<BTreeMap<Ipv6Addr, usize>>,
}

impl Neighbours {
    fn open(own: Ipv6Addr, index: IfIndex, poller: &Poller) -> Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.set_nonblocking(true)?;
        // RFC 4861, section 4.4: the hop limit is 255.
        socket.set_unicast_hops_v6(255)?;
        socket.set_multicast_hops_v6(255)?;
        socket.set_multicast_loop_v6(false)?;
        socket.set_multicast_if_v6(index.0)?;
        socket.bind(&SocketAddrV6::new(own, 0, 0, index.0).into())?;
        // A raw socket is received from and sent to just as one for UDP is; the kernel adds the checksum.
        let socket = UdpSocket::from(socket);
        poller.add(&socket, u64::from(index.0) * 2 + 1)?;
        Ok(Self { socket, own, index, groups: Mutex::default() })
    }

    fn group(&self, address: Ipv6Addr, join: bool) {
        let [.., a, b, c] = address.octets();
        let low = u16::from_be_bytes([b, c]);
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), low);
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let count = groups.entry(group).or_default();
        let done = if join {
            *count += 1;
            if *count == 1 { self.socket.join_multicast_v6(&group, self.index.0) } else { Ok(()) }
        } else {
            *count = count.saturating_sub(1);
            if *count == 0 { self.socket.leave_multicast_v6(&group, self.index.0) } else { Ok(()) }
        };
        if let Err(error) = done {
            log("error", "failed to watch NDP multicast group for IP", &json!({"error": error.to_string()}));
        }
    }

    fn answer(&self, to: SocketAddrV6, target: Ipv6Addr, mac: Mac) {
        let _ = self.socket.send_to(&advertisement(SOLICITED, target, mac), to);
    }

    fn announce(&self, target: Ipv6Addr, mac: Mac) {
        let everybody = SocketAddrV6::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0, 0, self.index.0);
        let _ = self.socket.send_to(&advertisement(OVERRIDE, target, mac), everybody);
    }
}

/// Who asks for what in an ARP request to everybody or to this hardware address.
fn arp_request(frame: &[u8], own: Mac) -> Option<(Mac, Ipv4Addr, Ipv4Addr)> {
    let mac = |at: usize| Some(Mac(frame.get(at..at + 6)?.try_into().ok()?));
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(frame.get(at..at + 4)?).ok()?));
    let destination = mac(0)?;
    // Lengths 6 and 4, operation 1; hardware and protocol type are not looked at.
    let request = frame.get(12..14)? == [0x08, 0x06] && frame.get(18..22)? == [6, 4, 0, 1];
    (request && (destination == Mac::BROADCAST || destination == own)).then_some((
        mac(22)?,
        address(28)?,
        address(38)?,
    ))
}

/// A frame of 60 bytes in which `own` says that `address` is its.
fn arp_frame(to: Mac, own: Mac, operation: u8, address: Ipv4Addr, target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let header = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, operation];
    let (mac, asker) = (target.0.0, target.1.octets());
    [&to.0[..], &own.0, &header, &own.0, &address.octets(), &mac, &asker, &[0; 18]].concat()
}

/// The target of a Neighbor Solicitation with a source link-layer address (RFC 4861, sections 4.3 and 4.6.1).
fn solicitation(message: &[u8]) -> Option<Ipv6Addr> {
    let target = <[u8; 16]>::try_from(message.get(8..24)?).ok()?;
    let mut options = message.get(24..)?;
    let mut has_source = false;
    while let [kind, length, ..] = options {
        has_source |= *kind == 1;
        let length = usize::from(*length) * 8;
        options = options.get(length..).filter(|_| length > 0)?;
    }
    (message.first() == Some(&135) && has_source).then(|| target.into())
}

/// A Neighbor Advertisement of 32 bytes with these flags and a target link-layer address (RFC 4861, section 4.4).
fn advertisement(flags: u8, target: Ipv6Addr, mac: Mac) -> Vec<u8> {
    [&[136, 0, 0, 0, flags, 0, 0, 0][..], &target.octets(), &[2, 1], &mac.0].concat()
}

/// The pattern of `/etc/metallb/excludel2.yaml`, if there is one.
fn excluded() -> Result<Option<Regex>> {
    #[derive(Deserialize)]
    struct Document {
        #[serde(rename = "announcedInterfacesToExclude", default)]
        patterns: Vec<String>,
    }
    let text = match std::fs::read_to_string("/etc/metallb/excludel2.yaml") {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let document: Document = serde_saphyr::from_str(&text)
        .context("failed to parse announcedInterfacesToExclude from configMap")?;
    if document.patterns.is_empty() {
        return Ok(None);
    }
    let patterns: Vec<String> = document.patterns.iter().map(|pattern| format!("({pattern})")).collect();
    Ok(Some(Regex::new(&patterns.join("|"))?))
}

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const GAP: Duration = Duration::from_millis(1100);
const BURST: Duration = Duration::from_secs(5);
const SCAN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = Mac([0x02, 0, 0, 0, 0, 1]);
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    #[test]
    fn a_gratuitous_request_is_the_recorded_one() {
        let frame = arp_frame(Mac::BROADCAST, OWN, REQUEST, ADDRESS, (Mac::BROADCAST, ADDRESS));
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected =
            "ffffffffffff020000000001080600010800060400010200 00000001c0000201ffffffffffffc0000201";
        assert_eq!(hex, expected.replace(' ', "") + &"00".repeat(18));
    }

    #[test]
    fn only_requests_to_everybody_or_to_the_interface_are_looked_at() {
        let asker = Mac([0x02, 0, 0, 0, 0, 9]);
        let to = |destination: Mac, operation: u8| {
            let mut frame =
                arp_frame(destination, asker, operation, [192, 0, 2, 9].into(), (Mac::ZERO, ADDRESS));
            frame.truncate(42);
            arp_request(&frame, OWN)
        };
        let understood = Some((asker, Ipv4Addr::new(192, 0, 2, 9), ADDRESS));
        assert_eq!(to(Mac::BROADCAST, REQUEST), understood);
        assert_eq!(to(OWN, REQUEST), understood);
        assert_eq!(to(Mac([2, 0, 0, 0, 0, 7]), REQUEST), None);
        assert_eq!(to(Mac::BROADCAST, REPLY), None);
        assert_eq!(arp_request(&[0; 20], OWN), None);
    }

    #[test]
    fn a_solicitation_needs_its_source() {
        let target: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let message = |options: &[u8]| [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets(), options].concat();
        assert_eq!(solicitation(&message(&[1, 1, 2, 0, 0, 0, 0, 9])), Some(target));
        assert_eq!(solicitation(&message(&[14, 1, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 9])), Some(target));
        assert_eq!(solicitation(&message(&[])), None);
        assert_eq!(solicitation(&message(&[1, 0, 0, 0])), None);
        assert_eq!(advertisement(SOLICITED, target, OWN).len(), 32);
    }
}

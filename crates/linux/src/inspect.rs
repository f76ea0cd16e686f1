// SPDX-License-Identifier: Apache-2.0
//! What a network namespace looks like now: its interfaces with their addresses, and its neighbour table.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use ferrolb_net_types::{IfIndex, InterfaceName, Mac};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};

use crate::error::Result;
use crate::netlink::Netlink;

pub use netlink_packet_route::neighbour::NeighbourState;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: IfIndex,
    /// Its name.
    pub name: InterfaceName,
    /// Its hardware address; `None` if it has none of six bytes.
    pub mac: Option<Mac>,
    /// Administratively up (IFF_UP).
    pub up: bool,
    /// Has a carrier (IFF_LOWER_UP).
    pub carrier: bool,
    /// Operational (IFF_RUNNING); before, what is sent may be lost.
    pub running: bool,
    /// Can broadcast (IFF_BROADCAST).
    pub broadcast: bool,
    /// Does no ARP (IFF_NOARP).
    pub noarp: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// The bridge, bond or VRF it is a port of.
    pub master: Option<IfIndex>,
    /// Its addresses with the lengths of their networks, in the kernel's order.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Those of its addresses that nothing may be sent from: still looked for on the segment, or found there (RFC 4862
    /// section 5.4).
    pub tentative: Vec<IpAddr>,
}

impl Interface {
    /// The first IPv6 link-local address that can be used.
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        self.addresses.iter().find_map(|(address, _)| match address {
            IpAddr::V6(v6) if v6.is_unicast_link_local() && !self.tentative.contains(address) => Some(*v6),
            _ => None,
        })
    }
}

/// An entry of the neighbour table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface it is on.
    pub index: IfIndex,
    /// Its network address.
    pub address: IpAddr,
    /// Its hardware address; `None` while unknown.
    pub mac: Option<Mac>,
    /// How far the kernel trusts it.
    pub state: NeighbourState,
}

/// All interfaces of the socket's namespace, by index.
///
/// An interface that cannot be read is left out and hides no other.
///
/// # Errors
///
/// If the kernel does not answer.
pub fn interfaces(netlink: &mut Netlink) -> Result<Vec<Interface>> {
    let mut found: BTreeMap<u32, Interface> = BTreeMap::new();
    let links = RouteNetlinkMessage::GetLink(LinkMessage::default());
    netlink.dump(&links, &mut found, BTreeMap::clear, |found, row| {
        if let RouteNetlinkMessage::NewLink(link) = row
            && let Some(interface) = interface(&link)
        {
            found.insert(link.header.index, interface);
        }
    })?;
    let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let forget = |found: &mut BTreeMap<u32, Interface>| {
        for interface in found.values_mut() {
            interface.addresses.clear();
            interface.tentative.clear();
        }
    };
    netlink.dump(&addresses, &mut found, forget, |found, row| {
        if let RouteNetlinkMessage::NewAddress(message) = row
            && let Some(interface) = found.get_mut(&message.header.index)
            && let Some(address) = address(&message)
        {
            interface.addresses.push((address, message.header.prefix_len));
            if is_tentative(&message) {
                interface.tentative.push(address);
            }
        }
    })?;
    Ok(found.into_values().collect())
}

/// The addresses of the interface that has this one, itself among them, in the kernel's order and without those that
/// nothing may be sent from; none if no interface has it. An address that several have, a link-local one, is looked for
/// on the interface that is named.
///
/// # Errors
///
/// If the kernel does not answer.
pub fn beside(netlink: &mut Netlink, address: IpAddr, on: Option<IfIndex>) -> Result<Vec<IpAddr>> {
    let mut found: Vec<(IfIndex, IpAddr)> = Vec::new();
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    netlink.dump(&request, &mut found, Vec::clear, |found, row| {
        if let RouteNetlinkMessage::NewAddress(message) = row
            && !is_tentative(&message)
            && let Some(address) = self::address(&message)
        {
            found.push((IfIndex(message.header.index), address));
        }
    })?;
    let named = |index: &IfIndex| on.is_none_or(|on| on == *index);
    let index = found.iter().find(|(index, own)| *own == address && named(index)).map(|(index, _)| *index);
    Ok(found.into_iter().filter(|(other, _)| Some(*other) == index).map(|(_, address)| address).collect())
}

/// The neighbour table of the socket's namespace, both families.
///
/// # Errors
///
/// If the kernel does not answer.
pub fn neighbours(netlink: &mut Netlink) -> Result<Vec<Neighbour>> {
    let mut found = Vec::new();
    let request = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
    netlink.dump(&request, &mut found, Vec::clear, |found, row| {
        if let RouteNetlinkMessage::NewNeighbour(message) = row {
            found.extend(neighbour(&message));
        }
    })?;
    Ok(found)
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    let flags = link.header.flags;
    let mut name = None;
    let mut mac = None;
    let mut master = None;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(InterfaceName::from(text.as_str())),
            LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().ok().map(Mac),
            LinkAttribute::Controller(index) if *index != 0 => master = Some(IfIndex(*index)),
            _ => {}
        }
    }
    Some(Interface {
        index: IfIndex(link.header.index),
        name: name?,
        mac,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        running: flags.contains(LinkFlags::Running),
        broadcast: flags.contains(LinkFlags::Broadcast),
        noarp: flags.contains(LinkFlags::Noarp),
        loopback: flags.contains(LinkFlags::Loopback),
        master,
        addresses: Vec::new(),
        tentative: Vec::new(),
    })
}

/// On a point-to-point link `Address` is the other side's and `Local` the own; elsewhere IPv6 has no `Local`.
fn address(message: &AddressMessage) -> Option<IpAddr> {
    let mut own = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => return Some(*address),
            AddressAttribute::Address(address) => own = Some(*address),
            _ => {}
        }
    }
    own
}

/// An address that failed the check stays tentative, with a flag more. One that may be used before the check is over
/// (RFC 4429) is not.
fn is_tentative(message: &AddressMessage) -> bool {
    let flags = message.header.flags;
    flags.intersects(AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed)
        && !flags.contains(AddressHeaderFlags::Optimistic)
}

fn neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
    let mut address = None;
    let mut mac = None;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok().map(Mac),
            _ => {}
        }
    }
    Some(Neighbour {
        index: IfIndex(message.header.ifindex),
        address: address?,
        mac,
        state: message.header.state,
    })
}

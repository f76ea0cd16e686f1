// SPDX-License-Identifier: Apache-2.0
//! Cables, switches, addresses and routes of network namespaces.
//!
//! A veth pair is made straight into its two namespaces, with final names and hardware addresses, so that no
//! half-made interface is ever seen. The other calls act on the namespace of the [`Netlink`] socket.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use ferrolb_net_types::{Mac, Prefix};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::{Attempt, Error, Result};
use crate::inspect;
use crate::netlink::Netlink;
use crate::netns::Namespace;

/// One end of a cable.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Where it is.
    pub namespace: &'a Namespace,
    /// The interface's name there, at most 15 bytes.
    pub name: &'a str,
    /// Its hardware address; the kernel's choice if `None`.
    pub mac: Option<Mac>,
}

/// Makes a veth pair, down at both ends.
///
/// # Errors
///
/// `AlreadyExists` if a name is taken in its namespace.
pub fn create_veth(one: VethEnd<'_>, other: VethEnd<'_>) -> Result<()> {
    let words = || {
        let (a, b) = (one.namespace.name(), other.namespace.name());
        format!("connect {} in {a} with {} in {b}", one.name, other.name)
    };
    let peer = InfoData::Veth(InfoVeth::Peer(veth_end(&other)));
    let mut message = veth_end(&one);
    message
        .attributes
        .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(peer)]));
    Netlink::open()?
        .change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
        .attempting(words)
}

fn veth_end(end: &VethEnd<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(end.name.to_owned()));
    message.attributes.push(LinkAttribute::NetNsFd(end.namespace.as_fd().as_raw_fd()));
    message.attributes.extend(end.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
    message
}

impl Netlink {
    /// Makes a bridge, down, without spanning tree, multicast snooping and forward delay.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the name is taken.
    pub fn create_bridge(&mut self, name: &str) -> Result<()> {
        let data = InfoData::Bridge(vec![
            InfoBridge::StpState(BridgeStpState::Disabled),
            InfoBridge::MulticastSnooping(false),
            InfoBridge::ForwardDelay(0),
        ]);
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        message
            .attributes
            .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge), LinkInfo::Data(data)]));
        self.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
            .attempting(|| format!("make the bridge {name}"))
    }

    /// Sets an interface up.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none of this name.
    pub fn set_up(&mut self, name: &str) -> Result<()> {
        let index = self.index(name)?;
        self.change_link(index, |message| message.header.flags = LinkFlags::Up)
            .attempting(|| format!("set {name} up"))
    }

    /// Sets an interface down.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none of this name.
    pub fn set_down(&mut self, name: &str) -> Result<()> {
        let index = self.index(name)?;
        self.change_link(index, |_| {}).attempting(|| format!("set {name} down"))
    }

    /// Plugs an interface into a bridge, or out of any if `None`.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none of one name.
    pub fn set_master(&mut self, name: &str, master: Option<&str>) -> Result<()> {
        let index = self.index(name)?;
        let master_index = master.map_or(Ok(0), |master| self.index(master))?;
        let message = link_message(index, LinkAttribute::Controller(master_index));
        self.change(RouteNetlinkMessage::SetLink(message), 0)
            .attempting(|| format!("plug {name} into {}", master.unwrap_or("nothing")))
    }

    /// Gives an interface another hardware address.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none of this name; whatever its driver says.
    pub fn set_mac(&mut self, name: &str, mac: Mac) -> Result<()> {
        let index = self.index(name)?;
        let message = link_message(index, LinkAttribute::Address(mac.0.to_vec()));
        self.change(RouteNetlinkMessage::SetLink(message), 0)
            .attempting(|| format!("give {name} the hardware address {mac}"))
    }

    /// Removes an interface; with a veth, both ends.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none of this name.
    pub fn delete_link(&mut self, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        self.change(RouteNetlinkMessage::DelLink(message), 0).attempting(|| format!("remove {name}"))
    }

    /// Gives an interface an address with the length of its network; IPv6 without duplicate address detection.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if it has the address; `NotFound` if there is no such interface.
    pub fn add_address(&mut self, name: &str, address: IpAddr, length: u8) -> Result<()> {
        let message = self.address_message(name, address, length)?;
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
            .attempting(|| format!("give {name} the address {address}/{length}"))
    }

    /// Takes an address from an interface.
    ///
    /// # Errors
    ///
    /// `AddrNotAvailable` if it does not have it.
    pub fn delete_address(&mut self, name: &str, address: IpAddr, length: u8) -> Result<()> {
        let message = self.address_message(name, address, length)?;
        self.change(RouteNetlinkMessage::DelAddress(message), 0)
            .attempting(|| format!("take the address {address}/{length} from {name}"))
    }

    /// Sets the route to a network by way of a neighbour, replacing an earlier one.
    ///
    /// # Errors
    ///
    /// `NetworkUnreachable` if the neighbour is on no connected network.
    pub fn add_route(&mut self, destination: Prefix, gateway: IpAddr) -> Result<()> {
        let mut message = route_message(destination);
        message.attributes.push(RouteAttribute::Gateway(RouteAddress::from(gateway)));
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
            .attempting(|| format!("route {destination} via {gateway}"))
    }

    /// Removes the route to a network.
    ///
    /// # Errors
    ///
    /// ESRCH if there is none.
    pub fn delete_route(&mut self, destination: Prefix) -> Result<()> {
        let mut message = route_message(destination);
        message.header.scope = RouteScope::NoWhere; // whichever it has
        self.change(RouteNetlinkMessage::DelRoute(message), 0)
            .attempting(|| format!("remove the route to {destination}"))
    }

    /// Forgets what the kernel learnt about a neighbour.
    ///
    /// # Errors
    ///
    /// `NotFound` if it knows nothing about it.
    pub fn delete_neighbour(&mut self, name: &str, address: IpAddr) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family_of(address);
        message.header.ifindex = self.index(name)?;
        message.attributes.push(NeighbourAttribute::Destination(address.into()));
        self.change(RouteNetlinkMessage::DelNeighbour(message), 0)
            .attempting(|| format!("forget the neighbour {address} on {name}"))
    }

    /// The index of an interface in this socket's namespace, which need not be the calling thread's.
    fn index(&mut self, name: &str) -> Result<u32> {
        let found = inspect::interfaces(self)?.into_iter().find(|interface| interface.name.as_str() == name);
        found.map(|interface| interface.index.0).ok_or_else(|| {
            Error::new(format!("find the interface {name}"), std::io::Error::from_raw_os_error(libc::ENODEV))
        })
    }

    fn change_link(&mut self, index: u32, edit: impl FnOnce(&mut LinkMessage)) -> std::io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.change_mask = LinkFlags::Up;
        edit(&mut message);
        self.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    fn address_message(&mut self, name: &str, address: IpAddr, length: u8) -> Result<AddressMessage> {
        let mut message = AddressMessage::default();
        message.header.family = family_of(address);
        message.header.prefix_len = length;
        message.header.index = self.index(name)?;
        message.header.scope =
            if address.is_loopback() { AddressScope::Host } else { AddressScope::Universe };
        message.attributes.push(AddressAttribute::Local(address));
        message.attributes.push(AddressAttribute::Address(address));
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        Ok(message)
    }
}

fn link_message(index: u32, attribute: LinkAttribute) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(attribute);
    message
}

fn route_message(destination: Prefix) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family_of(destination.first());
    message.header.destination_prefix_length = destination.length();
    message.header.table = netlink_packet_route::route::RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    if destination.length() > 0 {
        message.attributes.push(RouteAttribute::Destination(RouteAddress::from(destination.first())));
    }
    message
}

fn family_of(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

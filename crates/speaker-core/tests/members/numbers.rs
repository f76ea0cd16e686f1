// SPDX-License-Identifier: Apache-2.0
//! What hosts, their interfaces and the addresses that are announced are called, by their numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferrolb_net_types::{IfIndex, Mac, NodeName};

pub(crate) fn name(node: usize) -> NodeName {
    format!("n{node}").as_str().into()
}

pub(crate) fn address(node: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0a00_0001 + u32::try_from(node).unwrap())), 7946)
}

/// The same of a node whose addresses are IPv6.
pub(crate) fn address6(node: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::from(0xfd00_u128 << 112 | (1 + node as u128))), 7946)
}

/// Where the node is on another of its networks.
pub(crate) fn other_address(node: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0a01_0001 + u32::try_from(node).unwrap())), 7946)
}

pub(crate) fn vip(number: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0xc0a8_0a64 + u32::try_from(number).unwrap()))
}

pub(crate) fn vip6(number: usize) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(0x2001_0db8_u128 << 96 | (0x100 + number as u128)))
}

pub(crate) fn mac(node: usize) -> Mac {
    mac_on(0, node)
}

/// The node's hardware address on a segment.
pub(crate) fn mac_on(segment: usize, node: usize) -> Mac {
    Mac([2, 0, 0, 0, u8::try_from(segment).unwrap(), u8::try_from(node).unwrap()])
}

pub(crate) fn interface(segment: usize) -> IfIndex {
    IfIndex(2 + u32::try_from(segment).unwrap())
}

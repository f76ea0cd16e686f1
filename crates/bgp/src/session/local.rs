// SPDX-License-Identifier: Apache-2.0
//! The own end of a connection: who this speaker is, and where its routes lead.

use std::net::{IpAddr, Ipv4Addr};

use ferrolb_net_types::canonical;

use crate::route::NextHops;
use crate::wire::RouterId;

/// The own end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The BGP Identifier.
    pub router_id: RouterId,
    /// Where routes lead.
    pub next_hops: NextHops,
}

impl Local {
    /// The own end of a connection from this address of the node.
    ///
    /// The identifier is the one that is configured; else the connection's own IPv4 address; else the first IPv4
    /// address of its interface; else a number made from the node's name. Routes lead to the connection's own address;
    /// those of the other family to the first address of it that the interface has.
    ///
    /// `interface` are the addresses of the interface, in the kernel's order.
    #[must_use]
    pub fn new(address: IpAddr, interface: &[IpAddr], configured: Option<RouterId>, node: &str) -> Self {
        let all = || std::iter::once(&address).chain(interface).map(|address| canonical(*address));
        let v4 = all().find_map(|address| match address {
            IpAddr::V4(v4) if !v4.is_unspecified() => Some(v4),
            _ => None,
        });
        let v6 = |link_local: bool| {
            all().find_map(|address| match address {
                IpAddr::V6(v6) if v6.is_unicast_link_local() == link_local => Some(v6),
                _ => None,
            })
        };
        // On the link itself, RFC 2545, section 3, has both; a link that has no other address has that one alone.
        let on_link = match canonical(address) {
            IpAddr::V6(v6) => v6.is_unicast_link_local().then_some(v6),
            IpAddr::V4(_) => None,
        };
        let global = v6(false).or(on_link);
        Self {
            router_id: configured.or_else(|| v4.and_then(RouterId::new)).unwrap_or_else(|| from_name(node)),
            next_hops: NextHops {
                v4,
                v6: global.map(|global| (global, on_link.filter(|own| *own != global))),
            },
        }
    }
}

/// The identifier of a node without IPv4, from its name, as MetalLB makes it: CRC-32, lowest octet first.
fn from_name(node: &str) -> RouterId {
    let octets = crc32(node.as_bytes()).to_le_bytes();
    // One name in four thousand million gives 0, which is no identifier.
    RouterId::new(Ipv4Addr::from_octets(octets)).unwrap_or(RouterId::LAST)
}

/// CRC-32 as in IEEE 802.3, bit by bit: names are short.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv6Addr;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn local(address: &str, interface: &[&str], configured: Option<&str>) -> (String, Vec<String>) {
        let interface: Vec<IpAddr> = interface.iter().map(|text| ip(text)).collect();
        let configured = configured.and_then(|text| RouterId::new(text.parse().unwrap()));
        let Local { router_id, next_hops } = Local::new(ip(address), &interface, configured, "node1");
        let v6 = next_hops
            .v6
            .into_iter()
            .flat_map(|(global, link_local)| std::iter::once(global).chain(link_local).map(IpAddr::V6));
        let hops = next_hops.v4.map(IpAddr::V4).into_iter().chain(v6).map(|ip| ip.to_string());
        (router_id.to_string(), hops.collect())
    }

    #[test]
    fn the_identifier_and_the_next_hops_of_a_connection() {
        let both = ["192.168.10.20", "fe80::20", "fd00:10::20"];
        for (what, address, interface, configured, id, hops) in [
            (
                "its own IPv4 address",
                "192.168.10.120",
                &both[..],
                None,
                "192.168.10.120",
                &["192.168.10.120", "fd00:10::20"][..],
            ),
            (
                "an IPv4-mapped one",
                "::ffff:192.168.10.20",
                &both,
                None,
                "192.168.10.20",
                &["192.168.10.20", "fd00:10::20"],
            ),
            (
                "the interface's IPv4 address",
                "fd00:10::20",
                &both,
                None,
                "192.168.10.20",
                &["192.168.10.20", "fd00:10::20"],
            ),
            (
                "the one configured",
                "192.168.10.20",
                &both,
                Some("10.10.10.1"),
                "10.10.10.1",
                &["192.168.10.20", "fd00:10::20"],
            ),
            (
                "BG-33 the node's name",
                "fd00:10::20",
                &["fd00:10::20"],
                None,
                "64.37.239.133",
                &["fd00:10::20"],
            ),
            (
                "on the link",
                "fe80::20",
                &both,
                None,
                "192.168.10.20",
                &["192.168.10.20", "fd00:10::20", "fe80::20"],
            ),
            ("on a link of its own", "fe80::20", &["fe80::20"], None, "64.37.239.133", &["fe80::20"]),
            (
                "no IPv6",
                "192.168.10.20",
                &["192.168.10.20", "fe80::20"],
                None,
                "192.168.10.20",
                &["192.168.10.20"],
            ),
        ] {
            let (found, addresses) = local(address, interface, configured);
            assert_eq!(
                (found.as_str(), &addresses[..]),
                (id, &hops.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
                "{what}"
            );
        }
    }

    #[test]
    fn bg_33_names_give_the_identifiers_that_metallb_gives_them_and_no_two_the_same() {
        for (name, id) in
            [("node1", "64.37.239.133"), ("kind-worker", "192.61.154.117"), ("a", "67.190.183.232")]
        {
            assert_eq!(from_name(name).to_string(), id);
        }
        let names = (0..5000).map(|n| format!("ip-10-{}-{}.eu-central-1.compute.internal", n / 250, n % 250));
        assert_eq!(names.map(|name| from_name(&name)).collect::<BTreeSet<_>>().len(), 5000);
    }

    #[test]
    fn no_address_at_all_still_gives_an_identifier() {
        let empty = Local::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), &[], None, "");
        assert_eq!(empty.router_id.to_string(), "255.255.255.255");
    }
}

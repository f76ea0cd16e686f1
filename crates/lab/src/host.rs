// SPDX-License-Identifier: Apache-2.0
//! The hosts of the bench: who stands on the segment, with which addresses, MACs and role.
//!
//! ```text
//!  outside .10-.13 ── 192.168.30.0/24 ── eth2 [router] eth1 ── 192.168.10.0/24 ── br0 in [switch]
//!                                          .1        .1          ├── client        .50 ens18
//!                                                                ├── k8s-master-1  .17 ens18 ── Pods 172.20.0.0/24
//!                                                                ├── k8s-node-1    .20 ens18 ── Pods 172.20.1.0/24
//!                                                                └── k8s-node-2    .21 ens18 ── Pods 172.20.2.0/24
//! ```
//!
//! Client and nodes have a second interface, ens19, with the same last bytes on a segment of its own: 192.168.40.0/24 on br1.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ferrolb_net_types::Mac;
use serde::Serialize;

/// A host of the bench.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Host {
    /// A laptop on the segment.
    Client,
    /// The control plane; excluded from external load balancers.
    Master1,
    /// A worker.
    Node1,
    /// A worker.
    Node2,
    /// The way to the other network; `eth1` on the segment, `eth2` outside.
    Router,
    /// Clients behind the router; one host with four addresses.
    Outside,
}

impl Host {
    /// Every host, in the order of the picture.
    pub const ALL: [Self; 6] =
        [Self::Client, Self::Master1, Self::Node1, Self::Node2, Self::Router, Self::Outside];
    /// The nodes of the cluster.
    pub const NODES: [Self; 3] = [Self::Master1, Self::Node1, Self::Node2];
    /// The hosts with a port on the switch.
    pub const SEGMENT: [Self; 5] = [Self::Client, Self::Master1, Self::Node1, Self::Node2, Self::Router];

    /// The host's name; for a node also the Node's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Master1 => "k8s-master-1",
            Self::Node1 => "k8s-node-1",
            Self::Node2 => "k8s-node-2",
            Self::Router => "router",
            Self::Outside => "outside",
        }
    }

    /// The node with this name.
    pub fn node(name: &str) -> Option<Self> {
        Self::NODES.into_iter().find(|host| host.name() == name)
    }

    /// The interface towards the segment; for `outside` the one towards the router.
    pub const fn interface(self) -> &'static str {
        match self {
            Self::Router => "eth1",
            Self::Outside => "eth0",
            _ => "ens18",
        }
    }

    /// The MAC address of [`Self::interface`].
    pub const fn mac(self) -> Mac {
        match self {
            Self::Outside => Mac([0x52, 0x54, 0x00, 0x3a, 0x30, 0x10]),
            Self::Client => Mac([0x52, 0x54, 0x00, 0x3a, 0x10, 0x50]),
            Self::Master1 => Mac([0x52, 0x54, 0x00, 0x3a, 0x10, 0x17]),
            Self::Node1 => Mac([0x52, 0x54, 0x00, 0x3a, 0x10, 0x20]),
            Self::Node2 => Mac([0x52, 0x54, 0x00, 0x3a, 0x10, 0x21]),
            Self::Router => Mac([0x52, 0x54, 0x00, 0x3a, 0x10, 0x01]),
        }
    }

    /// The (first) IPv4 address of [`Self::interface`], in a /24.
    pub const fn address(self) -> Ipv4Addr {
        match self {
            Self::Client => Ipv4Addr::new(192, 168, 10, 50),
            Self::Master1 => Ipv4Addr::new(192, 168, 10, 17),
            Self::Node1 => Ipv4Addr::new(192, 168, 10, 20),
            Self::Node2 => Ipv4Addr::new(192, 168, 10, 21),
            Self::Router => Ipv4Addr::new(192, 168, 10, 1),
            Self::Outside => Ipv4Addr::new(192, 168, 30, 10),
        }
    }

    /// Hardware address and IPv4 address, in a /24, of [`SECOND_INTERFACE`]; `None` for a host without it.
    pub const fn second(self) -> Option<(Mac, Ipv4Addr)> {
        match self {
            Self::Client | Self::Master1 | Self::Node1 | Self::Node2 => {
                let (Mac([a, b, c, d, _, last]), [.., low]) = (self.mac(), self.address().octets());
                Some((Mac([a, b, c, d, 0x40, last]), Ipv4Addr::new(192, 168, 40, low)))
            }
            Self::Router | Self::Outside => None,
        }
    }

    /// Every IPv4 address of [`Self::interface`], the first one first.
    pub fn addresses(self) -> Vec<Ipv4Addr> {
        match self {
            Self::Outside => (10..=13).map(|last| Ipv4Addr::new(192, 168, 30, last)).collect(),
            _ => vec![self.address()],
        }
    }

    /// The IPv6 address of [`Self::interface`], in a /64; its last part reads like the IPv4 address's.
    pub const fn address6(self) -> Ipv6Addr {
        let last = match self {
            Self::Client => 0x50,
            Self::Master1 => 0x17,
            Self::Node1 => 0x20,
            Self::Node2 => 0x21,
            Self::Router => 0x1,
            Self::Outside => return Ipv6Addr::new(0xfd00, 0x30, 0, 0, 0, 0, 0, 0x10),
        };
        Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, last)
    }

    /// Third byte of the network the node's Pods live in: `172.20.N.0/24`. `None` for a host that is no node.
    pub const fn pod_network(self) -> Option<u8> {
        match self {
            Self::Master1 => Some(0),
            Self::Node1 => Some(1),
            Self::Node2 => Some(2),
            Self::Client | Self::Router | Self::Outside => None,
        }
    }

    /// Whether the host passes packets on: the nodes and the router do.
    pub const fn forwards(self) -> bool {
        self.pod_network().is_some() || matches!(self, Self::Router)
    }
}

/// The interface of client and nodes on the second segment.
pub const SECOND_INTERFACE: &str = "ens19";

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Host {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for Host {
    type Err = UnknownHost;

    fn from_str(text: &str) -> Result<Self, UnknownHost> {
        Self::ALL.into_iter().find(|host| host.name() == text).ok_or_else(|| UnknownHost(text.to_owned()))
    }
}

/// A word that names no host of the bench.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "there is no host {0:?} on the bench; there are client, k8s-master-1, k8s-node-1, k8s-node-2, router and outside"
)]
pub struct UnknownHost(String);

/// The name of a lab; several may live at once under different names.
///
/// It starts the names of the lab's network namespaces and of its state directory: 1 to 24 lower-case letters,
/// digits and inner hyphens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabName(String);

impl LabName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for LabName {
    fn default() -> Self {
        Self("ferrolb".to_owned())
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for LabName {
    type Err = BadLabName;

    fn from_str(text: &str) -> Result<Self, BadLabName> {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let edge = |c: Option<char>| c.is_some_and(|c| c != '-');
        if text.len() <= 24
            && text.chars().all(inner)
            && edge(text.chars().next())
            && edge(text.chars().next_back())
        {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadLabName(text.to_owned()))
        }
    }
}

/// A text that cannot name a lab.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{0:?} cannot name a lab: use 1 to 24 lower-case letters, digits and hyphens, with no hyphen at either end"
)]
pub struct BadLabName(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_host() {
        for host in Host::ALL {
            assert_eq!(host.name().parse::<Host>().ok(), Some(host));
        }
        let error = "k8s-node-9".parse::<Host>().unwrap_err().to_string();
        assert!(error.contains("k8s-node-9") && error.contains("k8s-node-2"), "{error}");
    }

    #[test]
    fn no_two_hosts_share_an_address_or_a_mac() {
        for (a, b) in Host::ALL.iter().flat_map(|a| Host::ALL.map(|b| (*a, b))).filter(|(a, b)| a != b) {
            assert_ne!(a.mac(), b.mac(), "{a} and {b}");
            assert_ne!(a.address6(), b.address6(), "{a} and {b}");
            assert!(a.addresses().iter().all(|ip| !b.addresses().contains(ip)), "{a} and {b}");
            assert!(a.second().is_none() || a.second() != b.second(), "{a} and {b}");
            assert!(a.second().is_none_or(|(mac, _)| mac != b.mac()), "{a} and {b}");
        }
    }

    #[test]
    fn a_lab_name_can_neither_leave_its_directory_nor_be_empty() {
        for good in ["ferrolb", "a", "fb-2", "0"] {
            assert_eq!(good.parse::<LabName>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "a/b", "..", "A", "a b", "abcdefghijklmnopqrstuvwxy"] {
            assert!(bad.parse::<LabName>().is_err(), "{bad:?}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Why a frame got no answer.

use std::net::{IpAddr, Ipv6Addr};

use ferrolb_net_types::Mac;

use crate::wire;

/// Why a frame got no answer. Prints a short word, for logs and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It came in on an interface that does not answer by its protocol.
    Closed,
    /// It is neither an ARP packet of Ethernet and IPv4 nor a valid Neighbor Discovery message.
    Malformed(wire::Error),
    /// It belongs to this VLAN, which is another network than the interface's.
    Vlan(u16),
    /// It is a reply to somebody else.
    ArpReply,
    /// It is neither a request nor a reply of ARP, but this operation.
    MessageType(u16),
    /// It was sent neither to everybody nor to the interface.
    EthernetDestination,
    /// Its IPv6 destination is neither the target nor a group of it, nor the interface's own.
    Destination(Ipv6Addr),
    /// Sender and target are the same address, or it is an advertisement: somebody announces an address for which the
    /// engine answers, nobody asks for it.
    Announcement {
        /// The address.
        address: IpAddr,
        /// The hardware address that it should have.
        mac: Mac,
    },
    /// It is the answer to a question of the engine's own.
    Answer {
        /// The address that was asked about.
        address: IpAddr,
        /// The hardware address that it has.
        mac: Mac,
    },
    /// The engine does not answer for this address.
    AnnounceIp(IpAddr),
    /// The engine answers for this address, but not on this interface.
    NotMatchInterface(IpAddr),
}

impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Closed => "closed",
            Self::Malformed(_) => "error",
            Self::Vlan(_) => "vlan",
            Self::ArpReply => "arp-reply",
            Self::MessageType(_) => "message-type",
            Self::EthernetDestination => "ethernet-destination",
            Self::Destination(_) => "ip-destination",
            Self::Announcement { .. } => "announcement",
            Self::Answer { .. } => "answer",
            Self::AnnounceIp(_) => "announce-ip",
            Self::NotMatchInterface(_) => "not-match-interface",
        })
    }
}

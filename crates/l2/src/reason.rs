// SPDX-License-Identifier: Apache-2.0
//! Why a frame got no answer.

use std::net::Ipv4Addr;

use crate::wire;

/// Why a frame got no answer. Prints a short word, for logs and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It came in on an interface that the engine does not have.
    Closed,
    /// It is not an ARP packet of Ethernet and IPv4.
    Malformed(wire::Error),
    /// It belongs to this VLAN, which is another network than the interface's.
    Vlan(u16),
    /// It is a reply.
    ArpReply,
    /// It is neither a request nor a reply, but this operation.
    MessageType(u16),
    /// It was sent neither to everybody nor to the interface.
    EthernetDestination,
    /// Sender and target are the same address: somebody announces it, nobody asks for it.
    Announcement(Ipv4Addr),
    /// The engine does not answer for this address.
    AnnounceIp(Ipv4Addr),
    /// The engine answers for this address, but not on this interface.
    NotMatchInterface(Ipv4Addr),
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
            Self::Announcement(_) => "announcement",
            Self::AnnounceIp(_) => "announce-ip",
            Self::NotMatchInterface(_) => "not-match-interface",
        })
    }
}

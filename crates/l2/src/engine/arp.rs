// SPDX-License-Identifier: Apache-2.0
//! ARP (RFC 826): which request is answered how, and what a gain looks like.

use std::net::{IpAddr, Ipv4Addr};

use ferrolb_net_types::Mac;

use super::{Answer, Engine, Interface};
use crate::DropReason;
use crate::wire::{Frame, Operation, Packet};

impl Engine {
    /// The answer to a frame of ARP. A probe (RFC 5227 section 2.1.1, sender 0.0.0.0) is a request as any other.
    pub(super) fn answer_arp(&self, interface: &Interface, bytes: &[u8]) -> Result<Answer, DropReason> {
        let request = Frame::parse(bytes).map_err(DropReason::Malformed)?;
        let asked = match request.packet {
            Packet { operation: Operation::Request, target_ip, .. } => target_ip,
            Packet { operation: Operation::Reply, .. } => return Err(self.hear_reply(interface, &request)),
            Packet { operation: Operation::Unknown(number), .. } => {
                return Err(DropReason::MessageType(number));
            }
        };
        if request.destination != Mac::BROADCAST && request.destination != interface.mac {
            return Err(DropReason::EthernetDestination);
        }
        let address = IpAddr::V4(asked);
        let announced = self.asked_for(address)?;
        if request.packet.sender_ip == asked {
            return Err(DropReason::Announcement { address, mac: request.packet.sender_mac });
        }
        if !interface.answers(address, announced) {
            return Err(DropReason::NotMatchInterface(address));
        }
        let reply = Frame {
            destination: request.packet.sender_mac,
            source: interface.mac,
            packet: Packet {
                operation: Operation::Reply,
                sender_mac: interface.mac,
                sender_ip: asked,
                target_mac: request.packet.sender_mac,
                target_ip: request.packet.sender_ip,
            },
        };
        Ok(Answer { address, frame: reply.emit().into() })
    }

    /// What a reply says: an answer to a question of this engine, which names no sender, or an announcement.
    fn hear_reply(&self, interface: &Interface, reply: &Frame) -> DropReason {
        let Packet { sender_mac: mac, sender_ip, target_ip, .. } = reply.packet;
        let address = IpAddr::V4(sender_ip);
        let answers = reply.destination == interface.mac && target_ip.is_unspecified();
        if answers && self.asked.contains(&address) {
            DropReason::Answer { address, mac }
        } else if target_ip == sender_ip && self.announces(address) {
            DropReason::Announcement { address, mac }
        } else {
            DropReason::ArpReply
        }
    }
}

/// Asks one host whether it has the address. As a probe does (RFC 5227 section 2.1.1) it gives no sender, so that
/// nobody learns anything from it.
pub(super) fn question(address: Ipv4Addr, of: Mac, mac: Mac) -> Frame {
    Frame {
        destination: of,
        source: mac,
        packet: Packet {
            operation: Operation::Request,
            sender_mac: mac,
            sender_ip: Ipv4Addr::UNSPECIFIED,
            target_mac: Mac::ZERO,
            target_ip: address,
        },
    }
}

/// One round: first as a request, then as a reply, since some hosts heed only the one or the other.
pub(super) fn announcement(address: Ipv4Addr, mac: Mac) -> [Frame; 2] {
    [Operation::Request, Operation::Reply].map(|operation| Frame {
        destination: Mac::BROADCAST,
        source: mac,
        packet: Packet {
            operation,
            sender_mac: mac,
            sender_ip: address,
            target_mac: Mac::BROADCAST,
            target_ip: address,
        },
    })
}

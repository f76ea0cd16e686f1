// SPDX-License-Identifier: Apache-2.0
//! Membership of IPv6 multicast groups on one interface.
//!
//! The kernel reports it by MLD (RFC 3810), so that switches pass on what is sent to the group. A packet socket's own
//! membership only tunes the hardware and reports nothing, so plain UDP sockets hold it. Needs no capability, and no
//! socket before the first group, so that a node without IPv6 is none the worse.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, UdpSocket};

use ferrolb_net_types::IfIndex;

use crate::error::{Attempt, Result};

/// The groups that are joined on an interface. Dropping it leaves them.
#[derive(Debug)]
pub struct Groups {
    index: IfIndex,
    sockets: Vec<Member>,
    /// The socket that holds each.
    joined: BTreeMap<Ipv6Addr, usize>,
}

#[derive(Debug)]
struct Member {
    socket: UdpSocket,
    groups: usize,
}

impl Groups {
    /// None yet, on an interface of the namespace of the thread that will join.
    pub const fn new(index: IfIndex) -> Self {
        Self { index, sockets: Vec::new(), joined: BTreeMap::new() }
    }

    /// Joins a group; one that is joined stays so.
    ///
    /// # Errors
    ///
    /// ENODEV if the interface is gone, EAFNOSUPPORT if the kernel has no IPv6, EMFILE.
    pub fn join(&mut self, group: Ipv6Addr) -> Result<()> {
        if self.joined.contains_key(&group) {
            return Ok(());
        }
        let words = || format!("join {group} on interface {}", self.index.0);
        let place = match self.sockets.iter().position(|member| member.groups < PER_SOCKET) {
            Some(place) => place,
            None => {
                let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).attempting(words)?;
                self.sockets.push(Member { socket, groups: 0 });
                self.sockets.len() - 1
            }
        };
        let member = &mut self.sockets[place];
        member.socket.join_multicast_v6(&group, self.index.0).attempting(words)?;
        member.groups += 1;
        self.joined.insert(group, place);
        Ok(())
    }

    /// Leaves a group, if it is joined.
    pub fn leave(&mut self, group: Ipv6Addr) {
        if let Some(place) = self.joined.remove(&group)
            && let Some(member) = self.sockets.get_mut(place)
        {
            member.groups -= 1;
            // It fails only where the interface is gone, and the membership with it.
            let _ = member.socket.leave_multicast_v6(&group, self.index.0);
        }
    }
}

/// Groups per socket. The kernel charges each to the socket's option memory, of which there may be no more than 20 KiB.
const PER_SOCKET: usize = 200;

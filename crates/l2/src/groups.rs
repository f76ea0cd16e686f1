// SPDX-License-Identifier: Apache-2.0
//! The multicast groups of the announced IPv6 addresses, each with the number of addresses that share it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::wire::ipv6::solicited_node;

/// Groups with at least one address.
#[derive(Debug, Default)]
pub(crate) struct Groups(BTreeMap<Ipv6Addr, usize>);

impl Groups {
    /// Counts an address; its group, if this is the first address of it.
    pub(crate) fn add(&mut self, address: IpAddr) -> Option<Ipv6Addr> {
        let group = group(address)?;
        let count = self.0.entry(group).or_default();
        *count += 1;
        (*count == 1).then_some(group)
    }

    /// No longer counts an address that was counted; its group, if that was the last address of it.
    pub(crate) fn remove(&mut self, address: IpAddr) -> Option<Ipv6Addr> {
        let group = group(address)?;
        let count = self.0.get_mut(&group)?;
        *count -= 1; // an entry counts at least one
        if *count > 0 {
            return None;
        }
        self.0.remove(&group);
        Some(group)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.0.keys().copied()
    }
}

/// Who asks for an IPv4 address asks everybody.
const fn group(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(solicited_node(address)),
    }
}

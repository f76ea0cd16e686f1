// SPDX-License-Identifier: Apache-2.0
//! UPDATE: what there is to say about routes.

use std::net::{Ipv4Addr, Ipv6Addr};

use ferrolb_net_types::{IpFamily, Prefix};

use super::attribute::Attributes;
use super::family::Families;
use super::pack::{TooLong, announce, end_of_rib, withdraw};

/// What two speakers have agreed on, as far as bytes depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Numbers of autonomous systems are four octets wide (RFC 6793).
    pub four_octet_as: bool,
    /// Both are of one autonomous system.
    pub internal: bool,
    /// The families that routes may be of.
    pub families: Families,
}

/// Before anything was agreed on.
impl Default for Context {
    fn default() -> Self {
        Self { four_octet_as: true, internal: false, families: Families::NONE }
    }
}

/// Where to send what a route is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NextHop {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address.
    V6 {
        /// One that is valid beyond the link.
        global: Ipv6Addr,
        /// One of the link that both speakers are on (RFC 2545, section 3).
        link_local: Option<Ipv6Addr>,
    },
}

impl NextHop {
    /// The family of the routes that can have it.
    #[must_use]
    pub const fn family(&self) -> IpFamily {
        match self {
            Self::V4(_) => IpFamily::V4,
            Self::V6 { .. } => IpFamily::V6,
        }
    }
}

/// One thing that is said about routes. An UPDATE that is sent says exactly one (RFC 7606, section 5.1); one that is
/// received may say several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// These routes are no more.
    Withdraw(Prefixes),
    /// These routes are, or are otherwise than before.
    Announce(Box<Announce>),
    /// All routes of the family have been told (RFC 4724, section 2).
    EndOfRib(IpFamily),
}

/// Prefixes of one family: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes(Vec<Prefix>);

impl Prefixes {
    /// These prefixes; `None` if there is none, or they are of different families.
    #[must_use]
    pub fn new(prefixes: Vec<Prefix>) -> Option<Self> {
        let family = prefixes.first()?.family();
        prefixes.iter().all(|prefix| prefix.family() == family).then_some(Self(prefixes))
    }

    /// Their family.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        self.0.first().map_or(IpFamily::V4, Prefix::family)
    }

    /// The prefixes.
    #[must_use]
    pub fn as_slice(&self) -> &[Prefix] {
        &self.0
    }
}

/// Routes with one next hop and one set of attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announce {
    prefixes: Prefixes,
    next_hop: NextHop,
    attributes: Attributes,
}

impl Announce {
    /// These routes; `None` if the next hop is not of the prefixes' family.
    #[must_use]
    pub fn new(prefixes: Prefixes, next_hop: NextHop, attributes: Attributes) -> Option<Self> {
        (prefixes.family() == next_hop.family()).then_some(Self { prefixes, next_hop, attributes })
    }

    /// What the routes are for.
    #[must_use]
    pub fn prefixes(&self) -> &[Prefix] {
        self.prefixes.as_slice()
    }

    /// Where to send it.
    #[must_use]
    pub const fn next_hop(&self) -> NextHop {
        self.next_hop
    }

    /// What they say of themselves.
    #[must_use]
    pub const fn attributes(&self) -> &Attributes {
        &self.attributes
    }
}

impl Update {
    /// The messages that say it: as few as possible, the prefixes in their order.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if the attributes leave no room for a prefix.
    pub fn encode(&self, context: &Context) -> Result<Vec<u8>, TooLong> {
        let mut out = Vec::new();
        match self {
            Self::Withdraw(prefixes) => {
                let mut left = prefixes.as_slice();
                while !left.is_empty() {
                    left = &left[withdraw(&mut out, prefixes.family(), left)..];
                }
            }
            Self::Announce(routes) => {
                let block = routes.attributes.block(routes.next_hop, context);
                let mut left = routes.prefixes();
                while !left.is_empty() {
                    left = &left[announce(&mut out, &block, left)?..];
                }
            }
            Self::EndOfRib(family) => end_of_rib(&mut out, *family),
        }
        Ok(out)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What a session is asked to tell of a route, and what it makes of it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use ferrolb_net_types::{Asn, IpFamily};

use crate::wire::{
    AsPath, AttributeBlock, Attributes, Community, Context, ExtendedCommunity, LargeCommunity, NextHop,
};

/// What is to be told of a route beside its prefix. Equal ones share their UPDATEs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Its local preference, which only an internal peer is told; `None` for the session's.
    pub local_pref: Option<u32>,
    /// Its communities.
    pub communities: BTreeSet<Community>,
    /// Its large communities.
    pub large_communities: BTreeSet<LargeCommunity>,
    /// Its extended communities: link bandwidth, say.
    pub extended_communities: BTreeSet<ExtendedCommunity>,
}

impl Route {
    /// The same route, about to go: whoever has another way is to take it from now on (RFC 8326, section 4).
    #[must_use]
    pub fn about_to_go(&self) -> Self {
        let mut communities = self.communities.clone();
        communities.insert(Community::GRACEFUL_SHUTDOWN);
        Self { local_pref: Some(0), communities, ..self.clone() }
    }
}

/// Where a session's routes lead: addresses of the node, one for each family that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextHops {
    /// For IPv4 routes.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6 routes: one that is valid beyond the link, and one of the link where the router is on it.
    pub v6: Option<(Ipv6Addr, Option<Ipv6Addr>)>,
}

impl NextHops {
    /// The one for routes of a family.
    #[must_use]
    pub fn of(&self, family: IpFamily) -> Option<NextHop> {
        match family {
            IpFamily::V4 => self.v4.map(NextHop::V4),
            IpFamily::V6 => self.v6.map(|(global, link_local)| NextHop::V6 { global, link_local }),
        }
    }
}

/// What all routes of an established session have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// What was agreed on. Its families are those that the other side takes.
    pub context: Context,
    /// The own autonomous system.
    pub asn: Asn,
    /// Where the routes lead.
    pub next_hops: NextHops,
    /// The local preference of routes that have none of their own; only internal peers are told.
    pub local_pref: u32,
}

impl Export {
    /// What the peer sees of a route: its local preference is what an internal peer is told, and nothing for another.
    /// Routes that look alike are alike.
    pub(crate) fn show(&self, route: Route) -> Route {
        let local_pref = self.context.internal.then(|| route.local_pref.unwrap_or(self.local_pref));
        Route { local_pref, ..route }
    }

    /// The bytes of the attributes of a route as it is shown; `None` if routes of this family cannot be told.
    pub(crate) fn block(&self, family: IpFamily, shown: &Route) -> Option<AttributeBlock> {
        let attributes = Attributes {
            as_path: AsPath::own(self.asn, self.context.internal),
            local_pref: shown.local_pref,
            communities: shown.communities.clone(),
            large_communities: shown.large_communities.clone(),
            extended_communities: shown.extended_communities.clone(),
            ..Attributes::default()
        };
        Some(attributes.block(self.next_hop(family)?, &self.context))
    }

    /// The next hop of a family; `None` if its routes cannot be told.
    pub(crate) fn next_hop(&self, family: IpFamily) -> Option<NextHop> {
        self.next_hops.of(family).filter(|_| self.context.families.contains(family))
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Who of those that could answer for an address does.
//!
//! Speakers of MetalLB elect by MetalLB's rule and know no other. So that nobody answers beside them, their rule
//! comes first: where it names one of them for any Service that holds the address, that one owns it. Otherwise
//! all of them are silent, and the first of ours that lives owns it by our own rule.

use std::collections::BTreeMap;

use ferrolb_net_types::NodeName;

use crate::AddressPlan;

/// The speakers that are believed to live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Members {
    /// Every node has one of ours. Without membership nothing else can be assumed, and a dead speaker goes unnoticed.
    #[default]
    EveryNode,
    /// These nodes have one; the own node is among them once it may announce.
    Known(BTreeMap<NodeName, Standing>),
}

/// What kind of speaker a member is, as far as elections go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// One of MetalLB's: it elects by [`metallb`](crate::metallb)'s rule and hears of no other.
    Metallb,
    /// One of ours.
    Ours,
    /// One of ours that lost the Kubernetes API while others have it: it may announce what no longer is so, and
    /// comes after all others of ours.
    Stale,
}

impl Members {
    /// Whether a speaker lives on the node.
    pub fn contains(&self, node: &NodeName) -> bool {
        self.standing(node).is_some()
    }

    /// What the node's speaker is, if one lives there.
    pub fn standing(&self, node: &NodeName) -> Option<Standing> {
        match self {
            Self::EveryNode => Some(Standing::Ours),
            Self::Known(nodes) => nodes.get(node).copied(),
        }
    }

    /// Whether a speaker of MetalLB is among them.
    pub fn any_metallb(&self) -> bool {
        match self {
            Self::EveryNode => false,
            Self::Known(nodes) => nodes.values().any(|standing| *standing == Standing::Metallb),
        }
    }
}

impl<N: Into<NodeName>> FromIterator<(N, Standing)> for Members {
    fn from_iter<I: IntoIterator<Item = (N, Standing)>>(members: I) -> Self {
        Self::Known(members.into_iter().map(|(node, standing)| (node.into(), standing)).collect())
    }
}

/// The node that answers for the address, if any can.
///
/// Every speaker of ours with the same plan and the same members names the same one. Looks at each candidate at
/// most once per different order among the holders, and allocates nothing.
pub fn owner<'a>(address: &'a AddressPlan, members: &Members) -> Option<&'a NodeName> {
    metallb_owners(address, members).next().or_else(|| {
        let mut stale = None;
        for node in &*address.candidates {
            match members.standing(node) {
                Some(Standing::Ours) => return Some(node),
                Some(Standing::Stale) if stale.is_none() => stale = Some(node),
                Some(Standing::Stale | Standing::Metallb) | None => {}
            }
        }
        stale
    })
}

/// The nodes whose MetalLB speakers announce the address by MetalLB's own rule, which elects per Service: more
/// than one where Services that share the address have different leaders. In the order of the holders; a node may
/// come twice.
pub fn metallb_owners<'a>(address: &'a AddressPlan, members: &Members) -> impl Iterator<Item = &'a NodeName> {
    address
        .metallb
        .iter()
        .take_while(|_| matches!(members, Members::Known(_)))
        .filter_map(|order| order.iter().find_map(|node| Some((node, members.standing(node)?))))
        .filter_map(|(leader, standing)| (standing == Standing::Metallb).then_some(leader))
}

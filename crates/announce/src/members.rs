// SPDX-License-Identifier: Apache-2.0
//! Who of those that could answer for an address does: the first that lives.

use std::collections::BTreeSet;

use ferrolb_net_types::NodeName;

use crate::AddressPlan;

/// The speakers that are believed to live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Members {
    /// Every node has one. Without membership nothing else can be assumed, and a dead speaker goes unnoticed.
    #[default]
    EveryNode,
    /// These nodes have one, the own node among them.
    Known(BTreeSet<NodeName>),
}

impl Members {
    /// Whether a speaker lives on the node.
    pub fn contains(&self, node: &NodeName) -> bool {
        match self {
            Self::EveryNode => true,
            Self::Known(nodes) => nodes.contains(node),
        }
    }
}

/// The node that answers for the address, if any can.
pub fn owner<'a>(address: &'a AddressPlan, members: &Members) -> Option<&'a NodeName> {
    address.candidates.iter().find(|node| members.contains(node))
}

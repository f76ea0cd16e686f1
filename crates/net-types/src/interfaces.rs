// SPDX-License-Identifier: Apache-2.0
//! Which of a host's network interfaces an address is announced on.

use std::collections::BTreeSet;

use crate::InterfaceName;

/// A choice of network interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interfaces {
    /// Every interface that can announce.
    All,
    /// These, whether or not a node has them.
    Named(BTreeSet<InterfaceName>),
}

impl Interfaces {
    /// Whether the choice covers the interface.
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(name),
        }
    }

    /// Both choices together; "all" wins.
    pub fn union(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Named(mut names), Self::Named(more)) => {
                names.extend(more.iter().cloned());
                Self::Named(names)
            }
            _ => Self::All,
        }
    }
}

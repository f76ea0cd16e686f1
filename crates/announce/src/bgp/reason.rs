// SPDX-License-Identifier: Apache-2.0
//! Why a node does not announce a Service by BGP, as a value, as MetalLB's word for it, and as a sentence.

use std::fmt;
use std::sync::Arc;

use ferrolb_net_types::{NodeName, PoolName};

use crate::Reason;

/// Why a node does not announce a Service by BGP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BgpReason {
    /// Something about the Service that holds on every node, and for layer 2 as well.
    Service(Reason),
    /// No BGPAdvertisement of the pool is for the node.
    NotAdvertised {
        /// The pool.
        pool: PoolName,
        /// The node.
        node: NodeName,
    },
    /// None of those that are for the node selects the Service.
    NoMatchingAdvertisement {
        /// The pool.
        pool: PoolName,
        /// The node.
        node: NodeName,
    },
    /// Two advertisements of the Service want different local preferences for one route.
    Conflicting {
        /// The one, and what it wants.
        one: (Arc<str>, u32),
        /// The other.
        other: (Arc<str>, u32),
    },
    /// The node has the condition `NetworkUnavailable`.
    NodeNetworkUnavailable(NodeName),
    /// The node is excluded from load balancing by its label.
    NodeExcluded(NodeName),
    /// The traffic policy is Local, and no endpoint on the node serves.
    NoLocalEndpoint(NodeName),
    /// No endpoint serves.
    NoEndpoint,
}

impl BgpReason {
    /// MetalLB's word for it, as its logs have it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Service(reason) => reason.word(),
            Self::NotAdvertised { .. } => "notOwner",
            Self::NoMatchingAdvertisement { .. } => "noMatchingAdvertisement",
            Self::Conflicting { .. } => "conflictingAdvertisements",
            Self::NodeNetworkUnavailable(_) => "nodeNetworkUnavailable",
            Self::NodeExcluded(_) => "nodeLabeledExcludeBalancers",
            Self::NoLocalEndpoint(_) => "noLocalEndpoints",
            Self::NoEndpoint => "noEndpoints",
        }
    }
}

impl fmt::Display for BgpReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(reason) => reason.fmt(f),
            Self::NotAdvertised { pool, node } => {
                write!(f, "no BGPAdvertisement of pool {pool} is for node {node}")
            }
            Self::NoMatchingAdvertisement { pool, node } => {
                write!(f, "no BGPAdvertisement of pool {pool} that is for node {node} selects the Service")
            }
            Self::Conflicting { one, other } => write!(
                f,
                "advertisements '{}' and '{}' have conflicting LOCAL_PREF ({} vs {})",
                one.0, other.0, one.1, other.1
            ),
            Self::NodeNetworkUnavailable(node) => {
                write!(f, "node {node} has the condition NetworkUnavailable")
            }
            Self::NodeExcluded(node) => {
                write!(f, "node {node} has the label node.kubernetes.io/exclude-from-external-load-balancers")
            }
            Self::NoLocalEndpoint(node) => {
                write!(f, "externalTrafficPolicy is Local and no endpoint on node {node} serves")
            }
            Self::NoEndpoint => f.write_str("no endpoint of the Service serves"),
        }
    }
}

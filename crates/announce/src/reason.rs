// SPDX-License-Identifier: Apache-2.0
//! Why a node does not announce a Service, as a value, as MetalLB's word for it, and as a sentence.

use std::fmt;
use std::net::IpAddr;

use ferrolb_net_types::{NodeName, PoolName};

/// Why a node does not announce a Service over layer 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no such Service.
    ServiceDeleted,
    /// Its type is not `LoadBalancer`.
    NotLoadBalancer,
    /// Its class is not the one that we serve.
    ForeignClass {
        /// The Service's.
        service: Option<String>,
        /// Ours.
        ours: Option<String>,
    },
    /// Its status holds no address.
    NoIpAllocated,
    /// Its status holds a text that is no address.
    InvalidIp(String),
    /// No single pool holds all its addresses.
    IpNotAllowed {
        /// The addresses.
        ips: Vec<IpAddr>,
        /// Some pool could not be read, so it may be that one.
        pools_incomplete: bool,
    },
    /// An address that the Service held was replaced.
    IpChanged,
    /// None of its endpoints serves.
    NoServingEndpoint,
    /// No L2Advertisement of the pool is both for the Service and for the node.
    NoMatchingAdvertisement {
        /// The pool.
        pool: PoolName,
        /// The node.
        node: NodeName,
    },
    /// The node carries the exclusion label.
    NodeExcluded(NodeName),
    /// The node's condition `NetworkUnavailable` is true.
    NodeNetworkUnavailable(NodeName),
    /// The traffic policy is Local and no endpoint on the node serves.
    NoLocalEndpoint(NodeName),
    /// The node could announce it, but this one comes first.
    Outranked(NodeName),
    /// The node could announce it, but by MetalLB's rule the MetalLB speaker on this one does.
    LedByMetallb(NodeName),
    /// The node would come first, but its speaker lost the Kubernetes API; that of this node has it.
    ViewStale(NodeName),
    /// The node's speaker has not exchanged state with the others yet, so it cannot know who leads.
    NotEligible,
    /// The node's speaker was stopped for longer than it takes the others to notice: it says nothing until one of
    /// them has acknowledged it.
    Gated,
}

impl Reason {
    /// MetalLB's word for it, as its logs have it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::ServiceDeleted => "serviceDeleted",
            Self::NotLoadBalancer | Self::ForeignClass { .. } => "notLoadBalancer",
            Self::NoIpAllocated => "noIPAllocated",
            Self::InvalidIp(_) => "invalidIP",
            Self::IpNotAllowed { .. } => "ipNotAllowed",
            Self::IpChanged => "loadBalancerIPChanged",
            Self::NoMatchingAdvertisement { .. } => "noMatchingAdvertisement",
            Self::NoServingEndpoint
            | Self::NodeExcluded(_)
            | Self::NodeNetworkUnavailable(_)
            | Self::NoLocalEndpoint(_)
            | Self::Outranked(_)
            | Self::LedByMetallb(_)
            | Self::ViewStale(_)
            | Self::NotEligible
            | Self::Gated => "notOwner",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceDeleted => f.write_str("the Service does not exist"),
            Self::NotLoadBalancer => f.write_str("the Service is not of type LoadBalancer"),
            Self::ForeignClass { service, ours } => {
                match service {
                    Some(class) => write!(f, "the Service's loadBalancerClass is {class:?}, ")?,
                    None => f.write_str("the Service has no loadBalancerClass, ")?,
                }
                match ours {
                    Some(class) => write!(f, "and only class {class:?} is served"),
                    None => f.write_str("and only Services without one are served"),
                }
            }
            Self::NoIpAllocated => f.write_str("the Service has no address yet"),
            Self::InvalidIp(text) => {
                write!(f, "status.loadBalancer.ingress holds {text:?}, which is no address")
            }
            Self::IpNotAllowed { ips, pools_incomplete } => {
                f.write_str("no single IPAddressPool holds ")?;
                for (index, ip) in ips.iter().enumerate() {
                    write!(f, "{}{ip}", if index == 0 { "" } else { " and " })?;
                }
                if *pools_incomplete {
                    f.write_str(", but some IPAddressPool is invalid and could not be looked at")?;
                }
                Ok(())
            }
            Self::IpChanged => f.write_str("the Service's address changed"),
            Self::NoServingEndpoint => f.write_str("no endpoint of the Service serves"),
            Self::NoMatchingAdvertisement { pool, node } => {
                write!(f, "no L2Advertisement of pool {pool} is both for this Service and for node {node}")
            }
            Self::NodeExcluded(node) => {
                write!(f, "node {node} has the label node.kubernetes.io/exclude-from-external-load-balancers")
            }
            Self::NodeNetworkUnavailable(node) => {
                write!(f, "node {node} has the condition NetworkUnavailable")
            }
            Self::NoLocalEndpoint(node) => {
                write!(f, "externalTrafficPolicy is Local and no endpoint on node {node} serves")
            }
            Self::Outranked(node) => write!(f, "node {node} comes first in the election"),
            Self::LedByMetallb(node) => {
                write!(f, "node {node}, whose speaker is MetalLB's, comes first in MetalLB's election")
            }
            Self::ViewStale(node) => write!(
                f,
                "the speaker has lost the Kubernetes API, and node {node}, whose speaker has it, takes its place"
            ),
            Self::NotEligible => f.write_str("the speaker has not heard from the other speakers yet"),
            Self::Gated => f.write_str(
                "the speaker stood still for so long that others may have taken over, and none has answered it since",
            ),
        }
    }
}

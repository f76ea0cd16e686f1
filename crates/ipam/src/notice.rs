// SPDX-License-Identifier: Apache-2.0
//! What a Service's events tell, with MetalLB's reasons and texts.

use std::fmt;
use std::net::IpAddr;

use ferrolb_net_types::ServiceKey;

use crate::family::FamilyError;
use crate::refusal::Refusal;
use crate::request::RequestError;
use crate::text::{Addresses, List, Quoted, QuotedList};

/// A fact about a Service that somebody should read. `Display` is the message of its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// New addresses.
    Assigned(Vec<IpAddr>),
    /// A second address beside the one held.
    AssignedAdditional(IpAddr),
    /// The addresses in the status cannot stay.
    Cleared {
        /// The Service.
        service: ServiceKey,
        /// Why.
        why: Refusal,
    },
    /// A `PreferDualStack` Service has one address and gets no second one.
    NoAdditional(Refusal),
    /// No address.
    NotAllocated {
        /// The Service.
        service: ServiceKey,
        /// Why.
        why: Refusal,
    },
    /// The request cannot be understood; the Service keeps what it holds.
    InvalidRequest(RequestError),
    /// `RequireDualStack` with fewer than two cluster IPs.
    NotEnoughClusterIps(Vec<String>),
    /// The addresses in the status are not one per family.
    HeldWithoutFamily {
        /// The addresses; `None` for a text that is no address.
        held: Vec<Option<IpAddr>>,
        /// What is wrong with them.
        why: FamilyError,
    },
    /// The cluster IPs are not one per family.
    ClusterIpsWithoutFamily {
        /// `spec.clusterIPs`.
        cluster_ips: Vec<String>,
        /// `spec.clusterIP`.
        cluster_ip: String,
        /// What is wrong with them.
        why: FamilyError,
    },
}

/// The two types of Kubernetes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Things go as they should.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Notice {
    /// The type of the event.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Assigned(_)
            | Self::AssignedAdditional(_)
            | Self::Cleared { .. }
            | Self::NoAdditional(_) => Kind::Normal,
            _ => Kind::Warning,
        }
    }

    /// The reason of the event.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Assigned(_) | Self::AssignedAdditional(_) => "IPAllocated",
            Self::Cleared { .. } => "ClearAssignment",
            Self::NoAdditional(_) => "AdditionalAssignFailed",
            Self::NotAllocated { .. } => "AllocationFailed",
            Self::InvalidRequest(_) => "LoadBalancerFailed",
            Self::NotEnoughClusterIps(_) => "not enough clusterips",
            Self::HeldWithoutFamily { .. } => "nolbIPsIPFamily",
            Self::ClusterIpsWithoutFamily { .. } => "noclusterIPsIPFamily",
        }
    }

    /// Whether the fact lasts until something else changes, rather than being a step that is done with.
    pub const fn lasts(&self) -> bool {
        matches!(
            self,
            Self::NoAdditional(_)
                | Self::NotAllocated { .. }
                | Self::InvalidRequest(_)
                | Self::NotEnoughClusterIps(_)
                | Self::ClusterIpsWithoutFamily { .. }
        )
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Assigned(ips) => write!(f, "Assigned IP {}", QuotedList(ips)),
            Self::AssignedAdditional(ip) => write!(f, "Assigned additional IP {}", Quoted(ip)),
            Self::Cleared { service, why } => write!(
                f,
                "current IP for {} not allowed by config, will attempt for new IP assignment: {why}",
                Quoted(service)
            ),
            Self::NoAdditional(why) => write!(f, "cannot assign additional IP in PreferDualStack: {why}"),
            Self::NotAllocated { service, why } => {
                write!(f, "Failed to allocate IP for {}: {why}", Quoted(service))
            }
            Self::InvalidRequest(why) => write!(f, "invalid requested loadbalancer IPs: {why}"),
            Self::NotEnoughClusterIps(ips) => {
                write!(f, "Service requires dual stack but not enough clusterips {}", List(ips))
            }
            Self::HeldWithoutFamily { held, why } => {
                write!(f, "Failed to retrieve LBIPs IPFamily for {}: {why}", Addresses(held))
            }
            Self::ClusterIpsWithoutFamily { cluster_ips, cluster_ip, why } => write!(
                f,
                "Failed to retrieve ClusterIPs IPFamily for {} {cluster_ip}: {why}",
                QuotedList(cluster_ips)
            ),
        }
    }
}

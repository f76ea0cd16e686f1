// SPDX-License-Identifier: Apache-2.0
//! What one Service is, wants and holds, as far as its address is concerned.

use std::cmp::Reverse;
use std::fmt;
use std::net::IpAddr;

use ferrolb_config::Labels;
use ferrolb_net_types::{IpFamily, ServiceKey};

use crate::request::RequestError;

/// One Service, read once from its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The Service.
    pub service: ServiceKey,
    /// Its labels, which pools select.
    pub labels: Labels,
    /// Whether `spec.type` is `LoadBalancer`.
    pub load_balancer: bool,
    /// `spec.clusterIPs` as written.
    pub cluster_ips: Vec<String>,
    /// `spec.clusterIP` as written, for when the list is empty.
    pub cluster_ip: String,
    /// `spec.ipFamilyPolicy`.
    pub policy: IpFamilyPolicy,
    /// The family of the single address that a `PreferDualStack` Service gets where no pool has both.
    pub preferred_family: IpFamily,
    /// The addresses asked for, in order: [`crate::requested_ips`].
    pub requested_ips: Result<Option<Vec<IpAddr>>, RequestError>,
    /// The pool asked for; empty if none.
    pub requested_pool: String,
    /// With whom it may share an address.
    pub keys: Keys,
    /// Its ports, in the order of the Service.
    pub ports: Vec<Port>,
    /// The addresses in its status, in order; `None` for a text that is no address.
    pub held: Vec<Option<IpAddr>>,
}

/// `spec.ipFamilyPolicy`; absent is `SingleStack`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpFamilyPolicy {
    /// One family.
    #[default]
    SingleStack,
    /// Both families where possible.
    PreferDualStack,
    /// Both families or nothing.
    RequireDualStack,
}

/// What two Services must have in common to share an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keys {
    /// The value of `allow-shared-ip`; empty means that the Service does not share.
    pub sharing: String,
    /// Where traffic must end: empty for `externalTrafficPolicy: Cluster`, the Pod selector for `Local`.
    pub backend: String,
}

impl Keys {
    /// Whether Services with these keys may share an address, ports aside.
    pub fn share_with(&self, other: &Self) -> bool {
        !self.sharing.is_empty() && self == other
    }
}

/// A port that a Service takes on its addresses. Prints as `TCP/80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// The protocol.
    pub protocol: Protocol,
    /// 1 to 65535.
    pub number: u16,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        };
        write!(f, "{protocol}/{}", self.number)
    }
}

/// A transport protocol of a Service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Who comes first where two Services want one address: holders of an address, then the older, then by
/// namespace and name. Smaller is first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    holds: Reverse<bool>,
    created: i64,
    service: ServiceKey,
}

impl Rank {
    /// The rank of a Service created at `created`, in seconds since the epoch.
    pub fn new(holds: bool, created: i64, service: ServiceKey) -> Self {
        Self { holds: Reverse(holds), created, service }
    }

    /// Whether it holds an address.
    pub const fn holds(&self) -> bool {
        self.holds.0
    }

    /// Whose rank it is.
    pub const fn service(&self) -> &ServiceKey {
        &self.service
    }
}

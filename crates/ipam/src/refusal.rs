// SPDX-License-Identifier: Apache-2.0
//! Why a Service does not get an address, in MetalLB's words.

use std::net::IpAddr;

use ferrolb_net_types::{IpFamily, PoolName, ServiceKey};
use thiserror::Error;

use crate::claim::Port;
use crate::request::RequestError;
use crate::text::{Addresses, Quoted, QuotedList};

/// Why an allocation or an assignment is refused. `Display` is the text that events carry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The request cannot be understood.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The addresses asked for are not one per family of the Service.
    #[error("requested loadBalancer IP(s) {} does not match the ipFamily of the service", QuotedList(.0))]
    FamilyMismatch(Vec<IpAddr>),
    /// The addresses asked for lie in another pool than the one asked for.
    #[error("requested loadBalancer IP(s) {} is not compatible with requested address pool {pool}", QuotedList(.ips))]
    PoolMismatch {
        /// The addresses.
        ips: Vec<IpAddr>,
        /// The pool asked for, as written.
        pool: String,
    },
    /// The pool asked for does not exist.
    #[error("unknown pool {}", Quoted(.0))]
    UnknownPool(String),
    /// No pool that the Service may use without asking has what it needs.
    #[error("no available IPs")]
    NoAddress,
    /// The pool asked for has nothing free.
    #[error("no available IPs in pool {0}")]
    PoolFull(PoolName),
    /// The pool asked for cannot give one address of each family.
    #[error("no available IPs in pool {0} for dual IPFamily")]
    PoolNotDual(PoolName),
    /// The pool asked for has something free, but not of the Service's family.
    #[error("no available IPs in pool {0} for {1} IPFamily")]
    PoolLacksFamily(PoolName, IpFamily),
    /// The addresses do not lie in one pool.
    #[error("{} is not allowed in config", Addresses(.0))]
    NotInOnePool(Vec<Option<IpAddr>>),
    /// The pool is restricted to other namespaces or labels.
    #[error("pool {0} not compatible for ip assignment")]
    PoolNotCompatible(PoolName),
    /// More than two addresses at once.
    #[error("more than two addresses {}", QuotedList(.0))]
    MoreThanTwo(Vec<IpAddr>),
    /// Two addresses of one family.
    #[error("{} {} has the same family", Quoted(.0), Quoted(.1))]
    SameFamily(IpAddr, IpAddr),
    /// Somebody else holds the address, and the two may not share.
    #[error("can't change sharing key for {}, address also in use by {}", Quoted(.service), comma_separated(.users))]
    InUse {
        /// The Service that is refused.
        service: ServiceKey,
        /// Those who hold the address, in order.
        users: Vec<ServiceKey>,
    },
    /// A Service that shares the address has the port.
    #[error("port {port} is already in use on {}", Quoted(.ip))]
    PortInUse {
        /// The first port, in the order of the Service, that is taken.
        port: Port,
        /// The address.
        ip: IpAddr,
    },
}

fn comma_separated(users: &[ServiceKey]) -> String {
    users.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

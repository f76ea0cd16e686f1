// SPDX-License-Identifier: Apache-2.0
//! Why a Service has no address, in words that do not depend on who else holds what.
//!
//! A [`Refusal`] is what MetalLB says at the moment of a decision: which Services hold the address, which port is
//! taken first, whether the pool is full in one family or in both. That belongs into an event. What is *stored* with a
//! Service must be the same whenever it is computed, or every restart would rewrite what has changed about others
//! meanwhile: it follows from the Service and the pools alone.

use std::net::IpAddr;

use ferrolb_net_types::PoolName;
use thiserror::Error;

use crate::allocator::{Allocator, Covered};
use crate::claim::Claim;
use crate::refusal::Refusal;

/// Why a Service that waits has no address. `Display` is a sentence about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Lack {
    /// What it asks for cannot be, or no pool serves it.
    #[error(transparent)]
    Refused(Refusal),
    /// The pool asked for has nothing left for it.
    #[error("no available IPs in pool {0} that the Service could use")]
    InPool(PoolName),
    /// Others have what it asks for.
    #[error("{} in use by Services with which this one may not share", comma_separated(.0))]
    InUse(Vec<IpAddr>),
}

impl Allocator {
    /// What of a refusal is so whoever else holds what.
    pub(crate) fn lack(&self, claim: &Claim, why: &Refusal) -> Lack {
        match why {
            Refusal::PoolFull(pool) | Refusal::PoolNotDual(pool) | Refusal::PoolLacksFamily(pool, _) => {
                Lack::InPool(pool.clone())
            }
            Refusal::InUse { .. } | Refusal::PortInUse { .. } => {
                let ips: Vec<IpAddr> = claim.requested_ips.iter().flatten().flatten().copied().collect();
                let wanted: Vec<Option<IpAddr>> = ips.iter().copied().map(Some).collect();
                // MetalLB looks at the pool asked for last.
                match self.owner(claim, &wanted, Covered::ByWhatIsHandedOut) {
                    Ok(owner) => {
                        self.pool_mismatch(claim, &ips, owner).map_or(Lack::InUse(ips), Lack::Refused)
                    }
                    Err(why) => Lack::Refused(why),
                }
            }
            Refusal::NoAddress
            | Refusal::Request(_)
            | Refusal::FamilyMismatch(_)
            | Refusal::PoolMismatch { .. }
            | Refusal::UnknownPool(_)
            | Refusal::NotInOnePool(_)
            | Refusal::PoolNotCompatible(_)
            | Refusal::MoreThanTwo(_)
            | Refusal::SameFamily(..) => Lack::Refused(why.clone()),
        }
    }
}

fn comma_separated(ips: &[IpAddr]) -> String {
    ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

// SPDX-License-Identifier: Apache-2.0
//! What would have to become free for a Service that waits, so that a release looks only at those it can help.

use std::net::IpAddr;

use ferrolb_net_types::IpFamily;

use crate::allocator::Allocator;
use crate::choose::Wish;
use crate::claim::{Claim, Keys, Port};
use crate::refusal::Refusal;
use crate::space::PoolId;

/// A place where something may become free: what those who wait there look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot(pub(crate) Place);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// This very address, or a port or key on it.
    Address(IpAddr),
    /// The unused addresses of a pool.
    Pool(PoolId, IpFamily),
    /// The unused addresses of the pools that serve anybody.
    Open(IpFamily),
    /// The addresses of Services with these keys.
    Shared(Keys),
}

/// What a Service waits for.
///
/// Of two Services with equal wants either can be served when the other can: where the first by rank is not served,
/// nobody with this want needs to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Want {
    spots: Vec<Spot>,
    /// Of each family, or all of the addresses; otherwise any will do.
    all: bool,
    sharing: Option<(Keys, Vec<Port>)>,
}

impl Want {
    /// Where something has to become free before it is worth looking again. Something there is necessary, and for a
    /// Service that needs one address and shares none also sufficient.
    pub fn spots(&self) -> &[Spot] {
        &self.spots
    }
}

impl Allocator {
    /// Whether there is anything to take at the spot. Of addresses that may be shared it is not known: true.
    pub fn has_room(&self, spot: &Spot) -> bool {
        match spot.0 {
            Place::Pool(id, family) => self.has_unused(id, family),
            Place::Open(family) => self.first_open_with_unused(family, PoolId(0)).is_some(),
            Place::Address(_) | Place::Shared(_) => true,
        }
    }

    /// What a refused Service waits for; `None` if nobody's release can help it.
    pub(crate) fn want(&self, claim: &Claim, wish: Wish, refusal: &Refusal) -> Option<Want> {
        let pool = |name: &str, wish: Wish| match self.space.by_name(name) {
            Some(id) => self.spots_of_pool(id, wish),
            None => vec![],
        };
        let (mut spots, all) = match refusal {
            Refusal::InUse { .. } | Refusal::PortInUse { .. } => {
                let ips = claim.requested_ips.iter().flatten().flatten();
                (ips.map(|ip| Spot(Place::Address(*ip))).collect(), true)
            }
            Refusal::NoAddress => (self.spots_of_any_pool(claim, wish), wish == Wish::Both),
            Refusal::PoolFull(name) => (pool(name.as_str(), wish), wish == Wish::Both),
            Refusal::PoolLacksFamily(name, family) => (pool(name.as_str(), Wish::One(*family)), false),
            Refusal::PoolNotDual(name) => (pool(name.as_str(), Wish::Both), true),
            Refusal::Request(_)
            | Refusal::FamilyMismatch(_)
            | Refusal::PoolMismatch { .. }
            | Refusal::UnknownPool(_)
            | Refusal::NotInOnePool(_)
            | Refusal::PoolNotCompatible(_)
            | Refusal::MoreThanTwo(_)
            | Refusal::SameFamily(..) => return None,
        };
        if spots.is_empty() {
            return None;
        }
        let sharing = (!claim.keys.sharing.is_empty()).then(|| {
            let mut ports = claim.ports.clone();
            ports.sort();
            (claim.keys.clone(), ports)
        });
        spots.extend(sharing.as_ref().map(|(keys, _)| Spot(Place::Shared(keys.clone()))));
        spots.sort();
        Some(Want { spots, all, sharing })
    }

    /// Where a pool might grant a wish one day; nowhere if it is not made for it.
    fn spots_of_pool(&self, id: PoolId, wish: Wish) -> Vec<Spot> {
        let families: Vec<IpFamily> =
            wish.families().iter().copied().filter(|&family| self.space.capacity(id, family) > 0).collect();
        if wish == Wish::Both && families.len() < 2 {
            return vec![];
        }
        families.into_iter().map(|family| Spot(Place::Pool(id, family))).collect()
    }

    fn spots_of_any_pool(&self, claim: &Claim, wish: Wish) -> Vec<Spot> {
        let admits = |id: &PoolId| self.space.pool(*id).admits(&claim.service.namespace, &claim.labels);
        let pinned = self.space.pinned(&claim.service.namespace).filter(admits);
        let mut spots: Vec<Spot> = pinned.flat_map(|id| self.spots_of_pool(id, wish)).collect();
        if !self.space.open().is_empty() {
            spots.extend(wish.families().iter().map(|&family| Spot(Place::Open(family))));
        }
        spots
    }
}

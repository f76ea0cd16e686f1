// SPDX-License-Identifier: Apache-2.0
//! Choosing new addresses for a Service that holds none, or one too few.

use std::net::IpAddr;

use ferrolb_net_types::IpFamily;

use crate::allocator::{Allocator, Covered};
use crate::claim::{Claim, IpFamilyPolicy};
use crate::converge::Choice;
use crate::family::Families;
use crate::refusal::Refusal;
use crate::space::PoolId;

/// What addresses would do, given a Service's families and policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    One(IpFamily),
    Both,
    /// Both, or else one, rather of this family.
    Prefer(IpFamily),
    /// A dual-stack Service that wants one address: no API server lets it pass.
    Nothing,
}

/// The first address of each family that a pool could give.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    v4: Option<IpAddr>,
    v6: Option<IpAddr>,
}

impl Allocator {
    /// Allocates afresh: the addresses asked for, else from the pool asked for, else from any pool.
    pub(crate) fn allocate(&mut self, claim: &Claim, families: Families) -> Result<Choice, Refusal> {
        if let Some(ips) = claim.requested_ips.clone()? {
            self.allocate_requested(claim, families, &ips)?;
            return Ok(Choice::RequestedAddresses);
        }
        let wish = Wish::of(claim, families);
        if !claim.requested_pool.is_empty() {
            let ips = self.choose_in_requested_pool(claim, wish)?;
            self.give(claim, &ips)?;
            return Ok(Choice::RequestedPool);
        }
        let pinned = self.space.pinned(&claim.service.namespace);
        let (ips, choice) = self
            .choose_among(claim, wish, pinned)
            .map(|ips| (ips, Choice::Pinned))
            .or_else(|| Some((self.choose_among(claim, wish, self.open_for(claim, wish))?, Choice::Open)))
            .ok_or(Refusal::NoAddress)?;
        self.give(claim, &ips)?;
        Ok(choice)
    }

    /// Gives a Service that holds one address one of the other family from the same pool.
    ///
    /// The new one is appended; with `ipv4_first` the pair is put in that order.
    pub(crate) fn extend(
        &mut self,
        claim: &Claim,
        held: IpAddr,
        ipv4_first: bool,
    ) -> Result<IpAddr, Refusal> {
        let missing = match IpFamily::of(held) {
            IpFamily::V4 => IpFamily::V6,
            IpFamily::V6 => IpFamily::V4,
        };
        let Some(id) = self.owner(claim, &[Some(held)], Covered::Anywhere)? else {
            // The pool is not known at the moment, so what it could give is not either.
            return Err(Refusal::NoAddress);
        };
        let new = self
            .first_for(claim, id, missing)
            .ok_or_else(|| Refusal::PoolLacksFamily(self.space.pool(id).name.clone(), missing))?;
        let pair = if ipv4_first && new.is_ipv4() { [new, held] } else { [held, new] };
        self.assign(claim, &pair.map(Some), Covered::Anywhere)?;
        Ok(new)
    }

    fn allocate_requested(
        &mut self,
        claim: &Claim,
        families: Families,
        ips: &[IpAddr],
    ) -> Result<(), Refusal> {
        let wanted: Vec<_> = ips.iter().copied().map(Some).collect();
        if Families::of(&wanted) != Ok(families) {
            return Err(Refusal::FamilyMismatch(ips.to_vec()));
        }
        let owner = self.admit(claim, &wanted, Covered::ByWhatIsHandedOut)?;
        if let Some(why) = self.pool_mismatch(claim, ips, owner) {
            return Err(why);
        }
        self.assign(claim, &wanted, Covered::ByWhatIsHandedOut)
    }

    /// Whether these addresses, of this pool, are of another one than the Service asks for.
    pub(crate) fn pool_mismatch(
        &self,
        claim: &Claim,
        ips: &[IpAddr],
        owner: Option<PoolId>,
    ) -> Option<Refusal> {
        let pool = owner.map(|id| self.space.pool(id).name.as_str());
        let mismatch = !claim.requested_pool.is_empty() && pool != Some(claim.requested_pool.as_str());
        mismatch.then(|| Refusal::PoolMismatch { ips: ips.to_vec(), pool: claim.requested_pool.clone() })
    }

    fn choose_in_requested_pool(&self, claim: &Claim, wish: Wish) -> Result<Vec<IpAddr>, Refusal> {
        let id = self
            .space
            .by_name(&claim.requested_pool)
            .ok_or_else(|| Refusal::UnknownPool(claim.requested_pool.clone()))?;
        let pool = self.space.pool(id);
        if !pool.admits(&claim.service.namespace, &claim.labels) {
            return Err(Refusal::PoolNotCompatible(pool.name.clone()));
        }
        let offer = self.offer(claim, id);
        if offer.v4.is_none() && offer.v6.is_none() {
            return Err(Refusal::PoolFull(pool.name.clone()));
        }
        wish.take(offer).ok_or_else(|| match wish {
            Wish::One(family) => Refusal::PoolLacksFamily(pool.name.clone(), family),
            _ => Refusal::PoolNotDual(pool.name.clone()),
        })
    }

    /// The first pool of the list that grants the wish in full, else the first that grants it in part.
    fn choose_among(
        &self,
        claim: &Claim,
        wish: Wish,
        pools: impl Iterator<Item = PoolId>,
    ) -> Option<Vec<IpAddr>> {
        let mut second_best: [Option<IpAddr>; 2] = [None, None];
        for id in pools {
            if !self.space.pool(id).admits(&claim.service.namespace, &claim.labels) {
                continue;
            }
            let offer = self.offer(claim, id);
            match wish {
                Wish::Prefer(family) => {
                    if let Some(both) = offer.both() {
                        return Some(both);
                    }
                    let (first, second) = match family {
                        IpFamily::V4 => (offer.v4, offer.v6),
                        IpFamily::V6 => (offer.v6, offer.v4),
                    };
                    second_best = [second_best[0].or(first), second_best[1].or(second)];
                }
                _ => {
                    if let Some(ips) = wish.take(offer) {
                        return Some(ips);
                    }
                }
            }
        }
        second_best[0].or(second_best[1]).map(|ip| vec![ip])
    }

    /// Of the pools that serve anybody, by name, those that have something to offer: a hundred full ones before them
    /// cost nothing.
    fn open_for(&self, claim: &Claim, wish: Wish) -> impl Iterator<Item = PoolId> {
        let mut from = PoolId(0);
        std::iter::from_fn(move || {
            let unused = wish.families().iter().filter_map(|&f| self.first_open_with_unused(f, from));
            let shared = self.first_joinable(&claim.keys, from);
            let next = unused.chain(shared).min()?;
            from = PoolId(next.0 + 1);
            Some(next)
        })
        .filter(|id| self.space.open().contains(id))
    }

    fn offer(&self, claim: &Claim, id: PoolId) -> Offer {
        Offer { v4: self.first_for(claim, id, IpFamily::V4), v6: self.first_for(claim, id, IpFamily::V6) }
    }

    fn give(&mut self, claim: &Claim, ips: &[IpAddr]) -> Result<(), Refusal> {
        let ips: Vec<_> = ips.iter().copied().map(Some).collect();
        self.assign(claim, &ips, Covered::ByWhatIsHandedOut)
    }
}

impl Wish {
    /// The families of which an address could grant the wish, or a part of it.
    pub(crate) const fn families(self) -> &'static [IpFamily] {
        match self {
            Self::One(IpFamily::V4) => &[IpFamily::V4],
            Self::One(IpFamily::V6) => &[IpFamily::V6],
            Self::Both | Self::Prefer(_) => &[IpFamily::V4, IpFamily::V6],
            Self::Nothing => &[],
        }
    }

    pub(crate) fn of(claim: &Claim, families: Families) -> Self {
        match (families, claim.policy) {
            (Families::One(family), _) => Self::One(family),
            (Families::Dual, IpFamilyPolicy::RequireDualStack) => Self::Both,
            (Families::Dual, IpFamilyPolicy::PreferDualStack) => Self::Prefer(claim.preferred_family),
            (Families::Dual, IpFamilyPolicy::SingleStack) => Self::Nothing,
        }
    }

    fn take(self, offer: Offer) -> Option<Vec<IpAddr>> {
        let one = |family| match family {
            IpFamily::V4 => offer.v4.map(|ip| vec![ip]),
            IpFamily::V6 => offer.v6.map(|ip| vec![ip]),
        };
        match self {
            Self::One(family) => one(family),
            Self::Both => offer.both(),
            Self::Prefer(family) => {
                offer.both().or_else(|| one(family)).or_else(|| offer.v4.or(offer.v6).map(|ip| vec![ip]))
            }
            Self::Nothing => None,
        }
    }
}

impl Offer {
    fn both(self) -> Option<Vec<IpAddr>> {
        Some(vec![self.v4?, self.v6?])
    }
}

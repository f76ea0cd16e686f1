// SPDX-License-Identifier: Apache-2.0
//! One Service's decision: what it keeps, what it loses, what it gets, and why.

use std::net::IpAddr;

use ferrolb_net_types::{IpFamily, PoolName};

use crate::allocator::{Allocator, Covered};
use crate::choose::Wish;
use crate::claim::{Claim, IpFamilyPolicy};
use crate::family::Families;
use crate::lack::Lack;
use crate::notice::Notice;
use crate::refusal::Refusal;
use crate::request::RequestError;
use crate::want::Want;

/// What a Service should look like, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The addresses its status lists, in order.
    pub ingress: Vec<IpAddr>,
    /// What its pool annotation says.
    pub pool: PoolMark,
    /// What to tell, in order.
    pub notices: Vec<Notice>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why the addresses in its status, or those that it held, could not stay, if they could not.
    pub cleared: Option<Cleared>,
    /// Why it has no address, in words for what is stored: the same whoever else holds what. `None` unless the
    /// outcome is [`Outcome::Pending`].
    pub lack: Option<Lack>,
    /// What has to become free before deciding again may come out better. `None`: only other pools, or a change of
    /// the Service itself, can help.
    pub waits_for: Option<Want>,
}

/// The annotation that names the pool of a Service's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolMark {
    /// It names this pool.
    Is(PoolName),
    /// It is absent.
    Absent,
    /// It stays as it is: the pool is not known at the moment.
    Unchanged,
}

/// How a decision ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Keeps what its status lists.
    Kept,
    /// Got a second address beside the one it keeps.
    Extended,
    /// Has new addresses, chosen this way.
    Allocated(Choice),
    /// Gets no address for now.
    Pending(Refusal),
    /// Asks for something that cannot be understood, and keeps what it holds.
    KeptDespite(RequestError),
    /// Is not of type `LoadBalancer`.
    NotLoadBalancer,
    /// There is no pool at all.
    NoPools,
    /// It has no cluster IP (yet).
    NoClusterIps,
    /// Wants two families and has cluster IPs of one.
    NotEnoughClusterIps,
    /// Its cluster IPs are not one per family.
    UnknownFamily,
}

impl Outcome {
    /// Whether the Service has what it should.
    pub const fn is_failure(&self) -> bool {
        !matches!(self, Self::Kept | Self::Extended | Self::Allocated(_) | Self::NotLoadBalancer)
    }
}

/// How new addresses were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The Service asked for these.
    RequestedAddresses,
    /// The Service asked for the pool.
    RequestedPool,
    /// The best pool with restrictions or a priority that admits the Service.
    Pinned,
    /// The first pool, by name, that serves anybody.
    Open,
}

/// Why addresses in a status could not stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// The Service is not of type `LoadBalancer`.
    NotLoadBalancer,
    /// There is no pool at all.
    NoPools,
    /// The Service has no cluster IP.
    NoClusterIps,
    /// The Service needs more cluster IPs.
    NotEnoughClusterIps,
    /// The addresses are not one per family.
    HeldWithoutFamily,
    /// The cluster IPs are not one per family.
    ClusterIpsWithoutFamily,
    /// The addresses are of other families than the Service.
    OtherFamilies,
    /// The pools or other Services do not allow them.
    Refused(Refusal),
    /// Another pool is asked for.
    OtherPoolRequested,
    /// Other addresses are asked for.
    OtherAddressesRequested,
    /// Two families are required, and the pool lacks one.
    NotExtensible,
}

/// What is left of a Service's status once everything that may not stay is gone.
enum Settled {
    /// Nothing more can be done.
    Done(Outcome),
    /// What the allocator holds for it stays; what it lacks may be added.
    Open(Families),
}

/// What settling a Service yields besides the allocator's state.
#[derive(Default)]
struct Story {
    notices: Vec<Notice>,
    cleared: Option<Cleared>,
}

impl Allocator {
    /// First phase of a pass: takes the addresses in the Service's status for it, if it may keep them.
    ///
    /// Whether it holds any now. Call it for every Service, by rank, then [`Allocator::hold_back`] for those
    /// that may not keep theirs, before any [`Allocator::converge`].
    pub fn adopt(&mut self, claim: &Claim) -> bool {
        let before = self.let_go(&claim.service);
        self.settle(claim, &mut Story::default());
        self.hold_back_after(&claim.service, &[], before);
        self.allocation(&claim.service).is_some()
    }

    /// Decides one Service.
    pub fn converge(&mut self, claim: &Claim) -> Decision {
        let mut story = Story::default();
        let before = self.let_go(&claim.service);
        let (outcome, wish) = match self.settle(claim, &mut story) {
            Settled::Done(outcome) => (outcome, Wish::Nothing),
            Settled::Open(families) => {
                (self.complete(claim, families, &mut story), Wish::of(claim, families))
            }
        };
        self.hold_back_after(&claim.service, &claim.held, before);
        let (ingress, pool) = match self.allocation(&claim.service) {
            Some(held) => (held.ips.clone(), held.pool.clone().map_or(PoolMark::Unchanged, PoolMark::Is)),
            None => (vec![], PoolMark::Absent),
        };
        let lacking = story.notices.iter().find_map(|notice| match notice {
            Notice::NoAdditional(why) | Notice::NotAllocated { why, .. } => Some(why),
            _ => None,
        });
        let waits_for = lacking.and_then(|why| self.want(claim, wish, why));
        let lack = match &outcome {
            Outcome::Pending(why) => Some(self.lack(claim, why)),
            _ => None,
        };
        Decision { ingress, pool, notices: story.notices, outcome, cleared: story.cleared, lack, waits_for }
    }

    fn settle(&mut self, claim: &Claim, story: &mut Story) -> Settled {
        if !claim.load_balancer {
            return self.give_up(claim, story, Cleared::NotLoadBalancer, Outcome::NotLoadBalancer);
        }
        if self.pools().next().is_none() && !self.pools_incomplete {
            return self.give_up(claim, story, Cleared::NoPools, Outcome::NoPools);
        }
        let single = std::slice::from_ref(&claim.cluster_ip);
        let cluster_ips = match &claim.cluster_ips[..] {
            [] if claim.cluster_ip.is_empty() => {
                return self.give_up(claim, story, Cleared::NoClusterIps, Outcome::NoClusterIps);
            }
            [] => single,
            list => list,
        };
        if claim.policy == IpFamilyPolicy::RequireDualStack && claim.cluster_ips.len() < 2 {
            story.notices.push(Notice::NotEnoughClusterIps(claim.cluster_ips.clone()));
            return self.give_up(claim, story, Cleared::NotEnoughClusterIps, Outcome::NotEnoughClusterIps);
        }
        let held_families = (!claim.held.is_empty()).then(|| Families::of(&claim.held));
        if let Some(Err(why)) = &held_families {
            let (held, why) = (claim.held.clone(), why.clone());
            story.notices.push(Notice::HeldWithoutFamily { held, why });
        }
        let families = match Families::of_texts(cluster_ips) {
            Ok(families) => families,
            Err(why) => {
                let (cluster_ips, cluster_ip) = (claim.cluster_ips.clone(), claim.cluster_ip.clone());
                story.notices.push(Notice::ClusterIpsWithoutFamily { cluster_ips, cluster_ip, why });
                return self.give_up(claim, story, Cleared::ClusterIpsWithoutFamily, Outcome::UnknownFamily);
            }
        };
        let Some(held_families) = held_families else {
            self.drop_allocation(&claim.service);
            return Settled::Open(families);
        };
        if held_families.as_ref() != Ok(&families) && !may_grow(claim, families, held_families.is_ok()) {
            let why = if held_families.is_ok() { Cleared::OtherFamilies } else { Cleared::HeldWithoutFamily };
            self.clear(claim, story, why);
            return Settled::Open(families);
        }
        if let Err(why) = self.assign(claim, &claim.held, Covered::Anywhere) {
            story.notices.push(Notice::Cleared { service: claim.service.clone(), why: why.clone() });
            self.clear(claim, story, Cleared::Refused(why));
        } else if self.other_pool_requested(claim) {
            self.clear(claim, story, Cleared::OtherPoolRequested);
        }
        match &claim.requested_ips {
            Err(why) => {
                story.notices.push(Notice::InvalidRequest(why.clone()));
                let outcome = match self.allocation(&claim.service) {
                    Some(_) => Outcome::KeptDespite(why.clone()),
                    None => Outcome::Pending(why.clone().into()),
                };
                return Settled::Done(outcome);
            }
            Ok(Some(ips)) if !same_set(ips, &claim.held) && self.allocation(&claim.service).is_some() => {
                self.clear(claim, story, Cleared::OtherAddressesRequested);
            }
            Ok(_) => {}
        }
        Settled::Open(families)
    }

    /// Adds what a settled Service lacks.
    fn complete(&mut self, claim: &Claim, families: Families, story: &mut Story) -> Outcome {
        let held = self.allocation(&claim.service).map(|a| a.ips.clone()).unwrap_or_default();
        match (&held[..], claim.policy) {
            (&[held], IpFamilyPolicy::PreferDualStack)
                if families == Families::Dual && claim.requested_ips == Ok(None) =>
            {
                match self.extend(claim, held, false) {
                    Ok(new) => {
                        story.notices.push(Notice::AssignedAdditional(new));
                        Outcome::Extended
                    }
                    Err(why) => {
                        self.tell_no_additional(claim, story, why);
                        Outcome::Kept
                    }
                }
            }
            (&[held], IpFamilyPolicy::RequireDualStack) if families == Families::Dual => {
                if self.extend(claim, held, true).is_ok() {
                    let ips = self.allocation(&claim.service).map(|a| a.ips.clone()).unwrap_or_default();
                    story.notices.push(Notice::Assigned(ips));
                    return Outcome::Extended;
                }
                self.clear(claim, story, Cleared::NotExtensible);
                self.allocate_and_tell(claim, families, story)
            }
            ([], _) => self.allocate_and_tell(claim, families, story),
            _ => Outcome::Kept,
        }
    }

    fn allocate_and_tell(&mut self, claim: &Claim, families: Families, story: &mut Story) -> Outcome {
        match self.allocate(claim, families) {
            Ok(choice) => {
                let ips = self.allocation(&claim.service).map(|a| a.ips.clone()).unwrap_or_default();
                story.notices.push(Notice::Assigned(ips.clone()));
                if let ([one], Families::Dual, Ok(None)) = (&ips[..], families, &claim.requested_ips)
                    && let Err(why) = self.extend(claim, *one, false)
                {
                    self.tell_no_additional(claim, story, why);
                }
                Outcome::Allocated(choice)
            }
            Err(why) => {
                story.notices.push(Notice::NotAllocated { service: claim.service.clone(), why: why.clone() });
                Outcome::Pending(why)
            }
        }
    }

    fn tell_no_additional(&self, claim: &Claim, story: &mut Story, why: Refusal) {
        // Of a pool that cannot be read at the moment nothing is known that could be told.
        if self.allocation(&claim.service).is_some_and(|a| a.pool.is_some()) {
            story.notices.push(Notice::NoAdditional(why));
        }
    }

    fn other_pool_requested(&self, claim: &Claim) -> bool {
        if claim.requested_pool.is_empty() {
            return false;
        }
        match self.allocation(&claim.service).and_then(|a| a.pool.as_ref()) {
            Some(pool) => pool.as_str() != claim.requested_pool,
            // The addresses lie in no known pool: certainly not in a known one, perhaps in one that is not.
            None => self.space.by_name(&claim.requested_pool).is_some(),
        }
    }

    fn give_up(&mut self, claim: &Claim, story: &mut Story, why: Cleared, outcome: Outcome) -> Settled {
        self.clear(claim, story, why);
        Settled::Done(outcome)
    }

    fn clear(&mut self, claim: &Claim, story: &mut Story, why: Cleared) {
        // An API server empties the status of what is no load balancer by itself.
        if self.drop_allocation(&claim.service) || !claim.held.is_empty() {
            story.cleared.get_or_insert(why);
        }
    }
}

/// Whether a Service may keep addresses of fewer families than it has, to have the rest added.
fn may_grow(claim: &Claim, families: Families, held_is_sane: bool) -> bool {
    families == Families::Dual
        && match claim.policy {
            IpFamilyPolicy::PreferDualStack => true,
            IpFamilyPolicy::RequireDualStack => {
                held_is_sane && claim.held.len() == 1 && !matches!(claim.requested_ips, Ok(Some(_)))
            }
            IpFamilyPolicy::SingleStack => false,
        }
}

fn same_set(ips: &[IpAddr], held: &[Option<IpAddr>]) -> bool {
    let family = |ip: &IpAddr| IpFamily::of(*ip);
    let mut wanted: Vec<_> = ips.to_vec();
    let mut held: Vec<_> = held.iter().copied().flatten().collect();
    wanted.sort_by_key(family);
    held.sort_by_key(family);
    wanted == held
}

// SPDX-License-Identifier: Apache-2.0
//! Makes the layer-2 engine agree with the plan and the members: what this node leads, it answers for.
//!
//! What another node leads from now on is handed over, not dropped: this node answers, but announces no more, until it
//! sees the other's gratuitous frame, so that no request goes unanswered in between. Whoever never announces, because it
//! believes to have led all along, is given half a second; a speaker of MetalLB less, since it keeps silent about an address
//! that it has announced within the last five seconds, and answers none the less.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferrolb_announce::{AddressPlans, Members, Standing, owner};
use ferrolb_net_types::{NodeName, Time};

use super::Wire;
use super::disputes::Claimant;
use super::membership::Word;

/// How an address is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// The new owner, if there is one, does not answer yet.
    HandOver,
    /// Both have answered, or nobody may: silence at once.
    AtOnce,
}

/// Somebody else has announced an address that this node answers for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    at: Time,
    /// This node has announced it since.
    pub(super) answered: bool,
}

impl Wire {
    /// Takes a new plan; only what it changes is decided anew.
    pub(super) fn set_plan(&mut self, now: Time, new: Arc<AddressPlans>) {
        self.forget_gains(now);
        let former = self.plan.replace(new.clone());
        match former.filter(|_| self.ready()) {
            Some(former) => {
                for ip in former.differing(&new) {
                    self.outdated.replanned(ip);
                    self.decide(now, ip, Manner::HandOver);
                }
            }
            None => self.decide_all(now, Manner::HandOver),
        }
        self.review_disputes(now);
    }

    /// From now on these speakers live.
    pub(super) fn set_members(&mut self, now: Time, members: Members, manner: Manner) {
        if self.members.as_ref() == Some(&members) {
            return;
        }
        self.forget_gains(now);
        let first = self.members.replace(members).is_none();
        self.beside.retain(|_, (since, _)| now.since(*since) < REUNION);
        let mut given_up: BTreeMap<NodeName, Vec<IpAddr>> = BTreeMap::new();
        if first {
            self.decide_all(now, manner);
        } else if let Some(plan) = self.plan.clone().filter(|_| self.ready()) {
            // With ten thousand addresses most of this must be nothing but a look.
            for (ip, address) in plan.iter() {
                let led = manner == Manner::AtOnce && self.leads_alone(*ip);
                self.reconsider(now, *ip, manner);
                if led && !self.owned.contains(ip) {
                    self.beside.insert(*ip, (now, None));
                }
                if let Some((_, told)) = self.beside.get_mut(ip)
                    && let Some(members) = &self.members
                    && let Some(heir) = owner(address, members).filter(|heir| **heir != self.node)
                    && told.as_ref() != Some(heir)
                {
                    *told = Some(heir.clone());
                    given_up.entry(heir.clone()).or_default().push(*ip);
                }
            }
        }
        self.review_disputes(now);
        if let Some(gossip) = &mut self.gossip {
            given_up.iter().for_each(|(heir, ips)| gossip.tell(now, heir, &Word::GivenUp, ips));
        }
    }

    /// Decides about every address, once everything is known that decides.
    pub(super) fn decide_all(&mut self, now: Time, manner: Manner) {
        let Some(plan) = self.plan.clone().filter(|_| self.ready()) else { return };
        let all: BTreeSet<_> = plan.keys().chain(&self.owned).copied().collect();
        all.into_iter().for_each(|ip| self.decide(now, ip, manner));
    }

    /// Gives up whatever somebody else can have; what nobody can is answered for to the end.
    pub(super) fn hand_everything_over(&mut self, now: Time) {
        let (Some(plan), Some(members)) = (self.plan.clone(), self.members.clone()) else { return };
        let others = without(&members, &self.node);
        for ip in self.owned.clone() {
            let heir = plan.get(&ip).and_then(|address| owner(address, &others));
            if let Some(heir) = heir.and_then(|heir| members.standing(heir)) {
                // It has to hear of the goodbye first.
                let patience = if heir == Standing::Metallb { 2 * METALLB_HANDING } else { HANDING };
                self.hand_over(now, ip, patience);
            }
        }
    }

    /// Somebody else has announced an address of this node. That ends the answering for what was given up, now or soon;
    /// what this node leads may be in dispute.
    pub(super) fn claimed(&mut self, now: Time, ip: IpAddr, claimant: Claimant) {
        // Who ends keeps only what nobody else could have; now somebody can.
        if self.handing.contains_key(&ip) || self.stopping.is_some() {
            self.give_up(now, ip);
        } else if self.owned.contains(&ip) {
            // The two learnt of changes in another order. The one that makes way has not seen what this one announced
            // before, and is answering until it sees it again.
            if self.gained.remove(&ip).is_some_and(|since| now.since(since) < JUST_NOW) {
                self.announce_again(now, ip);
            }
            let answered = self.is_being_announced(now, ip);
            self.claims.insert(ip, Claim { at: now, answered });
            self.dispute(now, ip, claimant);
        }
    }

    /// Another member has answered for an address until now, while this one did so, too: where that one was heard,
    /// neighbours look for it there.
    pub(super) fn left_to_this_one(&mut self, now: Time, ip: IpAddr) {
        if self.leads_alone(ip) && self.stopping.is_none() && !self.was_just_defended(ip) {
            self.announce_again(now, ip);
        }
    }

    /// Gives up what nobody has announced in time.
    pub(super) fn end_handing(&mut self, now: Time) {
        let over: Vec<IpAddr> =
            self.handing.iter().filter(|(_, until)| **until <= now).map(|(ip, _)| *ip).collect();
        over.into_iter().for_each(|ip| self.give_up(now, ip));
    }

    /// Whether this node answers for the address, and hands it over to nobody.
    pub(super) fn leads_alone(&self, ip: IpAddr) -> bool {
        self.owned.contains(&ip) && !self.handing.contains_key(&ip)
    }

    fn forget_gains(&mut self, now: Time) {
        self.gained.retain(|_, since| now.since(*since) < JUST_NOW);
    }

    /// Those who follow another's announcement are to learn who has the address.
    fn announce_again(&mut self, now: Time, ip: IpAddr) {
        self.claims.remove(&ip);
        self.defended(now, ip);
        self.engine.handle(now, ferrolb_l2::Input::Again { address: ip });
    }

    /// Decides about an address whose plan is the same.
    fn reconsider(&mut self, now: Time, ip: IpAddr, manner: Manner) {
        let (Some(plan), Some(members)) = (&self.plan, &self.members) else { return };
        let owner = plan.get(&ip).and_then(|address| owner(address, members));
        let leads = owner == Some(&self.node) && !self.outdated.is_void(ip);
        let (answers, handing) = (self.owned.contains(&ip), self.handing.contains_key(&ip));
        let settled = match (answers, leads) {
            (true, true) => !handing,
            (true, false) => handing && owner.is_some() && manner == Manner::HandOver,
            (false, leads) => !leads,
        };
        if !settled {
            self.decide(now, ip, manner);
        } else if answers && leads && manner == Manner::AtOnce {
            // Neighbours may look for it elsewhere.
            if self.claims.get(&ip).is_some_and(|claim| !claim.answered) {
                self.announce_again(now, ip);
            }
        }
    }

    /// Makes the engine agree with the plan and the members about one address.
    pub(super) fn decide(&mut self, now: Time, ip: IpAddr, manner: Manner) {
        if self.stopping.is_some() {
            return;
        }
        let (Some(plan), Some(members)) = (&self.plan, &self.members) else { return };
        let address = plan.get(&ip);
        let owner = address.and_then(|address| owner(address, members));
        match address.filter(|_| owner == Some(&self.node)) {
            Some(_) if self.outdated.is_void(ip) => self.give_up(now, ip),
            Some(_) if self.disputes.yields(ip) => {}
            Some(address) => {
                let interfaces = &address.interfaces;
                self.engine.handle(now, ferrolb_l2::Input::Announce { address: ip, interfaces });
                let returned = self.handing.remove(&ip).is_some();
                if self.owned.insert(ip) || returned {
                    self.gained.insert(ip, now);
                }
                self.report.addresses.insert(ip);
            }
            None if !self.owned.contains(&ip) => {}
            None if owner.is_some() && manner == Manner::HandOver => {
                let heir = owner.and_then(|owner| members.standing(owner));
                let patience = if heir == Some(Standing::Metallb) { METALLB_HANDING } else { HANDING };
                self.hand_over(now, ip, patience);
            }
            None => self.give_up(now, ip),
        }
    }

    /// Answers until somebody else announces the address, unless that has just happened.
    fn hand_over(&mut self, now: Time, ip: IpAddr, patience: Duration) {
        if self.claims.get(&ip).is_some_and(|claim| now.since(claim.at) < JUST_NOW) {
            self.give_up(now, ip);
        } else {
            self.handing.entry(ip).or_insert(now + patience);
        }
    }

    pub(super) fn give_up(&mut self, now: Time, ip: IpAddr) {
        self.handing.remove(&ip);
        self.claims.remove(&ip);
        self.gained.remove(&ip);
        self.nothing_to_defend(ip);
        if self.owned.remove(&ip) {
            self.engine.handle(now, ferrolb_l2::Input::Withdraw { address: ip });
            self.report.addresses.insert(ip);
        }
    }
}

fn without(members: &Members, node: &NodeName) -> Members {
    match members {
        // Nobody knows who lives, so nobody can be counted on.
        Members::EveryNode => Members::Known(BTreeMap::new()),
        Members::Known(known) => {
            let mut others = known.clone();
            others.remove(node);
            Members::Known(others)
        }
    }
}

/// How long an address that was given up is answered for if nobody announces it.
const HANDING: Duration = Duration::from_millis(500);

/// The same where a speaker of MetalLB answers from now on.
const METALLB_HANDING: Duration = Duration::from_millis(50);

/// How long members may take to find together again, so that others turn out to lead what was left to some.
const REUNION: Duration = Duration::from_secs(5);

/// How long ago the new owner, who may have learnt of a change first, may have announced an address.
const JUST_NOW: Duration = Duration::from_secs(3);

// SPDX-License-Identifier: Apache-2.0
//! The rules: who may answer, who should, and how long it may take until it is so.
//!
//! Everything that happens comes with two times: until when two nodes may answer for one address, and until when
//! the right one has to. What follows from the rule of election is computed from the state of the whole, which no
//! speaker sees.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferrolb_announce::{Members, Standing};
use ferrolb_net_types::Time;

use super::bounds::{HEARING, OVERLAP};
use super::links::{Kind, USUAL_DELAY};
use super::oracle::Contest;
use super::tally::{Cause, Mark};
use super::traffic::Event;
use super::world::{Node, Pod, World};

#[derive(Default)]
pub(super) struct Judge {
    /// Until when two may answer.
    lenient_until: Time,
    /// From when on who answers has to be who should, by what is to be over until then.
    right_by: BTreeMap<Cause, Time>,
    cause: Option<Cause>,
    owners: BTreeMap<IpAddr, BTreeSet<usize>>,
    twice_since: BTreeMap<IpAddr, Time>,
    nobody_since: BTreeMap<IpAddr, Time>,
    /// Times at which to look again.
    looks: Vec<Time>,
}

impl Judge {
    /// Something happened: two may answer for an address for so long from now on, and it may take so long until the
    /// right ones do.
    pub(super) fn disturb(&mut self, now: Time, cause: Cause, lenient: Duration, right: Duration) {
        self.lenient_until = self.lenient_until.max(now + lenient);
        let right_by = self.right_by.entry(cause).or_default();
        *right_by = (*right_by).max(now + right);
        self.cause = Some(cause);
        self.looks.extend([self.lenient_until, *right_by]);
    }

    /// What this has brought about is over: it is not waited for any longer.
    pub(super) fn over(&mut self, cause: Cause) {
        self.right_by.remove(&cause);
    }

    /// Whether what this has brought about may not be over yet.
    pub(super) fn waits_for(&self, now: Time, cause: Cause) -> bool {
        self.right_by.get(&cause).is_some_and(|right_by| *right_by > now)
    }

    /// Until when two may answer for an address.
    pub(super) const fn lenient_until(&self) -> Time {
        self.lenient_until
    }

    /// From when on who answers has to be who should.
    pub(super) fn right_by(&self) -> Time {
        self.right_by.values().max().copied().unwrap_or_default()
    }

    fn twice_bound() -> Duration {
        // Until the announcement of the new owner has arrived.
        OVERLAP + Duration::from_micros(USUAL_DELAY + 50)
    }
}

impl World {
    /// A node answers for an address from now on: may it?
    pub(super) fn look_at_gain(&mut self, number: usize, address: IpAddr) {
        let node = &self.nodes[number];
        if node.metallb {
            return;
        }
        let contest = node.facts.contests.get(&address);
        let candidate = contest.is_some_and(|contest| contest.admits(&node.name));
        let eligible = node.may_answer;
        self.tally.count(Mark::Candidate);
        self.tally.count(Mark::Heard);
        if !candidate {
            self.fail(Mark::Candidate, || format!("node-{number} answers for {address} and is no candidate"));
        }
        if !eligible {
            self.fail(Mark::Heard, || {
                format!("node-{number} answers for {address} before it has heard the others")
            });
        }
    }

    /// A speaker says that it has heard the others: it has to see whoever it could hear all the time, unless it has tried
    /// for long enough.
    pub(super) fn look_at_entry(&mut self, number: usize) {
        let node = &self.nodes[number];
        let since = node.listed_at;
        let quiet = self.links.is_sound() && self.links_since <= since;
        // In a large cluster it is told of a few.
        if !quiet || self.is_large() || self.now >= since + HEARING {
            return;
        }
        let unseen = self.nodes.iter().enumerate().find(|(other, there)| {
            *other != number
                && self.links.side[*other] == self.links.side[number]
                && there.process.is_some()
                && (there.pod, there.ready) == (Some(Pod::Runs), true)
                && !there.asleep
                && there.may_answer
                && there.there_since <= since
                && !node.sees.contains(&there.name)
        });
        let unseen = unseen.map(|(other, _)| other);
        self.tally.count(Mark::Entered);
        if let Some(other) = unseen {
            self.fail(Mark::Entered, || {
                format!("node-{number} may answer, and has never heard node-{other}, which runs")
            });
        }
    }

    /// Who answers for what has changed.
    pub(super) fn judge_owners(&mut self, number: usize, gained: &[IpAddr], lost: &[IpAddr]) {
        for address in gained {
            self.judge.owners.entry(*address).or_default().insert(number);
        }
        for address in lost {
            self.judge.owners.entry(*address).or_default().remove(&number);
        }
        self.judge_now();
    }

    /// Notes since when an address has had two owners, or none.
    fn measure(&mut self, address: IpAddr, could: impl Fn(&Self) -> bool) {
        let now = self.now;
        let cause = self.judge.cause.unwrap_or(Cause::Start);
        let whole = self.links.side.iter().all(|side| *side == self.links.side[0]);
        let none = self.judge.owners.get(&address).is_none_or(BTreeSet::is_empty);
        let twice = self.pair(address).is_some();
        if twice {
            if let Entry::Vacant(since) = self.judge.twice_since.entry(address) {
                since.insert(now);
                self.judge.looks.push(now + Judge::twice_bound() + Duration::from_micros(1));
            }
        } else if let Some(since) = self.judge.twice_since.remove(&address) {
            self.tally.twice(cause, now - since);
        }
        if whole && none && could(self) {
            self.judge.nobody_since.entry(address).or_insert(now);
        } else if let Some(since) = self.judge.nobody_since.remove(&address).filter(|_| whole) {
            self.tally.nobody(cause, now - since);
        }
    }

    fn owners(&self, address: IpAddr) -> BTreeSet<usize> {
        self.judge.owners.get(&address).cloned().unwrap_or_default()
    }

    /// Two that reach each other, one of them ours, and both answer for the address. Beside MetalLB's speakers, which
    /// act on what they see and on nothing else, only those count that see the same members.
    fn pair(&self, address: IpAddr) -> Option<(usize, usize)> {
        let owners = self.judge.owners.get(&address)?;
        let reach = |a: usize, b: usize| {
            self.links.open(a, b, Kind::Frame)
                && self.links.open(b, a, Kind::Frame)
                && !(self.nodes[a].metallb && self.nodes[b].metallb)
                && (self.shape.metallb == 0 || self.nodes[a].sees == self.nodes[b].sees)
        };
        owners
            .iter()
            .enumerate()
            .find_map(|(place, &a)| owners.iter().skip(place + 1).find(|&&b| reach(a, b)).map(|&b| (a, b)))
    }

    /// Looks at everything that can be judged at this moment.
    pub(super) fn judge_now(&mut self) {
        if self.links.is_sound() && self.all_informed() {
            let members = OnceCell::new();
            for (address, contest) in &*self.truth.contests.clone() {
                let could = |world: &Self| {
                    let members = members.get_or_init(|| world.known(world.links.side[0]));
                    !world.should(contest, members).is_empty()
                };
                self.measure(*address, could);
            }
        } else {
            // Who does not hear the same cannot agree.
            self.judge.twice_since.clear();
            self.judge.nobody_since.clear();
        }
        for at in std::mem::take(&mut self.judge.looks) {
            self.agenda.add(at.max(self.now), Event::Judge);
        }
        if !self.links.is_sound() || !self.all_informed() {
            return;
        }
        if self.now >= self.judge.lenient_until {
            self.judge_single();
        }
        if self.now >= self.judge.right_by() {
            self.judge_right();
        }
    }

    fn judge_single(&mut self) {
        self.tally.count(Mark::OneOwner);
        // What began while it was allowed has to end as soon as anything that begins now.
        let lenient = self.judge.lenient_until;
        let late: Vec<IpAddr> = self
            .judge
            .twice_since
            .iter()
            .filter(|(_, since)| self.now - lenient.max(**since) > Judge::twice_bound())
            .map(|(address, _)| *address)
            .collect();
        for address in late {
            if let Some((a, b)) = self.pair(address) {
                self.fail(Mark::OneOwner, || {
                    format!("{address} is answered for by node-{a} and by node-{b}, which reach each other")
                });
            }
        }
    }

    pub(super) fn judge_right(&mut self) {
        self.tally.count(Mark::RightOwner);
        let Some((address, should, does)) = self.wrong() else { return };
        if should.symmetric_difference(&does).all(|number| self.misses_only_metallb(*number)) {
            self.tally.count(Mark::MetallbAstray);
        } else {
            self.fail(Mark::RightOwner, || {
                format!("{address} should be answered for by {should:?}, and is by {does:?}")
            });
        }
    }

    /// A speaker of MetalLB that sees every one of ours, but not every other one of MetalLB's: those find together again
    /// when they do, once a minute at the latest.
    fn misses_only_metallb(&self, number: usize) -> bool {
        let (node, side) = (&self.nodes[number], self.links.side[number]);
        let missed = |metallb: bool| {
            self.members(side).iter().any(|(other, _)| {
                self.nodes[*other].metallb == metallb && !node.sees.contains(&self.nodes[*other].name)
            })
        };
        node.metallb && missed(true) && !missed(false)
    }

    /// Whether everybody has seen the same state of the API. Who has not may be right by what it knows.
    pub(super) fn all_informed(&self) -> bool {
        self.nodes.iter().all(|node| node.process.is_none() || Arc::ptr_eq(&node.facts, &self.truth))
    }

    /// Whether all is as it should be, and everybody knows: the next thing may happen.
    pub(super) fn is_well(&self) -> bool {
        self.links.is_sound() && self.all_informed() && self.wrong().is_none() && self.sees_all()
    }

    /// Whether every speaker sees exactly those that it should.
    pub(super) fn sees_all(&self) -> bool {
        let sides: BTreeMap<u16, usize> =
            self.sides().into_iter().map(|side| (side, self.members(side).len())).collect();
        self.nodes
            .iter()
            .enumerate()
            .filter(|(number, node)| {
                node.process.is_some()
                    && (node.metallb || node.listed)
                    && !node.asleep
                    && !self.withdrawn(*number)
            })
            .all(|(number, node)| sides.get(&self.links.side[number]) == Some(&node.sees.len()))
    }

    fn sides(&self) -> BTreeSet<u16> {
        self.links.side.iter().copied().collect()
    }

    /// An address whose owners are not who they should be: they should be, and they are.
    fn wrong(&self) -> Option<(IpAddr, BTreeSet<usize>, BTreeSet<usize>)> {
        let members: Vec<(u16, Members)> = self
            .sides()
            .into_iter()
            .filter(|side| self.any_of_ours(*side))
            .map(|side| (side, self.known(side)))
            .collect();
        self.truth.contests.iter().find_map(|(address, contest)| {
            let owners = self.owners(*address);
            members.iter().find_map(|(side, members)| {
                let should = self.should(contest, members);
                let does: BTreeSet<usize> =
                    owners.iter().copied().filter(|number| self.links.side[*number] == *side).collect();
                (should != does).then_some((*address, should, does))
            })
        })
    }

    /// Whether one of ours runs there. Those of MetalLB find together again when they do.
    fn any_of_ours(&self, side: u16) -> bool {
        let nodes = self.nodes.iter().zip(&self.links.side);
        nodes.into_iter().any(|(node, there)| *there == side && !node.metallb && node.process.is_some())
    }

    /// Who should answer for an address among these.
    fn should(&self, contest: &Contest, members: &Members) -> BTreeSet<usize> {
        contest.owners(members).iter().filter_map(|name| self.numbers.get(name).copied()).collect()
    }

    /// Who lives on a side, by name.
    fn known(&self, side: u16) -> Members {
        let members = self.members(side).into_iter();
        members.map(|(number, standing)| (self.nodes[number].name.clone(), standing)).collect()
    }

    /// Who lives on a side, and as what.
    fn members(&self, side: u16) -> Vec<(usize, Standing)> {
        (0..self.nodes.len())
            .filter(|number| {
                let node = &self.nodes[*number];
                // Who does not know who else should be there waits.
                let member = node.process.is_some() && (node.metallb || node.listed);
                self.links.side[*number] == side && member && !node.asleep && !self.withdrawn(*number)
            })
            .map(|number| {
                let node = &self.nodes[number];
                let standing = match (node.metallb, node.stale) {
                    (true, _) => Standing::Metallb,
                    (false, true) => Standing::Stale,
                    (false, false) => Standing::Ours,
                };
                (number, standing)
            })
            .collect()
    }

    /// Whether the speaker keeps out of the member list: MetalLB's would take it for one that knows what it does.
    fn withdrawn(&self, number: usize) -> bool {
        let side = self.links.side[number];
        let node = &self.nodes[number];
        let there = |of: &dyn Fn(&Node) -> bool| {
            self.nodes.iter().enumerate().any(|(other, node)| {
                self.links.side[other] == side && node.process.is_some() && !node.asleep && of(node)
            })
        };
        node.stale
            && !node.metallb
            && there(&|node| node.metallb)
            && there(&|node| !node.metallb && !node.stale)
    }

    /// Counts what came of it, once all is well.
    pub(super) fn count_outcomes(&mut self) {
        if !self.links.is_sound() {
            return;
        }
        let sides = self.sides();
        let members: Members = sides
            .iter()
            .flat_map(|side| self.members(*side))
            .map(|(number, standing)| (self.nodes[number].name.clone(), standing))
            .collect();
        let mixed = members.any_metallb();
        for (address, contest) in &*self.truth.contests.clone() {
            let owners = self.owners(*address);
            self.tally.count_if(sides.len() > 1 && owners.len() > 1, Mark::BothSides);
            self.tally.count_if(owners.is_empty(), Mark::NoCandidate);
            let theirs = owners.iter().filter(|owner| self.nodes[**owner].metallb).count();
            if mixed && sides.len() == 1 {
                self.tally.count_if(theirs == 1, Mark::MetallbLed);
                self.tally.count_if(theirs > 1, Mark::MetallbTwice);
                self.tally.count_if(theirs == 0 && !owners.is_empty(), Mark::OursLed);
            }
            let fresh: Members = match &members {
                Members::EveryNode => Members::EveryNode,
                Members::Known(known) => known
                    .iter()
                    .map(|(node, standing)| {
                        let fresh = if *standing == Standing::Stale { Standing::Ours } else { *standing };
                        (node.clone(), fresh)
                    })
                    .collect(),
            };
            self.tally.count_if(contest.owners(&fresh) != contest.owners(&members), Mark::StaleSkipped);
        }
    }
}

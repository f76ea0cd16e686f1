// SPDX-License-Identifier: Apache-2.0
//! Adj-RIB-Out: what one peer is to be told, and what it has been told (RFC 4271, section 3.2).
//!
//! ```text
//!   want, set_mode, refresh ──► target ≠ told? ──► steps, by attributes ──► write: one UPDATE
//! ```
//!
//! Only the difference is told: what changes and changes back before it was told says nothing. New attributes replace
//! the old ones; the route is never withdrawn in between. What is announced goes before what is withdrawn, so that an
//! aggregate is there before its parts go; but where the peer would know more than the limit in between, and might close
//! the session for it, what is withdrawn goes first. Steps with equal attributes share UPDATEs. The order is a function
//! of the routes and the limit alone.

mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrolb_net_types::{IpFamily, Prefix};

use self::policy::Policy;
use crate::route::{Export, Route};
use crate::wire::{Families, TooLong, announce, end_of_rib, withdraw};

/// What one peer is to be told.
#[derive(Debug, Default)]
pub struct AdjRibOut {
    entries: BTreeMap<Prefix, Entry>,
    /// What is to be said, in this order.
    steps: BTreeMap<Step, BTreeSet<Prefix>>,
    policy: Policy,
    /// The families whose end is still to be told.
    ends: Families,
}

/// What becomes of all routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are told as they are.
    #[default]
    Normal,
    /// They are told to be about to go (RFC 8326).
    AboutToGo,
    /// They are withdrawn.
    Gone,
}

/// What [`AdjRibOut::write`] wrote, or could not write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// An UPDATE about so many routes.
    Update(usize),
    /// The end of a family's routes.
    EndOfRib(IpFamily),
    /// Nothing: the attributes of these routes fill a message. They are not told, or no longer.
    TooLong {
        /// How many routes.
        routes: usize,
        /// How long.
        error: TooLong,
    },
}

/// What is wanted and not told to a peer that listens, nor about to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Untold {
    /// Nothing of these families is told: they are none of the settings', the peer does not take them, or there is no next
    /// hop.
    pub families: Families,
    /// Prefixes beyond the limit, and those whose attributes fill a message.
    pub prefixes: BTreeSet<Prefix>,
}

#[derive(Debug, Default)]
struct Entry {
    wanted: Option<Arc<Route>>,
    told: Told,
    step: Option<Step>,
}

/// What a peer knows of a prefix.
#[derive(Debug, Default)]
enum Told {
    #[default]
    Nothing,
    This(Arc<Route>),
    /// Something that is to be told again.
    Something,
}

/// Ordered as it is said, unless the limit turns it round: [`AdjRibOut::next_step`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Announce(IpFamily, Arc<Route>),
    Withdraw(IpFamily),
}

impl Entry {
    /// What is to be said of a prefix of which the peer is to know this.
    fn step_to(&self, target: Option<Arc<Route>>, family: IpFamily) -> Option<Step> {
        match (target, &self.told) {
            (Some(route), Told::This(told)) if route == *told => None,
            (Some(route), _) => Some(Step::Announce(family, route)),
            (None, Told::Nothing) => None,
            (None, _) => Some(Step::Withdraw(family)),
        }
    }

    /// Whether it is neither wanted nor known.
    const fn is_idle(&self) -> bool {
        self.wanted.is_none() && matches!(self.told, Told::Nothing)
    }
}

impl AdjRibOut {
    /// Wants a route for a prefix, or none. Who has several reasons for a prefix counts them.
    pub fn want(&mut self, prefix: Prefix, route: Option<Arc<Route>>) {
        let entry = self.entries.entry(prefix).or_default();
        let before = std::mem::replace(&mut entry.wanted, route);
        let limit = self.policy.limit;
        let count = self.policy.count_mut(prefix.family());
        let mut freed = None;
        match (before.is_some(), entry.wanted.is_some()) {
            (false, true) => {
                if limit.is_some_and(|limit| count.admitted() >= limit) {
                    count.held_back.insert(prefix);
                    self.policy.version += 1;
                }
                let count = self.policy.count_mut(prefix.family());
                count.wanted += 1;
            }
            (true, false) => {
                count.wanted -= 1;
                let was_held_back = count.held_back.remove(&prefix);
                if !was_held_back {
                    freed = count.held_back.pop_first();
                }
                self.policy.version += u64::from(was_held_back || freed.is_some());
            }
            _ => {}
        }
        self.settle(prefix);
        if let Some(freed) = freed {
            self.settle(freed);
        }
    }

    /// As [`AdjRibOut::want`] of each of these, one after the other: most of a table at once costs less.
    pub fn want_all(&mut self, changes: &[(Prefix, Option<Arc<Route>>)]) {
        // With a limit it matters who comes first.
        if self.policy.limit.is_some() || changes.len() < self.entries.len() / 2 {
            changes.iter().for_each(|(prefix, route)| self.want(*prefix, route.clone()));
            return;
        }
        for (prefix, route) in changes {
            let entry = self.entries.entry(*prefix).or_default();
            let count = self.policy.count_mut(prefix.family());
            count.wanted -= usize::from(entry.wanted.is_some());
            count.wanted += usize::from(route.is_some());
            entry.wanted.clone_from(route);
        }
        self.settle_all();
        self.entries.retain(|_, entry| !entry.is_idle());
    }

    /// Limits how many prefixes of each family are told: a fuse, lest a mistake costs the session at the router's own
    /// limit. Who was told first stays. Of those that are held back the first follows when there is room; where the
    /// limit is lowered, the last ones go.
    pub fn set_limit(&mut self, limit: Option<usize>) {
        self.policy.limit = limit;
        let room = limit.unwrap_or(usize::MAX);
        for family in [IpFamily::V4, IpFamily::V6] {
            let count = self.policy.count_mut(family);
            let mut moved = Vec::new();
            while count.admitted() < room
                && let Some(first) = count.held_back.pop_first()
            {
                moved.push(first);
            }
            let excess = count.admitted().saturating_sub(room);
            let last = self.entries.iter().rev().filter(|(prefix, entry)| {
                prefix.family() == family && entry.wanted.is_some() && !count.held_back.contains(prefix)
            });
            let last: Vec<Prefix> = last.take(excess).map(|(prefix, _)| *prefix).collect();
            count.held_back.extend(&last);
            moved.extend(last);
            self.policy.version += u64::from(!moved.is_empty());
            moved.into_iter().for_each(|prefix| self.settle(prefix));
        }
    }

    /// Somebody listens from now on, and knows nothing yet: everything is to be told, then that this was everything.
    pub fn open(&mut self, export: Export) {
        self.close();
        self.policy.export = Some(export);
        self.policy.version += 1;
        self.ends = export.context.families;
        self.settle_all();
    }

    /// Nobody listens any more. What is wanted stays.
    pub fn close(&mut self) {
        self.ends = Families::NONE;
        self.steps.clear();
        self.policy.export = None;
        self.policy.mode = Mode::Normal;
        self.policy.forget_looks();
        self.policy.too_long.clear();
        self.policy.untold.clear();
        self.policy.version += 1;
        for family in [IpFamily::V4, IpFamily::V6] {
            self.policy.count_mut(family).told = 0;
        }
        self.entries.retain(|_, entry| {
            (entry.told, entry.step) = (Told::Nothing, None);
            entry.wanted.is_some()
        });
    }

    /// Tells routes from now on with another default local preference.
    pub fn set_local_pref(&mut self, local_pref: u32) {
        let Some(export) = &mut self.policy.export else { return };
        if std::mem::replace(&mut export.local_pref, local_pref) != local_pref {
            self.policy.forget_looks();
            self.settle_all();
        }
    }

    /// All routes of these families are to be told again (RFC 2918).
    pub fn refresh(&mut self, families: Families) {
        if families.is_empty() {
            return;
        }
        for (prefix, entry) in &mut self.entries {
            if families.contains(prefix.family()) && !matches!(entry.told, Told::Nothing) {
                entry.told = Told::Something;
            }
        }
        self.settle_all();
    }

    /// Tells from now on what becomes of all routes.
    pub fn set_mode(&mut self, mode: Mode) {
        if std::mem::replace(&mut self.policy.mode, mode) != mode {
            self.policy.forget_looks();
            self.settle_all();
        }
    }

    /// Appends one message to these bytes; `None` when there is nothing to be said.
    pub fn write(&mut self, out: &mut Vec<u8>) -> Option<Written> {
        let export = self.policy.export?;
        while let Some((step, prefixes)) = self.next_step() {
            let step = step.clone();
            match &step {
                Step::Withdraw(family) => {
                    let count = withdraw(out, *family, prefixes);
                    self.said(&step, count);
                    return Some(Written::Update(count));
                }
                Step::Announce(family, route) => {
                    let block = export.block(*family, route);
                    match block.map(|block| announce(out, &block, prefixes)) {
                        Some(Ok(count)) => {
                            self.said(&step, count);
                            return Some(Written::Update(count));
                        }
                        Some(Err(error)) => {
                            let routes = prefixes.len();
                            self.policy.too_long.insert(Arc::clone(route));
                            self.settle_step(&step);
                            return Some(Written::TooLong { routes, error });
                        }
                        // Cannot be: it was no target.
                        None => self.settle_step(&step),
                    }
                }
            }
        }
        let family = self.ends.iter().next()?;
        self.ends = self.ends.without(Families::NONE.with(family));
        end_of_rib(out, family);
        Some(Written::EndOfRib(family))
    }

    /// Whether everything has been told.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.steps.is_empty() && self.ends.is_empty()
    }

    /// How many routes are wanted.
    #[must_use]
    pub const fn wanted(&self) -> usize {
        self.policy.count(IpFamily::V4).wanted + self.policy.count(IpFamily::V6).wanted
    }

    /// How many prefixes the peer knows.
    #[must_use]
    pub const fn told(&self) -> usize {
        self.policy.count(IpFamily::V4).told + self.policy.count(IpFamily::V6).told
    }

    /// How many routes of a family are wanted and held back by the limit.
    #[must_use]
    pub fn held_back(&self, family: IpFamily) -> usize {
        self.policy.count(family).held_back.len()
    }

    /// How many prefixes are wanted and not told since the attributes of their routes fill a message.
    #[must_use]
    pub fn too_long(&self) -> usize {
        self.policy.untold.len()
    }

    /// What is wanted and not told, although somebody listens; while nobody does, what would be held back. What is
    /// too long is known once it is [written](Self::write).
    #[must_use]
    pub fn untold(&self) -> Untold {
        let mut families = Families::NONE;
        if let Some(export) = &self.policy.export {
            let told = |family: &IpFamily| export.next_hop(*family).is_some();
            families = [IpFamily::V4, IpFamily::V6]
                .iter()
                .filter(|family| !told(family))
                .copied()
                .fold(families, Families::with);
        }
        let held_back = [IpFamily::V4, IpFamily::V6].map(|family| &self.policy.count(family).held_back);
        let prefixes = held_back.into_iter().chain([&self.policy.untold]).flatten().copied().collect();
        Untold { families, prefixes }
    }

    /// As long as this number is the same, so is [`AdjRibOut::untold`].
    #[must_use]
    pub const fn untold_version(&self) -> u64 {
        self.policy.version
    }

    /// What is to be said next. Once all that is to be withdrawn is, everything that is wanted and not held back fits.
    fn next_step(&self) -> Option<(&Step, &BTreeSet<Prefix>)> {
        let first = self.steps.first_key_value()?;
        let (Step::Announce(family, _), prefixes) = first else { return Some(first) };
        let withdrawals = self.steps.get_key_value(&Step::Withdraw(*family));
        let (Some(withdrawals), Some(limit)) = (withdrawals, self.policy.limit) else { return Some(first) };
        let is_new = |prefix: &&Prefix| {
            self.entries.get(prefix).is_some_and(|entry| matches!(entry.told, Told::Nothing))
        };
        let known = self.policy.count(*family).told + prefixes.iter().filter(is_new).count();
        Some(if known > limit { withdrawals } else { first })
    }

    /// Drops a step: its prefixes get the steps that they need now.
    fn settle_step(&mut self, step: &Step) {
        for prefix in self.steps.get(step).cloned().unwrap_or_default() {
            self.settle(prefix);
        }
    }

    /// Finds the steps that all prefixes need: as [`AdjRibOut::settle`] of each, at a fraction of the cost.
    fn settle_all(&mut self) {
        let prefixes = self.entries.len();
        let mut steps: BTreeMap<Step, Vec<Prefix>> = BTreeMap::new();
        for (prefix, entry) in &mut self.entries {
            let target = self.policy.target(*prefix, entry.wanted.as_ref(), prefixes);
            entry.step = entry.step_to(target, prefix.family());
            if let Some(step) = &entry.step {
                match steps.get_mut(step) {
                    Some(prefixes) => prefixes.push(*prefix),
                    None => drop(steps.insert(step.clone(), vec![*prefix])),
                }
            }
        }
        self.steps =
            steps.into_iter().map(|(step, prefixes)| (step, prefixes.into_iter().collect())).collect();
    }

    /// Finds the step that a prefix needs.
    fn settle(&mut self, prefix: Prefix) {
        let prefixes = self.entries.len();
        let Some(entry) = self.entries.get_mut(&prefix) else { return };
        let target = self.policy.target(prefix, entry.wanted.as_ref(), prefixes);
        let step = entry.step_to(target, prefix.family());
        let idle = entry.is_idle();
        if entry.step != step {
            let before = std::mem::replace(&mut entry.step, step.clone());
            if let Some(before) = before
                && let Some(prefixes) = self.steps.get_mut(&before)
            {
                prefixes.remove(&prefix);
                if prefixes.is_empty() {
                    self.steps.remove(&before);
                }
            }
            if let Some(step) = step {
                self.steps.entry(step).or_default().insert(prefix);
            }
        }
        if idle {
            self.entries.remove(&prefix);
        }
    }

    /// The first so many prefixes of a step have been told.
    fn said(&mut self, step: &Step, count: usize) {
        let mut told = self.steps.remove(step).unwrap_or_default();
        if let Some(next) = told.iter().nth(count).copied() {
            let rest = told.split_off(&next);
            self.steps.insert(step.clone(), rest);
        }
        let (Some(first), Some(last)) = (told.first(), told.last()) else { return };
        let counted = &mut self.policy.count_mut(first.family()).told;
        let mut note = |entry: &mut Entry| {
            let known = !matches!(entry.told, Told::Nothing);
            entry.step = None;
            entry.told = match step {
                Step::Announce(_, route) => {
                    *counted += usize::from(!known);
                    Told::This(Arc::clone(route))
                }
                Step::Withdraw(_) => {
                    *counted -= usize::from(known);
                    Told::Nothing
                }
            };
            entry.is_idle()
        };
        let mut idle = Vec::new();
        if told.len() >= self.entries.len() / FAR_APART {
            // To walk past some others costs less than to look each one up.
            let mut all = self.entries.range_mut(*first..=*last);
            for prefix in &told {
                let Some((_, entry)) = all.find(|(other, _)| *other == prefix) else { break };
                if note(entry) {
                    idle.push(*prefix);
                }
            }
        } else {
            for prefix in &told {
                if self.entries.get_mut(prefix).is_some_and(&mut note) {
                    idle.push(*prefix);
                }
            }
        }
        for prefix in idle {
            self.entries.remove(&prefix);
        }
    }
}

/// Prefixes of which there are fewer than one in so many are looked up one by one.
const FAR_APART: usize = 16;

#[cfg(test)]
mod tests;

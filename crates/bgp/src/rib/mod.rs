// SPDX-License-Identifier: Apache-2.0
//! Adj-RIB-Out: what one peer is to be told, and what it has been told (RFC 4271, section 3.2).
//!
//! ```text
//!   want, set_mode, refresh ──► target ≠ told? ──► steps, by attributes ──► write: one UPDATE
//! ```
//!
//! Only the difference is told: what changes and changes back before it was told says nothing. New attributes replace
//! the old ones; the route is never withdrawn in between. What is announced goes before what is withdrawn, so that an
//! aggregate is there before its parts go. Steps with equal attributes share UPDATEs. The order is a function of the
//! routes alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrolb_net_types::{IpFamily, Prefix};

use crate::route::{Export, Route};
use crate::wire::{Families, TooLong, announce, end_of_rib, withdraw};

/// What one peer is to be told.
#[derive(Debug, Default)]
pub struct AdjRibOut {
    entries: BTreeMap<Prefix, Entry>,
    /// What is to be said, in this order.
    steps: BTreeMap<Step, BTreeSet<Prefix>>,
    counts: Counts,
    limit: Option<usize>,
    /// How to tell; `None` while nobody listens.
    export: Option<Export>,
    /// The families whose end is still to be told.
    ends: Families,
    mode: Mode,
    /// How wanted routes are shown, so that equal ones stay one.
    shown: BTreeMap<Arc<Route>, Arc<Route>>,
    /// Routes, as shown, whose attributes fill a message.
    too_long: BTreeSet<Arc<Route>>,
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

/// Ordered as it is said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Announce(IpFamily, Arc<Route>),
    Withdraw(IpFamily),
}

#[derive(Debug, Default)]
struct Counts {
    v4: Count,
    v6: Count,
}

#[derive(Debug, Default)]
struct Count {
    wanted: usize,
    told: usize,
    /// Wanted, and beyond the limit.
    held_back: BTreeSet<Prefix>,
}

impl Counts {
    const fn of(&mut self, family: IpFamily) -> &mut Count {
        match family {
            IpFamily::V4 => &mut self.v4,
            IpFamily::V6 => &mut self.v6,
        }
    }
}

impl Count {
    fn admitted(&self) -> usize {
        self.wanted - self.held_back.len()
    }
}

impl AdjRibOut {
    /// Wants a route for a prefix, or none. Who has several reasons for a prefix counts them.
    pub fn want(&mut self, prefix: Prefix, route: Option<Arc<Route>>) {
        let entry = self.entries.entry(prefix).or_default();
        let before = std::mem::replace(&mut entry.wanted, route);
        let count = self.counts.of(prefix.family());
        let mut freed = None;
        match (before.is_some(), entry.wanted.is_some()) {
            (false, true) => {
                if self.limit.is_some_and(|limit| count.admitted() >= limit) {
                    count.held_back.insert(prefix);
                }
                count.wanted += 1;
            }
            (true, false) => {
                count.wanted -= 1;
                if !count.held_back.remove(&prefix) {
                    freed = count.held_back.pop_first();
                }
            }
            _ => {}
        }
        self.settle(prefix);
        if let Some(freed) = freed {
            self.settle(freed);
        }
    }

    /// Limits how many prefixes of each family are told: a fuse, lest a mistake costs the session at the router's own
    /// limit. Who was told first stays. Of those that are held back the first follows when there is room; where the
    /// limit is lowered, the last ones go.
    pub fn set_limit(&mut self, limit: Option<usize>) {
        self.limit = limit;
        let room = limit.unwrap_or(usize::MAX);
        for family in [IpFamily::V4, IpFamily::V6] {
            let count = self.counts.of(family);
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
            moved.into_iter().for_each(|prefix| self.settle(prefix));
        }
    }

    /// Somebody listens from now on, and knows nothing yet: everything is to be told, then that this was everything.
    pub fn open(&mut self, export: Export) {
        self.close();
        self.export = Some(export);
        self.ends = export.context.families;
        self.settle_all();
    }

    /// Nobody listens any more. What is wanted stays.
    pub fn close(&mut self) {
        self.export = None;
        self.ends = Families::NONE;
        self.steps.clear();
        self.too_long.clear();
        self.shown.clear();
        self.mode = Mode::Normal;
        self.counts.v4.told = 0;
        self.counts.v6.told = 0;
        self.entries.retain(|_, entry| {
            (entry.told, entry.step) = (Told::Nothing, None);
            entry.wanted.is_some()
        });
    }

    /// Tells routes from now on with another default local preference.
    pub fn set_local_pref(&mut self, local_pref: u32) {
        let Some(export) = &mut self.export else { return };
        if std::mem::replace(&mut export.local_pref, local_pref) != local_pref {
            self.shown.clear();
            self.settle_all();
        }
    }

    /// All routes of a family are to be told again (RFC 2918).
    pub fn refresh(&mut self, family: IpFamily) {
        for (prefix, entry) in &mut self.entries {
            if prefix.family() == family && !matches!(entry.told, Told::Nothing) {
                entry.told = Told::Something;
            }
        }
        self.settle_all();
    }

    /// Tells from now on what becomes of all routes.
    pub fn set_mode(&mut self, mode: Mode) {
        if std::mem::replace(&mut self.mode, mode) != mode {
            self.shown.clear();
            self.settle_all();
        }
    }

    /// Appends one message to these bytes; `None` when there is nothing to be said.
    pub fn write(&mut self, out: &mut Vec<u8>) -> Option<Written> {
        let export = self.export?;
        while let Some((step, prefixes)) = self.steps.first_key_value() {
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
                            self.too_long.insert(Arc::clone(route));
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
        self.counts.v4.wanted + self.counts.v6.wanted
    }

    /// How many prefixes the peer knows.
    #[must_use]
    pub const fn told(&self) -> usize {
        self.counts.v4.told + self.counts.v6.told
    }

    /// How many routes of a family are wanted and held back by the limit.
    #[must_use]
    pub fn held_back(&self, family: IpFamily) -> usize {
        match family {
            IpFamily::V4 => self.counts.v4.held_back.len(),
            IpFamily::V6 => self.counts.v6.held_back.len(),
        }
    }

    /// Drops a step: its prefixes get the steps that they need now.
    fn settle_step(&mut self, step: &Step) {
        for prefix in self.steps.get(step).cloned().unwrap_or_default() {
            self.settle(prefix);
        }
    }

    fn settle_all(&mut self) {
        let all: Vec<Prefix> = self.entries.keys().copied().collect();
        all.into_iter().for_each(|prefix| self.settle(prefix));
    }

    /// Finds the step that a prefix needs.
    fn settle(&mut self, prefix: Prefix) {
        let Some(wanted) = self.entries.get(&prefix).map(|entry| entry.wanted.clone()) else { return };
        let target = wanted.and_then(|wanted| self.target(prefix, wanted));
        let Some(entry) = self.entries.get_mut(&prefix) else { return };
        let step = match (target, &entry.told) {
            (Some(route), Told::This(told)) if route == *told => None,
            (Some(route), _) => Some(Step::Announce(prefix.family(), route)),
            (None, Told::Nothing) => None,
            (None, _) => Some(Step::Withdraw(prefix.family())),
        };
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
        self.forget(prefix);
    }

    /// What the peer is to know of a prefix.
    fn target(&mut self, prefix: Prefix, wanted: Arc<Route>) -> Option<Arc<Route>> {
        let export = self.export.as_ref()?;
        export.next_hop(prefix.family())?;
        if self.mode == Mode::Gone || self.counts.of(prefix.family()).held_back.contains(&prefix) {
            return None;
        }
        // Routes that are wanted no more are still known here, up to a number.
        if self.shown.len() > 2 * self.entries.len() + 16 {
            self.shown.clear();
        }
        let about_to_go = self.mode == Mode::AboutToGo;
        let show = |wanted: &Arc<Route>| {
            let shown = export.show(if about_to_go { wanted.about_to_go() } else { Route::clone(wanted) });
            if shown == **wanted { Arc::clone(wanted) } else { Arc::new(shown) }
        };
        let route = Arc::clone(self.shown.entry(wanted).or_insert_with_key(show));
        (!self.too_long.contains(&route)).then_some(route)
    }

    /// The first so many prefixes of a step have been told.
    fn said(&mut self, step: &Step, count: usize) {
        let mut prefixes = self.steps.remove(step).unwrap_or_default();
        for _ in 0..count {
            let Some(prefix) = prefixes.pop_first() else { break };
            let Some(entry) = self.entries.get_mut(&prefix) else { continue };
            let known = !matches!(entry.told, Told::Nothing);
            let told = &mut self.counts.of(prefix.family()).told;
            entry.step = None;
            entry.told = match step {
                Step::Announce(_, route) => {
                    *told += usize::from(!known);
                    Told::This(Arc::clone(route))
                }
                Step::Withdraw(_) => {
                    *told -= usize::from(known);
                    Told::Nothing
                }
            };
            self.forget(prefix);
        }
        if !prefixes.is_empty() {
            self.steps.insert(step.clone(), prefixes);
        }
    }

    /// Drops the entry of a prefix that is neither wanted nor known.
    fn forget(&mut self, prefix: Prefix) {
        let idle = |entry: &Entry| entry.wanted.is_none() && matches!(entry.told, Told::Nothing);
        if self.entries.get(&prefix).is_some_and(idle) {
            self.entries.remove(&prefix);
        }
    }
}

#[cfg(test)]
mod tests;

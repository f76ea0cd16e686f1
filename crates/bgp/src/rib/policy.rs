// SPDX-License-Identifier: Apache-2.0
//! Which of the wanted routes a peer is told, and how they look to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrolb_net_types::{IpFamily, Prefix};

use super::Mode;
use crate::route::{Export, Route};

#[derive(Debug, Default)]
pub(super) struct Policy {
    /// How to tell; `None` while nobody listens.
    pub(super) export: Option<Export>,
    pub(super) mode: Mode,
    /// So many prefixes of a family are told.
    pub(super) limit: Option<usize>,
    v4: Count,
    v6: Count,
    /// How wanted routes are shown, so that equal ones are one.
    pub(super) shown: BTreeMap<Arc<Route>, Arc<Route>>,
    /// The last of these: most routes look like the one before.
    last: Option<[Arc<Route>; 2]>,
    /// Routes, as shown, whose attributes fill a message.
    pub(super) too_long: BTreeSet<Arc<Route>>,
    /// Prefixes that are wanted with one of them.
    pub(super) untold: BTreeSet<Prefix>,
    /// Counts the changes of what is not told.
    pub(super) version: u64,
}

/// What is counted of a family.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub(super) wanted: usize,
    pub(super) told: usize,
    /// Wanted, and beyond the limit.
    pub(super) held_back: BTreeSet<Prefix>,
}

impl Count {
    pub(super) fn admitted(&self) -> usize {
        self.wanted - self.held_back.len()
    }
}

impl Policy {
    pub(super) const fn count(&self, family: IpFamily) -> &Count {
        match family {
            IpFamily::V4 => &self.v4,
            IpFamily::V6 => &self.v6,
        }
    }

    pub(super) const fn count_mut(&mut self, family: IpFamily) -> &mut Count {
        match family {
            IpFamily::V4 => &mut self.v4,
            IpFamily::V6 => &mut self.v6,
        }
    }

    /// Routes look otherwise from now on.
    pub(super) fn forget_looks(&mut self) {
        self.shown.clear();
        self.last = None;
    }

    /// What the peer is to know of a prefix, of so many that there are.
    pub(super) fn target(
        &mut self,
        prefix: Prefix,
        wanted: Option<&Arc<Route>>,
        prefixes: usize,
    ) -> Option<Arc<Route>> {
        let route = self.look(prefix, wanted, prefixes);
        if self.too_long.is_empty() {
            return route;
        }
        let too_long = route.as_ref().is_some_and(|route| self.too_long.contains(route));
        if too_long {
            self.version += u64::from(self.untold.insert(prefix));
        } else if self.untold.remove(&prefix) {
            self.version += 1;
            if self.untold.is_empty() {
                self.too_long.clear();
            }
        }
        route.filter(|_| !too_long)
    }

    /// How a prefix is to look, if its attributes fit into a message.
    fn look(&mut self, prefix: Prefix, wanted: Option<&Arc<Route>>, prefixes: usize) -> Option<Arc<Route>> {
        let (wanted, export) = (wanted?, self.export.as_ref()?);
        export.next_hop(prefix.family())?;
        if self.mode == Mode::Gone || self.count(prefix.family()).held_back.contains(&prefix) {
            return None;
        }
        Some(match &self.last {
            Some([before, shown]) if Arc::ptr_eq(before, wanted) => Arc::clone(shown),
            _ => {
                // Routes that nobody wants any more are still in here: up to a number.
                if self.shown.len() > 2 * prefixes + 16 {
                    self.shown.clear();
                }
                let about_to_go = self.mode == Mode::AboutToGo;
                let show = |wanted: &Arc<Route>| {
                    let shown = if about_to_go { wanted.about_to_go() } else { Route::clone(wanted) };
                    let shown = export.show(shown);
                    if shown == **wanted { Arc::clone(wanted) } else { Arc::new(shown) }
                };
                let shown = self.shown.entry(Arc::clone(wanted)).or_insert_with_key(show);
                self.last = Some([Arc::clone(wanted), Arc::clone(shown)]);
                Arc::clone(shown)
            }
        })
    }
}

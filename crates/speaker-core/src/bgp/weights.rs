// SPDX-License-Identifier: Apache-2.0
//! How much a route weighs, and how often that may change.
//!
//! A router that is told another weight spreads its flows anew, and those that come to another node break. So there are
//! few different weights, and one that has just changed stays for a while: the first change is told at once, and what
//! follows within [`SETTLES`] as one, at the end of it. A route that comes, goes or changes otherwise never waits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrolb_bgp::Route;
use ferrolb_net_types::{Prefix, Time};

/// How long a weight stays, at least.
pub(super) const SETTLES: Duration = Duration::from_secs(10);

/// More endpoints than this on a node weigh no more.
const MOST: u32 = 1000;

/// The significant bits of a weight: up to 32 endpoints each counts, beyond that no weight is off by more than a 32nd.
const BITS: u32 = 5;

/// The weight of so many endpoints.
pub(super) fn weight(endpoints: u32) -> u16 {
    let endpoints = endpoints.min(MOST);
    let step = 1 << (u32::BITS - endpoints.leading_zeros()).saturating_sub(BITS);
    let rounded = (endpoints + step / 2) / step * step;
    // A thousand rounded is still a thousand or so.
    u16::try_from(rounded).unwrap_or(u16::MAX)
}

/// When the weights that one peer is told have changed, of those that did so lately.
#[derive(Debug, Default)]
pub(super) struct Weights {
    changed: BTreeMap<Prefix, Time>,
    /// What is told at the end of that.
    waiting: BTreeSet<Prefix>,
}

impl Weights {
    /// Whether the peer, which knows the one route, may be told the other by now. If not, the prefix is due later.
    pub(super) fn may_tell(&mut self, now: Time, prefix: Prefix, known: &Route, wanted: &Route) -> bool {
        self.waiting.remove(&prefix);
        if known.extended_communities == wanted.extended_communities {
            return true;
        }
        let otherwise_equal =
            Route { extended_communities: wanted.extended_communities.clone(), ..known.clone() };
        let settled = self.changed.get(&prefix).is_none_or(|changed| *changed + SETTLES <= now);
        if !settled && otherwise_equal == *wanted {
            self.waiting.insert(prefix);
            return false;
        }
        self.changed.insert(prefix, now);
        true
    }

    /// What a peer knows is what it is to know, or there is no such route any more.
    pub(super) fn settle(&mut self, prefix: Prefix) {
        self.waiting.remove(&prefix);
    }

    /// The prefixes that are due.
    pub(super) fn take_due(&mut self, now: Time) -> BTreeSet<Prefix> {
        self.changed.retain(|_, changed| *changed + SETTLES > now);
        let (waiting, due) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|prefix| self.changed.contains_key(prefix));
        self.waiting = waiting;
        due
    }

    /// When something is due.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let due = |prefix| self.changed.get(prefix).map(|changed| *changed + SETTLES);
        self.waiting.iter().filter_map(due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_in_proportion_and_few() {
        for endpoints in 0..=32 {
            assert_eq!(u32::from(weight(endpoints)), endpoints);
        }
        assert_eq!([33, 35, 63, 64, 66, 999, 1000, 5000].map(weight), [34, 36, 64, 64, 68, 992, 992, 992]);
        let different: BTreeSet<u16> = (0..=2000).map(weight).collect();
        assert!(different.len() <= 32 + 5 * 16, "{}", different.len());
        for endpoints in 1..=1000_u16 {
            let off = (f64::from(weight(endpoints.into())) / f64::from(endpoints) - 1.0).abs();
            assert!(off <= 1.0 / 32.0, "{endpoints} weigh {}", weight(endpoints.into()));
            assert!(weight(endpoints.into()) >= weight(u32::from(endpoints) - 1), "{endpoints}");
        }
    }
}

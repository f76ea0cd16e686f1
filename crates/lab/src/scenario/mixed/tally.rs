// SPDX-License-Identifier: Apache-2.0
//! What a stretch of time shows: two owners, and whether one of them is ours; darkness, and whether one of ours could have served.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use ferrolb_net_types::Mac;

use super::super::watch::{Span, Timeline, longest};
use super::{Kind, Situation, addresses};
use crate::host::Host;

/// What two owners, or darkness, may last when everybody has seen the same.
pub(in crate::scenario) const BOUND: Duration = Duration::from_millis(50);

/// How long a speaker that leaves may go on answering for an heir that announces nothing.
pub(in crate::scenario) const LEAVING: Duration = Duration::from_millis(500);

/// Where the story fails: the machine may be busy.
const GROSS: u32 = 10;

/// What was seen between two moments.
#[derive(Default)]
pub(in crate::scenario) struct Tally {
    /// Two owners, both ours.
    pub(in crate::scenario) ours: Vec<Span>,
    /// Two owners, one of them ours.
    pub(in crate::scenario) between: Vec<Span>,
    /// Two owners, both MetalLB's.
    pub(in crate::scenario) theirs: Vec<Span>,
    /// Nobody answers, though one of ours is to.
    pub(in crate::scenario) dark: Vec<Span>,
    /// Nobody answers, and one of MetalLB's is to.
    pub(in crate::scenario) dark_theirs: Vec<Span>,
}

impl Tally {
    /// What was seen while the cluster was on its way to this situation.
    pub(in crate::scenario) fn of(
        seen: &Timeline,
        from: Duration,
        to: Duration,
        situation: &Situation,
    ) -> Self {
        let ours: BTreeSet<Mac> = situation
            .kinds
            .iter()
            .filter(|(_, kind)| **kind == Kind::Ours)
            .map(|(node, _)| node.mac())
            .collect();
        let (own, theirs): (Vec<_>, Vec<_>) =
            seen.contested(from, to).into_iter().partition(|span| !span.by.is_disjoint(&ours));
        let (own, between) = own.into_iter().partition(|span| span.by.is_subset(&ours));
        let owner = |span: &Span| {
            let (address, reach) = addresses().into_iter().find(|(address, _)| *address == span.address)?;
            situation.owner(address, reach).map(Host::mac)
        };
        let dark = seen.dark(from, to).into_iter().filter(|span| owner(span).is_some());
        let (dark, dark_theirs) =
            dark.partition(|span| owner(span).is_some_and(|owner| ours.contains(&owner)));
        Self { ours: own, between, theirs, dark, dark_theirs }
    }

    /// Both together.
    pub(in crate::scenario) fn add(&mut self, other: Self) {
        self.ours.extend(other.ours);
        self.between.extend(other.between);
        self.theirs.extend(other.theirs);
        self.dark.extend(other.dark);
        self.dark_theirs.extend(other.dark_theirs);
    }

    /// The figures in words.
    pub(in crate::scenario) fn words(&self) -> String {
        format!(
            "two owners: both ours {}, one ours {}, both MetalLB's {}; dark though ours could serve {}, MetalLB's {}",
            longest(&self.ours),
            longest(&self.between),
            longest(&self.theirs),
            longest(&self.dark),
            longest(&self.dark_theirs)
        )
    }

    /// Whether ours kept to the bound, grossly.
    pub(in crate::scenario) fn judge(&self, bound: Duration) -> Result<()> {
        let contested =
            self.ours.iter().chain(&self.between).map(|span| ("two owners, one of them ours", span));
        let dark = self.dark.iter().map(|span| ("dark", span));
        for (what, span) in contested.chain(dark) {
            ensure!(
                span.length <= bound * GROSS,
                "{}: {what} for {} ms ({:?})",
                span.address,
                span.length.as_millis(),
                span.by.iter().map(ToString::to_string).collect::<Vec<_>>()
            );
        }
        Ok(())
    }
}

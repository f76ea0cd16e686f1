// SPDX-License-Identifier: Apache-2.0
//! What of the routes that are meant for a peer it is not told, as its session says.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferrolb_bgp::Untold;
use ferrolb_bgp::wire::Families;
use ferrolb_config::BgpPeer;
use ferrolb_net_types::Prefix;

use super::PeerReport;

/// What a peer is not told. A session that is down leaves it as it was: its end changes no status.
#[derive(Debug, Default)]
pub(super) struct NotTold {
    said: Arc<Untold>,
    /// What was not told before, and is not told yet; and what came where there was no room before.
    pending: BTreeSet<Prefix>,
    /// Of these families more is wanted than the peer's limit allows.
    full: Families,
}

/// Whose status may have to be another one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// That of Services with one of these prefixes.
    Of(BTreeSet<Prefix>),
    /// Everybody's.
    All,
}

impl NotTold {
    /// Takes what a session that is up says; there is nothing yet if it never was.
    pub(super) fn hear(known: &mut Option<Self>, report: &PeerReport, peer: &BgpPeer) -> News {
        let first = known.is_none();
        let this = known.get_or_insert_default();
        if !first && this.said == report.untold && (this.pending.is_empty() || !report.settled) {
            return News::default();
        }
        let before = this.all();
        let said = std::mem::replace(&mut this.said, Arc::clone(&report.untold));
        // What there is room for again is told once everything is.
        this.pending = if report.settled { BTreeSet::new() } else { before.clone() };
        let limited = this.said.prefixes.iter().filter(|_| peer.max_prefixes.is_some());
        this.full = limited.fold(Families::NONE, |full, prefix| full.with(prefix.family()));
        if first || said.families != this.said.families {
            return News::All;
        }
        News::Of(before.symmetric_difference(&this.all()).copied().collect())
    }

    /// A prefix is wanted that was not before.
    pub(super) fn expect(&mut self, prefix: Prefix) {
        // Whoever comes last is told last.
        if self.full.contains(prefix.family()) {
            self.pending.insert(prefix);
        }
    }

    /// Whether the peer is not told this prefix.
    pub(super) fn has(&self, prefix: Prefix) -> bool {
        let Untold { families, prefixes } = &*self.said;
        families.contains(prefix.family()) || prefixes.contains(&prefix) || self.pending.contains(&prefix)
    }

    fn all(&self) -> BTreeSet<Prefix> {
        self.said.prefixes.union(&self.pending).copied().collect()
    }
}

impl News {
    /// Adds what else is new.
    pub(crate) fn add(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Of(some), Self::Of(others)) => some.extend(others),
            _ => *self = Self::All,
        }
    }
}

impl Default for News {
    fn default() -> Self {
        Self::Of(BTreeSet::new())
    }
}

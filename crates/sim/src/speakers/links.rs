// SPDX-License-Identifier: Apache-2.0
//! The network between the nodes: what passes from whom to whom, and how long it takes.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::rng::Rng;

/// Something on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Datagram,
    Stream,
    /// An announcement on the segment.
    Frame,
}

pub(super) struct Links {
    /// The side of a partition that each node is on; all on one if there is none.
    pub(super) side: Vec<u16>,
    /// From whom to whom nothing passes.
    pub(super) cut: BTreeSet<(usize, usize)>,
    /// From whom to whom datagrams do not pass, while streams do.
    pub(super) no_datagrams: BTreeSet<(usize, usize)>,
    /// How many datagrams and frames in a hundred are lost.
    pub(super) loss: u64,
    /// The longest time that anything is on its way, in microseconds.
    pub(super) delay: u64,
}

/// The longest time that anything is on its way where nothing is wrong, in microseconds.
pub(super) const USUAL_DELAY: u64 = 2_000;

impl Links {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            side: vec![0; nodes],
            cut: BTreeSet::new(),
            no_datagrams: BTreeSet::new(),
            loss: 0,
            delay: USUAL_DELAY,
        }
    }

    /// Whether nothing is wrong with it but that it may be parted.
    pub(super) fn is_sound(&self) -> bool {
        self.cut.is_empty() && self.no_datagrams.is_empty() && self.loss == 0 && self.delay == USUAL_DELAY
    }

    /// Whether something may pass, if it is not lost.
    pub(super) fn open(&self, from: usize, to: usize, kind: Kind) -> bool {
        self.side[from] == self.side[to]
            && !self.cut.contains(&(from, to))
            && !(kind == Kind::Datagram && self.no_datagrams.contains(&(from, to)))
    }

    /// How long something is on its way; `None` if it never arrives.
    pub(super) fn carry(&self, rng: &mut Rng, from: usize, to: usize, kind: Kind) -> Option<Duration> {
        let lost = self.loss > 0 && kind != Kind::Stream && rng.chance(self.loss);
        (self.open(from, to, kind) && !lost).then(|| Duration::from_micros(50 + rng.below(self.delay)))
    }
}

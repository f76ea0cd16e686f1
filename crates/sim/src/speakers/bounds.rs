// SPDX-License-Identifier: Apache-2.0
//! How long it may take until all is well again, for each thing that can happen, in a cluster of a certain size.

use std::time::Duration;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What a planned move may overlap.
pub(super) const OVERLAP: Duration = millis(50);
/// How long a former owner goes on at most when it hears nothing of the new one.
pub(super) const HANDOVER: Duration = millis(500);
/// How long a fresh speaker tries to hear everybody.
pub(super) const HEARING: Duration = Duration::from_secs(5);
/// How long until a missing one is asked again.
pub(super) const REJOIN: Duration = millis(2500);
/// How long a watch of the API lags at most.
pub(super) const WATCH: Duration = millis(300);
/// How long the API may have been silent, without anybody having asked, when it is lost: so far apart those that lose it
/// together say so.
pub(super) const QUIET: Duration = Duration::from_secs(12);
/// How long without a word from the API makes a view stale.
pub(super) const STALE: Duration = Duration::from_secs(13);
/// How long it has to be said of a view before that counts.
pub(super) const STALE_COUNTS: Duration = Duration::from_secs(16);
/// How long a speaker may take to notice that the API is back.
pub(super) const ANSWERS: Duration = Duration::from_secs(4);
/// How long a speaker waits at most before it says of itself what has changed.
pub(super) const BADGE: Duration = Duration::from_secs(1);
/// How often a member exchanges everything with another.
pub(super) const EXCHANGES: Duration = Duration::from_secs(30);

/// Bounds of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    nodes: usize,
    /// Speakers of MetalLB take part, which memberlist alone brings together again.
    mixed: bool,
}

impl Bounds {
    pub(super) const fn new(nodes: usize, mixed: bool) -> Self {
        Self { nodes, mixed }
    }

    /// Until news have reached everybody by gossip: each knows after `log2` rounds of 200 ms, where each who knows
    /// tells three; and some rounds more, since who is told is left to chance.
    pub(super) const fn spread(self) -> Duration {
        millis(200 * (self.magnitude() + 3))
    }

    /// Until everybody knows that a silent member is dead: somebody probes it, in its turn among all, and is answered
    /// neither directly nor by others; the suspicion runs out; the news spread. Who suspects may take himself for slow
    /// and wait up to eight times as long.
    pub(super) fn death(self) -> Duration {
        // Each probes every other once in as many seconds as there are; that nobody's turn comes for long is unlikely.
        let turn = Duration::from_secs(2 * self.nodes.min(12) as u64);
        turn + PROBE * SLOWEST * 2 + self.suspicion() + self.spread()
    }

    /// Until each side of a partition has given up the other. A node that is alone has to find it out of one after the
    /// other, and takes himself for slow.
    pub(super) fn parted(self) -> Duration {
        PROBE * SLOWEST * (self.nodes as u32 + 2) + self.suspicion() + self.spread()
    }

    /// Until the sides of a partition that has ended are one again, and who was suspected is so no longer.
    pub(super) fn heal(self) -> Duration {
        let more = if self.nodes > 10 { 200 * self.magnitude() } else { 0 };
        if self.mixed { self.suspicion() + PROBE * SLOWEST } else { millis(1000 + more) }
    }

    /// The longest that a suspicion lasts: six times its least, which nobody shortens who does not share it.
    fn suspicion(self) -> Duration {
        let magnitude = (self.nodes.max(1) as f64).log10().max(1.0);
        PROBE * 4 * 6 * (magnitude * 1000.0) as u32 / 1000
    }

    const fn magnitude(self) -> u64 {
        (usize::BITS - self.nodes.leading_zeros()) as u64
    }
}

/// How often each member is probed by another.
const PROBE: Duration = Duration::from_secs(1);
/// By how much a member prolongs a probe that takes itself for slow.
const SLOWEST: u32 = 8;

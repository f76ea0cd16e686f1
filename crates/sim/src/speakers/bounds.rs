// SPDX-License-Identifier: Apache-2.0
//! How long it may take until all is well again, for each thing that can happen, in a cluster of a certain size.
//!
//! A partition among up to 200 of ours is mended within a second, although news may take two among a hundred: who finds an
//! address answered for by another settles it with that one, without waiting for news. Among a thousand it is given three
//! seconds; that one is enough has not been shown there.
//! A silent death is known by memberlist's own bound where it comes alone ([`Bounds::death_alone`]): 9 s among three, of
//! which 8 are memberlist's and one is for the news, 26 s among ten, 38 s among a hundred. Where something else goes on,
//! or has just gone on, members take themselves for slow, and that many times slower they are ([`Bounds::death`]).

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
/// How long it takes a member that takes itself for slow, and ends a last long probe in vain, to take itself for fast
/// again: with every second in which it is answered, by one of eight steps.
pub(super) const RECOVERY: Duration = Duration::from_secs(16);
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

    /// Until everybody knows that a silent member is dead, whatever else goes on: somebody probes it, in its turn among
    /// all, and is answered neither directly nor by others; the suspicion runs out; the news spread. Who suspects may
    /// take himself for slow, and wait up to eight times as long.
    pub(super) fn death(self) -> Duration {
        // Each probes every other once in as many seconds as there are; that nobody's turn comes for long is unlikely.
        let turn = Duration::from_secs(2 * self.nodes.min(12) as u64);
        turn + PROBE * SLOWEST * 2 + self.reunion() + self.spread()
    }

    /// The same, where nothing else goes on and that has been so for long, with so many others in the cluster that run:
    /// a turn, a probe of one second, and the suspicion. Of three, each is probed by each other once in three seconds
    /// (twice the number of those others that it probes, less one), and the suspicion lasts four: that is memberlist's own
    /// bound, eight seconds, and the news on top of it. Where there are more, somebody shares the suspicion before long.
    pub(super) fn death_alone(self, others: usize) -> Duration {
        let shared = usize::from(others >= 3);
        PROBE * self.turn() + PROBE + self.suspicion(shared) + self.spread()
    }

    /// In so many seconds somebody has probed a certain other. Each probes every other once in as many seconds as there
    /// are others, in an order that is drawn anew each time; where there are many, that nobody's turn comes for long is
    /// unlikely.
    fn turn(self) -> u32 {
        (2 * (self.nodes as u32).saturating_sub(1)).saturating_sub(1).clamp(1, 12)
    }

    /// Until each side of a partition has given up the other. A node that is alone has to find it out of one after the
    /// other, and takes himself for slow.
    pub(super) fn parted(self) -> Duration {
        PROBE * SLOWEST * (self.nodes as u32 + 2) + self.reunion() + self.spread()
    }

    /// Until the sides of a partition that has ended are one again, and who was suspected is so no longer.
    pub(super) fn heal(self) -> Duration {
        match self.nodes {
            _ if self.mixed => self.reunion() + PROBE * SLOWEST,
            0..=200 => HEAL,
            _ => HEAL + millis(200 * self.magnitude()),
        }
    }

    /// How long a suspicion lasts that nobody shares. Where MetalLB's speakers take part who have lost each other, they
    /// may find together again only meanwhile, and are given as long as it lasts among four.
    fn reunion(self) -> Duration {
        if self.mixed { self.suspicion(0).max(PROBE * 4 * 6) } else { self.suspicion(0) }
    }

    /// The longest that a suspicion lasts which so many others share, up to two:
    ///
    /// ```text
    /// least   = 4 probes × log10 of the members, at least 1
    /// most    = 6 × least
    /// lasts     most − (most − least) × ln(shared + 1) / ln 3
    /// ```
    ///
    /// Among fewer than four there are no two others who could share it, and it lasts for the least.
    fn suspicion(self, shared: usize) -> Duration {
        let magnitude = (self.nodes.max(1) as f64).log10().max(1.0);
        let least = PROBE * 4 * (magnitude * 1000.0) as u32 / 1000;
        if self.nodes < 4 {
            return least;
        }
        let most = least * 6;
        let less = (most - least).mul_f64(((shared + 1) as f64).ln() / 3_f64.ln());
        (most - less).max(least)
    }

    const fn magnitude(self) -> u64 {
        (usize::BITS - self.nodes.leading_zeros()) as u64
    }
}

/// How often each member is probed by another.
const PROBE: Duration = Duration::from_secs(1);
/// By how much a member prolongs a probe that takes itself for slow.
const SLOWEST: u32 = 8;
/// Until the sides of a partition that has ended are one again, among ours.
const HEAL: Duration = millis(1000);

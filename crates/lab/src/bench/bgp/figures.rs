// SPDX-License-Identifier: Apache-2.0
//! What the measurement gives: a line per daemon, a line per kind of change, each with its aim.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::super::FAILURE;

/// Milliseconds from a session that is up to the last prefix, at one peer and at all of them.
const AIM_MS: f64 = 20.0;
/// Milliseconds from the order to take all routes back to the last one that is.
const AIM_GONE_MS: f64 = 50.0;
/// Milliseconds from the watch event to the UPDATE: half of all changes, and 99 of 100.
const AIM_MEDIAN_MS: f64 = 1.0;
const AIM_P99_MS: f64 = 5.0;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct BgpFigures {
    /// How many prefixes are announced.
    pub prefixes: usize,
    /// How many UPDATEs hold them, at 4,096 bytes each.
    pub updates: usize,
    /// How many peers there are at most.
    pub peers: usize,
    /// Ours first.
    pub daemons: Vec<Daemon>,
    /// Those that are not installed, with what to do about it.
    pub skipped: Vec<String>,
    /// What one changed Service takes, in ours.
    pub changes: Vec<Change>,
    /// The aims, in milliseconds.
    pub aims: Aims,
    /// Whether nothing is more than ten times beyond its aim, and every count of ours is what it should be.
    pub ok: bool,
}

/// What should not be exceeded, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Aims {
    /// From a session that is up to the last prefix.
    pub told_ms: f64,
    /// From the order to the last withdrawal.
    pub gone_ms: f64,
    /// Of half of all changes.
    pub median_ms: f64,
    /// Of 99 of 100 changes.
    pub p99_ms: f64,
}

/// One daemon.
#[derive(Clone, Debug, Serialize)]
pub struct Daemon {
    /// Its name, with its version if it is not ours.
    pub name: String,
    /// One peer.
    pub one: Table,
    /// All of them at once.
    pub all: Table,
    /// From the order to withdraw everything to the last withdrawal at one peer, in milliseconds.
    pub gone_ms: f64,
    /// The UPDATEs of that.
    pub gone_updates: usize,
    /// Resident memory while all peers know everything, in mebibytes.
    pub resident_mib: f64,
}

/// A whole table, told several times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// From the last KEEPALIVE before the sessions are up to the last prefix at the last of the peers, in milliseconds: half of
    /// the runs took as long or less.
    pub median_ms: f64,
    /// The longest run.
    pub max_ms: f64,
    /// The most UPDATEs with prefixes that a peer was sent for it.
    pub updates: usize,
    /// Whether each peer was told, each time, that this was everything.
    pub end_of_rib: bool,
}

/// One of several runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) time: Duration,
    pub(super) updates: usize,
    pub(super) end_of_rib: bool,
}

/// One Service changes among many.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What changes.
    pub what: String,
    /// How often it did.
    pub samples: usize,
    /// From the watch event on its way into the node to the UPDATE at the peer, in milliseconds: half of them.
    pub median_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Table {
    /// The figures of these runs. At least one is needed.
    pub(super) fn of(runs: &[Run]) -> Result<Self> {
        let times: Vec<Duration> = runs.iter().map(|run| run.time).collect();
        Ok(Self {
            median_ms: rank(&times, 50)?,
            max_ms: rank(&times, 100)?,
            updates: runs.iter().map(|run| run.updates).max().unwrap_or_default(),
            end_of_rib: runs.iter().all(|run| run.end_of_rib),
        })
    }
}

impl Change {
    /// The figures of these changes. At least one is needed.
    pub(super) fn of(what: &str, times: &[Duration]) -> Result<Self> {
        Ok(Self {
            what: what.to_owned(),
            samples: times.len(),
            median_ms: rank(times, 50)?,
            p99_ms: rank(times, 99)?,
            max_ms: rank(times, 100)?,
        })
    }
}

impl BgpFigures {
    pub(super) fn of(
        prefixes: usize,
        peers: usize,
        daemons: Vec<Daemon>,
        skipped: Vec<String>,
        changes: Vec<Change>,
    ) -> Self {
        let aims =
            Aims { told_ms: AIM_MS, gone_ms: AIM_GONE_MS, median_ms: AIM_MEDIAN_MS, p99_ms: AIM_P99_MS };
        let mut figures = Self {
            prefixes,
            updates: updates_for(prefixes),
            peers,
            daemons,
            skipped,
            changes,
            aims,
            ok: true,
        };
        figures.ok = figures.is_tolerable();
        figures
    }

    /// Times depend on what else the machine does; how many UPDATEs there are does not.
    fn is_tolerable(&self) -> bool {
        let Some(ours) = self.daemons.first() else { return false };
        let Aims { told_ms, gone_ms, median_ms, p99_ms } = self.aims;
        let exact = |table: &Table| table.updates <= self.updates && table.end_of_rib;
        exact(&ours.one)
            && exact(&ours.all)
            && ours.gone_updates <= self.updates
            && ours.one.median_ms.max(ours.all.median_ms) <= told_ms * FAILURE
            && ours.gone_ms <= gone_ms * FAILURE
            && self
                .changes
                .iter()
                .all(|change| change.median_ms <= median_ms * FAILURE && change.p99_ms <= p99_ms * FAILURE)
    }
}

/// How many UPDATEs so many /32 need: 4,096 bytes each, of which header, lengths and what a route of MetalLB's has for
/// attributes take less than 60, a prefix five.
const fn updates_for(prefixes: usize) -> usize {
    prefixes.div_ceil((4096 - 60) / 5)
}

/// The smallest value that this share of all values does not exceed, in milliseconds.
fn rank(times: &[Duration], percent: usize) -> Result<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).map(|time| time.as_secs_f64() * 1e3).context("nothing was measured")
}

const fn met(is: bool) -> &'static str {
    if is { "met" } else { "missed" }
}

impl fmt::Display for BgpFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefixes, updates, peers, .. } = self;
        let Aims { told_ms, gone_ms, median_ms, p99_ms } = self.aims;
        writeln!(
            f,
            "{prefixes} /32, in milliseconds: from a session that is up to the last prefix at one peer, and at the last of \
             {peers} peers at once; from the order to take all back to the last withdrawal at one peer"
        )?;
        writeln!(
            f,
            "{:<16} {:>8} {:>8} {:>8} {:>4} | {:>8} {:>8} {:>8} {:>4} | {:>9} {:>8} | {:>8}",
            "",
            "1 peer",
            "longest",
            "UPDATEs",
            "end",
            format!("{peers} peers"),
            "longest",
            "UPDATEs",
            "end",
            "withdrawn",
            "UPDATEs",
            "MiB"
        )?;
        for Daemon { name, one, all, gone_ms, gone_updates, resident_mib } in &self.daemons {
            write!(f, "{name:<16}")?;
            for Table { median_ms, max_ms, updates, end_of_rib } in [one, all] {
                let end = if *end_of_rib { "yes" } else { "no" };
                write!(f, " {median_ms:>8.1} {max_ms:>8.1} {updates:>8} {end:>4} |")?;
            }
            writeln!(f, " {gone_ms:>9.1} {gone_updates:>8} | {resident_mib:>8.1}")?;
        }
        for skipped in &self.skipped {
            writeln!(f, "NOT MEASURED: {skipped}")?;
        }
        if let Some(ours) = self.daemons.first() {
            for (what, table) in [("1 peer".to_owned(), &ours.one), (format!("{peers} peers"), &ours.all)] {
                writeln!(
                    f,
                    "ferrolb, {what}: median {:.1} ms (aim: at most {told_ms:.0}, {}), {} UPDATEs and the End-of-RIB (aim: {updates}, {})",
                    table.median_ms,
                    met(table.median_ms <= told_ms),
                    table.updates,
                    met(table.updates <= *updates && table.end_of_rib)
                )?;
            }
            writeln!(
                f,
                "ferrolb, withdrawn: {:.1} ms (aim: at most {gone_ms:.0}, {}), {} UPDATEs (aim: {updates}, {})",
                ours.gone_ms,
                met(ours.gone_ms <= gone_ms),
                ours.gone_updates,
                met(ours.gone_updates <= *updates)
            )?;
        }
        writeln!(
            f,
            "one Service changed among {prefixes}, in milliseconds: from the watch event on its way into the node to the UPDATE"
        )?;
        write!(f, "{:<34} {:>8} {:>8} {:>8} {:>8}", "", "samples", "median", "p99", "longest")?;
        for Change { what, samples, median_ms: median, p99_ms: p99, max_ms } in &self.changes {
            write!(
                f,
                "\n{what:<34} {samples:>8} {median:>8.2} {p99:>8.2} {max_ms:>8.2}  (aim: median at most {median_ms:.0}, {}; \
                 p99 at most {p99_ms:.0}, {})",
                met(*median <= median_ms),
                met(*p99 <= p99_ms)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(time: f64, updates: usize, end_of_rib: bool, median_ms: f64) -> BgpFigures {
        let table = Table { median_ms: time, max_ms: time, updates, end_of_rib };
        let (one, all, gone_ms) = (table.clone(), table, time);
        let ours = Daemon {
            name: "ferrolb".to_owned(),
            one,
            all,
            gone_ms,
            gone_updates: updates,
            resident_mib: 1.0,
        };
        let other = Daemon { name: "other".to_owned(), gone_updates: 99, ..ours.clone() };
        let change = Change { what: "x".to_owned(), samples: 1, median_ms, p99_ms: 5.0, max_ms: 6.0 };
        BgpFigures::of(10_000, 8, vec![ours, other], vec!["a router".to_owned()], vec![change])
    }

    #[test]
    fn counts_are_exact_and_times_fail_beyond_ten_times_their_aim() {
        let good = figures(20.0, 13, true, 1.0);
        assert!(good.ok);
        assert!(!good.to_string().contains("missed"), "{good}");
        assert!(good.to_string().contains("NOT MEASURED: a router"), "{good}");
        let missed = figures(60.0, 13, true, 1.1);
        assert!(missed.ok);
        assert_eq!(missed.to_string().matches("missed").count(), 4, "{missed}");
        assert!(!figures(201.0, 13, true, 1.0).ok);
        assert!(!figures(20.0, 14, true, 1.0).ok);
        assert!(!figures(20.0, 13, false, 1.0).ok);
        assert!(!figures(20.0, 13, true, 10.1).ok);
    }

    #[test]
    fn ten_thousand_prefixes_are_thirteen_updates() {
        assert_eq!([1, 807, 808, 1000, 10_000].map(updates_for), [1, 1, 2, 2, 13]);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        let change = Change::of("x", &times).unwrap();
        assert_eq!((change.median_ms, change.p99_ms, change.max_ms), (100.0, 198.0, 200.0));
        assert!(Change::of("x", &[]).is_err());
    }
}

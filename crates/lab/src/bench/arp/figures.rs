// SPDX-License-Identifier: Apache-2.0
//! What was measured, and how it reads.

use std::fmt;

use serde::Serialize;

use super::flood::Flood;
use super::latency::{Latency, Pace};
use crate::bench::FAILURE;
use crate::host::Host;

/// The aim for the ratio of the medians.
pub(super) const AIM: f64 = 1.3;

/// How much the ratio may differ between few and many addresses.
pub(super) const SPREAD_AIM: f64 = 0.1;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct ArpFigures {
    /// Requests per address and round.
    pub requests: usize,
    /// One per number of announced addresses and pace, ascending.
    pub rounds: Vec<Round>,
    /// What the ratios should not exceed.
    pub aim: f64,
    /// How far the ratio with the most addresses is from that with one, as a share of it, busy.
    pub spread: f64,
    /// What that should not exceed.
    pub spread_aim: f64,
    /// What others' traffic costs.
    pub floods: Vec<Flood>,
    /// Whether every request for an announced address was answered, and no time, ratio or share is beyond ten times its aim.
    pub ok: bool,
}

/// Answers for an announced address beside those of the kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// How many addresses are announced.
    pub announced: usize,
    /// How one request followed the other.
    pub pace: Pace,
    /// The node that answers for both.
    pub node: Host,
    /// The address that the node's kernel holds.
    pub kernel: Latency,
    /// The announced address.
    pub ours: Latency,
    /// Median of the announced address by median of the kernel's.
    pub ratio: f64,
}

impl ArpFigures {
    pub(super) fn of(requests: usize, rounds: Vec<Round>, floods: Vec<Flood>) -> Self {
        let mut busy = rounds.iter().filter(|round| round.pace == Pace::Busy).map(|round| round.ratio);
        let first = busy.next().unwrap_or(f64::NAN);
        let spread = busy.next_back().map_or(0.0, |last| (last - first) / first);
        // How long an answer takes depends on what else the machine does; whether there is one does not.
        let rounds_ok = rounds.iter().all(|round| round.ours.lost == 0 && round.ratio <= AIM * FAILURE);
        let floods_ok = floods.iter().all(|flood| {
            let dear = flood.aim_percent.is_some_and(|aim| flood.core_percent > aim * FAILURE);
            !dear && flood.answered == flood.asked
        });
        let ok = rounds_ok && floods_ok && spread.abs() <= SPREAD_AIM * FAILURE;
        Self { requests, rounds, aim: AIM, spread, spread_aim: SPREAD_AIM, floods, ok }
    }
}

const fn met(is: bool) -> &'static str {
    if is { "met" } else { "missed" }
}

impl fmt::Display for ArpFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "ARP from the client through the switch: {} requests per address, in turn for one that the kernel of the \
             node holds and for an announced one; the kernel's times in microseconds",
            self.requests
        )?;
        let (aim, spread_aim) = (self.aim, self.spread_aim * 100.0);
        for pace in [Pace::Busy, Pace::Idle] {
            let what = match pace {
                Pace::Busy => "one request after the other",
                Pace::Idle => "one request every 3 ms",
            };
            writeln!(f, "{what:<34} {:>9} {:>9} {:>9} {:>6} {:>7}", "min", "median", "p99", "lost", "ratio")?;
            let rounds = || self.rounds.iter().filter(|round| round.pace == pace);
            for Round { announced, node, kernel, ours, ratio, .. } in rounds() {
                let row = |f: &mut fmt::Formatter<'_>, who: String, latency: &Latency, ratio: String| {
                    let Latency { min, median, p99, lost, .. } = latency;
                    writeln!(f, "{who:<34} {min:>9.1} {median:>9.1} {p99:>9.1} {lost:>6} {ratio:>7}")
                };
                row(f, format!("{announced:>6} announced, the kernel of {node}"), kernel, String::new())?;
                row(f, format!("{:>6} ferrolb", ""), ours, format!("{ratio:.2}"))?;
            }
            let worst = rounds().map(|round| round.ratio).fold(0.0, f64::max);
            writeln!(f, "ratio of the medians: at most {worst:.2} (aim: {aim:.2}, {})", met(worst <= aim))?;
        }
        let most = self.rounds.last().map_or(0, |round| round.announced);
        writeln!(
            f,
            "from 1 to {most} addresses the first of these ratios changes by {:+.0} % (aim: at most {spread_aim:.0} %, {})",
            self.spread * 100.0,
            met(self.spread.abs() <= self.spread_aim)
        )?;
        for (index, flood) in self.floods.iter().enumerate() {
            let Flood {
                what,
                meanwhile,
                announced,
                per_second,
                seconds,
                core_percent,
                asked,
                answered,
                dropped,
                ..
            } = flood;
            write!(
                f,
                "{per_second:.0} {what} per second{meanwhile}, for {seconds:.0} s, {announced} addresses: {core_percent:.1} % of a core"
            )?;
            if let Some(aim) = flood.aim_percent {
                write!(f, " (aim: at most {aim:.0} %, {})", met(*core_percent <= aim))?;
            }
            let end = if index + 1 < self.floods.len() { "\n" } else { "" };
            write!(
                f,
                ", {answered} of {asked} legitimate requests answered (aim: all, {})",
                met(answered == asked)
            )?;
            if *dropped > 0 {
                write!(f, "; the bench's own cables lost {dropped} frames")?;
            }
            f.write_str(end)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(announced: usize, median: f64, lost: usize) -> Round {
        let latency = |median| Latency { address: [10, 0, 0, 1].into(), min: 1.0, median, p99: 9.0, lost };
        Round {
            announced,
            pace: Pace::Busy,
            node: Host::Node1,
            kernel: latency(10.0),
            ours: latency(median),
            ratio: median / 10.0,
        }
    }

    fn flood(core_percent: f64, answered: usize) -> Flood {
        let (what, aim_percent) = ("foreign requests".to_owned(), Some(4.0));
        Flood {
            what,
            meanwhile: String::new(),
            announced: 2,
            per_second: 2e4,
            seconds: 10.0,
            core_percent,
            aim_percent,
            asked: 100,
            answered,
            dropped: 0,
        }
    }

    #[test]
    fn aims_are_met_or_missed_and_far_outliers_fail() {
        let good = ArpFigures::of(300, vec![round(1, 12.0, 0), round(9, 12.6, 0)], vec![flood(3.9, 100)]);
        assert!(good.ok);
        assert!(!good.to_string().contains("missed"), "{good}");
        let missed = ArpFigures::of(300, vec![round(1, 12.0, 0), round(9, 14.0, 0)], vec![flood(4.1, 100)]);
        assert!(missed.ok);
        assert_eq!(missed.to_string().matches("missed").count(), 3, "{missed}");
        assert!(missed.to_string().contains("changes by +17 %"), "{missed}");
        assert!(!ArpFigures::of(300, vec![round(1, 140.0, 0)], vec![]).ok);
        assert!(ArpFigures::of(300, vec![round(1, 10.0, 0), round(9, 19.0, 0)], vec![]).ok);
        assert!(
            !ArpFigures::of(300, vec![round(1, 10.0, 0), round(9, 21.0, 0)], vec![]).ok,
            "grows with their number"
        );
        assert!(!ArpFigures::of(300, vec![round(1, 12.0, 1)], vec![]).ok);
        assert!(!ArpFigures::of(300, vec![round(1, 12.0, 0)], vec![flood(41.0, 100)]).ok);
        assert!(!ArpFigures::of(300, vec![round(1, 12.0, 0)], vec![flood(1.0, 99)]).ok);
    }
}

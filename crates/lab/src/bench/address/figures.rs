// SPDX-License-Identifier: Apache-2.0
//! What the measurement gives: times of rounds, as people and programs read them.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::super::FAILURE;
use super::writes::Writes;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct AddressFigures {
    /// The API server.
    pub api: String,
    /// The daemons' level: `A` (MetalLB's manifests) or `B` (our own).
    pub level: String,
    /// Times, in order.
    pub rounds: Vec<Round>,
    /// Writes of the daemons; none where the API server does not tell.
    pub writes: Vec<Writes>,
    /// Whether no figure is more than ten times beyond its aim.
    pub ok: bool,
}

/// Services created at once, or one after the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Round {
    /// For people.
    pub name: String,
    /// How many Services were created.
    pub services: usize,
    /// Under which circumstances.
    #[serde(flatten)]
    pub setting: Setting,
    /// Half of them took as long or less, in milliseconds: from the answer to the create to the watch event with the
    /// address.
    pub median_ms: f64,
    /// 95 of 100 took as long or less.
    pub p95_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// From the answer to the last create to the last address.
    pub last_ms: f64,
    /// What the median should not exceed.
    pub aim_ms: f64,
    /// Whether it does not.
    pub met: bool,
}

/// The circumstances of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// How many Services there were already.
    pub among: usize,
    /// How many connections created Services, each the next as soon as the last was answered.
    pub connections: usize,
}

impl Round {
    /// The figures of one round: when each create was answered, and when each address was seen.
    pub(super) fn of(
        name: &str,
        setting: Setting,
        aim_ms: f64,
        answered: &[Instant],
        addressed: &[Instant],
    ) -> Result<Self> {
        // Nothing holds the event back until the answer has been read: an address may even be seen first.
        let mut times: Vec<Duration> = answered
            .iter()
            .zip(addressed)
            .map(|(answered, addressed)| addressed.saturating_duration_since(*answered))
            .collect();
        times.sort_unstable();
        // Nearest rank: the smallest value that this share of all values does not exceed.
        let rank = |percent: usize| {
            let index = (times.len() * percent).div_ceil(100).saturating_sub(1);
            times.get(index).map(ms).context("a round without Services")
        };
        let last_answer = answered.iter().max().context("a round without Services")?;
        let last_seen = addressed.iter().max().context("a round without Services")?;
        let median_ms = rank(50)?;
        Ok(Self {
            name: name.to_owned(),
            services: times.len(),
            setting,
            median_ms,
            p95_ms: rank(95)?,
            max_ms: rank(100)?,
            last_ms: ms(&last_seen.saturating_duration_since(*last_answer)),
            aim_ms,
            met: median_ms <= aim_ms,
        })
    }

    /// Whether it is not more than ten times beyond its aim.
    pub(super) fn tolerable(&self) -> bool {
        self.median_ms <= self.aim_ms * FAILURE
    }
}

fn ms(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl fmt::Display for AddressFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "from the answer to the create to the watch event with the address at an observer, in milliseconds\n\
             API server {}, level {}",
            self.api, self.level
        )?;
        write!(
            f,
            "{:<28} {:>11} {:>8} {:>8} {:>8} {:>14}",
            "", "connections", "median", "p95", "max", "after the last"
        )?;
        for round in &self.rounds {
            let Round { name, setting, median_ms, p95_ms, max_ms, last_ms, aim_ms, met, .. } = round;
            let connections = setting.connections;
            let met = if *met { "met" } else { "missed" };
            write!(
                f,
                "\n{name:<28} {connections:>11} {median_ms:>8.1} {p95_ms:>8.1} {max_ms:>8.1} {last_ms:>14.1}  (aim for the median: at most {aim_ms:.0}, {met})"
            )?;
        }
        if self.writes.is_empty() {
            return write!(f, "\nwrites: this API server does not tell them");
        }
        write!(f, "\n\n{}", Writes::table(&self.writes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting = Setting { among: 3, connections: 2 };

    #[test]
    fn a_round_is_told_by_values_that_were_measured() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let answered: Vec<Instant> = (0..20).map(at).collect();
        // The first is seen before its answer was read; each later one takes a millisecond more.
        let mut addressed: Vec<Instant> = (0..20).map(|n| at(n + n)).collect();
        addressed.reverse();
        let backwards = Round::of("x", SETTING, 5.0, &answered, &addressed).unwrap();
        assert_eq!((backwards.median_ms, backwards.max_ms), (8.0, 38.0));
        addressed.reverse();
        let round = Round::of("x", SETTING, 9.0, &answered, &addressed).unwrap();
        assert_eq!((round.median_ms, round.p95_ms, round.max_ms, round.last_ms), (9.0, 18.0, 19.0, 19.0));
        assert!(round.met && round.tolerable());
        let slow = Round::of("x", SETTING, 0.8, &answered, &addressed).unwrap();
        assert!(!slow.met && !slow.tolerable());
        assert!(Round::of("x", SETTING, 1.0, &[], &[]).is_err());
    }
}

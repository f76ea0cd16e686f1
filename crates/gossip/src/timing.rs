// SPDX-License-Identifier: Apache-2.0
//! How long, how often, how many: the profiles of memberlist, and what follows from the number of members.

use std::time::Duration;

use ferrolb_net_types::Time;

/// How often a member probes, how long it waits, how far it spreads. All members should have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// How long a stream may take to be opened, and again for what is said on it.
    pub tcp_timeout: Duration,
    /// How many members are asked to probe one that did not answer.
    pub indirect_checks: usize,
    /// How often a broadcast is sent, times the magnitude of the cluster.
    pub retransmit_mult: u32,
    /// How many probe intervals a suspicion lasts at least, times the magnitude of the cluster.
    pub suspicion_mult: u32,
    /// How many times longer a suspicion lasts that nobody shares.
    pub suspicion_max_mult: u32,
    /// How often everything is exchanged with one member; zero: never.
    pub push_pull_interval: Duration,
    /// How long a direct answer is waited for before others are asked.
    pub probe_timeout: Duration,
    /// How often one member is probed; zero: none is.
    pub probe_interval: Duration,
    /// Whether a member that does not answer datagrams is tried by a stream.
    pub tcp_pings: bool,
    /// The worst health a member ascribes to itself, plus one.
    pub awareness_max: u32,
    /// To how many members news are sent at a time; zero: to none.
    pub gossip_nodes: usize,
    /// How often news are sent; zero: never.
    pub gossip_interval: Duration,
    /// How long news are sent to a dead member, and how long it is remembered.
    pub gossip_to_the_dead: Duration,
    /// Bytes that a datagram is filled to.
    pub packet_size: usize,
}

impl Profile {
    /// For one network: what a speaker uses unless told otherwise.
    #[must_use]
    pub const fn lan() -> Self {
        Self {
            tcp_timeout: Duration::from_secs(10),
            indirect_checks: 3,
            retransmit_mult: 4,
            suspicion_mult: 4,
            suspicion_max_mult: 6,
            push_pull_interval: Duration::from_secs(30),
            probe_timeout: Duration::from_millis(500),
            probe_interval: Duration::from_secs(1),
            tcp_pings: true,
            awareness_max: 8,
            gossip_nodes: 3,
            gossip_interval: Duration::from_millis(200),
            gossip_to_the_dead: Duration::from_secs(30),
            packet_size: 1400,
        }
    }

    /// For networks far apart.
    #[must_use]
    pub const fn wan() -> Self {
        Self {
            tcp_timeout: Duration::from_secs(30),
            suspicion_mult: 6,
            push_pull_interval: Duration::from_secs(60),
            probe_timeout: Duration::from_secs(3),
            probe_interval: Duration::from_secs(5),
            gossip_nodes: 4,
            gossip_interval: Duration::from_millis(500),
            gossip_to_the_dead: Duration::from_secs(60),
            ..Self::lan()
        }
    }

    /// For members on one host.
    #[must_use]
    pub const fn local() -> Self {
        Self {
            tcp_timeout: Duration::from_secs(1),
            indirect_checks: 1,
            retransmit_mult: 2,
            suspicion_mult: 3,
            push_pull_interval: Duration::from_secs(15),
            probe_timeout: Duration::from_millis(200),
            gossip_interval: Duration::from_millis(100),
            gossip_to_the_dead: Duration::from_secs(15),
            ..Self::lan()
        }
    }
}

/// How many datagrams a broadcast is put into.
pub(crate) fn retransmit_limit(mult: u32, members: usize) -> u32 {
    // The logarithm of a number of members is below 20.
    mult.saturating_mul(((members + 1) as f64).log10().ceil() as u32)
}

/// How long a suspicion lasts that everybody shares.
pub(crate) fn suspicion_min(mult: u32, interval: Duration, members: usize) -> Duration {
    let scale = ((members.max(1) as f64).log10().max(1.0) * 1000.0) as u32;
    interval.saturating_mul(mult.saturating_mul(scale)) / 1000
}

/// How often everything is exchanged.
pub(crate) fn push_pull_interval(interval: Duration, members: usize) -> Duration {
    let scale = if members <= 32 { 1 } else { ((members as f64).log2() - 5.0).ceil() as u32 + 1 };
    interval.saturating_mul(scale)
}

/// How long a suspicion lasts from its start, with this many further accusers of the `wanted` ones.
pub(crate) fn suspicion_timeout(min: Duration, max: Duration, wanted: u32, accusers: u32) -> Duration {
    if wanted == 0 {
        return min;
    }
    let share = f64::from(accusers + 1).ln() / f64::from(wanted + 1).ln();
    let seconds = max.as_secs_f64() - share * (max.as_secs_f64() - min.as_secs_f64());
    // A negative number of milliseconds is 0.
    Duration::from_millis((seconds * 1000.0).floor() as u64).max(min)
}

/// Something that is due again and again at a fixed phase: what is missed is missed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticker {
    next: Time,
    period: Duration,
}

impl Ticker {
    /// Ticks one period from now for the first time. None for a period of zero, which stands for "never".
    pub(crate) fn start(now: Time, period: Duration) -> Option<Self> {
        (!period.is_zero()).then(|| Self { next: now + period, period })
    }

    pub(crate) const fn next(&self) -> Time {
        self.next
    }

    /// Whether it is due; the next time is then the first one after `now` in phase.
    pub(crate) fn fire(&mut self, now: Time) -> bool {
        if now < self.next {
            return false;
        }
        let missed = (now - self.next).as_nanos() / self.period.as_nanos();
        let missed = u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1);
        self.next = self.next + self.period.saturating_mul(missed);
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_formulas_give_what_memberlist_computes() {
        let vectors: Value = serde_json::from_str(include_str!("../tests/data/formulas.json")).unwrap();
        let rows = |name: &str| vectors[name].as_array().unwrap().clone();
        let number = |row: &Value, field: &str| row[field].as_f64().unwrap();
        let seconds = |row: &Value, field: &str| Duration::from_secs_f64(number(row, field));
        let nodes = |row: &Value| row["nodes"].as_u64().unwrap() as usize;
        for row in rows("push_pull_interval_s") {
            for base in [30, 60] {
                let expected = seconds(&row, &format!("interval{base}s"));
                assert_eq!(push_pull_interval(Duration::from_secs(base), nodes(&row)), expected, "{row}");
            }
        }
        for row in rows("retransmit_limit") {
            for mult in [2, 4] {
                assert_eq!(row[format!("mult{mult}")], retransmit_limit(mult, nodes(&row)), "{row}");
            }
        }
        for row in rows("suspicion_min_timeout_s") {
            for (mult, interval) in [(3, 1), (4, 1), (6, 5)] {
                let expected = seconds(&row, &format!("mult{mult}_interval{interval}s"));
                assert_eq!(
                    suspicion_min(mult, Duration::from_secs(interval), nodes(&row)),
                    expected,
                    "{row}"
                );
            }
        }
        for row in rows("remaining_suspicion_s") {
            let whole = suspicion_timeout(
                seconds(&row, "min"),
                seconds(&row, "max"),
                row["k"].as_u64().unwrap() as u32,
                row["confirmations"].as_u64().unwrap() as u32,
            );
            let remaining = whole.as_secs_f64() - number(&row, "elapsed");
            assert!((remaining - number(&row, "remaining")).abs() < 1e-6, "{row}: {remaining}");
        }
    }

    #[test]
    fn a_ticker_keeps_its_phase() {
        let mut ticker = Ticker::start(Time::millis(50), Duration::from_secs(1)).unwrap();
        assert!(!ticker.fire(Time::millis(1049)));
        assert!(ticker.fire(Time::millis(1050)));
        assert!(ticker.fire(Time::millis(5300)));
        assert_eq!(ticker.next(), Time::millis(6050));
        assert!(Ticker::start(Time::ZERO, Duration::ZERO).is_none());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! How fast an announced address answers, beside one that the kernel of the same node holds: one request at a time and
//! the two addresses in turn, so that both see the same machine.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ferrolb_linux::probe::Prober;
use serde::Serialize;

/// Between two requests that are to find everybody asleep.
const PAUSE: Duration = Duration::from_millis(3);

/// How one request follows the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// At once after the answer.
    Busy,
    /// Three milliseconds later, so that every processor sleeps meanwhile: to wake up is then most of the time.
    Idle,
}

/// How long an answer is waited for.
pub(super) const LIMIT: Duration = Duration::from_millis(500);

/// Times of one address in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// The address.
    pub address: Ipv4Addr,
    /// The fastest answer.
    pub min: f64,
    /// Half of the answers were as fast or faster.
    pub median: f64,
    /// 99 of 100 were as fast or faster.
    pub p99: f64,
    /// Requests without an answer.
    pub lost: usize,
}

impl Latency {
    /// The figures of these answers. At least one is needed.
    fn of(address: Ipv4Addr, mut answers: Vec<Duration>, requests: usize) -> Result<Self> {
        answers.sort_unstable();
        // Nearest rank: the smallest value that this share of all values does not exceed.
        let rank = |percent: usize| {
            let index = (answers.len() * percent).div_ceil(100).saturating_sub(1);
            answers.get(index).map(|time| time.as_secs_f64() * 1e6)
        };
        let nobody = || format!("nobody answers for {address}");
        Ok(Self {
            address,
            min: rank(0).with_context(nobody)?,
            median: rank(50).with_context(nobody)?,
            p99: rank(99).with_context(nobody)?,
            lost: requests.saturating_sub(answers.len()),
        })
    }
}

/// Asks so many times for each of two addresses, in turn. Blocks.
pub(super) fn compare(
    asking: &mut Prober,
    addresses: [Ipv4Addr; 2],
    pace: Pace,
    requests: usize,
) -> Result<[Latency; 2]> {
    let mut times = [Vec::with_capacity(requests), Vec::with_capacity(requests)];
    for _ in 0..requests {
        for (address, times) in addresses.into_iter().zip(&mut times) {
            times.extend(asking.ask(address, LIMIT)?.map(|answer| answer.elapsed));
            if pace == Pace::Idle {
                std::thread::sleep(PAUSE);
            }
        }
    }
    let [one, other] = times;
    Ok([Latency::of(addresses[0], one, requests)?, Latency::of(addresses[1], other, requests)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let address = Ipv4Addr::LOCALHOST;
        let times = |range: std::ops::RangeInclusive<u64>| range.rev().map(Duration::from_micros).collect();
        let latency = Latency::of(address, times(1..=200), 203).unwrap();
        assert_eq!(latency, Latency { address, min: 1.0, median: 100.0, p99: 198.0, lost: 3 });
        let single = Latency::of(address, times(7..=7), 1).unwrap();
        assert_eq!((single.min, single.median, single.p99), (7.0, 7.0, 7.0));
        assert!(Latency::of(address, Vec::new(), 5).is_err());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! How long to wait before the next try: doubling, capped, and never the same for two processes.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Waiting times between tries that fail.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    /// Starts at `first`, doubles with every failure, and stays at `cap`.
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, failures: 0 }
    }

    /// The wait after one more failure: the doubled time less up to half of it, drawn anew each time.
    ///
    /// The draw keeps a thousand speakers that lost the same API server from coming back at the same instant.
    pub fn wait(&mut self) -> Duration {
        let full = self.first.saturating_mul(1 << self.failures.min(20)).min(self.cap);
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(1.0 - unit() / 2.0)
    }

    /// A try went well.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Lowers or raises the cap for what follows.
    pub fn cap_at(&mut self, cap: Duration) {
        self.cap = cap;
    }

    /// How many tries failed since the last that went well.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// A duration between `low` and `high`, drawn anew at each call.
pub fn between(low: Duration, high: Duration) -> Duration {
    low + high.saturating_sub(low).mul_f64(unit())
}

/// A number in [0, 1). Each `RandomState` carries keys of its own, which is all the randomness that jitter needs.
fn unit() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    // 53 bits are exactly what a double holds.
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_lose_at_most_half() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for full in [100, 200, 400, 800, 1000, 1000, 1000] {
            let full = Duration::from_millis(full);
            let wait = backoff.wait();
            assert!(wait <= full && wait >= full / 2, "{wait:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.wait() <= Duration::from_millis(100));
    }

    #[test]
    fn a_long_outage_does_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
        for _ in 0..10_000 {
            assert!(backoff.wait() <= Duration::from_secs(10));
        }
    }

    #[test]
    fn two_draws_differ() {
        let draws: std::collections::BTreeSet<Duration> =
            (0..32).map(|_| between(Duration::from_secs(30), Duration::from_secs(60))).collect();
        assert!(draws.len() > 16);
        assert!(draws.iter().all(|d| (30..=60).contains(&d.as_secs())));
    }
}

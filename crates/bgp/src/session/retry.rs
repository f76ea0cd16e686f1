// SPDX-License-Identifier: Apache-2.0
//! How long to wait before the next attempt to connect.

use std::time::Duration;

/// The shortest wait there is, whatever the settings say.
const LEAST: Duration = Duration::from_secs(1);
/// The first wait before jitter, so that jitter leaves at least [`LEAST`] of it.
const FIRST: Duration = Duration::from_nanos(1_333_333_334);

/// Waits that double from one to the next, each shortened by chance by up to a quarter (RFC 4271, section 10), so that
/// the nodes of a cluster do not all knock at a router's door at once. At the least they are 1, 2, 4, 8 … seconds.
#[derive(Debug)]
pub(super) struct Retry {
    failures: u32,
    random: u64,
}

impl Retry {
    pub(super) const fn new(seed: u64) -> Self {
        Self { failures: 0, random: seed }
    }

    /// The next wait.
    pub(super) fn wait(&mut self, at_most: Duration) -> Duration {
        let doubled = FIRST.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = (self.failures + 1).min(31);
        let quarter = doubled.min(at_most) / 4;
        let shortened = doubled.min(at_most).saturating_sub(quarter.mul_f64(self.chance()));
        shortened.max(LEAST)
    }

    /// All is well: the next wait is the first one again.
    pub(super) const fn reset(&mut self) {
        self.failures = 0;
    }

    /// A number from 0 up to 1: SplitMix64.
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // 53 bits are what the type holds exactly.
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_one_second_to_the_longest_and_differ_by_chance() {
        let at_most = Duration::from_secs(120);
        for seed in 0..200 {
            let mut retry = Retry::new(seed);
            for least in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 90.0, 90.0, 90.0] {
                let wait = retry.wait(at_most).as_secs_f64();
                assert!(
                    wait >= least && wait <= (least * 4.0 / 3.0 + 0.001).min(120.0),
                    "{wait} for {least}"
                );
            }
            retry.reset();
            assert!(retry.wait(at_most) < Duration::from_secs(2));
        }
        let first = |seed| Retry::new(seed).wait(at_most);
        let mut firsts: Vec<_> = (0..100).map(first).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 100);
        assert!(firsts[99] - firsts[0] > Duration::from_millis(250), "spread over the whole range");
        assert_eq!(first(7), first(7), "a seed decides every chance");
    }

    #[test]
    fn no_setting_makes_it_knock_more_than_once_a_second() {
        let mut retry = Retry::new(1);
        for _ in 0..100 {
            assert_eq!(retry.wait(Duration::ZERO), LEAST);
        }
        let five = Duration::from_secs(5);
        let mut retry = Retry::new(1);
        let waits: Vec<_> = (0..10).map(|_| retry.wait(five)).collect();
        assert!(waits.iter().all(|wait| (LEAST..=five).contains(wait)) && waits[9] > five / 2);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! How long to wait before trying something again.

use std::time::Duration;

use ferrolb_net_types::Time;

/// Failures in a row, and the moment before which nothing is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    failures: u32,
    not_before: Time,
}

const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(60);

impl Backoff {
    /// One more failure: 5 ms after the first, twice as long after each further one, at most a minute; and not sooner
    /// than the API server asks for.
    pub(crate) fn failed(&mut self, now: Time, retry_after: Option<Duration>) -> Time {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        let wait = FIRST.saturating_mul(factor).min(LONGEST);
        // Nobody asks for more than that in earnest.
        self.not_before = now + wait.max(retry_after.unwrap_or_default().min(10 * LONGEST));
        self.not_before
    }

    /// It worked, or what is tried is no longer the same.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// When to try again, if that is not now.
    pub(crate) fn waits_until(&self, now: Time) -> Option<Time> {
        (self.not_before > now).then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute() {
        let mut backoff = Backoff::default();
        let now = Time::millis(1000);
        let waits: Vec<u128> = (0..40).map(|_| (backoff.failed(now, None) - now).as_millis()).collect();
        assert_eq!(waits[..5], [5, 10, 20, 40, 80]);
        assert_eq!(waits[13..15], [40_960, 60_000]);
        assert_eq!(waits[39], 60_000);
        assert_eq!(backoff.waits_until(now + Duration::from_secs(60)), None);
        backoff.reset();
        let asked = Duration::from_secs(7);
        assert_eq!(backoff.failed(now, Some(asked)), now + asked);
        assert_eq!(backoff.failed(now, None), now + FIRST * 2);
        backoff.reset();
        assert_eq!(backoff.waits_until(now), None);
    }
}

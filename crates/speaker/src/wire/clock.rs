// SPDX-License-Identifier: Apache-2.0
//! The wire thread's clock, which goes on while the machine is suspended: what was believed before may be long over.

use std::time::{Duration, Instant};

use ferrolb_linux::clock::since_boot;
use ferrolb_net_types::Time;

#[derive(Debug)]
pub(super) struct Clock {
    /// The time since the boot at its start.
    start: Duration,
    /// The moment at which it would have started had the machine never been suspended; moves back by each suspension.
    base: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { start: since_boot(), base: Instant::now() }
    }

    pub(super) fn now(&self) -> Time {
        Time::after(since_boot().saturating_sub(self.start))
    }

    /// The moment that a time will be, unless the machine is suspended in between.
    pub(super) fn moment(&mut self, at: Time) -> Instant {
        let (now, instant) = (self.now(), Instant::now());
        if let Some(base) = instant.checked_sub(now.since_start())
            && self.base.saturating_duration_since(base).max(base.saturating_duration_since(self.base))
                > DRIFT
        {
            self.base = base;
        }
        self.base + at.since_start()
    }
}

/// How far the two clocks may differ by the time that reading them takes; then the same time is the same moment.
const DRIFT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_the_same_moment_until_the_machine_was_suspended() {
        let mut clock = Clock::start();
        let at = Time::millis(5000);
        let moment = clock.moment(at);
        assert_eq!(clock.moment(at), moment);
        let until = moment.saturating_duration_since(Instant::now());
        assert!(until <= Duration::from_secs(5) && until > Duration::from_secs(4), "{until:?}");
        // A suspension of an hour: by what is left of the old base, every moment would lie an hour too late.
        clock.base += Duration::from_secs(3600);
        let after = clock.moment(at);
        let until = after.saturating_duration_since(Instant::now());
        assert!(until <= Duration::from_secs(5) && until > Duration::from_secs(4), "{until:?}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A clock that goes on while the machine is suspended.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The time since the machine booted, suspensions included. [`std::time::Instant`] stands still during those.
pub fn since_boot() -> Duration {
    // Linux has had this clock since 2.6.39; without it the time of suspensions is not noticed.
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC));
    time.map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_and_counts_from_the_boot() {
        let text = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = text.split_whitespace().next().unwrap().parse().unwrap();
        let first = since_boot();
        assert!(first.as_secs_f64() >= uptime - 0.02, "{first:?} {uptime}");
        assert!(since_boot() >= first);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Monotonic time as a value that the caller passes in.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point of monotonic time: nanoseconds since a start that only the caller knows.
///
/// Engines never read a clock. A daemon passes the time since its start, a test or the simulator any value it
/// likes; 64 bits last 584 years. Arithmetic saturates.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start.
    pub const ZERO: Self = Self(0);

    /// The time that lies this long after the start.
    pub fn after(since_start: Duration) -> Self {
        Self(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The time that lies this many milliseconds after the start.
    pub const fn millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// How long after the start.
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// How long after `earlier`; zero if it is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Self> for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.since_start(), f)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! How long to wait before a request is repeated.

use std::time::Duration;

/// No pause is longer.
const LONGEST: Duration = Duration::from_secs(300);

/// The pause before the next of so many tries: `first` after one, twice as long after each further one, five minutes at most.
pub(crate) fn doubled(first: Duration, tries: u32) -> Duration {
    1_u32
        .checked_shl(tries.saturating_sub(1))
        .map_or(LONGEST, |factor| first.saturating_mul(factor))
        .min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let pause = |tries| doubled(Duration::from_secs(1), tries).as_secs();
        assert_eq!([0, 1, 2, 3, 9, 10, 33, u32::MAX].map(pause), [1, 1, 2, 4, 256, 300, 300, 300]);
    }
}

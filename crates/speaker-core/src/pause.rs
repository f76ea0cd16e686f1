// SPDX-License-Identifier: Apache-2.0
//! How long to wait before a request is repeated.

use std::time::Duration;

use ferrolb_api::request::WriteError;

/// No pause is longer.
const LONGEST: Duration = Duration::from_secs(300);

/// Nor after an error that has to do with the server and not with what was asked for.
const LONGEST_TROUBLE: Duration = Duration::from_secs(30);

/// Whether an error has to do with the server, or what lies before it, and not with what was asked for: then another
/// request that succeeds is a reason to try again.
pub(crate) const fn is_trouble(error: &WriteError) -> bool {
    error.is_unknown() || error.code == 429
}

/// The pause after so many tries, the last of which failed like this.
pub(crate) fn after(error: &WriteError, first: Duration, tries: u32) -> Duration {
    let most = if is_trouble(error) { LONGEST_TROUBLE } else { LONGEST };
    doubled(first, tries).min(most).max(error.retry_after.unwrap_or_default()).min(LONGEST)
}

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
    fn who_is_in_trouble_is_asked_more_often_than_who_says_no_and_no_sooner_than_it_says() {
        let pause = |code, retry_after: Option<u64>| {
            let retry_after = retry_after.map(Duration::from_secs);
            let error = WriteError { retry_after, ..WriteError::refused(code, "", "") };
            after(&error, Duration::from_secs(1), 20).as_secs()
        };
        assert_eq!([0, 429, 500, 503, 403, 422].map(|code| pause(code, None)), [30, 30, 30, 30, 300, 300]);
        assert_eq!([pause(429, Some(60)), pause(429, Some(3600)), pause(503, Some(1))], [60, 300, 30]);
    }

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let pause = |tries| doubled(Duration::from_secs(1), tries).as_secs();
        assert_eq!([0, 1, 2, 3, 9, 10, 33, u32::MAX].map(pause), [1, 1, 2, 4, 256, 300, 300, 300]);
    }
}

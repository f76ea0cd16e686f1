// SPDX-License-Identifier: Apache-2.0
//! Somebody else keeps changing what the controller wrote.
//!
//! Once is put right at once. But two that take turns in overwriting each other would load the API server for
//! ever, so from the fourth time on the controller takes its time.

use std::time::Duration;

use ferrolb_net_types::Time;

/// What was written last, and how often it had to be put right.
#[derive(Clone, Debug)]
pub(crate) struct Contest<T> {
    written: Option<T>,
    rounds: u32,
    last: Time,
    not_before: Time,
}

/// What a contest says of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Nobody interferes, or hardly.
    Calm,
    /// It is a contest from now on.
    Begins,
    /// It still is one.
    GoesOn,
}

const TOLERATED: u32 = 3;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
/// After this long without a round it is all forgotten; longer than the longest wait.
const CALM: Duration = Duration::from_secs(900);

impl<T> Default for Contest<T> {
    fn default() -> Self {
        Self { written: None, rounds: 0, last: Time::ZERO, not_before: Time::ZERO }
    }
}

impl<T: PartialEq> Contest<T> {
    /// A write succeeded, and this is stored now.
    pub(crate) fn wrote(&mut self, stored: T) {
        self.written = Some(stored);
    }

    /// Another write is due, in place of what is stored at the moment.
    pub(crate) fn round(&mut self, now: Time, stored: &T) -> Round {
        if !self.is_foreign(stored) {
            return Round::Calm;
        }
        if now - self.last > CALM {
            self.rounds = 0;
        }
        self.rounds = self.rounds.saturating_add(1);
        self.last = now;
        let Some(over) = self.rounds.checked_sub(TOLERATED) else { return Round::Calm };
        let factor = 1_u32.checked_shl(over).unwrap_or(u32::MAX);
        self.not_before = now + FIRST.saturating_mul(factor).min(LONGEST);
        match over {
            0 => Round::Calm,
            1 => Round::Begins,
            _ => Round::GoesOn,
        }
    }

    /// When to write again in place of what is stored, if that is not now. What the controller itself wrote is no
    /// matter of dispute: a change of the configuration need not wait for the end of an old contest.
    pub(crate) fn waits_until(&self, now: Time, stored: &T) -> Option<Time> {
        (self.is_foreign(stored) && self.not_before > now).then_some(self.not_before)
    }

    fn is_foreign(&self, stored: &T) -> bool {
        self.written.as_ref().is_some_and(|written| written != stored)
    }
}

#[cfg(test)]
mod tests {
    use super::Round::{Begins, Calm, GoesOn};
    use super::*;

    #[test]
    fn the_fourth_round_begins_a_contest_with_growing_pauses() {
        let mut contest = Contest::default();
        let mut now = Time::millis(10_000);
        assert_eq!(contest.round(now, &"theirs"), Calm, "nothing was written yet");
        contest.wrote("ours");
        assert_eq!(contest.round(now, &"ours"), Calm, "nobody interfered");
        let mut seen = Vec::new();
        for _ in 0..14 {
            let round = contest.round(now, &"theirs");
            let wait = contest.waits_until(now, &"theirs").map_or(0, |at| (at - now).as_secs());
            seen.push((round, wait));
            now = contest.waits_until(now, &"theirs").unwrap_or(now);
        }
        assert_eq!(seen[..6], [(Calm, 0), (Calm, 0), (Calm, 1), (Begins, 2), (GoesOn, 4), (GoesOn, 8)]);
        assert_eq!(seen[13], (GoesOn, 300));
        contest.round(now, &"theirs");
        assert!(contest.waits_until(now, &"theirs").is_some());
        assert_eq!(contest.waits_until(now, &"ours"), None, "the stranger is quiet, this is another matter");
        assert_eq!(contest.round(now + Duration::from_secs(901), &"theirs"), Calm);
    }
}

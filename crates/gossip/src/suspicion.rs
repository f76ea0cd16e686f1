// SPDX-License-Identifier: Apache-2.0
//! How long a suspected member may still speak up: the more agree that it is silent, the shorter.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolb_net_types::Time;

use crate::name::Name;
use crate::timing::{Profile, suspicion_min, suspicion_timeout};

#[derive(Clone, Debug)]
pub(crate) struct Suspicion {
    started: Time,
    min: Duration,
    max: Duration,
    /// How many further accusers make it as short as it gets.
    wanted: u32,
    accusers: BTreeSet<Name>,
}

impl Suspicion {
    /// A suspicion of one among `members`.
    pub(crate) fn start(now: Time, profile: &Profile, members: usize, accuser: Name) -> Self {
        let min = suspicion_min(profile.suspicion_mult, profile.probe_interval, members);
        let wanted = profile.suspicion_mult.saturating_sub(2);
        // Who accuses and who is accused cannot join in.
        let others = u32::try_from(members.saturating_sub(2)).unwrap_or(u32::MAX);
        Self {
            started: now,
            min,
            max: min.saturating_mul(profile.suspicion_max_mult).max(min),
            wanted: if others < wanted { 0 } else { wanted },
            accusers: BTreeSet::from([accuser]),
        }
    }

    /// Counts an accuser; whether it was a new one that is still of use.
    pub(crate) fn join(&mut self, accuser: &Name) -> bool {
        self.further() < self.wanted && self.accusers.insert(accuser.clone())
    }

    /// Gives the member all its time again.
    pub(crate) const fn restart(&mut self, now: Time) {
        self.started = now;
    }

    /// When the member is dead unless it speaks up.
    pub(crate) fn deadline(&self) -> Time {
        self.started + suspicion_timeout(self.min, self.max, self.wanted, self.further())
    }

    /// Accusers but the first.
    fn further(&self) -> u32 {
        u32::try_from(self.accusers.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_2_confirmations_shorten_a_suspicion_and_none_are_wanted_of_fewer_than_four() {
        let lan = Profile::lan();
        let start = |members| Suspicion::start(Time::ZERO, &lan, members, "a".into());
        assert_eq!(start(3).deadline(), Time::millis(4000));
        let mut suspicion = start(10);
        assert_eq!(suspicion.deadline(), Time::millis(24_000));
        assert!(!suspicion.join(&"a".into()), "the first accuser does not count twice");
        assert!(suspicion.join(&"b".into()));
        assert_eq!(suspicion.deadline(), Time::millis(11_381));
        assert!(suspicion.join(&"c".into()) && !suspicion.join(&"d".into()));
        assert_eq!(suspicion.deadline(), Time::millis(4000));
    }
}

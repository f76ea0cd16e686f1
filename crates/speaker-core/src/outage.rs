// SPDX-License-Identifier: Apache-2.0
//! How long the API server has been silent, and when that is too long for what is known to be trusted.

use std::time::Duration;

use ferrolb_net_types::Time;

/// Whether the API works, as the wire side is told.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// When the API server was heard last; `None` while it answers.
    since: Option<Time>,
    /// It was said to be lost.
    told: bool,
    /// What is known comes from a former process, and none of it was confirmed.
    unconfirmed: bool,
}

impl Outage {
    /// The API server answers.
    pub(crate) const fn answered(&mut self) {
        self.since = None;
    }

    /// The API server was heard last then.
    pub(crate) const fn silent(&mut self, since: Time) {
        self.since = Some(since);
    }

    /// Whether the API server is known not to answer.
    pub(crate) const fn is_silent(&self) -> bool {
        self.since.is_some()
    }

    /// What is known now comes from a former process, until it is confirmed.
    pub(crate) const fn doubt(&mut self, unconfirmed: bool) {
        self.unconfirmed = unconfirmed;
    }

    /// Whether the API works, if that is news.
    pub(crate) fn news(&mut self, now: Time) -> Option<bool> {
        let lost = self.unconfirmed || self.since.is_some_and(|since| since + STALE_AFTER <= now);
        (lost != std::mem::replace(&mut self.told, lost)).then_some(!lost)
    }

    /// When there may be news.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.since.filter(|_| !self.told).map(|since| since + STALE_AFTER)
    }
}

/// A silence of the API server this long makes a view stale; to be no shorter than it takes to notice one, so that all who
/// lost it at the same moment say so as far apart as they heard it last.
pub const STALE_AFTER: Duration = Duration::from_secs(13);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirteen_seconds_of_silence_are_an_outage_and_one_answer_ends_it() {
        let mut outage = Outage::default();
        assert_eq!((outage.news(Time::ZERO), outage.next_deadline()), (None, None));
        outage.silent(Time::millis(5_000));
        assert_eq!(outage.news(Time::millis(17_999)), None);
        assert_eq!(outage.next_deadline(), Some(Time::millis(18_000)));
        assert_eq!(outage.news(Time::millis(18_000)), Some(false));
        assert_eq!((outage.news(Time::millis(99_000)), outage.next_deadline()), (None, None));
        outage.answered();
        assert_eq!(outage.news(Time::millis(99_001)), Some(true));
        assert_eq!(outage.news(Time::millis(99_002)), None);
    }

    #[test]
    fn a_short_silence_is_none() {
        let mut outage = Outage::default();
        outage.silent(Time::ZERO);
        outage.answered();
        assert_eq!((outage.news(Time::millis(60_000)), outage.next_deadline()), (None, None));
    }

    #[test]
    fn what_a_former_process_knew_is_stale_until_it_is_confirmed() {
        let mut outage = Outage::default();
        outage.doubt(true);
        assert_eq!(outage.news(Time::ZERO), Some(false));
        outage.answered();
        assert_eq!(outage.news(Time::ZERO), None, "an answer alone confirms nothing");
        outage.doubt(false);
        assert_eq!(outage.news(Time::ZERO), Some(true));
    }
}

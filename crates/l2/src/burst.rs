// SPDX-License-Identifier: Apache-2.0
//! When which address is announced on which interface: five rounds, 1.1 s apart.
//!
//! Repetition is for hosts that miss a frame or refuse it (Linux does not believe a gratuitous reply within a
//! second of the last change of an entry). Each pair of address and interface has a schedule of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ferrolb_net_types::{IfIndex, Time};

/// How often a gain is announced.
pub const ROUNDS: u8 = 5;

/// The time between two rounds.
pub const GAP: Duration = Duration::from_millis(1_100);

/// The bursts in progress.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    due: BTreeSet<(Time, Place)>,
    running: BTreeMap<Place, Burst>,
}

/// An address on an interface.
pub(crate) type Place = (IpAddr, IfIndex);

#[derive(Debug)]
struct Burst {
    next: Time,
    rounds_left: u8,
}

impl Bursts {
    /// Begins a burst, its first round at once. One in progress starts over.
    pub(crate) fn start(&mut self, now: Time, place: Place) {
        self.stop(place);
        self.running.insert(place, Burst { next: now, rounds_left: ROUNDS });
        self.due.insert((now, place));
    }

    /// Ends a burst, if there is one.
    pub(crate) fn stop(&mut self, place: Place) {
        if let Some(burst) = self.running.remove(&place) {
            self.due.remove(&(burst.next, place));
        }
    }

    /// Takes the earliest round that is due and plans the next one of its burst.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Place> {
        let &(at, place) = self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.pop_first();
        let burst = self.running.get_mut(&place)?;
        burst.rounds_left -= 1; // a burst is forgotten when its last round is taken
        if burst.rounds_left == 0 {
            self.running.remove(&place);
        } else {
            // A caller that comes late must not send the rounds it missed all at once.
            burst.next = if at + GAP > now { at + GAP } else { now + GAP };
            self.due.insert((burst.next, place));
        }
        Some(place)
    }

    /// When the next round is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PLACE: Place = (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IfIndex(2));

    /// Times in milliseconds at which rounds are taken by a caller that comes exactly when it is asked to.
    fn rounds(bursts: &mut Bursts) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some(at) = bursts.next_deadline() {
            while bursts.take_due(at).is_some() {
                times.push(u64::try_from(at.since_start().as_millis()).unwrap());
            }
        }
        times
    }

    #[test]
    fn a_burst_has_five_rounds_with_a_gap_between() {
        let mut bursts = Bursts::default();
        bursts.start(Time::millis(100), PLACE);
        assert_eq!(rounds(&mut bursts), [100, 1_200, 2_300, 3_400, 4_500]);
        assert_eq!(bursts.next_deadline(), None);
    }

    #[test]
    fn schedules_do_not_touch_each_other() {
        let mut bursts = Bursts::default();
        bursts.start(Time::millis(0), PLACE);
        bursts.start(Time::millis(500), (PLACE.0, IfIndex(3)));
        assert_eq!(rounds(&mut bursts), [0, 500, 1_100, 1_600, 2_200, 2_700, 3_300, 3_800, 4_400, 4_900]);
    }

    #[test]
    fn a_second_start_begins_anew_and_a_stop_ends_it() {
        let mut bursts = Bursts::default();
        bursts.start(Time::millis(0), PLACE);
        assert_eq!(bursts.take_due(Time::millis(0)), Some(PLACE));
        bursts.start(Time::millis(700), PLACE);
        assert_eq!(rounds(&mut bursts), [700, 1_800, 2_900, 4_000, 5_100]);
        bursts.start(Time::millis(9_000), PLACE);
        bursts.stop(PLACE);
        assert_eq!(rounds(&mut bursts), [0; 0]);
    }

    #[test]
    fn a_late_caller_sends_one_round_not_all_it_missed() {
        let mut bursts = Bursts::default();
        bursts.start(Time::millis(0), PLACE);
        let late = Time::millis(60_000);
        assert_eq!(bursts.take_due(late), Some(PLACE));
        assert_eq!(bursts.take_due(late), None);
        assert_eq!(bursts.next_deadline(), Some(late + GAP));
    }
}

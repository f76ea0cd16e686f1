// SPDX-License-Identifier: Apache-2.0
//! How far what was sent on one connection has come, and since when the peer has taken none of what waits for it.
//!
//! ```text
//!   sent ──► unwritten ──► taken by the operating system, unacknowledged ──► acknowledged by the peer's TCP
//! ```
//!
//! What the operating system has taken is not at the peer: it has room for megabytes, and finds more the longer a peer
//! does not read. So the time of RFC 9687 runs from the last byte that the peer's side acknowledged. Of a peer that does
//! not read that side stops acknowledging once its own room is full.

use std::time::Duration;

use ferrolb_net_types::Time;

#[derive(Debug)]
pub(super) struct Outbox {
    /// Bytes that were ever sent.
    sent: u64,
    /// Those of them that the operating system has not taken yet.
    unwritten: usize,
    /// Those that the peer had acknowledged when somebody looked.
    acknowledged: u64,
    /// Since when something waits of which nothing was acknowledged; `None`: nothing waits.
    stuck_since: Option<Time>,
    /// When somebody looked, or was to, for the last time.
    looked: Time,
}

/// How often within the send hold time somebody looks: it is exact to such a part of it.
const LOOKS: u32 = 8;

impl Outbox {
    pub(super) const fn new(now: Time) -> Self {
        Self { sent: 0, unwritten: 0, acknowledged: 0, stuck_since: None, looked: now }
    }

    /// Bytes that the operating system has not taken yet.
    pub(super) const fn unwritten(&self) -> usize {
        self.unwritten
    }

    pub(super) fn sent(&mut self, now: Time, bytes: usize) {
        self.sent += bytes as u64;
        self.unwritten += bytes;
        if self.stuck_since.is_none() {
            (self.stuck_since, self.looked) = (Some(now), now);
        }
    }

    /// The operating system has taken so many more.
    pub(super) fn written(&mut self, bytes: usize) {
        self.unwritten = self.unwritten.saturating_sub(bytes);
    }

    /// Of those that it has taken, so many are not acknowledged yet.
    pub(super) fn unacknowledged(&mut self, now: Time, bytes: usize) {
        let acknowledged = (self.sent - self.unwritten as u64).saturating_sub(bytes as u64);
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged;
            self.stuck_since = Some(now);
        }
        self.stuck_since.take_if(|_| acknowledged == self.sent);
        self.looked(now);
    }

    /// Whoever was to look did so.
    pub(super) const fn looked(&mut self, now: Time) {
        self.looked = now;
    }

    /// Whether the peer has taken nothing of what waits for so long.
    pub(super) fn is_stuck(&self, now: Time, send_hold: Duration) -> bool {
        self.stuck_since.is_some_and(|since| since + send_hold <= now)
    }

    /// When somebody is to look again; `None`: nothing waits.
    pub(super) fn deadline(&self, send_hold: Duration) -> Option<Time> {
        self.stuck_since.map(|since| (since + send_hold).min(self.looked + send_hold / LOOKS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(480);

    fn at(seconds: u64) -> Time {
        Time::millis(seconds * 1000)
    }

    #[test]
    fn what_the_operating_system_takes_is_not_at_the_peer() {
        let mut outbox = Outbox::new(at(0));
        assert_eq!(outbox.deadline(HOLD), None);
        outbox.sent(at(1), 100);
        outbox.written(100);
        assert_eq!((outbox.unwritten(), outbox.deadline(HOLD)), (0, Some(at(61))));
        outbox.unacknowledged(at(61), 100);
        assert_eq!(outbox.deadline(HOLD), Some(at(121)));
        // More of it is no progress.
        outbox.sent(at(100), 1000);
        outbox.written(500);
        outbox.unacknowledged(at(470), 600);
        assert_eq!((outbox.unwritten(), outbox.deadline(HOLD)), (500, Some(at(481))));
        assert!(!outbox.is_stuck(at(480), HOLD) && outbox.is_stuck(at(481), HOLD));
    }

    #[test]
    fn a_byte_that_is_acknowledged_is_a_new_beginning_and_the_last_one_the_end() {
        let mut outbox = Outbox::new(at(0));
        outbox.sent(at(0), 100);
        outbox.written(40);
        outbox.unacknowledged(at(479), 39);
        assert!(!outbox.is_stuck(at(958), HOLD) && outbox.is_stuck(at(959), HOLD));
        outbox.unacknowledged(at(900), 0);
        assert!(!outbox.is_stuck(at(1379), HOLD), "60 bytes are left");
        outbox.written(60);
        outbox.unacknowledged(at(1000), 0);
        assert_eq!((outbox.is_stuck(at(100_000), HOLD), outbox.deadline(HOLD)), (false, None));
        // Time begins with what waits.
        outbox.sent(at(2000), 1);
        assert_eq!(outbox.deadline(HOLD), Some(at(2060)));
        assert!(!outbox.is_stuck(at(2479), HOLD) && outbox.is_stuck(at(2480), HOLD));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What is to be decided, in which order, and who waits for what.

use std::collections::BTreeSet;

use ferrolb_ipam::Rank;
use ferrolb_net_types::{PoolName, ServiceKey, Time};

use crate::waiting::WaitingRoom;

/// Work to do, and work that may come.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Services about which something is new.
    pub(crate) changed: BTreeSet<ServiceKey>,
    /// Those whose held addresses are settled, to be decided in this order.
    pub(crate) ready: BTreeSet<Rank>,
    /// Services that would take an address if there were one.
    pub(crate) waiting: WaitingRoom,
    /// What is tried again, and when.
    retries: BTreeSet<(Time, Retry)>,
}

/// Something to try again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Retry {
    /// A Service.
    Service(ServiceKey),
    /// A pool's status.
    Pool(PoolName),
    /// Who announces a Service is to be written now.
    Announced(ServiceKey),
    /// A Service is to be given a new version.
    Fence(ServiceKey),
    /// What became of writes that nobody answered may be known now.
    Doubt,
}

impl Queue {
    /// Forgets everything that depends on the pools.
    pub(crate) fn start_over(&mut self) {
        self.changed.clear();
        self.ready.clear();
        self.waiting = WaitingRoom::default();
    }

    pub(crate) fn retry(&mut self, at: Time, what: Retry) {
        self.retries.insert((at, what));
    }

    /// What is due.
    pub(crate) fn due(&mut self, now: Time) -> Option<Retry> {
        if self.retries.first()?.0 > now {
            return None;
        }
        self.retries.pop_first().map(|(_, what)| what)
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.retries.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_come_when_they_are_due() {
        let mut queue = Queue::default();
        let (a, b) = (Retry::Pool("a".into()), Retry::Pool("b".into()));
        queue.retry(Time::millis(20), a.clone());
        queue.retry(Time::millis(10), b.clone());
        assert_eq!(queue.next_deadline(), Some(Time::millis(10)));
        assert_eq!(queue.due(Time::millis(9)), None);
        assert_eq!(queue.due(Time::millis(15)), Some(b));
        assert_eq!(queue.due(Time::millis(15)), None);
        assert_eq!(queue.due(Time::millis(20)), Some(a));
    }
}

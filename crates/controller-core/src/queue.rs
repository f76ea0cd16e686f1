// SPDX-License-Identifier: Apache-2.0
//! What is to be decided, in which order, and who waits for what.

use std::collections::BTreeSet;
use std::ops::Bound;

use ferrolb_ipam::Rank;
use ferrolb_net_types::{PoolName, ServiceKey, Time};

/// Work to do, and work that may come.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Services about which something is new.
    pub(crate) changed: BTreeSet<ServiceKey>,
    /// Those whose held addresses are settled, to be decided in this order.
    pub(crate) ready: BTreeSet<Rank>,
    /// Services that would take an address if there were one.
    waiting: BTreeSet<Rank>,
    /// The same for those that may share one, so that a taken address is of interest to them as well.
    waiting_to_share: BTreeSet<Rank>,
    /// Pools in which something became free, of which not everybody who waits has heard.
    freed: BTreeSet<PoolName>,
    /// The last of those who have.
    woken: Option<Rank>,
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
}

impl Queue {
    /// Forgets everything that depends on the pools.
    pub(crate) fn start_over(&mut self) {
        self.changed.clear();
        self.ready.clear();
        self.waiting.clear();
        self.waiting_to_share.clear();
        self.freed.clear();
        self.woken = None;
    }

    pub(crate) fn wait(&mut self, rank: Rank, may_share: bool) {
        if may_share { &mut self.waiting_to_share } else { &mut self.waiting }.insert(rank);
    }

    pub(crate) fn stop_waiting(&mut self, rank: &Rank) {
        self.waiting.remove(rank);
        self.waiting_to_share.remove(rank);
    }

    /// Something became free in these pools.
    pub(crate) fn free(&mut self, pools: BTreeSet<PoolName>) {
        if !pools.is_empty() {
            self.freed.extend(pools);
            self.woken = None;
        }
    }

    /// The next, by rank, of those who wait and have not heard; with the pools they have not heard of.
    ///
    /// `has_unused` says whether a pool has an address that nobody holds: otherwise only sharers are of interest.
    pub(crate) fn wake(&mut self, has_unused: impl Fn(&PoolName) -> bool) -> Option<(Rank, Vec<PoolName>)> {
        if self.freed.is_empty() {
            return None;
        }
        let after = |set: &BTreeSet<Rank>, rank: &Option<Rank>| {
            let start = rank.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            set.range((start, Bound::Unbounded)).next().cloned()
        };
        let mut next = after(&self.waiting_to_share, &self.woken);
        if self.freed.iter().any(has_unused) {
            next = [next, after(&self.waiting, &self.woken)].into_iter().flatten().min();
        }
        let Some(next) = next else {
            self.freed.clear();
            self.woken = None;
            return None;
        };
        self.woken = Some(next.clone());
        Some((next, self.freed.iter().cloned().collect()))
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

    fn rank(created: i64, name: &str) -> Rank {
        Rank::new(false, created, ServiceKey::new("n", name))
    }

    #[test]
    fn those_who_wait_are_woken_by_rank_and_once() {
        let mut queue = Queue::default();
        queue.wait(rank(2, "b"), false);
        queue.wait(rank(1, "c"), true);
        queue.wait(rank(3, "a"), false);
        assert_eq!(queue.wake(|_| true), None, "nothing became free");
        queue.free(BTreeSet::from(["p".into()]));
        let mut woken = Vec::new();
        while let Some((rank, pools)) = queue.wake(|_| true) {
            assert_eq!(pools, ["p".into()]);
            woken.push(rank.service().name.to_string());
        }
        assert_eq!(woken, ["c", "b", "a"]);
        queue.free(BTreeSet::from(["p".into()]));
        let mut woken = Vec::new();
        while let Some((rank, _)) = queue.wake(|_| false) {
            woken.push(rank.service().name.to_string());
        }
        assert_eq!(woken, ["c"], "a port of a shared address is of no use to the others");
    }

    #[test]
    fn what_becomes_free_meanwhile_starts_the_round_again() {
        let mut queue = Queue::default();
        queue.wait(rank(1, "a"), false);
        queue.wait(rank(2, "b"), false);
        queue.free(BTreeSet::from(["p".into()]));
        queue.wake(|_| true);
        queue.free(BTreeSet::from(["q".into()]));
        let (first, pools) = queue.wake(|_| true).unwrap();
        assert_eq!((first, pools), (rank(1, "a"), vec!["p".into(), "q".into()]));
    }

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

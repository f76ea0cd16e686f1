// SPDX-License-Identifier: Apache-2.0
//! What will happen, in the order of time, and of arrival where times are equal.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use ferrolb_net_types::Time;

pub(super) struct Agenda<T> {
    heap: BinaryHeap<Entry<T>>,
    count: u64,
}

struct Entry<T> {
    at: Time,
    number: u64,
    item: T,
}

impl<T> Agenda<T> {
    pub(super) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), count: 0 }
    }

    pub(super) fn add(&mut self, at: Time, item: T) {
        self.count += 1;
        self.heap.push(Entry { at, number: self.count, item });
    }

    /// When the next thing happens.
    pub(super) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub(super) fn take(&mut self) -> Option<T> {
        self.heap.pop().map(|entry| entry.item)
    }
}

impl<T> Ord for Entry<T> {
    /// The greatest is the next to happen.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_by_time_and_then_as_they_came() {
        let mut agenda = Agenda::new();
        for (at, item) in [(2, 'c'), (1, 'a'), (2, 'd'), (1, 'b')] {
            agenda.add(Time::millis(at), item);
        }
        assert_eq!(agenda.next(), Some(Time::millis(1)));
        let order: String = std::iter::from_fn(|| agenda.take()).collect();
        assert_eq!(order, "abcd");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! News that are on their way: one message per member, sent a number of times, those sent least first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::name::Name;

/// Bytes that a message costs in a compound besides its own.
const PART: usize = 2;

/// Fewest sent, then longest, then newest.
type Rank = (u32, Reverse<usize>, Reverse<u64>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Broadcasts {
    queue: BTreeMap<Rank, (Name, Vec<u8>)>,
    ranks: BTreeMap<Name, Rank>,
    count: u64,
}

impl Broadcasts {
    /// Queues news about a member, in place of what is queued about it.
    pub(crate) fn push(&mut self, about: &Name, message: Vec<u8>) {
        if let Some(rank) = self.ranks.remove(about) {
            self.queue.remove(&rank);
        }
        self.count += 1;
        self.insert(about.clone(), message, 0, self.count);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether news about this member are still being sent.
    pub(crate) fn holds(&self, about: &Name) -> bool {
        self.ranks.contains_key(about)
    }

    /// Takes what fits into `budget` bytes, the cost of each part in a compound included. What has then been taken
    /// `limit` times is forgotten.
    pub(crate) fn take(&mut self, limit: u32, mut budget: usize) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        for (rank, (_, message)) in &self.queue {
            if budget <= PART {
                break;
            }
            if message.len() + PART <= budget {
                budget -= message.len() + PART;
                taken.push(*rank);
            }
        }
        let mut messages = Vec::with_capacity(taken.len());
        for rank in taken {
            let Some((about, message)) = self.queue.remove(&rank) else { continue };
            self.ranks.remove(&about);
            messages.push(message.clone());
            let (sent, _, Reverse(number)) = rank;
            if sent + 1 < limit {
                self.insert(about, message, sent + 1, number);
            }
        }
        messages
    }

    fn insert(&mut self, about: Name, message: Vec<u8>, sent: u32, number: u64) {
        let rank = (sent, Reverse(message.len()), Reverse(number));
        self.ranks.insert(about.clone(), rank);
        self.queue.insert(rank, (about, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.into()
    }

    #[test]
    fn the_least_sent_go_first_then_the_longest_then_the_newest() {
        let mut news = Broadcasts::default();
        news.push(&name("a"), vec![1; 10]);
        news.push(&name("b"), vec![2; 20]);
        news.push(&name("c"), vec![3; 10]);
        let order = |taken: Vec<Vec<u8>>| taken.iter().map(|message| message[0]).collect::<Vec<_>>();
        // 22 + 12: what is left is too little for the third.
        assert_eq!(order(news.take(2, 35)), [2, 3]);
        assert_eq!(order(news.take(2, 100)), [1, 2, 3]);
        assert_eq!(order(news.take(2, 100)), [1]);
        assert!(news.is_empty());
    }

    #[test]
    fn news_replace_older_ones_about_the_same_member() {
        let mut news = Broadcasts::default();
        news.push(&name("a"), vec![1; 10]);
        assert_eq!(news.take(4, 100), [vec![1; 10]]);
        news.push(&name("a"), vec![2; 5]);
        assert_eq!(news.take(1, 100), [vec![2; 5]]);
        assert!(news.is_empty() && !news.holds(&name("a")));
    }

    #[test]
    fn what_never_fits_waits_without_hindering_others() {
        let mut news = Broadcasts::default();
        news.push(&name("a"), vec![1; 200]);
        news.push(&name("b"), vec![2; 20]);
        assert_eq!(news.take(1, 100), [vec![2; 20]]);
        assert!(news.holds(&name("a")));
        assert_eq!(news.take(1, 202), [vec![1; 200]]);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A set of numbers as its maximal ranges, so that the lowest number that is missing is found at once.

use std::collections::BTreeMap;

/// Numbers, kept as ranges that neither touch nor overlap: first number to last number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet(BTreeMap<u128, u128>);

impl RangeSet {
    /// The lowest number that is not in the set; `None` if it holds all of them.
    pub(crate) fn lowest_missing(&self) -> Option<u128> {
        match self.0.first_key_value() {
            Some((0, last)) => last.checked_add(1),
            _ => Some(0),
        }
    }

    /// Adds a number.
    pub(crate) fn insert(&mut self, n: u128) {
        let before = self.0.range(..=n).next_back().map(|(first, last)| (*first, *last));
        if before.is_some_and(|(_, last)| n <= last) {
            return;
        }
        let first = match before {
            Some((first, last)) if last + 1 == n => first,
            _ => n,
        };
        // A range that starts right after `n` is swallowed.
        let last = n.checked_add(1).and_then(|next| self.0.remove(&next)).unwrap_or(n);
        self.0.insert(first, last);
    }

    /// Removes a number.
    pub(crate) fn remove(&mut self, n: u128) {
        let Some((first, last)) = self.0.range(..=n).next_back().map(|(first, last)| (*first, *last)) else {
            return;
        };
        if n > last {
            return;
        }
        if first == n {
            self.0.remove(&first);
        } else {
            self.0.insert(first, n - 1);
        }
        if n < last {
            self.0.insert(n + 1, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_whole_number_line_is_no_special_case() {
        let mut set = RangeSet::default();
        set.insert(u128::MAX);
        set.insert(u128::MAX - 1);
        assert_eq!(set.lowest_missing(), Some(0));
        set.remove(u128::MAX);
        assert_eq!(set.0, BTreeMap::from([(u128::MAX - 1, u128::MAX - 1)]));
        assert_eq!(RangeSet(BTreeMap::from([(0, u128::MAX)])).lowest_missing(), None);
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_numbers(steps in prop::collection::vec((any::<bool>(), 0_u128..24), 0..200)) {
            let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
            for (add, n) in steps {
                if add {
                    set.insert(n);
                    model.insert(n);
                } else {
                    set.remove(n);
                    model.remove(&n);
                }
                prop_assert_eq!(set.lowest_missing(), (0..).find(|n| !model.contains(n)));
                let members: BTreeSet<u128> = set.0.iter().flat_map(|(first, last)| *first..=*last).collect();
                prop_assert_eq!(&members, &model);
                // Maximal: no two ranges touch.
                for ((_, last), (first, _)) in set.0.iter().zip(set.0.iter().skip(1)) {
                    prop_assert!(last + 1 < *first);
                }
            }
        }
    }
}

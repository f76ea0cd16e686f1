// SPDX-License-Identifier: Apache-2.0
//! Addresses that pools hold: disjoint prefixes, and what would overlap them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferrolb_net_types::Prefix;

use crate::settle::Held;

/// Disjoint prefixes, each with its owner's number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    by_first: BTreeMap<IpAddr, (Prefix, usize)>,
}

impl Blocks {
    /// Adds an owner's prefixes. They must not overlap what is there.
    pub(crate) fn insert(&mut self, owner: usize, blocks: &[Prefix]) {
        self.by_first.extend(blocks.iter().map(|block| (block.first(), (*block, owner))));
    }

    /// Takes prefixes away that were added.
    pub(crate) fn remove(&mut self, blocks: &[Prefix]) {
        for block in blocks {
            self.by_first.remove(&block.first());
        }
    }

    /// The first of the prefixes that overlaps one that is there, and that one with its owner.
    pub(crate) fn conflict(&self, blocks: &[Prefix]) -> Option<(Prefix, Prefix, usize)> {
        blocks.iter().find_map(|block| self.overlapping(block).map(|(other, owner)| (*block, other, owner)))
    }

    fn overlapping(&self, block: &Prefix) -> Option<(Prefix, usize)> {
        // Prefixes nest or are disjoint: either the one that starts before this one holds it, or one starts in it.
        let before = self.by_first.range(..=block.first()).next_back();
        let inside = self.by_first.range(block.first()..=block.last()).next();
        [before, inside]
            .into_iter()
            .flatten()
            .map(|(_, found)| *found)
            .find(|(other, _)| other.overlaps(block))
    }
}

impl Held<'_, [Prefix]> for Blocks {
    fn insert(&mut self, owner: usize, blocks: &[Prefix]) {
        self.insert(owner, blocks);
    }

    fn remove(&mut self, _: usize, blocks: &[Prefix]) {
        self.remove(blocks);
    }

    fn excludes(&self, blocks: &[Prefix]) -> bool {
        self.conflict(blocks).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::settle::{self, Granted};

    type Claim<'a> = settle::Claim<'a, [Prefix]>;

    fn settle(claims: &[Claim<'_>]) -> Vec<Granted> {
        settle::settle::<_, Blocks>(claims)
    }

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|t| t.parse().unwrap()).collect()
    }

    #[test]
    fn of_two_new_pools_the_earlier_one_wins() {
        let (a, b) = (prefixes(&["10.0.0.0/24"]), prefixes(&["10.0.0.128/25"]));
        let claims = [Claim { current: Some(&a), former: None }, Claim { current: Some(&b), former: None }];
        assert_eq!(settle(&claims), [Granted::Current, Granted::Nothing]);
    }

    #[test]
    fn an_edit_does_not_take_what_another_pool_holds() {
        let (old, new, other) =
            (prefixes(&["10.0.0.0/24"]), prefixes(&["10.0.1.0/24"]), prefixes(&["10.0.1.0/25"]));
        let claims = [
            Claim { current: Some(&new), former: Some(&old) },
            Claim { current: Some(&other), former: Some(&other) },
        ];
        assert_eq!(settle(&claims), [Granted::Former, Granted::Current]);
    }

    #[test]
    fn two_pools_may_swap_their_addresses() {
        let (x, y) = (prefixes(&["10.0.0.0/24"]), prefixes(&["10.0.1.0/24"]));
        let claims =
            [Claim { current: Some(&y), former: Some(&x) }, Claim { current: Some(&x), former: Some(&y) }];
        assert_eq!(settle(&claims), [Granted::Current, Granted::Current]);
    }

    #[test]
    fn a_pool_that_cannot_be_read_keeps_its_addresses_from_an_earlier_one() {
        let held = prefixes(&["10.0.0.0/24"]);
        let claims =
            [Claim { current: Some(&held), former: None }, Claim { current: None, former: Some(&held) }];
        assert_eq!(settle(&claims), [Granted::Nothing, Granted::Former]);
    }

    #[test]
    fn a_pool_that_falls_back_is_not_pushed_out_by_a_newcomer() {
        // The edit of the first is refused by the third, so it needs its own addresses, which the second wants.
        let (x, y) = (prefixes(&["10.0.0.0/24"]), prefixes(&["10.0.1.0/24"]));
        let claims = [
            Claim { current: Some(&x), former: None },
            Claim { current: Some(&y), former: Some(&x) },
            Claim { current: Some(&y), former: Some(&y) },
        ];
        assert_eq!(settle(&claims), [Granted::Nothing, Granted::Former, Granted::Current]);
    }

    #[test]
    fn a_pool_is_not_refused_for_one_that_is_refused_itself() {
        // The first wants everything, the second less than it had; the third keeps the first from it.
        let (old_a, new_a) = (prefixes(&["10.0.0.0/25"]), prefixes(&["10.0.0.0/22"]));
        let (old_b, new_b) = (prefixes(&["10.0.1.0/25"]), prefixes(&["10.0.1.0/26"]));
        let c = prefixes(&["10.0.2.0/24"]);
        let claims = [
            Claim { current: Some(&new_a), former: Some(&old_a) },
            Claim { current: Some(&new_b), former: Some(&old_b) },
            Claim { current: Some(&c), former: Some(&c) },
        ];
        assert_eq!(settle(&claims), [Granted::Former, Granted::Current, Granted::Current]);
        // Without the third, too: together both fall back, but alone the second need not.
        assert_eq!(settle(&claims[..2]), [Granted::Former, Granted::Current]);
    }

    #[test]
    fn an_overlap_is_found_whichever_of_the_two_is_larger() {
        let mut blocks = Blocks::default();
        blocks.insert(7, &prefixes(&["10.0.1.0/24", "10.0.3.0/24", "fd00::/64"]));
        let found = |text: &str| {
            blocks.conflict(&prefixes(&[text])).map(|(_, other, owner)| (other.to_string(), owner))
        };
        assert_eq!(found("10.0.1.5/32"), Some(("10.0.1.0/24".to_owned(), 7)));
        assert_eq!(found("10.0.0.0/16"), Some(("10.0.1.0/24".to_owned(), 7)));
        assert_eq!(found("10.0.2.0/24"), None);
        assert_eq!(found("fd00::1/128"), Some(("fd00::/64".to_owned(), 7)));
        assert_eq!(found("::a00:100/120"), None);
    }

    proptest! {
        #[test]
        fn what_is_granted_never_overlaps(
            // Each pool: where it was (if it was) and where it wants to be, in sixteen slots.
            wishes in prop::collection::vec((prop::option::of(0_u8..16), prop::option::of((0_u8..16, 24_u8..=28))), 0..8),
        ) {
            let block = |slot: u8, length: u8| vec![Prefix::new(IpAddr::from([10, 0, 0, slot * 16]), length).unwrap()];
            let mut taken = BTreeSet::new();
            let former: Vec<Option<Vec<Prefix>>> = wishes
                .iter()
                .map(|(was, _)| was.filter(|slot| taken.insert(*slot)).map(|slot| block(slot, 28)))
                .collect();
            let current: Vec<Option<Vec<Prefix>>> =
                wishes.iter().map(|(_, wants)| wants.map(|(slot, length)| block(slot, length))).collect();
            let claims: Vec<Claim<'_>> = former
                .iter()
                .zip(&current)
                .map(|(former, current)| Claim { current: current.as_deref(), former: former.as_deref() })
                .collect();
            let granted = settle(&claims);
            let mut held = Blocks::default();
            for (i, granted) in granted.iter().enumerate() {
                let blocks = match granted {
                    Granted::Current => claims[i].current.unwrap(),
                    Granted::Former => claims[i].former.unwrap(),
                    Granted::Nothing => {
                        prop_assert!(claims[i].former.is_none(), "what was good stays good");
                        continue;
                    }
                };
                prop_assert_eq!(held.conflict(blocks), None);
                held.insert(i, blocks);
            }
        }
    }
}

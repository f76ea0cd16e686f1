// SPDX-License-Identifier: Apache-2.0
//! Those who wait for an address, and whom of them a release can help.
//!
//! They stand in classes of equal wants, since where the first of a class is not served nobody behind it is either,
//! and each class stands at the spots where something would have to become free. So a release costs the logarithm of
//! those who wait, not their number.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use ferrolb_ipam::{Rank, Spot, Want};

/// A Service's place among those who wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    rank: Rank,
    want: Arc<Want>,
}

/// Everybody who would take an address if there were one.
#[derive(Debug, Default)]
pub(crate) struct WaitingRoom {
    classes: BTreeMap<Arc<Want>, BTreeSet<Rank>>,
    /// The first of each class, at each spot of its want.
    spots: BTreeMap<Spot, BTreeSet<Rank>>,
    /// Where something became free of which not everybody has heard; with the last who has.
    alerts: BTreeMap<Spot, Option<Rank>>,
}

impl WaitingRoom {
    /// Lets a Service wait.
    pub(crate) fn wait(&mut self, rank: Rank, want: Want) -> Ticket {
        // Equal wants are stored once.
        let want = match self.classes.get_key_value(&want) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(want),
        };
        let class = self.classes.entry(Arc::clone(&want)).or_default();
        let before = class.first().cloned();
        class.insert(rank.clone());
        self.represent(&want, before);
        Ticket { rank, want }
    }

    /// Lets a Service wait no longer.
    pub(crate) fn leave(&mut self, ticket: &Ticket) {
        let Some(class) = self.classes.get_mut(&ticket.want) else { return };
        let before = class.first().cloned();
        class.remove(&ticket.rank);
        self.represent(&ticket.want, before);
    }

    /// Something became free at these spots.
    pub(crate) fn alert(&mut self, freed: BTreeSet<Spot>) {
        for spot in freed {
            if self.spots.contains_key(&spot) {
                self.alerts.insert(spot, None);
            }
        }
    }

    /// The first by rank of those whom what became free might help and who have not heard of it. Spots without room
    /// are passed over: somebody was faster.
    pub(crate) fn first(&mut self, has_room: impl Fn(&Spot) -> bool) -> Option<Rank> {
        let mut first: Option<Rank> = None;
        self.alerts.retain(|spot, heard| {
            let start = heard.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.spots.get(spot).and_then(|firsts| firsts.range((start, Bound::Unbounded)).next());
            let Some(rank) = next.filter(|_| has_room(spot)) else { return false };
            if first.as_ref().is_none_or(|first| rank < first) {
                first = Some(rank.clone());
            }
            true
        });
        first
    }

    /// The one of [`WaitingRoom::first`] has its turn. Whether it is served or not, it need not hear again of what
    /// became free so far.
    pub(crate) fn heard(&mut self, rank: &Rank) {
        for heard in self.alerts.values_mut() {
            if heard.as_ref().is_none_or(|heard| heard < rank) {
                *heard = Some(rank.clone());
            }
        }
    }

    /// Puts the first of a class in the place of its former first.
    fn represent(&mut self, want: &Arc<Want>, before: Option<Rank>) {
        let now = self.classes.get(want).and_then(BTreeSet::first).cloned();
        if now != before {
            for spot in want.spots() {
                let firsts = self.spots.entry(spot.clone()).or_default();
                if let Some(before) = &before {
                    firsts.remove(before);
                }
                match &now {
                    Some(now) => {
                        firsts.insert(now.clone());
                    }
                    None if firsts.is_empty() => {
                        self.spots.remove(spot);
                    }
                    None => {}
                }
            }
        }
        if now.is_none() {
            self.classes.remove(want);
        }
    }
}

#[cfg(test)]
mod tests {
    use ferrolb_config::{Config, Pool};
    use ferrolb_ipam::{Allocator, Claim, IpFamilyPolicy, Keys};
    use ferrolb_net_types::{IpFamily, ServiceKey};

    use super::*;

    /// A pool of one address, and a Service that has it.
    fn full() -> Allocator {
        let pool = Pool {
            name: "p".into(),
            blocks: vec!["10.0.0.0/32".parse().unwrap()],
            auto_assign: true,
            avoid_buggy_ips: false,
            allocation: None,
            l2_advertisements: vec![],
        };
        let pools = [(pool.name.clone(), Arc::new(pool))].into();
        let mut allocator = Allocator::new(&Config { pools, ..Config::default() });
        allocator.converge(&claim("holder"));
        allocator.take_changes();
        allocator
    }

    fn claim(name: &str) -> Claim {
        Claim {
            service: ServiceKey::new("n", name),
            labels: [].into(),
            load_balancer: true,
            cluster_ips: vec!["10.96.0.1".to_owned()],
            cluster_ip: String::new(),
            policy: IpFamilyPolicy::SingleStack,
            preferred_family: IpFamily::V4,
            requested_ips: Ok(None),
            requested_pool: String::new(),
            keys: Keys::default(),
            ports: vec![],
            held: vec![],
        }
    }

    fn rank(created: i64, name: &str) -> Rank {
        Rank::new(false, created, ServiceKey::new("n", name))
    }

    fn want(allocator: &mut Allocator, claim: &Claim) -> Want {
        allocator.converge(claim).waits_for.unwrap()
    }

    #[test]
    fn the_first_by_rank_of_each_class_is_asked_and_nobody_behind_one_in_vain() {
        let mut allocator = full();
        let anywhere = want(&mut allocator, &claim("s"));
        let named = want(&mut allocator, &Claim { requested_pool: "p".to_owned(), ..claim("s") });
        let mut room = WaitingRoom::default();
        let tickets: Vec<Ticket> = [(5, "e"), (1, "c"), (3, "d")]
            .map(|(age, name)| room.wait(rank(age, name), anywhere.clone()))
            .into();
        room.wait(rank(2, "n"), named.clone());
        room.wait(rank(4, "m"), named);
        assert_eq!(room.first(|_| true), None, "nothing became free");

        allocator.release(&claim("holder").service);
        let freed = allocator.take_changes().freed;
        room.alert(freed.clone());
        let mut asked = Vec::new();
        while let Some(rank) = room.first(|spot| allocator.has_room(spot)) {
            room.heard(&rank);
            asked.push(rank.service().name.to_string());
        }
        assert_eq!(asked, ["c", "n"], "neither was served, so nobody behind them can be");

        // One who is served makes room for the next of its class.
        room.alert(freed.clone());
        let first = room.first(|_| true).unwrap();
        room.heard(&first);
        assert_eq!(first, rank(1, "c"));
        room.leave(&tickets[1]);
        let next: Vec<Rank> = std::iter::from_fn(|| {
            let rank = room.first(|_| true)?;
            room.heard(&rank);
            Some(rank)
        })
        .collect();
        assert_eq!(next, [rank(2, "n"), rank(3, "d")]);

        room.alert(freed);
        assert_eq!(room.first(|_| false), None, "somebody was faster");
    }

    #[test]
    fn a_room_that_everybody_left_is_empty() {
        let mut allocator = full();
        let anywhere = want(&mut allocator, &claim("s"));
        let sharing = Keys { sharing: "k".to_owned(), backend: String::new() };
        let sharing = want(&mut allocator, &Claim { keys: sharing, ..claim("s") });
        let mut room = WaitingRoom::default();
        let mut tickets: Vec<Ticket> = (0..6)
            .map(|n| room.wait(rank(n, "s"), if n % 2 == 0 { anywhere.clone() } else { sharing.clone() }))
            .collect();
        tickets.rotate_left(2);
        for ticket in &tickets {
            room.leave(ticket);
            room.leave(ticket);
        }
        assert!(room.classes.is_empty() && room.spots.is_empty());
    }
}

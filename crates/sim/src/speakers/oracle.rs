// SPDX-License-Identifier: Apache-2.0
//! Who should answer for an address: the rules of election once more, worked out from what the API holds and from who
//! lives, and from nothing that a speaker computes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferrolb_announce::{Ingress, Members, Service, Standing, digest};
use ferrolb_net_types::NodeName;

use super::cluster::Facts;

/// The orders in which nodes come into question for an address, the first that lives being the one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contest {
    /// By our rule: those that can serve most of the Services with this address, then those that can serve the oldest of
    /// them, then as that Service has them.
    ours: Vec<NodeName>,
    /// By MetalLB's, which asks for each Service alone, and not for those of which its speakers cannot read the status.
    theirs: Vec<Vec<NodeName>>,
}

impl Contest {
    /// Every address's.
    pub(super) fn all(facts: &Facts) -> BTreeMap<IpAddr, Self> {
        // From the oldest on, as they are named.
        let mut services: Vec<&Service> = facts.services.values().collect();
        services.sort_by_key(|service| service.created);
        let orders: Vec<[Vec<NodeName>; 2]> = services
            .iter()
            .map(|service| [true, false].map(|preferring| order(facts, service, preferring)))
            .collect();
        let addresses: BTreeSet<IpAddr> = services.iter().flat_map(|service| ips(service)).collect();
        let contest = |address: IpAddr| {
            let holders =
                services.iter().zip(&orders).filter(|(service, _)| ips(service).any(|ip| ip == address));
            let (mut best, mut theirs) =
                (BTreeMap::<&NodeName, (Reverse<usize>, usize, usize)>::new(), Vec::new());
            for (holder, (service, [ours, metallb])) in holders.enumerate() {
                for (place, node) in ours.iter().enumerate() {
                    best.entry(node).or_insert((Reverse(0), holder, place)).0.0 += 1;
                }
                if service.ingress.iter().all(|entry| matches!(entry, Ingress::Ip(_))) {
                    theirs.push(metallb.clone());
                }
            }
            let mut ours: Vec<_> = best.into_iter().map(|(node, rank)| (rank, node.clone())).collect();
            ours.sort_unstable();
            (address, Self { ours: ours.into_iter().map(|(_, node)| node).collect(), theirs })
        };
        addresses.into_iter().map(contest).collect()
    }

    /// Whether one of ours on this node may answer at all.
    pub(super) fn admits(&self, node: &NodeName) -> bool {
        self.ours.contains(node)
    }

    /// Who should answer, if these live: speakers of MetalLB wherever their rule leads to one, several only where it
    /// leads to several; else the first of ours that has the API; else the first of ours.
    pub(super) fn owners(&self, members: &Members) -> BTreeSet<NodeName> {
        let lives = |node: &&NodeName| members.standing(node).is_some();
        let is = |wanted: Standing| move |node: &&NodeName| members.standing(node) == Some(wanted);
        let leaders = self.theirs.iter().filter_map(|order| order.iter().find(lives));
        let theirs: BTreeSet<NodeName> =
            leaders.filter(|leader| is(Standing::Metallb)(leader)).cloned().collect();
        if !theirs.is_empty() {
            return theirs;
        }
        let fresh = self.ours.iter().find(is(Standing::Ours));
        fresh.or_else(|| self.ours.iter().find(is(Standing::Stale))).cloned().into_iter().collect()
    }
}

fn ips(service: &Service) -> impl Iterator<Item = IpAddr> {
    service.ingress.iter().filter_map(|entry| match entry {
        Ingress::Ip(ip) => Some(*ip),
        Ingress::Hostname(_) | Ingress::Invalid(_) => None,
    })
}

/// The nodes that can announce a Service: those that it is advertised from, that may announce, and, where clients are to
/// be served locally, that have an endpoint; those that are preferred first if that counts, then by the hash.
fn order(facts: &Facts, service: &Service, preferring: bool) -> Vec<NodeName> {
    let Some((first, (advertised, preferred))) = ips(service).next().zip(facts.advertised(service)) else {
        return Vec::new();
    };
    let may = |node: &&NodeName| {
        let state = facts.nodes.get(*node).copied().unwrap_or_default();
        let there = !service.local || service.endpoints.nodes.contains(*node);
        !state.excluded && !state.network_unavailable && there
    };
    let mut nodes: Vec<&NodeName> = advertised.iter().filter(may).collect();
    nodes.sort_by_cached_key(|node| (preferring && preferred != Some(*node), digest(node, first)));
    nodes.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contest(ours: &[&str], theirs: &[&[&str]]) -> Contest {
        let names = |nodes: &[&str]| nodes.iter().map(|node| NodeName::from(*node)).collect();
        Contest { ours: names(ours), theirs: theirs.iter().map(|order| names(order)).collect() }
    }

    #[test]
    fn metallbs_rule_comes_first_then_a_view_that_is_not_stale() {
        use Standing::{Metallb, Ours, Stale};
        let contest = contest(&["a", "b", "c"], &[&["b", "a", "c"], &["c", "b", "a"]]);
        for (members, expected) in [
            (&[("a", Ours), ("b", Ours), ("c", Ours)][..], &["a"][..]),
            (&[("a", Stale), ("b", Ours), ("c", Ours)], &["b"]),
            (&[("a", Stale), ("b", Stale)], &["a"]),
            (&[("a", Ours), ("b", Metallb), ("c", Ours)], &["b"]),
            (&[("a", Ours), ("b", Metallb), ("c", Metallb)], &["b", "c"]),
            // Neither order leads to it.
            (&[("a", Metallb), ("b", Ours), ("c", Ours)], &["b"]),
            (&[("d", Ours)], &[]),
        ] {
            let owners = contest.owners(&members.iter().copied().collect());
            let expected: BTreeSet<NodeName> = expected.iter().map(|node| NodeName::from(*node)).collect();
            assert_eq!(owners, expected, "{members:?}");
        }
    }
}

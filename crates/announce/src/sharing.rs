// SPDX-License-Identifier: Apache-2.0
//! One address, one order of nodes, however many Services hold it.
//!
//! v0.16.1 elects a leader per Service. Where Services share an address but not their candidates, it can so make
//! two owners of one address. Here the candidates of all holders become one list, and the disagreement a finding.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ferrolb_net_types::{Interfaces, NodeName, ServiceKey};

use crate::plan::Offer;

/// Who can answer for one address, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPlan {
    /// The Services that hold it and pass every check that does not depend on the node, oldest first.
    pub services: Vec<ServiceKey>,
    /// Where the own node answers, should it be the owner: the interfaces of all holders together. Names none
    /// if the own node is no candidate.
    pub interfaces: Interfaces,
    /// The nodes that can announce it, best first: those that serve most of the holders, then those that serve
    /// the oldest, then in that one's order of election.
    pub candidates: Arc<[NodeName]>,
    /// The orders of MetalLB's election, which knows no preferences, for those of the Services that its speakers
    /// announce: all candidates of the Service, the leader first. Equal orders stand here once.
    pub metallb: Vec<Arc<[NodeName]>>,
    /// Something about it that its users should know.
    pub finding: Option<Finding>,
}

/// What is wrong with an address, although it is announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The Services that share the address have different leaders of their own: they differ in advertisements,
    /// traffic policy or endpoints. One node answers; the Services it is no candidate for may be unreachable.
    SharersDisagree {
        /// The sharers that have candidates, oldest first, each with the node that would lead it alone.
        leaders: Vec<(ServiceKey, NodeName)>,
        /// The sharers that the first candidate of the address is no candidate for.
        unserved: Vec<ServiceKey>,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharersDisagree { leaders, unserved } => {
                f.write_str("the Services that share the address match different nodes (")?;
                for (index, (service, leader)) in leaders.iter().enumerate() {
                    write!(f, "{}{service}: {leader}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("); only one node answers")?;
                for (index, service) in unserved.iter().enumerate() {
                    write!(f, "{}{service}", if index == 0 { ", and it may not serve " } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}

/// The plan of an address with these holders, oldest first. `None` without holders.
pub(crate) fn join(holders: &[(&ServiceKey, &Offer)]) -> Option<AddressPlan> {
    let services = holders.iter().map(|(key, _)| (*key).clone()).collect();
    let interfaces = holders
        .iter()
        .filter(|(_, offer)| offer.here.is_ok())
        .fold(Interfaces::Named([].into()), |all, (_, offer)| all.union(&offer.interfaces));
    let metallb = distinct(holders.iter().filter_map(|(_, offer)| offer.metallb.as_ref()));
    let plan = |candidates, finding| Some(AddressPlan { services, interfaces, candidates, metallb, finding });
    // A holder without candidates (no endpoints, say) has no say.
    let voters: Vec<_> = holders.iter().filter(|(_, offer)| !offer.candidates.is_empty()).collect();
    match voters[..] {
        [] => plan(holders.first()?.1.candidates.clone(), None),
        [(_, only)] => plan(only.candidates.clone(), None),
        [(_, first), ref rest @ ..] if rest.iter().all(|(_, other)| other.candidates == first.candidates) => {
            plan(first.candidates.clone(), None)
        }
        ref voters => {
            let candidates = merge(voters.iter().map(|(_, offer)| &*offer.candidates));
            let leaders: Vec<_> = voters
                .iter()
                .filter_map(|(key, offer)| Some(((*key).clone(), offer.candidates.first()?.clone())))
                .collect();
            let disagree = leaders.iter().any(|(_, leader)| *leader != leaders[0].1);
            let unserved = voters
                .iter()
                .filter(|(_, offer)| !candidates.first().is_some_and(|node| offer.candidates.contains(node)))
                .map(|(key, _)| (*key).clone())
                .collect();
            plan(candidates, disagree.then_some(Finding::SharersDisagree { leaders, unserved }))
        }
    }
}

/// The orders that somebody leads, each once, as they come.
fn distinct<'a>(orders: impl Iterator<Item = &'a Arc<[NodeName]>>) -> Vec<Arc<[NodeName]>> {
    let mut all: Vec<Arc<[NodeName]>> = Vec::new();
    for order in orders.filter(|order| !order.is_empty()) {
        if !all.contains(order) {
            all.push(order.clone());
        }
    }
    all
}

/// One order out of several.
fn merge<'a>(orders: impl Iterator<Item = &'a [NodeName]>) -> Arc<[NodeName]> {
    struct Standing {
        served: usize,
        /// The oldest holder that the node serves, and the node's place in its order.
        place: (usize, usize),
    }
    let mut standings: BTreeMap<&NodeName, Standing> = BTreeMap::new();
    for (holder, order) in orders.enumerate() {
        for (place, node) in order.iter().enumerate() {
            standings.entry(node).or_insert(Standing { served: 0, place: (holder, place) }).served += 1;
        }
    }
    let mut merged: Vec<_> = standings.into_iter().collect();
    merged.sort_by_key(|(_, s)| (std::cmp::Reverse(s.served), s.place));
    merged.into_iter().map(|(node, _)| node.clone()).collect()
}

// SPDX-License-Identifier: Apache-2.0
//! The story of mixed clusters: speakers of ours and stand-ins for MetalLB's, in every mixture, on one segment.
//!
//! Twenty addresses are asked for every 20 ms from the first step to the last. An order of swaps that changes one node at a time
//! leads through all six mixtures; in each, the cluster changes as in the layer-2 story. Two nodes never answer for an address
//! when one of them is ours, and no address is dark that one of ours could serve, beyond the time that a change takes to
//! reach everybody. What MetalLB's speakers cause by themselves, when they start and leave, is measured apart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ferrolb_net_types::Mac;

use super::stage::Stage;
use super::story::{Report, Seen, Show, Story};
use super::watch::{Watch, longest};
use crate::bench_handle::{Bench, DEMO, SYSTEM};
use crate::host::Host;

mod changes;
mod ground;
mod rolling;
mod swap;
mod tally;

pub(super) use changes::network_unavailable;
pub(super) use ground::chapter as begin;
pub(super) use tally::{BOUND, Tally};

/// Whose speaker a node runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Ours,
    Metallb,
}

impl Kind {
    const fn image(self) -> &'static str {
        match self {
            Self::Ours => "ferrolb/speaker",
            Self::Metallb => "quay.io/metallb/speaker:v0.16.1",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ferrolb",
            Self::Metallb => "MetalLB",
        }
    }
}

/// What decides who announces what.
#[derive(Clone, Debug)]
pub(super) struct Situation {
    kinds: BTreeMap<Host, Kind>,
    /// Nodes with the label that excludes them.
    excluded: BTreeSet<Host>,
    /// Nodes that nobody counts on.
    pub(super) unavailable: BTreeSet<Host>,
    /// Nodes with a ready Pod of the application.
    endpoints: BTreeSet<Host>,
}

/// Which nodes an address can be announced from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    Anywhere,
    /// From nodes with a ready Pod.
    Local,
    /// From k8s-master-1 and k8s-node-2.
    Chosen,
    /// From nowhere.
    Nowhere,
}

/// An address whose two Services are advertised from two nodes: MetalLB's rule may give it two owners.
const ODD: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 249);

/// Every address with one owner, or none, by rule.
fn addresses() -> Vec<(Ipv4Addr, Reach)> {
    let reach = |last: u8| match last {
        242..=245 => Reach::Local,
        246 | 247 => Reach::Chosen,
        248 => Reach::Nowhere,
        _ => Reach::Anywhere,
    };
    (230..=248).map(|last| (Ipv4Addr::new(192, 168, 10, last), reach(last))).collect()
}

impl Situation {
    /// Everybody is well, and every speaker of this kind.
    pub(super) fn of(kind: Kind) -> Self {
        Self {
            kinds: Host::NODES.map(|node| (node, kind)).into(),
            excluded: BTreeSet::new(),
            unavailable: BTreeSet::new(),
            endpoints: [Host::Node1, Host::Node2].into(),
        }
    }

    /// The node that MetalLB v0.16.1's rule gives an address: whoever's speaker it runs, everybody agrees with it.
    fn owner(&self, address: Ipv4Addr, reach: Reach) -> Option<Host> {
        let candidates: Vec<Host> = Host::NODES
            .into_iter()
            .filter(|node| !self.excluded.contains(node) && !self.unavailable.contains(node))
            .filter(|node| match reach {
                Reach::Anywhere => true,
                Reach::Local => self.endpoints.contains(node),
                Reach::Chosen => *node != Host::Node1,
                Reach::Nowhere => false,
            })
            .collect();
        super::l2::leader(address, &candidates)
    }

    /// Who is to answer for each address.
    pub(super) fn expected(&self) -> BTreeMap<Ipv4Addr, BTreeSet<Mac>> {
        let owner = |(address, reach): (Ipv4Addr, Reach)| {
            (address, self.owner(address, reach).into_iter().map(Host::mac).collect())
        };
        addresses().into_iter().map(owner).collect()
    }

    /// In words: `ferrolb on k8s-node-1; MetalLB on k8s-master-1, k8s-node-2`.
    fn words(&self) -> String {
        let on = |kind: Kind| {
            let nodes = self.kinds.iter().filter(|(_, own)| **own == kind).map(|(host, _)| host.name());
            let nodes: Vec<_> = nodes.collect();
            (!nodes.is_empty()).then(|| format!("{} on {}", kind.name(), nodes.join(", ")))
        };
        [Kind::Ours, Kind::Metallb].into_iter().filter_map(on).collect::<Vec<_>>().join("; ")
    }
}

/// The order of swaps: each changes one node, and all of them together pass every mixture once.
const SWAPS: [Host; 8] = [
    Host::Node2,
    Host::Node1,
    Host::Node2,
    Host::Master1,
    Host::Node2,
    Host::Node1,
    Host::Node2,
    Host::Master1,
];

/// Plays the story from the first chapter to the last.
pub(super) async fn play(bench: &Bench, api: &str, show: Show) -> Report {
    let story = Story::new("mixed", api, show);
    let mut stage = Stage::new(bench, story);
    let mut situation = Situation::of(Kind::Metallb);
    if let Some(watch) = ground::chapter(&mut stage, &situation).await {
        // A cluster that is not as the story has it makes everything after it meaningless.
        if swaps(&mut stage, &watch, &mut situation).await {
            rolling::chapter(&mut stage, &watch, &mut situation).await;
        }
        stage
            .step("all the while", "the watch missed nothing", async |stage: &mut Stage<'_>| {
                whole(stage, watch)
            })
            .await;
    }
    stage.story.finish()
}

/// What the whole story looked like from the client.
fn whole(stage: &mut Stage<'_>, watch: Watch) -> Seen {
    let end = watch.now();
    let seen = watch.stop()?;
    let begun = std::time::Duration::ZERO;
    let (ordinary, odd): (Vec<_>, Vec<_>) =
        seen.contested(begun, end).into_iter().partition(|span| span.address != ODD);
    stage.story.measured(format!(
        "{} rounds in {} s, {} moves, {} gratuitous frames; any two owners {}, of the address in dispute {}",
        seen.rounds(begun, end),
        end.as_secs(),
        seen.moves(begun, end),
        seen.gratuitous(begun, end).len(),
        longest(&ordinary),
        longest(&odd)
    ));
    Ok("asked for every address from the first step to the last".to_owned())
}

async fn swaps(stage: &mut Stage<'_>, watch: &Watch, situation: &mut Situation) -> bool {
    for node in SWAPS {
        let kind = match situation.kinds.get(&node) {
            Some(Kind::Ours) => Kind::Metallb,
            _ => Kind::Ours,
        };
        let mut next = situation.clone();
        next.kinds.insert(node, kind);
        stage.story.chapter(&next.words());
        if !swap::step(stage, watch, situation, node, kind).await {
            return false;
        }
        *situation = next;
        let mixed = situation.kinds.values().any(|own| *own == Kind::Metallb)
            && situation.kinds.values().any(|own| *own == Kind::Ours);
        if mixed {
            changes::steps(stage, watch, situation).await;
        }
    }
    true
}

/// The manifest of this name in `docs/mixed`.
macro_rules! manifest {
    ($name:literal) => {
        $crate::scenario::stage::Example {
            file: concat!("docs/mixed/", $name),
            yaml: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mixed/", $name)),
        }
    };
}
use manifest;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_swaps_pass_every_mixture_and_end_where_they_began() {
        let mut ours = BTreeSet::new();
        let mut seen = BTreeSet::from([ours.clone()]);
        for node in SWAPS {
            if !ours.remove(&node) {
                ours.insert(node);
            }
            seen.insert(ours.clone());
        }
        assert_eq!((seen.len(), ours.len()), (8, 0));
    }

    #[test]
    fn every_node_leads_something_and_every_reach_is_there() {
        let expected = Situation::of(Kind::Ours).expected();
        for node in Host::NODES {
            assert!(expected.values().any(|owners| owners.contains(&node.mac())), "{node}");
        }
        assert_eq!(expected.values().filter(|owners| owners.is_empty()).count(), 1);
        assert_eq!(expected.len(), 19);
        assert!(!expected.contains_key(&ODD));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The story of mixed clusters: speakers of ours and stand-ins for MetalLB's, in every mixture, on one segment.
//!
//! A hundred addresses are asked for every 20 ms from the first step to the last, three of them with an IPv6 address beside. An order
//! of swaps that changes one node at a time leads through all six mixtures; in each, the cluster changes as in the layer-2 story; in two
//! of them speakers of both kinds are killed. Two nodes never answer for an address when one of them is ours, and no address is dark
//! that one of ours could serve, beyond the time that a change takes to reach everybody. What MetalLB's speakers cause by themselves,
//! when they start and leave, is measured apart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ferrolb_net_types::Mac;

use super::stage::Stage;
use super::story::{Report, Seen, Show, Story};
use super::watch::{Watch, longest};
use crate::bench_handle::{Bench, DEMO, SYSTEM};
use crate::host::Host;

mod changes;
mod flag;
mod ground;
mod killed;
mod rolling;
mod swap;
mod tally;

pub(super) use changes::network_unavailable;
pub(super) use ground::chapter as begin;
pub(super) use tally::{BOUND, Outcome, Tally};

/// memberlist's own bound for finding out that one of three is dead, on a LAN: 1.5 s to suspect it and at most 24 s to be sure.
/// Alone among few it takes 5 to 10 s.
pub(super) const DETECTION: Duration = Duration::from_secs(30);

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
    /// Nodes that the advertisement `chosen` names.
    chosen: BTreeSet<Host>,
    /// Whether `demo/plain-0` has the policy Local.
    local: bool,
    /// Whether `demo/plain-3` is there.
    present: bool,
    /// Whether the speakers do not look at the label that excludes.
    ignores_label: bool,
    /// Whether there are eighty addresses more.
    crowded: bool,
}

/// Which nodes an address can be announced from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    Anywhere,
    /// From nodes with a ready Pod.
    Local,
    /// From the nodes that an advertisement names: at first k8s-master-1 and k8s-node-2.
    Chosen,
    /// From nowhere.
    Nowhere,
}

/// An address whose two Services are advertised from two nodes: MetalLB's rule may give it two owners.
const ODD: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 249);

/// The address of `demo/plain-3`, which goes and comes.
const VICTIM: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 233);

/// The address of `demo/plain-0`, whose policy changes; k8s-master-1, which has no Pod, leads it.
const FLIPPED: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 230);

/// Services with an address of each family.
const DUAL: [(Ipv4Addr, Ipv6Addr); 3] = [dual(0x238), dual(0x239), dual(0x240)];

/// `fd00:10::238` beside 192.168.10.238.
const fn dual(last: u16) -> (Ipv4Addr, Ipv6Addr) {
    let digits = (last >> 8) * 100 + (last >> 4 & 0xf) * 10 + (last & 0xf);
    (Ipv4Addr::new(192, 168, 10, digits as u8), Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, last)) // at most 240
}

impl Situation {
    /// Everybody is well, and every speaker of this kind.
    pub(super) fn of(kind: Kind) -> Self {
        Self {
            kinds: Host::NODES.map(|node| (node, kind)).into(),
            excluded: BTreeSet::new(),
            unavailable: BTreeSet::new(),
            endpoints: [Host::Node1, Host::Node2].into(),
            chosen: [Host::Master1, Host::Node2].into(),
            local: false,
            present: true,
            ignores_label: false,
            crowded: false,
        }
    }

    /// Every IPv4 address with one owner, or none, by rule.
    fn addresses(&self) -> Vec<(Ipv4Addr, Reach)> {
        let reach = |address: Ipv4Addr| match address.octets()[3] {
            242..=245 => Reach::Local,
            246 | 247 => Reach::Chosen,
            248 => Reach::Nowhere,
            _ if address == VICTIM && !self.present => Reach::Nowhere,
            _ if address == FLIPPED && self.local => Reach::Local,
            _ => Reach::Anywhere,
        };
        let first = if self.crowded { 150 } else { 230 };
        let all = (first..=248).map(|last| Ipv4Addr::new(192, 168, 10, last));
        all.map(|address| (address, reach(address))).collect()
    }

    /// The node that MetalLB v0.16.1's rule gives an address: whoever's speaker it runs, everybody agrees with it.
    fn owner(&self, address: Ipv4Addr) -> Option<Host> {
        let (_, reach) = self.addresses().into_iter().find(|(own, _)| *own == address)?;
        let candidates: Vec<Host> = Host::NODES
            .into_iter()
            .filter(|node| self.ignores_label || !self.excluded.contains(node))
            .filter(|node| !self.unavailable.contains(node))
            .filter(|node| match reach {
                Reach::Anywhere => true,
                Reach::Local => self.endpoints.contains(node),
                Reach::Chosen => self.chosen.contains(node),
                Reach::Nowhere => false,
            })
            .collect();
        super::l2::leader(address, &candidates)
    }

    /// The same of an address of either family: of a Service with both, the first decides.
    fn owner_of(&self, address: IpAddr) -> Option<Host> {
        match address {
            IpAddr::V4(address) => self.owner(address),
            IpAddr::V6(address) => {
                DUAL.iter().find(|(_, six)| *six == address).and_then(|(four, _)| self.owner(*four))
            }
        }
    }

    /// Every address of either family with its owner.
    fn owners(&self) -> BTreeMap<IpAddr, Option<Host>> {
        let four = self.addresses().into_iter().map(|(address, _)| IpAddr::V4(address));
        let six = DUAL.iter().map(|(_, six)| IpAddr::V6(*six));
        four.chain(six).map(|address| (address, self.owner_of(address))).collect()
    }

    /// Who is to answer for each address.
    pub(super) fn expected(&self) -> BTreeMap<IpAddr, BTreeSet<Mac>> {
        let owner =
            |(address, owner): (IpAddr, Option<Host>)| (address, owner.into_iter().map(Host::mac).collect());
        self.owners().into_iter().map(owner).collect()
    }

    /// The same cluster while a node has no speaker.
    pub(super) fn without(&self, node: Host) -> Self {
        let mut away = self.clone();
        away.unavailable.insert(node);
        away
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
    let mut situation = Situation { crowded: true, ..Situation::of(Kind::Metallb) };
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
    let begun = Duration::ZERO;
    let (ordinary, odd): (Vec<_>, Vec<_>) =
        seen.contested(begun, end).into_iter().partition(|span| span.address != IpAddr::V4(ODD));
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
    for (number, node) in SWAPS.into_iter().enumerate() {
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
        if number == FLAG_AT {
            flag::step(stage, watch, situation).await;
        }
        for (at, victim) in KILLED {
            if number == at {
                killed::step(stage, watch, situation, victim).await;
            }
        }
    }
    true
}

/// After which swap the speakers get another argument: ours on two nodes, one of MetalLB's.
const FLAG_AT: usize = 3;

/// After which swaps whose speaker is killed: one of each kind among two of ours and one of MetalLB's, and the other way round.
const KILLED: [(usize, Host); 4] = [(1, Host::Node1), (1, Host::Master1), (2, Host::Node1), (2, Host::Node2)];

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
    fn both_kinds_are_killed_in_both_majorities() {
        let mut ours = BTreeSet::new();
        let mut killed = BTreeSet::new();
        for (number, node) in SWAPS.into_iter().enumerate() {
            if !ours.remove(&node) {
                ours.insert(node);
            }
            let victims = KILLED.iter().filter(|(at, _)| *at == number);
            killed.extend(victims.map(|(_, victim)| (ours.len(), ours.contains(victim))));
            assert!(number != FLAG_AT || ours.len() == 2);
        }
        assert_eq!(killed, [(1, true), (1, false), (2, true), (2, false)].into());
    }

    #[test]
    fn every_node_leads_something_and_every_reach_is_there() {
        let situation = Situation::of(Kind::Ours);
        let expected = situation.expected();
        for node in Host::NODES {
            assert!(expected.values().any(|owners| owners.contains(&node.mac())), "{node}");
            let leads_six = DUAL.iter().any(|(four, _)| situation.owner(*four) == Some(node));
            assert!(leads_six || node == Host::Master1, "{node} leads no Service of both families");
        }
        assert_eq!(expected.values().filter(|owners| owners.is_empty()).count(), 1);
        assert_eq!(expected.len(), 19 + DUAL.len());
        assert_eq!(Situation { crowded: true, ..situation }.expected().len(), 99 + DUAL.len());
        assert!(!expected.contains_key(&IpAddr::V4(ODD)));
        assert_eq!(DUAL[2], ([192, 168, 10, 240].into(), "fd00:10::240".parse().unwrap()));
    }
}

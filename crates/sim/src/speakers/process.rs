// SPDX-License-Identifier: Apache-2.0
//! A speaker that runs, of either kind, as the network sees it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_announce::Members;
use ferrolb_l2::wire::Bytes;
use ferrolb_net_types::{IfIndex, Time};
use ferrolb_speaker_core::wire::{Input, Output, Peer, Report, Wire};

use super::cluster::Facts;
use super::standin::StandIn;

pub(super) enum Process {
    Ours(Box<Wire>),
    Metallb(Box<StandIn>),
}

/// What a speaker wants done, or says.
pub(super) enum Out {
    Gossip(ferrolb_gossip::Output),
    Frame {
        address: IpAddr,
        frame: Bytes,
    },
    Report(Report),
    /// Whom MetalLB's speaker sees.
    Members(Members),
    Ended,
}

/// The one interface of every node.
pub(super) const INTERFACE: IfIndex = IfIndex(2);

impl Process {
    pub(super) fn gossip(&mut self, now: Time, input: ferrolb_gossip::Input<'_>) {
        match self {
            Self::Ours(wire) => wire.handle(now, Input::Gossip(input)),
            Self::Metallb(speaker) => speaker.gossip(now, input),
        }
    }

    pub(super) fn set_facts(&mut self, now: Time, facts: &Arc<Facts>) {
        match self {
            Self::Ours(wire) => wire.handle(now, Input::Plan(facts.plan.clone())),
            Self::Metallb(speaker) => speaker.set_facts(now, facts.clone()),
        }
    }

    /// Who else should be there. MetalLB's joins those that it misses.
    pub(super) fn set_peers(&mut self, now: Time, peers: &[Peer]) {
        match self {
            Self::Ours(wire) => wire.handle(now, Input::Peers(peers)),
            Self::Metallb(speaker) => speaker.join(now, peers.iter().map(|peer| peer.address)),
        }
    }

    pub(super) fn set_api(&mut self, now: Time, working: bool) {
        if let Self::Ours(wire) = self {
            wire.handle(now, Input::Api { working });
        }
    }

    pub(super) fn frame(&mut self, now: Time, bytes: &[u8]) {
        if let Self::Ours(wire) = self {
            wire.handle(now, Input::Frame { interface: INTERFACE, vlan: None, bytes });
        }
    }

    pub(super) fn stop(&mut self, now: Time) {
        match self {
            Self::Ours(wire) => wire.handle(now, Input::Stop),
            Self::Metallb(speaker) => speaker.leave(now),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Ours(wire) => wire.handle_timeout(now),
            Self::Metallb(speaker) => speaker.handle_timeout(now),
        }
    }

    pub(super) fn poll(&mut self, now: Time) -> Option<Out> {
        let wire = match self {
            Self::Ours(wire) => wire,
            Self::Metallb(speaker) => return speaker.poll(),
        };
        loop {
            return Some(match wire.poll(now)? {
                Output::Send { address, frame, .. } => Out::Frame { address, frame },
                Output::Gossip(output) => Out::Gossip(output),
                Output::Report(report) => Out::Report(report),
                Output::Stopped => Out::Ended,
                Output::Join { .. } | Output::Leave { .. } => continue,
            });
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        match self {
            Self::Ours(wire) => wire.next_deadline(),
            Self::Metallb(speaker) => speaker.next_deadline(),
        }
    }

    /// The addresses that it answers for, if they differ from these.
    pub(super) fn owned_unless(&self, known: &BTreeSet<IpAddr>) -> Option<BTreeSet<IpAddr>> {
        match self {
            Self::Ours(wire) => {
                let same = wire.owned().eq(known.iter().copied());
                (!same).then(|| wire.owned().collect())
            }
            Self::Metallb(speaker) => (speaker.owned() != known).then(|| speaker.owned().clone()),
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A stand-in for a speaker of MetalLB v0.16.1: memberlist as it uses it, its rule to the letter, its answering.
//!
//! It is a member from the first moment, sees only itself until it has joined, and believes what it sees.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferrolb_announce::{Ingress, Members, Standing, metallb};
use ferrolb_gossip::{Engine, Input, Output, Settings};
use ferrolb_l2::Interface;
use ferrolb_net_types::{Interfaces, NodeName, Time};

use super::cluster::Facts;
use super::process::Out;

pub(super) struct StandIn {
    node: NodeName,
    engine: Engine,
    responder: ferrolb_l2::Engine,
    facts: Arc<Facts>,
    owned: BTreeSet<IpAddr>,
    out: VecDeque<Out>,
}

impl StandIn {
    pub(super) fn start(
        now: Time,
        node: NodeName,
        settings: Settings,
        seed: [u8; 32],
        interface: &Interface,
        facts: Arc<Facts>,
    ) -> Self {
        let engine = Engine::new(now, settings, seed);
        let mut responder = ferrolb_l2::Engine::new();
        responder.handle(now, ferrolb_l2::Input::Interfaces(std::slice::from_ref(interface)));
        let mut speaker =
            Self { node, engine, responder, facts, owned: BTreeSet::new(), out: VecDeque::new() };
        speaker.drain(now);
        speaker
    }

    pub(super) fn gossip(&mut self, now: Time, input: Input<'_>) {
        self.engine.handle(now, input);
        self.drain(now);
    }

    pub(super) fn set_facts(&mut self, now: Time, facts: Arc<Facts>) {
        self.facts = facts;
        self.decide(now);
    }

    /// Joins those of the addresses that no member has.
    pub(super) fn join(&mut self, now: Time, addresses: impl Iterator<Item = SocketAddr>) {
        let known: BTreeSet<_> = self
            .engine
            .members()
            .filter(|member| member.is_usable())
            .filter_map(ferrolb_gossip::Member::socket)
            .collect();
        let absent: Vec<_> = addresses.filter(|address| !known.contains(address)).collect();
        self.gossip(now, Input::Join(&absent));
    }

    pub(super) fn leave(&mut self, now: Time) {
        self.gossip(now, Input::Leave { within: Duration::from_secs(1) });
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.engine.handle_timeout(now);
        self.responder.handle_timeout(now);
        self.drain(now);
    }

    pub(super) fn poll(&mut self) -> Option<Out> {
        if let Some(out) = self.out.pop_front() {
            return Some(out);
        }
        loop {
            if let ferrolb_l2::Output::Send { address, frame, .. } = self.responder.poll()? {
                return Some(Out::Frame { address, frame });
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        [self.engine.next_deadline(), self.responder.next_deadline()].into_iter().flatten().min()
    }

    pub(super) const fn owned(&self) -> &BTreeSet<IpAddr> {
        &self.owned
    }

    fn drain(&mut self, now: Time) {
        let mut news = false;
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Datagram { .. } | Output::Open { .. } | Output::Answer { .. } | Output::Close(_) => {
                    self.out.push_back(Out::Gossip(output));
                }
                Output::Member { .. } => news = true,
                Output::Left => self.out.push_back(Out::Ended),
                _ => {}
            }
        }
        if news {
            self.decide(now);
        }
    }

    fn decide(&mut self, now: Time) {
        let members: Members = self
            .engine
            .members()
            .filter(|member| member.is_usable())
            .filter_map(|member| Some((member.name.as_str()?, Standing::Metallb)))
            .collect();
        self.out.push_back(Out::Members(members.clone()));
        let inputs = self.facts.inputs(&self.node);
        let mut owned = BTreeSet::new();
        for service in self.facts.services.values() {
            if metallb::verdict(&inputs, service, &members).is_ok() {
                owned.extend(service.ingress.iter().filter_map(|entry| match entry {
                    Ingress::Ip(ip) => Some(*ip),
                    Ingress::Hostname(_) | Ingress::Invalid(_) => None,
                }));
            }
        }
        // It announces everything again whenever it looks.
        for address in &self.owned {
            self.responder.handle(now, ferrolb_l2::Input::Withdraw { address: *address });
        }
        for address in &owned {
            let interfaces = &Interfaces::All;
            self.responder.handle(now, ferrolb_l2::Input::Announce { address: *address, interfaces });
        }
        self.owned = owned;
    }
}

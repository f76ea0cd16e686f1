// SPDX-License-Identifier: Apache-2.0
//! Asking whether the others are there: directly, then through others and by a stream, one member at a time.

use std::net::SocketAddr;

use ferrolb_net_types::Time;

use super::exchange::Purpose;
use super::{Engine, Notice, Output, StreamId};
use crate::member::{ANSWERS_STREAMS, Member, SENDS_NACKS, address_bytes, socket};
use crate::name::Name;
use crate::settings::Role;
use crate::wire::{Accusation, Ack, IndirectPing, Message, Ping, Source, State, StreamMessage};

/// A probe that is under way.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) sequence: u32,
    target: Member,
    /// When others are asked; none: they have been.
    indirect_at: Option<Time>,
    /// When it has failed.
    deadline: Time,
    /// Helpers that will say so when they have no answer either, and those that did.
    nacks_wanted: u32,
    nacks: u32,
    stream: Option<StreamId>,
    /// It answered, but on a stream.
    stream_answered: bool,
}

impl Probe {
    pub(super) fn deadline(&self) -> Time {
        self.indirect_at.map_or(self.deadline, |at| at.min(self.deadline))
    }
}

/// A probe on somebody else's behalf, by the own number that it has.
#[derive(Debug)]
pub(super) struct Relay {
    requester: SocketAddr,
    sequence: u32,
    nack: bool,
    deadline: Time,
}

impl Relay {
    pub(super) const fn deadline(&self) -> Time {
        self.deadline
    }
}

impl Engine {
    /// Goes on with the probe that is under way, and starts the next when it is time.
    pub(super) fn advance_probe(&mut self, now: Time) {
        if self.probe_tick.as_mut().is_some_and(|tick| tick.fire(now)) {
            self.probe_due = true;
        }
        if let Some(probe) = &mut self.probe {
            if probe.deadline <= now {
                self.probe_over(now);
            } else if probe.indirect_at.is_some_and(|at| at <= now) {
                self.probe_indirectly(now);
            }
        }
        if self.probe.is_none() && std::mem::take(&mut self.probe_due) {
            self.probe_next(now);
        }
    }

    fn probe_next(&mut self, now: Time) {
        // Bounded as in memberlist, where the end of the list counts as one that was looked at.
        let mut examined = 0;
        while examined < self.members.len() {
            let Some(member) = self.members.at(self.probe_place) else {
                self.forget_the_dead(now);
                self.probe_place = 0;
                examined += 1;
                continue;
            };
            self.probe_place += 1;
            if member.name != self.settings.name && member.is_usable() {
                let target = member.clone();
                self.probe(now, target);
                return;
            }
            examined += 1;
        }
    }

    fn forget_the_dead(&mut self, now: Time) {
        let remembered = self.settings.profile.gossip_to_the_dead;
        let own = &self.settings.name;
        self.members.renew(&mut self.random, |member| {
            member.is_usable() || member.name == *own || now - member.changed <= remembered
        });
    }

    fn probe(&mut self, now: Time, target: Member) {
        let sequence = self.next_sequence();
        let profile = &self.settings.profile;
        let deadline = now + profile.probe_interval.saturating_mul(self.health + 1);
        let ping = Message::Ping(self.ping(sequence, &target.name));
        let Some(to) = target.socket() else { return };
        self.probe = Some(Probe {
            sequence,
            target: target.clone(),
            indirect_at: Some(now + profile.probe_timeout),
            deadline,
            nacks_wanted: 0,
            nacks: 0,
            stream: None,
            stream_answered: false,
        });
        if target.state == State::Suspect {
            // It learns at once what it has to refute.
            let word = Accusation {
                incarnation: target.incarnation,
                node: target.name.clone(),
                from: self.settings.name.clone(),
            };
            self.send_to(&target, &[ping, Message::Suspect(word)]);
        } else {
            self.send_with_news(to, &ping);
        }
    }

    fn ping(&self, sequence: u32, node: &Name) -> Ping {
        Ping { sequence, node: node.as_bytes().to_vec(), source: self.source() }
    }

    fn source(&self) -> Source {
        Source {
            address: address_bytes(self.settings.address.ip()),
            port: self.settings.address.port(),
            node: self.settings.name.as_bytes().to_vec(),
        }
    }

    fn probe_indirectly(&mut self, now: Time) {
        let Some(probe) = &mut self.probe else { return };
        probe.indirect_at = None;
        let (target, sequence, deadline) = (probe.target.clone(), probe.sequence, probe.deadline);
        let own = &self.settings.name;
        let helpers = self.members.pick(&mut self.random, self.settings.profile.indirect_checks, |member| {
            member.name != *own && member.name != target.name && member.state == State::Alive
        });
        let mut nacks_wanted = 0;
        for helper in helpers {
            let nack = helper.versions[1] >= SENDS_NACKS;
            nacks_wanted += u32::from(nack);
            let request = IndirectPing {
                sequence,
                target: target.address.clone(),
                port: target.port,
                node: target.name.as_bytes().to_vec(),
                nack,
                source: self.source(),
            };
            if let Some(to) = helper.socket() {
                self.send_with_news(to, &Message::IndirectPing(request));
            }
        }
        let mut stream = None;
        if self.settings.profile.tcp_pings && target.versions[1] >= ANSWERS_STREAMS {
            let ping = StreamMessage::Ping(self.ping(sequence, &target.name));
            stream = target.socket().map(|to| self.dial(now, to, ping, Purpose::Ping { sequence }, deadline));
        }
        if let Some(probe) = &mut self.probe {
            probe.nacks_wanted = nacks_wanted;
            probe.stream = stream;
        }
    }

    /// The time of the probe that is under way is over.
    fn probe_over(&mut self, now: Time) {
        let Some(probe) = self.end_probe() else { return };
        if probe.stream_answered {
            self.change_health(-1);
            self.blocked.insert(probe.target.name.clone());
            self.notice(now, Notice::DatagramsBlocked(probe.target.name));
            return;
        }
        let missing = i64::from(probe.nacks_wanted) - i64::from(probe.nacks);
        self.change_health(if probe.nacks_wanted > 0 { missing.max(0) } else { 1 });
        let from = self.settings.name.clone();
        let word = Accusation { incarnation: probe.target.incarnation, node: probe.target.name, from };
        self.word_suspect(now, &word);
    }

    pub(super) fn end_probe(&mut self) -> Option<Probe> {
        let probe = self.probe.take()?;
        if let Some(stream) = probe.stream {
            self.close(stream);
        }
        Some(probe)
    }

    pub(super) fn acked(&mut self, now: Time, sequence: u32) {
        if self.probe.as_ref().is_some_and(|probe| probe.sequence == sequence) {
            let probe = self.end_probe();
            self.acknowledged = Some(now);
            if let Some(name) = probe.map(|probe| probe.target.name).filter(|name| self.blocked.remove(name))
            {
                self.notices.remove(&Notice::DatagramsBlocked(name.clone()));
                self.outputs.push_back(Output::Notice(Notice::DatagramsPass(name)));
            }
            self.change_health(-1);
            // A tick that came meanwhile is not lost.
            self.advance_probe(now);
        } else if let Some(relay) = self.relays.remove(&sequence) {
            let ack = Ack { sequence: relay.sequence, payload: None };
            self.send_with_news(relay.requester, &Message::Ack(ack));
        }
    }

    pub(super) fn nacked(&mut self, sequence: u32) {
        if let Some(probe) = self.probe.as_mut().filter(|probe| probe.sequence == sequence) {
            probe.nacks = probe.nacks.saturating_add(1);
        }
    }

    pub(super) fn stream_acked(&mut self, sequence: u32) {
        if let Some(probe) = self.probe.as_mut().filter(|probe| probe.sequence == sequence) {
            probe.stream_answered = true;
        }
    }

    /// Nothing can be sent there: no use in waiting for an answer from there.
    pub(super) fn unreachable(&mut self, now: Time, address: SocketAddr) {
        if let Some(probe) = &mut self.probe
            && probe.indirect_at.is_some()
            && probe.target.socket() == Some(address)
        {
            self.probe_indirectly(now);
        }
    }

    pub(super) fn answer_ping(&mut self, source: SocketAddr, ping: &Ping) {
        if self.is_meant(&ping.node) {
            let to = answer_to(&ping.source, source);
            self.send_with_news(to, &Message::Ack(Ack { sequence: ping.sequence, payload: None }));
        }
    }

    /// Whether a probe for this name is to be answered: it is the own one, or none at all. A reader answers none:
    /// whoever still holds its former process for alive is to find out that nothing is done there.
    pub(super) fn is_meant(&self, node: &[u8]) -> bool {
        self.role == Role::Member && (node.is_empty() || node == self.settings.name.as_bytes())
    }

    /// Probes somebody for somebody.
    pub(super) fn relay(&mut self, now: Time, source: SocketAddr, request: &IndirectPing) {
        let port = if request.port == 0 { self.settings.address.port() } else { request.port };
        let Some(to) = socket(&request.target, port) else { return };
        if self.relays.len() >= MAX_RELAYS {
            return;
        }
        let sequence = self.next_sequence();
        let relay = Relay {
            requester: answer_to(&request.source, source),
            sequence: request.sequence,
            nack: request.nack,
            deadline: now + self.settings.profile.probe_timeout,
        };
        self.relays.insert(sequence, relay);
        let ping = Ping { sequence, node: request.node.clone(), source: self.source() };
        self.send_with_news(to, &Message::Ping(ping));
    }

    pub(super) fn expire_relays(&mut self, now: Time) {
        let over: Vec<u32> = self
            .relays
            .iter()
            .filter(|(_, relay)| relay.deadline <= now)
            .map(|(sequence, _)| *sequence)
            .collect();
        for sequence in over {
            if let Some(relay) = self.relays.remove(&sequence).filter(|relay| relay.nack) {
                self.send_with_news(relay.requester, &Message::Nack { sequence: relay.sequence });
            }
        }
    }

    /// Asks somebody a question whose answer matters only by coming at all.
    pub(super) fn ask(&mut self, to: SocketAddr, node: &Name) {
        let sequence = self.next_sequence();
        let ping = self.ping(sequence, node);
        self.send_with_news(to, &Message::Ping(ping));
    }
}

/// Probes on behalf of others at the same time, at most.
const MAX_RELAYS: usize = 4096;

/// Where an answer goes: where the question says, else where it came from.
fn answer_to(source: &Source, packet: SocketAddr) -> SocketAddr {
    socket(&source.address, source.port).unwrap_or(packet)
}

// SPDX-License-Identifier: Apache-2.0
//! Datagrams: what comes in one, and what goes along when one is sent.

use std::net::SocketAddr;

use ferrolb_net_types::Time;

use super::{Engine, Notice, Output};
use crate::member::Member;
use crate::name::Name;
use crate::timing::retransmit_limit;
use crate::wire::packet::compound;
use crate::wire::{Message, PacketError, State};

/// Bytes of a compound's head, as they are budgeted.
const COMPOUND: usize = 2;

impl Engine {
    pub(super) fn datagram(&mut self, now: Time, source: SocketAddr, bytes: &[u8]) {
        self.counters.received += 1;
        let packet = match self.settings.codec.read_packet(bytes) {
            Ok(packet) => packet,
            Err(error) => {
                match error {
                    PacketError::Open(_) => {
                        self.counters.undecryptable += 1;
                        self.notice(now, Notice::Undecryptable(source.ip()));
                    }
                    PacketError::Label(_) => {
                        self.counters.refused += 1;
                        self.notice(now, Notice::Label(source.ip()));
                    }
                    PacketError::Empty | PacketError::Checksum => self.counters.refused += 1,
                }
                return;
            }
        };
        self.counters.unreadable += packet.lost as u64;
        if packet.messages.iter().any(says_something) {
            self.heard(now, source);
        }
        self.reunion.refuted = false;
        for message in packet.messages {
            match message {
                Message::Ping(ping) => self.answer_ping(source, &ping),
                Message::IndirectPing(request) => self.relay(now, source, &request),
                Message::Ack(ack) => self.acked(now, ack.sequence),
                Message::Nack { sequence } => self.nacked(sequence),
                Message::Suspect(word) => self.word_suspect(now, &word),
                Message::Alive(word) => self.word_alive(now, word),
                Message::Dead(word) => self.word_dead(now, &word),
                Message::User(payload) => self.outputs.push_back(Output::Told { source, payload }),
            }
        }
        self.refute_to(source);
    }

    /// Sends news to a few, when it is time.
    pub(super) fn gossip(&mut self, now: Time) {
        if !self.gossip_tick.as_mut().is_some_and(|tick| tick.fire(now)) || self.news.is_empty() {
            return;
        }
        let remembered = self.settings.profile.gossip_to_the_dead;
        let own = &self.settings.name;
        let receivers = self.members.pick(&mut self.random, self.settings.profile.gossip_nodes, |member| {
            member.name != *own
                && match member.state {
                    State::Alive | State::Suspect => true,
                    State::Dead => now - member.changed <= remembered,
                    State::Left => false,
                }
        });
        let budget =
            self.settings.profile.packet_size.saturating_sub(COMPOUND + self.settings.codec.overhead());
        for member in receivers {
            let Some(to) = member.socket() else { continue };
            let news = self.take_news(budget);
            if news.is_empty() {
                break;
            }
            self.send(to, &news, member.reads_checksums());
        }
    }

    pub(super) fn tell(&mut self, member: &Name, payload: &[u8]) {
        let Some((member, to)) = self.members.get(member).and_then(|member| Some((member, member.socket()?)))
        else {
            return;
        };
        let checksum = member.reads_checksums();
        self.send(to, &[Message::User(payload.to_vec()).encode()], checksum);
    }

    /// Sends a message, and with it whatever news fit.
    pub(super) fn send_with_news(&mut self, to: SocketAddr, message: &Message) {
        let message = message.encode();
        let around = message.len() + COMPOUND + self.settings.codec.overhead();
        let news = self.take_news(self.settings.profile.packet_size.saturating_sub(around));
        let mut messages = vec![message];
        messages.extend(news);
        self.send(to, &messages, false);
    }

    /// Sends messages to a member, without news.
    pub(super) fn send_to(&mut self, member: &Member, messages: &[Message]) {
        if let Some(to) = member.socket() {
            let encoded: Vec<Vec<u8>> = messages.iter().map(Message::encode).collect();
            self.send(to, &encoded, member.reads_checksums());
        }
    }

    pub(super) fn send(&mut self, to: SocketAddr, messages: &[Vec<u8>], checksum: bool) {
        for message in compound(messages) {
            let nonce = self.random.nonce();
            let bytes = self.settings.codec.packet(message, checksum, &nonce);
            self.counters.sent += 1;
            self.outputs.push_back(Output::Datagram { to, bytes });
        }
    }

    fn take_news(&mut self, budget: usize) -> Vec<Vec<u8>> {
        let limit = retransmit_limit(self.settings.profile.retransmit_mult, self.members.len());
        let news = self.news.take(limit, budget);
        if self.leaving.is_some() && !self.news.holds(&self.settings.name) {
            self.left();
        }
        news
    }
}

/// Whether somebody must have meant it. To who has no key, one in some hundred encrypted datagrams looks like a request
/// for nothing at all, and one in some thousand like one for what is no address, or nobody.
fn says_something(message: &Message) -> bool {
    match message {
        Message::IndirectPing(request) => matches!(request.target.len(), 4 | 16) && !request.node.is_empty(),
        _ => true,
    }
}

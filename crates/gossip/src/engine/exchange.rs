// SPDX-License-Identifier: Apache-2.0
//! Streams: exchanging everything, and answering who wants that, or is not answered by datagrams.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferrolb_net_types::Time;

use super::{Engine, ExchangeError, Notice, Output, StreamFailure, StreamId};
use crate::name::Name;
use crate::settings::Role;
use crate::timing::push_pull_interval;
use crate::wire::{Accusation, Ack, Alive, NodeState, PushPull, State, StreamError, StreamMessage};

/// Streams that others may hold open at the same time.
const MAX_ACCEPTED: usize = 128;
/// Exchanges that are under way at the same time; more wait.
const MAX_DIALLED: usize = 128;
/// How long a stream may take to be opened while others wait for their turn.
const PATIENCE: Duration = Duration::from_secs(1);

/// By how much the time for opening a stream is shortened where exchanges are tried again soon: to less than the second
/// after which an operating system tries again.
const HASTE: u32 = 12;

/// A stream that is open, or being opened.
#[derive(Debug)]
pub(super) struct Stream {
    peer: SocketAddr,
    purpose: Purpose,
    /// It is open.
    open: bool,
    begun: Time,
    deadline: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Somebody opened it; what for is still to be said.
    Serve,
    /// The answer is being written.
    Answered,
    /// A probe.
    Ping { sequence: u32 },
    /// An exchange.
    Exchange,
}

impl Stream {
    /// When it is over; sooner if it is still being opened while others wait.
    fn over_at(&self, crowded: bool) -> Time {
        let hopeless = crowded && self.purpose == Purpose::Exchange && !self.open;
        if hopeless { self.deadline.min(self.begun + PATIENCE) } else { self.deadline }
    }
}

impl Engine {
    /// Exchanges everything with this address, unless that is under way.
    pub(super) fn exchange(&mut self, now: Time, with: SocketAddr) {
        let under_way = |stream: &Stream| stream.purpose == Purpose::Exchange && stream.peer == with;
        if self.has_left || self.waiting.contains(&with) || self.streams.values().any(under_way) {
            return;
        }
        self.waiting.push_back(with);
        self.dial_waiting(now, true);
    }

    fn dial_waiting(&mut self, now: Time, join: bool) {
        let under_way = self.streams.keys().filter(|stream| matches!(stream, StreamId::Dialled(_))).count();
        for _ in under_way..MAX_DIALLED {
            let Some(to) = self.waiting.pop_front() else { return };
            self.dial_exchange(now, to, join);
        }
    }

    fn dial_exchange(&mut self, now: Time, to: SocketAddr, join: bool) {
        let message = StreamMessage::PushPull(self.known(join && self.role == Role::Member));
        let patience = self.settings.profile.tcp_timeout;
        // What was sent for it may be lost, and the operating system repeats it at ever longer intervals, with a list that
        // grows old; who comes back to its missing again and again gains nothing by waiting for that.
        let patience = if self.settings.knock.is_zero() { patience } else { patience / HASTE };
        self.dial(now, to, message, Purpose::Exchange, now + patience);
    }

    /// Exchanges everything with one that was just heard, before and beside all that wait for hosts that may be silent.
    pub(super) fn exchange_at_once(&mut self, now: Time, with: SocketAddr) {
        self.waiting.retain(|waiting| *waiting != with);
        // One that is still being opened is given up: what was sent for it was lost, and the operating system repeats
        // that only after a second and more.
        let same = |stream: &Stream| stream.purpose == Purpose::Exchange && stream.peer == with;
        let found =
            self.streams.iter().find(|(_, stream)| same(stream)).map(|(id, stream)| (*id, stream.open));
        match found {
            Some((_, true)) => return,
            Some((id, false)) => self.close(id),
            None => {}
        }
        self.dial_exchange(now, with, true);
    }

    /// All that is known, which of a reader is nothing: it is not there to be learnt from.
    fn known(&self, join: bool) -> PushPull {
        let states = match self.role {
            Role::Reader => Vec::new(),
            Role::Member => self.members.iter().map(crate::member::Member::told).collect(),
        };
        PushPull { join, states, user_state: Vec::new() }
    }

    pub(super) fn dial(
        &mut self,
        now: Time,
        to: SocketAddr,
        message: StreamMessage,
        purpose: Purpose,
        deadline: Time,
    ) -> StreamId {
        debug_assert!(deadline >= now);
        self.dialled += 1;
        let stream = StreamId::Dialled(self.dialled);
        self.streams.insert(stream, Stream { peer: to, purpose, open: false, begun: now, deadline });
        self.outputs.push_back(Output::Open { stream, to, message });
        stream
    }

    pub(super) fn close(&mut self, stream: StreamId) {
        if self.streams.remove(&stream).is_some() {
            self.outputs.push_back(Output::Close(stream));
        }
    }

    /// Exchanges everything with somebody, when it is time.
    pub(super) fn push_pull(&mut self, now: Time) {
        if self.push_pull_at.is_none_or(|at| now < at) {
            return;
        }
        let interval = push_pull_interval(self.settings.profile.push_pull_interval, self.members.len());
        self.push_pull_at = Some(now + interval);
        let own = &self.settings.name;
        let partner = self
            .members
            .pick(&mut self.random, 1, |member| member.name != *own && member.state == State::Alive);
        if let Some(to) = partner.first().and_then(|member| member.socket())
            && !self.has_left
            && !self.waiting.contains(&to)
        {
            self.waiting.push_back(to);
            self.dial_waiting(now, false);
        }
    }

    pub(super) fn accepted(&mut self, now: Time, stream: StreamId, peer: SocketAddr) {
        if let Some(oldest) = self.too_many_held() {
            self.close(oldest);
        }
        let deadline = now + self.settings.profile.tcp_timeout;
        let accepted = Stream { peer, purpose: Purpose::Serve, open: true, begun: now, deadline };
        self.streams.insert(stream, accepted);
    }

    /// If no more streams can be held, the oldest of the host that holds the most: whoever says what it wants is done
    /// within moments, and is not kept out by one that does not.
    fn too_many_held(&self) -> Option<StreamId> {
        let mut held: BTreeMap<IpAddr, (usize, StreamId)> = BTreeMap::new();
        // In the order in which they were opened.
        for (id, stream) in self.streams.range(StreamId::Accepted(0)..) {
            held.entry(stream.peer.ip()).or_insert((0, *id)).0 += 1;
        }
        let all: usize = held.values().map(|(count, _)| count).sum();
        let most = held.into_values().max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest)))?;
        (all >= MAX_ACCEPTED).then_some(most.1)
    }

    pub(super) fn connected(&mut self, now: Time, stream: StreamId) {
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        stream.open = true;
        // The time for opening it is over, that for the exchange begins; a probe has but one.
        if stream.purpose == Purpose::Exchange {
            stream.deadline = now + self.settings.profile.tcp_timeout;
        }
    }

    pub(super) fn stream_said(&mut self, now: Time, id: StreamId, message: StreamMessage) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (peer, purpose) = (stream.peer, stream.purpose);
        match purpose {
            Purpose::Serve => self.serve(now, id, peer, message),
            Purpose::Answered => {}
            Purpose::Ping { sequence } => {
                self.close(id);
                if matches!(message, StreamMessage::Ack(ack) if ack.sequence == sequence) {
                    self.stream_acked(sequence);
                }
            }
            Purpose::Exchange => {
                self.close(id);
                let result = match message {
                    StreamMessage::PushPull(exchange) => self.merge(now, peer, exchange.states),
                    StreamMessage::Error(text) => Err(ExchangeError::Refused(text)),
                    _ => Err(ExchangeError::Unexpected),
                };
                self.exchanged(now, peer, result);
            }
        }
    }

    fn serve(&mut self, now: Time, id: StreamId, peer: SocketAddr, message: StreamMessage) {
        match message {
            StreamMessage::PushPull(exchange) => {
                // What was known before the exchange is what the other side is told.
                let known = self.known(exchange.join);
                self.answer(now, id, StreamMessage::PushPull(known));
                // A failure is noticed; there is nobody to tell any more.
                let _failure = self.merge(now, peer, exchange.states);
            }
            StreamMessage::Ping(ping) if self.is_meant(&ping.node) => {
                self.answer(now, id, StreamMessage::Ack(Ack { sequence: ping.sequence, payload: None }));
            }
            StreamMessage::User(payload) => {
                self.close(id);
                self.outputs.push_back(Output::Told { source: peer, payload });
            }
            StreamMessage::Ping(_) | StreamMessage::Ack(_) | StreamMessage::Error(_) => self.close(id),
        }
    }

    fn answer(&mut self, now: Time, id: StreamId, message: StreamMessage) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.purpose = Purpose::Answered;
            stream.deadline = now + self.settings.profile.tcp_timeout;
            self.outputs.push_back(Output::Answer { stream: id, message });
        }
    }

    pub(super) fn stream_failed(&mut self, now: Time, id: StreamId, failure: StreamFailure) {
        let Some(stream) = self.streams.get(&id) else { return };
        let peer = stream.peer;
        match failure {
            StreamFailure::Unreadable(StreamError::Open(_) | StreamError::Plain | StreamError::Encrypted) => {
                self.notice(now, Notice::Undecryptable(peer.ip()));
            }
            StreamFailure::Unreadable(StreamError::Label(_)) => self.notice(now, Notice::Label(peer.ip())),
            StreamFailure::Unreadable(_) | StreamFailure::Connection(_) | StreamFailure::Refused => {}
        }
        match (self.streams.get(&id).map(|stream| stream.purpose), failure) {
            (Some(Purpose::Serve), StreamFailure::Unreadable(error)) if error.is_answered() => {
                self.answer(now, id, StreamMessage::Error(error.to_string()));
            }
            (Some(Purpose::Exchange), failure) => {
                self.close(id);
                self.exchanged(now, peer, Err(failure.into()));
            }
            // A member that cannot be reached by a stream either has not answered.
            _ => self.close(id),
        }
    }

    /// When a stream is over for lack of an answer: some wait for many hosts that may be silent only until others want
    /// to be heard.
    pub(super) fn streams_deadline(&self) -> Option<Time> {
        let crowded = !self.waiting.is_empty();
        self.streams.values().map(|stream| stream.over_at(crowded)).min()
    }

    pub(super) fn expire_streams(&mut self, now: Time) {
        let crowded = !self.waiting.is_empty();
        let over: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.over_at(crowded) <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            let Some(stream) = self.streams.get(&id) else { continue };
            let (peer, purpose) = (stream.peer, stream.purpose);
            self.close(id);
            if purpose == Purpose::Exchange {
                self.exchanged(now, peer, Err(ExchangeError::Timeout));
            }
        }
    }

    fn exchanged(&mut self, now: Time, with: SocketAddr, result: Result<usize, ExchangeError>) {
        if result.is_ok() {
            self.reunion.met(with);
        }
        self.outputs.push_back(Output::Exchanged { with, result });
        self.dial_waiting(now, true);
    }

    /// Takes what another one knows; how many members that are.
    fn merge(&mut self, now: Time, peer: SocketAddr, states: Vec<NodeState>) -> Result<usize, ExchangeError> {
        if let Some(name) = self.misfit(&states) {
            self.notice(now, Notice::Versions(name.clone()));
            return Err(ExchangeError::Versions(name));
        }
        let count = states.len();
        self.reunion.refuted = false;
        for NodeState { name, address, port, meta, incarnation, state, versions } in states {
            if self.role == Role::Reader && name == self.settings.name {
                self.held_alive |= matches!(state, State::Alive | State::Suspect);
            }
            match state {
                State::Alive => {
                    self.word_alive(now, Alive { incarnation, node: name, address, port, meta, versions });
                }
                State::Left => {
                    self.word_dead(now, &Accusation { incarnation, from: name.clone(), node: name });
                }
                // Hearsay is a suspicion at most.
                State::Suspect | State::Dead => {
                    let from = self.settings.name.clone();
                    self.word_suspect(now, &Accusation { incarnation, node: name, from });
                }
            }
        }
        self.tell_refutation(peer);
        Ok(count)
    }

    /// The member whose version not all that are alive understand, if there is one.
    fn misfit(&self, states: &[NodeState]) -> Option<Name> {
        // Entries without their six versions count for nothing here; they change nothing either.
        let theirs = states.iter().filter_map(|state| {
            let versions: &[u8; 6] = state.versions.as_deref()?.first_chunk()?;
            Some((&state.name, state.state, *versions))
        });
        let ours = self.members.iter().map(|member| (&member.name, member.state, member.versions));
        let all: Vec<(&Name, State, [u8; 6])> = theirs.chain(ours).collect();
        let (mut protocol, mut application) = ((0, u8::MAX), (0, u8::MAX));
        for (_, _, [least, most, _, application_least, application_most, _]) in
            all.iter().filter(|(_, state, _)| *state == State::Alive)
        {
            protocol = (protocol.0.max(*least), protocol.1.min(*most));
            application = (application.0.max(*application_least), application.1.min(*application_most));
        }
        let fits = |(least, most): (u8, u8), current: u8| least <= current && current <= most;
        all.into_iter()
            .find(|(_, _, versions)| !fits(protocol, versions[2]) || !fits(application, versions[5]))
            .map(|(name, ..)| name.clone())
    }
}

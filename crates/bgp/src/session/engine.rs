// SPDX-License-Identifier: Apache-2.0
//! The engine: what happened in, what is to be done out.

use std::collections::VecDeque;
use std::time::Duration;

use ferrolb_net_types::{IpFamily, Time};

use super::connection::{Connection, Phase, negotiate};
use super::connections::Connections;
use super::retry::Retry;
use super::{
    Close, ConnectionId, Counters, Down, Goodbye, Input, Local, Notice, Output, Settings, State, Status,
};
use crate::rib::{AdjRibOut, Mode, Untold, Written};
use crate::route::{Export, NextHops};
use crate::wire::{Message, MessageError, Open, RouterId, keepalive};

/// How long connecting may take.
pub const DIAL: Duration = Duration::from_secs(10);

/// How much may wait to be written before no more is told. At least one message fits above it.
const HIGH_WATER: usize = 60 * 1024;

/// How long a session has to last before its end is no failure in a row.
const STABLE: Duration = Duration::from_secs(30);

/// The session with one peer, without its sockets and its clock.
///
/// It never fails and never blocks. Work per call is bounded by what was handed in, by what may wait to be written and by
/// one walk over the routes, whatever the peer says.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    rib: AdjRibOut,
    retry: Retry,
    course: Course,
    /// Connecting: the number, and until when.
    dialling: Option<(u64, Time)>,
    connections: Connections,
    /// How many connections were asked for.
    numbers: u64,
    state: State,
    since: Time,
    last_down: Option<(Time, Down)>,
    last_drop: Option<(Time, Down)>,
    drops: u64,
    /// How many routes of each family were held back when it was last said.
    held_back: [usize; 2],
    /// It was said that routes cannot be told since they are too long.
    too_long: bool,
    counters: Counters,
    outputs: VecDeque<Output>,
}

/// What it is about, apart from its connections.
#[derive(Debug)]
enum Course {
    /// To have a session, or to wait for the peer to want one.
    On,
    /// To have one after this time.
    Wait(Time),
    /// To say goodbye at this time.
    Leave(Time, Goodbye),
    /// To have none.
    Off,
}

impl Session {
    /// A session that starts now. The seed decides every chance: let two nodes have different ones.
    #[must_use]
    pub fn new(now: Time, settings: Settings, seed: u64) -> Self {
        let mut rib = AdjRibOut::default();
        rib.set_limit(settings.max_prefixes);
        let mut session = Self {
            settings,
            rib,
            retry: Retry::new(seed),
            course: Course::Off,
            dialling: None,
            connections: Connections::default(),
            numbers: 0,
            state: State::Idle,
            since: now,
            last_down: None,
            last_drop: None,
            drops: 0,
            held_back: [0; 2],
            too_long: false,
            counters: Counters::default(),
            outputs: VecDeque::new(),
        };
        session.start(now);
        session.note_state(now);
        session
    }

    /// Takes something that happened.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Configure(settings) => self.configure(now, *settings),
            Input::Start => self.start(now),
            Input::Stop(goodbye) => self.stop(now, goodbye),
            Input::Routes(changes) => {
                self.rib.want_all(changes);
                self.pump(now);
            }
            Input::Connected { connection, local } => self.connected(now, connection, local),
            Input::ConnectFailed { connection, error } => {
                if self.is_dialling(connection) {
                    self.dialling = None;
                    self.failed(now, State::Connect, Down::NotConnected(error));
                }
            }
            Input::Accepted { connection, local } => self.accept(now, connection, local),
            Input::Received { connection, bytes } => self.received(now, connection, bytes),
            Input::Written { connection, bytes } => self.written(now, connection, bytes),
            Input::Unacknowledged { connection, bytes } => {
                if let Some(connection) = self.connections.get_mut(connection) {
                    connection.outbox.unacknowledged(now, bytes);
                }
            }
            Input::Closed { connection, error } => {
                if let Some(state) = self.connections.get_mut(connection).map(|connection| connection.state())
                {
                    self.end(now, connection, Down::Closed { state, error });
                }
            }
        }
        self.note_state(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        match &self.course {
            Course::Wait(until) if *until <= now => {
                self.course = Course::On;
                self.dial(now);
            }
            Course::Leave(at, _) if *at <= now => self.farewell(now),
            _ => {}
        }
        if let Some((number, until)) = self.dialling
            && until <= now
        {
            self.dialling = None;
            self.close(ConnectionId::Dialled(number), Close::AtOnce);
            self.failed(now, State::Connect, Down::NoAnswer);
        }
        let due = |time: Option<Time>| time.is_some_and(|time| time <= now);
        for id in self.connections.ids() {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            let state = connection.state();
            let send_hold = connection.send_hold_time(&self.settings);
            connection.outbox.looked(now);
            if due(connection.hold) {
                self.end(now, id, Down::HoldTimer { state });
            } else if connection.outbox.is_stuck(now, send_hold) {
                self.end(now, id, Down::SendHoldTimer);
            } else if due(connection.keepalive) {
                self.keepalive(now, id);
            }
        }
        self.note_state(now);
    }

    /// What is to be done or known next; call until there is nothing.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Session::handle_timeout`] is to be called, at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let course = match &self.course {
            Course::Wait(time) | Course::Leave(time, _) => Some(*time),
            Course::On | Course::Off => None,
        };
        let dialling = self.dialling.map(|(_, until)| until);
        let connections =
            self.connections.iter().filter_map(|connection| connection.deadline(&self.settings));
        course.into_iter().chain(dialling).chain(connections).min()
    }

    /// What it is at.
    #[must_use]
    pub fn status(&self) -> Status<'_> {
        let next_attempt = match self.course {
            Course::Wait(time) => Some(time),
            _ => None,
        };
        Status {
            state: self.state,
            since: self.since,
            peer: self.connections.furthest().and_then(Connection::peer),
            next_attempt,
            wanted: self.rib.wanted(),
            told: self.rib.told(),
            settled: self.rib.is_settled(),
            last_down: self.last_down.as_ref(),
            last_drop: self.last_drop.as_ref(),
            drops: self.drops,
        }
    }

    /// What has been counted.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// What is wanted and not told, although the session is established.
    #[must_use]
    pub fn untold(&self) -> Untold {
        self.rib.untold()
    }

    /// As long as this number is the same, so is [`Session::untold`].
    #[must_use]
    pub const fn untold_version(&self) -> u64 {
        self.rib.untold_version()
    }

    // ---- what it is told to do ----

    fn start(&mut self, now: Time) {
        self.retry.reset();
        if !matches!(self.course, Course::Leave(..)) {
            self.course = Course::On;
        }
        self.dial(now);
    }

    fn stop(&mut self, now: Time, goodbye: Goodbye) {
        let at = now + goodbye.graceful;
        self.course = Course::Leave(at, goodbye);
        if self.connections.established().is_some() && self.rib.told() > 0 && at > now {
            self.rib.set_mode(Mode::AboutToGo);
            self.pump(now);
        } else {
            self.farewell(now);
        }
    }

    fn configure(&mut self, now: Time, settings: Settings) {
        let before = std::mem::replace(&mut self.settings, settings);
        self.rib.set_limit(self.settings.max_prefixes);
        self.rib.set_local_pref(self.settings.local_pref);
        if !before.same_session(&self.settings) {
            self.retry.reset();
            let connected = self.connections.ids();
            connected.iter().for_each(|id| self.end(now, *id, Down::Reconfigured));
            if let Some((number, _)) = self.dialling.take() {
                self.close(ConnectionId::Dialled(number), Close::AtOnce);
            }
            // Who was told goodbye gets its second; who was only waited for does not have to wait any longer.
            if connected.is_empty() && !matches!(self.course, Course::Off | Course::Leave(..)) {
                self.course = Course::On;
                self.dial(now);
            }
        } else if before.keepalive != self.settings.keepalive {
            for id in self.connections.ids() {
                let Some(connection) = self.connections.get_mut(id) else { continue };
                let Some(peer) = connection.peer_mut() else { continue };
                peer.keepalive = self.settings.keepalive_every(peer.hold_time);
                self.keepalive(now, id);
            }
        }
        self.pump(now);
    }

    // ---- connections ----

    fn dial(&mut self, now: Time) {
        let next = ConnectionId::Dialled(self.numbers + 1);
        let idle = self.dialling.is_none() && !self.connections.has_like(next);
        let wanted = matches!(self.course, Course::On) && self.connections.established().is_none();
        if self.settings.dials && idle && wanted {
            self.numbers += 1;
            self.dialling = Some((self.numbers, now + DIAL));
            self.outputs.push_back(Output::Connect(next));
        }
    }

    fn is_dialling(&self, id: ConnectionId) -> bool {
        matches!((self.dialling, id), (Some((a, _)), ConnectionId::Dialled(b)) if a == b)
    }

    fn connected(&mut self, now: Time, id: ConnectionId, local: Local) {
        if self.is_dialling(id) {
            self.dialling = None;
            self.connections.add(Connection::new(now, id, local));
            self.send_open(now, id, local.router_id);
        }
    }

    fn accept(&mut self, now: Time, id: ConnectionId, local: Local) {
        // A session that is there is not given up for another.
        let busy = self.connections.has_like(id) || self.connections.established().is_some();
        let welcome = match self.course {
            Course::On => true,
            // Two that connect by themselves, and both have to wait, would miss each other over and over.
            Course::Wait(_) => self.settings.dials,
            Course::Leave(..) | Course::Off => false,
        };
        if busy || !welcome {
            self.close(id, Close::AtOnce);
            return;
        }
        self.connections.add(Connection::new(now, id, local));
        self.send_open(now, id, local.router_id);
    }

    fn send_open(&mut self, now: Time, id: ConnectionId, router_id: RouterId) {
        self.counters.sent.opens += 1;
        self.send(now, id, self.settings.open(router_id).encode());
    }

    /// Ends a connection.
    fn end(&mut self, now: Time, id: ConnectionId, down: Down) {
        let Some(state) = self.connections.get_mut(id).map(|connection| connection.state()) else { return };
        let last_word = down.notification();
        if let Some(notification) = &last_word {
            self.counters.sent.notifications += 1;
            self.send(now, id, notification.encode());
        }
        self.connections.remove(id);
        // A connection that the peer has closed is no more.
        if !matches!(down, Down::Closed { .. }) {
            self.close(id, if last_word.is_some() { Close::AfterWriting } else { Close::AtOnce });
        }
        if state == State::Established {
            self.rib.close();
            self.too_long = false;
            self.drops += 1;
            self.last_drop = Some((now, down.clone()));
            if now - self.since >= STABLE {
                self.retry.reset();
            }
        }
        if self.dialling.is_none() {
            self.failed(now, state, down);
        }
    }

    /// An attempt failed or a connection ended; if there is no other, so has the session.
    fn failed(&mut self, now: Time, was: State, down: Down) {
        if !self.connections.is_empty() {
            return;
        }
        self.outputs.push_back(Output::Notice(Notice::Down { was, down: down.clone() }));
        self.last_down = Some((now, down));
        match self.course {
            Course::On | Course::Wait(_) => {
                self.course = Course::Wait(now + self.retry.wait(self.settings.retry_at_most));
            }
            Course::Leave(..) => {
                self.course = Course::Off;
                self.outputs.push_back(Output::Stopped);
            }
            Course::Off => {}
        }
    }

    /// Withdraws everything, says why, and closes.
    fn farewell(&mut self, now: Time) {
        let Course::Leave(_, goodbye) = std::mem::replace(&mut self.course, Course::Off) else { return };
        if let Some(id) = self.connections.established() {
            self.rib.set_mode(Mode::Gone);
            let bytes = self.updates(usize::MAX);
            self.send(now, id, bytes);
        }
        for id in self.connections.ids() {
            self.end(now, id, Down::Stopped(goodbye.notification.clone()));
        }
        if let Some((number, _)) = self.dialling.take() {
            self.close(ConnectionId::Dialled(number), Close::AtOnce);
        }
        self.outputs.push_back(Output::Stopped);
    }

    // ---- what the peer says ----

    fn received(&mut self, now: Time, id: ConnectionId, bytes: &[u8]) {
        self.read(now, id, bytes);
        // However often the peer asks in these bytes, it is answered once.
        if self.connections.get_mut(id).is_some_and(|connection| !connection.asked.is_empty()) {
            self.pump(now);
        }
    }

    fn read(&mut self, now: Time, id: ConnectionId, mut bytes: &[u8]) {
        while let Some(connection) = self.connections.get_mut(id) {
            let (context, state) = (connection.context(), connection.state());
            match connection.reader.read(&mut bytes, &context) {
                Ok(None) => return,
                Ok(Some(message)) => {
                    self.count(&message);
                    self.message(now, id, message);
                }
                Err(error) => {
                    let misplaced = match error {
                        MessageError::Header(_) => false,
                        MessageError::Open(_) => state != State::OpenSent,
                        MessageError::Update(_) => state != State::Established,
                    };
                    self.end(
                        now,
                        id,
                        if misplaced { Down::Unexpected { state } } else { Down::Refused(error) },
                    );
                }
            }
            self.note_state(now);
        }
    }

    fn count(&mut self, message: &Message) {
        let received = &mut self.counters.received;
        *match message {
            Message::Open(_) => &mut received.opens,
            Message::Update(_) => &mut received.updates,
            Message::Notification(_) => &mut received.notifications,
            Message::Keepalive => &mut received.keepalives,
            Message::RouteRefresh(_) => &mut received.route_refreshes,
        } += 1;
    }

    /// Events 19 to 28 of RFC 4271, section 8.1.5.
    fn message(&mut self, now: Time, id: ConnectionId, message: Message) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let state = connection.state();
        match (state, message) {
            (_, Message::Notification(notification)) => self.end(now, id, Down::Told(notification)),
            (State::OpenSent, Message::Open(open)) => self.opened(now, id, &open),
            (State::OpenConfirm, Message::Keepalive) => self.establish(now, id),
            (State::Established, Message::Keepalive) => connection.alive(now),
            (State::Established, Message::Update(received)) => {
                connection.alive(now);
                if !received.faults.is_empty() {
                    self.counters.faulty_updates += 1;
                    if connection.note_faults(received.faults) {
                        let faults = connection.faults().to_vec();
                        self.outputs.push_back(Output::Notice(Notice::Faults(faults)));
                    }
                }
            }
            (State::Established, Message::RouteRefresh(refresh)) => connection.ask(refresh),
            (state, _) => self.end(now, id, Down::Unexpected { state }),
        }
    }

    fn opened(&mut self, now: Time, id: ConnectionId, open: &Open) {
        let Some(own) = self.connections.get_mut(id).map(|connection| connection.local.router_id) else {
            return;
        };
        let peer = match negotiate(&self.settings, own, open) {
            Ok(peer) => peer,
            Err(down) => return self.end(now, id, down),
        };
        let ours_wins = (own, self.settings.asn) > (peer.router_id, peer.asn);
        if let Some(loser) = self.loser(id, ours_wins) {
            self.end(now, loser, Down::Collision);
        }
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.phase = Phase::OpenConfirm(peer);
        connection.alive(now);
        self.counters.sent.keepalives += 1;
        self.send(now, id, keepalive());
    }

    /// Of two connections, one of which has just got the peer's OPEN, the one to be closed (RFC 4271, section 6.8; for
    /// equal identifiers RFC 6286, section 2.3): none unless the other one has got it too.
    fn loser(&self, newcomer: ConnectionId, ours_wins: bool) -> Option<ConnectionId> {
        let other = self.connections.rival(newcomer)?;
        let newcomer_is_ours = matches!(newcomer, ConnectionId::Dialled(_));
        match other.state() {
            State::Established => Some(newcomer),
            State::OpenConfirm if newcomer_is_ours == ours_wins => Some(other.id),
            State::OpenConfirm => Some(newcomer),
            _ => None,
        }
    }

    fn establish(&mut self, now: Time, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Phase::OpenConfirm(peer) = std::mem::replace(&mut connection.phase, Phase::OpenSent) else {
            return;
        };
        connection.phase = Phase::Established(peer.clone());
        connection.alive(now);
        let NextHops { v4, v6 } = connection.local.next_hops;
        // What the other connection, or another attempt, would come to is no longer of interest.
        if let Some(other) = self.connections.rival(id).map(|other| other.id) {
            self.end(now, other, Down::Collision);
        }
        if let Some((number, _)) = self.dialling.take() {
            self.close(ConnectionId::Dialled(number), Close::AtOnce);
        }
        if matches!(self.course, Course::Wait(_)) {
            self.course = Course::On;
        }
        let told = |family| self.settings.families.contains(family);
        let next_hops =
            NextHops { v4: v4.filter(|_| told(IpFamily::V4)), v6: v6.filter(|_| told(IpFamily::V6)) };
        self.note_state(now);
        // It is up; what is wrong with it comes after that.
        for family in self.settings.families.iter() {
            let notice = if !peer.families.contains(family) {
                Notice::FamilyRefused(family)
            } else if next_hops.of(family).is_none() {
                Notice::NoNextHop(family)
            } else {
                continue;
            };
            self.outputs.push_back(Output::Notice(notice));
        }
        self.rib.open(Export {
            context: peer.context(),
            asn: self.settings.asn,
            next_hops,
            local_pref: self.settings.local_pref,
        });
        self.pump(now);
    }

    // ---- what the peer is told ----

    fn written(&mut self, now: Time, id: ConnectionId, bytes: usize) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.outbox.written(bytes);
        self.pump(now);
    }

    /// A KEEPALIVE is due.
    fn keepalive(&mut self, now: Time, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let every = connection.peer().and_then(|peer| peer.keepalive);
        connection.keepalive = every.map(|every| now + every);
        // What waits to be written is a sign of life once it is; one more behind it would tell nothing.
        if every.is_some() && connection.outbox.unwritten() == 0 {
            self.counters.sent.keepalives += 1;
            self.send(now, id, keepalive());
        }
    }

    /// Tells the peer what it does not know yet, as far as it reads.
    fn pump(&mut self, now: Time) {
        self.note_held_back();
        let Some(id) = self.connections.established() else { return };
        let Some(connection) = self.connections.get_mut(id) else { return };
        let unwritten = connection.outbox.unwritten();
        // To tell everything again takes as long as there are routes: not before the peer has been told all of it since
        // the last time, however often it asks meanwhile.
        if unwritten == 0 && self.rib.is_settled() {
            self.rib.refresh(std::mem::take(&mut connection.asked));
        }
        let bytes = self.updates(HIGH_WATER.saturating_sub(unwritten));
        self.send(now, id, bytes);
        if self.too_long && self.rib.too_long() == 0 {
            self.too_long = false;
            self.outputs.push_back(Output::Notice(Notice::AllFit));
        }
    }

    /// UPDATEs, until they are this long or there are no more.
    fn updates(&mut self, enough: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < enough {
            match self.rib.write(&mut bytes) {
                None => break,
                Some(Written::Update(_) | Written::EndOfRib(_)) => self.counters.sent.updates += 1,
                Some(Written::TooLong { routes, error }) => {
                    self.too_long = true;
                    self.outputs.push_back(Output::Notice(Notice::TooLong { routes, error }));
                }
            }
        }
        bytes
    }

    fn note_held_back(&mut self) {
        for (family, noted) in [IpFamily::V4, IpFamily::V6].into_iter().zip(&mut self.held_back) {
            let routes = self.rib.held_back(family);
            let before = std::mem::replace(noted, routes);
            // The number itself may change with every Service.
            if (before == 0) != (routes == 0) {
                self.outputs.push_back(Output::Notice(Notice::HeldBack { family, routes }));
            }
        }
    }

    fn send(&mut self, now: Time, id: ConnectionId, bytes: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(id).filter(|_| !bytes.is_empty()) else { return };
        connection.outbox.sent(now, bytes.len());
        // RFC 4271, section 8.2.2: an UPDATE is as good as a KEEPALIVE.
        connection.keepalive = connection.peer().and_then(|peer| peer.keepalive).map(|every| now + every);
        self.outputs.push_back(Output::Send { connection: id, bytes });
    }

    fn close(&mut self, connection: ConnectionId, how: Close) {
        self.outputs.push_back(Output::Close { connection, how });
    }

    fn note_state(&mut self, now: Time) {
        let without = match self.course {
            _ if self.dialling.is_some() => State::Connect,
            Course::On => State::Active,
            _ => State::Idle,
        };
        let to = self.connections.furthest().map_or(without, Connection::state);
        if to != self.state {
            self.outputs.push_back(Output::State { from: self.state, to });
            (self.state, self.since) = (to, now);
        }
    }
}

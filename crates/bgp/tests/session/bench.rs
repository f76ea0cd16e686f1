// SPDX-License-Identifier: Apache-2.0
//! One session, a clock, and a peer that is played by hand.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferrolb_bgp::wire::{
    Code, Community, Context, Families, HoldTime, Message, Notification, Open, Reader, RouterId, Update,
    keepalive,
};
use ferrolb_bgp::{
    Close, ConnectionId, Down, Input, Local, Notice, Output, PeerAs, Route, Session, Settings, State,
};
use ferrolb_net_types::{Asn, Prefix, Time};

pub(crate) const OWN: u32 = 64_512;
pub(crate) const PEER: u32 = 64_513;

pub(crate) fn asn(number: u32) -> Asn {
    Asn::new(number).unwrap()
}

pub(crate) fn id(text: &str) -> RouterId {
    RouterId::new(text.parse().unwrap()).unwrap()
}

pub(crate) fn hold(seconds: u16) -> HoldTime {
    HoldTime::seconds(seconds).unwrap()
}

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// A route with one community; `None` for 0.
pub(crate) fn route(low: u16) -> Arc<Route> {
    let community = Community::new(64_512, low);
    Arc::new(Route { communities: (low != 0).then_some(community).into_iter().collect(), ..Route::default() })
}

pub(crate) fn settings() -> Settings {
    Settings::native(asn(OWN), PeerAs::Exactly(asn(PEER)))
}

pub(crate) fn local(address: &str) -> Local {
    let address: IpAddr = address.parse().unwrap();
    Local::new(address, &[address], None, "node1")
}

/// The peer's OPEN, as MetalLB's recorder sends it.
pub(crate) fn peer_open() -> Open {
    Open::new(asn(PEER), hold(90), id("192.168.10.1"), Families::BOTH, Vec::new())
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

pub(crate) struct Bench {
    pub(crate) session: Session,
    pub(crate) now: Time,
    /// The connection that is wanted, or there.
    pub(crate) connection: Option<ConnectionId>,
    /// When each connection was asked for.
    pub(crate) attempts: Vec<Time>,
    /// What was sent on the last connection, and when.
    pub(crate) sent: Vec<(Time, Vec<u8>)>,
    pub(crate) states: Vec<State>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) closed: Vec<Close>,
    pub(crate) stopped: u32,
    /// Whether the operating system takes what is sent.
    pub(crate) takes: bool,
    /// Of what it has taken, so many bytes are not acknowledged by the peer's.
    pub(crate) unacknowledged: usize,
    /// Whether the peer's acknowledges what is sent.
    pub(crate) acknowledges: bool,
}

impl Bench {
    pub(crate) fn new(settings: Settings) -> Self {
        let mut bench = Self {
            session: Session::new(Time::ZERO, settings, 7),
            now: Time::ZERO,
            connection: None,
            attempts: Vec::new(),
            sent: Vec::new(),
            states: Vec::new(),
            notices: Vec::new(),
            closed: Vec::new(),
            stopped: 0,
            takes: true,
            unacknowledged: 0,
            acknowledges: true,
        };
        bench.drain();
        bench
    }

    /// A session that is established, and has told what it knows.
    pub(crate) fn established(settings: Settings) -> Self {
        let mut bench = Self::new(settings);
        bench.connect();
        bench.say(&peer_open().encode());
        bench.say(&keepalive());
        assert_eq!(bench.state(), State::Established);
        bench
    }

    pub(crate) fn state(&self) -> State {
        self.session.status().state
    }

    pub(crate) fn input(&mut self, input: Input<'_>) {
        self.session.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.session.poll() {
            match output {
                Output::Connect(connection) => {
                    self.connection = Some(connection);
                    self.unacknowledged = 0;
                    self.attempts.push(self.now);
                    self.sent.clear();
                }
                Output::Send { connection, bytes } => {
                    assert_eq!(Some(connection), self.connection);
                    let count = bytes.len();
                    self.sent.push((self.now, bytes));
                    if self.takes {
                        self.unacknowledged += if self.acknowledges { 0 } else { count };
                        self.session.handle(self.now, Input::Written { connection, bytes: count });
                    }
                }
                Output::Close { connection, how } => {
                    assert_eq!(self.connection.take(), Some(connection));
                    self.closed.push(how);
                }
                Output::State { from, to } => {
                    assert_eq!(from, self.states.last().copied().unwrap_or(State::Idle));
                    self.states.push(to);
                }
                Output::Notice(notice) => {
                    // What is said of a session is said between its beginning and its end.
                    let of_session = !matches!(notice, Notice::Down { .. } | Notice::HeldBack { .. });
                    assert!(!of_session || self.states.last() == Some(&State::Established), "{notice:?}");
                    self.notices.push(notice);
                }
                Output::Stopped => self.stopped += 1,
            }
        }
    }

    pub(crate) fn connect(&mut self) {
        let connection = self.connection.unwrap();
        self.input(Input::Connected { connection, local: local("192.168.10.20") });
    }

    /// The peer says these bytes.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let connection = self.connection.unwrap();
        self.input(Input::Received { connection, bytes });
    }

    /// The peer closes the connection.
    pub(crate) fn hang_up(&mut self) {
        let connection = self.connection.take().unwrap();
        self.input(Input::Closed { connection, error: None });
    }

    /// Lets time pass, with everything done when it is due and not a moment later.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.session.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            if let Some(connection) = self.connection {
                let bytes = self.unacknowledged;
                self.session.handle(self.now, Input::Unacknowledged { connection, bytes });
            }
            self.session.handle_timeout(self.now);
            self.drain();
            let next = self.session.next_deadline();
            assert!(next.is_none_or(|next| next > self.now), "what is due is done");
        }
        self.now = end;
    }

    /// Lets time pass until it connects again; how long it took.
    pub(crate) fn until_attempt(&mut self) -> Duration {
        let (before, start) = (self.attempts.len(), self.now);
        while self.attempts.len() == before {
            let due = self.session.next_deadline().unwrap();
            self.pass(due - self.now);
        }
        self.now - start
    }

    /// The messages sent since the last connection was asked for, as the peer reads them.
    pub(crate) fn messages(&self) -> Vec<Message> {
        self.timed_messages().into_iter().map(|(_, message)| message).collect()
    }

    pub(crate) fn timed_messages(&self) -> Vec<(Time, Message)> {
        let peer = self.session.status().peer.cloned();
        let context =
            peer.map_or(Context { families: Families::BOTH, ..Context::default() }, |peer| peer.context());
        let mut reader = Reader::new();
        let mut messages = Vec::new();
        for (time, bytes) in &self.sent {
            let mut bytes = &bytes[..];
            while let Some(message) = reader.read(&mut bytes, &context).unwrap() {
                messages.push((*time, message));
            }
        }
        messages
    }

    /// Forgets what was sent up to here.
    pub(crate) fn forget(&mut self) {
        self.sent.clear();
    }

    /// What UPDATEs were sent, one after the other.
    pub(crate) fn updates(&self) -> Vec<Update> {
        let update = |message| match message {
            Message::Update(received) => received.updates,
            _ => Vec::new(),
        };
        self.messages().into_iter().flat_map(update).collect()
    }

    /// The last NOTIFICATION that was sent.
    pub(crate) fn notification(&self) -> Option<Notification> {
        self.messages().into_iter().rev().find_map(|message| match message {
            Message::Notification(notification) => Some(notification),
            _ => None,
        })
    }

    pub(crate) fn code(&self) -> Option<Code> {
        self.notification().map(|notification| notification.code)
    }

    pub(crate) fn down(&self) -> Option<Down> {
        self.session.status().last_down.map(|(_, down)| down.clone())
    }
}

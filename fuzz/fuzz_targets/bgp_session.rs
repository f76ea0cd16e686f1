// SPDX-License-Identifier: Apache-2.0
//! A session through a story: connections that come, fail and end, of both sides, messages in any order, bytes, time,
//! wishes of its owner. It never asks for what its owner cannot do, never hurries, never says anything behind a last
//! word, and always knows when something is due.
#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolb_bgp::wire::{
    Code, Families, HoldTime, Notification, Open, RouteRefresh, RouterId, Update, keepalive,
};
use ferrolb_bgp::{Close, ConnectionId, Goodbye, Input, Local, Output, PeerAs, Session, Settings, State};
use ferrolb_net_types::{Asn, IpFamily, Prefix, Time};
use libfuzzer_sys::fuzz_target;

struct Owner {
    now: Time,
    session: Session,
    settings: Settings,
    dialling: Option<ConnectionId>,
    /// The connections that are there.
    open: BTreeMap<ConnectionId, Line>,
    accepted: u64,
    /// The last attempt, and whether something was wished since.
    attempt: Option<Time>,
    hurried: bool,
    /// What is to be sent is taken at once.
    reads: bool,
    stopping: bool,
}

#[derive(Default)]
struct Line {
    waiting: usize,
    last_word: bool,
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, story)) = bytes.split_first() else { return };
    let mut owner = Owner::new(*choice);
    let mut story = story.iter().copied();
    for _ in 0..200 {
        let Some(event) = story.next() else { break };
        let argument = story.next().unwrap_or_default();
        owner.happen(event, argument, &mut story);
        owner.look();
    }
    // Left alone, it ends or waits for something.
    owner.pass(Duration::from_secs(1_000));
    owner.look();
});

fn asn(number: u32) -> Asn {
    Asn::new(number).expect("no zero")
}

fn local(last: u8) -> Local {
    let address = [192, 168, 10, last].into();
    Local::new(address, &[address], None, "node1")
}

impl Owner {
    fn new(choice: u8) -> Self {
        let settings = Settings {
            dials: choice & 1 == 0,
            families: if choice & 2 == 0 { Families::V4 } else { Families::BOTH },
            max_prefixes: (choice & 4 != 0).then_some(2),
            ..Settings::native(asn(64_512), if choice & 8 == 0 { PeerAs::External } else { PeerAs::Internal })
        };
        let mut owner = Self {
            now: Time::ZERO,
            session: Session::new(Time::ZERO, settings.clone(), choice.into()),
            settings,
            dialling: None,
            open: BTreeMap::new(),
            accepted: 0,
            attempt: None,
            hurried: false,
            reads: true,
            stopping: false,
        };
        owner.drain();
        owner
    }

    fn happen(&mut self, event: u8, argument: u8, story: &mut impl Iterator<Item = u8>) {
        let connection =
            self.open.keys().nth(usize::from(argument >> 7)).or(self.open.keys().next()).copied();
        match event % 13 {
            0 => {
                if let Some(connection) = self.dialling.take() {
                    self.open.insert(connection, Line::default());
                    self.input(Input::Connected { connection, local: local(20) });
                }
            }
            1 => {
                if let Some(connection) = self.dialling.take() {
                    self.input(Input::ConnectFailed { connection, error: "connection refused".to_owned() });
                }
            }
            2 => {
                self.accepted += 1;
                let connection = ConnectionId::Accepted(self.accepted);
                self.open.insert(connection, Line::default());
                self.input(Input::Accepted { connection, local: local(20) });
            }
            3 | 4 => {
                if let Some(connection) = connection {
                    let bytes = self.message(argument);
                    // In two pieces, wherever the second byte cuts.
                    let (one, two) = bytes.split_at(usize::from(argument).min(bytes.len()));
                    for bytes in [one, two] {
                        self.input(Input::Received { connection, bytes });
                    }
                }
            }
            5 => {
                let bytes: Vec<u8> = story.take((argument & 0x7f).into()).collect();
                if let Some(connection) = connection {
                    self.input(Input::Received { connection, bytes: &bytes });
                }
            }
            6 => self.pass(Duration::from_millis(u64::from(argument) * 10)),
            7 => self.pass(Duration::from_secs(argument.into())),
            8 => {
                if let Some(connection) = connection {
                    self.open.remove(&connection);
                    self.input(Input::Closed { connection, error: None });
                }
            }
            9 => {
                let prefix = Prefix::host([192, 0, 2, argument & 0x0f].into());
                let route = (argument & 0x10 == 0).then(Default::default);
                self.input(Input::Routes(&[(prefix, route)]));
            }
            10 => {
                let seconds = u16::from(argument & 0x3f);
                self.settings.hold_time = HoldTime::seconds(seconds).unwrap_or(HoldTime::ZERO);
                self.settings.max_prefixes = (argument & 0x40 != 0).then_some(1);
                self.hurried = true;
                self.input(Input::Configure(Box::new(self.settings.clone())));
            }
            11 => {
                self.hurried = true;
                if argument & 1 == 0 {
                    self.input(Input::Start);
                } else {
                    self.stopping = true;
                    self.input(Input::Stop(Goodbye::shutdown(
                        "over",
                        Duration::from_secs((argument >> 4).into()),
                    )));
                }
            }
            _ => {
                self.reads = argument & 1 == 0;
                if self.reads {
                    let waiting: Vec<_> = self.open.iter().map(|(id, line)| (*id, line.waiting)).collect();
                    for (connection, bytes) in waiting {
                        if let Some(line) = self.open.get_mut(&connection) {
                            line.waiting -= bytes;
                            self.input(Input::Written { connection, bytes });
                        }
                    }
                }
            }
        }
    }

    fn message(&self, which: u8) -> Vec<u8> {
        let id = |last| RouterId::new([192, 168, 10, last].into()).expect("no zero");
        let hold = HoldTime::seconds(9).expect("long enough");
        let open = |number, last| Open::new(asn(number), hold, id(last), Families::BOTH, Vec::new()).encode();
        match which & 7 {
            0 => open(64_513, 1),
            1 => open(64_512, 30),
            2 => open(64_513, 30),
            3 | 4 => keepalive(),
            5 => Update::EndOfRib(IpFamily::V4).encode(&Default::default()).expect("short"),
            6 => RouteRefresh::new(IpFamily::V4).encode(),
            _ => Notification::from(Code::CEASE).encode(),
        }
    }

    fn input(&mut self, input: Input<'_>) {
        self.session.handle(self.now, input);
        self.drain();
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.session.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            // What was taken has come there, or has not.
            let bytes = if self.reads { 0 } else { 1 };
            for connection in self.open.keys() {
                self.session.handle(self.now, Input::Unacknowledged { connection: *connection, bytes });
            }
            self.session.handle_timeout(self.now);
            self.drain();
            assert!(self.session.next_deadline().is_none_or(|next| next > self.now), "what is due is done");
        }
        self.now = end;
    }

    fn drain(&mut self) {
        while let Some(output) = self.session.poll() {
            match output {
                Output::Connect(connection) => {
                    assert_eq!(self.dialling.replace(connection), None, "one at a time");
                    let early = self.attempt.is_some_and(|last| self.now - last < Duration::from_secs(1));
                    assert!(!early || self.hurried, "it knocks again at once");
                    (self.attempt, self.hurried) = (Some(self.now), false);
                }
                Output::Send { connection, bytes } => self.send(connection, &bytes),
                Output::Close { connection, how } => {
                    let dialled = self.dialling.take_if(|dialling| *dialling == connection).is_some();
                    let line = self.open.remove(&connection);
                    assert!(dialled != line.is_some(), "{connection:?} is not there");
                    let last_word = line.is_some_and(|line| line.last_word);
                    assert_eq!(how == Close::AfterWriting, last_word);
                }
                Output::State { from, to } => assert_ne!(from, to),
                Output::Notice(_) => {}
                Output::Stopped => assert!(std::mem::take(&mut self.stopping), "nobody stopped it"),
            }
        }
    }

    fn send(&mut self, connection: ConnectionId, bytes: &[u8]) {
        let line = self.open.get_mut(&connection).expect("only what is there is spoken to");
        let mut rest = bytes;
        while !rest.is_empty() {
            assert!(!line.last_word, "something is said behind a last word");
            assert_eq!(rest[..16], [0xff; 16]);
            let length = usize::from(u16::from_be_bytes([rest[16], rest[17]]));
            line.last_word = rest[18] == 3;
            rest = &rest[length..];
        }
        line.waiting += bytes.len();
        assert!(line.waiting < 128 * 1024, "{} bytes wait", line.waiting);
        if self.reads {
            let bytes = std::mem::take(&mut line.waiting);
            self.session.handle(self.now, Input::Written { connection, bytes });
        }
    }

    /// What holds between two events.
    fn look(&self) {
        let status = self.session.status();
        let connections = self.open.len();
        assert!(connections <= 2, "{connections} connections");
        match status.state {
            State::OpenSent | State::OpenConfirm | State::Established => assert!(connections > 0),
            State::Idle | State::Active => assert_eq!((connections, self.dialling), (0, None)),
            State::Connect => assert!(connections == 0 && self.dialling.is_some()),
        }
        assert!(status.state == State::Established || status.told == 0);
        assert!(self.settings.max_prefixes.is_none_or(|most| status.told <= most) || !status.settled);
        assert!(status.wanted <= 16);
        // Who has nothing that is due was stopped, waits to be called, or has a session without a hold time.
        let silent = self.session.next_deadline().is_none();
        let endless = status.peer.is_some_and(|peer| peer.hold_time == HoldTime::ZERO);
        assert!(!silent || endless || matches!(status.state, State::Idle | State::Active));
    }
}

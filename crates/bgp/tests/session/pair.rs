// SPDX-License-Identifier: Apache-2.0
//! Two engines face to face over a network that delays, cuts and breaks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ferrolb_bgp::wire::{Families, Message, Reader, Update};
use ferrolb_bgp::{
    Close, ConnectionId, Down, Input, Local, Notice, Output, PeerAs, Session, Settings, State,
};
use ferrolb_net_types::{Prefix, Time};
use proptest::prelude::*;

use crate::bench::{asn, local, prefix, route, seconds, settings};

/// One direction of a connection.
#[derive(Debug, Default)]
struct Pipe {
    /// What is on its way, and when it is there.
    bytes: VecDeque<(Time, Vec<u8>)>,
    /// When the end of it is there.
    end: Option<Time>,
}

/// A connection: who dialled it, and by which number each end knows it.
#[derive(Debug)]
struct Wire {
    ids: [ConnectionId; 2],
    /// What each end will hear.
    towards: [Pipe; 2],
    /// Whether an end is done with it.
    done: [bool; 2],
}

struct World {
    now: Time,
    ends: [Session; 2],
    locals: [Local; 2],
    wires: Vec<Wire>,
    /// Connections that are asked for, and when the answer is there.
    dialled: Vec<(Time, usize, ConnectionId)>,
    /// Whether each end listens.
    listens: [bool; 2],
    delay: Duration,
    downs: [Vec<Down>; 2],
    states: [Vec<State>; 2],
    /// What each end was told: its peer's prefixes.
    heard: [BTreeMap<Prefix, ()>; 2],
    readers: BTreeMap<(usize, ConnectionId), Reader>,
    most_wires: usize,
}

impl World {
    fn new(settings: [Settings; 2], listens: [bool; 2], delay: Duration, seed: u64) -> Self {
        let [a, b] = settings;
        let mut world = Self {
            now: Time::ZERO,
            ends: [Session::new(Time::ZERO, a, seed), Session::new(Time::ZERO, b, seed + 1)],
            locals: [local("192.168.10.20"), local("192.168.10.1")],
            wires: Vec::new(),
            dialled: Vec::new(),
            listens,
            delay,
            downs: Default::default(),
            states: Default::default(),
            heard: Default::default(),
            readers: BTreeMap::new(),
            most_wires: 0,
        };
        world.drain();
        world
    }

    fn input(&mut self, end: usize, input: Input<'_>) {
        self.ends[end].handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            let found = (0..2).find_map(|end| self.ends[end].poll().map(|output| (end, output)));
            let Some((end, output)) = found else { return };
            let at = self.now + self.delay;
            match output {
                Output::Connect(connection) => self.dialled.push((at, end, connection)),
                Output::Send { connection, bytes } => {
                    let count = bytes.len();
                    if let Some(wire) =
                        self.wires.iter_mut().find(|wire| wire.ids[end] == connection && !wire.done[end])
                    {
                        wire.towards[1 - end].bytes.push_back((at, bytes));
                    }
                    self.ends[end].handle(self.now, Input::Written { connection, bytes: count });
                }
                Output::Close { connection, how } => {
                    self.dialled.retain(|(_, dialler, id)| (*dialler, *id) != (end, connection));
                    let wire =
                        self.wires.iter_mut().find(|wire| wire.ids[end] == connection && !wire.done[end]);
                    if let Some(wire) = wire {
                        wire.done[end] = true;
                        if how == Close::AtOnce {
                            wire.towards[1 - end].bytes.clear();
                        }
                        wire.towards[1 - end].end = Some(at);
                    }
                }
                Output::State { to, .. } => {
                    self.states[end].push(to);
                    if to != State::Established {
                        self.heard[1 - end].clear();
                    }
                }
                Output::Notice(Notice::Down { down, .. }) => self.downs[end].push(down),
                Output::Notice(notice) => panic!("{notice:?}"),
                Output::Stopped => {}
            }
        }
    }

    /// The next time at which something happens.
    fn next(&self) -> Option<Time> {
        let deadlines = self.ends.iter().filter_map(Session::next_deadline);
        let dialled = self.dialled.iter().map(|(at, ..)| *at);
        let wires = self.wires.iter().flat_map(|wire| {
            (0..2).filter(|end| !wire.done[*end]).flat_map(|end| {
                let pipe = &wire.towards[end];
                pipe.bytes.front().map(|(at, _)| *at).or(pipe.end)
            })
        });
        deadlines.chain(dialled).chain(wires).min()
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        let mut steps = 0;
        while let Some(at) = self.next().filter(|at| *at <= until) {
            steps += 1;
            assert!(steps < 20_000, "the two go round in circles");
            self.now = self.now.max(at);
            self.answer_dials();
            self.deliver();
            for end in 0..2 {
                // This network always takes what is sent, and loses nothing of it before its end.
                for connection in self.wires.iter().map(|wire| wire.ids[end]) {
                    self.ends[end].handle(self.now, Input::Unacknowledged { connection, bytes: 0 });
                }
                self.ends[end].handle_timeout(self.now);
            }
            self.drain();
            self.wires.retain(|wire| wire.done != [true, true]);
            self.most_wires = self.most_wires.max(self.wires.len());
        }
        self.now = until;
    }

    fn answer_dials(&mut self) {
        while let Some(place) = self.dialled.iter().position(|(at, ..)| *at <= self.now) {
            let (_, end, connection) = self.dialled.remove(place);
            let other = 1 - end;
            if !self.listens[other] {
                self.input(end, Input::ConnectFailed { connection, error: "connection refused".to_owned() });
                continue;
            }
            let accepted = ConnectionId::Accepted(self.now.since_start().as_nanos() as u64);
            let mut ids = [connection; 2];
            ids[other] = accepted;
            self.wires.push(Wire { ids, towards: Default::default(), done: [false; 2] });
            self.input(end, Input::Connected { connection, local: self.locals[end] });
            self.input(other, Input::Accepted { connection: accepted, local: self.locals[other] });
        }
    }

    fn deliver(&mut self) {
        for place in 0..self.wires.len() {
            for end in 0..2 {
                let wire = &mut self.wires[place];
                let (connection, pipe) = (wire.ids[end], &mut wire.towards[end]);
                if wire.done[end] {
                    continue;
                }
                if let Some((_, bytes)) = pipe.bytes.pop_front_if(|(at, _)| *at <= self.now) {
                    self.listen(end, connection, &bytes);
                    self.input(end, Input::Received { connection, bytes: &bytes });
                } else if pipe.bytes.is_empty() && pipe.end.is_some_and(|at| at <= self.now) {
                    wire.done[end] = true;
                    self.input(end, Input::Closed { connection, error: None });
                }
            }
        }
    }

    /// Notes what an end is told about routes.
    fn listen(&mut self, end: usize, connection: ConnectionId, mut bytes: &[u8]) {
        let context = ferrolb_bgp::wire::Context { families: Families::BOTH, ..Default::default() };
        let reader = self.readers.entry((end, connection)).or_default();
        while let Ok(Some(message)) = reader.read(&mut bytes, &context) {
            let Message::Update(received) = message else { continue };
            for update in received.updates {
                match update {
                    Update::Announce(some) => {
                        self.heard[end].extend(some.prefixes().iter().map(|prefix| (*prefix, ())));
                    }
                    Update::Withdraw(some) => {
                        for prefix in some.as_slice() {
                            self.heard[end].remove(prefix);
                        }
                    }
                    Update::EndOfRib(_) => {}
                }
            }
        }
    }

    /// The network breaks a connection: one end learns of it, the other as well or never.
    fn cut(&mut self, both: bool) {
        for wire in &mut self.wires {
            for end in 0..if both { 2 } else { 1 } {
                wire.towards[end].end = Some(self.now);
                wire.towards[end].bytes.clear();
            }
            if !both {
                // Nothing gets through to the other one any more.
                wire.towards[1].bytes.clear();
            }
        }
    }

    fn both(&self) -> [State; 2] {
        [self.ends[0].status().state, self.ends[1].status().state]
    }
}

fn mine() -> Settings {
    settings()
}

/// The router's side.
fn theirs(dials: bool) -> Settings {
    Settings { dials, ..Settings::native(asn(64_513), PeerAs::Exactly(asn(64_512))) }
}

const UP: [State; 2] = [State::Established; 2];
const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn one_dials_and_the_other_waits() {
    let mut world = World::new([mine(), theirs(false)], [false, true], MILLISECOND, 1);
    world.input(0, Input::Routes(&[(prefix("192.0.2.1/32"), Some(route(0)))]));
    world.run(MILLISECOND * 10);
    assert_eq!(world.both(), UP);
    assert_eq!(world.states[0], [State::Connect, State::OpenSent, State::OpenConfirm, State::Established]);
    assert_eq!(world.states[1], [State::Active, State::OpenSent, State::OpenConfirm, State::Established]);
    assert_eq!(world.heard[1].len(), 1);
    world.run(seconds(100_000));
    assert_eq!((world.both(), world.downs.concat()), (UP, vec![]), "and it lasts");
}

#[test]
fn of_two_that_dial_at_once_one_connection_stays() {
    for (own, other) in [("192.168.10.20", "192.168.10.1"), ("192.168.10.1", "192.168.10.20")] {
        let mut world = World::new([mine(), theirs(true)], [true, true], MILLISECOND, 1);
        world.locals = [local(own), local(other)];
        world.input(0, Input::Routes(&[(prefix("192.0.2.1/32"), Some(route(0)))]));
        world.run(MILLISECOND * 20);
        assert_eq!((world.both(), world.most_wires), (UP, 2));
        assert_eq!(world.wires.len(), 1);
        // The one that was dialled from the side with the higher identifier (RFC 4271, section 6.8).
        let dialled_here = matches!(world.wires[0].ids[0], ConnectionId::Dialled(_));
        assert_eq!(dialled_here, own == "192.168.10.20");
        assert_eq!(world.downs.concat(), [], "that is no failure");
        assert_eq!(world.heard[1].len(), 1);
    }
}

#[test]
fn with_equal_identifiers_the_higher_system_wins() {
    let mut world = World::new([mine(), theirs(true)], [true, true], MILLISECOND, 1);
    world.locals = [local("192.168.10.1"); 2];
    world.run(MILLISECOND * 20);
    assert_eq!((world.both(), world.wires.len()), (UP, 1));
    assert!(matches!(world.wires[0].ids[1], ConnectionId::Dialled(_)), "AS 64513 dialled it");
}

#[test]
fn a_half_that_is_dead_is_found_out_by_both() {
    let mut world = World::new([mine(), theirs(false)], [false, true], MILLISECOND, 1);
    world.run(seconds(100));
    world.cut(false);
    world.run(MILLISECOND);
    assert_eq!(world.both(), [State::Idle, State::Established]);
    // The router takes no second session while it believes in the first; then it does.
    world.run(seconds(300));
    assert_eq!(world.both(), UP);
    assert!(world.downs[1].contains(&Down::HoldTimer { state: State::Established }));
}

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Cut(bool),
    Listen(usize, bool),
    Delay(u64),
    Routes(u8, bool),
    Configure(u16),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let one = prop_oneof![
        8 => prop_oneof![0_u64..5, 5_u64..2_000, 2_000_u64..100_000].prop_map(Event::Pass),
        2 => any::<bool>().prop_map(Event::Cut),
        1 => (0..2_usize, any::<bool>()).prop_map(|(end, on)| Event::Listen(end, on)),
        1 => (0..3_000_u64).prop_map(Event::Delay),
        4 => (any::<u8>(), any::<bool>()).prop_map(|(n, here)| Event::Routes(n, here)),
        1 => (3..200_u16).prop_map(Event::Configure),
    ];
    proptest::collection::vec(one, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn once_the_network_is_well_there_is_one_session_and_the_peer_knows_all(
        events in events(),
        both_dial: bool,
        seed: u32,
    ) {
        let mut world = World::new([mine(), theirs(both_dial)], [both_dial, true], MILLISECOND, seed.into());
        let mut wanted = BTreeMap::new();
        for event in events {
            match event {
                Event::Pass(millis) => world.run(Duration::from_millis(millis)),
                Event::Cut(both) => world.cut(both),
                Event::Listen(end, on) => world.listens[end] = on && (end == 1 || both_dial),
                Event::Delay(millis) => world.delay = Duration::from_millis(millis),
                Event::Routes(n, here) => {
                    let prefix = Prefix::host([192, 0, 2, n].into());
                    if here { wanted.insert(prefix, ()) } else { wanted.remove(&prefix) };
                    world.input(0, Input::Routes(&[(prefix, here.then(|| route(0)))]));
                }
                Event::Configure(hold) => {
                    let settings = Settings { hold_time: crate::bench::hold(hold), ..mine() };
                    world.input(0, Input::Configure(Box::new(settings)));
                }
            }
            prop_assert!(world.wires.len() <= 4);
        }
        world.delay = MILLISECOND;
        world.listens = [both_dial, true];
        // The longest wait, the longest hold time, and what is still on its way.
        world.run(seconds(1_000));
        prop_assert_eq!(world.both(), UP);
        prop_assert_eq!(world.wires.len(), 1);
        prop_assert_eq!(&world.heard[1], &wanted);
        let before = world.downs.concat().len();
        world.run(seconds(1_000));
        prop_assert_eq!(world.downs.concat().len(), before, "and it lasts");
    }
}

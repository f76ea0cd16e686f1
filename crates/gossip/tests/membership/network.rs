// SPDX-License-Identifier: Apache-2.0
//! A network of engines in simulated time: datagrams and streams take a while, get lost, do not pass at all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ferrolb_gossip::wire::{Codec, Key, KeyRule, Keyring, StreamError, StreamMessage, StreamReader};
use ferrolb_gossip::{
    Change, Engine, ExchangeError, Input, Name, Notice, Output, Role, Settings, StreamFailure, StreamId,
};
use ferrolb_net_types::Time;

pub(crate) const PORT: u16 = 7946;

pub(crate) fn address(node: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0a00_0001 + node as u32)), PORT)
}

pub(crate) fn name(node: usize) -> Name {
    format!("node-{node}").as_str().into()
}

pub(crate) fn codec() -> Codec {
    let key = Key::of_secret(b"Zm9vYmFyYmF6cXV4Zm9vYg", KeyRule::Truncated).unwrap();
    Codec::new(Some(Keyring::new(key, Vec::new())))
}

/// As memberlist does it.
pub(crate) fn plain(node: usize) -> Settings {
    Settings::plain(name(node), address(node), codec())
}

/// As ours do it, but members from the start.
pub(crate) fn ours(node: usize) -> Settings {
    Settings { role: Role::Member, ..Settings::speaker(name(node), address(node), codec()) }
}

pub(crate) struct Node {
    pub(crate) engine: Engine,
    address: SocketAddr,
    codec: Codec,
}

/// Something that an engine told its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Member(Change, Name),
    Exchanged(SocketAddr, Result<usize, ExchangeError>),
    Notice(Notice),
    User(Vec<u8>),
    Heard(SocketAddr),
    Left,
}

/// A datagram: when, from where, where to, and its bytes.
pub(crate) type Sent = (Time, SocketAddr, SocketAddr, Vec<u8>);

enum Event {
    Datagram {
        from: SocketAddr,
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A stream arrives; its opener hears of it at the same time.
    Open {
        opener: usize,
        stream: StreamId,
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    /// What a stream's opener gets to read; none: it was closed.
    Said {
        opener: usize,
        stream: StreamId,
        bytes: Option<Vec<u8>>,
    },
}

pub(crate) struct Network {
    pub(crate) now: Time,
    pub(crate) nodes: BTreeMap<usize, Node>,
    pub(crate) told: Vec<(Time, usize, Told)>,
    /// From whom to whom nothing passes.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// From whom to whom datagrams do not pass, but streams do.
    pub(crate) no_datagrams: BTreeSet<(usize, usize)>,
    /// How many datagrams in a hundred get lost.
    pub(crate) loss: u64,
    /// The longest time in milliseconds that anything is on its way.
    pub(crate) delay: u64,
    /// Every datagram that was sent, if wanted.
    pub(crate) record: Option<Vec<Sent>>,
    seed: u64,
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
    deadlines: BTreeSet<(Time, usize)>,
    deadline_of: BTreeMap<usize, Time>,
    accepted: BTreeMap<(usize, StreamId), (usize, StreamId)>,
    streams: u64,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            nodes: BTreeMap::new(),
            told: Vec::new(),
            cut: BTreeSet::new(),
            no_datagrams: BTreeSet::new(),
            loss: 0,
            delay: 2,
            record: None,
            seed,
            events: BTreeMap::new(),
            count: 0,
            deadlines: BTreeSet::new(),
            deadline_of: BTreeMap::new(),
            accepted: BTreeMap::new(),
            streams: 0,
        }
    }

    /// A cluster that has settled: everybody joined the first one and was seen by all.
    pub(crate) fn settled(seed: u64, count: usize, settings: fn(usize) -> Settings) -> Self {
        let mut network = Self::new(seed);
        for node in 0..count {
            network.start(node, settings(node));
            if node > 0 {
                network.join(node, &[0]);
            }
            let pause = network.random(1000 / count as u64 + 1);
            network.run(Duration::from_millis(pause));
        }
        network.run(Duration::from_secs(10));
        for node in 0..count {
            assert_eq!(network.seen_by(node).len(), count, "seed {seed}: node {node} does not see all");
        }
        network.told.clear();
        network
    }

    pub(crate) fn start(&mut self, node: usize, settings: Settings) {
        let mut seed = [0; 32];
        for part in seed.chunks_mut(8) {
            part.copy_from_slice(&self.random(u64::MAX).to_be_bytes());
        }
        let (address, codec) = (settings.address, settings.codec.clone());
        let engine = Engine::new(self.now, settings, seed);
        self.nodes.insert(node, Node { engine, address, codec });
        self.drain(node);
    }

    /// The host is gone: nothing is answered, not even refused.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes.remove(&node);
        if let Some(time) = self.deadline_of.remove(&node) {
            self.deadlines.remove(&(time, node));
        }
    }

    pub(crate) fn join(&mut self, node: usize, others: &[usize]) {
        let addresses: Vec<SocketAddr> = others.iter().copied().map(address).collect();
        self.input(node, Input::Join(&addresses));
    }

    /// Tells every node who should be there.
    pub(crate) fn expect_all(&mut self) {
        let all: Vec<SocketAddr> = self.nodes.values().map(|node| node.address).collect();
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.input(node, Input::Candidates(&all));
        }
    }

    /// Cuts both directions between two groups.
    pub(crate) fn part(&mut self, left: &[usize], right: &[usize]) {
        for &a in left {
            for &b in right {
                self.cut.extend([(a, b), (b, a)]);
            }
        }
    }

    pub(crate) fn input(&mut self, node: usize, input: Input<'_>) {
        let now = self.now;
        if let Some(node) = self.nodes.get_mut(&node) {
            node.engine.handle(now, input);
        }
        self.drain(node);
    }

    /// Who counts as a member there.
    pub(crate) fn seen_by(&self, node: usize) -> BTreeSet<Name> {
        let members = self.nodes[&node].engine.members();
        members.filter(|member| member.is_usable()).map(|member| member.name.clone()).collect()
    }

    /// When this was first told by a node.
    pub(crate) fn first(&self, node: usize, told: &Told) -> Option<Time> {
        self.told.iter().find(|(_, at, what)| *at == node && what == told).map(|(time, ..)| *time)
    }

    pub(crate) fn deaths(&self) -> Vec<(usize, Name)> {
        self.told
            .iter()
            .filter_map(|(_, node, told)| match told {
                Told::Member(Change::Died { .. }, name) => Some((*node, name.clone())),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_until(end, |_| false);
    }

    /// Runs until something holds; whether it did by the end.
    pub(crate) fn run_until(&mut self, end: Time, done: impl Fn(&Self) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            let event = self.events.first_key_value().map(|((time, _), _)| *time);
            let timer = self.deadlines.first().map(|(time, _)| *time);
            let Some(next) = event.into_iter().chain(timer).min().filter(|next| *next <= end) else {
                self.now = end;
                return done(self);
            };
            self.now = self.now.max(next);
            // What has arrived is handed in before what is due.
            if event == Some(next) {
                if let Some((_, event)) = self.events.pop_first() {
                    self.happen(event);
                }
            } else if let Some((_, node)) = self.deadlines.first().copied() {
                let now = self.now;
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.engine.handle_timeout(now);
                    assert!(
                        node.engine.next_deadline().is_none_or(|at| at > now),
                        "a deadline is never left behind"
                    );
                }
                self.drain(node);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let at = |nodes: &BTreeMap<usize, Node>, to: SocketAddr| {
            nodes.iter().find(|(_, node)| node.address == to).map(|(node, _)| *node)
        };
        match event {
            Event::Datagram { from, to, bytes } => {
                if let Some(node) = at(&self.nodes, to) {
                    self.input(node, Input::Datagram { source: from, bytes: &bytes });
                }
            }
            Event::Open { opener, stream, to, bytes } => {
                let Some(node) = at(&self.nodes, to) else { return };
                self.streams += 1;
                let accepted = StreamId::Accepted(self.streams);
                self.accepted.insert((node, accepted), (opener, stream));
                let source =
                    self.nodes.get(&opener).map_or(to, |opener| SocketAddr::new(opener.address.ip(), 40_000));
                self.input(opener, Input::Connected(stream));
                self.input(node, Input::Accepted { stream: self.streams, source });
                let read = StreamReader::accepted().push(&self.nodes[&node].codec, &bytes);
                self.input(node, read_input(accepted, read));
            }
            Event::Said { opener, stream, bytes } => {
                let Some(node) = self.nodes.get(&opener) else { return };
                let read = match bytes {
                    Some(bytes) => StreamReader::dialled().push(&node.codec, &bytes),
                    None => Err(StreamError::Nothing),
                };
                self.input(opener, read_input(stream, read));
            }
        }
    }

    fn drain(&mut self, index: usize) {
        while let Some(output) = self.nodes.get_mut(&index).and_then(|node| node.engine.poll()) {
            let from = self.nodes[&index].address;
            match output {
                Output::Datagram { to, bytes } => {
                    if let Some(record) = &mut self.record {
                        record.push((self.now, from, to, bytes.clone()));
                    }
                    let lost = self.random(100) < self.loss;
                    if !lost && self.passes(index, to, true) {
                        self.later(Event::Datagram { from, to, bytes });
                    }
                }
                Output::Open { stream, to, message } => {
                    if self.opens(index, to) {
                        let bytes = self.nodes[&index].codec.stream(&message, true, &[0; 12]);
                        self.later(Event::Open { opener: index, stream, to, bytes });
                    }
                }
                Output::Answer { stream, message } => self.say(index, stream, Some(&message)),
                Output::Close(stream) => self.say(index, stream, None),
                Output::Member { change, member } => self.tell(index, Told::Member(change, member.name)),
                Output::Exchanged { with, result } => self.tell(index, Told::Exchanged(with, result)),
                Output::Notice(notice) => self.tell(index, Told::Notice(notice)),
                Output::Told { payload, .. } => self.tell(index, Told::User(payload)),
                Output::Heard(source) => self.tell(index, Told::Heard(source)),
                Output::Left => self.tell(index, Told::Left),
            }
        }
        let deadline = self.nodes.get(&index).and_then(|node| node.engine.next_deadline());
        if let Some(time) = self.deadline_of.remove(&index) {
            self.deadlines.remove(&(time, index));
        }
        if let Some(time) = deadline {
            self.deadlines.insert((time, index));
            self.deadline_of.insert(index, time);
        }
    }

    fn tell(&mut self, node: usize, told: Told) {
        self.told.push((self.now, node, told));
    }

    /// Ends an accepted stream, with an answer or without.
    fn say(&mut self, index: usize, stream: StreamId, message: Option<&StreamMessage>) {
        let Some((opener, its)) = self.accepted.remove(&(index, stream)) else { return };
        let bytes = message.map(|message| self.nodes[&index].codec.stream(message, false, &[0; 12]));
        let to = self.nodes.get(&opener).map(|node| node.address);
        if to.is_some_and(|to| self.passes(index, to, false)) {
            self.later(Event::Said { opener, stream: its, bytes });
        }
        if message.is_some() {
            self.input(index, Input::Closed(stream));
        }
    }

    fn passes(&self, from: usize, to: SocketAddr, datagram: bool) -> bool {
        let Some((to, _)) = self.nodes.iter().find(|(_, node)| node.address == to) else { return false };
        let path = (from, *to);
        !self.cut.contains(&path) && (!datagram || !self.no_datagrams.contains(&path))
    }

    /// Whether a stream can be opened: that takes both directions.
    fn opens(&self, from: usize, to: SocketAddr) -> bool {
        let back = |(other, node): (&usize, &Node)| {
            node.address == to && self.passes(*other, self.nodes[&from].address, false)
        };
        self.passes(from, to, false) && self.nodes.iter().any(back)
    }

    fn later(&mut self, event: Event) {
        self.count += 1;
        let delay = Duration::from_micros(100 + self.random(self.delay * 1000));
        self.events.insert((self.now + delay, self.count), event);
    }

    /// A number below `bound`, by SplitMix64.
    pub(crate) fn random(&mut self, bound: u64) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

fn read_input(stream: StreamId, read: Result<Option<StreamMessage>, StreamError>) -> Input<'static> {
    match read {
        Ok(Some(message)) => Input::Received { stream, message },
        Ok(None) => Input::Failed { stream, failure: StreamFailure::Unreadable(StreamError::Cut) },
        Err(error) => Input::Failed { stream, failure: StreamFailure::Unreadable(error) },
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A segment with speakers' wire sides on it, in simulated time: datagrams and streams take a while, get lost or do not
//! pass; frames reach everybody; a process can be stopped and go on later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferrolb_announce::{AddressPlans, Endpoint, Ingress, Inputs, Service};
use ferrolb_config::{Config, L2Advertisement, Pool};
use ferrolb_gossip::wire::{Codec, Key, KeyRule, Keyring, StreamError, StreamMessage, StreamReader};
use ferrolb_gossip::{Engine, Settings, StreamFailure, StreamId};
use ferrolb_l2::wire::{Frame, Operation, Packet, ndp};
use ferrolb_net_types::{Interfaces, Mac, NodeName, PoolName, ServiceKey, Time};
use ferrolb_speaker_core::wire::{Gossip, Input, Interface, Membership, Output, Peer, Purpose, Wire};

use super::numbers::{address, address6, interface, mac_on, name, other_address, vip, vip6};

pub(crate) const SECRET: &[u8] = b"Zm9vYmFyYmF6cXV4Zm9vYg";

pub(crate) fn codec(secret: &[u8]) -> Codec {
    Codec::new(Key::of_secret(secret, KeyRule::Truncated).map(|key| Keyring::new(key, Vec::new())))
}

/// A host: its speaker, if it runs.
struct Host {
    process: Option<Process>,
    codec: Codec,
    /// It is stopped; what happens to it waits.
    frozen: bool,
    waiting: VecDeque<Happening>,
    plan: Arc<AddressPlans>,
}

enum Process {
    Ours(Box<Wire>),
    /// A member as memberlist has it; it announces nothing.
    Plain(Box<Engine>),
}

/// What happens to a host.
#[derive(Clone)]
enum Happening {
    Datagram {
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    /// Somebody opens a stream and says something; `from` and its number of the stream get the answer.
    Stream {
        from: usize,
        stream: StreamId,
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    Connected(StreamId),
    Said {
        stream: StreamId,
        bytes: Option<Vec<u8>>,
    },
    Refused(StreamId),
    /// A frame, on one of its segments.
    Frame(usize, Vec<u8>),
}

pub(crate) struct Network {
    pub(crate) now: Time,
    hosts: BTreeMap<usize, Host>,
    /// From whom to whom no gossip passes.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// From whom to whom no datagrams pass, but streams do.
    pub(crate) no_datagrams: BTreeSet<(usize, usize)>,
    /// From whom to whom no streams can be opened, but datagrams pass.
    pub(crate) no_streams: BTreeSet<(usize, usize)>,
    /// From whom to whom no frames pass.
    pub(crate) torn: BTreeSet<(usize, usize)>,
    /// On which segment, from whom to whom no frames pass.
    pub(crate) torn_on: BTreeSet<(usize, usize, usize)>,
    /// How many segments there are; every host is on all of them, by interfaces ens18, ens19 and so on.
    pub(crate) segments: usize,
    /// The addresses that are announced are IPv6.
    vips6: bool,
    /// So are the hosts' own.
    hosts6: bool,
    /// Hosts that say of themselves that they are at another address of theirs.
    pub(crate) elsewhere: BTreeSet<usize>,
    /// Streams that were asked for.
    pub(crate) streams: usize,
    /// Hosts that do not say what addresses of their own they have.
    pub(crate) mute: BTreeSet<usize>,
    /// Hosts that answer for every address, as MetalLB's speaker goes on doing when it has left.
    pub(crate) lingering: BTreeSet<usize>,
    /// Hosts that neither send nor get frames.
    pub(crate) off_segment: BTreeSet<usize>,
    /// Gratuitous frames: when, whose, which address.
    pub(crate) gratuitous: Vec<(Time, usize, IpAddr)>,
    /// What the control sides were told last.
    pub(crate) told: BTreeMap<usize, Membership>,
    /// Speakers that start know at once what there is to announce.
    pub(crate) planned: bool,
    /// How often members are probed, if not as in a LAN.
    pub(crate) probe_interval: Option<Duration>,
    /// How often each was told.
    pub(crate) tellings: usize,
    pub(crate) stopped: BTreeMap<usize, Time>,
    /// How long each address has had several owners, or none, in one piece; and since when it has them.
    log: Vec<Span>,
    spans: BTreeMap<IpAddr, (BTreeSet<usize>, Time)>,
    /// What each host answered for when that was last looked at.
    owned: Vec<Vec<IpAddr>>,
    events: BTreeMap<(Time, u64), (usize, Happening)>,
    accepted: BTreeMap<(usize, u64), (usize, StreamId)>,
    count: u64,
    seed: u64,
    addresses: usize,
    nodes: usize,
}

/// For how long which nodes answered for an address.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) address: IpAddr,
    pub(crate) owners: BTreeSet<usize>,
    pub(crate) from: Time,
    pub(crate) to: Time,
}

impl Span {
    pub(crate) fn length(&self) -> Duration {
        self.to - self.from
    }
}

impl Network {
    /// A segment with this many nodes, no speaker on any yet, and addresses that all of them may announce.
    pub(crate) fn new(seed: u64, nodes: usize, addresses: usize) -> Self {
        let mut network = Self {
            now: Time::millis(1000),
            hosts: BTreeMap::new(),
            cut: BTreeSet::new(),
            no_datagrams: BTreeSet::new(),
            no_streams: BTreeSet::new(),
            torn: BTreeSet::new(),
            torn_on: BTreeSet::new(),
            segments: 1,
            vips6: false,
            hosts6: false,
            elsewhere: BTreeSet::new(),
            streams: 0,
            mute: BTreeSet::new(),
            lingering: BTreeSet::new(),
            off_segment: BTreeSet::new(),
            gratuitous: Vec::new(),
            told: BTreeMap::new(),
            planned: true,
            probe_interval: None,
            tellings: 0,
            stopped: BTreeMap::new(),
            log: Vec::new(),
            spans: BTreeMap::new(),
            owned: Vec::new(),
            events: BTreeMap::new(),
            accepted: BTreeMap::new(),
            count: 0,
            seed,
            addresses,
            nodes,
        };
        for node in 0..nodes {
            let plan = network.plan(node, addresses);
            let host =
                Host { process: None, codec: codec(SECRET), frozen: false, waiting: VecDeque::new(), plan };
            network.hosts.insert(node, host);
        }
        network.watch();
        network
    }

    /// The same, where what is announced is IPv6, and perhaps the hosts' own addresses, too.
    pub(crate) fn new6(seed: u64, nodes: usize, addresses: usize, hosts6: bool) -> Self {
        let mut network = Self::new(seed, nodes, addresses);
        (network.vips6, network.hosts6) = (true, hosts6);
        for node in 0..nodes {
            let plan = network.plan(node, addresses);
            network.hosts.get_mut(&node).unwrap().plan = plan;
        }
        network.forget();
        network
    }

    /// A cluster of ours that has settled.
    pub(crate) fn settled(seed: u64, nodes: usize, addresses: usize) -> Self {
        let mut network = Self::new(seed, nodes, addresses);
        network.start_all();
        network
    }

    /// Starts a speaker on every node, and waits until they have settled.
    pub(crate) fn start_all(&mut self) {
        let (nodes, seed) = (self.nodes, self.seed);
        (0..nodes).for_each(|node| self.start(node));
        self.run(Duration::from_secs(15));
        for node in 0..nodes {
            assert!(self.told[&node].eligible && self.members(node).len() == nodes, "seed {seed}");
        }
        assert_eq!(self.rightful(), self.owners(), "seed {seed}");
        self.forget();
    }

    /// One of the addresses that are announced.
    pub(crate) fn vip(&self, number: usize) -> IpAddr {
        if self.vips6 { vip6(number) } else { vip(number) }
    }

    /// Where the node's speaker is reached.
    fn address(&self, node: usize) -> SocketAddr {
        if self.hosts6 { address6(node) } else { address(node) }
    }

    /// Forgets what was recorded.
    pub(crate) fn forget(&mut self) {
        self.gratuitous.clear();
        self.log.clear();
        self.tellings = 0;
        self.spans.clear();
        self.watch();
    }

    /// Starts a speaker of ours that knows of the Pods of all nodes.
    pub(crate) fn start(&mut self, node: usize) {
        let peers = self.peers(node);
        self.start_with(node, Some(&peers));
    }

    pub(crate) fn start_with(&mut self, node: usize, peers: Option<&[Peer]>) {
        self.start_as(node, SECRET);
        if let Some(peers) = peers {
            self.input(node, Input::Peers(peers));
        }
    }

    /// Starts one that uses this secret, and knows of nobody yet.
    pub(crate) fn start_as(&mut self, node: usize, secret: &[u8]) {
        let seed = self.random_seed();
        let place = if self.elsewhere.contains(&node) { other_address(node) } else { self.address(node) };
        let mut settings = Settings::speaker(name(node).as_str().into(), place, codec(secret));
        settings.profile.probe_interval = self.probe_interval.unwrap_or(settings.profile.probe_interval);
        let mut wire = Wire::new(name(node), Some(Gossip { settings, seed }));
        let link_local = self.vips6.then(|| link_local(node));
        let interface = |segment: usize| Interface {
            index: interface(segment),
            name: format!("ens{}", 18 + segment).as_str().into(),
            mac: mac_on(segment, node),
            arp: true,
            link_local,
        };
        let interfaces: Vec<_> = (0..self.segments).map(interface).collect();
        wire.handle(self.now, Input::Interfaces(&interfaces));
        let host = self.hosts.get_mut(&node).unwrap();
        host.codec = codec(secret);
        if self.planned {
            wire.handle(self.now, Input::Plan(host.plan.clone()));
        }
        host.process = Some(Process::Ours(Box::new(wire)));
        self.drain(node);
    }

    /// What there is to announce becomes known to a node that was started without a plan.
    pub(crate) fn plan_now(&mut self, node: usize) {
        let plan = self.hosts[&node].plan.clone();
        self.input(node, Input::Plan(plan));
    }

    /// Starts a member as memberlist has it, joined to another.
    pub(crate) fn start_plain(&mut self, node: usize, join: usize) {
        let seed = self.random_seed();
        let settings = Settings::plain(name(node).as_str().into(), self.address(node), codec(SECRET));
        let engine = Engine::new(self.now, settings, seed);
        self.hosts.get_mut(&node).unwrap().process = Some(Process::Plain(Box::new(engine)));
        let there = [self.address(join)];
        self.gossip(node, ferrolb_gossip::Input::Join(&there));
    }

    /// The process is killed; the host refuses what comes for it.
    pub(crate) fn kill(&mut self, node: usize) {
        let host = self.hosts.get_mut(&node).unwrap();
        host.process = None;
        host.waiting.clear();
        host.frozen = false;
        self.told.remove(&node);
        self.watch();
    }

    /// Every other node's Pod, awaited.
    pub(crate) fn peers(&self, node: usize) -> Vec<Peer> {
        (0..self.nodes)
            .filter(|other| *other != node)
            .map(|other| Peer { node: name(other), address: self.address(other), awaited: true })
            .collect()
    }

    pub(crate) fn freeze(&mut self, node: usize) {
        self.hosts.get_mut(&node).unwrap().frozen = true;
    }

    /// It goes on: what has waited happens now.
    pub(crate) fn thaw(&mut self, node: usize) {
        let host = self.hosts.get_mut(&node).unwrap();
        host.frozen = false;
        for happening in std::mem::take(&mut host.waiting) {
            self.happen(node, happening);
        }
    }

    pub(crate) fn input(&mut self, node: usize, input: Input<'_>) {
        let now = self.now;
        if let Some(Process::Ours(wire)) = &mut self.hosts.get_mut(&node).unwrap().process {
            wire.handle(now, input);
        }
        self.drain(node);
    }

    /// From now on the plans know of this many addresses only.
    pub(crate) fn set_addresses(&mut self, node: usize, addresses: usize) {
        let plan = self.plan(node, addresses);
        self.hosts.get_mut(&node).unwrap().plan = plan.clone();
        self.input(node, Input::Plan(plan));
    }

    /// Cuts both directions between two groups.
    pub(crate) fn part(&mut self, left: &[usize], right: &[usize]) {
        for &a in left {
            for &b in right {
                self.cut.extend([(a, b), (b, a)]);
            }
        }
    }

    /// Cuts both directions between two groups, for frames as well.
    pub(crate) fn tear(&mut self, left: &[usize], right: &[usize]) {
        self.part(left, right);
        for &a in left {
            for &b in right {
                self.torn.extend([(a, b), (b, a)]);
            }
        }
    }

    /// Everything passes again.
    pub(crate) fn heal(&mut self) {
        self.cut.clear();
        self.torn.clear();
        self.torn_on.clear();
        self.off_segment.clear();
    }

    /// Somebody on the first segment who is no speaker announces an address.
    pub(crate) fn claim(&mut self, ip: IpAddr, mac: Mac) {
        let frame = announcement(ip, mac);
        (0..self.nodes).for_each(|node| self.later(node, Happening::Frame(0, frame.clone())));
    }

    /// The members as a node's control side knows them.
    pub(crate) fn members(&self, node: usize) -> BTreeSet<NodeName> {
        match self.told.get(&node).map(|told| &told.members) {
            Some(ferrolb_announce::Members::Known(members)) => members.keys().cloned().collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Who answers for each address now.
    pub(crate) fn owners(&self) -> BTreeMap<IpAddr, BTreeSet<usize>> {
        let mut owners: BTreeMap<IpAddr, BTreeSet<usize>> =
            (0..self.addresses).map(|number| (self.vip(number), BTreeSet::new())).collect();
        for (node, host) in &self.hosts {
            if let Some(Process::Ours(wire)) = &host.process
                && !host.frozen
            {
                wire.owned().for_each(|address| {
                    owners.entry(address).or_default().insert(*node);
                });
            }
        }
        owners
    }

    /// Whether a node answers for every address.
    pub(crate) fn owns_everything(&self, node: usize) -> bool {
        self.owned[node].len() == self.addresses
    }

    /// Who is to answer for each address if all that run are members.
    pub(crate) fn rightful(&self) -> BTreeMap<IpAddr, BTreeSet<usize>> {
        let running = self.hosts.iter().filter(|(_, host)| host.process.is_some() && !host.frozen);
        let running: BTreeSet<usize> = running.map(|(node, _)| *node).collect();
        self.rightful_among(&running)
    }

    pub(crate) fn rightful_among(&self, nodes: &BTreeSet<usize>) -> BTreeMap<IpAddr, BTreeSet<usize>> {
        let members = nodes.iter().map(|node| (name(*node), ferrolb_announce::Standing::Ours)).collect();
        let plan = &self.hosts[&0].plan;
        let owner = |address: &IpAddr| {
            let owner = ferrolb_announce::owner(&plan[address], &members)?;
            nodes.iter().copied().find(|node| name(*node) == *owner)
        };
        plan.keys().map(|address| (*address, owner(address).into_iter().collect())).collect()
    }

    pub(crate) fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Runs until something holds; whether it did in this time.
    pub(crate) fn run_until(&mut self, time: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + time;
        loop {
            if done(self) {
                return true;
            }
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timers = self.hosts.iter().filter(|(_, host)| !host.frozen).filter_map(|(node, host)| {
                let deadline = match host.process.as_ref()? {
                    Process::Ours(wire) => wire.next_deadline(),
                    Process::Plain(engine) => engine.next_deadline(),
                };
                Some((deadline?, *node))
            });
            let timer = timers.min();
            let next = event.into_iter().chain(timer.map(|(at, _)| at)).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                self.watch();
                return done(self);
            };
            self.now = self.now.max(next);
            if event == Some(next) {
                let Some((_, (node, happening))) = self.events.pop_first() else { continue };
                self.happen(node, happening);
            } else if let Some((_, node)) = timer {
                let now = self.now;
                match &mut self.hosts.get_mut(&node).unwrap().process {
                    Some(Process::Ours(wire)) => wire.handle_timeout(now),
                    Some(Process::Plain(engine)) => engine.handle_timeout(now),
                    None => {}
                }
                self.drain(node);
            }
        }
    }

    fn happen(&mut self, node: usize, happening: Happening) {
        if let Happening::Frame(segment, bytes) = &happening {
            self.kernel(node, *segment, bytes);
        }
        let host = self.hosts.get_mut(&node).unwrap();
        if host.frozen {
            host.waiting.push_back(happening);
            return;
        }
        let running = host.process.is_some();
        match happening {
            Happening::Frame(segment, bytes) => {
                self.input(node, Input::Frame { interface: interface(segment), vlan: None, bytes: &bytes });
            }
            Happening::Datagram { source, bytes } => {
                self.gossip(node, ferrolb_gossip::Input::Datagram { source, bytes: &bytes });
            }
            Happening::Stream { from, stream, .. } if !running => {
                self.later(from, Happening::Refused(stream));
            }
            Happening::Stream { from, stream, source, bytes } => {
                self.later(from, Happening::Connected(stream));
                self.count += 1;
                let number = self.count;
                self.accepted.insert((node, number), (from, stream));
                self.gossip(node, ferrolb_gossip::Input::Accepted { stream: number, source });
                let read = StreamReader::accepted().push(&self.hosts[&node].codec, &bytes);
                self.gossip(node, said(StreamId::Accepted(number), read));
            }
            Happening::Connected(stream) => self.gossip(node, ferrolb_gossip::Input::Connected(stream)),
            Happening::Said { stream, bytes } => {
                let read = match bytes {
                    Some(bytes) => StreamReader::dialled().push(&self.hosts[&node].codec, &bytes),
                    None => Err(StreamError::Nothing),
                };
                self.gossip(node, said(stream, read));
            }
            Happening::Refused(stream) => {
                let failure = StreamFailure::Refused;
                self.gossip(node, ferrolb_gossip::Input::Failed { stream, failure });
            }
        }
    }

    /// The host itself answers for its own address, whatever becomes of its speaker; and for all if that lingers.
    fn kernel(&mut self, node: usize, segment: usize, bytes: &[u8]) {
        let here = mac_on(segment, node);
        let own = |asked: IpAddr| self.address(node).ip() == asked || self.lingering.contains(&node);
        let answer = if let Ok(Frame { destination, packet, .. }) = Frame::parse(bytes) {
            let asked = packet.operation == Operation::Request && packet.sender_ip != packet.target_ip;
            let to_it = [Mac::BROADCAST, here].contains(&destination);
            let answer = Packet {
                operation: Operation::Reply,
                sender_mac: here,
                sender_ip: packet.target_ip,
                target_mac: packet.sender_mac,
                target_ip: packet.sender_ip,
            };
            (asked && to_it && own(packet.target_ip.into())).then(|| {
                Frame { destination: packet.sender_mac, source: here, packet: answer }.emit().to_vec()
            })
        } else if let Ok(ndp::Frame { destination, source, packet }) = ndp::Frame::parse(bytes) {
            let ndp::Message::Solicitation(asked) = packet.message else { return };
            let answer = ndp::Advertisement {
                target: asked.target,
                router: false,
                solicited: true,
                overrides: true,
                target_mac: Some(here),
            };
            let packet = ndp::Packet {
                source: link_local(node),
                destination: packet.source,
                message: ndp::Message::Advertisement(answer),
            };
            let to_it = destination.is_multicast() || destination == here;
            (to_it && own(asked.target.into()))
                .then(|| ndp::Frame { destination: source, source: here, packet }.emit().to_vec())
        } else {
            None
        };
        if let Some(answer) = answer.filter(|_| !self.mute.contains(&node)) {
            self.broadcast(node, segment, &answer);
        }
    }

    pub(crate) fn gossip(&mut self, node: usize, input: ferrolb_gossip::Input<'_>) {
        let now = self.now;
        match &mut self.hosts.get_mut(&node).unwrap().process {
            Some(Process::Ours(wire)) => wire.handle(now, Input::Gossip(input)),
            Some(Process::Plain(engine)) => engine.handle(now, input),
            None => {}
        }
        self.drain(node);
    }

    fn drain(&mut self, node: usize) {
        let now = self.now;
        loop {
            let gossip = match &mut self.hosts.get_mut(&node).unwrap().process {
                None => break,
                Some(Process::Plain(engine)) => match engine.poll() {
                    Some(output) => output,
                    None => break,
                },
                Some(Process::Ours(wire)) => match wire.poll(now) {
                    None => break,
                    Some(Output::Gossip(output)) => output,
                    Some(Output::Send { interface, address, purpose, frame }) => {
                        if purpose == Purpose::Gratuitous {
                            self.gratuitous.push((now, node, address));
                        }
                        self.broadcast(node, interface.0 as usize - 2, &frame);
                        continue;
                    }
                    Some(Output::Report(report)) => {
                        if let Some(membership) = report.membership {
                            self.tellings += 1;
                            self.told.insert(node, membership);
                        }
                        continue;
                    }
                    Some(Output::Stopped) => {
                        self.stopped.insert(node, now);
                        self.kill(node);
                        break;
                    }
                    Some(Output::Join { .. } | Output::Leave { .. }) => continue,
                },
            };
            self.carry(node, gossip);
        }
        self.watch();
    }

    fn carry(&mut self, node: usize, output: ferrolb_gossip::Output) {
        match output {
            ferrolb_gossip::Output::Datagram { to, bytes } => {
                if let Some(other) = self.passes(node, to, true) {
                    self.later(other, Happening::Datagram { source: self.address(node), bytes });
                }
            }
            ferrolb_gossip::Output::Open { stream, to, message } => {
                self.streams += 1;
                let bytes = self.hosts[&node].codec.stream(&message, true, &[0; 12]);
                let opens = |other: &usize| !self.no_streams.contains(&(node, *other));
                if let Some(other) = self.passes(node, to, false).filter(opens) {
                    let source = SocketAddr::new(self.address(node).ip(), 40_000);
                    self.later(other, Happening::Stream { from: node, stream, source, bytes });
                }
            }
            ferrolb_gossip::Output::Answer { stream, message } => self.say(node, stream, Some(&message)),
            ferrolb_gossip::Output::Close(stream) => self.say(node, stream, None),
            _ => {}
        }
    }

    fn say(&mut self, node: usize, stream: StreamId, message: Option<&StreamMessage>) {
        let StreamId::Accepted(number) = stream else { return };
        let Some((opener, its)) = self.accepted.remove(&(node, number)) else { return };
        let bytes = message.map(|message| self.hosts[&node].codec.stream(message, false, &[0; 12]));
        if self.passes(node, self.address(opener), false).is_some() {
            self.later(opener, Happening::Said { stream: its, bytes });
        }
        if message.is_some() {
            self.gossip(node, ferrolb_gossip::Input::Closed(stream));
        }
    }

    fn passes(&self, from: usize, to: SocketAddr, datagram: bool) -> Option<usize> {
        let to = (0..self.nodes).find(|node| [self.address(*node), other_address(*node)].contains(&to))?;
        let path = (from, to);
        (!self.cut.contains(&path) && (!datagram || !self.no_datagrams.contains(&path))).then_some(to)
    }

    fn broadcast(&mut self, from: usize, segment: usize, frame: &[u8]) {
        for node in (0..self.nodes).filter(|node| *node != from) {
            let off = [from, node].iter().any(|host| self.off_segment.contains(host));
            let torn = self.torn.contains(&(from, node)) || self.torn_on.contains(&(segment, from, node));
            if !off && !torn {
                self.later(node, Happening::Frame(segment, frame.to_vec()));
            }
        }
    }

    fn later(&mut self, node: usize, happening: Happening) {
        self.count += 1;
        let delay = Duration::from_micros(50 + self.random(500));
        self.events.insert((self.now + delay, self.count), (node, happening));
    }

    /// Takes note of who answers for what.
    fn watch(&mut self) {
        let owned: Vec<Vec<IpAddr>> = self
            .hosts
            .values()
            .map(|host| match &host.process {
                Some(Process::Ours(wire)) if !host.frozen => wire.owned().collect(),
                _ => Vec::new(),
            })
            .collect();
        if self.owned == owned && !self.spans.is_empty() {
            return;
        }
        self.owned = owned;
        for (address, owners) in self.owners() {
            let now = self.now;
            let (before, since) = self.spans.entry(address).or_insert_with(|| (owners.clone(), now));
            if *before != owners {
                let span = Span { address, owners: std::mem::replace(before, owners), from: *since, to: now };
                *since = now;
                if !span.length().is_zero() {
                    self.log.push(span);
                }
            }
        }
    }

    /// Who has answered for what since it was last forgotten.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let current = self.spans.iter().map(|(address, (owners, from))| Span {
            address: *address,
            owners: owners.clone(),
            from: *from,
            to: self.now,
        });
        self.log.iter().cloned().chain(current).collect()
    }

    /// The longest time in one piece that an address had several owners.
    pub(crate) fn longest_double(&self) -> Duration {
        let several = |span: &Span| span.owners.len() > 1;
        self.spans().iter().filter(|span| several(span)).map(Span::length).max().unwrap_or_default()
    }

    /// The longest time in one piece that an address had no owner.
    pub(crate) fn longest_dark(&self) -> Duration {
        self.spans().iter().filter(|span| span.owners.is_empty()).map(Span::length).max().unwrap_or_default()
    }

    /// The plan of a node for the first addresses; all nodes may announce them.
    pub(crate) fn plan(&self, node: usize, addresses: usize) -> Arc<AddressPlans> {
        let nodes: BTreeSet<NodeName> = (0..self.nodes).map(name).collect();
        let pool = Pool {
            name: PoolName::from("p"),
            blocks: ["192.168.0.0/16", "2001:db8::/64"].map(|block| block.parse().unwrap()).into(),
            auto_assign: true,
            avoid_buggy_ips: false,
            allocation: None,
            l2_advertisements: vec![Arc::new(L2Advertisement {
                name: "ad".into(),
                nodes: nodes.iter().cloned().collect(),
                interfaces: Interfaces::All,
                service_selectors: Vec::new(),
                preferences: BTreeMap::new(),
            })],
        };
        let service = |number: usize| Service {
            load_balancer: true,
            ingress: vec![Ingress::Ip(self.vip(number))],
            endpoints: [Endpoint::default()].into_iter().collect(),
            ..Service::default()
        };
        let services = (0..addresses)
            .map(|number| (ServiceKey::new("d", &format!("s{number}")), service(number)))
            .collect();
        let config = Config { pools: [(pool.name.clone(), Arc::new(pool))].into(), ..Config::default() };
        let plan = ferrolb_announce::plan(&Inputs {
            node: &name(node),
            config: &config,
            nodes: &BTreeMap::new(),
            services: &services,
            settings: &ferrolb_announce::Settings::default(),
        });
        Arc::new(plan.addresses)
    }

    fn random_seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        for part in seed.chunks_mut(8) {
            part.copy_from_slice(&self.random(u64::MAX).to_be_bytes());
        }
        seed
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

/// An announcement of the address, with this hardware address.
fn announcement(ip: IpAddr, mac: Mac) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => {
            let packet = Packet {
                operation: Operation::Request,
                sender_mac: mac,
                sender_ip: ip,
                target_mac: Mac::ZERO,
                target_ip: ip,
            };
            Frame { destination: Mac::BROADCAST, source: mac, packet }.emit().to_vec()
        }
        IpAddr::V6(target) => {
            let message = ndp::Message::Advertisement(ndp::Advertisement {
                target,
                router: false,
                solicited: false,
                overrides: true,
                target_mac: Some(mac),
            });
            let everybody = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            let packet = ndp::Packet { source: link_local(0), destination: everybody, message };
            ndp::Frame { destination: Mac([0x33, 0x33, 0, 0, 0, 1]), source: mac, packet }.emit().to_vec()
        }
    }
}

fn link_local(node: usize) -> Ipv6Addr {
    Ipv6Addr::from(0xfe80_u128 << 112 | (1 + node as u128))
}

fn said(
    stream: StreamId,
    read: Result<Option<StreamMessage>, StreamError>,
) -> ferrolb_gossip::Input<'static> {
    let failed = |error: StreamError| ferrolb_gossip::Input::Failed { stream, failure: error.into() };
    match read {
        Ok(Some(message)) => ferrolb_gossip::Input::Received { stream, message },
        Ok(None) => failed(StreamError::Cut),
        Err(error) => failed(error),
    }
}

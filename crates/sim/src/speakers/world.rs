// SPDX-License-Identifier: Apache-2.0
//! The cluster as it runs: nodes with their speakers, the API they hear of late, and the loop of time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferrolb_gossip::wire::{Codec, Key, KeyRule, Keyring};
use ferrolb_gossip::{Settings, StreamId};
use ferrolb_l2::Interface;
use ferrolb_net_types::{Mac, NodeName, Time};
use ferrolb_speaker_core::wire::{Gossip, Peer, Wire};

use super::agenda::Agenda;
use super::bounds::{ANSWERS, Bounds, HANDOVER, HEARING, OVERLAP, QUIET, STALE, WATCH};
use super::cluster::Facts;
use super::judge::Judge;
use super::links::Links;
use super::process::{INTERFACE, Process};
use super::standin::StandIn;
use super::tally::{Cause, Mark, Tally};
use super::traffic::Event;
use super::{Shape, Violation};
use crate::rng::Rng;

pub(super) struct World {
    pub(super) now: Time,
    pub(super) shape: Shape,
    pub(super) bounds: Bounds,
    pub(super) rng: Rng,
    pub(super) nodes: Vec<Node>,
    pub(super) links: Links,
    /// Since when nothing about the links has changed.
    pub(super) links_since: Time,
    /// What the API holds now.
    pub(super) truth: Arc<Facts>,
    pub(super) judge: Judge,
    pub(super) tally: Tally,
    pub(super) agenda: Agenda<Event>,
    /// Streams that were accepted, and who opened them.
    pub(super) accepted: BTreeMap<u64, Opened>,
    pub(super) streams: u64,
    /// Streams that are being opened: by whom, which process of his, which.
    pub(super) dialling: BTreeSet<(usize, u32, StreamId)>,
    pub(super) numbers: BTreeMap<NodeName, usize>,
    timers: BTreeSet<(Time, usize)>,
    codec: Codec,
    /// How many addresses have been gained by a speaker.
    pub(super) gains: u64,
    /// What speakers said of their view of the API may have been lost on the way.
    pub(super) words_lost: bool,
    /// By when a death is known at the latest, should anything else happen before it is.
    pub(super) known_by: Option<Time>,
    /// The first rule that was broken.
    pub(super) broken: Option<Violation>,
    story: Option<Vec<String>>,
}

/// A stream as its opener knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) at: usize,
    pub(super) by: usize,
    pub(super) epoch: u32,
    pub(super) stream: StreamId,
}

/// A node, and the speaker on it.
pub(super) struct Node {
    pub(super) name: NodeName,
    pub(super) address: SocketAddr,
    /// Whether MetalLB's speaker is the one that is started there.
    pub(super) metallb: bool,
    /// Whether its network answers at all.
    pub(super) up: bool,
    /// Whether the API counts it among the Ready.
    pub(super) ready: bool,
    /// Its Pod, as the API shows it.
    pub(super) pod: Option<Pod>,
    pub(super) process: Option<Process>,
    /// Counts the processes, so that what was meant for a former one does not reach this one.
    pub(super) epoch: u32,
    /// Stopped by a signal, or the machine stands still.
    pub(super) asleep: bool,
    /// What arrived meanwhile.
    pub(super) inbox: Vec<Event>,
    /// Whether the speaker reaches the API.
    pub(super) api: bool,
    pub(super) api_changes: u32,
    /// It has read who else should be there.
    pub(super) listed: bool,
    /// When it did so first.
    pub(super) listed_at: Time,
    /// It has been told that it has lost the API.
    pub(super) stale: bool,
    /// What the speaker knows of the API.
    pub(super) facts: Arc<Facts>,
    /// It has heard the others.
    pub(super) eligible: bool,
    /// Since when it has, and has not stood still.
    pub(super) there_since: Time,
    /// By its own account it may answer now.
    pub(super) may_answer: bool,
    /// The members that it sees.
    pub(super) sees: BTreeSet<NodeName>,
    /// What it answers for.
    pub(super) owned: BTreeSet<IpAddr>,
    /// What it answered for when it was brought to a stand.
    pub(super) held: BTreeSet<IpAddr>,
    deadline: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pod {
    Runs,
    Terminates,
}

/// Above so many nodes who starts hears a few of the others only: that each of a thousand exchanges everything with a
/// thousand others is not what a large cluster is for here.
const LARGE: u16 = 200;
/// How many those few are.
const FEW: usize = 3;

impl World {
    pub(super) fn new(seed: u64, shape: Shape, telling: bool) -> Self {
        let mut rng = Rng::new(seed);
        let names: Arc<[NodeName]> =
            (0..shape.nodes).map(|number| NodeName::from(format!("node-{number}"))).collect();
        let truth = Arc::new(Facts::new(shape, names.clone(), &mut rng));
        let metallb: BTreeSet<usize> = {
            let mut all: Vec<usize> = (0..names.len()).collect();
            let count = usize::from(shape.metallb.min(shape.nodes));
            (0..count).map(|_| all.swap_remove(rng.index(all.len()))).collect()
        };
        let node = |(number, name): (usize, &NodeName)| Node {
            name: name.clone(),
            address: SocketAddr::new(Ipv4Addr::from(0x0a00_0001 + number as u32).into(), PORT),
            metallb: metallb.contains(&number),
            up: true,
            ready: true,
            pod: None,
            process: None,
            epoch: 0,
            asleep: false,
            inbox: Vec::new(),
            api: true,
            api_changes: 0,
            listed: false,
            listed_at: Time::ZERO,
            stale: false,
            facts: truth.clone(),
            eligible: false,
            there_since: Time::ZERO,
            may_answer: false,
            sees: BTreeSet::new(),
            owned: BTreeSet::new(),
            held: BTreeSet::new(),
            deadline: None,
        };
        // Encryption has no part in who leads; some clusters have it all the same.
        let key = (shape.nodes <= 10 && rng.chance(10))
            .then(|| Key::of_secret(b"Zm9vYmFyYmF6cXV4Zm9vYg", KeyRule::Truncated))
            .flatten();
        Self {
            now: Time::ZERO,
            shape,
            bounds: Bounds::new(names.len(), shape.metallb > 0),
            nodes: names.iter().enumerate().map(node).collect(),
            links: Links::new(names.len()),
            links_since: Time::ZERO,
            truth,
            judge: Judge::default(),
            tally: Tally::default(),
            agenda: Agenda::new(),
            accepted: BTreeMap::new(),
            streams: 0,
            dialling: BTreeSet::new(),
            numbers: names.iter().enumerate().map(|(number, name)| (name.clone(), number)).collect(),
            timers: BTreeSet::new(),
            codec: Codec::new(key.map(|key| Keyring::new(key, Vec::new()))),
            gains: 0,
            words_lost: false,
            known_by: None,
            broken: None,
            story: telling.then(Vec::new),
            rng,
        }
    }

    /// Tells what happens, if somebody listens.
    pub(super) fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:>9.3} s  {}", self.now.since_start().as_secs_f64(), what()));
        }
    }

    pub(super) fn take_story(&mut self) -> Vec<String> {
        self.story.take().unwrap_or_default()
    }

    pub(super) fn fail(&mut self, rule: Mark, what: impl FnOnce() -> String) {
        if self.broken.is_none() {
            let what = what();
            self.tell(|| format!("BROKEN: {what}"));
            self.broken = Some(Violation { rule, what });
        }
    }

    /// Runs until that time, or until all is well if `early`.
    pub(super) fn run_until(&mut self, end: Time, early: bool) {
        let mut look = self.now + LOOK;
        while self.broken.is_none() {
            if early && self.now >= look {
                look = self.now + LOOK;
                if self.is_well() {
                    return;
                }
            }
            let (event, timer) = (self.agenda.next(), self.timers.first().copied());
            let next = event.into_iter().chain(timer.map(|(at, _)| at)).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            // What has arrived is handed in before what is due.
            if event == Some(next) {
                if let Some(event) = self.agenda.take() {
                    self.happen(event);
                }
            } else if let Some((_, number)) = timer {
                self.timeout(number);
            }
        }
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time, false);
    }

    /// Runs until all is well, and no longer than it may take.
    pub(super) fn settle(&mut self) {
        while self.broken.is_none() && self.now < self.judge.right_by() && !self.is_well() {
            self.run_until(self.judge.right_by(), true);
        }
        if self.broken.is_none() && self.links.is_sound() && self.all_informed() {
            self.judge_right();
        }
    }

    /// A speaker is started on the node: of MetalLB or of ours.
    pub(super) fn start(&mut self, number: usize) {
        let mut seed = [0; 32];
        for part in seed.chunks_mut(8) {
            part.copy_from_slice(&self.rng.next().to_be_bytes());
        }
        let now = self.now;
        let codec = self.codec.clone();
        let interface = interface(number);
        let truth = self.truth.clone();
        let node = &mut self.nodes[number];
        let name = node.name.as_str().into();
        node.facts = truth.clone();
        node.pod = Some(Pod::Runs);
        node.epoch += 1;
        node.asleep = false;
        node.held.clear();
        node.inbox.clear();
        node.eligible = false;
        node.may_answer = false;
        node.stale = false;
        node.listed = false;
        node.process = Some(if node.metallb {
            let settings = Settings::plain(name, node.address, codec);
            let speaker = StandIn::start(now, node.name.clone(), settings, seed, &interface, truth);
            Process::Metallb(Box::new(speaker))
        } else {
            let settings = Settings::speaker(name, node.address, codec);
            let mut wire = Wire::new(node.name.clone(), Some(Gossip { settings, seed }));
            use ferrolb_speaker_core::wire::Input;
            wire.handle(now, Input::Interfaces(&[interface]));
            wire.handle(now, Input::Plan(truth.plan.clone()));
            Process::Ours(Box::new(wire))
        });
        let (kind, epoch) = (if node.metallb { "MetalLB's" } else { "ours" }, node.epoch);
        self.tell(|| format!("a speaker starts on node-{number}, one of {kind}"));
        let moved = HANDOVER + OVERLAP + self.bounds.spread();
        if self.nodes[number].metallb {
            self.tally.count(Mark::MetallbStarted);
            let alone = Duration::from_secs(1) + moved;
            self.judge.disturb(self.now, Cause::Start, alone, alone);
        } else {
            self.judge.disturb(self.now, Cause::Start, Duration::ZERO, HEARING + moved);
        }
        self.drain(number);
        // In a large cluster those that start at once are to be told of each other by gossip, many at a time.
        let soon = if self.is_large() { self.now + Duration::from_millis(5) } else { self.soon() };
        self.agenda.add(soon, Event::Pods { to: number, epoch });
    }

    /// Its process is gone at once.
    pub(super) fn kill(&mut self, number: usize) {
        self.dialling.retain(|(by, ..)| *by != number);
        let node = &mut self.nodes[number];
        node.process = None;
        node.asleep = false;
        node.inbox.clear();
        self.schedule(number);
        self.look_at_owned(number);
    }

    /// Something changes in the API; everybody hears of it late.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Facts, &mut Rng)) {
        let mut facts = Facts::clone(&self.truth);
        change(&mut facts, &mut self.rng);
        facts.replan();
        self.truth = Arc::new(facts);
        for to in 0..self.nodes.len() {
            let delay = Duration::from_micros(self.rng.below(WATCH.as_micros() as u64));
            self.agenda.add(self.now + delay, Event::Watch { to });
        }
        let right = WATCH + HANDOVER + OVERLAP;
        // Who hears of it while something else is under way may have given up what another believes to have had all along.
        let more = if self.now < self.judge.right_by() { HANDOVER } else { Duration::ZERO };
        self.judge.disturb(self.now, Cause::Change, WATCH + more, right);
    }

    pub(super) fn set_api(&mut self, number: usize, reaches: bool) {
        let node = &mut self.nodes[number];
        if node.api == reaches {
            return;
        }
        node.api = reaches;
        node.api_changes += 1;
        let changes = node.api_changes;
        if reaches {
            let noticed = self.soon() + self.within(ANSWERS);
            self.agenda.add(noticed, Event::Watch { to: number });
            self.agenda.add(noticed, Event::ApiBack { to: number, changes });
        } else {
            let quiet = self.within(QUIET);
            self.agenda.add(self.now + (STALE - quiet), Event::ApiLost { to: number, changes });
        }
    }

    /// Everybody reads the list of Pods, as after a change of nodes.
    pub(super) fn everybody_lists(&mut self) {
        for number in 0..self.nodes.len() {
            self.list(number);
        }
    }

    /// The speaker there reads the list of Pods.
    pub(super) fn list(&mut self, number: usize) {
        let (soon, epoch) = (self.soon(), self.nodes[number].epoch);
        self.agenda.add(soon, Event::Pods { to: number, epoch });
    }

    /// The speakers' Pods but that of one node. In a large cluster who starts is told of a few only.
    pub(super) fn peers(&mut self, of: usize) -> Vec<Peer> {
        let few: Option<BTreeSet<usize>> = (self.is_large() && !self.nodes[of].eligible).then(|| {
            let running: Vec<usize> =
                (0..self.nodes.len()).filter(|other| *other != of && self.nodes[*other].eligible).collect();
            // The first of all tell each other.
            let running = if running.is_empty() { self.all_but(of) } else { running };
            let count = FEW.min(running.len());
            (0..count).map(|_| running[self.rng.index(running.len())]).collect()
        });
        let peer = |(number, node): (usize, &Node)| {
            let told = number != of && few.as_ref().is_none_or(|few| few.contains(&number));
            let pod = node.pod.filter(|_| told)?;
            Some(Peer {
                node: node.name.clone(),
                address: node.address,
                awaited: pod == Pod::Runs && node.ready,
            })
        };
        self.nodes.iter().enumerate().filter_map(peer).collect()
    }

    fn all_but(&self, number: usize) -> Vec<usize> {
        let runs = |other: &usize| *other != number && self.nodes[*other].process.is_some();
        (0..self.nodes.len()).filter(runs).collect()
    }

    pub(super) const fn is_large(&self) -> bool {
        self.shape.nodes > LARGE
    }

    /// Any time up to this one.
    fn within(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.rng.below(most.as_micros() as u64 + 1))
    }

    /// How long something takes that goes through the API.
    pub(super) fn soon(&mut self) -> Time {
        self.now + Duration::from_millis(5 + self.rng.below(100))
    }

    /// Notes when the node's speaker wants to be called.
    pub(super) fn schedule(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let deadline = node.process.as_ref().filter(|_| !node.asleep).and_then(Process::next_deadline);
        if deadline != node.deadline {
            if let Some(former) = node.deadline {
                self.timers.remove(&(former, number));
            }
            if let Some(deadline) = deadline {
                self.timers.insert((deadline, number));
            }
            node.deadline = deadline;
        }
    }

    fn timeout(&mut self, number: usize) {
        let now = self.now;
        let mut calls = 0;
        loop {
            let node = &mut self.nodes[number];
            let Some(process) = node.process.as_mut().filter(|_| !node.asleep) else { break };
            if process.next_deadline().is_none_or(|deadline| deadline > now) {
                break;
            }
            process.handle_timeout(now);
            self.drain(number);
            calls += 1;
            if calls > MANY {
                self.fail(Mark::NotBusy, || {
                    format!("node-{number} has something due at once, again and again")
                });
                break;
            }
        }
        self.tally.count(Mark::NotBusy);
        self.schedule(number);
    }
}

const PORT: u16 = 7946;
/// How often a look is taken whether all is well.
const LOOK: Duration = Duration::from_millis(250);
/// More calls than that at one moment are a loop.
const MANY: u32 = 10_000;

fn interface(number: usize) -> Interface {
    let [.., high, low] = number.to_be_bytes();
    Interface {
        index: INTERFACE,
        name: "ens18".into(),
        mac: Mac([2, 0, 0, 0, high, low]),
        arp: true,
        link_local: Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number as u16 + 1)),
    }
}

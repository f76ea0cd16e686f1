// SPDX-License-Identifier: Apache-2.0
//! What reaches a node, and what its speaker then does to others.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferrolb_announce::{Members, Standing};
use ferrolb_gossip::wire::StreamMessage;
use ferrolb_gossip::{Input, Output, StreamFailure, StreamId};
use ferrolb_l2::wire::Bytes;
use ferrolb_net_types::NodeName;

use super::bounds::{BADGE, HANDOVER, HEARING, OVERLAP, REJOIN, STALE_COUNTS};
use super::links::Kind;
use super::process::Out;
use super::tally::{Cause, Mark};
use super::world::{Opened, Pod, World};

pub(super) enum Event {
    Datagram {
        from: usize,
        to: usize,
        bytes: Vec<u8>,
    },
    /// A stream is opened, for the first time or again: its opener tries until it is answered.
    Dial {
        dial: Dial,
    },
    /// A stream arrives with its message.
    Open {
        by: usize,
        epoch: u32,
        stream: StreamId,
        to: usize,
        message: StreamMessage,
    },
    /// What a stream's opener gets.
    Said {
        to: usize,
        epoch: u32,
        stream: StreamId,
        said: Result<StreamMessage, StreamFailure>,
    },
    Opened {
        to: usize,
        epoch: u32,
        stream: StreamId,
    },
    /// Nobody listens where a datagram went.
    Unreachable {
        to: usize,
        epoch: u32,
        address: SocketAddr,
    },
    Frame {
        to: usize,
        bytes: Bytes,
    },
    /// The speaker's watches tell what is new.
    Watch {
        to: usize,
    },
    /// The list of Pods was read.
    Pods {
        to: usize,
        epoch: u32,
    },
    /// The API has been away for so long that the speaker says so.
    ApiLost {
        to: usize,
        changes: u32,
    },
    ApiBack {
        to: usize,
        changes: u32,
    },
    /// The node's controller notices that a node is silent, if it still is in this epoch.
    NotReady {
        node: usize,
        epoch: u32,
    },
    /// It is time to look at who answers.
    Judge,
}

/// Whom a speaker sees, in words.
fn seen(number: usize, members: &Members) -> String {
    let Members::Known(members) = members else { return format!("node-{number} sees everybody") };
    let others = members.iter().map(|(node, standing)| match standing {
        Standing::Ours => node.to_string(),
        Standing::Stale => format!("{node} (stale)"),
        Standing::Metallb => format!("{node} (MetalLB's)"),
    });
    format!("node-{number} sees {}", others.collect::<Vec<_>>().join(", "))
}

/// A stream that is being opened.
pub(super) struct Dial {
    by: usize,
    epoch: u32,
    stream: StreamId,
    to: usize,
    message: StreamMessage,
    /// How long the next attempt is waited for.
    patience: Duration,
}

/// How long the first attempt to open a stream is waited for; each further one twice as long (RFC 6298, 5.7 with the
/// first value of RFC 6298, 2.1).
const FIRST_ATTEMPT: Duration = Duration::from_secs(1);
/// After how long nobody waits for the stream any more.
const LAST_ATTEMPT: Duration = Duration::from_secs(8);

/// What a socket's buffer holds, in datagrams.
const BUFFER: usize = 256;
/// How often the list of Pods is read when nothing happens.
const LISTS: Duration = Duration::from_secs(60);

impl World {
    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Judge => self.judge_now(),
            Event::Dial { dial } => self.dial(dial),
            Event::NotReady { node, epoch } => {
                let node = &mut self.nodes[node];
                if node.epoch == epoch && node.process.is_none() {
                    node.ready = false;
                }
            }
            Event::Datagram { to, .. }
            | Event::Open { to, .. }
            | Event::Said { to, .. }
            | Event::Opened { to, .. }
            | Event::Unreachable { to, .. }
            | Event::Frame { to, .. }
            | Event::Watch { to }
            | Event::Pods { to, .. }
            | Event::ApiLost { to, .. }
            | Event::ApiBack { to, .. } => {
                let node = &mut self.nodes[to];
                if node.asleep {
                    let full = node.inbox.len() >= BUFFER;
                    if !(full && matches!(event, Event::Datagram { .. } | Event::Frame { .. })) {
                        node.inbox.push(event);
                    }
                    return;
                }
                self.arrive(to, event);
            }
        }
    }

    fn arrive(&mut self, to: usize, event: Event) {
        let now = self.now;
        if self.nodes[to].process.is_none() {
            return self.nobody_there(to, event);
        }
        let node = &mut self.nodes[to];
        let current = node.epoch;
        let Some(process) = &mut node.process else { return };
        match event {
            Event::Datagram { from, bytes, .. } => {
                let source = self.nodes[from].address;
                if let Some(process) = &mut self.nodes[to].process {
                    process.gossip(now, Input::Datagram { source, bytes: &bytes });
                }
            }
            Event::Open { by, epoch, stream, message, .. } => {
                return self.accept(to, by, epoch, stream, message);
            }
            Event::Said { epoch, stream, said, .. } if epoch == current => match said {
                Ok(message) => process.gossip(now, Input::Received { stream, message }),
                Err(failure) => process.gossip(now, Input::Failed { stream, failure }),
            },
            Event::Opened { epoch, stream, .. } if epoch == current => {
                process.gossip(now, Input::Connected(stream));
            }
            Event::Unreachable { epoch, address, .. } if epoch == current => {
                process.gossip(now, Input::Unreachable(address));
            }
            Event::Frame { bytes, .. } => process.frame(now, &bytes),
            Event::Watch { .. } if node.api => {
                node.facts = self.truth.clone();
                process.set_facts(now, &node.facts);
            }
            Event::Pods { epoch, .. } if epoch == current => return self.listed(to, epoch),
            Event::ApiLost { changes, .. } if changes == node.api_changes => {
                node.stale = true;
                process.set_api(now, false);
                self.views_differ();
            }
            Event::ApiBack { changes, .. } if changes == node.api_changes => {
                let listed = node.listed;
                if node.stale {
                    node.stale = false;
                    process.set_api(now, true);
                    self.views_differ();
                }
                if !listed {
                    self.list(to);
                }
            }
            _ => return,
        }
        self.drain(to);
    }

    /// Speakers hear one after the other that some have lost the API or have it again, which counts after a
    /// while. Until all know, two may believe to lead; neither announces again what it believes to have had all along.
    fn views_differ(&mut self) {
        let moved = STALE_COUNTS + BADGE + self.bounds.spread() + HANDOVER + OVERLAP;
        self.judge.disturb(self.now, Cause::Api, moved, moved);
    }

    /// What a node does where no speaker runs.
    fn nobody_there(&mut self, at: usize, event: Event) {
        if !self.nodes[at].up {
            return;
        }
        match event {
            Event::Datagram { from, .. } => {
                let (epoch, address) = (self.nodes[from].epoch, self.nodes[at].address);
                self.send(at, from, Kind::Stream, Event::Unreachable { to: from, epoch, address });
            }
            Event::Open { by, epoch, stream, .. } => {
                let said = Err(StreamFailure::Refused);
                self.send(at, by, Kind::Stream, Event::Said { to: by, epoch, stream, said });
            }
            _ => {}
        }
    }

    fn accept(&mut self, to: usize, by: usize, epoch: u32, stream: StreamId, message: StreamMessage) {
        self.streams += 1;
        let number = self.streams;
        self.accepted.insert(number, Opened { at: to, by, epoch, stream });
        self.send(to, by, Kind::Stream, Event::Opened { to: by, epoch, stream });
        let (now, source) = (self.now, SocketAddr::new(self.nodes[by].address.ip(), 40_000));
        if let Some(process) = &mut self.nodes[to].process {
            process.gossip(now, Input::Accepted { stream: number, source });
            process.gossip(now, Input::Received { stream: StreamId::Accepted(number), message });
        }
        self.drain(to);
    }

    /// The list of Pods is read, and the next reading planned.
    fn listed(&mut self, to: usize, epoch: u32) {
        if self.nodes[to].api {
            if !std::mem::replace(&mut self.nodes[to].listed, true) {
                self.nodes[to].listed_at = self.now;
                let right = HEARING + HANDOVER + OVERLAP + self.bounds.spread();
                self.judge.disturb(self.now, Cause::Start, Duration::ZERO, right);
            }
            let peers = self.peers(to);
            let now = self.now;
            if let Some(process) = &mut self.nodes[to].process {
                process.set_peers(now, &peers);
            }
            self.drain(to);
        }
        self.agenda.add(self.now + LISTS, Event::Pods { to, epoch });
    }

    /// Does what the speaker of a node wants done.
    pub(super) fn drain(&mut self, number: usize) {
        let now = self.now;
        while let Some(out) = self.nodes[number].process.as_mut().and_then(|process| process.poll(now)) {
            match out {
                Out::Gossip(output) => self.gossip(number, output),
                Out::Frame { address, frame } => self.announce(number, address, frame),
                Out::Report(report) => {
                    if let Some(membership) = report.membership {
                        self.membership(number, &membership);
                    }
                }
                Out::Members(members) => {
                    self.sees(number, &members);
                }
                Out::Ended => {
                    self.tell(|| format!("the speaker on node-{number} has ended"));
                    self.nodes[number].pod = None;
                    self.kill(number);
                }
            }
        }
        self.schedule(number);
        self.look_at_owned(number);
    }

    fn membership(&mut self, number: usize, membership: &ferrolb_speaker_core::wire::Membership) {
        let former = self.nodes[number].sees.clone();
        let lost = self.sees(number, &membership.members);
        if self.shape.metallb > 0 {
            self.look_at_lost(number, &former);
        }
        let node = &mut self.nodes[number];
        node.may_answer = membership.eligible;
        if membership.eligible && !node.eligible {
            node.eligible = true;
            node.there_since = self.now;
            self.look_at_entry(number);
            self.tell(|| format!("node-{number} has heard the others: it may answer"));
            let right = HANDOVER + OVERLAP + self.bounds.spread();
            self.judge.disturb(self.now, Cause::Start, Duration::ZERO, right);
            if self.nodes.iter().any(|node| node.stale) {
                // It hears of that only now.
                self.views_differ();
            }
        }
        if lost {
            self.list(number);
        }
    }

    /// One of ours has given up speakers of MetalLB that run and can be reached: another one of MetalLB's still said that they
    /// had left. They are members again as soon as they are asked.
    fn look_at_lost(&mut self, number: usize, former: &BTreeSet<NodeName>) {
        let misled = former.difference(&self.nodes[number].sees).any(|name| {
            self.numbers.get(name).is_some_and(|other| {
                let node = &self.nodes[*other];
                let runs = node.process.is_some() && node.pod == Some(Pod::Runs) && !node.asleep;
                node.metallb && runs && self.links.side[*other] == self.links.side[number]
            })
        });
        if misled {
            let right = REJOIN + HANDOVER + OVERLAP + self.bounds.spread();
            self.judge.disturb(self.now, Cause::Heal, Duration::ZERO, right);
        }
    }

    /// Notes whom a speaker sees; whether it has lost somebody.
    fn sees(&mut self, number: usize, members: &Members) -> bool {
        self.tell(|| seen(number, members));
        let sees = match members {
            Members::EveryNode => BTreeSet::new(),
            Members::Known(members) => members.keys().cloned().collect(),
        };
        let former = std::mem::replace(&mut self.nodes[number].sees, sees);
        // One that was only expected to be a member is no loss.
        let was_there = |name: &&NodeName| {
            let node = self.numbers.get(*name).map(|number| &self.nodes[*number]);
            node.is_some_and(|node| node.metallb || node.eligible)
        };
        let lost = former.difference(&self.nodes[number].sees).any(|node| was_there(&node));
        if self.shape.metallb > 0 && former != self.nodes[number].sees {
            self.judge_now();
        }
        lost
    }

    fn gossip(&mut self, from: usize, output: Output) {
        match output {
            Output::Datagram { to, bytes } => {
                self.tally.datagrams += 1;
                if let Some(to) = self.number_at(to) {
                    self.send(from, to, Kind::Datagram, Event::Datagram { from, to, bytes });
                }
            }
            Output::Open { stream, to, message } => {
                if let Some(to) = self.number_at(to) {
                    let epoch = self.nodes[from].epoch;
                    self.dialling.insert((from, epoch, stream));
                    self.dial(Dial { by: from, epoch, stream, to, message, patience: FIRST_ATTEMPT });
                }
            }
            Output::Answer { stream, message } => {
                if let StreamId::Accepted(number) = stream {
                    self.answer(from, number, Ok(message));
                }
                let now = self.now;
                if let Some(process) = &mut self.nodes[from].process {
                    process.gossip(now, Input::Closed(stream));
                }
            }
            Output::Close(StreamId::Accepted(number)) => {
                let failure = StreamFailure::Connection("connection reset".to_owned());
                self.answer(from, number, Err(failure));
            }
            Output::Close(stream) => {
                let epoch = self.nodes[from].epoch;
                self.dialling.remove(&(from, epoch, stream));
            }
            _ => {}
        }
    }

    /// Opens a stream, or tries again later: the kernel does that by itself until the process gives the stream up.
    fn dial(&mut self, dial: Dial) {
        let Dial { by, epoch, stream, to, message, patience } = dial;
        if !self.dialling.contains(&(by, epoch, stream)) {
            return;
        }
        if self.nodes[to].up && self.links.open(by, to, Kind::Stream) && self.links.open(to, by, Kind::Stream)
        {
            self.dialling.remove(&(by, epoch, stream));
            self.send(by, to, Kind::Stream, Event::Open { by, epoch, stream, to, message });
        } else if patience < LAST_ATTEMPT {
            let dial = Dial { by, epoch, stream, to, message, patience: patience * 2 };
            self.agenda.add(self.now + patience, Event::Dial { dial });
        }
    }

    fn answer(&mut self, from: usize, number: u64, said: Result<StreamMessage, StreamFailure>) {
        let Some(opened) = self.accepted.remove(&number).filter(|opened| opened.at == from) else { return };
        let Opened { by, epoch, stream, .. } = opened;
        self.send(from, by, Kind::Stream, Event::Said { to: by, epoch, stream, said });
    }

    /// An announcement reaches whoever answers for the address too: everybody else's kernel drops it.
    fn announce(&mut self, from: usize, address: IpAddr, bytes: Bytes) {
        for to in 0..self.nodes.len() {
            if to != from && self.nodes[to].owned.contains(&address) {
                self.send(from, to, Kind::Frame, Event::Frame { to, bytes });
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, kind: Kind, event: Event) {
        if let Some(delay) = self.links.carry(&mut self.rng, from, to, kind).filter(|_| self.nodes[to].up) {
            self.agenda.add(self.now + delay, event);
        }
    }

    fn number_at(&self, address: SocketAddr) -> Option<usize> {
        let IpAddr::V4(ip) = address.ip() else { return None };
        let number = ip.to_bits().checked_sub(0x0a00_0001)? as usize;
        (number < self.nodes.len()).then_some(number)
    }

    /// The process is stopped where it is, as by a signal.
    pub(super) fn put_to_sleep(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.asleep = true;
        node.held = node.owned.clone();
        self.schedule(number);
        self.look_at_owned(number);
    }

    /// It goes on: first it takes what has arrived, then it does what is due.
    pub(super) fn wake(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if !std::mem::take(&mut node.asleep) {
            return;
        }
        node.there_since = self.now;
        // At this moment it answers for what it answered for before.
        self.look_at_owned(number);
        let node = &mut self.nodes[number];
        node.held.clear();
        let arrived = std::mem::take(&mut node.inbox);
        for event in arrived {
            self.arrive(number, event);
        }
        self.schedule(number);
        self.look_at_owned(number);
    }

    /// Notes who answers for what, if that has changed.
    pub(super) fn look_at_owned(&mut self, number: usize) {
        let node = &self.nodes[number];
        let owned = match node.process.as_ref().filter(|_| !node.asleep) {
            Some(process) => process.owned_unless(&node.owned),
            None => (!node.owned.is_empty()).then(Default::default),
        };
        let Some(owned) = owned else { return };
        let former = std::mem::replace(&mut self.nodes[number].owned, owned.clone());
        let gained: Vec<IpAddr> = owned.difference(&former).copied().collect();
        let lost: Vec<IpAddr> = former.difference(&owned).copied().collect();
        self.tell(|| format!("node-{number} owns {owned:?}"));
        for address in &gained {
            self.tally.count(Mark::Moved);
            self.gains += 1;
            if !self.nodes[number].held.contains(address) {
                self.look_at_gain(number, *address);
            }
        }
        self.judge_owners(number, &gained, &lost);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The engine: what a member hears, what it says, what it concludes.
//!
//! One file per concern: `rules` (what a word about a member changes), `probe` (asking whether the others are there),
//! `spread` (datagrams and what they carry), `exchange` (streams), `reunion` (finding together again).

mod exchange;
mod probe;
mod reunion;
mod rules;
mod spread;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferrolb_net_types::Time;
use thiserror::Error;

use crate::broadcast::Broadcasts;
use crate::member::{Member, Members};
use crate::name::Name;
use crate::random::Random;
use crate::settings::{MAX_META, Role, Settings};
use crate::suspicion::Suspicion;
use crate::timing::{Ticker, push_pull_interval};
use crate::wire::{State, StreamError, StreamMessage};
use exchange::Stream;
use probe::{Probe, Relay};
use reunion::Reunion;

/// A stream, by a number that stands for it as long as the engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamId {
    /// One that the engine asked for; it numbers them.
    Dialled(u64),
    /// One that somebody opened; the caller numbers them.
    Accepted(u64),
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A datagram came. Hand in what has been received before [`Engine::handle_timeout`]: an answer that lies in a
    /// buffer is an answer.
    Datagram {
        /// Where from.
        source: SocketAddr,
        /// All of it.
        bytes: &'a [u8],
    },
    /// Nothing can be sent to this address: there is no route, or its port is closed.
    Unreachable(SocketAddr),
    /// Somebody opened a stream.
    Accepted {
        /// Its number.
        stream: u64,
        /// Where from.
        source: SocketAddr,
    },
    /// A stream that was asked for is open, and its message written.
    Connected(StreamId),
    /// A stream said its message.
    Received {
        /// Which.
        stream: StreamId,
        /// What a [`crate::wire::StreamReader`] read from it.
        message: StreamMessage,
    },
    /// A stream could not be opened, ended before its message was whole, or says what cannot be read.
    Failed {
        /// Which.
        stream: StreamId,
        /// Why.
        failure: StreamFailure,
    },
    /// A stream is over: everything was written and it was closed.
    Closed(StreamId),
    /// The own metadata is this from now on; what exceeds [`MAX_META`] bytes is cut.
    Metadata(&'a [u8]),
    /// Exchange everything with these. A member joins them, a reader only learns what they know.
    Join(&'a [SocketAddr]),
    /// These should be members: the addresses of all Pods that run. Replaces the last such list.
    Candidates(&'a [SocketAddr]),
    /// Be a member from now on.
    Participate,
    /// Send these bytes of the application's to a member, once, in a datagram.
    Tell {
        /// To whom.
        member: &'a Name,
        /// What.
        payload: &'a [u8],
    },
    /// Tell the others that this member leaves; [`Output::Left`] follows within this time. Until it is dropped the
    /// engine goes on answering.
    Leave {
        /// How long spreading it may take.
        within: Duration,
    },
    /// After a leave: be a reader again, with all that is known.
    Return,
    /// This process did not run for a while: it was suspended or stopped. What was under way is worth nothing, nobody
    /// had the chance to answer, and what waits to be read is old.
    Woken,
}

/// Why a stream has no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StreamFailure {
    /// Nothing listens there.
    #[error("connection refused")]
    Refused,
    /// It was never open, or was reset; the operating system's words.
    #[error("{0}")]
    Connection(String),
    /// What it says cannot be read, or it ended too early.
    #[error(transparent)]
    Unreadable(#[from] StreamError),
}

/// Something to be done, or to be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this datagram.
    Datagram {
        /// Where to.
        to: SocketAddr,
        /// All of it.
        bytes: Vec<u8>,
    },
    /// Open a stream and write this message, by [`crate::wire::Codec::stream`]; report by [`Input::Connected`], then
    /// [`Input::Received`] or [`Input::Failed`].
    Open {
        /// Its number.
        stream: StreamId,
        /// Where to.
        to: SocketAddr,
        /// What to say.
        message: StreamMessage,
    },
    /// Write this message to a stream that was accepted, close it, and report by [`Input::Closed`].
    Answer {
        /// Which.
        stream: StreamId,
        /// What to say.
        message: StreamMessage,
    },
    /// Close a stream, whatever it does. It is not to be reported on any more.
    Close(StreamId),
    /// Who is a member has changed.
    Member {
        /// How.
        change: Change,
        /// The member as it is now; the own one too.
        member: Member,
    },
    /// An exchange that was asked for, or due, is over.
    Exchanged {
        /// With whom.
        with: SocketAddr,
        /// How many members it knows, dead ones included; or why not.
        result: Result<usize, ExchangeError>,
    },
    /// A candidate that is missed was heard from; an exchange with it begins. Not more often than every half second.
    Heard(SocketAddr),
    /// Bytes of the application's, which speakers of MetalLB never send.
    Told {
        /// Where from.
        source: SocketAddr,
        /// What.
        payload: Vec<u8>,
    },
    /// Something that somebody should see. The same is not said again within a minute.
    Notice(Notice),
    /// The others have been told that this member leaves, or the time for that is over.
    Left,
}

/// How who is a member has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is a member now.
    Joined,
    /// Its metadata has changed.
    Updated,
    /// It has left: it said so itself.
    Left,
    /// It is dead.
    Died {
        /// Who says so.
        accuser: Name,
    },
}

/// Why an exchange failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExchangeError {
    /// No stream, or nothing readable on it.
    #[error(transparent)]
    Stream(#[from] StreamFailure),
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The other side could not read what was sent; its words.
    #[error("the other side refused: {0}")]
    Refused(String),
    /// An answer of another kind.
    #[error("the answer is no list of members")]
    Unexpected,
    /// Members whose versions do not go together; nothing was taken from the list.
    #[error("versions do not go together: {0} speaks one that not all understand")]
    Versions(Name),
}

/// Something that somebody should see.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// Datagrams or streams come from there that no key of ours opens, or that are not encrypted.
    Undecryptable(IpAddr),
    /// Datagrams or streams come from there with another cluster's label.
    Label(IpAddr),
    /// A member's name is also claimed at another address, which is ignored.
    Conflict {
        /// The name.
        name: Name,
        /// Where it claims to be.
        claimed: Vec<u8>,
    },
    /// A member answers on streams but not to datagrams: something in between drops those.
    DatagramsBlocked(Name),
    /// One of which that was said answers datagrams again. This is said every time.
    DatagramsPass(Name),
    /// Exchanges fail since this member speaks a version that not all understand.
    Versions(Name),
}

/// What has been counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that no key opens.
    pub undecryptable: u64,
    /// Datagrams refused for other reasons.
    pub refused: u64,
    /// Parts of datagrams that could not be read.
    pub unreadable: u64,
    /// Words about members that cannot be true: no address, no versions, no name, or too long.
    pub senseless: u64,
}

/// A member of a cluster, without its sockets and its clock.
///
/// It never fails and never blocks. Work per call is bounded by what was handed in.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    role: Role,
    random: Random,
    members: Members,
    /// The own incarnation: as a reader, the highest that anybody has said; none if nobody has.
    incarnation: Option<u32>,
    /// As a reader: somebody holds its former process for alive.
    held_alive: bool,
    sequence: u32,
    health: u32,
    news: Broadcasts,
    suspicions: BTreeMap<Name, Suspicion>,
    probe: Option<Probe>,
    probe_place: usize,
    probe_tick: Option<Ticker>,
    /// A tick came while a probe was running.
    probe_due: bool,
    /// When a member last answered a probe by a datagram.
    acknowledged: Option<Time>,
    /// Members that answered a probe by a stream only, and none by a datagram since.
    blocked: BTreeSet<Name>,
    relays: BTreeMap<u32, Relay>,
    gossip_tick: Option<Ticker>,
    push_pull_at: Option<Time>,
    streams: BTreeMap<StreamId, Stream>,
    dialled: u64,
    waiting: VecDeque<SocketAddr>,
    reunion: Reunion,
    /// Until when leaving may take; none: not leaving, or done.
    leaving: Option<Time>,
    has_left: bool,
    notices: BTreeMap<Notice, Time>,
    /// When notices that may be said again were last forgotten.
    swept: Time,
    counters: Counters,
    outputs: VecDeque<Output>,
}

/// How many members are remembered at most; names beyond are ignored.
pub const MAX_MEMBERS: usize = 16_384;
const NOTICE_AGAIN: Duration = Duration::from_secs(60);
const MAX_NOTICES: usize = 256;

impl Engine {
    /// A member that starts now. The seed decides every chance: it is to be 32 bytes that nobody can guess and nobody
    /// has used, since nonces come from it.
    #[must_use]
    pub fn new(now: Time, settings: Settings, seed: [u8; 32]) -> Self {
        let role = settings.role;
        let mut engine = Self {
            role: Role::Reader,
            random: Random::new(seed),
            members: Members::default(),
            incarnation: None,
            held_alive: false,
            sequence: 0,
            health: 0,
            news: Broadcasts::default(),
            suspicions: BTreeMap::new(),
            probe: None,
            probe_place: 0,
            probe_tick: None,
            probe_due: false,
            acknowledged: None,
            blocked: BTreeSet::new(),
            relays: BTreeMap::new(),
            gossip_tick: None,
            push_pull_at: None,
            streams: BTreeMap::new(),
            dialled: 0,
            waiting: VecDeque::new(),
            reunion: Reunion::default(),
            leaving: None,
            has_left: false,
            notices: BTreeMap::new(),
            swept: now,
            counters: Counters::default(),
            outputs: VecDeque::new(),
            settings,
        };
        if let Some(meta) = &mut engine.settings.meta {
            meta.truncate(MAX_META);
        }
        if role == Role::Member {
            engine.participate(now);
        }
        engine
    }

    /// Takes something that happened.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        if self.news.is_empty()
            && let Some(tick) = &mut self.gossip_tick
        {
            // Ticks that had nothing to send; the news that come now wait for the next one.
            tick.fire(now);
        }
        match input {
            Input::Datagram { source, bytes } => self.datagram(now, source, bytes),
            Input::Unreachable(address) => self.unreachable(now, address),
            Input::Accepted { stream, source } => self.accepted(now, StreamId::Accepted(stream), source),
            Input::Connected(stream) => self.connected(now, stream),
            Input::Received { stream, message } => self.stream_said(now, stream, message),
            Input::Failed { stream, failure } => self.stream_failed(now, stream, failure),
            Input::Closed(stream) => {
                self.streams.remove(&stream);
            }
            Input::Metadata(meta) => self.set_metadata(meta),
            Input::Join(addresses) => addresses.iter().for_each(|address| self.exchange(now, *address)),
            Input::Candidates(addresses) => self.candidates(now, addresses),
            Input::Participate => self.participate(now),
            Input::Tell { member, payload } => self.tell(member, payload),
            Input::Leave { within } => self.leave(now, within),
            Input::Return => {
                self.held_alive = false;
                self.come_back(now);
            }
            Input::Woken => self.woken(now),
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.expire_relays(now);
        self.expire_streams(now);
        self.expire_suspicions(now);
        self.advance_probe(now);
        // A probe that failed may have been the last accusation that was wanted.
        self.expire_suspicions(now);
        self.gossip(now);
        self.push_pull(now);
        self.reunite(now);
        // Those that want to be tried now may have had others' time run out.
        while self.streams_deadline().is_some_and(|deadline| deadline <= now) {
            self.expire_streams(now);
        }
        if self.leaving.is_some_and(|deadline| deadline <= now) {
            self.left();
        }
    }

    /// What is to be done or known next; call until there is nothing.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Engine::handle_timeout`] is to be called, at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let gossip = self.gossip_tick.filter(|_| !self.news.is_empty()).map(|tick| tick.next());
        [
            self.probe.as_ref().map(Probe::deadline),
            self.probe_tick.map(|tick| tick.next()),
            gossip,
            self.push_pull_at,
            self.reunion.deadline(!self.suspicions.is_empty()),
            self.leaving,
            self.streams_deadline(),
        ]
        .into_iter()
        .flatten()
        .chain(self.relays.values().map(Relay::deadline))
        .chain(self.suspicions.values().map(Suspicion::deadline))
        .min()
    }

    /// Everybody that is remembered, dead ones and the own one included, in no particular order.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    /// One of them.
    #[must_use]
    pub fn member(&self, name: &Name) -> Option<&Member> {
        self.members.get(name)
    }

    /// Whether it is a member itself.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// How far it mistrusts its own network: 0 is well. Each step lets others take one probe interval longer to answer.
    #[must_use]
    pub const fn health(&self) -> u32 {
        self.health
    }

    /// Whether a list of somebody's, since this one began to read, has held its former process for alive or suspect.
    #[must_use]
    pub const fn is_held_alive(&self) -> bool {
        self.held_alive
    }

    /// When a member last answered a probe of this one by a datagram, itself or through others.
    #[must_use]
    pub const fn acknowledged(&self) -> Option<Time> {
        self.acknowledged
    }

    /// What has been counted.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    fn participate(&mut self, now: Time) {
        if self.role == Role::Member || self.has_left {
            return;
        }
        self.role = Role::Member;
        // Above everything that was ever said of this name, so that nobody holds it for old.
        let incarnation = self.incarnation.map_or(1, |said| said.saturating_add(1));
        self.incarnation = Some(incarnation);
        let own = Member {
            name: self.settings.name.clone(),
            address: crate::member::address_bytes(self.settings.address.ip()),
            port: self.settings.address.port(),
            meta: self.settings.meta.clone(),
            versions: self.settings.versions,
            incarnation,
            state: State::Alive,
            changed: now,
        };
        self.members.insert(own.clone(), &mut self.random);
        self.announce_own();
        self.say_hello();
        let plain = self.plain();
        self.reunion.participate(now, self.settings.knock, plain);
        self.outputs.push_back(Output::Member { change: Change::Joined, member: own });
        let profile = &self.settings.profile;
        self.probe_tick = Ticker::start(now, profile.probe_interval);
        self.gossip_tick = Ticker::start(now, profile.gossip_interval).filter(|_| profile.gossip_nodes > 0);
        if !profile.push_pull_interval.is_zero() {
            let interval = push_pull_interval(profile.push_pull_interval, self.members.len());
            self.push_pull_at = Some(now + self.random.part(profile.push_pull_interval) + interval);
        }
    }

    fn leave(&mut self, now: Time, within: Duration) {
        if self.has_left {
            return;
        }
        self.has_left = true;
        let own = self.settings.name.clone();
        let Some(member) = self.members.get_mut(&own) else {
            // A reader was never there.
            self.outputs.push_back(Output::Left);
            return;
        };
        member.state = State::Left;
        member.changed = now;
        let member = member.clone();
        self.announce_dead(member.incarnation, &own, &own);
        self.outputs.push_back(Output::Member { change: Change::Left, member });
        let others = self.members.iter().any(|member| member.name != own && member.is_usable());
        self.leaving = Some(now + within);
        if others {
            self.say_goodbye();
        } else {
            self.left();
        }
    }

    fn come_back(&mut self, now: Time) {
        if !self.has_left {
            return;
        }
        self.left();
        self.has_left = false;
        self.role = Role::Reader;
        self.end_probe();
        (self.probe_tick, self.gossip_tick, self.push_pull_at) = (None, None, None);
        self.probe_due = false;
        self.news = Broadcasts::default();
        let own = self.settings.name.clone();
        self.members.renew(&mut self.random, |member| member.name != own);
        self.probe_place = 0;
        self.reunion.resume(now, self.settings.rejoin);
    }

    fn woken(&mut self, now: Time) {
        self.end_probe();
        self.relays.clear();
        self.waiting.clear();
        let dialled: Vec<StreamId> =
            self.streams.keys().filter(|stream| matches!(stream, StreamId::Dialled(_))).copied().collect();
        dialled.into_iter().for_each(|stream| self.close(stream));
        self.suspicions.values_mut().for_each(|suspicion| suspicion.restart(now));
    }

    fn left(&mut self) {
        if self.leaving.take().is_some() {
            self.outputs.push_back(Output::Left);
        }
    }

    fn set_metadata(&mut self, meta: &[u8]) {
        let meta = Some(meta[..meta.len().min(MAX_META)].to_vec());
        if self.settings.meta == meta {
            return;
        }
        self.settings.meta.clone_from(&meta);
        if self.role == Role::Reader || self.has_left {
            return;
        }
        let incarnation = self.incarnation.map_or(1, |own| own.saturating_add(1));
        self.incarnation = Some(incarnation);
        let own = self.settings.name.clone();
        if let Some(member) = self.members.get_mut(&own) {
            member.meta = meta;
            member.incarnation = incarnation;
            let member = member.clone();
            self.outputs.push_back(Output::Member { change: Change::Updated, member });
        }
        self.announce_own();
        self.say_what_changed();
    }

    fn next_sequence(&mut self) -> u32 {
        loop {
            self.sequence = self.sequence.wrapping_add(1);
            let probed = self.probe.as_ref().is_some_and(|probe| probe.sequence == self.sequence);
            if !probed && !self.relays.contains_key(&self.sequence) {
                return self.sequence;
            }
        }
    }

    fn change_health(&mut self, by: i64) {
        let worst = self.settings.profile.awareness_max.saturating_sub(1);
        let health = (i64::from(self.health) + by).clamp(0, i64::from(worst));
        // Within its bounds.
        self.health = health as u32;
    }

    fn notice(&mut self, now: Time, notice: Notice) {
        if self.notices.get(&notice).is_some_and(|said| now - *said < NOTICE_AGAIN) {
            return;
        }
        if self.notices.len() >= MAX_NOTICES && now - self.swept >= Duration::from_secs(1) {
            self.swept = now;
            self.notices.retain(|_, said| now - *said < NOTICE_AGAIN);
        }
        if self.notices.len() < MAX_NOTICES {
            self.notices.insert(notice.clone(), now);
            self.outputs.push_back(Output::Notice(notice));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! When this speaker may answer: once it knows what the others know, and as long as it can believe that.
//!
//! ```text
//!   Ignorant ──peers──► Reading ──all heard, or 5 s──► Open ──slept, or alone and somebody is heard──► Doubtful
//!                        │  ▲ ▲                         │ ▲                                               │
//!                   no   │  │ └── Away ◄── stale view ──┘ └───────────── a member has answered ───────────┘
//!                  plan  ▼  │ plan
//!                       Waiting
//! ```
//!
//! Everybody elects every member that it sees, so this one is to be none before it can do what it is elected for:
//! until then it reads, which the others do not see.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use ferrolb_gossip::{ExchangeError, Input, Role};
use ferrolb_net_types::Time;

use super::{Machine, lines};

/// How far this speaker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Who else should be there is not known yet.
    Ignorant,
    /// It learns what the others know, without being seen by them.
    Reading {
        /// Those that have said what they know.
        heard: BTreeSet<SocketAddr>,
        next_try: Time,
        until: Time,
    },
    /// It knows who the others are, but not what there is to announce, so it would be elected in vain.
    Waiting { next_look: Time },
    /// It is a member and answers for what it leads.
    Open,
    /// It is a member, but what it knows may be long over: it asks before it answers.
    Doubtful {
        since: Time,
        /// Somebody has said what it knows since.
        answered: bool,
        next_try: Time,
        /// When it answers anyway; none: not before anybody is known to hear it.
        until: Option<Time>,
    },
    /// It has left, since others know better what is to be announced; it looks whether that is still so.
    Away { next_look: Time },
    /// The process ends.
    Leaving {
        /// The others have been told.
        left: bool,
    },
}

impl Gate {
    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether the others have been heard, or waited for long enough.
    pub(super) const fn has_heard(&self) -> bool {
        !matches!(self, Self::Ignorant | Self::Reading { .. })
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match self {
            Self::Ignorant | Self::Open | Self::Leaving { .. } => None,
            Self::Reading { next_try, until, .. } => Some(*next_try.min(until)),
            Self::Doubtful { next_try, until, .. } => {
                Some(until.map_or(*next_try, |until| until.min(*next_try)))
            }
            Self::Waiting { next_look } | Self::Away { next_look } => Some(*next_look),
        }
    }
}

impl Machine {
    /// The list of peers is known, or another one.
    pub(super) fn peers_changed(&mut self, now: Time) {
        if self.gate == Gate::Ignorant {
            self.read(now);
        }
    }

    /// It is known what there is to announce.
    pub(in crate::wire) fn planned(&mut self, now: Time) {
        self.has_plan = true;
        if matches!(self.gate, Gate::Waiting { .. }) {
            // What was heard may be old by now.
            self.read(now);
            self.drain(now);
            self.settle(now);
        }
    }

    /// Begins to learn what the others know.
    pub(super) fn read(&mut self, now: Time) {
        self.engine.handle(now, Input::Return);
        self.expected.clear();
        self.gate = Gate::Reading { heard: BTreeSet::new(), next_try: now, until: now + READ_AT_MOST };
        self.dirty = true;
    }

    /// The process did not run for longer than the others need to hold it for dead.
    pub(in crate::wire) fn woken(&mut self, now: Time) {
        self.engine.handle(now, Input::Woken);
        match self.gate {
            Gate::Reading { .. } => self.read(now),
            // Who has nobody to ask has nobody to disagree with.
            Gate::Open if self.is_alone() => {}
            Gate::Open | Gate::Doubtful { .. } => self.doubt(now, now, None),
            Gate::Ignorant | Gate::Waiting { .. } | Gate::Away { .. } | Gate::Leaving { .. } => {}
        }
        self.drain(now);
        self.settle(now);
    }

    /// Somebody that was lost is heard again; an exchange with it has begun.
    pub(super) fn heard_again(&mut self, now: Time) -> bool {
        let isolated = self.gate == Gate::Open && self.is_alone() && !self.unheeded;
        if isolated {
            self.doubt(now, now + TRY_EVERY, Some(now + REUNION_AT_MOST));
        }
        isolated
    }

    /// An exchange is over.
    pub(super) fn exchanged(&mut self, now: Time, with: SocketAddr, result: &Result<usize, ExchangeError>) {
        let Ok(known) = result else { return };
        match &mut self.gate {
            Gate::Reading { heard, .. } => {
                heard.insert(with);
                let peer = self.peers.iter().find(|peer| peer.address == with);
                // Who knows nobody, not even itself, is a reader: about to be a member, like this one.
                match peer {
                    Some(peer) if *known == 0 => {
                        self.expected.insert(peer.node.clone(), now + READ_AT_MOST + EXPECTED);
                    }
                    Some(peer) => {
                        self.expected.remove(&peer.node);
                    }
                    None => {}
                }
            }
            Gate::Doubtful { answered, .. } if *known > 0 => *answered = true,
            _ => {}
        }
    }

    /// Whether the gate is to be passed, or something tried again.
    pub(super) fn pass_gate(&mut self, now: Time) {
        match self.gate.clone() {
            Gate::Reading { next_try, until, .. } => {
                let unheard = self.unheard();
                let heard = unheard.is_empty() || until <= now;
                if heard && self.has_plan {
                    self.enter(now, &unheard);
                } else if heard {
                    self.gate = Gate::Waiting { next_look: now + LOOK_EVERY };
                    self.dirty = true;
                } else if next_try <= now {
                    self.engine.handle(now, Input::Join(&unheard));
                    self.try_at(now + TRY_EVERY);
                }
            }
            Gate::Doubtful { since, answered, next_try, until } => {
                let alone = self.is_alone();
                let over = until.is_some_and(|until| until <= now);
                // Where no stream can be opened, members that answer datagrams have to do.
                let heard = self.engine.acknowledged().is_some_and(|at| at > since);
                let answered = answered || (heard && now - since >= READ_AT_MOST);
                if (answered && !alone) || (alone && until.is_none()) || over {
                    // Who was heard, but does not answer, does not hear this one; it may stay so for long.
                    self.unheeded = over && alone;
                    self.gate = Gate::Open;
                    self.dirty = true;
                } else if next_try <= now {
                    let everybody = self.everybody();
                    self.engine.handle(now, Input::Join(&everybody));
                    self.try_at(now + TRY_EVERY);
                }
            }
            Gate::Waiting { .. } => self.look(now),
            Gate::Ignorant | Gate::Open | Gate::Away { .. } | Gate::Leaving { .. } => {}
        }
    }

    /// Becomes a member that answers. The others are told at once: from now on they count on it.
    fn enter(&mut self, now: Time, unheard: &[SocketAddr]) {
        let awaited = self.peers.iter().filter(|peer| peer.awaited).count();
        lines::joined(awaited, unheard);
        self.gate = Gate::Open;
        self.dirty = true;
        self.enter_last(now);
        self.expected.values_mut().for_each(|until| *until = now + EXPECTED);
        let badge = self.badge();
        self.shown = (badge, now);
        self.engine.handle(now, Input::Metadata(&badge.encode()));
        // Tells everybody by a datagram.
        self.engine.handle(now, Input::Participate);
        let everybody = self.everybody();
        // Where there are many, lists are exchanged with some: those of all would be all the same.
        let some: Vec<SocketAddr> =
            everybody.iter().step_by(everybody.len().div_ceil(MANY).max(1)).copied().collect();
        self.engine.handle(now, Input::Join(&some));
    }

    /// Leaves for good.
    pub(in crate::wire) fn stop(&mut self, now: Time) {
        if matches!(self.gate, Gate::Leaving { .. }) {
            return;
        }
        lines::leaving();
        self.gate = Gate::Leaving { left: false };
        self.dirty = true;
        self.engine.handle(now, Input::Leave { within: LEAVE_WITHIN });
        self.drain(now);
        self.settle(now);
    }

    /// Whether the others have been told that this one leaves.
    pub(in crate::wire) const fn has_left(&self) -> bool {
        matches!(self.gate, Gate::Leaving { left: true })
    }

    /// Leaves for as long as others know better.
    pub(super) fn step_aside(&mut self, now: Time) {
        self.gate = Gate::Away { next_look: now + LOOK_EVERY };
        self.dirty = true;
        self.engine.handle(now, Input::Leave { within: LEAVE_WITHIN });
    }

    /// The engine has told the others that it leaves.
    pub(super) fn left(&mut self, now: Time) -> bool {
        match &mut self.gate {
            Gate::Leaving { left } => {
                *left = true;
                lines::left();
            }
            // From now on it reads, to see what becomes of the others.
            Gate::Away { .. } => self.engine.handle(now, Input::Return),
            _ => {}
        }
        true
    }

    /// Asks some of the others what they know, from time to time, while it stands aside or waits.
    pub(super) fn look(&mut self, now: Time) {
        if let Gate::Waiting { next_look } | Gate::Away { next_look } = &mut self.gate
            && *next_look <= now
        {
            *next_look = now + LOOK_EVERY;
            if self.engine.role() == Role::Reader {
                let some: Vec<SocketAddr> = self.everybody().into_iter().take(LOOK_AT).collect();
                self.engine.handle(now, Input::Join(&some));
            }
        }
    }

    fn doubt(&mut self, now: Time, next_try: Time, until: Option<Time>) {
        debug_assert!(next_try >= now);
        self.gate = Gate::Doubtful { since: now, answered: false, next_try, until };
        self.dirty = true;
    }

    fn try_at(&mut self, at: Time) {
        if let Gate::Reading { next_try, .. } | Gate::Doubtful { next_try, .. } = &mut self.gate {
            *next_try = at;
        }
    }

    /// The awaited peers that have not said yet what they know.
    fn unheard(&self) -> Vec<SocketAddr> {
        let Gate::Reading { heard, .. } = &self.gate else { return Vec::new() };
        let awaited = self.peers.iter().filter(|peer| peer.awaited).map(|peer| peer.address);
        awaited.filter(|address| !heard.contains(address)).collect()
    }

    /// Where anybody is or should be: members first.
    fn everybody(&self) -> Vec<SocketAddr> {
        let members: Vec<SocketAddr> = self.others().filter_map(|member| member.socket()).collect();
        let missing = self.peers.iter().filter(|peer| peer.awaited && !self.is_usable(&peer.node));
        let missing: Vec<SocketAddr> =
            missing.map(|peer| peer.address).filter(|address| !members.contains(address)).collect();
        [members, missing].concat()
    }
}

/// How long a speaker that starts waits for those that do not answer.
const READ_AT_MOST: Duration = Duration::from_secs(5);

/// With how many others everything is exchanged on entering.
const MANY: usize = 32;

/// How often somebody is tried again.
const TRY_EVERY: Duration = Duration::from_millis(200);

/// How long one that reads, like this one did, may need longer than this one.
const EXPECTED: Duration = Duration::from_secs(1);

/// How long one that comes back from isolation is silent if those it hears do not answer it.
const REUNION_AT_MOST: Duration = Duration::from_secs(1);

/// How long telling the others of a leave may take.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

/// How often one that stands aside looks after the others, and at how many of them.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const LOOK_AT: usize = 3;

// SPDX-License-Identifier: Apache-2.0
//! Who the members are, and whether this one may answer among them.
//!
//! The gossip engine knows who is there. What a speaker makes of it is here, one file per concern: `gate` (when it may
//! answer), `badge` (what ours tell each other in their metadata), `words` (and by messages), `staleness` (whose view of
//! the API is old), `troubles` (who should be a member and is not), `lines` (what the log says).

mod badge;
mod gate;
mod lines;
mod staleness;
mod troubles;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferrolb_announce::{Members, Standing};
use ferrolb_gossip::wire::State;
use ferrolb_gossip::{Change, Engine, Input, Member, Name, Output, Role, Settings};
use ferrolb_net_types::{NodeName, Time};

use badge::Badge;
use gate::Gate;
use staleness::Staleness;
pub use staleness::{BADGE_EVERY, STALE_COUNTS_AFTER};
use troubles::Troubles;
pub use troubles::{Cause, Trouble};
pub(super) use words::Word;

/// What the member list is told before it starts.
#[derive(Clone, Debug)]
pub struct Gossip {
    /// Settings of the member. Its name is the node's and it starts as a reader without metadata, whatever they say.
    pub settings: Settings,
    /// 32 bytes that nobody can guess and nobody has used.
    pub seed: [u8; 32],
}

/// Another speaker whose Pod runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its node.
    pub node: NodeName,
    /// Where it is reached.
    pub address: SocketAddr,
    /// Whether a speaker that starts waits until it has heard it: its Pod is not terminating, nor on a node that is
    /// not ready.
    pub awaited: bool,
}

/// Who the members are, as the control side should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Whether this speaker may announce: it has learnt who else does, and nothing makes it doubt that.
    pub eligible: bool,
    /// Whether the members are those that there are: everybody that is waited for has said what it knows, or was waited
    /// for long enough.
    pub heard: bool,
    /// The members, this one included once it is eligible, and those that are about to be.
    pub members: Members,
    /// What keeps others that run from being members.
    pub troubles: BTreeSet<Trouble>,
}

/// The membership has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct News {
    /// Who may answer now.
    pub(super) answering: Answering,
    /// Some that were lost are members again: who owns what changes at once, since both sides answered meanwhile.
    pub(super) reunited: bool,
}

/// Who may answer, as far as this speaker goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answering {
    /// Nothing is known of the others yet.
    NotYet,
    /// Nothing that is known can be trusted: nobody may answer here.
    Nobody {
        /// It has answered until now, perhaps beside others; or else it was asleep.
        awake: bool,
    },
    /// These; the own node may not be among them.
    Among(Members),
}

/// The gossip engine and what is made of it.
#[derive(Debug)]
pub(super) struct Machine {
    node: NodeName,
    own: Name,
    engine: Engine,
    /// How long somebody may be silent before the others can hold it for dead.
    detection: Duration,
    gate: Gate,
    /// It is known what there is to announce.
    has_plan: bool,
    peers: Vec<Peer>,
    /// Where the engine was told that they are.
    candidates: BTreeSet<SocketAddr>,
    /// They may be elsewhere by now.
    moved: bool,
    /// Readers that were heard, which are about to be members; and until when that is believed.
    expected: BTreeMap<NodeName, Time>,
    /// Members that died though their Pods run, and have not come back; and whether they were MetalLB's.
    lost: BTreeMap<Name, bool>,
    staleness: Staleness,
    /// The badge that the others see, and since when.
    shown: (Badge, Time),
    troubles: Troubles,
    told_troubles: BTreeSet<Trouble>,
    /// What others have told this one of addresses, not yet taken.
    words: Vec<(Word, Vec<IpAddr>)>,
    outputs: VecDeque<Output>,
    /// Something may have changed for those that answer, or for the control side.
    dirty: bool,
    reunited: bool,
    /// Somebody that was lost was heard, but does not answer.
    unheeded: bool,
    /// When everything was last made to agree.
    settled: Time,
    /// What was last told.
    told: Option<(Answering, Membership)>,
}

impl Machine {
    pub(super) fn new(node: &NodeName, gossip: Gossip) -> Self {
        let own = Name::from(node.as_str());
        let settings = Settings { name: own.clone(), role: Role::Reader, meta: None, ..gossip.settings };
        let profile = &settings.profile;
        // Where nobody is probed, nobody is ever held for dead.
        let detection = match profile.probe_interval.saturating_mul(profile.suspicion_mult) {
            Duration::ZERO => Duration::MAX,
            detection => detection,
        };
        Self {
            node: node.clone(),
            own,
            engine: Engine::new(Time::ZERO, settings, gossip.seed),
            detection,
            gate: Gate::Ignorant,
            has_plan: false,
            peers: Vec::new(),
            candidates: BTreeSet::new(),
            moved: false,
            expected: BTreeMap::new(),
            lost: BTreeMap::new(),
            staleness: Staleness::default(),
            shown: (Badge::default(), Time::ZERO),
            troubles: Troubles::default(),
            told_troubles: BTreeSet::new(),
            words: Vec::new(),
            outputs: VecDeque::new(),
            dirty: false,
            reunited: false,
            unheeded: false,
            settled: Time::ZERO,
            told: None,
        }
    }

    /// Something for the engine.
    pub(super) fn handle(&mut self, now: Time, input: Input<'_>) {
        self.engine.handle(now, input);
        // Nearly every datagram changes nothing.
        if self.drain(now) {
            self.settle(now);
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.engine.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.engine.handle_timeout(now);
        }
        self.drain(now);
        if self.own_deadline().is_some_and(|deadline| deadline <= now) || self.dirty {
            self.settle(now);
        }
    }

    /// These should be members.
    pub(super) fn set_peers(&mut self, now: Time, peers: &[Peer]) {
        self.peers = peers.to_vec();
        self.lost.retain(|name, _| peers.iter().any(|peer| Some(peer.node.as_str()) == name.as_str()));
        self.staleness.keep(|node| peers.iter().any(|peer| peer.node == *node));
        self.troubles.set_peers(peers);
        self.moved = true;
        self.peers_changed(now);
        self.drain(now);
        self.settle(now);
    }

    /// The control side has lost the API for too long, or has it again.
    pub(super) fn set_api(&mut self, now: Time, working: bool) {
        let node = self.node.clone();
        self.staleness.said(now, &node, Badge { stale: !working, last: false });
        self.settle(now);
    }

    /// How long the process may have slept without having missed anything that matters.
    pub(super) const fn detection(&self) -> Duration {
        self.detection
    }

    pub(super) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.engine.next_deadline().into_iter().chain(self.own_deadline()).min()
    }

    /// Tells a member something of these addresses.
    pub(super) fn tell(&mut self, now: Time, node: &NodeName, word: &Word, addresses: &[IpAddr]) {
        let member = Name::from(node.as_str());
        for payload in words::messages(word, addresses) {
            self.engine.handle(now, Input::Tell { member: &member, payload: &payload });
        }
        self.drain(now);
    }

    /// Those of ours that have the API, if this one has lost it for so long that it comes last.
    pub(super) fn better_informed(&self) -> Vec<NodeName> {
        if !self.gate.is_open() || !self.staleness.counts(&self.node) {
            return Vec::new();
        }
        let fresh = self
            .others()
            .filter(|member| Badge::read(member.meta.as_deref()).is_some_and(|badge| !badge.stale));
        fresh.filter_map(|member| Some(NodeName::from(member.name.as_str()?))).collect()
    }

    /// Whether the control side has the API.
    pub(super) fn has_api(&self) -> bool {
        !self.staleness.is_said(&self.node)
    }

    /// Whether a node's speaker has said that it leaves, so lately that whatever answers there still is that one.
    pub(super) fn said_goodbye(&self, now: Time, node: &NodeName) -> bool {
        let member = self.engine.member(&Name::from(node.as_str()));
        member.is_some_and(|member| member.state == State::Left && now.since(member.changed) < GOODBYE)
    }

    /// Whether one that is no member any more comes before this one in elections because of whose view was stale when both
    /// were members; none: that does not decide, or it is not known.
    pub(super) fn was_fresher(&self, now: Time, node: &NodeName) -> Option<bool> {
        self.staleness.was_fresher(now, node)
    }

    /// Whether a speaker that is no member any more was one of MetalLB's.
    pub(super) fn was_metallb(&self, node: &NodeName) -> bool {
        self.lost.get(&Name::from(node.as_str())).is_some_and(|metallb| *metallb)
    }

    /// What others have told since the last call.
    pub(super) fn take_words(&mut self) -> Vec<(Word, Vec<IpAddr>)> {
        std::mem::take(&mut self.words)
    }

    /// What has changed since the last call, if anything.
    pub(super) fn take_news(&mut self) -> Option<News> {
        let reunited = std::mem::take(&mut self.reunited);
        if !std::mem::take(&mut self.dirty) {
            return None;
        }
        let (answering, membership) = (self.answering(), self.membership());
        let told = Some((answering.clone(), membership));
        (self.told != told).then(|| {
            self.told = told;
            News { answering, reunited }
        })
    }

    /// What the control side should know.
    pub(super) fn membership(&self) -> Membership {
        Membership {
            eligible: self.gate.is_open(),
            heard: self.gate.has_heard(),
            members: self.members(),
            troubles: self.told_troubles.clone(),
        }
    }

    fn answering(&self) -> Answering {
        match self.gate {
            Gate::Ignorant | Gate::Reading { .. } | Gate::Waiting { .. } => match self.told {
                // It was a member before: another one leads what it led.
                Some((Answering::Among(_), _)) => Answering::Among(self.members()),
                _ => Answering::NotYet,
            },
            Gate::Doubtful { until, .. } => Answering::Nobody { awake: until.is_some() },
            Gate::Open | Gate::Away { .. } | Gate::Leaving { .. } => Answering::Among(self.members()),
        }
    }

    fn members(&self) -> Members {
        let mut members: BTreeMap<NodeName, Standing> = self
            .others()
            .filter_map(|member| {
                let node = NodeName::from(member.name.as_str()?);
                let standing = self.standing(member, &node);
                Some((node, standing))
            })
            .collect();
        // MetalLB's speakers do not count on who is no member yet, and what they lead is theirs.
        if !members.values().any(|standing| *standing == Standing::Metallb) {
            for node in self.expected.keys() {
                members.entry(node.clone()).or_insert(Standing::Ours);
            }
        }
        if self.gate.is_open() {
            let stale = self.staleness.counts(&self.node);
            members.insert(self.node.clone(), if stale { Standing::Stale } else { Standing::Ours });
        }
        Members::Known(members)
    }

    fn standing(&self, member: &Member, node: &NodeName) -> Standing {
        match Badge::read(member.meta.as_deref()) {
            None => Standing::Metallb,
            Some(_) if self.staleness.counts(node) => Standing::Stale,
            Some(_) => Standing::Ours,
        }
    }

    /// The other members.
    fn others(&self) -> impl Iterator<Item = &Member> {
        self.engine.members().filter(|member| member.is_usable() && member.name != self.own)
    }

    fn is_alone(&self) -> bool {
        self.others().next().is_none()
    }

    fn is_usable(&self, node: &NodeName) -> bool {
        self.engine.member(&Name::from(node.as_str())).is_some_and(Member::is_usable)
    }

    /// Takes what the engine says; whether any of it concerns more than the network.
    fn drain(&mut self, now: Time) -> bool {
        let mut concerned = false;
        while let Some(output) = self.engine.poll() {
            concerned |= match output {
                Output::Datagram { .. } | Output::Open { .. } | Output::Answer { .. } | Output::Close(_) => {
                    self.outputs.push_back(output);
                    false
                }
                Output::Member { change, member } => {
                    lines::member(&change, &member);
                    self.member_changed(now, &change, &member);
                    true
                }
                Output::Exchanged { with, result } => {
                    self.troubles.exchanged(now, with, &result);
                    self.exchanged(now, with, &result);
                    true
                }
                Output::Notice(notice) => {
                    self.troubles.notice(now, &notice);
                    true
                }
                Output::Heard(_) => self.heard_again(now),
                Output::Left => self.left(now),
                Output::Told { payload, .. } => {
                    self.words.extend(words::read(&payload));
                    false
                }
            };
        }
        concerned
    }

    fn member_changed(&mut self, now: Time, change: &Change, member: &Member) {
        (self.dirty, self.moved) = (true, true);
        if member.name == self.own {
            return;
        }
        let Some(node) = member.name.as_str().map(NodeName::from) else { return };
        let badge = Badge::read(member.meta.as_deref()).unwrap_or_default();
        match change {
            Change::Joined => {
                self.staleness.found(now, &node, badge);
                self.reunited |= self.lost.remove(&member.name).is_some();
                self.expected.remove(&node);
                self.unheeded = false;
                self.troubles.joined(now, &node);
            }
            Change::Updated => self.staleness.said(now, &node, badge),
            Change::Left => self.staleness.gone(&node),
            // Names that no Pod has could be without end.
            Change::Died { .. } if self.peers.iter().any(|peer| peer.node == node) => {
                self.staleness.lost(now, &self.node, &node);
                let metallb = Badge::read(member.meta.as_deref()).is_none();
                self.lost.insert(member.name.clone(), metallb);
            }
            Change::Died { .. } => self.staleness.gone(&node),
        }
    }

    /// Says where the members that should be there are: where they say, if they are members, else at their Pods. On a host
    /// with several addresses a member that listens on all may have another one than its Pod.
    fn say_candidates(&mut self, now: Time) {
        let place = |peer: &Peer| {
            let member =
                self.engine.member(&Name::from(peer.node.as_str())).filter(|member| member.is_usable());
            member.and_then(Member::socket).unwrap_or(peer.address)
        };
        let candidates: BTreeSet<SocketAddr> = self.peers.iter().map(place).collect();
        if self.candidates != candidates {
            let addresses: Vec<SocketAddr> = candidates.iter().copied().collect();
            self.engine.handle(now, Input::Candidates(&addresses));
            self.candidates = candidates;
        }
    }

    /// Makes everything agree with what is known now.
    fn settle(&mut self, now: Time) {
        self.settled = now;
        if std::mem::take(&mut self.moved) {
            self.say_candidates(now);
        }
        self.pass_gate(now);
        self.find_stale(now);
        let before = self.expected.len();
        self.expected.retain(|_, until| *until > now);
        self.dirty |= self.expected.len() != before;
        self.weigh_staleness(now);
        self.show_badge(now);
        let troubles = self.troubles.current(now, |node| self.is_usable(node));
        if troubles != self.told_troubles {
            lines::troubles(&self.told_troubles, &troubles);
            self.told_troubles = troubles;
            self.dirty = true;
        }
        self.drain(now);
    }

    fn own_deadline(&self) -> Option<Time> {
        let troubles = self.troubles.next_deadline(self.settled);
        [self.gate.deadline(), self.staleness.next_deadline(), self.badge_deadline(), troubles]
            .into_iter()
            .flatten()
            .chain(self.expected.values().copied())
            .min()
    }
}

/// How long a goodbye is remembered. A speaker of MetalLB that has left answers for about a second more; one of ours that
/// is started again reads first, and where nobody lets it in that takes this long (`READ_AT_MOST`), so that what it claims
/// then is not taken for what its former process did.
const GOODBYE: Duration = Duration::from_secs(5);

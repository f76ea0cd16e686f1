// SPDX-License-Identifier: Apache-2.0
//! Somebody else announces an address that this node answers for: who of the two goes on.
//!
//! As long as all speakers that run are members, they know who leads, and the frame is a stranger's or old: the owner
//! announces the address again (RFC 5227 section 2.4 (c): at most once in ten seconds), after a while, since a member may
//! have learnt first that it leads now. Where the member list is parted and the segment is not, several speakers lead the
//! same address, each for want of the others. Then this is still known to all of them alike: the plan, whose Pods run, and
//! whose view was stale when they were last one. Of those the first candidate goes on, the stale ones last, and defends the
//! address at once; whoever comes later gives way to it.
//!
//! ```text
//!                claimed            it is, and answers             three questions unanswered
//!   answering ───────────► Asking ──────────────────────► Yielded ────────────────────────────┐
//!       ▲                    │                              │                                 ▼
//!       └──── defends ◄──────┘ no, or no answer             └──► what the members say     Resumed ──► as before
//! ```
//!
//! A speaker of MetalLB knows no such rule and gives way to nobody, so it is given way to wherever it comes; if it is known
//! to be one, having been a member.
//!
//! Nobody gives way to a frame alone. The claimant's host is asked, by its hardware address, whether it is the host of a
//! speaker that runs, is missed and comes before this one, and whether it answers for the address: who does not say both
//! is a stranger, or another speaker's, and the address is defended. So of two that dispute an address at most one gives
//! way, however many others are missing.
//!
//! Whoever gave way goes on asking, and answers again when nobody does: an address is dark for four seconds at most. Above
//! five hundred addresses each is asked about less often, but at any time some are, and the silence about one makes the
//! others be asked about at once; so the same holds but for some tenths of a second, if the host falls silent as a whole
//! and was not found so within ten seconds before. It gives way again to one that claims the address again and answers; if
//! that falls silent again soon, the two do not know the same, and for a while it gives way to that one no more. All of it
//! ends when the members agree, but that who fell silent is remembered for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ferrolb_announce::{AddressPlan, owner};
use ferrolb_l2::{GAP, ROUNDS};
use ferrolb_net_types::{IfIndex, Mac, NodeName, Time};

use super::Wire;
use super::answering::Manner;

/// Every dispute, and what is known of those with whom.
#[derive(Debug, Default)]
pub(super) struct Disputes {
    states: BTreeMap<IpAddr, State>,
    /// When each is to be looked at.
    due: BTreeSet<(Time, IpAddr)>,
    hosts: BTreeMap<Claimant, Host>,
    /// When addresses are to be defended, or were.
    defences: BTreeMap<IpAddr, Defence>,
    /// When each of them is to be made, or forgotten.
    defences_due: BTreeSet<(Time, IpAddr)>,
    /// Whose turn it is among the `TURNS` that share the time between two questions.
    turn: u32,
}

/// Who claims an address, as the segment knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claimant {
    pub(super) interface: IfIndex,
    pub(super) mac: Mac,
}

#[derive(Debug)]
struct State {
    claimant: Claimant,
    stage: Stage,
    due: Time,
    /// How long this node gives way to the claimant no more if that one falls silent.
    deaf: Duration,
}

#[derive(Debug)]
enum Stage {
    /// Whether it is the host of one that comes before this one, and answers. This node goes on answering meanwhile.
    Asking {
        /// It has announced the address, so that it is to be defended if it is not.
        announced: bool,
        /// It answers for the address.
        answers: bool,
        /// Another one that has claimed it meanwhile, the latest: it is asked next.
        next: Option<Claimant>,
    },
    /// This node has given way to that node's speaker.
    Yielded {
        to: NodeName,
        since: Time,
        /// Questions in a row that it has not answered, the last one included; none: the next is to be asked.
        unanswered: u32,
    },
    /// It gave way to one that fell silent, and does so no more until then.
    Resumed { until: Time },
}

/// A host that claims addresses.
#[derive(Debug)]
struct Host {
    /// The node that it is, and when it said so.
    node: Option<(NodeName, Time)>,
    /// When it was last asked about the addresses of missing speakers' hosts.
    asked: BTreeMap<IpAddr, Time>,
    /// When the questions to it were last hurried.
    hurried: Option<Time>,
}

/// The defence of an address: each is twice as long after the one before, as long as they are wanted, since two that do
/// not find to each other would go on for ever.
#[derive(Clone, Copy, Debug)]
struct Defence {
    /// When it is to be made; if it is not wanted, when those that were made are forgotten.
    at: Time,
    wanted: bool,
    /// How long it takes to the one after it.
    pause: Duration,
}

impl Disputes {
    /// Whether this node has given way over the address.
    pub(super) fn yields(&self, ip: IpAddr) -> bool {
        self.states.get(&ip).is_some_and(|state| matches!(state.stage, Stage::Yielded { .. }))
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        [self.due.first(), self.defences_due.first()].into_iter().flatten().map(|(at, _)| *at).min()
    }

    fn set(&mut self, ip: IpAddr, state: State) {
        self.remove(ip);
        self.due.insert((state.due, ip));
        self.states.insert(ip, state);
    }

    /// How long this node gives way to the claimant no more if that one falls silent about the address.
    fn deaf(&self, ip: IpAddr, claimant: Claimant) -> Duration {
        let before = self.states.get(&ip).filter(|state| state.claimant == claimant);
        before.map_or(Duration::ZERO, |state| state.deaf)
    }

    fn remove(&mut self, ip: IpAddr) -> Option<State> {
        let state = self.states.remove(&ip)?;
        self.due.remove(&(state.due, ip));
        Some(state)
    }

    fn again_at(&mut self, ip: IpAddr, due: Time) {
        if let Some(state) = self.states.get_mut(&ip) {
            self.due.remove(&(state.due, ip));
            state.due = due;
            self.due.insert((due, ip));
        }
    }

    /// Who the claimant is, if that is known and not old.
    fn node(&self, now: Time, claimant: Claimant) -> Option<&NodeName> {
        let (node, said) = self.hosts.get(&claimant)?.node.as_ref()?;
        (now.since(*said) < KNOWN_FOR).then_some(node)
    }

    fn set_defence(&mut self, ip: IpAddr, defence: Defence) {
        if let Some(before) = self.defences.insert(ip, defence) {
            self.defences_due.remove(&(before.at, ip));
        }
        self.defences_due.insert((defence.at, ip));
    }

    /// How long an address that was given up waits for the next question.
    fn pause(&self) -> Duration {
        let many = u32::try_from(self.states.len()).unwrap_or(u32::MAX);
        ASK_EVERY.max(PER_ADDRESS.saturating_mul(many))
    }

    /// How long until the first question about an address: another time for each, so that of many addresses there is
    /// always one that is asked about soon.
    fn first_pause(&mut self) -> Duration {
        self.turn = self.turn % TURNS + 1;
        self.pause() * self.turn / TURNS
    }
}

impl Wire {
    /// Somebody else has announced an address that this node leads and answers for.
    pub(super) fn dispute(&mut self, now: Time, ip: IpAddr, claimant: Claimant) {
        let Some(address) = self.plan.as_ref().and_then(|plan| plan.get(&ip)).cloned() else {
            return;
        };
        let rivals = self.rivals(now, &address);
        let may_be_one = !rivals.is_empty()
            && match self.disputes.states.get_mut(&ip).map(|state| (&mut state.stage, state.claimant)) {
                None => true,
                Some((Stage::Resumed { until }, before)) => before != claimant || *until <= now,
                // One after the other.
                Some((Stage::Asking { next, .. }, before)) => {
                    if before != claimant {
                        *next = Some(claimant);
                    }
                    return;
                }
                Some((Stage::Yielded { .. }, _)) => return,
            };
        if !may_be_one {
            let parted = address.candidates.iter().any(|node| self.is_missing(now, node));
            self.defend(now, ip, if parted { now } else { now + LEARNING });
            return;
        }
        self.ask_who(now, ip, claimant, rivals, true);
    }

    /// Asks the claimant if it may be one that comes before this node; whether it does.
    fn ask_if_possible(&mut self, now: Time, ip: IpAddr, claimant: Claimant, announced: bool) -> bool {
        let address = self.plan.as_ref().and_then(|plan| plan.get(&ip));
        let rivals = address.map(|address| self.rivals(now, address)).unwrap_or_default();
        let may_be_one = !rivals.is_empty() && self.leads_alone(ip);
        if may_be_one {
            self.ask_who(now, ip, claimant, rivals, announced);
        }
        may_be_one
    }

    /// Asks the claimant whether it answers for the address, and whether it is the host of one of these.
    fn ask_who(&mut self, now: Time, ip: IpAddr, claimant: Claimant, rivals: Vec<IpAddr>, announced: bool) {
        let (stage, due) = (Stage::Asking { announced, answers: false, next: None }, now + ASK_FOR);
        let deaf = self.disputes.deaf(ip, claimant);
        self.end_dispute(now, ip);
        self.disputes.set(ip, State { claimant, stage, due, deaf });
        self.ask(now, ip, claimant);
        if self.disputes.node(now, claimant).is_some() {
            return;
        }
        for host in rivals.into_iter().filter(|host| *host != ip) {
            let known = self.disputes.hosts.entry(claimant).or_insert_with(Host::new);
            if known.asked.get(&host).is_none_or(|asked| now.since(*asked) >= ASK_FOR) {
                known.asked.insert(host, now);
                self.ask(now, host, claimant);
            }
        }
    }

    /// A host has answered a question of this node's: it has the address.
    pub(super) fn answered(&mut self, now: Time, ip: IpAddr, claimant: Claimant) {
        let at_home = |(node, address): (&NodeName, &IpAddr)| (*address == ip).then(|| node.clone());
        if let Some(host) = self.disputes.hosts.get_mut(&claimant).filter(|host| host.asked.contains_key(&ip))
            && let Some(node) = self.peers.iter().find_map(at_home)
        {
            host.node = Some((node, now));
            let asking =
                |state: &State| state.claimant == claimant && !matches!(state.stage, Stage::Resumed { .. });
            let theirs: Vec<IpAddr> =
                self.disputes.states.iter().filter(|(_, state)| asking(state)).map(|(ip, _)| *ip).collect();
            theirs.into_iter().for_each(|ip| self.give_way(now, ip));
        }
        match self.disputes.states.get_mut(&ip).filter(|state| state.claimant == claimant) {
            Some(State { stage: Stage::Asking { answers, .. }, .. }) => {
                *answers = true;
                self.give_way(now, ip);
            }
            Some(State { stage: Stage::Yielded { unanswered, since, .. }, deaf, .. }) => {
                let hurried = std::mem::take(unanswered) >= UNANSWERED;
                if now.since(*since) >= RESUMED_FOR {
                    *deaf = Duration::ZERO;
                }
                let next = now + if hurried { self.disputes.first_pause() } else { self.disputes.pause() };
                self.disputes.again_at(ip, next);
            }
            Some(State { stage: Stage::Resumed { .. }, .. }) | None => {}
        }
    }

    /// Does what is due about disputes; only a part of much, and then it is due again at once.
    pub(super) fn tend_disputes(&mut self, now: Time) {
        for _ in 0..PER_CALL {
            let Some(&(_, ip)) = self.disputes.due.first().filter(|(at, _)| *at <= now) else { break };
            self.tend(now, ip);
        }
        for _ in 0..PER_CALL {
            let Some(&(at, ip)) = self.disputes.defences_due.first().filter(|(at, _)| *at <= now) else {
                break;
            };
            self.disputes.defences_due.remove(&(at, ip));
            if let Some(defence) = self.disputes.defences.remove(&ip).filter(|defence| defence.wanted) {
                self.defend_now(now, ip, defence.pause);
            }
        }
    }

    /// What decides has changed: ends the disputes that are decided by it.
    pub(super) fn review_disputes(&mut self, now: Time) {
        let all: Vec<IpAddr> = self.disputes.states.keys().copied().collect();
        for ip in all {
            let Some(state) = self.disputes.states.get(&ip) else { continue };
            let goes_on = match &state.stage {
                Stage::Asking { .. } => self.leads_alone(ip),
                Stage::Yielded { to, .. } => self.leads(ip) && self.comes_before(now, ip, to),
                Stage::Resumed { .. } => true,
            };
            if !goes_on {
                self.end_dispute(now, ip);
                self.decide(now, ip, Manner::HandOver);
            }
        }
    }

    fn tend(&mut self, now: Time, ip: IpAddr) {
        let Some(state) = self.disputes.states.get_mut(&ip) else { return };
        let (claimant, deaf) = (state.claimant, state.deaf);
        match &mut state.stage {
            Stage::Asking { announced, next, .. } => {
                let (announced, next) = (*announced, *next);
                self.end_dispute(now, ip);
                if announced || next.is_some() {
                    self.defend(now, ip, now);
                }
                if let Some(next) = next {
                    self.ask_if_possible(now, ip, next, true);
                }
            }
            Stage::Yielded { unanswered, .. } if *unanswered < UNANSWERED => {
                *unanswered += 1;
                self.disputes.again_at(ip, now + ASK_EVERY);
                self.ask(now, ip, claimant);
            }
            Stage::Yielded { to, .. } => {
                tracing::info!(op = "dispute", %ip, node = %to, "nobody answers for the address: doing so again");
                self.end_dispute(now, ip);
                let stage = Stage::Resumed { until: now + deaf };
                let due = now + deaf.max(RESUMED_FOR);
                // Once may have been a few lost frames.
                let deaf = deaf.saturating_mul(2).clamp(RESUMED_FOR, DEAF_AT_MOST);
                self.disputes.set(ip, State { claimant, stage, due, deaf });
                self.decide(now, ip, Manner::HandOver);
                self.hurry(now, claimant);
            }
            Stage::Resumed { .. } => {
                if !self.ask_if_possible(now, ip, claimant, false) {
                    self.end_dispute(now, ip);
                }
            }
        }
    }

    /// Gives way if all is known that has to be.
    fn give_way(&mut self, now: Time, ip: IpAddr) {
        let Some(state) = self.disputes.states.get(&ip) else { return };
        let claimant = state.claimant;
        if !matches!(state.stage, Stage::Asking { answers: true, .. }) {
            return;
        }
        let Some(to) =
            self.disputes.node(now, claimant).filter(|node| self.comes_before(now, ip, node)).cloned()
        else {
            return;
        };
        tracing::info!(
            op = "dispute", %ip, node = %to, mac = %claimant.mac,
            "a speaker that is no member answers for the address and comes before this one: leaving it to that one"
        );
        self.give_up(now, ip);
        let deaf = self.disputes.deaf(ip, claimant);
        let due = now + self.disputes.first_pause();
        let stage = Stage::Yielded { to, since: now, unanswered: 0 };
        self.disputes.set(ip, State { claimant, stage, due, deaf });
    }

    /// One that this node gave way to has fallen silent about an address: is it so about the others? One question more is
    /// enough there, since three were asked about that one.
    fn hurry(&mut self, now: Time, claimant: Claimant) {
        let Some(host) = self.disputes.hosts.get_mut(&claimant) else { return };
        if host.hurried.is_some_and(|before| now.since(before) < DEFEND_EVERY) {
            return;
        }
        host.hurried = Some(now);
        let silent = |state: &State| {
            let asked_on =
                matches!(state.stage, Stage::Yielded { unanswered, .. } if unanswered < UNANSWERED);
            state.claimant == claimant && asked_on
        };
        let theirs: Vec<IpAddr> =
            self.disputes.states.iter().filter(|(_, state)| silent(state)).map(|(ip, _)| *ip).collect();
        for ip in theirs {
            if let Some(State { stage: Stage::Yielded { unanswered, .. }, .. }) =
                self.disputes.states.get_mut(&ip)
            {
                *unanswered = UNANSWERED - 1;
            }
            self.disputes.again_at(ip, now);
        }
    }

    /// Announces the address again at that time, or later if it was defended just before; not at all while rounds of that
    /// are to come. What is heard meanwhile may have been on its way, like the last frames of who led before.
    fn defend(&mut self, now: Time, ip: IpAddr, at: Time) {
        let (at, pause) = match self.disputes.defences.get(&ip) {
            Some(Defence { wanted: true, .. }) => return,
            Some(_) if self.is_being_announced(now, ip) => return,
            Some(Defence { at: next, wanted: false, pause }) => {
                (at.max(*next), pause.saturating_mul(2).min(DEFEND_AT_LEAST_EVERY))
            }
            None => (at, DEFEND_EVERY),
        };
        if at <= now {
            self.defend_now(now, ip, pause);
        } else {
            self.disputes.set_defence(ip, Defence { at, wanted: true, pause });
        }
    }

    fn defend_now(&mut self, now: Time, ip: IpAddr, pause: Duration) {
        if self.leads_alone(ip) && self.stopping.is_none() {
            self.disputes.set_defence(ip, Defence { at: now + pause, wanted: false, pause });
            if let Some(claim) = self.claims.get_mut(&ip) {
                claim.answered = true;
            }
            self.engine.handle(now, ferrolb_l2::Input::Again { address: ip });
        }
    }

    /// The address is no longer this node's to defend. When it did so last stays known.
    pub(super) fn nothing_to_defend(&mut self, ip: IpAddr) {
        if let Some(defence) = self.disputes.defences.get_mut(&ip) {
            defence.wanted = false;
        }
    }

    /// Whether it was announced again a moment ago, and a round is to come that hosts believe who have believed another's
    /// just now.
    pub(super) fn is_being_announced(&self, now: Time, ip: IpAddr) -> bool {
        let defence = self.disputes.defences.get(&ip).filter(|defence| !defence.wanted);
        defence.is_some_and(|defence| now + defence.pause < defence.at + REPEATED)
    }

    /// This node has just announced the address for another reason.
    pub(super) fn defended(&mut self, now: Time, ip: IpAddr) {
        self.disputes.set_defence(ip, Defence { at: now + DEFEND_EVERY, wanted: false, pause: DEFEND_EVERY });
    }

    /// Whether the address was defended, or announced again for another reason, a moment ago.
    pub(super) fn was_just_defended(&self, ip: IpAddr) -> bool {
        self.disputes.defences.get(&ip).is_some_and(|defence| !defence.wanted)
    }

    fn end_dispute(&mut self, now: Time, ip: IpAddr) {
        let Some(state) = self.disputes.remove(ip) else { return };
        self.engine.handle(now, ferrolb_l2::Input::Forget { address: ip });
        if self.disputes.states.values().all(|other| other.claimant != state.claimant)
            && let Some(host) = self.disputes.hosts.remove(&state.claimant)
        {
            for address in host.asked.into_keys() {
                if self.disputes.hosts.values().all(|other| !other.asked.contains_key(&address)) {
                    self.engine.handle(now, ferrolb_l2::Input::Forget { address });
                }
            }
        }
    }

    fn ask(&mut self, now: Time, address: IpAddr, of: Claimant) {
        let Claimant { interface, mac } = of;
        self.engine.handle(now, ferrolb_l2::Input::Ask { interface, address, of: mac });
    }

    /// The hosts of those that run, are missed and come before this node: one of them may be who claims the address. The
    /// first of them, since of those that lead for want of others it is the first.
    fn rivals(&self, now: Time, address: &AddressPlan) -> Vec<IpAddr> {
        let before = address.candidates.iter().filter(|node| self.precedes(now, address, node));
        before.filter_map(|node| self.peers.get(node).copied()).take(RIVALS).collect()
    }

    fn comes_before(&self, now: Time, ip: IpAddr, other: &NodeName) -> bool {
        let address = self.plan.as_ref().and_then(|plan| plan.get(&ip));
        address.is_some_and(|address| self.precedes(now, address, other))
    }

    /// Whether the other is missing and comes before this node: as an election has it, MetalLB's come first, the stale last,
    /// as far as both know who was when they were last members; then the first candidate leads. What has become of a view
    /// since then only one side knows, so it does not count: each would leave the address to the other.
    fn precedes(&self, now: Time, address: &AddressPlan, other: &NodeName) -> bool {
        if *other == self.node || !self.is_missing(now, other) {
            return false;
        }
        let fresher = self.gossip.as_ref().and_then(|gossip| {
            if gossip.was_metallb(other) { Some(true) } else { gossip.was_fresher(now, other) }
        });
        let mut of_both = address.candidates.iter().filter(|node| *node == other || **node == self.node);
        let first = of_both.next() == Some(other);
        let listed = first || of_both.next() == Some(other);
        listed && fresher.unwrap_or(first)
    }

    /// Whether the node's speaker runs, and is no member, though it has not just said that it leaves: MetalLB's answers on
    /// after it has left, and is not to be left alone with an address that it is about to drop.
    fn is_missing(&self, now: Time, node: &NodeName) -> bool {
        self.peers.contains_key(node)
            && matches!(&self.members, Some(members) if !members.contains(node))
            && !self.gossip.as_ref().is_some_and(|gossip| gossip.said_goodbye(now, node))
    }

    fn leads(&self, ip: IpAddr) -> bool {
        let (Some(plan), Some(members)) = (&self.plan, &self.members) else { return false };
        let address = plan.get(&ip);
        address.and_then(|address| owner(address, members)) == Some(&self.node)
    }
}

impl Host {
    const fn new() -> Self {
        Self { node: None, asked: BTreeMap::new(), hurried: None }
    }
}

/// How long an answer is waited for.
const ASK_FOR: Duration = Duration::from_secs(1);

/// How many of those that come before this node the claimant is asked about.
const RIVALS: usize = 8;

/// How long a host is known by its hardware address.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// How often one that this node gave way to is asked whether it still answers; less often for many addresses.
const ASK_EVERY: Duration = Duration::from_secs(1);
const PER_ADDRESS: Duration = Duration::from_millis(2);

/// Into how many parts the time between two questions about an address is divided, for all the addresses.
const TURNS: u32 = 256;

/// So many questions in a row that are not answered mean that nobody answers.
const UNANSWERED: u32 = 3;

/// When one that resumed asks the same host of its own accord; and if that had answered for less than this, and it does
/// so again, how long it does not give way to it, at first.
const RESUMED_FOR: Duration = Duration::from_secs(30);
const DEAF_AT_MOST: Duration = Duration::from_secs(640);

/// RFC 5227 section 1.1, `DEFEND_INTERVAL`; and how long it becomes.
const DEFEND_EVERY: Duration = Duration::from_secs(10);
const DEFEND_AT_LEAST_EVERY: Duration = Duration::from_secs(640);

/// How long after an address is announced again the last round but one follows.
const REPEATED: Duration = GAP.saturating_mul(ROUNDS as u32 - 2);

/// How much later than another member this one may learn that the other leads, or that it is no member.
const LEARNING: Duration = Duration::from_secs(1);

/// What is done in one call, so that requests are answered in between.
const PER_CALL: usize = 64;

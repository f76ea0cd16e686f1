// SPDX-License-Identifier: Apache-2.0
//! The fast side: who answers for an address now, and the answering.
//!
//! It needs nothing from the control side but the latest plan and who else should be there, and never waits for
//! it: a member that dies while the API is away still hands its addresses over.
//!
//! ```text
//!   plan ──────────────────────┐
//!   datagrams, streams ─► membership ─► members ─► answering ─► l2 engine ─► frames
//!   peers, API, stop ──────┘                                        ▲
//!   frames, interfaces ─────────────────────────────────────────────┘
//! ```

mod answering;
mod disputes;
mod membership;
mod outdated;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ferrolb_announce::{AddressPlans, Members};
use ferrolb_l2::Engine;
pub use ferrolb_l2::{Changes, Counters, Interface, Purpose};
use ferrolb_net_types::{IfIndex, NodeName, Time};

use answering::{Claim, Manner};
use disputes::{Claimant, Disputes};
use membership::Answering;
pub use membership::{BADGE_EVERY, Cause, Gossip, Membership, Peer, STALE_COUNTS_AFTER, Trouble};
use outdated::Outdated;
use report::Pending;
pub use report::Report;

/// Who answers, and the answering. It does so from when plan, members and interfaces are all known.
///
/// Drive it like an engine: [`Wire::handle`] for every input, [`Wire::handle_timeout`] when
/// [`Wire::next_deadline`] has come (which may be at once), then [`Wire::poll`] until `None`.
#[derive(Debug)]
pub struct Wire {
    node: NodeName,
    engine: Engine,
    gossip: Option<membership::Machine>,
    plan: Option<Arc<AddressPlans>>,
    members: Option<Members>,
    interfaces: Option<Vec<Interface>>,
    owned: BTreeSet<IpAddr>,
    /// Addresses of `owned` that others lead, until when they are answered for.
    handing: BTreeMap<IpAddr, Time>,
    /// Addresses of `owned` that somebody else has announced: when, and whether this node has since.
    claims: BTreeMap<IpAddr, Claim>,
    /// Addresses of `owned` that this node came to lead a moment ago, or again, when that was, and nobody else has
    /// announced them since.
    gained: BTreeMap<IpAddr, Time>,
    /// Addresses that this node may have answered for beside others, which it has found again: until when, and to which
    /// of them it has said that it leaves the address to it.
    beside: BTreeMap<IpAddr, (Time, Option<NodeName>)>,
    /// Addresses that others answer for as well, for want of the members' agreement.
    disputes: Disputes,
    /// What this node is not to answer for by the word of those that know more.
    outdated: Outdated,
    /// The hosts of the speakers that should be members.
    peers: BTreeMap<NodeName, IpAddr>,
    /// Until when stopping may take.
    stopping: Option<Time>,
    stopped: bool,
    /// When this was last called.
    last: Time,
    report: Pending,
}

/// Something happened.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A plan of the control side, for this node.
    Plan(Arc<AddressPlans>),
    /// The speakers that should be members: all others whose Pods run. Replaces the last such list. Without a
    /// member list it changes nothing.
    Peers(&'a [Peer]),
    /// The control side has lost the Kubernetes API for too long to be trusted, or has it (again).
    Api {
        /// Whether it has it.
        working: bool,
    },
    /// Something for the member list: datagrams and streams.
    Gossip(ferrolb_gossip::Input<'a>),
    /// The process is to end: leave, hand over, and say [`Output::Stopped`].
    Stop,
    /// The interfaces that can answer, all of them.
    Interfaces(&'a [Interface]),
    /// An Ethernet frame came in.
    Frame {
        /// The interface it came in on.
        interface: IfIndex,
        /// The VLAN of a tag that was taken off before the frame was handed over.
        vlan: Option<u16>,
        /// The frame.
        bytes: &'a [u8],
    },
    /// A frame that was given out could not be sent.
    SendFailed {
        /// Its address.
        address: IpAddr,
        /// What it was for.
        purpose: Purpose,
    },
    /// A report was lost: make a complete one.
    Resync,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this frame.
    Send {
        /// The interface.
        interface: IfIndex,
        /// The address it is about.
        address: IpAddr,
        /// What it is for.
        purpose: Purpose,
        /// The frame.
        frame: ferrolb_l2::wire::Bytes,
    },
    /// Listen to an IPv6 multicast group. An interface that stops answering by NDP leaves its groups without being told.
    Join {
        /// The interface.
        interface: IfIndex,
        /// The group.
        group: Ipv6Addr,
    },
    /// Listen no longer.
    Leave {
        /// The interface.
        interface: IfIndex,
        /// The group.
        group: Ipv6Addr,
    },
    /// Do this for the member list: always one of `Datagram`, `Open`, `Answer` and `Close`.
    Gossip(ferrolb_gossip::Output),
    /// Tell the control side. If that cannot be done at once, drop it and pass [`Input::Resync`] later.
    Report(Report),
    /// After [`Input::Stop`]: everything is handed over, the process may end.
    Stopped,
}

impl Wire {
    /// The wire side of the speaker on this node; without a member list every node counts as having a speaker.
    pub fn new(node: NodeName, gossip: Option<Gossip>) -> Self {
        let members = if gossip.is_some() { None } else { Some(Members::EveryNode) };
        Self {
            engine: Engine::new(),
            gossip: gossip.map(|gossip| membership::Machine::new(&node, gossip)),
            node,
            plan: None,
            members,
            interfaces: None,
            owned: BTreeSet::new(),
            handing: BTreeMap::new(),
            claims: BTreeMap::new(),
            gained: BTreeMap::new(),
            beside: BTreeMap::new(),
            disputes: Disputes::default(),
            outdated: Outdated::default(),
            peers: BTreeMap::new(),
            stopping: None,
            stopped: false,
            last: Time::ZERO,
            report: Pending::all(),
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.look_at_the_clock(now);
        match input {
            Input::Frame { interface, vlan, bytes } => {
                self.engine.handle(now, ferrolb_l2::Input::Frame { interface, vlan, bytes });
            }
            Input::Gossip(input) => self.tell_gossip(now, |gossip| gossip.handle(now, input)),
            Input::Peers(peers) => {
                // One that ends or cannot be reached is not given way to.
                let staying = peers.iter().filter(|peer| peer.awaited);
                self.peers = staying.map(|peer| (peer.node.clone(), peer.address.ip())).collect();
                self.tell_gossip(now, |gossip| gossip.set_peers(now, peers));
                self.review_disputes(now);
            }
            Input::Api { working } => self.tell_gossip(now, |gossip| gossip.set_api(now, working)),
            Input::Stop => self.stop(now),
            Input::Plan(plan) => {
                self.set_plan(now, plan);
                self.tell_gossip(now, |gossip| gossip.planned(now));
            }
            Input::Interfaces(interfaces) => {
                if self.interfaces.as_deref() != Some(interfaces) {
                    let first = self.interfaces.replace(interfaces.to_vec()).is_none();
                    self.engine.handle(now, ferrolb_l2::Input::Interfaces(interfaces));
                    self.report.interfaces = true;
                    self.report.addresses.extend(&self.owned);
                    if first {
                        self.decide_all(now, Manner::HandOver);
                    }
                }
            }
            Input::SendFailed { address, purpose } => {
                self.engine.handle(now, ferrolb_l2::Input::SendFailed { address, purpose });
            }
            Input::Resync => self.report.again(),
        }
    }

    /// Does what is due. It may be due again at once, so that frames are answered in between.
    pub fn handle_timeout(&mut self, now: Time) {
        self.look_at_the_clock(now);
        self.tell_gossip(now, |gossip| gossip.handle_timeout(now));
        self.end_handing(now);
        self.tend_disputes(now);
        self.engine.handle_timeout(now);
        self.look_at_counters(now);
    }

    /// The next thing to do, if any.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        while let Some(output) = self.engine.poll() {
            return Some(match output {
                ferrolb_l2::Output::Send { interface, address, purpose, frame } => {
                    self.report.counted(now);
                    let leads = self.owned.contains(&address) && !self.handing.contains_key(&address);
                    if purpose == Purpose::Gratuitous && !leads {
                        // Rounds that were begun before; from now on announcing is another's.
                        self.engine.handle(now, ferrolb_l2::Input::SendFailed { address, purpose });
                        continue;
                    }
                    Output::Send { interface, address, purpose, frame }
                }
                ferrolb_l2::Output::Join { interface, group } => Output::Join { interface, group },
                ferrolb_l2::Output::Leave { interface, group } => Output::Leave { interface, group },
                ferrolb_l2::Output::Claimed { interface, address, mac } => {
                    self.claimed(now, address, Claimant { interface, mac });
                    continue;
                }
                ferrolb_l2::Output::Answered { interface, address, mac } => {
                    self.answered(now, address, Claimant { interface, mac });
                    continue;
                }
            });
        }
        if let Some(output) = self.gossip.as_mut().and_then(membership::Machine::poll) {
            return Some(Output::Gossip(output));
        }
        if let Some(report) = self.take_report() {
            return Some(Output::Report(report));
        }
        let stopped = self.is_stopped(now) && !self.stopped;
        self.stopped |= stopped;
        stopped.then_some(Output::Stopped)
    }

    /// When to call [`Wire::handle_timeout`] at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        let gossip = self.gossip.as_ref().and_then(membership::Machine::next_deadline);
        let stopping = self.stopping.filter(|_| !self.stopped);
        let disputes = self.disputes.next_deadline();
        let outdated = self.outdated.next_deadline();
        [self.engine.next_deadline(), gossip, self.report.deadline(), stopping, disputes, outdated]
            .into_iter()
            .flatten()
            .chain(self.handing.values().copied())
            .min()
    }

    /// The addresses that this node answers for now, ascending.
    pub fn owned(&self) -> impl Iterator<Item = IpAddr> {
        self.owned.iter().copied()
    }

    /// The addresses about which frames are to be handed in, in no particular order: those that are owned, and those
    /// that somebody else is asked about.
    pub fn heeded(&self) -> impl Iterator<Item = IpAddr> {
        self.owned().chain(self.engine.asked())
    }

    /// What has changed of [`Wire::heeded`] since this was asked last.
    pub fn take_owned_changes(&mut self) -> Changes {
        self.engine.take_changes()
    }

    const fn ready(&self) -> bool {
        self.plan.is_some() && self.members.is_some() && self.interfaces.is_some()
    }

    /// Lets the member list do something, and takes over who is a member then.
    fn tell_gossip(&mut self, now: Time, tell: impl FnOnce(&mut membership::Machine)) {
        let Some(gossip) = &mut self.gossip else { return };
        tell(gossip);
        let (words, news) = (gossip.take_words(), gossip.take_news());
        if let Some(news) = news {
            self.take_news(now, news);
        }
        for (word, addresses) in words {
            self.told(now, &word, &addresses);
        }
        self.ask_the_informed(now);
    }

    fn take_news(&mut self, now: Time, news: membership::News) {
        self.report.membership = true;
        let manner = if news.reunited { Manner::AtOnce } else { Manner::HandOver };
        match news.answering {
            Answering::NotYet => {}
            Answering::Nobody { awake } => {
                let led = self.owned.iter().filter(|ip| awake && self.leads_alone(**ip));
                let led: Vec<_> = led.map(|ip| (*ip, (now, None))).collect();
                self.beside.extend(led);
                self.set_members(now, Members::Known(BTreeMap::new()), Manner::AtOnce);
            }
            Answering::Among(members) => self.set_members(now, members, manner),
        }
    }

    /// Whether this call comes so late that the process must have been suspended or stopped: then others may long have
    /// taken over, and what is about to be read is old.
    fn look_at_the_clock(&mut self, now: Time) {
        let last = std::mem::replace(&mut self.last, now);
        let Some(detection) = self.gossip.as_ref().map(membership::Machine::detection) else { return };
        if now.since(last) > detection && self.next_deadline().is_some_and(|due| now.since(due) > detection) {
            tracing::warn!(
                op = "wire",
                seconds = now.since(last).as_secs(),
                "the process did not run for a while: asking the others before answering again"
            );
            self.tell_gossip(now, |gossip| gossip.woken(now));
        }
    }

    fn stop(&mut self, now: Time) {
        if self.stopping.is_some() {
            return;
        }
        self.hand_everything_over(now);
        self.stopping = Some(now + STOPPING);
        self.tell_gossip(now, |gossip| gossip.stop(now));
    }

    fn is_stopped(&self, now: Time) -> bool {
        let left = self.gossip.as_ref().is_none_or(membership::Machine::has_left);
        self.stopping.is_some_and(|until| until <= now || (left && self.handing.is_empty()))
    }

    fn membership(&self) -> Membership {
        match &self.gossip {
            Some(gossip) => gossip.membership(),
            None => Membership {
                eligible: true,
                heard: true,
                members: self.members.clone().unwrap_or_default(),
                troubles: BTreeSet::new(),
            },
        }
    }
}

/// How long stopping may take: handing over, and telling the others.
const STOPPING: Duration = Duration::from_millis(600);

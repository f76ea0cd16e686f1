// SPDX-License-Identifier: Apache-2.0
//! Who has lost the Kubernetes API while others have it, and so comes last in elections.
//!
//! When the API is away for all, nothing may move for it. Each says so a fixed time after it heard the server last, which is
//! as long ago as it can go without asking: what some say while others do not counts only once it has lasted for longer
//! than that can differ. The two times together make half a minute. Those of whom it counts say that, too: so who comes to
//! know of them only then, or sees the others late, does not take them for what they no longer are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrolb_net_types::{NodeName, Time};

use super::badge::Badge;
use super::gate::Gate;
use super::{Machine, lines};

/// The nodes whose speakers say that their view is stale.
#[derive(Debug, Default)]
pub(super) struct Staleness {
    /// Since when they do.
    said: BTreeMap<NodeName, Time>,
    /// Since when others do not.
    split: Option<Time>,
    /// Those of whom it counts.
    counting: BTreeSet<NodeName>,
    /// Members that died, and who of the two came last then.
    parted: BTreeMap<NodeName, Parted>,
}

/// Whose staleness counted when two were last members of one list: both sides knew it alike.
#[derive(Clone, Copy, Debug)]
struct Parted {
    own: bool,
    theirs: bool,
    at: Time,
}

impl Staleness {
    /// A member says of itself whether its view is stale. One that says that it comes last has been so for long.
    pub(super) fn said(&mut self, now: Time, node: &NodeName, badge: Badge) {
        if !badge.stale {
            self.said.remove(node);
        } else if badge.last {
            self.found_last(node);
        } else if !self.said.contains_key(node) {
            self.said.insert(node.clone(), now);
        }
    }

    /// One that was no member is one, and says this of itself.
    pub(super) fn found(&mut self, now: Time, node: &NodeName, badge: Badge) {
        self.gone(node);
        self.said(now, node, badge);
    }

    /// Others have found the same before, or will by its word: it counts at once if somebody's view is not stale.
    fn found_last(&mut self, node: &NodeName) {
        self.said.insert(node.clone(), Time::ZERO);
        self.split = Some(Time::ZERO);
    }

    pub(super) fn gone(&mut self, node: &NodeName) {
        self.said.remove(node);
        self.parted.remove(node);
    }

    /// A member died, or is out of reach.
    pub(super) fn lost(&mut self, now: Time, own: &NodeName, node: &NodeName) {
        let parted = Parted { own: self.counts(own), theirs: self.counts(node), at: now };
        self.gone(node);
        self.parted.insert(node.clone(), parted);
    }

    /// Only what was known of these is of interest.
    pub(super) fn keep(&mut self, is_peer: impl Fn(&NodeName) -> bool) {
        self.parted.retain(|node, _| is_peer(node));
    }

    /// Whether a lost member comes before this one in elections for what was known when it was lost; none: both were as
    /// fresh, or nothing is known.
    pub(super) fn was_fresher(&self, now: Time, node: &NodeName) -> Option<bool> {
        let Parted { own, theirs, at } = *self.parted.get(node)?;
        // Both forget it, or each would leave to the other what comes later.
        (own != theirs && now.since(at) < REMEMBERED).then_some(own)
    }

    /// Whether the node comes last in elections.
    pub(super) fn counts(&self, node: &NodeName) -> bool {
        self.counting.contains(node)
    }

    /// Whether the node's speaker says that it is stale.
    pub(super) fn is_said(&self, node: &NodeName) -> bool {
        self.said.contains_key(node)
    }

    /// Finds who comes last, given whether some of ours say that they are stale and others do not; whether that changed.
    fn weigh(&mut self, now: Time, split: bool) -> bool {
        self.split = if split { self.split.or(Some(now)) } else { None };
        let ripe =
            |since: &Time| self.split.is_some_and(|split| split.max(*since) + STALE_COUNTS_AFTER <= now);
        let counting =
            self.said.iter().filter(|(_, since)| ripe(since)).map(|(node, _)| node.clone()).collect();
        let before = std::mem::replace(&mut self.counting, counting);
        self.counting != before
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let split = self.split?;
        let unripe = self.said.iter().filter(|(node, _)| !self.counting.contains(*node));
        unripe.map(|(_, since)| split.max(*since) + STALE_COUNTS_AFTER).min()
    }
}

impl Machine {
    /// Finds who comes last in elections.
    pub(super) fn find_stale(&mut self, now: Time) {
        let is_member = matches!(self.gate, Gate::Open | Gate::Doubtful { .. });
        let own = is_member.then(|| self.staleness.is_said(&self.node));
        let all: BTreeSet<bool> = self.words().chain(own).collect();
        self.dirty |= self.staleness.weigh(now, all.len() > 1);
    }

    /// Enters the list: if the others have given its former process up and its view is stale, it comes last at once. It is
    /// not to take over what it will have to give back.
    pub(super) fn enter_last(&mut self, now: Time) {
        if self.staleness.is_said(&self.node) && !self.engine.is_held_alive() && self.anybody_is_fresh() {
            let node = self.node.clone();
            self.staleness.found_last(&node);
        }
        self.find_stale(now);
    }

    /// Whether each other of ours says that it is stale.
    fn words(&self) -> impl Iterator<Item = bool> {
        self.others().filter_map(|member| {
            Badge::read(member.meta.as_deref())?;
            let node = NodeName::from(member.name.as_str()?);
            Some(self.staleness.is_said(&node))
        })
    }

    /// MetalLB's speakers cannot be told that this one's view is stale, only that it is gone. So beside them it goes,
    /// as long as another of ours has a better view, and comes back when that is over.
    pub(super) fn weigh_staleness(&mut self, now: Time) {
        let better =
            self.staleness.is_said(&self.node) && self.is_beside_metallb() && self.anybody_is_fresh();
        match self.gate {
            Gate::Open if better && self.staleness.counts(&self.node) => {
                lines::steps_aside();
                self.step_aside(now);
            }
            Gate::Away { .. } if better => self.look(now),
            Gate::Away { .. } => {
                lines::comes_back();
                self.read(now);
                self.pass_gate(now);
            }
            _ => {}
        }
    }

    /// What the others are to know of this one.
    pub(super) fn badge(&self) -> Badge {
        Badge { stale: self.staleness.is_said(&self.node), last: self.staleness.counts(&self.node) }
    }

    /// Shows the others what is new about this one, at most once a second.
    pub(super) fn show_badge(&mut self, now: Time) {
        if self.badge_deadline().is_some_and(|at| at <= now) {
            self.shown = (self.badge(), now);
            let badge = self.badge().encode();
            self.engine.handle(now, ferrolb_gossip::Input::Metadata(&badge));
        }
    }

    pub(super) fn badge_deadline(&self) -> Option<Time> {
        let (shown, since) = self.shown;
        let is_member = matches!(self.gate, Gate::Open | Gate::Doubtful { .. });
        (is_member && shown != self.badge()).then(|| since + BADGE_EVERY)
    }

    fn is_beside_metallb(&self) -> bool {
        self.others().any(|member| Badge::read(member.meta.as_deref()).is_none())
    }

    fn anybody_is_fresh(&self) -> bool {
        self.words().any(|stale| !stale)
    }
}

/// How long some have called their view stale and others not before that counts: longer than it takes everybody who has
/// lost the API at the same moment, or has it back, to say so and to be heard.
pub const STALE_COUNTS_AFTER: Duration = Duration::from_secs(16);

/// How long it counts who was stale when two parted: if one was restarted since, it does not know, and both answer.
const REMEMBERED: Duration = Duration::from_secs(300);

/// No more than one change of the badge in this time, since MetalLB's speakers announce everything again at each.
pub const BADGE_EVERY: Duration = Duration::from_secs(1);

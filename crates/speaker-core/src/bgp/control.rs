// SPDX-License-Identifier: Apache-2.0
//! The parts of BGP's control side put together: what changed is decided, and what came of it goes out.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolb_announce::Inputs;
use ferrolb_announce::bgp::BgpPlan;
use ferrolb_api::Clock;
use ferrolb_api::event::ObjectRef;
use ferrolb_net_types::{PeerName, ServiceKey, Time};

use super::PeerReport;
use super::services::Services;
use super::sessions::{Gone, Sessions};
use super::untold::News;
use crate::io::Effect;
use crate::statuses::Desired;
use crate::store::Changes;

/// Readiness waits no longer than this for sessions.
const SESSIONS_UP: Duration = Duration::from_secs(30);

/// BGP, on the control side.
#[derive(Debug, Default)]
pub(crate) struct Control {
    plan: BgpPlan,
    sessions: Sessions,
    services: Services,
    /// When it was first decided what there is to announce.
    begun: Option<Time>,
    /// Sessions were up once, or had their time.
    awaited: bool,
    /// What became known since the statuses were stated of what peers are told.
    news: News,
    /// Services that were decided anew, and users were not told of yet.
    review: BTreeSet<ServiceKey>,
}

impl Control {
    /// What is announced, and why not what is not.
    pub(crate) const fn plan(&self) -> &BgpPlan {
        &self.plan
    }

    /// Whether anything was decided yet.
    pub(crate) const fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Decides what changed: with `reconfigured`, everything. [`Control::take_review`] has the Services to look at then.
    pub(crate) fn decide(
        &mut self,
        now: Time,
        inputs: &Inputs<'_>,
        changes: Changes,
        reconfigured: bool,
        why_gone: impl Fn(&PeerName) -> Gone,
        effects: &mut impl Extend<Effect>,
    ) {
        self.begun.get_or_insert(now);
        let mut review = changes.services;
        if changes.all || reconfigured {
            review.extend(inputs.services.keys().cloned());
            review.extend(self.plan.services.keys().cloned());
        }
        let prefixes = self.plan.replan(inputs, &review);
        // Whoever is told already hears the news; who comes hears everything.
        if reconfigured {
            let peers = &inputs.config.bgp.peers;
            self.sessions.configure(now, inputs.node, peers, why_gone, &self.plan, effects);
        }
        self.sessions.tell(now, &self.plan, &prefixes, effects);
        self.review.append(&mut review);
    }

    /// The Services of which users may have to be told something, since the last call.
    pub(crate) fn take_review(&mut self) -> BTreeSet<ServiceKey> {
        std::mem::take(&mut self.review)
    }

    /// Tells peers what was not to be told before now.
    pub(crate) fn tell_due(&mut self, now: Time, effects: &mut impl Extend<Effect>) {
        if self.sessions.next_deadline().is_some_and(|due| due <= now) {
            self.sessions.tell(now, &self.plan, &BTreeSet::new(), effects);
        }
    }

    /// Tells users what changed of a Service.
    pub(crate) fn review(
        &mut self,
        inputs: &Inputs<'_>,
        service: &ServiceKey,
        regarding: &ObjectRef,
        known: bool,
        effects: &mut impl Extend<Effect>,
    ) {
        self.services.review(inputs, &self.plan, service, regarding, known, effects);
    }

    /// What the status of a Service should be: the peers that are told of it, or were when their session was up last. Until
    /// sessions have had their time, those that a former process listed stay.
    pub(crate) fn status(
        &self,
        inputs: &Inputs<'_>,
        service: &ServiceKey,
        is_listed: impl Fn(&PeerName) -> bool,
    ) -> Option<Desired> {
        let is_told = |peer: &PeerName, prefix| match self.sessions.tells(peer, prefix) {
            Some(told) => told,
            None => !self.awaited && is_listed(peer),
        };
        Desired::peers(&self.plan.peers_of(service, &inputs.config.bgp.peers, is_told))
    }

    /// The Services whose statuses may have to be others since the last call, for what became of sessions.
    pub(crate) fn take_news(&mut self, now: Time) -> BTreeSet<ServiceKey> {
        let before = self.awaited;
        let late = self.is_ready(now) && !before;
        match std::mem::take(&mut self.news) {
            News::Of(prefixes) if !late && prefixes.is_empty() => BTreeSet::new(),
            News::Of(prefixes) if !late => self.plan.services_of(&prefixes).cloned().collect(),
            _ => self.plan.services.keys().cloned().collect(),
        }
    }

    /// Takes note of how a session is.
    pub(crate) fn report(&mut self, clock: Clock, peer: PeerName, report: Option<Box<PeerReport>>) {
        self.news.add(self.sessions.report(clock, peer, report));
    }

    /// The sessions, and how they are.
    pub(crate) const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Whether sessions are up, or have had their time to come up. Once they were, it stays so.
    pub(crate) fn is_ready(&mut self, now: Time) -> bool {
        let Some(begun) = self.begun else { return false };
        self.awaited |= now >= begun + SESSIONS_UP || self.sessions.all_up();
        self.awaited
    }

    /// When sessions have had their time, or something is to be told that waits.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let awaited = self.begun.filter(|_| !self.awaited).map(|begun| begun + SESSIONS_UP);
        awaited.into_iter().chain(self.sessions.next_deadline()).min()
    }
}

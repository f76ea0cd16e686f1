// SPDX-License-Identifier: Apache-2.0
//! The state machine of the control side: what came in is noted, and decided upon in passes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_announce::{Finding, Inputs, Members, NodePlan};
use ferrolb_api::{Change, Clock};
use ferrolb_config::state::{self, Component, Identity, OwnPod, Reporter};
use ferrolb_net_types::{ServiceKey, Time};
use k8s_openapi::api::core::v1;

use crate::announcing::Announcing;
use crate::intake::Intake;
use crate::io::{Effect, Input, Settings, WriteId};
use crate::outage::Outage;
use crate::peers::Peers;
use crate::statuses::Statuses;
use crate::store::Store;
use crate::wire::Report;

/// The control side of a speaker, without I/O.
///
/// Drive it so: [`Core::handle`] for every input, [`Core::handle_timeout`] when [`Core::next_deadline`] has
/// come, and after either [`Core::poll`] until it yields `None`. Inputs that are there at the same time should
/// all be handled before polling: they then cost one pass.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    rules: ferrolb_announce::Settings,
    clock: Option<Clock>,
    missing: BTreeSet<Watched>,
    store: Store,
    intake: Intake,
    peers: Peers,
    outage: Outage,
    members: Members,
    /// The member list lets this speaker announce.
    eligible: bool,
    /// What `/readyz` was told.
    ready: bool,
    plan: NodePlan,
    planned: bool,
    findings: BTreeMap<IpAddr, Finding>,
    /// IPv6 addresses that were said not to be answered for.
    unanswered: BTreeSet<IpAddr>,
    announcing: Announcing,
    /// Services whose announcement may have changed.
    review: BTreeSet<ServiceKey>,
    wire: WireState,
    statuses: Statuses,
    reporter: Reporter,
    reporting: Option<WriteId>,
    next_id: u64,
    effects: VecDeque<Effect>,
}

/// Kinds without which nothing is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Watched {
    Services,
    EndpointSlices,
    Nodes,
    Namespaces,
    Pools,
    L2Advertisements,
    BGPAdvertisements,
    BGPPeers,
    BFDProfiles,
    Communities,
    L2Statuses,
    ConfigurationStates,
}

/// What is known of the wire side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WireState {
    /// It has not said yet what it does.
    Silent,
    /// Its first report is being taken in: what it does is what a former process may have done.
    First,
    Known,
}

impl Core {
    /// A speaker that knows nothing yet.
    pub fn new(settings: Settings) -> Self {
        let rules = ferrolb_announce::Settings {
            lb_class: Some(settings.lb_class.clone()).filter(|class| !class.is_empty()),
            ignore_exclude_lb: settings.ignore_exclude_lb,
        };
        Self {
            rules,
            clock: None,
            missing: Watched::ALL.into(),
            store: Store::default(),
            intake: Intake::new(&settings),
            peers: Peers::new(settings.node.clone(), settings.member_port),
            outage: Outage::default(),
            members: Members::EveryNode,
            eligible: false,
            ready: false,
            plan: NodePlan::default(),
            planned: false,
            findings: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            announcing: Announcing::new(settings.node.clone()),
            review: BTreeSet::new(),
            wire: WireState::Silent,
            statuses: Statuses::new(settings.clone()),
            reporter: Reporter::new(identity(&settings)),
            reporting: None,
            next_id: 0,
            effects: VecDeque::new(),
            settings,
        }
    }

    /// Takes note of an input.
    pub fn handle(&mut self, clock: Clock, input: Input) {
        self.clock = Some(clock);
        if let Some(kind) = Watched::complete(&input) {
            self.missing.remove(&kind);
        }
        if self.settings.pod.is_some() {
            self.peers.start(clock.now);
        }
        match input {
            Input::OwnPod(pod) => self.introduce(clock, pod),
            Input::Services(change) => self.store.services(change),
            Input::EndpointSlices(change) => self.store.slices(change),
            Input::Nodes(change) => {
                self.look_for_speakers(clock.now, &change);
                self.intake.nodes(&change);
                self.store.nodes(&change);
            }
            Input::Namespaces(change) => self.intake.namespaces(&change),
            Input::Pools(change) => self.intake.objects(|r| &mut r.pools, change),
            Input::L2Advertisements(change) => self.intake.objects(|r| &mut r.l2_advertisements, change),
            Input::BGPAdvertisements(change) => self.intake.objects(|r| &mut r.bgp_advertisements, change),
            Input::BGPPeers(change) => self.intake.objects(|r| &mut r.bgp_peers, change),
            Input::BFDProfiles(change) => self.intake.objects(|r| &mut r.bfd_profiles, change),
            Input::Communities(change) => self.intake.objects(|r| &mut r.communities, change),
            Input::Undecodable(objects) => self.intake.undecodable(objects),
            Input::L2Statuses(change) => self.statuses.watched(change),
            Input::ConfigurationStates(change) => self.reporter.handle(clock, state::Input::Changed(change)),
            Input::Pods(result) => self.peers.listed(clock.now, result),
            Input::Wire(report) => self.hear(clock.now, &report),
            Input::ApiAnswers => self.outage.answered(),
            Input::ApiSilent { since } => self.outage.silent(since),
            Input::Written { id, result } => {
                if self.reporting == Some(id) {
                    self.reporting = None;
                    self.reporter.handle(clock, state::Input::Written(result));
                } else if !self.statuses.written(clock.now, id, &result) {
                    tracing::debug!(id = id.0, "the result of a write that nobody asked for");
                }
            }
        }
    }

    /// Takes note of the time.
    pub fn handle_timeout(&mut self, clock: Clock) {
        self.clock = Some(clock);
        self.statuses.handle_timeout(clock.now);
        self.reporter.handle_timeout(clock);
    }

    /// The next thing to do, if any.
    pub fn poll(&mut self) -> Option<Effect> {
        let clock = self.clock?;
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        self.attend_to_members(clock.now);
        if self.missing.is_empty() {
            self.pass(clock);
        }
        self.tell_readiness();
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        let next_id = &mut self.next_id;
        if let Some((id, request)) = self.statuses.poll(clock.now, || take(next_id)) {
            return Some(Effect::Write { id, request });
        }
        let request = self.reporter.poll()?;
        let id = take(&mut self.next_id);
        self.reporting = Some(id);
        Some(Effect::Write { id, request })
    }

    /// When to call [`Core::handle_timeout`] at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines =
            [self.peers.next_deadline(), self.outage.next_deadline(), self.statuses.next_deadline()];
        deadlines.into_iter().chain([self.reporter.next_deadline()]).flatten().min()
    }

    /// The plan in force: what this node could announce, and why not what it does not.
    pub const fn plan(&self) -> &NodePlan {
        &self.plan
    }

    /// Takes over who this speaker is.
    fn introduce(&mut self, clock: Clock, pod: OwnPod) {
        self.settings.pod = Some(pod);
        self.statuses = Statuses::new(self.settings.clone());
        self.reporter = Reporter::new(identity(&self.settings));
        self.peers.start(clock.now);
    }

    /// Has the speakers' Pods listed if the nodes hint at a change of them.
    fn look_for_speakers(&mut self, now: Time, change: &Change<v1::Node>) {
        let first = self.store.nodes.is_empty();
        let own = &self.settings.node;
        if !first && (self.store.is_news(change, own) || self.intake.relabels(change, own)) {
            self.peers.look_again(now);
        }
    }

    /// Says what has to do with members and does not wait for everything to be listed.
    fn attend_to_members(&mut self, now: Time) {
        if let Some(working) = self.outage.news(now) {
            self.effects.push_back(Effect::Api { working });
        }
        if self.peers.ask(now) {
            self.effects.push_back(Effect::ListPods);
        }
        // Whose node is dead is not to be waited for.
        if !self.missing.contains(&Watched::Nodes)
            && let Some(peers) = self.peers.news(&self.store.not_ready)
        {
            self.effects.push_back(Effect::Peers(peers));
        }
    }

    fn tell_readiness(&mut self) {
        let ready = self.missing.is_empty() && self.eligible && self.wire == WireState::Known;
        if ready != self.ready {
            self.ready = ready;
            self.effects.push_back(Effect::Ready(ready));
        }
    }

    /// Decides what changed.
    fn pass(&mut self, clock: Clock) {
        self.take_configuration(clock);
        if !self.planned || self.store.has_changes() {
            self.replan();
        }
        let reviewed = std::mem::take(&mut self.review);
        for service in reviewed {
            self.review(&service);
        }
        if self.wire == WireState::First {
            self.wire = WireState::Known;
            self.statuses.settle();
        }
    }

    fn take_configuration(&mut self, clock: Clock) {
        let Some(outcome) = self.intake.evaluate() else { return };
        self.reporter.handle(clock, state::Input::Evaluated(self.intake.evaluation().into()));
        if let Some((loaded, stale)) = outcome.metrics {
            self.effects.push_back(Effect::Configuration { loaded, stale });
        }
        self.effects.push_back(Effect::Reconciled { failed: false });
        if outcome.in_force {
            self.store.decide_all();
        }
    }

    fn replan(&mut self) {
        let changes = self.store.take_changes();
        let inputs = Inputs {
            node: &self.settings.node,
            config: self.intake.config(),
            nodes: &self.store.nodes,
            services: &self.store.services,
            settings: &self.rules,
        };
        // Services that went are in `changes.services` in either case.
        let moved = if changes.all {
            self.plan.replan(&inputs, self.store.services.keys().chain(&changes.services))
        } else {
            self.plan.replan(&inputs, &changes.services)
        };
        let decided = if changes.all { self.store.services.len() } else { changes.services.len() };
        self.effects.extend((0..decided).map(|_| Effect::Reconciled { failed: false }));
        self.review.extend(changes.services);
        if changes.all {
            self.review.extend(self.store.services.keys().cloned());
        }
        for ip in &moved {
            self.review_holders(*ip);
            self.tell_finding(*ip);
            self.tell_unanswered(*ip);
        }
        if !self.planned || !moved.is_empty() {
            self.effects.push_back(Effect::Plan(Arc::new(self.plan.clone())));
        }
        self.planned = true;
    }

    fn hear(&mut self, now: Time, report: &Report) {
        if let Some(membership) = &report.membership {
            self.eligible = membership.eligible;
            self.members.clone_from(&membership.members);
            if let Members::Known(members) = &self.members {
                self.peers.members(now, members.keys().cloned().collect());
            }
        }
        if self.wire == WireState::Silent && report.complete {
            self.wire = WireState::First;
        }
        for (ip, counters) in &report.counters {
            self.effects.push_back(Effect::L2Counters { ip: *ip, counters: *counters });
        }
        for ip in self.announcing.report(report) {
            self.review_holders(ip);
        }
    }

    fn review_holders(&mut self, ip: IpAddr) {
        if let Some(address) = self.plan.addresses.get(&ip) {
            self.review.extend(address.services.iter().cloned());
        }
    }

    fn review(&mut self, service: &ServiceKey) {
        let known = self.wire == WireState::First && self.statuses.says_ours(service);
        let regarding = self.store.reference(service);
        let (plan, members) = (&self.plan, &self.members);
        let desired = self.announcing.review(plan, members, service, &regarding, known, &mut self.effects);
        self.statuses.want(service, desired);
    }

    /// Logs that nobody answers for an address because it is of IPv6.
    fn tell_unanswered(&mut self, ip: IpAddr) {
        if !self.plan.addresses.contains_key(&ip) {
            self.unanswered.remove(&ip);
        } else if ip.is_ipv6() && self.unanswered.insert(ip) {
            tracing::warn!(protocol = "layer2", ip = %ip, "IPv6 addresses are not announced by this version");
        }
    }

    /// Logs a finding about an address when it appears or changes.
    fn tell_finding(&mut self, ip: IpAddr) {
        let finding = self.plan.addresses.get(&ip).and_then(|address| address.finding.clone());
        if self.findings.get(&ip) == finding.as_ref() {
            return;
        }
        match finding {
            Some(finding) => {
                tracing::warn!(event = "sharersDisagree", protocol = "layer2", ip = %ip, "{finding}");
                self.findings.insert(ip, finding);
            }
            None => {
                self.findings.remove(&ip);
            }
        }
    }
}

impl Watched {
    const ALL: [Self; 12] = [
        Self::Services,
        Self::EndpointSlices,
        Self::Nodes,
        Self::Namespaces,
        Self::Pools,
        Self::L2Advertisements,
        Self::BGPAdvertisements,
        Self::BGPPeers,
        Self::BFDProfiles,
        Self::Communities,
        Self::L2Statuses,
        Self::ConfigurationStates,
    ];

    /// The kind that the input lists completely, if it does.
    const fn complete(input: &Input) -> Option<Self> {
        use ferrolb_api::Change::Reset;
        Some(match input {
            Input::Services(Reset(_)) => Self::Services,
            Input::EndpointSlices(Reset(_)) => Self::EndpointSlices,
            Input::Nodes(Reset(_)) => Self::Nodes,
            Input::Namespaces(Reset(_)) => Self::Namespaces,
            Input::Pools(Reset(_)) => Self::Pools,
            Input::L2Advertisements(Reset(_)) => Self::L2Advertisements,
            Input::BGPAdvertisements(Reset(_)) => Self::BGPAdvertisements,
            Input::BGPPeers(Reset(_)) => Self::BGPPeers,
            Input::BFDProfiles(Reset(_)) => Self::BFDProfiles,
            Input::Communities(Reset(_)) => Self::Communities,
            Input::L2Statuses(Reset(_)) => Self::L2Statuses,
            Input::ConfigurationStates(Reset(_)) => Self::ConfigurationStates,
            _ => return None,
        })
    }
}

fn identity(settings: &Settings) -> Identity {
    Identity {
        component: Component::Speaker(settings.node.clone()),
        namespace: settings.namespace.clone(),
        pod: settings.pod.clone(),
    }
}

fn take(next_id: &mut u64) -> WriteId {
    *next_id += 1;
    WriteId(*next_id)
}

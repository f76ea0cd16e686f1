// SPDX-License-Identifier: Apache-2.0
//! The state machine of the control side: what came in is noted, and decided upon in passes.

mod bgp;
mod members;
mod resume;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_announce::bgp::BgpPlan;
use ferrolb_announce::{Finding, Inputs, Members, NodePlan};
use ferrolb_api::Clock;
use ferrolb_api::event::{Event, EventKind};
use ferrolb_api::request::{WriteError, WriteResult};
use ferrolb_config::state::{self, Component, Identity, Reporter};
use ferrolb_net_types::{ServiceKey, Time};

use crate::announcing::Announcing;
use crate::bgp::{Control, Objects};
use crate::departure::Departure;
use crate::intake::{Intake, Refusal};
use crate::io::{Effect, Input, Protocol, Settings, WriteId};
use crate::outage::Outage;
use crate::peers::Peers;
use crate::statuses::Statuses;
use crate::store::Store;
use crate::unreachable::Unreachable;
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
    unreachable: Unreachable,
    /// The lines about them that the ConfigurationState is to show.
    missed: Vec<String>,
    members: Members,
    /// The member list lets this speaker announce.
    eligible: bool,
    /// The members are those that there are.
    heard: bool,
    /// What `/readyz` was told.
    ready: bool,
    plan: NodePlan,
    planned: bool,
    /// Decisions are still those of a former process.
    resumed: bool,
    /// When what decides is to be kept for a process to come.
    saving: Option<Time>,
    saved: Option<Time>,
    findings: BTreeMap<IpAddr, Finding>,
    /// The findings that the users of the address were told.
    told_findings: BTreeMap<IpAddr, Finding>,
    announcing: Announcing,
    /// Services whose announcement may have changed.
    review: BTreeSet<ServiceKey>,
    wire: WireState,
    statuses: Statuses,
    departure: Departure,
    bgp: Control,
    /// Users were told once what is announced by BGP.
    bgp_told: bool,
    bgp_statuses: Statuses,
    bgp_sessions: Objects,
    reporter: Reporter,
    reporting: Option<WriteId>,
    /// Writes that the API server has not answered, and is known not to.
    unanswered: Vec<(WriteId, WriteError)>,
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
    BGPStatuses,
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
            unreachable: Unreachable::default(),
            missed: Vec::new(),
            members: Members::EveryNode,
            eligible: false,
            heard: false,
            ready: false,
            plan: NodePlan::default(),
            planned: false,
            resumed: false,
            saving: None,
            saved: None,
            findings: BTreeMap::new(),
            told_findings: BTreeMap::new(),
            announcing: Announcing::new(settings.node.clone()),
            review: BTreeSet::new(),
            wire: WireState::Silent,
            statuses: Statuses::new(Protocol::Layer2, settings.clone()),
            departure: Departure::of(settings.node.clone()),
            bgp: Control::default(),
            bgp_told: false,
            bgp_statuses: Statuses::new(Protocol::Bgp, settings.clone()),
            bgp_sessions: Objects::new(settings.clone()),
            reporter: Reporter::new(identity(&settings)),
            reporting: None,
            unanswered: Vec::new(),
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
                self.departure.nodes(&change);
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
            Input::BGPStatuses(change) => self.bgp_statuses.watched(change),
            Input::Secret { name, secret } => self.intake.secret(name, secret),
            Input::BGPSessions(change) => self.bgp_sessions.watched(change),
            Input::Peer { peer, report } => {
                let before = self.bgp.sessions().excluded();
                self.bgp.report(clock, peer, report);
                self.bgp_sessions.note();
                if self.bgp.sessions().excluded() != before {
                    self.report(clock);
                }
            }
            Input::ConfigurationStates(change) => self.reporter.handle(clock, state::Input::Changed(change)),
            Input::Pods(result) => self.hear_of_pods(clock.now, result),
            Input::Wire(report) => self.hear(clock.now, &report),
            Input::ApiAnswers => self.hear_from_api(clock),
            Input::ApiSilent { since } => self.outage.silent(since),
            // There is no point in asking again before the server answers something.
            Input::Written { id, result: Err(error) } if error.code == 0 && self.outage.is_silent() => {
                self.unanswered.push((id, error));
            }
            Input::Written { id, result } => self.written(clock, id, result),
        }
    }

    /// The API server answers again: what it did not answer is asked again now.
    fn hear_from_api(&mut self, clock: Clock) {
        self.outage.answered();
        for (id, error) in std::mem::take(&mut self.unanswered) {
            self.written(clock, id, Err(error));
        }
        self.statuses.api_answers();
        self.bgp_statuses.api_answers();
        self.bgp_sessions.api_answers();
        self.reporter.handle(clock, state::Input::ApiAnswers);
    }

    fn written(&mut self, clock: Clock, id: WriteId, result: WriteResult) {
        if self.reporting == Some(id) {
            self.reporting = None;
            self.reporter.handle(clock, state::Input::Written(result));
        } else if !self.statuses.written(clock.now, id, &result)
            && !self.bgp_statuses.written(clock.now, id, &result)
            && !self.bgp_sessions.written(clock.now, id, &result)
        {
            tracing::debug!(id = id.0, "the result of a write that nobody asked for");
        }
    }

    /// Takes note of the time.
    pub fn handle_timeout(&mut self, clock: Clock) {
        self.clock = Some(clock);
        self.statuses.handle_timeout(clock.now);
        self.bgp_statuses.handle_timeout(clock.now);
        self.bgp_sessions.handle_timeout(clock.now);
        self.reporter.handle_timeout(clock);
    }

    /// The next thing to do, if any.
    pub fn poll(&mut self) -> Option<Effect> {
        let clock = self.clock?;
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        if self.missing.is_empty() {
            self.pass(clock);
        } else if self.resumed {
            self.pass_resumed();
        }
        self.attend_to_members(clock.now);
        self.tell_readiness(clock.now);
        self.tell_to_save(clock.now);
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        let next_id = &mut self.next_id;
        if let Some((id, request)) = self.statuses.poll(clock.now, || take(next_id)) {
            return Some(Effect::Write { id, request });
        }
        if let Some((id, request)) = self.bgp_statuses.poll(clock.now, || take(next_id)) {
            return Some(Effect::Write { id, request });
        }
        if self.bgp.has_begun()
            && let Some((id, request)) =
                self.bgp_sessions.poll(clock.now, self.bgp.sessions(), || take(next_id))
        {
            return Some(Effect::Write { id, request });
        }
        let request = self.reporter.poll()?;
        let id = take(&mut self.next_id);
        self.reporting = Some(id);
        Some(Effect::Write { id, request })
    }

    /// When to call [`Core::handle_timeout`] at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        [
            self.peers.next_deadline(),
            self.outage.next_deadline(),
            self.unreachable.next_deadline(),
            self.saving,
            self.statuses.next_deadline(),
            self.bgp.next_deadline(),
            self.bgp_statuses.next_deadline(),
            self.bgp_sessions.next_deadline(),
            self.intake.next_deadline(),
            self.reporter.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The plan in force: what this node could announce, and why not what it does not.
    pub const fn plan(&self) -> &NodePlan {
        &self.plan
    }

    /// What this node announces by BGP, and why not what it does not.
    pub const fn bgp_plan(&self) -> &BgpPlan {
        self.bgp.plan()
    }

    /// What the own node is that is about to go, as `cordoned and not ready`; `None` if nothing says that it is.
    pub fn departure(&self) -> Option<String> {
        self.departure.words()
    }

    /// Decides what changed.
    fn pass(&mut self, clock: Clock) {
        self.take_configuration(clock);
        self.tell_missed(clock);
        self.pass_bgp(clock);
        if !self.effects.is_empty() {
            // What peers are told waits neither for what users are nor for layer 2; the next call goes on.
            return;
        }
        self.review_bgp(clock);
        if !self.intake.is_known() {
            return;
        }
        self.end_resumption();
        if !self.planned || self.store.has_changes() {
            self.replan();
            self.save_soon(clock.now);
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
        self.effects.extend(self.intake.secrets_news(clock.now).map(Effect::Secrets));
        let evaluated = self.intake.evaluate(clock.now);
        let refusal = if self.intake.is_pending() { self.refusal() } else { None };
        let settled = self.intake.settle(refusal);
        if settled.in_force {
            self.store.decide_all();
        }
        if evaluated || settled.told {
            self.report(clock);
            if let Some((loaded, stale)) = self.intake.metrics() {
                self.effects.push_back(Effect::Configuration { loaded, stale });
            }
        }
        if evaluated {
            self.effects.push_back(Effect::Reconciled { failed: false });
        }
    }

    /// Why what is pending is not to be put in force now.
    fn refusal(&mut self) -> Option<Refusal> {
        if self.members.any_metallb() {
            // What is announced now decides, not what was announced before these changes.
            if self.planned && self.store.has_changes() {
                self.replan();
            }
            return self.intake.refusal(&self.plan);
        }
        // By what one of MetalLB's that starts now would not take, nothing is begun before it is known whether there
        // are any. Whatever is in force already was so before.
        let unheard = self.settings.member_port.is_some() && !self.heard;
        (unheard && !self.intake.is_known() && self.intake.is_invalid()).then_some(Refusal::Unheard)
    }

    /// Has the ConfigurationState show what is known now.
    fn report(&mut self, clock: Clock) {
        let mut outcome = state::Outcome { members: self.missed.clone(), ..self.intake.outcome() };
        // Where the configuration alone tells that peers exclude each other it is refused as well.
        let mut excluded = self.bgp.sessions().excluded().into_iter();
        if outcome.verdict.is_ok() {
            outcome.verdict = excluded.next().map_or(Ok(()), Err);
        }
        outcome.further.extend(excluded);
        self.reporter.handle(clock, state::Input::Evaluated(outcome));
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
        }
        if !self.planned || !moved.is_empty() {
            self.effects.push_back(Effect::Plan(Arc::new(self.plan.addresses.clone())));
        }
        self.planned = true;
    }

    fn hear(&mut self, now: Time, report: &Report) {
        if let Some(membership) = &report.membership {
            self.hear_of_members(now, membership);
        }
        if self.wire == WireState::Silent && report.complete {
            self.wire = WireState::First;
        }
        for (ip, counters) in &report.counters {
            self.effects.push_back(Effect::L2Counters { ip: *ip, counters: *counters });
        }
        for ip in self.announcing.report(report) {
            self.review_holders(ip);
            self.tell_finding(ip);
        }
    }

    fn review_holders(&mut self, ip: IpAddr) {
        if let Some(address) = self.plan.addresses.get(&ip) {
            self.review.extend(address.services.iter().cloned());
        }
    }

    fn review(&mut self, service: &ServiceKey) {
        let known = self.is_known(service);
        let regarding = self.store.reference(service);
        let (plan, members) = (&self.plan, &self.members);
        let desired = self.announcing.review(plan, members, service, &regarding, known, &mut self.effects);
        self.statuses.want(service, desired);
    }

    /// Logs a finding about an address when it appears or changes, and tells the users of the address if this node
    /// announces it.
    fn tell_finding(&mut self, ip: IpAddr) {
        let plan = self.plan.addresses.get(&ip);
        let Some((plan, finding)) = plan.and_then(|plan| Some((plan, plan.finding.as_ref()?))) else {
            self.findings.remove(&ip);
            self.told_findings.remove(&ip);
            return;
        };
        if self.findings.get(&ip) != Some(finding) {
            tracing::warn!(event = "sharersDisagree", protocol = "layer2", ip = %ip, "{finding}");
            self.findings.insert(ip, finding.clone());
        }
        if !self.announcing.announces(ip) || self.told_findings.get(&ip) == Some(finding) {
            return;
        }
        self.told_findings.insert(ip, finding.clone());
        for service in &plan.services {
            if self.is_known(service) {
                continue;
            }
            self.effects.push_back(Effect::Event(Event {
                regarding: self.store.reference(service),
                kind: EventKind::Warning,
                reason: "sharersDisagree",
                message: format!("LB IP \"{ip}\": {finding}"),
            }));
        }
    }

    /// Whether users were told by a former process that this node announces the Service.
    fn is_known(&self, service: &ServiceKey) -> bool {
        self.resumed || (self.wire == WireState::First && self.statuses.says_ours(service))
    }
}

impl Watched {
    const ALL: [Self; 13] = [
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
        Self::BGPStatuses,
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
            Input::BGPStatuses(Reset(_)) => Self::BGPStatuses,
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

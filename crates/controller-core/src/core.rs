// SPDX-License-Identifier: Apache-2.0
//! The state machine: what comes in, what is done next, what goes out.

use std::collections::{BTreeMap, VecDeque};

use ferrolb_api::request::{ApiRequest, WriteResult};
use ferrolb_api::{Clock, IPAddressPool};
use ferrolb_ipam::Allocator;
use ferrolb_net_types::{PoolName, ServiceKey, Time};

use crate::announced::Announced;
use crate::configuration::Configuration;
use crate::doubts::Doubts;
use crate::entry::Entry;
use crate::intents::{Intent, Ledger};
use crate::io::{Effect, Input, Settings, WriteId};
use crate::pool_status::{Due, PoolStatuses};
use crate::queue::{Queue, Retry};
use crate::replicas::Gate;

/// The controller, without I/O.
///
/// Drive it so: [`Core::handle`] for every input, [`Core::handle_timeout`] when [`Core::next_deadline`] has
/// come, and after either [`Core::poll`] until it yields `None`. Inputs that are there at the same time should
/// all be handled before polling: what they change is then decided by rank, not by order of arrival.
///
/// Nothing is decided before Services, pools, communities and namespaces have all been listed.
#[derive(Debug)]
pub struct Core {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) configuration: Configuration,
    /// `None` until the first configuration.
    pub(crate) allocator: Option<Allocator>,
    pub(crate) services: BTreeMap<ServiceKey, Entry>,
    pub(crate) services_listed: bool,
    pub(crate) queue: Queue,
    pub(crate) pools: PoolStatuses,
    pub(crate) announced: Announced,
    pub(crate) gate: Gate,
    /// Writes of addresses whose outcome is not known.
    pub(crate) ledger: Ledger,
    pub(crate) doubts: Doubts,
    pub(crate) stopping: bool,
    writes: BTreeMap<WriteId, Target>,
    next_write: u64,
    pub(crate) effects: VecDeque<Effect>,
}

/// What a write was for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A Service's status.
    Service { key: ServiceKey, intent: Intent, addresses: bool },
    /// A pool's status.
    Pool(PoolName),
    /// The ConfigurationState.
    State,
}

impl Core {
    /// A controller that knows nothing yet. `clock` is the time of its start.
    pub fn new(clock: Clock, settings: Settings) -> Self {
        let gate = Gate::new(clock.now, &settings);
        Self {
            configuration: Configuration::new(&settings),
            settings,
            clock,
            allocator: None,
            services: BTreeMap::new(),
            services_listed: false,
            queue: Queue::default(),
            pools: PoolStatuses::default(),
            announced: Announced::default(),
            gate,
            ledger: Ledger::default(),
            doubts: Doubts::default(),
            stopping: false,
            writes: BTreeMap::new(),
            next_write: 0,
            effects: VecDeque::new(),
        }
    }

    /// Takes note of an input.
    pub fn handle(&mut self, clock: Clock, input: Input) {
        self.clock = clock;
        match input {
            Input::Services(change) => self.services_changed(change),
            Input::Pools(change) => {
                for pool in self.configuration.pools_changed(change) {
                    self.pools.changed(pool);
                }
            }
            Input::Communities(change) => self.configuration.communities_changed(change),
            Input::Namespaces(change) => self.configuration.namespaces_changed(change),
            Input::Undecodable(objects) => self.configuration.undecodable_changed(objects),
            Input::ConfigurationStates(change) => self.configuration.state_changed(clock, change),
            Input::L2Statuses(change) => {
                let complete = self.announced.is_complete();
                let services = self.announced.l2_changed(change);
                self.announced_changed(services, complete);
            }
            Input::BgpStatuses(change) => {
                let complete = self.announced.is_complete();
                let services = self.announced.bgp_changed(change);
                self.announced_changed(services, complete);
            }
            Input::Lease(result) => self.lease_answered(result),
            Input::ServicesListed(result) => self.services_read(result),
            Input::RivalsFound(found) => self.rivals_found(found),
            Input::ApiAnswers => self.configuration.api_answers(clock),
            Input::Stopping => self.stop(),
            Input::Written { id, result } => self.written(id, result),
        }
    }

    /// Takes note of the time.
    pub fn handle_timeout(&mut self, clock: Clock) {
        self.clock = clock;
        while let Some(retry) = self.queue.due(clock.now) {
            match retry {
                Retry::Service(key) => {
                    self.queue.changed.insert(key);
                }
                Retry::Pool(pool) => self.pools.changed(pool),
                Retry::Fence(key) => {
                    if let Some(fence) = self.gate.fence() {
                        fence.again(&key);
                    }
                }
                Retry::Doubt => self.doubts.look(),
                Retry::Announced(key) => {
                    if let Some(entry) = self.services.get_mut(&key) {
                        entry.announcing = None;
                    }
                    self.queue.changed.insert(key);
                }
            }
        }
        if let Gate::Rivals(rivals) = &mut self.gate {
            rivals.handle_timeout(clock.now);
        }
        self.configuration.handle_timeout(clock);
    }

    /// The next thing to do, if any.
    pub fn poll(&mut self) -> Option<Effect> {
        loop {
            if let Some(effect) = self.effects.pop_front() {
                return Some(effect);
            }
            if !self.work() {
                return None;
            }
        }
    }

    /// When to call [`Core::handle_timeout`] at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines =
            [self.queue.next_deadline(), self.configuration.next_deadline(), self.gate.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Does one piece of what is left to do; false if nothing is.
    fn work(&mut self) -> bool {
        // Keeping the Lease comes first.
        if self.ask(false) {
            return true;
        }
        if self.fence_next() {
            return true;
        }
        if self.configuration.has_request()
            && self.may_write()
            && let Some(request) = self.configuration.next_request(self.clock)
        {
            self.send(Target::State, request);
            return true;
        }
        if self.configuration.evaluate_if_needed(self.clock, &mut self.effects) {
            return true;
        }
        if !self.services_listed {
            return self.ask(true);
        }
        if let Some(config) = self.configuration.take_new() {
            self.install(&config);
            return true;
        }
        if self.settle_changed() || (self.may_decide() && self.decide_next()) {
            return true;
        }
        if self.may_decide() {
            self.pools.resume();
        }
        self.show_next_pool() || self.settle_doubts() || self.ask(true)
    }

    fn show_next_pool(&mut self) -> bool {
        let Some(allocator) = &self.allocator else { return false };
        let Some(pool) = self.pools.next() else { return false };
        let counters = allocator.counters(pool.as_str());
        self.effects.extend(self.pools.show(&pool, counters));
        let Some(counters) = counters else { return true };
        let Some(object) = self.configuration.pool(pool.as_str()) else { return true };
        match self.pools.due(self.clock.now, object, counters) {
            Due::Never => {}
            Due::At(at) => self.queue.retry(at, Retry::Pool(pool)),
            Due::Now => {
                // Asked only now: it may make somebody look for rivals.
                if !self.may_write() {
                    self.pools.bar(pool);
                } else if let Some(object) = self.configuration.pool(pool.as_str()) {
                    let request = self.pools.write(self.clock.now, object, counters);
                    self.send(Target::Pool(pool), request);
                }
            }
        }
        true
    }

    pub(crate) fn send(&mut self, target: Target, request: ApiRequest) {
        let id = WriteId(self.next_write);
        self.next_write += 1;
        self.writes.insert(id, target);
        self.effects.push_back(Effect::Write { id, request });
    }

    fn written(&mut self, id: WriteId, result: WriteResult) {
        match self.writes.remove(&id) {
            Some(Target::Service { key, intent, addresses }) => {
                self.service_written(&key, &intent, addresses, result);
            }
            Some(Target::Pool(pool)) => self.pool_written(pool, result),
            Some(Target::State) => self.configuration.state_written(self.clock, result),
            None => tracing::error!(bug = true, id = id.0, "result of a write that nobody asked for"),
        }
    }

    fn pool_written(&mut self, pool: PoolName, result: WriteResult) {
        match result {
            Ok(stored) => {
                let stored: Option<IPAddressPool> = serde_json::from_value(stored).ok();
                self.pools.wrote(&pool, stored.as_ref().and_then(|stored| stored.status));
                if let Some(stored) = stored {
                    self.configuration.pool_stored(stored);
                }
            }
            Err(error) => {
                // A conflict only says that the watch is a moment behind.
                if error.is_conflict() || error.is_not_found() {
                    tracing::debug!(controller = "PoolStatusReconciler", %pool, %error, "pool status not written");
                } else {
                    tracing::error!(controller = "PoolStatusReconciler", %pool, %error, "failed to write pool status");
                }
                if let Some(at) = self.pools.failed(self.clock.now, &pool, &error) {
                    self.queue.retry(at, Retry::Pool(pool));
                }
            }
        }
    }
}

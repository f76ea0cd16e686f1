// SPDX-License-Identifier: Apache-2.0
//! Misbehaviour on request: rules that make requests go wrong, watches that end or expire, outages. The handle
//! serves whoever runs the server in its own process; [`crate::control`] is the same over HTTP.

mod rule;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::api::Cluster;
use crate::attributes::Attributes;

pub use rule::{Effect, Fault, RequestMatch};

/// Makes a server misbehave. Cheap to clone; all clones are of one server.
#[derive(Debug, Clone)]
pub struct Faults {
    cluster: Arc<Cluster>,
}

/// A rule that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstalledFault {
    /// Number of the rule; numbers are never used twice.
    pub id: u64,
    /// The rule.
    #[serde(flatten)]
    pub fault: Fault,
    /// How many requests it matched.
    pub seen: u64,
    /// To how many of them its effect happened.
    pub applied: u64,
}

/// A request that is held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldRequest {
    /// Number by which it is released; numbers are never used twice.
    pub id: u64,
    /// Number of the rule that holds it.
    pub fault: u64,
    /// Verb.
    pub verb: String,
    /// Resource, with its subresource: `services/status`.
    pub resource: String,
    /// Namespace, or "".
    pub namespace: String,
    /// Object name, or "".
    pub name: String,
    /// Name of the user.
    pub user: String,
}

impl Faults {
    pub(crate) const fn of(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }

    /// Puts a rule in force and returns its number. Rules apply in the order in which they came; a request meets
    /// all that match it, until one refuses it.
    pub fn add(&self, fault: Fault) -> u64 {
        let mut state = self.engine().lock();
        let id = state.number();
        state.rules.push(InstalledFault { id, fault, seen: 0, applied: 0 });
        id
    }

    /// Takes a rule out of force; what it holds back is released. False if there is no such rule.
    pub fn remove(&self, id: u64) -> bool {
        let mut state = self.engine().lock();
        let before = state.rules.len();
        state.rules.retain(|rule| rule.id != id);
        // Dropping the sender releases the request.
        state.held.retain(|_, held| held.request.fault != id);
        state.rules.len() != before
    }

    /// Takes all rules out of force, releases what is held back, and ends an outage.
    pub fn clear(&self) {
        let mut state = self.engine().lock();
        state.rules.clear();
        state.held.clear();
        drop(state);
        self.end_outage();
    }

    /// Rules that are in force, in order.
    pub fn list(&self) -> Vec<InstalledFault> {
        self.engine().lock().rules.clone()
    }

    /// Requests that are held back, oldest first.
    pub fn held(&self) -> Vec<HeldRequest> {
        self.engine().lock().held.values().map(|held| held.request.clone()).collect()
    }

    /// Lets a request that is held back go on. False if there is none of this number.
    pub fn release(&self, id: u64) -> bool {
        self.engine().lock().held.remove(&id).is_some()
    }

    /// Ends watches, as a server does that restarts gently, and returns how many. Their clients resume where they
    /// were.
    pub fn close_watches(&self, which: &RequestMatch) -> usize {
        let mut state = self.engine().lock();
        let before = state.watches.len();
        state.watches.retain(|_, (attributes, open)| {
            let ends = which.covers(attributes);
            if ends {
                open.cancel();
            }
            !ends
        });
        before - state.watches.len()
    }

    /// Forgets the history of resources and ends watches of them; returns how many. Whoever resumes from an older
    /// resourceVersion is answered with 410 Expired, and must list again; so are other watches of the same
    /// resources, as far as the match leaves them open, with the next change.
    pub fn expire_watches(&self, which: &RequestMatch) -> usize {
        let rows = self.cluster.registry.all();
        let storages: BTreeSet<&str> = rows
            .iter()
            .filter(|row| which.covers_kind(&row.group, &row.plural))
            .map(|row| row.storage.as_str())
            .collect();
        // In this order: one that was told to end does so quietly, whatever it finds forgotten.
        let closed = self.close_watches(which);
        self.cluster.store.expire(&storages);
        closed
    }

    /// Closes the listener and all connections until [`Faults::end_outage`]: clients are refused.
    pub fn begin_outage(&self) {
        self.engine().down.send_replace(true);
    }

    /// Listens again, on the same port, with the same data.
    pub fn end_outage(&self) {
        self.engine().down.send_replace(false);
    }

    /// An outage that ends by itself. Must be called on a tokio runtime.
    pub fn outage(&self, lasting: Duration) {
        self.begin_outage();
        let faults = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(lasting).await;
            faults.end_outage();
        });
    }

    /// Whether an outage is going on.
    pub fn is_down(&self) -> bool {
        *self.engine().down.borrow()
    }

    fn engine(&self) -> &Engine {
        &self.cluster.faults
    }
}

/// Rules in force and what they hold.
#[derive(Debug)]
pub(crate) struct Engine {
    state: Mutex<State>,
    down: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    numbers: u64,
    rules: Vec<InstalledFault>,
    held: BTreeMap<u64, Held>,
    watches: BTreeMap<u64, (Attributes, CancellationToken)>,
}

#[derive(Debug)]
struct Held {
    request: HeldRequest,
    /// Dropped when the request may go on.
    _release: oneshot::Sender<()>,
}

impl State {
    const fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self { state: Mutex::default(), down: watch::Sender::new(false) }
    }
}

/// What a request is to meet, step by step.
#[derive(Debug)]
pub(crate) enum Step {
    /// Wait this long.
    Wait(Duration),
    /// Wait until the sender is gone.
    Held(oneshot::Receiver<()>),
    /// Be refused.
    Refuse(Effect, u64),
    /// Be carried out without an answer.
    Drop,
}

impl Engine {
    /// What the rules have in store for a request.
    pub(crate) fn meet(&self, attributes: &Attributes) -> Vec<Step> {
        let mut state = self.lock();
        let State { numbers, rules, held, .. } = &mut *state;
        let mut steps = Vec::new();
        for rule in rules.iter_mut().filter(|rule| rule.fault.requests.covers(attributes)) {
            rule.seen += 1;
            let spent = rule.fault.count.is_some_and(|count| rule.applied >= count);
            if spent || rule.seen <= rule.fault.skip {
                continue;
            }
            rule.applied += 1;
            match &rule.fault.effect {
                Effect::Delay { milliseconds } => {
                    steps.push(Step::Wait(Duration::from_millis(*milliseconds)))
                }
                Effect::DropAnswer => steps.push(Step::Drop),
                Effect::Hold => {
                    let (release, released) = oneshot::channel();
                    *numbers += 1;
                    let request = HeldRequest {
                        id: *numbers,
                        fault: rule.id,
                        verb: attributes.verb.clone(),
                        resource: attributes.full_resource(),
                        namespace: attributes.namespace.clone(),
                        name: attributes.name.clone(),
                        user: attributes.user.clone(),
                    };
                    held.insert(*numbers, Held { request, _release: release });
                    steps.push(Step::Held(released));
                }
                refusal @ (Effect::Fail { .. } | Effect::Conflict) => {
                    steps.push(Step::Refuse(refusal.clone(), rule.id));
                    break;
                }
            }
        }
        steps
    }

    /// Notes a watch; it is over when the token says so or the guard is dropped.
    pub(crate) fn watch_began(&self, attributes: Attributes) -> (u64, CancellationToken) {
        let open = CancellationToken::new();
        let mut state = self.lock();
        let id = state.number();
        state.watches.insert(id, (attributes, open.clone()));
        (id, open)
    }

    /// Forgets a watch that has ended.
    pub(crate) fn watch_ended(&self, id: u64) {
        self.lock().watches.remove(&id);
    }

    /// Tells whether an outage is going on.
    pub(crate) fn outages(&self) -> watch::Receiver<bool> {
        self.down.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update() -> Attributes {
        Attributes { verb: "update".into(), resource: "services".into(), ..Attributes::default() }
    }

    fn installed(engine: &Engine, fault: Fault) {
        let mut state = engine.lock();
        let id = state.number();
        state.rules.push(InstalledFault { id, fault, seen: 0, applied: 0 });
    }

    #[test]
    fn a_rule_passes_some_and_then_hits_a_number_of_requests() {
        let engine = Engine::default();
        let fault =
            Fault { skip: 1, count: Some(2), ..Fault::new(RequestMatch::default(), Effect::Conflict) };
        installed(&engine, fault);
        let hits: Vec<bool> = (0..5).map(|_| !engine.meet(&update()).is_empty()).collect();
        assert_eq!(hits, [false, true, true, false, false]);
        let state = engine.lock();
        assert_eq!((state.rules[0].seen, state.rules[0].applied), (5, 2));
    }

    #[test]
    fn a_request_meets_all_rules_up_to_the_one_that_refuses_it() {
        let engine = Engine::default();
        let any = RequestMatch::default;
        installed(&engine, Fault::new(any(), Effect::delay(Duration::from_millis(5))));
        installed(&engine, Fault::new(any(), Effect::DropAnswer));
        installed(&engine, Fault::new(any(), Effect::fail(500)));
        installed(&engine, Fault::new(any(), Effect::Conflict));
        let steps = engine.meet(&update());
        assert!(matches!(
            steps[..],
            [Step::Wait(_), Step::Drop, Step::Refuse(Effect::Fail { code: 500, .. }, _)]
        ));
    }
}

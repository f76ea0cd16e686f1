// SPDX-License-Identifier: Apache-2.0
//! The state machine that decides what to write next.
//!
//! Others may have their hands in the object: an admission webhook that drops what is written, a definition without the
//! field, somebody who puts his own values there. None of that makes it write without pause, and what one write cannot
//! bring about holds up no other.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolb_api::request::{ApiRequest, WriteError, WriteResult};
use ferrolb_api::{Change, Clock, ConfigurationState};
use ferrolb_net_types::Time;
use kube::ResourceExt;

use super::Identity;
use crate::Evaluation;

/// What is to be reported of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict: the condition's message is its error.
    pub verdict: Result<(), String>,
    /// Everything else there is to say, one entry each.
    pub further: Vec<String>,
    /// Other speakers that run and cannot be reached, one entry each. Says nothing of the configuration.
    pub members: Vec<String>,
}

impl From<&Evaluation> for Outcome {
    fn from(evaluation: &Evaluation) -> Self {
        let mut further: Vec<_> = evaluation.further().map(ToString::to_string).collect();
        let verdict = match evaluation.refused().map(ToString::to_string) {
            Some(shown) => {
                further.retain(|text| *text != shown);
                Err(shown)
            }
            None => evaluation.verdict.clone(),
        };
        Self { verdict, further, members: Vec::new() }
    }
}

/// What a [`Reporter`] hears.
#[derive(Clone, Debug)]
pub enum Input {
    /// The watch of ConfigurationStates. Objects of others are ignored.
    Changed(Change<ConfigurationState>),
    /// The configuration was evaluated.
    Evaluated(Outcome),
    /// What the request came to that [`Reporter::poll`] gave last.
    Written(WriteResult),
    /// The API server answers again, after it had been away.
    ApiAnswers,
}

/// Keeps one ConfigurationState true.
#[derive(Debug)]
pub struct Reporter {
    identity: Identity,
    observed: Observed,
    outcome: Option<Outcome>,
    /// What is being written, from the moment it is decided until its result is back.
    under_way: Option<UnderWay>,
    /// Decided, not yet taken by `poll`.
    request: Option<ApiRequest>,
    /// Failed writes in a row.
    failures: u32,
    retry_at: Option<Time>,
    /// The last of them failed because the server was away, or in trouble; it refused nothing.
    away: bool,
    /// What was written and not stored, which is left alone for a while …
    ignored: BTreeSet<Step>,
    /// … until then.
    ignored_until: Option<Time>,
    /// How often in a row something was.
    ignorances: u32,
    /// Writes that succeeded, upon one outcome.
    rounds: u32,
    last: Time,
}

/// What is known of the object.
#[derive(Debug)]
enum Observed {
    /// Nothing yet.
    Unknown,
    Absent,
    Present(Box<ConfigurationState>),
}

#[derive(Debug)]
struct UnderWay {
    step: Step,
    /// The outcome it was decided upon.
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Create,
    Adopt,
    Conditions,
    Result,
}

impl Reporter {
    /// A reporter that knows nothing yet. It waits for the first list of the watch.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            observed: Observed::Unknown,
            outcome: None,
            under_way: None,
            request: None,
            failures: 0,
            retry_at: None,
            away: false,
            ignored: BTreeSet::new(),
            ignored_until: None,
            ignorances: 0,
            rounds: 0,
            last: Time::ZERO,
        }
    }

    /// Feeds one input.
    pub fn handle(&mut self, clock: Clock, input: Input) {
        match input {
            Input::Changed(change) => self.changed(change),
            Input::Evaluated(outcome) => self.evaluated(outcome),
            Input::Written(result) => self.written(clock, result),
            Input::ApiAnswers => self.answers(),
        }
        self.advance(clock);
    }

    /// Tries again what failed, once its time has come.
    pub fn handle_timeout(&mut self, clock: Clock) {
        self.advance(clock);
    }

    /// Takes the request to be sent. Its result must come back as [`Input::Written`].
    pub fn poll(&mut self) -> Option<ApiRequest> {
        self.request.take()
    }

    /// Whether [`poll`](Self::poll) has something to give.
    pub const fn has_request(&self) -> bool {
        self.request.is_some()
    }

    /// Decides anew what was decided and not taken yet, for somebody who may not always write: the object may have
    /// changed since.
    pub fn reconsider(&mut self, clock: Clock) {
        if self.request.take().is_some() {
            self.under_way = None;
            self.advance(clock);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn next_deadline(&self) -> Option<Time> {
        self.retry_at.into_iter().chain(self.ignored_until).min()
    }

    fn evaluated(&mut self, outcome: Outcome) {
        if self.outcome.as_ref() != Some(&outcome) {
            self.rounds = 0;
        }
        self.outcome = Some(outcome);
    }

    /// What failed for want of the server is tried again now, and counts no longer.
    fn answers(&mut self) {
        if std::mem::take(&mut self.away) {
            self.failures = 0;
            self.retry_at = None;
        }
    }

    fn changed(&mut self, change: Change<ConfigurationState>) {
        let name = self.identity.object_name();
        let namespace = self.identity.namespace.clone();
        let is_own = |object: &ConfigurationState| {
            object.name_any() == name && object.namespace().is_none_or(|its| its == namespace)
        };
        match change {
            Change::Applied(object) if is_own(&object) => self.see(object),
            Change::Deleted { namespace: of, name: gone } if gone == name && of == namespace => {
                self.observed = Observed::Absent;
            }
            Change::Reset(objects) => match objects.into_iter().find(is_own) {
                Some(object) => self.see(Box::new(object)),
                None => self.observed = Observed::Absent,
            },
            Change::Applied(_) | Change::Deleted { .. } => {}
        }
    }

    /// Takes note of the object, unless what is known is newer: the watch may lag behind the own writes.
    fn see(&mut self, object: Box<ConfigurationState>) {
        if let Observed::Present(known) = &self.observed {
            let version = |o: &ConfigurationState| o.resource_version().and_then(|v| v.parse::<u64>().ok());
            let older = matches!((version(&object), version(known)), (Some(new), Some(old)) if new < old);
            if older && object.uid() == known.uid() {
                return;
            }
        }
        self.observed = Observed::Present(object);
    }

    fn written(&mut self, clock: Clock, result: WriteResult) {
        let Some(UnderWay { step, outcome }) = self.under_way.take() else { return };
        let failure = match result {
            Ok(value) => match serde_json::from_value::<ConfigurationState>(value) {
                Ok(object) => {
                    let name = object.metadata.name.as_deref().unwrap_or_default();
                    let event = match step {
                        Step::Create => "ConfigurationState created",
                        _ => "ConfigurationState updatedStatusOnly",
                    };
                    tracing::info!(controller = "ConfigurationStateReconciler", event, name);
                    self.see(Box::new(object));
                    let again = self.next_step(clock).is_some_and(|(next, _)| next == step);
                    self.succeeded(clock.now, step, again && self.outcome == outcome);
                    None
                }
                Err(error) => {
                    Some(WriteError::no_answer(format!("the answer is no ConfigurationState: {error}")))
                }
            },
            Err(error) if error.is_not_found() && step != Step::Create => {
                self.observed = Observed::Absent;
                None
            }
            Err(error) if error.is_already_exists() && step == Step::Create => {
                // The watch will say what is there.
                self.observed = Observed::Unknown;
                None
            }
            Err(error) => Some(error),
        };
        match failure {
            None => {
                self.failures = 0;
                self.retry_at = None;
                self.away = false;
            }
            Some(error) => {
                let name = self.identity.object_name();
                tracing::error!(name, error = %error, "failed to report condition");
                self.retry_at = Some(clock.now + pause(self.failures));
                self.failures = self.failures.saturating_add(1);
                self.away = matches!(error.code, 0 | 500..);
            }
        }
    }

    /// A write was accepted; `ignored` if the object needs the very same one still.
    fn succeeded(&mut self, now: Time, step: Step, ignored: bool) {
        self.rounds = if now - self.last > CALM { 1 } else { self.rounds.saturating_add(1) };
        self.last = now;
        if self.rounds == TOLERATED + 1 {
            let name = self.identity.object_name();
            tracing::warn!(
                name,
                "somebody keeps changing this ConfigurationState; it is put right at growing intervals"
            );
        }
        if ignored {
            if self.ignorances == 0 {
                let name = self.identity.object_name();
                tracing::error!(
                    name,
                    error = "the API server accepted the write and did not store it: is a webhook in the way, or are the \
                             definitions of another version?",
                    "failed to report condition"
                );
            }
            self.ignored.insert(step);
            self.ignored_until = Some(now + pause(self.ignorances));
            self.ignorances = self.ignorances.saturating_add(1);
        } else if self.ignored.is_empty() {
            self.ignorances = 0;
        }
    }

    fn advance(&mut self, clock: Clock) {
        if self.under_way.is_some() || self.retry_at.is_some_and(|at| clock.now < at) {
            return;
        }
        self.retry_at = None;
        if self.ignored_until.is_some_and(|at| clock.now >= at) {
            self.ignored_until = None;
            self.ignored.clear();
        }
        let Some((step, request)) = self.next_step(clock) else { return };
        if let Some(rounds) = self.rounds.checked_sub(TOLERATED) {
            let not_before = self.last + pause(rounds);
            if clock.now < not_before {
                self.retry_at = Some(not_before);
                return;
            }
        }
        self.under_way = Some(UnderWay { step, outcome: self.outcome.clone() });
        self.request = Some(request);
    }

    fn next_step(&self, clock: Clock) -> Option<(Step, ApiRequest)> {
        let object = match &self.observed {
            Observed::Unknown => return None,
            Observed::Absent => return Some((Step::Create, self.identity.create())),
            Observed::Present(object) => object,
        };
        let tried = |step: Step| !self.ignored.contains(&step);
        if tried(Step::Adopt)
            && let Some(request) = self.identity.adopt(object)
        {
            return Some((Step::Adopt, request));
        }
        let outcome = self.outcome.as_ref().filter(|_| tried(Step::Conditions));
        if let Some(request) =
            outcome.and_then(|outcome| self.identity.conditions(object, outcome, clock.wall))
        {
            return Some((Step::Conditions, request));
        }
        if !tried(Step::Result) {
            return None;
        }
        self.identity.result(object).map(|request| (Step::Result, request))
    }
}

/// The pause after so many in a row.
fn pause(before: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << before.min(16)).min(LONGEST_PAUSE)
}

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// So many writes bring about everything twice over; from then on somebody undoes them.
const TOLERATED: u32 = 8;
/// After this long without a write that is all forgotten; longer than the longest pause.
const CALM: Duration = Duration::from_secs(900);

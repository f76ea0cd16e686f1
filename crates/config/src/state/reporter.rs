// SPDX-License-Identifier: Apache-2.0
//! The state machine that decides what to write next.

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
}

impl From<&Evaluation> for Outcome {
    fn from(evaluation: &Evaluation) -> Self {
        let mut further: Vec<_> = evaluation.further().map(ToString::to_string).collect();
        let verdict = match evaluation.unsupported.first() {
            // What is good for MetalLB and not served here must not pass for valid.
            Some(object) if evaluation.verdict.is_ok() => {
                let shown = object.to_string();
                further.retain(|text| *text != shown);
                Err(shown)
            }
            _ => evaluation.verdict.clone(),
        };
        Self { verdict, further }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        }
    }

    /// Feeds one input.
    pub fn handle(&mut self, clock: Clock, input: Input) {
        match input {
            Input::Changed(change) => self.changed(change),
            Input::Evaluated(outcome) => self.outcome = Some(outcome),
            Input::Written(result) => self.written(clock, result),
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
        self.retry_at
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
                    // A write that left everything as it was would be repeated for ever.
                    let again = self.next_step(clock).is_some_and(|(next, _)| next == step);
                    let ignored = again && self.outcome == outcome;
                    ignored.then(|| WriteError::no_answer("the write did not change the object"))
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
            }
            Some(error) => {
                let name = self.identity.object_name();
                tracing::error!(name, error = %error, "failed to report condition");
                let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
                self.failures = self.failures.saturating_add(1);
                self.retry_at = Some(clock.now + pause);
            }
        }
    }

    fn advance(&mut self, clock: Clock) {
        if self.under_way.is_some() || self.retry_at.is_some_and(|at| clock.now < at) {
            return;
        }
        self.retry_at = None;
        if let Some((step, request)) = self.next_step(clock) {
            self.under_way = Some(UnderWay { step, outcome: self.outcome.clone() });
            self.request = Some(request);
        }
    }

    fn next_step(&self, clock: Clock) -> Option<(Step, ApiRequest)> {
        let object = match &self.observed {
            Observed::Unknown => return None,
            Observed::Absent => return Some((Step::Create, self.identity.create())),
            Observed::Present(object) => object,
        };
        if let Some(request) = self.identity.adopt(object) {
            return Some((Step::Adopt, request));
        }
        let outcome = self.outcome.as_ref();
        if let Some(request) =
            outcome.and_then(|outcome| self.identity.conditions(object, outcome, clock.wall))
        {
            return Some((Step::Conditions, request));
        }
        self.identity.result(object).map(|request| (Step::Result, request))
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

// SPDX-License-Identifier: Apache-2.0
//! The state machine: queue, pass, wake-ups, retries.

use std::collections::VecDeque;

use ferrolb_api::Clock;
use ferrolb_net_types::Time;

use crate::io::{Effect, Input, Settings};

/// The controller, without I/O.
///
/// Drive it so: [`Core::handle`] for every input, [`Core::handle_timeout`] when [`Core::next_deadline`] has
/// come, and after either [`Core::poll`] until it yields `None`. Inputs that are there at the same time should
/// all be handled before polling: what they change is then decided by rank, not by order of arrival.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    effects: VecDeque<Effect>,
}

impl Core {
    /// A controller that knows nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, effects: VecDeque::new() }
    }

    /// Takes note of an input.
    pub fn handle(&mut self, clock: Clock, input: Input) {
        tracing::trace!(namespace = %self.settings.namespace, ?clock, ?input, "input");
    }

    /// Takes note of the time.
    pub fn handle_timeout(&mut self, clock: Clock) {
        tracing::trace!(?clock, "timeout");
    }

    /// The next thing to do, if any.
    pub fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to call [`Core::handle_timeout`] at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        None
    }
}

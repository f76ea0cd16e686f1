// SPDX-License-Identifier: Apache-2.0
//! The controller's core against a simulated API server.
//!
//! A sequence is drawn from a seed: users create, edit and delete Services and pools, strangers write what is not
//! theirs, writes fail, are lost or come late, watches lag and break, the controller is killed, sleeps, starts again.
//! Every write that is stored and every event is judged ([`Tally`] names the rules); so is the whole whenever
//! everything has come to rest. A sequence that breaks a rule is cut down and told as a [`Broken`].

mod api;
mod facts;
mod faults;
mod judge;
mod process;
mod rest;
mod run;
mod shape;
mod step;
mod tally;
mod traffic;
mod world;

use crate::Broken;
pub use run::run;
pub use tally::{Group, Tally};

/// Whether the rules hold so far.
type Verdict = Result<(), Violation>;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Violation {
    rule: tally::Mark,
    what: String,
}

impl Violation {
    fn of(rule: tally::Mark, what: String) -> Self {
        Self { rule, what }
    }
}

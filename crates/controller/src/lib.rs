// SPDX-License-Identifier: Apache-2.0
//! The controller daemon: wiring.
//!
//! ```text
//!  watches ──Input──► controller-core ──ApiRequest──► writer ──► API server
//!                           │    └──────Event───────► recorder ──►
//!                           └───────────gauges──────► /metrics
//! ```
//!
//! One thread, one task that owns the core. Decisions are the core's; this crate reads settings, moves values
//! between the core and the API server, and keeps the metrics.

mod daemon;
mod gauges;
mod memberlist_secret;
mod options;
mod replicas;
mod reviews;
mod webhook;

use std::process::ExitCode;

pub use daemon::run;
pub use ferrolb_kube_support::level::Level;
pub use options::{Options, WebhookMode, flags};
pub use webhook::WebhookOptions;

/// Runs the controller with these arguments (the program's name left out) and gives the exit code.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    ferrolb_kube_support::daemon::launch("controller", &flags(), args, Options::of_process, run)
}

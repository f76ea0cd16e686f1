// SPDX-License-Identifier: Apache-2.0
//! The speaker daemon: wiring and threads.
//!
//! ```text
//!  control: one thread, a runtime                     wire: one thread, epoll
//!  watches ──Input──► speaker-core ──plan, members──► who answers now ◄──► packet sockets
//!                         │  ▲                             │
//!     writer, recorder ◄──┤  └──────────── reports ────────┘
//!                         └──plans, routes──► bgp: one thread, a runtime, a task per peer ◄──► routers
//! ```
//!
//! Decisions are the core's; this crate reads settings, moves values between the core, the API server, the wire and the
//! sessions, and keeps the metrics. Neither the wire nor a session waits for the control side, or for the other.

pub mod bgp;
mod daemon;
mod excluded;
mod gauges;
mod kept;
mod member_list;
mod options;
mod secret;
mod secrets;
pub mod sidecar;
mod speakers;
mod trim;
pub mod wire;

use std::process::ExitCode;

pub use daemon::run;
pub use excluded::{Excluded, ExcludedError};
pub use member_list::{MemberList, MemberListError};
pub use options::{Options, flags};
pub use secret::SecretError;

/// Runs the speaker with these arguments (the program's name left out) and gives the exit code.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    ferrolb_kube_support::daemon::launch("speaker", &flags(), args, Options::of_process, run)
}

// SPDX-License-Identifier: Apache-2.0
//! The speaker's decisions over time, without I/O.
//!
//! Two state machines, because the network must never wait for the API:
//!
//! - [`Core`], the control side: watch events and write results in; plans, writes, events and gauges out. It
//!   decides what this node *may* announce.
//! - [`Wire`](wire::Wire), the fast side: plan, living members, interfaces and frames in; frames and reports out.
//!   It decides who answers *now* and answers.
//!
//! The daemon runs the two on different threads; a simulator runs as many pairs as it likes on one.

mod announcing;
pub mod bgp;
mod core;
mod departure;
mod intake;
mod io;
mod outage;
mod pause;
mod peers;
mod secrets;
mod snapshot;
mod statuses;
mod store;
mod telling;
mod unreachable;
pub mod wire;

pub use crate::core::Core;
pub use crate::io::{Effect, Input, Protocol, Settings, WriteId};
pub use crate::outage::STALE_AFTER;
pub use crate::peers::SpeakerPod;
pub use crate::snapshot::SnapshotError;

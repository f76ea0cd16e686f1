// SPDX-License-Identifier: Apache-2.0
//! The controller's decisions over time, without I/O.
//!
//! A [`Core`] is told what the watches deliver and how writes ended, as [`Input`]s, and says what to do, as
//! [`Effect`]s. It has no clock and no connection: the daemon around it, a test or a simulator drive it alike.
//!
//! - What a Service should have is decided by `ferrolb-ipam`, from its object and who holds what.
//! - Services are decided by rank: holders of a legal address, then by age. A change decides what changed, and an
//!   address that becomes free wakes those who wait for one; only new pools decide everybody.
//! - Of several controllers one decides: the holder of a Lease, which says there what it is about to write, or the
//!   one whose rivals are gone.
//! - Nothing is written that is stored already, no fact is told twice, and a failing write of one object delays
//!   nothing but that object.

mod announced;
mod backoff;
mod conditions;
mod configuration;
mod contest;
mod core;
mod decisions;
mod doubts;
mod entry;
mod fence;
mod intents;
mod io;
mod leadership;
mod lease;
mod outbox;
mod pool_status;
mod queue;
mod replicas;
mod rivals;
mod service;
mod services;
mod story;
mod telling;
mod version;
mod waiting;

pub use crate::core::Core;
pub use io::{Effect, Input, LeaseRequest, Neighbours, Replicas, Settings, WriteId};
pub use lease::LEASE;
pub use rivals::needs_nodes;

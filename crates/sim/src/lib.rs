// SPDX-License-Identifier: Apache-2.0
//! A cluster in simulated time.
//!
//! The daemons' cores are state machines without I/O. Here they run against a model of everything around them: an
//! API server with its watches, conflicts and outages, users, strangers, crashes. Whatever can happen is drawn from
//! a seed, so that a run can be had again; what came of it is judged by rules that know nothing of the cores' code.
//!
//! - [`controller`]: `ferrolb-controller-core`, allocation.
//! - [`speakers`]: `ferrolb-speaker-core`, who answers for which address.

mod broken;
mod marks;
mod rng;

pub mod controller;
pub mod speakers;

pub use broken::Broken;

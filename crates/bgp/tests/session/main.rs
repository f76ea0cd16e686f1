// SPDX-License-Identifier: Apache-2.0
//! The session in simulated time: every event in every state, timers, routes, goodbyes, two engines face to face, and
//! what MetalLB's sessions were recorded to be.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on says so

mod bench;
mod events;
mod goodbye;
mod hostile;
mod pair;
mod recorded;
mod routes;
mod timers;

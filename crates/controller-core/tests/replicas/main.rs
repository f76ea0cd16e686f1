// SPDX-License-Identifier: Apache-2.0
//! The controller's core among others of its kind, with a Lease and without one; and the conditions of Services.

#![allow(clippy::unwrap_used)] // helpers of tests, which the lint does not take for tests

mod bench;
#[allow(dead_code)] // shared with the tests of one controller, which need more of it
#[path = "../controller/cluster.rs"]
mod cluster;
mod conditions;
mod leases;
mod rivals;
mod strangers;
mod survival;

// SPDX-License-Identifier: Apache-2.0
//! What the controller's core writes into the log. A program of its own: everything in it is heard by one subscriber.

#![allow(clippy::unwrap_used)] // helpers of tests, which the lint does not take for tests

#[allow(dead_code)] // shared with the tests of one controller, which need more of it
#[path = "../controller/cluster.rs"]
mod cluster;
mod lines;
mod recorder;

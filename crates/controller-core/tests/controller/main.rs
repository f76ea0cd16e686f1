// SPDX-License-Identifier: Apache-2.0
//! The controller's core against an API server that fits into a test: what users see of its decisions.

#![allow(clippy::unwrap_used)] // helpers of tests, which the lint does not take for tests

mod arrivals;
mod cluster;
mod failures;
mod orders;
mod pools;
mod recorded;
mod rows;
mod waiting;
mod writes;

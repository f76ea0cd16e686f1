// SPDX-License-Identifier: Apache-2.0
//! Allocation from outside: MetalLB's behaviour as tables, and laws against a model that scans every address.

#![allow(clippy::unwrap_used)] // helpers of tests, which the lint does not take for tests

mod common;
mod laws;
mod reservations;
mod tables;

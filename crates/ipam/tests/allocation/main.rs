// SPDX-License-Identifier: Apache-2.0
//! Allocation from outside: MetalLB's behaviour as tables, and laws against a model that scans every address.

mod common;
mod laws;
mod tables;

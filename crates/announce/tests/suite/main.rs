// SPDX-License-Identifier: Apache-2.0
//! Who announces what: tables of MetalLB's decisions and of ours, of clusters with speakers of both, and laws.

#![allow(clippy::unwrap_used)] // the helpers of tests

mod bgp;
mod cases;
mod cluster;
mod decisions;
mod laws;
mod metallb;
mod mixed;
mod upstream;

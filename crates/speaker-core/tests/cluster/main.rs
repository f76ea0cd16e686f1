// SPDX-License-Identifier: Apache-2.0
//! Whole speakers on one segment, in simulated time, over an API in memory.
#![allow(clippy::unwrap_used)] // the helpers of tests

mod api;
mod bench;
mod bgp;
mod bgp_lasting;
mod bgp_rows;
mod bgp_shown;
mod bgp_states;
mod chaos;
mod collection;
mod election;
mod joining;
mod mixed;
mod outage;
mod recorded;
mod restart;
mod states;
mod statuses;
mod telling;

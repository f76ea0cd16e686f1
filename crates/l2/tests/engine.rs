// SPDX-License-Identifier: Apache-2.0
//! The engine as its callers see it: against recorded traffic, and against laws.

#[path = "engine/laws.rs"]
mod laws;
#[path = "engine/recorded.rs"]
mod recorded;

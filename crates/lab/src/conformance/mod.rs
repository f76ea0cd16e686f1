// SPDX-License-Identifier: Apache-2.0
//! Conformance: cases that were recorded with MetalLB v0.16.1, played again and compared field by field.
//!
//! ```text
//!  file ── case ── play ─┬─ api ──────► API server ◄── controller (daemon)
//!                        ├─ quiet ◄──── watches
//!                        ├─ picture ◄── lists
//!                        └─ compare ──► intended ──► report
//! ```
//!
//! A case says what was done and what MetalLB made of it. Every difference has to be one of the intended ones, which are
//! rules with a name, a reason and recorded cases in which they must show.

mod api;
mod case;
mod cli;
mod cluster;
mod compare;
mod daemon;
mod intended;
mod picture;
mod play;
mod quiet;
mod report;

pub use cli::{ConformanceArgs, run};

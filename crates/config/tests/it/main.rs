// SPDX-License-Identifier: Apache-2.0
//! The configuration as users meet it: objects in, configuration, diagnostics and ConfigurationState out.

#![allow(clippy::unwrap_used)] // a test may fail by it, in its helpers too

mod admission;
mod admission_forms;
mod admission_laws;
mod admission_rules;
mod admission_warnings;
mod advertisements;
mod api_server;
mod bgp;
mod bgp_rivals;
mod bgp_values;
mod build;
mod cases;
mod cases_admission;
mod last_good;
mod order;
mod pools;
mod state;

// SPDX-License-Identifier: Apache-2.0
//! The controller's core against an API server that fits into a test: what users see of its decisions.

mod cluster;
mod failures;
mod orders;
mod recorded;
mod situations;
mod writes;

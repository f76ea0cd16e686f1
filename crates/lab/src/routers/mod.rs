// SPDX-License-Identifier: Apache-2.0
//! Other people's routing daemons on hosts of the bench: FRR as a router, BIRD as what a network plugin runs on every node.
//!
//! They are processes of the lab like any other: in the ledger by pid, with their files in its directory, and nothing of
//! them outside of the namespaces of their hosts.

mod bird;
mod frr;

pub(crate) use bird::Bird;
pub(crate) use frr::Frr;

/// How long a daemon may take until it answers.
const STARTED_WITHIN: std::time::Duration = std::time::Duration::from_secs(20);

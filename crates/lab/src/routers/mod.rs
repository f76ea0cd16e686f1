// SPDX-License-Identifier: Apache-2.0
//! Other people's routing daemons on hosts of the bench: FRR as a router, BIRD as what a network plugin runs on every node, and
//! with GoBGP and ExaBGP as what people have for a router.
//!
//! They are processes of the lab like any other: in the ledger by pid, with their files in its directory, and nothing of
//! them outside of the namespaces of their hosts.

use std::net::IpAddr;

use crate::host::Host;

mod bird;
mod exabgp;
mod frr;
mod gobgp;

pub(crate) use bird::Bird;
pub(crate) use exabgp::ExaBgp;
pub(crate) use frr::Frr;
pub(crate) use gobgp::GoBgp;

/// Where a daemon is: several of a kind may be on a host, each with a label and an address of its own.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) host: Host,
    /// What its files and logs are named by.
    pub(crate) label: String,
    /// Where alone it listens, if not everywhere; BIRD and GoBGP have that in their configurations.
    pub(crate) listen: Option<IpAddr>,
}

impl Site {
    /// The only one of its kind on a host.
    pub(crate) fn of(host: Host) -> Self {
        Self { host, label: host.name().to_owned(), listen: None }
    }
}

/// How long a daemon may take until it answers: on a busy machine, with thirty of them at once, a while.
const STARTED_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);

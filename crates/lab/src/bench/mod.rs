// SPDX-License-Identifier: Apache-2.0
//! Measurements on the bench: ratios taken in one run, with an aim for each.
//!
//! An aim that is missed is reported; only a figure more than ten times off makes the command fail, since a busy
//! machine must not turn a measurement into a test.

use anyhow::Result;

use crate::bench_handle::Bench;
use crate::scenario;

mod address;
mod arp;
mod bgp;
mod cli;
mod gossip;
mod ground;
mod memory;

pub use address::{AddressFigures, Count, Kind, Round, Setting, Writes};
pub use arp::{ArpFigures, Flood, Latency, Pace, Round as ArpRound};
pub use bgp::{Aims, BgpFigures, Change, Daemon, Table};
pub use cli::{BenchArgs, run};
pub use gossip::{GossipFigures, Traffic};
pub use memory::{Memory, MemoryFigures};

/// How far beyond its aim a figure may be before the command fails.
const FAILURE: f64 = 10.0;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Subject {
    /// How long a new Service waits for its address, and how often the daemons write.
    Address,
    /// How long an ARP request waits for its answer, beside an address that the kernel of the same node holds, with one
    /// Service and with many; and what requests for other addresses cost.
    Arp,
    /// How fast routes are told and taken back, beside FRR, BIRD and GoBGP, and how long a changed Service takes to its
    /// UPDATE.
    Bgp,
    /// What the speakers' member list costs on the wire while nothing happens, beside serf's agents.
    Gossip,
    /// The resident memory of both daemons while nothing happens.
    Memory,
}

/// Time from a Service's creation to its address, and the daemons' writes meanwhile. `api` and `level` are what the
/// figures call the API server and the daemons' manifests.
///
/// # Errors
/// The bench cannot be configured, or a Service gets no address.
pub async fn address(
    bench: &Bench,
    api: &str,
    level: &str,
    quick: bool,
    connections: usize,
) -> Result<AddressFigures> {
    let plan = if quick { address::Plan::QUICK } else { address::Plan::FULL };
    let plan = address::Plan { connections, ..plan };
    address::measure(bench, api, level, plan).await
}

/// Latency of ARP answers, and what requests for other addresses cost.
///
/// # Errors
/// The bench cannot be configured, or nobody answers.
pub async fn arp(bench: &Bench, quick: bool) -> Result<ArpFigures> {
    arp::measure(bench, if quick { arp::Plan::QUICK } else { arp::Plan::FULL }).await
}

/// Routes told, changed and taken back by BGP, beside other daemons.
///
/// # Errors
/// The bench cannot be configured, or a daemon does not run or tells other routes.
pub async fn bgp(bench: &Bench, quick: bool) -> Result<BgpFigures> {
    bgp::measure(bench, if quick { bgp::Plan::QUICK } else { bgp::Plan::FULL }).await
}

/// Traffic of the member list, idle.
///
/// # Errors
/// A tool is missing, or the agents do not find each other.
pub async fn gossip(bench: &Bench, quick: bool) -> Result<GossipFigures> {
    gossip::measure(bench, quick).await
}

/// Memory of the daemons, idle, with one Service announced.
///
/// # Errors
/// The bench cannot be configured, or a daemon does not run.
pub async fn memory(bench: &Bench, quick: bool) -> Result<MemoryFigures> {
    scenario::announce_one_service(bench).await?;
    memory::measure(bench, quick).await
}

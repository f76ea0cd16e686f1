// SPDX-License-Identifier: Apache-2.0
//! What answering costs: how fast an announced address answers, beside one that the kernel of the same node holds, with
//! one address and with ten thousand; and what a speaker pays for what others ask.
//!
//! ```text
//!   1 Service ── ratio ── 2,000 ── ratio, flood ── 10,000 (while the flood goes on) ── ratio, flood (while all are reconciled),
//!   garbage and connections to the port of the member list
//! ```
//!
//! Requests go from the client through the bench's switch. Times are the kernel's: from the request leaving the client to
//! the answer arriving there. Every Service has a ready endpoint; nothing forwards traffic.

mod crowd;
mod figures;
mod flood;
mod latency;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ferrolb_linux::Netlink;
use ferrolb_linux::probe::Prober;

use crate::bench_handle::Bench;
use crate::host::Host;

use crowd::Crowd;
pub use figures::{ArpFigures, Round};
pub use flood::Flood;
use flood::{Kind, Running};
pub use latency::{Latency, Pace};

/// The address that the nodes' kernels hold in turn, on `lo`.
const KERNELS: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 60);

/// Percent of a core that foreign requests should not exceed.
const AIM_PERCENT: f64 = 4.0;

/// The node whose member list is flooded, and whose addresses are asked for meanwhile.
const HIT: Host = Host::Node1;

/// One pace after the other.
const PACES: [Pace; 2] = [Pace::Busy, Pace::Idle];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Requests per address and round.
    requests: usize,
    /// Services while others ask.
    some: usize,
    /// Services at the end.
    many: usize,
    /// How long others ask.
    flood: Duration,
}

impl Plan {
    pub(super) const FULL: Self =
        Self { requests: 2000, some: 2000, many: 10_000, flood: Duration::from_secs(15) };
    pub(super) const QUICK: Self =
        Self { requests: 300, some: 200, many: 1000, flood: Duration::from_secs(4) };
}

pub(super) async fn measure(bench: &Bench, plan: Plan) -> Result<ArpFigures> {
    // One for all rounds: the kernel begins to take the times of frames some while after it is asked to.
    let client = Host::Client;
    let prober = bench.namespace(client).run(|| Prober::open(client.interface(), client.address()))??;
    let prober = Arc::new(Mutex::new(prober));
    let mut crowd = Crowd::new(bench).await?;
    let (mut rounds, mut floods) = (Vec::new(), Vec::new());

    crowd.grow_and_rest(1).await?;
    rounds.extend(round(bench, &prober, &crowd, plan).await?);
    crowd.grow_and_rest(plan.some).await?;
    rounds.extend(round(bench, &prober, &crowd, plan).await?);

    bench.progress().step("others ask for other addresses");
    let running = Running::start(bench, &crowd, Kind::Requests).await?;
    tokio::time::sleep(plan.flood).await;
    floods.push(running.end("", crowd.count(), Some(AIM_PERCENT)).await?);

    let running = Running::start(bench, &crowd, Kind::Requests).await?;
    crowd.grow(plan.many).await?;
    let what = format!(" while {} Services are announced", plan.many - plan.some);
    floods.push(running.end(&what, crowd.count(), None).await?);
    crowd.grow_and_rest(plan.many).await?;
    rounds.extend(round(bench, &prober, &crowd, plan).await?);

    let running = Running::start(bench, &crowd, Kind::Requests).await?;
    crowd.reconcile(true).await?;
    bench.progress().during("every Service is reconciled", tokio::time::sleep(plan.flood)).await;
    floods.push(
        running.end(&format!(" while {} Services are reconciled", plan.many), crowd.count(), None).await?,
    );

    let closed = if flood::is_open(bench).await? { "" } else { " to a closed port" };
    for kind in [Kind::Garbage(HIT), Kind::Connections(HIT)] {
        bench.progress().step(&format!("{} come to {HIT}, to the port of the member list", kind.unit()));
        let running = Running::start(bench, &crowd, kind).await?;
        tokio::time::sleep(plan.flood).await;
        floods.push(running.end(&format!(" to port 7946 of {HIT}{closed}"), crowd.count(), None).await?);
    }

    Ok(ArpFigures::of(plan.requests, rounds, floods))
}

/// Asks for the first Service's address and for one of its node's kernel.
async fn round(
    bench: &Bench,
    prober: &Arc<Mutex<Prober>>,
    crowd: &Crowd<'_>,
    plan: Plan,
) -> Result<Vec<Round>> {
    let address = crowd::address(0);
    let answer = lock(prober).ask(address, latency::LIMIT)?;
    let mac = answer.with_context(|| format!("nobody answers for {address}"))?.mac;
    let node = Host::NODES.into_iter().find(|node| node.mac() == mac);
    let node = node.with_context(|| format!("{mac} is no node's"))?;
    let mut netlink = Netlink::open_in(bench.namespace(node))?;
    netlink.add_address("lo", KERNELS.into(), 32)?;
    let answer = lock(prober)
        .ask(KERNELS, latency::LIMIT)?
        .with_context(|| format!("nobody answers for {KERNELS}"))?;
    ensure!(answer.mac == mac, "{KERNELS} is answered by {}, not by {node}", answer.mac);

    let (announced, requests) = (crowd.count(), plan.requests);
    bench
        .progress()
        .step(&format!("asking {requests} times for {address} and for {KERNELS}, both on {node}"));
    let held = Arc::clone(prober);
    let compare = move || {
        let mut prober = lock(&held);
        PACES.map(|pace| latency::compare(&mut prober, [address, KERNELS], pace, requests))
    };
    let measured = tokio::task::spawn_blocking(compare).await?;
    let mut rounds = Vec::new();
    for (pace, latencies) in PACES.into_iter().zip(measured) {
        let [ours, kernel] = latencies?;
        let ratio = ours.median / kernel.median.max(f64::EPSILON);
        rounds.push(Round { announced, pace, node, kernel, ours, ratio });
    }
    netlink.delete_address("lo", KERNELS.into(), 32)?;
    Ok(rounds)
}

/// What a prober is after a panic is still a prober.
fn lock(prober: &Mutex<Prober>) -> MutexGuard<'_, Prober> {
    prober.lock().unwrap_or_else(PoisonError::into_inner)
}

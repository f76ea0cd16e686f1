// SPDX-License-Identifier: Apache-2.0
//! How fast an announced address answers, beside one that the kernel of the same node holds.
//!
//! Requests go from the client through the bench's switch, one at a time and the two addresses in turn, so that both
//! see the same machine. Times are the kernel's: from the request leaving the client to the answer arriving there.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ferrolb_linux::Netlink;
use ferrolb_linux::probe::Prober;
use serde::Serialize;

use super::FAILURE;
use crate::bench_handle::Bench;
use crate::host::Host;

/// The address that the node's kernel holds, on `lo`.
const KERNELS: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 60);

/// Between two requests, so that none waits for another.
const PAUSE: Duration = Duration::from_millis(3);

/// How long an answer is waited for.
const LIMIT: Duration = Duration::from_millis(500);

/// The aim for the ratio of the medians.
const AIM: f64 = 1.5;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct ArpFigures {
    /// Requests per address.
    pub requests: usize,
    /// The node that answers for both.
    pub node: Host,
    /// The address that the node's kernel holds.
    pub kernel: Latency,
    /// The announced address.
    pub announced: Latency,
    /// Median of the announced address by median of the kernel's.
    pub ratio: f64,
    /// What the ratio should not exceed.
    pub aim: f64,
    /// Whether every request but one in a hundred was answered, and the ratio is below ten times the aim.
    pub ok: bool,
}

/// Times of one address in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// The address.
    pub address: Ipv4Addr,
    /// The fastest answer.
    pub min: f64,
    /// Half of the answers were as fast or faster.
    pub median: f64,
    /// 99 of 100 were as fast or faster.
    pub p99: f64,
    /// Requests without an answer.
    pub lost: usize,
}

impl Latency {
    /// The figures of these answers. At least one is needed.
    fn of(address: Ipv4Addr, mut answers: Vec<Duration>, requests: usize) -> Result<Self> {
        answers.sort_unstable();
        // Nearest rank: the smallest value that this share of all values does not exceed.
        let rank = |percent: usize| {
            let index = (answers.len() * percent).div_ceil(100).saturating_sub(1);
            answers.get(index).map(|time| time.as_secs_f64() * 1e6)
        };
        let nobody = || format!("nobody answers for {address}");
        Ok(Self {
            address,
            min: rank(0).with_context(nobody)?,
            median: rank(50).with_context(nobody)?,
            p99: rank(99).with_context(nobody)?,
            lost: requests.saturating_sub(answers.len()),
        })
    }
}

pub(super) async fn measure(bench: &Bench, announced: Ipv4Addr, requests: usize) -> Result<ArpFigures> {
    let prober = || -> Result<Prober> {
        let client = Host::Client;
        Ok(bench.namespace(client).run(|| Prober::open(client.interface(), client.address()))??)
    };
    let mut asking = prober()?;
    let answer = asking.ask(announced, LIMIT)?.with_context(|| format!("nobody answers for {announced}"))?;
    let node = Host::NODES.into_iter().find(|node| node.mac() == answer.mac);
    let node = node.with_context(|| format!("{} is no node's", answer.mac))?;
    Netlink::open_in(bench.namespace(node))?.add_address("lo", KERNELS.into(), 32)?;
    let answer = asking.ask(KERNELS, LIMIT)?.with_context(|| format!("nobody answers for {KERNELS}"))?;
    ensure!(answer.mac == node.mac(), "{KERNELS} is answered by {}, not by {node}", answer.mac);

    let what = format!("asking {requests} times for {announced} and for {KERNELS}, both on {node}");
    bench.progress().step(&what);
    let alternate = move || -> Result<[Vec<Duration>; 2]> {
        let mut times = [Vec::with_capacity(requests), Vec::with_capacity(requests)];
        for _ in 0..requests {
            for (address, times) in [announced, KERNELS].into_iter().zip(&mut times) {
                times.extend(asking.ask(address, LIMIT)?.map(|answer| answer.elapsed));
                std::thread::sleep(PAUSE);
            }
        }
        Ok(times)
    };
    let [ours, kernels] = tokio::task::spawn_blocking(alternate).await??;
    let (announced, kernel) =
        (Latency::of(announced, ours, requests)?, Latency::of(KERNELS, kernels, requests)?);
    let ratio = announced.median / kernel.median.max(f64::EPSILON);
    let answered = [&announced, &kernel].iter().all(|latency| latency.lost * 100 <= requests);
    Ok(ArpFigures {
        requests,
        node,
        kernel,
        announced,
        ratio,
        aim: AIM,
        ok: answered && ratio <= AIM * FAILURE,
    })
}

impl fmt::Display for ArpFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "ARP from the client through the switch: {} requests per address in turn, both on {}, times of the kernel in \
             microseconds",
            self.requests, self.node
        )?;
        writeln!(f, "{:<36} {:>9} {:>9} {:>9} {:>6}", "", "min", "median", "p99", "lost")?;
        for (who, latency) in
            [("held by the kernel", &self.kernel), ("announced by ferrolb", &self.announced)]
        {
            let Latency { address, min, median, p99, lost } = latency;
            let name = format!("{address:<15} {who}");
            writeln!(f, "{name:<36} {min:>9.1} {median:>9.1} {p99:>9.1} {lost:>6}")?;
        }
        let met = if self.ratio <= self.aim { "met" } else { "missed" };
        write!(f, "ratio of the medians: {:.2} (aim: at most {:.2}, {met})", self.ratio, self.aim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let address = KERNELS;
        let times = |range: std::ops::RangeInclusive<u64>| range.rev().map(Duration::from_micros).collect();
        let latency = Latency::of(address, times(1..=200), 203).unwrap();
        assert_eq!(latency, Latency { address, min: 1.0, median: 100.0, p99: 198.0, lost: 3 });
        let single = Latency::of(address, times(7..=7), 1).unwrap();
        assert_eq!((single.min, single.median, single.p99), (7.0, 7.0, 7.0));
        assert!(Latency::of(address, Vec::new(), 5).is_err());
    }
}

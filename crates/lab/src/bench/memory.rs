// SPDX-License-Identifier: Apache-2.0
//! How much memory the daemons hold while nothing happens.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::FAILURE;
use crate::bench_handle::{Bench, Daemon, SYSTEM};

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryFigures {
    /// Each daemon.
    pub daemons: Vec<Memory>,
    /// Whether every daemon is below ten times its aim.
    pub ok: bool,
}

/// Resident memory of one daemon.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// `controller` or `speaker`.
    pub daemon: &'static str,
    /// The node its Pod is on.
    pub node: String,
    /// Median over the time of observation, in MiB.
    pub mib: f64,
    /// What it should not exceed, in MiB.
    pub aim_mib: f64,
}

const fn aim(daemon: Daemon) -> f64 {
    match daemon {
        Daemon::Controller => 16.0,
        Daemon::Speaker => 12.0,
    }
}

/// Looks once a second, `seconds` times.
pub(super) async fn measure(bench: &Bench, seconds: u64) -> Result<MemoryFigures> {
    bench.progress().step(&format!("watching the daemons for {seconds} s"));
    let mut watched = Vec::new();
    for daemon in [Daemon::Controller, Daemon::Speaker] {
        for pod in bench.pods(SYSTEM, daemon.name()).await?.into_iter().filter(|pod| !pod.ending) {
            watched.push((daemon, pod, Vec::new()));
        }
    }
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (_, pod, samples) in &mut watched {
            samples.push(bench.resident_bytes(&pod.name)?);
        }
    }
    let daemons: Vec<Memory> = watched
        .into_iter()
        .map(|(daemon, pod, samples)| Memory {
            daemon: daemon.name(),
            node: pod.node.map(|node| node.to_string()).unwrap_or_default(),
            mib: mib(median(samples)),
            aim_mib: aim(daemon),
        })
        .collect();
    let ok = !daemons.is_empty() && daemons.iter().all(|daemon| daemon.mib <= daemon.aim_mib * FAILURE);
    Ok(MemoryFigures { daemons, ok })
}

/// The middle one; 0 of none.
fn median(mut samples: Vec<u64>) -> u64 {
    samples.sort_unstable();
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

/// Bytes in MiB, to a tenth.
fn mib(bytes: u64) -> f64 {
    let tenths = bytes * 10 / (1024 * 1024);
    f64::from(u32::try_from(tenths).unwrap_or(u32::MAX)) / 10.0
}

impl fmt::Display for MemoryFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "resident memory of idle daemons, one Service announced, in MiB")?;
        for (index, Memory { daemon, node, mib, aim_mib }) in self.daemons.iter().enumerate() {
            let end = if index + 1 < self.daemons.len() { "\n" } else { "" };
            let met = if mib <= aim_mib { "met" } else { "missed" };
            write!(f, "{daemon:<12} on {node:<14} {mib:>7.1} (aim: at most {aim_mib:.0}, {met}){end}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_sample_and_bytes_become_mebibytes() {
        assert_eq!(median(vec![3, 1, 2]), 2);
        assert_eq!(median(vec![]), 0);
        assert_eq!((mib(0), mib(12 << 20), mib((12 << 20) + (1 << 19))), (0.0, 12.0, 12.5));
    }
}

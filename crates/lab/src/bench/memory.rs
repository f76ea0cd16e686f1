// SPDX-License-Identifier: Apache-2.0
//! How much memory the daemons hold while nothing happens.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ferrolb_linux::process::Pid;
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
    /// Everything resident, in MiB: median over the time of observation.
    pub mib: f64,
    /// What of it is the process's own data rather than pages of its program, in MiB.
    pub data_mib: f64,
    /// What it should not exceed, in MiB.
    pub aim_mib: f64,
}

const fn aim(daemon: Daemon) -> f64 {
    match daemon {
        Daemon::Controller => 16.0,
        Daemon::Speaker => 10.0,
    }
}

/// How long the daemons are left alone before they count as idle: every watch, which lasts at most 65 s, was renewed,
/// so that what an idle daemon runs is mapped.
const SETTLE: Duration = Duration::from_secs(80);

/// A shorter time, by which they have given back the code of their start and not yet mapped all that they need again.
const SETTLE_QUICK: Duration = Duration::from_secs(13);

/// Looks once a second, for half a minute or, if `quick`, a few seconds.
pub(super) async fn measure(bench: &Bench, quick: bool) -> Result<MemoryFigures> {
    let (settle, seconds) = if quick { (SETTLE_QUICK, 5) } else { (SETTLE, 30) };
    if quick {
        bench.progress().step(
            "--quick: the figures are those of a fresh start, up to 2 MiB below those of an idle daemon",
        );
    }
    bench.progress().during("leaving the daemons alone", tokio::time::sleep(settle)).await;
    bench.progress().step(&format!("watching the daemons for {seconds} s"));
    let mut watched = Vec::new();
    for daemon in [Daemon::Controller, Daemon::Speaker] {
        for pod in bench.pods(SYSTEM, daemon.name()).await?.into_iter().filter(|pod| !pod.ending) {
            watched.push((daemon, pod, Vec::new(), Vec::new()));
        }
    }
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (_, pod, all, data) in &mut watched {
            all.push(bench.resident_bytes(&pod.name)?);
            data.push(data_bytes(bench.process(&pod.name)?.pid)?);
        }
    }
    let daemons: Vec<Memory> = watched
        .into_iter()
        .map(|(daemon, pod, all, data)| Memory {
            daemon: daemon.name(),
            node: pod.node.map(|node| node.to_string()).unwrap_or_default(),
            mib: mib(median(all)),
            data_mib: mib(median(data)),
            aim_mib: aim(daemon),
        })
        .collect();
    let ok = !daemons.is_empty() && daemons.iter().all(|daemon| daemon.mib <= daemon.aim_mib * FAILURE);
    Ok(MemoryFigures { daemons, ok })
}

/// Resident memory that belongs to no file.
fn data_bytes(pid: Pid) -> Result<u64> {
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).context("read the status of a daemon")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.context("the kernel tells no RssAnon")? * 1024)
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
        for (index, Memory { daemon, node, mib, data_mib, aim_mib }) in self.daemons.iter().enumerate() {
            let end = if index + 1 < self.daemons.len() { "\n" } else { "" };
            let met = if mib <= aim_mib { "met" } else { "missed" };
            write!(
                f,
                "{daemon:<12} on {node:<14} {mib:>7.1}, of it data {data_mib:.1} (aim: at most {aim_mib:.0}, {met}){end}"
            )?;
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

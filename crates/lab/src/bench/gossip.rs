// SPDX-License-Identifier: Apache-2.0
//! What being a member costs on the wire while nothing happens, beside agents of serf's on the same nodes.
//!
//! Both kinds are three members with a key and the timing of a LAN. The kernel of each node counts what leaves it by port:
//! datagrams and streams, with their IP headers.

use std::fmt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ferrolb_linux::Namespace;
use serde::Serialize;
use serde_json::Value;

use super::FAILURE;
use crate::bench_handle::Bench;
use crate::host::Host;
use crate::launch;
use crate::tools::{self, Tool};

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct GossipFigures {
    /// For how many seconds it was counted.
    pub seconds: f64,
    /// Every node.
    pub nodes: Vec<Traffic>,
    /// Mean of ours by mean of serf's.
    pub ratio: f64,
    /// What the ratio should not exceed.
    pub aim: f64,
    /// Whether both kinds sent something, and the ratio is below ten times the aim.
    pub ok: bool,
}

/// What leaves a node, in bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// The node.
    pub node: Host,
    /// Of the speaker.
    pub ours: f64,
    /// Of the agent.
    pub serf: f64,
}

const SERF: Tool = Tool { program: "serf", install: "apt-get install serf" };

const OURS: u16 = 7946;
const SERFS: u16 = 7947;

/// Any key is as long on the wire.
const KEY: &str = "Wm05dlltRnlZbUY2Y1hWNFptOXZZZ+OwxEKY/BwUmvs=";

/// The aim for the ratio: serf's agents carry coordinates in every answer, ours nothing.
const AIM: f64 = 1.0;

/// How long both kinds are left alone before they are counted: what is news at the start has been told.
const SETTLE: Duration = Duration::from_secs(10);

/// How long the agents may take to find each other.
const JOINED_WITHIN: Duration = Duration::from_secs(30);

const LIMIT: Duration = Duration::from_secs(10);

/// A member exchanges everything with another every 30 s, so whole minutes are counted unless `quick`.
pub(super) async fn measure(bench: &Bench, quick: bool) -> Result<GossipFigures> {
    tools::require(&[SERF, tools::NFT])?;
    let _agents = agents(bench).await?;
    let _counters = Counters::begin(bench).await?;
    bench.progress().during("leaving both kinds alone", tokio::time::sleep(SETTLE)).await;
    let span = Duration::from_secs(if quick { 10 } else { 120 });
    let (began, before) = (Instant::now(), counts(bench).await?);
    bench.progress().during("counting what leaves the nodes", tokio::time::sleep(span)).await;
    let (seconds, after) = (began.elapsed().as_secs_f64(), counts(bench).await?);
    let rate = |before: u64, after: u64| {
        let bytes = u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX);
        f64::from(bytes) / seconds
    };
    let nodes: Vec<Traffic> = Host::NODES
        .into_iter()
        .zip(before.iter().zip(&after))
        .map(|(node, (before, after))| Traffic {
            node,
            ours: rate(before[0], after[0]),
            serf: rate(before[1], after[1]),
        })
        .collect();
    Ok(figures(seconds, nodes))
}

fn figures(seconds: f64, nodes: Vec<Traffic>) -> GossipFigures {
    let sum = |of: fn(&Traffic) -> f64| nodes.iter().map(of).sum::<f64>();
    let (ours, serf) = (sum(|traffic| traffic.ours), sum(|traffic| traffic.serf));
    let ratio = ours / serf.max(f64::EPSILON);
    let talk = nodes.iter().all(|traffic| traffic.ours > 0.0 && traffic.serf > 0.0);
    GossipFigures { seconds, ratio, aim: AIM, ok: talk && ratio <= AIM * FAILURE, nodes }
}

/// An agent on each node, all members of one cluster.
async fn agents(bench: &Bench) -> Result<Vec<Agent>> {
    bench.progress().step("starting an agent of serf's on each node");
    let mut agents = Vec::new();
    for node in Host::NODES {
        agents.push(Agent::start(bench.namespace(node), node)?);
    }
    let deadline = Instant::now() + JOINED_WITHIN;
    for node in Host::NODES {
        loop {
            let command = ["serf", "members", "-status", "alive"];
            let outcome = launch::run(Some(bench.namespace(node)), &command, &[], None, LIMIT).await?;
            if outcome.stdout.lines().count() == Host::NODES.len() {
                break;
            }
            ensure!(Instant::now() < deadline, "the agents did not find each other");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(agents)
}

/// A running agent; it ends with this.
struct Agent(Child);

impl Agent {
    fn start(namespace: &Namespace, node: Host) -> Result<Self> {
        let address = |node: Host| format!("{}:{SERFS}", node.address());
        let mut command = Command::new(tools::find(SERF.program).context("find serf")?);
        command.args(["agent", "-node", node.name(), "-bind", &address(node), "-encrypt", KEY]);
        for other in Host::NODES.into_iter().filter(|other| *other != node) {
            command.args(["-retry-join", &address(other)]);
        }
        command.args(["-retry-interval", "1s"]).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(namespace.run(|| command.spawn())??))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The rules that count, on every node; gone with this.
struct Counters(Vec<Arc<Namespace>>);

impl Counters {
    async fn begin(bench: &Bench) -> Result<Self> {
        let text = format!(
            "table inet {TABLE} {{\n  counter ours {{ }}\n  counter serf {{ }}\n  chain leaving {{\n    type filter hook \
             output priority 0\n    th sport {OURS} counter name ours return\n    th dport {OURS} counter name ours return\n    \
             th sport {SERFS} counter name serf return\n    th dport {SERFS} counter name serf return\n  }}\n}}\n"
        );
        let mut counters = Self(Vec::new());
        for node in Host::NODES {
            let namespace = bench.namespace(node);
            counters.0.push(Arc::clone(namespace));
            let made = launch::run(Some(namespace), &["nft", "-f", "-"], &[], Some(&text), LIMIT).await?;
            made.success().context("count what leaves a node")?;
        }
        Ok(counters)
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let Some(nft) = tools::find("nft") else { return };
        for namespace in &self.0 {
            let mut command = Command::new(&nft);
            command.args(["delete", "table", "inet", TABLE]).stderr(Stdio::null());
            // They cost little, and go with the bench at the latest.
            let _ = namespace.run(|| command.status());
        }
    }
}

/// Bytes of ours and of serf's that have left each node.
async fn counts(bench: &Bench) -> Result<Vec<[u64; 2]>> {
    let mut counts = Vec::new();
    for node in Host::NODES {
        let command = ["nft", "-j", "list", "counters", "table", "inet", TABLE];
        let outcome = launch::run(Some(bench.namespace(node)), &command, &[], None, LIMIT).await?;
        counts.push(read(&outcome.stdout).context("read the counters of a node")?);
    }
    Ok(counts)
}

fn read(text: &str) -> Result<[u64; 2]> {
    let listed: Value = serde_json::from_str(text)?;
    let counters = listed["nftables"].as_array().context("no list")?;
    let bytes = |name: &str| {
        let mut named =
            counters.iter().map(|entry| &entry["counter"]).filter(|counter| counter["name"] == name);
        named
            .next()
            .and_then(|counter| counter["bytes"].as_u64())
            .with_context(|| format!("no counter {name}"))
    };
    Ok([bytes("ours")?, bytes("serf")?])
}

const TABLE: &str = "gossip-bench";

impl fmt::Display for GossipFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "what leaves each of three idle members in bytes per second, IP headers included, counted for {:.0} s",
            self.seconds
        )?;
        writeln!(f, "{:<16} {:>9} {:>9}", "", "ferrolb", "serf")?;
        for Traffic { node, ours, serf } in &self.nodes {
            writeln!(f, "{:<16} {ours:>9.0} {serf:>9.0}", node.name())?;
        }
        let met = if self.ratio <= self.aim { "met" } else { "missed" };
        write!(f, "ratio of the means: {:.2} (aim: at most {:.2}, {met})", self.ratio, self.aim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"counter": {"family": "inet", "name": "serf", "table": "gossip-bench", "packets": 2, "bytes": 300}},
            {"counter": {"family": "inet", "name": "ours", "table": "gossip-bench", "packets": 1, "bytes": 100}}]}"#;
        assert_eq!(read(text).unwrap(), [100, 300]);
        assert!(read(r#"{"nftables": []}"#).is_err());
    }

    #[test]
    fn silence_is_no_good_figure() {
        let traffic = |ours, serf| Traffic { node: Host::Node1, ours, serf };
        let quiet = figures(10.0, vec![traffic(0.0, 300.0), traffic(200.0, 300.0)]);
        assert!(!quiet.ok);
        let both = figures(10.0, vec![traffic(200.0, 400.0), traffic(100.0, 200.0)]);
        assert!(both.ok && (both.ratio - 0.5).abs() < 1e-9);
    }
}

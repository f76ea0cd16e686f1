// SPDX-License-Identifier: Apache-2.0
//! The story of BGP: nodes tell a router where an address is, and the router spreads the traffic.
//!
//! FRR is the router; BIRD runs on every node, as Calico has it, and holds port 179 there. One file per chapter, one function
//! per step. What the router knows is asked of the router, what was said is read off its interface.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::cluster::{BGP_STATUS, DAEMON_SET, DEPLOYMENT, eventually, text};
use super::conversation::Conversation;
use super::routing::{self, Session};
use super::stage::{Example, SOON, Stage};
use super::story::{Report, Show, Story};
use crate::bench_handle::{Bench, DEMO, Daemon, SYSTEM};
use crate::host::Host;
use crate::routers::{Bird, Frr};

mod attributes;
mod beside;
mod farewell;
mod ground;
mod nodes;
mod routes;
mod sessions;
mod traffic;

const PEER: Example = manifest!("peer.yaml");
const POOL: Example = manifest!("pool.yaml");
const ADVERTISEMENT: Example = manifest!("advertisement.yaml");
const SERVICE: Example = manifest!("hello-bgp.yaml");

/// The address that `demo/hello-bgp` gets: the first of the pool.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 20, 100);
/// The route to it.
const ROUTE: &str = "192.168.20.100/32";

/// The nodes that announce: the control plane is excluded.
pub(super) const WORKERS: [Host; 2] = [Host::Node1, Host::Node2];

/// Plays the story from the first chapter to the last.
pub(super) async fn play(bench: &Bench, api: &str, show: Show) -> Report {
    let story = Story::new("bgp", api, show);
    let mut stage = Stage::new(bench, story);
    if let Some(ground) = ground::chapter(&mut stage).await
        && sessions::chapter(&mut stage, &ground).await
        && routes::chapter(&mut stage, &ground).await
    {
        traffic::chapter(&mut stage, &ground).await;
        attributes::chapter(&mut stage, &ground).await;
        nodes::chapter(&mut stage, &ground).await;
        beside::chapter(&mut stage, &ground).await;
        farewell::chapter(&mut stage, &ground).await;
    }
    stage.story.finish()
}

/// What is on the bench beside the cluster.
struct Ground {
    router: Frr,
    birds: Vec<Bird>,
    /// Their sessions at the beginning, with the time of day since when each was up.
    meshed: BTreeMap<Host, BTreeMap<String, Duration>>,
    /// BGP on the router's interface, from the beginning.
    wire: Conversation,
}

impl Ground {
    /// Waits until the router has the route from exactly these nodes, in its table and in its kernel.
    async fn via(&self, stage: &Stage<'_>, nodes: &[Host]) -> Result<()> {
        routing::via(stage, &self.router, ROUTE, nodes).await
    }

    /// The router's session with a node.
    async fn session(&self, node: Host) -> Result<Session> {
        let sessions = routing::sessions(&self.router).await?;
        sessions.get(&node.address().into()).cloned().with_context(|| format!("{node} is no neighbour"))
    }

    /// Shows a question to the router as a person would ask it.
    fn asked(&self, stage: &mut Stage<'_>, question: &str) {
        let words = self.router.words(&[question]);
        let words: Vec<String> = words.iter().map(|word| crate::launch::quoted(word)).collect();
        stage.story.command(format!("ferrolb lab exec {} -- {}", self.router.host(), words.join(" ")));
    }
}

/// Waits until the ServiceBGPStatuses of a Service are those of these nodes, with these peers.
pub(super) async fn statuses(stage: &Stage<'_>, service: &str, nodes: &[Host], peers: &[&str]) -> Result<()> {
    let expected: BTreeMap<String, Vec<String>> = nodes
        .iter()
        .map(|node| (node.name().to_owned(), peers.iter().map(ToString::to_string).collect()))
        .collect();
    eventually(SOON, async || {
        let mut seen = BTreeMap::new();
        for status in stage.cluster.list(BGP_STATUS, SYSTEM).await? {
            let of = (text(&status, "/status/serviceNamespace"), text(&status, "/status/serviceName"));
            if of != (DEMO, service) {
                continue;
            }
            let peers = status.pointer("/status/peers").and_then(serde_json::Value::as_array);
            let peers = peers.into_iter().flatten().filter_map(|peer| peer.as_str().map(str::to_owned));
            let before = seen.insert(text(&status, "/status/node").to_owned(), peers.collect::<Vec<_>>());
            ensure!(before.is_none(), "two ServiceBGPStatuses for one node");
        }
        ensure!(seen == expected, "ServiceBGPStatuses {seen:?}");
        Ok(())
    })
    .await
}

/// Has the daemons run in type frr: the speakers, whose defaults are others then, and the controller, whose webhooks admit
/// what there is in that type.
pub(super) async fn type_frr(stage: &mut Stage<'_>) -> Result<()> {
    let path = "/spec/template/spec/containers/0/env/-";
    let patch = json!([{"op": "add", "path": path, "value": {"name": "METALLB_BGP_TYPE", "value": "frr"}}]);
    for (kind, daemon) in [(DEPLOYMENT, Daemon::Controller), (DAEMON_SET, Daemon::Speaker)] {
        stage.patch_json(kind, SYSTEM, daemon.name(), &patch).await?;
    }
    for daemon in [Daemon::Controller, Daemon::Speaker] {
        stage.bench.settled(daemon, SOON * 2).await?;
    }
    // Whose Pod ends answers for the webhooks no longer.
    eventually(SOON, async || {
        let pods = stage.bench.pods(SYSTEM, Daemon::Controller.name()).await?;
        ensure!(pods.iter().all(|pod| pod.ready && !pod.ending), "a former controller is still there");
        Ok(())
    })
    .await
}

/// A host's address, as the wire has it.
fn address(host: Host) -> IpAddr {
    host.address().into()
}

/// The manifest of this name in `docs/bgp`.
macro_rules! manifest {
    ($name:literal) => {
        $crate::scenario::stage::Example {
            file: concat!("docs/bgp/", $name),
            yaml: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bgp/", $name)),
        }
    };
}
pub(super) use ground::established;
pub(super) use manifest;

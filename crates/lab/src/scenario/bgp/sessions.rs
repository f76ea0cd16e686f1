// SPDX-License-Identifier: Apache-2.0
//! Second chapter: a BGPPeer, and the sessions that come of it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use ferrolb_bgp::wire::{HEADER, Message};

use super::super::cluster::eventually;
use super::super::conversation::{PORT, Said};
use super::super::routing;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::{Ground, PEER, address};
use crate::bench_handle::Daemon;
use crate::host::Host;

/// Returns whether the story can go on.
pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) -> bool {
    stage.story.chapter("Sessions");
    let ok = stage
        .step(
            "a peer",
            "three sessions are established, and no prefix is announced",
            async |stage: &mut Stage<'_>| peer(stage, ground).await,
        )
        .await;
    stage
        .step(
            "who dials",
            "the speakers, from a port of the kernel's choice; port 179 of the nodes stays BIRD's",
            async |stage: &mut Stage<'_>| dialled(stage, ground).await,
        )
        .await;
    stage
        .step(
            "OPEN",
            "MetalLB's 49 bytes: AS 64512, hold time 90 s, the node's address, IPv4, IPv6, four-octet AS",
            async |_: &mut Stage<'_>| opened(ground).await,
        )
        .await;
    stage
        .step(
            "timers",
            "the router agreed on a hold time of 90 s and a KEEPALIVE every 30 s",
            async |stage: &mut Stage<'_>| timers(stage, ground).await,
        )
        .await;
    ok
}

async fn peer(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    stage.apply(PEER).await?;
    ground.asked(stage, routing::SUMMARY);
    let expected = Host::NODES.map(|node| (node, "Established", 0));
    routing::settled(&ground.router, &expected).await?;
    Ok("k8s-master-1, k8s-node-1 and k8s-node-2: Established, 0 prefixes".to_owned())
}

async fn dialled(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let router = SocketAddr::from((Host::Router.address(), PORT));
    for (from, to) in ground.wire.dialled() {
        ensure!(to == router && from.port() != PORT, "{from} dialled {to}");
    }
    for running in stage.daemons().await?.iter().filter(|running| running.daemon == Daemon::Speaker) {
        let question = ["ss", "-Htnp", "state", "established", "dport", "=", ":179"];
        let said = stage.exec(running.node, &question).await?.success()?;
        let own = format!("pid={},", running.pid);
        let line = said.lines().find(|line| line.contains(&router.to_string()));
        let line = line.with_context(|| format!("nobody on {} is connected to the router", running.node))?;
        ensure!(line.contains(&own), "not the speaker of {}: {line}", running.node);
        let listening =
            stage.on_host(running.node, &["ss", "-Hltnp", "sport", "=", ":179"]).await?.success()?;
        let bird = ground.birds.iter().find(|bird| bird.host() == running.node);
        let bird = format!("pid={},", bird.context("no BIRD")?.pid());
        ensure!(
            listening.lines().all(|line| line.contains(&bird)) && !listening.is_empty(),
            "port 179 of {}: {listening}",
            running.node
        );
    }
    Ok("three speakers dialled 192.168.10.1:179; BIRD alone listens on port 179 of the nodes".to_owned())
}

/// The OPEN that MetalLB v0.16.1 sends with these settings from this address.
fn metallb_open(node: Host) -> Vec<u8> {
    let mut bytes = vec![0xff; 16];
    bytes.extend([0, 49, 1, 4, 0xfc, 0x00, 0, 90]);
    bytes.extend(node.address().octets());
    bytes.extend([20, 2, 18, 1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 0, 1, 65, 4, 0, 0, 0xfc, 0x00]);
    bytes
}

async fn opened(ground: &Ground) -> Seen {
    for node in Host::NODES {
        let is_open = |said: &Said| matches!(said.message, Some(Message::Open(_)));
        let open = ground.wire.hears(address(node), 0, SOON, is_open).await?;
        let expected = metallb_open(node);
        ensure!(open.bytes == expected, "{node} sends {}, not {}", hex(&open.bytes), hex(&expected));
    }
    Ok(format!("k8s-node-1 sends {}", hex(metallb_open(Host::Node1).get(HEADER..).unwrap_or_default())))
}

/// Bytes as one reads them.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn timers(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    for node in Host::NODES {
        let question = format!("show bgp neighbors {} json", node.address());
        if node == Host::Node1 {
            ground.asked(stage, &question);
        }
        eventually(SOON, async || {
            let said = ground.router.ask(&question).await?;
            let neighbour = said.get(node.address().to_string()).context("no such neighbour")?;
            let seconds = |field: &str| -> Result<u64> {
                Ok(neighbour[field].as_u64().with_context(|| format!("no {field}"))? / 1000)
            };
            let agreed = (seconds("bgpTimerHoldTimeMsecs")?, seconds("bgpTimerKeepAliveIntervalMsecs")?);
            ensure!(agreed == (90, 30), "{node}: hold time and interval {agreed:?}");
            Ok(())
        })
        .await?;
    }
    Ok("90 s and 30 s with all three".to_owned())
}

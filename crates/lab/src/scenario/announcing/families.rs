// SPDX-License-Identifier: Apache-2.0
//! Fourth chapter: a Service of both families is whole: both addresses on one node, by ARP and by NDP, wherever it moves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result, ensure};

use super::super::cluster::eventually;
use super::super::l2::EXCLUDE;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::super::wire;
use super::{DEMO, Segment, WORKERS, leader, manifest, owned_by};
use crate::host::Host;

const DUAL: Example = manifest!("dual.yaml");
const FOUR: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 208);
const SIX: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 0x208);

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("Both families");
    stage
        .step(
            "a dual-stack Service",
            "one node answers for both addresses, by ARP and by NDP: that of the IPv4 address, which comes first; a Pod answers by both",
            whole,
        )
        .await;
    stage
        .step(
            "its node is excluded, and let in again",
            "both addresses move and come back; the client's neighbour entries follow",
            moves,
        )
        .await;
}

/// Waits until the client has found both addresses at this node.
async fn found_at(stage: &Stage<'_>, node: Host) -> Result<()> {
    owned_by(stage, Segment::First, FOUR, &[node]).await?;
    for address in [IpAddr::V4(FOUR), IpAddr::V6(SIX)] {
        eventually(SOON, async || {
            // A packet to it makes the client look it up.
            wire::touch(stage.namespace(Host::Client), (address, 80)).await?;
            let entry = wire::neighbour(stage.namespace(Host::Client), address)?;
            let entry = entry.with_context(|| format!("the client does not find {address}"))?;
            ensure!(entry == node.mac(), "the client finds {address} at {entry}, not at {node}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// That a Pod answers a connection to either address.
async fn answered(stage: &Stage<'_>) -> Result<()> {
    for address in [IpAddr::V4(FOUR), IpAddr::V6(SIX)] {
        stage.answer(Host::Client, address, 80).await?;
    }
    Ok(())
}

async fn whole(stage: &mut Stage<'_>) -> Seen {
    stage.apply(DUAL).await?;
    let addresses = stage.addresses(DEMO, "dual").await?;
    ensure!(addresses == [FOUR.to_string(), SIX.to_string()], "{addresses:?}");
    let node = leader(FOUR, &WORKERS).context("no candidate")?;
    found_at(stage, node).await?;
    answered(stage).await?;
    Ok(format!("{FOUR} and {SIX} at {node}; connections to both are answered"))
}

async fn moves(stage: &mut Stage<'_>) -> Seen {
    let node = leader(FOUR, &WORKERS).context("no candidate")?;
    let other = WORKERS.into_iter().find(|other| *other != node).context("two workers")?;
    stage.label_node(node, EXCLUDE, Some("")).await?;
    found_at(stage, other).await?;
    answered(stage).await?;
    stage.label_node(node, EXCLUDE, None).await?;
    found_at(stage, node).await?;
    stage.remove(&[DUAL]).await?;
    owned_by(stage, Segment::First, FOUR, &[]).await?;
    Ok(format!("both to {other}, both back to {node}"))
}

// SPDX-License-Identifier: Apache-2.0
//! Which nodes and which Services an advertisement is for.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use serde_json::json;

use super::super::cluster::eventually;
use super::super::mixed::network_unavailable;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::super::wire;
use super::advertisements::ANOTHER;
use super::{Ground, SHOP, WIDE, WORKERS, advertise, hostname, manifest, statuses};
use crate::host::Host;

const SELECTED: Example = manifest!("selected.yaml");
const LAYER2: Example = manifest!("layer2.yaml");

/// The route of the whole pool, and that of `demo/rear`.
const WHOLE: &str = "192.168.20.0/24";
const REAR: &str = "192.168.20.11/32";

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Nodes and Services");
    stage
        .step(
            "an advertisement for each node",
            "the nodes of both are united; without one, the other's is left",
            async |stage: &mut Stage<'_>| nodes(stage, ground).await,
        )
        .await;
    stage
        .step(
            "a label that no node has",
            "nobody, until a node gets it; then that one",
            async |stage: &mut Stage<'_>| label(stage, ground).await,
        )
        .await;
    stage
        .step(
            "NetworkUnavailable",
            "the node withdraws, and announces again when its network is back",
            async |stage: &mut Stage<'_>| unavailable(stage, ground).await,
        )
        .await;
    stage
        .step(
            "a host route beside an aggregate",
            "the front has a route of its own, and the pool has one; the rear has none but that",
            async |stage: &mut Stage<'_>| beside_an_aggregate(stage, ground).await,
        )
        .await;
    stage
        .step(
            "layer 2 for the same address",
            "a node answers for it as well; the route stays, and not a word is said of it",
            async |stage: &mut Stage<'_>| layer2_too(stage, ground).await,
        )
        .await;
}

async fn nodes(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    advertise(stage, "wide", json!({"nodeSelectors": hostname(Host::Node1)})).await?;
    ground.both(SHOP, &[Host::Node1]).await?;
    statuses(stage, "shop", &[Host::Node1], &["inner", "router"]).await?;
    stage.apply(ANOTHER).await?;
    advertise(stage, "another", json!({"nodeSelectors": hostname(Host::Node2)})).await?;
    ground.both(SHOP, &WORKERS).await?;
    stage.remove(&[ANOTHER]).await?;
    ground.both(SHOP, &[Host::Node1]).await?;
    Ok("k8s-node-1, both, k8s-node-1".to_owned())
}

async fn label(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    advertise(stage, "wide", json!({"nodeSelectors": [{"matchLabels": {"rack": "a"}}]})).await?;
    ground.both(SHOP, &[]).await?;
    statuses(stage, "shop", &[], &[]).await?;
    stage.label_node(Host::Node2, "rack", Some("a")).await?;
    ground.both(SHOP, &[Host::Node2]).await?;
    stage.label_node(Host::Node1, "rack", Some("a")).await?;
    ground.both(SHOP, &WORKERS).await?;
    for node in WORKERS {
        stage.label_node(node, "rack", None).await?;
    }
    ground.both(SHOP, &[]).await?;
    advertise(stage, "wide", json!({"nodeSelectors": null})).await?;
    ground.both(SHOP, &WORKERS).await?;
    statuses(stage, "shop", &WORKERS, &["inner", "router"]).await?;
    Ok("nobody, k8s-node-2, both, nobody; both without the selector".to_owned())
}

async fn unavailable(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    network_unavailable(stage, Host::Node2, true).await?;
    ground.both(SHOP, &[Host::Node1]).await?;
    network_unavailable(stage, Host::Node2, false).await?;
    ground.both(SHOP, &WORKERS).await?;
    Ok("k8s-node-1 alone, then both".to_owned())
}

async fn beside_an_aggregate(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    stage.apply(SELECTED).await?;
    stage.addresses(crate::bench_handle::DEMO, "rear").await?;
    ground.both(WHOLE, &WORKERS).await?;
    ground.both(SHOP, &WORKERS).await?;
    ground.both(REAR, &[]).await?;
    for address in ["192.168.20.10", "192.168.20.11"] {
        let answer = stage.answer(Host::Outside, address.parse::<IpAddr>()?, 80).await?;
        ensure!(answer.starts_with("hello-"), "{answer:?}");
    }
    for service in ["shop", "rear"] {
        statuses(stage, service, &WORKERS, &["inner", "router"]).await?;
    }
    // The Services stay where they are while the rest becomes what it was.
    stage.remove(&[ANOTHER]).await?;
    stage.apply(WIDE).await?;
    ground.both(REAR, &WORKERS).await?;
    super::services::delete(stage, "rear").await?;
    ground.both(REAR, &[]).await?;
    ground.both(WHOLE, &[]).await?;
    Ok(format!("{SHOP} and {WHOLE}, no route of demo/rear; both answer from outside"))
}

/// Waits until so many hosts answer the client for the address of `demo/shop`.
async fn answering(stage: &Stage<'_>, count: usize) -> Result<()> {
    let window = std::time::Duration::from_millis(150);
    eventually(SOON, async || {
        let asked = "192.168.20.10".parse()?;
        let macs = wire::ask(stage.namespace(Host::Client), Host::Client, asked, window).await?;
        ensure!(macs.len() == count, "answered by {macs:?}");
        Ok(())
    })
    .await
}

async fn layer2_too(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let mark = ground.wire.mark();
    answering(stage, 0).await?;
    stage.apply(LAYER2).await?;
    answering(stage, 1).await?;
    ground.both(SHOP, &WORKERS).await?;
    stage.remove(&[LAYER2]).await?;
    answering(stage, 0).await?;
    ground.both(SHOP, &WORKERS).await?;
    ground.untouched(SHOP, mark)?;
    Ok("answered by one node while there is an L2Advertisement; the route is as before".to_owned())
}

// SPDX-License-Identifier: Apache-2.0
//! Peers for some nodes only, and what the nodes call themselves.

use std::net::IpAddr;

use anyhow::{Context as _, ensure};

use super::super::cluster::{BGP_PEER, eventually};
use super::super::routing;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::{Ground, PEERS, SHOP, SYSTEM, WORKERS, manifest, statuses, told};
use crate::host::Host;

const PER_NODE: Example = manifest!("peers-per-node.yaml");

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Peers");
    stage
        .step(
            "a peer goes",
            "its session ends, the other's goes on; its name leaves the ServiceBGPStatuses",
            async |stage: &mut Stage<'_>| gone(stage, ground).await,
        )
        .await;
    stage
        .step(
            "a system for each node",
            "k8s-node-1 says AS 64601, k8s-node-2 AS 64602, k8s-master-1 has no session; each names its own peer",
            async |stage: &mut Stage<'_>| per_node(stage, ground).await,
        )
        .await;
}

async fn gone(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let (mark, before) = (ground.wire.mark(), routing::sessions(&ground.router).await?);
    if stage.kubectl(&["-n", SYSTEM, "delete", "bgppeer", "inner"]).await?.is_none() {
        stage.cluster.delete(BGP_PEER, SYSTEM, "inner").await?;
    }
    routing::settled(&ground.inner, &Host::NODES.map(|node| (node, "Active", 0))).await?;
    statuses(stage, "shop", &WORKERS, &["router"]).await?;
    let after = routing::sessions(&ground.router).await?;
    ensure!(after == before, "the router's sessions were {before:?}, and are {after:?}");
    ground.untouched(SHOP, mark)?;
    Ok("the inner router is Active; the other's sessions go on; peers [router]".to_owned())
}

async fn per_node(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let lines = [
        "router bgp 64512",
        "neighbor 192.168.10.20 remote-as 64601",
        "neighbor 192.168.10.21 remote-as 64602",
    ];
    ground.inner.configure(&lines).await?;
    stage.apply(PER_NODE).await?;
    let expected =
        [(Host::Master1, "Active", 0), (Host::Node1, "Established", 1), (Host::Node2, "Established", 1)];
    routing::settled(&ground.inner, &expected).await?;
    for (node, system) in WORKERS.into_iter().zip(["64601", "64602"]) {
        let paths = routing::paths(&ground.inner, SHOP).await?;
        let own: IpAddr = node.address().into();
        let path = paths.iter().find(|path| path.peer == own).context("no path")?;
        ensure!(path.as_path == system && path.local_pref.is_none_or(|value| value == 100), "{path:?}");
    }
    eventually(SOON, async || {
        for (node, peer) in WORKERS.into_iter().zip(["rack-1", "rack-2"]) {
            let statuses = stage.cluster.list(super::super::cluster::BGP_STATUS, SYSTEM).await?;
            let own = statuses.iter().find(|status| status["status"]["node"] == node.name());
            let peers = &own.context("no ServiceBGPStatus")?["status"]["peers"];
            ensure!(*peers == serde_json::json!([peer, "router"]), "{node} names {peers}");
        }
        Ok(())
    })
    .await?;
    stage.remove(&[PER_NODE]).await?;
    routing::settled(&ground.inner, &Host::NODES.map(|node| (node, "Active", 0))).await?;
    let lines = [
        "router bgp 64512",
        "neighbor 192.168.10.20 remote-as 64512",
        "neighbor 192.168.10.21 remote-as 64512",
    ];
    ground.inner.configure(&lines).await?;
    stage.apply(PEERS).await?;
    told(&ground.inner, SHOP, &WORKERS).await?;
    Ok("AS paths 64601 and 64602; peers [rack-1, router] and [rack-2, router]".to_owned())
}

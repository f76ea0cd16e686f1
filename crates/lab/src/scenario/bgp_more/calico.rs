// SPDX-License-Identifier: Apache-2.0
//! A router that already speaks with BIRD on a node, as with Calico's, and takes no second session from its address.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use ferrolb_bgp::wire::{Code, Message};

use super::super::bgp::established;
use super::super::cluster::{eventually, text};
use super::super::conversation::Said;
use super::super::routing;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::{Ground, PEERS, SHOP, WORKERS, session};
use crate::host::Host;
use crate::routers::Bird;

/// BIRD on k8s-node-1, with a session to the router.
const BIRD: &str = "log stderr all;\nrouter id 192.168.10.20;\nprotocol device { }\nprotocol bgp tor {\n  local \
                    192.168.10.20 as 64512;\n  neighbor 192.168.10.1 as 64513;\n  connect delay time 0; connect retry \
                    time 1; error wait time 1, 2;\n  ipv4 { import none; export none; };\n}\n";

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Beside Calico");
    stage
        .step(
            "a router that speaks with BIRD already",
            "it refuses the speaker's session with Cease/Connection Collision Resolution; the others are up, and so is BIRD's \
             all the time",
            async |stage: &mut Stage<'_>| refused(stage, ground).await,
        )
        .await;
}

async fn refused(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    stage.remove(&[PEERS]).await?;
    routing::settled(&ground.router, &Host::NODES.map(|node| (node, "Active", 0))).await?;
    let bird = Bird::start(stage.bench, Host::Node1, BIRD).await?;
    routing::settled(&ground.router, &[(Host::Node1, "Established", 0)]).await?;
    let before = eventually(SOON, async || {
        established(&bird).await?.get("tor").copied().context("BIRD does not say that its session is up")
    })
    .await?;
    let mark = ground.wire.mark();
    stage.apply(PEERS).await?;
    ground.outer(SHOP, &[Host::Node2]).await?;
    let collision = |said: &Said| {
        let to_node = said.to == Host::Node1.address();
        matches!(&said.message, Some(Message::Notification(told)) if to_node && told.code == Code::COLLISION_RESOLUTION)
    };
    ground.wire.hears(Host::Router.address().into(), mark, SOON, collision).await?;
    let reason = eventually(SOON, async || {
        let session = session(stage, Host::Node1).await?;
        let reason = text(&session, "/status/lastFailure/reason");
        ensure!(reason.contains("Connection Collision Resolution"), "the last failure is {reason:?}");
        Ok(reason.to_owned())
    })
    .await?;
    let now = established(&bird).await?.get("tor").copied();
    // It counts back from now each time: a millisecond more or less.
    let same = now.is_some_and(|now| now.abs_diff(before) < Duration::from_millis(500));
    ensure!(same, "BIRD's session was up since {before:?}, and is since {now:?}");
    // Once BIRD is gone the speaker gets in.
    bird.stop().await?;
    ground.outer(SHOP, &WORKERS).await?;
    for node in Host::NODES {
        eventually(SOON, async || {
            let session = session(stage, node).await?;
            let state = text(&session, "/status/state");
            ensure!(state == "Established", "the BGPSession of {node} says {state:?}");
            Ok(())
        })
        .await?;
    }
    Ok(format!(
        "k8s-node-2 is the only next hop, and BIRD's session goes on; the BGPSession of k8s-node-1 says: {reason}; both when \
         BIRD is gone"
    ))
}

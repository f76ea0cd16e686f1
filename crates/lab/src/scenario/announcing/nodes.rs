// SPDX-License-Identifier: Apache-2.0
//! First chapter: what happens to a node moves its addresses, and what does not concern them does not.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::super::cluster::{EVENT, L2_STATUS, NODE, text};
use super::super::stage::Stage;
use super::super::story::Seen;
use super::super::wire;
use super::{DEMO, SHOP, SYSTEM, Segment, as_by_formula, owned_by};
use crate::host::Host;
use crate::scenario::mixed::network_unavailable;

/// How many heartbeats are sent.
const HEARTBEATS: u64 = 20;

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("Nodes");
    stage
        .step(
            "NetworkUnavailable",
            "192.168.10.200 moves from k8s-node-1 to k8s-node-2 within 1 s, and back when the network is back",
            unavailable,
        )
        .await;
    stage
        .step(
            "heartbeats",
            "20 of every node move nothing: no gratuitous frame, no event, no status is written",
            heartbeats,
        )
        .await;
}

async fn unavailable(stage: &mut Stage<'_>) -> Seen {
    let mut took = Vec::new();
    for (unavailable, owner) in [(true, Host::Node2), (false, Host::Node1)] {
        network_unavailable(stage, Host::Node1, unavailable).await?;
        let began = Instant::now();
        owned_by(stage, Segment::First, SHOP, &[owner]).await?;
        // The last question itself takes 120 ms.
        took.push(began.elapsed().saturating_sub(Duration::from_millis(120)));
    }
    stage.story.measured(format!(
        "seen on k8s-node-2 {} ms after the status was written, back {} ms after",
        took[0].as_millis(),
        took[1].as_millis()
    ));
    ensure!(took.iter().all(|took| *took < WITHIN), "it took {took:?}");
    Ok(format!("{SHOP} k8s-node-1 -> k8s-node-2 -> k8s-node-1"))
}

/// Ten times the second that it may take.
const WITHIN: Duration = Duration::from_secs(10);

/// What would be written or sent for nothing.
async fn written(stage: &Stage<'_>) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for (kind, namespace) in [(EVENT, DEMO), (L2_STATUS, SYSTEM)] {
        for object in stage.cluster.list(kind, namespace).await? {
            let version = text(&object, "/metadata/resourceVersion");
            all.push(format!("{} {version}", text(&object, "/metadata/name")));
        }
    }
    all.sort();
    Ok(all)
}

async fn heartbeats(stage: &mut Stage<'_>) -> Seen {
    wire::quiet(stage.namespace(Host::Client), SHOP, Duration::from_millis(1500), super::SOON).await?;
    let before = written(stage).await?;
    let capture = wire::Capture::start(stage.namespace(Host::Client), Host::Client.interface())?;
    for beat in 0..HEARTBEATS {
        for node in Host::NODES {
            let stored = stage.cluster.read(NODE, "", node.name()).await?;
            let mut conditions = stored.pointer("/status/conditions").cloned().context("no conditions")?;
            for condition in conditions.as_array_mut().into_iter().flatten() {
                condition["lastHeartbeatTime"] = json!(format!("2026-01-01T00:00:{beat:02}Z"));
            }
            let patch = json!({"status": {"conditions": conditions}});
            stage.cluster.merge(NODE, "", node.name(), true, &patch).await?;
        }
    }
    as_by_formula(stage).await?;
    let sent = capture.stop()?.into_iter().find(|frame| frame.sender == frame.target);
    ensure!(sent.is_none(), "{sent:?}");
    let after = written(stage).await?;
    ensure!(after == before, "written meanwhile: {after:?}, before {before:?}");
    Ok("nothing moves, nothing is announced, nothing is written".to_owned())
}

// SPDX-License-Identifier: Apache-2.0
//! First chapter: speakers leave in order and come back; they are restarted, one and all at once, and claim nothing that is not theirs.

use std::time::Duration;

use anyhow::ensure;
use nix::sys::signal::Signal;

use super::super::cluster::{POD, eventually};
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::{BOUND, SYSTEM, Scene, delete_command, renew, speaker};
use crate::host::Host;

/// How often a speaker is replaced by another.
const TIMES: usize = 5;

pub(super) async fn chapter(stage: &mut Stage<'_>, scene: &Scene) {
    stage.story.chapter("Speakers leave and come back");
    stage
        .step(
            "GO-11: SIGTERM",
            "the heirs take over before it falls silent; back again, it takes over before they do",
            async |stage: &mut Stage<'_>| terminated(stage, scene).await,
        )
        .await;
    stage
        .step(
            "S30: restarted again and again",
            "k8s-node-2 never announces or answers for what the others lead",
            async |stage: &mut Stage<'_>| restarted(stage, scene).await,
        )
        .await;
    stage
        .step(
            "all killed at once",
            "whoever is back first waits for the others: no address has a wrong owner",
            async |stage: &mut Stage<'_>| all_at_once(stage, scene).await,
        )
        .await;
}

async fn terminated(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    let old = speaker(stage, Host::Node1).await?;
    stage.story.command(delete_command(Host::Node1));
    let held = stage.bench.hold(Host::Node1)?;
    let from = scene.watch.now();
    stage.cluster.delete(POD, SYSTEM, &old.name).await?;
    let gone = scene.without(Host::Node1, SOON).await?;
    let (left, heirs) = (scene.since(from), scene.watch.now());
    drop(held);
    let back = scene.as_usual(SOON).await?;
    let came = scene.since(heirs);
    stage.story.measured(format!(
        "the heirs have everything after {} ms; leaving: {}; back after {} ms; coming: {}",
        gone.saturating_sub(from).as_millis(),
        left.words(BOUND),
        back.saturating_sub(heirs).as_millis(),
        came.words(BOUND)
    ));
    scene.undisturbed(from, gone, Host::Node1, false)?;
    scene.undisturbed(heirs, back, Host::Node1, false)?;
    left.judge(BOUND)?;
    came.judge(BOUND)?;
    Ok("k8s-node-1 -> its heirs -> k8s-node-1; no address dark, none with two owners".to_owned())
}

async fn restarted(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    let from = scene.watch.now();
    let mut settled = from;
    for _ in 0..TIMES {
        renew(stage, Host::Node2).await?;
        settled = scene.as_usual(SOON).await?;
    }
    let tally = scene.since(from);
    stage.story.measured(format!("{TIMES} restarts: {}", tally.words(BOUND)));
    scene.nobody_claimed(from, Host::Node2)?;
    scene.undisturbed(from, settled, Host::Node2, true)?;
    tally.judge(BOUND)?;
    Ok(format!("{TIMES} restarts: no frame for what others lead, one owner each"))
}

async fn all_at_once(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    stage.story.command("kill -9 …   # every speaker");
    let from = scene.watch.now();
    let mut before = Vec::new();
    for node in Host::NODES {
        before.push((node, speaker(stage, node).await?));
    }
    for (_, pod) in &before {
        stage.bench.signal(&pod.name, Signal::SIGKILL)?;
    }
    for (node, pod) in &before {
        eventually(SOON, async || {
            let now = speaker(stage, *node).await?;
            ensure!(now.restarts > pod.restarts && now.ready, "{} is not back", pod.name);
            Ok(())
        })
        .await?;
    }
    let back = scene.as_usual(SOON).await?;
    stage.story.measured(format!(
        "everything answered again after {} ms; {}",
        back.saturating_sub(from).as_millis(),
        scene.words(from)
    ));
    for node in Host::NODES {
        scene.nobody_claimed(from, node)?;
    }
    let tally = scene.since(from);
    ensure!(tally.ours.iter().all(|span| span.length <= BOUND * 10), "{:?}", tally.ours);
    ensure!(back.saturating_sub(from) < Duration::from_secs(20), "it took long");
    Ok("each address came back to its owner, and to nobody else in between".to_owned())
}

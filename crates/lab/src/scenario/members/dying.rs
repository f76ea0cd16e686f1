// SPDX-License-Identifier: Apache-2.0
//! Third chapter: a speaker dies, stands still, loses its cable. memberlist finds out in its own time; what comes back afterwards
//! asks before it answers.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;

use super::super::cluster::{L2_STATUS, eventually, text};
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::super::watch::longest;
use super::{BOUND, DETECTION, SYSTEM, Scene, speaker};
use crate::host::Host;

/// How long two nodes may answer after a cable is plugged in again; the story fails at ten times that.
const HEAL: Duration = Duration::from_secs(1);

/// How long a process may stand still: its liveness probe ends it after 21 s at the earliest.
const STILL: Duration = Duration::from_secs(20);

pub(super) async fn chapter(stage: &mut Stage<'_>, scene: &Scene) {
    stage.story.chapter("Speakers die");
    stage
        .step(
            "E21, X03: kill -9, and no restart",
            "its addresses are dark until the others are sure, then at their heirs, and so are the statuses; back when it is back",
            async |stage: &mut Stage<'_>| killed(stage, scene).await,
        )
        .await;
    stage
        .step(
            "a process that stands still for longer than that",
            "when it goes on it answers nothing before some member has acknowledged it",
            async |stage: &mut Stage<'_>| stopped(stage, scene).await,
        )
        .await;
    stage
        .step(
            "a cable is pulled, and plugged in again",
            "one owner within 1 s after that",
            async |stage: &mut Stage<'_>| unplugged(stage, scene).await,
        )
        .await;
}

/// Waits until some status of a Service that all nodes may announce names a node, or none does.
async fn named(stage: &Stage<'_>, node: Host, some: bool) -> Result<()> {
    eventually(SOON, async || {
        let mut statuses = stage.cluster.list(L2_STATUS, SYSTEM).await?;
        statuses.retain(|status| text(status, "/status/serviceName").starts_with("plain-"));
        let of_node = statuses.iter().filter(|status| text(status, "/status/node") == node.name()).count();
        ensure!((of_node > 0) == some, "{of_node} of {} statuses name {node}", statuses.len());
        Ok(())
    })
    .await
}

async fn killed(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    let own = speaker(stage, Host::Node1).await?;
    stage.story.command("kill -9 $(pidof speaker)   # of k8s-node-1, which is not started again");
    let held = stage.bench.hold(Host::Node1)?;
    let from = scene.watch.now();
    stage.bench.signal(&own.name, Signal::SIGKILL)?;
    let taken = scene.without(Host::Node1, DETECTION).await?;
    let moved = named(stage, Host::Node1, false).await;
    let later = scene.watch.now();
    drop(held);
    let back = scene.as_usual(SOON).await?;
    moved?;
    named(stage, Host::Node1, true).await?;
    stage.story.measured(format!(
        "with the heirs after {} ms; back {} ms after its start was allowed; coming back: {}",
        taken.saturating_sub(from).as_millis(),
        back.saturating_sub(later).as_millis(),
        scene.words(later)
    ));
    scene.undisturbed(from, taken, Host::Node1, false)?;
    scene.undisturbed(later, back, Host::Node1, false)?;
    scene.since(later).judge(BOUND)?;
    Ok("k8s-node-1 -> its heirs -> k8s-node-1".to_owned())
}

async fn stopped(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    let own = speaker(stage, Host::Node1).await?;
    stage.story.command("kill -STOP $(pidof speaker)   # of k8s-node-1");
    stage.bench.signal(&own.name, Signal::SIGSTOP)?;
    let taken = scene.without(Host::Node1, STILL).await;
    stage.story.command("kill -CONT $(pidof speaker)");
    let from = scene.watch.now();
    // Whatever was seen, it goes on.
    stage.bench.signal(&own.name, Signal::SIGCONT)?;
    taken?;
    let back = scene.as_usual(SOON).await?;
    let tally = scene.since(from);
    stage.story.measured(format!(
        "back after {} ms; {}",
        back.saturating_sub(from).as_millis(),
        tally.words(BOUND)
    ));
    tally.judge(BOUND)?;
    let now = speaker(stage, Host::Node1).await?;
    ensure!(now.restarts == own.restarts && now.name == own.name, "it was started again");
    Ok("no address with two owners when it goes on; k8s-node-1 has its own again".to_owned())
}

async fn unplugged(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    stage.story.command("the cable of k8s-node-1 is pulled");
    stage.bench.plug(Host::Node1, false)?;
    let taken = scene.without(Host::Node1, DETECTION).await;
    stage.story.command("the cable of k8s-node-1 is plugged in");
    let from = scene.watch.now();
    stage.bench.plug(Host::Node1, true)?;
    taken?;
    let back = scene.as_usual(DETECTION).await?;
    let tally = scene.since(from);
    stage.story.measured(format!(
        "everything in its place {} ms after; two owners {}, dark {}",
        back.saturating_sub(from).as_millis(),
        longest(&tally.ours),
        longest(&tally.dark)
    ));
    ensure!(tally.ours.iter().all(|span| span.length <= HEAL * 10), "{:?}", tally.ours);
    Ok("k8s-node-1 -> its heirs -> k8s-node-1".to_owned())
}

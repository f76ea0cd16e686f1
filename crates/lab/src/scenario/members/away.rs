// SPDX-License-Identifier: Apache-2.0
//! Fourth chapter: the API server is out of reach for everybody. Nothing changes; a failover still works; a speaker that starts meanwhile
//! does not end, and one that kept what it knew goes on from there.

use anyhow::{Context as _, ensure};
use ferrolb_linux::process::Pid;
use nix::sys::signal::Signal;
use serde_json::json;

use super::super::cluster::{DAEMON_SET, eventually};
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::{BOUND, DETECTION, SYSTEM, Scene, speaker};
use crate::bench_handle::{Bench, Daemon};
use crate::host::Host;
use crate::outage::Outage;

pub(super) async fn chapter(stage: &mut Stage<'_>, scene: &Scene) {
    stage.story.chapter("The API is away");
    let mut outage = None;
    stage
        .step("L2-18: for everybody", "every address stays where it is", async |stage: &mut Stage<'_>| {
            begun(stage, scene, &mut outage).await
        })
        .await;
    stage
        .step(
            "X09: a speaker dies meanwhile",
            "its heirs take over without the API",
            async |stage: &mut Stage<'_>| failover(stage, scene).await,
        )
        .await;
    let Some(outage) = outage else { return };
    stage
        .step(
            "L2-21: it is started meanwhile",
            "it waits, and does not end; once the API is back it has its addresses again",
            async |stage: &mut Stage<'_>| restarted(stage, scene, outage).await,
        )
        .await;
    stage
        .step(
            "FERROLB_STATE_DIR: the same with a volume",
            "it goes on from what the last process kept, and has its addresses again while the API is away",
            async |stage: &mut Stage<'_>| kept(stage, scene).await,
        )
        .await;
}

/// A directory of the node that outlives the Pod, and where a speaker keeps what decides.
const DIRECTORY: &str = "/var/lib/ferrolb";

async fn kept(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    let template = "/spec/template/spec";
    let volume = json!({"name": "state", "hostPath": {"path": DIRECTORY, "type": "DirectoryOrCreate"}});
    let patch = json!([
        {"op": "add", "path": format!("{template}/volumes/-"), "value": volume},
        {"op": "add", "path": format!("{template}/containers/0/volumeMounts/-"),
         "value": {"name": "state", "mountPath": DIRECTORY}},
        {"op": "add", "path": format!("{template}/containers/0/env/-"),
         "value": {"name": "FERROLB_STATE_DIR", "value": DIRECTORY}},
    ]);
    stage.patch_json(DAEMON_SET, SYSTEM, "speaker", &patch).await?;
    stage.bench.settled(Daemon::Speaker, SOON * 3).await?;
    scene.as_usual(SOON).await?;
    let process = stage.bench.speaker_process(Host::Node1)?;
    // It announces a moment before it keeps what it announces by.
    eventually(SOON, async || everything_is_kept(process.pid)).await?;

    let outage = away(stage, stage.bench).await?;
    stage.story.command("kill -9 $(pidof speaker)   # of k8s-node-1, which is started again");
    let from = scene.watch.now();
    process.signal(Signal::SIGKILL)?;
    let next = eventually(SOON, async || {
        let next = stage.bench.speaker_process(Host::Node1)?;
        ensure!(next.pid != process.pid, "it has not ended");
        Ok(next)
    })
    .await?;
    // It says from the start that its view is old, the others 13 s after they heard the API last: too soon for that to count.
    let back = scene.as_usual(SOON * 3).await;
    stage.story.command("nft delete table ip outage");
    outage.over().await?;
    let back = back?;
    let answered = next.is_alive();
    scene.as_usual(SOON).await?;
    stage.story.measured(format!(
        "its addresses are answered again {} ms after it was killed; {}",
        back.saturating_sub(from).as_millis(),
        scene.words(from)
    ));
    scene.undisturbed(from, back, Host::Node1, true)?;
    ensure!(answered, "it ended during the outage");
    Ok("k8s-node-1 has its addresses again while the API is away, and keeps them when it is back".to_owned())
}

/// Whether what a speaker kept, seen from inside its container, has its Services and the other speakers.
fn everything_is_kept(speaker: Pid) -> anyhow::Result<()> {
    let file = format!("/proc/{speaker}/root{DIRECTORY}/speaker-{}.snapshot", Host::Node1.name());
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {file}"))?;
    // A line about it comes first.
    let kept: serde_json::Value = serde_json::from_str(text.lines().nth(1).unwrap_or_default())?;
    let many = |what: &str| kept[what].as_array().map_or(0, Vec::len);
    ensure!(
        many("peers") == 2 && many("services") >= 20,
        "{file} has {} peers and {} Services",
        many("peers"),
        many("services")
    );
    Ok(())
}

async fn begun(stage: &mut Stage<'_>, scene: &Scene, outage: &mut Option<Outage>) -> Seen {
    let from = scene.watch.now();
    *outage = Some(away(stage, stage.bench).await?);
    scene.as_usual(SOON).await?;
    // Half a second more of the same.
    scene.watch.settled(&scene.situation.expected(), 25, SOON).await?;
    scene.nothing_happened(from)?;
    Ok("20 addresses as before".to_owned())
}

async fn away(stage: &mut Stage<'_>, bench: &Bench) -> anyhow::Result<Outage> {
    stage.story.command("nft …   # k8s-master-1 refuses every connection to port 6443");
    bench.without_api().await
}

async fn failover(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    // The API cannot say its Pod's name now; the lab knows its process.
    let process = stage.bench.speaker_process(Host::Node1)?;
    stage.story.command("kill -9 $(pidof speaker)   # of k8s-node-1, which is not started again");
    let held = stage.bench.hold(Host::Node1)?;
    let from = scene.watch.now();
    process.signal(Signal::SIGKILL)?;
    let taken = scene.without(Host::Node1, DETECTION).await;
    drop(held);
    stage.story.measured(format!(
        "with the heirs after {} ms",
        taken.as_ref().map_or(0, |t| t.saturating_sub(from).as_millis())
    ));
    taken?;
    Ok("k8s-node-1 -> its heirs".to_owned())
}

async fn restarted(stage: &mut Stage<'_>, scene: &Scene, outage: Outage) -> Seen {
    let first = eventually(SOON, async || stage.bench.speaker_process(Host::Node1)).await?;
    // It has had time to end if it were one to end.
    let held = scene.watch.settled(&scene.away(Host::Node1).expected(), 50, SOON).await;
    let same = first.is_alive();
    let from = scene.watch.now();
    stage.story.command("nft delete table ip outage");
    outage.over().await?;
    let back = scene.as_usual(SOON * 2).await?;
    held?;
    let tally = scene.since(from);
    stage.story.measured(format!(
        "back {} ms after the API; {}",
        back.saturating_sub(from).as_millis(),
        tally.words(BOUND)
    ));
    ensure!(same, "the process ended during the outage");
    tally.judge(BOUND)?;
    let now = speaker(stage, Host::Node1).await?;
    ensure!(now.restarts > 0 || now.ready, "{now:?}");
    Ok("one process, silent while the API was away; k8s-node-1 has its addresses again".to_owned())
}

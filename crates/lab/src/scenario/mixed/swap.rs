// SPDX-License-Identifier: Apache-2.0
//! One node's speaker is replaced by one of the other kind: its Pod is deleted, and the next has the other image.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::super::cluster::{DAEMON_SET, POD, eventually};
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::super::watch::Watch;
use super::tally::{BOUND, LEAVING, Outcome, Tally};
use super::{Kind, SYSTEM, Situation};
use crate::bench_handle::{Daemon, PodView};
use crate::host::Host;

/// Plays one swap; whether the cluster is as the story has it then, however it came there.
pub(super) async fn step(
    stage: &mut Stage<'_>,
    watch: &Watch,
    before: &Situation,
    node: Host,
    kind: Kind,
) -> bool {
    let mut arrived = false;
    stage
        .step(
            &format!(
                "{node} from {} to {}",
                if kind == Kind::Ours { "MetalLB" } else { "ferrolb" },
                kind.name()
            ),
            "the others take over and give back; among ours no address is dark or has two owners for long",
            async |stage: &mut Stage<'_>| swap(stage, watch, before, (node, kind), &mut arrived).await,
        )
        .await;
    arrived
}

async fn swap(
    stage: &mut Stage<'_>,
    watch: &Watch,
    before: &Situation,
    (node, kind): (Host, Kind),
    arrived: &mut bool,
) -> Seen {
    let image = json!([
        {"op": "add", "path": "/spec/updateStrategy", "value": {"type": "OnDelete"}},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": kind.image()},
    ]);
    stage.patch_json(DAEMON_SET, SYSTEM, "speaker", &image).await?;
    let mut after = before.clone();
    after.kinds.insert(node, kind);
    let from = watch.now();
    let (begun, ready) = renew(stage, watch, node).await?;
    let settled = watch.settled(&after.expected(), 10, SOON).await?;
    *arrived = true;

    // While it is away, the others own what it led.
    let (without, absent) = (before.without(node), after.without(node));
    let (left, came, heirs, outcomes) = watch.look(|seen| {
        // MetalLB's speaker claims what it likes when it comes, and goes on answering when it leaves.
        let mut outcomes = Outcome::of(seen, from, begun, &[before, &without], kind == Kind::Metallb);
        outcomes.add(Outcome::of(seen, begun, settled, &[&absent, &after], kind == Kind::Ours));
        let heirs = Tally { between: Vec::new(), ..Tally::of(seen, from, settled, &without) };
        (Tally::of(seen, from, begun, &without), Tally::of(seen, begun, settled, &after), heirs, outcomes)
    });
    stage.story.measured(format!(
        "away after {} ms, ready {} ms later, everything in its place {} ms after that; {}\n      leaving: {}\n      \
         coming: {}",
        (begun - from).as_millis(),
        (ready - begun).as_millis(),
        settled.saturating_sub(ready).as_millis(),
        outcomes.words(),
        left.words(BOUND),
        came.words(BOUND)
    ));
    outcomes.judge()?;
    match kind {
        // It is MetalLB's speaker that leaves, and answers until its process ends. Then its heirs of ours have long begun.
        Kind::Ours => {
            came.judge(BOUND).context("while ours came")?;
            heirs.judge(BOUND).context("from the end of MetalLB's to its heirs")?;
        }
        // It is MetalLB's speaker that comes, and believes itself alone at first.
        Kind::Metallb => left.judge(LEAVING).context("while ours left")?,
    }
    Ok(after.words())
}

/// Has a node's speaker replaced by one of the template: when the next process began, and when it was ready.
pub(super) async fn renew(stage: &mut Stage<'_>, watch: &Watch, node: Host) -> Result<(Duration, Duration)> {
    let old = on(stage, node).await?;
    stage.story.command(format!(
        "kubectl -n {SYSTEM} delete pod --wait=false -l component=speaker --field-selector spec.nodeName={node}"
    ));
    stage.cluster.delete(POD, SYSTEM, &old.name).await?;
    // Its process has ended when the next one's begins.
    let new = eventually(SOON, async || {
        let new = on(stage, node).await?;
        ensure!(new.name != old.name, "the Pod {} is not replaced", old.name);
        stage.bench.process(&new.name)?;
        Ok(new)
    })
    .await?;
    let begun = watch.now();
    eventually(SOON, async || {
        let now = on(stage, node).await?;
        ensure!(now.name == new.name && now.ready, "{} is not ready", now.name);
        Ok(())
    })
    .await?;
    Ok((begun, watch.now()))
}

/// The speaker's Pod on a node that is not about to end, if there is one; else the one that is.
pub(super) async fn on(stage: &Stage<'_>, node: Host) -> Result<PodView> {
    let mut pods = stage.bench.pods(SYSTEM, Daemon::Speaker.name()).await?;
    pods.retain(|pod| pod.node == Some(node));
    pods.sort_by_key(|pod| pod.ending);
    pods.into_iter().next().with_context(|| format!("no speaker on {node}"))
}

/// Waits until every node's speaker is ready and of a kind.
pub(super) async fn all_ready(stage: &Stage<'_>, limit: Duration) -> Result<()> {
    stage.bench.settled(Daemon::Speaker, limit).await
}

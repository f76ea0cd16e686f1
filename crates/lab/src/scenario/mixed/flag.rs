// SPDX-License-Identifier: Apache-2.0
//! `--ignore-exclude-lb` on every speaker of a mixed cluster, there and back: with it the label that excludes a node moves nothing.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::super::cluster::DAEMON_SET;
use super::super::l2::EXCLUDE;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::super::watch::Watch;
use super::tally::Outcome;
use super::{SYSTEM, Situation, swap};
use crate::host::Host;

const FLAG: &str = "--ignore-exclude-lb";
const CONTAINER: &str = "/spec/template/spec/containers/0";

pub(super) async fn step(stage: &mut Stage<'_>, watch: &Watch, situation: &Situation) {
    stage
        .step(
            FLAG,
            "with it on every speaker the exclusion of k8s-node-1 moves nothing; without it again it does",
            async |stage: &mut Stage<'_>| there_and_back(stage, watch, situation.clone()).await,
        )
        .await;
}

async fn there_and_back(stage: &mut Stage<'_>, watch: &Watch, mut situation: Situation) -> Seen {
    let add = json!({"op": "add", "path": format!("{CONTAINER}/args/-"), "value": FLAG});
    with(stage, watch, &situation, add).await?;
    situation.ignores_label = true;

    let from = watch.now();
    stage.label_node(Host::Node1, EXCLUDE, Some("")).await?;
    situation.excluded.insert(Host::Node1);
    // Half a second of nothing, and as long again.
    watch.settled(&situation.expected(), 25, SOON).await?;
    let settled = watch.settled(&situation.expected(), 25, SOON).await?;
    let outcomes = watch.look(|seen| Outcome::of(seen, from, settled, &[&situation], true));
    stage.story.measured(format!("excluded: {}", outcomes.words()));
    outcomes.judge()?;

    let set = stage.cluster.read(DAEMON_SET, SYSTEM, "speaker").await?;
    let arguments = set.pointer(&format!("{CONTAINER}/args")).and_then(Value::as_array);
    let index = arguments.into_iter().flatten().position(|argument| argument == FLAG);
    let index = index.context("the flag is not there")?;
    let remove = json!({"op": "remove", "path": format!("{CONTAINER}/args/{index}")});
    situation.ignores_label = false;
    with(stage, watch, &situation, remove).await?;
    stage.label_node(Host::Node1, EXCLUDE, None).await?;
    situation.excluded.remove(&Host::Node1);
    watch.settled(&situation.expected(), 10, SOON).await?;
    Ok("nothing moves with it; k8s-node-1 is empty without it, and has its own again without the label"
        .to_owned())
}

/// Changes the arguments of every speaker, each of which stays of its kind, and waits until everything is where it is to be.
async fn with(stage: &mut Stage<'_>, watch: &Watch, after: &Situation, change: Value) -> Result<()> {
    let mut change = Some(change);
    for (node, kind) in after.kinds.clone() {
        let image = json!({"op": "replace", "path": format!("{CONTAINER}/image"), "value": kind.image()});
        let patch: Vec<Value> = change.take().into_iter().chain([image]).collect();
        stage.patch_json(DAEMON_SET, SYSTEM, "speaker", &Value::Array(patch)).await?;
        swap::renew(stage, watch, node).await?;
    }
    // With the flag the label of before is not looked at; there is none.
    ensure!(change.is_none(), "there is no speaker");
    watch.settled(&after.expected(), 10, SOON).await.map(drop)
}

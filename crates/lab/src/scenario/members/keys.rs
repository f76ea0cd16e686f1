// SPDX-License-Identifier: Apache-2.0
//! Second chapter: what keeps speakers apart is named where a user looks: another key, a closed port.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use serde_json::{Value, json};

use super::super::cluster::{CONFIGURATION_STATE, DAEMON_SET, SECRET, eventually, text};
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::{SYSTEM, Scene, renew, speaker};
use crate::bench_handle::Daemon;
use crate::host::Host;

/// The condition of a speaker's ConfigurationState.
const CONDITION: &str = ferrolb_api::MEMBERS_CONDITION;

const KEY: &str = "it uses another key";
const PORT: &str = "its port is closed";

/// The setting by which speakers find each other.
const LABELS: &str = "METALLB_ML_LABELS";

pub(super) async fn chapter(stage: &mut Stage<'_>, scene: &Scene) {
    stage.story.chapter("What keeps speakers apart");
    stage
        .step(
            "a wrong key",
            "the condition ferrolb.io/Members names who cannot be reached, an event on the own Pod says it once",
            async |stage: &mut Stage<'_>| wrong_key(stage, scene).await,
        )
        .await;
    stage
        .step("a closed port", "the same, with its own reason", async |stage: &mut Stage<'_>| {
            closed_port(stage, scene).await
        })
        .await;
    stage
        .step(
            "labels that no speaker has",
            "every speaker says so, and they find each other at the nodes' addresses",
            async |stage: &mut Stage<'_>| wrong_labels(stage, scene).await,
        )
        .await;
}

/// The condition of a node's speaker, if there is one.
async fn condition(stage: &Stage<'_>, node: Host) -> Result<Option<Value>> {
    let state = stage.cluster.read(CONFIGURATION_STATE, SYSTEM, &format!("speaker-{node}")).await?;
    let all = state.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(all.into_iter().find(|condition| text(condition, "/type") == CONDITION))
}

/// Waits until a node's speaker says that it does not reach these, and why: what it says.
async fn misses(stage: &Stage<'_>, node: Host, others: &[Host], why: &str) -> Result<String> {
    says(stage, node, |message| {
        for other in others {
            let line = message.lines().find(|line| line.contains(other.name()));
            ensure!(line.is_some_and(|line| line.contains(why)), "{node} says of {other}: {message}");
        }
        Ok(())
    })
    .await
}

/// Waits until a node's speaker says something like this of members: what it says.
async fn says(stage: &Stage<'_>, node: Host, holds: impl Fn(&str) -> Result<()>) -> Result<String> {
    eventually(SOON * 2, async || {
        let found = condition(stage, node).await?.with_context(|| format!("{node} has no {CONDITION}"))?;
        ensure!(text(&found, "/status") == "False", "{node} says {found}");
        let message = text(&found, "/message").to_owned();
        holds(&message)?;
        Ok(message)
    })
    .await
}

/// Waits until a node's speaker says nothing of that any more.
async fn no_longer(stage: &Stage<'_>, node: Host, why: &str) -> Result<()> {
    eventually(SOON * 2, async || {
        let found = condition(stage, node).await?.unwrap_or_default();
        ensure!(!text(&found, "/message").contains(why), "{node} says {found}");
        Ok(())
    })
    .await
}

async fn set_secret(stage: &mut Stage<'_>, content: &str) -> Result<()> {
    let patch = json!({"data": {"secretkey": content}});
    stage.patch_secretly(SECRET, SYSTEM, "memberlist", &patch).await
}

/// Waits until a speaker's Pod has an event about it: one, which names all of them.
async fn event(stage: &Stage<'_>, node: Host, others: &[Host]) -> Result<()> {
    let pod = speaker(stage, node).await?;
    eventually(SOON, async || {
        let events = stage.cluster.events_on(SYSTEM, &pod.name).await?;
        let found: Vec<_> = events.iter().filter(|event| event.reason == "MembersUnreachable").collect();
        let [found] = found.as_slice() else { bail!("not one event on {}, but {events:?}", pod.name) };
        ensure!(found.kind == "Warning" && found.count == 1, "{found:?}");
        ensure!(others.iter().all(|other| found.message.contains(other.name())), "{found:?}");
        Ok(())
    })
    .await
}

/// That apart as they are there is one owner for each address, the one that all together would elect, and nobody beside it
/// for a second more: each leads alone what it would lead for want of the others, and obeys what it sees on the segment.
async fn one_owner_each(stage: &mut Stage<'_>, scene: &Scene, from: Duration) -> Result<()> {
    let agreed = scene.as_usual(SOON * 2).await.context("while they are apart")?;
    scene.watch.settled(&scene.situation.expected(), 50, SOON).await.context("while they are apart")?;
    scene.nothing_happened(agreed).context("while they are apart")?;
    stage.story.measured(format!("while they are apart: {}", scene.words(from)));
    Ok(())
}

async fn wrong_key(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    let stored = stage.cluster.read(SECRET, SYSTEM, "memberlist").await?;
    let good = text(&stored, "/data/secretkey").to_owned();
    ensure!(!good.is_empty(), "the Secret memberlist has no key");
    let other = base64::engine::general_purpose::STANDARD.encode("another key than theirs");
    // A speaker reads its key when it starts.
    set_secret(stage, &other).await?;
    let from = scene.watch.now();
    renew(stage, Host::Node2).await?;
    let others = [Host::Master1, Host::Node1];
    let told = misses(stage, Host::Node2, &others, KEY).await;
    let owners = one_owner_each(stage, scene, from).await;
    // The condition names both, so that a second event would be there by now.
    let seen = event(stage, Host::Node2, &others).await;
    set_secret(stage, &good).await?;
    renew(stage, Host::Node2).await?;
    let told = told?;
    seen?;
    owners?;
    no_longer(stage, Host::Node2, KEY).await?;
    scene.as_usual(SOON * 2).await?;
    stage.story.measured(told);
    Ok(format!(
        "k8s-node-2 says of both others: {KEY}; an event MembersUnreachable; one owner each all the same; nothing of it with \
         the right key"
    ))
}

async fn closed_port(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    let rules = "add table ip closed; add chain ip closed input { type filter hook input priority -5; }; \
                 add rule ip closed input tcp dport 7946 reject with tcp reset; \
                 add rule ip closed input udp dport 7946 reject";
    stage.exec(Host::Node2, &["nft", rules]).await?.success()?;
    let from = scene.watch.now();
    let told = misses(stage, Host::Node1, &[Host::Node2], PORT).await;
    // It was tried in vain for ten seconds by then, and held for dead.
    let owners = one_owner_each(stage, scene, from).await;
    stage.exec(Host::Node2, &["nft", "delete", "table", "ip", "closed"]).await?.success()?;
    let told = told?;
    owners?;
    scene.as_usual(SOON * 2).await?;
    stage.story.measured(told);
    Ok(format!(
        "k8s-node-1 says of k8s-node-2: {PORT}; one owner each all the same, and when it is open again"
    ))
}

/// Gives the speakers' Pods this label selector, and waits until all of them are new.
async fn set_labels(stage: &mut Stage<'_>, labels: &str) -> Result<()> {
    const CONTAINER: &str = "/spec/template/spec/containers/0";
    let set = stage.cluster.read(DAEMON_SET, SYSTEM, "speaker").await?;
    let env = set.pointer(&format!("{CONTAINER}/env")).and_then(Value::as_array).context("no environment")?;
    let place = env.iter().position(|variable| text(variable, "/name") == LABELS).context("no labels")?;
    let patch = json!([{"op": "replace", "path": format!("{CONTAINER}/env/{place}/value"), "value": labels}]);
    stage.patch_json(DAEMON_SET, SYSTEM, "speaker", &patch).await?;
    stage.bench.settled(Daemon::Speaker, SOON * 3).await
}

async fn wrong_labels(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    const SPEAKERS: &str = "app=metallb,component=speaker";
    let from = scene.watch.now();
    let mut told = String::new();
    let seen = async {
        set_labels(stage, "app=metalb").await?;
        for node in Host::NODES {
            told = says(stage, node, |message| {
                ensure!(
                    message.contains(LABELS) && message.contains("\"app=metalb\""),
                    "{node} says {message}"
                );
                Ok(())
            })
            .await?;
        }
        // Alone, each would announce everything.
        one_owner_each(stage, scene, from).await
    }
    .await;
    set_labels(stage, SPEAKERS).await?;
    seen?;
    for node in Host::NODES {
        no_longer(stage, node, LABELS).await?;
    }
    scene.as_usual(SOON * 2).await?;
    stage.story.measured(told);
    Ok("each says which setting it is; one owner each all the same; nothing of it with the speakers' labels"
        .to_owned())
}

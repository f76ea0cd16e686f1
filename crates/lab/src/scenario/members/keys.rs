// SPDX-License-Identifier: Apache-2.0
//! Second chapter: what keeps speakers apart is named where a user looks: another key, a closed port.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use serde_json::{Value, json};

use super::super::cluster::{CONFIGURATION_STATE, SECRET, eventually, text};
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::{SYSTEM, Scene, renew, speaker};
use crate::host::Host;

/// The condition of a speaker's ConfigurationState.
const CONDITION: &str = ferrolb_api::MEMBERS_CONDITION;

const KEY: &str = "it uses another key";
const PORT: &str = "its port is closed";

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
}

/// The condition of a node's speaker, if there is one.
async fn condition(stage: &Stage<'_>, node: Host) -> Result<Option<Value>> {
    let state = stage.cluster.read(CONFIGURATION_STATE, SYSTEM, &format!("speaker-{node}")).await?;
    let all = state.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(all.into_iter().find(|condition| text(condition, "/type") == CONDITION))
}

/// Waits until a node's speaker says that it does not reach these, and why: what it says.
async fn misses(stage: &Stage<'_>, node: Host, others: &[Host], why: &str) -> Result<String> {
    eventually(SOON * 2, async || {
        let found = condition(stage, node).await?.with_context(|| format!("{node} has no {CONDITION}"))?;
        ensure!(text(&found, "/status") == "False", "{node} says {found}");
        let message = text(&found, "/message").to_owned();
        for other in others {
            let line = message.lines().find(|line| line.contains(other.name()));
            ensure!(line.is_some_and(|line| line.contains(why)), "{node} says of {other}: {message}");
        }
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

/// The event that a speaker's Pod has about it.
async fn event(stage: &Stage<'_>, node: Host) -> Result<()> {
    let pod = speaker(stage, node).await?;
    eventually(SOON, async || {
        let events = stage.cluster.events_on(SYSTEM, &pod.name).await?;
        let found = events.iter().find(|event| event.reason == "MembersUnreachable");
        let found = found.with_context(|| format!("no event on {}, but {events:?}", pod.name))?;
        ensure!(found.kind == "Warning" && found.count == 1, "{found:?}");
        Ok(())
    })
    .await
}

async fn wrong_key(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    let stored = stage.cluster.read(SECRET, SYSTEM, "memberlist").await?;
    let good = text(&stored, "/data/secretkey").to_owned();
    ensure!(!good.is_empty(), "the Secret memberlist has no key");
    let other = base64::engine::general_purpose::STANDARD.encode("another key than theirs");
    // A speaker reads its key when it starts.
    set_secret(stage, &other).await?;
    renew(stage, Host::Node2).await?;
    let told = misses(stage, Host::Node2, &[Host::Master1, Host::Node1], KEY).await;
    let seen = event(stage, Host::Node2).await;
    set_secret(stage, &good).await?;
    renew(stage, Host::Node2).await?;
    let told = told?;
    seen?;
    no_longer(stage, Host::Node2, KEY).await?;
    scene.as_usual(SOON * 2).await?;
    stage.story.measured(told);
    Ok(format!(
        "k8s-node-2 says of both others: {KEY}; an event MembersUnreachable; nothing of it with the right key"
    ))
}

async fn closed_port(stage: &mut Stage<'_>, scene: &Scene) -> Seen {
    let rules = "add table ip closed; add chain ip closed input { type filter hook input priority -5; }; \
                 add rule ip closed input tcp dport 7946 reject with tcp reset; \
                 add rule ip closed input udp dport 7946 reject";
    stage.exec(Host::Node2, &["nft", rules]).await?.success()?;
    let told = misses(stage, Host::Node1, &[Host::Node2], PORT).await;
    stage.exec(Host::Node2, &["nft", "delete", "table", "ip", "closed"]).await?.success()?;
    let told = told?;
    scene.as_usual(SOON * 2).await?;
    stage.story.measured(told);
    Ok(format!("k8s-node-1 says of k8s-node-2: {PORT}; open again, each address is with its owner"))
}

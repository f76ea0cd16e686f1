// SPDX-License-Identifier: Apache-2.0
//! First chapter: definitions, webhooks, and an authority that appears in them without disturbing anybody.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::cluster::{DEFINITION, WEBHOOKS, eventually, text};
use super::super::l2;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::manifest;
use crate::bench_handle::Daemon;

pub(super) const CONFIGURATION: &str = "metallb-webhook-configuration";
const MANIFEST: Example = manifest!("webhooks.yaml");
const PEERS: &str = "bgppeers.metallb.io";

/// Returns whether the story can go on.
pub(super) async fn chapter(stage: &mut Stage<'_>) -> bool {
    stage.story.chapter("Webhooks are installed");
    let mut ok = stage.step("definitions", "nine kinds of metallb.io, established", l2::definitions).await;
    ok &= stage
        .step(
            "webhooks",
            "the controller's authority appears in all six, and in the definition of BGPPeer",
            webhooks,
        )
        .await;
    ok &= stage.step("readiness", "the controller is ready", readiness).await;
    stage
        .step(
            "one field each",
            "of both objects the controller owns caBundle, by server-side apply, and nothing else",
            one_field,
        )
        .await;
    stage
        .step(
            "applied again",
            "kubectl apply changes nothing, another manager's server-side apply has no conflict, kubectl diff is empty",
            again,
        )
        .await;
    ok
}

async fn webhooks(stage: &mut Stage<'_>) -> Seen {
    stage.apply(MANIFEST).await?;
    let webhooks = eventually(SOON, async || {
        let bundles = bundles(stage).await?;
        let (definition, webhooks) = bundles.split_last().context("nothing names an authority")?;
        ensure!(!definition.is_empty(), "the definition of BGPPeer has no caBundle");
        ensure!(
            webhooks.iter().all(|bundle| bundle == definition),
            "not all webhooks have the same caBundle"
        );
        Ok(webhooks.len())
    })
    .await?;
    let path = "jsonpath={.webhooks[0].clientConfig.caBundle}";
    if let Some(printed) = stage.kubectl(&["get", WEBHOOKS.singular(), CONFIGURATION, "-o", path]).await? {
        ensure!(!printed.is_empty(), "kubectl prints no caBundle");
    }
    Ok(format!("{webhooks} webhooks and the conversion of BGPPeers trust the controller's authority"))
}

/// Waits until all webhooks and the conversion of BGPPeers trust the same authority: how many webhooks there are.
pub(in crate::scenario) async fn trusted_webhooks(stage: &Stage<'_>) -> Result<usize> {
    eventually(SOON, async || {
        let bundles = bundles(stage).await?;
        let (definition, webhooks) = bundles.split_last().context("nothing names an authority")?;
        ensure!(!definition.is_empty(), "the definition of BGPPeer has no caBundle");
        ensure!(
            webhooks.iter().all(|bundle| bundle == definition),
            "not all webhooks have the same caBundle"
        );
        Ok(webhooks.len())
    })
    .await
}

/// The caBundles of all webhooks in order, and that of the definition; empty where there is none.
pub(super) async fn bundles(stage: &Stage<'_>) -> Result<Vec<String>> {
    let configuration = stage.cluster.read(WEBHOOKS, "", CONFIGURATION).await?;
    let webhooks = configuration["webhooks"].as_array().context("no webhooks")?;
    let definition = stage.cluster.read(DEFINITION, "", PEERS).await?;
    let mut bundles: Vec<String> =
        webhooks.iter().map(|webhook| text(webhook, "/clientConfig/caBundle").to_owned()).collect();
    bundles.push(text(&definition, "/spec/conversion/webhook/clientConfig/caBundle").to_owned());
    Ok(bundles)
}

async fn readiness(stage: &mut Stage<'_>) -> Seen {
    stage.bench.settled(Daemon::Controller, SOON).await?;
    stage
        .kubectl(&["-n", super::SYSTEM, "rollout", "status", "deployment", "controller", "--timeout", "20s"])
        .await?;
    Ok("the controller's Pod is Ready".into())
}

async fn one_field(stage: &mut Stage<'_>) -> Seen {
    let mut told = Vec::new();
    for (kind, name) in [(WEBHOOKS, CONFIGURATION), (DEFINITION, PEERS)] {
        let object = stage.cluster.read(kind, "", name).await?;
        let owners = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        let owners: Vec<&Value> = owners
            .into_iter()
            .flatten()
            .filter(|entry| leaves(&entry["fieldsV1"]).iter().any(|leaf| leaf == "f:caBundle"))
            .collect();
        let [owner] = owners.as_slice() else { anyhow::bail!("caBundle of {name} is owned by {owners:?}") };
        ensure!(text(owner, "/operation") == "Apply", "caBundle of {name} was not applied: {owner}");
        let mut others = leaves(&owner["fieldsV1"]);
        // The key by which an entry of a list is found belongs to whoever owns a field of the entry.
        others.retain(|leaf| leaf != "f:caBundle" && leaf != "f:name");
        ensure!(others.is_empty(), "of {name} the same manager owns {others:?}");
        told.push(text(owner, "/manager").to_owned());
    }
    told.dedup();
    Ok(format!("field manager {} owns caBundle alone", told.join(", ")))
}

/// The names of the innermost fields of a `fieldsV1`.
fn leaves(fields: &Value) -> Vec<String> {
    let children = fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".");
    children
        .flat_map(|(key, below)| {
            let deeper = leaves(below);
            if deeper.is_empty() && key.starts_with("f:") { vec![key.clone()] } else { deeper }
        })
        .collect()
}

async fn again(stage: &mut Stage<'_>) -> Seen {
    let before = bundles(stage).await?;
    stage.apply(MANIFEST).await?;
    let file = MANIFEST.file;
    let applied = stage
        .kubectl_on(
            &["apply", "--server-side", "--field-manager", "gitops", "-f", file],
            &["apply", "--server-side", "--field-manager", "gitops", "-f", "-"],
            MANIFEST.yaml,
        )
        .await?;
    if let Some(applied) = &applied {
        ensure!(applied.ok(), "{}", super::super::stage::told(applied));
    }
    let diff = stage.kubectl_on(&["diff", "-f", file], &["diff", "-f", "-"], MANIFEST.yaml).await?;
    if let Some(diff) = &diff {
        ensure!(diff.ok() && diff.stdout.is_empty(), "{}", super::super::stage::told(diff));
    }
    ensure!(bundles(stage).await? == before, "a caBundle changed");
    Ok("no conflict, no difference; every caBundle as before".into())
}

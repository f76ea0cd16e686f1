// SPDX-License-Identifier: Apache-2.0
//! Second chapter: definitions, a pool, an advertisement, an application, a Service.

use anyhow::{bail, ensure};
use serde_json::Value;

use super::super::cluster::{
    CONFIGURATION_STATE, DEFINITION, ENDPOINT_SLICE, POD, SERVICE, eventually, text,
};
use super::super::stage::{Example, SOON, Stage, example};
use super::super::story::Seen;
use super::{DEMO, SYSTEM};

pub(in crate::scenario) const POOL: Example = example!("pool.yaml");
pub(in crate::scenario) const ADVERTISEMENT: Example = example!("advertisement.yaml");
pub(in crate::scenario) const HELLO: Example = example!("hello.yaml");
pub(in crate::scenario) const HELLO_LB: Example = example!("hello-lb.yaml");

/// Returns whether the story can go on.
pub(super) async fn chapter(stage: &mut Stage<'_>) -> bool {
    stage.story.chapter("Configuration and an application");
    let mut ok = stage.step("definitions", "nine kinds of metallb.io, established", definitions).await;
    ok &= stage
        .step("readiness", "all four daemons are ready, now that they have complete lists", readiness)
        .await;
    ok &= stage
        .step("pool and advertisement", "accepted by the API server and by all four daemons", configuration)
        .await;
    ok &=
        stage.step("application", "two Pods on k8s-node-2, one on k8s-node-1, all ready", application).await;
    ok & stage.step("Service", "created, with three ready endpoints", service).await
}

pub(in crate::scenario) async fn definitions(stage: &mut Stage<'_>) -> Seen {
    let documents = ferrolb_api::manifests(SYSTEM);
    stage.apply_definitions(&documents).await?;
    let names: Vec<&str> = documents.iter().map(|document| text(document, "/metadata/name")).collect();
    for name in &names {
        eventually(SOON, async || {
            let stored = stage.cluster.read(DEFINITION, "", name).await?;
            let conditions = stored.pointer("/status/conditions").and_then(Value::as_array);
            let established = conditions.into_iter().flatten().any(|condition| {
                text(condition, "/type") == "Established" && text(condition, "/status") == "True"
            });
            ensure!(established, "{name} is not established");
            Ok(())
        })
        .await?;
    }
    Ok(format!("{} kinds established", names.len()))
}

async fn readiness(stage: &mut Stage<'_>) -> Seen {
    stage.bench.daemons_ready(SOON).await?;
    stage
        .kubectl(&["-n", SYSTEM, "wait", "pod", "--all", "--for", "condition=Ready", "--timeout", "20s"])
        .await?;
    for daemon in stage.daemons().await? {
        let url = "http://127.0.0.1:17472/readyz";
        let said = stage.beside(&daemon, &["curl", "-sS", "--max-time", "2", url]).await?.success()?;
        ensure!(said.trim() == "ok", "{} answers {said:?}", daemon.pod);
    }
    Ok("the Pods of the controller and of three speakers are Ready".into())
}

async fn configuration(stage: &mut Stage<'_>) -> Seen {
    stage.apply(POOL).await?;
    stage.apply(ADVERTISEMENT).await?;
    all_states(stage, "Valid", None).await?;
    Ok("ConfigurationStates controller and speaker-… of all three nodes: Valid".into())
}

/// Waits until the ConfigurationStates of all four daemons have this result and summary.
pub(super) async fn all_states(stage: &Stage<'_>, result: &str, summary: Option<&str>) -> anyhow::Result<()> {
    const NAMES: [&str; 4] =
        ["controller", "speaker-k8s-master-1", "speaker-k8s-node-1", "speaker-k8s-node-2"];
    eventually(SOON, async || {
        for name in NAMES {
            let state = stage.cluster.read(CONFIGURATION_STATE, SYSTEM, name).await?;
            let seen = text(&state, "/status/result");
            ensure!(seen == result, "ConfigurationState {name} is {seen:?}, not {result:?}");
            let seen = state.pointer("/status/errorSummary").and_then(Value::as_str);
            ensure!(seen == summary, "ConfigurationState {name} says {seen:?}, not {summary:?}");
        }
        Ok(())
    })
    .await
}

async fn application(stage: &mut Stage<'_>) -> Seen {
    stage.apply(HELLO).await?;
    eventually(SOON, async || {
        let pods = stage.cluster.list(POD, DEMO).await?;
        let mut nodes: Vec<&str> =
            pods.iter().filter(|pod| is_ready(pod)).map(|pod| text(pod, "/spec/nodeName")).collect();
        nodes.sort_unstable();
        if nodes != ["k8s-node-1", "k8s-node-2", "k8s-node-2"] {
            bail!("ready Pods on {nodes:?}");
        }
        Ok(())
    })
    .await?;
    Ok("demo/hello: 2 ready Pods on k8s-node-2, 1 on k8s-node-1".into())
}

/// Whether a Pod is ready.
fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True")
}

async fn service(stage: &mut Stage<'_>) -> Seen {
    stage.apply(HELLO_LB).await?;
    let ready = eventually(SOON, async || {
        let slices = stage.cluster.list(ENDPOINT_SLICE, DEMO).await?;
        let of_service = slices
            .iter()
            .filter(|slice| text(slice, "/metadata/labels/kubernetes.io~1service-name") == "hello-lb");
        let ready = of_service
            .flat_map(|slice| slice.pointer("/endpoints").and_then(Value::as_array).into_iter().flatten())
            .filter(|endpoint| endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false))
            .count();
        ensure!(ready == 3, "{ready} ready endpoints");
        Ok(ready)
    })
    .await?;
    let service = stage.cluster.read(SERVICE, DEMO, "hello-lb").await?;
    ensure!(!text(&service, "/spec/clusterIP").is_empty(), "no cluster IP");
    Ok(format!("demo/hello-lb, TCP 80 and UDP 80, {ready} ready endpoints"))
}

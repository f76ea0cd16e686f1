// SPDX-License-Identifier: Apache-2.0
//! First chapter: two controllers, a Lease, and conditions on the Service.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::super::cluster::{LEASE, SERVICE, eventually, text};
use super::super::controller;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::{DEMO, SYSTEM, l2};
use crate::bench_handle::{Daemon, PodView};
use crate::host::Host;

/// The Lease by which controllers agree who decides.
pub(super) const LEASE_NAME: &str = "ferrolb-controller";

/// Returns whether the story can go on.
pub(super) async fn chapter(stage: &mut Stage<'_>) -> bool {
    stage.story.chapter("Two controllers");
    let mut ok = stage.step("definitions", "nine kinds of metallb.io, established", l2::definitions).await;
    ok &= stage.step("readiness", "both controllers are ready; one of them holds the Lease", ready).await;
    ok &= stage.step("webhooks", "both answer, with the same certificate", webhooks).await;
    ok &= stage.step("a Service", "an address, and conditions that kubectl can wait for", conditions).await;
    stage
        .step(
            "a condition of somebody else",
            "it stays while the controller writes its own",
            foreign_condition,
        )
        .await;
    ok
}

async fn ready(stage: &mut Stage<'_>) -> Seen {
    stage.bench.settled(Daemon::Controller, SOON).await?;
    stage
        .kubectl(&["-n", SYSTEM, "rollout", "status", "deployment", "controller", "--timeout", "20s"])
        .await?;
    let (leader, others) = leader(stage).await?;
    stage
        .kubectl(&[
            "-n",
            SYSTEM,
            "get",
            LEASE.singular(),
            LEASE_NAME,
            "-o",
            "jsonpath={.spec.holderIdentity}",
        ])
        .await?;
    ensure!(others.len() == 1, "{} controllers beside the leader {}", others.len(), leader.name);
    Ok(format!("two controllers, ready; the Lease {LEASE_NAME} is held by one of them"))
}

/// The controller that holds the Lease, and the others.
pub(super) async fn leader(stage: &Stage<'_>) -> Result<(PodView, Vec<PodView>)> {
    eventually(SOON, async || {
        let lease = stage.cluster.read(LEASE, SYSTEM, LEASE_NAME).await?;
        let holder = text(&lease, "/spec/holderIdentity");
        let pods = stage.bench.pods(SYSTEM, Daemon::Controller.name()).await?;
        let (mut leaders, others): (Vec<_>, Vec<_>) = pods
            .into_iter()
            .filter(|pod| !pod.ending)
            .partition(|pod| holder == format!("{}_{}", pod.name, pod.uid));
        let leader = leaders.pop().with_context(|| format!("the Lease is held by {holder:?}"))?;
        Ok((leader, others))
    })
    .await
}

async fn webhooks(stage: &mut Stage<'_>) -> Seen {
    let mut seen = Vec::new();
    for pod in stage.bench.pods(SYSTEM, Daemon::Controller.name()).await? {
        let address = pod.address.with_context(|| format!("{} has no address", pod.name))?;
        let presented = format!(
            "openssl s_client -connect {address}:9443 </dev/null 2>/dev/null | openssl x509 -noout -fingerprint -sha256"
        );
        let print = eventually(SOON, async || {
            stage.on_host(Host::Master1, &["bash", "-c", &presented]).await?.success()
        })
        .await?;
        seen.push(print);
    }
    ensure!(seen.len() == 2 && seen.first() == seen.last(), "different certificates: {seen:?}");
    // What the API server asks next may reach either.
    controller::trusted_webhooks(stage).await?;
    Ok("both present one certificate, which the API server trusts".into())
}

async fn conditions(stage: &mut Stage<'_>) -> Seen {
    stage.apply(l2::POOL).await?;
    stage.apply(l2::ADVERTISEMENT).await?;
    stage.apply(l2::HELLO).await?;
    stage.apply(l2::HELLO_LB).await?;
    for condition in [ALLOCATED, ANNOUNCED] {
        let wanted = format!("--for=condition={condition}");
        stage.kubectl(&["-n", DEMO, "wait", "service", "hello-lb", &wanted, "--timeout", "20s"]).await?;
        is_true(stage, condition).await?;
    }
    let path = "jsonpath={range .status.conditions[*]}{.type}={.status} {end}";
    stage.kubectl(&["-n", DEMO, "get", "service", "hello-lb", "-o", path]).await?;
    Ok(format!("{ALLOCATED} and {ANNOUNCED} are True"))
}

pub(super) const ALLOCATED: &str = "ferrolb.io/Allocated";
pub(super) const ANNOUNCED: &str = "ferrolb.io/Announced";

/// Waits until this condition of `demo/hello-lb` is true.
async fn is_true(stage: &Stage<'_>, condition: &str) -> Result<()> {
    has(stage, condition, "True").await
}

async fn has(stage: &Stage<'_>, condition: &str, status: &str) -> Result<()> {
    eventually(SOON, async || {
        let service = stage.cluster.read(SERVICE, DEMO, "hello-lb").await?;
        let conditions = service.pointer("/status/conditions").and_then(Value::as_array);
        let found = conditions.into_iter().flatten().find(|found| text(found, "/type") == condition);
        let seen = found.map_or("absent", |found| text(found, "/status"));
        ensure!(seen == status, "{condition} is {seen}, not {status}");
        Ok(())
    })
    .await
}

async fn foreign_condition(stage: &mut Stage<'_>) -> Seen {
    let theirs = json!([{"op": "add", "path": "/status/conditions/-", "value": {
        "type": "example.com/Checked", "status": "True", "reason": "Looked", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}}]);
    let body = theirs.to_string();
    let arguments = [
        "-n",
        DEMO,
        "patch",
        "service",
        "hello-lb",
        "--subresource",
        "status",
        "--type",
        "json",
        "-p",
        &body,
    ];
    if stage.kubectl(&arguments).await?.is_none() {
        return Ok("not played without kubectl".into());
    }
    stage.remove(&[l2::ADVERTISEMENT]).await?;
    has(stage, ANNOUNCED, "False").await?;
    stage.apply(l2::ADVERTISEMENT).await?;
    is_true(stage, ANNOUNCED).await?;
    has(stage, "example.com/Checked", "True").await?;
    is_true(stage, ALLOCATED).await?;
    Ok(format!("{ANNOUNCED} went to False and back; example.com/Checked is True all the while"))
}

// SPDX-License-Identifier: Apache-2.0
//! Second chapter: the leader stands still in the middle of a write, is deleted, is rolled. The other takes over, and no
//! address is given twice.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use serde_json::json;

use super::super::cluster::{SERVICE, eventually, ingress, text, throughout};
use super::super::faults;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::two::leader;
use super::{DEMO, SYSTEM, manifest};
use crate::bench_handle::{Daemon, PodView};

const HELD: Example = manifest!("held.yaml");
const NEXT: Example = manifest!("next.yaml");
const AFTER: Example = manifest!("after.yaml");

/// Ten times the five seconds within which a dead leader should be followed.
const TOLERABLE: Duration = Duration::from_secs(50);

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("The leader goes");
    stage
        .step(
            "a leader that stands still in the middle of a write",
            "the other takes over within 5 s; the late write conflicts; every address is given once",
            late_write,
        )
        .await;
    stage
        .step(
            "a leader whose Pod is deleted",
            "a new Service is served at once; no other Service is written",
            deleted,
        )
        .await;
    stage.step("a rollout of both", "no Service is written", rolled).await;
}

async fn late_write(stage: &mut Stage<'_>) -> Seen {
    let (paused, _) = leader(stage).await?;
    let fault = faults::possible(stage);
    if fault {
        let rule = json!({"verbs": ["update"], "resources": ["services/status"], "namespace": DEMO, "name": "held",
            "effect": "hold", "count": 1});
        faults::add(stage, rule).await?;
        stage.apply(HELD).await?;
        faults::held(stage).await?;
    }
    stage.bench.signal(&paused.name, Signal::SIGSTOP)?;
    let played = taken_over(stage, &paused, fault).await;
    // Whatever was seen, it goes on afterwards, as a process that was paused does.
    stage.bench.signal(&paused.name, Signal::SIGCONT)?;
    if fault {
        faults::clear(stage).await?;
    }
    let seen = played?;
    // Whoever meant to write on the strength of a Lease that is lost would do so now.
    throughout(Duration::from_secs(2), async || {
        unique(stage).await?;
        let (now, _) = leader(stage).await?;
        ensure!(now.uid != paused.uid, "the former leader has the Lease again");
        Ok(())
    })
    .await?;
    Ok(seen)
}

async fn taken_over(stage: &mut Stage<'_>, paused: &PodView, fault: bool) -> Seen {
    let began = Instant::now();
    if !fault {
        stage.apply(HELD).await?;
    }
    eventually(TOLERABLE, async || {
        let (now, _) = leader(stage).await?;
        ensure!(now.uid != paused.uid, "the Lease is still the paused one's");
        Ok(())
    })
    .await?;
    let took = began.elapsed();
    let held = stage.addresses(DEMO, "held").await?;
    stage.story.measured(format!(
        "the Lease changed hands after {} ms, demo/held had its address after {} ms",
        took.as_millis(),
        began.elapsed().as_millis()
    ));
    stage.apply(NEXT).await?;
    let next = stage.addresses(DEMO, "next").await?;
    ensure!(held != next, "{held:?} was given twice");
    unique(stage).await?;
    if !fault {
        return Ok(format!(
            "demo/held gets {}, demo/next {}; {}",
            held.concat(),
            next.concat(),
            faults::NOT_PLAYED
        ));
    }
    let conflicts = faults::answered(stage, "update", "services", "status", 409).await?;
    let before = stage.cluster.read(SERVICE, DEMO, "held").await?;
    let late = faults::held(stage).await?;
    faults::release(stage, late).await?;
    eventually(SOON, async || {
        let now = faults::answered(stage, "update", "services", "status", 409).await?;
        ensure!(now == conflicts + 1, "{} conflicts instead of one", now - conflicts);
        Ok(())
    })
    .await?;
    let after = stage.cluster.read(SERVICE, DEMO, "held").await?;
    ensure!(
        after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"],
        "it was written: {after}"
    );
    unique(stage).await?;
    Ok(format!(
        "demo/held gets {}, demo/next {}; the late write is refused as a conflict",
        held.concat(),
        next.concat()
    ))
}

/// No address stands in two Services of the namespace `demo`, and each has one.
async fn unique(stage: &Stage<'_>) -> Result<()> {
    let mut given = BTreeSet::new();
    for service in stage.cluster.list(SERVICE, DEMO).await? {
        for address in ingress(&service) {
            let name = text(&service, "/metadata/name");
            ensure!(given.insert(address.clone()), "{address} stands in demo/{name} and in another Service");
        }
    }
    Ok(())
}

async fn deleted(stage: &mut Stage<'_>) -> Seen {
    // Conditions of the Services of the step before may still be written.
    let before = quiet(stage).await?;
    let (leaving, _) = leader(stage).await?;
    // Which of the two it is differs from run to run.
    stage.story.command(format!("kubectl -n {SYSTEM} delete pod $LEADER --wait=false"));
    stage.cluster.delete(super::super::cluster::POD, SYSTEM, &leaving.name).await?;
    stage.apply(AFTER).await?;
    let began = Instant::now();
    let addresses = stage.addresses(DEMO, "after").await?;
    stage.story.measured(format!("demo/after has its address after {} ms", began.elapsed().as_millis()));
    ensure!(began.elapsed() < TOLERABLE, "served only after {} ms", began.elapsed().as_millis());
    stage.bench.settled(Daemon::Controller, SOON).await?;
    unique(stage).await?;
    same(stage, &before).await?;
    Ok(format!("demo/after gets {}; the others as they were", addresses.concat()))
}

async fn rolled(stage: &mut Stage<'_>) -> Seen {
    // Conditions of the Service that came last may still be written.
    let before = quiet(stage).await?;
    match stage.kubectl(&["-n", SYSTEM, "rollout", "restart", "deployment", "controller"]).await? {
        Some(_) => {
            stage
                .kubectl(&["-n", SYSTEM, "rollout", "status", "deployment", "controller", "--timeout", "60s"])
                .await?;
        }
        None => return Ok("not played without kubectl".into()),
    }
    stage.bench.settled(Daemon::Controller, TOLERABLE).await?;
    leader(stage).await?;
    throughout(Duration::from_secs(1), async || same(stage, &before).await).await?;
    Ok(format!("two new controllers; {} Services as they were", before.len()))
}

/// The Services of the namespace `demo` with their resource versions.
async fn versions(stage: &Stage<'_>) -> Result<Vec<(String, String)>> {
    let services = stage.cluster.list(SERVICE, DEMO).await?;
    let version = |service: &serde_json::Value| {
        let text = |pointer| text(service, pointer).to_owned();
        (text("/metadata/name"), text("/metadata/resourceVersion"))
    };
    Ok(services.iter().map(version).collect())
}

/// The same, once nobody has written any of them for a second.
async fn quiet(stage: &Stage<'_>) -> Result<Vec<(String, String)>> {
    let mut seen = versions(stage).await?;
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = versions(stage).await?;
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    Ok(seen)
}

/// Whether these Services have these resource versions still.
async fn same(stage: &Stage<'_>, before: &[(String, String)]) -> Result<()> {
    let now = versions(stage).await?;
    for (name, version) in before {
        let found = now.iter().find(|(known, _)| known == name);
        ensure!(
            found.is_some_and(|(_, now)| now == version),
            "demo/{name} was written: {version} -> {found:?}"
        );
    }
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! Fifth chapter: the controller is killed, the API server goes away, watches expire, and somebody else rewrites a status.
//! Nobody loses an address, and nothing is written that did not change.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use serde_json::json;

use super::super::cluster::{SERVICE, eventually, ingress};
use super::super::faults;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::addresses::{untouched, versions};
use super::{DEMO, manifest};
use crate::bench_handle::Daemon;

const LATE: Example = manifest!("late.yaml");
const AWAY: Example = manifest!("away.yaml");
const BEFORE: Example = manifest!("before.yaml");
const AGAIN: Example = manifest!("again.yaml");
const HINDERED: Example = manifest!("hindered.yaml");

/// The field manager of somebody who takes the Service for their own.
const OTHER: &str = "another-controller";

/// Ten times the two seconds within which the controller should be back.
const TOLERABLE: Duration = Duration::from_secs(20);

/// How long the API server is away.
const AWAY_FOR: Duration = Duration::from_secs(3);

/// The Services of the story that hold addresses when this chapter begins.
const SETTLED: [&str; 5] = ["web", "shared-web", "shared-admin", "dual", "foreign"];

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("What it survives");
    stage
        .step(
            "a controller that is killed",
            "the new one writes no Service that has its address, and serves the one that came meanwhile",
            killed,
        )
        .await;
    stage
        .step(
            "an API server that goes away",
            "what changes as it comes back is served within 2 s; no other Service is written",
            outage,
        )
        .await;
    stage
        .step(
            "a start while the API server is away",
            "the controller waits instead of ending, and serves within 2 s of its return",
            start_without,
        )
        .await;
    stage
        .step(
            "watches that expire",
            "the controller lists again and misses nothing; no other Service is written",
            expired,
        )
        .await;
    stage
        .step(
            "conflicts, throttling and an answer that is lost",
            "the Service gets one address and one event all the same",
            hindered,
        )
        .await;
    stage
        .step(
            "a status that somebody else rewrites",
            "put right, but not for ever at full speed: an event names the other",
            contest,
        )
        .await;
}

async fn killed(stage: &mut Stage<'_>) -> Seen {
    let before = versions(stage, &SETTLED).await?;
    let pod = stage.bench.controller().await?.name;
    // Stopped first, so that it cannot serve what comes before its end.
    stage.bench.signal(&pod, Signal::SIGSTOP)?;
    stage.apply(LATE).await?;
    stage.bench.signal(&pod, Signal::SIGKILL)?;
    let began = Instant::now();
    let addresses = stage.addresses(DEMO, "late").await?;
    stage
        .story
        .measured(format!("demo/late has its address {} ms after the end", began.elapsed().as_millis()));
    ensure!(addresses == ["192.168.10.201"], "demo/late has {addresses:?}");
    stage.bench.settled(Daemon::Controller, SOON).await?;
    untouched(stage, &SETTLED).await?;
    let after = versions(stage, &SETTLED).await?;
    ensure!(after == before, "a Service was written: {before:?} -> {after:?}");
    Ok(format!("demo/late gets {}; five other Services as they were", addresses.concat()))
}

async fn outage(stage: &mut Stage<'_>) -> Seen {
    let mut settled = SETTLED.to_vec();
    settled.push("late");
    let before = versions(stage, &settled).await?;
    let outage = stage.bench.without_api().await?;
    // Long enough for every watch to have noticed, and for vain attempts to come back.
    tokio::time::sleep(AWAY_FOR).await;
    outage.over().await?;
    let began = Instant::now();
    stage.apply(AWAY).await?;
    let addresses = stage.addresses(DEMO, "away").await?;
    let took = began.elapsed();
    stage.story.measured(format!("{} ms from the API server's return to the address", took.as_millis()));
    ensure!(took < TOLERABLE, "served only {} ms after its return", took.as_millis());
    untouched(stage, &settled).await?;
    let after = versions(stage, &settled).await?;
    ensure!(after == before, "a Service was written: {before:?} -> {after:?}");
    Ok(format!("demo/away gets {}; six other Services as they were", addresses.concat()))
}

async fn start_without(stage: &mut Stage<'_>) -> Seen {
    let mut settled = SETTLED.to_vec();
    settled.extend(["late", "away"]);
    let before = versions(stage, &settled).await?;
    let controller = stage.bench.controller().await?;
    let logged = stage.bench.log(&controller.name).len();
    let outage = stage.bench.without_api_for(&controller.name).await?;
    let waited = async {
        stage.bench.signal(&controller.name, Signal::SIGKILL)?;
        stage.apply(BEFORE).await?;
        // The line by which a daemon begins, and then the one that says what it waits for.
        eventually(SOON, async || {
            let log = stage.bench.log(&controller.name);
            let added = log.get(logged..).unwrap_or_default();
            ensure!(added.contains("starting version"), "it has not been started again");
            ensure!(added.contains("API server"), "it does not say what it waits for: {added}");
            Ok(())
        })
        .await?;
        tokio::time::sleep(AWAY_FOR).await;
        stage.bench.process(&controller.name)
    };
    let waited = waited.await;
    outage.over().await?;
    let began = Instant::now();
    let process = waited?;
    let addresses = stage.addresses(DEMO, "before").await?;
    let took = began.elapsed();
    stage.story.measured(format!("{} ms from the API server's return to the address", took.as_millis()));
    ensure!(took < TOLERABLE, "served only {} ms after its return", took.as_millis());
    ensure!(stage.bench.process(&controller.name)? == process, "the controller ended while it waited");
    stage.bench.settled(Daemon::Controller, SOON).await?;
    let after = versions(stage, &settled).await?;
    ensure!(after == before, "a Service was written: {before:?} -> {after:?}");
    Ok(format!(
        "one process that waited; demo/before gets {}; seven other Services as they were",
        addresses.concat()
    ))
}

async fn expired(stage: &mut Stage<'_>) -> Seen {
    if !faults::possible(stage) {
        return Ok(faults::NOT_PLAYED.into());
    }
    let mut settled = SETTLED.to_vec();
    settled.extend(["late", "away", "before"]);
    let before = versions(stage, &settled).await?;
    let watches = faults::expire_watches(stage, &["services", "ipaddresspools", "namespaces"]).await?;
    ensure!(watches > 0, "nobody watched");
    stage.apply(AGAIN).await?;
    let addresses = stage.addresses(DEMO, "again").await?;
    let after = versions(stage, &settled).await?;
    ensure!(after == before, "a Service was written: {before:?} -> {after:?}");
    Ok(format!("demo/again gets {}; eight other Services as they were", addresses.concat()))
}

async fn hindered(stage: &mut Stage<'_>) -> Seen {
    if !faults::possible(stage) {
        return Ok(faults::NOT_PLAYED.into());
    }
    // A request that one of them refuses does not meet the next.
    let effects = [json!("conflict"), json!({"fail": {"code": 429, "retryAfter": 1}}), json!("dropAnswer")];
    for effect in effects {
        let rule = json!({"verbs": ["update"], "resources": ["services/status"], "namespace": DEMO, "name": "hindered",
            "effect": effect, "count": 1});
        faults::add(stage, rule).await?;
    }
    stage.apply(HINDERED).await?;
    let addresses = stage.addresses(DEMO, "hindered").await?;
    let seen = async {
        let message = format!(r#"Assigned IP ["{}"]"#, addresses.concat());
        stage.event("hindered", "Normal", "IPAllocated", &message).await?;
        untouched(stage, &["hindered"]).await?;
        let events = stage.cluster.events_on(DEMO, "hindered").await?;
        let allocated: Vec<_> = events.iter().filter(|event| event.reason == "IPAllocated").collect();
        ensure!(allocated.len() == 1 && allocated.iter().all(|event| event.count == 1), "{events:?}");
        Ok::<_, anyhow::Error>(())
    };
    let seen = seen.await;
    faults::clear(stage).await?;
    seen?;
    Ok(format!("demo/hindered gets {}, IPAllocated once", addresses.concat()))
}

async fn contest(stage: &mut Stage<'_>) -> Seen {
    let address = "192.168.10.200";
    let nonsense = json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.1.2.3"}]}}});
    // As often as it sees another value.
    stage.story.command(format!(
        "while kubectl -n {DEMO} wait service web --for='jsonpath={{.status.loadBalancer.ingress[0].ip}}={address}'; do\n  \
         kubectl -n {DEMO} patch service web --field-manager {OTHER} --subresource status --type merge -p '{nonsense}'\ndone"
    ));
    let mut rounds = 0;
    let began = Instant::now();
    // As a controller does that thinks the Service is its own.
    let event = loop {
        let events = stage.cluster.events_on(DEMO, "web").await?;
        if let Some(event) = events.into_iter().find(|event| event.reason == "StatusContested") {
            break event;
        }
        ensure!(began.elapsed() < SOON, "no event StatusContested after {rounds} rounds");
        if ingress(&stage.cluster.read(SERVICE, DEMO, "web").await?) == [address] {
            stage.cluster.merge_as(Some(OTHER), SERVICE, DEMO, "web", true, &nonsense).await?;
            rounds += 1;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    ensure!(event.kind == "Warning" && event.component == "metallb-controller", "{event:?}");
    stage.kubectl(&["-n", DEMO, "get", "events", "--field-selector", "reason=StatusContested"]).await?;
    stage.story.measured(format!("{rounds} rounds in {} ms", began.elapsed().as_millis()));
    right_again(stage, address).await?;
    ensure!(event.message.starts_with(&format!("{OTHER} keeps changing")), "{}", event.message);
    Ok(format!("StatusContested names {OTHER}; the ingress is {address} in the end"))
}

/// Waits until nobody interferes any more and the address stands there again.
async fn right_again(stage: &Stage<'_>, address: &str) -> Result<()> {
    eventually(SOON, async || {
        let seen = ingress(&stage.cluster.read(SERVICE, DEMO, "web").await?);
        ensure!(seen == [address], "the ingress is {seen:?}");
        Ok(())
    })
    .await
}

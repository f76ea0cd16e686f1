// SPDX-License-Identifier: Apache-2.0
//! Sixth chapter: which nodes are next hops, when Pods, labels, speakers and whole nodes come and go.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::json;

use super::super::cluster::{BGP_PEER, POD, SERVICE, eventually, text};
use super::super::conversation::Word;
use super::super::l2::EXCLUDE;
use super::super::routing;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::super::wire;
use super::{ADDRESS, DEMO, Ground, ROUTE, SYSTEM, WORKERS, address, statuses};
use crate::bench_handle::{Daemon, Held};
use crate::host::Host;

/// Requests from outside while a speaker is away, one every [`BETWEEN`].
const REQUESTS: usize = 60;
const BETWEEN: Duration = Duration::from_millis(50);

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Pods, labels, speakers, nodes");
    stage
        .step(
            "externalTrafficPolicy: Local",
            "both workers have Pods and announce; Pods see the client's address",
            async |stage: &mut Stage<'_>| local(stage, ground).await,
        )
        .await;
    stage
        .step(
            "no ready Pod on k8s-node-1",
            "k8s-node-2 alone is a next hop, and has the ServiceBGPStatus; both again when the Pod is ready",
            async |stage: &mut Stage<'_>| one_with_pods(stage, ground).await,
        )
        .await;
    stage
        .step(
            "exclude k8s-node-2",
            "it withdraws the route in an UPDATE, and its session stays up",
            async |stage: &mut Stage<'_>| excluded(stage, ground).await,
        )
        .await;
    stage
        .step(
            "a speaker goes and comes back",
            "its route goes and comes back; none of 60 requests fails",
            async |stage: &mut Stage<'_>| speaker_away(stage, ground).await,
        )
        .await;
    let mut held = None;
    stage
        .step(
            "k8s-node-2 loses its power",
            "the router has it as a next hop until the hold time of 9 s is over; then k8s-node-1 alone",
            async |stage: &mut Stage<'_>| power_off(stage, ground, &mut held).await,
        )
        .await;
    stage
        .step("and is back", "two next hops again", async |stage: &mut Stage<'_>| {
            power_on(stage, ground, held).await
        })
        .await;
}

async fn set_policy(stage: &mut Stage<'_>, policy: &str) -> Result<()> {
    stage.patch(SERVICE, DEMO, "hello-bgp", false, json!({"spec": {"externalTrafficPolicy": policy}})).await
}

/// Waits until every Pod that answers sees the client itself.
async fn seen_as_client(stage: &Stage<'_>) -> Result<()> {
    let client: IpAddr = Host::Outside.address().into();
    eventually(SOON, async || {
        let answer = stage.answer(Host::Outside, ADDRESS, 80).await?;
        ensure!(answer.ends_with(&format!(" {client}")), "a Pod answered {answer:?}");
        Ok(())
    })
    .await
}

async fn local(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    set_policy(stage, "Local").await?;
    seen_as_client(stage).await?;
    ground.via(stage, &WORKERS).await?;
    statuses(stage, "hello-bgp", &WORKERS, &["router"]).await?;
    Ok(format!("two next hops; Pods see {}", Host::Outside.address()))
}

/// Tells the Pod on k8s-node-1 to fail, or pass, its readiness probe.
async fn switch_readiness(stage: &mut Stage<'_>, path: &str) -> Result<()> {
    let pods = stage.cluster.list(POD, DEMO).await?;
    let pod = pods.iter().find(|pod| text(pod, "/spec/nodeName") == Host::Node1.name());
    let pod_address = text(pod.context("no Pod on k8s-node-1")?, "/status/podIP").to_owned();
    stage.story.command(format!("ferrolb lab exec k8s-node-1 -- curl -X POST http://$pod:8080/{path}"));
    let url = format!("http://{pod_address}:8080/{path}");
    stage.on_host(Host::Node1, &["curl", "-sS", "--max-time", "5", "-X", "POST", &url]).await?.success()?;
    Ok(())
}

async fn one_with_pods(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    switch_readiness(stage, "unready").await?;
    ground.via(stage, &[Host::Node2]).await?;
    statuses(stage, "hello-bgp", &[Host::Node2], &["router"]).await?;
    seen_as_client(stage).await?;
    switch_readiness(stage, "ready").await?;
    ground.via(stage, &WORKERS).await?;
    set_policy(stage, "Cluster").await?;
    statuses(stage, "hello-bgp", &WORKERS, &["router"]).await?;
    Ok("k8s-node-2 alone, then both".to_owned())
}

async fn excluded(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    ground.via(stage, &WORKERS).await?;
    let (before, mark) = (ground.session(Host::Node2).await?, ground.wire.mark());
    stage.label_node(Host::Node2, EXCLUDE, Some("")).await?;
    ground.via(stage, &[Host::Node1]).await?;
    let route = ROUTE.parse()?;
    // What the router knows may be captured only later.
    eventually(SOON, async || {
        let words = ground.wire.words(address(Host::Node2), mark);
        ensure!(words == [Word::Withdrawn(route)], "k8s-node-2 says {words:?}");
        Ok(())
    })
    .await?;
    let words = ground.wire.words(address(Host::Node1), mark);
    ensure!(words.is_empty(), "k8s-node-1 says {words:?}");
    statuses(stage, "hello-bgp", &[Host::Node1], &["router"]).await?;
    stage.label_node(Host::Node2, EXCLUDE, None).await?;
    ground.via(stage, &WORKERS).await?;
    let after = ground.session(Host::Node2).await?;
    ensure!(after == before, "the session was {before:?}, and is {after:?}");
    Ok(format!(
        "k8s-node-2 withdraws {ROUTE}, and announces it again when the label is gone; its session stays up"
    ))
}

/// Kills the speaker of a node.
async fn kill(stage: &Stage<'_>, node: Host) -> Result<()> {
    let daemons = stage.daemons().await?;
    let running = daemons.iter().find(|running| running.node == node && running.daemon == Daemon::Speaker);
    let pod = running.with_context(|| format!("no speaker on {node}"))?.pod.clone();
    stage.bench.signal(&pod, Signal::SIGKILL)
}

async fn speaker_away(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let requests = wire::Requests::start(stage.namespace(Host::Outside), (ADDRESS, 80), REQUESTS, BETWEEN)?;
    let held = stage.bench.hold(Host::Node2)?;
    let began = Instant::now();
    stage.story.command("ferrolb lab exec k8s-node-2 -- kill -9 $speaker");
    kill(stage, Host::Node2).await?;
    ground.via(stage, &[Host::Node1]).await?;
    let gone = began.elapsed();
    drop(held);
    let began = Instant::now();
    ground.via(stage, &WORKERS).await?;
    let back = began.elapsed();
    let outcome = requests.finish().await?;
    stage.story.measured(format!(
        "gone from the router's kernel after {} ms; back {} ms after it may start; slowest request {} ms",
        gone.as_millis(),
        back.as_millis(),
        outcome.slowest.as_millis()
    ));
    ensure!(
        outcome.failures.is_empty(),
        "{} of {REQUESTS} requests failed: {:?}",
        outcome.failures.len(),
        outcome.failures
    );
    Ok(format!("k8s-node-2 goes and comes back; {REQUESTS} of {REQUESTS} requests answered"))
}

async fn set_hold_time(stage: &mut Stage<'_>, ground: &Ground, hold: serde_json::Value) -> Result<()> {
    let before = routing::sessions(&ground.router).await?;
    stage.patch(BGP_PEER, SYSTEM, "router", false, json!({"spec": {"holdTime": hold}})).await?;
    // The sessions begin anew.
    eventually(SOON * 2, async || {
        let now = routing::sessions(&ground.router).await?;
        for node in Host::NODES {
            let of = |sessions: &std::collections::BTreeMap<IpAddr, routing::Session>| {
                sessions.get(&address(node)).cloned().context("no such session")
            };
            let (before, now) = (of(&before)?, of(&now)?);
            ensure!(
                now.state == "Established" && now.established > before.established,
                "{node} has not come back: {now:?}"
            );
        }
        Ok(())
    })
    .await?;
    ground.via(stage, &WORKERS).await
}

async fn power_off(stage: &mut Stage<'_>, ground: &Ground, held: &mut Option<Held>) -> Seen {
    set_hold_time(stage, ground, json!("9s")).await?;
    stage.story.command("the power of k8s-node-2 is cut");
    let began = Instant::now();
    stage.bench.plug(Host::Node2, false)?;
    // Nothing that the dying process says gets out any more.
    *held = Some(stage.bench.hold(Host::Node2)?);
    kill(stage, Host::Node2).await?;
    let told = routing::tellers(&ground.router, ROUTE).await?;
    ensure!(told == WORKERS.into(), "the router knows at once: {}", routing::names(&told));
    ground.via(stage, &[Host::Node1]).await?;
    let noticed = began.elapsed();
    stage.bench.set_node_ready(Host::Node2, false).await?;
    let answer = stage.answer(Host::Outside, ADDRESS, 80).await?;
    ensure!(answer.starts_with("hello-"), "{answer:?}");
    stage.story.measured(format!("noticed after {:.1} s", noticed.as_secs_f32()));
    Ok("the router noticed by its hold time; k8s-node-1 alone, and it answers".to_owned())
}

async fn power_on(stage: &mut Stage<'_>, ground: &Ground, held: Option<Held>) -> Seen {
    stage.story.command("k8s-node-2 boots");
    stage.bench.plug(Host::Node2, true)?;
    drop(held);
    stage.bench.set_node_ready(Host::Node2, true).await?;
    ground.via(stage, &WORKERS).await?;
    Ok("both workers are next hops".to_owned())
}

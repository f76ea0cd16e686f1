// SPDX-License-Identifier: Apache-2.0
//! Sixth chapter: what the traffic policy and the state of nodes and Pods do to the announcement.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::super::cluster::{POD, SERVICE, eventually, text, throughout};
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::super::wire;
use super::address::l2_status_of;
use super::segment::{ask_pods, owner_is};
use super::{ADDRESS, DEMO};
use crate::host::Host;

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("Traffic policy, readiness, cordon and drain");
    stage
        .step("externalTrafficPolicy: Cluster", "Pods log an address of the announcing node", cluster_policy)
        .await;
    stage
        .step(
            "externalTrafficPolicy: Local",
            "k8s-node-1 has a Pod and goes on announcing; that Pod alone answers, and logs the client: 192.168.10.50",
            local_policy,
        )
        .await;
    stage
        .step(
            "healthCheckNodePort",
            "200 with the number of Pods on nodes that have one, 503 on the others",
            async |stage: &mut Stage<'_>| {
                health_check(stage, [(Host::Node1, 1), (Host::Node2, 2), (Host::Master1, 0)]).await
            },
        )
        .await;
    stage
        .step(
            "no ready Pod on the leader",
            "the address moves to k8s-node-2, which has two; the health check of k8s-node-1 turns to 503",
            unready,
        )
        .await;
    stage.step("ready again", "the address moves back to k8s-node-1", ready).await;
    stage.step("cordon", "nothing moves", cordon).await;
    stage.step("drain", "nothing moves, though k8s-node-1 has no Pod of the Service left", drain).await;
}

/// The addresses that Pods on each node logged for these requests, and whether each Pod's answer says the same.
async fn seen_by_pods(stage: &mut Stage<'_>) -> Result<BTreeMap<Host, BTreeSet<IpAddr>>> {
    let pods = stage.bench.pods(DEMO, "hello").await?;
    let before =
        pods.iter().map(|pod| stage.bench.requests(pod).map(|log| log.len())).collect::<Result<Vec<_>>>()?;
    let answers = ask_pods(stage, Host::Client).await?;
    let mut seen: BTreeMap<Host, BTreeSet<IpAddr>> = BTreeMap::new();
    for (pod, before) in pods.iter().zip(before) {
        let log = stage.bench.requests(pod)?;
        let logged: BTreeSet<IpAddr> = log.iter().skip(before).map(|line| line.peer.ip()).collect();
        let own = answers.iter().filter(|answer| answer.pod == pod.name);
        let told: BTreeSet<IpAddr> = own.filter_map(|answer| answer.peer.parse().ok()).collect();
        ensure!(logged == told, "{} logged {logged:?} and answered {told:?}", pod.name);
        if !logged.is_empty() {
            seen.entry(pod.node.context("a Pod without a node")?).or_default().extend(logged);
        }
    }
    Ok(seen)
}

async fn cluster_policy(stage: &mut Stage<'_>) -> Seen {
    let seen = seen_by_pods(stage).await?;
    let node: IpAddr = Host::Node1.address().into();
    let bridge: IpAddr = Ipv4Addr::new(172, 20, 1, 1).into();
    for (where_, addresses) in &seen {
        for address in addresses {
            ensure!([node, bridge].contains(address), "a Pod on {where_} logged {address}");
        }
    }
    ensure!(seen.len() == 2, "only Pods on {:?} answered", seen.keys());
    Ok(format!("Pods on both nodes log an address of k8s-node-1 ({bridge} or {node})"))
}

async fn set_policy(stage: &mut Stage<'_>, policy: &str) -> Result<()> {
    stage.patch(SERVICE, DEMO, "hello-lb", false, json!({"spec": {"externalTrafficPolicy": policy}})).await
}

async fn local_policy(stage: &mut Stage<'_>) -> Seen {
    set_policy(stage, "Local").await?;
    let client: IpAddr = Host::Client.address().into();
    eventually(SOON, async || {
        let answers = stage.answer(Host::Client, ADDRESS, 80).await?;
        ensure!(answers.ends_with(&format!(" {client}")), "a Pod answered {answers:?}");
        Ok(())
    })
    .await?;
    owner_is(stage, ADDRESS, Host::Node1).await?;
    let seen = seen_by_pods(stage).await?;
    let expected = BTreeMap::from([(Host::Node1, BTreeSet::from([client]))]);
    ensure!(seen == expected, "{seen:?}");
    Ok(format!("k8s-node-1 announces, its Pod logs {client}"))
}

/// Checks what the health check port of each node says: so many Pods.
async fn health_check<const N: usize>(stage: &mut Stage<'_>, expected: [(Host, usize); N]) -> Seen {
    let service = stage.cluster.read(SERVICE, DEMO, "hello-lb").await?;
    let port = service
        .pointer("/spec/healthCheckNodePort")
        .and_then(Value::as_u64)
        .context("no healthCheckNodePort")?;
    stage
        .story
        .command("port=$(kubectl -n demo get service hello-lb -o jsonpath='{.spec.healthCheckNodePort}')");
    let mut told = Vec::new();
    for (node, pods) in expected {
        let address = node.address();
        stage.story.command(format!("ferrolb lab exec client -- curl -si http://{address}:$port/"));
        let url = format!("http://{address}:{port}/");
        let line = eventually(SOON, async || {
            let said =
                stage.on_host(Host::Client, &["curl", "-sSi", "--max-time", "2", &url]).await?.success()?;
            let status = said.split(' ').nth(1).unwrap_or_default();
            let weight = said
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.eq_ignore_ascii_case("X-Load-Balancing-Endpoint-Weight"))
                .map(|(_, value)| value.trim());
            let wanted = if pods > 0 { "200" } else { "503" };
            ensure!(status == wanted, "{node} answers {status}, not {wanted}");
            ensure!(
                weight == Some(pods.to_string().as_str()),
                "{node} gives the weight {weight:?}, not {pods}"
            );
            Ok(format!("{node} {status}, weight {pods}"))
        })
        .await?;
        told.push(line);
    }
    Ok(told.join("; "))
}

/// Tells the Pod on k8s-node-1 to fail, or pass, its readiness probe.
async fn switch_readiness(stage: &mut Stage<'_>, path: &str) -> Result<()> {
    let pods = stage.cluster.list(POD, DEMO).await?;
    let pod = pods.iter().find(|pod| text(pod, "/spec/nodeName") == Host::Node1.name());
    let address = text(pod.context("no Pod on k8s-node-1")?, "/status/podIP").to_owned();
    stage.story.command(format!("ferrolb lab exec k8s-node-1 -- curl -X POST http://$pod:8080/{path}"));
    let url = format!("http://{address}:8080/{path}");
    stage.on_host(Host::Node1, &["curl", "-sS", "--max-time", "5", "-X", "POST", &url]).await?.success()?;
    Ok(())
}

async fn unready(stage: &mut Stage<'_>) -> Seen {
    switch_readiness(stage, "unready").await?;
    owner_is(stage, ADDRESS, Host::Node2).await?;
    l2_status_of(stage, Host::Node2).await?;
    let health = health_check(stage, [(Host::Node1, 0), (Host::Node2, 2)]).await?;
    let seen = seen_by_pods(stage).await?;
    let expected = BTreeMap::from([(Host::Node2, BTreeSet::from([Host::Client.address().into()]))]);
    ensure!(seen == expected, "{seen:?}");
    Ok(format!("k8s-node-2 announces, its Pods log {}; {health}", Host::Client.address()))
}

async fn ready(stage: &mut Stage<'_>) -> Seen {
    switch_readiness(stage, "ready").await?;
    owner_is(stage, ADDRESS, Host::Node1).await?;
    l2_status_of(stage, Host::Node1).await?;
    set_policy(stage, "Cluster").await?;
    owner_is(stage, ADDRESS, Host::Node1).await?;
    Ok("k8s-node-1 announces".into())
}

async fn cordon(stage: &mut Stage<'_>) -> Seen {
    nothing_moves(stage, async |stage: &mut Stage<'_>| stage.cordon(Host::Node1, true).await).await?;
    Ok("k8s-node-1 goes on announcing; no gratuitous frame".into())
}

async fn drain(stage: &mut Stage<'_>) -> Seen {
    nothing_moves(stage, async |stage: &mut Stage<'_>| {
        stage.drain(Host::Node1, DEMO).await?;
        eventually(SOON, async || {
            let pods = stage.cluster.list(POD, DEMO).await?;
            let left = pods.iter().filter(|pod| text(pod, "/spec/nodeName") == Host::Node1.name()).count();
            ensure!(left == 0, "{left} Pods of demo on k8s-node-1");
            Ok(())
        })
        .await
    })
    .await?;
    let answers = ask_pods(stage, Host::Client).await?;
    stage.cordon(Host::Node1, false).await?;
    Ok(format!(
        "k8s-node-1 goes on announcing; {} of {} requests answered from k8s-node-2",
        answers.len(),
        answers.len()
    ))
}

/// Makes a change and watches for two seconds that the address stays on k8s-node-1, without a gratuitous frame.
async fn nothing_moves(
    stage: &mut Stage<'_>,
    change: impl AsyncFnOnce(&mut Stage<'_>) -> Result<()>,
) -> Result<()> {
    // Bursts of earlier moves are over before this one is judged.
    wire::quiet(stage.namespace(Host::Client), ADDRESS, Duration::from_millis(1500), SOON).await?;
    let capture = wire::Capture::start(stage.namespace(Host::Client), Host::Client.interface())?;
    change(stage).await?;
    throughout(Duration::from_secs(2), async || {
        let owners = super::segment::owners(stage, ADDRESS).await?;
        ensure!(owners == [Host::Node1.name()], "answered by {owners:?}");
        Ok(())
    })
    .await?;
    let gratuitous = capture.stop()?.into_iter().find(|frame| frame.is_gratuitous_for(ADDRESS));
    ensure!(gratuitous.is_none(), "{gratuitous:?}");
    Ok(())
}

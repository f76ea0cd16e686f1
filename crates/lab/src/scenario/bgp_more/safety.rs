// SPDX-License-Identifier: Apache-2.0
//! What MetalLB has no word for: a router that checks the distance, a limit that a router enforces, a goodbye.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use ferrolb_bgp::wire::{Code, Community, Detail, Message};
use serde_json::{Value, json};

use super::super::bgp::type_frr;
use super::super::cluster::{BGP_PEER, POD, eventually, text};
use super::super::conversation::{Said, Word};
use super::super::routing;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::services::{SHARED, SHARING};
use super::{Ground, SHOP, SYSTEM, WORKERS, session, told};
use crate::bench_handle::Daemon;
use crate::host::Host;

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Beyond MetalLB");
    stage
        .step(
            "a router that checks the distance",
            "what comes from farther than the link is dropped (RFC 5082): no session until the peer says so",
            async |stage: &mut Stage<'_>| distance(stage, ground).await,
        )
        .await;
    stage
        .step(
            "a router's limit",
            "it ends the sessions; the BGPSession says so and names the limit; with the same limit here they stay up",
            async |stage: &mut Stage<'_>| limit(stage, ground).await,
        )
        .await;
    stage
        .step(
            "goodbye",
            "the routes of a cordoned node are marked, then withdrawn; the router is told who ends, and why",
            async |stage: &mut Stage<'_>| goodbye(stage, ground).await,
        )
        .await;
    stage
        .step(
            "METALLB_BGP_TYPE=frr",
            "the same engine with the defaults of MetalLB's FRR mode: hold time 180 s",
            async |stage: &mut Stage<'_>| frr(stage, ground).await,
        )
        .await;
}

/// Sets an annotation of the peer `router`, or takes it away.
async fn annotate(stage: &mut Stage<'_>, key: &str, value: Option<&str>) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {format!("ferrolb.io/{key}"): value}}});
    stage.patch(BGP_PEER, SYSTEM, "router", false, patch).await
}

async fn distance(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    ground.router.configure(&["router bgp 64513", "neighbor METALLB ttl-security hops 1"]).await?;
    eventually(SOON, async || {
        for node in WORKERS {
            let session = session(stage, node).await?;
            let state = text(&session, "/status/state");
            ensure!(state != "Established", "{node} has its session still");
        }
        Ok(())
    })
    .await?;
    annotate(stage, "gtsm-hops", Some("1")).await?;
    ground.outer(SHOP, &WORKERS).await?;
    ground.router.configure(&["router bgp 64513", "no neighbor METALLB ttl-security hops 1"]).await?;
    annotate(stage, "gtsm-hops", None).await?;
    routing::settled(&ground.router, &Host::NODES.map(|node| (node, "Established", at(node)))).await?;
    Ok("none with TTL 64; all three with 255; all three without it again".to_owned())
}

/// How many routes a node has for the router.
const fn at(node: Host) -> u64 {
    matches!(node, Host::Node1 | Host::Node2) as u64
}

async fn limit(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let family = ["router bgp 64513", "address-family ipv4 unicast"];
    stage.apply(SHARING).await?;
    ground.both(SHARED, &WORKERS).await?;
    ground.router.configure(&[&family[..], &["neighbor METALLB maximum-prefix 1"]].concat()).await?;
    let reason = eventually(SOON, async || {
        let session = session(stage, Host::Node1).await?;
        let reason = text(&session, "/status/lastFailure/reason").to_owned();
        let (_, cease) = reason
            .split_once("the peer sent NOTIFICATION ")
            .with_context(|| format!("it says {reason:?}"))?;
        ensure!(cease.contains("Maximum Number of Prefixes Reached (6/1)"), "it says {reason:?}");
        Ok(cease.split(';').next().unwrap_or_default().to_owned())
    })
    .await?;
    annotate(stage, "max-prefixes", Some("1")).await?;
    ground.router.order("clear bgp *").await?;
    routing::settled(&ground.router, &Host::NODES.map(|node| (node, "Established", at(node)))).await?;
    let finding = eventually(SOON, async || {
        let session = session(stage, Host::Node1).await?;
        let finding = text(&session, "/status/finding").to_owned();
        ensure!(finding.contains("max-prefixes"), "its finding is {finding:?}");
        Ok(finding)
    })
    .await?;
    // The other router has no limit, and knows both.
    told(&ground.inner, SHARED, &WORKERS).await?;
    let kept = ground.router.ask("show bgp ipv4 unicast json").await?;
    let count = kept["routes"].as_object().map_or(0, |routes| routes.len());
    ensure!(count == 1, "the router knows {count} prefixes");
    ground.router.configure(&[&family[..], &["no neighbor METALLB maximum-prefix 1"]].concat()).await?;
    annotate(stage, "max-prefixes", None).await?;
    ground.both(SHARED, &WORKERS).await?;
    stage.remove(&[SHARING]).await?;
    ground.both(SHARED, &[]).await?;
    ground.both(SHOP, &WORKERS).await?;
    Ok(format!("{reason}; then up with one of two prefixes: {finding}; both without limits"))
}

async fn goodbye(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let node = Host::Node2;
    let address: IpAddr = node.address().into();
    let pods = stage.bench.pods(SYSTEM, Daemon::Speaker.name()).await?;
    let pod = pods.into_iter().find(|pod| pod.node == Some(node) && !pod.ending);
    let pod = pod.context("no speaker on k8s-node-2")?;
    stage.cordon(node, true).await?;
    eventually(SOON, async || {
        let heard = stage.bench.log(&pod.name).contains("the node is cordoned");
        ensure!(heard, "the speaker has not heard of it");
        Ok(())
    })
    .await?;
    let mark = ground.wire.mark();
    stage.story.command(format!(
        "kubectl -n {SYSTEM} delete pod --wait=false -l component=speaker --field-selector spec.nodeName={node}"
    ));
    let held = stage.bench.hold(node)?;
    stage.cluster.delete(POD, SYSTEM, &pod.name).await?;
    let last = |said: &Said| {
        let to_router = said.to == Host::Router.address();
        matches!(&said.message, Some(Message::Notification(_)) if to_router)
    };
    let last = ground.wire.hears(address, mark, SOON, last).await?;
    let Some(Message::Notification(last)) = last.message else { unreachable!("looked for above") };
    let text = format!("node {node}: the speaker is stopped, and the node is cordoned");
    ensure!(last.code == Code::ADMINISTRATIVE_SHUTDOWN, "the last word is {last}");
    ensure!(last.detail() == Detail::Text(text.clone()), "the last word is {last}");
    // One route, two routers: each is told that it is about to go, and then that it is gone.
    let prefix = SHOP.parse()?;
    let words = ground.wire.words(address, mark);
    let marked = |word: &Word| match word {
        Word::Announced(about, said) => {
            *about == prefix && said.communities.contains(&Community::GRACEFUL_SHUTDOWN)
        }
        Word::Withdrawn(_) => false,
    };
    let (first, rest) = words.split_first().context("nothing was said of the route")?;
    ensure!(marked(first) && rest == [Word::Withdrawn(prefix)], "{words:?}");
    let neighbour = eventually(SOON, async || {
        let said = ground.router.ask(&format!("show bgp neighbors {address} json")).await?;
        let neighbour = said.get(address.to_string()).cloned().context("no such neighbour")?;
        let shown = text_of(&neighbour, "lastShutdownDescription");
        ensure!(shown == text, "the router shows {shown:?}");
        Ok(neighbour)
    })
    .await?;
    let reason = text_of(&neighbour, "lastNotificationReason").to_owned();
    drop(held);
    stage.cordon(node, false).await?;
    ground.both(SHOP, &WORKERS).await?;
    Ok(format!("65535:0, then withdrawn; the router shows {reason} and \"{text}\"; both when it is back"))
}

fn text_of<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

async fn frr(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    type_frr(stage).await?;
    ground.both(SHOP, &WORKERS).await?;
    for node in Host::NODES {
        eventually(SOON, async || {
            let said = ground.router.ask(&format!("show bgp neighbors {} json", node.address())).await?;
            let neighbour = said.get(node.address().to_string()).context("no such neighbour")?;
            let hold = neighbour["bgpTimerHoldTimeMsecs"].as_u64().unwrap_or_default();
            ensure!(hold == 180_000, "{node}: hold time {hold} ms");
            Ok(())
        })
        .await?;
    }
    Ok("180 s with all three; the routes are as before".to_owned())
}

// SPDX-License-Identifier: Apache-2.0
//! Third chapter: advertisements that name interfaces, nodes with several, interfaces that come and go; and who counts.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ferrolb_net_types::Mac;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::super::cluster::{L2_STATUS, eventually, text};
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::super::wire;
use super::{
    DEMO, SHOP, SYSTEM, Segment, WORKERS, advertise, answered_by, as_by_formula, leader, manifest, owned_by,
};
use crate::bench_handle::Daemon;
use crate::host::{Host, SECOND_INTERFACE};

const SECOND: Example = manifest!("second-advertisement.yaml");
const METRICS: Example = manifest!("metrics.yaml");
const COUNTED: Example = manifest!("counted.yaml");
/// The address of `demo/counted`, which one node alone has ever announced.
const NEW: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 207);

/// An interface that k8s-node-1 gets in the middle of the story.
const LATE: (&str, Mac) = ("ens20", Mac([0x52, 0x54, 0x00, 0x3a, 0x41, 0x20]));

/// Ten times the second within which an interface that comes, or comes back, is served.
const WITHIN: Duration = Duration::from_secs(10);

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("Interfaces");
    stage
        .step(
            "E16: ens18 by name",
            "answered there with its hardware address, silence on the other segment; the ServiceL2Status lists it",
            first_alone,
        )
        .await;
    stage.step("E17: ens19 instead", "answered there alone", second_alone).await;
    stage.step("X10: ens19 goes down and comes back", "answered and announced again within 1 s", flap).await;
    stage.step("E19: two advertisements, one for each", "answered on both, both listed", both).await;
    stage
        .step(
            "E18: an interface that no node has",
            "silence everywhere, event announceFailed, no ServiceL2Status",
            nowhere,
        )
        .await;
    stage.step("X13: the interface is plugged in", "answered there within 1 s", plugged_in).await;
    stage
        .step(
            "E23: counters",
            "requests, answers and announcements are counted by the announcing node alone",
            counters,
        )
        .await;
}

/// Waits until the Service has exactly one ServiceL2Status: this node's, with these interfaces.
async fn status(stage: &Stage<'_>, service: &str, node: Host, interfaces: &[&str]) -> Result<()> {
    let expected: Vec<Value> = interfaces.iter().map(|name| json!({"name": name})).collect();
    eventually(SOON, async || {
        let own = statuses(stage, service).await?;
        let [own] = own.as_slice() else { anyhow::bail!("{} ServiceL2Statuses of {service}", own.len()) };
        let seen = own.pointer("/status/interfaces").cloned().unwrap_or_else(|| json!([]));
        let on = text(own, "/status/node");
        ensure!(on == node.name() && seen == json!(expected), "{service}: {on}, interfaces {seen}");
        Ok(())
    })
    .await
}

async fn statuses(stage: &Stage<'_>, service: &str) -> Result<Vec<Value>> {
    let mut all = stage.cluster.list(L2_STATUS, SYSTEM).await?;
    all.retain(|status| text(status, "/metadata/labels/metallb.io~1service-name") == service);
    Ok(all)
}

async fn first_alone(stage: &mut Stage<'_>) -> Seen {
    // With no name given, both segments are served.
    owned_by(stage, Segment::Second, SHOP, &[Host::Node1]).await?;
    status(stage, "shop", Host::Node1, &[]).await?;
    advertise(stage, json!({"interfaces": ["ens18"]})).await?;
    owned_by(stage, Segment::Second, SHOP, &[]).await?;
    owned_by(stage, Segment::First, SHOP, &[Host::Node1]).await?;
    status(stage, "shop", Host::Node1, &["ens18"]).await?;
    Ok(format!("{} on 192.168.10.0/24, silence on 192.168.40.0/24; interfaces [ens18]", Host::Node1.mac()))
}

async fn second_alone(stage: &mut Stage<'_>) -> Seen {
    advertise(stage, json!({"interfaces": [SECOND_INTERFACE]})).await?;
    owned_by(stage, Segment::First, SHOP, &[]).await?;
    owned_by(stage, Segment::Second, SHOP, &[Host::Node1]).await?;
    status(stage, "shop", Host::Node1, &[SECOND_INTERFACE]).await?;
    let (mac, _) = Host::Node1.second().context("k8s-node-1 has one")?;
    Ok(format!("{mac} on 192.168.40.0/24, silence on 192.168.10.0/24; interfaces [ens19]"))
}

async fn flap(stage: &mut Stage<'_>) -> Seen {
    let (mac, _) = Host::Node1.second().context("k8s-node-1 has one")?;
    let quiet = Duration::from_millis(1500);
    wire::quiet_on(stage.namespace(Host::Client), SECOND_INTERFACE, SHOP, quiet, SOON).await?;
    let capture = wire::Capture::start(stage.namespace(Host::Client), SECOND_INTERFACE)?;
    stage.exec(Host::Node1, &["ip", "link", "set", SECOND_INTERFACE, "down"]).await?.success()?;
    owned_by(stage, Segment::Second, SHOP, &[]).await?;
    let began = Instant::now();
    stage.exec(Host::Node1, &["ip", "link", "set", SECOND_INTERFACE, "up"]).await?.success()?;
    owned_by(stage, Segment::Second, SHOP, &[Host::Node1]).await?;
    let took = began.elapsed();
    capture
        .hears(SOON, |frame| frame.is_gratuitous_for(SHOP) && frame.source == mac)
        .await
        .context("no gratuitous frame")?;
    stage.story.measured(format!("answered {} ms after the command was given", took.as_millis()));
    ensure!(took < WITHIN, "answered after {took:?}");
    Ok("answered again, and announced".to_owned())
}

async fn both(stage: &mut Stage<'_>) -> Seen {
    advertise(stage, json!({"interfaces": ["ens18"]})).await?;
    owned_by(stage, Segment::Second, SHOP, &[]).await?;
    stage.apply(SECOND).await?;
    owned_by(stage, Segment::First, SHOP, &[Host::Node1]).await?;
    owned_by(stage, Segment::Second, SHOP, &[Host::Node1]).await?;
    status(stage, "shop", Host::Node1, &["ens18", SECOND_INTERFACE]).await?;
    stage.remove(&[SECOND]).await?;
    owned_by(stage, Segment::Second, SHOP, &[]).await?;
    Ok("answered on both; interfaces [ens18, ens19]; without the second, on ens18 alone".to_owned())
}

async fn nowhere(stage: &mut Stage<'_>) -> Seen {
    advertise(stage, json!({"interfaces": [LATE.0]})).await?;
    owned_by(stage, Segment::First, SHOP, &[]).await?;
    owned_by(stage, Segment::Second, SHOP, &[]).await?;
    let message = format!(
        "the interfaces specified by LB IP \"{SHOP}\" doesn't exist in assigned node \"k8s-node-1\" with protocol \"layer2\""
    );
    stage.event("shop", "Warning", "announceFailed", &message).await?;
    eventually(SOON, async || {
        let left = statuses(stage, "shop").await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    Ok(format!("announceFailed: {message}"))
}

async fn plugged_in(stage: &mut Stage<'_>) -> Seen {
    stage.story.command("ip link add ens20 …   # a NIC is plugged into k8s-node-1, on the second segment");
    stage.bench.add_interface(Host::Node1, LATE.0, LATE.1)?;
    let began = Instant::now();
    stage.exec(Host::Node1, &["ip", "link", "set", LATE.0, "up"]).await?.success()?;
    answered_by(stage, Segment::Second, SHOP, &BTreeSet::from([LATE.1])).await?;
    let took = began.elapsed();
    status(stage, "shop", Host::Node1, &[LATE.0]).await?;
    stage.story.measured(format!("answered {} ms after the command was given", took.as_millis()));
    ensure!(took < WITHIN, "answered after {took:?}");
    stage.exec(Host::Node1, &["ip", "link", "delete", LATE.0]).await?.success()?;
    owned_by(stage, Segment::Second, SHOP, &[]).await?;
    advertise(stage, json!({"interfaces": null})).await?;
    as_by_formula(stage).await?;
    Ok(format!("{} on 192.168.40.0/24; interfaces [{}]", LATE.1, LATE.0))
}

async fn counters(stage: &mut Stage<'_>) -> Seen {
    stage.apply(METRICS).await?;
    let accounts = Api::<ServiceAccount>::namespaced(stage.bench.client().clone(), DEMO);
    stage.story.command("kubectl -n demo create token reader");
    let token =
        accounts.create_token_request("reader", &PostParams::default(), &TokenRequest::default()).await?;
    let bearer = format!("Authorization: Bearer {}", token.status.context("no token")?.token);
    stage.apply(COUNTED).await?;
    let owner = leader(NEW, &WORKERS).context("no candidate")?;
    eventually(SOON, async || {
        // Each look is a request more.
        owned_by(stage, Segment::First, NEW, &[owner]).await?;
        for node in Host::NODES {
            let counted = series(stage, node, &bearer, NEW).await?;
            let expected = if node == owner { 4 } else { 0 };
            ensure!(counted == expected, "{node} counts in {counted} of 4 series for {NEW}");
        }
        Ok(())
    })
    .await?;
    stage.remove(&[COUNTED]).await?;
    owned_by(stage, Segment::First, NEW, &[]).await?;
    Ok(format!("{owner} alone counts requests, answers and announcements of {NEW}, and that it announces"))
}

/// In how many of the four series about an address this node's speaker has counted at least one.
async fn series(stage: &Stage<'_>, node: Host, bearer: &str, address: Ipv4Addr) -> Result<usize> {
    let running = stage.daemons().await?;
    let own = running.iter().find(|own| own.daemon == Daemon::Speaker && own.node == node);
    let own = own.with_context(|| format!("no speaker on {node}"))?;
    let url = "https://127.0.0.1:9120/metrics";
    let said = stage.beside(own, &["curl", "-sSk", "--max-time", "5", "-H", bearer, url]).await?.success()?;
    ensure!(said.contains("metallb_"), "{said}");
    let label = format!("ip=\"{address}\"");
    let counted = said.lines().filter(|line| {
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        let known = [
            "metallb_layer2_requests_received{",
            "metallb_layer2_responses_sent{",
            "metallb_layer2_gratuitous_sent{",
            "metallb_speaker_announced{",
        ];
        known.iter().any(|name| line.starts_with(name))
            && line.contains(&label)
            && value.is_some_and(|value| value >= 1.0)
    });
    Ok(counted.count())
}

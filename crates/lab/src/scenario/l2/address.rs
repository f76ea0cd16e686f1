// SPDX-License-Identifier: Apache-2.0
//! Third chapter: the address as the API shows it. Status, events, columns, owners, counters.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::super::cluster::{
    CONFIGURATION_STATE, EVENT, L2_ADVERTISEMENT, L2_STATUS, POD, POOL, SERVICE, eventually, text, throughout,
};
use super::super::recorded;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::{ADDRESS, DEMO, SYSTEM, leader};
use crate::host::Host;

/// Returns whether the story can go on.
pub(super) async fn chapter(stage: &mut Stage<'_>) -> bool {
    stage.story.chapter("The address, in the API");
    let ok = stage
        .step(
            "address",
            r#"status.loadBalancer.ingress is [{"ip":"192.168.10.200","ipMode":"VIP"}]"#,
            ingress,
        )
        .await;
    stage
        .step(
            "events",
            "IPAllocated by the controller, nodeAssigned by the leader, with MetalLB's texts, each once",
            events,
        )
        .await;
    stage.step("columns", "kubectl prints MetalLB's columns", columns).await;
    stage
        .step(
            "ServiceL2Status",
            "one, for the leader, owned by its speaker's Pod, with the interface ens18",
            l2_status,
        )
        .await;
    stage.step("pool status", "1 address assigned, 20 available", counters).await;
    stage
        .step(
            "objects",
            "labels, owners, fields and field managers as recorded of MetalLB v0.16.1",
            recorded::objects,
        )
        .await;
    stage.step("rest", "while nothing happens, nobody writes anything", rest).await;
    ok
}

async fn ingress(stage: &mut Stage<'_>) -> Seen {
    stage.addresses(DEMO, "hello-lb").await?;
    let arguments =
        ["-n", DEMO, "get", "service", "hello-lb", "-o", "jsonpath={.status.loadBalancer.ingress}"];
    let printed = stage.kubectl(&arguments).await?;
    let service = stage.cluster.read(SERVICE, DEMO, "hello-lb").await?;
    let ingress = service.pointer("/status/loadBalancer/ingress").context("no ingress")?;
    ensure!(*ingress == json!([{"ip": ADDRESS.to_string(), "ipMode": "VIP"}]), "{ingress}");
    let from = text(&service, "/metadata/annotations/metallb.io~1ip-allocated-from-pool");
    ensure!(from == "lan", "the annotation ip-allocated-from-pool says {from:?}");
    if let Some(printed) = printed {
        ensure!(serde_json::from_str::<Value>(&printed)? == *ingress, "kubectl prints {printed}");
    }
    Ok(ingress.to_string())
}

async fn events(stage: &mut Stage<'_>) -> Seen {
    let allocated = format!(r#"Assigned IP ["{ADDRESS}"]"#);
    let assigned = r#"announcing from node "k8s-node-1" with protocol "layer2""#;
    stage.event("hello-lb", "Normal", "IPAllocated", &allocated).await?;
    stage.event("hello-lb", "Normal", "nodeAssigned", assigned).await?;
    let events = stage.cluster.events_on(DEMO, "hello-lb").await?;
    ensure!(
        events.len() == 2 && events.iter().all(|event| event.count == 1),
        "more than these two: {events:?}"
    );
    if let Some(printed) = stage.kubectl(&["-n", DEMO, "describe", "service", "hello-lb"]).await? {
        for text in [&allocated, assigned] {
            ensure!(printed.contains(text), "kubectl describe does not show {text}: {printed}");
        }
    }
    Ok(format!("IPAllocated: {allocated}; nodeAssigned: {assigned}"))
}

async fn columns(stage: &mut Stage<'_>) -> Seen {
    l2_status_of(stage, Host::Node1).await?;
    let printed = stage.tables(SYSTEM, &[POOL, L2_ADVERTISEMENT, L2_STATUS]).await?;
    let expected = [
        ["NAME", "AUTO ASSIGN", "AVOID BUGGY IPS", "ADDRESSES"].join(" | "),
        ["lan", "true", "false", r#"["192.168.10.200-192.168.10.220"]"#].join(" | "),
        ["NAME", "IPADDRESSPOOLS", "IPADDRESSPOOL SELECTORS", "INTERFACES"].join(" | "),
        ["lan", "", "", r#"["ens18"]"#].join(" | "),
        ["NAME", "ALLOCATED NODE", "SERVICE NAME", "SERVICE NAMESPACE"].join(" | "),
        ["l2-…", "k8s-node-1", "hello-lb", "demo"].join(" | "),
    ];
    ensure!(printed == expected, "{}", printed.join("\n"));
    Ok(format!("\n{}", printed.join("\n")))
}

/// The one ServiceL2Status of `demo/hello-lb`, once it names this node.
pub(super) async fn l2_status_of(stage: &Stage<'_>, node: Host) -> anyhow::Result<Value> {
    eventually(SOON, async || {
        let mut statuses = stage.cluster.list(L2_STATUS, SYSTEM).await?;
        statuses.retain(|status| text(status, "/metadata/labels/metallb.io~1service-name") == "hello-lb");
        let [status] = statuses.as_slice() else {
            anyhow::bail!("{} ServiceL2Statuses of demo/hello-lb", statuses.len())
        };
        let seen = text(status, "/status/node");
        ensure!(seen == node.name(), "the ServiceL2Status names {seen:?}, not {node}");
        Ok(status.clone())
    })
    .await
}

async fn l2_status(stage: &mut Stage<'_>) -> Seen {
    let leader = leader(ADDRESS, &[Host::Node1, Host::Node2]).context("no candidate")?;
    let status = l2_status_of(stage, leader).await?;
    let arguments = ["-n", SYSTEM, "get", "servicel2statuses", "-o", "yaml"];
    if let Some(printed) = stage.kubectl(&arguments).await? {
        let printed: Value = serde_saphyr::from_str(&printed)?;
        let seen = printed.pointer("/items/0/status").cloned().unwrap_or_default();
        ensure!(seen == status["status"], "kubectl prints {seen}");
    }
    let interfaces = status.pointer("/status/interfaces").cloned().unwrap_or_default();
    ensure!(interfaces == json!([{"name": "ens18"}]), "interfaces: {interfaces}");
    let owner = status.pointer("/metadata/ownerReferences/0").context("no owner")?;
    ensure!(text(owner, "/kind") == "Pod", "the owner is a {}", text(owner, "/kind"));
    let pod = stage.cluster.read(POD, SYSTEM, text(owner, "/name")).await?;
    ensure!(text(owner, "/uid") == text(&pod, "/metadata/uid"), "the owner's uid is not the Pod's");
    ensure!(
        text(&pod, "/spec/nodeName") == leader.name(),
        "the owner runs on {}",
        text(&pod, "/spec/nodeName")
    );
    Ok(format!("node {leader}, interfaces [ens18], owned by the speaker's Pod on {leader}"))
}

async fn counters(stage: &mut Stage<'_>) -> Seen {
    let expected = json!({"assignedIPv4": 1, "assignedIPv6": 0, "availableIPv4": 20, "availableIPv6": 0});
    let status = eventually(SOON, async || {
        let pool = stage.cluster.read(POOL, SYSTEM, "lan").await?;
        let status = pool.pointer("/status").cloned().unwrap_or_default();
        ensure!(status == expected, "{status}");
        Ok(status)
    })
    .await?;
    let arguments = ["-n", SYSTEM, "get", "ipaddresspool", "lan", "-o", "jsonpath={.status}"];
    if let Some(printed) = stage.kubectl(&arguments).await? {
        ensure!(serde_json::from_str::<Value>(&printed)? == status, "kubectl prints {printed}");
    }
    Ok(status.to_string())
}

/// Names and resource versions of everything that the daemons write.
async fn versions(stage: &Stage<'_>) -> anyhow::Result<BTreeSet<String>> {
    let mut versions = BTreeSet::new();
    for (kind, namespace) in
        [(SERVICE, DEMO), (EVENT, DEMO), (POOL, SYSTEM), (L2_STATUS, SYSTEM), (CONFIGURATION_STATE, SYSTEM)]
    {
        for object in stage.cluster.list(kind, namespace).await? {
            let (name, version) =
                (text(&object, "/metadata/name"), text(&object, "/metadata/resourceVersion"));
            versions.insert(format!("{}/{name} {version}", kind.word()));
        }
    }
    Ok(versions)
}

async fn rest(stage: &mut Stage<'_>) -> Seen {
    let before = versions(stage).await?;
    throughout(Duration::from_secs(2), async || {
        let now = versions(stage).await?;
        let changed: Vec<_> = now.symmetric_difference(&before).collect();
        ensure!(changed.is_empty(), "changed: {changed:?}");
        Ok(())
    })
    .await?;
    Ok("no Service, event, pool, ServiceL2Status or ConfigurationState changes within 2 s".into())
}

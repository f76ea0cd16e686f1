// SPDX-License-Identifier: Apache-2.0
//! Seventh chapter: Services that ask for something. What they get, and what they are told when they get nothing.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};

use super::super::cluster::{SERVICE, ingress, throughout};
use super::super::stage::{Example, Stage, example};
use super::super::story::Seen;
use super::DEMO;
use super::segment::owners;
use crate::host::Host;

const ASKED: Example = example!("asked.yaml");
const ASKED_BY_FIELD: Example = example!("asked-by-field.yaml");
const MANUAL_POOL: Example = example!("manual-pool.yaml");
const FROM_POOL: Example = example!("from-pool.yaml");
const EXHAUSTED: Example = example!("exhausted.yaml");
pub(in crate::scenario) const SHARED: Example = example!("shared.yaml");
const SHARED_CLASH: Example = example!("shared-clash.yaml");
pub(in crate::scenario) const FOREIGN: Example = example!("foreign.yaml");
const OUT_OF_POOL: Example = example!("out-of-pool.yaml");
const UNKNOWN_POOL: Example = example!("unknown-pool.yaml");

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("Services that ask for something");
    stage
        .step("an address by annotation", "192.168.10.215, announced", async |stage: &mut Stage<'_>| {
            gets(stage, ASKED, "asked", Ipv4Addr::new(192, 168, 10, 215)).await
        })
        .await;
    stage
        .step(
            "an address by spec.loadBalancerIP",
            "192.168.10.216, announced",
            async |stage: &mut Stage<'_>| {
                gets(stage, ASKED_BY_FIELD, "asked-by-field", Ipv4Addr::new(192, 168, 10, 216)).await
            },
        )
        .await;
    stage
        .step(
            "a pool by annotation",
            "192.168.10.230 from the pool manual, which gives nothing unasked",
            async |stage: &mut Stage<'_>| {
                stage.apply(MANUAL_POOL).await?;
                gets(stage, FROM_POOL, "from-pool", Ipv4Addr::new(192, 168, 10, 230)).await
            },
        )
        .await;
    stage
        .step(
            "the pool is exhausted",
            "no address; event AllocationFailed: no available IPs in pool manual",
            async |stage: &mut Stage<'_>| {
                refused(stage, EXHAUSTED, "too-late", "no available IPs in pool manual").await
            },
        )
        .await;
    stage.step("a shared address", "two Services, one address, a port each; both answer", shared).await;
    stage
        .step(
            "a taken port on it",
            "no address; event AllocationFailed names the port",
            async |stage: &mut Stage<'_>| {
                let why = r#"port TCP/80 is already in use on "192.168.10.217""#;
                refused(stage, SHARED_CLASH, "shared-clash", why).await
            },
        )
        .await;
    stage
        .step("a foreign loadBalancerClass", "untouched: no address, no annotation, no event", foreign)
        .await;
    stage
        .step(
            "an address of no pool",
            "no address; event AllocationFailed: not allowed in config",
            async |stage: &mut Stage<'_>| {
                refused(stage, OUT_OF_POOL, "out-of-pool", r#"["192.168.99.1"] is not allowed in config"#)
                    .await
            },
        )
        .await;
    stage
        .step(
            "a pool that does not exist",
            "no address; event AllocationFailed: unknown pool",
            async |stage: &mut Stage<'_>| {
                refused(stage, UNKNOWN_POOL, "unknown-pool", r#"unknown pool "nowhere""#).await
            },
        )
        .await;
    let everything = [
        ASKED,
        ASKED_BY_FIELD,
        FROM_POOL,
        EXHAUSTED,
        SHARED,
        SHARED_CLASH,
        FOREIGN,
        OUT_OF_POOL,
        UNKNOWN_POOL,
        MANUAL_POOL,
    ];
    stage
        .step("clean up", "these Services and the pool manual are gone", async |stage: &mut Stage<'_>| {
            stage.remove(&everything).await?;
            super::moves::silent(stage, Ipv4Addr::new(192, 168, 10, 230)).await?;
            Ok("deleted; 192.168.10.230 is silent".into())
        })
        .await;
}

/// The Service gets this address, one of the workers announces it, and a Pod answers.
pub(super) async fn gets(stage: &mut Stage<'_>, example: Example, name: &str, address: Ipv4Addr) -> Seen {
    stage.apply(example).await?;
    let addresses = stage.addresses(DEMO, name).await?;
    ensure!(addresses == [address.to_string()], "demo/{name} has {addresses:?}");
    stage.event(name, "Normal", "IPAllocated", &format!(r#"Assigned IP ["{address}"]"#)).await?;
    stage.answer(Host::Client, address, 80).await?;
    let owners = owners(stage, address).await?;
    ensure!(owners.len() == 1 && owners[0] != Host::Master1.name(), "{address} is answered by {owners:?}");
    Ok(format!("{address}, announced by {}", owners.concat()))
}

/// The Service gets nothing, and an event says why.
pub(super) async fn refused(stage: &mut Stage<'_>, example: Example, name: &str, why: &str) -> Seen {
    stage.apply(example).await?;
    let message = format!(r#"Failed to allocate IP for "demo/{name}": {why}"#);
    stage.event(name, "Warning", "AllocationFailed", &message).await?;
    no_address(stage, name).await?;
    Ok(format!("AllocationFailed: {message}"))
}

pub(super) async fn no_address(stage: &Stage<'_>, name: &str) -> Result<()> {
    let service = stage.cluster.read(SERVICE, DEMO, name).await?;
    let addresses = ingress(&service);
    ensure!(addresses.is_empty(), "demo/{name} has {addresses:?}");
    Ok(())
}

async fn shared(stage: &mut Stage<'_>) -> Seen {
    let address = Ipv4Addr::new(192, 168, 10, 217);
    stage.apply(SHARED).await?;
    for (name, port) in [("shared-web", 80), ("shared-admin", 81)] {
        let addresses = stage.addresses(DEMO, name).await?;
        ensure!(addresses == [address.to_string()], "demo/{name} has {addresses:?}");
        stage.answer(Host::Client, address, port).await?;
    }
    let owners = owners(stage, address).await?;
    ensure!(owners.len() == 1, "{address} is answered by {owners:?}");
    Ok(format!("{address}: shared-web on port 80, shared-admin on port 81"))
}

async fn foreign(stage: &mut Stage<'_>) -> Seen {
    stage.apply(FOREIGN).await?;
    let before = stage.cluster.read(SERVICE, DEMO, "foreign").await?;
    let version = |service: &serde_json::Value| service["metadata"]["resourceVersion"].clone();
    // Whoever meant to touch it would have done so within a fraction of this.
    throughout(std::time::Duration::from_secs(1), async || {
        let now = stage.cluster.read(SERVICE, DEMO, "foreign").await?;
        ensure!(version(&now) == version(&before), "somebody wrote demo/foreign: {now}");
        let events = stage.cluster.events_on(DEMO, "foreign").await?;
        ensure!(events.is_empty(), "{events:?}");
        Ok(())
    })
    .await?;
    Ok("demo/foreign as it was created, no event".into())
}

// SPDX-License-Identifier: Apache-2.0
//! Fourth chapter: who gets which address. One, a shared one, two of different families; somebody else's Service; and a
//! pool that goes while it is in use.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::super::cluster::{SERVICE, eventually, ingress, throughout};
use super::super::l2;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::{DEMO, manifest};

const WEB: Example = manifest!("web.yaml");
const DUAL_POOL: Example = manifest!("dual-pool.yaml");
const DUAL: Example = manifest!("dual.yaml");

/// What the Service `dual` gets: the first of each family.
const BOTH: [&str; 2] = ["192.168.10.232", "fd00:10::200"];

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("Addresses");
    stage.step("a Service", "192.168.10.200, the first of the pool; event IPAllocated", first).await;
    stage.step("two Services that share", "the same address for both", shared).await;
    stage.step("two families", "an address of each family, in the order of the Service's own", dual).await;
    stage
        .step(
            "a foreign loadBalancerClass",
            "untouched: no address, no event",
            async |stage: &mut Stage<'_>| {
                stage.apply(l2::FOREIGN).await?;
                untouched(stage, &["foreign"]).await?;
                Ok("demo/foreign as it was created".into())
            },
        )
        .await;
    stage
        .step(
            "a pool goes while it is in use",
            "its Service loses both addresses and is told why; the others are not written",
            pool_deleted,
        )
        .await;
    stage.step("the pool is back", "the Service has the same addresses again", pool_back).await;
}

async fn first(stage: &mut Stage<'_>) -> Seen {
    stage.apply(WEB).await?;
    let addresses = stage.addresses(DEMO, "web").await?;
    ensure!(addresses == ["192.168.10.200"], "demo/web has {addresses:?}");
    stage
        .kubectl(&[
            "-n",
            DEMO,
            "wait",
            "service",
            "web",
            "--for=jsonpath={.status.loadBalancer.ingress[0].ip}=192.168.10.200",
            "--timeout=20s",
        ])
        .await?;
    let message = r#"Assigned IP ["192.168.10.200"]"#;
    stage.event("web", "Normal", "IPAllocated", message).await?;
    Ok(format!("192.168.10.200; IPAllocated: {message}"))
}

async fn shared(stage: &mut Stage<'_>) -> Seen {
    stage.apply(l2::SHARED).await?;
    for name in ["shared-web", "shared-admin"] {
        let addresses = stage.addresses(DEMO, name).await?;
        ensure!(addresses == ["192.168.10.217"], "demo/{name} has {addresses:?}");
    }
    Ok("192.168.10.217 for shared-web on port 80 and shared-admin on port 81".into())
}

async fn dual(stage: &mut Stage<'_>) -> Seen {
    stage.apply(DUAL_POOL).await?;
    stage.apply(DUAL).await?;
    let addresses = stage.addresses(DEMO, "dual").await?;
    ensure!(addresses == BOTH, "demo/dual has {addresses:?}");
    let service = stage.cluster.read(SERVICE, DEMO, "dual").await?;
    let own = service.pointer("/spec/clusterIPs").and_then(Value::as_array).map_or(0, Vec::len);
    ensure!(own == 2, "{own} cluster IPs");
    Ok(format!("{} and {}", BOTH[0], BOTH[1]))
}

async fn pool_deleted(stage: &mut Stage<'_>) -> Seen {
    let others = versions(stage, &["web", "shared-web", "shared-admin", "foreign"]).await?;
    stage.remove(&[DUAL_POOL]).await?;
    eventually(SOON, async || {
        let service = stage.cluster.read(SERVICE, DEMO, "dual").await?;
        let left = ingress(&service);
        ensure!(left.is_empty(), "demo/dual has {left:?}");
        Ok(())
    })
    .await?;
    let message = r#"Failed to allocate IP for "demo/dual": unknown pool "dual""#;
    stage.event("dual", "Warning", "AllocationFailed", message).await?;
    let now = versions(stage, &["web", "shared-web", "shared-admin", "foreign"]).await?;
    ensure!(now == others, "other Services were written: {others:?} -> {now:?}");
    Ok(format!("AllocationFailed: {message}; four other Services as they were"))
}

async fn pool_back(stage: &mut Stage<'_>) -> Seen {
    stage.apply(DUAL_POOL).await?;
    let addresses = stage.addresses(DEMO, "dual").await?;
    ensure!(addresses == BOTH, "demo/dual has {addresses:?}");
    Ok(format!("{} and {}", BOTH[0], BOTH[1]))
}

/// The resource versions of these Services of the namespace `demo`.
pub(super) async fn versions(stage: &Stage<'_>, names: &[&str]) -> Result<Vec<String>> {
    let mut versions = Vec::new();
    for name in names {
        let service = stage.cluster.read(SERVICE, DEMO, name).await?;
        versions.push(service["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned());
    }
    Ok(versions)
}

/// Sees that nobody writes these Services, and that nothing is said about them.
pub(super) async fn untouched(stage: &Stage<'_>, names: &[&str]) -> Result<()> {
    let before = versions(stage, names).await?;
    let mut events = Vec::new();
    for name in names {
        events.push(stage.cluster.events_on(DEMO, name).await?);
    }
    // Whoever meant to write would have done so within a fraction of this.
    throughout(Duration::from_secs(1), async || {
        let now = versions(stage, names).await?;
        ensure!(now == before, "somebody wrote {names:?}: {before:?} -> {now:?}");
        for (name, before) in names.iter().zip(&events) {
            let now = stage.cluster.events_on(DEMO, name).await?;
            ensure!(now == *before, "events about {name}: {now:?}");
        }
        Ok(())
    })
    .await
}

// SPDX-License-Identifier: Apache-2.0
//! Last chapter: the Service goes, and its address with it.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::super::cluster::{L2_STATUS, POOL, SERVICE, eventually, text, throughout};
use super::super::stage::{SOON, Stage, told};
use super::super::story::Seen;
use super::configuration::HELLO_LB;
use super::moves::silent;
use super::segment::owners;
use super::{ADDRESS, DEMO, SYSTEM};
use crate::host::Host;

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("Farewell");
    stage
        .step(
            "delete the Service",
            "nobody answers for the address, requests fail, status and counters are cleared",
            delete,
        )
        .await;
}

async fn delete(stage: &mut Stage<'_>) -> Seen {
    stage.remove(&[HELLO_LB]).await?;
    silent(stage, ADDRESS).await?;
    throughout(Duration::from_secs(1), async || {
        let owners = owners(stage, ADDRESS).await?;
        ensure!(owners.is_empty(), "{owners:?} answers again");
        Ok(())
    })
    .await?;
    let address = ADDRESS.to_string();
    let done = stage.exec(Host::Node2, &["arping", "-c", "2", "-w", "2", "-i", "ens18", &address]).await?;
    ensure!(done.code == Some(1), "{}", told(&done));
    eventually(SOON, async || {
        ensure!(
            stage.cluster.find(SERVICE, DEMO, "hello-lb").await?.is_none(),
            "demo/hello-lb is still there"
        );
        let statuses = stage.cluster.list(L2_STATUS, SYSTEM).await?;
        let left = statuses.iter().map(|status| text(status, "/status/serviceName")).collect::<Vec<_>>();
        ensure!(left.is_empty(), "ServiceL2Statuses of {left:?}");
        let pool = stage.cluster.read(POOL, SYSTEM, "lan").await?;
        let expected = json!({"assignedIPv4": 0, "assignedIPv6": 0, "availableIPv4": 21, "availableIPv6": 0});
        ensure!(pool["status"] == expected, "the pool counts {}", pool["status"]);
        Ok(())
    })
    .await?;
    Ok(format!("{ADDRESS} is silent; no ServiceL2Status; the pool lan has 21 addresses available"))
}

// SPDX-License-Identifier: Apache-2.0
//! Services that ask for addresses, share them, and come and go.

use std::net::IpAddr;

use anyhow::ensure;

use super::super::routing;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::{Ground, SHOP, WORKERS, manifest, statuses};
use crate::bench_handle::DEMO;
use crate::host::Host;
use crate::scenario::cluster::{SERVICE, eventually};

pub(super) const SHARING: Example = manifest!("sharing.yaml");
const NEXT: Example = manifest!("next-pool.yaml");

pub(super) const SHARED: &str = "192.168.20.20/32";
const DATA: &str = "192.168.21.5/32";

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Services and pools");
    stage
        .step(
            "a shared address",
            "one route for two Services, which goes with the last of them",
            async |stage: &mut Stage<'_>| shared(stage, ground).await,
        )
        .await;
    stage
        .step(
            "one more pool and Service",
            "its route is announced; nothing is said of the earlier one, and no session begins anew",
            async |stage: &mut Stage<'_>| one_more(stage, ground).await,
        )
        .await;
}

async fn shared(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let mark = ground.wire.mark();
    stage.apply(SHARING).await?;
    ground.both(SHARED, &WORKERS).await?;
    for name in ["left", "right"] {
        statuses(stage, name, &WORKERS, &["inner", "router"]).await?;
    }
    for port in [80, 8000] {
        let answer = stage.answer(Host::Outside, "192.168.20.20".parse::<IpAddr>()?, port).await?;
        ensure!(answer.starts_with("hello-"), "{answer:?}");
    }
    // What the router knows may be captured only later.
    let announced = WORKERS.len();
    eventually(SOON, async || {
        let said = ground.words(mark);
        ensure!(said.len() == announced, "{} things were said: {said:?}", said.len());
        Ok(())
    })
    .await?;
    delete(stage, "left").await?;
    statuses(stage, "left", &[], &[]).await?;
    let answer = stage.answer(Host::Outside, "192.168.20.20".parse::<IpAddr>()?, 8000).await?;
    ensure!(answer.starts_with("hello-"), "{answer:?}");
    ensure!(ground.words(mark).len() == announced, "something was said of it: {:?}", ground.words(mark));
    delete(stage, "right").await?;
    ground.both(SHARED, &[]).await?;
    statuses(stage, "right", &[], &[]).await?;
    ground.untouched(SHOP, mark)?;
    Ok(format!("{SHARED} once for both Services, still there for the second alone, then withdrawn"))
}

/// Deletes a Service of the namespace `demo`.
pub(super) async fn delete(stage: &mut Stage<'_>, service: &str) -> anyhow::Result<()> {
    if stage.kubectl(&["-n", DEMO, "delete", "service", service]).await?.is_none() {
        stage.cluster.delete(SERVICE, DEMO, service).await?;
    }
    eventually(SOON, async || {
        ensure!(stage.cluster.find(SERVICE, DEMO, service).await?.is_none(), "demo/{service} is still there");
        Ok(())
    })
    .await
}

async fn one_more(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let (mark, before) = (ground.wire.mark(), routing::sessions(&ground.router).await?);
    stage.apply(NEXT).await?;
    ground.both(DATA, &WORKERS).await?;
    stage.remove(&[NEXT]).await?;
    ground.both(DATA, &[]).await?;
    ground.untouched(SHOP, mark)?;
    let after = routing::sessions(&ground.router).await?;
    for (peer, before) in &before {
        let after = after.get(peer);
        let same = after
            .is_some_and(|after| (after.established, after.dropped) == (before.established, before.dropped));
        ensure!(same, "the session of {peer} was {before:?}, and is {after:?}");
    }
    Ok(format!("{DATA} comes and goes; not a word about {SHOP}; all sessions go on"))
}

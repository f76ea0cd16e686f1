// SPDX-License-Identifier: Apache-2.0
//! Last chapter: the Service goes, then the peer, and the router is as it was.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::super::cluster::{BGP_STATUS, eventually};
use super::super::conversation::Word;
use super::super::routing;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::ground::established;
use super::{ADVERTISEMENT, Ground, PEER, POOL, ROUTE, SERVICE, SYSTEM, WORKERS, address};
use crate::host::Host;

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Farewell");
    stage
        .step(
            "delete the Service",
            "both workers withdraw the route; the ServiceBGPStatuses are gone; the sessions stay",
            async |stage: &mut Stage<'_>| service(stage, ground).await,
        )
        .await;
    stage
        .step(
            "delete the rest",
            "the router waits again: three times Active, no prefix, no route in its kernel",
            async |stage: &mut Stage<'_>| rest(stage, ground).await,
        )
        .await;
    stage
        .step("BIRD", "its mesh is as it was: no session began anew", async |_: &mut Stage<'_>| {
            mesh(ground).await
        })
        .await;
}

async fn service(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let (mark, began) = (ground.wire.mark(), Instant::now());
    stage.remove(&[SERVICE]).await?;
    ground.via(stage, &[]).await?;
    let took = began.elapsed();
    let route = ROUTE.parse()?;
    for node in WORKERS {
        // What the router knows may be captured only later.
        eventually(SOON, async || {
            let words = ground.wire.words(address(node), mark);
            ensure!(words == [Word::Withdrawn(route)], "{node} says {words:?}");
            Ok(())
        })
        .await?;
    }
    eventually(SOON, async || {
        let left = stage.cluster.list(BGP_STATUS, SYSTEM).await?.len();
        ensure!(left == 0, "{left} ServiceBGPStatuses are left");
        Ok(())
    })
    .await?;
    routing::settled(&ground.router, &Host::NODES.map(|node| (node, "Established", 0))).await?;
    stage
        .story
        .measured(format!("out of the router's kernel {} ms after the command was given", took.as_millis()));
    Ok(format!("{ROUTE} withdrawn by both; three sessions without a prefix"))
}

async fn rest(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    stage.remove(&[ADVERTISEMENT, POOL, PEER]).await?;
    ground.asked(stage, routing::SUMMARY);
    routing::settled(&ground.router, &Host::NODES.map(|node| (node, "Active", 0))).await?;
    ground.via(stage, &[]).await?;
    let table = routing::table(&ground.router).await?;
    ensure!(table.is_empty(), "the router has {table:?}");
    Ok("192.168.10.17, .20 and .21: Active, no prefix; no route".to_owned())
}

async fn mesh(ground: &Ground) -> Seen {
    for bird in &ground.birds {
        let now = established(bird).await?;
        let before = ground.meshed.get(&bird.host()).context("a BIRD that was not there")?;
        // It counts back from now each time: a millisecond more or less.
        let same = |name: &String| {
            now.get(name)
                .zip(before.get(name))
                .is_some_and(|(now, before)| now.abs_diff(*before) < Duration::from_millis(500))
        };
        ensure!(
            now.len() == before.len() && before.keys().all(same),
            "on {} it was {before:?}, and is {now:?}",
            bird.host()
        );
    }
    Ok("three sessions, since the beginning".to_owned())
}

// SPDX-License-Identifier: Apache-2.0
//! Seventh chapter: addresses of the segment by layer 2, addresses behind the router by BGP, side by side.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::super::cluster::{BGP_STATUS, L2_STATUS, eventually, text};
use super::super::l2::{POOL as LAN, leader};
use super::super::routing;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::super::wire;
use super::{ADDRESS, DEMO, Ground, ROUTE, SYSTEM, WORKERS, address, manifest};
use crate::host::Host;

const BESIDE: Example = manifest!("beside.yaml");

/// The address of `demo/hello-l2`: the first of the pool `lan`.
const ON_SEGMENT: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 200);

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Beside layer 2");
    stage
        .step(
            "two pools",
            "one node answers for the address of the segment, and the router never hears of it; no node answers for the other",
            async |stage: &mut Stage<'_>| side_by_side(stage, ground).await,
        )
        .await;
    stage
        .step(
            "without layer 2 again",
            "the address of the segment is silent; nothing is said by BGP",
            async |stage: &mut Stage<'_>| without(stage, ground).await,
        )
        .await;
}

/// The hosts that answer the client for an address, by hardware address.
async fn answering(stage: &Stage<'_>, asked: Ipv4Addr) -> Result<BTreeSet<Host>> {
    let window = Duration::from_millis(150);
    let macs = wire::ask(stage.namespace(Host::Client), Host::Client, asked, window).await?;
    Ok(Host::ALL.into_iter().filter(|host| macs.contains(&host.mac())).collect())
}

async fn side_by_side(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let mark = ground.wire.mark();
    stage.apply(LAN).await?;
    stage.apply(BESIDE).await?;
    let addresses = stage.addresses(DEMO, "hello-l2").await?;
    ensure!(addresses == [ON_SEGMENT.to_string()], "the Service has {addresses:?}");
    let owner: BTreeSet<Host> = leader(ON_SEGMENT, &WORKERS).into_iter().collect();
    eventually(SOON, async || {
        let seen = answering(stage, ON_SEGMENT).await?;
        ensure!(seen == owner, "{ON_SEGMENT} is answered by {}", routing::names(&seen));
        Ok(())
    })
    .await?;
    let seen = answering(stage, ADDRESS).await?;
    ensure!(seen.is_empty(), "{ADDRESS} is answered by {}", routing::names(&seen));
    for asked in [ON_SEGMENT, ADDRESS] {
        let answer = stage.answer(Host::Outside, asked, 80).await?;
        ensure!(answer.starts_with("hello-"), "{answer:?}");
    }
    // Each Service has statuses of its own protocol alone.
    eventually(SOON, async || {
        let services = async |kind| -> Result<Vec<String>> {
            let statuses = stage.cluster.list(kind, SYSTEM).await?;
            let mut names: Vec<_> =
                statuses.iter().map(|status| text(status, "/status/serviceName").to_owned()).collect();
            names.sort();
            Ok(names)
        };
        let (l2, bgp) = (services(L2_STATUS).await?, services(BGP_STATUS).await?);
        ensure!(l2 == ["hello-l2"], "ServiceL2Statuses of {l2:?}");
        ensure!(bgp == ["hello-bgp", "hello-bgp"], "ServiceBGPStatuses of {bgp:?}");
        Ok(())
    })
    .await?;
    let table = routing::table(&ground.router).await?;
    ensure!(table.keys().eq([ROUTE]), "the router has {:?}", table.keys());
    for node in Host::NODES {
        let words = ground.wire.words(address(node), mark);
        ensure!(words.is_empty(), "{node} says {words:?}");
    }
    Ok(format!(
        "{ON_SEGMENT} answered by {}, unknown to the router; {ADDRESS} by BGP alone; both reached from outside",
        routing::names(&owner)
    ))
}

async fn without(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let mark = ground.wire.mark();
    stage.remove(&[BESIDE, LAN]).await?;
    eventually(SOON, async || {
        let seen = answering(stage, ON_SEGMENT).await?;
        ensure!(seen.is_empty(), "{ON_SEGMENT} is answered by {}", routing::names(&seen));
        Ok(())
    })
    .await?;
    for node in Host::NODES {
        let words = ground.wire.words(address(node), mark);
        ensure!(words.is_empty(), "{node} says {words:?}");
    }
    ground.via(stage, &WORKERS).await?;
    Ok(format!("{ON_SEGMENT} is silent; {ROUTE} as before"))
}

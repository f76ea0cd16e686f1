// SPDX-License-Identifier: Apache-2.0
//! Third chapter: a Service gets an address, and the router learns two ways to it.

use anyhow::{Context as _, ensure};
use ferrolb_bgp::wire::{Message, Update};
use ferrolb_net_types::IpFamily;

use super::super::cluster::{POD, eventually, text};
use super::super::conversation::Said;
use super::super::l2::HELLO;
use super::super::routing::{self, names, tellers};
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::sessions::hex;
use super::{ADDRESS, ADVERTISEMENT, DEMO, Ground, POOL, ROUTE, SERVICE, SYSTEM, WORKERS, address, statuses};
use crate::host::Host;

/// Returns whether the story can go on.
pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) -> bool {
    stage.story.chapter("A route");
    let mut mark = 0;
    let ok = stage
        .step(
            "announced",
            "192.168.20.100/32 by both workers, not by the master, which is excluded",
            async |stage: &mut Stage<'_>| {
                mark = ground.wire.mark();
                announced(stage, ground).await
            },
        )
        .await;
    stage
        .step(
            "UPDATE",
            "MetalLB's bytes: ORIGIN IGP, AS_PATH 64512, the node as NEXT_HOP, nothing else",
            async |_: &mut Stage<'_>| updates(ground, mark).await,
        )
        .await;
    stage
        .step(
            "End-of-RIB",
            "every speaker says once when it has told all that it knew at the beginning",
            async |_: &mut Stage<'_>| ends_of_rib(ground).await,
        )
        .await;
    stage
        .step("ECMP", "one route with two next hops in the router's kernel", async |stage: &mut Stage<'_>| {
            ecmp(stage, ground).await
        })
        .await;
    stage
        .step(
            "in the API",
            "nodeAssigned by both workers, with protocol bgp; a ServiceBGPStatus of each, with its peer",
            in_the_api,
        )
        .await;
    ok
}

async fn announced(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    stage.apply(HELLO).await?;
    stage.apply(POOL).await?;
    stage.apply(ADVERTISEMENT).await?;
    stage.apply(SERVICE).await?;
    let addresses = stage.addresses(DEMO, "hello-bgp").await?;
    ensure!(addresses == [ADDRESS.to_string()], "the Service has {addresses:?}");
    ground.asked(stage, &format!("show bgp ipv4 unicast {ROUTE} json"));
    eventually(SOON, async || {
        let told = tellers(&ground.router, ROUTE).await?;
        ensure!(told == WORKERS.into(), "{ROUTE} by {}", names(&told));
        Ok(())
    })
    .await?;
    for path in routing::paths(&ground.router, ROUTE).await? {
        ensure!(path.as_path == "64512", "AS path {:?} by {}", path.as_path, path.peer);
        ensure!(path.communities.is_empty(), "communities {:?}", path.communities);
    }
    let expected =
        [(Host::Master1, "Established", 0), (Host::Node1, "Established", 1), (Host::Node2, "Established", 1)];
    routing::settled(&ground.router, &expected).await?;
    // All three Pods, so that every later answer can come from any.
    eventually(SOON, async || {
        let pods = stage.cluster.list(POD, DEMO).await?;
        let ready = pods.iter().filter(|pod| {
            let conditions = pod.pointer("/status/conditions").and_then(serde_json::Value::as_array);
            conditions
                .into_iter()
                .flatten()
                .any(|c| text(c, "/type") == "Ready" && text(c, "/status") == "True")
        });
        ensure!(ready.count() == 3, "not all Pods are ready");
        Ok(())
    })
    .await?;
    Ok(format!("{ROUTE} by {}", names(&WORKERS)))
}

/// The UPDATE that MetalLB v0.16.1 sends for the address from this node.
fn metallb_update(node: Host) -> Vec<u8> {
    let mut bytes = vec![0xff; 16];
    bytes.extend([0, 48, 2, 0, 0, 0, 20]);
    bytes.extend([0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfc, 0x00, 0x40, 3, 4]);
    bytes.extend(node.address().octets());
    bytes.push(32);
    bytes.extend(ADDRESS.octets());
    bytes
}

async fn updates(ground: &Ground, mark: usize) -> Seen {
    for node in WORKERS {
        let says = |said: &Said| said.updates().iter().any(|update| matches!(update, Update::Announce(_)));
        let said = ground.wire.hears(address(node), mark, SOON, says).await?;
        let expected = metallb_update(node);
        ensure!(said.bytes == expected, "{node} sends {}, not {}", hex(&said.bytes), hex(&expected));
    }
    let master = ground.wire.words(address(Host::Master1), 0);
    ensure!(master.is_empty(), "k8s-master-1 says {master:?}");
    Ok(format!("k8s-node-1 sends {}", hex(metallb_update(Host::Node1).get(19..).unwrap_or_default())))
}

async fn ends_of_rib(ground: &Ground) -> Seen {
    for node in Host::NODES {
        let said = ground.wire.of(address(node), 0);
        let families = said.iter().flat_map(Said::updates).filter_map(|update| match update {
            Update::EndOfRib(family) => Some(*family),
            _ => None,
        });
        let families: Vec<IpFamily> = families.collect();
        ensure!(families.contains(&IpFamily::V4), "{node} never said so: {families:?}");
        ensure!(families.len() == 1, "{node} said so for {families:?}");
        let malformed = said.iter().find(|said| said.message.is_none());
        ensure!(malformed.is_none(), "{node} sends {malformed:?}");
        let notified = said.iter().any(|said| matches!(said.message, Some(Message::Notification(_))));
        ensure!(!notified, "{node} sent a NOTIFICATION");
    }
    Ok("one of each node, for IPv4 (the router takes no other family)".to_owned())
}

async fn ecmp(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    ground.via(stage, &WORKERS).await?;
    let printed =
        stage.exec(Host::Router, &["ip", "route", "show", &ADDRESS.to_string()]).await?.success()?;
    let hops = printed.lines().filter(|line| line.contains("nexthop via 192.168.10.2")).count();
    ensure!(hops == 2, "{printed}");
    Ok(format!("{ADDRESS} via 192.168.10.20 and 192.168.10.21"))
}

async fn in_the_api(stage: &mut Stage<'_>) -> Seen {
    for node in WORKERS {
        let message = format!(r#"announcing from node "{node}" with protocol "bgp""#);
        stage.event("hello-bgp", "Normal", "nodeAssigned", &message).await?;
    }
    let events = stage.cluster.events_on(DEMO, "hello-bgp").await?;
    let assigned: Vec<_> = events.iter().filter(|event| event.reason == "nodeAssigned").collect();
    ensure!(assigned.len() == 2, "{} events nodeAssigned", assigned.len());
    ensure!(assigned.iter().all(|event| event.count == 1), "an event was sent twice");
    stage.kubectl(&["-n", SYSTEM, "get", "servicebgpstatuses"]).await?.map_or(Ok(()), |printed| {
        WORKERS.iter().try_for_each(|node| {
            printed.contains(node.name()).then_some(()).with_context(|| format!("{node} is not in {printed}"))
        })
    })?;
    statuses(stage, "hello-bgp", &WORKERS, &["router"]).await?;
    Ok("nodeAssigned twice, once by each worker; ServiceBGPStatus of each worker: peers [router]".to_owned())
}

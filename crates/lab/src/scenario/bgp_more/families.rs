// SPDX-License-Identifier: Apache-2.0
//! Routes of both families over one session, which is over IPv4, or over IPv6: what type frr has `dualStackAddressFamily` for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::cluster::{eventually, text};
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::{Ground, WORKERS, manifest, statuses, told};
use crate::bench_handle::DEMO;
use crate::host::Host;
use crate::routers::Frr;

const BOTH: Example = manifest!("both-families.yaml");
const OVER_IPV6: Example = manifest!("over-ipv6.yaml");

/// The routes of `demo/both`.
const V4: &str = "192.168.21.5/32";
const V6: &str = "fd00:20::5/128";

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Both families");
    let both = stage
        .step(
            "over one session by IPv4",
            "the inner router has a route of each family, with the node's address of that family as its next hop; the other \
             router, which takes IPv4 alone, has that one",
            async |stage: &mut Stage<'_>| by_ipv4(stage, ground).await,
        )
        .await;
    if both {
        stage
            .step(
                "over one session by IPv6",
                "the same routes with the same next hops",
                async |stage: &mut Stage<'_>| by_ipv6(stage, ground).await,
            )
            .await;
    }
}

async fn by_ipv4(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let mut lines = vec!["router bgp 64512".to_owned(), "address-family ipv6 unicast".to_owned()];
    lines.extend(Host::NODES.map(|node| format!("neighbor {} activate", node.address())));
    configure(&ground.inner, &lines).await?;
    stage.apply(BOTH).await?;
    let addresses = stage.addresses(DEMO, "both").await?;
    ensure!(addresses == ["192.168.21.5", "fd00:20::5"], "demo/both has {addresses:?}");
    let seen = has_both(stage, ground, |node| node.address().into()).await?;
    told(&ground.router, V4, &WORKERS).await?;
    statuses(stage, "both", &WORKERS, &["inner", "router"]).await?;
    Ok(seen)
}

async fn by_ipv6(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let by = |line: fn(Host) -> String| Host::NODES.map(line);
    let mut lines = vec!["router bgp 64512".to_owned()];
    lines.extend(by(|node| format!("neighbor {} remote-as 64512", node.address6())));
    lines.extend(by(|node| format!("neighbor {} passive", node.address6())));
    for family in ["ipv4", "ipv6"] {
        lines.push(format!("address-family {family} unicast"));
        lines.extend(by(|node| format!("neighbor {} activate", node.address6())));
        lines.push("exit-address-family".to_owned());
    }
    configure(&ground.inner, &lines).await?;
    stage.apply(OVER_IPV6).await?;
    let seen = has_both(stage, ground, |node| node.address6().into()).await?;
    statuses(stage, "both", &WORKERS, &["inner", "inner-v6", "router"]).await?;
    stage.remove(&[OVER_IPV6]).await?;
    // What was said by IPv4 is there as before.
    for (family, prefix) in FAMILIES {
        eventually(SOON, async || {
            let hops = next_hops(&ground.inner, family, prefix).await?;
            let peers: BTreeSet<IpAddr> = hops.keys().copied().collect();
            ensure!(peers == WORKERS.map(|node| node.address().into()).into(), "{prefix} by {peers:?}");
            Ok(())
        })
        .await?;
    }
    Ok(seen)
}

/// The families, as FRR names them, and the route of each.
const FAMILIES: [(&str, &str); 2] = [("ipv4", V4), ("ipv6", V6)];

/// Waits until the inner router has both routes from the workers, over the sessions with these addresses of theirs, each with
/// the next hop of its family; then shows how a person sees that.
async fn has_both(stage: &mut Stage<'_>, ground: &Ground, session: fn(Host) -> IpAddr) -> Result<String> {
    let mut seen = Vec::new();
    for (family, prefix) in FAMILIES {
        let question = question(family, prefix);
        let words: Vec<String> =
            ground.inner.words(&[&question]).iter().map(|word| crate::launch::quoted(word)).collect();
        stage.story.command(format!("ferrolb lab exec {} -- {}", ground.inner.host(), words.join(" ")));
        let expected = |node: Host| -> IpAddr {
            if family == "ipv4" { node.address().into() } else { node.address6().into() }
        };
        eventually(SOON * 2, async || {
            let hops = next_hops(&ground.inner, family, prefix).await?;
            for node in WORKERS {
                let of_node = hops.get(&session(node));
                let of_node =
                    of_node.with_context(|| format!("{prefix} is not told by {}", session(node)))?;
                ensure!(*of_node == [expected(node)].into(), "{prefix} by {} via {of_node:?}", session(node));
            }
            let master = hops.get(&session(Host::Master1));
            ensure!(master.is_none(), "{prefix} is told by the master");
            Ok(())
        })
        .await?;
        let hops: Vec<String> = WORKERS.map(|node| expected(node).to_string()).into();
        seen.push(format!("{prefix} via {}", hops.join(" and ")));
    }
    let peers = WORKERS.map(|node| session(node).to_string());
    Ok(format!("{}, by {}", seen.join("; "), peers.join(" and ")))
}

fn question(family: &str, prefix: &str) -> String {
    format!("show bgp {family} unicast {prefix} json")
}

/// The next hops of a prefix, of each peer that told the router of it. Link-local ones are beside the point.
async fn next_hops(router: &Frr, family: &str, prefix: &str) -> Result<BTreeMap<IpAddr, BTreeSet<IpAddr>>> {
    let said = router.ask(&question(family, prefix)).await?;
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let mut told = BTreeMap::new();
    for path in list(&said, "paths") {
        let peer = text(&path, "/peer/peerId").parse().context("a path without a peer")?;
        let hops = list(&path, "nexthops").into_iter().filter(|hop| text(hop, "/scope") != "link-local");
        let hops: Result<BTreeSet<IpAddr>> = hops.map(|hop| Ok(text(&hop, "/ip").parse()?)).collect();
        told.insert(peer, hops?);
    }
    Ok(told)
}

async fn configure(router: &Frr, lines: &[String]) -> Result<()> {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    router.configure(&lines).await
}

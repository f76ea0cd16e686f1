// SPDX-License-Identifier: Apache-2.0
//! What a router knows: its sessions, its paths, and the routes in its kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::cluster::{eventually, text};
use super::stage::{SOON, Stage};
use crate::host::Host;
use crate::routers::Frr;

/// A session, as the router sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Session {
    /// `Established`, `Active`, …
    pub(crate) state: String,
    /// How many prefixes it accepted.
    pub(crate) prefixes: u64,
    /// How often it was established, and lost.
    pub(crate) established: u64,
    pub(crate) dropped: u64,
}

/// The router's sessions for IPv4 routes, by the neighbour's address.
pub(crate) async fn sessions(router: &Frr) -> Result<BTreeMap<IpAddr, Session>> {
    let said = router.ask(SUMMARY).await?;
    let peers = said.pointer("/ipv4Unicast/peers").and_then(Value::as_object);
    let peers = peers.context("the router knows of no neighbour")?;
    let number = |peer: &Value, field: &str| peer[field].as_u64().unwrap_or_default();
    let session = |peer: &Value| Session {
        state: text(peer, "/state").to_owned(),
        prefixes: number(peer, "pfxRcd"),
        established: number(peer, "connectionsEstablished"),
        dropped: number(peer, "connectionsDropped"),
    };
    peers.iter().map(|(address, peer)| Ok((address.parse()?, session(peer)))).collect()
}

/// The question that [`sessions`] asks.
pub(crate) const SUMMARY: &str = "show bgp summary json";

/// Waits until the sessions of these hosts are in this state, with so many prefixes each.
pub(crate) async fn settled(router: &Frr, expected: &[(Host, &str, u64)]) -> Result<()> {
    eventually(SOON * 2, async || {
        let seen = sessions(router).await?;
        for (host, state, prefixes) in expected {
            let session = seen.get(&host.address().into());
            let session = session.with_context(|| format!("{host} is no neighbour of {}", router.host()))?;
            ensure!(
                session.state == *state && session.prefixes == *prefixes,
                "the session of {host} is {}, with {} prefixes",
                session.state,
                session.prefixes
            );
        }
        Ok(())
    })
    .await
}

/// One way to a prefix that the router has been told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    /// By whom.
    pub(crate) peer: IpAddr,
    pub(crate) communities: BTreeSet<String>,
    /// What the route is worth, where that was said.
    pub(crate) local_pref: Option<u64>,
    /// `Local` if there is none.
    pub(crate) as_path: String,
}

/// The paths of a prefix; none if the router does not know it.
pub(crate) async fn paths(router: &Frr, prefix: &str) -> Result<Vec<Path>> {
    let said = router.ask(&format!("show bgp ipv4 unicast {prefix} json")).await?;
    let paths = said["paths"].as_array().map(Vec::as_slice).unwrap_or_default();
    let list = |path: &Value| path.pointer("/community/list").and_then(Value::as_array).cloned();
    paths
        .iter()
        .map(|path| {
            Ok(Path {
                peer: text(path, "/peer/peerId").parse().context("a path without a peer")?,
                communities: list(path)
                    .unwrap_or_default()
                    .iter()
                    .filter_map(|community| community.as_str().map(str::to_owned))
                    .collect(),
                local_pref: path["locPrf"].as_u64(),
                as_path: text(path, "/aspath/string").to_owned(),
            })
        })
        .collect()
}

/// Every prefix of the router's table, by whom it was told.
pub(crate) async fn table(router: &Frr) -> Result<BTreeMap<String, BTreeSet<IpAddr>>> {
    let said = router.ask("show bgp ipv4 unicast json").await?;
    let routes = said["routes"].as_object().cloned().unwrap_or_default();
    routes
        .into_iter()
        .map(|(prefix, paths)| {
            let peers = paths.as_array().into_iter().flatten().map(|path| Ok(text(path, "/peerId").parse()?));
            Ok((prefix, peers.collect::<Result<_>>()?))
        })
        .collect()
}

/// The next hops of a prefix in a host's kernel.
pub(crate) async fn in_kernel(stage: &Stage<'_>, host: Host, prefix: &str) -> Result<BTreeSet<Ipv4Addr>> {
    let said = stage.on_host(host, &["ip", "-j", "-4", "route", "show", "exact", prefix]).await?.success()?;
    let routes: Value = serde_json::from_str(said.trim()).unwrap_or_default();
    let mut gateways = BTreeSet::new();
    for route in routes.as_array().into_iter().flatten() {
        let several = route["nexthops"].as_array().map(Vec::as_slice).unwrap_or_default();
        for hop in several.iter().chain([route]) {
            gateways.extend(text(hop, "/gateway").parse::<Ipv4Addr>().ok());
        }
    }
    Ok(gateways)
}

/// Waits until the router was told of a prefix by exactly these nodes, and has exactly them as next hops in its kernel.
pub(crate) async fn via(stage: &Stage<'_>, router: &Frr, prefix: &str, nodes: &[Host]) -> Result<()> {
    let expected: BTreeSet<Ipv4Addr> = nodes.iter().map(|node| node.address()).collect();
    eventually(SOON * 2, async || {
        let told = tellers(router, prefix).await?;
        ensure!(told == nodes.iter().copied().collect(), "the router has {prefix} from {}", names(&told));
        let kernel = in_kernel(stage, router.host(), prefix).await?;
        ensure!(kernel == expected, "the router's kernel has {prefix} via {kernel:?}");
        Ok(())
    })
    .await
}

/// The hosts that told the router of a prefix.
pub(crate) async fn tellers(router: &Frr, prefix: &str) -> Result<BTreeSet<Host>> {
    paths(router, prefix).await?.iter().map(|path| host_of(path.peer)).collect()
}

/// The host with this address on the segment.
pub(crate) fn host_of(address: IpAddr) -> Result<Host> {
    match Host::SEGMENT.into_iter().find(|host| address == host.address()) {
        Some(host) => Ok(host),
        None => bail!("{address} is no host of the segment"),
    }
}

/// Hosts in words.
pub(crate) fn names<'a>(hosts: impl IntoIterator<Item = &'a Host>) -> String {
    let names: Vec<&str> = hosts.into_iter().map(|host| host.name()).collect();
    if names.is_empty() { "nobody".to_owned() } else { names.join(" and ") }
}

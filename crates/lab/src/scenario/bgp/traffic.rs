// SPDX-License-Identifier: Apache-2.0
//! Fourth chapter: how the router spreads what clients behind it send.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, Result, ensure};

use super::super::stage::{Stage, told};
use super::super::story::Seen;
use super::super::wire;
use super::{ADDRESS, Ground};
use crate::host::Host;

/// Requests of each client: with two equal ways, one way is left out once in a thousand million runs.
const REQUESTS: usize = 30;

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Clients behind the router");
    stage
        .step(
            "by addresses alone",
            "with fib_multipath_hash_policy 0 each of four clients always reaches the same node",
            async |stage: &mut Stage<'_>| by_addresses(stage).await,
        )
        .await;
    stage
        .step(
            "by ports too",
            "with fib_multipath_hash_policy 1 one client reaches both nodes",
            async |stage: &mut Stage<'_>| by_ports(stage).await,
        )
        .await;
    stage
        .step(
            "no layer 2",
            "nobody on the segment answers for the address or speaks of it",
            async |stage: &mut Stage<'_>| no_arp(stage, ground).await,
        )
        .await;
}

/// The nodes through which a client's requests came, all of which are answered.
pub(super) async fn reached(stage: &mut Stage<'_>, client: Ipv4Addr, count: usize) -> Result<BTreeSet<Host>> {
    let script = format!(
        "for i in {{1..{count}}}; do curl -sS --max-time 2 --interface {client} http://{ADDRESS}/; done"
    );
    let said = stage.exec(Host::Outside, &["bash", "-c", &script]).await?;
    let answers: Vec<&str> = said.stdout.lines().collect();
    ensure!(answers.len() == count, "{} of {count} requests answered: {}", answers.len(), told(&said));
    answers.iter().map(|answer| node_of(answer)).collect()
}

/// The node by which a Pod says that it was asked: with the policy Cluster it sees an address of that node.
fn node_of(answer: &str) -> Result<Host> {
    let (_, peer) = answer.split_once(' ').with_context(|| format!("answered {answer:?}"))?;
    let peer: IpAddr = peer.parse().with_context(|| format!("answered {answer:?}"))?;
    let own = |node: &Host| {
        let bridge = node.pod_network().map(|network| Ipv4Addr::new(172, 20, network, 1));
        peer == node.address() || bridge.is_some_and(|bridge| peer == bridge)
    };
    Host::NODES.into_iter().find(own).with_context(|| format!("{peer} is no node's address"))
}

async fn set_policy(stage: &mut Stage<'_>, policy: u8) -> Result<()> {
    let setting = format!("net.ipv4.fib_multipath_hash_policy={policy}");
    stage.exec(Host::Router, &["sysctl", "-q", "-w", &setting]).await?.success().map(drop)
}

async fn by_addresses(stage: &mut Stage<'_>) -> Seen {
    set_policy(stage, 0).await?;
    for client in Host::Outside.addresses() {
        let nodes = reached(stage, client, 10).await?;
        ensure!(nodes.len() == 1, "{client} reaches {nodes:?}");
    }
    Ok("192.168.30.10 to .13: each reaches one node, ten times out of ten".to_owned())
}

async fn by_ports(stage: &mut Stage<'_>) -> Seen {
    set_policy(stage, 1).await?;
    let client = Host::Outside.address();
    let nodes = reached(stage, client, REQUESTS).await?;
    ensure!(nodes.len() == 2, "{client} reaches {nodes:?} alone");
    Ok(format!("{client} reaches both workers; {REQUESTS} of {REQUESTS} requests answered"))
}

async fn no_arp(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let capture = wire::Capture::start(stage.namespace(Host::Client), Host::Client.interface())?;
    let address = ADDRESS.to_string();
    let said = stage.exec(Host::Node2, &["arping", "-c", "2", "-w", "1", "-i", "ens18", &address]).await?;
    let frames = capture.stop()?;
    ensure!(said.code == Some(1), "{}", told(&said));
    let about = frames.iter().find(|frame| frame.sender == ADDRESS);
    ensure!(about.is_none(), "{about:?}");
    ensure!(frames.iter().any(|frame| frame.target == ADDRESS), "arping asked nothing: {}", told(&said));
    ensure!(
        wire::neighbour(stage.namespace(ground.router.host()), ADDRESS)?.is_none(),
        "the router has a neighbour entry"
    );
    Ok(format!("no answer for {ADDRESS}, no gratuitous frame; the router has no neighbour entry for it"))
}

// SPDX-License-Identifier: Apache-2.0
//! The story of who announces and where: nodes, advertisements, interfaces, both families, and what speakers say about the
//! configuration they read.
//!
//! Of the cases of MetalLB's end-to-end suite for layer 2 (E01 to E31) this story plays E05 (NetworkUnavailable), E09 to E19 and
//! E23. E01, E02, E03, E04, E06 and E07 are steps of the story `l2` (requests over TCP and UDP, the ServiceL2Status beside events
//! and hardware addresses, the policy Local, the exclusion label, a pool that is a range), E21 is one of `members` (a speaker that
//! is gone for longer). What E08 says of shared addresses, and E22 and E24 to E31 of their allocation (classes, pools by request,
//! exhaustion, restarts, sharers that change, pools that go, restricted pools, both families, counters), needs no network: the
//! tables of `announce` and of `controller-core` hold it. E20 (a node and its interface per advertisement) is a test of
//! `speaker-core`'s cluster. Of what speakers say of the configuration this story plays C03, C05, C09, C10 and C11, as native
//! speakers answer them; all of C01 to C11 are tests of `speaker-core`'s cluster as well.
//!
//! One file per chapter. Each chapter begins with the advertisement `web` for every node and interface, and leaves it so.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Result, ensure};
use ferrolb_net_types::Mac;
use serde_json::{Value, json};

use super::cluster::{L2_ADVERTISEMENT, eventually};
use super::l2::{HELLO, leader};
use super::stage::{Example, SOON, Stage};
use super::story::{Report, Seen, Show, Story};
use super::wire;
use crate::bench_handle::{Bench, DEMO, SYSTEM};
use crate::host::{Host, SECOND_INTERFACE};

mod families;
mod interfaces;
mod nodes;
mod selectors;
mod states;

const POOL: Example = manifest!("pool.yaml");
const ADVERTISEMENT: Example = manifest!("advertisement.yaml");
const SERVICES: Example = manifest!("services.yaml");

/// The addresses of `demo/shop`, `demo/data` and `demo/misc`.
const SHOP: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 200);
const DATA: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 201);
const MISC: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 202);

/// The nodes that may announce: the control plane is excluded.
const WORKERS: [Host; 2] = [Host::Node1, Host::Node2];

/// Plays the story from the first chapter to the last.
pub(super) async fn play(bench: &Bench, api: &str, show: Show) -> Report {
    let story = Story::new("announcing", api, show);
    let mut stage = Stage::new(bench, story);
    stage.story.chapter("Three Services");
    let began = stage
        .step("announced", "each by the node of the formula", async |stage: &mut Stage<'_>| -> Seen {
            stage.apply(HELLO).await?;
            stage.apply(POOL).await?;
            stage.apply(ADVERTISEMENT).await?;
            stage.apply(SERVICES).await?;
            as_by_formula(stage).await
        })
        .await;
    if began {
        nodes::chapter(&mut stage).await;
        selectors::chapter(&mut stage).await;
        interfaces::chapter(&mut stage).await;
        families::chapter(&mut stage).await;
        states::chapter(&mut stage).await;
    }
    stage.story.finish()
}

/// Waits until each Service is announced by the node that the formula gives.
async fn as_by_formula(stage: &Stage<'_>) -> Seen {
    let mut told = Vec::new();
    for address in [SHOP, DATA, MISC] {
        let node = leader(address, &WORKERS).into_iter().collect::<Vec<_>>();
        owned_by(stage, Segment::First, address, &node).await?;
        told.push(format!("{address} {}", names(&node)));
    }
    Ok(told.join(", "))
}

/// A network that client and nodes share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Segment {
    /// 192.168.10.0/24, ens18.
    First,
    /// 192.168.40.0/24, ens19.
    Second,
}

impl Segment {
    const fn interface(self) -> &'static str {
        match self {
            Self::First => Host::Client.interface(),
            Self::Second => SECOND_INTERFACE,
        }
    }

    /// The node's hardware address there.
    fn mac(self, node: Host) -> Option<Mac> {
        match self {
            Self::First => Some(node.mac()),
            Self::Second => node.second().map(|(mac, _)| mac),
        }
    }
}

/// Waits until exactly these nodes answer the client's request for the address on a segment, with their interfaces there.
async fn owned_by(stage: &Stage<'_>, segment: Segment, address: Ipv4Addr, nodes: &[Host]) -> Result<()> {
    let expected: BTreeSet<Mac> = nodes.iter().filter_map(|node| segment.mac(*node)).collect();
    answered_by(stage, segment, address, &expected).await
}

/// Waits until exactly these hardware addresses answer.
async fn answered_by(
    stage: &Stage<'_>,
    segment: Segment,
    address: Ipv4Addr,
    expected: &BTreeSet<Mac>,
) -> Result<()> {
    let namespace = stage.namespace(Host::Client);
    let own = match segment {
        Segment::First => Host::Client.address(),
        Segment::Second => Host::Client.second().map_or(Host::Client.address(), |(_, own)| own),
    };
    eventually(SOON, async || {
        let window = Duration::from_millis(120);
        let seen = wire::ask_on(namespace, (segment.interface(), own), address, window).await?;
        ensure!(seen == *expected, "{address} is answered on {} by {seen:?}", segment.interface());
        Ok(())
    })
    .await
}

/// Changes fields of the advertisement `web`; null takes one away.
async fn advertise(stage: &mut Stage<'_>, spec: Value) -> Result<()> {
    stage.patch(L2_ADVERTISEMENT, SYSTEM, "web", false, json!({"spec": spec})).await
}

fn names(hosts: &[Host]) -> String {
    if hosts.is_empty() {
        return "nobody".to_owned();
    }
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// The manifest of this name in `docs/announcing`.
macro_rules! manifest {
    ($name:literal) => {
        $crate::scenario::stage::Example {
            file: concat!("docs/announcing/", $name),
            yaml: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/announcing/", $name)),
        }
    };
}
use manifest;

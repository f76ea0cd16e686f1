// SPDX-License-Identifier: Apache-2.0
//! The rows of the table: what is asked of every router, and when the answer is good.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::super::cluster::{eventually, text};
use super::super::stage::{SOON, Stage};
use super::makes::{Case, Make};
use super::read::Route;
use super::{Ground, changes, configs};
use crate::bench_handle::DEMO;
use crate::host::Host;

/// A row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Feature {
    Ipv4,
    Ipv6,
    Ebgp,
    Ibgp,
    Multihop,
    Password,
    FourOctet,
    TwoOctet,
    Communities,
    LargeCommunities,
    Bandwidth,
    PasswordChanged,
    Limit,
    MultihopFrr,
}

/// What a router makes of a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cell {
    Yes,
    /// It takes the attribute, and does nothing with it.
    Heard,
    /// It has no such thing, or is not asked for it; our page says why.
    No,
}

impl Cell {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Yes => "✓",
            Self::Heard => "heard",
            Self::No => "–",
        }
    }
}

/// The routes of `demo/shop`.
const V4: &str = "192.168.20.10/32";
const V6: &str = "fd00:20::10/128";

/// What one endpoint is worth in a link bandwidth, in bytes per second.
const ENDPOINT: u32 = 125_000_000;

impl Feature {
    /// Those that are seen in the routes of `demo/shop`.
    pub(super) const OF_ROUTES: [Self; 11] = [
        Self::Ipv4,
        Self::Ipv6,
        Self::Ebgp,
        Self::Ibgp,
        Self::Multihop,
        Self::Password,
        Self::FourOctet,
        Self::TwoOctet,
        Self::Communities,
        Self::LargeCommunities,
        Self::Bandwidth,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Ebgp => "eBGP",
            Self::Ibgp => "iBGP",
            Self::Multihop => "multihop",
            Self::Password => "MD5",
            Self::FourOctet => "4-octet AS",
            Self::TwoOctet => "2-octet peer",
            Self::Communities => "communities",
            Self::LargeCommunities => "large communities",
            Self::Bandwidth => "link bandwidth",
            Self::PasswordChanged => "MD5, changed",
            Self::Limit => "maximum-prefix",
            Self::MultihopFrr => "multihop, type frr",
        }
    }

    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::Ipv4 => "the route, with the node as its next hop",
            Self::Ipv6 => "the route over a session by IPv6, with the node's IPv6 address as its next hop",
            Self::Ebgp => "AS path 64512, no local preference",
            Self::Ibgp => "no AS path, local preference 150",
            Self::Multihop => "the route at a router that is two hops away",
            Self::MultihopFrr => "the same with ebgpMultiHop",
            Self::Password => "the route over a session with a password",
            Self::FourOctet => "AS path 4200000001",
            Self::TwoOctet => "AS_PATH 23456 and AS4_PATH 4200000001 on the wire, a route at the router",
            Self::Communities => "64512:1234",
            Self::LargeCommunities => "64512:1:2",
            Self::Bandwidth => "1 Gbit/s for each Pod on the node; FRR's kernel weighs by it",
            Self::PasswordChanged => {
                "no route once the router alone has another password, and again with the Secret"
            }
            Self::Limit => "Cease/1 in the BGPSession, few attempts, and the route again within the limit",
        }
    }

    /// What was seen, where all is well.
    pub(super) const fn seen(self) -> &'static str {
        match self {
            Self::Ipv4 => "192.168.20.10/32 by 192.168.10.20",
            Self::Ipv6 => "fd00:20::10/128 by fd00:10::20",
            Self::Ebgp => "AS path 64512, no local preference",
            Self::Ibgp => "no AS path, local preference 150",
            Self::Multihop | Self::MultihopFrr => {
                "192.168.20.10/32 at 192.168.30.10 to .13, behind the router"
            }
            Self::Password => "192.168.20.10/32 over a session with the password of a Secret",
            Self::FourOctet => "AS path 4200000001 at AS 4200000002",
            Self::TwoOctet => "AS_PATH 23456 and AS4_PATH 4200000001 are said",
            Self::Communities => "64512:1234",
            Self::LargeCommunities => "64512:1:2",
            Self::Bandwidth => "1 Gbit/s for each Pod on the node; FRR's kernel weighs the nodes by it",
            Self::PasswordChanged => {
                "no route while the router alone has the other password, and again with the Secret"
            }
            Self::Limit => {
                "the BGPSession says Cease, Maximum Number of Prefixes Reached; at most one attempt a second; \
                 the route again within the limit"
            }
        }
    }

    /// The case that shows it.
    pub(super) const fn case(self) -> Case {
        match self {
            Self::Ipv4 | Self::Ebgp | Self::Communities | Self::LargeCommunities | Self::Bandwidth => {
                Case::Ebgp
            }
            Self::Ipv6 => Case::Ipv6,
            Self::Ibgp => Case::Ibgp,
            Self::Multihop | Self::MultihopFrr => Case::Multihop,
            Self::Password | Self::PasswordChanged => Case::Password,
            Self::FourOctet => Case::FourOctet,
            Self::TwoOctet => Case::TwoOctet,
            Self::Limit => Case::Limit,
        }
    }

    /// Whether a router has it.
    pub(super) fn is_of(self, make: Make) -> bool {
        // ExaBGP is for what is said, not for what an operator does.
        make.serves(self.case()) && (self, make) != (Self::PasswordChanged, Make::ExaBgp)
    }

    /// Whether a route is as it should be.
    fn judge(self, route: &Route) -> Result<()> {
        let node = self.case().address_of(Host::Node1);
        let good = route.next_hop == Some(node)
            && match self {
                Self::Ebgp => route.as_path == [64_512] && route.local_pref != Some(150),
                Self::Ibgp => route.as_path.is_empty() && route.local_pref == Some(150),
                Self::FourOctet => route.as_path == [Case::FourOctet.node_as()],
                // Some put AS4_PATH in its place.
                Self::TwoOctet => {
                    let numbers = [configs::AS_TRANS, Case::TwoOctet.node_as()];
                    matches!(route.as_path[..], [only] if numbers.contains(&only))
                }
                Self::Communities => route.communities == ["64512:1234"],
                Self::LargeCommunities => route.large_communities == ["64512:1:2"],
                _ => true,
            };
        ensure!(good, "{route:?}");
        Ok(())
    }
}

/// Asks a router.
pub(super) async fn cell(stage: &Stage<'_>, ground: &Ground, feature: Feature, make: Make) -> Result<Cell> {
    if !feature.is_of(make) {
        return Ok(Cell::No);
    }
    match feature {
        Feature::PasswordChanged => changes::password(ground, make).await,
        Feature::Limit => changes::limit(stage, ground, make).await,
        Feature::Bandwidth => bandwidth(stage, ground, make).await,
        _ => {
            route(ground, feature, make).await?;
            if feature == Feature::TwoOctet {
                two_octets(ground, make)?;
            }
            Ok(Cell::Yes)
        }
    }
}

/// Waits until a router has the route of k8s-node-1, and it is as it should be.
pub(super) async fn route(ground: &Ground, feature: Feature, make: Make) -> Result<()> {
    let router = ground.router(make, feature.case())?;
    eventually(SOON * 2, async || {
        let route = router.route(Host::Node1, prefix(feature)).await?;
        feature.judge(&route.context("it has no route")?)
    })
    .await
}

/// The route that shows a feature.
pub(super) const fn prefix(feature: Feature) -> &'static str {
    match feature {
        Feature::Ipv6 => V6,
        _ => V4,
    }
}

/// Sees that the path was said twice, in two octets and in four (RFC 6793, section 4.2.2).
fn two_octets(ground: &Ground, make: Make) -> Result<()> {
    // Flags vary; type, length, AS_SEQUENCE, one number.
    let as_path = [2, 4, 2, 1, 0x5b, 0xa0];
    let as4_path = [17, 6, 2, 1, 0xfa, 0x56, 0xea, 0x01];
    let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    let said = ground.wire.of(Host::Node1.address().into(), 0);
    let found = said
        .iter()
        .filter(|said| said.to == Case::TwoOctet.address(make))
        .any(|said| has(&said.bytes, &as_path) && has(&said.bytes, &as4_path));
    ensure!(found, "no UPDATE to it has both paths");
    Ok(())
}

/// Sees that a router was told of the Pods on each node; FRR's kernel sends as many connections to each.
async fn bandwidth(stage: &Stage<'_>, ground: &Ground, make: Make) -> Result<Cell> {
    let router = ground.router(make, Case::Ebgp)?;
    let mut pods: BTreeMap<Host, u32> = BTreeMap::new();
    for pod in stage.bench.pods(DEMO, "hello").await? {
        *pods.entry(pod.node.context("a Pod on no node")?).or_default() += 1;
    }
    ensure!(pods.keys().eq(Case::Ebgp.nodes()), "Pods on {pods:?}");
    eventually(SOON * 2, async || {
        for (node, count) in &pods {
            let route = router.route(*node, V4).await?.with_context(|| format!("no route of {node}"))?;
            ensure!(route.bandwidth == Some(count * ENDPOINT), "{count} Pods on {node}: {route:?}");
        }
        if make == Make::Frr {
            let weights = weights(stage).await?;
            let [(one, a), (other, b)] = [Host::Node1, Host::Node2].map(|node| {
                (
                    pods.get(&node).copied().unwrap_or_default(),
                    weights.get(&node).copied().unwrap_or_default(),
                )
            });
            // It makes percents of them, rounded.
            let (left, right) = (f64::from(a) * f64::from(other), f64::from(b) * f64::from(one));
            ensure!(left > 0.0 && (left / right - 1.0).abs() < 0.1, "the kernel's weights are {weights:?}");
        }
        Ok(())
    })
    .await?;
    Ok(if make == Make::Frr { Cell::Yes } else { Cell::Heard })
}

/// How the router's kernel weighs the nodes.
async fn weights(stage: &Stage<'_>) -> Result<BTreeMap<Host, u32>> {
    let said =
        stage.on_host(Host::Router, &["ip", "-j", "-4", "route", "show", "exact", V4]).await?.success()?;
    let routes: Value = serde_json::from_str(said.trim()).unwrap_or_default();
    let hops = routes.pointer("/0/nexthops").and_then(Value::as_array);
    let mut weights = BTreeMap::new();
    for hop in hops.into_iter().flatten() {
        let gateway = text(hop, "/gateway").parse()?;
        let weight = hop["weight"].as_u64().and_then(|weight| u32::try_from(weight).ok());
        weights.insert(super::super::routing::host_of(gateway)?, weight.unwrap_or(1));
    }
    Ok(weights)
}

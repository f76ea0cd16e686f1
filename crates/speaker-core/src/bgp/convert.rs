// SPDX-License-Identifier: Apache-2.0
//! From the configuration's words to the engine's.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ferrolb_announce::bgp::BgpRoute;
use ferrolb_bgp::wire::{
    Capability, Community, ExtendedCommunity, Families, HoldTime, LargeCommunity, RouterId,
};
use ferrolb_bgp::{Route, Settings};
use ferrolb_config::{BgpCapability, BgpCommunity, BgpDefaults, BgpPeer, LinkBandwidth, PeerAs};
use ferrolb_net_types::{Asn, IpFamily, NodeName};

use super::weights::weight;
use super::{Hops, PeerPlan};

/// What one endpoint is worth, in bytes per second: 1 Gbit/s. Only the proportions matter.
const ENDPOINT_BANDWIDTH: f32 = 125_000_000.0;

/// How to speak with a peer from this node.
pub(super) fn plan(peer: &BgpPeer, node: &NodeName) -> PeerPlan {
    PeerPlan {
        settings: settings(peer, node),
        remote: SocketAddr::new(peer.address, peer.port),
        source: peer.source,
        password: peer.password.clone(),
        hops: hops(peer),
        router_id: peer.router_id.and_then(RouterId::new),
    }
}

/// The own autonomous system as the peer sees it.
fn own_asn(peer: &BgpPeer) -> Asn {
    peer.local_asn.unwrap_or(peer.my_asn)
}

fn settings(peer: &BgpPeer, node: &NodeName) -> Settings {
    let remote = match peer.peer_as {
        PeerAs::Exactly(asn) => ferrolb_bgp::PeerAs::Exactly(asn),
        PeerAs::Internal => ferrolb_bgp::PeerAs::Internal,
        PeerAs::External => ferrolb_bgp::PeerAs::External,
    };
    let families = match peer.both_families {
        true => Families::BOTH,
        false => Families::NONE.with(IpFamily::of(peer.address)),
    };
    let defaults = match peer.defaults {
        BgpDefaults::Native => Settings { families, ..Settings::native(own_asn(peer), remote) },
        BgpDefaults::Frr => Settings::frr(own_asn(peer), remote, families),
    };
    Settings {
        hold_time: peer.hold_seconds.and_then(HoldTime::seconds).unwrap_or(defaults.hold_time),
        keepalive: peer.keepalive.or(defaults.keepalive),
        retry_at_most: peer.connect_time.unwrap_or(defaults.retry_at_most),
        max_prefixes: peer.max_prefixes,
        capabilities: peer.capabilities.iter().map(|one| capability(*one, node)).collect(),
        ..defaults
    }
}

fn capability(capability: BgpCapability, node: &NodeName) -> Capability {
    match capability {
        BgpCapability::RouteRefresh => Capability::RouteRefresh,
        BgpCapability::Fqdn => Capability::fqdn(node.as_str()),
    }
}

fn hops(peer: &BgpPeer) -> Hops {
    let internal = match peer.peer_as {
        PeerAs::Exactly(asn) => asn == own_asn(peer),
        PeerAs::Internal => true,
        PeerAs::External => false,
    };
    match (peer.gtsm_hops, peer.defaults) {
        (Some(hops), _) => Hops::Gtsm(hops),
        (None, BgpDefaults::Native) => Hops::Unlimited,
        (None, BgpDefaults::Frr) if internal || peer.multihop => Hops::Multihop,
        (None, BgpDefaults::Frr) => Hops::Direct,
    }
}

/// What the peer is told, of what it is to be told.
pub(super) fn route(route: &BgpRoute, peer: &BgpPeer) -> Route {
    let mut communities = BTreeSet::new();
    let mut large_communities = BTreeSet::new();
    for community in &route.communities {
        match *community {
            BgpCommunity::Standard(high, low) => {
                communities.insert(Community::new(high, low));
            }
            BgpCommunity::Large(global, local1, local2) => {
                large_communities.insert(LargeCommunity { global, local1, local2 });
            }
        }
    }
    let bandwidth = peer.link_bandwidth.zip(route.endpoints).map(|(form, endpoints)| {
        let bandwidth = f32::from(weight(endpoints)) * ENDPOINT_BANDWIDTH;
        ExtendedCommunity::link_bandwidth(own_asn(peer), bandwidth, form == LinkBandwidth::Transitive)
    });
    Route {
        local_pref: route.local_pref,
        communities,
        large_communities,
        extended_communities: bandwidth.into_iter().collect(),
    }
}

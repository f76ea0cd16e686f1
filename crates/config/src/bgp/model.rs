// SPDX-License-Identifier: Apache-2.0
//! What BGP objects come to: sessions to keep, and what pools are announced with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ferrolb_net_types::{Asn, IpFamily, NodeName, PeerName, PoolName, Prefix};

use crate::{BgpCommunity, Labels, Password, Selector};

/// Everything that the BGP objects say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bgp {
    /// The sessions that the own node is to keep; where there is no own node, those of any.
    pub peers: BTreeMap<PeerName, Arc<BgpPeer>>,
    /// The advertisements attached to each pool, in order of their names. Those that no node of interest has to do with
    /// are left out.
    pub advertisements: BTreeMap<PoolName, Vec<Arc<BgpAdvertisement>>>,
}

/// A BGPPeer: with whom to speak, and how. What is not set follows the type of BGP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BgpPeer {
    /// Whose defaults hold.
    pub defaults: BgpDefaults,
    /// `myASN`.
    pub my_asn: Asn,
    /// `localASN`: the own autonomous system, as this peer is to see it, in place of `my_asn`.
    pub local_asn: Option<Asn>,
    /// What the peer's autonomous system has to be.
    pub peer_as: PeerAs,
    /// Where to connect to.
    pub address: IpAddr,
    /// The port there.
    pub port: u16,
    /// The address to connect from.
    pub source: Option<IpAddr>,
    /// The BGP Identifier. Never 0.0.0.0.
    pub router_id: Option<Ipv4Addr>,
    /// The hold time to propose, in seconds: 0, or 3 to 65,535.
    pub hold_seconds: Option<u16>,
    /// How often to send a KEEPALIVE.
    pub keepalive: Option<Duration>,
    /// How long to wait between attempts to connect, at most. At least a second.
    pub connect_time: Option<Duration>,
    /// The password of the connection.
    pub password: Option<Password>,
    /// `ebgpMultiHop`: it may be several hops away.
    pub multihop: bool,
    /// It has to be within so many hops, from 1 on (RFC 5082); no limit if `None`.
    pub gtsm_hops: Option<u8>,
    /// Routes of both families are told, not only those of the family of `address`.
    pub both_families: bool,
    /// How many prefixes of each family are told at most.
    pub max_prefixes: Option<usize>,
    /// Routes say how many endpoints lie behind them.
    pub link_bandwidth: Option<LinkBandwidth>,
    /// What the OPEN offers beside MetalLB's capabilities.
    pub capabilities: BTreeSet<BgpCapability>,
}

/// A capability that an OPEN may offer beside those that MetalLB's does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BgpCapability {
    /// The peer may ask for everything anew (RFC 2918). It is answered even if this is not offered.
    RouteRefresh,
    /// The node's name, for the peer to show beside its address (draft-walton-bgp-hostname-capability).
    Fqdn,
}

/// The implementation of BGP in MetalLB whose defaults hold for what is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BgpDefaults {
    /// Native.
    Native,
    /// FRR's.
    Frr,
}

/// What the peer's autonomous system has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAs {
    /// This one.
    Exactly(Asn),
    /// The own one.
    Internal,
    /// Any but the own one.
    External,
}

/// In which form routes say how much traffic they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkBandwidth {
    /// As draft-ietf-idr-link-bandwidth has it: meant for the neighbour alone.
    NonTransitive,
    /// The form for routers that drop the other one.
    Transitive,
}

impl BgpPeer {
    /// Whether routes of the family are for this peer.
    pub fn takes(&self, family: IpFamily) -> bool {
        self.both_families || IpFamily::of(self.address) == family
    }

    /// Why the two cannot have a session each on one node.
    pub(crate) fn collides_with(&self, other: &Self) -> bool {
        match self.defaults {
            // One router cannot tell two sessions apart that come from one address.
            BgpDefaults::Native => {
                (self.address, self.port, self.source) == (other.address, other.port, other.source)
            }
            // One process of FRR has one identifier, one autonomous system, and one session per address.
            BgpDefaults::Frr => {
                self.address == other.address
                    || self.router_id != other.router_id
                    || self.my_asn != other.my_asn
            }
        }
    }
}

/// A BGPAdvertisement, resolved against the nodes that exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BgpAdvertisement {
    /// The object's name.
    pub name: Arc<str>,
    /// The nodes that announce.
    pub nodes: BTreeSet<NodeName>,
    /// The length of the prefix that is announced for an IPv4 address.
    pub aggregation_v4: u8,
    /// The length of the prefix that is announced for an IPv6 address.
    pub aggregation_v6: u8,
    /// LOCAL_PREF; `None` for what the type of BGP has where nothing is said.
    pub local_pref: Option<u32>,
    /// Communities.
    pub communities: BTreeSet<BgpCommunity>,
    /// The peers that are told; `None` for all. Some may not exist.
    pub peers: Option<BTreeSet<PeerName>>,
    /// Only Services that match one of these; empty means every Service of the pool.
    pub service_selectors: Vec<Selector>,
}

impl BgpAdvertisement {
    /// Whether the advertisement is for a Service with these labels.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.service_selectors.is_empty() || self.service_selectors.iter().any(|s| s.matches(labels))
    }

    /// Whether the peer is told.
    pub fn is_for(&self, peer: &PeerName) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.contains(peer))
    }

    /// What is announced for an address.
    pub fn prefix(&self, ip: IpAddr) -> Prefix {
        let length = match IpFamily::of(ip) {
            IpFamily::V4 => self.aggregation_v4,
            IpFamily::V6 => self.aggregation_v6,
        };
        // Built with lengths that their family has.
        Prefix::new(ip, length).unwrap_or_else(|| Prefix::host(ip))
    }
}

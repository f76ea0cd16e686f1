// SPDX-License-Identifier: Apache-2.0
//! The plan of one node: every Service decided, every prefix with what announces it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_config::{BgpAdvertisement, BgpPeer, Pool};
use ferrolb_net_types::{IpFamily, PeerName, PoolName, Prefix, ServiceKey};

use super::route::{Share, Shares};
use super::{BgpReason, BgpRoute};
use crate::inputs::{Counts, Inputs, Service};
use crate::plan::check;

/// What one node announces by BGP, and why not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BgpPlan {
    /// Every Service that exists.
    pub services: BTreeMap<ServiceKey, Arc<BgpServicePlan>>,
    prefixes: BTreeMap<Prefix, Shares>,
}

/// What is announced of a Service, or why nothing.
pub type BgpServicePlan = Result<BgpOffer, BgpReason>;

/// A Service that this node announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BgpOffer {
    /// Its addresses in the order of its status.
    pub ips: Vec<IpAddr>,
    /// The pool that holds them.
    pub pool: PoolName,
    /// The advertisements by which it is announced, in order of their names.
    pub advertisements: Vec<Arc<BgpAdvertisement>>,
    /// How many endpoints serve on the node, if no others count.
    pub endpoints: Option<Counts>,
}

impl BgpOffer {
    /// The prefixes by which the peer is told of the Service, once there is a session. Some may come twice.
    pub fn prefixes_for<'a>(&'a self, name: &'a PeerName, peer: &'a BgpPeer) -> impl Iterator<Item = Prefix> {
        let advertisements = self.advertisements.iter().filter(|advertisement| advertisement.is_for(name));
        let ips = || self.ips.iter().filter(|ip| peer.takes(IpFamily::of(**ip)));
        advertisements.flat_map(move |advertisement| ips().map(|ip| advertisement.prefix(*ip)))
    }

    /// What it does for each of its prefixes.
    fn shares(&self) -> BTreeMap<Prefix, Share> {
        let mut shares: BTreeMap<Prefix, Share> = BTreeMap::new();
        for advertisement in &self.advertisements {
            let prefixes: BTreeSet<Prefix> = self.ips.iter().map(|ip| advertisement.prefix(*ip)).collect();
            for prefix in prefixes {
                let endpoints = self.endpoints.map(|counts| counts.of(prefix.family()));
                let none = || Share { advertisements: Vec::new(), endpoints };
                shares.entry(prefix).or_insert_with(none).advertisements.push(Arc::clone(advertisement));
            }
        }
        shares
    }
}

impl BgpPlan {
    /// Decides these Services anew, which came, changed or went, and nothing else. Returns the prefixes of which
    /// something may be told that was not before.
    ///
    /// When anything but Services changed, all of them are to be passed.
    pub fn replan<'k>(
        &mut self,
        inputs: &Inputs<'_>,
        changed: impl IntoIterator<Item = &'k ServiceKey>,
    ) -> BTreeSet<Prefix> {
        let mut touched = BTreeSet::new();
        for key in changed {
            let new = inputs.services.get(key).map(|service| decide(inputs, service));
            let old = self.services.get(key).map(Arc::clone);
            if old.as_deref() == new.as_ref() {
                continue;
            }
            if let Some(Ok(offer)) = old.as_deref() {
                for (prefix, share) in offer.shares() {
                    touched.insert(prefix);
                    if let Some(shares) = self.prefixes.get_mut(&prefix) {
                        shares.remove(&share);
                    }
                }
            }
            if let Some(Ok(offer)) = &new {
                for (prefix, share) in offer.shares() {
                    touched.insert(prefix);
                    self.prefixes.entry(prefix).or_default().add(share);
                }
            }
            match new {
                Some(new) => self.services.insert(key.clone(), Arc::new(new)),
                None => self.services.remove(key),
            };
        }
        for prefix in &touched {
            if self.prefixes.get(prefix).is_some_and(Shares::is_empty) {
                self.prefixes.remove(prefix);
            }
        }
        touched
    }

    /// Every prefix that is announced to anybody.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.prefixes.keys().copied()
    }

    /// What the peer is to be told of the prefix; `None`: nothing.
    pub fn route(&self, name: &PeerName, peer: &BgpPeer, prefix: Prefix) -> Option<BgpRoute> {
        self.prefixes.get(&prefix).filter(|_| peer.takes(prefix.family()))?.route(name)
    }

    /// The Services that one of these prefixes is announced for.
    pub fn services_of(&self, prefixes: &BTreeSet<Prefix>) -> impl Iterator<Item = &ServiceKey> {
        let is_one = |offer: &BgpOffer| {
            let mut all =
                offer.advertisements.iter().flat_map(|one| offer.ips.iter().map(|ip| one.prefix(*ip)));
            all.any(|prefix| prefixes.contains(&prefix))
        };
        let offers = self.services.iter().filter(move |(_, plan)| plan.as_ref().as_ref().is_ok_and(is_one));
        offers.map(|(service, _)| service)
    }

    /// The peers of those that are told of the Service, by one of the prefixes that are told to them.
    pub fn peers_of<'p>(
        &self,
        service: &ServiceKey,
        peers: &'p BTreeMap<PeerName, Arc<BgpPeer>>,
        is_told: impl Fn(&PeerName, Prefix) -> bool,
    ) -> BTreeSet<&'p PeerName> {
        let Some(Ok(offer)) = self.services.get(service).map(Arc::as_ref) else { return BTreeSet::new() };
        let hears = |name, peer| offer.prefixes_for(name, peer).any(|prefix| is_told(name, prefix));
        peers.iter().filter(|(name, peer)| hears(name, peer)).map(|(name, _)| name).collect()
    }
}

fn decide(inputs: &Inputs<'_>, service: &Service) -> BgpServicePlan {
    let (ips, pool) = check(inputs, service).map_err(BgpReason::Service)?;
    let advertisements = advertisements(inputs, service, pool)?;
    let node = inputs.node;
    let state = inputs.nodes.get(node).copied().unwrap_or_default();
    if state.network_unavailable {
        return Err(BgpReason::NodeNetworkUnavailable(node.clone()));
    }
    if state.excluded && !inputs.settings.ignore_exclude_lb {
        return Err(BgpReason::NodeExcluded(node.clone()));
    }
    if service.local && !service.endpoints.nodes.contains(node) {
        return Err(BgpReason::NoLocalEndpoint(node.clone()));
    }
    if !service.endpoints.any {
        return Err(BgpReason::NoEndpoint);
    }
    let endpoints = service.local.then(|| service.endpoints.counts.get(node).copied().unwrap_or_default());
    Ok(BgpOffer { ips, pool: pool.name.clone(), advertisements, endpoints })
}

/// The advertisements by which this node announces the Service.
fn advertisements(
    inputs: &Inputs<'_>,
    service: &Service,
    pool: &Pool,
) -> Result<Vec<Arc<BgpAdvertisement>>, BgpReason> {
    let (pool_name, node) = (&pool.name, inputs.node);
    let of_pool = inputs.config.bgp.advertisements.get(pool_name).into_iter().flatten();
    let mut of_node = of_pool.filter(|advertisement| advertisement.nodes.contains(node)).peekable();
    if of_node.peek().is_none() {
        return Err(BgpReason::NotAdvertised { pool: pool_name.clone(), node: node.clone() });
    }
    let matching: Vec<_> =
        of_node.filter(|advertisement| advertisement.selects(&service.labels)).cloned().collect();
    if matching.is_empty() {
        return Err(BgpReason::NoMatchingAdvertisement { pool: pool_name.clone(), node: node.clone() });
    }
    let preference = |ad: &BgpAdvertisement| (Arc::clone(&ad.name), ad.local_pref.unwrap_or(0));
    for (i, one) in matching.iter().enumerate() {
        if let Some(other) = matching[i + 1..].iter().find(|other| conflict(one, other, pool)) {
            return Err(BgpReason::Conflicting { one: preference(one), other: preference(other) });
        }
    }
    Ok(matching)
}

/// Whether the two want different local preferences of one route to one peer.
fn conflict(one: &BgpAdvertisement, other: &BgpAdvertisement, pool: &Pool) -> bool {
    let same_peers = match (&one.peers, &other.peers) {
        (Some(a), Some(b)) => !a.is_disjoint(b),
        _ => true,
    };
    let same_route = (pool.has(IpFamily::V4) && one.aggregation_v4 == other.aggregation_v4)
        || (pool.has(IpFamily::V6) && one.aggregation_v6 == other.aggregation_v6);
    one.local_pref != other.local_pref && same_peers && same_route
}

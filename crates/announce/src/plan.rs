// SPDX-License-Identifier: Apache-2.0
//! The plan of one node: every Service decided, every address with its candidates.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_config::{L2Advertisement, Pool};
use ferrolb_net_types::{Interfaces, NodeName, PoolName, ServiceKey};

use crate::election::order;
use crate::inputs::{Ingress, Inputs, Service, handles_class};
use crate::sharing::join;
use crate::{AddressPlans, Members, Reason, Standing, metallb, owner};

/// What one node announces or could announce, and why not.
///
/// Parts that a change does not concern stay the very same allocation, so that comparing two plans by pointer
/// finds what is new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePlan {
    /// Every Service that exists.
    pub services: BTreeMap<ServiceKey, Arc<ServicePlan>>,
    /// Every address that a Service with an [`Offer`] holds.
    pub addresses: AddressPlans,
    /// The holders of each address by age.
    holders: BTreeMap<IpAddr, BTreeSet<(i64, ServiceKey)>>,
}

/// What can be announced of a Service, or why no node announces it.
pub type ServicePlan = Result<Offer, Reason>;

/// A Service that passed every check that does not depend on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its addresses in the order of its status. The first decides the election for all of them.
    pub ips: Vec<IpAddr>,
    /// The pool that holds them.
    pub pool: PoolName,
    /// The nodes that can announce the Service, by order of election. May be empty.
    pub candidates: Arc<[NodeName]>,
    /// The same nodes in MetalLB's order, which knows no preferences; `None` if its speakers announce the Service
    /// nowhere, since they stumble over an entry of its status.
    pub metallb: Option<Arc<[NodeName]>>,
    /// Where the own node announces it, if it is a candidate: the advertisements' interfaces together.
    pub interfaces: Interfaces,
    /// Whether the own node is a candidate, or why not.
    pub here: Result<(), Reason>,
    /// The Service's age, which ranks those that share an address.
    pub(crate) created: i64,
}

impl Offer {
    /// Whether the one comes before the other in the Service's order of election.
    fn prefers(&self, one: &NodeName, other: &NodeName) -> bool {
        self.candidates.iter().find(|node| [one, other].contains(node)) == Some(one)
    }
}

/// The whole plan.
pub fn plan(inputs: &Inputs<'_>) -> NodePlan {
    let mut plan = NodePlan::default();
    plan.replan(inputs, inputs.services.keys());
    plan
}

/// Why the node cannot announce the Service at all; `None` if it is a candidate.
pub fn why_no_candidate(inputs: &Inputs<'_>, service: &ServiceKey, node: &NodeName) -> Option<Reason> {
    let found = inputs.services.get(service).ok_or(Reason::ServiceDeleted);
    found
        .and_then(|service| {
            let (_, pool) = check(inputs, service)?;
            candidate(inputs, service, pool, node)
        })
        .err()
}

impl NodePlan {
    /// Decides these Services anew, which came, changed or went, and nothing else. Returns the addresses whose
    /// plan changed.
    ///
    /// When anything but Services changed, all of them are to be passed.
    pub fn replan<'k>(
        &mut self,
        inputs: &Inputs<'_>,
        changed: impl IntoIterator<Item = &'k ServiceKey>,
    ) -> BTreeSet<IpAddr> {
        let mut touched = BTreeSet::new();
        for key in changed {
            let new = inputs.services.get(key).map(|service| decide(inputs, service));
            let old = self.services.get(key).map(Arc::as_ref);
            if old == new.as_ref() {
                continue;
            }
            if let Some(Ok(offer)) = old {
                for ip in &offer.ips {
                    touched.insert(*ip);
                    if let Some(holders) = self.holders.get_mut(ip) {
                        holders.remove(&(offer.created, key.clone()));
                    }
                }
            }
            if let Some(Ok(offer)) = &new {
                for ip in &offer.ips {
                    touched.insert(*ip);
                    self.holders.entry(*ip).or_default().insert((offer.created, key.clone()));
                }
            }
            match new {
                Some(new) => self.services.insert(key.clone(), Arc::new(new)),
                None => self.services.remove(key),
            };
        }
        touched.retain(|ip| self.rejoin(*ip));
        touched
    }

    /// The addresses that this node announces for the Service, given who lives; or why none.
    pub fn verdict(
        &self,
        node: &NodeName,
        service: &ServiceKey,
        members: &Members,
    ) -> Result<BTreeSet<IpAddr>, Reason> {
        let plan = self.services.get(service).ok_or(Reason::ServiceDeleted)?;
        let offer = plan.as_ref().as_ref().map_err(Clone::clone)?;
        offer.here.clone()?;
        let mut first = None;
        let mut ours = BTreeSet::new();
        for ip in &offer.ips {
            let leader = self.addresses.get(ip).and_then(|address| owner(address, members));
            if leader == Some(node) {
                ours.insert(*ip);
            }
            first = first.or(leader);
        }
        let Some(leader) = first else {
            // The own node is a candidate, so somebody leads unless the members leave the own node out.
            return Err(Reason::NotEligible);
        };
        if !ours.is_empty() {
            return Ok(ours);
        }
        Err(match (members.standing(node), members.standing(leader)) {
            (_, Some(Standing::Metallb)) => Reason::LedByMetallb(leader.clone()),
            (None, _) => Reason::NotEligible,
            (Some(Standing::Stale), Some(Standing::Ours)) if offer.prefers(node, leader) => {
                Reason::ViewStale(leader.clone())
            }
            _ => Reason::Outranked(leader.clone()),
        })
    }

    /// Joins the holders of an address anew; whether that changed its plan.
    fn rejoin(&mut self, ip: IpAddr) -> bool {
        let keys = self.holders.get(&ip);
        let holders: Vec<_> = keys
            .into_iter()
            .flatten()
            .filter_map(|(_, key)| Some((key, self.services.get(key)?.as_ref().as_ref().ok()?)))
            .collect();
        let new = join(&holders);
        if self.addresses.get(&ip).map(Arc::as_ref) == new.as_ref() {
            return false;
        }
        match new {
            Some(new) => self.addresses.insert(ip, Arc::new(new)),
            None => {
                self.holders.remove(&ip);
                self.addresses.remove(&ip)
            }
        };
        true
    }
}

fn decide(inputs: &Inputs<'_>, service: &Service) -> ServicePlan {
    let (ips, pool) = check(inputs, service)?;
    let advertisements = || pool.l2_advertisements.iter().filter(|ad| ad.selects(&service.labels));
    let mut eligible = BTreeMap::new();
    for node in advertisements().flat_map(|ad| &ad.nodes) {
        if !eligible.contains_key(node) && candidate(inputs, service, pool, node).is_ok() {
            eligible.insert(node, weight(advertisements(), node));
        }
    }
    // `check` refuses an empty list.
    let first = ips.first().copied().ok_or(Reason::NoIpAllocated)?;
    let interfaces = advertisements()
        .filter(|ad| ad.nodes.contains(inputs.node))
        .fold(Interfaces::Named([].into()), |all, ad| all.union(&ad.interfaces));
    let by_hash: Arc<[NodeName]> = order(eligible.keys().map(|node| (*node, 0)).collect(), first).into();
    let preferring = eligible.values().any(|weight| *weight != 0);
    Ok(Offer {
        pool: pool.name.clone(),
        candidates: if preferring { order(eligible, first).into() } else { by_hash.clone() },
        metallb: metallb::addresses(service).is_ok().then_some(by_hash),
        interfaces,
        here: candidate(inputs, service, pool, inputs.node),
        created: service.created,
        ips,
    })
}

/// The checks that give the same on every node.
pub(crate) fn check<'a>(inputs: &Inputs<'a>, service: &Service) -> Result<(Vec<IpAddr>, &'a Pool), Reason> {
    if !service.load_balancer {
        return Err(Reason::NotLoadBalancer);
    }
    let ours = &inputs.settings.lb_class;
    if !handles_class(service.class.as_deref(), ours.as_deref()) {
        return Err(Reason::ForeignClass { service: service.class.clone(), ours: ours.clone() });
    }
    let mut ips = Vec::new();
    for entry in &service.ingress {
        match entry {
            Ingress::Ip(ip) if ips.contains(ip) => {}
            Ingress::Ip(ip) => ips.push(*ip),
            Ingress::Hostname(_) => {}
            Ingress::Invalid(text) => return Err(Reason::InvalidIp(text.clone())),
        }
    }
    if ips.is_empty() {
        return Err(Reason::NoIpAllocated);
    }
    match inputs.config.pool_of_all(&ips) {
        Some(pool) => Ok((ips, pool)),
        None => Err(Reason::IpNotAllowed { ips, pools_incomplete: inputs.config.pools_incomplete }),
    }
}

/// Whether the node may announce a Service that passed [`check`]; the first reason in MetalLB's order if not.
fn candidate(inputs: &Inputs<'_>, service: &Service, pool: &Pool, node: &NodeName) -> Result<(), Reason> {
    if !service.endpoints.any {
        return Err(Reason::NoServingEndpoint);
    }
    let advertised = |ad: &Arc<L2Advertisement>| ad.nodes.contains(node) && ad.selects(&service.labels);
    if !pool.l2_advertisements.iter().any(advertised) {
        return Err(Reason::NoMatchingAdvertisement { pool: pool.name.clone(), node: node.clone() });
    }
    let state = inputs.nodes.get(node).copied().unwrap_or_default();
    if state.network_unavailable {
        return Err(Reason::NodeNetworkUnavailable(node.clone()));
    }
    if state.excluded && !inputs.settings.ignore_exclude_lb {
        return Err(Reason::NodeExcluded(node.clone()));
    }
    if service.local && !service.endpoints.nodes.contains(node) {
        return Err(Reason::NoLocalEndpoint(node.clone()));
    }
    Ok(())
}

/// How much the advertisements that are for the node prefer it, together.
fn weight<'a>(advertisements: impl Iterator<Item = &'a Arc<L2Advertisement>>, node: &NodeName) -> u32 {
    advertisements
        .filter(|ad| ad.nodes.contains(node))
        .filter_map(|ad| ad.preferences.get(node))
        .fold(0, |sum, weight| sum.saturating_add(*weight))
}

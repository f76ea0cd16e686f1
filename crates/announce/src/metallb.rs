// SPDX-License-Identifier: Apache-2.0
//! The rule of MetalLB v0.16.1, to the letter: what one of its speakers decides about a Service.
//!
//! It elects one leader per Service, for all its addresses: of the usable members the one whose digest of
//! `node#first address` is least. It knows no preferences, does not ask whether the leader has the interfaces that
//! advertisements name, and takes no notice of other Services that hold the same address. [`owner`](crate::owner)
//! leaves to a MetalLB speaker what this rule gives it; a stand-in for such a speaker decides by it alone.

use std::net::IpAddr;

use ferrolb_config::Pool;
use ferrolb_net_types::NodeName;

use crate::election::digest;
use crate::inputs::{Ingress, Inputs, Service, handles_class};
use crate::{Members, Reason};

/// What a MetalLB speaker on `inputs.node` does about the Service while these members live: `Ok` if it announces
/// all the Service's addresses.
///
/// [`Members::EveryNode`] is memberlist switched off: every node of `inputs.nodes` counts. Of a Service that
/// belongs to another class ([`Reason::ForeignClass`]) such a speaker takes no notice: it goes on with what it did
/// before.
pub fn verdict(inputs: &Inputs<'_>, service: &Service, members: &Members) -> Result<(), Reason> {
    let (_, pool) = admit(inputs, service)?;
    if !service.endpoints.any {
        return Err(Reason::NoServingEndpoint);
    }
    if !advertised(service, pool, inputs.node) {
        return Err(Reason::NoMatchingAdvertisement { pool: pool.name.clone(), node: inputs.node.clone() });
    }
    match leader(inputs, service, members) {
        Some(leader) if leader == inputs.node => Ok(()),
        Some(leader) => Err(Reason::Outranked(leader.clone())),
        None => usable(inputs, service, pool, inputs.node).and(Err(Reason::NotEligible)),
    }
}

/// The member that leads the Service, if any can.
pub fn leader<'a>(inputs: &Inputs<'a>, service: &Service, members: &'a Members) -> Option<&'a NodeName> {
    let (first, pool) = admit(inputs, service).ok()?;
    if !service.endpoints.any {
        return None;
    }
    let of_all = inputs.nodes.keys().filter(|_| matches!(members, Members::EveryNode));
    let of_known = match members {
        Members::Known(members) => Some(members.keys()),
        Members::EveryNode => None,
    };
    of_all
        .chain(of_known.into_iter().flatten())
        .filter(|node| usable(inputs, service, pool, node).is_ok())
        .min_by_key(|node| digest(node, first))
}

/// The Service's addresses. Any entry without an address, a host name included, spoils them all.
pub(crate) fn addresses(service: &Service) -> Result<Vec<IpAddr>, Reason> {
    let address = |entry: &Ingress| match entry {
        Ingress::Ip(ip) => Ok(*ip),
        Ingress::Hostname(_) => Err(Reason::InvalidIp(String::new())),
        Ingress::Invalid(text) => Err(Reason::InvalidIp(text.clone())),
    };
    service.ingress.iter().map(address).collect()
}

/// The checks that give the same on every node: the address that decides, and the one pool that holds all.
fn admit<'a>(inputs: &Inputs<'a>, service: &Service) -> Result<(IpAddr, &'a Pool), Reason> {
    let ours = &inputs.settings.lb_class;
    if !handles_class(service.class.as_deref(), ours.as_deref()) {
        return Err(Reason::ForeignClass { service: service.class.clone(), ours: ours.clone() });
    }
    if !service.load_balancer {
        return Err(Reason::NotLoadBalancer);
    }
    let ips = addresses(service)?;
    let first = *ips.first().ok_or(Reason::NoIpAllocated)?;
    match inputs.config.pool_of_all(&ips) {
        Some(pool) => Ok((first, pool)),
        None => Err(Reason::IpNotAllowed { ips, pools_incomplete: inputs.config.pools_incomplete }),
    }
}

/// Whether the node may lead the Service, by the filters in their order.
fn usable(inputs: &Inputs<'_>, service: &Service, pool: &Pool, node: &NodeName) -> Result<(), Reason> {
    let state = inputs.nodes.get(node).copied().unwrap_or_default();
    if state.network_unavailable {
        return Err(Reason::NodeNetworkUnavailable(node.clone()));
    }
    if state.excluded && !inputs.settings.ignore_exclude_lb {
        return Err(Reason::NodeExcluded(node.clone()));
    }
    if !advertised(service, pool, node) {
        return Err(Reason::NoMatchingAdvertisement { pool: pool.name.clone(), node: node.clone() });
    }
    if service.local && !service.endpoints.nodes.contains(node) {
        return Err(Reason::NoLocalEndpoint(node.clone()));
    }
    Ok(())
}

fn advertised(service: &Service, pool: &Pool, node: &NodeName) -> bool {
    pool.l2_advertisements.iter().any(|ad| ad.selects(&service.labels) && ad.nodes.contains(node))
}

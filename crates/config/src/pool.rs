// SPDX-License-Identifier: Apache-2.0
//! IPAddressPools: from texts to prefixes, and from selectors to namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_api::{IPAddressPoolSpec, ServiceAllocation as AllocationSpec};
use ferrolb_net_types::{IpFamily, PoolName, Prefix, parse_ip};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::overlap::Blocks;
use crate::selector::written;
use crate::{Labels, Pool, Selector, ServiceAllocation, duplicates};

/// The kind's name in diagnostics.
pub(crate) const KIND: &str = "IPAddressPool";

/// What an IPAddressPool says, before it meets namespaces and advertisements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedPool {
    pub(crate) blocks: Vec<Prefix>,
    auto_assign: bool,
    avoid_buggy_ips: bool,
    allocation: Option<ParsedAllocation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ParsedAllocation {
    priority: i64,
    /// Both empty: no restriction. Otherwise only these, even if they turn out to be none.
    namespaces: BTreeSet<Arc<str>>,
    namespace_selectors: Vec<Selector>,
    service_selectors: Vec<Selector>,
}

/// Parses a pool. The error is MetalLB's, complete.
pub(crate) fn parse(name: &str, spec: &IPAddressPoolSpec) -> Result<ParsedPool, String> {
    parse_alone(name, spec).map_err(|error| format!("parsing address pool {name}: {error}"))
}

/// MetalLB's text for two prefixes that overlap.
pub(crate) fn overlap_text(block: Prefix, pool: &str, other: Prefix) -> String {
    format!(
        "CIDR {:?} in pool {pool:?} overlaps with already defined CIDR {:?}",
        block.to_string(),
        other.to_string()
    )
}

/// Two prefixes of one pool that overlap, as MetalLB says it.
pub(crate) fn overlap_within(name: &str, blocks: &[Prefix]) -> Option<String> {
    let mut seen = Blocks::default();
    blocks.iter().find_map(|block| {
        let conflict = seen.conflict(std::slice::from_ref(block));
        seen.insert(0, std::slice::from_ref(block));
        conflict.map(|(block, other, _)| overlap_text(block, name, other))
    })
}

/// The prefixes of one entry of `addresses`: one for a CIDR, as many as are needed for a range.
pub(crate) fn parse_entry(pool: &str, entry: &str) -> Result<Vec<Prefix>, String> {
    match entry.split_once('-') {
        None => entry.parse().map(|prefix| vec![prefix]).map_err(|_| format!("invalid CIDR {entry:?}")),
        Some((left, right)) => {
            parse_range(left, right).map_err(|e| format!("invalid IP range {entry:?}: {e}"))
        }
    }
    .map_err(|error| format!("invalid CIDR {entry:?} in pool {pool:?}: {error}"))
}

impl ParsedPool {
    /// The pool with the namespaces that exist now; advertisements are attached later.
    pub(crate) fn resolve(&self, name: &PoolName, namespaces: &BTreeMap<String, Labels>) -> Pool {
        Pool {
            name: name.clone(),
            blocks: self.blocks.clone(),
            auto_assign: self.auto_assign,
            avoid_buggy_ips: self.avoid_buggy_ips,
            allocation: self.allocation.as_ref().map(|a| a.resolve(namespaces)),
            l2_advertisements: Vec::new(),
        }
    }
}

impl ParsedAllocation {
    fn resolve(&self, namespaces: &BTreeMap<String, Labels>) -> ServiceAllocation {
        let restricted = !self.namespaces.is_empty() || !self.namespace_selectors.is_empty();
        let selected = namespaces
            .iter()
            .filter(|(_, labels)| self.namespace_selectors.iter().any(|s| s.matches(labels)))
            .map(|(name, _)| Arc::from(name.as_str()));
        let namespaces = restricted.then(|| self.namespaces.iter().cloned().chain(selected).collect());
        let unrestricted = !restricted && self.service_selectors.is_empty();
        ServiceAllocation {
            priority: self.priority,
            namespaces,
            service_selectors: if unrestricted {
                vec![Selector::everything()]
            } else {
                self.service_selectors.clone()
            },
        }
    }
}

fn parse_alone(name: &str, spec: &IPAddressPoolSpec) -> Result<ParsedPool, String> {
    if name.is_empty() {
        return Err("missing pool name".to_owned());
    }
    if spec.addresses.is_empty() {
        return Err("pool has no prefixes defined".to_owned());
    }
    let mut blocks = Vec::new();
    for entry in &spec.addresses {
        blocks.append(&mut parse_entry(name, entry)?);
    }
    Ok(ParsedPool {
        blocks,
        auto_assign: spec.auto_assign,
        avoid_buggy_ips: spec.avoid_buggy_ips,
        allocation: spec.service_allocation.as_ref().map(|a| parse_allocation(name, a)).transpose()?,
    })
}

fn parse_range(left: &str, right: &str) -> Result<Vec<Prefix>, String> {
    let first = parse_ip(left.trim()).ok_or_else(|| format!("invalid start IP {left:?}"))?;
    let last = parse_ip(right.trim()).ok_or_else(|| format!("invalid end IP {right:?}"))?;
    let text = |ip: IpAddr| format!("{:?}", ip.to_string());
    if IpFamily::of(first) != IpFamily::of(last) {
        return Err(format!("start IP {} and end IP {} have different families", text(first), text(last)));
    }
    if first > last {
        return Err(format!("start IP {} is after the end IP {}", text(first), text(last)));
    }
    Ok(Prefix::cover(first, last))
}

fn parse_allocation(pool: &str, spec: &AllocationSpec) -> Result<ParsedAllocation, String> {
    let namespaces: BTreeSet<Arc<str>> =
        spec.namespaces.iter().map(|name| Arc::from(name.as_str())).collect();
    if namespaces.len() != spec.namespaces.len() {
        return Err("duplicate definition in namespaces field".to_owned());
    }
    duplicates::selectors("namespaceSelectors", &spec.namespace_selectors)?;
    duplicates::selectors("serviceSelectors", &spec.service_selectors)?;
    let parse_all = |what: &str, list: &[LabelSelector]| -> Result<Vec<Selector>, String> {
        let parse = |selector| {
            Selector::parse(selector).map_err(|cause| {
                format!("{cause}\ninvalid {what} label selector {} in ip pool {pool}", written(selector))
            })
        };
        list.iter().map(parse).collect()
    };
    Ok(ParsedAllocation {
        priority: spec.priority.unwrap_or(0),
        namespaces,
        namespace_selectors: parse_all("namespace", &spec.namespace_selectors)?,
        service_selectors: parse_all("service", &spec.service_selectors)?,
    })
}

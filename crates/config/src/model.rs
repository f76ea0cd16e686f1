// SPDX-License-Identifier: Apache-2.0
//! The configuration as it is used: no state of these types is invalid.
//!
//! Built only by `evaluate`. `ipam` reads the pools, `announce` what is attached to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_net_types::{Interfaces, IpFamily, NodeName, PoolName, Prefix};

use crate::bgp::Bgp;
use crate::selector::{Labels, Selector};

/// Everything that the `metallb.io` objects of one namespace say, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The pools by name. Their prefixes never overlap.
    pub pools: BTreeMap<PoolName, Arc<Pool>>,
    /// Some IPAddressPool exists that could not be parsed and has no last good version, so the absence of an
    /// address from `pools` does not mean that no pool holds it: nothing may be cleared for lying in no pool.
    pub pools_incomplete: bool,
    /// Sessions, and what is announced in them.
    pub bgp: Bgp,
}

impl Config {
    /// The pool whose prefixes hold the address, whatever its other settings say.
    pub fn pool_of(&self, ip: IpAddr) -> Option<&Arc<Pool>> {
        self.pools.values().find(|pool| pool.contains(ip))
    }

    /// The one pool that holds every address of a non-empty list.
    pub fn pool_of_all(&self, ips: &[IpAddr]) -> Option<&Arc<Pool>> {
        let pool = self.pool_of(*ips.first()?)?;
        ips.iter().all(|ip| pool.contains(*ip)).then_some(pool)
    }
}

/// An IPAddressPool with what is attached to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The object's name.
    pub name: PoolName,
    /// The prefixes in order of preference; a range stands as its prefixes, in place.
    pub blocks: Vec<Prefix>,
    /// Serves Services that ask for nothing in particular.
    pub auto_assign: bool,
    /// Never hands out an IPv4 address that ends in .0 or .255.
    pub avoid_buggy_ips: bool,
    /// Restrictions and priority. Its mere presence puts the pool before those without.
    pub allocation: Option<ServiceAllocation>,
    /// The L2Advertisements attached to the pool, equal ones once, in order of object name.
    pub l2_advertisements: Vec<Arc<L2Advertisement>>,
}

impl Pool {
    /// Whether a prefix of the pool holds the address (`avoid_buggy_ips` aside).
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.blocks.iter().any(|block| block.contains(ip))
    }

    /// Whether any prefix is of the family.
    pub fn has(&self, family: IpFamily) -> bool {
        self.blocks.iter().any(|block| block.family() == family)
    }

    /// Whether a Service in this namespace with these labels may have an address of the pool.
    pub fn admits(&self, namespace: &str, labels: &Labels) -> bool {
        self.allocation.as_ref().is_none_or(|a| {
            a.namespaces.as_ref().is_none_or(|names| names.contains(namespace))
                && (a.service_selectors.is_empty() || a.service_selectors.iter().any(|s| s.matches(labels)))
        })
    }
}

/// `spec.serviceAllocation` of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAllocation {
    /// Lower is preferred, negative numbers included; 0 ranks last.
    pub priority: i64,
    /// The namespaces named or selected; `None` if the pool restricts none. An empty set admits nothing.
    pub namespaces: Option<BTreeSet<Arc<str>>>,
    /// ORed. With no restriction of either kind it holds one selector that matches everything.
    pub service_selectors: Vec<Selector>,
}

/// An L2Advertisement, resolved against the nodes that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct L2Advertisement {
    /// The object's name.
    pub name: Arc<str>,
    /// The nodes that may announce.
    pub nodes: BTreeSet<NodeName>,
    /// Where they announce.
    pub interfaces: Interfaces,
    /// Only Services that match one of these; empty means every Service of the pool.
    pub service_selectors: Vec<Selector>,
    /// How much each node is preferred: the sum of the weights that match it. Empty without preferences.
    pub preferences: BTreeMap<NodeName, u32>,
}

impl L2Advertisement {
    /// Whether the advertisement is for a Service with these labels.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.service_selectors.is_empty() || self.service_selectors.iter().any(|s| s.matches(labels))
    }
}

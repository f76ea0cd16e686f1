// SPDX-License-Identifier: Apache-2.0
//! The annotation keys of Services, and ferrolb's own of other objects.
//!
//! A key that is read has a deprecated twin; the mere presence of the new key, even with an empty value, hides it.

use std::collections::BTreeMap;

/// Name of the pool to allocate from.
pub const ADDRESS_POOL: Key =
    Key { name: "metallb.io/address-pool", deprecated: "metallb.universe.tf/address-pool" };

/// The addresses asked for: one, or two of different families with a comma between.
pub const LOAD_BALANCER_IPS: Key =
    Key { name: "metallb.io/loadBalancerIPs", deprecated: "metallb.universe.tf/loadBalancerIPs" };

/// Sharing key: Services with the same one may share an address. Empty means no sharing.
pub const ALLOW_SHARED_IP: Key =
    Key { name: "metallb.io/allow-shared-ip", deprecated: "metallb.universe.tf/allow-shared-ip" };

/// Written by the controller: the pool that owns the Service's addresses. It has no deprecated twin.
pub const IP_ALLOCATED_FROM_POOL: &str = "metallb.io/ip-allocated-from-pool";

/// The prefix of every deprecated key.
pub const DEPRECATED_PREFIX: &str = "metallb.universe.tf";

/// The prefix of the annotations that ask for something MetalLB does not have.
pub const OWN_PREFIX: &str = concat!(own_group!(), "/");

/// On an IPAddressPool, `"true"`: its addresses are only given out, something else announces them.
pub const ALLOCATE_ONLY: &str = concat!(own_group!(), "/allocate-only");

/// On a BGPPeer: how many prefixes of each family it is told at most.
pub const MAX_PREFIXES: &str = concat!(own_group!(), "/max-prefixes");

/// On a BGPPeer: the peer is within so many hops, 1 being on the link, and whatever comes from farther is dropped
/// (RFC 5082). The peer has to do the same.
pub const GTSM_HOPS: &str = concat!(own_group!(), "/gtsm-hops");

/// On a BGPPeer, `non-transitive` or `transitive`: routes of Services with the traffic policy Local carry a link
/// bandwidth in proportion to the endpoints that serve on the node.
pub const LINK_BANDWIDTH: &str = concat!(own_group!(), "/link-bandwidth");

/// On a BGPPeer: the capabilities that the OPEN offers beside MetalLB's, with commas between: `route-refresh`
/// (RFC 2918), `fqdn` (the node's name, for the router to show).
pub const CAPABILITIES: &str = concat!(own_group!(), "/capabilities");

/// On the controllers' Lease: what its holder is about to write, as JSON.
pub const INTENTS: &str = concat!(own_group!(), "/intents");

/// An annotation that is read under either of two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The current name. Messages always say this one.
    pub name: &'static str,
    /// The name of former versions.
    pub deprecated: &'static str,
}

impl Key {
    /// The value in an object's annotations. `Some("")` if the deciding key is there without a value.
    pub fn of(self, annotations: Option<&BTreeMap<String, String>>) -> Option<&str> {
        let annotations = annotations?;
        annotations.get(self.name).or_else(|| annotations.get(self.deprecated)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_key_hides_the_deprecated_one_even_when_empty() {
        let old = (ADDRESS_POOL.deprecated.to_owned(), "old".to_owned());
        let new = (ADDRESS_POOL.name.to_owned(), String::new());
        assert_eq!(ADDRESS_POOL.of(None), None);
        assert_eq!(ADDRESS_POOL.of(Some(&BTreeMap::new())), None);
        assert_eq!(ADDRESS_POOL.of(Some(&BTreeMap::from([old.clone()]))), Some("old"));
        assert_eq!(ADDRESS_POOL.of(Some(&BTreeMap::from([old, new]))), Some(""));
    }
}

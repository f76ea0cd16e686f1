// SPDX-License-Identifier: Apache-2.0
//! The plans of all addresses, in a map that is copied and compared at a small part of its size.
//!
//! The thread that answers gets a copy after every change. Ten thousand addresses would make that the whole work of a
//! change; here the copy shares every part in which nothing changed, and what differs between two of them is looked for in
//! the other parts alone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Index;
use std::sync::Arc;

use crate::AddressPlan;

type Shard = BTreeMap<IpAddr, Arc<AddressPlan>>;

/// Of each address that somebody could announce, who can and how. In no order.
#[derive(Clone, PartialEq, Eq)]
pub struct AddressPlans {
    /// An address is in the shard that its bytes name.
    shards: Box<[Arc<Shard>]>,
}

/// With ten thousand addresses, a copy and a change touch some hundred entries each.
const SHARDS: usize = 128;

impl AddressPlans {
    /// The plan of an address.
    pub fn get(&self, ip: &IpAddr) -> Option<&Arc<AddressPlan>> {
        self.shards[shard_of(*ip)].get(ip)
    }

    /// Whether anybody could announce the address.
    pub fn contains_key(&self, ip: &IpAddr) -> bool {
        self.get(ip).is_some()
    }

    /// Sets the plan of an address; the former one, if it had one.
    pub fn insert(&mut self, ip: IpAddr, plan: Arc<AddressPlan>) -> Option<Arc<AddressPlan>> {
        Arc::make_mut(&mut self.shards[shard_of(ip)]).insert(ip, plan)
    }

    /// Nobody could announce the address any more; its former plan.
    pub fn remove(&mut self, ip: &IpAddr) -> Option<Arc<AddressPlan>> {
        let shard = &mut self.shards[shard_of(*ip)];
        shard.contains_key(ip).then(|| Arc::make_mut(shard).remove(ip)).flatten()
    }

    /// Every address with its plan.
    pub fn iter(&self) -> impl Iterator<Item = (&IpAddr, &Arc<AddressPlan>)> {
        self.shards.iter().flat_map(|shard| shard.iter())
    }

    /// Every address.
    pub fn keys(&self) -> impl Iterator<Item = &IpAddr> {
        self.iter().map(|(ip, _)| ip)
    }

    /// Every plan.
    pub fn values(&self) -> impl Iterator<Item = &Arc<AddressPlan>> {
        self.iter().map(|(_, plan)| plan)
    }

    /// The addresses whose plans are not the very same allocation in both, or that only one of them has.
    pub fn differing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = IpAddr> + 'a {
        let pairs = self.shards.iter().zip(&other.shards).filter(|(one, two)| !Arc::ptr_eq(one, two));
        pairs.flat_map(|(one, two)| {
            let same = |ip: &IpAddr, plan| two.get(ip).is_some_and(|other| Arc::ptr_eq(other, plan));
            let changed = one.iter().filter(move |(ip, plan)| !same(ip, plan)).map(|(ip, _)| *ip);
            changed.chain(two.keys().filter(|ip| !one.contains_key(*ip)).copied())
        })
    }
}

impl Default for AddressPlans {
    fn default() -> Self {
        let empty = Arc::<Shard>::default();
        Self { shards: (0..SHARDS).map(|_| empty.clone()).collect() }
    }
}

impl std::fmt::Debug for AddressPlans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().collect::<BTreeMap<_, _>>()).finish()
    }
}

impl Index<&IpAddr> for AddressPlans {
    type Output = Arc<AddressPlan>;

    /// # Panics
    /// Nobody could announce the address.
    fn index(&self, ip: &IpAddr) -> &Arc<AddressPlan> {
        &self.shards[shard_of(*ip)][ip]
    }
}

impl FromIterator<(IpAddr, Arc<AddressPlan>)> for AddressPlans {
    fn from_iter<I: IntoIterator<Item = (IpAddr, Arc<AddressPlan>)>>(plans: I) -> Self {
        let mut all = Self::default();
        for (ip, plan) in plans {
            all.insert(ip, plan);
        }
        all
    }
}

/// Addresses of a pool mostly differ in their last bytes: every bit of them counts (FNV-1a, then Fibonacci hashing).
fn shard_of(ip: IpAddr) -> usize {
    let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = match ip {
        IpAddr::V4(ip) => ip.octets().iter().fold(0x811c_9dc5, mix),
        IpAddr::V6(ip) => ip.octets().iter().fold(0x811c_9dc5, mix),
    };
    (hash.wrapping_mul(0x9e37_79b1) >> 16) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ferrolb_net_types::Interfaces;
    use proptest::prelude::*;

    use super::*;

    fn plan() -> Arc<AddressPlan> {
        Arc::new(AddressPlan {
            services: vec![],
            candidates: [].into(),
            metallb: vec![],
            interfaces: Interfaces::All,
            finding: None,
        })
    }

    fn ip(number: u16) -> IpAddr {
        IpAddr::from((0xc0a8_0000 + u32::from(number)).to_be_bytes())
    }

    #[test]
    fn the_addresses_of_a_pool_are_spread_over_all_shards() {
        let fill = |ips: &mut dyn Iterator<Item = IpAddr>| {
            let plans: AddressPlans = ips.map(|ip| (ip, plan())).collect();
            let sizes: Vec<usize> = plans.shards.iter().map(|shard| shard.len()).collect();
            (sizes.iter().min().copied().unwrap(), sizes.iter().max().copied().unwrap())
        };
        let v6 = |number: u16| IpAddr::from([0xfd00, 0x10, 0, 0, 0, 0, 0, number]);
        for (least, most) in [fill(&mut (0..10_000).map(ip)), fill(&mut (0..10_000).map(v6))] {
            assert!(least > 20 && most < 200, "{least} to {most}");
        }
    }

    #[test]
    fn a_copy_shares_all_but_what_changes() {
        let before: AddressPlans = (0..1000).map(|number| (ip(number), plan())).collect();
        let mut after = before.clone();
        after.insert(ip(7), plan());
        let shared = before.shards.iter().zip(&after.shards).filter(|(one, two)| Arc::ptr_eq(one, two));
        assert_eq!(shared.count(), SHARDS - 1);
        assert!(after.remove(&ip(2000)).is_none());
        let shared = before.shards.iter().zip(&after.shards).filter(|(one, two)| Arc::ptr_eq(one, two));
        assert_eq!(shared.count(), SHARDS - 1, "what is not there is no change");
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_what_differs_is_found(
            first in prop::collection::vec(0_u16..300, 0..60),
            changes in prop::collection::vec((0_u16..300, any::<bool>()), 0..60),
        ) {
            let mut model: BTreeMap<IpAddr, Arc<AddressPlan>> = first.into_iter().map(|n| (ip(n), plan())).collect();
            let before: AddressPlans = model.iter().map(|(ip, plan)| (*ip, plan.clone())).collect();
            let (mut after, old) = (before.clone(), model.clone());
            for (number, set) in changes {
                let ip = ip(number);
                let (one, two) = if set {
                    let plan = plan();
                    (after.insert(ip, plan.clone()), model.insert(ip, plan))
                } else {
                    (after.remove(&ip), model.remove(&ip))
                };
                prop_assert_eq!(one.map(|plan| Arc::as_ptr(&plan)), two.map(|plan| Arc::as_ptr(&plan)));
            }
            let all: BTreeMap<_, _> = after.iter().map(|(ip, plan)| (*ip, Arc::as_ptr(plan))).collect();
            prop_assert_eq!(all, model.iter().map(|(ip, plan)| (*ip, Arc::as_ptr(plan))).collect());
            prop_assert!(model.keys().all(|ip| after.contains_key(ip)));
            let pointer = |map: &BTreeMap<_, Arc<AddressPlan>>, ip| map.get(ip).map(Arc::as_ptr);
            let differ: BTreeSet<IpAddr> = old
                .keys()
                .chain(model.keys())
                .filter(|ip| pointer(&old, *ip) != pointer(&model, *ip))
                .copied()
                .collect();
            prop_assert_eq!(before.differing(&after).collect::<BTreeSet<_>>(), differ);
        }
    }
}

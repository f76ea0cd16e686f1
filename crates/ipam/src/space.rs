// SPDX-License-Identifier: Apache-2.0
//! The addresses of all pools, numbered.
//!
//! Within a pool and family every address that may be handed out has an ordinal: its place in the order in which
//! the pool prefers them, addresses that `avoidBuggyIPs` skips not counted. Going from address to ordinal and
//! back is arithmetic, so a pool's size costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ferrolb_config::{Config, Pool};
use ferrolb_net_types::{IpFamily, PoolName, Prefix};

/// A pool's place in [`Space::pools`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolId(pub(crate) usize);

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pool: PoolId,
    /// `None` if the pool holds the address but never hands it out.
    pub(crate) ordinal: Option<u128>,
}

/// The pools of a configuration, indexed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    pools: Vec<Numbered>,
    by_name: BTreeMap<PoolName, PoolId>,
    /// All blocks of all pools by first address; they never overlap.
    blocks: BTreeMap<IpAddr, (PoolId, Block)>,
    /// Pools with restrictions or priority that serve without being asked for, by the namespaces they admit, best
    /// first.
    pinned_to: BTreeMap<Arc<str>, Vec<Preference>>,
    /// The same for those that restrict no namespace.
    pinned_anywhere: Vec<Preference>,
    /// Pools without either that serve without being asked for, by name.
    open: BTreeSet<PoolId>,
}

/// A pool's place among those that a Service might use. Smaller is better, priority 0 is last; ties are by name,
/// which is the order of ids.
type Preference = (bool, i64, PoolId);

#[derive(Clone, Debug)]
struct Numbered {
    pool: Arc<Pool>,
    v4: Vec<Block>,
    v6: Vec<Block>,
    size: [u128; 2],
    capacity: [i64; 2],
}

/// A prefix with the ordinal of its first usable address.
#[derive(Clone, Copy, Debug)]
struct Block {
    prefix: Prefix,
    avoid_buggy: bool,
    offset: u128,
}

impl Space {
    pub(crate) fn new(config: &Config) -> Self {
        let mut space = Self::default();
        // `Config::pools` is in order of name, so ids are too.
        for (name, pool) in &config.pools {
            let id = PoolId(space.pools.len());
            space.by_name.insert(name.clone(), id);
            let mut numbered =
                Numbered { pool: Arc::clone(pool), v4: vec![], v6: vec![], size: [0; 2], capacity: [0; 2] };
            for &prefix in &pool.blocks {
                let family = index(prefix.family());
                let block =
                    Block { prefix, avoid_buggy: pool.avoid_buggy_ips, offset: numbered.size[family] };
                numbered.size[family] = numbered.size[family].saturating_add(block.usable());
                numbered.capacity[family] = numbered.capacity[family].saturating_add(block.capacity());
                if family == 0 { &mut numbered.v4 } else { &mut numbered.v6 }.push(block);
                space.blocks.insert(prefix.first(), (id, block));
            }
            space.pools.push(numbered);
        }
        for id in space.ids().filter(|id| space.pool(*id).auto_assign).collect::<Vec<_>>() {
            let pool = Arc::clone(&space.pools[id.0].pool);
            let Some(allocation) = &pool.allocation else {
                space.open.insert(id);
                continue;
            };
            let preference = (allocation.priority == 0, allocation.priority, id);
            match &allocation.namespaces {
                None => space.pinned_anywhere.push(preference),
                Some(names) => {
                    for name in names {
                        space.pinned_to.entry(Arc::clone(name)).or_default().push(preference);
                    }
                }
            }
        }
        space.pinned_anywhere.sort_unstable();
        for pools in space.pinned_to.values_mut() {
            pools.sort_unstable();
        }
        space
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = PoolId> + use<> {
        (0..self.pools.len()).map(PoolId)
    }

    pub(crate) fn pool(&self, id: PoolId) -> &Pool {
        &self.pools[id.0].pool
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<PoolId> {
        self.by_name.get(name).copied()
    }

    /// How many addresses of the family the pool has to give, as counters show it: at most 2^63-1.
    pub(crate) fn capacity(&self, id: PoolId, family: IpFamily) -> i64 {
        self.pools[id.0].capacity[index(family)]
    }

    /// The pool that holds an address.
    pub(crate) fn locate(&self, ip: IpAddr) -> Option<Place> {
        let (_, (pool, block)) = self.blocks.range(..=ip).next_back()?;
        block.prefix.contains(ip).then(|| Place { pool: *pool, ordinal: block.ordinal(ip) })
    }

    /// The address with an ordinal; `None` beyond the pool's end.
    pub(crate) fn address(&self, id: PoolId, family: IpFamily, ordinal: u128) -> Option<IpAddr> {
        let numbered = &self.pools[id.0];
        if ordinal >= numbered.size[index(family)] {
            return None;
        }
        let blocks = if family == IpFamily::V4 { &numbered.v4 } else { &numbered.v6 };
        let after = blocks.partition_point(|block| block.offset <= ordinal);
        let block = blocks.get(after.checked_sub(1)?)?;
        Some(block.address(ordinal - block.offset))
    }

    /// How many addresses of the family the pool may hand out, exactly but for `::/0`, where it saturates.
    pub(crate) fn size(&self, id: PoolId, family: IpFamily) -> u128 {
        self.pools[id.0].size[index(family)]
    }

    /// Pools with restrictions or priority that a Service of this namespace might use unasked, best first.
    pub(crate) fn pinned(&self, namespace: &str) -> impl Iterator<Item = PoolId> {
        let own = self.pinned_to.get(namespace).map_or(&[][..], Vec::as_slice);
        let (mut own, mut anywhere) = (own.iter().peekable(), self.pinned_anywhere.iter().peekable());
        std::iter::from_fn(move || {
            let from_own = match (own.peek(), anywhere.peek()) {
                (Some(own), Some(anywhere)) => own < anywhere,
                (own, _) => own.is_some(),
            };
            if from_own { own.next() } else { anywhere.next() }.map(|(_, _, id)| *id)
        })
    }

    /// Pools that serve anybody unasked, by name.
    pub(crate) const fn open(&self) -> &BTreeSet<PoolId> {
        &self.open
    }
}

/// 0 for IPv4, 1 for IPv6.
pub(crate) const fn index(family: IpFamily) -> usize {
    match family {
        IpFamily::V4 => 0,
        IpFamily::V6 => 1,
    }
}

impl Block {
    fn skips(&self) -> bool {
        self.avoid_buggy && self.prefix.family() == IpFamily::V4
    }

    fn host_bits(&self) -> u8 {
        self.prefix.family().bits() - self.prefix.length()
    }

    /// The number of addresses that may be handed out; saturates for `::/0`.
    fn usable(&self) -> u128 {
        let all = 1_u128.checked_shl(self.host_bits().into()).unwrap_or(u128::MAX);
        if !self.skips() {
            all
        } else if self.host_bits() >= 8 {
            (all >> 8) * 254
        } else {
            let ends = |ip: IpAddr, octet: u128| u128::from(bits(ip) & 0xff == octet);
            all - ends(self.prefix.first(), 0) - ends(self.prefix.last(), 255)
        }
    }

    fn capacity(&self) -> i64 {
        if self.host_bits() >= 62 { i64::MAX } else { i64::try_from(self.usable()).unwrap_or(i64::MAX) }
    }

    fn ordinal(&self, ip: IpAddr) -> Option<u128> {
        let (first, ip) = (bits(self.prefix.first()), bits(ip));
        let within = if self.skips() {
            let octet = ip & 0xff;
            if octet == 0 || octet == 255 {
                return None;
            }
            // 254 for each whole /24 before this one, then the place in the last octet.
            ((ip >> 8) - (first >> 8)) * 254 + octet - (first & 0xff).max(1)
        } else {
            ip - first
        };
        Some(self.offset.saturating_add(within))
    }

    fn address(&self, within: u128) -> IpAddr {
        let first = bits(self.prefix.first());
        let ip = if self.skips() {
            ((first >> 8) + within / 254) * 256 + (first & 0xff).max(1) + within % 254
        } else {
            first + within
        };
        match self.prefix.family() {
            // Within the block, hence within 32 bits.
            IpFamily::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(ip).unwrap_or(u32::MAX))),
            IpFamily::V6 => IpAddr::V6(Ipv6Addr::from_bits(ip)),
        }
    }
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn space(blocks: &[&str], avoid_buggy_ips: bool) -> Space {
        let pool = Pool {
            name: "p".into(),
            blocks: blocks.iter().map(|text| text.parse().unwrap()).collect(),
            auto_assign: true,
            avoid_buggy_ips,
            allocation: None,
            l2_advertisements: vec![],
        };
        Space::new(&Config { pools: [("p".into(), Arc::new(pool))].into(), ..Config::default() })
    }

    fn capacities(blocks: &[&str], avoid_buggy_ips: bool) -> [i64; 2] {
        let space = space(blocks, avoid_buggy_ips);
        [IpFamily::V4, IpFamily::V6].map(|family| space.capacity(PoolId(0), family))
    }

    #[test]
    fn capacities_are_exact_and_saturate() {
        const MAX: i64 = i64::MAX;
        for (blocks, avoid, expected) in [
            (&["1.2.3.0/24"][..], false, [256, 0]),
            (&["1.2.3.0/24", "1.2.4.128/25"], false, [384, 0]),
            (&["1.2.3.0/24", "1.2.4.128/25"], true, [381, 0]),
            (&["1.2.3.0/24", "1.2.4.128/25", "1000::/64"], true, [381, MAX]),
            (&["1.2.3.0/31", "1000::/127"], true, [1, 2]),
            (&["1.2.3.0/32", "1.2.4.255/32"], true, [0, 0]),
            (&["10.0.0.0/8"], true, [254 << 16, 0]),
            (&["2000::/66"], false, [0, MAX]),
            (&["2000::/67"], false, [0, 1 << 61]),
            (&["1000::/64", "2000::/64", "3000::/127", "1.0.0.0/30"], false, [4, MAX]),
        ] {
            assert_eq!(capacities(blocks, avoid), expected, "{blocks:?} {avoid}");
        }
    }

    #[test]
    fn the_widest_blocks_have_ordinals_to_the_end() {
        let all = space(&["::/0"], false);
        let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        assert_eq!(all.locate(last).unwrap().ordinal, Some(u128::MAX));
        let halves = space(&["8000::/1", "::/1"], false);
        assert_eq!(halves.address(PoolId(0), IpFamily::V6, 1 << 127), Some("::".parse().unwrap()));
        assert_eq!(halves.locate(last).unwrap().ordinal, Some((1 << 127) - 1));
    }

    proptest! {
        #[test]
        fn ordinals_number_the_usable_addresses_in_order(
            starts in prop::collection::btree_set(0_u32..64, 1..6),
            lengths in prop::collection::vec(22_u8..=32, 6),
            shuffle: bool,
            avoid: bool,
        ) {
            // Each block within a /22 of its own.
            let mut blocks: Vec<Prefix> = starts
                .iter()
                .zip(&lengths)
                .filter_map(|(n, length)| {
                    let low = (n * 37) % 1024;
                    Prefix::new(Ipv4Addr::from_bits(0x0a00_0000 + n * 1024 + low).into(), *length)
                })
                .collect();
            if shuffle {
                blocks.reverse();
            }
            let texts: Vec<String> = blocks.iter().map(ToString::to_string).collect();
            let space = space(&texts.iter().map(String::as_str).collect::<Vec<_>>(), avoid);
            let mut expected = 0;
            for block in &blocks {
                for ip in bits(block.first())..=bits(block.last()) {
                    let address = IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(ip).unwrap()));
                    let place = space.locate(address).unwrap();
                    if avoid && [0, 255].contains(&(ip & 0xff)) {
                        prop_assert_eq!(place.ordinal, None);
                    } else {
                        prop_assert_eq!(place.ordinal, Some(expected));
                        prop_assert_eq!(space.address(PoolId(0), IpFamily::V4, expected), Some(address));
                        expected += 1;
                    }
                }
            }
            prop_assert_eq!(space.address(PoolId(0), IpFamily::V4, expected), None);
            prop_assert_eq!(space.capacity(PoolId(0), IpFamily::V4), i64::try_from(expected).unwrap());
        }
    }
}

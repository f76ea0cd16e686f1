// SPDX-License-Identifier: Apache-2.0
//! Laws of allocation, against a model that knows no index and scans every address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferrolb_config::Pool;
use ferrolb_ipam::{Claim, IpFamilyPolicy, Want};
use ferrolb_net_types::{IpFamily, Prefix, ServiceKey};
use proptest::prelude::*;

use crate::common::{allocator, claim, dual, from_pool, holding, pinned, pool, sharing, v6, wants};

/// Who holds what, and nothing else.
#[derive(Default)]
struct Model {
    pools: Vec<Pool>,
    held: BTreeMap<ServiceKey, (Claim, Vec<IpAddr>)>,
}

impl Model {
    fn decide(&mut self, claim: &Claim) -> Vec<IpAddr> {
        self.held.remove(&claim.service);
        let ips = self.choose(claim).unwrap_or_default();
        if !ips.is_empty() {
            self.held.insert(claim.service.clone(), (claim.clone(), ips.clone()));
        }
        ips
    }

    fn choose(&self, claim: &Claim) -> Option<Vec<IpAddr>> {
        if !claim.requested_pool.is_empty() {
            let named: Vec<&Pool> =
                self.pools.iter().filter(|p| p.name.as_str() == claim.requested_pool).collect();
            return self.among(claim, &named);
        }
        let mut serving: Vec<&Pool> = self.pools.iter().filter(|p| p.auto_assign).collect();
        serving.sort_by(|a, b| a.name.cmp(&b.name));
        let (mut first, then): (Vec<&Pool>, Vec<&Pool>) =
            serving.into_iter().partition(|p| p.allocation.is_some());
        first.sort_by_key(|p| p.allocation.as_ref().map(|a| (a.priority == 0, a.priority)));
        self.among(claim, &first).or_else(|| self.among(claim, &then))
    }

    fn among(&self, claim: &Claim, pools: &[&Pool]) -> Option<Vec<IpAddr>> {
        let admitting: Vec<_> =
            pools.iter().filter(|p| p.admits(&claim.service.namespace, &claim.labels)).collect();
        let offers: Vec<[Option<IpAddr>; 2]> = admitting
            .iter()
            .map(|p| [self.first(claim, p, IpFamily::V4), self.first(claim, p, IpFamily::V6)])
            .collect();
        let both = offers.iter().find_map(|o| Some(vec![o[0]?, o[1]?]));
        let one = |n: usize| offers.iter().find_map(|o| o[n].map(|ip| vec![ip]));
        match (claim.cluster_ips.len(), claim.policy) {
            (1, _) if claim.cluster_ips[0].contains(':') => one(1),
            (1, _) => one(0),
            (_, IpFamilyPolicy::RequireDualStack) => both,
            (_, IpFamilyPolicy::PreferDualStack) => {
                let preferred = usize::from(claim.preferred_family == IpFamily::V6);
                both.or_else(|| one(preferred)).or_else(|| one(1 - preferred))
            }
            _ => None,
        }
    }

    fn first(&self, claim: &Claim, pool: &Pool, family: IpFamily) -> Option<IpAddr> {
        let buggy = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => pool.avoid_buggy_ips && [0, 255].contains(&ip.octets()[3]),
            IpAddr::V6(_) => false,
        };
        let blocks = pool.blocks.iter().filter(|block| block.family() == family);
        blocks.flat_map(addresses).find(|ip| !buggy(ip) && self.may_use(claim, *ip))
    }

    fn may_use(&self, claim: &Claim, ip: IpAddr) -> bool {
        self.held.values().filter(|(other, ips)| other.service != claim.service && ips.contains(&ip)).all(
            |(other, _)| {
                claim.keys.share_with(&other.keys)
                    && !claim.ports.iter().any(|port| other.ports.contains(port))
            },
        )
    }
}

fn addresses(block: &Prefix) -> Vec<IpAddr> {
    match (block.first(), block.last()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            (a.to_bits()..=b.to_bits()).map(|bits| Ipv4Addr::from_bits(bits).into()).collect()
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            (a.to_bits()..=b.to_bits()).map(|bits| Ipv6Addr::from_bits(bits).into()).collect()
        }
        _ => unreachable!("a block has one family"),
    }
}

fn pools() -> impl Strategy<Value = Vec<Pool>> {
    let blocks = prop::sample::subsequence(
        vec!["1.0.0.254/31", "1.0.1.0/30", "1.0.2.0/31", "1.0.3.7/32", "fd00::/126", "fd00::1:0/127"],
        1..=6,
    )
    .prop_shuffle();
    (
        blocks,
        1..4_usize,
        any::<[bool; 3]>(),
        any::<[bool; 3]>(),
        any::<[bool; 3]>(),
        [-1..3_i64, -1..3, -1..3],
    )
        .prop_map(|(blocks, parts, avoid, by_hand, special, priorities)| {
            let size = blocks.len().div_ceil(parts);
            let part = |(n, part): (usize, &[&str])| {
                let plain = Pool {
                    avoid_buggy_ips: avoid[n],
                    auto_assign: !by_hand[n],
                    ..pool(["c", "a", "b"][n], part)
                };
                if special[n] { pinned(plain, &["n"], vec![], priorities[n]) } else { plain }
            };
            blocks.chunks(size).enumerate().map(part).collect()
        })
}

fn claims() -> impl Strategy<Value = Claim> {
    (0..8_u8, 0..5_u8, 0..3_u8, 0..2_u16, 0..4_u8).prop_map(|(name, families, key, port, pool)| {
        let plain = sharing(claim(&format!("s{name}")), ["", "k", "l"][usize::from(key)], "", 80 + port);
        let plain = match families {
            0 => plain,
            1 => v6(plain),
            2 => dual(plain, IpFamilyPolicy::RequireDualStack),
            3 => dual(plain, IpFamilyPolicy::PreferDualStack),
            _ => Claim { preferred_family: IpFamily::V6, ..dual(plain, IpFamilyPolicy::PreferDualStack) },
        };
        if pool == 0 { from_pool(plain, "a") } else { plain }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn allocation_agrees_with_a_scan_of_every_address(
        pools in pools(),
        steps in prop::collection::vec((claims(), any::<bool>()), 1..40),
    ) {
        let mut real = allocator(pools.clone());
        let mut model = Model { pools, ..Model::default() };
        for (claim, leave) in steps {
            if leave {
                prop_assert_eq!(real.release(&claim.service), model.held.remove(&claim.service).is_some());
            } else {
                // Its status lists nothing, so whatever it held before is given up first.
                let decision = real.converge(&claim);
                prop_assert_eq!(&decision.ingress, &model.decide(&claim));
            }
            for pool in &model.pools {
                let counters = real.counters(pool.name.as_str()).unwrap();
                let mut used: Vec<_> = model.held.values().flat_map(|(_, ips)| ips).collect();
                used.sort();
                used.dedup();
                used.retain(|ip| pool.contains(**ip));
                prop_assert_eq!(usize::try_from(counters.total().in_use).unwrap(), used.len());
            }
        }
    }

    #[test]
    fn a_decision_that_is_stored_is_final(
        pools in pools(),
        claims in prop::collection::vec(claims(), 1..30),
    ) {
        let mut allocator = allocator(pools);
        let mut stored: BTreeMap<ServiceKey, Claim> = BTreeMap::new();
        for claim in claims {
            let held = stored.get(&claim.service).map(|c| c.held.clone()).unwrap_or_default();
            let claim = Claim { held, ..claim };
            let ingress = allocator.converge(&claim).ingress;
            let claim = holding(claim, &ingress);
            // Once the status lists the outcome, deciding again changes nothing, frees nothing, tells nothing new.
            let again = allocator.converge(&claim);
            prop_assert_eq!(&again.ingress, &ingress);
            allocator.take_changes();
            let third = allocator.converge(&claim);
            prop_assert_eq!(&third, &again);
            prop_assert!(third.notices.iter().all(ferrolb_ipam::Notice::lasts));
            prop_assert!(allocator.take_changes().freed.is_empty());
            stored.insert(claim.service.clone(), claim);
        }
    }

    #[test]
    fn holders_keep_what_they_hold_through_a_full_pass(
        pools in pools(),
        claims in prop::collection::vec(claims(), 1..30),
        order in Just((0..8_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut before = allocator(pools.clone());
        let mut stored: BTreeMap<ServiceKey, Claim> = BTreeMap::new();
        for claim in claims {
            let held = stored.get(&claim.service).map(|c| c.held.clone()).unwrap_or_default();
            let claim = Claim { held, ..claim };
            let ingress = before.converge(&claim).ingress;
            stored.insert(claim.service.clone(), holding(claim, &ingress));
        }
        let mut after = allocator(pools);
        let names: Vec<&Claim> = stored.values().collect();
        let shuffled: Vec<&Claim> = order.iter().filter_map(|n| names.get(*n).copied()).collect();
        for claim in shuffled.iter().filter(|claim| !claim.held.is_empty()) {
            prop_assert!(after.adopt(claim), "{} may keep {:?}", claim.service, claim.held);
        }
        for claim in shuffled.iter().filter(|claim| !claim.held.is_empty()) {
            let listed: Vec<IpAddr> = claim.held.iter().copied().flatten().collect();
            let decision = after.converge(claim);
            prop_assert!(decision.ingress.starts_with(&listed));
            prop_assert_eq!(decision.cleared, None);
        }
    }

    #[test]
    fn whoever_waits_is_helped_by_nothing_but_what_it_waits_for(
        pools in pools(),
        steps in prop::collection::vec((claims(), any::<bool>(), 0..8_u8), 1..50),
    ) {
        let mut allocator = allocator(pools);
        // Those who were refused, with what they wait for; `None`: nothing that others do.
        let mut refused: BTreeMap<ServiceKey, (Claim, Option<Want>)> = BTreeMap::new();
        for (claim, leave, low) in steps {
            let claim = if low == 0 && claim.cluster_ips == ["10.96.0.1"] { wants(claim, &["1.0.1.1"]) } else { claim };
            refused.remove(&claim.service);
            if leave {
                allocator.release(&claim.service);
            } else {
                let decision = allocator.converge(&claim);
                if decision.ingress.is_empty() {
                    refused.insert(claim.service.clone(), (claim, decision.waits_for));
                }
            }
            let freed = allocator.take_changes().freed;
            let mut served: Vec<(Want, bool)> = Vec::new();
            for (claim, want) in refused.values() {
                let is_served = !allocator.clone().converge(claim).ingress.is_empty();
                let told = want.as_ref().is_some_and(|want| {
                    want.spots().iter().any(|spot| freed.contains(spot) && allocator.has_room(spot))
                });
                prop_assert!(told || !is_served, "{} was not told of {freed:?}", claim.service);
                served.extend(want.clone().map(|want| (want, is_served)));
            }
            // Who wants the same has the same prospects.
            for (want, is_served) in &served {
                prop_assert!(served.iter().all(|(other, s)| other != want || s == is_served), "{want:?}");
            }
            // Who can be served is served by its controller, and waits no longer.
            loop {
                let served: Vec<ServiceKey> = refused
                    .values()
                    .filter(|(claim, _)| !allocator.converge(claim).ingress.is_empty())
                    .map(|(claim, _)| claim.service.clone())
                    .collect();
                if served.is_empty() {
                    break;
                }
                refused.retain(|service, _| !served.contains(service));
            }
            // What that brought about was looked at while it happened.
            allocator.take_changes();
        }
    }
}

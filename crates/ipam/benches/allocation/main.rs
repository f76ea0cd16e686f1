// SPDX-License-Identifier: Apache-2.0
//! What allocation costs: `cargo bench -p ferrolb-ipam`.

#![allow(clippy::unwrap_used)] // texts that are known to parse

#[allow(dead_code)] // each bench needs a part of it
mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ferrolb_config::{Config, Pool};
use ferrolb_ipam::{Allocator, Claim, IpFamilyPolicy, Keys, Port, Protocol};
use ferrolb_net_types::{IpFamily, ServiceKey};

use crate::table::{Table, Unit};

/// Every address of a /16.
const ALL: usize = 1 << 16;

fn main() -> ExitCode {
    let mut table = Table::from_arguments();
    let claims: Vec<Claim> = (0..ALL).map(claim).collect();
    let sixteen = || Allocator::new(&config(&["10.0.0.0/16"], false));

    let fill = table.best(sixteen, |a| served(a, &claims[..10_000]));
    let aim = Some(Duration::from_millis(100));
    table.time("10,000 Services fill a /16", fill, aim, Unit::Milliseconds);

    let first = table.best(sixteen, |a| served(a, &claims[..1_000]));
    let nearly_full = served(sixteen(), &claims[..ALL - 1_000]);
    let last = table.best(|| nearly_full.clone(), |a| served(a, &claims[ALL - 1_000..]));
    table.ratio("the last 1,000 of a full /16, to the first 1,000", last, first, 3.0);

    let filled = served(sixteen(), &claims[..10_000]);
    let held: Vec<Claim> = claims[..10_000].iter().map(|claim| holding(&filled, claim)).collect();
    let adopt = table.best(
        || held.iter().rev().collect::<Vec<_>>(),
        |held| {
            let mut allocator = sixteen();
            assert!(held.iter().all(|claim| allocator.adopt(claim)));
            for claim in held {
                assert!(allocator.converge(claim).cleared.is_none());
            }
            allocator
        },
    );
    table.time("a start that adopts 10,000 Services", adopt, aim, Unit::Milliseconds);

    let changed = |services: usize| {
        let before = served(sixteen(), &claims[..services]);
        let claim = holding(&before, &claims[services / 2]);
        let variants = [80, 81].map(|number| Claim { ports: vec![tcp(number)], ..claim.clone() });
        table.best(
            || before.clone(),
            |mut allocator| {
                for n in 0..10_000 {
                    allocator.converge(&variants[n % 2]);
                }
                allocator
            },
        ) / 10_000
    };
    let (among_many, among_few) = (changed(10_000), changed(10));
    table.ratio("one changed Service among 10,000, to one among 10", among_many, among_few, 3.0);
    table.time("one changed Service among 10,000", among_many, None, Unit::Microseconds);

    // Neither the size of the pool nor its number costs anything.
    let size = |block: &'static str, avoid: bool| {
        table.best(|| Allocator::new(&config(&[block], avoid)), |a| served(a, &claims[..10_000]))
    };
    let (eight, small) = (size("10.0.0.0/8", true), size("10.0.0.0/18", false));
    table.ratio("10,000 into a /8 with avoidBuggyIPs, to a /18 without", eight, small, 3.0);

    let blocks: Vec<String> = (0..1_000).map(|n| format!("10.{}.{}.0/30", n / 250, n % 250)).collect();
    let blocks: Vec<&str> = blocks.iter().map(String::as_str).collect();
    let full = served(Allocator::new(&config_of_pools(&blocks)), &claims[..3_990]);
    let behind = table.best(|| full.clone(), |a| served(a, &claims[3_990..4_000])) / 10;
    let one_pool = table.best(
        || served(Allocator::new(&config(&["10.0.0.0/20"], false)), &claims[..3_990]),
        |a| served(a, &claims[3_990..4_000]),
    ) / 10;
    table.ratio("an address behind 997 full pools, to one of one pool", behind, one_pool, 10.0);

    let sharers = |services: usize| {
        let sharing = |n: usize| Claim {
            keys: Keys { sharing: "k".to_owned(), backend: String::new() },
            ports: vec![tcp(u16::try_from(n + 1).unwrap_or(u16::MAX))],
            ..claims[n].clone()
        };
        let sharers: Vec<Claim> = (0..services).map(sharing).collect();
        let shared = served(sixteen(), &sharers);
        let last = sharers[services - 1].clone();
        table.best(
            || shared.clone(),
            |mut allocator| {
                for _ in 0..1_000 {
                    allocator.release(&last.service);
                    allocator.converge(&last);
                }
                allocator
            },
        ) / 1_000
    };
    let (crowd, pair) = (sharers(10_000), sharers(10));
    table.ratio("one of 10,000 on a shared address leaves and returns, to one of 10", crowd, pair, 3.0);
    table.finish()
}

/// The allocator once all of these are served.
fn served(mut allocator: Allocator, claims: &[Claim]) -> Allocator {
    for claim in claims {
        assert_eq!(allocator.converge(claim).ingress.len(), 1, "{}", claim.service);
    }
    allocator
}

/// The claim as it stands once the status lists what it was given.
fn holding(allocator: &Allocator, claim: &Claim) -> Claim {
    let ips = &allocator.allocation(&claim.service).unwrap().ips;
    Claim { held: ips.iter().copied().map(Some).collect(), ..claim.clone() }
}

fn config(blocks: &[&str], avoid_buggy_ips: bool) -> Config {
    let pool = Pool {
        name: "p".into(),
        blocks: blocks.iter().map(|text| text.parse().unwrap()).collect(),
        auto_assign: true,
        avoid_buggy_ips,
        allocation: None,
        l2_advertisements: vec![],
    };
    Config { pools: [(pool.name.clone(), Arc::new(pool))].into(), ..Config::default() }
}

/// One pool for each block.
fn config_of_pools(blocks: &[&str]) -> Config {
    let mut all = Config::default();
    for (n, block) in blocks.iter().enumerate() {
        for pool in config(&[block], false).pools.into_values() {
            let name: ferrolb_net_types::PoolName = format!("p{n:04}").into();
            all.pools.insert(name.clone(), Arc::new(Pool { name, ..Pool::clone(&pool) }));
        }
    }
    all
}

fn claim(n: usize) -> Claim {
    Claim {
        service: ServiceKey::new("demo", &format!("service-{n:05}")),
        labels: [].into(),
        load_balancer: true,
        cluster_ips: vec!["10.96.0.1".to_owned()],
        cluster_ip: "10.96.0.1".to_owned(),
        policy: IpFamilyPolicy::SingleStack,
        preferred_family: IpFamily::V4,
        requested_ips: Ok(None),
        requested_pool: String::new(),
        keys: Keys::default(),
        ports: vec![tcp(80)],
        held: vec![],
    }
}

const fn tcp(number: u16) -> Port {
    Port { protocol: Protocol::Tcp, number }
}

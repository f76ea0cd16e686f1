// SPDX-License-Identifier: Apache-2.0
//! Pools and claims in short form.

use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_config::{Config, Pool, Selector, ServiceAllocation};
use ferrolb_ipam::{Allocator, Claim, IpFamilyPolicy, Keys, Notice, Port, Protocol};
use ferrolb_net_types::{IpFamily, ServiceKey};

/// A pool that serves anybody.
pub(crate) fn pool(name: &str, blocks: &[&str]) -> Pool {
    Pool {
        name: name.into(),
        blocks: blocks.iter().map(|text| text.parse().unwrap()).collect(),
        auto_assign: true,
        avoid_buggy_ips: false,
        allocation: None,
        l2_advertisements: vec![],
    }
}

/// A pool of these namespaces and labels.
pub(crate) fn pinned(pool: Pool, namespaces: &[&str], selectors: Vec<Selector>, priority: i64) -> Pool {
    let namespaces = (!namespaces.is_empty()).then(|| namespaces.iter().map(|&name| name.into()).collect());
    let service_selectors =
        if namespaces.is_none() && selectors.is_empty() { vec![Selector::everything()] } else { selectors };
    Pool { allocation: Some(ServiceAllocation { priority, namespaces, service_selectors }), ..pool }
}

pub(crate) fn config(pools: Vec<Pool>) -> Config {
    let pools = pools.into_iter().map(|pool| (pool.name.clone(), Arc::new(pool))).collect();
    Config { pools, ..Config::default() }
}

pub(crate) fn allocator(pools: Vec<Pool>) -> Allocator {
    Allocator::new(&config(pools))
}

/// A Service in namespace `n` with one IPv4 cluster IP and TCP port 80.
pub(crate) fn claim(name: &str) -> Claim {
    Claim {
        service: ServiceKey::new("n", name),
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

pub(crate) fn v6(claim: Claim) -> Claim {
    Claim { cluster_ips: vec!["fd00:96::1".to_owned()], preferred_family: IpFamily::V6, ..claim }
}

pub(crate) fn dual(claim: Claim, policy: IpFamilyPolicy) -> Claim {
    Claim { cluster_ips: vec!["10.96.0.1".to_owned(), "fd00:96::1".to_owned()], policy, ..claim }
}

pub(crate) fn sharing(claim: Claim, key: &str, backend: &str, port: u16) -> Claim {
    let keys = Keys { sharing: key.to_owned(), backend: backend.to_owned() };
    Claim { keys, ports: vec![tcp(port)], ..claim }
}

/// The claim with a request for these addresses.
pub(crate) fn wants(claim: Claim, ips: &[&str]) -> Claim {
    Claim { requested_ips: Ok(Some(ips.iter().map(|ip| ip.parse().unwrap()).collect())), ..claim }
}

pub(crate) fn from_pool(claim: Claim, pool: &str) -> Claim {
    Claim { requested_pool: pool.to_owned(), ..claim }
}

/// The claim as it stands after a decision was stored.
pub(crate) fn holding(claim: Claim, ips: &[IpAddr]) -> Claim {
    Claim { held: ips.iter().copied().map(Some).collect(), ..claim }
}

pub(crate) const fn tcp(number: u16) -> Port {
    Port { protocol: Protocol::Tcp, number }
}

/// Decides, and says in one line what came of it: the addresses, or why there are none.
pub(crate) fn decide(allocator: &mut Allocator, claim: &Claim) -> String {
    let decision = allocator.converge(claim);
    let failure = decision.notices.iter().rev().find_map(|notice| match notice {
        Notice::NotAllocated { why, .. } => Some(why.to_string()),
        _ => None,
    });
    failure.unwrap_or_else(|| decision.ingress.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

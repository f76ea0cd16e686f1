// SPDX-License-Identifier: Apache-2.0
//! What a version of a Service says, as far as the rules of allocation are concerned, and those rules.
//!
//! Written from what is documented of allocation, without a look at the allocator: the two must not err alike.

use std::net::IpAddr;

use ferrolb_config::{Config, Labels, Pool};
use ferrolb_net_types::{IpFamily, Prefix, parse_ip};
use k8s_openapi::api::core::v1::{Service, ServiceSpec};

/// The readable part of one version of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) namespace: String,
    pub(crate) labels: Labels,
    pub(crate) load_balancer: bool,
    pub(crate) other_class: bool,
    cluster_ips: usize,
    /// Of the cluster IPs; `None` if they are not one per family.
    families: Option<Families>,
    policy: Policy,
    pub(crate) requested: Requested,
    pub(crate) requested_pool: String,
    sharing: String,
    backend: String,
    ports: Vec<(String, i32)>,
    /// The addresses in the status; `None` for a text that is none.
    pub(crate) listed: Vec<Option<IpAddr>>,
    /// The pool annotation.
    pub(crate) marked: Option<String>,
    pub(crate) annotations: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Families {
    One(IpFamily),
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Single,
    Prefer,
    Require,
}

/// Addresses asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requested {
    Nothing,
    These(Vec<IpAddr>),
    /// It cannot be understood.
    Nonsense,
}

/// Why a Service may not keep what it lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    NotLoadBalancer,
    NoPools,
    NoClusterIps,
    NotEnoughClusterIps,
    BadClusterIps,
    BadHeld,
    OtherFamilies,
    NotInOnePool,
    NotAdmitted,
    Contended,
    OtherPool,
    OtherAddresses,
    /// It requires two addresses and has one: it may stay if another one can be added.
    Half,
}

impl Facts {
    pub(crate) fn of(service: &Service) -> Self {
        let none = ServiceSpec::default();
        let spec = service.spec.as_ref().unwrap_or(&none);
        let notes = service.metadata.annotations.as_ref();
        // The deprecated name counts where the new one is absent.
        let note = |name: &str| {
            let of = |prefix: &str| notes.and_then(|notes| notes.get(&format!("{prefix}/{name}"))).cloned();
            of("metallb.io").or_else(|| of("metallb.universe.tf")).unwrap_or_default()
        };
        let cluster_ips = match spec.cluster_ips.as_deref().unwrap_or_default() {
            [] => spec.cluster_ip.clone().into_iter().filter(|ip| !ip.is_empty()).collect(),
            list => list.to_vec(),
        };
        let local = spec.external_traffic_policy.as_deref() == Some("Local");
        let backend = match (&spec.selector, local) {
            (Some(selector), true) => format!("{selector:?}"),
            _ => String::new(),
        };
        let listed = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let listed = listed.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
        Self {
            namespace: service.metadata.namespace.clone().unwrap_or_default(),
            labels: service.metadata.labels.clone().unwrap_or_default(),
            load_balancer: spec.type_.as_deref() == Some("LoadBalancer"),
            other_class: spec.load_balancer_class.as_deref().is_some_and(|class| !class.is_empty()),
            cluster_ips: cluster_ips.len(),
            families: families(&cluster_ips.iter().map(|ip| parse_ip(ip)).collect::<Vec<_>>()),
            policy: match spec.ip_family_policy.as_deref() {
                Some("PreferDualStack") => Policy::Prefer,
                Some("RequireDualStack") => Policy::Require,
                _ => Policy::Single,
            },
            requested: requested(
                &note("loadBalancerIPs"),
                spec.load_balancer_ip.as_deref().unwrap_or_default(),
            ),
            requested_pool: note("address-pool"),
            sharing: note("allow-shared-ip"),
            backend,
            ports: spec
                .ports
                .iter()
                .flatten()
                .map(|port| (port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), port.port))
                .collect(),
            listed: listed.iter().filter_map(|entry| entry.ip.as_deref()).map(parse_ip).collect(),
            marked: notes.and_then(|notes| notes.get("metallb.io/ip-allocated-from-pool")).cloned(),
            annotations: notes.iter().flat_map(|notes| notes.keys()).cloned().collect(),
        }
    }

    /// Whether the controller has any business with it.
    pub(crate) fn is_ours(&self) -> bool {
        !self.other_class
    }

    /// The addresses it lists.
    pub(crate) fn ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.listed.iter().copied().flatten()
    }

    pub(crate) fn lists(&self, ip: IpAddr) -> bool {
        self.listed.contains(&Some(ip))
    }

    /// Whether the two may list one address.
    pub(crate) fn may_share(&self, other: &Self) -> bool {
        !self.sharing.is_empty()
            && self.sharing == other.sharing
            && self.backend == other.backend
            && self.ports.iter().all(|port| !other.ports.contains(port))
    }

    /// Why the Service may not have exactly these addresses, whoever else lists them.
    pub(crate) fn fault(&self, listed: &[Option<IpAddr>], config: &Config) -> Option<Fault> {
        if !self.load_balancer {
            return Some(Fault::NotLoadBalancer);
        }
        if config.pools.is_empty() && !config.pools_incomplete {
            return Some(Fault::NoPools);
        }
        if self.cluster_ips == 0 {
            return Some(Fault::NoClusterIps);
        }
        if self.policy == Policy::Require && self.cluster_ips < 2 {
            return Some(Fault::NotEnoughClusterIps);
        }
        let Some(own) = self.families else { return Some(Fault::BadClusterIps) };
        let Some(theirs) = families(listed) else { return Some(Fault::BadHeld) };
        let half = own == Families::Both
            && theirs != own
            && self.policy == Policy::Require
            && !matches!(self.requested, Requested::These(_));
        let one_of_two = own == Families::Both && self.policy == Policy::Prefer;
        if own != theirs && !half && !one_of_two {
            return Some(Fault::OtherFamilies);
        }
        let listed: Vec<IpAddr> = listed.iter().copied().flatten().collect();
        let owners: Vec<Option<&Pool>> =
            listed.iter().map(|ip| config.pool_of(*ip).map(AsRef::as_ref)).collect();
        let known: Vec<&Pool> = owners.iter().copied().flatten().collect();
        if known.len() < owners.len() && !config.pools_incomplete
            || known.windows(2).any(|pair| pair[0].name != pair[1].name)
        {
            return Some(Fault::NotInOnePool);
        }
        if known.iter().any(|pool| !pool.admits(&self.namespace, &self.labels)) {
            return Some(Fault::NotAdmitted);
        }
        if !self.requested_pool.is_empty() {
            let other = match known.first() {
                Some(pool) if known.len() == owners.len() => pool.name.as_str() != self.requested_pool,
                _ => config.pools.keys().any(|name| name.as_str() == self.requested_pool),
            };
            if other {
                return Some(Fault::OtherPool);
            }
        }
        if let Requested::These(wanted) = &self.requested
            && (wanted.len() != listed.len() || wanted.iter().any(|ip| !listed.contains(ip)))
        {
            return Some(Fault::OtherAddresses);
        }
        (half && self.requested == Requested::Nothing).then_some(Fault::Half)
    }

    /// Whether it may be given this address afresh from this pool.
    pub(crate) fn may_be_given(&self, ip: IpAddr, pool: &Pool) -> bool {
        let asked = !self.requested_pool.is_empty() || matches!(self.requested, Requested::These(_));
        hands_out(pool, ip) && pool.admits(&self.namespace, &self.labels) && (pool.auto_assign || asked)
    }

    /// Addresses that the Service could have, if it lists none now and these others list what they do.
    pub(crate) fn could_have(&self, config: &Config, others: &[&Self]) -> Option<Vec<IpAddr>> {
        let own = self.families?;
        if !self.load_balancer || self.policy == Policy::Require && self.cluster_ips < 2 {
            return None;
        }
        let free = |ip: &IpAddr| others.iter().all(|other| !other.lists(*ip) || self.may_share(other));
        let named = |pool: &Pool| self.requested_pool.is_empty() || pool.name.as_str() == self.requested_pool;
        if let Requested::These(ips) = &self.requested {
            let listed: Vec<_> = ips.iter().copied().map(Some).collect();
            let pool = config.pool_of_all(ips)?;
            let fits = families(&listed) == Some(own)
                && named(pool)
                && ips.iter().all(|ip| self.may_be_given(*ip, pool) && free(ip));
            return fits.then(|| ips.clone());
        }
        if self.requested == Requested::Nonsense {
            return None;
        }
        config.pools.values().filter(|pool| named(pool)).find_map(|pool| {
            let first = |family| addresses(pool, family).find(|ip| self.may_be_given(*ip, pool) && free(ip));
            let (v4, v6) = (first(IpFamily::V4), first(IpFamily::V6));
            match (own, self.policy) {
                (Families::One(IpFamily::V4), _) => v4.map(|ip| vec![ip]),
                (Families::One(IpFamily::V6), _) => v6.map(|ip| vec![ip]),
                (Families::Both, Policy::Require) => Some(vec![v4?, v6?]),
                (Families::Both, Policy::Prefer) => v4.or(v6).map(|ip| vec![ip]),
                (Families::Both, Policy::Single) => None,
            }
        })
    }

    /// An address of the family it lacks, if it would like one, holds one, and the pool of that one has it.
    pub(crate) fn could_add(&self, config: &Config, others: &[&Self]) -> Option<IpAddr> {
        let &[Some(held)] = &self.listed[..] else { return None };
        if self.policy != Policy::Prefer
            || self.families != Some(Families::Both)
            || self.requested != Requested::Nothing
        {
            return None;
        }
        let pool = config.pool_of(held)?;
        let missing = if held.is_ipv4() { IpFamily::V6 } else { IpFamily::V4 };
        addresses(pool, missing).find(|ip| {
            hands_out(pool, *ip) && others.iter().all(|other| !other.lists(*ip) || self.may_share(other))
        })
    }

    /// Whether it would like a second address.
    pub(crate) fn wants_another(&self) -> bool {
        self.policy == Policy::Prefer && self.families == Some(Families::Both) && self.listed.len() == 1
    }
}

/// Whether the pool gives this address to anybody.
fn hands_out(pool: &Pool, ip: IpAddr) -> bool {
    let buggy = matches!(ip, IpAddr::V4(ip) if [0, 255].contains(&ip.octets()[3]));
    pool.contains(ip) && !(pool.avoid_buggy_ips && buggy)
}

/// The addresses of a pool, in its order.
fn addresses(pool: &Pool, family: IpFamily) -> impl Iterator<Item = IpAddr> + '_ {
    pool.blocks.iter().filter(move |block| block.family() == family).flat_map(|block| in_block(*block))
}

/// The pools of a simulation are so small that counting their addresses is no art.
fn in_block(block: Prefix) -> impl Iterator<Item = IpAddr> {
    let number = |ip| match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let v4 = block.family() == IpFamily::V4;
    (number(block.first())..=number(block.last())).map(move |n| match u32::try_from(n) {
        Ok(n) if v4 => IpAddr::V4(n.into()),
        _ => IpAddr::V6(n.into()),
    })
}

/// How many addresses of the family these Services list, and how many more the pool has to give.
pub(crate) fn count(pool: &Pool, family: IpFamily, services: &[&Facts]) -> [i64; 2] {
    let listed = |ip: &IpAddr| services.iter().any(|service| service.lists(*ip));
    let used = addresses(pool, family).filter(listed).count();
    let free = addresses(pool, family).filter(|ip| hands_out(pool, *ip) && !listed(ip)).count();
    [used, free].map(|n| i64::try_from(n).unwrap_or(i64::MAX))
}

fn families(ips: &[Option<IpAddr>]) -> Option<Families> {
    match ips {
        [Some(ip)] => Some(Families::One(IpFamily::of(*ip))),
        [Some(a), Some(b)] if IpFamily::of(*a) != IpFamily::of(*b) => Some(Families::Both),
        _ => None,
    }
}

fn requested(annotation: &str, field: &str) -> Requested {
    let ips: Option<Vec<IpAddr>> = match (annotation, field) {
        ("", "") => return Requested::Nothing,
        ("", field) => parse_ip(field).map(|ip| vec![ip]),
        (list, "") => list.split(',').map(|item| parse_ip(item.trim())).collect(),
        _ => None,
    };
    match ips {
        Some(ips) if families(&ips.iter().copied().map(Some).collect::<Vec<_>>()).is_some() => {
            Requested::These(ips)
        }
        _ => Requested::Nonsense,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What users write: a few Services and pools, drawn so that they get in each other's way.
//!
//! There are few names, few addresses and few ports. Pools have a home range each, which others want now and then.

use std::collections::BTreeMap;

use ferrolb_api::{IPAddressPoolSpec, ServiceAllocation};
use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::rng::Rng;

/// How many Services there may be at once.
pub(crate) const SERVICES: usize = 8;
/// How many pools.
pub(crate) const POOLS: usize = 5;
/// The namespaces of the Services: those with even numbers live in the first one.
pub(crate) const NAMESPACES: [&str; 2] = ["blue", "red"];
/// The namespace of the pools.
pub(crate) const SYSTEM: &str = "metallb-system";
/// The class of Services that are not ours.
pub(crate) const OTHER_CLASS: &str = "other.example/lb";

const SERVICE_NAMES: [&str; SERVICES] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"];
/// The last one does not exist, ever.
pub(crate) const POOL_NAMES: [&str; POOLS + 1] = ["p0", "p1", "p2", "p3", "p4", "nowhere"];

pub(crate) fn service_name(slot: usize) -> (&'static str, &'static str) {
    (NAMESPACES[slot % 2], SERVICE_NAMES[slot])
}

pub(crate) fn service_slot(name: &str) -> Option<usize> {
    SERVICE_NAMES.iter().position(|known| *known == name)
}

pub(crate) fn pool_slot(name: &str) -> Option<usize> {
    POOL_NAMES[..POOLS].iter().position(|known| *known == name)
}

/// What a Service's user wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceShape {
    pub(crate) load_balancer: bool,
    pub(crate) other_class: bool,
    pub(crate) stack: Stack,
    /// Which of [`PORTS`].
    pub(crate) ports: &'static [usize],
    pub(crate) sharing: &'static str,
    pub(crate) local: bool,
    pub(crate) selector: &'static str,
    /// Value of `loadBalancerIPs`; empty is none.
    pub(crate) ips: &'static str,
    /// `spec.loadBalancerIP`.
    pub(crate) ip: &'static str,
    pub(crate) pool: &'static str,
    pub(crate) app: &'static str,
    /// Annotations by the names of former versions.
    pub(crate) deprecated: bool,
    /// An annotation that means nothing.
    pub(crate) unknown: bool,
}

/// Which addresses the cluster gives a Service, and how many it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    V4,
    V6,
    Prefer,
    PreferV6,
    PreferOnlyV4,
    Require,
    /// What no API server lets pass today, though some did.
    RequireOnlyV4,
    DualWithoutPolicy,
    NoClusterIp,
    Headless,
}

const PORTS: [(&str, i32); 4] = [("TCP", 80), ("TCP", 443), ("UDP", 53), ("TCP", 53)];
const PORT_CHOICES: [&[usize]; 6] = [&[0], &[1], &[0, 1], &[2], &[3], &[1, 2]];
const IPS: [&str; 18] = [
    "10.0.0.0",
    "10.0.0.1",
    "10.0.0.8",
    "10.0.0.9",
    "10.0.0.17",
    "10.0.0.255",
    "10.0.1.0",
    "10.0.1.1",
    "fd00::1",
    "fd00::8",
    "10.0.0.1,fd00::1",
    " fd00::9, 10.0.0.9",
    "10.0.0.0,fd00::9",
    "10.0.0.1,10.0.0.2",
    "10.0.0.1,",
    "please",
    "192.0.2.1",
    "10.0.0.1,fd00::1,fd00::2",
];
const FIELDS: [&str; 5] = ["10.0.0.0", "10.0.0.9", "10.0.0.16", "fd00::", "please"];

/// One field of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceField {
    Type,
    Class,
    Stack,
    Ports,
    Sharing,
    Policy,
    Selector,
    Ips,
    Ip,
    Pool,
    Labels,
    Notes,
}

pub(crate) const SERVICE_FIELDS: [(u64, ServiceField); 12] = [
    (6, ServiceField::Type),
    (3, ServiceField::Class),
    (10, ServiceField::Stack),
    (10, ServiceField::Ports),
    (10, ServiceField::Sharing),
    (6, ServiceField::Policy),
    (4, ServiceField::Selector),
    (10, ServiceField::Ips),
    (4, ServiceField::Ip),
    (8, ServiceField::Pool),
    (5, ServiceField::Labels),
    (4, ServiceField::Notes),
];

impl ServiceShape {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        Self {
            load_balancer: rng.chance(90),
            other_class: rng.chance(5),
            stack: rng.weighted(&[
                (45, Stack::V4),
                (9, Stack::V6),
                (13, Stack::Prefer),
                (5, Stack::PreferV6),
                (4, Stack::PreferOnlyV4),
                (14, Stack::Require),
                (2, Stack::RequireOnlyV4),
                (2, Stack::DualWithoutPolicy),
                (2, Stack::NoClusterIp),
                (2, Stack::Headless),
            ]),
            ports: rng.pick(&PORT_CHOICES),
            sharing: rng.weighted(&[(50, ""), (35, "k1"), (15, "k2")]),
            local: rng.chance(25),
            selector: rng.pick(&["a", "b"]),
            ips: if rng.chance(16) { rng.pick(&IPS) } else { "" },
            ip: if rng.chance(6) { rng.pick(&FIELDS) } else { "" },
            pool: if rng.chance(14) { rng.pick(&POOL_NAMES) } else { "" },
            app: rng.pick(&["", "web", "db"]),
            deprecated: rng.chance(10),
            unknown: rng.chance(3),
        }
    }

    /// Takes one field of another shape.
    pub(crate) fn take(&mut self, field: ServiceField, from: &Self) {
        match field {
            ServiceField::Type => self.load_balancer = !self.load_balancer,
            ServiceField::Class => self.other_class = !self.other_class,
            ServiceField::Stack => self.stack = from.stack,
            ServiceField::Ports => self.ports = from.ports,
            ServiceField::Sharing => self.sharing = from.sharing,
            ServiceField::Policy => self.local = !self.local,
            ServiceField::Selector => self.selector = from.selector,
            ServiceField::Ips => {
                self.ips = if self.ips.is_empty() { pick_other(from, &IPS) } else { from.ips }
            }
            ServiceField::Ip => self.ip = if self.ip.is_empty() { pick_other(from, &FIELDS) } else { "" },
            ServiceField::Pool => {
                self.pool = if self.pool.is_empty() { pick_other(from, &POOL_NAMES) } else { from.pool };
            }
            ServiceField::Labels => self.app = from.app,
            ServiceField::Notes => self.deprecated = !self.deprecated,
        }
    }

    pub(crate) fn spec(&self) -> ServiceSpec {
        let (policy, families, ips): (_, &[&str], &[&str]) = match self.stack {
            Stack::V4 => ("SingleStack", &["IPv4"], &["10.96.0.1"]),
            Stack::V6 => ("SingleStack", &["IPv6"], &["fd00:96::1"]),
            Stack::Prefer => ("PreferDualStack", &["IPv4", "IPv6"], &["10.96.0.1", "fd00:96::1"]),
            Stack::PreferV6 => ("PreferDualStack", &["IPv6", "IPv4"], &["fd00:96::1", "10.96.0.1"]),
            Stack::PreferOnlyV4 => ("PreferDualStack", &["IPv4"], &["10.96.0.1"]),
            Stack::Require => ("RequireDualStack", &["IPv4", "IPv6"], &["10.96.0.1", "fd00:96::1"]),
            Stack::RequireOnlyV4 => ("RequireDualStack", &["IPv4"], &["10.96.0.1"]),
            Stack::DualWithoutPolicy => ("SingleStack", &["IPv4", "IPv6"], &["10.96.0.1", "fd00:96::1"]),
            Stack::NoClusterIp => ("SingleStack", &["IPv4"], &[]),
            Stack::Headless => ("SingleStack", &["IPv4"], &["None"]),
        };
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let port = |&n: &usize| ServicePort {
            name: Some(format!("port-{n}")),
            port: PORTS[n].1,
            protocol: Some(PORTS[n].0.to_owned()),
            ..ServicePort::default()
        };
        ServiceSpec {
            type_: Some(if self.load_balancer { "LoadBalancer" } else { "ClusterIP" }.to_owned()),
            load_balancer_class: self.other_class.then(|| OTHER_CLASS.to_owned()),
            cluster_ip: ips.first().map(|ip| (*ip).to_owned()),
            cluster_ips: Some(texts(ips)),
            ip_families: Some(texts(families)),
            ip_family_policy: Some(policy.to_owned()),
            ports: Some(self.ports.iter().map(port).collect()),
            external_traffic_policy: Some(if self.local { "Local" } else { "Cluster" }.to_owned()),
            selector: Some(BTreeMap::from([("app".to_owned(), self.selector.to_owned())])),
            load_balancer_ip: (!self.ip.is_empty()).then(|| self.ip.to_owned()),
            ..ServiceSpec::default()
        }
    }

    pub(crate) fn annotations(&self) -> BTreeMap<String, String> {
        let prefix = if self.deprecated { "metallb.universe.tf" } else { "metallb.io" };
        let known =
            [("loadBalancerIPs", self.ips), ("allow-shared-ip", self.sharing), ("address-pool", self.pool)];
        let mut notes: BTreeMap<String, String> = known
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (format!("{prefix}/{name}"), value.to_owned()))
            .collect();
        if self.unknown {
            notes.insert("metallb.io/loadBalancerIP".to_owned(), "x".to_owned());
        }
        notes
    }

    pub(crate) fn labels(&self) -> Option<BTreeMap<String, String>> {
        (!self.app.is_empty()).then(|| BTreeMap::from([("app".to_owned(), self.app.to_owned())]))
    }
}

/// One of a list that the rest of a drawn shape determines: its ports are as random as anything.
fn pick_other(from: &ServiceShape, list: &[&'static str]) -> &'static str {
    let number =
        from.ports.iter().sum::<usize>() + from.app.len() * 5 + from.sharing.len() * 3 + from.ips.len();
    list[number % list.len()]
}

/// What a pool's owner wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolShape {
    /// Whose range it uses; its own number unless it swapped.
    pub(crate) home: usize,
    /// 0 for none, then 1, 2, 4 addresses.
    pub(crate) v4: usize,
    /// 0 for none, then 1, 2 addresses.
    pub(crate) v6: usize,
    /// Also wants the first addresses of this home.
    pub(crate) also: Option<usize>,
    /// Also wants the rest of its home, as a range that crosses a border of `/24` where the home does.
    pub(crate) tail: bool,
    pub(crate) auto_assign: bool,
    pub(crate) avoid_buggy: bool,
    pub(crate) allocation: Allocation,
    /// Unparsable in one way or another.
    pub(crate) broken: Option<Fault>,
}

/// `spec.serviceAllocation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    Absent,
    Empty,
    Priority(i64),
    Namespace(&'static str),
    Tier(&'static str),
    App(&'static str),
    NamespaceAndApp,
}

/// What is wrong with an unparsable pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    NoAddresses,
    Nonsense,
    TwiceTheNamespace,
}

/// One field of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolField {
    Auto,
    AvoidBuggy,
    Allocation,
    Families,
    Repair,
}

pub(crate) const POOL_FIELDS: [(u64, PoolField); 5] = [
    (3, PoolField::Auto),
    (2, PoolField::AvoidBuggy),
    (5, PoolField::Allocation),
    (3, PoolField::Families),
    (4, PoolField::Repair),
];

impl PoolShape {
    pub(crate) fn draw(rng: &mut Rng, slot: usize) -> Self {
        Self {
            home: slot,
            v4: rng.weighted(&[(1, 0), (2, 1), (4, 2), (2, 3)]),
            v6: rng.weighted(&[(3, 0), (2, 1), (3, 2)]),
            also: rng.chance(5).then(|| rng.index(POOLS)),
            tail: rng.chance(15),
            auto_assign: rng.chance(85),
            avoid_buggy: rng.chance(20),
            allocation: rng.weighted(&[
                (60, Allocation::Absent),
                (5, Allocation::Empty),
                (5, Allocation::Priority(5)),
                (4, Allocation::Priority(1)),
                (6, Allocation::Namespace("blue")),
                (8, Allocation::Tier("gold")),
                (8, Allocation::App("web")),
                (4, Allocation::NamespaceAndApp),
            ]),
            broken: rng
                .chance(4)
                .then(|| rng.pick(&[Fault::NoAddresses, Fault::Nonsense, Fault::TwiceTheNamespace])),
        }
    }

    pub(crate) fn take(&mut self, field: PoolField, from: &Self) {
        match field {
            PoolField::Auto => self.auto_assign = !self.auto_assign,
            PoolField::AvoidBuggy => self.avoid_buggy = !self.avoid_buggy,
            PoolField::Allocation => self.allocation = from.allocation,
            PoolField::Families => (self.v4, self.v6) = (from.v4, from.v6),
            PoolField::Repair => (self.broken, self.also) = (None, None),
        }
    }

    pub(crate) fn spec(&self) -> IPAddressPoolSpec {
        let mut addresses = Vec::new();
        let home = |n: usize| if n == 3 { 254 } else { n * 8 };
        let low = home(self.home);
        match self.v4 {
            0 => {}
            1 => addresses.push(format!("10.0.0.{low}/32")),
            2 => addresses.push(format!("10.0.0.{low}-10.0.0.{}", low + 1)),
            _ if self.home == 3 => addresses.push("10.0.0.254 - 10.0.1.1".to_owned()),
            _ => addresses.push(format!("10.0.0.{low}/30")),
        }
        match self.v6 {
            0 => {}
            1 => addresses.push(format!("fd00::{:x}/128", self.home * 8)),
            _ => addresses.push(format!("fd00::{:x}/127", self.home * 8)),
        }
        if self.tail || addresses.is_empty() {
            addresses.push(match self.home {
                3 => "10.0.1.2-10.0.1.3".to_owned(),
                home => format!("10.0.0.{}-10.0.0.{}", home * 8 + 4, home * 8 + 5),
            });
        }
        if let Some(also) = self.also.filter(|also| *also != self.home) {
            addresses.push(format!("10.0.0.{}/32", home(also)));
        }
        let mut allocation = self.service_allocation();
        match self.broken {
            None => {}
            Some(Fault::NoAddresses) => addresses.clear(),
            Some(Fault::Nonsense) => addresses.push("10.0.0.300/24".to_owned()),
            Some(Fault::TwiceTheNamespace) => {
                let twice = vec!["red".to_owned(), "red".to_owned()];
                allocation = Some(ServiceAllocation { namespaces: twice, ..ServiceAllocation::default() });
            }
        }
        IPAddressPoolSpec {
            addresses,
            auto_assign: self.auto_assign,
            avoid_buggy_ips: self.avoid_buggy,
            service_allocation: allocation,
        }
    }

    fn service_allocation(&self) -> Option<ServiceAllocation> {
        let label = |key: &str, value: &str| LabelSelector {
            match_labels: Some(BTreeMap::from([(key.to_owned(), value.to_owned())])),
            match_expressions: None,
        };
        let mut allocation = ServiceAllocation::default();
        match self.allocation {
            Allocation::Absent => return None,
            Allocation::Empty => {}
            Allocation::Priority(n) => allocation.priority = Some(n),
            Allocation::Namespace(name) => allocation.namespaces.push(name.to_owned()),
            Allocation::Tier(tier) => allocation.namespace_selectors.push(label("tier", tier)),
            Allocation::App(app) => allocation.service_selectors.push(label("app", app)),
            Allocation::NamespaceAndApp => {
                allocation.namespaces.push("red".to_owned());
                allocation.service_selectors.push(label("app", "db"));
            }
        }
        Some(allocation)
    }
}

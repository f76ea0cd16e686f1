// SPDX-License-Identifier: Apache-2.0
//! What a plan is made from: nodes, Services and endpoints, reduced to what decides.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferrolb_config::{Config, Labels, Pool};
use ferrolb_net_types::{IpFamily, NodeName, ServiceKey, parse_ip};

use crate::plan::check;

/// Everything a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The node to plan for.
    pub node: &'a NodeName,
    /// The configuration in force.
    pub config: &'a Config,
    /// The nodes that exist. An advertisement's node without an entry here is taken for a healthy one.
    pub nodes: &'a BTreeMap<NodeName, Node>,
    /// All Services, those of other implementations and types included.
    pub services: &'a BTreeMap<ServiceKey, Service>,
    /// Settings of the process.
    pub settings: &'a Settings,
}

impl<'a> Inputs<'a> {
    /// The addresses of a Service that is to be announced somewhere, in the order of its status, and the pool that holds
    /// them all; `None` if it is not to be announced anywhere.
    pub fn held(&self, service: &ServiceKey) -> Option<(Vec<IpAddr>, &'a Pool)> {
        check(self, self.services.get(service)?).ok()
    }
}

/// Settings of the process that change decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `--lb-class`: serve Services of this class only. `None` serves those without a class.
    pub lb_class: Option<String>,
    /// `--ignore-exclude-lb`: nodes with the exclusion label may announce.
    pub ignore_exclude_lb: bool,
}

/// What of a Node bears on announcing. Readiness, taints and `spec.unschedulable` do not: a cordoned or NotReady
/// node goes on announcing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The label `node.kubernetes.io/exclude-from-external-load-balancers` is there, with any value.
    pub excluded: bool,
    /// The condition `NetworkUnavailable` is `True`.
    pub network_unavailable: bool,
}

/// What of a Service bears on announcing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// `spec.type` is `LoadBalancer`.
    pub load_balancer: bool,
    /// `spec.loadBalancerClass`.
    pub class: Option<String>,
    /// `metadata.creationTimestamp` in seconds since 1970: of Services that share an address the oldest decides.
    pub created: i64,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `status.loadBalancer.ingress`, in its order.
    pub ingress: Vec<Ingress>,
    /// `spec.externalTrafficPolicy` is `Local`.
    pub local: bool,
    /// All its EndpointSlices together.
    pub endpoints: Endpoints,
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// An address, in canonical form.
    Ip(IpAddr),
    /// An entry without an address, as other controllers write them. It has no say here.
    Hostname(String),
    /// An `ip` that is no address.
    Invalid(String),
}

impl Ingress {
    /// The entry with these fields.
    pub fn parse(ip: Option<&str>, hostname: Option<&str>) -> Self {
        match (ip.filter(|text| !text.is_empty()), hostname.filter(|text| !text.is_empty())) {
            (Some(text), _) => parse_ip(text).map_or_else(|| Self::Invalid(text.to_owned()), Self::Ip),
            (None, Some(name)) => Self::Hostname(name.to_owned()),
            (None, None) => Self::Invalid(String::new()),
        }
    }
}

/// One endpoint of an EndpointSlice, as far as it bears on announcing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoint<'a> {
    /// `conditions.ready`.
    pub ready: Option<bool>,
    /// `conditions.serving`.
    pub serving: Option<bool>,
    /// `nodeName`.
    pub node: Option<&'a str>,
}

impl Endpoint<'_> {
    /// Whether traffic may be sent to it. An unknown readiness counts as ready, and one that is no longer ready
    /// but still serves counts too; `terminating` is not looked at.
    pub fn serves(&self) -> bool {
        self.ready.unwrap_or(true) || self.serving.unwrap_or(false)
    }
}

/// The endpoints of one Service, over all slices, whatever their family and ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// At least one endpoint serves.
    pub any: bool,
    /// The nodes on which at least one serves.
    pub nodes: BTreeSet<NodeName>,
    /// How many serve on each of them.
    pub counts: BTreeMap<NodeName, Counts>,
}

/// How many endpoints serve on a node, by the family of the slices that they are in: those of a Service with both
/// families are in slices of either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In slices of IPv4 addresses.
    pub v4: u32,
    /// In slices of IPv6 addresses.
    pub v6: u32,
}

impl Counts {
    /// Those at which packets of a family end. As long as none of that family are known, the other's stand for them.
    #[must_use]
    pub const fn of(self, family: IpFamily) -> u32 {
        match (family, self) {
            (IpFamily::V4, Self { v4: 0, v6: count }) | (IpFamily::V6, Self { v4: count, v6: 0 }) => count,
            (IpFamily::V4, Self { v4: count, .. }) | (IpFamily::V6, Self { v6: count, .. }) => count,
        }
    }

    const fn of_mut(&mut self, family: IpFamily) -> &mut u32 {
        match family {
            IpFamily::V4 => &mut self.v4,
            IpFamily::V6 => &mut self.v6,
        }
    }
}

impl Endpoints {
    /// Those of a slice, whose addresses are of this family.
    pub fn of<'a>(family: IpFamily, endpoints: impl IntoIterator<Item = Endpoint<'a>>) -> Self {
        let mut all = Self::default();
        for endpoint in endpoints.into_iter().filter(Endpoint::serves) {
            all.any = true;
            let Some(node) = endpoint.node else { continue };
            match all.counts.get_mut(node) {
                Some(counts) => *counts.of_mut(family) += 1,
                None => {
                    let mut counts = Counts::default();
                    *counts.of_mut(family) += 1;
                    all.nodes.insert(node.into());
                    all.counts.insert(node.into(), counts);
                }
            }
        }
        all
    }

    /// Takes in those of another slice.
    pub fn add(&mut self, other: &Self) {
        self.any |= other.any;
        self.nodes.extend(other.nodes.iter().cloned());
        for (node, count) in &other.counts {
            let own = self.counts.entry(node.clone()).or_default();
            own.v4 += count.v4;
            own.v6 += count.v6;
        }
    }
}

/// Of a slice of IPv4 addresses.
impl<'a> FromIterator<Endpoint<'a>> for Endpoints {
    fn from_iter<I: IntoIterator<Item = Endpoint<'a>>>(endpoints: I) -> Self {
        Self::of(IpFamily::V4, endpoints)
    }
}

/// Whether a Service with this `loadBalancerClass` is ours to serve, given `--lb-class`.
pub fn handles_class(service: Option<&str>, ours: Option<&str>) -> bool {
    service == ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_serves_when_ready_or_still_serving_a08() {
        let serves = |ready, serving| Endpoint { ready, serving, node: None }.serves();
        for (ready, serving, expected) in [
            (Some(true), None, true),
            (Some(false), Some(true), true),
            (Some(true), Some(false), true),
            (None, None, true),
            (None, Some(false), true),
            (Some(false), Some(false), false),
            (Some(false), None, false),
        ] {
            assert_eq!(serves(ready, serving), expected, "ready {ready:?}, serving {serving:?}");
        }
    }

    #[test]
    fn slices_are_taken_together_and_nodes_counted_once() {
        let on = |node, ready| Endpoint { ready: Some(ready), serving: None, node };
        let all: Endpoints = [on(Some("b"), true), on(Some("a"), true), on(Some("a"), false), on(None, true)]
            .into_iter()
            .collect();
        assert_eq!((all.any, all.nodes), (true, ["a".into(), "b".into()].into()));
        let homeless: Endpoints = [on(None, true)].into_iter().collect();
        assert_eq!(homeless, Endpoints { any: true, ..Endpoints::default() });
        let more: Endpoints = [on(Some("a"), true), on(Some("a"), true)].into_iter().collect();
        let mut sum = more.clone();
        sum.add(&more);
        sum.add(&Endpoints::of(IpFamily::V6, [on(Some("a"), true), on(Some("a"), false)]));
        let counts = sum.counts["a"];
        assert_eq!((sum.nodes.len(), counts), (1, Counts { v4: 4, v6: 1 }));
        assert_eq!((counts.of(IpFamily::V4), counts.of(IpFamily::V6)), (4, 1));
        assert_eq!(Counts { v4: 3, v6: 0 }.of(IpFamily::V6), 3, "the other's, for the time being");
    }

    #[test]
    fn the_class_must_be_exactly_ours_a09() {
        for (service, ours, expected) in [
            (None, None, true),
            (None, Some("x"), false),
            (Some("x"), None, false),
            (Some("x"), Some("y"), false),
            (Some("x"), Some("x"), true),
        ] {
            assert_eq!(handles_class(service, ours), expected, "{service:?} {ours:?}");
        }
    }

    #[test]
    fn ingress_entries_are_addresses_foreign_names_or_nonsense() {
        assert_eq!(Ingress::parse(Some("::ffff:1.2.3.4"), None), Ingress::Ip([1, 2, 3, 4].into()));
        assert_eq!(Ingress::parse(None, Some("a.example")), Ingress::Hostname("a.example".into()));
        assert_eq!(Ingress::parse(Some("1.2.3"), Some("a.example")), Ingress::Invalid("1.2.3".into()));
        assert_eq!(Ingress::parse(None, None), Ingress::Invalid(String::new()));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! L2Advertisements: what they select, resolved against pools and nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrolb_api::L2AdvertisementSpec;
use ferrolb_net_types::{InterfaceName, Interfaces, NodeName};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::selector::written;
use crate::{L2Advertisement, Labels, Pool, Selector, duplicates};

/// The kind's name in diagnostics.
pub(crate) const KIND: &str = "L2Advertisement";

/// What an L2Advertisement says, before it meets pools and nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedL2 {
    pools: BTreeSet<String>,
    pool_selectors: Vec<Selector>,
    node_selectors: Vec<Selector>,
    preferences: Vec<(u32, Selector)>,
    interfaces: Interfaces,
    service_selectors: Vec<Selector>,
}

/// Why an L2Advertisement is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// MetalLB v0.16.1 refuses it with this text.
    Known(String),
    /// It is about a field that v0.16.1 does not have.
    New(String),
}

/// Parses an advertisement.
pub(crate) fn parse(name: &str, spec: &L2AdvertisementSpec) -> Result<ParsedL2, Refusal> {
    let mut parsed = parse_known(name, spec).map_err(Refusal::Known)?;
    parsed.preferences = parse_preferences(spec)
        .map_err(|e| Refusal::New(format!("{e}\nfailed to parse preferred node selectors for {name}")))?;
    Ok(parsed)
}

/// Parses the selectors of pools or nodes.
pub(crate) fn parse_selectors(list: &[LabelSelector]) -> Result<Vec<Selector>, String> {
    list.iter().map(parse_selector).collect()
}

impl ParsedL2 {
    /// Whether a pool of this name with these labels is announced. Without names and selectors, every one is.
    pub(crate) fn attaches_to(&self, pool: &str, labels: &Labels) -> bool {
        (self.pools.is_empty() && self.pool_selectors.is_empty())
            || self.pools.contains(pool)
            || self.pool_selectors.iter().any(|s| s.matches(labels))
    }

    /// The advertisement with the nodes that exist now.
    pub(crate) fn resolve(&self, name: &str, nodes: &BTreeMap<NodeName, Labels>) -> L2Advertisement {
        let nodes: BTreeMap<_, _> = nodes
            .iter()
            .filter(|(_, labels)| {
                self.node_selectors.is_empty() || self.node_selectors.iter().any(|s| s.matches(labels))
            })
            .collect();
        let preferences = nodes.iter().filter_map(|(node, labels)| {
            let weight: u32 =
                self.preferences.iter().filter(|(_, s)| s.matches(labels)).map(|(weight, _)| weight).sum();
            (weight > 0).then(|| ((*node).clone(), weight))
        });
        L2Advertisement {
            name: Arc::from(name),
            preferences: preferences.collect(),
            nodes: nodes.into_keys().cloned().collect(),
            interfaces: self.interfaces.clone(),
            service_selectors: self.service_selectors.clone(),
        }
    }
}

/// Attaches an advertisement to a pool, unless the pool has an equal one under another name.
///
/// Advertisements with preferences are never taken for equal: their weights are added up later.
pub(crate) fn attach(pool: &mut Pool, advertisement: &Arc<L2Advertisement>) {
    let equal = |other: &Arc<L2Advertisement>| {
        other.nodes == advertisement.nodes
            && other.interfaces == advertisement.interfaces
            && other.service_selectors.len() == advertisement.service_selectors.len()
            && other.service_selectors.iter().collect::<BTreeSet<_>>()
                == advertisement.service_selectors.iter().collect::<BTreeSet<_>>()
            && other.preferences.is_empty()
            && advertisement.preferences.is_empty()
    };
    if !pool.l2_advertisements.iter().any(equal) {
        pool.l2_advertisements.push(Arc::clone(advertisement));
    }
}

fn parse_known(name: &str, spec: &L2AdvertisementSpec) -> Result<ParsedL2, String> {
    duplicates::texts("ipAddressPools", &spec.ip_address_pools)?;
    duplicates::selectors("ipAddressPoolSelectors", &spec.ip_address_pool_selectors)?;
    duplicates::selectors("nodeSelectors", &spec.node_selectors)?;
    duplicates::selectors("serviceSelectors", &spec.service_selectors)?;
    let interfaces: BTreeSet<InterfaceName> =
        spec.interfaces.iter().map(|name| InterfaceName::from(name.as_str())).collect();
    Ok(ParsedL2 {
        pools: spec.ip_address_pools.iter().cloned().collect(),
        pool_selectors: parse_selectors(&spec.ip_address_pool_selectors)?,
        node_selectors: parse_selectors(&spec.node_selectors)
            .map_err(|e| format!("{e}\nfailed to parse node selector for {name}"))?,
        preferences: Vec::new(),
        interfaces: if interfaces.is_empty() { Interfaces::All } else { Interfaces::Named(interfaces) },
        service_selectors: parse_service_selectors(name, &spec.service_selectors)?,
    })
}

/// Parses the Service selectors of an advertisement of either kind.
pub(crate) fn parse_service_selectors(name: &str, list: &[LabelSelector]) -> Result<Vec<Selector>, String> {
    let parse = |selector| {
        Selector::parse(selector).map_err(|cause| {
            let selector = written(selector);
            format!(
                "invalid service selector {selector}: {cause}\nfailed to parse service selector for {name}"
            )
        })
    };
    list.iter().map(parse).collect()
}

fn parse_preferences(spec: &L2AdvertisementSpec) -> Result<Vec<(u32, Selector)>, String> {
    spec.preferred_node_selectors
        .iter()
        .map(|preferred| {
            let weight = u32::try_from(preferred.weight)
                .ok()
                .filter(|weight| (1..=100).contains(weight))
                .ok_or_else(|| format!("invalid weight {}, must be in 1-100 range", preferred.weight))?;
            Ok((weight, parse_selector(&preferred.preference)?))
        })
        .collect()
}

fn parse_selector(selector: &LabelSelector) -> Result<Selector, String> {
    Selector::parse(selector)
        .map_err(|cause| format!("{cause}\ninvalid label selector {}", written(selector)))
}

// SPDX-License-Identifier: Apache-2.0
//! Warnings about what is legal but surely a mistake, or will be refused later by those who see more.
//!
//! Lists that could not be read cost only the warnings that need them.

use std::collections::BTreeSet;

use ferrolb_api::annotations::{ALLOCATE_ONLY, OWN_PREFIX};
use ferrolb_api::bgppeer::SecretReference;
use ferrolb_api::{BGPAdvertisementSpec, BGPPeerSpec, CommunitySpec, IPAddressPool, L2AdvertisementSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::incoming::Incoming;
use super::{List, Review, Setup, Stored, Target, one_line, rivals};
use crate::bgp::{PEER_ANNOTATIONS, not_served};
use crate::evaluate::not_served_text;
use crate::selector::written;
use crate::{BgpType, Diagnostic, LastGood, Resources, Selector, evaluate};

/// Everything to warn about an object that is admitted.
pub(super) fn about(review: &Review, object: &Incoming, stored: &Stored, setup: &Setup) -> Vec<String> {
    let mut hints = Hints { stored, native: setup.bgp_type == BgpType::Native, warnings: Vec::new() };
    if review.namespace != setup.namespace {
        hints.warn(format!("only objects in namespace {} have an effect", setup.namespace));
        return hints.warnings;
    }
    hints.annotations(object);
    match object {
        Incoming::Pool(pool) => hints.pool(pool),
        Incoming::L2Advertisement(advertisement) => hints.l2_advertisement(&advertisement.spec),
        Incoming::BgpAdvertisement(advertisement) => hints.bgp_advertisement(&advertisement.spec),
        Incoming::Peer(peer) => {
            hints.peer(&peer.spec, &setup.namespace);
            if let Some(warning) = rivals::warning(peer, stored, setup) {
                hints.warn(warning);
            }
        }
        Incoming::Community(community) => hints.community(&community.spec),
        Incoming::Profile(_) => {}
    }
    hints.consequences(review, object, setup);
    hints.warnings
}

/// At most so many faults of other objects are listed.
const LISTED: usize = 8;

struct Hints<'a> {
    stored: &'a Stored,
    native: bool,
    warnings: Vec<String>,
}

impl Hints<'_> {
    fn warn(&mut self, warning: String) {
        self.warnings.push(one_line(&warning));
    }

    fn annotations(&mut self, object: &Incoming) {
        for (key, value) in object.metadata().annotations.iter().flatten() {
            if !key.starts_with(OWN_PREFIX) {
                continue;
            }
            let known = match object {
                Incoming::Pool(_) => key == ALLOCATE_ONLY,
                Incoming::Peer(_) => PEER_ANNOTATIONS.contains(&key.as_str()),
                _ => false,
            };
            if !known {
                self.warn(format!("metadata.annotations: {key} is not known here"));
            } else if key == ALLOCATE_ONLY && value != "true" && value != "false" {
                self.warn(format!("metadata.annotations[{key}]: expected true or false, found {value:?}"));
            }
        }
    }

    fn pool(&mut self, pool: &IPAddressPool) {
        if let Some(allocation) = &pool.spec.service_allocation {
            self.names(List::Namespaces, "spec.serviceAllocation.namespaces", &allocation.namespaces);
            self.selectors(
                List::Namespaces,
                "spec.serviceAllocation.namespaceSelectors",
                &allocation.namespace_selectors,
            );
        }
        let stored = self.stored;
        let intended = pool.annotations().get(ALLOCATE_ONLY).is_some_and(|value| value == "true");
        if intended || !stored.has(List::L2Advertisements) || !stored.has(List::BGPAdvertisements) {
            return;
        }
        let resources = stored.resources();
        let l2 = resources
            .l2_advertisements
            .iter()
            .map(|a| (&a.spec.ip_address_pools, &a.spec.ip_address_pool_selectors));
        let bgp = resources
            .bgp_advertisements
            .iter()
            .map(|a| (&a.spec.ip_address_pools, &a.spec.ip_address_pool_selectors));
        if !l2.chain(bgp).any(|(names, selectors)| covers(names, selectors, pool)) {
            self.warn(format!(
                "no L2Advertisement and no BGPAdvertisement announces this pool; if that is meant, annotate it \
                 with {ALLOCATE_ONLY}: \"true\""
            ));
        }
    }

    fn l2_advertisement(&mut self, spec: &L2AdvertisementSpec) {
        self.pools(&spec.ip_address_pools, &spec.ip_address_pool_selectors);
        self.selectors(List::Nodes, "spec.nodeSelectors", &spec.node_selectors);
        for (i, preferred) in spec.preferred_node_selectors.iter().enumerate() {
            let field = format!("spec.preferredNodeSelectors[{i}].preference");
            self.selector(List::Nodes, &field, &preferred.preference);
        }
    }

    fn bgp_advertisement(&mut self, spec: &BGPAdvertisementSpec) {
        self.pools(&spec.ip_address_pools, &spec.ip_address_pool_selectors);
        self.selectors(List::Nodes, "spec.nodeSelectors", &spec.node_selectors);
        self.names(List::BGPPeers, "spec.peers", &spec.peers);
        let aliases = aliases(self.stored.resources());
        for (i, community) in spec.communities.iter().enumerate() {
            let may_be_an_alias = !community.contains(':') && !aliases.contains(community.as_str());
            if may_be_an_alias && self.stored.has(List::Communities) {
                self.warn(format!("spec.communities[{i}]: no Community defines {community:?}"));
            }
        }
    }

    fn peer(&mut self, spec: &BGPPeerSpec, namespace: &str) {
        self.selectors(List::Nodes, "spec.nodeSelectors", &spec.node_selectors);
        let elsewhere = |secret: &&SecretReference| !["", namespace].contains(&secret.namespace.as_str());
        if spec.password_secret.as_ref().filter(elsewhere).is_some() {
            self.warn(format!(
                "spec.passwordSecret.namespace: has no effect, the Secret is looked for in {namespace}"
            ));
        }
        if self.native && spec.ebgp_multi_hop == Some(true) {
            self.warn("spec.ebgpMultiHop: has no effect in native BGP mode".to_owned());
        }
        if let Some(field) = not_served(spec).filter(|_| !self.native) {
            self.warn(not_served_text(field));
        }
    }

    fn community(&mut self, spec: &CommunitySpec) {
        for i in (0..spec.communities.len()).filter(|i| spec.communities[*i].name.is_empty()) {
            self.warn(format!("spec.communities[{i}]: without a name, no BGPAdvertisement can use it"));
        }
    }

    fn pools(&mut self, names: &[String], selectors: &[LabelSelector]) {
        self.names(List::IPAddressPools, "spec.ipAddressPools", names);
        self.selectors(List::IPAddressPools, "spec.ipAddressPoolSelectors", selectors);
    }

    /// Names of objects that do not exist.
    fn names(&mut self, list: List, field: &str, names: &[String]) {
        for (i, name) in names.iter().enumerate() {
            if self.stored.has(list) && !self.stored.holds(list, name) {
                self.warn(format!("{field}[{i}]: there is no {} {name:?}", list.kind()));
            }
        }
    }

    /// Selectors that select nothing now.
    fn selectors(&mut self, list: List, field: &str, selectors: &[LabelSelector]) {
        for (i, selector) in selectors.iter().enumerate() {
            self.selector(list, &format!("{field}[{i}]"), selector);
        }
    }

    fn selector(&mut self, list: List, field: &str, selector: &LabelSelector) {
        let Ok(parsed) = Selector::parse(selector) else { return };
        let resources = self.stored.resources();
        let selects = match list {
            List::Nodes => resources.nodes.values().any(|labels| parsed.matches(labels)),
            List::Namespaces => resources.namespaces.values().any(|labels| parsed.matches(labels)),
            // Nothing else is selected by anybody.
            _ => resources.pools.iter().any(|pool| parsed.matches(pool.labels())),
        };
        if self.stored.has(list) && !selects {
            self.warn(format!("{field}: no {} matches {}", list.kind(), written(selector)));
        }
    }

    /// What those will say who see all kinds at once: faults that the object brings, in itself or in others.
    fn consequences(&mut self, review: &Review, object: &Incoming, setup: &Setup) {
        let lists = review.target.reads(review.operation).all().filter(|list| self.stored.has(*list));
        let mut scene = Resources { bgp_type: setup.bgp_type.clone(), ..self.stored.of(lists) };
        let before = faults(review.target, &scene, self.stored);
        object.take_out(&mut scene);
        let others = faults(review.target, &scene, self.stored);
        object.place(&mut scene);
        let after = faults(review.target, &scene, self.stored);
        let new: Vec<&Diagnostic> =
            after.iter().filter(|fault| !before.contains(fault) || !others.contains(fault)).collect();
        for fault in new.iter().take(LISTED) {
            let own = fault.kind == review.target.kind() && fault.name == review.name;
            self.warn(if own {
                format!("the speakers will report: {}", fault.message)
            } else {
                format!("the speakers will report of {} {}: {}", fault.kind, fault.name, fault.message)
            });
        }
        if new.len() > LISTED {
            self.warn(format!("the speakers will report {} faults more", new.len() - LISTED));
        }
    }
}

/// All faults of a configuration, leaving out what cannot be known here.
fn faults(target: Target, scene: &Resources, stored: &Stored) -> Vec<Diagnostic> {
    let mut scene = scene.clone();
    for peer in &mut scene.bgp_peers {
        // Secrets are not read; two passwords are too many wherever they come from.
        if peer.spec.password.is_empty() {
            peer.spec.password_secret = None;
        }
        if !stored.has(List::BFDProfiles) {
            peer.spec.bfd_profile.clear();
        }
    }
    if target != Target::Community {
        for advertisement in &mut scene.bgp_advertisements {
            advertisement.spec.communities.retain(|community| community.contains(':'));
        }
    }
    evaluate(&scene, &LastGood::default()).diagnostics
}

fn aliases(resources: &Resources) -> BTreeSet<&str> {
    let all = resources.communities.iter().flat_map(|community| &community.spec.communities);
    all.map(|alias| alias.name.as_str()).collect()
}

fn covers(names: &[String], selectors: &[LabelSelector], pool: &IPAddressPool) -> bool {
    let selected = |selector| Selector::parse(selector).is_ok_and(|s| s.matches(pool.labels()));
    (names.is_empty() && selectors.is_empty())
        || names.contains(&pool.name_any())
        || selectors.iter().any(selected)
}

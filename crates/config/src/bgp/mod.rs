// SPDX-License-Identifier: Apache-2.0
//! The rules for BGP objects: what MetalLB accepts, in which words it refuses, and what they come to.
//!
//! Each kind is judged in turn, in MetalLB's order.

mod advertisement;
mod extras;
mod frr;
mod in_force;
mod model;
mod native;
mod peer;
mod profile;

pub(crate) use advertisement::{KIND as ADVERTISEMENT, ParsedBgp};
pub(crate) use extras::KEYS as PEER_ANNOTATIONS;
pub(crate) use frr::selected_nodes;
pub(crate) use in_force::{advertisements_in_force, excluded_text, in_order_of_age, peers_in_force};
pub use model::{Bgp, BgpAdvertisement, BgpCapability, BgpDefaults, BgpPeer, LinkBandwidth, PeerAs};
pub(crate) use peer::{KIND as PEER, not_served};
use std::sync::Arc;

use ferrolb_api::{BFDProfile, BGPAdvertisement, BGPPeer, Community, IPAddressPool};

use crate::diagnostic::Findings;
use crate::resources::selects_own_node;
use crate::{BgpType, Resources, by_name};

/// The objects that concern this evaluator, each kind in order of names.
pub(crate) struct Objects<'a> {
    pub(crate) peers: Vec<&'a BGPPeer>,
    pub(crate) advertisements: Vec<&'a BGPAdvertisement>,
    profiles: Vec<&'a BFDProfile>,
    communities: Vec<&'a Community>,
    pools: Vec<&'a IPAddressPool>,
}

/// An object, and what it says if it says something good.
pub(crate) struct Judged<'a, K, T> {
    pub(crate) object: &'a K,
    pub(crate) parsed: Option<Arc<T>>,
    /// What it will say, as far as it is known, if what it waits for turns out good.
    pub(crate) expected: Option<Arc<T>>,
}

impl<'a> Objects<'a> {
    /// Leaves out BGPPeers and BGPAdvertisements that only other nodes have to do with.
    pub(crate) fn of(resources: &'a Resources) -> Self {
        Self {
            peers: by_name(&resources.bgp_peers)
                .into_iter()
                .filter(|peer| selects_own_node(&peer.spec.node_selectors, resources))
                .collect(),
            advertisements: by_name(&resources.bgp_advertisements)
                .into_iter()
                .filter(|advertisement| selects_own_node(&advertisement.spec.node_selectors, resources))
                .collect(),
            profiles: by_name(&resources.bfd_profiles),
            communities: by_name(&resources.communities),
            pools: by_name(&resources.pools),
        }
    }
}

/// Judges what comes before the communities: the rules of the BGP type, BFDProfiles, BGPPeers.
pub(crate) fn judge_sessions<'a>(
    objects: &Objects<'a>,
    resources: &Resources,
    findings: &mut Findings,
) -> Vec<Judged<'a, BGPPeer, BgpPeer>> {
    match &resources.bgp_type {
        BgpType::Native => native::judge(objects, findings),
        BgpType::Frr | BgpType::FrrK8s => frr::judge(objects, resources, findings),
        BgpType::Other(_) if resources.own_node.is_some() => frr::judge(objects, resources, findings),
        BgpType::Other(_) => {}
    }
    profile::judge(&objects.profiles, findings);
    peer::judge(objects, resources, findings)
}

/// Judges what comes after pools and layer 2: BGPAdvertisements, and what they bring together.
pub(crate) fn judge_advertisements<'a>(
    objects: &Objects<'a>,
    resources: &Resources,
    findings: &mut Findings,
) -> Vec<Judged<'a, BGPAdvertisement, ParsedBgp>> {
    advertisement::judge(objects, resources, findings)
}

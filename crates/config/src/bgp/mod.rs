// SPDX-License-Identifier: Apache-2.0
//! The rules for BGP objects: what MetalLB accepts, and in which words it refuses.
//!
//! Each kind is judged in turn, in MetalLB's order; the values they come to are not used yet.

mod advertisement;
mod frr;
mod native;
mod peer;
mod profile;

pub(crate) use advertisement::KIND as ADVERTISEMENT;
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
pub(crate) fn judge_sessions(objects: &Objects<'_>, resources: &Resources, findings: &mut Findings) {
    match &resources.bgp_type {
        BgpType::Native => native::judge(objects, findings),
        BgpType::Frr | BgpType::FrrK8s => frr::judge(objects, resources, findings),
        BgpType::Other(_) if resources.own_node.is_some() => frr::judge(objects, resources, findings),
        BgpType::Other(_) => {}
    }
    profile::judge(&objects.profiles, findings);
    peer::judge(objects, resources, findings);
}

/// Judges what comes after pools and layer 2: BGPAdvertisements, and what they bring together.
pub(crate) fn judge_advertisements(objects: &Objects<'_>, resources: &Resources, findings: &mut Findings) {
    advertisement::judge(objects, resources, findings);
}

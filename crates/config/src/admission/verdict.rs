// SPDX-License-Identifier: Apache-2.0
//! Whether an object may be stored: what MetalLB v0.16.1 would say of the list with the object in it.
//!
//! MetalLB judges the whole list, and so refuses every object while two stored ones contradict each other. Here only
//! an object that takes part in a fault is refused: one that breaks some consistent part of what is stored. No rule
//! looks at more than two objects of a kind and one pool at a time, and none is healed by a further object, so it is
//! enough to try such small parts.

use ferrolb_api::{BGPAdvertisement, BGPPeer, IPAddressPool};

use super::incoming::Incoming;
use super::{Operation, Review, Setup, Stored, Target};
use crate::{LastGood, Resources, bgp, evaluate};

/// What is said of an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All is well.
    Good,
    /// The object is at fault, or contradicts another one.
    Bad(String),
    /// The stored objects are at fault without this one.
    Elsewhere(String),
}

/// Judges an object among those stored, of which every list that its kind requires was read.
pub(super) fn of(review: &Review, incoming: &Incoming, stored: &Stored, setup: &Setup) -> Verdict {
    if review.target == Target::BFDProfile {
        // Nothing of a profile but its namespace is judged before it is stored.
        return Verdict::Good;
    }
    let incoming = as_judged(review, incoming);
    let required = review.target.reads(review.operation).required;
    let mut scene = Resources { bgp_type: setup.bgp_type.clone(), ..stored.of(required.iter().copied()) };
    scene.bgp_peers.iter_mut().for_each(forget_references_of_peer);
    scene.bgp_advertisements.iter_mut().for_each(forget_names_of_communities);
    scene.pools.iter_mut().for_each(forget_age);

    incoming.place(&mut scene);
    let Err(whole) = verdict(&scene) else { return Verdict::Good };
    incoming.take_out(&mut scene);
    match verdict(&scene) {
        Ok(()) => Verdict::Bad(whole),
        Err(others) => match fault_with_a_part(&incoming, scene) {
            Some(fault) => Verdict::Bad(fault),
            None => Verdict::Elsewhere(others),
        },
    }
}

fn verdict(resources: &Resources) -> Result<(), String> {
    evaluate(resources, &LastGood::default()).verdict
}

/// The object without what is not looked at, or not judged.
fn as_judged(review: &Review, incoming: &Incoming) -> Incoming {
    let mut incoming = incoming.clone();
    match &mut incoming {
        Incoming::Peer(peer) => {
            forget_references_of_peer(peer);
            // MetalLB admits every new peer that has it; it means nothing.
            peer.spec.disable_mp &= review.operation != Operation::Create;
        }
        Incoming::BgpAdvertisement(advertisement) => forget_names_of_communities(advertisement),
        Incoming::Pool(pool) => forget_age(pool),
        Incoming::L2Advertisement(_) | Incoming::Community(_) | Incoming::Profile(_) => {}
    }
    incoming
}

/// Profile and Secret are not looked at: they may come later.
fn forget_references_of_peer(peer: &mut BGPPeer) {
    peer.spec.bfd_profile.clear();
    peer.spec.password_secret = None;
}

/// What may be a name of a community is not looked at: it may be defined later.
fn forget_names_of_communities(advertisement: &mut BGPAdvertisement) {
    advertisement.spec.communities.retain(|community| community.contains(':'));
}

/// MetalLB goes through the pools in order of their names, not of their age.
fn forget_age(pool: &mut IPAddressPool) {
    pool.metadata.creation_timestamp = None;
}

/// The fault of the object with a consistent part of the others.
fn fault_with_a_part(incoming: &Incoming, others: Resources) -> Option<String> {
    let Resources { bgp_type, nodes, pools, bgp_advertisements, bgp_peers, communities, .. } = others;
    let mut part = Part { resources: Resources { bgp_type, nodes, ..Resources::default() }, incoming };
    if let Some(fault) = part.fault() {
        return Some(fault);
    }
    match incoming.target() {
        Target::IPAddressPool => pools.into_iter().find_map(|pool| {
            part.resources.pools = vec![pool];
            part.fault()
        }),
        Target::BGPPeer => bgp_peers.into_iter().find_map(|peer| {
            part.resources.bgp_peers = vec![peer];
            part.fault()
        }),
        Target::Community => communities.into_iter().find_map(|community| {
            part.resources.communities = vec![community];
            part.fault()
        }),
        Target::BGPAdvertisement => {
            let mut good = Vec::new();
            for pool in pools {
                part.resources.pools = vec![pool.clone()];
                if let Some(fault) = part.fault() {
                    return Some(fault);
                }
                if part.is_consistent() {
                    good.push(pool);
                }
            }
            bgp_advertisements.into_iter().find_map(|advertisement| {
                part.resources.bgp_advertisements = vec![advertisement];
                part.resources.pools.clone_from(&good);
                if !part.has_fault_of_advertisements() {
                    return None; // nor with any single one of the pools
                }
                good.iter().find_map(|pool| {
                    part.resources.pools = vec![pool.clone()];
                    part.fault()
                })
            })
        }
        // Neither contradicts others of its kind.
        Target::L2Advertisement | Target::BFDProfile => None,
    }
}

/// A few of the stored objects, and the one that may break their peace.
struct Part<'a> {
    resources: Resources,
    incoming: &'a Incoming,
}

impl Part<'_> {
    fn is_consistent(&self) -> bool {
        verdict(&self.resources).is_ok()
    }

    /// What is wrong with the object added, if nothing is without it.
    fn fault(&mut self) -> Option<String> {
        self.with_the_object(|resources| verdict(resources).err()).filter(|_| self.is_consistent())
    }

    fn has_fault_of_advertisements(&mut self) -> bool {
        self.with_the_object(|resources| {
            let evaluation = evaluate(resources, &LastGood::default());
            evaluation.diagnostics.iter().any(|fault| fault.kind == bgp::ADVERTISEMENT)
        })
    }

    fn with_the_object<T>(&mut self, ask: impl FnOnce(&Resources) -> T) -> T {
        self.incoming.place(&mut self.resources);
        let answer = ask(&self.resources);
        self.incoming.take_out(&mut self.resources);
        answer
    }
}

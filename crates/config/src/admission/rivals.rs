// SPDX-License-Identifier: Apache-2.0
//! What becomes of a BGPPeer that some node cannot have a session with beside another one's.
//!
//! Only speakers know which of the two has a session on their node, and they keep that one. What is new, or was not in the
//! way before, is the one that has none; where both were in each other's way already, it may be either.

use std::collections::BTreeSet;

use ferrolb_api::BGPPeer;
use ferrolb_net_types::{NodeName, PeerName};
use kube::ResourceExt;

use super::incoming::Incoming;
use super::{List, Setup, Stored};
use crate::bgp::{BgpPeer, excluded_text, in_order_of_age, selected_nodes};
use crate::{Config, LastGood, Resources, evaluate};

/// The warning about a peer that is admitted, if there is something to be warned of.
pub(super) fn warning(peer: &BGPPeer, stored: &Stored, setup: &Setup) -> Option<String> {
    if !stored.has(List::BGPPeers) || !stored.has(List::Nodes) {
        return None;
    }
    let mut scene =
        Resources { bgp_type: setup.bgp_type.clone(), ..stored.of([List::BGPPeers, List::Nodes]) };
    let name = peer.name_any();
    let former = scene.bgp_peers.iter().find(|other| other.name_any() == name).cloned();
    let was_in_the_way = former.as_ref().is_some_and(|former| rival(former, &scene).is_some());
    Incoming::Peer(Box::new(peer.clone())).place(&mut scene);
    let (refused, rival) = rival(peer, &scene)?;
    if !was_in_the_way {
        let text = excluded_text(&refused, former.is_some(), &rival, true);
        return Some(format!("the speakers will report: {text}"));
    }
    let changes =
        former.is_some_and(|former| former.spec != peer.spec || former.annotations() != peer.annotations());
    changes.then(|| {
        format!(
            "on one node the session with {} and that of BGPPeer {rival} exclude each other: where the other one is \
             there, this change has no effect",
            refused.address
        )
    })
}

/// What the peer comes to, and the oldest of those that it excludes on some node.
fn rival(peer: &BGPPeer, scene: &Resources) -> Option<(BgpPeer, String)> {
    let mut known = scene.clone();
    // Of Secrets nothing is known here, and it does not matter.
    known.bgp_peers.iter_mut().for_each(|peer| peer.spec.password_secret = None);
    let config = evaluate(&known, &LastGood::default()).config;
    let session = |peer: &BGPPeer| session(&config, peer);
    let nodes = |peer: &BGPPeer| selected_nodes(&peer.spec, scene).unwrap_or_default();
    let (own, own_nodes): (_, BTreeSet<&NodeName>) = (session(peer)?, nodes(peer));
    let mut others: Vec<&BGPPeer> = scene.bgp_peers.iter().collect();
    in_order_of_age(&mut others, |other| other);
    let rival = others.into_iter().find(|other| {
        other.name_any() != peer.name_any()
            && session(other).is_some_and(|other| own.collides_with(other))
            && !own_nodes.is_disjoint(&nodes(other))
    })?;
    Some((own.clone(), rival.name_any()))
}

fn session<'a>(config: &'a Config, peer: &BGPPeer) -> Option<&'a BgpPeer> {
    config.bgp.peers.get(&PeerName::from(peer.name_any().as_str())).map(AsRef::as_ref)
}

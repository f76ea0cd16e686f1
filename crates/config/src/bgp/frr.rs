// SPDX-License-Identifier: Apache-2.0
//! What one FRR process cannot hold: BGPPeers that contradict each other on a node.

use std::collections::BTreeSet;

use ferrolb_api::BGPPeerSpec;
use ferrolb_net_types::NodeName;
use kube::ResourceExt;

use super::{Objects, peer};
use crate::diagnostic::Findings;
use crate::{Resources, Selector};

pub(super) fn judge(objects: &Objects<'_>, resources: &Resources, findings: &mut Findings) {
    let nodes: Vec<Option<BTreeSet<&NodeName>>> =
        objects.peers.iter().map(|peer| selected_nodes(&peer.spec, resources)).collect();
    for (j, later) in objects.peers.iter().enumerate() {
        let conflict = objects.peers[..j].iter().enumerate().find_map(|(i, earlier)| {
            let share = match (&nodes[i], &nodes[j]) {
                (Some(a), Some(b)) => resources.nodes.is_empty() || !a.is_disjoint(b),
                // A selector that means nothing is refused with the peer itself.
                _ => false,
            };
            if share { conflict(&earlier.spec, &later.spec) } else { None }
        });
        if let Some(text) = conflict {
            findings.refuse(peer::KIND, &later.name_any(), text);
        }
    }
}

/// The nodes that a peer is for; `None` if one of its selectors means nothing.
pub(crate) fn selected_nodes<'a>(
    spec: &BGPPeerSpec,
    resources: &'a Resources,
) -> Option<BTreeSet<&'a NodeName>> {
    let selectors: Vec<Selector> =
        spec.node_selectors.iter().map(Selector::parse).collect::<Result<_, _>>().ok()?;
    let selected = resources
        .nodes
        .iter()
        .filter(|(_, labels)| selectors.is_empty() || selectors.iter().any(|s| s.matches(labels)))
        .map(|(name, _)| name);
    Some(selected.collect())
}

fn conflict(earlier: &BGPPeerSpec, later: &BGPPeerSpec) -> Option<String> {
    if earlier.router_id != later.router_id {
        return Some(format!(
            "peer {} has RouterID different from {}, in FRR mode peers selecting the same node must all have the same RouterID",
            later.router_id, earlier.router_id
        ));
    }
    if id(earlier) == id(later) {
        let id = id(later);
        return Some(format!(
            "peer {id} already exists, FRR mode doesn't support duplicate BGPPeers selecting the same node"
        ));
    }
    (earlier.vrf == later.vrf && earlier.my_asn != later.my_asn).then(|| {
        format!(
            "peer {} has myAsn different from {}, in FRR mode peers selecting the same node must have the same myAsn within the same VRF",
            id(later),
            id(earlier)
        )
    })
}

/// What tells sessions of one host apart: the address or interface, and the VRF.
fn id(spec: &BGPPeerSpec) -> String {
    let peer = if spec.peer_address.is_empty() { &spec.interface } else { &spec.peer_address };
    if spec.vrf.is_empty() { peer.clone() } else { format!("{peer}-{}", spec.vrf) }
}

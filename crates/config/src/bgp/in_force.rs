// SPDX-License-Identifier: Apache-2.0
//! Which versions of the BGP objects are in force: the present one if it is good, else the last good one, else none.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrolb_api::{BGPAdvertisement, BGPPeer};
use kube::{Resource, ResourceExt};

use super::{ADVERTISEMENT, BgpPeer, Judged, PEER, ParsedBgp};
use crate::diagnostic::Findings;
use crate::evaluate::{Remembered, undecodable_names};
use crate::{BgpType, Resources};

/// The sessions to keep. Of two peers that cannot both have one on a node the older has it.
pub(crate) fn peers_in_force(
    mut judged: Vec<Judged<'_, BGPPeer, BgpPeer>>,
    resources: &Resources,
    last: &BTreeMap<String, Remembered<BgpPeer>>,
    findings: &mut Findings,
) -> BTreeMap<String, Remembered<BgpPeer>> {
    // One without a time of creation is not there yet.
    judged.sort_by_cached_key(|peer| {
        let created = &peer.object.metadata.creation_timestamp;
        (created.is_none(), created.as_ref().map(|time| time.0), peer.object.name_any())
    });
    let mut in_force: BTreeMap<String, Remembered<BgpPeer>> = BTreeMap::new();
    let unread = undecodable_names(PEER, resources).filter_map(|name| Some((name, last.get(name)?)));
    in_force.extend(unread.map(|(name, former)| (name.to_owned(), former.clone())));
    for Judged { object, parsed } in judged {
        let name = object.name_any();
        let former = last.get(&name).filter(|former| former.is_of(object.meta()));
        let versions = [parsed, former.map(|former| Arc::clone(&former.parsed))];
        let mut conflict = None;
        let version = versions.into_iter().flatten().find(|version| {
            let rival = rival(&name, version, &in_force, resources);
            conflict = conflict.take().or_else(|| rival.map(|rival| (Arc::clone(version), rival.to_owned())));
            rival.is_none()
        });
        if let Some((refused, rival)) = conflict {
            let instead = if version.is_some() { "stays as it was" } else { "is not opened" };
            let text = format!(
                "the session with {} {instead}: on one node it excludes that of BGPPeer {rival}, which is older",
                refused.address
            );
            findings.notice(PEER, &name, text);
        }
        if let Some(version) = version {
            in_force.insert(name, Remembered::of(object.meta(), version));
        }
    }
    in_force
}

/// The advertisements that are made.
pub(crate) fn advertisements_in_force(
    judged: Vec<Judged<'_, BGPAdvertisement, ParsedBgp>>,
    resources: &Resources,
    last: &BTreeMap<String, Remembered<ParsedBgp>>,
) -> BTreeMap<String, Remembered<ParsedBgp>> {
    let mut in_force: BTreeMap<String, Remembered<ParsedBgp>> = BTreeMap::new();
    if !matches!(resources.bgp_type, BgpType::Native | BgpType::Frr) {
        return in_force;
    }
    for Judged { object, parsed } in judged {
        let name = object.name_any();
        let former = last.get(&name).filter(|former| former.is_of(object.meta()));
        if let Some(version) = parsed.or_else(|| former.map(|former| Arc::clone(&former.parsed))) {
            in_force.insert(name, Remembered::of(object.meta(), version));
        }
    }
    let unread = undecodable_names(ADVERTISEMENT, resources).filter_map(|name| Some((name, last.get(name)?)));
    in_force.extend(unread.map(|(name, former)| (name.to_owned(), former.clone())));
    in_force
}

/// Whose session the peer would get in the way of. Where there is no own node they may well be on different ones.
fn rival<'a>(
    name: &str,
    peer: &BgpPeer,
    in_force: &'a BTreeMap<String, Remembered<BgpPeer>>,
    resources: &Resources,
) -> Option<&'a str> {
    resources.own_node.as_ref()?;
    let mut others = in_force.iter().filter(|(other, _)| *other != name);
    others.find(|(_, other)| peer.collides_with(&other.parsed)).map(|(other, _)| other.as_str())
}

// SPDX-License-Identifier: Apache-2.0
//! Which versions of the BGP objects are in force: the present one if it is good, else the last good one, else none.
//!
//! Peers may exclude each other on a node. Whatever brings that about, an edit, a label of the node, a Secret that comes,
//! no session ends for the sake of another one: what is in force stays so while its own object says that it should.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrolb_api::{BGPAdvertisement, BGPPeer};
use kube::{Resource, ResourceExt};

use super::{ADVERTISEMENT, BgpPeer, Judged, PEER, ParsedBgp};
use crate::diagnostic::Findings;
use crate::evaluate::{Remembered, undecodable_names};
use crate::settle::{Claim, Granted, Held, settle};
use crate::{BgpType, Resources};

/// A peer on its way.
struct Candidate<'a> {
    name: String,
    /// None if it cannot be decoded.
    object: Option<&'a BGPPeer>,
    parsed: Option<Arc<BgpPeer>>,
    /// What it is going to say, as far as is known, of one that was never in force: the place is kept for it.
    expected: Option<Arc<BgpPeer>>,
    former: Option<&'a Remembered<BgpPeer>>,
}

/// The sessions to keep. Of two peers that cannot both have one on a node the one that has it keeps it; where none has it
/// yet, as after a start, the older one gets it.
pub(crate) fn peers_in_force(
    mut judged: Vec<Judged<'_, BGPPeer, BgpPeer>>,
    resources: &Resources,
    last: &BTreeMap<String, Remembered<BgpPeer>>,
    findings: &mut Findings,
) -> BTreeMap<String, Remembered<BgpPeer>> {
    in_order_of_age(&mut judged, |peer| peer.object);
    let mut candidates: Vec<Candidate<'_>> = Vec::with_capacity(judged.len());
    for Judged { object, parsed, expected } in judged {
        let name = object.name_any();
        let former = last.get(&name).filter(|former| former.is_of(object.meta()));
        let expected = expected.filter(|_| former.is_none());
        candidates.push(Candidate { name, object: Some(object), parsed, expected, former });
    }
    candidates.extend(undecodable_names(PEER, resources).filter_map(|name| {
        let former = Some(last.get(name)?);
        Some(Candidate { name: name.to_owned(), object: None, parsed: None, expected: None, former })
    }));
    let claims: Vec<Claim<'_, BgpPeer>> = candidates
        .iter()
        .map(|candidate| Claim {
            current: candidate.parsed.as_deref().or(candidate.expected.as_deref()),
            former: candidate.former.map(|former| &*former.parsed),
        })
        .collect();
    let granted = match resources.own_node {
        Some(_) => settle::<_, Sessions<'_>>(&claims),
        // They may well be on different nodes.
        None => claims.iter().map(unopposed).collect(),
    };

    let mut in_force = BTreeMap::new();
    for (i, candidate) in candidates.iter().enumerate() {
        let version = match granted[i] {
            Granted::Current => candidate.parsed.clone(),
            Granted::Former => candidate.former.map(|former| Arc::clone(&former.parsed)),
            Granted::Nothing => None,
        };
        if let Some(version) = version {
            let remembered = match (candidate.object, candidate.former) {
                (Some(object), _) => Remembered::of(object.meta(), version),
                (None, Some(former)) => former.clone(),
                (None, None) => continue,
            };
            in_force.insert(candidate.name.clone(), remembered);
        }
        let Some(refused) = candidate.parsed.as_deref().filter(|_| granted[i] != Granted::Current) else {
            continue;
        };
        let rivals = (0..claims.len()).filter(|&j| {
            j != i && claims[j].held(granted[j]).is_some_and(|rival| refused.collides_with(rival))
        });
        if let Some(j) = rivals.min_by_key(|&j| (claims[j].former.is_none(), j)) {
            let stays = granted[i] == Granted::Former;
            let was_there = claims[j].former.is_some();
            let text = excluded_text(refused, stays, &candidates[j].name, was_there);
            findings.hold(PEER, &candidate.name, text);
        }
    }
    in_force
}

/// The older one first; one without a time of creation is not there yet.
pub(crate) fn in_order_of_age<T>(peers: &mut [T], object: impl Fn(&T) -> &BGPPeer) {
    peers.sort_by_cached_key(|peer| {
        let object = object(peer);
        let created = &object.metadata.creation_timestamp;
        (created.is_none(), created.as_ref().map(|time| time.0), object.name_any())
    });
}

/// What is said of a peer that is not taken over for the sake of another one's session.
pub(crate) fn excluded_text(refused: &BgpPeer, stays: bool, rival: &str, was_there: bool) -> String {
    let instead = if stays { "stays as it was" } else { "is not opened" };
    let why = if was_there { "was there before" } else { "is older" };
    format!(
        "the session with {} {instead}: on one node it excludes that of BGPPeer {rival}, which {why}",
        refused.address
    )
}

fn unopposed(claim: &Claim<'_, BgpPeer>) -> Granted {
    match claim {
        Claim { current: Some(_), .. } => Granted::Current,
        Claim { former: Some(_), .. } => Granted::Former,
        Claim { .. } => Granted::Nothing,
    }
}

/// The sessions of a node, by the numbers of their peers.
#[derive(Default)]
struct Sessions<'a>(BTreeMap<usize, &'a BgpPeer>);

impl<'a> Held<'a, BgpPeer> for Sessions<'a> {
    fn insert(&mut self, owner: usize, peer: &'a BgpPeer) {
        self.0.insert(owner, peer);
    }

    fn remove(&mut self, owner: usize, _: &'a BgpPeer) {
        self.0.remove(&owner);
    }

    fn excludes(&self, peer: &BgpPeer) -> bool {
        self.0.values().any(|other| peer.collides_with(other))
    }
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
    for Judged { object, parsed, .. } in judged {
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

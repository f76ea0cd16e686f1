// SPDX-License-Identifier: Apache-2.0
//! One evaluation: every object is parsed, what is bad falls back to its last good version, the rest is put together.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrolb_api::{IPAddressPool, L2Advertisement as L2Object};
use ferrolb_net_types::{PeerName, PoolName, Prefix};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

use crate::bgp::{BgpPeer, ParsedBgp};
use crate::diagnostic::Findings;
use crate::l2::{self, ParsedL2, Refusal};
use crate::overlap::Blocks;
use crate::pool::{self, ParsedPool};
use crate::settle::{Claim, Granted, settle};
use crate::{BgpType, Config, Diagnostic, Labels, Resources, bgp, by_name, community};

/// What an evaluation comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// What is in force.
    pub config: Config,
    /// To be given to the next evaluation.
    pub last_good: LastGood,
    /// Every fault, in MetalLB's order.
    pub diagnostics: Vec<Diagnostic>,
    /// Objects that this version does not serve, whatever they say.
    pub unsupported: Vec<Diagnostic>,
    /// `Err` with the first error, in MetalLB's order and words, for which MetalLB refuses all, and which is one here
    /// too.
    pub verdict: Result<(), String>,
    /// What MetalLB v0.16.1 says of the whole configuration: the same, unless it refuses what is served here.
    pub metallb: Result<(), String>,
}

impl Evaluation {
    /// The object that is to be shown where MetalLB finds nothing wrong, and what it says is not taken over here all the
    /// same: that must not pass for valid.
    pub fn refused(&self) -> Option<&Diagnostic> {
        let mut all = self.diagnostics.iter().chain(&self.unsupported);
        all.find(|object| object.refused).filter(|_| self.verdict.is_ok())
    }

    /// Every diagnostic beside the one whose text is the verdict; that one, too, if it names a field, which MetalLB's text
    /// may not do.
    pub fn further(&self) -> impl Iterator<Item = &Diagnostic> {
        let says_all = self.diagnostics.first().is_none_or(|first| first.field.is_none());
        let shown = usize::from(self.verdict.is_err() && says_all);
        self.diagnostics.iter().skip(shown).chain(&self.unsupported)
    }
}

/// The last good version of each object, as far as this process has seen one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastGood {
    pools: BTreeMap<String, Remembered<ParsedPool>>,
    l2_advertisements: BTreeMap<String, Remembered<ParsedL2>>,
    bgp_peers: BTreeMap<String, Remembered<BgpPeer>>,
    bgp_advertisements: BTreeMap<String, Remembered<ParsedBgp>>,
}

/// A good version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered<T> {
    /// Whose version it is: another object of the same name has no part in it.
    uid: Option<String>,
    labels: Labels,
    pub(crate) parsed: Arc<T>,
}

/// Evaluates the configuration.
///
/// A pure function: the order within the lists does not matter, and equal inputs give equal results.
pub fn evaluate(resources: &Resources, last: &LastGood) -> Evaluation {
    let mut findings = Findings::default();
    let bgp = bgp::Objects::of(resources);
    let bgp_peers = bgp::judge_sessions(&bgp, resources, &mut findings);
    for kind in ["BFDProfile", "BGPPeer"] {
        report_undecodable(kind, resources, &mut findings);
    }
    community::judge(&by_name(&resources.communities), &mut findings);
    report_undecodable("Community", resources, &mut findings);

    let pools = judge_pools(resources, last, &mut findings);
    let advertisements = judge_l2_advertisements(resources, last, &mut findings);

    let bgp_advertisements = bgp::judge_advertisements(&bgp, resources, &mut findings);
    report_undecodable(bgp::ADVERTISEMENT, resources, &mut findings);
    let bgp_peers = bgp::peers_in_force(bgp_peers, resources, &last.bgp_peers, &mut findings);
    let bgp_advertisements =
        bgp::advertisements_in_force(bgp_advertisements, resources, &last.bgp_advertisements);

    let mut config = Config { pools_incomplete: pools.incomplete, ..Config::default() };
    config.bgp.peers = bgp_peers
        .iter()
        .map(|(name, kept)| (PeerName::from(name.as_str()), Arc::clone(&kept.parsed)))
        .collect();
    let resolved_bgp: Vec<_> = bgp_advertisements
        .iter()
        .map(|(name, kept)| (&kept.parsed, Arc::new(kept.parsed.resolve(name, &resources.nodes))))
        .collect();
    let resolved: Vec<_> = advertisements
        .iter()
        .map(|(name, kept)| (&kept.parsed, Arc::new(kept.parsed.resolve(name, &resources.nodes))))
        .collect();
    for (name, kept) in &pools.in_force {
        let pool_name = PoolName::from(name.as_str());
        let mut pool = kept.parsed.resolve(&pool_name, &resources.namespaces);
        for (parsed, advertisement) in &resolved {
            if parsed.attaches_to(name, &kept.labels) {
                l2::attach(&mut pool, advertisement);
            }
        }
        let attached: Vec<_> = resolved_bgp
            .iter()
            .filter(|(parsed, _)| parsed.attaches_to(name, &kept.labels))
            .map(|(_, advertisement)| Arc::clone(advertisement))
            .collect();
        if !attached.is_empty() {
            config.bgp.advertisements.insert(pool_name.clone(), attached);
        }
        config.pools.insert(pool_name, Arc::new(pool));
    }

    Evaluation {
        config,
        last_good: LastGood {
            pools: pools.in_force,
            l2_advertisements: advertisements,
            bgp_peers,
            bgp_advertisements,
        },
        verdict: findings.verdict(),
        metallb: findings.metallb_verdict(),
        diagnostics: findings.into_diagnostics(),
        unsupported: unsupported(&bgp, &resources.bgp_type),
    }
}

struct Pools {
    in_force: BTreeMap<String, Remembered<ParsedPool>>,
    incomplete: bool,
}

/// A pool on its way.
struct Candidate<'a> {
    object: &'a IPAddressPool,
    name: String,
    parsed: Result<Arc<ParsedPool>, String>,
    former: Option<&'a Remembered<ParsedPool>>,
}

fn judge_pools(resources: &Resources, last: &LastGood, findings: &mut Findings) -> Pools {
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for object in by_name(&resources.pools) {
        let name = object.name_any();
        let twice = candidates.last().is_some_and(|before| before.name == name);
        let parsed = pool::parse(&name, &object.spec).and_then(|parsed| {
            if twice {
                return Err(format!("duplicate definition of pool {name:?}"));
            }
            match pool::overlap_within(&name, &parsed.blocks) {
                Some(overlap) => Err(overlap),
                None => Ok(Arc::new(parsed)),
            }
        });
        let former = last.pools.get(&name).filter(|former| !twice && former.is_of(object.meta()));
        candidates.push(Candidate { object, name, parsed, former });
    }
    // Of two that want the same the earlier one has it; one without a time of creation is not there yet.
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|&i| {
        let created = &candidates[i].object.metadata.creation_timestamp;
        (created.is_none(), created.as_ref().map(|time| time.0), candidates[i].name.clone())
    });
    let undecodable: Vec<(&str, Option<&Remembered<ParsedPool>>)> =
        undecodable_names(pool::KIND, resources).map(|name| (name, last.pools.get(name))).collect();

    let claims: Vec<Claim<'_, [Prefix]>> = order
        .iter()
        .map(|&i| Claim {
            current: candidates[i].parsed.as_ref().ok().map(|parsed| parsed.blocks.as_slice()),
            former: candidates[i].former.map(|former| former.parsed.blocks.as_slice()),
        })
        .chain(undecodable.iter().map(|(_, former)| Claim {
            current: None,
            former: former.map(|former| former.parsed.blocks.as_slice()),
        }))
        .collect();
    let settled = settle::<_, Blocks>(&claims);
    let mut granted = vec![Granted::Nothing; candidates.len()];
    for (&i, outcome) in order.iter().zip(&settled) {
        granted[i] = *outcome;
    }

    let mut held = Blocks::default();
    let mut in_force = BTreeMap::new();
    let mut incomplete = false;
    for (i, candidate) in candidates.iter().enumerate() {
        let version = match (granted[i], &candidate.parsed, candidate.former) {
            (Granted::Current, Ok(parsed), _) => Some(Arc::clone(parsed)),
            (Granted::Former, _, Some(former)) => Some(Arc::clone(&former.parsed)),
            _ => None,
        };
        let Some(parsed) = version else {
            // The second of one name says nothing about addresses.
            incomplete |= !in_force.contains_key(&candidate.name);
            continue;
        };
        held.insert(i, &parsed.blocks);
        let metadata = candidate.object.meta();
        let remembered = Remembered {
            uid: metadata.uid.clone(),
            labels: metadata.labels.clone().unwrap_or_default(),
            parsed,
        };
        in_force.insert(candidate.name.clone(), remembered);
    }
    for (name, former) in undecodable {
        match former {
            Some(former) => {
                held.insert(usize::MAX, &former.parsed.blocks);
                in_force.insert(name.to_owned(), former.clone());
            }
            None => incomplete = true,
        }
    }

    let mut refused = false;
    for (i, candidate) in candidates.iter().enumerate() {
        match &candidate.parsed {
            Err(message) => {
                refused = true;
                findings.refuse(pool::KIND, &candidate.name, message.clone());
            }
            Ok(parsed) if granted[i] != Granted::Current => {
                // Not a conflict: the addresses the pool itself has kept.
                let own = candidate
                    .former
                    .filter(|_| granted[i] == Granted::Former)
                    .map(|f| f.parsed.blocks.as_slice());
                held.remove(own.unwrap_or_default());
                let conflict = held.conflict(&parsed.blocks);
                held.insert(i, own.unwrap_or_default());
                let Some((block, other, owner)) = conflict else { continue };
                let message = pool::overlap_text(block, &candidate.name, other);
                if granted.get(owner) == Some(&Granted::Current) {
                    refused = true;
                    findings.refuse(pool::KIND, &candidate.name, message);
                } else {
                    findings.hold(pool::KIND, &candidate.name, message);
                }
            }
            Ok(_) => {}
        }
    }
    if !refused {
        refuse_overlap_of_current_versions(&candidates, findings);
    }
    report_undecodable(pool::KIND, resources, findings);
    Pools { in_force, incomplete }
}

/// MetalLB knows no last good versions of single objects: it refuses any two current ones that overlap, also where
/// each of them was refused for overlapping a last good version of the other.
fn refuse_overlap_of_current_versions(candidates: &[Candidate<'_>], findings: &mut Findings) {
    let mut seen = Blocks::default();
    for (i, candidate) in candidates.iter().enumerate() {
        let Ok(parsed) = &candidate.parsed else { continue };
        if let Some((block, other, _)) = seen.conflict(&parsed.blocks) {
            findings.refuse(pool::KIND, &candidate.name, pool::overlap_text(block, &candidate.name, other));
            return;
        }
        seen.insert(i, &parsed.blocks);
    }
}

fn judge_l2_advertisements(
    resources: &Resources,
    last: &LastGood,
    findings: &mut Findings,
) -> BTreeMap<String, Remembered<ParsedL2>> {
    let mut in_force = BTreeMap::new();
    for object in by_name::<L2Object>(&resources.l2_advertisements) {
        let name = object.name_any();
        let version = match l2::parse(&name, &object.spec) {
            Ok(parsed) => Some(Arc::new(parsed)),
            Err(refusal) => {
                match refusal {
                    Refusal::Known(message) => findings.refuse(l2::KIND, &name, message),
                    Refusal::New(message) => findings.hold(l2::KIND, &name, message),
                }
                let former = last.l2_advertisements.get(&name).filter(|former| former.is_of(object.meta()));
                former.map(|former| Arc::clone(&former.parsed))
            }
        };
        if let Some(parsed) = version {
            let labels = Labels::new(); // nothing selects advertisements
            in_force.insert(name, Remembered { uid: object.meta().uid.clone(), labels, parsed });
        }
    }
    for name in undecodable_names(l2::KIND, resources) {
        if let Some(former) = last.l2_advertisements.get(name) {
            in_force.insert(name.to_owned(), former.clone());
        }
    }
    report_undecodable(l2::KIND, resources, findings);
    in_force
}

/// BGP objects that concern this node (or any, where there is no own node), are good for MetalLB, and not served.
fn unsupported(objects: &bgp::Objects<'_>, bgp_type: &BgpType) -> Vec<Diagnostic> {
    let diagnostic = |kind, name, message| Diagnostic {
        kind,
        name,
        field: None,
        message,
        transient: false,
        refused: true,
    };
    let unserved = match bgp_type {
        // What is not served there, MetalLB refuses itself.
        BgpType::Native => return Vec::new(),
        BgpType::Frr => {
            return objects
                .peers
                .iter()
                .filter_map(|object| Some((object, bgp::not_served(&object.spec)?)))
                .map(|(object, field)| diagnostic(bgp::PEER, object.name_any(), not_served_text(field)))
                .collect();
        }
        BgpType::FrrK8s => "frr-k8s",
        BgpType::Other(text) => text,
    };
    let advertisements = objects.advertisements.iter().map(|object| (bgp::ADVERTISEMENT, object.name_any()));
    let peers = objects.peers.iter().map(|object| (bgp::PEER, object.name_any()));
    advertisements
        .chain(peers)
        .map(|(kind, name)| {
            let message = format!(
                "this version does not serve METALLB_BGP_TYPE={unserved}, the object has no effect; layer 2 goes on \
                 working"
            );
            diagnostic(kind, name, message)
        })
        .collect()
}

/// What is said of a BGPPeer with a field that is not served.
pub(crate) fn not_served_text(field: &str) -> String {
    format!(
        "spec.{field} is not served by this version: the session is not opened, or stays as it was before the field was \
         set; all others run"
    )
}

impl<T> Remembered<T> {
    pub(crate) fn of(metadata: &ObjectMeta, parsed: Arc<T>) -> Self {
        Self { uid: metadata.uid.clone(), labels: metadata.labels.clone().unwrap_or_default(), parsed }
    }

    pub(crate) fn is_of(&self, metadata: &ObjectMeta) -> bool {
        self.uid.is_none() || metadata.uid.is_none() || self.uid == metadata.uid
    }
}

pub(crate) fn undecodable_names<'a>(
    kind: &'a str,
    resources: &'a Resources,
) -> impl Iterator<Item = &'a str> {
    let mut names: Vec<&str> =
        resources.undecodable.iter().filter(|u| u.kind == kind).map(|u| u.name.as_str()).collect();
    names.sort_unstable();
    names.into_iter()
}

fn report_undecodable(kind: &'static str, resources: &Resources, findings: &mut Findings) {
    let mut of_kind: Vec<_> = resources.undecodable.iter().filter(|u| u.kind == kind).collect();
    of_kind.sort();
    for object in of_kind {
        findings.refuse(
            kind,
            &object.name,
            format!("{kind} {} cannot be read: {}", object.name, object.message),
        );
    }
}

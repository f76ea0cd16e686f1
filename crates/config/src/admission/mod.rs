// SPDX-License-Identifier: Apache-2.0
//! Objects are judged before they are stored: what the API server asks with an AdmissionReview, and the answer.
//!
//! ```text
//!  body ──► Review::decode ──► Review::reads ──► lists to read ──► Stored ──► judge ──► Answer::to_json ──► body
//! ```
//!
//! Refused is what MetalLB v0.16.1 refuses, in its words, with one exception: where stored objects contradict each
//! other it refuses every other object as well, and here those are admitted with a warning. What is legal but
//! surely a mistake is admitted with a warning too.

mod hints;
mod incoming;
mod review;
mod rivals;
mod stored;
mod target;
mod verdict;

pub use review::{Answer, Review};
pub use stored::Stored;
pub use target::{List, Operation, Reads, Target};

use self::incoming::Incoming;
use self::verdict::Verdict;
use crate::BgpType;

/// What the answers depend on beside the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The namespace whose objects have an effect.
    pub namespace: String,
    /// Whose rules of BGP hold.
    pub bgp_type: BgpType,
}

/// Answers a review. `stored` has the outcome of every read that [`Review::reads`] names.
pub fn judge(review: &Review, stored: &Stored, setup: &Setup) -> Answer {
    match (review.operation, &review.object) {
        (Operation::Create | Operation::Update, Some(object)) => judge_object(review, object, stored, setup),
        (Operation::Delete, _) => match in_use(review, stored, setup) {
            Some(fault) => Answer::denied(review, fault, Vec::new()),
            None => Answer::allowed(review, Vec::new()),
        },
        _ => Answer::allowed(review, Vec::new()),
    }
}

fn judge_object(review: &Review, object: &Incoming, stored: &Stored, setup: &Setup) -> Answer {
    if review.is_leaving() {
        return Answer::allowed(review, Vec::new());
    }
    let create = review.operation == Operation::Create;
    let mut warnings = Vec::new();
    if create && matches!(object, Incoming::Peer(peer) if peer.spec.disable_mp) {
        warnings.push(DISABLE_MP.to_owned());
    }
    if create && review.namespace != setup.namespace {
        let fault = format!("resource must be created in {} namespace", setup.namespace);
        return Answer::denied(review, fault, warnings);
    }
    if let Some(fault) = missing_list(review, stored) {
        return Answer::denied(review, fault, warnings);
    }
    match verdict::of(review, object, stored, setup) {
        Verdict::Bad(fault) => return Answer::denied(review, fault, warnings),
        Verdict::Elsewhere(fault) => warnings.push(one_line(&format!(
            "the stored configuration is at fault, though not because of this object: {fault}"
        ))),
        Verdict::Good => {}
    }
    warnings.append(&mut hints::about(review, object, stored, setup));
    Answer::allowed(review, warnings)
}

/// MetalLB's warning about a flag of BGPPeers.
const DISABLE_MP: &str = "disable mp is deprecated and has no effect since it's the default behavior now";

/// Who needs what is to be deleted.
fn in_use(review: &Review, stored: &Stored, setup: &Setup) -> Option<String> {
    if review.target != Target::BFDProfile || review.namespace != setup.namespace {
        return None;
    }
    if let Some(fault) = missing_list(review, stored) {
        return Some(fault);
    }
    let peers = crate::by_name(&stored.resources().bgp_peers);
    let user = peers.iter().find(|peer| peer.spec.bfd_profile == review.name)?;
    let user = user.metadata.name.as_deref().unwrap_or_default();
    Some(format!("failed to delete BFDProfile {}, used by BGPPeer {user}", review.name))
}

/// What MetalLB says of the first list that could not be read.
fn missing_list(review: &Review, stored: &Stored) -> Option<String> {
    let required = review.target.reads(review.operation).required;
    required.iter().find_map(|list| {
        let cause = stored.outcome(*list).err()?;
        let kind = list.kind();
        Some(match (review.target, list) {
            (Target::BGPPeer, _) => format!("failed to get existing {kind} objects: {cause}"),
            (_, List::L2Advertisements) => format!("{cause}\nfailed to get existing v1beta1.{kind} objects"),
            _ => format!("{cause}\nfailed to get existing {kind} objects"),
        })
    })
}

/// A text as it may stand in a warning: the API server passes warnings on in a header.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

// SPDX-License-Identifier: Apache-2.0
//! What is to be done about certificates, given what the API has and what is presented. Values in, values out.

use std::time::{Duration, SystemTime};

use super::certificates::{Material, Renewal, Verdict};
use super::trust::{Apply, OVERLAP, Target};

/// Clocks are set, and machines sleep: what is due is looked at this often at least.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// What is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The Secret's content; `None` if there is no Secret, or none that can be read.
    pub(crate) stored: Option<Material>,
    /// What is presented.
    pub(crate) served: Option<Material>,
    /// The objects that name CAs, as far as they exist.
    pub(crate) targets: Vec<Target>,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    /// Present what the Secret holds.
    pub(crate) serve: bool,
    /// Name the CA in these.
    pub(crate) apply: Vec<Apply>,
    /// Make this anew and put it into the Secret, and why.
    pub(crate) renew: Option<(Renewal, String)>,
    /// Whether whoever is asked now can answer, and is trusted.
    pub(crate) settled: bool,
    /// When to decide again at the latest.
    pub(crate) due: SystemTime,
}

/// Decides for a server of this DNS name.
pub(crate) fn decide(view: &View, dns: &str, now: SystemTime) -> Decision {
    let mut decision =
        Decision { serve: false, apply: Vec::new(), renew: None, settled: false, due: now + LOOK_AGAIN };
    let Some(stored) = &view.stored else { return decision };
    match stored.verdict(dns, now) {
        Verdict::Good { until } => decision.due = decision.due.min(until),
        Verdict::Renew { what, why } => decision.renew = Some((what, why)),
    }
    if stored.usable(dns, now).is_err() {
        return decision;
    }
    decision.apply = view.targets.iter().filter_map(|target| target.missing(stored, now)).collect();
    if let Some(end) = stored.made().map(|made| made + OVERLAP).filter(|end| now < *end) {
        decision.due = decision.due.min(end);
    }
    let served = view.served.as_ref().filter(|served| served.usable(dns, now).is_ok());
    decision.serve = view.served.as_ref() != Some(stored)
        && served.is_none_or(|served| {
            !view.targets.iter().any(|target| target.holds_back(served, stored, dns, now))
        });
    decision.settled = view.served.as_ref().is_some_and(|served| {
        served.usable(dns, now).is_ok() && view.targets.iter().all(|target| target.accepts(served, dns, now))
    });
    decision
}

// SPDX-License-Identifier: Apache-2.0
//! What users are told of the Services that this node announces by BGP, whenever that changes: gauge, event, log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_announce::bgp::{BgpOffer, BgpPlan, BgpReason, BgpServicePlan};
use ferrolb_announce::{Inputs, Reason};
use ferrolb_api::event::ObjectRef;
use ferrolb_net_types::ServiceKey;

use crate::io::{Effect, Protocol};
use crate::telling::{announced, assigned, log_announced, log_withdrawn, texts};

/// What was said so far.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// What is announced.
    told: BTreeMap<ServiceKey, Arc<BgpServicePlan>>,
    /// The reason that was logged last of a Service that is not announced.
    refused: BTreeMap<ServiceKey, BgpReason>,
}

impl Services {
    /// Says what changed of the Service since the last time.
    ///
    /// `known` means that users were already told that this node announces the Service, by a former process.
    pub(crate) fn review(
        &mut self,
        inputs: &Inputs<'_>,
        plan: &BgpPlan,
        service: &ServiceKey,
        regarding: &ObjectRef,
        known: bool,
        effects: &mut impl Extend<Effect>,
    ) {
        let deleted = Err(BgpReason::Service(Reason::ServiceDeleted));
        let current = plan.services.get(service);
        let decision = current.map_or(&deleted, |decision| decision);
        let former = self.told.remove(service);
        let before = former.as_deref().and_then(|former| former.as_ref().ok());
        let now = decision.as_ref().ok();
        let ips = |offer: Option<&BgpOffer>| -> BTreeSet<IpAddr> {
            offer.into_iter().flat_map(|offer| offer.ips.iter().copied()).collect()
        };
        let (had, has) = (ips(before), ips(now));
        let lost: Vec<_> = had.difference(&has).copied().collect();
        let gained: Vec<_> = has.difference(&had).copied().collect();
        if !lost.is_empty() {
            // Else it is announced still, with other addresses.
            let changed = BgpReason::Service(Reason::IpChanged);
            let reason = decision.as_ref().err().unwrap_or(&changed);
            log_withdrawn(service, Protocol::Bgp, &lost, reason.word(), &reason.to_string());
            effects.extend(lost.iter().map(|ip| announced(service, Protocol::Bgp, *ip, false)));
        }
        if let Some(offer) = now.filter(|offer| !before.is_some_and(|before| says_the_same(before, offer))) {
            log_updated(service, offer);
        }
        if !gained.is_empty()
            && let Some(offer) = now
        {
            log_announced(service, Protocol::Bgp, &offer.ips, &offer.pool);
            effects.extend(gained.iter().map(|ip| announced(service, Protocol::Bgp, *ip, true)));
            if !known {
                effects.extend([assigned(regarding, inputs.node, Protocol::Bgp)]);
            }
        }
        self.note_refusal(inputs, service, decision.as_ref().err());
        if now.is_some() {
            self.told.extend(current.map(|decision| (service.clone(), Arc::clone(decision))));
        }
    }

    /// Logs why a Service is not announced, once.
    fn note_refusal(&mut self, inputs: &Inputs<'_>, service: &ServiceKey, reason: Option<&BgpReason>) {
        // What holds for layer 2 as well is said there.
        let reason = reason.filter(|reason| !matches!(reason, BgpReason::Service(_)));
        if self.refused.get(service) == reason {
            return;
        }
        match reason {
            Some(reason) => {
                log_skipped(inputs, service, reason);
                self.refused.insert(service.clone(), reason.clone());
            }
            None => {
                self.refused.remove(service);
            }
        }
    }
}

/// Whether the same is announced, however many endpoints are behind it.
fn says_the_same(one: &BgpOffer, other: &BgpOffer) -> bool {
    (&one.ips, &one.pool, &one.advertisements) == (&other.ips, &other.pool, &other.advertisements)
}

/// MetalLB's line about what is announced of a Service, or in which way, whenever that is another one.
fn log_updated(service: &ServiceKey, offer: &BgpOffer) {
    tracing::info!(
        event = "updatedAdvertisements",
        service = %service,
        // As MetalLB counts: one for each address and advertisement.
        numAds = offer.ips.len() * offer.advertisements.len(),
        ips = ?texts(&offer.ips),
        pool = %offer.pool,
        protocol = Protocol::Bgp.as_str(),
        "making advertisements using BGP"
    );
}

/// MetalLB's line about a Service that this node does not announce, in its words where it has some.
fn log_skipped(inputs: &Inputs<'_>, service: &ServiceKey, why: &BgpReason) {
    let held = inputs.held(service);
    let (ips, pool) = held.map(|(ips, pool)| (texts(&ips), pool.name.to_string())).unwrap_or_default();
    macro_rules! skip {
        ($level:ident, $reason:expr) => {
            tracing::$level!(
                event = "skipping should announce bgp",
                protocol = "bgp",
                service = %service,
                ips = ?ips,
                pool,
                reason = $reason,
                why = %why,
                "this node does not announce the Service"
            )
        };
    }
    match why {
        BgpReason::NotAdvertised { .. } => skip!(debug, "pool not matching my node"),
        BgpReason::NoMatchingAdvertisement { .. } => skip!(debug, "no advertisement matching service"),
        BgpReason::Conflicting { .. } => tracing::error!(
            event = "conflictingAdvertisements",
            protocol = "bgp",
            service = %service,
            ips = ?ips,
            pool,
            error = %why,
            "this node does not announce the Service"
        ),
        BgpReason::NodeNetworkUnavailable(_) => {
            skip!(warn, "speaker's node has NodeNetworkUnavailable condition");
        }
        BgpReason::NodeExcluded(_) => {
            skip!(
                warn,
                "speaker's node has labeled 'node.kubernetes.io/exclude-from-external-load-balancers'"
            );
        }
        BgpReason::Service(_) | BgpReason::NoLocalEndpoint(_) | BgpReason::NoEndpoint => {
            skip!(debug, why.word())
        }
    }
}

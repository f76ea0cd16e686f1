// SPDX-License-Identifier: Apache-2.0
//! What users are told of the Services that this node announces by BGP, whenever that changes: gauge, event, log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferrolb_announce::Reason;
use ferrolb_announce::bgp::{BgpPlan, BgpReason};
use ferrolb_api::event::ObjectRef;
use ferrolb_net_types::{NodeName, ServiceKey};

use crate::io::{Effect, Protocol};
use crate::telling::{announced, assigned, log_announced, log_withdrawn};

/// What was said so far.
#[derive(Debug, Default)]
pub(crate) struct Services {
    told: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
    /// The reason that was logged last of a Service that is not announced.
    refused: BTreeMap<ServiceKey, BgpReason>,
}

impl Services {
    /// Says what changed of the Service since the last time.
    ///
    /// `known` means that users were already told that this node announces the Service, by a former process.
    pub(crate) fn review(
        &mut self,
        node: &NodeName,
        plan: &BgpPlan,
        service: &ServiceKey,
        regarding: &ObjectRef,
        known: bool,
        effects: &mut impl Extend<Effect>,
    ) {
        let deleted = Err(BgpReason::Service(Reason::ServiceDeleted));
        let decision = plan.services.get(service).map_or(&deleted, |decision| decision);
        let now: BTreeSet<IpAddr> = match decision {
            Ok(offer) => offer.ips.iter().copied().collect(),
            Err(_) => BTreeSet::new(),
        };
        let before = self.told.remove(service).unwrap_or_default();
        let lost: Vec<_> = before.difference(&now).copied().collect();
        let gained: Vec<_> = now.difference(&before).copied().collect();
        if !lost.is_empty() {
            // Else it is announced still, with other addresses.
            let changed = BgpReason::Service(Reason::IpChanged);
            let reason = decision.as_ref().err().unwrap_or(&changed);
            log_withdrawn(service, Protocol::Bgp, &lost, reason.word(), &reason.to_string());
            effects.extend(lost.iter().map(|ip| announced(service, Protocol::Bgp, *ip, false)));
        }
        if !gained.is_empty()
            && let Ok(offer) = decision
        {
            log_announced(service, Protocol::Bgp, &offer.ips, &offer.pool);
            effects.extend(gained.iter().map(|ip| announced(service, Protocol::Bgp, *ip, true)));
            if !known {
                effects.extend([assigned(regarding, node, Protocol::Bgp)]);
            }
        }
        self.note_refusal(service, decision.as_ref().err());
        if !now.is_empty() {
            self.told.insert(service.clone(), now);
        }
    }

    /// Logs why a Service is not announced, once.
    fn note_refusal(&mut self, service: &ServiceKey, reason: Option<&BgpReason>) {
        // What holds for layer 2 as well is said there; and most clusters have Services that are not for BGP at all.
        let reason = reason
            .filter(|reason| !matches!(reason, BgpReason::Service(_) | BgpReason::NotAdvertised { .. }));
        if self.refused.get(service) == reason {
            return;
        }
        match reason {
            Some(reason) => {
                macro_rules! log {
                    ($level:ident) => {
                        tracing::$level!(
                            event = "skipping should announce bgp",
                            protocol = "bgp",
                            service = %service,
                            reason = reason.word(),
                            why = %reason,
                            "this node does not announce the Service"
                        )
                    };
                }
                match reason {
                    BgpReason::Conflicting { .. } => log!(warn),
                    _ => log!(debug),
                }
                self.refused.insert(service.clone(), reason.clone());
            }
            None => {
                self.refused.remove(service);
            }
        }
    }
}

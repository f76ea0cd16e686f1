// SPDX-License-Identifier: Apache-2.0
//! What this node announces of each Service, as the control side was told by the wire side, and what users are
//! told when that changes: gauge, event, log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferrolb_announce::{Members, NodePlan, Reason};
use ferrolb_api::event::{Event, EventKind, ObjectRef};
use ferrolb_net_types::{InterfaceName, Interfaces, NodeName, ServiceKey};

use crate::io::{Effect, Protocol};
use crate::statuses::Desired;
use crate::telling::{announced, assigned, log_announced, log_withdrawn, texts};
use crate::wire::Report;

/// What was announced and said so far.
#[derive(Debug)]
pub(crate) struct Announcing {
    node: NodeName,
    told: BTreeMap<ServiceKey, Told>,
    /// The addresses this node owns, with the interfaces that answer.
    standing: BTreeMap<IpAddr, BTreeSet<InterfaceName>>,
    /// The interfaces that can answer.
    interfaces: BTreeSet<InterfaceName>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    /// Announced.
    ips: BTreeSet<IpAddr>,
    /// Owned, but none of the interfaces that the advertisements name can answer.
    failing: BTreeSet<IpAddr>,
    /// Refused for a fault of the Service's status.
    refused: Option<Reason>,
}

/// What holds of a Service now.
struct Now {
    told: Told,
    desired: Option<Desired>,
    /// Why what is not announced is not.
    reason: Option<Reason>,
}

impl Announcing {
    pub(crate) const fn new(node: NodeName) -> Self {
        Self { node, told: BTreeMap::new(), standing: BTreeMap::new(), interfaces: BTreeSet::new() }
    }

    /// Whether this node answers for the address somewhere.
    pub(crate) fn announces(&self, ip: IpAddr) -> bool {
        self.standing.get(&ip).is_some_and(|interfaces| !interfaces.is_empty())
    }

    /// Takes note of a report. Returns the addresses about which it says something new.
    pub(crate) fn report(&mut self, report: &Report) -> BTreeSet<IpAddr> {
        if let Some(interfaces) = &report.interfaces {
            self.interfaces.clone_from(interfaces);
        }
        let mut changed = BTreeSet::new();
        if report.complete {
            changed.extend(self.standing.keys().filter(|ip| !report.owned.contains_key(*ip)));
            self.standing.retain(|ip, _| report.owned.contains_key(ip));
        }
        for (ip, interfaces) in &report.owned {
            let before = match interfaces {
                Some(interfaces) => self.standing.insert(*ip, interfaces.clone()),
                None => self.standing.remove(ip),
            };
            if before != *interfaces {
                changed.insert(*ip);
            }
        }
        changed
    }

    /// Says what changed of the Service since the last time, and what its status should be.
    ///
    /// `known` means that users were already told that this node announces the Service, by a former process.
    pub(crate) fn review(
        &mut self,
        plan: &NodePlan,
        members: &Members,
        service: &ServiceKey,
        regarding: &ObjectRef,
        known: bool,
        effects: &mut impl Extend<Effect>,
    ) -> Option<Desired> {
        let Now { told, desired, reason } = self.assess(plan, members, service);
        let before = self.told.remove(service).unwrap_or_default();
        let lost: BTreeSet<_> = before.ips.difference(&told.ips).copied().collect();
        let gained: BTreeSet<_> = told.ips.difference(&before.ips).copied().collect();
        if before.refused != told.refused {
            self.log_refusal(service, told.refused.as_ref());
        }
        if !lost.is_empty() {
            tell_withdrawn(plan, service, &lost, reason.as_ref());
            effects.extend(lost.iter().map(|ip| announced(service, Protocol::Layer2, *ip, false)));
        }
        for ip in told.failing.difference(&before.failing) {
            self.log_failing(plan, service, *ip);
            effects.extend([Effect::Event(Event {
                regarding: regarding.clone(),
                kind: EventKind::Warning,
                reason: "announceFailed",
                message: format!(
                    "the interfaces specified by LB IP \"{ip}\" doesn't exist in assigned node \"{}\" with \
                     protocol \"layer2\"",
                    self.node
                ),
            })]);
        }
        if !gained.is_empty() {
            if let Some(Ok(offer)) = plan.services.get(service).map(AsRef::as_ref) {
                log_announced(service, Protocol::Layer2, &gained, &offer.pool);
            }
            effects.extend(gained.iter().map(|ip| announced(service, Protocol::Layer2, *ip, true)));
            if !known {
                effects.extend([assigned(regarding, &self.node, Protocol::Layer2)]);
            }
        }
        if told.ips.is_empty() {
            log_skipped(plan, service, reason.as_ref());
        }
        if told != Told::default() {
            self.told.insert(service.clone(), told);
        }
        desired
    }

    fn assess(&self, plan: &NodePlan, members: &Members, service: &ServiceKey) -> Now {
        let refused = |reason: Reason| {
            let fault = matches!(reason, Reason::InvalidIp(_) | Reason::IpNotAllowed { .. });
            let told = Told { refused: fault.then(|| reason.clone()), ..Told::default() };
            Now { told, desired: None, reason: Some(reason) }
        };
        let offer = match plan.services.get(service).map(AsRef::as_ref) {
            None => return refused(Reason::ServiceDeleted),
            Some(Err(reason)) => return refused(reason.clone()),
            Some(Ok(offer)) => offer,
        };
        if let Err(reason) = &offer.here {
            return refused(reason.clone());
        }
        let mut told = Told::default();
        let mut desired = None;
        for ip in &offer.ips {
            let Some(answering) = self.standing.get(ip) else { continue };
            let named = plan
                .addresses
                .get(ip)
                .is_some_and(|address| matches!(address.interfaces, Interfaces::Named(_)));
            if !answering.is_empty() {
                told.ips.insert(*ip);
                // The first address speaks for all.
                desired.get_or_insert_with(|| Desired::interfaces(named.then_some(answering)));
            } else if named {
                told.failing.insert(*ip);
            }
        }
        Now { told, desired, reason: plan.verdict(&self.node, service, members).err() }
    }

    fn log_refusal(&self, service: &ServiceKey, reason: Option<&Reason>) {
        match reason {
            Some(reason @ Reason::IpNotAllowed { ips, .. }) => tracing::error!(
                op = "setBalancer",
                service = %service,
                node = %self.node,
                ips = ?texts(ips),
                error = "assigned IP not allowed by config",
                why = %reason,
                "IP allocated by controller not allowed by config"
            ),
            Some(Reason::InvalidIp(text)) => tracing::error!(
                op = "setBalancer",
                service = %service,
                node = %self.node,
                error = format!("invalid LoadBalancer IP {text:?}"),
                "invalid IP allocated by controller"
            ),
            _ => {}
        }
    }

    fn log_failing(&self, plan: &NodePlan, service: &ServiceKey, ip: IpAddr) {
        let selection = plan.addresses.get(&ip).map(|address| &address.interfaces);
        let names = match selection {
            Some(Interfaces::Named(names)) => texts(names),
            _ => Vec::new(),
        };
        tracing::warn!(
            op = "SetBalancer",
            protocol = "layer2",
            service = %service,
            ip = %ip,
            IPAdvertisement = ?names,
            localIfs = ?texts(&self.interfaces),
            "the specified interfaces used to announce LB IP don't exist"
        );
    }
}

/// Says what is announced no longer, and why.
fn tell_withdrawn(plan: &NodePlan, service: &ServiceKey, ips: &BTreeSet<IpAddr>, reason: Option<&Reason>) {
    let holds = |ip| match plan.services.get(service).map(AsRef::as_ref) {
        Some(Ok(offer)) => offer.ips.contains(ip),
        _ => true,
    };
    let reason = if ips.iter().all(holds) { reason } else { Some(&Reason::IpChanged) };
    // The plan wants it announced, so no interface is left that could, or a speaker that is no member does.
    let word = reason.map_or("announceFailed", Reason::word);
    let why = reason.map_or_else(
        || {
            "no selected interface can answer, or another speaker does, or one that has the API says that it is not this node's"
                .to_owned()
        },
        ToString::to_string,
    );
    log_withdrawn(service, Protocol::Layer2, ips, word, &why);
}

/// MetalLB's lines at level debug about a Service that this node could announce, but does not.
fn log_skipped(plan: &NodePlan, service: &ServiceKey, reason: Option<&Reason>) {
    let text = match reason {
        Some(Reason::NoMatchingAdvertisement { .. }) => "no advertisement matching service on my node",
        Some(Reason::NodeNetworkUnavailable(_)) => "speaker's node has NodeNetworkUnavailable condition",
        Some(Reason::NodeExcluded(_)) => {
            "speaker's node has labeled 'node.kubernetes.io/exclude-from-external-load-balancers'"
        }
        Some(Reason::NoServingEndpoint) => {
            return tracing::debug!(
                event = "shouldannounce",
                protocol = "l2",
                service = %service,
                "failed no active endpoints"
            );
        }
        _ => return,
    };
    let offer = plan.services.get(service).and_then(|plan| plan.as_ref().as_ref().ok());
    tracing::debug!(
        event = "skipping should announce l2",
        protocol = "layer2",
        service = %service,
        ips = ?offer.map(|offer| texts(&offer.ips)).unwrap_or_default(),
        pool = offer.map(|offer| offer.pool.as_str()).unwrap_or_default(),
        reason = text,
        "this node does not announce the Service"
    );
}

// SPDX-License-Identifier: Apache-2.0
//! What users are told when a node begins or ends to announce a Service, by whichever protocol: gauge, event, log.

use std::net::IpAddr;

use ferrolb_api::event::{Event, EventKind, ObjectRef};
use ferrolb_net_types::{NodeName, PoolName, ServiceKey};

use crate::io::{Effect, Protocol};

/// The gauge of an address: it is announced, or no longer.
pub(crate) fn announced(service: &ServiceKey, protocol: Protocol, ip: IpAddr, on: bool) -> Effect {
    Effect::Announced { service: service.clone(), protocol, ip, on }
}

/// The event of a Service that this node has begun to announce.
pub(crate) fn assigned(regarding: &ObjectRef, node: &NodeName, protocol: Protocol) -> Effect {
    Effect::Event(Event {
        regarding: regarding.clone(),
        kind: EventKind::Normal,
        reason: "nodeAssigned",
        message: format!("announcing from node \"{node}\" with protocol \"{}\"", protocol.as_str()),
    })
}

/// MetalLB's line about addresses that are announced now.
pub(crate) fn log_announced<'a>(
    service: &ServiceKey,
    protocol: Protocol,
    ips: impl IntoIterator<Item = &'a IpAddr>,
    pool: &PoolName,
) {
    tracing::info!(
        event = "serviceAnnounced",
        service = %service,
        ips = ?texts(ips),
        pool = %pool,
        protocol = protocol.as_str(),
        "service has IP, announcing"
    );
}

/// MetalLB's line about addresses that are announced no longer: its word for the reason, and a sentence.
pub(crate) fn log_withdrawn<'a>(
    service: &ServiceKey,
    protocol: Protocol,
    ips: impl IntoIterator<Item = &'a IpAddr>,
    reason: &str,
    why: &str,
) {
    tracing::info!(
        event = "serviceWithdrawn",
        service = %service,
        ip = ?texts(ips),
        protocol = protocol.as_str(),
        reason,
        why,
        "withdrawing service announcement"
    );
}

/// As a list of texts, the form in which the log has them.
pub(crate) fn texts<T: ToString>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    items.into_iter().map(|item| item.to_string()).collect()
}

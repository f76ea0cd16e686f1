// SPDX-License-Identifier: Apache-2.0
//! What is to be told of a decision, in events and in the log, at the moment when it counts.

use ferrolb_api::event::Event;
use ferrolb_ipam::{Cleared, Notice};
use ferrolb_net_types::ServiceKey;

/// Events and log lines of one decision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Telling {
    /// In order.
    pub(crate) events: Vec<Event>,
    /// In order.
    pub(crate) lines: Vec<Line>,
}

/// A line of the log.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    /// A fact that an event carries too.
    Notice(Notice),
    /// A deprecated annotation is in use.
    Deprecated(String),
    /// Somebody keeps changing the status.
    Contested(String),
    /// The addresses could not stay.
    Cleared(Cleared),
}

impl Telling {
    /// Whether there is nothing to tell.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.lines.is_empty()
    }

    /// Writes the lines of a Service to the log.
    pub(crate) fn log(&self, key: &ServiceKey) {
        for line in &self.lines {
            match line {
                Line::Notice(notice) => log_notice(key, notice),
                Line::Deprecated(annotation) => tracing::warn!(
                    event = "deprecatedAnnotation",
                    annotation,
                    service = %key,
                    "The used annotation is deprecated. Support might get removed in future versions"
                ),
                Line::Contested(writer) => tracing::warn!(
                    op = "updateServiceStatus",
                    service = %key,
                    writer,
                    "status is contested"
                ),
                Line::Cleared(cleared) => log_cleared(key, cleared),
            }
        }
    }
}

fn log_cleared(key: &ServiceKey, cleared: &Cleared) {
    match cleared {
        Cleared::Refused(error) => tracing::info!(
            event = "clearAssignment",
            service = %key,
            %error,
            "current IP not allowed by config, clearing"
        ),
        other => {
            let (reason, text) = reason(other);
            // The levels are MetalLB's: people alert on them.
            match other {
                Cleared::NotLoadBalancer => {
                    tracing::debug!(event = "clearAssignment", service = %key, reason, "{text}");
                }
                Cleared::HeldWithoutFamily | Cleared::ClusterIpsWithoutFamily => {
                    tracing::error!(event = "clearAssignment", service = %key, reason, "{text}");
                }
                _ => tracing::info!(event = "clearAssignment", service = %key, reason, "{text}"),
            }
        }
    }
}

fn log_notice(key: &ServiceKey, notice: &Notice) {
    match notice {
        Notice::Assigned(ips) => tracing::info!(
            event = "ipAllocated",
            service = %key,
            ip = ?ips,
            "IP address assigned by controller"
        ),
        Notice::AssignedAdditional(ip) => tracing::info!(
            event = "ipAllocated",
            service = %key,
            %ip,
            "Additional IP address assigned by controller"
        ),
        Notice::NotAllocated { why, .. } => {
            tracing::error!(
                controller = "ServiceReconciler",
                event = "failed to handle service",
                op = "allocateIPs",
                service = %key,
                error = %why,
                "IP allocation failed"
            );
        }
        Notice::NoAdditional(why) => {
            tracing::info!(
                event = "tryAssignAdditionalIP",
                service = %key,
                error = %why,
                "familyPolicy is PreferDualStack, trying to assign additional ip"
            );
        }
        Notice::InvalidRequest(why) => {
            tracing::error!(
                event = "loadbalancerIP",
                service = %key,
                error = %why,
                "invalid requested loadbalancer IPs"
            );
        }
        // What was cleared is logged with its reason.
        Notice::Cleared { .. }
        | Notice::NotEnoughClusterIps(_)
        | Notice::HeldWithoutFamily { .. }
        | Notice::ClusterIpsWithoutFamily { .. } => {}
    }
}

/// The word that people search for, and what it means.
const fn reason(cleared: &Cleared) -> (&'static str, &'static str) {
    match cleared {
        Cleared::NotLoadBalancer => ("notLoadBalancer", "not a LoadBalancer"),
        Cleared::NoPools => ("noConfig", "there is no pool, so no address is anybody's"),
        Cleared::NoClusterIps => ("noClusterIPs", "No ClusterIPs"),
        Cleared::NotEnoughClusterIps => (
            "requires dual stack but clusterips are not dual stack",
            "the Service asks for both families and has cluster IPs of one",
        ),
        Cleared::HeldWithoutFamily => ("nolbIPsIPFamily", "Failed to retrieve lbIPs family"),
        Cleared::ClusterIpsWithoutFamily => ("noclusterIPsIPFamily", "Failed to retrieve clusterIPs family"),
        Cleared::OtherFamilies | Cleared::NotExtensible => {
            ("differentIPFamily", "the addresses are of other families than the Service asks for")
        }
        Cleared::Refused(_) => ("notAllowedByConfig", "current IP not allowed by config, clearing"),
        Cleared::OtherPoolRequested => {
            ("differentPoolRequested", "user requested a different pool than the one currently assigned")
        }
        Cleared::OtherAddressesRequested => {
            ("differentIPRequested", "user requested a different IP than the one currently assigned")
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What the core does about Services: settle what they hold, decide by rank, write, tell, retry.

use std::collections::BTreeSet;

use ferrolb_api::Change;
use ferrolb_api::event::EventKind;
use ferrolb_api::request::{ApiRequest, Resource, Verb, WriteResult};
use ferrolb_config::Config;
use ferrolb_ipam::{Allocator, Cleared, Decision, Kind, Notice, Rank};
use ferrolb_net_types::ServiceKey;
use k8s_openapi::api::core::v1::Service;

use crate::contest::Round;
use crate::core::{Core, Target};
use crate::entry::Entry;
use crate::io::Effect;
use crate::queue::Retry;
use crate::service;
use crate::version::Update;

impl Core {
    /// Takes note of what the watch of Services delivers.
    pub(crate) fn services_changed(&mut self, change: Change<Service>) {
        match change {
            Change::Applied(object) => self.service_applied(*object),
            Change::Deleted { namespace, name } => self.service_gone(&ServiceKey::new(&namespace, &name)),
            Change::Reset(objects) => {
                let there: BTreeSet<ServiceKey> = objects.iter().map(service::key).collect();
                let gone: Vec<ServiceKey> =
                    self.services.keys().filter(|key| !there.contains(*key)).cloned().collect();
                for key in gone {
                    self.service_gone(&key);
                }
                for object in objects {
                    self.service_applied(object);
                }
                self.services_listed = true;
            }
        }
    }

    fn service_applied(&mut self, object: Service) {
        let key = service::key(&object);
        if let Some(entry) = self.services.get_mut(&key) {
            match Update::of(&entry.object.metadata, &object.metadata) {
                Update::Stale => return,
                Update::Newer => {
                    entry.update(&self.settings, object);
                    self.queue.changed.insert(key);
                    return;
                }
                // Deleted and created again: the new one has no claim to what the old one held.
                Update::Other => self.service_gone(&key),
            }
        }
        self.services.insert(key.clone(), Entry::new(&self.settings, object));
        self.queue.changed.insert(key);
    }

    fn service_gone(&mut self, key: &ServiceKey) {
        let Some(entry) = self.services.remove(key) else { return };
        if let Some(ticket) = entry.waiting {
            self.queue.waiting.leave(&ticket);
        }
        self.queue.changed.remove(key);
        if let Some(allocator) = &mut self.allocator
            && allocator.release(key)
        {
            tracing::info!(event = "serviceDeleted", service = %key, "service deleted");
        }
        self.note_changes();
    }

    /// Puts new pools in force: everything is decided anew, holders of legal addresses first.
    pub(crate) fn install(&mut self, config: &Config) {
        tracing::info!(event = "config reloaded", controller = "PoolReconciler");
        let mut allocator = Allocator::new(config);
        self.queue.start_over();
        let mut by_age: Vec<(i64, ServiceKey)> = Vec::new();
        for (key, entry) in &mut self.services {
            entry.waiting = None;
            if entry.ours {
                by_age.push((entry.created, key.clone()));
            }
        }
        by_age.sort();
        let mut ranks = Vec::new();
        for (created, key) in by_age {
            let Some(entry) = self.services.get(&key) else { continue };
            let claim = entry.effective_claim();
            let holds = !claim.held.is_empty() && allocator.adopt(&claim);
            ranks.push(Rank::new(holds, created, key));
        }
        for rank in ranks {
            let key = rank.service();
            let Some(entry) = self.services.get_mut(key) else { continue };
            allocator.hold_back(key, &entry.claim.held);
            if entry.writing {
                entry.again = true;
            } else if let Some(at) = entry.waits_until(self.clock.now) {
                self.queue.retry(at, Retry::Service(key.clone()));
            } else {
                self.queue.ready.insert(rank);
            }
        }
        // Everybody is decided now, so nobody needs to be woken.
        allocator.take_changes();
        let pools: Vec<_> = allocator.pools().chain(self.pools.shown()).cloned().collect();
        for pool in pools {
            self.pools.changed(pool);
        }
        self.allocator = Some(allocator);
    }

    /// Settles what the changed Services hold, and puts them in order; false if none changed.
    pub(crate) fn settle_changed(&mut self) -> bool {
        let Some(allocator) = &mut self.allocator else { return false };
        if self.queue.changed.is_empty() {
            return false;
        }
        let mut by_age: Vec<(i64, ServiceKey)> = Vec::new();
        for key in std::mem::take(&mut self.queue.changed) {
            let Some(entry) = self.services.get_mut(&key) else { continue };
            if !entry.ours {
                // Another class now: what it holds is free, its status is not ours to write.
                if let Some(ticket) = entry.waiting.take() {
                    self.queue.waiting.leave(&ticket);
                }
                if allocator.release(&key) {
                    tracing::info!(event = "clearAssignment", reason = "otherClass", service = %key);
                }
            } else if entry.writing {
                entry.again = true;
            } else if let Some(at) = entry.waits_until(self.clock.now) {
                self.queue.retry(at, Retry::Service(key));
            } else {
                by_age.push((entry.created, key));
            }
        }
        by_age.sort();
        let mut ranks = Vec::new();
        for (created, key) in by_age {
            let Some(entry) = self.services.get(&key) else { continue };
            let holds = !entry.claim.held.is_empty() && allocator.adopt(&entry.claim);
            ranks.push(Rank::new(holds, created, key));
        }
        for rank in ranks {
            if let Some(entry) = self.services.get(rank.service()) {
                allocator.hold_back(rank.service(), &entry.claim.held);
            }
            self.queue.ready.insert(rank);
        }
        self.note_changes();
        true
    }

    /// Decides the next Service by rank: of those that changed, and of those who wait for what became free. False if
    /// there is none.
    pub(crate) fn decide_next(&mut self) -> bool {
        let Some(allocator) = &self.allocator else { return false };
        let woken = self.queue.waiting.first(|spot| allocator.has_room(spot));
        let rank = match (self.queue.ready.first(), woken) {
            (Some(ready), woken) if woken.as_ref().is_none_or(|woken| ready <= woken) => {
                self.queue.ready.pop_first()
            }
            (_, woken) => woken,
        };
        let Some(rank) = rank else { return false };
        self.queue.waiting.heard(&rank);
        self.decide(rank.service());
        true
    }

    fn decide(&mut self, key: &ServiceKey) {
        let Some(allocator) = &mut self.allocator else { return };
        let Some(entry) = self.services.get_mut(key) else { return };
        // Whoever cannot be decided now is decided later, and must not stand in the way of those behind it.
        if let Some(ticket) = entry.waiting.take() {
            self.queue.waiting.leave(&ticket);
        }
        if !entry.ours {
            return;
        }
        if entry.writing {
            entry.again = true;
            return;
        }
        if let Some(at) = entry.waits_until(self.clock.now) {
            self.queue.retry(at, Retry::Service(key.clone()));
            return;
        }
        let mut decision = allocator.converge(&entry.claim);
        self.effects.push_back(Effect::Reconciled { failed: decision.outcome.is_failure() });

        if let Some(want) = decision.waits_for.take() {
            let rank = Rank::new(!decision.ingress.is_empty(), entry.created, key.clone());
            entry.waiting = Some(self.queue.waiting.wait(rank, want));
        }
        self.tell(key, &decision);
        self.write(key, &decision);
        self.note_changes();
    }

    /// Sends the events of a decision that are news.
    fn tell(&mut self, key: &ServiceKey, decision: &Decision) {
        let Some(entry) = self.services.get_mut(key) else { return };
        let mut events = Vec::new();
        for notice in entry.story.news(decision.notices.clone()) {
            log_notice(key, &notice);
            let kind = match notice.kind() {
                Kind::Normal => EventKind::Normal,
                Kind::Warning => EventKind::Warning,
            };
            events.push(entry.event(kind, notice.reason(), notice.to_string()));
        }
        if entry.claim.load_balancer {
            let unknown: Vec<String> =
                service::unknown_annotations(&entry.object).map(str::to_owned).collect();
            for annotation in unknown {
                if entry.story.is_new_annotation(&annotation) {
                    let message = format!(
                        "Service has annotation {annotation}, which means nothing; known are \
                         metallb.io/address-pool, metallb.io/loadBalancerIPs and metallb.io/allow-shared-ip"
                    );
                    events.push(entry.event(EventKind::Warning, "unknownAnnotation", message));
                }
            }
        }
        self.effects.extend(events.into_iter().map(Effect::Event));
    }

    /// Stores a decision, if it is not stored yet.
    fn write(&mut self, key: &ServiceKey, decision: &Decision) {
        let Some(entry) = self.services.get_mut(key) else { return };
        let Some(object) = service::decided(&entry.object, decision) else {
            entry.story.stored();
            entry.intent = None;
            return;
        };
        let mut events = Vec::new();
        let deprecated: Vec<String> =
            service::deprecated_annotations(&entry.object).map(str::to_owned).collect();
        for annotation in deprecated {
            if entry.story.is_new_annotation(&annotation) {
                tracing::warn!(
                    event = "deprecatedAnnotation",
                    annotation,
                    service = %key,
                    "The used annotation is deprecated. Support might get removed in future versions"
                );
                let message = format!("Service uses deprecated annotation {annotation}");
                events.push(entry.event(EventKind::Warning, "deprecatedAnnotation", message));
            }
        }
        if entry.contest.round(self.clock.now, &entry.stored()) == Round::Begins {
            let who = entry.foreign_writer.as_deref().unwrap_or("somebody");
            tracing::warn!(op = "updateServiceStatus", service = %key, writer = who, "status is contested");
            let message = format!(
                "{who} keeps changing status.loadBalancer or annotation \
                 metallb.io/ip-allocated-from-pool of this Service; they are put right at growing intervals. \
                 Stop {who}, or give the Service a loadBalancerClass that leaves it to {who}"
            );
            events.push(entry.event(EventKind::Warning, "StatusContested", message));
        }
        if let Some(cleared) = &decision.cleared {
            log_cleared(key, cleared);
        }
        // A plain structure with string keys: there is nothing in it that JSON could not say.
        let body = serde_json::to_value(&object).unwrap_or_default();
        let request = ApiRequest::status(Verb::Put, Resource::Services, &key.namespace, &key.name, body);
        entry.writing = true;
        entry.again = false;
        entry.intent = Some(decision.ingress.clone());
        let uid = entry.object.metadata.uid.clone();
        self.effects.extend(events.into_iter().map(Effect::Event));
        self.send(Target::Service { key: key.clone(), uid }, request);
    }

    /// Takes note of how a write of a Service's status ended.
    pub(crate) fn service_written(&mut self, key: &ServiceKey, uid: Option<&str>, result: WriteResult) {
        let Some(entry) = self.services.get_mut(key) else { return };
        if entry.object.metadata.uid.as_deref() != uid {
            return;
        }
        entry.writing = false;
        let again = std::mem::take(&mut entry.again);
        match result {
            Ok(stored) => {
                tracing::info!(event = "serviceUpdated", service = %key, "updated service object");
                entry.backoff.reset();
                entry.story.stored();
                match serde_json::from_value::<Service>(stored) {
                    Ok(stored) => {
                        // Not what the entry holds then: a stranger may have been faster than this answer.
                        let written = service::stored(&stored);
                        if Update::of(&entry.object.metadata, &stored.metadata) == Update::Newer {
                            entry.update(&self.settings, stored);
                        }
                        entry.contest.wrote(written);
                        self.queue.changed.insert(key.clone());
                    }
                    // The watch will say what is stored now.
                    Err(_) if !again => {}
                    Err(_) => {
                        self.queue.changed.insert(key.clone());
                    }
                }
            }
            Err(error) => {
                tracing::error!(op = "updateServiceStatus", service = %key, %error, "failed to update service");
                let at = entry.backoff.failed(self.clock.now);
                self.queue.retry(at, Retry::Service(key.clone()));
                self.effects.push_back(Effect::Reconciled { failed: true });
            }
        }
    }

    /// Passes on what changed in the allocator: to those who wait, and to the pools' counters.
    fn note_changes(&mut self) {
        let Some(allocator) = &mut self.allocator else { return };
        let changes = allocator.take_changes();
        self.queue.waiting.alert(changes.freed);
        for pool in changes.counters {
            self.pools.changed(pool);
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
        other => tracing::info!(event = "clearAssignment", service = %key, reason = reason(other)),
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
            tracing::error!(op = "allocateIPs", service = %key, error = %why, "IP allocation failed");
        }
        Notice::NoAdditional(why) => {
            tracing::info!(event = "tryAssignAdditionalIP", service = %key, error = %why);
        }
        Notice::InvalidRequest(why) => {
            tracing::error!(event = "loadbalancerIP", service = %key, error = %why);
        }
        // What was cleared is logged with its reason.
        Notice::Cleared { .. }
        | Notice::NotEnoughClusterIps(_)
        | Notice::HeldWithoutFamily { .. }
        | Notice::ClusterIpsWithoutFamily { .. } => {}
    }
}

const fn reason(cleared: &Cleared) -> &'static str {
    match cleared {
        Cleared::NotLoadBalancer => "notLoadBalancer",
        Cleared::NoPools => "noConfig",
        Cleared::NoClusterIps => "noClusterIPs",
        Cleared::NotEnoughClusterIps => "requires dual stack but clusterips are not dual stack",
        Cleared::HeldWithoutFamily => "nolbIPsIPFamily",
        Cleared::ClusterIpsWithoutFamily => "noclusterIPsIPFamily",
        Cleared::OtherFamilies | Cleared::NotExtensible => "differentIPFamily",
        Cleared::Refused(_) => "notAllowedByConfig",
        Cleared::OtherPoolRequested => "differentPoolRequested",
        Cleared::OtherAddressesRequested => "differentIPRequested",
    }
}

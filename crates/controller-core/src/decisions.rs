// SPDX-License-Identifier: Apache-2.0
//! One Service's decision: made, told, written, and what became of the write.

use ferrolb_api::event::EventKind;
use ferrolb_api::request::{ApiRequest, Resource, Verb, WriteResult};
use ferrolb_api::{ALLOCATED_CONDITION, ANNOUNCED_CONDITION};
use ferrolb_ipam::{Allocator, Decision, Kind, Rank};
use ferrolb_net_types::ServiceKey;
use k8s_openapi::api::core::v1::Service;

use crate::conditions::{self, Want, Wants};
use crate::contest::Round;
use crate::core::Core;
use crate::entry::Entry;
use crate::fence;
use crate::intents::{End, Intent};
use crate::io::Effect;
use crate::outbox::Pending;
use crate::queue::Retry;
use crate::service;
use crate::story::Story;
use crate::telling::{Line, Telling};
use crate::version::Update;

/// What has to be stored for a decision.
enum Store {
    /// Nothing: it is stored already.
    Nothing,
    /// Addresses, and whatever goes with them.
    Addresses(Box<Service>),
    /// Conditions only: whenever such a write arrives, it changes no address.
    Conditions(Box<Service>),
}

impl Core {
    pub(crate) fn decide(&mut self, key: &ServiceKey) {
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
        tracing::debug!(event = "startUpdate", service = %key, "start of service update");
        let told = entry.story.clone();
        let mut decision = allocator.converge(&entry.claim);
        let telling = tell(entry, &decision);
        let store = self.compare(key, &decision);
        let concerns_others = !telling.is_empty() || !matches!(store, Store::Nothing);
        if concerns_others && !self.may_write() {
            // Somebody has to look for rivals first. It is decided anew then. What it gave up, though, is free: no status
            // lists that.
            self.note_changes();
            self.take_back(key, told);
            // What nobody heard of being taken is no news when it is free again.
            let changes = self.allocator.as_mut().map(Allocator::take_changes).unwrap_or_default();
            for pool in changes.counters {
                self.pools.changed(pool);
            }
            return;
        }
        self.effects.push_back(Effect::Reconciled { failed: decision.outcome.is_failure() });
        let Some(entry) = self.services.get_mut(key) else { return };
        // Until the window closes it is not said.
        entry.insists &= entry.announcing.is_some();
        if let Some(want) = decision.waits_for.take() {
            let rank = Rank::new(!decision.ingress.is_empty(), entry.created, key.clone());
            entry.waiting = Some(self.queue.waiting.wait(rank, want));
        }
        match store {
            Store::Nothing => {
                tracing::debug!(event = "noChange", service = %key, "service converged, no change");
                entry.story.stored();
                entry.intent = None;
                self.announce(key, telling);
            }
            Store::Addresses(object) => self.write(key, &decision, telling, told, &object, true),
            Store::Conditions(object) => self.write(key, &decision, telling, told, &object, false),
        }
        tracing::debug!(event = "endUpdate", service = %key, "end of service update");
        self.note_changes();
    }

    /// Undoes a decision that nobody may hear of now; the Service stands where it stood. What that changes in the
    /// allocator is not passed on yet.
    pub(crate) fn take_back(&mut self, key: &ServiceKey, told: Story) {
        let (Some(allocator), Some(entry)) = (&mut self.allocator, self.services.get_mut(key)) else {
            return;
        };
        entry.story = told;
        entry.writing = false;
        entry.again = false;
        entry.intent = None;
        if !entry.ours {
            // Another class by now: what it lists concerns nobody here.
            allocator.release(key);
            return;
        }
        allocator.withdraw(key, &entry.claim.held);
        let holds = !entry.claim.held.is_empty() && allocator.adopt(&entry.claim);
        allocator.hold_back(key, &entry.claim.held);
        self.queue.ready.insert(Rank::new(holds, entry.created, key.clone()));
    }

    /// Sends the events, and writes the lines, of a decision.
    pub(crate) fn announce(&mut self, key: &ServiceKey, telling: Telling) {
        telling.log(key);
        self.effects.extend(telling.events.into_iter().map(Effect::Event));
    }

    /// Compares a decision with what is stored.
    fn compare(&mut self, key: &ServiceKey, decision: &Decision) -> Store {
        let Some(entry) = self.services.get(key) else { return Store::Nothing };
        let addresses = service::decided(&entry.object, decision);
        if !self.settings.conditions {
            return addresses.map_or(Store::Nothing, |object| Store::Addresses(Box::new(object)));
        }
        let announced =
            if decision.ingress.is_empty() { Want::Absent } else { self.announced.want(key, entry.insists) };
        let wants = Wants { allocated: conditions::allocated(decision), announced };
        let present = service::conditions(&entry.object);
        let waits = entry.announcing.is_some_and(|at| at > self.clock.now);
        let differ = conditions::differs(present, ALLOCATED_CONDITION, &wants.allocated)
            || (!waits && conditions::differs(present, ANNOUNCED_CONDITION, &wants.announced));
        let generation = entry.object.metadata.generation;
        let merge = |object: &Service| {
            let merged = conditions::merged(present, &wants, generation, self.clock.wall);
            Box::new(service::with_conditions(object, merged))
        };
        if let Some(object) = addresses {
            return Store::Addresses(merge(&object));
        }
        if differ {
            return Store::Conditions(merge(&entry.object));
        }
        let uid = entry.object.metadata.uid.as_deref().unwrap_or_default();
        if self.ledger.doubtful(uid).is_empty() {
            return Store::Nothing;
        }
        // A write for this version may still arrive, though nothing is to be written: the next version ends the doubt.
        let mut object = merge(&entry.object);
        if service::conditions(&object) == present && !service::touch(&mut object, self.clock.wall) {
            self.queue.retry(self.clock.now + fence::AGAIN, Retry::Service(key.clone()));
            return Store::Nothing;
        }
        Store::Conditions(object)
    }

    fn write(
        &mut self,
        key: &ServiceKey,
        decision: &Decision,
        mut telling: Telling,
        told: Story,
        object: &Service,
        addresses: bool,
    ) {
        let Some(entry) = self.services.get_mut(key) else { return };
        let deprecated: Vec<String> =
            service::deprecated_annotations(&entry.object).map(str::to_owned).collect();
        for annotation in deprecated {
            if addresses && entry.story.is_new_annotation(&annotation) {
                let message = format!("Service uses deprecated annotation {annotation}");
                telling.events.push(entry.event(EventKind::Warning, "deprecatedAnnotation", message));
                telling.lines.push(Line::Deprecated(annotation));
            }
        }
        let stored = entry.stored();
        if entry.contest.round(self.clock.now, &stored) == Round::Begins {
            let who = entry.foreign_writer.as_deref().unwrap_or("somebody");
            let message = format!(
                "{who} keeps changing status.loadBalancer or annotation \
                 metallb.io/ip-allocated-from-pool of this Service; they are put right at growing intervals. \
                 Stop {who}, or give the Service a loadBalancerClass that leaves it to {who}"
            );
            telling.lines.push(Line::Contested(who.to_owned()));
            telling.events.push(entry.event(EventKind::Warning, "StatusContested", message));
        }
        if let Some(cleared) = decision.cleared.clone() {
            telling.lines.insert(0, Line::Cleared(cleared));
        }
        // A plain structure with string keys: there is nothing in it that JSON could not say.
        let body = serde_json::to_value(object).unwrap_or_default();
        let request = ApiRequest::status(Verb::Put, Resource::Services, &key.namespace, &key.name, body);
        entry.writing = true;
        entry.again = false;
        entry.intent = Some(decision.ingress.clone());
        let metadata = &entry.object.metadata;
        let intent = Intent {
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            addresses: decision.ingress.clone(),
        };
        self.submit(Pending { key: key.clone(), intent, addresses, request, telling, told });
    }

    /// Takes note of how a write of a Service's status ended; `addresses` if it was one of addresses.
    pub(crate) fn service_written(
        &mut self,
        key: &ServiceKey,
        intent: &Intent,
        addresses: bool,
        result: WriteResult,
    ) {
        let uid = intent.uid.as_str();
        if addresses && let Err(error) = &result {
            let end = if error.is_unknown() { End::Unknown(self.clock.now) } else { End::Nothing };
            self.ledger.end(intent, end);
        }
        let Some(entry) = self.services.get_mut(key) else { return };
        if entry.object.metadata.uid.as_deref().unwrap_or_default() != uid {
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
                        let written = service::stored(&stored, self.settings.conditions);
                        let version = stored.metadata.resource_version.clone().unwrap_or_default();
                        if Update::of(&entry.object.metadata, &stored.metadata) == Update::Newer {
                            entry.update(&self.settings, stored);
                        }
                        entry.contest.wrote(written);
                        self.queue.changed.insert(key.clone());
                        self.version_seen(key, uid, &version);
                        self.fence_tried(key, uid, None);
                    }
                    // The watch will say what is stored now.
                    Err(_) => {
                        if again {
                            self.queue.changed.insert(key.clone());
                        }
                        if addresses {
                            self.ledger.end(intent, End::Unknown(self.clock.now));
                            self.reserve_doubtful(key, uid);
                            self.doubt();
                        }
                    }
                }
            }
            Err(error) => {
                tracing::error!(
                    controller = "ServiceReconciler",
                    event = "failed to handle service",
                    op = "updateServiceStatus",
                    service = %key,
                    %error,
                    "failed to update service"
                );
                entry.intent = None;
                let at = entry.backoff.failed(self.clock.now, error.retry_after);
                self.queue.retry(at, Retry::Service(key.clone()));
                self.effects.push_back(Effect::Reconciled { failed: true });
                self.reserve_doubtful(key, uid);
                if error.is_unknown() {
                    self.doubt();
                }
                self.fence_tried(key, uid, Some(&error));
            }
        }
    }
}

/// What of a decision is news.
fn tell(entry: &mut Entry, decision: &Decision) -> Telling {
    let mut telling = Telling::default();
    for notice in entry.story.news(decision.notices.clone()) {
        let kind = match notice.kind() {
            Kind::Normal => EventKind::Normal,
            Kind::Warning => EventKind::Warning,
        };
        telling.events.push(entry.event(kind, notice.reason(), notice.to_string()));
        telling.lines.push(Line::Notice(notice));
    }
    if entry.claim.load_balancer {
        let unknown: Vec<String> = service::unknown_annotations(&entry.object).map(str::to_owned).collect();
        for annotation in unknown {
            if entry.story.is_new_annotation(&annotation) {
                let message = format!(
                    "Service has annotation {annotation}, which means nothing; known are \
                     metallb.io/address-pool, metallb.io/loadBalancerIPs and metallb.io/allow-shared-ip"
                );
                telling.events.push(entry.event(EventKind::Warning, "unknownAnnotation", message));
            }
        }
    }
    telling
}

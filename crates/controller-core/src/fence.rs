// SPDX-License-Identifier: Apache-2.0
//! Ending all doubt, where nobody can tell what is in doubt.
//!
//! A successor finds what may still arrive in the Lease. If somebody has overwritten that, any Service may be about to
//! get any address: by a write of the former leader's that is still on its way. Such a write names the version that it
//! replaces, and it was committed before the Lease was taken, so it is for a version that a Service had when it was
//! read after that. Once each of those Services is of another version, no such write can succeed any more. So the
//! successor gives every Service that is for it a new version, by a write that changes no address, before it decides
//! anything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrolb_api::event::EventKind;
use ferrolb_api::request::{ApiRequest, Resource, Verb, WriteError};
use ferrolb_net_types::ServiceKey;

use crate::core::Core;
use crate::intents::Intent;
use crate::lease::LEASE;
use crate::outbox::Pending;
use crate::queue::Retry;
use crate::service;
use crate::telling::Telling;

/// The Services whose version has to change first.
#[derive(Debug)]
pub(crate) struct Fence {
    /// By uid, the version that a write may still replace.
    open: BTreeMap<String, String>,
    /// Those to write next.
    next: BTreeSet<ServiceKey>,
}

/// Times in objects have seconds: a write that is to change nothing but a time waits for the next one.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

impl Fence {
    /// Whether everything is of another version.
    pub(crate) fn is_closed(&self) -> bool {
        self.open.is_empty()
    }

    /// A Service is of this version now; `None`: it is gone, or nobody may write it.
    pub(crate) fn seen(&mut self, uid: &str, version: Option<&str>) {
        if self.open.get(uid).is_some_and(|open| Some(open.as_str()) != version) {
            self.open.remove(uid);
        }
    }

    /// A Service has to be tried again.
    pub(crate) fn again(&mut self, key: &ServiceKey) {
        self.next.insert(key.clone());
    }
}

impl Core {
    /// Nobody knows what may still arrive: every Service that this controller looks after, as it is now.
    pub(crate) fn fence(&mut self) -> Fence {
        let message = format!(
            "Annotation ferrolb.io/intents of Lease {LEASE} was changed by somebody else, so that nobody knows which \
             addresses the former leader was about to write. Every Service is written once before addresses are \
             assigned. Nobody but the controllers should write this Lease"
        );
        tracing::error!(op = "lease", "{message}");
        self.tell_of_own_pod(EventKind::Warning, "IntentsUnreadable", message);
        let mut fence = Fence { open: BTreeMap::new(), next: BTreeSet::new() };
        for (key, entry) in &self.services {
            let metadata = &entry.object.metadata;
            if entry.ours && entry.claim.load_balancer {
                let version = metadata.resource_version.clone().unwrap_or_default();
                fence.open.insert(metadata.uid.clone().unwrap_or_default(), version);
                fence.next.insert(key.clone());
            }
        }
        fence
    }

    /// Gives the next Service a new version; false if there is none to be given one now.
    pub(crate) fn fence_next(&mut self) -> bool {
        if !self.gate.is_fresh(self.clock.now) {
            return false;
        }
        let Some(fence) = self.gate.fence() else { return false };
        let Some(key) = fence.next.pop_first() else { return false };
        let Some(entry) = self.services.get_mut(&key) else { return true };
        let metadata = &entry.object.metadata;
        let (uid, version) =
            (metadata.uid.clone().unwrap_or_default(), metadata.resource_version.clone().unwrap_or_default());
        if fence.open.get(&uid) != Some(&version) {
            return true;
        }
        let mut object = entry.object.clone();
        let later =
            if entry.writing { Some(self.clock.now + AGAIN) } else { entry.waits_until(self.clock.now) };
        let later = later.or_else(|| {
            (!service::mark_taken_over(&mut object, self.clock.wall)).then(|| self.clock.now + AGAIN)
        });
        if let Some(at) = later {
            self.queue.retry(at, Retry::Fence(key));
            return true;
        }
        entry.writing = true;
        entry.again = false;
        // A plain structure with string keys: there is nothing in it that JSON could not say.
        let body = serde_json::to_value(&object).unwrap_or_default();
        let request = ApiRequest::status(Verb::Put, Resource::Services, &key.namespace, &key.name, body);
        let told = entry.story.clone();
        let intent = Intent { uid, version, addresses: vec![] };
        self.submit(Pending { key, intent, addresses: false, request, telling: Telling::default(), told });
        true
    }

    /// A write of a Service ended, and perhaps the Service is of the same version still; why, if it was refused.
    pub(crate) fn fence_tried(&mut self, key: &ServiceKey, uid: &str, error: Option<&WriteError>) {
        if !self.gate.fence().is_some_and(|fence| fence.open.contains_key(uid)) {
            return;
        }
        let for_good = |e: &&WriteError| !e.is_unknown() && !e.is_conflict() && e.code != 429;
        if let Some(error) = error.filter(for_good) {
            // What is refused to this controller would have been refused to the former one.
            tracing::warn!(op = "lease", service = %key, %error, "this Service cannot be written, so nothing is in doubt about it");
            self.gate.fence_seen(uid, None);
        } else if let Some(entry) = self.services.get_mut(key) {
            let at = entry
                .waits_until(self.clock.now)
                .unwrap_or_else(|| entry.backoff.failed(self.clock.now, None));
            self.queue.retry(at.max(self.clock.now + AGAIN), Retry::Fence(key.clone()));
        }
    }
}

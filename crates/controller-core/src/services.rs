// SPDX-License-Identifier: Apache-2.0
//! What the core does about Services: keep them, settle what they hold, decide by rank.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolb_api::{ANNOUNCED_CONDITION, Change};
use ferrolb_config::Config;
use ferrolb_ipam::{Allocator, Rank};
use ferrolb_net_types::ServiceKey;
use k8s_openapi::api::core::v1::Service;

use crate::conditions;
use crate::core::Core;
use crate::entry::Entry;
use crate::queue::Retry;
use crate::service;
use crate::version::{self, Update};

/// Where a version of a Service comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The watch, which tells everything in the order in which it happened.
    Watch,
    /// A reading, which may be ahead of the watch.
    Reading,
}

impl Core {
    /// Takes note of what the watch of Services delivers.
    pub(crate) fn services_changed(&mut self, change: Change<Service>) {
        match change {
            Change::Applied(object) => self.service_applied(*object, Source::Watch),
            Change::Deleted { namespace, name } => {
                let key = ServiceKey::new(&namespace, &name);
                // A reading may be ahead of the watch: then this is of a former Service of that name.
                if self.services.get(&key).is_some_and(|entry| entry.watched) {
                    self.service_gone(&key);
                }
            }
            Change::Reset(objects) => {
                let there: BTreeSet<ServiceKey> = objects.iter().map(service::key).collect();
                let gone: Vec<ServiceKey> =
                    self.services.keys().filter(|key| !there.contains(*key)).cloned().collect();
                for key in gone {
                    self.service_gone(&key);
                }
                for object in objects {
                    self.service_applied(object, Source::Watch);
                }
                self.services_listed = true;
                self.services_start_over();
            }
        }
    }

    pub(crate) fn service_applied(&mut self, object: Service, source: Source) {
        let key = service::key(&object);
        if let Some(entry) = self.services.get_mut(&key) {
            let same = entry.object.metadata.uid == object.metadata.uid;
            if !same && !entry.watched && version::is_older(&object.metadata, &entry.object.metadata) {
                // The watch lags behind a reading and tells of a former Service of that name.
                return;
            }
            entry.watched |= same && source == Source::Watch;
            match Update::of(&entry.object.metadata, &object.metadata) {
                Update::Stale => return,
                Update::Newer => {
                    let uid = object.metadata.uid.clone().unwrap_or_default();
                    let version = object.metadata.resource_version.clone().unwrap_or_default();
                    entry.update(&self.settings, object);
                    self.version_seen(&key, &uid, &version);
                    self.void_decision(&key);
                    self.queue.changed.insert(key);
                    return;
                }
                // Deleted and created again: the new one has no claim to what the old one held.
                Update::Other => self.service_gone(&key),
            }
        }
        let mut entry = Entry::new(&self.settings, object);
        entry.watched = source == Source::Watch;
        self.services.insert(key.clone(), entry);
        self.queue.changed.insert(key);
    }

    fn service_gone(&mut self, key: &ServiceKey) {
        let Some(entry) = self.services.remove(key) else { return };
        self.note_gone(entry.object.metadata.uid.as_deref().unwrap_or_default());
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
        // Everybody is decided anew, which is what this line is searched for.
        tracing::info!(event = "force service reload", controller = "PoolReconciler");
        // What was decided upon the old pools and is not sent yet is decided anew with everything else.
        self.withdraw();
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
        // Also what is under way, which the new pools may not admit: it is stored all the same.
        for (key, uid, addresses) in self.ledger.expected() {
            if let Some(entry) = self.services.get(key)
                && entry.ours
                && entry.object.metadata.uid.as_deref().unwrap_or_default() == uid
            {
                allocator.reserve(&entry.claim, addresses);
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
        let mut later: Vec<ServiceKey> = Vec::new();
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
                later.push(key);
            } else if let Some(at) = entry.waits_until(self.clock.now) {
                self.queue.retry(at, Retry::Service(key.clone()));
                later.push(key);
            } else {
                by_age.push((entry.created, key));
            }
        }
        by_age.sort();
        // What their statuses listed before must not keep one of them off what another one lists no more.
        for key in by_age.iter().map(|(_, key)| key).chain(&later) {
            allocator.hold_back(key, &[]);
        }
        let mut ranks = self.adopt(&by_age);
        let refused = |rank: &Rank| {
            !rank.holds()
                && self.services.get(rank.service()).is_some_and(|entry| !entry.claim.held.is_empty())
        };
        if ranks.iter().any(refused) && self.withdraw() {
            // Nobody makes way for what is not even sent.
            ranks = self.adopt(&by_age);
        }
        let Some(allocator) = &mut self.allocator else { return false };
        // What a stranger wrote into the status of those that cannot be decided now is listed all the same.
        for key in later {
            if let Some(entry) = self.services.get(&key) {
                allocator.hold_back(&key, &entry.claim.held);
            }
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

    /// Takes for these Services, in this order, what they list and may keep.
    fn adopt(&mut self, by_age: &[(i64, ServiceKey)]) -> Vec<Rank> {
        let mut ranks = Vec::new();
        for (created, key) in by_age {
            let (Some(allocator), Some(entry)) = (&mut self.allocator, self.services.get(key)) else {
                continue;
            };
            let holds = !entry.claim.held.is_empty() && allocator.adopt(&entry.claim);
            ranks.push(Rank::new(holds, *created, key.clone()));
        }
        ranks
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

    /// Who announces these Services has changed; `complete` if everything about it was known before.
    pub(crate) fn announced_changed(&mut self, services: BTreeSet<ServiceKey>, complete: bool) {
        if !self.settings.conditions || !self.announced.is_complete() {
            return;
        }
        if complete {
            for key in services {
                if let Some(entry) = self.services.get_mut(&key) {
                    entry.insists = true;
                }
                self.say_announced_soon(&key);
            }
            return;
        }
        // The first complete picture: only what says otherwise is to be put right.
        let says_otherwise = |(key, entry): &(&ServiceKey, &Entry)| {
            let present = service::conditions(&entry.object);
            conditions::differs(present, ANNOUNCED_CONDITION, &self.announced.want(key, false))
        };
        let keys: Vec<ServiceKey> =
            self.services.iter().filter(says_otherwise).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.say_announced_soon(&key);
        }
    }

    fn say_announced_soon(&mut self, key: &ServiceKey) {
        let Some(entry) = self.services.get_mut(key) else { return };
        if entry.announcing.is_none() {
            let at = self.clock.now + ANNOUNCED_WINDOW;
            entry.announcing = Some(at);
            self.queue.retry(at, Retry::Announced(key.clone()));
        }
    }

    /// Passes on what changed in the allocator: to those who wait, and to the pools' counters.
    pub(crate) fn note_changes(&mut self) {
        let Some(allocator) = &mut self.allocator else { return };
        let changes = allocator.take_changes();
        self.queue.waiting.alert(changes.freed);
        self.queue.changed.extend(changes.regained);
        for pool in changes.counters {
            self.pools.changed(pool);
        }
    }
}

/// Changes of who announces a Service within this time are written together.
const ANNOUNCED_WINDOW: Duration = Duration::from_secs(1);

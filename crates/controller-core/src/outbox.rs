// SPDX-License-Identifier: Apache-2.0
//! Writes of Services' statuses on their way out, and what may still arrive of them.
//!
//! A write of addresses is an intent first. Where a Lease is held, the intent has to stand in it before the write is
//! sent; everywhere, an intent whose outcome is unknown keeps its addresses reserved.

use std::collections::VecDeque;

use ferrolb_api::request::ApiRequest;
use ferrolb_net_types::ServiceKey;

use crate::core::{Core, Target};
use crate::intents::{self, BATCH, Inherited, Intent, LIMIT, Ledger};
use crate::story::Story;
use crate::telling::Telling;

/// A write that is decided and not sent.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) key: ServiceKey,
    /// What it may change.
    pub(crate) intent: Intent,
    /// Whether it changes addresses at all.
    pub(crate) addresses: bool,
    pub(crate) request: ApiRequest,
    /// What is told when it is sent.
    pub(crate) telling: Telling,
    /// What was told before.
    pub(crate) told: Story,
}

/// Writes that wait for their intents to be committed.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<Pending>,
    /// Those whose intents are in the update that is under way.
    committing: Vec<Pending>,
    /// What a predecessor may have sent, until it is compared with the Services.
    pub(crate) inherited: Inherited,
}

impl Outbox {
    /// Lets a write wait.
    pub(crate) fn add(&mut self, pending: Pending) {
        self.waiting.push_back(pending);
    }

    /// Whether an update is worth while now: what waits fits, or at least half a batch of it does. A full Lease is
    /// not written anew for each write that ends.
    pub(crate) fn is_urgent(&self, ledger: &Ledger) -> bool {
        !self.waiting.is_empty() && self.fitting(ledger) >= self.waiting.len().min(BATCH / 2)
    }

    /// Takes a batch into the next update; what the Lease is to say then.
    pub(crate) fn commit(&mut self, ledger: &Ledger) -> String {
        let fitting = self.fitting(ledger);
        self.committing = self.waiting.drain(..fitting).collect();
        let new = self.committing.iter().map(|pending| &pending.intent);
        match &self.inherited {
            Inherited::Known(inherited) => intents::encode(ledger.intents().chain(inherited).chain(new)),
            unknown => unknown.encode(),
        }
    }

    /// The update succeeded.
    pub(crate) fn committed(&mut self) -> Vec<Pending> {
        std::mem::take(&mut self.committing)
    }

    /// The update failed, or nobody knows.
    pub(crate) fn not_committed(&mut self) {
        for pending in std::mem::take(&mut self.committing).into_iter().rev() {
            self.waiting.push_front(pending);
        }
    }

    /// Nothing of it will be sent.
    pub(crate) fn withdraw(&mut self) -> Vec<Pending> {
        self.not_committed();
        self.waiting.drain(..).collect()
    }

    /// Takes out the write of one Service, if it is not sent yet.
    pub(crate) fn take(&mut self, key: &ServiceKey) -> Option<Pending> {
        let is_of = |pending: &Pending| pending.key == *key;
        if let Some(place) = self.waiting.iter().position(is_of) {
            return self.waiting.remove(place);
        }
        let place = self.committing.iter().position(is_of)?;
        Some(self.committing.remove(place))
    }

    /// How many of those that wait go into one update.
    fn fitting(&self, ledger: &Ledger) -> usize {
        // While nobody knows what is in doubt, nothing is added to it.
        let Inherited::Known(inherited) = &self.inherited else { return 0 };
        let inherited: usize = inherited.iter().map(Intent::size).sum();
        let mut room = LIMIT.saturating_sub(ledger.size() + inherited + 2);
        let fits = |pending: &&Pending| {
            let left = room.checked_sub(pending.intent.size());
            room = left.unwrap_or_default();
            left.is_some()
        };
        self.waiting.iter().take(BATCH).take_while(fits).count()
    }
}

impl Core {
    /// Sends a write, tells what goes with it, and takes note that it may arrive; unless the Service has changed since
    /// it was decided.
    pub(crate) fn release(&mut self, pending: Pending) {
        let Pending { key, intent, addresses, request, telling, told } = pending;
        let Some(entry) = self.services.get(&key) else { return };
        let metadata = &entry.object.metadata;
        if metadata.uid.as_deref().unwrap_or_default() != intent.uid {
            return;
        }
        if metadata.resource_version.as_deref().unwrap_or_default() != intent.version {
            self.take_back(&key, told);
            // Others may have been refused for its sake.
            self.note_changes();
            return;
        }
        self.announce(&key, telling);
        if addresses {
            self.ledger.begin(&key, intent.clone());
        }
        self.send(Target::Service { key, intent, addresses }, request);
    }

    /// A Service is of this version: intents for others are void, and so are reservations for their sake.
    pub(crate) fn version_seen(&mut self, key: &ServiceKey, uid: &str, version: &str) {
        self.gate.fence_seen(uid, Some(version));
        if self.ledger.seen(uid, version) {
            self.reserve_doubtful(key, uid);
        }
    }

    /// Reserves the addresses that a Service may come to list, and no others any more.
    pub(crate) fn reserve_doubtful(&mut self, key: &ServiceKey, uid: &str) {
        let (Some(allocator), Some(entry)) = (&mut self.allocator, self.services.get(key)) else { return };
        allocator.reserve(&entry.claim, self.ledger.doubtful(uid));
        self.note_changes();
    }
}

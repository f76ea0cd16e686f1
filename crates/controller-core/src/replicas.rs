// SPDX-License-Identifier: Apache-2.0
//! Whether this controller decides and writes at the moment, where there may be others.
//!
//! With a Lease only its holder decides, and only after it has read every Service anew; without one, nobody does while
//! another controller's Pod is there. Everybody else listens, so that it can take over at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrolb_api::event::{Event, EventKind, ObjectRef};
use ferrolb_api::request::WriteError;
use ferrolb_net_types::{ServiceKey, Time};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;

use crate::core::Core;
use crate::fence::Fence;
use crate::intents::{Inherited, Intent};
use crate::io::{Effect, Neighbours, Replicas, Settings};
use crate::leadership::{Leadership, Turn};
use crate::outbox::{Outbox, Pending};
use crate::rivals::{Finding, Rivals};
use crate::services::Source;

/// How this controller keeps out of the way of others.
#[derive(Debug)]
pub(crate) enum Gate {
    /// There are none.
    Alone,
    /// It looks for them.
    Rivals(Rivals),
    /// One holds the Lease.
    Lease(Box<Leased>),
}

/// What there is to know about the Lease, and about what depends on it.
#[derive(Debug)]
pub(crate) struct Leased {
    leadership: Leadership,
    outbox: Outbox,
    reading: Reading,
    /// A reading has not been answered yet; perhaps one that does not count any more.
    unanswered: bool,
    /// The Lease holds everything that the ledger does, by a replacement of this reign.
    in_step: bool,
    /// What has to get a new version before anything is decided.
    fence: Option<Fence>,
}

/// Reading all Services anew, once after each time that the Lease was taken and whenever the watch starts over.
#[derive(Debug)]
enum Reading {
    /// Not needed, or done.
    Done,
    /// Needed.
    Wanted,
    /// Needed, but it just failed.
    Later(Time),
    /// Under way.
    UnderWay {
        /// Uids of Services that have gone since it began: they may still be in it.
        gone: BTreeSet<String>,
        /// What is known has started over meanwhile: this reading is not enough.
        again: bool,
    },
}

/// The pause after a reading that failed.
const READ_AGAIN: Duration = Duration::from_millis(500);

impl Gate {
    pub(crate) fn new(now: Time, settings: &Settings) -> Self {
        match &settings.replicas {
            Replicas::Alone => Self::Alone,
            Replicas::Rivals => Self::Rivals(Rivals::new(&settings.pod_uid)),
            Replicas::Lease { identity } => Self::Lease(Box::new(Leased {
                leadership: Leadership::new(now, &settings.namespace, identity),
                outbox: Outbox::default(),
                reading: Reading::Done,
                unanswered: false,
                in_step: false,
                fence: None,
            })),
        }
    }

    /// Whether this controller leads as far as it knows, where a Lease decides that.
    pub(crate) fn is_fresh(&self, now: Time) -> bool {
        matches!(self, Self::Lease(leased) if leased.leadership.is_fresh(now))
    }

    /// What has to get a new version before anything is decided, if there is anything.
    pub(crate) fn fence(&mut self) -> Option<&mut Fence> {
        match self {
            Self::Lease(leased) => leased.fence.as_mut(),
            Self::Alone | Self::Rivals(_) => None,
        }
    }

    /// A Service is of this version now, or needs no new one.
    pub(crate) fn fence_seen(&mut self, uid: &str, version: Option<&str>) {
        let Self::Lease(leased) = self else { return };
        let Some(fence) = &mut leased.fence else { return };
        fence.seen(uid, version);
        if fence.is_closed() {
            tracing::info!(op = "lease", "nothing that the former leader sent can arrive any more");
            leased.fence = None;
            leased.outbox.inherited = Inherited::default();
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self {
            Self::Alone => None,
            Self::Rivals(rivals) => rivals.next_deadline(),
            Self::Lease(leased) => {
                let reading = match leased.reading {
                    Reading::Later(at) if leased.leadership.leads() && !leased.unanswered => Some(at),
                    _ => None,
                };
                [leased.leadership.next_deadline(), reading].into_iter().flatten().min()
            }
        }
    }
}

impl Core {
    /// Whether the process may end as far as the core is concerned: after [`Input::Stopping`](crate::Input::Stopping)
    /// it says so when the Lease is given up. Nothing breaks if nobody waits for it.
    pub fn is_stopped(&self) -> bool {
        match &self.gate {
            Gate::Lease(leased) => leased.leadership.is_gone(),
            Gate::Alone | Gate::Rivals(_) => self.stopping,
        }
    }

    /// Whether Services are decided at the moment.
    pub(crate) fn may_decide(&self) -> bool {
        !self.stopping
            && match &self.gate {
                Gate::Alone => true,
                Gate::Rivals(rivals) => rivals.may_decide(),
                Gate::Lease(leased) => leased.is_in_charge(self.clock.now),
            }
    }

    /// Whether something may be written at the moment. If not, it is seen to that it may be soon.
    pub(crate) fn may_write(&mut self) -> bool {
        if self.stopping {
            return false;
        }
        match &mut self.gate {
            Gate::Alone => true,
            Gate::Rivals(rivals) => {
                rivals.want(self.clock.now);
                rivals.is_clear()
            }
            Gate::Lease(leased) => leased.is_in_charge(self.clock.now),
        }
    }

    /// Sends a write as soon as it may be sent.
    pub(crate) fn submit(&mut self, pending: Pending) {
        match &mut self.gate {
            Gate::Lease(leased) if pending.addresses => {
                // What is tried again stands in the Lease already.
                if leased.in_step && self.ledger.contains(&pending.intent) {
                    self.release(pending);
                } else {
                    leased.outbox.add(pending);
                }
            }
            _ => self.release(pending),
        }
    }

    /// Asks for what has to be asked for in time; true if it did.
    pub(crate) fn ask(&mut self, idle: bool) -> bool {
        match &mut self.gate {
            Gate::Alone => false,
            Gate::Rivals(rivals) => {
                let wanted = rivals.take_request(self.clock.now);
                if wanted {
                    self.effects.push_back(Effect::FindRivals);
                } else if idle {
                    rivals.done();
                }
                wanted
            }
            Gate::Lease(leased) => {
                let (outbox, ledger) = (&mut leased.outbox, &self.ledger);
                // Intents are committed when everything is decided that can be, so that they are many at once.
                let urgent = idle && leased.leadership.can_commit() && outbox.is_urgent(ledger);
                let request = leased.leadership.poll(self.clock, urgent, || outbox.commit(ledger));
                let asks = request.is_some();
                self.effects.extend(request.map(Effect::Lease));
                let may_read = leased.leadership.leads() && self.services_listed && !leased.unanswered;
                if may_read && leased.reading.begin(self.clock.now) {
                    leased.unanswered = true;
                    self.effects.push_back(Effect::ListServices);
                    return true;
                }
                asks
            }
        }
    }

    /// Takes note of what somebody saw who looked for rivals.
    pub(crate) fn rivals_found(&mut self, found: Result<Neighbours, WriteError>) {
        let Gate::Rivals(rivals) = &mut self.gate else { return };
        if let Finding::GoOn(Some(text)) = rivals.found(self.clock.now, found) {
            tracing::warn!(op = "findRivals", "{text}");
            self.tell_of_own_pod(EventKind::Warning, "OtherController", text);
        }
    }

    /// An event on the Pod that this controller runs in.
    pub(crate) fn tell_of_own_pod(&mut self, kind: EventKind, reason: &'static str, message: String) {
        let regarding = ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: self.settings.namespace.clone(),
            name: self.settings.pod_name.clone(),
            uid: self.settings.pod_uid.clone(),
            resource_version: String::new(),
        };
        self.effects.push_back(Effect::Event(Event { regarding, kind, reason, message }));
    }

    /// Takes note of how a request about the Lease ended.
    pub(crate) fn lease_answered(&mut self, result: Result<Box<Lease>, WriteError>) {
        let Gate::Lease(leased) = &mut self.gate else { return };
        let turn = leased.leadership.answered(self.clock.now, result);
        if let Some(text) = leased.leadership.take_missing() {
            self.tell_of_own_pod(EventKind::Warning, "LeaseForbidden", text);
        }
        let Gate::Lease(leased) = &mut self.gate else { return };
        match turn {
            Turn::None => {}
            // Until the next attempt much may change: what is sent is decided upon what is known then.
            Turn::NotCommitted => {
                self.withdraw();
            }
            Turn::Committed => {
                leased.in_step = true;
                for pending in leased.outbox.committed() {
                    self.release(pending);
                }
            }
            Turn::Acquired(inherited) => {
                let intents = match &inherited {
                    Inherited::Known(intents) => Some(intents.len()),
                    Inherited::Unknown => None,
                };
                tracing::info!(op = "lease", intents, "this controller leads now");
                leased.outbox.inherited = inherited;
                leased.fence = None;
                leased.reading = Reading::Wanted;
                leased.in_step = false;
                self.effects.push_back(Effect::Leads(true));
            }
            Turn::Lost => {
                tracing::warn!(op = "lease", "another controller leads, or may: this one stops to decide");
                leased.reading = Reading::Done;
                leased.outbox.inherited = Inherited::default();
                leased.fence = None;
                self.effects.push_back(Effect::Leads(false));
                self.withdraw();
            }
        }
    }

    /// The process is about to end.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        self.withdraw();
        if let Gate::Lease(leased) = &mut self.gate {
            leased.leadership.leave();
        }
    }

    /// Takes back every decision that is not sent; whether there were any.
    pub(crate) fn withdraw(&mut self) -> bool {
        let Gate::Lease(leased) = &mut self.gate else { return false };
        let mut by_age: Vec<(i64, Pending)> = Vec::new();
        for pending in leased.outbox.withdraw() {
            let Some(entry) = self.services.get(&pending.key) else { continue };
            if entry.object.metadata.uid.as_deref().unwrap_or_default() != pending.intent.uid {
                continue;
            }
            // All give up what they were to get before the first of them takes what it lists.
            if let Some(allocator) = &mut self.allocator {
                allocator.withdraw(&pending.key, &entry.claim.held);
            }
            by_age.push((entry.created, pending));
        }
        by_age.sort_by(|(a, first), (b, second)| (a, &first.key).cmp(&(b, &second.key)));
        let any = !by_age.is_empty();
        for (_, pending) in by_age {
            self.take_back(&pending.key, pending.told);
        }
        self.note_changes();
        any
    }

    /// A decision that is not sent yet is void: its Service has changed. It gives up what it was about to get, so that
    /// nobody has to make way for it; it is settled and decided anew.
    pub(crate) fn void_decision(&mut self, key: &ServiceKey) {
        let Gate::Lease(leased) = &mut self.gate else { return };
        let Some(pending) = leased.outbox.take(key) else { return };
        let (Some(allocator), Some(entry)) = (&mut self.allocator, self.services.get_mut(key)) else {
            return;
        };
        if entry.object.metadata.uid.as_deref().unwrap_or_default() != pending.intent.uid {
            // It was of a former Service of that name.
            return;
        }
        entry.story = pending.told;
        entry.writing = false;
        entry.again = false;
        entry.intent = None;
        allocator.withdraw(key, if entry.ours { &entry.claim.held } else { &[] });
        self.note_changes();
    }

    /// The watch of Services starts over: a list that is older than what is known may just have been taken for true.
    pub(crate) fn services_start_over(&mut self) {
        if let Gate::Lease(leased) = &mut self.gate
            && leased.leadership.leads()
        {
            leased.reading.start_over();
        }
    }

    /// A Service is gone.
    pub(crate) fn note_gone(&mut self, uid: &str) {
        self.ledger.gone(uid);
        self.gate.fence_seen(uid, None);
        if let Gate::Lease(leased) = &mut self.gate
            && let Reading::UnderWay { gone, .. } = &mut leased.reading
        {
            gone.insert(uid.to_owned());
        }
    }

    /// Takes note of all Services, as they were some time after the Lease was taken.
    pub(crate) fn services_read(&mut self, result: Result<Vec<Service>, WriteError>) {
        let Gate::Lease(leased) = &mut self.gate else {
            self.doubts_read(result);
            return;
        };
        leased.unanswered = false;
        // One that began before the Lease was lost and taken again tells nothing.
        if !matches!(leased.reading, Reading::UnderWay { .. }) {
            return;
        }
        let Reading::UnderWay { gone, again } = std::mem::replace(&mut leased.reading, Reading::Done) else {
            return;
        };
        let services = match result {
            Ok(services) => services,
            Err(error) => {
                tracing::warn!(op = "lease", %error, "the Services cannot be read, trying again");
                leased.reading = Reading::Later(self.clock.now + READ_AGAIN);
                return;
            }
        };
        for service in services {
            if !service.metadata.uid.as_ref().is_some_and(|uid| gone.contains(uid)) {
                self.service_applied(service, Source::Reading);
            }
        }
        let Gate::Lease(leased) = &mut self.gate else { return };
        if again {
            leased.reading = Reading::Wanted;
            return;
        }
        match std::mem::take(&mut leased.outbox.inherited) {
            Inherited::Known(intents) => self.inherit(intents),
            Inherited::Unknown => self.raise_fence(),
        }
        if let Some(config) = self.configuration.current() {
            self.install(&config);
        }
    }

    /// Nobody knows what may still arrive.
    fn raise_fence(&mut self) {
        let Gate::Lease(leased) = &self.gate else { return };
        // One that stands is of an earlier reading: what is new since then was never in doubt.
        let new = leased.fence.is_none().then(|| self.fence());
        let Gate::Lease(leased) = &mut self.gate else { return };
        if let Some(fence) = new {
            leased.fence = (!fence.is_closed()).then_some(fence);
        }
        if leased.fence.is_some() {
            leased.outbox.inherited = Inherited::Unknown;
        }
    }

    /// Takes over what may still arrive: intents for the very versions that the Services have.
    fn inherit(&mut self, intents: Vec<Intent>) {
        if intents.is_empty() {
            return;
        }
        let uids = self.services.iter().filter_map(|(key, entry)| {
            let metadata = &entry.object.metadata;
            Some((metadata.uid.as_deref()?, (key, metadata.resource_version.as_deref().unwrap_or_default())))
        });
        let uids: BTreeMap<&str, (&ServiceKey, &str)> = uids.collect();
        for intent in intents {
            if let Some((key, version)) = uids.get(intent.uid.as_str())
                && *version == intent.version
                && !intent.addresses.is_empty()
            {
                self.ledger.inherit(key, intent, self.clock.now);
            }
        }
    }
}

impl Leased {
    /// Whether this controller leads, has read everything, and sees no sign that it leads no more.
    fn is_in_charge(&self, now: Time) -> bool {
        self.leadership.is_fresh(now) && matches!(self.reading, Reading::Done) && self.fence.is_none()
    }
}

impl Reading {
    /// Whether it begins now.
    fn begin(&mut self, now: Time) -> bool {
        let due = match self {
            Self::Wanted => true,
            Self::Later(at) => *at <= now,
            Self::Done | Self::UnderWay { .. } => false,
        };
        if due {
            *self = Self::UnderWay { gone: BTreeSet::new(), again: false };
        }
        due
    }

    fn start_over(&mut self) {
        match self {
            Self::Done => *self = Self::Wanted,
            Self::UnderWay { again, .. } => *again = true,
            Self::Wanted | Self::Later(_) => {}
        }
    }
}

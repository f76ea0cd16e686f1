// SPDX-License-Identifier: Apache-2.0
//! What the core keeps about each Service.

use std::net::IpAddr;

use ferrolb_api::event::{Event, EventKind, ObjectRef};
use ferrolb_ipam::Claim;
use ferrolb_net_types::Time;
use k8s_openapi::api::core::v1::Service;

use crate::backoff::Backoff;
use crate::contest::Contest;
use crate::io::Settings;
use crate::service::{self, Stored};
use crate::story::Story;
use crate::waiting::Ticket;

/// One Service and everything that is going on around it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The newest version that is known, without `managedFields`.
    pub(crate) object: Service,
    /// What it says.
    pub(crate) claim: Claim,
    /// When it was created, in seconds since the epoch.
    pub(crate) created: i64,
    /// Whether its class is ours.
    pub(crate) ours: bool,
    /// Who else writes its status.
    pub(crate) foreign_writer: Option<String>,
    /// A write is outstanding; nothing is decided until it ends.
    pub(crate) writing: bool,
    /// Something happened meanwhile.
    pub(crate) again: bool,
    /// The addresses of the last write, until it is known what became of it.
    pub(crate) intent: Option<Vec<IpAddr>>,
    /// Failed writes.
    pub(crate) backoff: Backoff,
    /// Overwritten writes.
    pub(crate) contest: Contest<Stored>,
    /// What was told.
    pub(crate) story: Story,
    /// Whether conditions are written at all.
    conditions: bool,
    /// Until when a change of who announces it waits for further ones.
    pub(crate) announcing: Option<Time>,
    /// Who announces it has changed, so that it has to be said even where nothing was said before.
    pub(crate) insists: bool,
    /// Its place among those who wait for an address.
    pub(crate) waiting: Option<Ticket>,
    /// The watch has told of it.
    pub(crate) watched: bool,
}

impl Entry {
    pub(crate) fn new(settings: &Settings, object: Service) -> Self {
        let mut entry = Self {
            claim: service::claim(&object),
            created: object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            ours: false,
            foreign_writer: None,
            writing: false,
            again: false,
            intent: None,
            backoff: Backoff::default(),
            contest: Contest::default(),
            story: Story::default(),
            conditions: settings.conditions,
            announcing: None,
            insists: false,
            waiting: None,
            watched: false,
            object: Service::default(),
        };
        entry.store(settings, object);
        entry
    }

    /// Takes a newer version.
    pub(crate) fn update(&mut self, settings: &Settings, object: Service) {
        let mut claim = service::claim(&object);
        std::mem::swap(&mut self.claim, &mut claim);
        let wants_the_same = Claim { held: self.claim.held.clone(), ..claim } == self.claim;
        if !wants_the_same {
            self.backoff.reset();
            self.contest = Contest::default();
        }
        if !self.writing {
            self.intent = None;
        }
        self.store(settings, object);
    }

    fn store(&mut self, settings: &Settings, mut object: Service) {
        let managed = object.metadata.managed_fields.take().unwrap_or_default();
        self.foreign_writer = service::foreign_status_writer(&managed, &settings.field_manager);
        self.ours = service::is_of_class(&object, &settings.lb_class);
        let annotations = object.metadata.annotations.as_ref();
        self.story.retain_annotations(|key| annotations.is_some_and(|notes| notes.contains_key(key)));
        self.object = object;
    }

    /// What the controller's writes are compared with.
    pub(crate) fn stored(&self) -> Stored {
        service::stored(&self.object, self.conditions)
    }

    /// When it may be decided again, if that is not now.
    pub(crate) fn waits_until(&self, now: Time) -> Option<Time> {
        self.backoff.waits_until(now).max(self.contest.waits_until(now, &self.stored()))
    }

    /// The claim with the addresses that the Service has, or will have if an outstanding write succeeds.
    pub(crate) fn effective_claim(&self) -> Claim {
        let mut claim = self.claim.clone();
        if let Some(intent) = &self.intent {
            claim.held = intent.iter().copied().map(Some).collect();
        }
        claim
    }

    /// An event about this Service.
    pub(crate) fn event(&self, kind: EventKind, reason: &'static str, message: String) -> Event {
        let metadata = &self.object.metadata;
        let regarding = ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
        };
        Event { regarding, kind, reason, message }
    }
}

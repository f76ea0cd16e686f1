// SPDX-License-Identifier: Apache-2.0
//! Keeping what decides for the next process, and going on from what the last one kept.
//!
//! A speaker that is started while the API server is away would be one that knows nothing. From a snapshot it goes on
//! announcing what it would lead by what was known last, and says of itself that its view is stale. Nothing is written,
//! and no event sent, before everything was listed; then the snapshot is forgotten.

use ferrolb_announce::{Inputs, NodePlan};
use ferrolb_api::Clock;
use ferrolb_net_types::Time;

use super::Core;
use crate::io::Effect;
use crate::snapshot::{Snapshot, SnapshotError};

use std::sync::Arc;
use std::time::Duration;

impl Core {
    /// What decisions are made from now, for [`Core::resume`] of another process on this node. Holds no Secret.
    pub fn snapshot(&self) -> Vec<u8> {
        let snapshot = Snapshot {
            config: self.intake.config().clone(),
            nodes: self.store.nodes.clone(),
            not_ready: self.store.not_ready.clone(),
            services: self.store.services.clone(),
            peers: self.peers.told().map(<[_]>::to_vec),
        };
        snapshot.encode(&self.settings.node)
    }

    /// Goes on from what a former process on this node kept. To be called before any input.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`] if it cannot be used; nothing has happened then.
    pub fn resume(&mut self, clock: Clock, snapshot: &[u8]) -> Result<(), SnapshotError> {
        let snapshot = Snapshot::decode(&self.settings.node, snapshot)?;
        self.clock = Some(clock);
        self.resumed = true;
        self.outage.doubt(true);
        self.effects.extend(self.outage.news(clock.now).map(|working| Effect::Api { working }));
        self.intake.resume(snapshot.config);
        self.store.resume(snapshot.nodes, snapshot.not_ready, snapshot.services);
        self.plan = NodePlan::default();
        let inputs = Inputs {
            node: &self.settings.node,
            config: self.intake.config(),
            nodes: &self.store.nodes,
            services: &self.store.services,
            settings: &self.rules,
        };
        self.plan.replan(&inputs, self.store.services.keys());
        self.planned = true;
        tracing::warn!(
            op = "startup",
            services = self.store.services.len(),
            "going on from what the last process kept, until the API server answers"
        );
        self.effects.push_back(Effect::Plan(Arc::new(self.plan.addresses.clone())));
        if let (Some(peers), Some(_)) = (snapshot.peers, self.settings.member_port) {
            self.peers.resume(peers.clone());
            self.effects.push_back(Effect::Peers(peers));
        }
        Ok(())
    }

    /// Takes note of what this node announces while nothing is known but what a former process kept.
    pub(super) fn pass_resumed(&mut self) {
        let reviewed = std::mem::take(&mut self.review);
        for service in reviewed {
            self.review(&service);
        }
    }

    /// Everything is listed: what a former process kept is of no use any more.
    pub(super) fn end_resumption(&mut self) {
        if std::mem::take(&mut self.resumed) {
            self.outage.doubt(false);
            self.store.decide_all();
            tracing::info!(op = "startup", "everything was read from the API server");
        }
    }

    /// What decides has changed.
    pub(super) fn save_soon(&mut self, now: Time) {
        if self.settings.keeps_snapshots {
            let earliest = self.saved.map_or(now + SOON, |saved| (saved + SAVE_EVERY).max(now + SOON));
            self.saving.get_or_insert(earliest);
        }
    }

    /// Asks for a snapshot when one is due. What is not complete is no better than what was kept before.
    pub(super) fn tell_to_save(&mut self, now: Time) {
        if self.saving.is_some_and(|due| due <= now) {
            self.saving = None;
            if self.missing.is_empty() && self.planned {
                self.saved = Some(now);
                self.effects.push_back(Effect::Save);
            }
        }
    }
}

/// What changes together is kept together.
const SOON: Duration = Duration::from_secs(1);

/// Snapshots are not made more often than this.
const SAVE_EVERY: Duration = Duration::from_secs(10);

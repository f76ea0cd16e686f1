// SPDX-License-Identifier: Apache-2.0
//! The core and BGP: sessions and routes follow the configuration as it is; what layer 2 waits for does not bear on them.

use ferrolb_announce::Inputs;
use ferrolb_api::Clock;
use ferrolb_net_types::PeerName;
use kube::ResourceExt;

use super::Core;
use crate::bgp::Gone;

impl Core {
    /// Decides what changed, and has peers told.
    pub(super) fn pass_bgp(&mut self, clock: Clock) {
        // Begun without a peer that is about to be known, what a former process said of it would be taken back.
        if !self.intake.is_evaluated() || (!self.bgp.has_begun() && self.intake.awaits_secrets()) {
            return;
        }
        let reconfigured = self.intake.take_bgp_news();
        let changes = self.store.take_bgp_changes();
        if !self.bgp.has_begun() || reconfigured || !changes.is_empty() {
            let inputs = Inputs {
                node: &self.settings.node,
                config: self.intake.evaluated(),
                nodes: &self.store.nodes,
                services: &self.store.services,
                settings: &self.rules,
            };
            let objects = &self.intake.resources.bgp_peers;
            let why_gone = |name: &PeerName| match objects.iter().any(|o| o.name_any() == name.as_str()) {
                true => Gone::FilteredByNodeSelector,
                false => Gone::RemovedFromConfig,
            };
            self.bgp.decide(clock.now, &inputs, changes, reconfigured, why_gone, &mut self.effects);
            if reconfigured {
                self.bgp_sessions.note();
            }
        }
        self.bgp.tell_due(clock.now, &mut self.effects);
    }

    /// Tells users what [`Core::pass_bgp`] decided.
    pub(super) fn review_bgp(&mut self, clock: Clock) {
        if !self.bgp.has_begun() {
            return;
        }
        let first = !self.bgp_told;
        let inputs = Inputs {
            node: &self.settings.node,
            config: self.intake.evaluated(),
            nodes: &self.store.nodes,
            services: &self.store.services,
            settings: &self.rules,
        };
        let mut restate = self.bgp.take_review();
        for service in &restate {
            let regarding = self.store.reference(service);
            let known = first && self.bgp_statuses.says_ours(service);
            self.bgp.review(&inputs, service, &regarding, known, &mut self.effects);
        }
        restate.append(&mut self.bgp.take_news(clock.now));
        for service in restate {
            let is_listed = |peer: &PeerName| self.bgp_statuses.lists(&service, peer);
            let desired = self.bgp.status(&inputs, &service, is_listed);
            self.bgp_statuses.want(&service, desired);
        }
        if first {
            self.bgp_told = true;
            self.bgp_statuses.settle();
        }
    }
}

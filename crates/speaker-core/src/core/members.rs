// SPDX-License-Identifier: Apache-2.0
//! The core and the other speakers: who they are, whether they are reached, and whether this one may take part.

use ferrolb_announce::Members;
use ferrolb_api::event::{Event, EventKind, ObjectRef};
use ferrolb_api::request::WriteError;
use ferrolb_api::{Change, Clock};
use ferrolb_config::state::{OwnPod, Reporter};
use ferrolb_net_types::Time;
use k8s_openapi::api::core::v1;

use super::{Core, Watched, WireState, identity};
use crate::io::{Effect, Settings};
use crate::peers::{Hosts, SpeakerPod};
use crate::unreachable::MEMBERS_UNKNOWN;
use crate::wire::{Membership, Peer};

impl Core {
    /// Takes over who this speaker is.
    pub(super) fn introduce(&mut self, clock: Clock, pod: OwnPod) {
        self.settings.pod = Some(pod);
        self.statuses.introduce(&self.settings);
        self.bgp_statuses.introduce(&self.settings);
        self.bgp_sessions.introduce(&self.settings);
        self.reporter = Reporter::new(identity(&self.settings));
        self.peers.start(clock.now);
    }

    /// Has the speakers' Pods listed if the nodes hint at a change of them.
    pub(super) fn look_for_speakers(&mut self, now: Time, change: &Change<v1::Node>) {
        let first = self.store.nodes.is_empty();
        let own = &self.settings.node;
        if !first && (self.store.is_news(change, own) || self.intake.relabels(change, own)) {
            self.peers.look_again(now);
        }
    }

    /// Says what has to do with members and does not wait for everything to be listed.
    pub(super) fn attend_to_members(&mut self, now: Time) {
        if let Some(working) = self.outage.news(now) {
            self.effects.push_back(Effect::Api { working });
        }
        if self.peers.ask(now) {
            self.effects.push_back(Effect::ListPods);
        }
        // Nobody is to be joined before there is something to announce, unless that depends on who the others are. Whose
        // node is dead is not to be waited for.
        let begins = self.planned || self.intake.is_held_back();
        if begins
            && !self.missing.contains(&Watched::Nodes)
            && let Some(peers) = self.find_peers()
        {
            self.effects.push_back(Effect::Peers(peers));
            self.save_soon(now);
        }
    }

    /// Takes the list of the speakers' Pods.
    pub(super) fn hear_of_pods(&mut self, now: Time, result: Result<Vec<SpeakerPod>, WriteError>) {
        self.peers.listed(now, result);
        let Some(pod) = &self.settings.pod else { return };
        let Settings { namespace, member_labels, .. } = &self.settings;
        let guessed = self.peers.guesses(&pod.name);
        let unlisted = self.peers.unlisted(&pod.name);
        let unlisted =
            unlisted.map(|unlisted| unlisted.explain(member_labels, namespace, &pod.name, guessed));
        self.unreachable.listed(unlisted, guessed);
    }

    fn find_peers(&mut self) -> Option<Vec<Peer>> {
        let own = self.settings.pod.as_ref().map_or("", |pod| pod.name.as_str());
        let hosts = Hosts { addresses: &self.store.addresses, not_ready: &self.store.not_ready };
        self.peers.news(own, hosts)
    }

    /// Takes note of who the members are.
    pub(super) fn hear_of_members(&mut self, now: Time, membership: &Membership) {
        self.eligible = membership.eligible;
        self.heard = membership.heard;
        self.members.clone_from(&membership.members);
        self.unreachable.hear(&membership.troubles);
        if let Members::Known(members) = &self.members {
            self.peers.members(now, members.keys().cloned().collect());
        }
    }

    pub(super) fn tell_readiness(&mut self, now: Time) {
        let listed = self.missing.is_empty();
        // Sessions are waited for from the start on, whatever else is waited for.
        let sessions = listed && self.bgp.is_ready(now);
        let ready = listed && self.eligible && self.wire == WireState::Known && sessions;
        if ready != self.ready {
            self.ready = ready;
            self.effects.push_back(Effect::Ready(ready));
        }
    }

    /// Tells users of speakers that cannot be reached, or found.
    pub(super) fn tell_missed(&mut self, clock: Clock) {
        let Some(news) = self.unreachable.news(clock.now) else { return };
        self.missed = news.lines;
        self.report(clock);
        let Some(pod) = &self.settings.pod else { return };
        let regarding = ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: self.settings.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            resource_version: String::new(),
        };
        self.effects.extend(news.complaints.into_iter().map(|(reason, message)| {
            if reason == MEMBERS_UNKNOWN {
                tracing::error!(op = "memberDiscovery", "{message}");
            }
            let regarding = regarding.clone();
            Effect::Event(Event { regarding, kind: EventKind::Warning, reason, message })
        }));
    }
}

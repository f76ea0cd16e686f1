// SPDX-License-Identifier: Apache-2.0
//! Keeps the BGPSession objects of this node true, where that kind exists: one per session, none for others.
//!
//! What a person acts upon is written at once: a session that came up or went down, another reason why, a finding.
//! Numbers alone are written at most every ten seconds. A peer that cannot be reached goes from state to state and fails
//! again for the same reason with each attempt: that alone is written every five minutes. One request per object is
//! under way at a time. The name of an object follows from node and peer, so that there is never a second one. One of that
//! name that is not seen, since somebody made it or took its label away, is made this node's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrolb_api::bgpsession::{BGPSessionFailure, BGPSessionStatus};
use ferrolb_api::request::{ApiRequest, Resource, Verb, WriteResult};
use ferrolb_api::{BGPSession, Change, labels};
use ferrolb_bgp::State;
use ferrolb_config::BgpPeer;
use ferrolb_net_types::{NodeName, PeerName, Time};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::sessions::{Known, Sessions};
use super::{PeerReport, reason};
use crate::io::{Settings, WriteId};
use crate::pause::{after, doubled};

/// Numbers are not written more often than this.
const NUMBERS: Duration = Duration::from_secs(10);
/// How one attempt after the other fails is not written more often than this.
const ATTEMPTS: Duration = Duration::from_secs(300);
/// The first pause after a failed request; it doubles.
const RETRY: Duration = Duration::from_secs(1);
/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// The objects of this node.
#[derive(Debug)]
pub(crate) struct Objects {
    settings: Settings,
    label: String,
    /// The kind exists, and its objects are known.
    listed: bool,
    /// Something may have to be written.
    news: bool,
    stored: BTreeMap<String, Stored>,
    work: BTreeMap<String, Work>,
    under_way: BTreeMap<WriteId, String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    uid: String,
    version: Option<u64>,
    owners: Vec<String>,
    status: BGPSessionStatus,
}

#[derive(Debug, Default)]
struct Work {
    under_way: bool,
    failures: u32,
    /// There is an object of this name that is not this node's, as far as its labels go.
    astray: bool,
    not_before: Option<Time>,
    written: Option<Time>,
    /// When something is to be written that waits.
    due: Option<Time>,
}

impl Stored {
    fn says_the_same(&self, other: &Self) -> bool {
        (&self.uid, &self.owners, &self.status) == (&other.uid, &other.owners, &other.status)
    }
}

impl Objects {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            label: labels::value(settings.node.as_str()).into_owned(),
            settings,
            listed: false,
            news: true,
            stored: BTreeMap::new(),
            work: BTreeMap::new(),
            under_way: BTreeMap::new(),
        }
    }

    /// The own Pod is known now.
    pub(crate) fn introduce(&mut self, settings: &Settings) {
        self.settings.clone_from(settings);
    }

    /// Something is new of the sessions.
    pub(crate) const fn note(&mut self) {
        self.news = true;
    }

    /// Takes a change of these objects; those of other nodes are their own affair.
    pub(crate) fn watched(&mut self, change: Change<BGPSession>) {
        self.news |= match change {
            Change::Applied(object) => self.apply(*object),
            Change::Deleted { namespace, name } => {
                namespace == self.settings.namespace && self.stored.remove(&name).is_some()
            }
            Change::Reset(objects) => {
                self.listed = true;
                self.stored.clear();
                for object in objects {
                    self.apply(object);
                }
                true
            }
        };
    }

    /// The next request, if one is due.
    pub(crate) fn poll(
        &mut self,
        now: Time,
        sessions: &Sessions,
        id: impl FnOnce() -> WriteId,
    ) -> Option<(WriteId, ApiRequest)> {
        if !self.listed || !self.news {
            return None;
        }
        let wanted: BTreeMap<String, BGPSessionStatus> = sessions
            .iter()
            .map(|(name, peer, report)| {
                let status = status(&self.settings.node, name, peer, report);
                (object_name(&self.settings.node, name), status)
            })
            .collect();
        let names: BTreeSet<String> = wanted.keys().chain(self.stored.keys()).cloned().collect();
        self.work.retain(|name, work| work.under_way || names.contains(name));
        for name in names {
            let Some(request) = self.step(now, &name, wanted.get(&name)) else { continue };
            let id = id();
            self.work.entry(name.clone()).or_default().under_way = true;
            self.under_way.insert(id, name);
            return Some((id, request));
        }
        self.news = false;
        None
    }

    /// Takes a result; `false` if the write was not one of these.
    pub(crate) fn written(&mut self, now: Time, id: WriteId, result: &WriteResult) -> bool {
        let Some(name) = self.under_way.remove(&id) else { return false };
        self.news = true;
        let work = self.work.entry(name.clone()).or_default();
        work.under_way = false;
        match result {
            Ok(object) => {
                let was_astray = std::mem::take(&mut work.astray);
                (work.not_before, work.written) = (None, Some(now));
                if let Ok(object) = serde_json::from_value::<BGPSession>(object.clone()) {
                    self.apply(object);
                } else {
                    self.stored.remove(&name); // It was deleted.
                }
                let work = self.work.entry(name.clone()).or_default();
                if was_astray && !self.stored.contains_key(&name) {
                    // Something on the way takes the label away again: that is not fought over without a pause.
                    work.failures = work.failures.saturating_add(1);
                    work.not_before = Some(now + doubled(RETRY, work.failures));
                } else {
                    work.failures = 0;
                }
            }
            Err(error) => {
                if error.is_not_found() || error.is_conflict() {
                    self.stored.remove(&name);
                }
                work.astray = error.is_already_exists();
                if !work.astray {
                    work.failures = work.failures.saturating_add(1);
                    work.not_before = Some(now + after(error, RETRY, work.failures));
                }
                tracing::debug!(name, error = %error, "a BGPSession could not be written, retrying");
            }
        }
        true
    }

    /// The API server answers again: what failed is tried again at once.
    pub(crate) fn api_answers(&mut self) {
        for work in self.work.values_mut().filter(|work| work.failures > 0) {
            (work.failures, work.not_before) = (0, None);
            self.news = true;
        }
    }

    /// When something is due that nothing announces.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let waiting = self.work.values().filter(|work| self.listed && !work.under_way);
        waiting.filter_map(|work| work.not_before.or(work.due)).min()
    }

    /// The time has come; what is due is asked for by [`Objects::poll`].
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.news |= self.next_deadline().is_some_and(|time| time <= now);
        for work in self.work.values_mut() {
            work.not_before.take_if(|time| *time <= now);
            work.due.take_if(|time| *time <= now);
        }
    }

    /// Takes an object as it is; whether that is news of this node's.
    fn apply(&mut self, object: BGPSession) -> bool {
        let metadata = &object.metadata;
        let label = metadata.labels.as_ref().and_then(|all| all.get(labels::NODE));
        let Some(name) = metadata.name.clone() else { return false };
        if label != Some(&self.label) {
            return self.stored.remove(&name).is_some();
        }
        let stored = Stored {
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.as_deref().and_then(|version| version.parse().ok()),
            owners: metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect(),
            status: object.status.unwrap_or_default(),
        };
        let known = self.stored.get(&name).filter(|known| known.uid == stored.uid);
        if known.is_some_and(|known| known.version > stored.version) {
            return false; // The watch lags behind the answer to our own write.
        }
        self.stored.insert(name, stored.clone()).is_none_or(|before| !before.says_the_same(&stored))
    }

    fn step(&mut self, now: Time, name: &str, wanted: Option<&BGPSessionStatus>) -> Option<ApiRequest> {
        let mut written = None;
        if let Some(work) = self.work.get_mut(name) {
            if work.under_way || work.not_before.is_some_and(|time| time > now) {
                return None;
            }
            (written, work.due) = (work.written, None);
        }
        let namespace = &self.settings.namespace;
        let Some(wanted) = wanted else {
            let uid = &self.stored.get(name)?.uid;
            return Some(ApiRequest::delete(Resource::BGPSessions, namespace, name, Some(uid)));
        };
        let astray = self.work.get(name).is_some_and(|work| work.astray);
        let Some(stored) = self.stored.get(name) else {
            return Some(if astray { self.adopt(name) } else { self.create(name) });
        };
        let merge = Verb::MergePatch { manager: None };
        if self.settings.pod.as_ref().is_some_and(|pod| stored.owners != [pod.uid.as_str()]) {
            return Some(self.adopt(name));
        }
        if stored.status == *wanted {
            return None;
        }
        let due = written.map(|time| time + patience(&stored.status, wanted)).filter(|time| *time > now);
        if due.is_some() {
            if let Some(work) = self.work.get_mut(name) {
                work.due = due;
            }
            return None;
        }
        let body = json!({ "status": difference(&stored.status, wanted) });
        Some(ApiRequest::status(merge, Resource::BGPSessions, namespace, name, body))
    }

    fn create(&self, name: &str) -> ApiRequest {
        let body = json!({
            "apiVersion": Resource::BGPSessions.api_version(),
            "kind": Resource::BGPSessions.kind(),
            "metadata": {
                "namespace": self.settings.namespace,
                "name": name,
                "labels": { labels::NODE: self.label },
                "ownerReferences": self.owners(),
            },
            "spec": {},
        });
        ApiRequest::create(Resource::BGPSessions, &self.settings.namespace, body)
    }

    /// Makes an object that is there this node's.
    fn adopt(&self, name: &str) -> ApiRequest {
        let mut metadata = json!({ "labels": { labels::NODE: self.label } });
        if self.settings.pod.is_some() {
            metadata["ownerReferences"] = Value::Array(self.owners());
        }
        let merge = Verb::MergePatch { manager: None };
        let body = json!({ "metadata": metadata });
        let request = ApiRequest::status(merge, Resource::BGPSessions, &self.settings.namespace, name, body);
        ApiRequest { subresource: None, ..request }
    }

    fn owners(&self) -> Vec<Value> {
        let pods = self.settings.pod.iter();
        pods.map(|pod| json!({ "apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid }))
            .collect()
    }
}

/// `peer.node`. What is too long ends with a part of its digest, and so does what another peer and node could come to: both
/// may have dots.
fn object_name(node: &NodeName, peer: &PeerName) -> String {
    let name = format!("{peer}.{node}");
    if name.len() <= LONGEST_NAME && !peer.as_str().contains('.') {
        return name;
    }
    let digest = Sha256::digest(format!("{peer}/{node}"));
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    // Names of objects are ASCII.
    let kept: String = name.chars().take(LONGEST_NAME - digest.len() - 1).collect();
    format!("{}-{digest}", kept.trim_end_matches(['.', '-']))
}

fn status(node: &NodeName, name: &PeerName, peer: &BgpPeer, known: Option<&Known>) -> BGPSessionStatus {
    let address = std::net::SocketAddr::new(peer.address, peer.port).to_string();
    let status =
        BGPSessionStatus { node: node.to_string(), peer: name.to_string(), address, ..Default::default() };
    let Some(known) = known else {
        return BGPSessionStatus { state: State::Idle.to_string(), ..status };
    };
    let report = &known.report;
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    BGPSessionStatus {
        state: report.state.to_string(),
        since: whole_seconds(known.since),
        peer_asn: report.remote.as_ref().map(|remote| remote.asn.number()),
        peer_router_id: report.remote.as_ref().map(|remote| remote.router_id.to_string()).unwrap_or_default(),
        prefixes_wanted: number(report.wanted),
        prefixes_told: number(report.told),
        drops: u32::try_from(report.drops).unwrap_or(u32::MAX),
        last_failure: report.last_down.as_ref().zip(known.failed).map(|((_, down), time)| {
            BGPSessionFailure {
                time: whole_seconds(time),
                reason: reason(down, peer.password.as_ref(), peer.gtsm_hops) + &dropped(known),
            }
        }),
        finding: report.finding.clone().unwrap_or_default(),
        ..status
    }
}

/// Why there was no session any more, before an attempt failed as well: that is seldom what is to be mended first.
fn dropped(known: &Known) -> String {
    let PeerReport { last_down, last_drop, .. } = &*known.report;
    match (last_drop, known.dropped) {
        (Some((_, down)), Some(time)) if last_drop != last_down => {
            format!("; the last session ended at {}: {down}", whole_seconds(time))
        }
        _ => String::new(),
    }
}

/// A time as the API has it.
fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// How long after the last write this difference may be written.
fn patience(is: &BGPSessionStatus, wanted: &BGPSessionStatus) -> Duration {
    let (is, wanted) = (without_attempts(is), without_attempts(wanted));
    match is == wanted {
        true => ATTEMPTS,
        false if without_numbers(&is) == without_numbers(&wanted) => NUMBERS,
        false => Duration::ZERO,
    }
}

/// All but what changes with every attempt that fails like the one before: there is a session, or there is none.
fn without_attempts(status: &BGPSessionStatus) -> BGPSessionStatus {
    let failure = status.last_failure.clone();
    let mut status = BGPSessionStatus {
        last_failure: failure.map(|failure| BGPSessionFailure { time: String::new(), ..failure }),
        ..status.clone()
    };
    if status.state != State::Established.to_string() {
        (status.state, status.since) = (State::Idle.to_string(), String::new());
        // Known while an attempt is under way.
        (status.peer_asn, status.peer_router_id) = (None, String::new());
    }
    status
}

/// What is worth a write at once, of the rest.
fn without_numbers(status: &BGPSessionStatus) -> BGPSessionStatus {
    BGPSessionStatus {
        since: String::new(),
        prefixes_wanted: 0,
        prefixes_told: 0,
        drops: 0,
        ..status.clone()
    }
}

/// The merge patch that turns the one into the other.
fn difference(is: &BGPSessionStatus, wanted: &BGPSessionStatus) -> Value {
    // Plain values with names: JSON has all of them.
    let value = |status: &BGPSessionStatus| serde_json::to_value(status).unwrap_or_default();
    let (is, wanted) = (value(is), value(wanted));
    let empty = serde_json::Map::new();
    let (is, wanted) = (is.as_object().unwrap_or(&empty), wanted.as_object().unwrap_or(&empty));
    let gone = is.keys().filter(|key| !wanted.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let new = wanted.iter().filter(|(key, value)| is.get(*key) != Some(value));
    Value::Object(gone.chain(new.map(|(key, value)| (key.clone(), value.clone()))).collect())
}

#[cfg(test)]
mod tests {
    use ferrolb_api::request::WriteError;

    use super::*;

    fn objects() -> Objects {
        let mut objects = Objects::new(Settings {
            node: NodeName::from("here"),
            namespace: "metallb-system".to_owned(),
            lb_class: String::new(),
            ignore_exclude_lb: false,
            bgp_type: "native".to_owned(),
            pod: None,
            member_port: None,
            member_labels: String::new(),
            keeps_snapshots: false,
        });
        objects.watched(Change::Reset(Vec::new()));
        assert!(objects.poll(Time::ZERO, &Sessions::default(), || unreachable!()).is_none());
        objects
    }

    fn of_node(node: &str) -> BGPSession {
        let mut object = BGPSession::new("router", Default::default());
        object.metadata.namespace = Some("metallb-system".to_owned());
        object.metadata.labels = Some([(labels::NODE.to_owned(), node.to_owned())].into());
        object
    }

    #[test]
    fn only_what_is_of_this_node_is_news() {
        let applied = |node| Change::Applied(Box::new(of_node(node)));
        let deleted =
            || Change::Deleted { namespace: "metallb-system".to_owned(), name: "router".to_owned() };
        let mut objects = objects();
        let mut news = |change| {
            objects.watched(change);
            std::mem::take(&mut objects.news)
        };
        assert!(!news(applied("there")) && !news(deleted()));
        assert!(news(applied("here")) && !news(applied("here")), "once is enough");
        assert!(news(deleted()) && !news(deleted()));
        assert!(news(applied("here")) && news(applied("there")), "it was given away");
        assert!(!news(deleted()));
    }

    #[test]
    fn a_watch_that_lags_behind_brings_nothing_back() {
        let mut objects = objects();
        let mut version = |version: u32, uid: &str, state: &str| {
            let mut object = of_node("here");
            object.metadata.resource_version = Some(version.to_string());
            object.metadata.uid = Some(uid.to_owned());
            object.status = Some(BGPSessionStatus { state: state.to_owned(), ..Default::default() });
            objects.watched(Change::Applied(Box::new(object)));
            (objects.stored["router"].status.state.clone(), std::mem::take(&mut objects.news))
        };
        assert_eq!(version(9, "a", "Established"), ("Established".to_owned(), true));
        assert_eq!(version(8, "a", "Idle"), ("Established".to_owned(), false));
        assert_eq!(
            version(10, "a", "Established"),
            ("Established".to_owned(), false),
            "nothing that is shown"
        );
        assert_eq!(version(3, "b", "Idle"), ("Idle".to_owned(), true), "another object of that name");
    }

    #[test]
    fn a_label_that_is_taken_away_on_the_way_is_not_fought_over_without_a_pause() {
        let mut objects = objects();
        let name = "router.here";
        let mut write = |now, result: &WriteResult| {
            objects.handle_timeout(now);
            let request = objects.step(now, name, Some(&BGPSessionStatus::default()))?;
            objects.under_way.insert(WriteId(1), name.to_owned());
            objects.written(now, WriteId(1), result);
            Some(request.verb)
        };
        let exists = Err(WriteError::refused(409, "AlreadyExists", "it is there"));
        let mut object = of_node("here");
        (object.metadata.name, object.metadata.labels) = (Some(name.to_owned()), None);
        let without = Ok(serde_json::to_value(object).unwrap());
        let mut at = Vec::new();
        for second in 0..3600 {
            let now = Time::millis(second * 1000);
            if let Some(verb) = write(now, &exists) {
                assert_eq!(verb, Verb::Create);
                assert_eq!(write(now, &without), Some(Verb::MergePatch { manager: None }), "at once");
                at.push(second);
            }
        }
        assert_eq!(at[..6], [0, 1, 3, 7, 15, 31]);
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] <= 300) && at.len() < 25, "{at:?}");
    }

    #[test]
    fn every_peer_and_node_have_a_name_of_their_own() {
        let name = |peer: &str, node: &str| object_name(&NodeName::from(node), &PeerName::from(peer));
        assert_eq!(name("router", "k8s-node-1"), "router.k8s-node-1");
        assert_eq!(name("r", "a.b"), "r.a.b");
        assert!(name("r.a", "b").starts_with("r.a.b-"));
        let long = "n".repeat(235);
        for peer in ["p".repeat(200), "p.x".to_owned()] {
            let name = name(&peer, &long);
            assert!(name.len() <= LONGEST_NAME, "{name}");
            assert!(name.split('.').all(|label| !label.is_empty() && !label.ends_with('-')), "{name}");
        }
        // Cut behind a dot.
        let cut = name(&"p".repeat(235), "n.n.n.n.n.n.n.n.n.n.n.n");
        assert!(cut.len() <= LONGEST_NAME && !cut.contains(".-"), "{cut}");
    }
}

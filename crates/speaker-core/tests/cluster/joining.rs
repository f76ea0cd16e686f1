// SPDX-License-Identifier: Apache-2.0
//! What the control side has to do with members: whom it names, when it looks for them, what it waits for.

use std::net::SocketAddr;

use ferrolb_announce::{Members, Standing};
use ferrolb_api::Clock;
use ferrolb_api::event::{Event, EventKind};
use ferrolb_api::request::WriteError;
use ferrolb_config::state::OwnPod;
use ferrolb_net_types::Time;
use ferrolb_speaker_core::wire::{Cause, Membership, Report, Trouble};
use ferrolb_speaker_core::{Core, Effect, Input, Settings, SpeakerPod};
use serde_json::json;

use crate::api::{Api, KINDS};
use crate::bench::{Bench, EXCLUDE, MASTER, NODE1, NODE2, config};

/// The control side of a speaker on NODE1 with a member list, and nothing around it.
struct Alone {
    core: Core,
    now: Time,
    api: Api,
}

impl Alone {
    fn new() -> Self {
        let settings = Settings {
            node: NODE1.into(),
            namespace: "metallb-system".into(),
            lb_class: String::new(),
            ignore_exclude_lb: false,
            bgp_type: String::new(),
            pod: None,
            member_port: Some(7946),
            member_labels: "app=metallb,component=speaker".into(),
            keeps_snapshots: false,
        };
        Self { core: Core::new(settings), now: Time::ZERO, api: Bench::new().api }
    }

    /// With its Pod, every list, and the Pods of three speakers.
    fn listed() -> Self {
        let mut alone = Self::new();
        alone.introduce();
        assert_eq!(alone.lists(), [true]);
        alone.pods(&[pod(NODE1, 20), pod(NODE2, 21), pod(MASTER, 17)]);
        let effects = alone.list_everything();
        assert!(peers_in(&effects).is_some(), "{effects:?}");
        alone
    }

    fn introduce(&mut self) {
        let pod = OwnPod { name: format!("speaker-{NODE1}"), uid: "u1".into() };
        self.core.handle(self.clock(), Input::OwnPod(pod));
    }

    fn list_everything(&mut self) -> Vec<Effect> {
        let lists = KINDS.map(|kind| self.api.reset(kind));
        lists.into_iter().for_each(|list| self.core.handle(self.clock(), list));
        self.effects()
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        self.core.handle(self.clock(), input);
        self.effects()
    }

    fn pods(&mut self, pods: &[SpeakerPod]) -> Vec<Effect> {
        self.input(Input::Pods(Ok(pods.to_vec())))
    }

    fn hear(&mut self, membership: Membership) -> Vec<Effect> {
        self.input(Input::Wire(Report { membership: Some(membership), ..Report::default() }))
    }

    /// Lets time pass; what comes of it.
    fn pass(&mut self, millis: u64) -> Vec<Effect> {
        let end = self.now + std::time::Duration::from_millis(millis);
        let mut effects = Vec::new();
        while let Some(due) = self.core.next_deadline().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.core.handle_timeout(self.clock());
            effects.extend(self.effects());
        }
        self.now = end;
        effects
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.core.poll()).collect()
    }

    /// One `true` per list of Pods that is asked for now.
    fn lists(&mut self) -> Vec<bool> {
        self.effects().iter().filter(|effect| **effect == Effect::ListPods).map(|_| true).collect()
    }

    /// Lets time pass, in which every list of Pods is answered so.
    fn pass_answering(&mut self, millis: u64, answer: Answer<'_>) -> Vec<Effect> {
        let mut all = Vec::new();
        for _ in 0..millis / 100 {
            let mut effects = self.pass(100);
            while effects.contains(&Effect::ListPods) {
                let answered = answer(self);
                all.append(&mut effects);
                all.retain(|effect| *effect != Effect::ListPods);
                effects = self.input(Input::Pods(answered));
            }
            all.append(&mut effects);
        }
        all
    }

    /// Carries out what is to be written; what the ConfigurationState then says of members.
    fn members_condition(&mut self, mut effects: Vec<Effect>) -> Option<String> {
        while !effects.is_empty() {
            let results: Vec<_> = effects
                .drain(..)
                .filter_map(|effect| match effect {
                    Effect::Write { id, request } => Some((id, self.api.execute(&request))),
                    _ => None,
                })
                .collect();
            for (id, result) in results {
                effects.extend(self.input(Input::Written { id, result }));
            }
        }
        let state = self.api.list("ConfigurationState").next().expect("it reports");
        let conditions = state["status"]["conditions"].as_array().expect("with conditions");
        let found = conditions.iter().find(|condition| condition["type"] == "ferrolb.io/Members")?;
        assert_eq!(found["status"], "False");
        found["message"].as_str().map(str::to_owned)
    }

    fn clock(&self) -> Clock {
        Clock { now: self.now, wall: jiff::Timestamp::UNIX_EPOCH }
    }

    /// A change of a Node; whether the speakers' Pods are listed within three seconds.
    fn node(&mut self, name: &str, change: impl FnOnce(&mut Api)) -> bool {
        let before = self.api.log.len();
        change(&mut self.api);
        assert!(self.api.log.len() > before, "{name} changes");
        for index in before..self.api.log.len() {
            let input = self.api.change(index);
            self.core.handle(self.clock(), input);
        }
        let mut effects = self.effects();
        effects.extend(self.pass(3_000));
        let asked = effects.contains(&Effect::ListPods);
        if asked {
            self.pods(&[pod(NODE1, 20), pod(NODE2, 21), pod(MASTER, 17)]);
        }
        asked
    }
}

fn pod(node: &str, last: u8) -> SpeakerPod {
    SpeakerPod {
        name: format!("speaker-{node}"),
        node: node.into(),
        ip: format!("192.168.10.{last}"),
        phase: "Running".into(),
        terminating: false,
    }
}

fn among(members: &[(&str, Standing)], eligible: bool) -> Membership {
    let members = Members::from_iter(members.iter().map(|(node, standing)| (*node, *standing)));
    Membership { eligible, heard: true, members, troubles: [].into() }
}

fn peers_in(effects: &[Effect]) -> Option<Vec<(String, bool)>> {
    effects.iter().rev().find_map(|effect| match effect {
        Effect::Peers(peers) => {
            Some(peers.iter().map(|peer| (peer.address.to_string(), peer.awaited)).collect())
        }
        _ => None,
    })
}

fn events(effects: &[Effect]) -> Vec<Event> {
    let events = effects.iter().filter_map(|effect| match effect {
        Effect::Event(event) => Some(event.clone()),
        _ => None,
    });
    events.collect()
}

fn has_plan(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Plan(_)))
}

#[test]
fn nobody_is_joined_before_there_is_a_plan_and_the_plan_comes_first() {
    let mut alone = Alone::new();
    assert_eq!(alone.pass(60_000), [], "whose Pod it is is not known");
    alone.introduce();
    assert_eq!(alone.lists(), [true]);
    assert_eq!(alone.pods(&[pod(NODE1, 20), pod(NODE2, 21)]), []);
    let effects = alone.list_everything();
    let plan = effects.iter().position(|effect| matches!(effect, Effect::Plan(_))).unwrap();
    let peers = effects.iter().position(|effect| matches!(effect, Effect::Peers(_))).unwrap();
    assert!(plan < peers);
    assert_eq!(peers_in(&effects), Some(vec![("192.168.10.21:7946".to_owned(), true)]));
}

#[test]
fn it_is_ready_once_it_is_eligible_and_has_taken_over_what_it_leads() {
    let mut alone = Alone::listed();
    assert!(!alone.pass(10_000).contains(&Effect::Ready(true)));
    let reading = Membership { heard: false, ..among(&[(NODE2, Standing::Ours)], false) };
    assert_eq!(alone.hear(reading), []);
    let first = Report { complete: true, interfaces: Some(["ens18".into()].into()), ..Report::default() };
    assert!(!alone.input(Input::Wire(first)).contains(&Effect::Ready(true)));
    let both = [(NODE1, Standing::Ours), (NODE2, Standing::Ours)];
    assert_eq!(alone.hear(among(&both, true)), [Effect::Ready(true)]);
    assert_eq!(alone.hear(among(&both, true)), []);
    assert_eq!(alone.hear(among(&both[1..], false)), [Effect::Ready(false)]);
}

#[test]
fn what_happens_to_nodes_has_the_pods_listed_or_not_a10() {
    let labelled = |labels| json!({ "metadata": { "labels": labels } });
    let condition = |kind: &str, status: &str, beat: &str| {
        let condition = json!({ "type": kind, "status": status, "lastHeartbeatTime": beat });
        json!({ "status": { "conditions": [condition] } })
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z");
    let mut alone = Alone::listed();
    alone.pass(5_000);
    for (about, name, patch, expected) in [
        ("another label of this node", NODE1, labelled(json!({ "a": "b" })), true),
        ("another label of another node", NODE2, labelled(json!({ "a": "b" })), false),
        ("this one is excluded", NODE1, labelled(json!({ EXCLUDE: "" })), true),
        ("this one is cordoned", NODE1, json!({ "spec": { "unschedulable": true } }), false),
        ("its network is lost", NODE1, condition("NetworkUnavailable", "True", early), true),
        ("its heartbeat", NODE1, condition("NetworkUnavailable", "True", late), false),
        ("another's network is lost", NODE2, condition("NetworkUnavailable", "True", early), false),
        ("another is not ready", NODE2, condition("Ready", "False", early), false),
    ] {
        assert_eq!(alone.node(name, |api| api.patch("Node", "", name, &patch)), expected, "{about}");
    }
    let new = json!({ "metadata": { "name": "k8s-node-3", "labels": {} } });
    assert!(alone.node("k8s-node-3", |api| api.put("Node", new.clone())), "a new node");
    assert!(!alone.node("k8s-node-3", |api| api.delete("Node", "", "k8s-node-3")), "one that goes");
    assert!(alone.node("k8s-node-3", |api| api.put("Node", new)), "and comes back");
}

#[test]
fn a_heartbeat_of_a_node_does_nothing_at_all_a10() {
    let mut alone = Alone::listed();
    alone.pass(5_000);
    let beat = |time: &str| {
        let ready = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": time });
        json!({ "status": { "conditions": [ready] } })
    };
    for (index, time) in ["2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"].into_iter().enumerate() {
        alone.api.patch("Node", "", NODE2, &beat(time));
        let change = alone.api.change(alone.api.log.len() - 1);
        assert_eq!(alone.input(change), [], "{index}");
    }
}

#[test]
fn a_speaker_on_a_node_that_is_not_ready_is_a_peer_that_nobody_waits_for() {
    let mut alone = Alone::listed();
    let not_ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    alone.api.patch("Node", "", NODE2, &not_ready);
    let change = alone.api.change(alone.api.log.len() - 1);
    let effects = alone.input(change);
    let expected =
        [("192.168.10.17:7946".to_owned(), true), ("192.168.10.21:7946".to_owned(), false)].to_vec();
    assert_eq!(peers_in(&effects), Some(expected));
    assert!(!has_plan(&effects), "and stays the candidate that it was (S49)");
}

#[test]
fn a_member_that_dies_has_the_pods_listed() {
    let mut alone = Alone::listed();
    alone.hear(among(&[(NODE1, Standing::Ours), (NODE2, Standing::Ours)], true));
    assert!(!alone.pass(10_000).contains(&Effect::ListPods));
    alone.hear(among(&[(NODE1, Standing::Ours)], true));
    assert!(alone.pass(100).contains(&Effect::ListPods));
}

#[test]
fn who_cannot_be_reached_is_a_condition_and_one_event_on_the_own_pod() {
    let mut alone = Alone::listed();
    let trouble = |node: &str, cause| Trouble {
        node: node.into(),
        address: SocketAddr::from(([192, 168, 10, 21], 7946)),
        cause,
    };
    let with = |troubles: &[Trouble]| Membership {
        troubles: troubles.iter().cloned().collect(),
        ..among(&[(NODE1, Standing::Ours)], true)
    };
    let effects = alone.hear(with(&[trouble(NODE2, Cause::Key)]));
    let [event] = &events(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((event.kind, event.reason), (EventKind::Warning, "MembersUnreachable"));
    assert_eq!((event.regarding.kind.as_str(), event.regarding.name.as_str()), ("Pod", "speaker-k8s-node-1"));
    assert_eq!((event.regarding.uid.as_str(), event.regarding.namespace.as_str()), ("u1", "metallb-system"));
    assert!(event.message.contains("k8s-node-2 (192.168.10.21:7946): "), "{}", event.message);
    // Said a hundred times it is said once.
    for _ in 0..100 {
        assert_eq!(events(&alone.hear(with(&[trouble(NODE2, Cause::Key)]))), []);
        assert_eq!(events(&alone.pass(1_000)), []);
    }
    alone.hear(with(&[trouble(NODE2, Cause::Closed)]));
    assert_eq!(events(&alone.pass(0)), [], "it was told at once, being the first for long");
    alone.hear(with(&[]));
    assert_eq!(events(&alone.pass(20_000)), []);
}

/// What the API server makes of a list of Pods.
type Answer<'a> = &'a dyn Fn(&Alone) -> Result<Vec<SpeakerPod>, WriteError>;

/// The control side on NODE1, whose nodes have addresses and whose lists of Pods are answered so, after ten seconds; and
/// everything that it did.
fn answered(answer: Answer<'_>) -> (Alone, Vec<Effect>) {
    let mut alone = Alone::new();
    for (node, last) in [(MASTER, 17), (NODE1, 20), (NODE2, 21)] {
        let addresses = json!([{ "type": "InternalIP", "address": format!("192.168.10.{last}") }]);
        alone.api.patch("Node", "", node, &json!({ "status": { "addresses": addresses } }));
    }
    alone.introduce();
    let mut effects = alone.list_everything();
    if effects.contains(&Effect::ListPods) {
        let pods = answer(&alone);
        effects.extend(alone.input(Input::Pods(pods)));
    }
    effects.extend(alone.pass_answering(10_000, answer));
    (alone, effects)
}

/// Whoever is alone among others that it does not know announces everything, and so would they.
#[test]
fn labels_or_rights_that_list_no_speakers_are_told_and_every_node_is_tried_for_one() {
    let forbidden = || WriteError::refused(403, "Forbidden", "pods is forbidden");
    let malformed = || WriteError::refused(400, "BadRequest", "unable to parse requirement");
    let other = SpeakerPod { name: "controller-1".into(), ..pod(NODE2, 99) };
    let cases: [(&str, Answer<'_>, &str); 4] = [
        ("nobody has these labels", &|_| Ok(vec![]), "selects 0 Pods in namespace metallb-system"),
        ("others have them", &|_| Ok(vec![other.clone()]), "selects 1 Pods in namespace metallb-system"),
        ("Pods may not be listed", &|_| Err(forbidden()), "may not list Pods in namespace metallb-system"),
        ("they are no labels", &|_| Err(malformed()), "unable to parse requirement"),
    ];
    for (about, answer, part) in cases {
        let (mut alone, effects) = answered(answer);
        let at_the_nodes = ["192.168.10.17:7946", "192.168.10.21:7946"].map(|at| (at.to_owned(), true));
        assert_eq!(peers_in(&effects), Some(at_the_nodes.into()), "{about}");
        let [event] = &events(&effects)[..] else { panic!("{about}: {effects:?}") };
        assert_eq!((event.kind, event.reason), (EventKind::Warning, "MembersUnknown"), "{about}");
        assert_eq!(
            (event.regarding.kind.as_str(), event.regarding.name.as_str()),
            ("Pod", "speaker-k8s-node-1")
        );
        assert!(event.message.contains(part), "{about}: {}", event.message);
        let told = alone.members_condition(effects);
        assert_eq!(told, Some(event.message.clone()), "{about}");
        // As often as it is so, it is said once.
        let mut later = alone.pass_answering(200_000, answer);
        assert_eq!(events(&later), [], "{about}");
        assert_eq!(peers_in(&later), None, "{about}");
        // Set right, the list is what counts.
        let right = |_: &Alone| Ok(vec![pod(NODE1, 20), pod(NODE2, 22)]);
        later.extend(alone.pass_answering(70_000, &right));
        assert_eq!(peers_in(&later), Some(vec![("192.168.10.22:7946".to_owned(), true)]), "{about}");
        assert_eq!(alone.members_condition(later), None, "{about}");
    }
}

/// A configuration that v0.16.1 refuses, from the start.
fn spoilt() -> Alone {
    let mut alone = Alone::new();
    alone.api.put("IPAddressPool", config("bad", json!({ "addresses": ["10.0.0.9-10.0.0.1"] })));
    alone.introduce();
    assert_eq!(alone.lists(), [true]);
    alone.pods(&[pod(NODE1, 20), pod(NODE2, 21)]);
    alone
}

#[test]
fn what_metallb_would_not_start_with_waits_until_it_is_known_that_there_is_none_of_its_speakers() {
    let mut alone = spoilt();
    let effects = alone.list_everything();
    assert!(!has_plan(&effects) && peers_in(&effects).is_some(), "{effects:?}");
    let reading = Membership { heard: false, ..among(&[], false) };
    assert!(!has_plan(&alone.hear(reading)));
    assert!(has_plan(&alone.hear(among(&[(NODE2, Standing::Ours)], false))));
}

#[test]
fn beside_metallb_nothing_is_begun_with_a_configuration_that_it_refuses() {
    let mut alone = spoilt();
    alone.list_everything();
    let beside = among(&[(NODE2, Standing::Metallb)], false);
    assert!(!has_plan(&alone.hear(beside)));
    assert!(!alone.pass(600_000).contains(&Effect::Ready(true)));
    alone.api.delete("IPAddressPool", "metallb-system", "bad");
    let change = alone.api.change(alone.api.log.len() - 1);
    assert!(has_plan(&alone.input(change)));
}

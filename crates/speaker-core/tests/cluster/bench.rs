// SPDX-License-Identifier: Apache-2.0
//! Speakers on one segment in simulated time: each a `Core` and a `Wire`, watching the same API with a delay.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferrolb_announce::{Members, Standing};
use ferrolb_api::Clock;
use ferrolb_api::event::Event;
use ferrolb_bgp::{Counters, Route, State};
use ferrolb_config::state::OwnPod;
use ferrolb_l2::wire::{Frame, Operation, Packet};
use ferrolb_net_types::{IfIndex, Mac, NodeName, PeerName, Prefix, Time};
use ferrolb_speaker_core::bgp::{PeerPlan, PeerReport};
use ferrolb_speaker_core::wire::{self, Interface, Membership, Output, Purpose, Report, Trouble, Wire};
use ferrolb_speaker_core::{Core, Effect, Input, Protocol, Settings, SnapshotError};
use serde_json::{Value, json};

use crate::api::{Api, KINDS};

pub(crate) const MASTER: &str = "k8s-master-1";
pub(crate) const NODE1: &str = "k8s-node-1";
pub(crate) const NODE2: &str = "k8s-node-2";
pub(crate) const NODES: [&str; 3] = [MASTER, NODE1, NODE2];
pub(crate) const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

pub(crate) struct Bench {
    pub(crate) api: Api,
    pub(crate) now: Time,
    pub(crate) speakers: BTreeMap<&'static str, Speaker>,
    /// Every event that was sent.
    pub(crate) events: Vec<(&'static str, Event)>,
    /// Every gratuitous frame: when, whose, for what, which form.
    pub(crate) gratuitous: Vec<(u64, &'static str, IpAddr, Operation)>,
    pub(crate) settings: fn(&mut Settings),
    /// The nodes with a speaker.
    pub(crate) nodes: [&'static str; 3],
}

pub(crate) struct Speaker {
    core: Core,
    wire: Wire,
    mac: Mac,
    /// How far it has read the API's log.
    read: usize,
    /// How long news take to it.
    pub(crate) delay: Duration,
    /// What is on its way to the core.
    mail: VecDeque<(Time, Input)>,
    /// The series `metallb_speaker_announced`.
    pub(crate) announced: BTreeSet<(String, String)>,
    /// The same, over BGP.
    pub(crate) announced_bgp: BTreeSet<(String, String)>,
    /// The sessions that are kept.
    pub(crate) sessions: BTreeMap<PeerName, PeerPlan>,
    /// What each peer is told.
    pub(crate) told: BTreeMap<PeerName, BTreeMap<Prefix, Arc<Route>>>,
    /// Every effect about sessions and routes, in short.
    pub(crate) bgp_log: Vec<String>,
    /// Sessions come up as soon as they are opened.
    pub(crate) peers_answer: bool,
    /// The Secrets that are watched.
    pub(crate) secrets: BTreeSet<String>,
    /// The API says nothing of Secrets that are asked for.
    pub(crate) secrets_unheard: bool,
    pub(crate) counters: BTreeMap<IpAddr, wire::Counters>,
    /// `metallb_k8s_client_config_loaded_bool`, and `…_stale_bool`.
    pub(crate) loaded: bool,
    pub(crate) stale: bool,
    /// What `/readyz` says.
    pub(crate) ready: bool,
    /// The wire side was told so.
    pub(crate) api_lost: bool,
    /// What was kept for the next process.
    pub(crate) kept: Option<Vec<u8>>,
}

impl Bench {
    /// Three nodes, the first of them a control plane with the exclusion label; a pool, its advertisement on ens18.
    pub(crate) fn new() -> Self {
        let mut bench = Self::bare(|_| {});
        for node in NODES {
            let labels = if node == MASTER { json!({ EXCLUDE: "" }) } else { json!({}) };
            bench.api.put("Node", json!({ "metadata": { "name": node, "labels": labels } }));
        }
        bench
            .api
            .put("IPAddressPool", config("pool", json!({ "addresses": ["192.168.10.200-192.168.10.220"] })));
        bench.api.put("L2Advertisement", config("l2", json!({ "interfaces": ["ens18"] })));
        bench
    }

    pub(crate) fn bare(settings: fn(&mut Settings)) -> Self {
        Self {
            api: Api::default(),
            now: Time::ZERO,
            speakers: BTreeMap::new(),
            events: Vec::new(),
            gratuitous: Vec::new(),
            settings,
            nodes: NODES,
        }
    }

    /// Three speakers, started, and quiet.
    pub(crate) fn started() -> Self {
        let mut bench = Self::new();
        bench.start_all();
        bench.settle();
        bench
    }

    pub(crate) fn start_all(&mut self) {
        self.nodes.into_iter().for_each(|node| self.start(node, "1"));
    }

    /// Starts a speaker, or starts it again, in a Pod with a uid of this generation.
    pub(crate) fn start(&mut self, node: &'static str, generation: &str) {
        self.start_without_api(node, generation);
        self.reach_api(node);
    }

    /// The same, while the API server answers nothing.
    pub(crate) fn start_without_api(&mut self, node: &'static str, generation: &str) {
        let number = u8::try_from(self.nodes.iter().position(|n| *n == node).unwrap()).unwrap();
        let mut settings = Settings {
            node: NodeName::from(node),
            namespace: "metallb-system".into(),
            lb_class: String::new(),
            ignore_exclude_lb: false,
            bgp_type: String::new(),
            pod: Some(OwnPod { name: format!("speaker-{node}"), uid: format!("pod-{node}-{generation}") }),
            member_port: None,
            member_labels: String::new(),
            keeps_snapshots: false,
        };
        (self.settings)(&mut settings);
        let mut speaker = Speaker {
            core: Core::new(settings),
            wire: Wire::new(NodeName::from(node), None),
            mac: Mac([0x52, 0x54, 0, 0x3a, 0x10, 0x17 + number]),
            read: usize::MAX, // nothing, before it has a list
            delay: Duration::from_millis(3),
            mail: VecDeque::new(),
            announced: BTreeSet::new(),
            announced_bgp: BTreeSet::new(),
            sessions: BTreeMap::new(),
            told: BTreeMap::new(),
            bgp_log: Vec::new(),
            peers_answer: true,
            secrets: BTreeSet::new(),
            secrets_unheard: false,
            counters: BTreeMap::new(),
            loaded: false,
            stale: false,
            ready: false,
            api_lost: false,
            kept: None,
        };
        speaker.interfaces(self.now, &["ens18"]);
        self.speakers.insert(node, speaker);
    }

    /// The API server answers a speaker that was started without it.
    pub(crate) fn reach_api(&mut self, node: &str) {
        let speaker = self.speakers.get_mut(node).unwrap();
        speaker.read = self.api.log.len();
        speaker.mail.push_back((self.now, Input::ApiAnswers));
        speaker.mail.extend(KINDS.map(|kind| (self.now, self.api.reset(kind))));
    }

    /// The speaker goes on from what one before it kept.
    pub(crate) fn resume(&mut self, node: &str, snapshot: &[u8]) -> Result<(), SnapshotError> {
        let now = self.now;
        self.speakers.get_mut(node).unwrap().core.resume(clock(now), snapshot)
    }

    pub(crate) fn stop(&mut self, node: &str) {
        self.speakers.remove(node);
    }

    /// Goes on until nothing but time is left to wait for, but at least through every burst.
    pub(crate) fn settle(&mut self) {
        self.run(Duration::from_secs(8));
    }

    /// Lets this much time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.step();
            let next = self.speakers.values().filter_map(|s| s.next(self.now)).min();
            match next.filter(|time| *time <= end) {
                Some(time) => self.now = time.max(self.now),
                None => break,
            }
        }
        self.now = end;
        self.step();
    }

    /// The MACs that answer an ARP request of a client for the address.
    pub(crate) fn arping(&mut self, ip: &str) -> Vec<Mac> {
        let request = Frame {
            destination: Mac::BROADCAST,
            source: CLIENT,
            packet: Packet {
                operation: Operation::Request,
                sender_mac: CLIENT,
                sender_ip: [192, 168, 10, 50].into(),
                target_mac: Mac::ZERO,
                target_ip: ip.parse().unwrap(),
            },
        };
        let bytes = request.emit();
        let now = self.now;
        let mut answers = Vec::new();
        for speaker in self.speakers.values_mut() {
            speaker.wire.handle(now, wire::Input::Frame { interface: ENS18, vlan: None, bytes: &bytes });
            while let Some(output) = speaker.wire.poll(now) {
                match output {
                    Output::Send { frame, purpose: Purpose::Answer, .. } => {
                        answers.push(Frame::parse(&frame).unwrap().packet.sender_mac);
                    }
                    Output::Send { .. } => panic!("only answers are due"),
                    Output::Report(report) => speaker.mail.push_back((now, Input::Wire(report))),
                    Output::Join { .. } | Output::Leave { .. } => unreachable!("no interface speaks NDP"),
                    Output::Gossip(_) | Output::Stopped => unreachable!("no member list, no stop"),
                }
            }
        }
        answers
    }

    /// The node that answers for the address; there must not be two.
    pub(crate) fn owner(&mut self, ip: &str) -> Option<&'static str> {
        let answers = self.arping(ip);
        assert!(answers.len() <= 1, "{ip} is answered by {answers:?}");
        let mac = answers.first()?;
        self.nodes.into_iter().find(|node| self.speakers.get(node).is_some_and(|speaker| speaker.mac == *mac))
    }

    /// The status objects, as `service@node` with the interfaces behind.
    pub(crate) fn statuses(&self) -> Vec<String> {
        let mut all: Vec<_> = self
            .api
            .list("ServiceL2Status")
            .map(|object| {
                let status = &object["status"];
                let text = |field: &str| status[field].as_str().unwrap_or("?").to_owned();
                let interfaces: Vec<_> = status["interfaces"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|i| i["name"].as_str())
                    .collect();
                let on =
                    if interfaces.is_empty() { String::new() } else { format!(" {}", interfaces.join(",")) };
                format!("{}/{}@{}{on}", text("serviceNamespace"), text("serviceName"), text("node"))
            })
            .collect();
        all.sort();
        all
    }

    /// The events so far, as `node: reason`, and forgets them.
    pub(crate) fn take_events(&mut self) -> Vec<String> {
        let taken = std::mem::take(&mut self.events);
        taken
            .into_iter()
            .map(|(node, event)| format!("{node}: {} {}", event.reason, event.regarding.name))
            .collect()
    }

    /// The writes since the last call, as `METHOD resource subresource`.
    pub(crate) fn take_writes(&mut self) -> Vec<String> {
        let taken = std::mem::take(&mut self.api.requests);
        taken
            .iter()
            .map(|request| {
                let part = request.subresource.map(|s| format!("/{s}")).unwrap_or_default();
                format!("{} {}{part}", request.method(), request.resource.plural())
            })
            .collect()
    }

    /// Something that only this speaker hears.
    pub(crate) fn hear(&mut self, node: &str, input: Input) {
        let now = self.now;
        self.speakers.get_mut(node).unwrap().mail.push_back((now, input));
    }

    /// Every speaker hears that these are the members, with what stands in the way of others.
    pub(crate) fn members(&mut self, members: &[(&str, Standing)], troubles: &[Trouble]) {
        let members = Members::from_iter(members.iter().map(|(node, standing)| (*node, *standing)));
        let membership =
            Membership { eligible: true, heard: true, members, troubles: troubles.iter().cloned().collect() };
        let report = Report { membership: Some(membership), ..Report::default() };
        for node in NODES {
            self.hear(node, Input::Wire(report.clone()));
        }
    }

    fn step(&mut self) {
        loop {
            let mut busy = false;
            for (node, speaker) in &mut self.speakers {
                busy |= speaker.step(node, self.now, &mut self.api, &mut self.events, &mut self.gratuitous);
            }
            if !busy {
                break;
            }
        }
    }
}

impl Speaker {
    /// The node's interfaces that can answer are these now.
    pub(crate) fn interfaces(&mut self, now: Time, names: &[&str]) {
        let interfaces: Vec<_> = names
            .iter()
            .map(|name| Interface {
                index: if *name == "ens18" { ENS18 } else { IfIndex(3) },
                name: (*name).into(),
                mac: self.mac,
                arp: true,
                link_local: None,
            })
            .collect();
        self.wire.handle(now, wire::Input::Interfaces(&interfaces));
    }

    fn session(&mut self, peer: PeerName, plan: Option<Box<PeerPlan>>) {
        match plan {
            Some(plan) => {
                let what = if self.sessions.contains_key(&peer) { "edit" } else { "open" };
                self.bgp_log.push(format!("{what} {peer}"));
                self.sessions.insert(peer, *plan);
            }
            None => {
                self.bgp_log.push(format!("close {peer}"));
                self.sessions.remove(&peer).unwrap();
                self.told.remove(&peer);
            }
        }
    }

    fn routes(&mut self, peer: &PeerName, changes: Vec<(Prefix, Option<Arc<Route>>)>) {
        assert!(self.sessions.contains_key(peer) && !changes.is_empty());
        assert!(changes.is_sorted_by(|(a, _), (b, _)| a < b), "in order, each once");
        let told = self.told.entry(peer.clone()).or_default();
        for (prefix, route) in changes {
            let sign = if route.is_some() { '+' } else { '-' };
            self.bgp_log.push(format!("{peer} {sign}{prefix}"));
            let before = match &route {
                Some(route) => told.insert(prefix, Arc::clone(route)),
                None => told.remove(&prefix),
            };
            assert_ne!(before, route, "only what changes is said");
        }
    }

    /// What a peer is told, one line each: prefix, local preference, communities.
    pub(crate) fn table(&self, peer: &str) -> Vec<String> {
        let line = |(prefix, route): (&Prefix, &Arc<Route>)| {
            let mut line = prefix.to_string();
            line.extend(route.local_pref.map(|preference| format!(" lp {preference}")));
            line.extend(route.communities.iter().map(|community| format!(" {community}")));
            line.extend(route.large_communities.iter().map(|community| format!(" {community}")));
            line
        };
        self.told.get(peer).into_iter().flatten().map(line).collect()
    }

    pub(crate) fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    fn next(&self, now: Time) -> Option<Time> {
        let mail = self.mail.iter().map(|(time, _)| *time);
        let all = mail.chain(self.core.next_deadline()).chain(self.wire.next_deadline());
        all.map(|time| time.max(now)).min()
    }

    /// Does what is due now; whether that was anything.
    fn step(
        &mut self,
        node: &'static str,
        now: Time,
        api: &mut Api,
        events: &mut Vec<(&'static str, Event)>,
        gratuitous: &mut Vec<(u64, &'static str, IpAddr, Operation)>,
    ) -> bool {
        let mut busy = false;
        let clock = clock(now);
        while self.read < api.log.len() {
            self.mail.push_back((now + self.delay, api.change(self.read)));
            self.read += 1;
        }
        // What is due comes in order of its time, and of arrival within one.
        let (due, later): (VecDeque<_>, _) = self.mail.drain(..).partition(|(time, _)| *time <= now);
        self.mail = later;
        for (_, input) in due {
            busy = true;
            self.core.handle(clock, input);
        }
        if self.core.next_deadline().is_some_and(|time| time <= now) {
            busy = true;
            self.core.handle_timeout(clock);
        }
        while let Some(effect) = self.core.poll() {
            busy = true;
            match effect {
                Effect::Write { id, request } => {
                    let result = api.execute(&request);
                    self.mail.push_back((now + Duration::from_millis(2), Input::Written { id, result }));
                }
                Effect::Event(event) => events.push((node, event)),
                Effect::Plan(plan) => self.wire.handle(now, wire::Input::Plan(plan)),
                Effect::Peers(peers) => self.wire.handle(now, wire::Input::Peers(&peers)),
                Effect::Api { working } => {
                    assert_ne!(self.api_lost, !working, "said once");
                    self.api_lost = !working;
                    self.wire.handle(now, wire::Input::Api { working });
                }
                Effect::ListPods => panic!("there is no member list"),
                Effect::Save => self.kept = Some(self.core.snapshot()),
                Effect::Ready(ready) => self.ready = ready,
                Effect::Secrets(names) => {
                    let new: Vec<_> = names.difference(&self.secrets).cloned().collect();
                    if !self.secrets_unheard {
                        self.mail.extend(new.iter().map(|name| (now + self.delay, api.secret(name))));
                    }
                    self.secrets = names;
                }
                Effect::Session { peer, plan } => {
                    if self.peers_answer {
                        let report = plan.is_some().then(|| Box::new(report(now, State::Established)));
                        let news = Input::Peer { peer: peer.clone(), report };
                        self.mail.push_back((now + Duration::from_millis(2), news));
                    }
                    self.session(peer, plan);
                }
                Effect::Routes { peer, changes } => self.routes(&peer, changes),
                Effect::Announced { service, protocol, ip, on } => {
                    let series = (service.to_string(), ip.to_string());
                    let gauge = match protocol {
                        Protocol::Layer2 => &mut self.announced,
                        Protocol::Bgp => &mut self.announced_bgp,
                    };
                    let changed = if on { gauge.insert(series) } else { gauge.remove(&series) };
                    assert!(changed, "a gauge is said once: {service} {ip} {on}");
                }
                Effect::L2Counters { ip, counters: Some(counters) } => {
                    self.counters.insert(ip, counters);
                }
                Effect::L2Counters { ip, counters: None } => {
                    self.counters.remove(&ip);
                }
                Effect::Configuration { loaded, stale } => (self.loaded, self.stale) = (loaded, stale),
                Effect::Reconciled { .. } => {}
            }
        }
        if self.wire.next_deadline().is_some_and(|time| time <= now) {
            busy = true;
            self.wire.handle_timeout(now);
        }
        while let Some(output) = self.wire.poll(now) {
            busy = true;
            match output {
                Output::Send { frame, address, .. } => {
                    let millis = u64::try_from((now - Time::ZERO).as_millis()).unwrap();
                    let operation = Frame::parse(&frame).unwrap().packet.operation;
                    gratuitous.push((millis, node, address, operation));
                }
                Output::Report(report) => self.mail.push_back((now, Input::Wire(report))),
                Output::Join { .. } | Output::Leave { .. } => unreachable!("no interface speaks NDP"),
                Output::Gossip(_) | Output::Stopped => unreachable!("no member list, no stop"),
            }
        }
        busy
    }
}

fn clock(now: Time) -> Clock {
    Clock { now, wall: jiff::Timestamp::UNIX_EPOCH + (now - Time::ZERO) }
}

/// A session that is in this state since now, and has told all that it is to tell.
pub(crate) fn report(now: Time, state: State) -> PeerReport {
    PeerReport {
        state,
        since: now,
        remote: None,
        local: None,
        wanted: 0,
        told: 0,
        settled: true,
        untold: Arc::default(),
        next_attempt: None,
        last_down: None,
        last_drop: None,
        drops: 0,
        counters: Counters::default(),
        finding: None,
        rival: None,
    }
}

/// A configuration object.
pub(crate) fn config(name: &str, spec: Value) -> Value {
    json!({
        "metadata": {
            "namespace": "metallb-system", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {},
        },
        "spec": spec,
    })
}

/// A Service of type LoadBalancer in namespace `demo` with this address.
pub(crate) fn service(name: &str, ip: &str) -> Value {
    json!({
        "metadata": { "namespace": "demo", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "type": "LoadBalancer", "externalTrafficPolicy": "Cluster" },
        "status": { "loadBalancer": { "ingress": [{ "ip": ip, "ipMode": "VIP" }] } },
    })
}

/// The EndpointSlice of a Service of namespace `demo`, with a ready endpoint on each of these nodes.
pub(crate) fn endpoints(service: &str, nodes: &[&str]) -> Value {
    let endpoint = |node: &&str| json!({ "addresses": ["10.244.1.1"], "nodeName": node, "conditions": { "ready": true, "serving": true } });
    json!({
        "metadata": {
            "namespace": "demo",
            "name": format!("{service}-abcde"),
            "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": "IPv4",
        "endpoints": nodes.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

pub(crate) const ENS18: IfIndex = IfIndex(2);
const CLIENT: Mac = Mac([0x52, 0x54, 0, 0x3a, 0x10, 0x50]);

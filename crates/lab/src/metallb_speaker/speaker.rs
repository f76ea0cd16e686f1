// SPDX-License-Identifier: Apache-2.0
//! The stand-in's passes, in v0.16.1's order: flags and member list, then the API, then everything that is to be looked at, one
//! after the other. Nothing waits for the join.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ferrolb_config::Config;
use ferrolb_net_types::{Interfaces, NodeName, ServiceKey};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::members::Membership;
use super::responder::Responder;
use super::rule::{self, Decision, NodeFacts};
use super::status::{self, Told};
use super::world::{Work, World};
use super::{MemberList, Settings, log};
use crate::http;

/// What the status objects are made from: the interfaces of the first address of each announced Service.
pub(super) type Registered = Arc<Mutex<BTreeMap<ServiceKey, Interfaces>>>;

pub(super) async fn run(settings: Settings) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (work, mut inbox) = mpsc::unbounded_channel();
    let membership = match &settings.members {
        Some(list) => {
            let changed = work.clone();
            let changed = move || drop(changed.send(Work::Everything));
            Some(Membership::start(&settings.node, list, changed).await?)
        }
        None => None,
    };
    let responder = Responder::start()?;

    let client = Client::try_from(kube::Config::incluster()?)?;
    let pods = Api::<Pod>::namespaced(client.clone(), &settings.namespace);
    let own = pods.get(&settings.pod).await.context("unable to get own pod for owner references")?;
    let (nudge, nudges) = mpsc::channel(1);
    if let (Some(membership), Some(list)) = (&membership, &settings.members) {
        tokio::spawn(discover(membership.clone(), pods, list.clone(), nudges));
    }
    tokio::spawn(health(TcpListener::bind((Ipv4Addr::LOCALHOST, 17472)).await?));

    let registered = Registered::default();
    let teller = status::start(client.clone(), &settings, &own, Arc::clone(&registered));
    let world = World::start(&client, &settings.namespace, &settings.node, &work).await?;
    let mut speaker = Speaker {
        settings,
        world,
        membership,
        responder,
        teller,
        nudge,
        registered,
        config: None,
        nodes: BTreeMap::new(),
        announced: BTreeMap::new(),
    };
    speaker.configuration();
    loop {
        tokio::select! {
            found = inbox.recv() => match found {
                Some(found) => speaker.take(found),
                None => break,
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    // Until the process ends the responder goes on answering.
    if let Some(membership) = &speaker.membership {
        membership.leave().await;
    }
    log("info", "done", &json!({}));
    Ok(())
}

struct Speaker {
    settings: Settings,
    world: World,
    membership: Option<Membership>,
    responder: Responder,
    teller: mpsc::UnboundedSender<Told>,
    nudge: mpsc::Sender<()>,
    registered: Registered,
    /// The last one that was accepted.
    config: Option<Config>,
    nodes: BTreeMap<NodeName, NodeFacts>,
    announced: BTreeMap<ServiceKey, Vec<IpAddr>>,
}

impl Speaker {
    fn take(&mut self, work: Work) {
        match work {
            Work::Service(key) => self.pass(&key),
            Work::Configuration => self.configuration(),
            Work::Everything => self.everything(),
            Work::Status(key) => self.poke(&key),
            Work::Nodes => {
                let nodes = self.world.nodes();
                let own = &self.settings.node;
                if nodes.get(own) != self.nodes.get(own) {
                    // Full when a join is under way already.
                    let _ = self.nudge.try_send(());
                }
                let changed = nodes != self.nodes;
                self.nodes = nodes;
                self.configuration();
                if changed {
                    self.everything();
                }
            }
        }
    }

    /// Takes the configuration over, if the whole of it is good and no announced Service would lose its addresses.
    fn configuration(&mut self) {
        if self.nodes.is_empty() {
            self.nodes = self.world.nodes();
        }
        let found = self.world.configuration(&self.settings.node);
        if let Err(error) = &found.verdict {
            log("error", "failed to parse the configuration", &json!({"error": error}));
            return;
        }
        if self.config.as_ref() == Some(&found.config) {
            return;
        }
        let stays = |addresses: &Vec<IpAddr>| found.config.pool_of_all(addresses).is_some();
        if let Some((key, _)) = self.announced.iter().find(|(_, addresses)| !stays(addresses)) {
            let error = format!("service {key} has no configuration under new config");
            log("error", "new configuration rejected", &json!({"error": error}));
            return;
        }
        self.config = Some(found.config);
        self.everything();
    }

    fn everything(&mut self) {
        let mut keys = self.world.services();
        keys.extend(self.announced.keys().filter(|key| !keys.contains(key)).cloned().collect::<Vec<_>>());
        for key in keys {
            self.pass(&key);
        }
    }

    fn pass(&mut self, key: &ServiceKey) {
        let Some(config) = &self.config else { return };
        let (service, slices) = self.world.service(key);
        let slices: Vec<_> = slices.iter().map(AsRef::as_ref).collect();
        // Without a member list every node counts as having a speaker.
        let members: BTreeSet<NodeName> = match &self.membership {
            Some(membership) => membership.usable(),
            None => self.nodes.keys().cloned().collect(),
        };
        let world = rule::World {
            node: &self.settings.node,
            config,
            nodes: &self.nodes,
            members: &members,
            ignore_exclude_lb: self.settings.ignore_exclude_lb,
        };
        match rule::decide(&world, service.as_deref(), &slices) {
            Decision::Skip => {}
            Decision::Withdraw(reason) => self.withdraw(key, reason),
            Decision::Announce(addresses, interfaces) => self.announce(key, addresses, &interfaces),
        }
    }

    fn withdraw(&mut self, key: &ServiceKey, reason: &str) {
        if self.announced.remove(key).is_none() {
            return;
        }
        self.responder.unregister(key);
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        log(
            "info",
            "withdrawing service announcement",
            &json!({
                "event": "serviceWithdrawn", "service": key.to_string(), "reason": reason,
            }),
        );
        self.poke(key);
    }

    fn announce(&mut self, key: &ServiceKey, addresses: Vec<IpAddr>, interfaces: &Interfaces) {
        let same = |old: &Vec<IpAddr>| {
            old.len() == addresses.len() && old.iter().all(|address| addresses.contains(address))
        };
        if self.announced.get(key).is_some_and(|old| !same(old)) {
            self.withdraw(key, "loadBalancerIPChanged");
        }
        for address in &addresses {
            if !self.responder.has_any(interfaces) {
                let message = format!(
                    "the interfaces specified by LB IP \"{address}\" doesn't exist in assigned node \"{}\" with protocol \"layer2\"",
                    self.settings.node
                );
                let _ = self.teller.send(Told::Event(key.clone(), "Warning", "announceFailed", message));
                continue;
            }
            self.responder.register(key, *address, interfaces);
            let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
            registered.entry(key.clone()).or_insert_with(|| interfaces.clone());
            if addresses.first() == Some(address) {
                registered.insert(key.clone(), interfaces.clone());
            }
        }
        log(
            "info",
            "service has IP, announcing",
            &json!({
                "event": "serviceAnnounced", "service": key.to_string(), "ips": addresses, "protocol": "layer2",
            }),
        );
        self.announced.insert(key.clone(), addresses);
        let message = format!("announcing from node \"{}\" with protocol \"layer2\"", self.settings.node);
        let _ = self.teller.send(Told::Event(key.clone(), "Normal", "nodeAssigned", message));
        self.poke(key);
    }

    fn poke(&self, key: &ServiceKey) {
        let _ = self.teller.send(Told::Status(key.clone()));
    }
}

/// Lists the Pods at once and then every five minutes, and joins at once, every minute, and when nudged.
async fn discover(membership: Membership, pods: Api<Pod>, list: MemberList, mut nudges: mpsc::Receiver<()>) {
    let mut addresses: Vec<IpAddr> = Vec::new();
    let mut listed: Option<tokio::time::Instant> = None;
    loop {
        if listed.is_none_or(|at| at.elapsed() >= LIST_EVERY) {
            match pods.list(&ListParams::default().labels(&list.labels)).await {
                Ok(found) => {
                    let own = list.address.ip();
                    let found = found.items.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.clone());
                    addresses = found.filter_map(|ip| ip.parse().ok()).filter(|ip| *ip != own).collect();
                }
                Err(error) => log("error", "failed to list the Pods", &json!({"error": error.to_string()})),
            }
            listed = Some(tokio::time::Instant::now());
        }
        membership.join(addresses.clone());
        if let Ok(None) = tokio::time::timeout(JOIN_EVERY, nudges.recv()).await {
            return;
        }
    }
}

/// Both probes are good as long as the process lives.
async fn health(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(&http::response(200, &[("Connection", "close")], b"ok")).await;
        });
    }
}

const LIST_EVERY: Duration = Duration::from_secs(300);
const JOIN_EVERY: Duration = Duration::from_secs(60);

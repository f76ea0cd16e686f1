// SPDX-License-Identifier: Apache-2.0
//! The kubelet stand-in, one loop for all nodes: every Pod that is bound to a node of the bench runs as a process.
//!
//! A Pod of the API that has no process gets one; a process whose Pod is deleted, or gone, is ended. What a Pod is
//! made of is in [`container`], how it lives in [`pod`], what is said of it in [`status`].

pub(crate) mod container;
mod pod;
mod status;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::host::Host;
use crate::ledger::Ledger;
use crate::topology::Topology;
use crate::view::View;
use crate::workloads::is_ending;

use pod::Order;

/// What all Pods share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) view: View,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) topology: Topology,
    /// The API server's authority, in PEM.
    pub(crate) ca: Arc<str>,
    addresses: Arc<Addresses>,
    turns: Arc<Mutex<BTreeMap<(Host, String), Turn>>>,
}

/// Held by the Pod of a workload that has the ports of its node now.
type Turn = Arc<tokio::sync::Mutex<()>>;

impl Context {
    pub(crate) fn new(view: View, ledger: Arc<Ledger>, topology: Topology, ca: String) -> Self {
        Self { view, ledger, topology, ca: ca.into(), addresses: Arc::default(), turns: Arc::default() }
    }

    /// The turn of a Pod on a node's own network: its predecessor of the same workload holds the same ports until it
    /// has ended, whatever the API says.
    fn turn(&self, host: Host, owner: &str) -> Turn {
        let mut all = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry((host, owner.to_owned())).or_default())
    }
}

/// Addresses of Pods in use, per node's network.
#[derive(Default)]
struct Addresses(Mutex<BTreeMap<u8, u8>>);

impl Addresses {
    /// The next address of a network, 2 to 254, going round: one that was given back rests the longest.
    fn next(&self, network: u8) -> std::net::Ipv4Addr {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = last.entry(network).or_insert(1);
        *next = if *next >= 254 { 2 } else { *next + 1 };
        std::net::Ipv4Addr::new(172, 20, network, *next)
    }
}

struct Running {
    host: Host,
    orders: mpsc::UnboundedSender<Order>,
    ending: bool,
    volumes: container::Volumes,
}

/// Runs the Pods, for ever.
pub(crate) async fn run(context: Context) {
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    let mut lives: JoinSet<String> = JoinSet::new();
    let view = context.view.clone();
    view.on_every_change("kubelet", async || {
        while let Some(ended) = lives.try_join_next() {
            if let Ok(uid) = ended {
                running.remove(&uid);
            }
        }
        pass(&context, &mut running, &mut lives)
    })
    .await;
}

fn pass(
    context: &Context,
    running: &mut BTreeMap<String, Running>,
    lives: &mut JoinSet<String>,
) -> Result<()> {
    let pods: BTreeMap<String, Arc<Pod>> =
        context.view.pods.state().into_iter().filter_map(|pod| Some((pod.uid()?, pod))).collect();
    for (uid, pod) in &pods {
        let host = pod.spec.as_ref().and_then(|spec| Host::node(spec.node_name.as_deref()?));
        match (host, running.get_mut(uid)) {
            (Some(host), None) => {
                let (orders, inbox) = mpsc::unbounded_channel();
                let volumes = container::Volumes::of(pod, &context.ledger);
                let life = pod::Life::new(context.clone(), Arc::clone(pod), host, volumes.clone());
                let (uid, view) = (uid.clone(), context.view.clone());
                running.insert(uid.clone(), Running { host, orders, ending: false, volumes });
                lives.spawn(async move {
                    life.live(inbox).await;
                    view.nudge();
                    uid
                });
            }
            (_, Some(known)) if is_ending(pod) && !known.ending => {
                known.ending = true;
                // The life may be over already; then nobody has to be told.
                let _ = known.orders.send(Order::End { grace: pod::grace_of(pod) });
            }
            (_, Some(known)) if !known.ending => {
                known.volumes.refresh(&context.view)?;
                let _ = known.orders.send(Order::NodeReady(pod::node_is_ready(&context.view, known.host)));
            }
            _ => {}
        }
    }
    for (uid, known) in running.iter_mut().filter(|(uid, known)| !known.ending && !pods.contains_key(*uid)) {
        tracing::debug!(uid, "the Pod is gone from the API: its process ends");
        known.ending = true;
        let _ = known.orders.send(Order::End { grace: pod::MINIMUM_GRACE });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_was_given_away_comes_back_last() {
        let addresses = Addresses::default();
        let first = addresses.next(1);
        assert_eq!(first.to_string(), "172.20.1.2");
        assert_eq!(addresses.next(2).to_string(), "172.20.2.2");
        let others: Vec<_> = (0..252).map(|_| addresses.next(1)).collect();
        assert!(!others.contains(&first));
        assert_eq!(others.last().map(ToString::to_string).as_deref(), Some("172.20.1.254"));
        assert_eq!(addresses.next(1), first);
    }
}

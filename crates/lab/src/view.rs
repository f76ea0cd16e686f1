// SPDX-License-Identifier: Apache-2.0
//! What the stand-ins know of the cluster: a local copy of every kind they act on, kept current by watches.
//!
//! Each stand-in is a loop: wait for any change, look at everything, do what is missing. The bench is small; what it
//! loses in economy it gains in having no lost event.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bench_handle::SYSTEM;

/// Copies of the API's objects, and a counter that moves with every change of any of them.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) client: Client,
    pub(crate) pods: Store<Pod>,
    pub(crate) nodes: Store<Node>,
    pub(crate) services: Store<Service>,
    pub(crate) slices: Store<EndpointSlice>,
    pub(crate) deployments: Store<Deployment>,
    pub(crate) daemon_sets: Store<DaemonSet>,
    pub(crate) secrets: Store<Secret>,
    pub(crate) config_maps: Store<ConfigMap>,
    changes: Arc<watch::Sender<u64>>,
}

impl View {
    /// Starts the watches on `tasks` and waits until every first list is complete. Without `traffic`, Services and
    /// EndpointSlices of the daemons' namespace are all that is looked at.
    ///
    /// # Errors
    /// A watch ended before its first list was complete.
    pub(crate) async fn start(client: &Client, traffic: bool, tasks: &mut JoinSet<()>) -> Result<Self> {
        let (services, slices) = if traffic {
            (Api::all(client.clone()), Api::all(client.clone()))
        } else {
            (Api::namespaced(client.clone(), SYSTEM), Api::namespaced(client.clone(), SYSTEM))
        };
        let changes = Arc::new(watch::channel(0).0);
        let view = Self {
            client: client.clone(),
            pods: mirror(Api::all(client.clone()), &changes, tasks),
            nodes: mirror(Api::all(client.clone()), &changes, tasks),
            services: mirror(services, &changes, tasks),
            slices: mirror(slices, &changes, tasks),
            deployments: mirror(Api::all(client.clone()), &changes, tasks),
            daemon_sets: mirror(Api::all(client.clone()), &changes, tasks),
            secrets: mirror(Api::all(client.clone()), &changes, tasks),
            config_maps: mirror(Api::all(client.clone()), &changes, tasks),
            changes,
        };
        let ended = "the watch ended";
        view.pods.wait_until_ready().await.context(ended)?;
        view.nodes.wait_until_ready().await.context(ended)?;
        view.services.wait_until_ready().await.context(ended)?;
        view.slices.wait_until_ready().await.context(ended)?;
        view.deployments.wait_until_ready().await.context(ended)?;
        view.daemon_sets.wait_until_ready().await.context(ended)?;
        view.secrets.wait_until_ready().await.context(ended)?;
        view.config_maps.wait_until_ready().await.context(ended)?;
        Ok(view)
    }

    /// Resolves on every later change of any object.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Makes every loop look again.
    pub(crate) fn nudge(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Runs `pass` now and after every change, for ever. A pass that fails is repeated after a short while.
    pub(crate) async fn on_every_change<F>(&self, what: &'static str, mut pass: F)
    where
        F: AsyncFnMut() -> Result<()>,
    {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            let failed = match pass().await {
                Ok(()) => false,
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "{what}: will try again");
                    true
                }
            };
            let changed = changes.changed();
            if failed {
                // Another writer was faster, or the API is away: neither is over at once.
                let _ = tokio::time::timeout(RETRY, changed).await;
            } else if changed.await.is_err() {
                return;
            }
        }
    }
}

fn mirror<K>(api: Api<K>, changes: &Arc<watch::Sender<u64>>, tasks: &mut JoinSet<()>) -> Store<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let (store, writer) = reflector::store();
    let stream = watcher(api, watcher::Config::default());
    let changes = Arc::clone(changes);
    tasks.spawn(async move {
        let mut stream = std::pin::pin!(reflector::reflector(writer, stream).default_backoff());
        while let Some(event) = stream.next().await {
            match event {
                // During the first list nothing can be acted on yet.
                Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                Ok(_) => changes.send_modify(|count| *count += 1),
                Err(error) => tracing::debug!(%error, "a watch will be opened again"),
            }
        }
    });
    store
}

const RETRY: std::time::Duration = std::time::Duration::from_millis(100);

// SPDX-License-Identifier: Apache-2.0
//! Rest: nothing changed for a while, and the controller has nothing to do.
//!
//! Watches tell that something changed; what is compared is listed afresh. On a busy machine silence alone proves
//! nothing, so the controller's threads are looked at as well: while one runs, or waits for a processor, it is not at
//! rest. A state that is as recorded needs a short silence, for whatever comes later shows in the next step; one that is
//! not gets longer than anything that the controller puts off (counters are written once a second), so that no
//! difference is only one of speed.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api as Objects, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::api::Api;
use super::daemon::Daemon;
use super::picture::Lists;
use crate::bench_handle::SYSTEM;

/// Watches of what is compared.
pub(crate) struct Watches {
    /// When something changed last.
    changed: watch::Receiver<Instant>,
    _tasks: JoinSet<()>,
}

/// What there was at the end.
pub(crate) struct Settled {
    pub(crate) lists: Lists,
    /// Whether it came to rest in time.
    pub(crate) at_rest: bool,
}

/// What waiting for rest came to.
enum Rest {
    Quiet,
    /// Something changed: it is worth another look.
    Changed,
    /// It has been changing for too long.
    Never,
}

impl Watches {
    /// Begins to watch.
    pub(crate) fn start(client: &Client) -> Self {
        let (sender, changed) = watch::channel(Instant::now());
        let mut tasks = JoinSet::new();
        tasks.spawn(observe(Objects::<Service>::all(client.clone()), sender.clone()));
        tasks.spawn(observe(Objects::<Event>::all(client.clone()), sender.clone()));
        for (kind, plural) in
            [("IPAddressPool", "ipaddresspools"), ("ConfigurationState", "configurationstates")]
        {
            let kind = GroupVersionKind::gvk("metallb.io", "v1beta1", kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, plural);
            let objects = Objects::<DynamicObject>::namespaced_with(client.clone(), SYSTEM, &resource);
            tasks.spawn(observe(objects, sender.clone()));
        }
        Self { changed, _tasks: tasks }
    }

    /// Waits for rest and lists what there is. `good` says whether it is as recorded; after the `last` step of a case
    /// even a good state has to last.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn settle(
        &self,
        api: &Api,
        daemon: &Daemon,
        last: bool,
        mut good: impl FnMut(&Lists) -> bool,
    ) -> Result<Settled> {
        let began = Instant::now();
        let mut since = began;
        let mut lists = api.lists().await?;
        loop {
            let enough = match (good(&lists), last) {
                (true, false) => GLANCE,
                (true, true) => REST,
                (false, _) => DOUBT,
            };
            let rest = self.rest(daemon, &mut since, began, enough).await;
            let now = api.lists().await?;
            match rest {
                Rest::Never => return Ok(Settled { lists: now, at_rest: false }),
                Rest::Quiet if now == lists => return Ok(Settled { lists, at_rest: true }),
                // Seen in a list before a watch told of it.
                Rest::Quiet => since = Instant::now(),
                Rest::Changed => {}
            }
            lists = now;
        }
    }

    /// Waits until nothing has changed, and the controller has not worked, for as long as `enough`.
    async fn rest(&self, daemon: &Daemon, since: &mut Instant, began: Instant, enough: Duration) -> Rest {
        let mut changed = self.changed.clone();
        *since = (*since).max(*changed.borrow_and_update());
        let mut work = daemon.work();
        loop {
            let now = Instant::now();
            if now >= *since + enough && work.is_idle() {
                return Rest::Quiet;
            }
            let changing = now < *changed.borrow() + REST;
            if now > began + AT_MOST && changing || now > began + PATIENCE {
                return Rest::Never;
            }
            let pause = (*since + enough).saturating_duration_since(now).clamp(TICK, SLICE);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                told = changed.changed() => if told.is_ok() {
                    // Changes come in rows: look again when the row is over.
                    tokio::time::sleep(TICK).await;
                    return Rest::Changed;
                },
            }
            let before = std::mem::replace(&mut work, daemon.work());
            if work.is_more_than(&before) {
                *since = Instant::now();
            }
        }
    }
}

async fn observe<K>(objects: Objects<K>, changed: watch::Sender<Instant>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut stream = std::pin::pin!(watcher(objects, watcher::Config::default()).default_backoff());
    while let Some(event) = stream.next().await {
        if event.is_ok() {
            changed.send_replace(Instant::now());
        }
    }
}

/// A silence after which a good state is believed.
const GLANCE: Duration = Duration::from_millis(150);
/// The silence that was waited for when the cases were recorded.
const REST: Duration = Duration::from_millis(500);
/// A silence after which a difference is believed.
const DOUBT: Duration = Duration::from_millis(1500);
/// As long as it was waited when the cases were recorded.
const AT_MOST: Duration = Duration::from_secs(6);
/// How long a controller may work without changing anything: on a busy machine it may hardly come to work.
const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(5);
const SLICE: Duration = Duration::from_millis(50);

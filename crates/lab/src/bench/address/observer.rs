// SPDX-License-Identifier: Apache-2.0
//! The measurement's eyes: a watch of its Services, on a thread and a connection of its own, that notes when each was
//! first seen with an address.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use http::Request;
use kube::api::WatchEvent;
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::api_server;
use crate::bench_handle::Bench;
use crate::host::Host;

/// The watch. It ends with this value.
#[derive(Debug)]
pub(super) struct Observer {
    seen: Arc<Mutex<Seen>>,
    _stop: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct Seen {
    /// By name: the addresses, and when they were first seen.
    addressed: BTreeMap<String, (Instant, Vec<String>)>,
    /// Why nothing more will be seen.
    ended: Option<String>,
}

/// As much of a Service as is looked at.
#[derive(Clone, Debug, Deserialize)]
struct Service {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    load_balancer: LoadBalancer,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct LoadBalancer {
    #[serde(default)]
    ingress: Vec<Ingress>,
}

#[derive(Clone, Debug, Deserialize)]
struct Ingress {
    ip: String,
}

impl Observer {
    /// Watches the Services of a namespace; the watch is established when this returns.
    pub(super) async fn start(bench: &Bench, namespace: &str) -> Result<Self> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, established) = oneshot::channel();
        let (host, kubeconfig) = (bench.namespace(Host::Client).clone(), bench.kubeconfig());
        let path = format!("/api/v1/namespaces/{namespace}/services?watch=true&timeoutSeconds=3600");
        let notes = Arc::clone(&seen);
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            host.enter()?;
            runtime.block_on(async {
                let watch = async {
                    let client = api_server::client(&kubeconfig).await?;
                    let events =
                        client.request_events::<Service>(Request::get(path).body(Vec::new())?).await?;
                    // Whoever asked is gone only when the whole measurement is.
                    let _ = ready.send(());
                    let mut events = std::pin::pin!(events);
                    while let Some(event) = events.try_next().await? {
                        note(&notes, event, Instant::now())?;
                    }
                    bail!("the watch ended")
                };
                let ended: Result<()> = tokio::select! {
                    ended = watch => ended,
                    _ = stopped => Ok(()),
                };
                if let Err(error) = ended {
                    lock(&notes).ended = Some(format!("{error:#}"));
                }
            });
            Ok::<_, anyhow::Error>(())
        };
        std::thread::Builder::new().name("observer".to_owned()).spawn(work)?;
        established.await.ok().with_context(|| {
            let why = lock(&seen).ended.clone().unwrap_or_default();
            format!("watch the Services of {namespace}: {why}")
        })?;
        Ok(Self { seen, _stop: stop })
    }

    /// Waits until all these Services were seen with an address: when each first was.
    ///
    /// # Errors
    /// Not within `limit`: how many are missing; two of them with one address.
    pub(super) async fn addressed(&self, names: &[String], limit: Duration) -> Result<Vec<Instant>> {
        let deadline = Instant::now() + limit;
        loop {
            {
                let seen = lock(&self.seen);
                if let Some(why) = &seen.ended {
                    bail!("the observer saw its end: {why}");
                }
                let found: Vec<_> = names.iter().filter_map(|name| seen.addressed.get(name)).collect();
                if found.len() == names.len() {
                    let mut addresses: Vec<&String> = found.iter().flat_map(|(_, ips)| ips).collect();
                    let all = addresses.len();
                    addresses.sort_unstable();
                    addresses.dedup();
                    ensure!(addresses.len() == all, "{} addresses were given twice", all - addresses.len());
                    return Ok(found.into_iter().map(|(moment, _)| *moment).collect());
                }
                ensure!(
                    Instant::now() < deadline,
                    "{} of {} Services have no address after {} s",
                    names.len() - found.len(),
                    names.len(),
                    limit.as_secs()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn note(notes: &Mutex<Seen>, event: WatchEvent<Service>, now: Instant) -> Result<()> {
    match event {
        WatchEvent::Added(service) | WatchEvent::Modified(service) => {
            let ips: Vec<String> =
                service.status.load_balancer.ingress.into_iter().map(|entry| entry.ip).collect();
            if !ips.is_empty() {
                lock(notes).addressed.entry(service.metadata.name).or_insert((now, ips));
            }
        }
        WatchEvent::Deleted(service) => {
            lock(notes).addressed.remove(&service.metadata.name);
        }
        WatchEvent::Bookmark(_) => {}
        WatchEvent::Error(status) => bail!("{}", status.message),
    }
    Ok(())
}

/// Nothing panics while it holds the lock, and what is in it stays true if something does.
fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Between two looks at what was noted; it delays the end of a measurement, not what is measured.
const LOOK: Duration = Duration::from_millis(20);

// SPDX-License-Identifier: Apache-2.0
//! What the stand-in writes: ServiceL2Status objects and events, as often as v0.16.1 does.
//!
//! Whoever has a Service registered deletes what other nodes say of it, and its own duplicates, and makes its own; whoever has
//! not deletes its own. An event is written at every pass, until the client's limit for the object is reached.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ferrolb_api::{ServiceL2Status, labels};
use ferrolb_net_types::{Interfaces, ServiceKey};
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::speaker::Registered;
use super::{Settings, log};

/// Something to be written.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// The status objects of a Service are to be looked at.
    Status(ServiceKey),
    /// An event about a Service: type, reason, message.
    Event(ServiceKey, &'static str, &'static str, String),
}

/// Starts the writer, and gives the way to it.
pub(super) fn start(
    client: Client,
    settings: &Settings,
    pod: &Pod,
    registered: Registered,
) -> mpsc::UnboundedSender<Told> {
    let (told, mut inbox) = mpsc::unbounded_channel();
    let (events, mut event_inbox) = mpsc::unbounded_channel();
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid()});
    let writer = Writer {
        statuses: Api::namespaced(client.clone(), &settings.namespace),
        node: settings.node.to_string(),
        owner,
        registered,
    };
    let again = told.clone();
    tokio::spawn(async move {
        while let Some(next) = inbox.recv().await {
            match next {
                Told::Status(key) => {
                    if let Err(error) = writer.status(&key).await {
                        let facts = json!({"service": key.to_string(), "error": format!("{error:#}")});
                        log("error", "failed to write the status", &facts);
                        let again = again.clone();
                        tokio::spawn(async move {
                            tokio::time::sleep(RETRY).await;
                            let _ = again.send(Told::Status(key));
                        });
                    }
                }
                Told::Event(key, kind, reason, message) => {
                    let _ = events.send((key, kind, reason, message));
                }
            }
        }
    });
    tokio::spawn(async move {
        let mut sent = Events { client, known: BTreeMap::new(), counts: BTreeMap::new() };
        while let Some((key, kind, reason, message)) = event_inbox.recv().await {
            // An event that cannot be written is dropped, as the library does.
            let _ = sent.write(&key, kind, reason, message).await;
        }
    });
    told
}

struct Writer {
    statuses: Api<ServiceL2Status>,
    node: String,
    owner: Value,
    registered: Registered,
}

impl Writer {
    async fn status(&self, key: &ServiceKey) -> Result<()> {
        let selector =
            format!("{}={},{}={}", labels::SERVICE_NAME, key.name, labels::SERVICE_NAMESPACE, key.namespace);
        let found = self.statuses.list(&ListParams::default().labels(&selector)).await?.items;
        let (own, others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|status| status.labels().get(labels::NODE) == Some(&self.node));
        let interfaces = self.registered.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        let Some(interfaces) = interfaces else {
            return self.delete(&own).await;
        };
        self.delete(&others).await?;
        let mut own = own.into_iter();
        let kept = match own.next() {
            Some(kept) => kept,
            None => {
                let object = serde_json::from_value(json!({
                    "apiVersion": "metallb.io/v1beta1", "kind": "ServiceL2Status",
                    "metadata": {
                        "generateName": "l2-",
                        "labels": {
                            labels::NODE: self.node, labels::SERVICE_NAME: *key.name,
                            labels::SERVICE_NAMESPACE: *key.namespace,
                        },
                        "ownerReferences": [self.owner],
                    },
                    "spec": {},
                }))?;
                self.statuses.create(&PostParams::default(), &object).await.context("create")?
            }
        };
        self.delete(&own.collect::<Vec<_>>()).await?;
        let names: Vec<Value> = match &interfaces {
            Interfaces::All => Vec::new(),
            Interfaces::Named(names) => names.iter().map(|name| json!({"name": name.as_str()})).collect(),
        };
        let mut wanted = json!({
            "node": self.node, "serviceName": *key.name, "serviceNamespace": *key.namespace,
        });
        if !names.is_empty() {
            wanted["interfaces"] = names.into();
        }
        let stored = serde_json::to_value(&kept.status)?;
        if stored != wanted {
            let patch = Patch::Merge(json!({"status": wanted}));
            self.statuses.patch_status(&kept.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    async fn delete(&self, objects: &[ServiceL2Status]) -> Result<()> {
        for object in objects {
            match self.statuses.delete(&object.name_any(), &DeleteParams::default()).await {
                Err(kube::Error::Api(answer)) if answer.code == 404 => {}
                other => drop(other.context("delete")?),
            }
        }
        Ok(())
    }
}

struct Events {
    client: Client,
    /// Name and count of each event that was written, by object, reason and message.
    known: BTreeMap<(ServiceKey, &'static str, String), (String, u32)>,
    /// Events per object.
    counts: BTreeMap<ServiceKey, u32>,
}

impl Events {
    async fn write(
        &mut self,
        key: &ServiceKey,
        kind: &'static str,
        reason: &'static str,
        message: String,
    ) -> Result<()> {
        let count = self.counts.entry(key.clone()).or_default();
        *count += 1;
        if *count > PER_OBJECT {
            return Ok(());
        }
        let api = Api::<Event>::namespaced(self.client.clone(), &key.namespace);
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let known = (key.clone(), reason, message.clone());
        if let Some((name, times)) = self.known.get_mut(&known) {
            *times += 1;
            let patch = Patch::Merge(json!({"count": times, "lastTimestamp": now}));
            if api.patch(name, &PatchParams::default(), &patch).await.is_ok() {
                return Ok(());
            }
        }
        let services = Api::<Service>::namespaced(self.client.clone(), &key.namespace);
        let uid = services.get_opt(&key.name).await?.and_then(|service| service.uid());
        let unique = jiff::Timestamp::now().as_nanosecond();
        let event: Event = serde_json::from_value(json!({
            "metadata": {"name": format!("{}.{unique:x}", key.name), "namespace": *key.namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Service", "name": *key.name,
                               "namespace": *key.namespace, "uid": uid},
            "type": kind, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now,
            "source": {"component": "metallb-speaker"}, "reportingComponent": "metallb-speaker",
        }))?;
        let created = api.create(&PostParams::default(), &event).await?;
        self.known.insert(known, (created.name_any(), 1));
        Ok(())
    }
}

const RETRY: Duration = Duration::from_millis(200);
/// The library's limit for a burst of events about one object; they come back one per five minutes.
const PER_OBJECT: u32 = 25;

// SPDX-License-Identifier: Apache-2.0
//! Keeping the certificate: watching the Secret and the places that name CAs, and carrying out what is decided.
//!
//! Several replicas, and MetalLB's controller among them, agree by the Secret: it is written only in the version
//! that was read, and whoever comes second takes what the first made. Nothing that is missing ends the process; it is
//! said in the log, and done when it is there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ferrolb_api::Change;
use http::Method;
use kube::{Client, Resource};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Serving;
use super::certificates::{IssueError, Material, Renewal, Verdict};
use super::decision::{View, decide};
use super::objects::{Definition, Secret, WebhookConfiguration, encode};
use super::trust::{Apply, Target};
use crate::backoff::Backoff;
use crate::health::Readiness;
use crate::reach::Reach;
use crate::request::{RequestError, send_json};
use crate::watch::{Delivery, Watch};

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Waits after what did not work.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Which certificate, and where.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Whether to make the Secret if there is none.
    pub create: bool,
    /// The server's DNS name: `{service}.{namespace}.svc`.
    pub dns: String,
    /// Name of the ValidatingWebhookConfiguration.
    pub webhooks: String,
    /// Name of the CustomResourceDefinition whose versions are converted.
    pub definition: String,
}

impl Rotation {
    /// Keeps the certificate for ever. `settled` becomes true as soon as whoever is asked can answer and is trusted.
    pub async fn keep(self, client: Client, reach: Reach, serving: Arc<Serving>, settled: Readiness) {
        let (sender, mut news) = mpsc::channel(16);
        let mut watches = JoinSet::new();
        let named = |name: &str| format!("metadata.name={name}");
        let secrets = Watch::namespaced(&self.namespace).fields(named(&self.secret)).optional();
        let webhooks = Watch::cluster().fields(named(&self.webhooks)).optional();
        let definitions = Watch::cluster().fields(named(&self.definition)).optional();
        follow(&mut watches, secrets, News::Secret, &sender, &client, &reach);
        follow(&mut watches, webhooks, News::Webhooks, &sender, &client, &reach);
        follow(&mut watches, definitions, News::Definition, &sender, &client, &reach);

        let mut keeper = Keeper {
            rotation: self,
            client,
            serving,
            settled,
            known: Known::default(),
            said: BTreeSet::new(),
        };
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        loop {
            let wait = match keeper.step().await {
                Step::Again => continue,
                Step::Done(wait) => {
                    backoff.reset();
                    wait
                }
                Step::Failed => backoff.wait(),
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // The watches never end, so there always is a sender.
                Some(piece) = news.recv() => keeper.known.take(piece),
            }
            while let Ok(piece) = news.try_recv() {
                keeper.known.take(piece);
            }
        }
    }
}

/// What the watches bring: the object, or that there is none.
enum News {
    Secret(Option<Secret>),
    Webhooks(Option<WebhookConfiguration>),
    Definition(Option<Definition>),
}

fn follow<K>(
    watches: &mut JoinSet<()>,
    watch: Watch<K>,
    into: fn(Option<K>) -> News,
    sender: &mpsc::Sender<News>,
    client: &Client,
    reach: &Reach,
) where
    K: Resource<DynamicType = ()> + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let (sender, client, reach) = (sender.clone(), client.clone(), reach.clone());
    watches.spawn(async move {
        let take = |delivery: Delivery<K>| {
            let news = match delivery {
                Delivery::Change(Change::Reset(objects)) => Some(into(objects.into_iter().next())),
                Delivery::Change(Change::Applied(object)) => Some(into(Some(*object))),
                Delivery::Change(Change::Deleted { .. }) => Some(into(None)),
                // What cannot be read is left as it was known.
                Delivery::Undecodable(_) => None,
            };
            let sender = sender.clone();
            async move {
                match news {
                    Some(news) => sender.send(news).await.is_ok(),
                    None => true,
                }
            }
        };
        watch.run(client, reach, take).await;
    });
}

/// What is known of the API: nothing, that an object is not there, or the object.
#[derive(Default)]
struct Known {
    secret: Option<Option<Secret>>,
    webhooks: Option<Option<WebhookConfiguration>>,
    definition: Option<Option<Definition>>,
}

impl Known {
    fn take(&mut self, news: News) {
        match news {
            News::Secret(object) => self.secret = Some(object),
            News::Webhooks(object) => self.webhooks = Some(object),
            News::Definition(object) => self.definition = Some(object),
        }
    }

    fn targets(&self) -> Vec<Target> {
        let webhooks = self.webhooks.clone().flatten().map(Target::Webhooks);
        let definition = self.definition.clone().flatten().map(Target::Definition);
        webhooks.into_iter().chain(definition).collect()
    }

    fn is_complete(&self) -> bool {
        self.secret.is_some() && self.webhooks.is_some() && self.definition.is_some()
    }
}

/// What came of one round.
enum Step {
    /// Something is different now.
    Again,
    /// All is done until news come or this time has passed.
    Done(Duration),
    /// Something did not work.
    Failed,
}

struct Keeper {
    rotation: Rotation,
    client: Client,
    serving: Arc<Serving>,
    settled: Readiness,
    known: Known,
    /// What was complained about, so that it is said once.
    said: BTreeSet<String>,
}

impl Keeper {
    async fn step(&mut self) -> Step {
        let now = SystemTime::now();
        let dns = self.rotation.dns.clone();
        let Some(secret) = &self.known.secret else { return Step::Done(LONGEST_WAIT) };
        let view = View {
            stored: secret.as_ref().map(Secret::material),
            served: self.serving.material(),
            targets: self.known.targets(),
        };
        let decision = decide(&view, &dns, now);
        if decision.serve
            && let Some(stored) = view.stored
        {
            match stored.usable(&dns, now) {
                Ok(key) => {
                    self.serving.present(stored, Arc::new(key));
                    tracing::info!(op = "certificate", name = dns.as_str(), "webhook certificate in use");
                    return Step::Again;
                }
                // It was usable a moment ago, at the same time.
                Err(error) => return self.failed("the webhook certificate", &error),
            }
        }
        for apply in &decision.apply {
            if let Step::Failed = self.apply(apply).await {
                return Step::Failed;
            }
        }
        if !decision.apply.is_empty() {
            return Step::Again;
        }
        match (&self.known.secret, decision.renew) {
            (Some(Some(_)), Some((what, why))) => return self.renew(what, &why).await,
            (Some(None), _) if self.rotation.create => return self.create().await,
            (Some(None), _) => {
                let (namespace, secret) = (&self.rotation.namespace, &self.rotation.secret);
                let remedy = format!(
                    "create it empty, as the manifests do: kubectl -n {namespace} create secret generic {secret}"
                );
                self.complain("secret", "the webhook certificate's Secret is not there", &remedy);
            }
            _ => {}
        }
        if decision.settled && self.known.is_complete() {
            self.settled.set(true);
        }
        self.report_missing_targets();
        Step::Done(decision.due.duration_since(now).unwrap_or_default().max(FIRST_WAIT))
    }

    /// Reads the Secret as it is now, makes what is needed, and writes it if nobody was faster.
    async fn renew(&mut self, what: Renewal, why: &str) -> Step {
        let path = format!("{}/{}", self.secrets(), self.rotation.secret);
        let mut object = match send_json(&self.client, Method::GET, &path, None, LIMIT).await {
            Ok(object) => object,
            Err(error) => return self.request_failed("reading the webhook certificate's Secret", &error),
        };
        let Ok(current) = Secret::deserialize(&object) else {
            return self.failed("reading the webhook certificate's Secret", "it cannot be decoded");
        };
        let material = current.material();
        let dns = self.rotation.dns.clone();
        let Verdict::Renew { what: still, .. } = material.verdict(&dns, SystemTime::now()) else {
            // Somebody else did it.
            self.known.take(News::Secret(Some(current)));
            return Step::Again;
        };
        match what {
            Renewal::Everything => tracing::info!(op = "certificate", why, "refreshing CA and server certs"),
            Renewal::Server => tracing::info!(op = "certificate", why, "refreshing server certs"),
        }
        let made = match issue(material, still, dns).await {
            Ok(made) => made,
            Err(error) => return self.failed("making the webhook certificate", &error.to_string()),
        };
        if !object["data"].is_object() {
            object["data"] = json!({});
        }
        for (key, value) in made.entries() {
            object["data"][key] = json!(encode(value));
        }
        let body = Some(("application/json", &object));
        let written = send_json(&self.client, Method::PUT, &path, body, LIMIT).await;
        self.written("writing the webhook certificate's Secret", written)
    }

    async fn create(&mut self) -> Step {
        let made = match issue(Material::default(), Renewal::Everything, self.rotation.dns.clone()).await {
            Ok(made) => made,
            Err(error) => return self.failed("making the webhook certificate", &error.to_string()),
        };
        let data: serde_json::Map<String, Value> =
            made.entries().into_iter().map(|(key, value)| (key.to_owned(), json!(encode(value)))).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "data": data,
            "metadata": { "name": self.rotation.secret, "namespace": self.rotation.namespace },
        });
        let body = Some(("application/json", &object));
        let written = send_json(&self.client, Method::POST, &self.secrets(), body, LIMIT).await;
        self.written("creating the webhook certificate's Secret", written)
    }

    fn written(&mut self, what: &str, result: Result<Value, RequestError>) -> Step {
        match result {
            Ok(object) => {
                if let Ok(secret) = Secret::deserialize(&object) {
                    self.known.take(News::Secret(Some(secret)));
                }
                self.said.clear();
                tracing::info!(op = "certificate", "server certs refreshed");
                Step::Again
            }
            // Another replica was faster: the watch, or the next reading, brings what it made.
            Err(error) if error.code == 409 => {
                tracing::debug!(
                    op = "certificate",
                    error = error.message.as_str(),
                    "somebody else was faster"
                );
                Step::Failed
            }
            Err(error) => self.request_failed(what, &error),
        }
    }

    async fn apply(&mut self, apply: &Apply) -> Step {
        let body = Some(("application/apply-patch+yaml", &apply.body));
        match send_json(&self.client, Method::PATCH, &apply.path, body, LIMIT).await {
            Ok(object) => {
                let kind = apply.body["kind"].as_str().unwrap_or_default();
                let name = apply.body["metadata"]["name"].as_str().unwrap_or_default();
                tracing::info!(op = "certificate", kind, name, "CA certs are injected to webhooks");
                if kind == "CustomResourceDefinition" {
                    if let Ok(definition) = Definition::deserialize(&object) {
                        self.known.take(News::Definition(Some(definition)));
                    }
                } else if let Ok(webhooks) = WebhookConfiguration::deserialize(&object) {
                    self.known.take(News::Webhooks(Some(webhooks)));
                }
                Step::Again
            }
            Err(error) => self.request_failed(&format!("naming the CA in {}", apply.path), &error),
        }
    }

    fn report_missing_targets(&mut self) {
        let names = [&self.rotation.webhooks, &self.rotation.definition].map(Clone::clone);
        let absent = [
            (self.known.webhooks == Some(None), "webhooks", "ValidatingWebhookConfiguration"),
            (self.known.definition == Some(None), "definition", "CustomResourceDefinition"),
        ];
        for ((absent, key, kind), name) in absent.into_iter().zip(names) {
            if absent {
                self.complain(key, &format!("{kind} {name} is not there"), "apply MetalLB's manifests");
            } else {
                self.said.remove(key);
            }
        }
    }

    fn secrets(&self) -> String {
        Secret::url_path(&(), Some(&self.rotation.namespace))
    }

    fn request_failed(&mut self, what: &str, error: &RequestError) -> Step {
        self.failed(what, &error.message)
    }

    fn failed(&mut self, what: &str, error: &str) -> Step {
        if self.said.insert(format!("{what}: {error}")) {
            tracing::error!(op = "certificate", error, "{what} does not work, trying again");
        }
        Step::Failed
    }

    fn complain(&mut self, key: &str, what: &str, remedy: &str) {
        if self.said.insert(key.to_owned()) {
            tracing::warn!(op = "certificate", remedy, "{what}; webhooks cannot be used until it is there");
        }
    }
}

/// Making keys takes a good part of a second, so it is done beside the daemon's own thread.
async fn issue(current: Material, what: Renewal, dns: String) -> Result<Material, IssueError> {
    let make = move || {
        let now = SystemTime::now();
        match what {
            Renewal::Server => current.issue_server(&dns, now),
            Renewal::Everything => Material::issue(&dns, now),
        }
    };
    tokio::task::spawn_blocking(make).await.unwrap_or_else(|error| Err(IssueError::broken(&error)))
}

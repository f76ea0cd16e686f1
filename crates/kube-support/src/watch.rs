// SPDX-License-Identifier: Apache-2.0
//! Watching one kind of object: a complete list, then every change, for ever.
//!
//! What comes out is level-triggered: a [`Change::Reset`] carries everything there is, later changes one
//! object each. An object that cannot be decoded is reported and skipped: it breaks neither the list nor
//! what is known of it, because unknown is not gone. An API server that goes away costs waiting, never data:
//! the stream goes on where it broke, or starts over with a list where the server has forgotten (410).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use bytes::BytesMut;
use ferrolb_api::Change;
use http::header::ACCEPT;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::backoff::{Backoff, between};
use crate::client::failure;
use crate::reach::Reach;
use crate::request::{RequestError, escape, send};

/// Where `kubectl apply` keeps a copy of what it was given.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Objects per page of a list.
const PAGE: u32 = 500;
/// How long one page may take.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// The server ends a watch after a time from this range, and a silent one is given up shortly after: a
/// connection that died without a word is noticed within a minute.
const WATCH_TIME: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(60));
/// What the end of a watch may be late.
const GRACE: Duration = Duration::from_secs(5);
/// A watch that ends sooner than this counts as a failure.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// Waits after failures start here.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Waits while the server cannot be reached or is in trouble.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Waits while the kind does not exist yet: its definition is about to be applied.
const UNKNOWN_KIND_WAIT: Duration = Duration::from_secs(2);
/// Waits while reading is forbidden: somebody has to change a role first.
const FORBIDDEN_WAIT: Duration = Duration::from_secs(60);

/// What a watch delivers.
#[derive(Debug)]
pub enum Delivery<K> {
    /// Objects.
    Change(Change<K>),
    /// All objects that exist and cannot be decoded, whenever that changes; before the change that goes with it.
    Undecodable(Vec<Undecodable>),
}

/// An object that exists and cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// Its namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What does not fit.
    pub error: String,
}

/// What to watch, and how.
#[derive(Debug)]
pub struct Watch<K> {
    namespace: Option<String>,
    labels: Option<String>,
    fields: Option<String>,
    optional: bool,
    whole: bool,
    trim: fn(&mut K),
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Debug + Send + 'static,
{
    /// All objects of the cluster.
    pub fn cluster() -> Self {
        Self { namespace: None, labels: None, fields: None, optional: false, whole: false, trim: |_| {} }
    }

    /// The objects of one namespace.
    pub fn namespaced(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::cluster() }
    }

    /// Only objects that this label selector takes.
    pub fn labels(mut self, selector: String) -> Self {
        self.labels = Some(selector);
        self
    }

    /// Only objects that this field selector takes.
    pub fn fields(mut self, selector: String) -> Self {
        self.fields = Some(selector);
        self
    }

    /// A kind that may be forbidden or unknown: then it counts as empty, with one line in the log.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Keeps objects as they are, for a kind that is written back as a whole and whose writers matter. Otherwise
    /// managed fields and the copy that `kubectl apply` leaves are dropped.
    pub fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Drops what is not used before an object is kept.
    pub fn trim(mut self, trim: fn(&mut K)) -> Self {
        self.trim = trim;
        self
    }

    /// Watches until `take` says `false`. `take` gets the deliveries in order; it may wait, and then the
    /// watch waits with it.
    pub async fn run<T, F>(self, client: Client, reach: Reach, mut take: T)
    where
        T: FnMut(Delivery<K>) -> F,
        F: Future<Output = bool>,
    {
        let mut cursor = Cursor::new(self);
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        loop {
            let (start, ended) = (Instant::now(), reach.ended());
            cursor.connected = false;
            let came_to = match cursor.version.clone() {
                None => match cursor.list(&client, &reach, &mut take).await {
                    // Only a watch that lasts shows that all is well.
                    Ok(()) => continue,
                    Err(stop) => Err(stop),
                },
                Some(version) => cursor.watch(&client, &version, &reach, &mut take).await,
            };
            let lasted = cursor.connected && start.elapsed() >= SHORT_WATCH;
            if lasted {
                backoff.reset();
            }
            match came_to {
                Ok(()) if lasted => {}
                // A server that ends each watch at once must not be asked without a pause.
                Ok(()) => tokio::time::sleep(backoff.wait()).await,
                Err(Stop::Closed) => return,
                Err(Stop::Expired) => {
                    cursor.version = None;
                    tokio::time::sleep(backoff.wait()).await;
                }
                Err(Stop::Failed(error)) => {
                    let longest = cursor.failed(&error, backoff.failures(), &reach);
                    if cursor.counts_as_empty(&error)
                        && deliver(&mut take, Change::Reset(Vec::new())).await.is_err()
                    {
                        return;
                    }
                    backoff.cap_at(longest);
                    if error.code == 0 && reach.ended() != ended {
                        // It failed of what is over.
                        backoff.reset();
                    }
                    // When another watch gets through, there is no point in waiting on.
                    tokio::select! {
                        () = tokio::time::sleep(backoff.wait()) => {}
                        () = reach.heard(), if error.code == 0 => {}
                    }
                }
            }
        }
    }
}

/// Why a list or a watch ended.
enum Stop {
    /// Nobody listens any more.
    Closed,
    /// The server no longer knows the version we are at.
    Expired,
    /// It did not work.
    Failed(RequestError),
}

impl From<RequestError> for Stop {
    fn from(error: RequestError) -> Self {
        if error.code == 410 { Self::Expired } else { Self::Failed(error) }
    }
}

/// Where one watch stands.
struct Cursor<K> {
    settings: Watch<K>,
    /// Resource version to go on from; `None` asks for a list.
    version: Option<String>,
    /// What the receiver knows of, by namespace and name.
    known: BTreeSet<(String, String)>,
    /// What cannot be decoded, and why.
    doubtful: BTreeMap<(String, String), String>,
    /// Whether the first list has been delivered.
    listed: bool,
    /// Whether the present watch was granted.
    connected: bool,
    /// The last complaint, so that it is made once.
    complaint: Option<(u16, String)>,
}

impl<K> Cursor<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Debug + Send + 'static,
{
    fn new(settings: Watch<K>) -> Self {
        Self {
            settings,
            version: None,
            known: BTreeSet::new(),
            doubtful: BTreeMap::new(),
            listed: false,
            connected: false,
            complaint: None,
        }
    }

    async fn list<T, F>(&mut self, client: &Client, reach: &Reach, take: &mut T) -> Result<(), Stop>
    where
        T: FnMut(Delivery<K>) -> F,
        F: Future<Output = bool>,
    {
        let mut objects = Vec::new();
        let mut doubtful = BTreeMap::new();
        let mut next: Option<String> = None;
        let version = loop {
            let mut query = self.query();
            query.push_str(&format!("limit={PAGE}"));
            if let Some(token) = &next {
                query.push_str(&format!("&continue={}", escape(token)));
            }
            let path = self.path(&query);
            let page = reach.unless_older(send(client, Method::GET, &path, None, PAGE_LIMIT));
            let bytes = page.await.ok_or_else(RequestError::older_than_an_outage)??;
            let page: Page<K> = serde_json::from_slice(&bytes)
                .map_err(|error| RequestError::no_answer(format!("the list cannot be read: {error}")))?;
            for item in page.items.unwrap_or_default() {
                match item {
                    Item::Good(mut object) => {
                        self.trim(&mut object);
                        objects.push(*object);
                    }
                    Item::Bad { namespace, name, error } => {
                        doubtful.insert((namespace, name), error);
                    }
                }
            }
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                break page.metadata.version;
            }
        };
        self.recovered();
        reach.answered();
        self.deliver_doubtful(doubtful, take).await?;
        let present: BTreeSet<(String, String)> = objects.iter().map(key).collect();
        let kept: Vec<(String, String)> =
            self.known.iter().filter(|key| self.doubtful.contains_key(*key)).cloned().collect();
        if self.listed && !kept.is_empty() {
            // A list that lacks objects that exist must not pass for the whole truth: say the difference.
            for key in self.known.difference(&present).filter(|key| !self.doubtful.contains_key(*key)) {
                let (namespace, name) = key.clone();
                deliver(take, Change::Deleted { namespace, name }).await?;
            }
            for object in objects {
                deliver(take, Change::Applied(Box::new(object))).await?;
            }
        } else {
            deliver(take, Change::Reset(objects)).await?;
        }
        self.known = present;
        self.known.extend(kept);
        self.listed = true;
        // A server that sends no version is asked again later.
        self.version = Some(version.unwrap_or_default());
        Ok(())
    }

    async fn watch<T, F>(
        &mut self,
        client: &Client,
        version: &str,
        reach: &Reach,
        take: &mut T,
    ) -> Result<(), Stop>
    where
        T: FnMut(Delivery<K>) -> F,
        F: Future<Output = bool>,
    {
        let time = between(WATCH_TIME.0, WATCH_TIME.1);
        let query = format!(
            "{}watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            self.query(),
            time.as_secs(),
            escape(version)
        );
        let request = Request::builder()
            .uri(self.path(&query))
            .header(ACCEPT, "application/json")
            .body(Body::empty())
            .map_err(|error| RequestError::no_answer(error.to_string()))?;
        let end = Instant::now() + time + GRACE;
        let late = |_| RequestError::no_answer("the watch went silent".to_owned());
        let broken = |error: kube::Error| RequestError::no_answer(failure(&error));
        let granted = reach.unless_older(timeout_at(end, client.send(request))).await;
        let response =
            granted.ok_or_else(RequestError::older_than_an_outage)?.map_err(late)?.map_err(broken)?;
        let code = response.status();
        let mut body = response.into_body();
        if !code.is_success() {
            let bytes = timeout_at(end, body.collect()).await.map_err(late)?.map_err(broken)?.to_bytes();
            return Err(RequestError::from_answer(code.as_u16(), &bytes).into());
        }
        self.connected = true;
        self.recovered();
        let mut heard = Instant::now();
        reach.answered();
        let mut buffer = BytesMut::new();
        let mut searched = 0;
        loop {
            let frame = tokio::select! {
                frame = timeout_at(end, body.frame()) => frame.map_err(late)?,
                () = reach.renewed(heard) => return Err(RequestError::older_than_an_outage().into()),
            };
            let Some(frame) = frame else { return Ok(()) };
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            heard = Instant::now();
            reach.alive();
            buffer.extend_from_slice(&data);
            while let Some(at) = buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(searched + at + 1);
                searched = 0;
                if !line.trim_ascii().is_empty() {
                    self.event(&line, take).await?;
                }
            }
            searched = buffer.len();
            if buffer.is_empty() {
                // A large object must not keep its buffer for the rest of the watch.
                buffer = BytesMut::new();
            }
        }
    }

    async fn event<T, F>(&mut self, line: &[u8], take: &mut T) -> Result<(), Stop>
    where
        T: FnMut(Delivery<K>) -> F,
        F: Future<Output = bool>,
    {
        let event: Event = serde_json::from_slice(line)
            .map_err(|error| RequestError::no_answer(format!("the watch cannot be read: {error}")))?;
        if event.what == "ERROR" {
            let code =
                event.object.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
            let body = serde_json::to_vec(&event.object).unwrap_or_default();
            return Err(RequestError::from_answer(code.unwrap_or(500), &body).into());
        }
        let version = event.object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        match event.what.as_str() {
            "ADDED" | "MODIFIED" => match Item::<K>::from_value(event.object) {
                Item::Good(mut object) => {
                    self.trim(&mut object);
                    let key = key(object.as_ref());
                    self.clear_doubt(&key, take).await?;
                    self.known.insert(key);
                    deliver(take, Change::Applied(object)).await?;
                }
                Item::Bad { namespace, name, error } => {
                    let mut doubtful = self.doubtful.clone();
                    doubtful.insert((namespace, name), error);
                    self.deliver_doubtful(doubtful, take).await?;
                }
            },
            "DELETED" => {
                let key = identity(&event.object);
                self.clear_doubt(&key, take).await?;
                self.known.remove(&key);
                let (namespace, name) = key;
                deliver(take, Change::Deleted { namespace, name }).await?;
            }
            // Bookmarks only move the version on; so does what a later server may invent.
            _ => {}
        }
        if version.is_some() {
            self.version = version;
        }
        Ok(())
    }

    fn trim(&self, object: &mut K) {
        let meta = object.meta_mut();
        if !self.settings.whole {
            meta.managed_fields = None;
            if let Some(annotations) = &mut meta.annotations {
                annotations.remove(LAST_APPLIED);
            }
        }
        (self.settings.trim)(object);
    }

    fn path(&self, query: &str) -> String {
        format!("{}?{query}", K::url_path(&(), self.settings.namespace.as_deref()))
    }

    fn query(&self) -> String {
        let mut query = String::new();
        if let Some(selector) = &self.settings.labels {
            query.push_str(&format!("labelSelector={}&", escape(selector)));
        }
        if let Some(selector) = &self.settings.fields {
            query.push_str(&format!("fieldSelector={}&", escape(selector)));
        }
        query
    }

    fn counts_as_empty(&mut self, error: &RequestError) -> bool {
        let empty = self.settings.optional && !self.listed && matches!(error.code, 403 | 404);
        self.listed |= empty;
        empty
    }

    /// Says once what is wrong; gives the longest wait that fits it.
    fn failed(&mut self, error: &RequestError, failures: u32, reach: &Reach) -> Duration {
        if error.code == 0 {
            // A watch that broke is tried again at once; only what lasts is worth a line.
            if failures > 0 {
                reach.lost(&error.message);
            }
            return LONGEST_WAIT;
        }
        let resource = K::plural(&()).into_owned();
        let complaint = (error.code, error.reason.clone());
        if self.complaint.as_ref() != Some(&complaint) {
            self.complaint = Some(complaint);
            let error_text = error.message.as_str();
            match error.code {
                403 | 404 if self.settings.optional => tracing::info!(
                    op = "watch",
                    resource,
                    error = error_text,
                    "cannot be read, taken as empty"
                ),
                404 => tracing::warn!(
                    op = "watch",
                    resource,
                    error = error_text,
                    "the kind is not served yet, waiting for its CustomResourceDefinition"
                ),
                _ => tracing::warn!(op = "watch", resource, error = error_text, "watch failed, retrying"),
            }
        }
        match error.code {
            403 => FORBIDDEN_WAIT,
            404 if self.settings.optional => FORBIDDEN_WAIT,
            404 | 429 => UNKNOWN_KIND_WAIT,
            _ => LONGEST_WAIT,
        }
    }

    fn recovered(&mut self) {
        if self.complaint.take().is_some() {
            tracing::info!(op = "watch", resource = %K::plural(&()), "watch works again");
        }
    }

    async fn clear_doubt<T, F>(&mut self, key: &(String, String), take: &mut T) -> Result<(), Stop>
    where
        T: FnMut(Delivery<K>) -> F,
        F: Future<Output = bool>,
    {
        if !self.doubtful.contains_key(key) {
            return Ok(());
        }
        let mut doubtful = self.doubtful.clone();
        doubtful.remove(key);
        self.deliver_doubtful(doubtful, take).await
    }

    /// Replaces what cannot be decoded; says so where it changed.
    async fn deliver_doubtful<T, F>(
        &mut self,
        doubtful: BTreeMap<(String, String), String>,
        take: &mut T,
    ) -> Result<(), Stop>
    where
        T: FnMut(Delivery<K>) -> F,
        F: Future<Output = bool>,
    {
        if doubtful == self.doubtful {
            return Ok(());
        }
        for ((namespace, name), error) in &doubtful {
            if self.doubtful.get(&(namespace.clone(), name.clone())) != Some(error) {
                tracing::error!(
                    op = "watch", kind = %K::kind(&()), namespace, name, error,
                    "the object cannot be decoded, what was known of it stays"
                );
            }
        }
        self.doubtful = doubtful;
        let all = self.doubtful.iter().map(|((namespace, name), error)| Undecodable {
            namespace: namespace.clone(),
            name: name.clone(),
            error: error.clone(),
        });
        open(take(Delivery::Undecodable(all.collect())).await)
    }
}

fn open(listening: bool) -> Result<(), Stop> {
    if listening { Ok(()) } else { Err(Stop::Closed) }
}

async fn deliver<K, T, F>(take: &mut T, change: Change<K>) -> Result<(), Stop>
where
    T: FnMut(Delivery<K>) -> F,
    F: Future<Output = bool>,
{
    open(take(Delivery::Change(change)).await)
}

fn key<K: Resource<DynamicType = ()>>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn identity(object: &Value) -> (String, String) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

#[derive(Deserialize)]
#[serde(bound = "K: DeserializeOwned")]
struct Page<K> {
    #[serde(default)]
    metadata: PageMeta,
    /// `null` is what Go writes for an empty list.
    #[serde(default = "no_items")]
    items: Option<Vec<Item<K>>>,
}

fn no_items<K>() -> Option<Vec<Item<K>>> {
    None
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "resourceVersion")]
    version: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    what: String,
    #[serde(default)]
    object: Value,
}

/// One object of a list, decoded by itself.
enum Item<K> {
    Good(Box<K>),
    Bad { namespace: String, name: String, error: String },
}

impl<K: DeserializeOwned> Item<K> {
    fn from_value(value: Value) -> Self {
        let (namespace, name) = identity(&value);
        match serde_json::from_value(value) {
            Ok(object) => Self::Good(Box::new(object)),
            Err(error) => Self::Bad { namespace, name, error: error.to_string() },
        }
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Item<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from_value)
    }
}

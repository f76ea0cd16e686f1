// SPDX-License-Identifier: Apache-2.0
//! Sending the writes that a core asks for.
//!
//! Writes to one object go out one after the other, in order; different objects do not wait for each other,
//! except that no more than [`IN_FLIGHT`] requests are open at once, and fewer at the beginning of a burst: each is a
//! connection, and a new one costs both sides more than several writes. A slow API server fills this queue and
//! nothing else: watches, decisions and the network go on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ferrolb_api::request::{ApiRequest, Resource, WriteError, WriteResult};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::Method;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::reach::Reach;
use crate::request::{RequestError, send_json};

/// Requests that may be open at once.
pub const IN_FLIGHT: usize = 16;
/// Requests that may be open at once at the beginning of a burst …
const FIRST: usize = 2;
/// … and the time after which one more may be, while something waits.
const GROWTH: Duration = Duration::from_millis(5);
/// After so long without a write connections are closed soon, and a burst begins anew.
const REST: Duration = Duration::from_secs(60);
/// How long one write may take before it counts as unanswered.
const LIMIT: Duration = Duration::from_secs(15);

/// The way in. Clones lead to the same queue.
#[derive(Debug)]
pub struct Writer<Id> {
    queue: mpsc::UnboundedSender<(Id, ApiRequest)>,
    idle: Arc<watch::Sender<bool>>,
}

impl<Id> Clone for Writer<Id> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), idle: Arc::clone(&self.idle) }
    }
}

impl<Id: Send + 'static> Writer<Id> {
    /// Starts a task that sends what is given to [`Writer::send`]; each result goes to `done`, which must not
    /// block. The task ends with the last handle.
    pub fn start<D>(client: Client, reach: Reach, done: D) -> Self
    where
        D: FnMut(Id, WriteResult) + Send + 'static,
    {
        let (queue, requests) = mpsc::unbounded_channel();
        let idle = Arc::new(watch::Sender::new(true));
        tokio::spawn(run(client, reach, requests, Arc::clone(&idle), done));
        Self { queue, idle }
    }

    /// Queues a write. The queue has no bound of its own: a core has at most one write per object under way.
    pub fn send(&self, id: Id, request: ApiRequest) {
        self.idle.send_if_modified(|idle| std::mem::replace(idle, false));
        // The task ends only when all handles are gone.
        let _ = self.queue.send((id, request));
    }

    /// Whether every write that was queued has ended, at any time from now on.
    pub fn idle(&self) -> watch::Receiver<bool> {
        self.idle.subscribe()
    }
}

/// What a write must not overtake: another one to the same object. Creations have no name to wait for.
type Target = (Resource, Option<String>, String);

struct Lines<Id> {
    /// Objects with a request under way, and what waits behind it.
    busy: BTreeMap<Target, VecDeque<(Id, ApiRequest)>>,
    /// What may go as soon as there is room.
    ready: VecDeque<(Id, ApiRequest)>,
}

impl<Id> Lines<Id> {
    fn new() -> Self {
        Self { busy: BTreeMap::new(), ready: VecDeque::new() }
    }

    fn add(&mut self, id: Id, request: ApiRequest) {
        if let Some(target) = target(&request) {
            if let Some(line) = self.busy.get_mut(&target) {
                line.push_back((id, request));
                return;
            }
            self.busy.insert(target, VecDeque::new());
        }
        self.ready.push_back((id, request));
    }

    fn finished(&mut self, target: Option<Target>) {
        let Some(target) = target else { return };
        match self.busy.get_mut(&target).and_then(VecDeque::pop_front) {
            Some(next) => self.ready.push_back(next),
            None => {
                self.busy.remove(&target);
            }
        }
    }
}

fn target(request: &ApiRequest) -> Option<Target> {
    let name = request.name.clone().or_else(|| {
        let name = request.body.as_ref()?.pointer("/metadata/name")?.as_str()?;
        Some(name.to_owned())
    })?;
    Some((request.resource, request.namespace.clone(), name))
}

/// How many requests may be open at once.
#[derive(Debug)]
struct Room {
    size: usize,
    /// When there may be one more; `None` while nothing waits.
    grows: Option<Instant>,
    used: Instant,
}

impl Room {
    fn new(now: Instant) -> Self {
        Self { size: FIRST, grows: None, used: now }
    }

    /// How many may be open now, given that something arrived or ended.
    fn now(&mut self, now: Instant) -> usize {
        if now.saturating_duration_since(self.used) > REST {
            self.size = FIRST;
        }
        self.used = now;
        self.size
    }

    /// Takes note of whether something waits that there is no room for; gives the time at which there may be more.
    fn waiting(&mut self, now: Instant, waits: bool) -> Option<Instant> {
        self.grows = (waits && self.size < IN_FLIGHT).then(|| self.grows.unwrap_or(now + GROWTH));
        self.grows
    }

    /// That time has come.
    fn grow(&mut self) {
        self.size = (self.size + 1).min(IN_FLIGHT);
        self.grows = None;
    }
}

async fn run<Id, D>(
    client: Client,
    reach: Reach,
    mut requests: mpsc::UnboundedReceiver<(Id, ApiRequest)>,
    idle: Arc<watch::Sender<bool>>,
    mut done: D,
) where
    Id: Send + 'static,
    D: FnMut(Id, WriteResult) + Send + 'static,
{
    let mut lines = Lines::new();
    let mut open = FuturesUnordered::new();
    let mut listening = true;
    let mut complained = BTreeSet::new();
    let mut room = Room::new(Instant::now());
    while listening || !open.is_empty() {
        if open.is_empty() && lines.ready.is_empty() && requests.is_empty() {
            idle.send_if_modified(|idle| !std::mem::replace(idle, true));
        }
        while !lines.ready.is_empty()
            && open.len() < room.now(Instant::now())
            && let Some((id, request)) = lines.ready.pop_front()
        {
            let (client, reach) = (client.clone(), reach.clone());
            open.push(async move {
                let result = reach.unless_older(execute(&client, &request)).await;
                (id, request, result.unwrap_or_else(|| Err(RequestError::older_than_an_outage())))
            });
        }
        let more = room.waiting(Instant::now(), !lines.ready.is_empty());
        tokio::select! {
            () = tokio::time::sleep_until(more.unwrap_or_else(Instant::now)), if more.is_some() => room.grow(),
            arrived = requests.recv(), if listening => match arrived {
                Some((id, request)) => lines.add(id, request),
                None => listening = false,
            },
            Some((id, request, result)) = open.next(), if !open.is_empty() => {
                lines.finished(target(&request));
                note(&request, &result, &mut complained, &reach);
                done(id, result.map_err(WriteError::from));
            }
        }
    }
}

/// Logs a failure once per kind of object and status, until a write of that kind goes well.
fn note(
    request: &ApiRequest,
    result: &Result<serde_json::Value, RequestError>,
    complained: &mut BTreeSet<(Resource, u16)>,
    reach: &Reach,
) {
    match result {
        Ok(_) => {
            complained.retain(|(resource, _)| *resource != request.resource);
            reach.answered();
        }
        // Somebody else was faster, or the object is gone: part of the day's work.
        Err(error) if matches!(error.code, 404 | 409) => tracing::debug!(
            op = "write",
            method = request.method(),
            resource = request.resource.plural(),
            name = request.name.as_deref().unwrap_or_default(),
            error = error.message.as_str(),
            "write refused"
        ),
        Err(error) if error.code == 0 => reach.lost(&error.message),
        Err(error) => {
            if complained.insert((request.resource, error.code)) {
                tracing::warn!(
                    op = "write",
                    method = request.method(),
                    resource = request.resource.plural(),
                    namespace = request.namespace.as_deref().unwrap_or_default(),
                    name = request.name.as_deref().unwrap_or_default(),
                    code = error.code,
                    error = error.message.as_str(),
                    "write failed, retrying"
                );
            }
        }
    }
}

async fn execute(client: &Client, request: &ApiRequest) -> Result<serde_json::Value, RequestError> {
    let method = Method::from_bytes(request.method().as_bytes())
        .map_err(|error| RequestError::no_answer(error.to_string()))?;
    let body = request.wire_body();
    let body = body.as_ref().map(|value| (request.content_type(), value));
    send_json(client, method, &request.path_and_query(), body, LIMIT).await
}

#[cfg(test)]
mod tests {
    use ferrolb_api::request::Verb;
    use serde_json::json;

    use super::*;

    fn put(name: &str) -> ApiRequest {
        ApiRequest::status(Verb::Put, Resource::Services, "demo", name, json!({}))
    }

    #[test]
    fn writes_to_one_object_wait_for_each_other_and_others_pass() {
        let mut lines = Lines::new();
        for (id, name) in [(1, "a"), (2, "a"), (3, "b"), (4, "a")] {
            lines.add(id, put(name));
        }
        let ready = |lines: &mut Lines<i32>| lines.ready.drain(..).map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ready(&mut lines), [1, 3]);
        lines.finished(target(&put("a")));
        assert_eq!(ready(&mut lines), [2]);
        lines.finished(target(&put("b")));
        lines.finished(target(&put("a")));
        assert_eq!(ready(&mut lines), [4]);
        lines.finished(target(&put("a")));
        assert!(lines.busy.is_empty());
    }

    #[test]
    fn a_burst_opens_connections_one_by_one_and_a_later_one_uses_them() {
        let start = Instant::now();
        let mut room = Room::new(start);
        assert_eq!(room.now(start), FIRST);
        assert_eq!(room.waiting(start, false), None);
        let due = room.waiting(start, true);
        assert_eq!(due, Some(start + GROWTH));
        assert_eq!(room.waiting(start + GROWTH / 2, true), due, "waiting on does not put it off");
        room.grow();
        assert_eq!(room.now(start + GROWTH), FIRST + 1);
        for _ in 0..100 {
            room.grow();
        }
        assert_eq!(room.now(start + GROWTH), IN_FLIGHT);
        assert_eq!(room.waiting(start + GROWTH, true), None, "there is never more");
        assert_eq!(room.now(start + REST), IN_FLIGHT);
        assert_eq!(room.now(start + REST + REST + GROWTH), FIRST);
    }

    #[test]
    fn creations_with_generated_names_do_not_wait() {
        let mut lines = Lines::new();
        let create = || {
            ApiRequest::create(
                Resource::ServiceL2Statuses,
                "ns",
                json!({"metadata": {"generateName": "l2-"}}),
            )
        };
        lines.add(1, create());
        lines.add(2, create());
        assert_eq!(lines.ready.len(), 2);
    }

    #[test]
    fn a_creation_with_a_name_goes_before_the_patch_of_that_object() {
        let mut lines = Lines::new();
        let body = json!({"metadata": {"name": "controller"}});
        lines.add(1, ApiRequest::create(Resource::ConfigurationStates, "ns", body));
        let patch = Verb::MergePatch { manager: None };
        lines.add(2, ApiRequest::status(patch, Resource::ConfigurationStates, "ns", "controller", json!({})));
        assert_eq!(lines.ready.len(), 1);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Recording core/v1 Events, the way Kubernetes' own recorder does it.
//!
//! The first of its kind is created; the same again is a patch that counts. An object that has had many in a
//! short time gets no more for a while. Events are a courtesy: the queue is bounded, what does not fit is
//! dropped, and nothing waits for it; and while what they tell of is being written they give way to that.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ferrolb_api::event::{Event, ObjectRef};
use http::Method;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::request::{RequestError, send_json};

/// Events that may wait.
const QUEUE: usize = 1024;
/// Events whose counts are remembered.
const REMEMBERED: usize = 4096;
/// Events that one object may have at once …
const BURST: f64 = 25.0;
/// … and the time after which it may have one more.
const REFILL: Duration = Duration::from_secs(10);
/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long events give way to writes, in one go.
const GIVE_WAY: Duration = Duration::from_millis(500);
/// Tries before an event is given up.
const TRIES: u32 = 5;

/// The way in. Clones lead to the same queue.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Event>,
}

impl Recorder {
    /// Starts a task that sends events in the name of `component` (`metallb-controller`, `metallb-speaker`).
    pub fn start(client: Client, component: &'static str) -> Self {
        Self::behind(watch::Sender::new(true).subscribe(), client, component)
    }

    /// The same, behind the writes of a [`Writer`](crate::writes::Writer) that tells when it is idle: in a burst, what
    /// the events tell of goes first, for half a second at most.
    pub fn behind(writes_idle: watch::Receiver<bool>, client: Client, component: &'static str) -> Self {
        let (queue, events) = mpsc::channel(QUEUE);
        tokio::spawn(run(client, component, events, Way::new(writes_idle)));
        Self { queue }
    }

    /// Queues an event, or drops it when too many wait.
    pub fn record(&self, event: Event) {
        if let Err(mpsc::error::TrySendError::Full(event)) = self.queue.try_send(event) {
            tracing::debug!(op = "recordEvent", reason = event.reason, "event dropped, too many wait");
        }
    }
}

/// Who goes first.
struct Way {
    writes_idle: watch::Receiver<bool>,
    /// Since the writes began that are going on, they are given way to until then.
    until: Option<Instant>,
}

impl Way {
    const fn new(writes_idle: watch::Receiver<bool>) -> Self {
        Self { writes_idle, until: None }
    }

    /// Waits until no write is under way, or there is no more time for that.
    async fn give(&mut self) {
        if *self.writes_idle.borrow() {
            self.until = None;
            return;
        }
        let until = *self.until.get_or_insert_with(|| Instant::now() + GIVE_WAY);
        // The writer may be gone, or the time over: either way it is the event's turn.
        let _ = tokio::time::timeout_at(until, self.writes_idle.wait_for(|idle| *idle)).await;
    }
}

async fn run(client: Client, component: &'static str, mut events: mpsc::Receiver<Event>, mut way: Way) {
    let mut memory = Memory::new(component);
    let mut failing = false;
    while let Some(event) = events.recv().await {
        if events.len() < QUEUE / 2 {
            way.give().await;
        }
        let Some(form) = memory.next(&event, Instant::now(), Timestamp::now()) else {
            tracing::debug!(
                op = "recordEvent",
                reason = event.reason,
                name = event.regarding.name.as_str(),
                "event dropped, the object has had too many"
            );
            continue;
        };
        match deliver(&client, &mut memory, &event, form).await {
            Ok(()) => failing = false,
            Err(error) => {
                memory.forget(&event);
                if !failing {
                    failing = true;
                    tracing::warn!(
                        op = "recordEvent",
                        reason = event.reason,
                        error = error.message.as_str(),
                        "event cannot be recorded"
                    );
                }
            }
        }
    }
}

/// Sends one event; repeats while the server does not answer or is in trouble.
async fn deliver(
    client: &Client,
    memory: &mut Memory,
    event: &Event,
    mut form: Form,
) -> Result<(), RequestError> {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
    loop {
        let path = format!("/api/v1/namespaces/{}/events", namespace(event));
        let result = match &form {
            Form::Create(body) => {
                send_json(client, Method::POST, &path, Some(("application/json", body)), LIMIT).await
            }
            Form::Patch { name, body } => {
                let body = Some(("application/strategic-merge-patch+json", body));
                send_json(client, Method::PATCH, &format!("{path}/{name}"), body, LIMIT).await
            }
        };
        match result {
            Ok(_) => return Ok(()),
            // The first answer got lost on the way: it is there.
            Err(error) if error.code == 409 && matches!(form, Form::Create(_)) => return Ok(()),
            // It has expired: events live an hour.
            Err(error) if error.code == 404 && matches!(form, Form::Patch { .. }) => {
                memory.forget(event);
                form = memory.create(event, Timestamp::now());
            }
            Err(error) => {
                let passing = error.code == 0 || error.code == 429 || error.code >= 500;
                if !passing || backoff.failures() + 1 >= TRIES {
                    return Err(error);
                }
                tokio::time::sleep(backoff.wait()).await;
            }
        }
    }
}

/// Events live in the namespace of their object; those of cluster-scoped objects in `default`.
fn namespace(event: &Event) -> &str {
    if event.regarding.namespace.is_empty() { "default" } else { &event.regarding.namespace }
}

/// A request for one event.
#[derive(Debug, PartialEq)]
enum Form {
    Create(Value),
    Patch { name: String, body: Value },
}

/// What has been sent, and how often.
struct Memory {
    component: &'static str,
    sent: BTreeMap<Event, Sent>,
    /// Keys of `sent`, oldest first.
    order: VecDeque<Event>,
    /// Tokens left per object, and when that was.
    buckets: BTreeMap<(String, String, String), (f64, Instant)>,
}

struct Sent {
    name: String,
    count: u64,
}

impl Memory {
    fn new(component: &'static str) -> Self {
        Self { component, sent: BTreeMap::new(), order: VecDeque::new(), buckets: BTreeMap::new() }
    }

    fn next(&mut self, event: &Event, now: Instant, wall: Timestamp) -> Option<Form> {
        if !self.take_token(&event.regarding, now) {
            return None;
        }
        match self.sent.get_mut(&identity(event)) {
            Some(sent) => {
                sent.count += 1;
                let body = json!({
                    "count": sent.count,
                    "lastTimestamp": seconds(wall),
                    "message": event.message,
                });
                Some(Form::Patch { name: sent.name.clone(), body })
            }
            None => Some(self.create(event, wall)),
        }
    }

    fn create(&mut self, event: &Event, wall: Timestamp) -> Form {
        let about = &event.regarding;
        let name = format!("{}.{:x}", about.name, wall.as_nanosecond());
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace(event)},
            "involvedObject": involved(about),
            "reason": event.reason,
            "message": event.message,
            "source": {"component": self.component},
            "firstTimestamp": seconds(wall),
            "lastTimestamp": seconds(wall),
            "count": 1,
            "type": event.kind.as_str(),
            "eventTime": null,
            "reportingComponent": self.component,
            "reportingInstance": "",
        });
        let key = identity(event);
        if self.sent.insert(key.clone(), Sent { name, count: 1 }).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.sent.remove(&oldest);
            }
        }
        Form::Create(body)
    }

    fn forget(&mut self, event: &Event) {
        let key = identity(event);
        if self.sent.remove(&key).is_some() {
            self.order.retain(|other| *other != key);
        }
    }

    fn take_token(&mut self, about: &ObjectRef, now: Instant) -> bool {
        let full = |(tokens, at): (f64, Instant)| {
            (tokens + now.duration_since(at).as_secs_f64() / REFILL.as_secs_f64()).min(BURST)
        };
        if self.buckets.len() > REMEMBERED {
            self.buckets.retain(|_, bucket| full(*bucket) < BURST);
        }
        let key = (about.kind.clone(), about.namespace.clone(), about.name.clone());
        let tokens = self.buckets.get(&key).map_or(BURST, |bucket| full(*bucket));
        let granted = tokens >= 1.0;
        self.buckets.insert(key, (if granted { tokens - 1.0 } else { tokens }, now));
        granted
    }
}

/// Two events are the same when object, type, reason and text are; the object's version does not count.
fn identity(event: &Event) -> Event {
    let mut key = event.clone();
    key.regarding.resource_version.clear();
    key
}

fn involved(about: &ObjectRef) -> Value {
    let fields = [
        ("apiVersion", &about.api_version),
        ("kind", &about.kind),
        ("namespace", &about.namespace),
        ("name", &about.name),
        ("uid", &about.uid),
        ("resourceVersion", &about.resource_version),
    ];
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), Value::String(value.clone())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// `metav1.Time`: whole seconds.
fn seconds(wall: Timestamp) -> String {
    wall.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use ferrolb_api::event::EventKind;

    use super::*;

    fn event(name: &str, message: &str) -> Event {
        Event {
            regarding: ObjectRef {
                api_version: "v1".into(),
                kind: "Service".into(),
                namespace: "demo".into(),
                name: name.into(),
                uid: "u-1".into(),
                resource_version: "7".into(),
            },
            kind: EventKind::Normal,
            reason: "nodeAssigned",
            message: message.into(),
        }
    }

    fn wall() -> Timestamp {
        "2026-01-02T03:04:05.5Z".parse().unwrap()
    }

    #[tokio::test]
    async fn the_first_is_created_as_the_recorder_of_kubernetes_does() {
        let mut memory = Memory::new("metallb-speaker");
        let form = memory.next(&event("web", "announcing"), Instant::now(), wall()).unwrap();
        let Form::Create(body) = form else { panic!("{form:?}") };
        let hex = format!("{:x}", wall().as_nanosecond());
        assert_eq!(
            body,
            json!({
                "apiVersion": "v1", "kind": "Event",
                "metadata": {"name": format!("web.{hex}"), "namespace": "demo"},
                "involvedObject": {"apiVersion": "v1", "kind": "Service", "namespace": "demo", "name": "web",
                    "uid": "u-1", "resourceVersion": "7"},
                "reason": "nodeAssigned", "message": "announcing", "type": "Normal", "count": 1,
                "source": {"component": "metallb-speaker"}, "reportingComponent": "metallb-speaker",
                "reportingInstance": "", "eventTime": null,
                "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
            })
        );
    }

    #[tokio::test]
    async fn a_repeat_is_counted_though_the_object_has_a_new_version() {
        let mut memory = Memory::new("metallb-speaker");
        let now = Instant::now();
        let mut again = event("web", "announcing");
        memory.next(&again, now, wall());
        again.regarding.resource_version = "8".into();
        let form = memory.next(&again, now, wall()).unwrap();
        let Form::Patch { body, .. } = form else { panic!("{form:?}") };
        assert_eq!(
            body,
            json!({"count": 2, "lastTimestamp": "2026-01-02T03:04:05Z", "message": "announcing"})
        );
        let other = memory.next(&event("web", "something else"), now, wall()).unwrap();
        assert!(matches!(other, Form::Create(_)));
    }

    #[tokio::test]
    async fn an_object_with_too_many_events_waits_and_others_do_not() {
        let mut memory = Memory::new("metallb-speaker");
        let now = Instant::now();
        let granted = (0..40).filter(|_| memory.next(&event("web", "x"), now, wall()).is_some()).count();
        assert_eq!(granted, 25);
        assert!(memory.next(&event("other", "x"), now, wall()).is_some());
        assert!(memory.next(&event("web", "x"), now + REFILL, wall()).is_some());
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let mut memory = Memory::new("metallb-speaker");
        let now = Instant::now();
        for n in 0..REMEMBERED + 100 {
            memory.next(&event(&format!("s{n}"), "x"), now, wall());
        }
        assert_eq!(memory.sent.len(), REMEMBERED);
        assert_eq!(memory.order.len(), REMEMBERED);
    }

    #[tokio::test(start_paused = true)]
    async fn events_give_way_to_writes_for_a_while_and_then_take_their_turn() {
        let idle = watch::Sender::new(true);
        let mut way = Way::new(idle.subscribe());
        let mut waits = async || {
            let start = Instant::now();
            way.give().await;
            start.elapsed()
        };
        assert_eq!(waits().await, Duration::ZERO);
        idle.send_replace(false);
        assert_eq!(waits().await, GIVE_WAY);
        assert_eq!(waits().await, Duration::ZERO, "in one go");
        idle.send_replace(true);
        assert_eq!(waits().await, Duration::ZERO);
        // It is over before that.
        idle.send_replace(false);
        let over = async {
            tokio::time::sleep(GIVE_WAY / 10).await;
            idle.send_replace(true);
        };
        assert_eq!(tokio::join!(waits(), over).0, GIVE_WAY / 10);
        idle.send_replace(false);
        drop(idle);
        assert_eq!(waits().await, Duration::ZERO, "there is nobody to give way to");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Recording core/v1 Events, the way Kubernetes' own recorder does it.
//!
//! The first of its kind is created; the same again is a patch that counts. An object that has had many in a
//! short time gets no more for a while. Events are a courtesy: the queue is bounded, what does not fit is
//! dropped, and nothing waits for it; and while what they tell of is being written they give way to that.
//! While the server does not answer, the newest of each object and reason is kept, with the time at which it happened.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
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
/// Tries in a row that fail before that is said.
const TRIES: u32 = 5;
/// Events that are kept while none can be sent.
const KEPT: usize = 4096;
/// The pause after a try that failed: the first, which doubles, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

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

/// An event that is to be sent.
#[derive(Clone, Debug)]
struct Pending {
    event: Event,
    happened: Timestamp,
    /// It was counted among those that its object may have.
    admitted: bool,
}

/// What is to be sent, the oldest first.
#[derive(Debug, Default)]
struct Line {
    pending: VecDeque<Pending>,
}

impl Line {
    /// Adds one that has happened just now.
    fn add(&mut self, event: Event, happened: Timestamp) {
        self.pending.push_back(Pending { event, happened, admitted: false });
        if self.pending.len() > KEPT {
            self.pending.pop_front();
        }
    }

    /// Adds one that takes the place of what was said before, for the same reason, of the same object.
    fn replace(&mut self, event: Event, happened: Timestamp) {
        self.pending.retain(|former| !about_the_same(&former.event, &event));
        self.add(event, happened);
    }
}

/// Where events are kept.
trait Server {
    /// Executes a request for an event of this namespace.
    fn execute(&self, namespace: &str, form: &Form) -> impl Future<Output = Result<(), RequestError>> + Send;
}

impl Server for Client {
    async fn execute(&self, namespace: &str, form: &Form) -> Result<(), RequestError> {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        match form {
            Form::Create(body) => {
                send_json(self, Method::POST, &path, Some(("application/json", body)), LIMIT).await?
            }
            Form::Patch { name, body } => {
                let body = Some(("application/strategic-merge-patch+json", body));
                send_json(self, Method::PATCH, &format!("{path}/{name}"), body, LIMIT).await?
            }
        };
        Ok(())
    }
}

async fn run(server: impl Server, component: &'static str, mut events: mpsc::Receiver<Event>, mut way: Way) {
    let mut memory = Memory::new(component);
    let mut line = Line::default();
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    loop {
        let Some(mut pending) = line.pending.pop_front() else {
            let Some(event) = events.recv().await else { return };
            line.add(event, Timestamp::now());
            continue;
        };
        if events.len() < QUEUE / 2 {
            way.give().await;
        }
        if !std::mem::replace(&mut pending.admitted, true)
            && !memory.take_token(&pending.event.regarding, Instant::now())
        {
            tracing::debug!(
                op = "recordEvent",
                reason = pending.event.reason,
                name = pending.event.regarding.name.as_str(),
                "event dropped, the object has had too many"
            );
            continue;
        }
        let sending = send(&server, &mut memory, &pending);
        let sent = match backoff.failures() {
            0 => sending.await,
            _ => meanwhile(&mut events, &mut line, sending).await,
        };
        let Err(error) = sent else {
            backoff.reset();
            continue;
        };
        memory.forget(&pending.event);
        let passing = error.code == 0 || error.code == 429 || error.code >= 500;
        let first = backoff.failures() == 0;
        if !passing || backoff.failures() + 1 == TRIES {
            tracing::warn!(
                op = "recordEvent",
                reason = pending.event.reason,
                error = error.message.as_str(),
                kept = passing,
                "event cannot be recorded"
            );
        }
        if !passing {
            continue;
        }
        if first {
            // From now on only what is new is of interest.
            let former = std::mem::take(&mut line.pending);
            former.into_iter().for_each(|former| line.replace(former.event, former.happened));
        }
        if !line.pending.iter().any(|other| about_the_same(&other.event, &pending.event)) {
            line.pending.push_front(pending);
        }
        if events.is_closed() {
            return;
        }
        meanwhile(&mut events, &mut line, tokio::time::sleep(backoff.wait())).await;
    }
}

/// Takes in what happens while this goes on.
async fn meanwhile<T>(
    events: &mut mpsc::Receiver<Event>,
    line: &mut Line,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            Some(event) = events.recv() => line.replace(event, Timestamp::now()),
        }
    }
}

/// Sends one event.
async fn send(server: &impl Server, memory: &mut Memory, pending: &Pending) -> Result<(), RequestError> {
    let Pending { event, happened, .. } = pending;
    let form = memory.next(event, *happened);
    match server.execute(namespace(event), &form).await {
        // The first answer got lost on the way: it is there.
        Err(error) if error.code == 409 && matches!(form, Form::Create(_)) => Ok(()),
        // It has expired: events live an hour.
        Err(error) if error.code == 404 && matches!(form, Form::Patch { .. }) => {
            memory.forget(event);
            let form = memory.create(event, *happened);
            server.execute(namespace(event), &form).await
        }
        result => result,
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

    fn next(&mut self, event: &Event, wall: Timestamp) -> Form {
        match self.sent.get_mut(&identity(event)) {
            Some(sent) => {
                sent.count += 1;
                let body = json!({
                    "count": sent.count,
                    "lastTimestamp": seconds(wall),
                    "message": event.message,
                });
                Form::Patch { name: sent.name.clone(), body }
            }
            None => self.create(event, wall),
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

/// Whether both say something of one object for one reason.
fn about_the_same(one: &Event, other: &Event) -> bool {
    let (a, b) = (&one.regarding, &other.regarding);
    one.reason == other.reason
        && (&a.name, &a.namespace, &a.kind, &a.uid) == (&b.name, &b.namespace, &b.kind, &b.uid)
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
    use std::sync::{Arc, Mutex};

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
        let form = memory.next(&event("web", "announcing"), wall());
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
        let mut again = event("web", "announcing");
        memory.next(&again, wall());
        again.regarding.resource_version = "8".into();
        let form = memory.next(&again, wall());
        let Form::Patch { body, .. } = form else { panic!("{form:?}") };
        assert_eq!(
            body,
            json!({"count": 2, "lastTimestamp": "2026-01-02T03:04:05Z", "message": "announcing"})
        );
        let other = memory.next(&event("web", "something else"), wall());
        assert!(matches!(other, Form::Create(_)));
    }

    #[tokio::test]
    async fn an_object_with_too_many_events_waits_and_others_do_not() {
        let mut memory = Memory::new("metallb-speaker");
        let now = Instant::now();
        let mut may = |name: &str, now| memory.take_token(&event(name, "x").regarding, now);
        assert_eq!((0..40).filter(|_| may("web", now)).count(), 25);
        assert!(may("other", now));
        assert!(may("web", now + REFILL));
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let mut memory = Memory::new("metallb-speaker");
        for n in 0..REMEMBERED + 100 {
            memory.next(&event(&format!("s{n}"), "x"), wall());
        }
        assert_eq!(memory.sent.len(), REMEMBERED);
        assert_eq!(memory.order.len(), REMEMBERED);
    }

    #[test]
    fn of_what_is_kept_the_newest_of_each_object_and_reason_stays_in_the_order_in_which_they_happened() {
        let mut line = Line::default();
        line.replace(event("a", "first"), wall());
        line.replace(event("b", "first"), wall());
        let other_reason = Event { reason: "announceFailed", ..event("a", "first") };
        line.replace(other_reason.clone(), wall());
        let mut newer = event("a", "second");
        newer.regarding.resource_version = "8".into();
        line.replace(newer.clone(), wall());
        let kept: Vec<_> = line.pending.iter().map(|pending| pending.event.clone()).collect();
        assert_eq!(kept, [event("b", "first"), other_reason, newer]);
        for n in 0..KEPT + 100 {
            line.add(event(&format!("s{n}"), "x"), wall());
        }
        assert_eq!(line.pending.len(), KEPT);
    }

    /// A server that is away until a time, and keeps what it is given after that.
    #[derive(Clone)]
    struct Away {
        until: Instant,
        kept: Arc<Mutex<Vec<(u64, String)>>>,
        start: Instant,
    }

    impl Server for Away {
        async fn execute(&self, _: &str, form: &Form) -> Result<(), RequestError> {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if Instant::now() < self.until {
                return Err(RequestError::no_answer("connection refused"));
            }
            let (Form::Create(body) | Form::Patch { body, .. }) = form;
            let text = body["message"].as_str().unwrap().to_owned();
            self.kept.lock().unwrap().push((self.start.elapsed().as_secs(), text));
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_happens_in_an_outage_is_recorded_when_it_ends_the_newest_of_each_e02() {
        for minutes in [0, 1, 60] {
            let (start, away) = (Instant::now(), Duration::from_secs(minutes * 60 + 7));
            let server = Away { until: start + away, kept: Arc::default(), start };
            let (queue, events) = mpsc::channel(QUEUE);
            let way = Way::new(watch::Sender::new(true).subscribe());
            tokio::spawn(run(server.clone(), "metallb-speaker", events, way));
            // More than the queue holds, in two turns: as when one node after the other dies.
            for turn in ["was", "is"] {
                for n in 0..2 * QUEUE {
                    queue.send(event(&format!("s{n}"), &format!("{turn} {n}"))).await.unwrap();
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            tokio::time::sleep(away + Duration::from_secs(60)).await;
            let kept = server.kept.lock().unwrap().clone();
            let texts: Vec<&str> = kept.iter().map(|(_, text)| text.as_str()).collect();
            let expected: Vec<String> = (0..2 * QUEUE).map(|n| format!("is {n}")).collect();
            assert_eq!(texts, expected, "{minutes}");
            let first = kept[0].0;
            assert!((away.as_secs()..=away.as_secs() + PAUSES.1.as_secs()).contains(&first), "{first}");
        }
    }

    /// A server that takes everything but what is bad.
    impl Server for mpsc::UnboundedSender<String> {
        async fn execute(&self, _: &str, form: &Form) -> Result<(), RequestError> {
            let Form::Create(body) = form else { return Ok(()) };
            let text = body["message"].as_str().unwrap().to_owned();
            match text.as_str() {
                "bad" => Err(RequestError::from_answer(422, b"")),
                _ => self.send(text).map_err(|_| RequestError::no_answer("")),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_the_server_does_not_take_keeps_none_from_being_recorded() {
        let (server, mut taken) = mpsc::unbounded_channel();
        let (queue, events) = mpsc::channel(QUEUE);
        let way = Way::new(watch::Sender::new(true).subscribe());
        tokio::spawn(run(server, "metallb-speaker", events, way));
        for text in ["one", "bad", "two"] {
            queue.send(event("web", text)).await.unwrap();
        }
        assert_eq!(taken.recv().await.as_deref(), Some("one"));
        assert_eq!(taken.recv().await.as_deref(), Some("two"));
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

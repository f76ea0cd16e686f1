// SPDX-License-Identifier: Apache-2.0
//! One case, step by step: the hand that does what the steps say, and the eye that looks at what comes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::api::{Answer, Api, Place, collection, type_of};
use super::case::{Action, Case, Configure, Kind, Labelled, Reference, Service, Step};
use super::compare::{self, Difference, Told};
use super::daemon::Daemon;
use super::intended::{Context, Intended};
use super::picture::{Counts, Frame};
use super::quiet::{Settled, Watches};
use super::report::{CaseReport, Found, Verdict};
use crate::bench_handle::SYSTEM;

/// Everything a case is played with.
pub(crate) struct Stage<'a> {
    pub(crate) api: &'a Api,
    pub(crate) daemon: &'a mut Daemon,
    pub(crate) watches: &'a Watches,
    pub(crate) intended: &'a mut Intended,
}

/// Plays a case in the namespace `namespace`, which it makes and removes.
///
/// # Errors
/// A step cannot be played at all; a difference is part of the report.
pub(crate) async fn play(stage: &mut Stage<'_>, case: &Case, namespace: &str) -> Result<CaseReport> {
    let began = Instant::now();
    let mut player = Player {
        api: stage.api,
        daemon: &mut *stage.daemon,
        namespace: namespace.to_owned(),
        frame: Frame::new(namespace),
        touched: Vec::new(),
        changed: BTreeMap::new(),
        touches: 0,
    };
    player.make_namespace(namespace).await?;
    let mut eye = Eye::default();
    let mut found = Vec::new();
    let mut played = Ok(());
    for (number, step) in case.steps.iter().enumerate() {
        let action = step.in_namespace(namespace).map_err(|fault| anyhow!("{fault}"))?;
        let at = || format!("case {}, step {number}: {}", case.id, step.written);
        let answer = match player.act(&action).await.with_context(at) {
            Ok(answer) => answer,
            Err(error) => {
                played = Err(error);
                break;
            }
        };
        let (compared, last) = (case.varies.is_none(), number + 1 == case.steps.len());
        let look = eye.look(&mut player, stage.watches, step, Manner { compared, last }, &answer);
        let differences = match look.await {
            Ok(differences) => differences,
            Err(error) => {
                played = Err(error.context(at()));
                break;
            }
        };
        if case.varies.is_some() {
            continue;
        }
        let steps: Vec<&Value> = case.steps.iter().take(number + 1).map(|step| &step.written).collect();
        let context = Context {
            case: &case.id,
            steps: &steps,
            before: eye.before.as_ref(),
            spread: eye.spread.as_deref(),
        };
        let causes = stage.intended.causes(&differences, context);
        let spread = causes.iter().flatten().find(|cause| stage.intended.spreads(&cause.name));
        let spread = spread.map(|cause| cause.name.clone());
        found.extend(differences.into_iter().zip(causes).map(|(difference, cause)| Found {
            step: number,
            action: step.written.clone(),
            difference,
            cause,
        }));
        eye.spread = eye.spread.take().or(spread);
    }
    player.clear_up().await.with_context(|| format!("clear up after case {}", case.id))?;
    played?;
    let verdict = match &case.varies {
        Some(_) => Verdict::Varies,
        None if found.is_empty() => Verdict::Equal,
        None if found.iter().all(|found| found.cause.is_some()) => Verdict::Intended,
        None => Verdict::Unexpected,
    };
    if case.varies.is_none() {
        stage.intended.played(&case.id);
    }
    Ok(CaseReport {
        id: case.id.clone(),
        about: case.about.clone(),
        verdict,
        varies: case.varies.clone(),
        steps: case.steps.len(),
        differences: found,
        milliseconds: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// How a step is looked at.
#[derive(Clone, Copy)]
struct Manner {
    /// Whether what is seen has to be as recorded.
    compared: bool,
    /// Whether it is the last step of its case.
    last: bool,
}

/// What was seen so far.
#[derive(Default)]
struct Eye {
    counts: Counts,
    told: BTreeSet<Told>,
    /// The state before the step that is being judged, and after it.
    before: Option<Value>,
    now: Option<Value>,
    spread: Option<String>,
}

impl Eye {
    /// Waits for rest and compares a step with what was recorded of it.
    async fn look(
        &mut self,
        player: &mut Player<'_>,
        watches: &Watches,
        step: &Step,
        manner: Manner,
        answer: &Map<String, Value>,
    ) -> Result<Vec<Difference>> {
        let mut differences = compare::answers(step.answer.as_ref(), answer);
        self.before = self.now.take().or(self.before.take());
        let Some(expected) = &step.seen else { return Ok(differences) };
        let (news, again) = recorded_events(expected).map_err(|fault| anyhow!("{fault}"))?;
        let (counts, told) = (&self.counts, &self.told);
        let judge = |frame: &Frame, lists: &_| {
            let state = frame.state(lists);
            let (events, counts) = frame.events(lists, counts);
            let mut differences = compare::states(expected, &state);
            differences.extend(compare::events(&news, &again, &events, told));
            (differences, state, events, counts)
        };
        let settled = watches.settle(player.api, player.daemon, manner.last, |lists| {
            player.frame.learn(lists);
            !manner.compared || judge(&player.frame, lists).0.is_empty()
        });
        let Settled { lists, at_rest } = settled.await?;
        let (seen, state, events, counts) = judge(&player.frame, &lists);
        if !step.never_quiet {
            differences.extend(seen);
            if !at_rest {
                let path = "never_quiet".to_owned();
                differences.push(Difference { path, expected: Some(false.into()), got: Some(true.into()) });
            }
        }
        self.counts = counts;
        // What was recorded counts as told too: it is `again` from now on.
        self.told.extend(events);
        self.told.extend(news);
        self.now = Some(state.into());
        Ok(differences)
    }
}

/// The recorded events: those that are new in the step, and those that repeat an earlier one.
fn recorded_events(seen: &Map<String, Value>) -> Result<(Vec<Told>, Vec<Told>), String> {
    let (mut news, mut again) = (Vec::new(), Vec::new());
    for event in seen.get("events").and_then(Value::as_array).into_iter().flatten() {
        let text = |key| match event.get(key) {
            Some(Value::String(text)) => Ok(text.clone()),
            _ => Err(format!("an event lacks {key:?}: {event}")),
        };
        let told =
            Told { on: text("on")?, kind: text("type")?, reason: text("reason")?, message: text("message")? };
        if event.get("again") == Some(&Value::Bool(true)) { again.push(told) } else { news.push(told) }
    }
    Ok((news, again))
}

/// The hand.
struct Player<'a> {
    api: &'a Api,
    daemon: &'a mut Daemon,
    namespace: String,
    frame: Frame,
    /// What was made besides configuration and the case's own namespace.
    touched: Vec<Place>,
    /// Labels that objects which stay had before.
    changed: BTreeMap<String, (Place, Map<String, Value>)>,
    touches: u32,
}

impl Player<'_> {
    /// Does what a step says; gives what the API server said, in the recorded form.
    async fn act(&mut self, action: &Action) -> Result<Map<String, Value>> {
        let answer = match action {
            Action::Configure(object) => self.configure(object).await?,
            Action::Service(service) => self.service(service).await?,
            Action::Patch { service, body } => self.api.merge(&self.service_at(service), "", body).await?,
            Action::Status { service, ingress } => {
                let patch = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
                self.api.merge(&self.service_at(service), "/status", &patch).await?
            }
            Action::Touch(service) => {
                self.touches += 1;
                let patch = json!({ "metadata": { "labels": { "touched": self.touches.to_string() } } });
                self.api.merge(&self.service_at(service), "", &patch).await?
            }
            Action::Delete(kind, object) => self.api.delete(&self.place(*kind, object)).await?,
            Action::Get(kind, object) => {
                return Ok(self.comparable(self.api.read(&self.place(*kind, object)).await?.recorded(true)));
            }
            Action::Node(node) => self.label(Kind::Node, node).await?,
            Action::Namespace(namespace) => {
                self.make_namespace(&namespace.name).await?;
                self.label(Kind::Namespace, namespace).await?
            }
            Action::Secret { name, secret_type, data } => {
                self.secret(name, secret_type.as_deref(), data).await?
            }
            Action::Restart => {
                self.daemon.stop().await?;
                self.daemon.start().await?;
                return Ok(Map::new());
            }
            Action::Stop => return self.daemon.stop().await.map(|()| Map::new()),
            Action::Start => return self.daemon.start().await.map(|()| Map::new()),
            Action::Scrape => {
                let metrics =
                    self.daemon.scrape(&["metallb_allocator_", "metallb_k8s_client_config_"]).await?;
                return Ok(Map::from_iter([("metrics".to_owned(), Value::Object(metrics))]));
            }
            Action::Wait(time) => {
                tokio::time::sleep(*time).await;
                return Ok(Map::new());
            }
        };
        Ok(self.comparable(answer.recorded(false)))
    }

    /// Creates the object, or replaces the one of its name.
    async fn configure(&self, written: &Configure) -> Result<Answer> {
        let namespace = written.object.namespace.as_deref().unwrap_or(SYSTEM);
        let place = Place::of(written.kind, namespace, &written.object.name);
        let (version, kind) = type_of(written.kind);
        let mut object = json!({
            "apiVersion": version, "kind": kind,
            "metadata": { "name": written.object.name, "namespace": namespace },
            "spec": written.spec,
        });
        if let Some(labels) = &written.labels {
            object["metadata"]["labels"] = labels.clone();
        }
        self.put(&place, object).await
    }

    async fn put(&self, place: &Place, mut object: Value) -> Result<Answer> {
        let created = self.api.create(place, &object).await?;
        if created.code != 409 {
            return Ok(created);
        }
        for _ in 0..CONFLICTS {
            let stored = self.api.read(place).await?;
            object["metadata"]["resourceVersion"] = stored.body["metadata"]["resourceVersion"].clone();
            let replaced = self.api.replace(place, &object).await?;
            if replaced.code != 409 {
                return Ok(replaced);
            }
        }
        Err(anyhow!(
            "{} was changed by others at every one of {CONFLICTS} attempts to replace it",
            place.path()
        ))
    }

    async fn service(&mut self, written: &Service) -> Result<Answer> {
        let place = self.service_at(&written.object);
        if let Some(other) = &written.object.namespace
            && *other != self.namespace
        {
            self.make_namespace(other).await?;
            self.frame.others.insert(other.clone());
            self.touched.push(place.clone());
        }
        if self.api.read(&place).await?.is_success() {
            let mut patch = json!({});
            for (key, values) in [("annotations", &written.annotations), ("labels", &written.labels)] {
                if !values.is_empty() {
                    patch["metadata"][key] = values.clone().into();
                }
            }
            if !written.spec.is_empty() {
                patch["spec"] = written.spec.clone().into();
            }
            return self.api.merge(&place, "", &patch).await;
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": written.object.name,
                "annotations": present(&written.annotations), "labels": present(&written.labels),
            },
            "spec": new_spec(written),
        });
        self.api.create(&place, &object).await
    }

    async fn secret(&mut self, name: &str, kind: Option<&str>, data: &Map<String, Value>) -> Result<Answer> {
        let place = Place::of(Kind::Secret, SYSTEM, name);
        let encoded = data.iter().map(|(key, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (key.clone(), Value::from(base64::engine::general_purpose::STANDARD.encode(text)))
        });
        let mut object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "data": encoded.collect::<Map<_, _>>(),
        });
        if let Some(kind) = kind {
            object["type"] = kind.into();
        }
        self.touched.push(place.clone());
        self.put(&place, object).await
    }

    /// Sets labels, and remembers what they were.
    async fn label(&mut self, kind: Kind, written: &Labelled) -> Result<Answer> {
        let place = Place::of(kind, "", &written.name);
        let stored = self.api.read(&place).await?.accepted("label")?;
        let before = written.labels.keys().map(|key| {
            let value = stored.body.pointer("/metadata/labels").and_then(|labels| labels.get(key));
            (key.clone(), value.cloned().unwrap_or_default())
        });
        let (_, kept) = self.changed.entry(place.path()).or_insert_with(|| (place.clone(), Map::new()));
        for (key, value) in before {
            // The first is what it was before the case.
            kept.entry(key).or_insert(value);
        }
        self.api.merge(&place, "", &json!({ "metadata": { "labels": written.labels } })).await
    }

    async fn make_namespace(&mut self, name: &str) -> Result<()> {
        let place = Place::of(Kind::Namespace, "", name);
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let answer = self.api.create(&place, &object).await?;
        if answer.code == 409 {
            return Ok(());
        }
        answer.accepted("make a namespace")?;
        self.touched.push(place);
        Ok(())
    }

    /// Removes everything that the case left, and starts the controller if it stopped it.
    async fn clear_up(&mut self) -> Result<()> {
        self.daemon.start().await?;
        let mut namespaces = vec![self.namespace.clone()];
        namespaces.extend(self.frame.others.iter().cloned());
        for namespace in &namespaces {
            self.empty(Kind::Service, namespace).await?;
        }
        namespaces.push(SYSTEM.to_owned());
        for kind in Kind::CONFIGURATION {
            for namespace in &namespaces {
                self.empty(kind, namespace).await?;
            }
        }
        for (place, labels) in std::mem::take(&mut self.changed).into_values() {
            if !self.touched.contains(&place) {
                let patch = json!({ "metadata": { "labels": labels } });
                self.api.merge(&place, "", &patch).await?.accepted("restore labels")?;
            }
        }
        for place in std::mem::take(&mut self.touched).into_iter().rev() {
            let answer = self.api.delete(&place).await?;
            if answer.code != 404 {
                answer.accepted(&format!("delete {}", place.path()))?;
            }
        }
        Ok(())
    }

    /// Deletes all objects of a kind, and waits until none is left.
    async fn empty(&self, kind: Kind, namespace: &str) -> Result<()> {
        let collection = collection(kind, namespace);
        let deadline = Instant::now() + GONE_WITHIN;
        loop {
            let left = self.api.list(&collection).await?;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(anyhow!("{} objects of {collection} do not go", left.len()));
            }
            for object in left {
                let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                let answer = self.api.delete(&Place::of(kind, namespace, name)).await?;
                if answer.code != 404 {
                    answer.accepted(&format!("delete {collection}/{name}"))?;
                }
            }
        }
    }

    fn service_at(&self, service: &Reference) -> Place {
        self.place(Kind::Service, service)
    }

    fn place(&self, kind: Kind, object: &Reference) -> Place {
        let usual = if kind == Kind::Service { self.namespace.as_str() } else { SYSTEM };
        Place::of(kind, object.namespace.as_deref().unwrap_or(usual), &object.name)
    }

    /// An answer with the placeholders of the recordings in its texts.
    fn comparable(&self, mut answer: Map<String, Value>) -> Map<String, Value> {
        for value in answer.values_mut() {
            self.rename(value);
        }
        answer
    }

    fn rename(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.frame.comparable(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.rename(value)),
            Value::Object(map) => map.values_mut().for_each(|value| self.rename(value)),
            _ => {}
        }
    }
}

/// The spec of a Service that does not exist yet: what the step gives, above what every Service has. `null` leaves a field
/// out, one that every Service has too.
fn new_spec(written: &Service) -> Value {
    let mut spec = Map::from_iter([
        ("type".to_owned(), json!("LoadBalancer")),
        ("selector".to_owned(), json!({ "app": written.object.name })),
        ("ports".to_owned(), json!([{ "name": "p0", "port": 80, "protocol": "TCP" }])),
    ]);
    spec.extend(written.spec.clone());
    present(&spec)
}

/// What is not `null`.
fn present(values: &Map<String, Value>) -> Value {
    let kept = values.iter().filter(|(_, value)| !value.is_null());
    kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>().into()
}

/// How often an object that others change is read and replaced again.
const CONFLICTS: usize = 50;
const GONE_WITHIN: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_service_has_what_its_step_gives_above_what_every_service_has() {
        let map = |value: Value| value.as_object().unwrap().clone();
        let ports = json!([{"name": "p0", "port": 80, "protocol": "TCP"}]);
        for (given, spec) in [
            (json!({}), json!({"type": "LoadBalancer", "selector": {"app": "a"}, "ports": ports})),
            (
                json!({"selector": null, "loadBalancerIP": null}),
                json!({"type": "LoadBalancer", "ports": ports}),
            ),
            (
                json!({"type": "NodePort", "selector": {"x": "y"}, "externalTrafficPolicy": "Local"}),
                json!({
                    "type": "NodePort", "selector": {"x": "y"}, "ports": ports, "externalTrafficPolicy": "Local",
                }),
            ),
        ] {
            let object = Reference { name: "a".to_owned(), namespace: None };
            let written =
                Service { object, annotations: Map::new(), labels: Map::new(), spec: map(given.clone()) };
            assert_eq!(new_spec(&written), spec, "{given}");
        }
    }

    #[test]
    fn recorded_events_are_new_or_repeated() {
        let event =
            json!({"on": "a", "type": "Normal", "reason": "R", "message": "m", "from": "metallb-controller"});
        let mut again = event.clone();
        again["again"] = true.into();
        let seen = Map::from_iter([("events".to_owned(), json!([event, again]))]);
        let (news, repeated) = recorded_events(&seen).unwrap();
        assert_eq!((news.len(), &news), (1, &repeated));
        let seen = Map::from_iter([("events".to_owned(), json!([{"on": "a"}]))]);
        assert!(recorded_events(&seen).unwrap_err().contains("lacks \"type\""));
    }
}

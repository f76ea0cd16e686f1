// SPDX-License-Identifier: Apache-2.0
//! The collector: removes what owners leave behind and what deleted namespaces held. It is a client like any
//! other, so it serves any API server that has no controllers of its own.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, PartialObjectMeta};
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A client from the text of a kubeconfig, without retries of its own.
pub async fn client(kubeconfig: &str) -> Result<Client, kube::Error> {
    let unusable = |error: kube::config::KubeconfigError| {
        kube::Error::Service(Box::new(std::io::Error::other(error.to_string())))
    };
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(unusable)?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(unusable)?;
    // Whoever uses this client wants to see every refusal; what is to be tried again is decided there.
    config.default_retry = false;
    Client::try_from(config)
}

/// Collects until it is dropped. An object goes `delay` after the last of its owners is gone; the contents of a
/// namespace that is being deleted go as soon as that is seen. Kinds that appear later are found within a
/// second of their definition.
pub async fn run(client: Client, delay: Duration) {
    let graph = Arc::new(Graph::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(sweep(client.clone(), Arc::clone(&graph), delay));
    loop {
        // Discovery fails while the API is down: the kinds known so far are watched on.
        match Discovery::new(client.clone()).run_aggregated().await {
            Ok(discovery) => {
                for group in discovery.groups() {
                    for (resource, capabilities) in group.recommended_resources() {
                        let complete = [verbs::LIST, verbs::WATCH, verbs::DELETE]
                            .iter()
                            .all(|verb| capabilities.supports_operation(verb));
                        let namespaced = capabilities.scope == Scope::Namespaced;
                        // Events are many, own nothing and expire by themselves.
                        if complete && resource.kind != "Event" && graph.begin(&resource, namespaced) {
                            tasks.spawn(watch(client.clone(), resource, namespaced, Arc::clone(&graph)));
                        }
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "the collector cannot discover kinds"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[derive(Debug, Clone)]
struct Node {
    resource: ApiResource,
    namespaced: bool,
    namespace: String,
    name: String,
    owners: Vec<String>,
    blocking: Vec<String>,
    finalizers: Vec<String>,
    deleting: bool,
}

#[derive(Debug, Default)]
struct Graph {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Objects by UID.
    nodes: HashMap<String, Node>,
    /// Watched kinds by group and kind: how they are reached, and whether they live in namespaces.
    kinds: HashMap<(String, String), (ApiResource, bool)>,
    /// Watched kinds whose objects are not all known yet.
    pending: HashSet<(String, String)>,
}

impl Graph {
    /// Notes that a kind is watched from now on; false if it is already.
    fn begin(&self, resource: &ApiResource, namespaced: bool) -> bool {
        let mut state = self.lock();
        let new = state.kinds.insert(id(resource), (resource.clone(), namespaced)).is_none();
        if new {
            state.pending.insert(id(resource));
        }
        new
    }

    /// Forgets a kind and its objects.
    fn end(&self, resource: &ApiResource) {
        let mut state = self.lock();
        state.kinds.remove(&id(resource));
        state.pending.remove(&id(resource));
        state.nodes.retain(|_, node| id(&node.resource) != id(resource));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn id(resource: &ApiResource) -> (String, String) {
    (resource.group.clone(), resource.kind.clone())
}

async fn watch(client: Client, resource: ApiResource, namespaced: bool, graph: Arc<Graph>) {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &resource);
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
    let mut initial = HashSet::new();
    // The stream never ends; errors are followed by a new attempt.
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => initial.clear(),
            Ok(Event::InitApply(object)) => {
                initial.extend(object.uid());
                apply(&graph, &resource, namespaced, &object);
            }
            Ok(Event::InitDone) => {
                let mut state = graph.lock();
                state.nodes.retain(|uid, node| id(&node.resource) != id(&resource) || initial.contains(uid));
                state.pending.remove(&id(&resource));
            }
            Ok(Event::Apply(object)) => apply(&graph, &resource, namespaced, &object),
            Ok(Event::Delete(object)) => {
                if let Some(uid) = object.uid() {
                    graph.lock().nodes.remove(&uid);
                }
            }
            Err(error) => {
                tracing::debug!(%error, kind = resource.kind, "the collector's watch broke");
                if is_not_found(&error) {
                    // The kind is no longer served; should it come back, discovery finds it again.
                    graph.end(&resource);
                    graph.changed.notify_one();
                    return;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        graph.changed.notify_one();
    }
}

fn is_not_found(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchError, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status)) | WatchStartFailed(kube::Error::Api(status)) => {
            status.code == 404
        }
        WatchError(status) => status.code == 404,
        _ => false,
    }
}

fn apply(graph: &Graph, resource: &ApiResource, namespaced: bool, object: &PartialObjectMeta<DynamicObject>) {
    let Some(uid) = object.uid() else { return };
    let owners = object.owner_references();
    let node = Node {
        resource: resource.clone(),
        namespaced,
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        owners: owners.iter().map(|owner| owner.uid.clone()).collect(),
        blocking: owners
            .iter()
            .filter(|owner| owner.block_owner_deletion == Some(true))
            .map(|owner| owner.uid.clone())
            .collect(),
        finalizers: object.finalizers().to_vec(),
        deleting: object.metadata.deletion_timestamp.is_some(),
    };
    graph.lock().nodes.insert(uid, node);
}

/// What is to be done about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Work {
    /// Its owners are gone, or its namespace goes.
    Delete(String),
    /// A finalizer of the collector has served its purpose.
    Release(String, &'static str),
    /// It is to live on without this owner.
    Orphan(String, String),
    /// A namespace is empty.
    Finalize(String),
}

/// Everything that follows from the graph as it is.
fn work(state: &State) -> Vec<Work> {
    let mut work = Vec::new();
    let is_namespace = |node: &Node| node.resource.kind == "Namespace" && node.resource.group.is_empty();
    let mut living = HashSet::new();
    let mut going = HashSet::new();
    for node in state.nodes.values().filter(|node| is_namespace(node)) {
        if node.deleting {
            going.insert(node.name.as_str())
        } else {
            living.insert(node.name.as_str())
        };
    }
    let occupied: HashSet<&str> =
        state.nodes.values().filter(|node| node.namespaced).map(|node| node.namespace.as_str()).collect();
    for (uid, node) in &state.nodes {
        let held_by = |finalizer: &str| node.deleting && node.finalizers.iter().any(|held| held == finalizer);
        let owned = |other: &Node| other.owners.contains(uid);
        if node.namespaced && !living.contains(node.namespace.as_str()) && !node.deleting {
            work.push(Work::Delete(uid.clone()));
        } else if !node.owners.is_empty() && !node.deleting {
            let foreground = |owner: &String| {
                state.nodes.get(owner).is_some_and(|owner| {
                    owner.deleting && owner.finalizers.iter().any(|held| held == "foregroundDeletion")
                })
            };
            let lives = |owner: &&String| state.nodes.contains_key(*owner) && !foreground(owner);
            if !node.owners.iter().any(|owner| lives(&owner)) {
                work.push(Work::Delete(uid.clone()));
            }
        }
        if held_by("orphan") {
            let owned: Vec<&String> =
                state.nodes.iter().filter(|(_, other)| owned(other)).map(|(uid, _)| uid).collect();
            if owned.is_empty() {
                work.push(Work::Release(uid.clone(), "orphan"));
            }
            work.extend(owned.into_iter().map(|other| Work::Orphan(other.clone(), uid.clone())));
        }
        if held_by("foregroundDeletion") && !state.nodes.values().any(|other| other.blocking.contains(uid)) {
            work.push(Work::Release(uid.clone(), "foregroundDeletion"));
        }
        if is_namespace(node) && going.contains(node.name.as_str()) && !occupied.contains(node.name.as_str())
        {
            work.push(Work::Finalize(uid.clone()));
        }
    }
    work
}

async fn sweep(client: Client, graph: Arc<Graph>, delay: Duration) {
    loop {
        graph.changed.notified().await;
        // Changes come in bursts; one look at the graph serves them all.
        tokio::time::sleep(Duration::from_millis(5)).await;
        loop {
            // An owner that is unknown because its kind is not listed yet is not a dead owner.
            let due = {
                let state = graph.lock();
                if state.pending.is_empty() { work(&state) } else { Vec::new() }
            };
            if due.is_empty() {
                break;
            }
            tokio::time::sleep(delay).await;
            let still = work(&graph.lock());
            let mut progress = false;
            for item in due.into_iter().filter(|item| still.contains(item)) {
                match carry_out(&client, &graph, &item).await {
                    Ok(()) => progress = true,
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                    Err(error) => tracing::debug!(%error, ?item, "the collector could not do its work"),
                }
            }
            // What was done comes back as events; what failed is tried again with the next event or after a
            // pause.
            let pause = if progress { Duration::from_millis(20) } else { Duration::from_millis(500) };
            let _ = tokio::time::timeout(pause, graph.changed.notified()).await;
        }
    }
}

async fn carry_out(client: &Client, graph: &Graph, item: &Work) -> Result<(), kube::Error> {
    let uid = match item {
        Work::Delete(uid) | Work::Release(uid, _) | Work::Orphan(uid, _) | Work::Finalize(uid) => uid,
    };
    let Some(node) = graph.lock().nodes.get(uid).cloned() else { return Ok(()) };
    let api: Api<DynamicObject> = if node.namespaced {
        Api::namespaced_with(client.clone(), &node.namespace, &node.resource)
    } else {
        Api::all_with(client.clone(), &node.resource)
    };
    match item {
        Work::Delete(_) => {
            if !still_unowned(client, graph, &node, &api, uid).await? {
                return Ok(());
            }
            let params = DeleteParams {
                preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
                propagation_policy: Some(PropagationPolicy::Background),
                ..DeleteParams::default()
            };
            api.delete(&node.name, &params).await?;
        }
        Work::Release(_, finalizer) => {
            let live = api.get(&node.name).await?;
            let kept: Vec<&String> = live.finalizers().iter().filter(|held| held != finalizer).collect();
            let patch = json!({ "metadata": {
                "uid": uid, "resourceVersion": live.resource_version(), "finalizers": kept,
            } });
            api.patch(&node.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Work::Orphan(_, owner) => {
            let live = api.get(&node.name).await?;
            let kept: Vec<_> = live.owner_references().iter().filter(|held| held.uid != *owner).collect();
            let patch = json!({ "metadata": {
                "uid": uid, "resourceVersion": live.resource_version(), "ownerReferences": kept,
            } });
            api.patch(&node.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Work::Finalize(_) => {
            let mut live = api.get(&node.name).await?;
            if live.data["spec"]
                .get("finalizers")
                .is_none_or(|held| held.as_array().is_none_or(Vec::is_empty))
            {
                return Ok(());
            }
            live.data["spec"] = json!({});
            let body = serde_json::to_vec(&live).map_err(kube::Error::SerdeError)?;
            let request = http::Request::put(format!("/api/v1/namespaces/{}/finalize", node.name))
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body)
                .map_err(|error| kube::Error::Service(Box::new(error)))?;
            client.request::<serde_json::Value>(request).await?;
        }
    }
    Ok(())
}

/// Asks the API itself before anything is deleted: the graph may be behind.
async fn still_unowned(
    client: &Client,
    graph: &Graph,
    node: &Node,
    api: &Api<DynamicObject>,
    uid: &str,
) -> Result<bool, kube::Error> {
    let Some(live) = api.get_opt(&node.name).await? else { return Ok(false) };
    if live.uid().as_deref() != Some(uid) {
        return Ok(false);
    }
    if node.namespaced && namespace_goes(client, &node.namespace).await? {
        return Ok(true);
    }
    for owner in live.owner_references() {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = graph.lock().kinds.get(&(group.to_owned(), owner.kind.clone())).cloned();
        // Nothing is known of objects of a kind that is not served: they are not called gone.
        let Some((resource, namespaced)) = kind else { return Ok(false) };
        let api: Api<DynamicObject> = if namespaced {
            Api::namespaced_with(client.clone(), &node.namespace, &resource)
        } else {
            Api::all_with(client.clone(), &resource)
        };
        let found =
            api.get_opt(&owner.name).await?.filter(|found| found.uid().as_deref() == Some(&*owner.uid));
        let waits = |owner: &DynamicObject| {
            owner.metadata.deletion_timestamp.is_some()
                && owner.finalizers().iter().any(|held| held == "foregroundDeletion")
        };
        if found.is_some_and(|owner| !waits(&owner)) {
            return Ok(false);
        }
    }
    Ok(!live.owner_references().is_empty())
}

async fn namespace_goes(client: &Client, namespace: &str) -> Result<bool, kube::Error> {
    let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let found = api.get_metadata_opt(namespace).await?;
    Ok(found.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: &str, name: &str, owners: &[&str]) -> Node {
        let gvk = kube::core::GroupVersionKind::gvk("", "v1", kind);
        Node {
            resource: ApiResource::from_gvk(&gvk),
            namespaced: kind != "Namespace",
            namespace: if kind == "Namespace" { String::new() } else { "a".into() },
            name: name.into(),
            owners: owners.iter().map(|&owner| owner.to_owned()).collect(),
            blocking: Vec::new(),
            finalizers: Vec::new(),
            deleting: false,
        }
    }

    fn state(nodes: &[(&str, Node)]) -> State {
        let mut state = only(nodes);
        state.nodes.entry("n".into()).or_insert_with(|| node("Namespace", "a", &[]));
        state
    }

    fn only(nodes: &[(&str, Node)]) -> State {
        State {
            nodes: nodes.iter().map(|(uid, node)| ((*uid).to_owned(), node.clone())).collect(),
            ..State::default()
        }
    }

    #[test]
    fn an_object_goes_when_its_last_owner_is_gone() {
        let pod = node("Pod", "p", &["o1", "o2"]);
        let one_left = state(&[("p", pod.clone()), ("o2", node("ConfigMap", "c", &[]))]);
        assert_eq!(work(&one_left), []);
        assert_eq!(work(&state(&[("p", pod)])), [Work::Delete("p".into())]);
    }

    #[test]
    fn a_namespace_is_emptied_before_it_goes() {
        let mut namespace = node("Namespace", "a", &[]);
        namespace.deleting = true;
        let full = state(&[("n", namespace.clone()), ("p", node("Pod", "p", &[]))]);
        assert_eq!(work(&full), [Work::Delete("p".into())]);
        assert_eq!(work(&state(&[("n", namespace)])), [Work::Finalize("n".into())]);
        let left_behind = only(&[("p", node("Pod", "p", &[]))]);
        assert_eq!(work(&left_behind), [Work::Delete("p".into())], "its namespace went without it");
    }

    #[test]
    fn orphaning_lets_dependents_live() {
        let mut owner = node("ConfigMap", "c", &[]);
        owner.deleting = true;
        owner.finalizers = vec!["orphan".into()];
        let mut found = work(&state(&[("o", owner.clone()), ("p", node("Pod", "p", &["o"]))]));
        found.retain(|item| !matches!(item, Work::Delete(_)));
        assert_eq!(found, [Work::Orphan("p".into(), "o".into())]);
        assert_eq!(work(&state(&[("o", owner)])), [Work::Release("o".into(), "orphan")]);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The controller-manager and scheduler stand-ins for Deployments and DaemonSets: Pods come, go, and roll.
//!
//! A Deployment owns its Pods directly; there is no ReplicaSet in between. A rollout of a Deployment brings one new
//! Pod up before it takes an old one away; a DaemonSet replaces one node's Pod at a time, old one first.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};

use crate::placement;
use crate::view::View;

/// Keeps Pods as the workloads want them, for ever.
pub(crate) async fn run(view: View) {
    let mut names = Names::default();
    view.clone()
        .on_every_change("workloads", async || {
            let nodes = view.nodes.state();
            let nodes: Vec<&Node> = nodes.iter().map(AsRef::as_ref).collect();
            for deployment in view.deployments.state() {
                deployment_pass(&view, &deployment, &nodes, &mut names).await?;
            }
            for daemon_set in view.daemon_sets.state() {
                daemon_set_pass(&view, &daemon_set, &nodes, &mut names).await?;
            }
            orphans(&view).await
        })
        .await;
}

async fn deployment_pass(view: &View, own: &Deployment, nodes: &[&Node], names: &mut Names) -> Result<()> {
    let Some(spec) = &own.spec else { return Ok(()) };
    if own.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let hash = template_hash(&spec.template);
    let pods = pods_of(view, own.meta().uid.as_deref());
    let (fresh, old): (Vec<_>, Vec<_>) =
        pods.iter().filter(|pod| !is_ending(pod)).partition(|pod| label(pod, TEMPLATE_HASH) == Some(&hash));

    let recreate = spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate");
    // One more than wanted while old ones are there; none before the last old one is gone with `Recreate`.
    let room = if recreate && pods.len() > fresh.len() {
        0
    } else {
        (wanted + usize::from(!old.is_empty())).saturating_sub(fresh.len() + old.len())
    };
    let missing = wanted.saturating_sub(fresh.len()).min(room);
    if missing > 0 {
        let mut counts = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !is_ending(pod)) {
            *counts.entry(node_of(pod).to_owned()).or_insert(0) += 1;
        }
        for _ in 0..missing {
            let template = spec.template.spec.clone().unwrap_or_default();
            let Some(node) = placement::place(&template, nodes, &counts) else { break };
            *counts.entry(node.clone()).or_insert(0) += 1;
            let name = names.fresh(&format!("{}-{hash}", own.name_any()));
            create(view, own, &spec.template, &name, &node, &[(TEMPLATE_HASH, &hash)]).await?;
        }
    }

    let ready = |pods: &[&Arc<Pod>]| pods.iter().filter(|pod| is_ready(pod)).count();
    let mut surplus: Vec<&Arc<Pod>> = Vec::new();
    if recreate {
        surplus.extend(&old);
    } else {
        // Old Pods that serve nobody go at once, others as far as new ones have taken over.
        let mut spare = (ready(&fresh) + ready(&old)).saturating_sub(wanted);
        for pod in &old {
            if !is_ready(pod) {
                surplus.push(pod);
            } else if spare > 0 {
                spare -= 1;
                surplus.push(pod);
            }
        }
    }
    let mut excess: Vec<&Arc<Pod>> = fresh.clone();
    excess.sort_by_key(|pod| (is_ready(pod), pod.name_any()));
    surplus.extend(excess.iter().take(fresh.len().saturating_sub(wanted)));
    for pod in surplus {
        delete(&view.client, pod).await?;
    }

    let ready_total = ready(&fresh) + ready(&old);
    let available = ready_total >= wanted;
    let condition = |kind: &str, good: bool, reason: &str, message: &str| {
        let was = own.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let now = json!(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        let status = if good { "True" } else { "False" };
        let same = was.into_iter().find(|was| was.type_ == kind && was.status == status);
        let time = same.and_then(|was| serde_json::to_value(&was.last_transition_time).ok()).unwrap_or(now);
        json!({"type": kind, "status": status, "reason": reason, "message": message,
               "lastTransitionTime": time, "lastUpdateTime": time})
    };
    let status = json!({
        "observedGeneration": own.metadata.generation,
        "replicas": fresh.len() + old.len(),
        "updatedReplicas": fresh.len(),
        "readyReplicas": ready_total,
        "availableReplicas": ready_total,
        "unavailableReplicas": wanted.saturating_sub(ready_total),
        "conditions": [
            condition("Available", available,
                if available { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" },
                if available { "Deployment has minimum availability." }
                else { "Deployment does not have minimum availability." }),
            condition("Progressing", true, "NewReplicaSetAvailable", "The Pods of the template are up or on their way."),
        ],
    });
    write_status(view, own, own.status.as_ref().and_then(|status| serde_json::to_value(status).ok()), status)
        .await
}

async fn daemon_set_pass(view: &View, own: &DaemonSet, nodes: &[&Node], names: &mut Names) -> Result<()> {
    let Some(spec) = &own.spec else { return Ok(()) };
    if own.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let hash = template_hash(&spec.template);
    let wanted = placement::covers(&spec.template.spec.clone().unwrap_or_default(), nodes);
    let pods = pods_of(view, own.meta().uid.as_deref());
    let on = |node: &str| pods.iter().filter(|pod| node_of(pod) == node).collect::<Vec<_>>();
    let current = |pod: &Pod| label(pod, REVISION_HASH) == Some(&hash);

    for node in &wanted {
        // A Pod on the host's network holds its ports until it is gone: its successor waits.
        if on(node).is_empty() {
            let name = names.fresh(&own.name_any());
            create(view, own, &spec.template, &name, node, &[(REVISION_HASH, &hash)]).await?;
        }
    }
    for pod in pods.iter().filter(|pod| !wanted.iter().any(|node| node == node_of(pod))) {
        delete(&view.client, pod).await?;
    }
    let on_delete =
        spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete");
    let settled = wanted.iter().all(|node| on(node).iter().any(|pod| is_ready(pod) && !is_ending(pod)));
    let outdated: Vec<_> = pods.iter().filter(|pod| !current(pod) && !is_ending(pod)).collect();
    if !on_delete {
        // A Pod that is not ready is replaced whatever the others do; of those that serve, one at a time.
        let next =
            outdated.iter().find(|pod| !is_ready(pod)).or(if settled { outdated.first() } else { None });
        if let Some(pod) = next {
            delete(&view.client, pod).await?;
        }
    }

    let count = |test: &dyn Fn(&Pod) -> bool| pods.iter().filter(|pod| !is_ending(pod) && test(pod)).count();
    let status = json!({
        "observedGeneration": own.metadata.generation,
        "desiredNumberScheduled": wanted.len(),
        "currentNumberScheduled": count(&|_| true),
        "numberMisscheduled": 0,
        "numberReady": count(&is_ready),
        "numberAvailable": count(&is_ready),
        "numberUnavailable": wanted.len().saturating_sub(count(&is_ready)),
        "updatedNumberScheduled": count(&current),
    });
    write_status(view, own, own.status.as_ref().and_then(|status| serde_json::to_value(status).ok()), status)
        .await
}

/// Deletes Pods whose workload is gone.
async fn orphans(view: &View) -> Result<()> {
    let mut owners: Vec<String> =
        view.deployments.state().iter().filter_map(|own| own.metadata.uid.clone()).collect();
    owners.extend(view.daemon_sets.state().iter().filter_map(|own| own.metadata.uid.clone()));
    for pod in view.pods.state() {
        let orphaned = pod.owner_references().iter().any(|owner| {
            owner.controller == Some(true)
                && matches!(owner.kind.as_str(), "Deployment" | "DaemonSet")
                && !owners.contains(&owner.uid)
        });
        if orphaned && !is_ending(&pod) {
            delete(&view.client, &pod).await?;
        }
    }
    Ok(())
}

async fn create<K>(
    view: &View,
    owner: &K,
    template: &PodTemplateSpec,
    name: &str,
    node: &str,
    labels: &[(&str, &str)],
) -> Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let namespace = owner.meta().namespace.clone().unwrap_or_default();
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut pod = Pod { metadata, spec: template.spec.clone(), status: None };
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.namespace = Some(namespace.clone());
    pod.metadata.owner_references = Some(vec![OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    let added = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    pod.metadata.labels.get_or_insert_default().extend(added);
    pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
    Api::<Pod>::namespaced(view.client.clone(), &namespace)
        .create(&PostParams::default(), &pod)
        .await
        .with_context(|| format!("create the Pod {namespace}/{name}"))?;
    // The pass must not run again on a copy that does not have the Pod yet: it would make another one.
    let created = kube::runtime::reflector::ObjectRef::<Pod>::new(name).within(&namespace);
    let mut changes = view.changes();
    let seen = async {
        while view.pods.get(&created).is_none() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(SEEN_WITHIN, seen).await;
    Ok(())
}

async fn delete(client: &Client, pod: &Pod) -> Result<()> {
    let namespace = pod.namespace().unwrap_or_default();
    let parameters = DeleteParams {
        preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
        ..DeleteParams::default()
    };
    match Api::<Pod>::namespaced(client.clone(), &namespace).delete(&pod.name_any(), &parameters).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("delete the Pod {namespace}/{}", pod.name_any())),
        Ok(_) => Ok(()),
    }
}

/// Writes a status if it says anything new.
async fn write_status<K>(view: &View, own: &K, stored: Option<Value>, wanted: Value) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let stored = stored.unwrap_or_else(|| json!({}));
    // What the typed copy drops for being zero or null is the same as zero or null.
    let same = wanted.as_object().into_iter().flatten().all(|(key, value)| {
        let zero = value == &json!(0) || value.is_null();
        stored.get(key).map_or(zero, |stored| stored == value)
    });
    if same {
        return Ok(());
    }
    let namespace = own.meta().namespace.clone().unwrap_or_default();
    let name = own.meta().name.clone().unwrap_or_default();
    let api = Api::<K>::namespaced(view.client.clone(), &namespace);
    match api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": wanted}))).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("write the status of {namespace}/{name}")),
        Ok(_) => Ok(()),
    }
}

fn pods_of(view: &View, owner: Option<&str>) -> Vec<Arc<Pod>> {
    let owned =
        |pod: &Pod| pod.owner_references().iter().any(|reference| Some(reference.uid.as_str()) == owner);
    let mut pods = view.pods.state_filter(owned);
    pods.sort_by_key(|pod| pod.name_any());
    pods
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a String> {
    pod.labels().get(key)
}

/// Whether the Pod has been told to end.
pub(crate) fn is_ending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether the Pod's `Ready` condition is true.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A short name of a Pod template: another template, another name.
fn template_hash(template: &PodTemplateSpec) -> String {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(template).unwrap_or_default().hash(&mut hasher);
    letters(hasher.finish(), 8)
}

/// Fresh names for Pods.
#[derive(Default)]
struct Names {
    count: u64,
}

impl Names {
    /// `base` and five letters that this process has not used, and another run is unlikely to use.
    fn fresh(&mut self, base: &str) -> String {
        self.count += 1;
        let mut hasher = DefaultHasher::new();
        let since_epoch = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        (self.count, std::process::id(), since_epoch.as_nanos(), base).hash(&mut hasher);
        format!("{base}-{}", letters(hasher.finish(), 5))
    }
}

/// Letters and digits as Kubernetes uses them in generated names: none that makes a word or is mistaken.
fn letters(mut number: u64, length: usize) -> String {
    const ALPHABET: [char; 27] = [
        'b', 'c', 'd', 'f', 'g', 'h', 'j', 'k', 'l', 'm', 'n', 'p', 'q', 'r', 's', 't', 'v', 'w', 'x', 'z',
        '2', '4', '5', '6', '7', '8', '9',
    ];
    let size = ALPHABET.len() as u64;
    (0..length)
        .map(|_| {
            let letter = ALPHABET.get(usize::try_from(number % size).unwrap_or(0)).copied().unwrap_or('b');
            number /= size;
            letter
        })
        .collect()
}

const TEMPLATE_HASH: &str = "pod-template-hash";
const REVISION_HASH: &str = "controller-revision-hash";
const SEEN_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_names_differ_and_look_like_kubernetes_ones() {
        let mut names = Names::default();
        let made: std::collections::BTreeSet<String> = (0..100).map(|_| names.fresh("speaker")).collect();
        assert_eq!(made.len(), 100);
        assert!(made.iter().all(|name| name.len() == "speaker-12345".len()), "{made:?}");
    }

    #[test]
    fn a_template_hash_follows_the_template() {
        let template = |args: &[&str]| -> PodTemplateSpec {
            serde_json::from_value(json!({"spec": {"containers": [{"name": "speaker", "args": args}]}}))
                .unwrap()
        };
        assert_eq!(template_hash(&template(&["--port=9120"])), template_hash(&template(&["--port=9120"])));
        assert_ne!(
            template_hash(&template(&["--port=9120"])),
            template_hash(&template(&["--ignore-exclude-lb"]))
        );
    }
}

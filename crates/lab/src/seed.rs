// SPDX-License-Identifier: Apache-2.0
//! What the cluster holds before a story begins: nodes, the API's own Service, the installation of the daemons.

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::host::Host;

/// Nodes, and what a fresh cluster has.
pub(crate) const CLUSTER: &str = include_str!("../manifests/cluster.yaml");
/// The daemons' namespace: service accounts, rights, configuration, workloads.
pub(crate) const METALLB: &str = include_str!("../manifests/metallb.yaml");

/// Kinds that start processes; the rest of an installation is there from the beginning.
const WORKLOADS: [&str; 2] = ["Deployment", "DaemonSet"];

/// The installation by which the daemons come into the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Manifests {
    /// MetalLB v0.16.1's objects and rights, with the images changed.
    #[default]
    Metallb,
    /// The same with stand-ins for MetalLB's speakers; the controller is ours.
    #[value(skip)]
    Strangers,
    /// What `ferrolb manifests` prints, as it is.
    Ferrolb,
    /// None: the cluster is empty, whoever plays brings one.
    #[value(skip)]
    None,
}

impl Manifests {
    /// The daemons' level that it gives them: `A` with MetalLB's rights, `B` with ferrolb's.
    pub(crate) const fn level(self) -> &'static str {
        match self {
            Self::Metallb | Self::Strangers | Self::None => "A",
            Self::Ferrolb => "B",
        }
    }

    /// Its objects, definitions aside.
    ///
    /// # Errors
    /// They are not YAML, which a test rules out.
    pub(crate) fn documents(self) -> Result<Vec<Value>> {
        match self {
            Self::Metallb => documents(METALLB),
            Self::Strangers => documents(
                &METALLB.replace("image: ferrolb/speaker", "image: quay.io/metallb/speaker:v0.16.1"),
            ),
            Self::Ferrolb => {
                let mut all = ferrolb_manifests::Installation::default().documents()?;
                all.retain(|document| document["kind"] != "CustomResourceDefinition");
                Ok(all)
            }
            Self::None => Ok(Vec::new()),
        }
    }
}

/// Puts [`CLUSTER`], the statuses of the nodes, and all of an installation but the workloads into the cluster.
///
/// # Errors
/// The API refuses an object: its message, with the object's name.
pub(crate) async fn cluster(client: &Client, crds: bool, manifests: Manifests) -> Result<()> {
    for document in documents(CLUSTER)? {
        put(client, &document).await?;
    }
    for host in Host::NODES {
        node_status(client, host, true).await?;
    }
    if crds {
        // The very documents that `ferrolb crds` prints: applying those again changes nothing.
        for definition in ferrolb_api::manifests(ferrolb_api::DEFAULT_NAMESPACE) {
            put(client, &definition).await?;
        }
        if manifests == Manifests::Ferrolb {
            for definition in ferrolb_api::own_manifests() {
                put(client, &definition).await?;
            }
        }
    }
    for document in manifests.documents()?.iter().filter(|document| !is_workload(document)) {
        put(client, document).await?;
    }
    Ok(())
}

/// Puts the workloads of an installation into the cluster: the daemons start.
///
/// # Errors
/// As [`cluster`].
pub(crate) async fn daemons(client: &Client, manifests: Manifests) -> Result<()> {
    for document in manifests.documents()?.iter().filter(|document| is_workload(document)) {
        put(client, document).await?;
    }
    Ok(())
}

/// Says of a node that it is ready, or that nobody has heard of it.
///
/// # Errors
/// The API refuses.
pub(crate) async fn node_status(client: &Client, host: Host, ready: bool) -> Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": "",
               "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let ready = if ready {
        condition("Ready", "True", "KubeletReady")
    } else {
        condition("Ready", "Unknown", "NodeStatusUnknown")
    };
    let status = json!({"status": {
        "addresses": [
            {"type": "InternalIP", "address": host.address().to_string()},
            {"type": "InternalIP", "address": host.address6().to_string()},
            {"type": "Hostname", "address": host.name()},
        ],
        "conditions": [condition("NetworkUnavailable", "False", "RouteCreated"), ready],
        "capacity": {"cpu": "2", "memory": "4Gi", "pods": "110"},
        "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"},
        "nodeInfo": {
            "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "lab://1", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "v1.33.0", "machineID": "", "operatingSystem": "linux",
            "osImage": "bench", "systemUUID": "",
        },
    }});
    Api::<k8s_openapi::api::core::v1::Node>::all(client.clone())
        .patch_status(host.name(), &PatchParams::default(), &Patch::Merge(status))
        .await
        .with_context(|| format!("write the status of the Node {host}"))?;
    Ok(())
}

/// The documents of a YAML text, as values.
///
/// # Errors
/// The text is not YAML.
pub(crate) fn documents(yaml: &str) -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(yaml).context("read a manifest")
}

/// Creates an object, or brings the one of its name to what it says.
///
/// # Errors
/// The API refuses it.
pub(crate) async fn put(client: &Client, document: &Value) -> Result<()> {
    let object: DynamicObject =
        serde_json::from_value(document.clone()).context("an object without a kind")?;
    let types = object.types.clone().unwrap_or_default();
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = object.name_any();
    let context = || format!("put the {} {name} into the cluster", types.kind);
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(answer)) if answer.code == 409 => {
            // The API server made its own Service, with values of its own.
            if types.kind == "Service" && name == "kubernetes" {
                return Ok(());
            }
            api.patch(&name, &PatchParams::default(), &Patch::Merge(document)).await.with_context(context)?;
        }
        // An API server that keeps this address for itself: the kube-proxy stand-in leads it there all the same.
        Err(kube::Error::Api(answer))
            if answer.code == 422 && types.kind == "Service" && name == "kubernetes" => {}
        Err(kube::Error::Api(answer)) => return Err(anyhow::anyhow!(answer.message).context(context())),
        other => {
            other.with_context(context)?;
        }
    }
    Ok(())
}

/// Whether a document starts processes.
pub(crate) fn is_workload(document: &Value) -> bool {
    document["kind"].as_str().is_some_and(|kind| WORKLOADS.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(kind, name)` of every rule's subject: resources and verbs, one line each, as a reviewer would compare them.
    fn rights(kind: &str, name: &str) -> Vec<String> {
        let documents = documents(METALLB).unwrap();
        let role = documents
            .iter()
            .find(|document| document["kind"] == kind && document["metadata"]["name"] == name)
            .unwrap_or_else(|| panic!("no {kind} {name}"));
        let words = |value: &Value| {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
        };
        role["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| {
                let names = words(&rule["resourceNames"]);
                let names = if names.is_empty() { names } else { format!("[{names}]") };
                format!(
                    "{}/{}{names}: {}",
                    words(&rule["apiGroups"]),
                    words(&rule["resources"]),
                    words(&rule["verbs"])
                )
            })
            .collect()
    }

    #[test]
    fn the_speaker_has_the_rights_of_metallb_and_no_more() {
        assert_eq!(
            rights("ClusterRole", "metallb-system:speaker"),
            [
                "metallb.io/servicel2statuses,servicel2statuses/status,configurationstates,configurationstates/status: *",
                "/services,endpoints,nodes,namespaces: get,list,watch",
                "discovery.k8s.io/endpointslices: get,list,watch",
                "/events: create,patch",
                "policy/podsecuritypolicies[speaker]: use",
            ]
        );
    }

    #[test]
    fn the_controller_may_neither_patch_a_status_nor_watch_nodes() {
        let rights = rights("ClusterRole", "metallb-system:controller");
        assert!(rights.contains(&"/services/status: update".to_owned()), "{rights:?}");
        assert!(rights.contains(&"/nodes: list".to_owned()), "{rights:?}");
        assert!(
            rights.contains(&"metallb.io/configurationstates/status: get,patch,update".to_owned()),
            "{rights:?}"
        );
    }

    #[test]
    fn every_document_has_a_kind_and_a_name_and_roles_belong_to_accounts_that_exist() {
        for manifests in [Manifests::Metallb, Manifests::Ferrolb] {
            let own = manifests.documents().unwrap();
            is_complete(&documents(CLUSTER).unwrap().into_iter().chain(own).collect::<Vec<_>>());
        }
    }

    fn is_complete(all: &[Value]) {
        for document in all {
            let object: DynamicObject = serde_json::from_value(document.clone()).unwrap();
            assert!(object.types.is_some() && object.metadata.name.is_some(), "{document}");
        }
        let accounts: Vec<_> = all
            .iter()
            .filter(|document| document["kind"] == "ServiceAccount")
            .map(|document| document["metadata"]["name"].as_str().unwrap())
            .collect();
        let subjects = all.iter().filter_map(|document| document["subjects"].as_array()).flatten();
        for subject in subjects {
            assert!(accounts.contains(&subject["name"].as_str().unwrap()), "{subject}");
        }
    }
}

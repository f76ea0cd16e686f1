// SPDX-License-Identifier: Apache-2.0
//! The webhook certificate in a cluster: made, trusted, renewed, shared by replicas, and left alone.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ferrolb_kube_support::health::Readiness;
use ferrolb_kube_support::reach::Reach;
use ferrolb_kube_support::webhook::{FIELD_MANAGER, Material, Rotation, Serving};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cable::{Bench, until};

const NAMESPACE: &str = "metallb-system";
const SECRET: &str = "metallb-webhook-cert";
const WEBHOOKS: &str = "metallb-webhook-configuration";
const DEFINITION: &str = "bgppeers.metallb.io";
const DNS: &str = "metallb-webhook-service.metallb-system.svc";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// One replica.
struct Replica {
    serving: Arc<Serving>,
    settled: Readiness,
    task: JoinHandle<()>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The cluster.
struct Cluster {
    bench: Bench,
    secrets: Api<Secret>,
    webhooks: Api<ValidatingWebhookConfiguration>,
    definitions: Api<CustomResourceDefinition>,
}

impl Cluster {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let namespaces: Api<Namespace> = Api::all(bench.direct.clone());
        let namespace = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } })).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let secrets = Api::namespaced(bench.direct.clone(), NAMESPACE);
        let webhooks = Api::all(bench.direct.clone());
        let definitions = Api::all(bench.direct.clone());
        Self { bench, secrets, webhooks, definitions }
    }

    /// … with an empty Secret and both objects that name the CA.
    async fn installed() -> Self {
        let cluster = Self::new().await;
        cluster.secret(None).await;
        cluster.apply_manifests().await;
        cluster
    }

    async fn secret(&self, material: Option<&Material>) {
        let mut secret: Secret =
            serde_json::from_value(json!({ "metadata": { "name": SECRET, "labels": { "a": "b" } } }))
                .unwrap();
        secret.data = material.map(|material| {
            let entries = material.entries().into_iter();
            entries.map(|(key, value)| (key.to_owned(), ByteString(value.to_vec()))).collect()
        });
        self.secrets.create(&PostParams::default(), &secret).await.unwrap();
    }

    /// What a GitOps tool does: no bundle stands in its manifests.
    async fn apply_manifests(&self) {
        let hook = |name: &str| {
            json!({
                "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
                "clientConfig": { "service": { "name": "metallb-webhook-service", "namespace": NAMESPACE, "path": "/v" } },
                "rules": [{ "apiGroups": ["metallb.io"], "apiVersions": ["v1beta1"], "operations": ["CREATE"], "scope": "*",
                    "resources": ["ipaddresspools"] }],
            })
        };
        let webhooks = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": WEBHOOKS }, "webhooks": [hook("a.metallb.io"), hook("b.metallb.io")],
        });
        let tool = PatchParams::apply("gitops");
        self.webhooks.patch(WEBHOOKS, &tool, &Patch::Apply(webhooks)).await.unwrap();
        let definition = ferrolb_api::crds()
            .into_iter()
            .find(|definition| definition.metadata.name.as_deref() == Some(DEFINITION))
            .unwrap();
        let mut definition = serde_json::to_value(definition).unwrap();
        definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
        definition["kind"] = json!("CustomResourceDefinition");
        self.definitions.patch(DEFINITION, &tool, &Patch::Apply(definition)).await.unwrap();
    }

    fn replica(&self, create: bool) -> Replica {
        let rotation = Rotation {
            namespace: NAMESPACE.to_owned(),
            secret: SECRET.to_owned(),
            create,
            dns: DNS.to_owned(),
            webhooks: WEBHOOKS.to_owned(),
            definition: DEFINITION.to_owned(),
        };
        let (serving, settled) = (Serving::nothing(), Readiness::not_yet());
        let keep =
            rotation.keep(self.bench.client.clone(), Reach::default(), Arc::clone(&serving), settled.clone());
        Replica { serving, settled, task: tokio::spawn(keep) }
    }

    async fn stored(&self) -> Option<Material> {
        let data = self.secrets.get_opt(SECRET).await.unwrap()?.data?;
        Some(Material::from_data(&data.into_iter().map(|(key, value)| (key, value.0)).collect()))
    }

    /// Every bundle there is.
    async fn bundles(&self) -> Vec<Vec<u8>> {
        let mut bundles = Vec::new();
        if let Some(configuration) = self.webhooks.get_opt(WEBHOOKS).await.unwrap() {
            let webhooks = configuration.webhooks.unwrap_or_default().into_iter();
            bundles.extend(webhooks.map(|webhook| webhook.client_config.ca_bundle.unwrap_or_default().0));
        }
        if let Some(definition) = self.definitions.get_opt(DEFINITION).await.unwrap() {
            let config = definition.spec.conversion.unwrap().webhook.unwrap().client_config.unwrap();
            bundles.push(config.ca_bundle.unwrap_or_default().0);
        }
        bundles
    }

    async fn until_trusted(&self) -> Material {
        until("the CA stands everywhere", || async {
            let stored = self.stored().await.filter(|stored| !stored.ca.is_empty())?;
            let bundles = self.bundles().await;
            bundles.iter().all(|bundle| *bundle == stored.ca).then_some(stored)
        })
        .await
    }

    /// The versions of everything that is written.
    async fn versions(&self) -> [Option<String>; 3] {
        [
            self.secrets.get(SECRET).await.unwrap().metadata.resource_version,
            self.webhooks.get(WEBHOOKS).await.unwrap().metadata.resource_version,
            self.definitions.get(DEFINITION).await.unwrap().metadata.resource_version,
        ]
    }
}

impl Replica {
    /// What is presented, once all is well.
    async fn settled(&self) -> Vec<u8> {
        crate::cable::soon("the replica is settled", self.settled.ready()).await;
        self.presented().unwrap()
    }

    fn presented(&self) -> Option<Vec<u8>> {
        Some(self.serving.presented()?.cert[0].to_vec())
    }
}

fn first(pem: &[u8]) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_slice(pem).unwrap().to_vec()
}

#[tokio::test]
async fn an_empty_secret_is_filled_and_the_ca_named_and_then_nothing_is_written() {
    let cluster = Cluster::installed().await;
    let replica = cluster.replica(false);
    let stored = cluster.until_trusted().await;
    assert_eq!(replica.settled().await, first(&stored.server));
    let secret = cluster.secrets.get(SECRET).await.unwrap();
    assert_eq!(secret.metadata.labels.unwrap()["a"], "b", "what else stands there stays");

    let versions = cluster.versions().await;
    drop(replica);
    let next = cluster.replica(false);
    assert_eq!(next.settled().await, first(&stored.server));
    assert_eq!(cluster.versions().await, versions, "a restart writes nothing");
}

#[tokio::test]
async fn the_bundle_is_the_one_field_that_is_ours_so_a_gitops_tool_sees_no_difference() {
    let cluster = Cluster::installed().await;
    let replica = cluster.replica(false);
    let stored = cluster.until_trusted().await;
    replica.settled().await;
    let webhooks = cluster.webhooks.get(WEBHOOKS).await.unwrap().metadata.managed_fields.unwrap();
    let definition = cluster.definitions.get(DEFINITION).await.unwrap().metadata.managed_fields.unwrap();
    let hook = |name: &str| {
        (
            format!("k:{{\"name\":\"{name}\"}}"),
            json!({
                ".": {}, "f:name": {}, "f:clientConfig": { "f:caBundle": {} },
            }),
        )
    };
    for (fields, expected) in [
        (
            webhooks,
            json!({ "f:webhooks": Value::Object([hook("a.metallb.io"), hook("b.metallb.io")].into_iter().collect()) }),
        ),
        (
            definition,
            json!({ "f:spec": { "f:conversion": { "f:webhook": { "f:clientConfig": { "f:caBundle": {} } } } } }),
        ),
    ] {
        let ours = fields.into_iter().find(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER)).unwrap();
        assert_eq!(ours.operation.as_deref(), Some("Apply"));
        assert_eq!(ours.fields_v1.unwrap().0, expected);
    }

    // Applied again, without force: no conflict, and what was applied is what is there.
    let versions = cluster.versions().await;
    cluster.apply_manifests().await;
    assert_eq!(cluster.versions().await, versions);
    assert!(cluster.bundles().await.iter().all(|bundle| *bundle == stored.ca));
}

#[tokio::test]
async fn a_bundle_that_somebody_takes_away_is_put_back() {
    let cluster = Cluster::installed().await;
    let replica = cluster.replica(false);
    cluster.until_trusted().await;
    replica.settled().await;
    let remove = json!([{ "op": "remove", "path": "/webhooks/1/clientConfig/caBundle" }]);
    let remove = Patch::Json::<()>(serde_json::from_value(remove).unwrap());
    cluster.webhooks.patch(WEBHOOKS, &PatchParams::default(), &remove).await.unwrap();
    cluster.until_trusted().await;

    cluster.webhooks.delete(WEBHOOKS, &DeleteParams::default()).await.unwrap();
    cluster.apply_manifests().await;
    cluster.until_trusted().await;
}

#[tokio::test]
async fn va_11_replicas_that_start_together_agree_on_one_certificate() {
    let cluster = Cluster::installed().await;
    let replicas = [cluster.replica(false), cluster.replica(false), cluster.replica(false)];
    let stored = cluster.until_trusted().await;
    for replica in &replicas {
        until("the replica presents what the Secret holds", || async {
            (replica.presented()? == first(&stored.server)).then_some(())
        })
        .await;
    }
    assert_eq!(cluster.stored().await, Some(stored));
}

#[tokio::test]
async fn va_11_a_certificate_near_its_end_is_renewed_with_the_ca_that_is_there() {
    let cluster = Cluster::new().await;
    let now = SystemTime::now();
    let old = Material::issue(DNS, now - 300 * DAY).unwrap();
    cluster.secret(Some(&old)).await;
    cluster.apply_manifests().await;
    let replica = cluster.replica(false);
    let stored = until("the certificate is renewed", || async {
        cluster.stored().await.filter(|stored| stored.server != old.server)
    })
    .await;
    assert_eq!((&stored.ca, &stored.ca_key), (&old.ca, &old.ca_key));
    until("it is presented", || async { (replica.presented()? == first(&stored.server)).then_some(()) })
        .await;
    cluster.until_trusted().await;
}

#[tokio::test]
async fn va_11_a_new_ca_comes_in_beside_the_old_one_and_every_replica_goes_over_to_it() {
    let cluster = Cluster::installed().await;
    let replicas = [cluster.replica(false), cluster.replica(false)];
    let old = cluster.until_trusted().await;
    for replica in &replicas {
        replica.settled().await;
    }
    let empty = json!({ "data": { "ca.crt": null, "ca.key": null, "tls.crt": null, "tls.key": null } });
    cluster.secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(empty)).await.unwrap();
    let new = until("there is a new CA", || async {
        cluster.stored().await.filter(|stored| !stored.ca.is_empty() && stored.ca != old.ca)
    })
    .await;
    for replica in &replicas {
        until("the new certificate is presented", || async {
            (replica.presented()? == first(&new.server)).then_some(())
        })
        .await;
    }
    let both = [new.ca.clone(), old.ca.clone()].concat();
    assert!(cluster.bundles().await.iter().all(|bundle| *bundle == both));
}

#[tokio::test]
async fn a_missing_secret_is_waited_for_and_made_only_where_that_was_asked_for() {
    let cluster = Cluster::new().await;
    cluster.apply_manifests().await;
    let waiting = cluster.replica(false);
    // It looked, and complained.
    until("the Secret was looked for", || async {
        let audit = cluster.bench.server.audit();
        audit.latest.iter().any(|it| it.kind.verb == "watch" && it.kind.resource == "secrets").then_some(())
    })
    .await;
    assert!(cluster.secrets.get_opt(SECRET).await.unwrap().is_none());
    let making = cluster.replica(true);
    let stored = cluster.until_trusted().await;
    assert_eq!(making.settled().await, first(&stored.server));
    assert_eq!(waiting.settled().await, first(&stored.server));

    // While it is gone, what is presented stays.
    drop(making);
    cluster.secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    cluster.secret(Some(&stored)).await;
    assert_eq!(waiting.presented(), Some(first(&stored.server)));
}

#[tokio::test]
async fn whoever_names_no_ca_keeps_nobody_from_serving() {
    let cluster = Cluster::new().await;
    cluster.secret(None).await;
    let replica = cluster.replica(false);
    let presented = replica.settled().await;
    assert_eq!(presented, first(&cluster.stored().await.unwrap().server));
    cluster.apply_manifests().await;
    cluster.until_trusted().await;
}

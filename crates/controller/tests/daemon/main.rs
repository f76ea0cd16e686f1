// SPDX-License-Identifier: Apache-2.0
//! The controller as a whole, against an API server on a real socket.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test")]

#[path = "../../../kube-support/tests/api/cable.rs"]
mod cable;
mod replicas;
mod webhook;

use std::path::PathBuf;

use ferrolb_api::{ConfigurationState, IPAddressPool};
use ferrolb_config::BgpType;
use ferrolb_controller::{Level, Options, WebhookMode, WebhookOptions, run};
use ferrolb_fakekube::{Effect, Fault, RequestMatch};
use ferrolb_kube_support::client::Source;
use ferrolb_kube_support::common::Common;
use ferrolb_kube_support::tls::TlsOptions;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use cable::{Bench, soon, until};

const NAMESPACE: &str = "metallb-system";

struct Controller {
    stop: CancellationToken,
    ended: JoinHandle<anyhow::Result<()>>,
}

impl Controller {
    fn start(bench: &Bench, memberlist_secret: Option<&str>) -> Self {
        Self::with(bench, options(memberlist_secret))
    }

    fn with(bench: &Bench, options: Options) -> Self {
        let stop = CancellationToken::new();
        let ended = tokio::spawn(run(options, bench.client.clone(), stop.clone()));
        Self { stop, ended }
    }

    async fn stop(self) {
        self.stop.cancel();
        soon("the controller ends", self.ended).await.unwrap().unwrap();
    }
}

fn options(memberlist_secret: Option<&str>) -> Options {
    Options {
        common: Common {
            namespace: NAMESPACE.to_owned(),
            pod_name: "controller-0".to_owned(),
            lb_class: String::new(),
            metrics_port: 0,
            health_port: 0,
            tls: TlsOptions::parse("", "", "").unwrap(),
            metrics_cert_dir: PathBuf::from("/nowhere"),
            source: Source::default(),
        },
        deployment: "controller".to_owned(),
        memberlist_secret: memberlist_secret.map(str::to_owned),
        webhook_mode: WebhookMode::Disabled,
        webhook: WebhookOptions {
            port: 0,
            rotate: true,
            directory: PathBuf::from("/nowhere"),
            service: "metallb-webhook-service".to_owned(),
            secret: "metallb-webhook-cert".to_owned(),
            http2: false,
        },
        bgp_type: BgpType::Native,
        level: Level::A,
    }
}

async fn create<K>(bench: &Bench, namespace: &str, object: Value) -> K
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = Api::namespaced(bench.direct.clone(), namespace);
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

async fn cluster(bench: &Bench) {
    let namespaces: Api<Namespace> = Api::all(bench.direct.clone());
    for name in [NAMESPACE, "demo"] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.direct.clone());
    for definition in ferrolb_api::crds() {
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
}

async fn pod(bench: &Bench) -> Pod {
    let pod =
        json!({"metadata": {"name": "controller-0"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(bench, NAMESPACE, pod).await
}

async fn pool(bench: &Bench) {
    let pool = json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"name": "first-pool"}, "spec": {"addresses": ["192.168.10.200-192.168.10.220"]},
    });
    create::<IPAddressPool>(bench, NAMESPACE, pool).await;
}

async fn service(bench: &Bench, name: &str) {
    let service = json!({
        "metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    create::<Service>(bench, "demo", service).await;
}

async fn address(bench: &Bench, name: &str) -> String {
    let api: Api<Service> = Api::namespaced(bench.direct.clone(), "demo");
    until("the Service has an address", || async {
        let service = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
        service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned)
    })
    .await
}

async fn events(bench: &Bench, name: &str) -> Vec<(String, String)> {
    let api: Api<Event> = Api::namespaced(bench.direct.clone(), "demo");
    until("the Service has an event", || async {
        let of_service = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = api.list(&of_service).await.unwrap().items;
        let told = events.into_iter().map(|event| (event.reason.unwrap(), event.message.unwrap()));
        Some(told.collect::<Vec<_>>()).filter(|events| !events.is_empty())
    })
    .await
}

#[tokio::test]
async fn a_service_gets_its_address_an_event_and_the_pool_its_counts() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    let pod = pod(&bench).await;
    pool(&bench).await;
    let controller = Controller::start(&bench, None);
    service(&bench, "hello-lb").await;
    assert_eq!(address(&bench, "hello-lb").await, "192.168.10.200");
    let told = ("IPAllocated".to_owned(), "Assigned IP [\"192.168.10.200\"]".to_owned());
    assert_eq!(events(&bench, "hello-lb").await, [told]);

    let pools: Api<IPAddressPool> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    until("the pool counts", || async {
        let pool = serde_json::to_value(pools.get("first-pool").await.unwrap()).unwrap();
        let counts = (pool["status"]["assignedIPv4"].as_i64(), pool["status"]["availableIPv4"].as_i64());
        (counts == (Some(1), Some(20))).then_some(())
    })
    .await;
    let states: Api<ConfigurationState> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    until("the ConfigurationState is valid and the Pod's", || async {
        let state = serde_json::to_value(states.get_opt("controller").await.unwrap()?).unwrap();
        let owner = state["metadata"]["ownerReferences"][0]["uid"].as_str().map(str::to_owned);
        (state["status"]["result"] == "Valid" && owner == pod.metadata.uid).then_some(())
    })
    .await;
    controller.stop().await;
}

#[tokio::test]
async fn an_outage_keeps_what_is_allocated_and_ends_without_a_restart() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    pod(&bench).await;
    pool(&bench).await;
    let controller = Controller::start(&bench, None);
    service(&bench, "before").await;
    address(&bench, "before").await;

    bench.pull();
    service(&bench, "during").await;
    let services: Api<Service> = Api::namespaced(bench.direct.clone(), "demo");
    services.delete("before", &DeleteParams::default()).await.unwrap();
    // What happened meanwhile is no longer in the server's history.
    bench.server.compact();
    assert!(!controller.ended.is_finished());
    bench.plug_in();
    let during = address(&bench, "during").await;
    assert!(during == "192.168.10.200" || during == "192.168.10.201", "{during}");
    service(&bench, "after").await;
    let after = address(&bench, "after").await;
    assert_ne!(after, during);
    controller.stop().await;
}

#[tokio::test]
async fn a_start_without_an_api_server_waits_for_it() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    pool(&bench).await;
    service(&bench, "hello-lb").await;
    bench.pull();
    let controller = Controller::start(&bench, None);
    tokio::task::yield_now().await;
    bench.plug_in();
    // Its Pod is not there yet either.
    pod(&bench).await;
    assert_eq!(address(&bench, "hello-lb").await, "192.168.10.200");
    controller.stop().await;
}

#[tokio::test]
async fn s19_a_list_that_cannot_be_read_leaves_the_condition_as_it_is() {
    // MetalLB reports a configuration that it could not read as valid.
    let bench = Bench::new().await;
    cluster(&bench).await;
    pod(&bench).await;
    let spec = |addresses: &str| json!({ "spec": { "addresses": [addresses] } });
    pool(&bench).await;
    let pools: Api<IPAddressPool> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    let change = async |spec: Value| {
        pools.patch("first-pool", &PatchParams::default(), &Patch::Merge(spec)).await.unwrap();
    };
    let states: Api<ConfigurationState> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    let state = async |result: &'static str| {
        until(result, || async {
            let state = states.get_opt("controller").await.unwrap()?;
            let is = state.status.as_ref()?.result?.as_str() == result;
            is.then_some(state)
        })
        .await
    };
    change(spec("192.168.10.0/33")).await;
    let controller = Controller::start(&bench, None);
    state("Invalid").await;
    controller.stop().await;
    let before = state("Invalid").await;

    change(spec("192.168.10.0/24")).await;
    let faults = bench.server.faults();
    let pools_are_out_of_reach = faults.add(Fault::new(
        RequestMatch::new(&["list"], &["ipaddresspools.metallb.io"]),
        Effect::Fail { code: 500, reason: String::new(), message: "not now".into(), retry_after: None },
    ));
    let controller = Controller::start(&bench, None);
    until("it was tried again", || async { (faults.list()[0].applied >= 2).then_some(()) }).await;
    assert_eq!(states.get("controller").await.unwrap(), before);
    faults.remove(pools_are_out_of_reach);
    state("Valid").await;
    controller.stop().await;
}

#[tokio::test]
async fn the_memberlist_secret_is_made_once_and_never_changed() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    pod(&bench).await;
    let labels = json!({"app": "metallb"});
    let deployment = json!({
        "metadata": {"name": "controller"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let deployment: Deployment = create(&bench, NAMESPACE, deployment).await;
    let secrets: Api<Secret> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    let made = async || {
        until("the Secret is there", || async { secrets.get_opt("memberlist").await.unwrap() }).await
    };

    let controller = Controller::start(&bench, Some("memberlist"));
    let first = made().await;
    assert_eq!(first.data.as_ref().unwrap()["secretkey"].0.len(), 22);
    let owner = &first.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("Deployment", deployment.metadata.uid.as_ref()));
    controller.stop().await;

    let controller = Controller::start(&bench, Some("memberlist"));
    pool(&bench).await;
    service(&bench, "any").await;
    address(&bench, "any").await;
    assert_eq!(made().await, first);
    controller.stop().await;
}

// SPDX-License-Identifier: Apache-2.0
//! Several controllers on one API server: the Lease with our manifests, the Pods of others with MetalLB's.

use ferrolb_controller::Level;
use ferrolb_fakekube::{Effect, Fault, RequestMatch};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::cable::{Bench, until};
use crate::{Controller, NAMESPACE, address, cluster, create, events, options, pool, service};

/// Starts the controller of this Pod under our manifests.
fn start(bench: &Bench, pod: &str) -> Controller {
    let mut options = options(None);
    options.common.pod_name = pod.to_owned();
    options.level = Level::B;
    Controller::with(bench, options)
}

/// A Pod of a controller.
async fn pod(bench: &Bench, name: &str, image: &str, node: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "metallb", "component": "controller", "pod-template-hash": name}},
        "spec": {"nodeName": node, "containers": [{"name": "controller", "image": image}]},
    });
    create(bench, NAMESPACE, pod).await
}

async fn ready_node(bench: &Bench, name: &str) {
    let nodes: Api<Node> = Api::all(bench.direct.clone());
    let node = json!({
        "metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let node: Node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    nodes.replace_status(name, &PostParams::default(), &node).await.unwrap();
}

/// Who holds the Lease, and what it is about to write.
async fn lease(bench: &Bench) -> (String, String) {
    let leases: Api<Lease> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    let Some(lease) = leases.get_opt("ferrolb-controller").await.unwrap() else { return Default::default() };
    let intents = lease.metadata.annotations.unwrap_or_default().remove("ferrolb.io/intents");
    (lease.spec.unwrap().holder_identity.unwrap_or_default(), intents.unwrap_or_default())
}

async fn holder_is(bench: &Bench, pod: &Pod) {
    let identity = format!("{}_{}", pod.metadata.name.as_ref().unwrap(), pod.metadata.uid.as_ref().unwrap());
    until("it holds the Lease", || async { (lease(bench).await.0 == identity).then_some(()) }).await;
}

async fn get(bench: &Bench, name: &str) -> Value {
    let services: Api<Service> = Api::namespaced(bench.direct.clone(), "demo");
    serde_json::to_value(services.get(name).await.unwrap()).unwrap()
}

#[tokio::test]
async fn one_of_two_decides_and_the_other_takes_over_when_it_ends() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    let pods = [pod(&bench, "controller-0", "i", "n").await, pod(&bench, "controller-1", "i", "n").await];
    pool(&bench).await;
    let first = start(&bench, "controller-0");
    holder_is(&bench, &pods[0]).await;
    let second = start(&bench, "controller-1");
    service(&bench, "a").await;
    assert_eq!(address(&bench, "a").await, "192.168.10.200");
    let condition = get(&bench, "a").await["status"]["conditions"][0].clone();
    assert_eq!(
        (condition["type"].as_str(), condition["status"].as_str(), condition["message"].as_str()),
        (Some("ferrolb.io/Allocated"), Some("True"), Some("192.168.10.200 from pool first-pool"))
    );
    assert_eq!(events(&bench, "a").await.len(), 1);
    first.stop().await;
    holder_is(&bench, &pods[1]).await;
    service(&bench, "b").await;
    assert_eq!(address(&bench, "b").await, "192.168.10.201");
    until("what is done is no intent any more", || async { lease(&bench).await.1.eq("[]").then_some(()) })
        .await;
    second.stop().await;
    assert_eq!(lease(&bench).await.0, "");
}

#[tokio::test]
async fn a_late_write_of_a_dead_leader_takes_nobodys_address() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    let pods = [pod(&bench, "controller-0", "i", "n").await, pod(&bench, "controller-1", "i", "n").await];
    pool(&bench).await;
    let first = start(&bench, "controller-0");
    holder_is(&bench, &pods[0]).await;
    let faults = bench.server.faults();
    let status =
        RequestMatch { name: "a".to_owned(), ..RequestMatch::new(&["update"], &["services/status"]) };
    faults.add(Fault::once(status.clone(), Effect::Hold));
    service(&bench, "a").await;
    let held = until("the write is under way", || async { faults.held().first().map(|held| held.id) }).await;
    assert!(lease(&bench).await.1.contains("192.168.10.200"), "{}", lease(&bench).await.1);
    first.ended.abort();

    // The successor cannot write that Service, so its address stays reserved, and others get others.
    let refusal = faults.add(Fault::new(status, Effect::fail(403)));
    let second = start(&bench, "controller-1");
    service(&bench, "b").await;
    assert_eq!(address(&bench, "b").await, "192.168.10.201");
    holder_is(&bench, &pods[1]).await;
    assert!(lease(&bench).await.1.contains("192.168.10.200"), "it is inherited");
    faults.remove(refusal);
    assert!(faults.release(held));
    assert_eq!(address(&bench, "a").await, "192.168.10.200");
    until("the doubt is over", || async { lease(&bench).await.1.eq("[]").then_some(()) }).await;
    second.stop().await;
}

#[tokio::test]
async fn under_metallbs_manifests_it_waits_until_metallbs_controller_is_gone() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    ready_node(&bench, "n1").await;
    pod(&bench, "controller-0", "ferrolb/controller:v1", "n1").await;
    pod(&bench, "metallb", "quay.io/metallb/controller:v0.16.1", "n1").await;
    pool(&bench).await;
    let controller = Controller::start(&bench, None);
    service(&bench, "a").await;
    until("it has looked twice", || async {
        let looks = bench.server.audit().count(|kind| kind.verb == "list" && kind.resource == "nodes");
        (looks >= 2).then_some(())
    })
    .await;
    assert!(get(&bench, "a").await["status"]["loadBalancer"]["ingress"].is_null());
    let written =
        |kind: &ferrolb_fakekube::RequestKind| kind.is_write() && kind.resource == "configurationstates";
    assert_eq!(bench.server.audit().count(written), 0);
    let pods: Api<Pod> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    pods.delete("metallb", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(address(&bench, "a").await, "192.168.10.200");
    assert!(get(&bench, "a").await["status"]["conditions"].is_null());
    assert_eq!(lease(&bench).await.0, "");
    controller.stop().await;
}

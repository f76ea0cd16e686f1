// SPDX-License-Identifier: Apache-2.0
//! What becomes of the writes that a core asks for.

use ferrolb_api::request::{ApiRequest, Resource, Verb, WriteResult};
use ferrolb_kube_support::reach::Reach;
use ferrolb_kube_support::writes::Writer;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::cable::{Bench, soon};

fn writer(bench: &Bench) -> (Writer<u32>, mpsc::UnboundedReceiver<(u32, WriteResult)>) {
    let (done, results) = mpsc::unbounded_channel();
    let writer = Writer::start(bench.client.clone(), Reach::default(), move |id, result| {
        let _ = done.send((id, result));
    });
    (writer, results)
}

async fn service(bench: &Bench, name: &str) -> Value {
    let service = serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }))
    .unwrap();
    let api: Api<Service> = Api::namespaced(bench.direct.clone(), "default");
    let mut value =
        serde_json::to_value(api.create(&PostParams::default(), &service).await.unwrap()).unwrap();
    value["apiVersion"] = "v1".into();
    value["kind"] = "Service".into();
    value
}

fn put(mut object: Value, ip: &str) -> ApiRequest {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    object["status"] = json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
    ApiRequest::status(Verb::Put, Resource::Services, "default", &name, object)
}

#[tokio::test]
async fn an_answer_carries_the_object_and_a_refusal_its_code_and_reason() {
    let bench = Bench::new().await;
    let (writer, mut results) = writer(&bench);
    let object = service(&bench, "web").await;
    writer.send(1, put(object.clone(), "192.168.10.200"));
    let (id, result) = soon("the first write", results.recv()).await.unwrap();
    let stored = result.unwrap();
    assert_eq!(id, 1);
    assert_eq!(
        stored["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "192.168.10.200", "ipMode": "VIP"}])
    );
    let managers: Vec<&str> = stored["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap())
        .collect();
    assert!(managers.contains(&"test"), "the User-Agent's first word is the manager: {managers:?}");

    writer.send(2, put(object, "192.168.10.201"));
    let error = soon("the second write", results.recv()).await.unwrap().1.unwrap_err();
    assert!(error.is_conflict(), "{error:?}");
    writer.send(3, ApiRequest::delete(Resource::ServiceL2Statuses, "default", "none", None));
    let error = soon("the third write", results.recv()).await.unwrap().1.unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
}

#[tokio::test]
async fn writes_to_one_object_arrive_in_order() {
    let bench = Bench::new().await;
    let (writer, mut results) = writer(&bench);
    service(&bench, "web").await;
    service(&bench, "other").await;
    for n in 0..40_u32 {
        let name = if n % 2 == 0 { "web" } else { "other" };
        let body = json!({"status": {"loadBalancer": {"ingress": [{"ip": format!("10.0.0.{n}")}]}}});
        let patch = Verb::MergePatch { manager: None };
        writer.send(n, ApiRequest::status(patch, Resource::Services, "default", name, body));
    }
    let mut order = [Vec::new(), Vec::new()];
    for _ in 0..40 {
        let (id, result) = soon("a write", results.recv()).await.unwrap();
        assert_eq!(
            result.unwrap()["status"]["loadBalancer"]["ingress"][0]["ip"],
            format!("10.0.0.{id}").as_str()
        );
        order[(id % 2) as usize].push(id);
    }
    assert!(order.iter().all(|ids| ids.len() == 20 && ids.is_sorted()), "{order:?}");
}

#[tokio::test]
async fn an_outage_is_told_as_no_answer() {
    let bench = Bench::new().await;
    let (writer, mut results) = writer(&bench);
    let object = service(&bench, "web").await;
    bench.pull();
    writer.send(1, put(object.clone(), "192.168.10.200"));
    let error = soon("the failure", results.recv()).await.unwrap().1.unwrap_err();
    assert_eq!(error.code, 0, "{error:?}");
    bench.plug_in();
    writer.send(2, put(object, "192.168.10.200"));
    assert!(soon("the write after the outage", results.recv()).await.unwrap().1.is_ok());
}

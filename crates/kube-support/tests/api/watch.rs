// SPDX-License-Identifier: Apache-2.0
//! What a watch delivers, through outages and expired versions.

use std::collections::BTreeSet;

use ferrolb_api::Change;
use ferrolb_kube_support::reach::Reach;
use ferrolb_kube_support::watch::{Delivery, Watch};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::mpsc;

use crate::cable::{Bench, soon};

fn start<K>(bench: &Bench, watch: Watch<K>) -> mpsc::Receiver<Delivery<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(1024);
    let client = bench.client.clone();
    tokio::spawn(async move {
        let take = |delivery| {
            let sender = sender.clone();
            async move { sender.send(delivery).await.is_ok() }
        };
        watch.run(client, Reach::default(), take).await;
    });
    receiver
}

async fn next<K>(receiver: &mut mpsc::Receiver<Delivery<K>>) -> Delivery<K> {
    soon("a delivery of the watch", receiver.recv()).await.unwrap()
}

async fn change<K: std::fmt::Debug>(receiver: &mut mpsc::Receiver<Delivery<K>>) -> Change<K> {
    match next(receiver).await {
        Delivery::Change(change) => change,
        other @ Delivery::Undecodable(_) => panic!("{other:?}"),
    }
}

fn names<K: Resource<DynamicType = ()>>(objects: &[K]) -> Vec<String> {
    objects.iter().map(kube::ResourceExt::name_any).collect()
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"}},
        "data": {"key": "value"},
    }))
    .unwrap()
}

fn maps(bench: &Bench) -> Api<ConfigMap> {
    Api::namespaced(bench.direct.clone(), "default")
}

async fn create(api: &Api<ConfigMap>, name: &str) {
    api.create(&PostParams::default(), &map(name)).await.unwrap();
}

#[tokio::test]
async fn a_list_comes_first_and_every_change_after_it() {
    let bench = Bench::new().await;
    let api = maps(&bench);
    create(&api, "a").await;
    let mut watch = start(&bench, Watch::<ConfigMap>::namespaced("default"));
    let Change::Reset(all) = change(&mut watch).await else { panic!("no list first") };
    assert_eq!(names(&all), ["a"]);
    let meta = &all[0].metadata;
    assert!(meta.managed_fields.is_none(), "managed fields are dropped");
    assert_eq!(meta.annotations.as_ref().unwrap().keys().collect::<Vec<_>>(), ["kept"]);

    create(&api, "b").await;
    let Change::Applied(b) = change(&mut watch).await else { panic!("b is not told") };
    assert_eq!(b.name_any(), "b");
    let patch = Patch::Merge(json!({"data": {"key": "new"}}));
    api.patch("b", &PatchParams::default(), &patch).await.unwrap();
    let Change::Applied(b) = change(&mut watch).await else { panic!("the change of b is not told") };
    assert_eq!(b.data.unwrap()["key"], "new");
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let gone = Change::Deleted { namespace: "default".into(), name: "a".into() };
    assert_eq!(change(&mut watch).await, gone);
}

#[tokio::test]
async fn selectors_choose() {
    let bench = Bench::new().await;
    let api = maps(&bench);
    create(&api, "a").await;
    create(&api, "b").await;
    let mut watch = start(&bench, Watch::<ConfigMap>::namespaced("default").fields("metadata.name=b".into()));
    let Change::Reset(all) = change(&mut watch).await else { panic!("no list") };
    assert_eq!(names(&all), ["b"]);
}

#[tokio::test]
async fn a_long_list_is_read_page_by_page() {
    let bench = Bench::new().await;
    let api = maps(&bench);
    let wanted: BTreeSet<String> = (0..1203).map(|n| format!("m-{n}")).collect();
    for name in &wanted {
        create(&api, name).await;
    }
    let mut watch = start(&bench, Watch::<ConfigMap>::namespaced("default"));
    let Change::Reset(all) = change(&mut watch).await else { panic!("no list") };
    assert_eq!(names(&all).into_iter().collect::<BTreeSet<_>>(), wanted);
}

#[tokio::test]
async fn an_outage_loses_nothing() {
    let bench = Bench::new().await;
    let api = maps(&bench);
    create(&api, "a").await;
    let mut watch = start(&bench, Watch::<ConfigMap>::namespaced("default"));
    change(&mut watch).await;
    bench.pull();
    create(&api, "b").await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    bench.plug_in();
    let Change::Applied(b) = change(&mut watch).await else { panic!("b is not told") };
    assert_eq!(b.name_any(), "b");
    assert!(matches!(change(&mut watch).await, Change::Deleted { name, .. } if name == "a"));
}

#[tokio::test]
async fn a_watch_on_a_dead_connection_begins_anew_when_an_outage_is_over() {
    let bench = Bench::new().await;
    let api = maps(&bench);
    let reach = Reach::default();
    let (sender, mut receiver) = mpsc::channel(16);
    let watch = Watch::<ConfigMap>::namespaced("default");
    tokio::spawn(watch.run(bench.client.clone(), reach.clone(), move |delivery| {
        let sender = sender.clone();
        async move { sender.send(delivery).await.is_ok() }
    }));
    assert!(matches!(change(&mut receiver).await, Change::Reset(_)));
    create(&api, "before").await;
    assert!(matches!(change(&mut receiver).await, Change::Applied(_)));

    bench.fall_silent();
    create(&api, "during").await;
    reach.renew(reach.last());
    let Change::Applied(object) = change(&mut receiver).await else { panic!("it goes on where it was") };
    assert_eq!(object.name_any(), "during");
}

#[tokio::test]
async fn a_version_that_the_server_forgot_starts_over_with_a_list() {
    let bench = Bench::new().await;
    let api = maps(&bench);
    create(&api, "a").await;
    let mut watch = start(&bench, Watch::<ConfigMap>::namespaced("default"));
    change(&mut watch).await;
    bench.pull();
    create(&api, "b").await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    bench.server.compact();
    bench.plug_in();
    let Change::Reset(all) = change(&mut watch).await else { panic!("no new list") };
    assert_eq!(names(&all), ["b"]);
}

/// ConfigMaps as a type that demands a key `size` holding a number.
#[derive(Clone, Debug, Deserialize)]
struct Sized {
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    #[serde(rename = "data")]
    _data: SizedData,
}

#[derive(Clone, Debug, Deserialize)]
struct SizedData {
    #[serde(rename = "size")]
    _size: String,
}

impl Resource for Sized {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind(_: &()) -> std::borrow::Cow<'_, str> {
        "ConfigMap".into()
    }

    fn group(_: &()) -> std::borrow::Cow<'_, str> {
        "".into()
    }

    fn version(_: &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> std::borrow::Cow<'_, str> {
        "configmaps".into()
    }

    fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        &mut self.metadata
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_reported_and_breaks_nothing() {
    let bench = Bench::new().await;
    let api = maps(&bench);
    let merge = PatchParams::default();
    create(&api, "bad").await;
    create(&api, "good").await;
    api.patch("good", &merge, &Patch::Merge(json!({"data": {"size": "1"}}))).await.unwrap();

    let mut watch = start(&bench, Watch::<Sized>::namespaced("default"));
    let Delivery::Undecodable(doubtful) = next(&mut watch).await else { panic!("bad is not reported") };
    assert_eq!(doubtful.len(), 1);
    assert_eq!((doubtful[0].namespace.as_str(), doubtful[0].name.as_str()), ("default", "bad"));
    assert!(doubtful[0].error.contains("size"), "{}", doubtful[0].error);
    let Change::Reset(all) = change(&mut watch).await else { panic!("no list") };
    assert_eq!(names(&all), ["good"]);

    // The good one turns bad: that is reported, and it is not taken for gone, not even by a new list.
    api.patch("good", &merge, &Patch::Merge(json!({"data": {"size": null}}))).await.unwrap();
    let Delivery::Undecodable(doubtful) = next(&mut watch).await else { panic!("good is not reported") };
    assert_eq!(doubtful.len(), 2);
    bench.pull();
    api.delete("bad", &DeleteParams::default()).await.unwrap();
    create(&api, "third").await;
    api.patch("third", &merge, &Patch::Merge(json!({"data": {"size": "3"}}))).await.unwrap();
    bench.server.compact();
    bench.plug_in();
    let Delivery::Undecodable(doubtful) = next(&mut watch).await else {
        panic!("what is left is not reported")
    };
    assert_eq!(doubtful.iter().map(|object| object.name.as_str()).collect::<Vec<_>>(), ["good"]);
    let Change::Applied(third) = change(&mut watch).await else { panic!("third is not told by itself") };
    assert_eq!(third.name_any(), "third");

    // And good again.
    api.patch("good", &merge, &Patch::Merge(json!({"data": {"size": "2"}}))).await.unwrap();
    assert!(matches!(next(&mut watch).await, Delivery::Undecodable(doubtful) if doubtful.is_empty()));
    assert!(matches!(change(&mut watch).await, Change::Applied(good) if good.name_any() == "good"));
}

#[tokio::test]
async fn a_cluster_scoped_kind_has_no_namespace() {
    let bench = Bench::new().await;
    let mut watch = start(&bench, Watch::<Namespace>::cluster());
    assert!(matches!(change(&mut watch).await, Change::Reset(_)));
    let api: Api<Namespace> = Api::all(bench.direct.clone());
    let demo: Namespace = serde_json::from_value(json!({"metadata": {"name": "demo"}})).unwrap();
    api.create(&PostParams::default(), &demo).await.unwrap();
    assert!(matches!(change(&mut watch).await, Change::Applied(found) if found.name_any() == "demo"));
}

#[tokio::test]
async fn an_optional_kind_that_is_not_served_counts_as_empty() {
    let bench = Bench::new().await;
    let mut watch = start(&bench, Watch::<ferrolb_api::BFDProfile>::namespaced("default").optional());
    assert!(matches!(change(&mut watch).await, Change::Reset(all) if all.is_empty()));
}

#[tokio::test]
async fn a_kind_is_read_as_soon_as_its_definition_is_applied() {
    let bench = Bench::new().await;
    let mut watch = start(&bench, Watch::<ferrolb_api::BFDProfile>::namespaced("default"));
    let definitions: Api<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    > = Api::all(bench.direct.clone());
    for definition in ferrolb_api::crds() {
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
    assert!(matches!(change(&mut watch).await, Change::Reset(all) if all.is_empty()));
}

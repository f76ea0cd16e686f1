// SPDX-License-Identifier: Apache-2.0
//! Watches.

use std::time::Duration;

use futures::AsyncBufReadExt;
use futures::io::Lines;
use futures::stream::StreamExt;
use serde_json::{Value, json};

use crate::target::{MERGE, Target, on_fake};

on_fake! {
    a_watch_sees_every_change_once => super::a_watch_sees_every_change_once,
    a_streaming_list_ends_with_a_bookmark => super::a_streaming_list_ends_with_a_bookmark,
    selected_objects_come_and_go => super::selected_objects_come_and_go,
}

struct Events(Lines<Box<dyn futures::io::AsyncBufRead + Send + Unpin>>);

impl Events {
    async fn start(target: &Target, path: &str) -> Self {
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        let stream = target.client.request_stream(request).await.expect("a stream");
        Self((Box::new(Box::pin(stream)) as Box<dyn futures::io::AsyncBufRead + Send + Unpin>).lines())
    }

    /// The next event: its type and the object.
    async fn next(&mut self) -> (String, Value) {
        let line =
            tokio::time::timeout(Duration::from_secs(10), self.0.next()).await.expect("an event in time");
        let event: Value =
            serde_json::from_str(&line.expect("an open watch").expect("a line")).expect("JSON");
        (event["type"].as_str().expect("a type").to_owned(), event["object"].clone())
    }

    async fn expect(&mut self, kind: &str, name: &str) -> Value {
        let (found, object) = self.next().await;
        assert_eq!((found.as_str(), object["metadata"]["name"].as_str()), (kind, Some(name)), "{object}");
        object
    }

    /// Whether the server ends the stream.
    async fn ends(&mut self) -> bool {
        matches!(tokio::time::timeout(Duration::from_secs(10), self.0.next()).await, Ok(None))
    }
}

pub(crate) async fn a_watch_sees_every_change_once(target: &Target) {
    let path = target.namespace("seen").await + "/configmaps";
    let made = target.post(&path, json!({ "metadata": { "name": "a" } })).await.ok();
    let list = target.get(&path).await.ok();
    let revision = list["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    let mut events = Events::start(target, &format!("{path}?watch=1&resourceVersion={revision}")).await;
    target.patch(&format!("{path}/a"), MERGE, json!({ "data": { "k": "v" } })).await.ok();
    target.post(&path, json!({ "metadata": { "name": "b" } })).await.ok();
    target.delete(&format!("{path}/a")).await.ok();
    let modified = events.expect("MODIFIED", "a").await;
    assert_eq!(modified["data"]["k"], "v");
    assert_eq!(modified["metadata"]["uid"], made["metadata"]["uid"]);
    events.expect("ADDED", "b").await;
    let deleted = events.expect("DELETED", "a").await;
    let number =
        |object: &Value| object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse::<u64>().ok());
    assert!(number(&deleted) > number(&modified), "a deletion has a revision of its own");
    // Without a revision the present comes first.
    let mut events = Events::start(target, &format!("{path}?watch=1")).await;
    events.expect("ADDED", "b").await;
}

pub(crate) async fn a_streaming_list_ends_with_a_bookmark(target: &Target) {
    let path = target.namespace("streamed").await + "/configmaps";
    for name in ["a", "b"] {
        target.post(&path, json!({ "metadata": { "name": name } })).await.ok();
    }
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = Events::start(target, &format!("{path}?{query}")).await;
    events.expect("ADDED", "a").await;
    events.expect("ADDED", "b").await;
    let (kind, bookmark) = events.next().await;
    assert_eq!(kind, "BOOKMARK");
    assert_eq!(bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    target.post(&path, json!({ "metadata": { "name": "c" } })).await.ok();
    events.expect("ADDED", "c").await;
}

pub(crate) async fn selected_objects_come_and_go(target: &Target) {
    let path = target.namespace("moving").await + "/configmaps";
    target.post(&path, json!({ "metadata": { "name": "a" } })).await.ok();
    let revision =
        target.get(&path).await.ok()["metadata"]["resourceVersion"].as_str().expect("one").to_owned();
    let query = format!("watch=1&resourceVersion={revision}&labelSelector=in%3Dview");
    let mut events = Events::start(target, &format!("{path}?{query}")).await;
    let label = async |value: Value| {
        target
            .patch(&format!("{path}/a"), MERGE, json!({ "metadata": { "labels": { "in": value } } }))
            .await
            .ok();
    };
    label("view".into()).await;
    events.expect("ADDED", "a").await;
    label(Value::Null).await;
    events.expect("DELETED", "a").await;
    label("view".into()).await;
    events.expect("ADDED", "a").await;
}

#[tokio::test]
async fn a_watch_from_forgotten_history_is_told_so() {
    let target = Target::fake().await;
    let path = target.namespace("old").await + "/configmaps";
    target.post(&path, json!({ "metadata": { "name": "a" } })).await.ok();
    target.post(&path, json!({ "metadata": { "name": "b" } })).await.ok();
    target.server.as_ref().expect("ours").compact();
    let mut events = Events::start(&target, &format!("{path}?watch=1&resourceVersion=2")).await;
    let (kind, status) = events.next().await;
    assert_eq!(
        (kind.as_str(), status["code"].as_u64(), status["reason"].as_str()),
        ("ERROR", Some(410), Some("Expired"))
    );
    assert!(events.ends().await);
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_up_or_the_server_stops() {
    let target = Target::fake().await;
    let path = target.namespace("ends").await + "/configmaps";
    let mut short = Events::start(&target, &format!("{path}?watch=1&timeoutSeconds=1")).await;
    assert!(short.ends().await);
    let Target { client, kubeconfig, server, certificates } = target;
    let target = Target { client, kubeconfig, server: None, certificates };
    let mut long = Events::start(&target, &format!("{path}?watch=1")).await;
    server.expect("ours").shutdown().await;
    let next = tokio::time::timeout(Duration::from_secs(10), long.0.next()).await.expect("an end in time");
    assert!(!matches!(next, Some(Ok(_))), "{next:?}");
}

#[tokio::test]
async fn a_watch_of_a_custom_kind_ends_with_the_kind() {
    let target = Target::fake().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.example.com" },
        "spec": { "group": "example.com", "scope": "Cluster", "names": { "plural": "things", "kind": "Thing" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } } }] },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    target.post(definitions, definition).await.ok();
    let mut events = Events::start(&target, "/apis/example.com/v1/things?watch=1").await;
    target.delete(&format!("{definitions}/things.example.com")).await.ok();
    assert!(events.ends().await);
}

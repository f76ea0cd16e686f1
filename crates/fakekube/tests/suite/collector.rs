// SPDX-License-Identifier: Apache-2.0
//! The collector, against this server and against one that has none of its own.

use std::time::{Duration, Instant};

use ferrolb_fakekube::{Options, gc};
use serde_json::{Value, json};

use crate::target::{MERGE, Target, until};

#[tokio::test]
async fn owned_objects_follow_their_owner_here() {
    owned_objects_follow_their_owner(&Target::fake().await).await;
}

fn owned(name: &str, owners: &[&Value]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|owner| {
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true })
        })
        .collect();
    json!({ "metadata": { "name": name, "ownerReferences": owners } })
}

async fn gone(target: &Target, path: &str) {
    until(path, async || (target.get(path).await.code == 404).then_some(())).await;
}

pub(crate) async fn owned_objects_follow_their_owner(target: &Target) {
    let collector = tokio::spawn(gc::run(target.client.clone(), Duration::from_millis(50)));
    let path = target.namespace("owned").await + "/configmaps";
    let owner = |name: &str| target.post(&path, json!({ "metadata": { "name": name } }));
    let (one, two) = (owner("one").await.ok(), owner("two").await.ok());
    target.post(&path, owned("both", &[&one, &two])).await.ok();
    target.post(&path, owned("first", &[&one])).await.ok();
    let second = target.post(&path, owned("second", &[&two])).await.ok();
    target.post(&path, owned("grandchild", &[&second])).await.ok();
    target.delete(&format!("{path}/one")).await.ok();
    gone(target, &format!("{path}/first")).await;
    assert_eq!(target.get(&format!("{path}/both")).await.code, 200, "one of its owners lives");
    target.delete(&format!("{path}/two?propagationPolicy=Foreground")).await.ok();
    for name in ["both", "second", "grandchild", "two"] {
        gone(target, &format!("{path}/{name}")).await;
    }
    let three = owner("three").await.ok();
    target.post(&path, owned("orphan", &[&three])).await.ok();
    target.delete(&format!("{path}/three?propagationPolicy=Orphan")).await.ok();
    gone(target, &format!("{path}/three")).await;
    let orphan = target.get(&format!("{path}/orphan")).await.ok();
    assert_eq!(orphan["metadata"].get("ownerReferences"), None);
    collector.abort();
}

#[tokio::test]
async fn an_owned_object_outlives_its_owner_by_the_delay() {
    let delay = Duration::from_millis(700);
    let target = Target::fake_with(Options { gc_delay: Some(delay), ..Options::default() }).await;
    let path = target.namespace("delayed").await + "/configmaps";
    let owner = target.post(&path, json!({ "metadata": { "name": "owner" } })).await.ok();
    target.post(&path, owned("owned", &[&owner])).await.ok();
    let began = Instant::now();
    target.delete(&format!("{path}/owner")).await.ok();
    gone(&target, &format!("{path}/owned")).await;
    assert!(began.elapsed() >= delay, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_namespace_takes_its_contents_with_it() {
    let target = Target::fake_with(Options::default()).await;
    let path = target.namespace("leaving").await;
    target.post(&format!("{path}/configmaps"), json!({ "metadata": { "name": "a" } })).await.ok();
    let held = json!({ "metadata": { "name": "held", "finalizers": ["example.com/hold"] } });
    target.post(&format!("{path}/secrets"), held).await.ok();
    let marked = target.delete(&path).await.ok();
    assert_eq!(marked["status"]["phase"], "Terminating");
    let new = json!({ "metadata": { "name": "b" } });
    target.post(&format!("{path}/configmaps"), new).await.refused(403, "because it is being terminated");
    gone(&target, &format!("{path}/configmaps/a")).await;
    assert_eq!(target.get(&path).await.code, 200, "something is still in it");
    let release = json!({ "metadata": { "finalizers": null } });
    target.patch(&format!("{path}/secrets/held"), MERGE, release).await.ok();
    gone(&target, &path).await;
}

#[tokio::test]
async fn an_owner_of_an_unknown_kind_is_not_called_gone() {
    let target = Target::fake_with(Options { gc_delay: Some(Duration::ZERO), ..Options::default() }).await;
    let path = target.namespace("unknown").await + "/configmaps";
    let unknown = json!({ "apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u" });
    let owned_by =
        |name: &str, owner: &Value| json!({ "metadata": { "name": name, "ownerReferences": [owner] } });
    target.post(&path, owned_by("kept", &unknown)).await.ok();
    // An owner that is gone for sure shows that the collector has looked.
    let dead = json!({ "apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "v" });
    target.post(&path, owned_by("collected", &dead)).await.ok();
    gone(&target, &format!("{path}/collected")).await;
    assert_eq!(target.get(&format!("{path}/kept")).await.code, 200);
}

#[tokio::test]
async fn an_object_of_a_custom_kind_follows_its_owner() {
    let target = Target::fake_with(Options { gc_delay: Some(Duration::ZERO), ..Options::default() }).await;
    let namespace = target.namespace("kinds").await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.kinds.example.com" },
        "spec": { "group": "kinds.example.com", "scope": "Namespaced", "names": { "plural": "things", "kind": "Thing" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } } }] },
    });
    target.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await.ok();
    let owner =
        target.post(&format!("{namespace}/configmaps"), json!({ "metadata": { "name": "o" } })).await.ok();
    let mut thing = owned("t", &[&owner]);
    thing["apiVersion"] = "kinds.example.com/v1".into();
    thing["kind"] = "Thing".into();
    let path = "/apis/kinds.example.com/v1/namespaces/kinds/things";
    target.post(path, thing).await.ok();
    target.delete(&format!("{namespace}/configmaps/o")).await.ok();
    gone(&target, &format!("{path}/t")).await;
}

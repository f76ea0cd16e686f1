// SPDX-License-Identifier: Apache-2.0
//! Objects of the built-in kinds: lists, pages, finalizers, preconditions, what is refused.

use serde_json::json;

use crate::target::{JSON, MERGE, Target, on_fake};

on_fake! {
    only_what_is_selected_is_listed => super::only_what_is_selected_is_listed,
    pages_show_one_moment => super::pages_show_one_moment,
    a_finalizer_holds_an_object => super::a_finalizer_holds_an_object,
    a_dry_run_changes_nothing => super::a_dry_run_changes_nothing,
    a_write_that_changes_nothing_is_no_change => super::a_write_that_changes_nothing_is_no_change,
    a_lease_changes_hands_once => super::a_lease_changes_hands_once,
}

fn names(list: &serde_json::Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

pub(crate) async fn only_what_is_selected_is_listed(target: &Target) {
    let path = target.namespace("selected").await + "/configmaps";
    for (name, tier) in [("a", "1"), ("b", "2"), ("c", "2")] {
        target.post(&path, json!({ "metadata": { "name": name, "labels": { "tier": tier } } })).await.ok();
    }
    let list = async |query: &str| target.get(&format!("{path}?{query}")).await.ok();
    assert_eq!(names(&list("labelSelector=tier%3D2").await), ["b", "c"]);
    assert_eq!(names(&list("labelSelector=tier+notin+(2)").await), ["a"]);
    assert_eq!(names(&list("fieldSelector=metadata.name!%3Db").await), ["a", "c"]);
    assert_eq!(names(&list("labelSelector=tier%3D2&fieldSelector=metadata.name%3Dc").await), ["c"]);
    assert_eq!(target.get(&format!("{path}?labelSelector=%3D%3D%3D")).await.code, 400);
    assert_eq!(target.get(&format!("{path}?fieldSelector=spec.x%3Dy")).await.code, 400);
}

pub(crate) async fn pages_show_one_moment(target: &Target) {
    let path = target.namespace("pages").await + "/configmaps";
    for name in ["a", "b", "c", "d", "e"] {
        target.post(&path, json!({ "metadata": { "name": name } })).await.ok();
    }
    let first = target.get(&format!("{path}?limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    // What changes meanwhile is not seen on the later pages.
    target.delete(&format!("{path}/d")).await.ok();
    target.post(&path, json!({ "metadata": { "name": "cc" } })).await.ok();
    let mut token = first["metadata"]["continue"].as_str().expect("a token").to_owned();
    let mut rest = Vec::new();
    while !token.is_empty() {
        let page = target.get(&format!("{path}?limit=2&continue={token}")).await.ok();
        assert_eq!(page["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        rest.extend(names(&page).into_iter().map(str::to_owned));
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(rest, ["c", "d", "e"]);
    assert_eq!(names(&target.get(&path).await.ok()), ["a", "b", "c", "cc", "e"]);
}

pub(crate) async fn a_finalizer_holds_an_object(target: &Target) {
    let path = target.namespace("finalizers").await + "/configmaps";
    let object = json!({ "metadata": { "name": "a", "finalizers": ["example.com/hold"] } });
    target.post(&path, object).await.ok();
    let path = path + "/a";
    let marked = target.delete(&path).await.ok();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let again = target.delete(&path).await.ok();
    assert_eq!(again["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);
    target
        .patch(
            &path,
            MERGE,
            json!({ "metadata": { "finalizers": ["example.com/more", "example.com/hold"] } }),
        )
        .await
        .refused(422, "no new finalizers can be added if the object is being deleted");
    target.patch(&path, MERGE, json!({ "metadata": { "finalizers": null } })).await.ok();
    assert_eq!(target.get(&path).await.code, 404);
}

pub(crate) async fn a_dry_run_changes_nothing(target: &Target) {
    let path = target.namespace("dry").await + "/configmaps";
    let object = json!({ "metadata": { "name": "a" }, "data": { "k": "v" } });
    let answered = target.post(&format!("{path}?dryRun=All"), object.clone()).await.ok();
    assert_eq!(answered["data"]["k"], "v");
    assert_eq!(target.get(&format!("{path}/a")).await.code, 404);
    let real = target.post(&path, object).await.ok();
    target.patch(&format!("{path}/a?dryRun=All"), MERGE, json!({ "data": { "k": "w" } })).await.ok();
    target.delete(&format!("{path}/a?dryRun=All")).await.ok();
    assert_eq!(target.get(&format!("{path}/a")).await.ok(), real);
    target
        .post(&format!("{path}?dryRun=Some"), json!({ "metadata": { "name": "b" } }))
        .await
        .refused(422, "");
}

pub(crate) async fn a_write_that_changes_nothing_is_no_change(target: &Target) {
    let path = target.namespace("same").await + "/configmaps";
    let object = target.post(&path, json!({ "metadata": { "name": "a" }, "data": { "k": "v" } })).await.ok();
    let path = path + "/a";
    assert_eq!(target.put(&path, &object).await.ok(), object);
    assert_eq!(target.patch(&path, MERGE, json!({ "data": { "k": "v" } })).await.ok(), object);
    let changed = target.patch(&path, MERGE, json!({ "data": { "k": "w" } })).await.ok();
    assert_ne!(changed["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"]);
    target.put(&path, &object).await.refused(409, "the object has been modified");
}

pub(crate) async fn a_lease_changes_hands_once(target: &Target) {
    target.namespace("leases").await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/leases/leases";
    let lease = json!({ "metadata": { "name": "l", "annotations": { "ferrolb.io/intents": "[]" } },
        "spec": { "holderIdentity": "a_1", "leaseDurationSeconds": 4, "leaseTransitions": 0,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z" } });
    let made = target.post(path, lease.clone()).await.ok();
    assert_eq!(made["spec"], lease["spec"]);
    target.post(path, lease).await.refused(409, "leases.coordination.k8s.io \"l\" already exists");
    let path = format!("{path}/l");
    let taken = |holder: &str| {
        let mut lease = made.clone();
        lease["spec"]["holderIdentity"] = holder.into();
        lease["spec"]["leaseTransitions"] = 1.into();
        lease
    };
    // Both read the same state; the compare-and-swap lets one of them through.
    let (b, c) = (taken("b_2"), taken("c_3"));
    let (b, c) = tokio::join!(target.put(&path, &b), target.put(&path, &c));
    let mut codes = [b.code, c.code];
    codes.sort_unstable();
    assert_eq!(codes, [200, 409]);
    let winner = if b.code == 200 { &b } else { &c };
    let read = target.get(&path).await.ok();
    assert_eq!(read, winner.body, "a read without a resourceVersion is never old");
    let mut gone = read.clone();
    gone["spec"]["holderIdentity"] = "".into();
    assert_eq!(target.put(&path, &gone).await.ok()["spec"]["holderIdentity"], "", "nobody's");
    target.put(&path, &read).await.refused(409, "the object has been modified");
}

#[tokio::test]
async fn what_is_not_supported_is_refused_by_name() {
    let target = Target::fake().await;
    let namespace = target.namespace("refused").await;
    let path = format!("{namespace}/configmaps");
    let protobuf = "application/vnd.kubernetes.protobuf";
    target.send("POST", &path, protobuf, b"k8s\0".to_vec(), "").await.refused(415, "protobuf");
    target.send("POST", &path, "text/plain", b"{}".to_vec(), "").await.refused(415, "application/json");
    target.send("POST", &path, JSON, b"{".to_vec(), "").await.refused(400, "unrecognized");
    target.send("POST", &path, JSON, b"[]".to_vec(), "").await.refused(400, "not an object");
    target.send("GET", &path, "", Vec::new(), protobuf).await.refused(406, "application/json");
    target.post(&format!("{namespace}/pods/x/exec"), json!({})).await.refused(404, "could not find");
    target.get("/apis/autoscaling/v2").await.refused(404, "could not find");
    target.put(&path, &json!({})).await.refused(405, "does not allow this method");
    let long = json!({ "metadata": { "name": "a" }, "data": { "k": "x".repeat(4 << 20) } });
    target.post(&path, long).await.refused(413, "too large");
    target
        .patch(&format!("{path}/a"), "application/merge-patch+json", json!([]))
        .await
        .refused(400, "not an object");
}

#[tokio::test]
async fn a_body_in_yaml_is_read() {
    let target = Target::fake().await;
    let path = target.namespace("yaml").await + "/configmaps";
    let body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: 'v'\n".to_vec();
    let made = target.send("POST", &path, "application/yaml", body, "").await.ok();
    assert_eq!(made["data"]["k"], "v");
}

#[tokio::test]
async fn an_event_has_one_store_and_two_forms() {
    let target = Target::fake().await;
    let namespace = target.namespace("events").await;
    let event = json!({
        "metadata": { "name": "e" }, "involvedObject": { "kind": "Service", "name": "s", "namespace": "events" },
        "reason": "IPAllocated", "message": "Assigned IP", "type": "Normal", "count": 1,
    });
    target.post(&format!("{namespace}/events"), event).await.ok();
    let path = "/apis/events.k8s.io/v1/namespaces/events/events";
    let other = target.get(&format!("{path}/e")).await.ok();
    assert_eq!(other["note"], "Assigned IP");
    assert_eq!(other["regarding"]["name"], "s");
    let selected = target.get(&format!("{path}?fieldSelector=regarding.name%3Ds")).await.ok();
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(1));
    let new = json!({
        "metadata": { "name": "f" }, "regarding": { "kind": "Service", "name": "t" }, "note": "x",
        "reason": "R", "action": "A", "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c", "reportingInstance": "i",
    });
    target.post(path, new).await.ok();
    let core = target.get(&format!("{namespace}/events/f")).await.ok();
    assert_eq!(core["message"], "x");
    assert_eq!(core["reportingComponent"], "c");
}

#[tokio::test]
async fn a_secret_turns_string_data_into_data() {
    let target = Target::fake().await;
    let path = target.namespace("secrets").await + "/secrets";
    let made =
        target.post(&path, json!({ "metadata": { "name": "a" }, "stringData": { "k": "v" } })).await.ok();
    assert_eq!(made["data"], json!({ "k": "dg==" }));
    assert_eq!(made.get("stringData"), None);
    let bad = json!({ "metadata": { "name": "b" }, "data": { "k": "?" } });
    target.post(&path, bad).await.refused(400, "illegal base64");
}

#[tokio::test]
async fn a_pod_is_bound_evicted_within_its_budget_and_gone() {
    let target = Target::fake().await;
    let namespace = target.namespace("pods").await;
    let pod = json!({ "metadata": { "name": "p", "labels": { "a": "b" } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let made = target.post(&format!("{namespace}/pods"), pod).await.ok();
    assert_eq!(made["status"]["phase"], "Pending");
    let path = format!("{namespace}/pods/p");
    let binding = json!({ "target": { "kind": "Node", "name": "n1" } });
    target.post(&format!("{path}/binding"), binding.clone()).await.ok();
    assert_eq!(target.get(&path).await.ok()["spec"]["nodeName"], "n1");
    target.post(&format!("{path}/binding"), binding).await.refused(409, "already assigned");
    let budgets = "/apis/policy/v1/namespaces/pods/poddisruptionbudgets";
    let budget = json!({ "metadata": { "name": "b" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "a": "b" } } } });
    target.post(budgets, budget).await.ok();
    let evict = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "p" } });
    target.post(&format!("{path}/eviction"), evict.clone()).await.refused(429, "disruption budget");
    let allow = json!({ "status": { "disruptionsAllowed": 1 } });
    target.patch(&format!("{budgets}/b/status"), MERGE, allow).await.ok();
    target.post(&format!("{path}/eviction"), evict).await.ok();
    assert_eq!(target.get(&path).await.code, 404);
}

#[tokio::test]
async fn a_bound_pod_ends_gracefully_where_that_is_asked_for() {
    let options = ferrolb_fakekube::Options { graceful_pod_deletion: true, ..Default::default() };
    let target = Target::fake_with(options).await;
    let namespace = target.namespace("grace").await;
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "n",
        "terminationGracePeriodSeconds": 7, "containers": [{ "name": "c", "image": "i" }] } });
    target.post(&format!("{namespace}/pods"), pod).await.ok();
    let path = format!("{namespace}/pods/p");
    let marked = target.delete(&path).await.ok();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 7);
    assert_eq!(target.get(&path).await.code, 200);
    target.delete(&format!("{path}?gracePeriodSeconds=0")).await.ok();
    assert_eq!(target.get(&path).await.code, 404);
}

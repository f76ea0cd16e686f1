// SPDX-License-Identifier: Apache-2.0
//! Custom resources of two versions, converted by a webhook.

use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::hook::Hook;
use crate::target::{MERGE, Target, on_fake, until};

on_fake! {
    objects_are_shown_in_the_version_that_is_asked_for => super::objects_are_shown_in_the_version_that_is_asked_for,
    managers_of_fields_are_told_apart_by_version => super::managers_of_fields_are_told_apart_by_version,
    a_failed_conversion_says_why => super::a_failed_conversion_says_why,
    a_webhook_sees_the_version_of_its_rules => super::a_webhook_sees_the_version_of_its_rules,
    bad_conversions_are_refused => super::bad_conversions_are_refused,
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(group: &str, client: Value, reviews: &[&str]) -> Value {
    let version = |name: &str, field: &str| {
        json!({ "name": name, "served": true, "storage": name == "v1beta2", "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                "spec": { "type": "object", "properties": {
                    field: { "type": "string" }, "n": { "type": "integer", "minimum": 1 } } },
                "status": { "type": "object", "properties": { "x": { "type": "integer" } } },
            } } } })
    };
    let mut old = version("v1beta1", "old");
    old["deprecated"] = true.into();
    old["deprecationWarning"] = "v1beta1 is deprecated".into();
    let mut new = version("v1beta2", "new");
    new["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["port"] =
        json!({ "type": "integer", "default": 179 });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("things.{group}") },
        "spec": { "group": group, "scope": "Namespaced", "names": { "plural": "things", "kind": "Thing" },
            "conversion": { "strategy": "Webhook",
                "webhook": { "clientConfig": client, "conversionReviewVersions": reviews } },
            "versions": [old, new] },
    })
}

/// A namespace with a kind in it: the paths of both versions.
async fn define(target: &Target, name: &str, client: Value, reviews: &[&str]) -> (String, String) {
    let group = format!("{name}.example.com");
    target.namespace(name).await;
    target.post(CRDS, definition(&group, client, reviews)).await.ok();
    let path = |version: &str| format!("/apis/{group}/{version}/namespaces/{name}/things");
    for version in ["v1beta1", "v1beta2"] {
        let path = path(version);
        until("the kind is served", async || (target.get(&path).await.code == 200).then_some(())).await;
    }
    (path("v1beta1"), path("v1beta2"))
}

fn thing(group: &str, version: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": format!("{group}.example.com/{version}"), "kind": "Thing", "metadata": { "name": name },
        "spec": spec })
}

pub(crate) async fn objects_are_shown_in_the_version_that_is_asked_for(target: &Target) {
    let hook = Hook::start(&target.identity()).await;
    let (old, new) = define(target, "shown", hook.client("/convert"), &["v1beta1", "v1beta2"]).await;

    let made = target.post(&old, thing("shown", "v1beta1", "a", json!({ "old": "1", "no": 1 }))).await;
    assert_eq!(made.warning, "299 - \"v1beta1 is deprecated\", 299 - \"unknown field \\\"spec.no\\\"\"");
    let made = made.ok();
    assert_eq!(made["apiVersion"], "shown.example.com/v1beta1");
    assert_eq!(made["spec"], json!({ "old": "1" }));
    let seen = target.get(&format!("{new}/a")).await;
    assert_eq!(seen.warning, "");
    let seen = seen.ok();
    // What is stored has the defaults of the version it is stored in.
    assert_eq!(seen["spec"], json!({ "new": "1", "port": 179 }));
    assert_eq!(seen["metadata"], made["metadata"], "metadata is the same in all versions");
    target.post(&new, thing("shown", "v1beta2", "b", json!({ "new": "2" }))).await.ok();

    let asked = hook.seen("/convert").len();
    let list = target.get(&old).await.ok();
    assert_eq!(list["apiVersion"], "shown.example.com/v1beta1");
    let items = list["items"].as_array().expect("items");
    let specs: Vec<&Value> = items.iter().map(|item| &item["spec"]).collect();
    assert_eq!(specs, [&json!({ "old": "1" }), &json!({ "old": "2" })]);
    if target.server.is_some() {
        let seen = hook.seen("/convert");
        assert_eq!(seen.len(), asked + 1, "a list is converted at once");
        let review = &seen[asked];
        assert_eq!(
            review["apiVersion"], "apiextensions.k8s.io/v1beta1",
            "the first version that both sides know"
        );
        assert_eq!(review["request"]["desiredAPIVersion"], "shown.example.com/v1beta1");
        assert_eq!(review["request"]["objects"].as_array().map(Vec::len), Some(2));
        assert_eq!(review["request"]["objects"][0]["metadata"].get("resourceVersion"), None);
    }
    let asked = hook.seen("/convert").len();
    target.get(&new).await.ok();
    assert_eq!(hook.seen("/convert").len(), asked, "the stored version needs no webhook");

    let patched = target.patch(&format!("{old}/a"), MERGE, json!({ "spec": { "old": "3" } })).await.ok();
    assert_eq!((&patched["spec"], &patched["metadata"]["generation"]), (&json!({ "old": "3" }), &json!(2)));
    let status = json!({ "status": { "x": 2 }, "spec": { "old": "lost" } });
    let patched = target.patch(&format!("{old}/a/status"), MERGE, status).await.ok();
    assert_eq!((&patched["spec"], &patched["status"]), (&json!({ "old": "3" }), &json!({ "x": 2 })));
    assert_eq!(patched["metadata"]["generation"], 2);
    let same = target.patch(&format!("{old}/a"), MERGE, json!({ "spec": { "old": "3" } })).await.ok();
    assert_eq!(same["metadata"]["resourceVersion"], patched["metadata"]["resourceVersion"]);
    let bad = thing("shown", "v1beta1", "c", json!({ "n": 0 }));
    target.post(&old, bad).await.refused(422, "spec.n in body should be greater than or equal to 1");

    let kind = GroupVersionKind::gvk("shown.example.com", "v1beta1", "Thing");
    let api: Api<DynamicObject> = Api::namespaced_with(
        target.client.clone(),
        "shown",
        &ApiResource::from_gvk_with_plural(&kind, "things"),
    );
    let revision = list["metadata"]["resourceVersion"].as_str().expect("a revision");
    let mut events = std::pin::pin!(api.watch(&WatchParams::default(), revision).await.expect("watches"));
    let event = tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("an event comes");
    let Some(Ok(WatchEvent::Modified(object))) = event else { panic!("{event:?}") };
    assert_eq!(object.data["spec"], json!({ "old": "3" }));
    assert_eq!(object.types.expect("types").api_version, "shown.example.com/v1beta1");

    let deleted = target.delete(&format!("{old}/b")).await.ok();
    assert_eq!(deleted["status"], "Success");
    target.delete(&format!("{CRDS}/things.shown.example.com")).await.ok();
}

pub(crate) async fn managers_of_fields_are_told_apart_by_version(target: &Target) {
    let hook = Hook::start(&target.identity()).await;
    let (old, new) = define(target, "managed", hook.client("/convert"), &["v1"]).await;
    target.post(&old, thing("managed", "v1beta1", "a", json!({ "old": "1" }))).await.ok();
    target.patch(&format!("{new}/a"), MERGE, json!({ "spec": { "n": 2 } })).await.ok();
    let apply = "application/apply-patch+yaml";
    let config = thing("managed", "v1beta1", "a", json!({ "old": "3" }));
    let path = format!("{old}/a?fieldManager=me&force=true");
    let applied = target.patch(&path, apply, config).await.ok();
    let managers = |object: &Value| -> Vec<(String, String, Value)> {
        let entries = object["metadata"]["managedFields"].as_array().expect("managers");
        let text = |entry: &Value, key: &str| entry[key].as_str().expect("a text").to_owned();
        entries
            .iter()
            .map(|entry| {
                let version = text(entry, "apiVersion").rsplit('/').next().expect("a word").to_owned();
                let owned = entry["fieldsV1"]["f:spec"].as_object().expect("fields");
                let owned =
                    owned.keys().filter(|key| *key != ".").map(|key| Value::from(key.as_str())).collect();
                (text(entry, "manager"), version, owned)
            })
            .collect()
    };
    let entry =
        |manager: &str, version: &str, fields: Value| (manager.to_owned(), version.to_owned(), fields);
    let expected = [
        entry("me", "v1beta1", json!(["f:old"])),
        entry("differ", "v1beta1", json!([])),
        entry("differ", "v1beta2", json!(["f:n"])),
    ];
    assert_eq!(managers(&applied), expected);
    let config = thing("managed", "v1beta2", "a", json!({ "new": "4" }));
    let path = format!("{new}/a?fieldManager=me&force=true");
    let applied = target.patch(&path, apply, config).await.ok();
    assert_eq!(managers(&applied)[0], entry("me", "v1beta2", json!(["f:new"])));
    let spec = target.get(&format!("{old}/a")).await.ok()["spec"].clone();
    assert_eq!(spec, json!({ "old": "4", "n": 2 }));
    target.delete(&format!("{CRDS}/things.managed.example.com")).await.ok();
}

pub(crate) async fn a_failed_conversion_says_why(target: &Target) {
    let hook = Hook::start(&target.identity()).await;
    let (old, new) = define(target, "failed", hook.client("/convert"), &["v1"]).await;
    let made = target.post(&new, thing("failed", "v1beta2", "a", json!({ "new": "1" }))).await.ok();
    let uid = made["metadata"]["uid"].as_str().expect("a uid");
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").expect("listens").local_addr().expect("an address");
    let nobody = json!({ "url": format!("https://{closed}/x"), "caBundle": hook.bundle() });
    let post = format!(
        "failed: Post \"https://{closed}/x?timeout=30s\": dial tcp {closed}: connect: connection refused"
    );
    let reborn = format!("returned invalid object: must have the same UID: {uid} != changed");
    let wrong = "returned invalid object at index 0: invalid groupVersion (expected failed.example.com/v1beta1, \
                 received failed.example.com/v1beta2)";
    let cases: &[(Value, &str)] = &[
        (hook.client("/fail"), "failed: cannot do that"),
        (hook.client("/fail-plain"), "failed: response.result.status was 'Failure', not 'Success'"),
        (
            hook.client("/error"),
            "failed: an error on the server (\"unknown\") has prevented the request from succeeding",
        ),
        (hook.client("/short"), "returned 0 objects, expected 1"),
        (hook.client("/same"), wrong),
        (hook.client("/rename"), "returned invalid object: must have the same name: a != changed"),
        (hook.client("/reborn"), &reborn),
        (nobody, &post),
    ];
    for (client, text) in cases {
        let merge = json!({ "spec": { "conversion": { "webhook": { "clientConfig": client } } } });
        target.patch(&format!("{CRDS}/things.failed.example.com"), MERGE, merge).await.ok();
        let expected = format!("conversion webhook for failed.example.com/v1beta2, Kind=Thing {text}");
        // A real server needs a moment to see the change.
        until(text, async || {
            let answer = target.get(&format!("{old}/a")).await;
            (answer.code == 500 && answer.body["message"] == expected).then_some(())
        })
        .await;
        assert_eq!(target.get(&format!("{old}/a")).await.body.get("reason"), None);
        assert_eq!(target.get(&format!("{new}/a")).await.code, 200, "the stored version needs no webhook");
        target.get(&old).await.refused(429, "storage is (re)initializing");
        let change = json!({ "spec": { "old": "9" } });
        target.patch(&format!("{old}/a"), MERGE, change).await.refused(500, &expected);
        let new_one = thing("failed", "v1beta1", "b", json!({ "old": "1" }));
        target
            .post(&old, new_one)
            .await
            .refused(500, "conversion webhook for failed.example.com/v1beta1, Kind=Thing ");
        assert_eq!(target.get(&format!("{new}/b")).await.code, 404, "what cannot be converted is not stored");
    }
    target.delete(&format!("{CRDS}/things.failed.example.com")).await.ok();
}

pub(crate) async fn a_webhook_sees_the_version_of_its_rules(target: &Target) {
    let hook = Hook::start(&target.identity()).await;
    let (old, new) = define(target, "equivalent", hook.client("/convert"), &["v1"]).await;
    let rule = json!([{ "apiGroups": ["equivalent.example.com"], "apiVersions": ["v1beta2"], "resources": ["things"],
        "operations": ["CREATE", "UPDATE"] }]);
    let webhook = |name: &str, policy: &str, path: &str| {
        json!({ "name": format!("{name}.hook.example.com"), "clientConfig": hook.client(path), "rules": rule,
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "matchPolicy": policy })
    };
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let webhooks = [webhook("any", "Equivalent", "/any"), webhook("exact", "Exact", "/exact")];
    target
        .post(configurations, json!({ "metadata": { "name": "equivalent" }, "webhooks": webhooks }))
        .await
        .ok();
    let probe = thing("equivalent", "v1beta2", "probe", json!({}));
    until("the configuration is in force", async || {
        target.post(&format!("{new}?dryRun=All"), probe.clone()).await.ok();
        (hook.seen("/any").len() == hook.seen("/exact").len() && !hook.seen("/any").is_empty()).then_some(())
    })
    .await;
    let (any, exact) = (hook.seen("/any").len(), hook.seen("/exact").len());
    target.post(&old, thing("equivalent", "v1beta1", "a", json!({ "old": "1" }))).await.ok();
    target.patch(&format!("{old}/a"), MERGE, json!({ "spec": { "old": "2" } })).await.ok();
    assert_eq!(hook.seen("/exact").len(), exact, "it wanted exactly its version");
    let seen = hook.seen("/any");
    assert_eq!(seen.len(), any + 2);
    let request = &seen[any + 1]["request"];
    let kind =
        |version: &str| json!({ "group": "equivalent.example.com", "version": version, "kind": "Thing" });
    assert_eq!((&request["kind"], &request["requestKind"]), (&kind("v1beta2"), &kind("v1beta1")));
    assert_eq!(request["resource"]["version"], "v1beta2");
    assert_eq!(request["requestResource"]["version"], "v1beta1");
    assert_eq!(request["object"]["apiVersion"], "equivalent.example.com/v1beta2");
    assert_eq!(
        (&request["object"]["spec"]["new"], &request["oldObject"]["spec"]["new"]),
        (&json!("2"), &json!("1"))
    );
    target.delete(&format!("{configurations}/equivalent")).await.ok();
    target.delete(&format!("{CRDS}/things.equivalent.example.com")).await.ok();
}

pub(crate) async fn bad_conversions_are_refused(target: &Target) {
    let refused = async |edit: fn(&mut Value), text: &str| {
        let client = json!({ "url": "https://127.0.0.1/x" });
        let mut definition = definition("bad.example.com", client, &["v1"]);
        edit(&mut definition["spec"]["conversion"]);
        target.post(&format!("{CRDS}?dryRun=All"), definition).await.refused(422, text);
    };
    refused(
        |c| c["webhook"]["conversionReviewVersions"] = json!(["v9"]),
        "spec.conversion.conversionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1",
    )
    .await;
    refused(
        |c| c["webhook"] = Value::Null,
        "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
    )
    .await;
    refused(
        |c| c["strategy"] = "None".into(),
        "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
    )
    .await;
    refused(
        |c| c["webhook"]["clientConfig"] = json!({}),
        "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required",
    )
    .await;
    refused(|c| c["strategy"] = "X".into(), "supported values: \"None\", \"Webhook\"").await;
}

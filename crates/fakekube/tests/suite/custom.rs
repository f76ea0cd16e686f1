// SPDX-License-Identifier: Apache-2.0
//! Custom resources.

use serde_json::{Value, json};

use crate::target::{MERGE, Target, on_fake, until};

on_fake! {
    a_defined_kind_is_served_and_established => super::a_defined_kind_is_served_and_established,
    status_and_spec_are_written_apart => super::status_and_spec_are_written_apart,
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(group: &str) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "properties": {
        "spec": { "type": "object", "properties": {
            "size": { "type": "integer", "default": 3, "minimum": 1 },
            "fixed": { "type": "string",
                "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "is fixed" }] },
        } },
        "status": { "type": "object", "properties": { "seen": { "type": "integer" } } },
    } } });
    let version = |name: &str, storage: bool| {
        json!({ "name": name, "served": true, "storage": storage, "schema": schema, "subresources": { "status": {} },
            "additionalPrinterColumns": [
                { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
                { "name": "Wide", "type": "string", "jsonPath": ".spec.fixed", "priority": 1 },
            ] })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("things.{group}") },
        "spec": { "group": group, "scope": "Namespaced", "names": { "plural": "things", "kind": "Thing", "shortNames": ["th"] },
            "versions": [version("v1", true), version("v1beta1", false)] },
    })
}

async fn define(target: &Target, group: &str) -> String {
    target.post(CRDS, definition(group)).await.ok();
    let path = format!("/apis/{group}/v1/namespaces/{}/things", group.split('.').next().expect("a word"));
    until("the kind is served", async || (target.get(&path).await.code == 200).then_some(())).await;
    path
}

fn thing(group: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": { "name": name }, "spec": spec })
}

pub(crate) async fn a_defined_kind_is_served_and_established(target: &Target) {
    let group = "served.example.com";
    target.namespace("served").await;
    let path = define(target, group).await;
    let definition = target.get(&format!("{CRDS}/things.{group}")).await.ok();
    let conditions = definition["status"]["conditions"].as_array().expect("conditions");
    for name in ["Established", "NamesAccepted"] {
        assert!(conditions.iter().any(|c| c["type"] == name && c["status"] == "True"), "{name}");
    }
    assert_eq!(definition["status"]["acceptedNames"]["listKind"], "ThingList");
    let made = target.post(&path, thing(group, "a", json!({ "unknown": 1 }))).await;
    assert!(made.warning.contains("unknown field \\\"spec.unknown\\\""), "{}", made.warning);
    assert_eq!(made.ok()["spec"], json!({ "size": 3 }));
    let other = target.get(&path.replace("/v1/", "/v1beta1/")).await.ok();
    assert_eq!(other["apiVersion"], format!("{group}/v1beta1"));
    assert_eq!(other["items"][0]["apiVersion"], format!("{group}/v1beta1"));
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = target.send("GET", &path, "", Vec::new(), table).await.ok();
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .expect("columns")
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    assert_eq!(columns, ["Name", "Size", "Wide"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3, null]));
    target.delete(&format!("{CRDS}/things.{group}")).await.ok();
    until("the kind is no longer served", async || (target.get(&path).await.code == 404).then_some(())).await;
}

pub(crate) async fn status_and_spec_are_written_apart(target: &Target) {
    let group = "apart.example.com";
    target.namespace("apart").await;
    let path = define(target, group).await;
    let mut both = thing(group, "a", json!({ "fixed": "x" }));
    both["status"] = json!({ "seen": 1 });
    let made = target.post(&path, both).await.ok();
    assert_eq!(made.get("status"), None);
    assert_eq!(made["metadata"]["generation"], 1);
    let path = path + "/a";
    let change =
        json!({ "spec": { "size": 9 }, "metadata": { "labels": { "l": "1" } }, "status": { "seen": 2 } });
    let written = target.patch(&format!("{path}/status"), MERGE, change.clone()).await.ok();
    assert_eq!((&written["spec"]["size"], &written["status"]["seen"]), (&json!(3), &json!(2)));
    assert_eq!(written["metadata"].get("labels"), None);
    assert_eq!(written["metadata"]["generation"], 1);
    let mut change = change;
    change["status"]["seen"] = json!(5);
    let written = target.patch(&path, MERGE, change).await.ok();
    assert_eq!((&written["spec"]["size"], &written["status"]["seen"]), (&json!(9), &json!(2)));
    assert_eq!(written["metadata"]["generation"], 2);
    let fixed = json!({ "spec": { "fixed": "y" } });
    target.patch(&path, MERGE, fixed).await.refused(422, "spec.fixed: Invalid value: \"y\": is fixed");
    target
        .patch(&path, MERGE, json!({ "spec": { "size": 0 } }))
        .await
        .refused(422, "greater than or equal to 1");
    target.patch(&path, "application/strategic-merge-patch+json", json!({})).await.refused(415, "");
    target.delete(&format!("{CRDS}/things.{group}")).await.ok();
}

#[tokio::test]
async fn openapi_shows_the_schema_of_a_custom_kind() {
    let target = Target::fake().await;
    target.namespace("shown").await;
    define(&target, "shown.example.com").await;
    let index = target.get("/openapi/v3").await.ok();
    assert!(index["paths"].get("apis/shown.example.com/v1").is_some());
    let document = target.get("/openapi/v3/apis/shown.example.com/v1").await.ok();
    let schema = &document["components"]["schemas"]["com.example.shown.v1.Thing"];
    assert_eq!(schema["properties"]["spec"]["properties"]["size"]["type"], "integer");
    let patch =
        &document["paths"]["/apis/shown.example.com/v1/namespaces/{namespace}/things/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Thing");
}

#[tokio::test]
async fn a_definition_that_cannot_be_served_is_refused() {
    let target = Target::fake().await;
    let refused = async |edit: fn(&mut Value), text: &str| {
        let mut definition = definition("bad.example.com");
        edit(&mut definition);
        target.post(CRDS, definition).await.refused(422, text);
    };
    refused(
        |d| d["spec"]["versions"][0]["subresources"]["scale"] = json!({ "specReplicasPath": ".x" }),
        "scale",
    )
    .await;
    refused(|d| d["spec"]["versions"][1]["storage"] = true.into(), "exactly one version").await;
    let rule = |d: &mut Value| {
        d["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
            json!([{ "rule": "self +" }]);
    };
    refused(rule, "x-kubernetes-validations").await;
    let pattern = |d: &mut Value| {
        d["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["fixed"]
            ["pattern"] = "(".into();
    };
    refused(pattern, "must be a valid regular expression").await;
}

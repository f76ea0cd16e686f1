// SPDX-License-Identifier: Apache-2.0
//! Validating admission webhooks.

use std::time::Duration;

use ferrolb_fakekube::Options;
use serde_json::{Value, json};

use crate::hook::{Hook, Identity};
use crate::target::{MERGE, Target, on_fake, until};

on_fake! {
    a_webhook_judges_writes => super::a_webhook_judges_writes,
    a_webhook_sees_what_a_write_would_do => super::a_webhook_sees_what_a_write_would_do,
    bad_configurations_are_refused => super::bad_configurations_are_refused,
}

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A webhook for ConfigMaps that carry the label `case: LABEL`.
fn webhook(label: &str, client: Value) -> Value {
    json!({
        "name": format!("{label}.hook.example.com"), "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
        "objectSelector": { "matchLabels": { "case": label } },
        "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["CREATE", "UPDATE", "DELETE"] }],
    })
}

fn labelled(name: &str, label: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "case": label } } })
}

/// Waits until a configuration is in force: its webhook `ready` refuses.
async fn in_force(target: &Target, path: &str) {
    until("the configuration is in force", async || {
        let answer = target.post(&format!("{path}?dryRun=All"), labelled("probe", "ready")).await;
        (answer.code == 403).then_some(())
    })
    .await;
}

/// Code, reason, message after the webhook's name, warnings.
type Expected = (u16, &'static str, &'static str, &'static str);

const FAILED: &str = "Internal error occurred: failed calling webhook \"NAME\": ";

pub(crate) async fn a_webhook_judges_writes(target: &Target) {
    let path = target.namespace("judged").await + "/configmaps";
    let hook = Hook::start(&target.identity()).await;
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").expect("listens").local_addr().expect("an address");
    let nobody = json!({ "url": format!("https://{closed}/x"), "caBundle": hook.bundle() });
    let stranger = json!({ "url": format!("https://{}/allow", hook.address) });
    let service = json!({ "service": { "namespace": "judged", "name": "nope", "path": "/p" } });
    let denied = "admission webhook \"NAME\" denied the request";
    let cases: &[(&str, Value, Expected)] = &[
        ("allow", hook.client("/allow"), (201, "", "", "")),
        ("deny", hook.client("/deny"), (403, "Forbidden", "DENIED: no such thing", "")),
        ("deny-plain", hook.client("/deny-plain"), (400, "", "DENIED without explanation", "")),
        ("deny-400", hook.client("/deny-400"), (400, "", "DENIED: cannot decode", "")),
        ("deny-reason", hook.client("/deny-reason"), (400, "Because", "DENIED: Because", "")),
        ("deny-200", hook.client("/deny-200"), (400, "", "DENIED: x", "")),
        ("deny-warn", hook.client("/deny-warn"), (403, "Forbidden", "DENIED: no", "299 - \"mind\"")),
        (
            "warn",
            hook.client("/warn"),
            (201, "", "", "299 - \"first \\\"quoted\\\"\", 299 - \"second\", 299 - \"th\u{e9}rd\""),
        ),
        (
            "uid",
            hook.client("/uid"),
            (
                500,
                "InternalError",
                "FAILEDreceived invalid webhook response: expected response.uid=\"UUID\", got \"other\"",
                "",
            ),
        ),
        (
            "patch",
            hook.client("/patch"),
            (
                500,
                "InternalError",
                "FAILEDreceived invalid webhook response: validating webhook may not return response.patch",
                "",
            ),
        ),
        (
            "version",
            hook.client("/version"),
            (
                500,
                "InternalError",
                "FAILEDfailed to call webhook: no kind \"AdmissionReview\" is registered for version \
                 \"admission.k8s.io/v9\" in scheme \"pkg/util/webhook/client.go:71\"",
                "",
            ),
        ),
        (
            "kind",
            hook.client("/kind"),
            (
                500,
                "InternalError",
                "FAILEDreceived invalid webhook response: expected webhook response of admission.k8s.io/v1, \
                 Kind=AdmissionReview, got admission.k8s.io/v1, Kind=",
                "",
            ),
        ),
        (
            "absent",
            hook.client("/absent"),
            (
                500,
                "InternalError",
                "FAILEDreceived invalid webhook response: webhook response was absent",
                "",
            ),
        ),
        (
            "error",
            hook.client("/error"),
            (
                500,
                "InternalError",
                "FAILEDfailed to call webhook: an error on the server (\"unknown\") has prevented the request from \
                 succeeding",
                "",
            ),
        ),
        (
            "nothing",
            hook.client("/nothing"),
            (
                500,
                "InternalError",
                "FAILEDfailed to call webhook: the server could not find the requested resource",
                "",
            ),
        ),
        (
            "slow",
            hook.client("/slow"),
            (
                500,
                "InternalError",
                "FAILEDfailed to call webhook: Post \"HOOK/slow?timeout=1s\": context deadline exceeded",
                "",
            ),
        ),
        (
            "nobody",
            nobody.clone(),
            (
                500,
                "InternalError",
                "FAILEDfailed to call webhook: Post \"https://CLOSED/x?timeout=1s\": dial tcp CLOSED: connect: \
                 connection refused",
                "",
            ),
        ),
        (
            "stranger",
            stranger,
            (
                500,
                "InternalError",
                "FAILEDfailed to call webhook: Post \"HOOK/allow?timeout=1s\": tls: failed to verify certificate: \
                 x509: certificate signed by unknown authority",
                "",
            ),
        ),
        (
            "service",
            service,
            (
                500,
                "InternalError",
                "FAILEDfailed to call webhook: Post \"https://nope.judged.svc:443/p?timeout=1s\": service \"nope\" \
                 not found",
                "",
            ),
        ),
    ];
    let mut webhooks: Vec<Value> =
        cases.iter().map(|(label, client, _)| webhook(label, client.clone())).collect();
    let mut ignored = webhook("ignored", nobody);
    ignored["failurePolicy"] = "Ignore".into();
    webhooks.extend([ignored, webhook("ready", hook.client("/deny"))]);
    let configuration = json!({ "metadata": { "name": "judged" }, "webhooks": webhooks });
    target.post(CONFIGURATIONS, configuration).await.ok();
    in_force(target, &path).await;

    let uuid = regex::Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").expect("a pattern");
    for (label, _, (code, reason, message, warning)) in cases {
        let answer = target.post(&path, labelled(label, label)).await;
        assert_eq!(answer.code, *code, "{label}: {}", answer.body);
        assert_eq!(answer.warning, *warning, "{label}");
        if *code == 201 {
            continue;
        }
        let expected = message
            .replace("DENIED", denied)
            .replace("FAILED", FAILED)
            .replace("NAME", &format!("{label}.hook.example.com"))
            .replace("HOOK", &format!("https://{}", hook.address))
            .replace("CLOSED", &closed.to_string());
        let found = answer.body["message"].as_str().expect("a message");
        assert_eq!(uuid.replace(found, "UUID"), expected, "{label}");
        assert_eq!(answer.body["reason"].as_str().unwrap_or_default(), *reason, "{label}");
        let cause = answer.body["details"]["causes"][0]["message"].as_str();
        assert_eq!(cause, found.strip_prefix("Internal error occurred: "), "{label}");
        assert_eq!(target.get(&format!("{path}/{label}")).await.code, 404, "{label} was stored");
    }
    target.post(&path, labelled("ignored", "ignored")).await.ok();
    target.post(&path, labelled("free", "nobody-asks")).await.ok();
    // An update that takes the label away is seen too, and so is a deletion.
    target.post(&path, labelled("late", "nobody-asks")).await.ok();
    let deny = json!({ "metadata": { "labels": { "case": "deny" } } });
    target
        .patch(&format!("{path}/late"), MERGE, deny.clone())
        .await
        .refused(403, "denied the request: no such thing");
    target.delete(&format!("{CONFIGURATIONS}/judged")).await.ok();
    until("nobody judges any more", async || {
        (target.patch(&format!("{path}/late"), MERGE, deny.clone()).await.code == 200).then_some(())
    })
    .await;
}

pub(crate) async fn a_webhook_sees_what_a_write_would_do(target: &Target) {
    let namespace = target.namespace("observed").await;
    let path = format!("{namespace}/configmaps");
    let hook = Hook::start(&target.identity()).await;
    let mut services = webhook("services", hook.client("/services"));
    services["rules"] = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"],
        "resources": ["services"] }]);
    let mut elsewhere = webhook("watched", hook.client("/elsewhere"));
    elsewhere["name"] = "elsewhere.hook.example.com".into();
    elsewhere["namespaceSelector"] = json!({ "matchLabels": { "kubernetes.io/metadata.name": "other" } });
    let webhooks = [
        webhook("watched", hook.client("/watched")),
        services,
        elsewhere,
        webhook("ready", hook.client("/deny")),
    ];
    target.post(CONFIGURATIONS, json!({ "metadata": { "name": "seen" }, "webhooks": webhooks })).await.ok();
    in_force(target, &path).await;

    let mut object = labelled("a", "watched");
    object["data"] = json!({ "k": "v" });
    target.post(&format!("{path}?fieldManager=me"), object.clone()).await.ok();
    target.patch(&format!("{path}/a?dryRun=All"), MERGE, json!({ "data": { "k": "w" } })).await.ok();
    let stored = target.get(&format!("{path}/a")).await.ok();
    target.put(&format!("{path}/a"), &stored).await.ok();
    target.delete(&format!("{path}/a")).await.ok();

    let reviews = hook.seen("/watched");
    let requests: Vec<&Value> = reviews.iter().map(|review| &review["request"]).collect();
    let of = |key: &str| requests.iter().map(|request| request[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("operation"), ["CREATE", "UPDATE", "UPDATE", "DELETE"]);
    assert_eq!(of("dryRun"), [false, true, false, false]);
    let kinds = ["CreateOptions", "UpdateOptions", "UpdateOptions", "DeleteOptions"];
    assert_eq!(of("options").iter().map(|options| options["kind"].clone()).collect::<Vec<_>>(), kinds);
    let values = |key: &str| of(key).iter().map(|object| object["data"]["k"].clone()).collect::<Vec<_>>();
    assert_eq!(values("object"), [json!("v"), json!("w"), json!("v"), Value::Null]);
    assert_eq!(values("oldObject"), [Value::Null, json!("v"), json!("v"), json!("v")]);
    assert_eq!(requests[3]["object"], Value::Null);
    let first = requests[0];
    assert_eq!(first["options"]["fieldManager"], "me");
    assert_eq!(first["kind"], json!({ "group": "", "version": "v1", "kind": "ConfigMap" }));
    assert_eq!(first["resource"], json!({ "group": "", "version": "v1", "resource": "configmaps" }));
    assert_eq!((&first["requestKind"], &first["requestResource"]), (&first["kind"], &first["resource"]));
    assert_eq!((&first["name"], &first["namespace"]), (&json!("a"), &json!("observed")));
    assert_eq!(first["userInfo"]["username"], "admin");
    assert_eq!(first.get("subResource"), None);
    assert_eq!(first["object"]["kind"], "ConfigMap");
    assert!(first["object"]["metadata"]["uid"].is_string());
    assert_eq!(hook.seen("/elsewhere"), [] as [Value; 0]);

    // Rules that name no subresource do not cover it.
    let service = json!({ "metadata": { "name": "s", "labels": { "case": "services" } },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    target.post(&format!("{namespace}/services"), service).await.ok();
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } });
    target.patch(&format!("{namespace}/services/s/status"), MERGE, status).await.ok();
    assert_eq!(hook.seen("/services").len(), 1);
    target.delete(&format!("{namespace}/services/s")).await.ok();
    target.delete(&format!("{CONFIGURATIONS}/seen")).await.ok();
}

pub(crate) async fn bad_configurations_are_refused(target: &Target) {
    let refused = async |edit: fn(&mut Value), text: &str| {
        let mut webhook = webhook("bad", json!({ "url": "https://127.0.0.1/x" }));
        edit(&mut webhook);
        let configuration = json!({ "metadata": { "name": "bad" }, "webhooks": [webhook] });
        target.post(&format!("{CONFIGURATIONS}?dryRun=All"), configuration).await.refused(422, text);
    };
    refused(
        |w| w["sideEffects"] = "Some".into(),
        "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
    )
    .await;
    refused(|w| w["admissionReviewVersions"] = json!([]), "Required value: must specify one of v1, v1beta1")
        .await;
    refused(|w| w["name"] = "x".into(), "should be a domain with at least three segments separated by dots")
        .await;
    refused(|w| w["clientConfig"] = json!({}), "exactly one of url or service is required").await;
    refused(
        |w| w["clientConfig"]["caBundle"] = "eHg=".into(),
        "unable to load root certificates: unable to parse bytes as PEM block",
    )
    .await;
    refused(|w| w["timeoutSeconds"] = 31.into(), "the timeout value must be between 1 and 30 seconds").await;
}

#[tokio::test]
async fn a_service_is_dialled_where_its_cluster_ip_or_the_embedder_says() {
    let target = Target::fake().await;
    let namespace = target.namespace("routed").await;
    let path = format!("{namespace}/configmaps");
    let hook = Hook::start(&Identity::new(&["hook.routed.svc"])).await;
    let service = json!({ "namespace": "routed", "name": "hook", "path": "/deny" });
    let client = json!({ "service": service, "caBundle": hook.bundle() });
    let configuration = json!({ "metadata": { "name": "routed" }, "webhooks": [webhook("ready", client)] });
    target.post(CONFIGURATIONS, configuration).await.ok();
    target.post(&path, labelled("a", "ready")).await.refused(500, "service \"hook\" not found");
    let ports =
        |port: u16| json!({ "metadata": { "name": "hook" }, "spec": { "ports": [{ "port": port }] } });
    target.post(&format!("{namespace}/services"), ports(8443)).await.ok();
    target
        .post(&path, labelled("a", "ready"))
        .await
        .refused(500, "no service port 443 found for service \"hook\"");
    target.delete(&format!("{namespace}/services/hook")).await.ok();
    let mut loopback = ports(443);
    loopback["spec"]["clusterIP"] = "None".into();
    target.post(&format!("{namespace}/services"), loopback).await.ok();
    target
        .post(&path, labelled("a", "ready"))
        .await
        .refused(500, "cannot route to service with ClusterIP \"None\"");

    let server = target.server.as_ref().expect("ours");
    server.route_webhooks("routed/hook", hook.address);
    target.post(&path, labelled("a", "ready")).await.refused(403, "denied the request: no such thing");
    let other = Hook::start(&Identity::new(&["other.routed.svc", "localhost"])).await;
    server.route_webhooks("routed/hook", other.address);
    let bundle =
        json!([{ "op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": other.bundle() }]);
    target.patch(&format!("{CONFIGURATIONS}/routed"), "application/json-patch+json", bundle).await.ok();
    let text = "x509: certificate is valid for other.routed.svc, localhost, not hook.routed.svc";
    target.post(&path, labelled("a", "ready")).await.refused(500, text);
}

#[tokio::test]
async fn a_cluster_ip_is_dialled() {
    // Addresses of loopback reach the webhook here without anybody routing them.
    let options =
        Options { gc_delay: None, service_cidrs: vec!["127.77.0.0/16".into()], ..Options::default() };
    let target = Target::fake_with(options).await;
    let namespace = target.namespace("dialled").await;
    let hook = Hook::start(&Identity::new(&["hook.dialled.svc"])).await;
    let port = hook.address.port();
    let service = json!({ "metadata": { "name": "hook" }, "spec": { "ports": [{ "port": port }] } });
    target.post(&format!("{namespace}/services"), service).await.ok();
    let service = json!({ "namespace": "dialled", "name": "hook", "path": "/deny", "port": port });
    let client = json!({ "service": service, "caBundle": hook.bundle() });
    let configuration = json!({ "metadata": { "name": "dialled" }, "webhooks": [webhook("ready", client)] });
    target.post(CONFIGURATIONS, configuration).await.ok();
    let path = format!("{namespace}/configmaps");
    target.post(&path, labelled("a", "ready")).await.refused(403, "denied the request: no such thing");
}

#[tokio::test]
async fn all_webhooks_are_asked_at_once() {
    let target = Target::fake().await;
    let path = target.namespace("pair").await + "/configmaps";
    let hook = Hook::start(&target.identity()).await;
    // Neither answers before the other is asked.
    let webhooks = ["one", "two"].map(|name| {
        let mut webhook = webhook("pair", hook.client("/pair"));
        webhook["name"] = format!("{name}.hook.example.com").into();
        webhook["timeoutSeconds"] = 30.into();
        webhook
    });
    target.post(CONFIGURATIONS, json!({ "metadata": { "name": "pair" }, "webhooks": webhooks })).await.ok();
    target.post(&path, labelled("a", "pair")).await.ok();
}

#[tokio::test]
async fn a_change_that_somebody_overtakes_while_webhooks_are_asked_is_judged_anew() {
    let target = Target::fake().await;
    let path = target.namespace("overtaken").await + "/configmaps";
    let hook = Hook::start(&target.identity()).await;
    let mut slow = webhook("held", hook.client("/slow"));
    slow["timeoutSeconds"] = 10.into();
    target
        .post(CONFIGURATIONS, json!({ "metadata": { "name": "overtaken" }, "webhooks": [slow] }))
        .await
        .ok();
    // The label comes with the patch: only the patch is held up.
    target.post(&path, json!({ "metadata": { "name": "a" }, "data": { "k": "0" } })).await.ok();
    let object = format!("{path}/a");
    let patch = json!({ "metadata": { "labels": { "case": "held" } }, "data": { "mine": "1" } });
    let patched = target.patch(&object, MERGE, patch);
    let overtaken = async {
        until("the webhook is asked", async || (hook.seen("/slow").len() == 1).then_some(())).await;
        target.patch(&object, MERGE, json!({ "data": { "k": "1" } })).await.ok()
    };
    let (patched, _) =
        tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(patched, overtaken) })
            .await
            .expect("both end");
    assert_eq!(patched.ok()["data"], json!({ "k": "1", "mine": "1" }), "no write is lost");
    let seen = hook.seen("/slow");
    let judged: Vec<&Value> = seen.iter().map(|review| &review["request"]["object"]["data"]["k"]).collect();
    assert_eq!(judged, ["0", "1"], "what was stored is what was judged");
}

// SPDX-License-Identifier: Apache-2.0
//! Misbehaviour on request, by the handle and over HTTP, and the audit.

use std::time::Duration;

use ferrolb_fakekube::{Effect, Fault, Faults, Options, RequestMatch, Server};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::target::{MERGE, Target, until};

async fn started(namespace: &str) -> (Target, Faults, String) {
    let target = Target::fake().await;
    let path = target.namespace(namespace).await + "/configmaps";
    target.post(&path, json!({ "metadata": { "name": "a" }, "data": { "k": "0" } })).await.ok();
    let faults = target.server.as_ref().expect("ours").faults();
    (target, faults, path + "/a")
}

fn writes() -> RequestMatch {
    RequestMatch::new(&["write"], &["configmaps"])
}

fn data(value: &str) -> Value {
    json!({ "data": { "k": value } })
}

#[tokio::test]
async fn requests_are_refused_as_often_as_was_asked_for() {
    let (target, faults, path) = started("refused").await;
    let throttled =
        Effect::Fail { code: 429, reason: String::new(), message: "slow down".into(), retry_after: Some(7) };
    faults.add(Fault { skip: 1, ..Fault::once(writes(), throttled) });
    target.patch(&path, MERGE, data("1")).await.ok();
    let refused = target.patch(&path, MERGE, data("2")).await;
    assert_eq!(refused.body["details"]["retryAfterSeconds"], 7);
    assert_eq!((refused.retry_after.as_str(), &refused.body["reason"]), ("7", &json!("TooManyRequests")));
    refused.refused(429, "slow down");
    assert_eq!(target.get(&path).await.ok()["data"], json!({ "k": "1" }), "what was refused did not happen");
    target.patch(&path, MERGE, data("3")).await.ok();

    faults.clear();
    faults.add(Fault::once(writes(), Effect::Conflict));
    let text = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
                changes to the latest version and try again";
    target.patch(&path, MERGE, data("4")).await.refused(409, text);
    faults.add(Fault::once(RequestMatch::new(&["list"], &[]), Effect::fail(500)));
    let list = path.trim_end_matches("/a");
    target.get(list).await.refused(500, "refused on request by fault");
    target.get(list).await.ok();
    let rules = faults.list();
    assert_eq!(rules.iter().map(|rule| (rule.seen, rule.applied)).collect::<Vec<_>>(), [(1, 1), (2, 1)]);
    assert!(faults.remove(rules[0].id) && !faults.remove(rules[0].id));
}

#[tokio::test]
async fn a_delayed_request_is_carried_out_later() {
    let (target, faults, path) = started("delayed").await;
    faults.add(Fault::once(writes(), Effect::delay(Duration::from_millis(300))));
    let sent = std::time::Instant::now();
    target.patch(&path, MERGE, data("1")).await.ok();
    assert!(sent.elapsed() >= Duration::from_millis(300));
    assert_eq!(target.get(&path).await.ok()["data"], json!({ "k": "1" }));
}

#[tokio::test]
async fn a_write_that_nobody_hears_of_happens() {
    let (target, faults, path) = started("dropped").await;
    faults.add(Fault::once(writes(), Effect::DropAnswer));
    let request = http::Request::patch(&path)
        .header("Content-Type", MERGE)
        .body(kube::client::Body::from(data("1").to_string().into_bytes()))
        .expect("a request");
    assert!(target.client.send(request).await.is_err(), "the connection breaks");
    assert_eq!(target.get(&path).await.ok()["data"], json!({ "k": "1" }));
}

#[tokio::test]
async fn a_write_held_back_arrives_when_it_is_released_even_without_its_client() {
    let (target, faults, path) = started("held").await;
    let old = target.get(&path).await.ok();
    let rule = faults.add(Fault::new(RequestMatch::new(&["update"], &["configmaps"]), Effect::Hold));
    let late = |value: &str| {
        let mut object = old.clone();
        object["data"]["k"] = value.into();
        object
    };
    let (first, second, third) = (late("first"), late("second"), late("third"));
    {
        let gone = target.put(&path, &first);
        let waits = until("it is held", async || (!faults.held().is_empty()).then_some(()));
        tokio::select! {
            _ = gone => panic!("it is not answered"),
            () = waits => {}
        }
        // Here its client hangs up.
    }
    let held = faults.held().remove(0);
    assert_eq!((held.fault, held.verb.as_str(), held.resource.as_str()), (rule, "update", "configmaps"));
    assert_eq!((held.namespace.as_str(), held.name.as_str(), held.user.as_str()), ("held", "a", "admin"));
    assert_eq!(target.get(&path).await.ok()["data"]["k"], "0");
    assert!(faults.release(held.id) && !faults.release(held.id));
    until("it arrives", async || (target.get(&path).await.ok()["data"]["k"] == "first").then_some(())).await;

    // Now its resourceVersion is an old one.
    let (second, ()) = tokio::join!(target.put(&path, &second), async {
        let held = until("it is held", async || faults.held().pop()).await;
        faults.release(held.id);
    });
    second.refused(409, "the object has been modified");
    let (third, ()) = tokio::join!(target.put(&path, &third), async {
        until("it is held", async || faults.held().pop()).await;
        faults.remove(rule);
    });
    third.refused(409, "the object has been modified");
    assert!(faults.held().is_empty());
}

#[tokio::test]
async fn watches_are_closed_and_can_resume_or_are_expired_and_cannot() {
    let (target, faults, _) = started("watched").await;
    let api: Api<ConfigMap> = Api::namespaced(target.client.clone(), "watched");
    let revision =
        api.list(&Default::default()).await.expect("lists").metadata.resource_version.expect("a revision");
    let which = RequestMatch::new(&[], &["configmaps"]);
    let other = RequestMatch::new(&[], &["secrets"]);
    let watch = async || api.watch(&WatchParams::default(), &revision).await.expect("watches").boxed();

    let mut events = watch().await;
    assert_eq!(faults.close_watches(&other), 0);
    assert_eq!(faults.close_watches(&which), 1);
    let ended = tokio::time::timeout(Duration::from_secs(20), events.try_next()).await.expect("it ends");
    assert!(matches!(ended, Ok(None)), "{ended:?}");

    let mut events = watch().await;
    assert_eq!(faults.expire_watches(&other), 0);
    assert_eq!(faults.expire_watches(&which), 1);
    let ended = tokio::time::timeout(Duration::from_secs(20), events.try_next()).await.expect("it ends");
    assert!(matches!(ended, Ok(None)), "{ended:?}");
    let mut events = watch().await;
    let answer = tokio::time::timeout(Duration::from_secs(20), events.try_next()).await.expect("an answer");
    let Ok(Some(WatchEvent::Error(status))) = answer else { panic!("{answer:?}") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    let fresh =
        api.list(&Default::default()).await.expect("lists").metadata.resource_version.expect("a revision");
    let mut events = api.watch(&WatchParams::default(), &fresh).await.expect("watches").boxed();
    api.delete("a", &Default::default()).await.expect("deletes");
    let answer = tokio::time::timeout(Duration::from_secs(20), events.try_next()).await.expect("an event");
    assert!(matches!(answer, Ok(Some(WatchEvent::Deleted(_)))), "a new list can be resumed: {answer:?}");
}

#[tokio::test]
async fn an_outage_refuses_connections_and_loses_nothing() {
    let (target, faults, path) = started("down").await;
    let server = target.server.as_ref().expect("ours");
    let get = async || {
        let request = http::Request::get(&path).body(kube::client::Body::empty()).expect("a request");
        target.client.send(request).await
    };
    get().await.expect("answers");
    faults.begin_outage();
    until("the port is closed", async || {
        tokio::net::TcpStream::connect(server.addr()).await.is_err().then_some(())
    })
    .await;
    assert!(get().await.is_err());
    assert!(faults.is_down());
    faults.end_outage();
    until("it answers again", async || get().await.is_ok().then_some(())).await;
    assert_eq!(target.get(&path).await.ok()["data"], json!({ "k": "0" }));
    faults.outage(Duration::from_millis(100));
    until("it answers again by itself", async || (!faults.is_down() && get().await.is_ok()).then_some(()))
        .await;
}

#[tokio::test]
async fn another_process_controls_all_of_it_over_http() {
    let (target, faults, path) = started("remote").await;
    let rules = "/fakekube/faults";
    let made = target
        .post(rules, json!({ "verbs": ["patch"], "resources": ["configmaps"], "effect": { "fail": { "code": 503 } }, "count": 1 }))
        .await
        .ok();
    let shown = target.get(rules).await.ok();
    assert_eq!(shown["faults"][0]["id"], made["id"]);
    assert_eq!((&shown["faults"][0]["seen"], &shown["outage"]), (&json!(0), &json!(false)));
    target.patch(&path, MERGE, data("1")).await.refused(503, "refused on request");
    target.patch(&path, MERGE, data("1")).await.ok();
    target.delete(&format!("{rules}/{}", made["id"])).await.ok();
    target.delete(&format!("{rules}/{}", made["id"])).await.refused(404, "");

    target.post(rules, json!({ "verbs": ["patch"], "effect": "hold" })).await.ok();
    let (patched, ()) = tokio::join!(target.patch(&path, MERGE, data("2")), async {
        let id = until("it is held", async || {
            let held = target.get(rules).await.ok()["held"][0]["id"].clone();
            held.as_u64()
        })
        .await;
        target.post(&format!("/fakekube/held/{id}"), json!({})).await.ok();
    });
    patched.ok();
    target.delete(rules).await.ok();
    assert!(faults.list().is_empty());

    for (body, text) in [
        (json!({ "verb": ["patch"], "effect": "hold" }), "unknown member \"verb\""),
        (json!({ "effect": { "fail": { "code": 200 } } }), "none from 400 to 599"),
        (json!({ "effect": "explode" }), "unknown variant"),
    ] {
        target.post(rules, body).await.refused(400, text);
    }
    assert_eq!(target.post("/fakekube/watches", json!({ "do": "close" })).await.ok()["watches"], 0);
    target.post("/fakekube/watches", json!({ "do": "stare" })).await.refused(400, "\"close\" or \"expire\"");
    target.put(rules, &json!({})).await.refused(405, "");
    target.get("/fakekube/nothing").await.refused(404, "");
    target.post("/fakekube/outage", json!({ "milliseconds": 300 })).await.ok();
    until("the outage begins", async || faults.is_down().then_some(())).await;
    until("and ends", async || (!faults.is_down()).then_some(())).await;
}

#[tokio::test]
async fn the_audit_counts_requests_by_kind() {
    let (target, faults, path) = started("audited").await;
    let server = target.server.as_ref().expect("ours");
    server.reset_audit();
    target.patch(&path, MERGE, data("1")).await.ok();
    target.patch(&path, MERGE, data("2")).await.ok();
    target.get(&path).await.ok();
    target.get(&format!("{path}x")).await.refused(404, "");
    faults.add(Fault::once(writes(), Effect::Conflict));
    target.patch(&path, MERGE, data("3")).await.refused(409, "");
    let audit = server.audit();
    let of = |verb: &str, code: u16| {
        audit.count(|kind| kind.resource == "configmaps" && kind.verb == verb && kind.code == code)
    };
    assert_eq!((of("patch", 200), of("patch", 409), of("get", 200), of("get", 404)), (2, 1, 1, 1));
    assert_eq!(audit.count(|kind| kind.is_write()), 3);
    assert_eq!(audit.latest.len(), 5);
    assert_eq!((audit.latest[0].name.as_str(), audit.latest[0].namespace.as_str()), ("a", "audited"));
    let shown = target.get("/fakekube/requests").await.ok();
    let row = &shown["counts"][1];
    assert_eq!(
        (&row["verb"], &row["code"], &row["count"], &row["user"]),
        (&json!("get"), &json!(404), &json!(1), &json!("admin"))
    );
    target.delete("/fakekube/requests").await.ok();
    assert_eq!(server.audit().count(|_| true), 0, "asking for the audit is not part of it");
}

#[tokio::test]
async fn the_collector_is_a_user_of_its_own() {
    let server = Server::start(Options::default()).await.expect("starts");
    until("the collector asks", async || {
        let audit = server.audit();
        let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
        (audit.count(|kind| kind.user == collector) > 0).then_some(())
    })
    .await;
    assert_eq!(server.audit().count(|kind| kind.user == "admin"), 0);
}

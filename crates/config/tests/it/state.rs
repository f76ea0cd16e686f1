// SPDX-License-Identifier: Apache-2.0
//! The reporter against an API server that does what it is told, lags, loses objects, and fails.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrolb_api::request::{ApiRequest, Verb, WriteError, WriteResult};
use ferrolb_api::{Change, Clock, ConfigurationState};
use ferrolb_config::state::{Component, Identity, Input, Outcome, OwnPod, Reporter};
use ferrolb_net_types::Time;
use serde_json::{Value, json};
use similar_asserts::assert_eq;

const RECORDED: &str = include_str!("../data/configurationstates.json");

/// One object, its managers, and the requests that came.
#[derive(Default)]
struct Server {
    object: Option<Value>,
    version: u64,
    /// (manager, operation, subresource) → fields.
    managers: BTreeMap<(String, &'static str, &'static str), BTreeSet<String>>,
    log: Vec<String>,
}

impl Server {
    fn serve(&mut self, request: &ApiRequest) -> WriteResult {
        self.log.push(format!("{} {}", request.method(), request.path_and_query()));
        let body = request.body.clone().unwrap();
        let not_found = || WriteError::refused(404, "NotFound", "not found");
        self.version += 1;
        let component = |object: &Value| {
            let label = &object["metadata"]["labels"]["metallb.io/component-type"];
            label.as_str().unwrap_or("controller").to_owned()
        };
        match request.verb {
            Verb::Create => {
                if self.object.is_some() {
                    return Err(WriteError::refused(409, "AlreadyExists", ""));
                }
                let mut object = body;
                object.as_object_mut().unwrap().remove("status");
                object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
                let fields = object["metadata"]["labels"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(|k| format!("metadata.labels.{k}"));
                let owner = r#"metadata.ownerReferences[{"uid":"{uid}"}]"#.to_owned();
                self.managers.insert((component(&object), "Update", ""), fields.chain([owner]).collect());
                self.object = Some(object);
            }
            Verb::MergePatch { manager } => {
                assert_eq!(manager, None);
                let object = self.object.as_mut().ok_or_else(not_found)?;
                if request.subresource.is_some() {
                    let who = component(object);
                    let fields = self.managers.entry((who, "Update", "status")).or_default();
                    for (field, value) in body["status"].as_object().unwrap() {
                        let path = format!("status.{field}");
                        if value.is_null() {
                            fields.remove(&path)
                        } else {
                            fields.insert(path)
                        };
                    }
                }
                merge(object, &body);
            }
            Verb::Apply { manager, force } => {
                assert!(force);
                let object = self.object.as_mut().ok_or_else(not_found)?;
                // The fields of one manager: what it does not send any more is removed.
                let fields = ["lastTransitionTime", "message", "reason", "status", "type"];
                let conditions = body["status"]["conditions"].as_array().unwrap();
                let paths = conditions.iter().flat_map(|c| {
                    let kind = c["type"].as_str().unwrap().to_owned();
                    fields.map(|f| format!("status.conditions[{{\"type\":\"{kind}\"}}].{f}"))
                });
                self.managers.insert((manager.to_owned(), "Apply", "status"), paths.collect());
                if object["status"].is_null() {
                    object["status"] = json!({});
                }
                object["status"]["conditions"] = json!(conditions);
            }
            Verb::Put | Verb::Delete => panic!("the reporter neither puts nor deletes"),
        }
        let object = self.object.as_mut().unwrap();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        Ok(object.clone())
    }

    fn typed(&self) -> ConfigurationState {
        serde_json::from_value(self.object.clone().unwrap()).unwrap()
    }

    /// Answers all requests until the reporter has none.
    fn settle(&mut self, reporter: &mut Reporter, clock: Clock) -> Vec<ApiRequest> {
        let mut requests = Vec::new();
        while let Some(request) = reporter.poll() {
            assert!(requests.len() < 10, "no end: {requests:?}");
            let result = self.serve(&request);
            requests.push(request);
            reporter.handle(clock, Input::Written(result));
        }
        requests
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

fn at(seconds: u64) -> Clock {
    let wall = jiff::Timestamp::from_millisecond(1_767_225_600_123).unwrap();
    Clock { now: Time::millis(seconds * 1000), wall: wall + Duration::from_secs(seconds) }
}

fn identity(component: Component) -> Identity {
    let name = match &component {
        Component::Controller => "controller-0".to_owned(),
        Component::Speaker(node) => format!("speaker-{node}"),
    };
    let pod = Some(OwnPod { name, uid: "pod-uid".to_owned() });
    Identity { component, namespace: "metallb-system".to_owned(), pod }
}

fn controller() -> Reporter {
    Reporter::new(identity(Component::Controller))
}

fn good() -> Input {
    Input::Evaluated(Outcome { verdict: Ok(()), further: vec![], members: vec![] })
}

fn bad(text: &str) -> Input {
    Input::Evaluated(Outcome { verdict: Err(text.to_owned()), further: vec![], members: vec![] })
}

fn list(objects: Vec<ConfigurationState>) -> Input {
    Input::Changed(Change::Reset(objects))
}

/// A reporter that has told a valid configuration.
fn told(clock: Clock) -> (Server, Reporter) {
    let (mut server, mut reporter) = (Server::default(), controller());
    reporter.handle(clock, list(vec![]));
    reporter.handle(clock, good());
    server.settle(&mut reporter, clock);
    assert_eq!(server.typed().status.unwrap().result.unwrap().as_str(), "Valid");
    (server, reporter)
}

#[test]
fn objects_and_managers_are_those_that_metallb_leaves() {
    let recorded: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    for (component, name) in
        [(Component::Controller, "controller"), (Component::Speaker("node1".into()), "speaker-node1")]
    {
        let mut server = Server::default();
        let mut reporter = Reporter::new(identity(component));
        reporter.handle(at(0), list(vec![]));
        let mut compared = 0;
        for situation in &recorded {
            let objects = situation["objects"].as_array().unwrap();
            let Some(expected) = objects.iter().find(|o| o["metadata"]["name"] == name) else { continue };
            let summary = expected["status"]["errorSummary"].as_str();
            reporter.handle(
                at(0),
                match summary.and_then(|s| s.strip_prefix("configuration error: ")) {
                    Some(error) => bad(error),
                    None => good(),
                },
            );
            server.settle(&mut reporter, at(0));

            let mut object = server.object.clone().unwrap();
            assert_eq!(object["metadata"]["labels"], expected["metadata"]["labels"]);
            object["metadata"]["ownerReferences"][0]["uid"] = json!("{uid}");
            assert_eq!(object["metadata"]["ownerReferences"], expected["metadata"]["ownerReferences"]);
            for condition in object["status"]["conditions"].as_array_mut().unwrap() {
                condition["lastTransitionTime"] = json!("{time}");
            }
            assert_eq!(object["status"], expected["status"], "{}", situation["about"]);
            let managers: BTreeSet<_> = expected["metadata"]["managedFields"]
                .as_array()
                .unwrap()
                .iter()
                .map(|m| {
                    let text = |key: &str| m[key].as_str().unwrap_or_default().to_owned();
                    let fields: Vec<String> = serde_json::from_value(m["fields"].clone()).unwrap();
                    (text("manager"), text("operation"), text("subresource"), fields)
                })
                .collect();
            let ours: BTreeSet<_> = server
                .managers
                .iter()
                .map(|((manager, operation, subresource), fields)| {
                    (
                        manager.clone(),
                        (*operation).to_owned(),
                        (*subresource).to_owned(),
                        fields.iter().cloned().collect(),
                    )
                })
                .collect();
            assert_eq!(ours, managers, "{}", situation["about"]);
            compared += 1;
        }
        assert!(compared >= 3, "the recording has situations of {name}");
    }
}

#[test]
fn r4_the_object_is_created_at_once_and_its_result_is_unknown_until_an_evaluation() {
    let (mut server, mut reporter) = (Server::default(), controller());
    assert_eq!(reporter.poll(), None, "nothing is known yet");
    reporter.handle(at(0), list(vec![]));
    let requests = server.settle(&mut reporter, at(0));
    assert_eq!(
        requests[0].body,
        Some(json!({
            "apiVersion": "metallb.io/v1beta1",
            "kind": "ConfigurationState",
            "metadata": {
                "name": "controller",
                "namespace": "metallb-system",
                "labels": { "metallb.io/component-type": "controller" },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "controller-0", "uid": "pod-uid" }],
            },
            "status": { "result": "Unknown" },
        }))
    );
    assert_eq!(requests[1].body, Some(json!({ "status": { "result": "Unknown" } })));
    reporter.handle(at(1), good());
    let requests = server.settle(&mut reporter, at(1));
    assert_eq!(requests[1].body, Some(json!({ "status": { "result": "Valid" } })));
    let base = "/apis/metallb.io/v1beta1/namespaces/metallb-system/configurationstates";
    assert_eq!(
        server.log,
        [
            format!("POST {base}"),
            format!("PATCH {base}/controller/status"),
            format!("PATCH {base}/controller/status?fieldManager=poolReconciler&force=true"),
            format!("PATCH {base}/controller/status"),
        ]
    );
}

#[test]
fn a_speaker_reports_under_its_own_names() {
    let mut server = Server::default();
    let mut reporter = Reporter::new(identity(Component::Speaker("node1".into())));
    reporter.handle(at(0), list(vec![]));
    reporter.handle(at(0), good());
    server.settle(&mut reporter, at(0));
    assert!(
        server
            .log
            .iter()
            .any(|line| line.ends_with("speaker-node1/status?fieldManager=configReconciler&force=true"))
    );
    assert_eq!(server.typed().status.unwrap().conditions[0].type_, "configReconcilerValid");
}

#[test]
fn what_is_wrong_and_what_is_mended_is_written_as_far_as_it_differs() {
    let (mut server, mut reporter) = told(at(0));
    reporter.handle(at(5), bad("first\nsecond line"));
    let requests = server.settle(&mut reporter, at(5));
    let text = "configuration error: first\nsecond line";
    assert_eq!(
        requests[0].body.as_ref().unwrap()["status"],
        json!({ "conditions": [{
            "type": "poolReconcilerValid", "status": "False", "reason": "ConfigurationError", "message": text,
            "lastTransitionTime": "2026-01-01T00:00:05Z",
        }] })
    );
    assert_eq!(requests[1].body, Some(json!({ "status": { "result": "Invalid", "errorSummary": text } })));
    assert_eq!(requests.len(), 2);

    reporter.handle(at(6), bad("another"));
    let requests = server.settle(&mut reporter, at(6));
    assert_eq!(
        requests[1].body,
        Some(json!({ "status": { "errorSummary": "configuration error: another" } }))
    );

    reporter.handle(at(7), good());
    let requests = server.settle(&mut reporter, at(7));
    assert_eq!(requests[1].body, Some(json!({ "status": { "result": "Valid", "errorSummary": null } })));
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let (mut server, mut reporter) = told(at(0));
    for second in 1..5 {
        reporter.handle(at(second), good());
        reporter.handle(at(second), Input::Changed(Change::Applied(Box::new(server.typed()))));
        reporter.handle_timeout(at(second));
    }
    assert_eq!(reporter.poll(), None);
    assert_eq!(reporter.next_deadline(), None);

    // Nor after a restart.
    let mut restarted = controller();
    restarted.handle(at(100), list(vec![server.typed()]));
    restarted.handle(at(101), good());
    assert_eq!(server.settle(&mut restarted, at(101)), []);
}

#[test]
fn further_diagnostics_have_a_condition_of_their_own_while_there_are_any() {
    let (mut server, mut reporter) = told(at(0));
    let further = vec!["IPAddressPool b: x".to_owned(), "BGPPeer c: y".to_owned()];
    reporter.handle(at(5), Input::Evaluated(Outcome { verdict: Ok(()), further, members: vec![] }));
    let requests = server.settle(&mut reporter, at(5));
    assert_eq!(requests.len(), 1, "the result stays as it is");
    let status = server.typed().status.unwrap();
    assert_eq!(status.result.unwrap().as_str(), "Valid");
    let [verdict, more] = status.conditions.as_slice() else { panic!("{status:?}") };
    assert_eq!(verdict.last_transition_time.0, at(0).wall - Duration::from_millis(123), "as it was");
    assert_eq!(more.type_, "ferrolb.io/Diagnostics");
    assert_eq!((more.status.as_str(), more.reason.as_str()), ("True", "FurtherDiagnostics"));
    assert_eq!(more.message, "IPAddressPool b: x\nBGPPeer c: y");

    reporter.handle(at(9), good());
    server.settle(&mut reporter, at(9));
    assert_eq!(server.typed().status.unwrap().conditions.len(), 1);
}

#[test]
fn members_that_cannot_be_reached_have_a_condition_that_leaves_result_and_verdict_alone() {
    let mut server = Server::default();
    let mut reporter = Reporter::new(identity(Component::Speaker("n1".into())));
    reporter.handle(at(0), list(vec![]));
    reporter.handle(at(0), good());
    server.settle(&mut reporter, at(0));
    let before = server.typed().status.unwrap();
    let with = |members: &[&str], verdict: Result<(), String>| {
        let members = members.iter().map(|line| (*line).to_owned()).collect();
        Input::Evaluated(Outcome { verdict, further: vec![], members })
    };
    let lines = ["n2 (10.0.0.2:7946): its port is closed", "n3 (10.0.0.3:7946): it uses another key"];
    reporter.handle(at(5), with(&lines, Ok(())));
    let requests = server.settle(&mut reporter, at(5));
    assert_eq!(requests.len(), 1, "{requests:?}");
    let status = server.typed().status.unwrap();
    assert_eq!((status.result, &status.error_summary), (before.result, &None));
    let [verdict, members] = status.conditions.as_slice() else { panic!("{status:?}") };
    assert_eq!(*verdict, before.conditions[0], "the verdict is as it was, its time included");
    assert_eq!(members.type_, "ferrolb.io/Members");
    assert_eq!((members.status.as_str(), members.reason.as_str()), ("False", "Unreachable"));
    assert_eq!(members.message, lines.join("\n"));

    // Said again it is not written again, and an invalid configuration is told from it.
    reporter.handle(at(6), with(&lines, Ok(())));
    assert_eq!(server.settle(&mut reporter, at(6)), []);
    reporter.handle(at(7), with(&lines, Err("x".to_owned())));
    server.settle(&mut reporter, at(7));
    let status = server.typed().status.unwrap();
    assert_eq!(status.error_summary.as_deref(), Some("configuration error: x"));

    reporter.handle(at(9), good());
    server.settle(&mut reporter, at(9));
    assert_eq!(server.typed().status.unwrap().conditions.len(), 1);
}

#[test]
fn a_message_fits_the_schema_however_much_there_is_to_say() {
    let (mut server, mut reporter) = told(at(0));
    let further = (0..3000).map(|i| format!("IPAddressPool p{i}: überall Fehler")).collect();
    reporter.handle(at(5), Input::Evaluated(Outcome { verdict: Ok(()), further, members: vec![] }));
    assert_eq!(server.settle(&mut reporter, at(5)).len(), 1);
    let message = server.typed().status.unwrap().conditions[1].message.clone();
    assert_eq!(message.chars().count(), 32768);
    assert!(message.ends_with("(more is left out)"));
}

#[test]
fn r5_a_deleted_object_is_created_and_reported_again() {
    let (mut server, mut reporter) = told(at(0));
    reporter.handle(at(1), bad("x"));
    server.settle(&mut reporter, at(1));
    let before = server.typed().status;
    server.object = None;
    let gone = Change::Deleted { namespace: "metallb-system".to_owned(), name: "controller".to_owned() };
    reporter.handle(at(1), Input::Changed(gone));
    server.settle(&mut reporter, at(1));
    assert_eq!(server.typed().status, before);
}

#[test]
fn objects_of_others_are_none_of_its_business() {
    let (_, mut reporter) = told(at(0));
    let deleted = |namespace: &str, name: &str| Change::Deleted {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    reporter.handle(at(1), Input::Changed(deleted("metallb-system", "speaker-node1")));
    reporter.handle(at(1), Input::Changed(deleted("elsewhere", "controller")));
    assert_eq!(reporter.poll(), None);
}

#[test]
fn conditions_of_others_count_for_the_result() {
    let (mut server, mut reporter) = told(at(0));
    let foreign = json!({
        "type": "someoneElse", "status": "False", "reason": "ConfigurationError", "message": "theirs",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    server.object.as_mut().unwrap()["status"]["conditions"].as_array_mut().unwrap().push(foreign);
    server.object.as_mut().unwrap()["metadata"]["resourceVersion"] = json!("1000");
    reporter.handle(at(1), Input::Changed(Change::Applied(Box::new(server.typed()))));
    let requests = server.settle(&mut reporter, at(1));
    assert_eq!(
        requests[0].body,
        Some(json!({ "status": { "result": "Invalid", "errorSummary": "theirs" } }))
    );
}

#[test]
fn an_object_of_a_former_pod_is_adopted() {
    let (mut server, _) = told(at(0));
    server.object.as_mut().unwrap()["metadata"]["ownerReferences"][0]["uid"] = json!("former");
    let mut reporter = controller();
    reporter.handle(at(10), list(vec![server.typed()]));
    reporter.handle(at(10), good());
    let requests = server.settle(&mut reporter, at(10));
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].subresource, None);
    let version = requests[0].body.as_ref().unwrap()["metadata"]["resourceVersion"].clone();
    assert!(version.is_string(), "a list is only replaced in the version that was read");
    let owners = server.typed().metadata.owner_references.unwrap();
    assert_eq!(owners.iter().map(|o| o.uid.as_str()).collect::<Vec<_>>(), ["former", "pod-uid"]);
}

#[test]
fn a_lagging_watch_does_not_undo_what_is_known() {
    let (mut server, mut reporter) = told(at(0));
    let old = server.typed();
    reporter.handle(at(1), bad("x"));
    server.settle(&mut reporter, at(1));
    reporter.handle(at(1), Input::Changed(Change::Applied(Box::new(old))));
    assert_eq!(reporter.poll(), None);
}

#[test]
fn a_failed_write_is_tried_again_later_and_later_still() {
    let mut reporter = controller();
    reporter.handle(at(0), list(vec![]));
    let mut now = at(0);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        assert!(reporter.poll().is_some());
        reporter.handle(now, Input::Written(Err(WriteError::no_answer("down"))));
        assert_eq!(reporter.poll(), None, "not at once");
        reporter.handle(now, good());
        assert_eq!(reporter.poll(), None, "nor because something else happens");
        let next = reporter.next_deadline().unwrap();
        pauses.push(next.since(now.now).as_millis());
        now.now = next;
        reporter.handle_timeout(now);
    }
    assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
    let mut server = Server::default();
    server.settle(&mut reporter, now);
    assert_eq!(server.typed().status.unwrap().result.unwrap().as_str(), "Valid");
    assert_eq!(reporter.next_deadline(), None);
}

#[test]
fn what_failed_for_want_of_the_server_is_tried_again_as_soon_as_it_answers() {
    let refused = |code| WriteError::refused(code, "Reason", "text");
    for (error, away) in [
        (WriteError::no_answer("down"), true),
        (refused(503), true),
        (refused(500), true),
        (refused(403), false),
        (refused(422), false),
    ] {
        let mut reporter = controller();
        reporter.handle(at(0), list(vec![]));
        let mut now = at(0);
        for _ in 0..9 {
            assert!(reporter.poll().is_some());
            reporter.handle(now, Input::Written(Err(error.clone())));
            now.now = reporter.next_deadline().unwrap();
            reporter.handle_timeout(now);
        }
        assert!(reporter.poll().is_some());
        reporter.handle(now, Input::Written(Err(error.clone())));
        let then = at(now.now.since_start().as_secs() + 1);
        reporter.handle(then, Input::ApiAnswers);
        if away {
            assert!(reporter.poll().is_some(), "at once: {error:?}");
            reporter.handle(then, Input::Written(Err(error.clone())));
            let pause = reporter.next_deadline().unwrap().since(then.now);
            assert_eq!(pause, Duration::from_millis(500), "what came before is forgotten: {error:?}");
        } else {
            assert_eq!(reporter.poll(), None, "it has answered all the time: {error:?}");
            assert!(reporter.next_deadline().unwrap().since(then.now) > Duration::from_secs(50));
        }
    }
}

#[test]
fn an_answer_takes_no_request_from_under_way_and_ends_no_other_pause() {
    let (mut server, mut reporter) = told(at(0));
    reporter.handle(at(1), bad("x"));
    let request = reporter.poll().unwrap();
    reporter.handle(at(1), Input::ApiAnswers);
    assert_eq!(reporter.poll(), None, "one at a time");
    let result = server.serve(&request);
    reporter.handle(at(1), Input::Written(result));
    server.settle(&mut reporter, at(1));
    reporter.handle(at(2), Input::ApiAnswers);
    assert_eq!((reporter.poll(), reporter.next_deadline()), (None, None));
}

#[test]
fn a_write_to_an_object_that_is_gone_creates_it() {
    let (mut server, mut reporter) = told(at(0));
    server.object = None;
    reporter.handle(at(1), bad("x"));
    server.settle(&mut reporter, at(1));
    assert_eq!(server.typed().status.unwrap().result.unwrap().as_str(), "Invalid");
    // The watch tells of the deletion only now: the new object exists, which the watch will tell too.
    let gone = Change::Deleted { namespace: "metallb-system".to_owned(), name: "controller".to_owned() };
    reporter.handle(at(1), Input::Changed(gone));
    let requests = server.settle(&mut reporter, at(1));
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].verb, Verb::Create);
    reporter.handle(at(1), Input::Changed(Change::Applied(Box::new(server.typed()))));
    assert_eq!(reporter.poll(), None);
}

/// The requests of an hour in which `meddle` changes what every write and every watch event shows.
fn an_hour(meddle: impl Fn(&mut Value)) -> (Server, Vec<ApiRequest>) {
    let (mut server, mut reporter) = told(at(0));
    let mut requests = Vec::new();
    let mut now = at(1);
    reporter.handle(now, bad("x"));
    while now.now < at(3600).now {
        if let Some(request) = reporter.poll() {
            assert!(requests.len() < 1000, "no pause");
            let result = server.serve(&request);
            requests.push(request);
            meddle(server.object.as_mut().unwrap());
            reporter.handle(now, Input::Written(result.map(|_| server.object.clone().unwrap())));
            reporter.handle(now, Input::Changed(Change::Applied(Box::new(server.typed()))));
            continue;
        }
        let Some(next) = reporter.next_deadline() else { break };
        now = Clock { wall: now.wall + (next - now.now), now: next };
        reporter.handle_timeout(now);
    }
    (server, requests)
}

#[test]
fn a_server_that_accepts_and_does_not_store_is_asked_at_growing_pauses() {
    let stored =
        |object: &Value| (object["status"]["conditions"].clone(), object["status"]["result"].clone());
    let (untouched, _) = an_hour(|_| {});
    for (what, meddle, reaches_the_rest) in [
        (
            "labels are dropped",
            (|object: &mut Value| object["metadata"]["labels"] = json!({})) as fn(&mut Value),
            true,
        ),
        ("a definition without conditions", |object| object["status"]["conditions"] = json!([]), false),
        (
            "a definition without a summary",
            |object| {
                object["status"].as_object_mut().unwrap().remove("errorSummary");
            },
            true,
        ),
        (
            "a webhook that shortens the text",
            |object| {
                for condition in object["status"]["conditions"].as_array_mut().unwrap() {
                    condition["message"] = json!("?");
                }
            },
            false,
        ),
        ("a definition without a status", |object| object["status"] = json!({}), false),
        (
            "everything at once",
            |object| {
                object["status"] = json!({});
                object["metadata"]["labels"] = json!({});
            },
            false,
        ),
    ] {
        let (server, requests) = an_hour(meddle);
        assert!((10..200).contains(&requests.len()), "{what}: {} writes in an hour", requests.len());
        if reaches_the_rest {
            let object = server.object.unwrap();
            let expected = untouched.object.as_ref().unwrap();
            assert_eq!(stored(&object), stored(expected), "{what}");
        }
    }
}

#[test]
fn somebody_who_takes_turns_with_it_is_answered_at_growing_pauses() {
    // What one write brings about the next one undoes: no write is in vain by itself.
    let (mut server, mut reporter) = told(at(0));
    let mut now = at(1);
    reporter.handle(now, bad("x"));
    let mut writes = 0;
    while now.now < at(3600).now {
        if let Some(request) = reporter.poll() {
            writes += 1;
            let result = server.serve(&request);
            reporter.handle(now, Input::Written(result));
            server.version += 1;
            let version = server.version.to_string();
            let object = server.object.as_mut().unwrap();
            object["status"]["result"] = json!("Valid");
            object["metadata"]["resourceVersion"] = json!(version);
            reporter.handle(now, Input::Changed(Change::Applied(Box::new(server.typed()))));
            continue;
        }
        let next = reporter.next_deadline().unwrap();
        now = Clock { wall: now.wall + (next - now.now), now: next };
        reporter.handle_timeout(now);
    }
    assert!((10..100).contains(&writes), "{writes} writes in an hour");
    // Another outcome is told at once all the same.
    reporter.handle(now, good());
    server.settle(&mut reporter, now);
    assert_eq!(server.typed().status.unwrap().conditions[0].status, "True");
    assert_eq!(server.typed().status.unwrap().result.unwrap().as_str(), "Valid");
}

#[test]
fn what_changes_while_a_write_is_under_way_is_written_after_it() {
    let (mut server, mut reporter) = told(at(0));
    reporter.handle(at(1), bad("first"));
    let request = reporter.poll().unwrap();
    reporter.handle(at(1), bad("second"));
    assert_eq!(reporter.poll(), None, "one at a time");
    let result = server.serve(&request);
    reporter.handle(at(1), Input::Written(result));
    server.settle(&mut reporter, at(1));
    assert_eq!(server.typed().status.unwrap().error_summary.unwrap(), "configuration error: second");
}

#[test]
fn s27_a_node_with_a_long_name_has_a_short_label() {
    let node = "n".repeat(250);
    let identity = identity(Component::Speaker(node.as_str().into()));
    assert!(identity.object_name().len() <= 253);
    let mut reporter = Reporter::new(identity);
    reporter.handle(at(0), list(vec![]));
    let body = reporter.poll().unwrap().body.unwrap();
    let label = body["metadata"]["labels"]["metallb.io/node-name"].as_str().unwrap();
    assert_eq!(label.len(), 63);
    assert_ne!(label, "n".repeat(63), "a hash tells it from other long names");
}

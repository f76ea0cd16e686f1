// SPDX-License-Identifier: Apache-2.0
//! What a BGPSession shows of a session, whose it is, and how seldom it is written.

use std::time::Duration;

use ferrolb_api::Change;
use ferrolb_bgp::wire::{Code, Notification};
use ferrolb_bgp::{Down, State};
use ferrolb_speaker_core::Input;
use ferrolb_speaker_core::bgp::PeerReport;
use serde_json::{Value, json};

use crate::bench::{Bench, NODE1};
use crate::bgp::{edit, hear, report, without_router};

const NAMESPACE: &str = "metallb-system";

#[test]
fn sessions_are_shown_where_their_kind_exists_and_numbers_do_not_make_writes_s97() {
    let mut bench = without_router();
    let up = report(&bench, State::Established);
    hear(&mut bench, up.clone());
    assert_eq!(bench.api.list("BGPSession").count(), 0, "the kind does not exist");
    bench.hear(NODE1, Input::BGPSessions(Change::Reset(Vec::new())));
    bench.run(Duration::from_millis(100));
    let status = |bench: &Bench| bench.api.list("BGPSession").next().unwrap()["status"].clone();
    assert_eq!(
        bench.api.list("BGPSession").next().unwrap()["metadata"]["name"],
        json!(format!("router.{NODE1}"))
    );
    let shown = status(&bench);
    for (field, value) in [
        ("node", NODE1),
        ("peer", "router"),
        ("address", "192.168.10.1:179"),
        ("state", "Established"),
        ("since", "1970-01-01T00:00:08Z"),
    ] {
        assert_eq!(shown[field], json!(value), "{field}");
    }
    bench.take_writes();
    for told in 1..=5 {
        hear(&mut bench, PeerReport { told, wanted: told, ..up.clone() });
    }
    assert_eq!(bench.take_writes(), [""; 0], "numbers wait");
    bench.run(Duration::from_secs(10));
    assert_eq!(bench.take_writes(), ["PATCH bgpsessions/status"]);
    assert_eq!((&status(&bench)["prefixesTold"], &status(&bench)["prefixesWanted"]), (&json!(5), &json!(5)));

    let down = Down::Told(Notification::with_text(Code::ADMINISTRATIVE_SHUTDOWN, "maint"));
    let dropped = Some((bench.now, down));
    let idle = PeerReport {
        last_down: dropped.clone(),
        last_drop: dropped,
        drops: 1,
        ..report(&bench, State::Idle)
    };
    hear(&mut bench, idle.clone());
    assert_eq!(bench.take_writes(), ["PATCH bgpsessions/status"], "at once");
    let shown = status(&bench);
    assert_eq!((&shown["state"], &shown["drops"]), (&json!("Idle"), &json!(1)));
    let reason = shown["lastFailure"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("maint"), "BG-11: {shown}");
    let (at, time) = (shown["lastFailure"]["time"].as_str().unwrap(), bench.now);
    let refused = Some((time, Down::NotConnected("refused".to_owned())));
    hear(&mut bench, PeerReport { last_down: refused, ..idle });
    let both = format!("cannot connect: refused; the last session ended at {at}: {reason}");
    assert_eq!(status(&bench)["lastFailure"]["reason"], json!(both));

    bench.api.delete("BGPPeer", NAMESPACE, "router");
    bench.settle();
    assert_eq!(bench.api.list("BGPSession").count(), 0);
}

#[test]
fn an_object_of_a_sessions_name_is_made_the_nodes_whoever_made_it_or_took_its_label() {
    let mut bench = without_router();
    let name = format!("router.{NODE1}");
    let foreign = json!({
        "apiVersion": "ferrolb.io/v1alpha1",
        "kind": "BGPSession",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "mine": "yes" } },
        "spec": {},
        "status": { "state": "Sleeping", "finding": "nothing of this is true" },
    });
    bench.api.put("BGPSession", foreign);
    // The watch is by the label: it brings nothing.
    bench.hear(NODE1, Input::BGPSessions(Change::Reset(Vec::new())));
    let up = report(&bench, State::Established);
    hear(&mut bench, up);
    bench.settle();
    let shown = |bench: &Bench| bench.api.list("BGPSession").next().unwrap().clone();
    let is_ours = |object: &Value, state: &str| {
        assert_eq!(object["metadata"]["labels"]["metallb.io/node"], json!(NODE1), "{object}");
        let status = &object["status"];
        assert_eq!((&status["state"], &status["peer"]), (&json!(state), &json!("router")), "{object}");
        assert!(status["finding"].is_null(), "{object}");
    };
    let object = shown(&bench);
    is_ours(&object, "Established");
    assert_eq!(object["metadata"]["labels"]["mine"], json!("yes"), "what is not ours stays");
    assert!(object["metadata"]["ownerReferences"][0]["uid"].is_string(), "{object}");

    let label = |value: Value| json!({ "metadata": { "labels": { "metallb.io/node": value } } });
    for value in [Value::Null, json!("another")] {
        bench.api.patch("BGPSession", NAMESPACE, &name, &label(value));
        // What a watch by the label makes of it.
        bench.hear(
            NODE1,
            Input::BGPSessions(Change::Deleted { namespace: NAMESPACE.to_owned(), name: name.clone() }),
        );
        bench.settle();
        is_ours(&shown(&bench), "Established");
    }
    bench.take_writes();
    let idle = report(&bench, State::Idle);
    hear(&mut bench, idle);
    bench.settle();
    is_ours(&shown(&bench), "Idle");
    assert_eq!(bench.take_writes(), ["PATCH bgpsessions/status"]);
    bench.api.delete("BGPPeer", NAMESPACE, "router");
    bench.settle();
    assert_eq!(bench.api.list("BGPSession").count(), 0);
}

#[test]
fn bg_17_a_router_that_answers_nothing_may_have_another_password_or_none() {
    let mut bench = without_router();
    bench.hear(NODE1, Input::BGPSessions(Change::Reset(Vec::new())));
    let reason = |bench: &Bench| {
        let object = bench.api.list("BGPSession").next().unwrap();
        object["status"]["lastFailure"]["reason"].as_str().unwrap().to_owned()
    };
    let hint =
        "cannot connect: no answer; the router may have another password, or none, and then answers nothing";
    let gtsm = "cannot connect: no answer; the router may be farther away than ferrolb.io/gtsm-hops, 2, allows, or send with a \
                TTL below 255 (RFC 5082), and then is not heard";
    for (spec, down, expected) in [
        (json!({}), Down::NoAnswer, "cannot connect: no answer"),
        (json!({ "password": "secret" }), Down::NoAnswer, hint),
        (
            json!({ "password": "secret" }),
            Down::NotConnected("refused".to_owned()),
            "cannot connect: refused",
        ),
        (json!({ "password": null }), Down::NoAnswer, "cannot connect: no answer"),
        (json!({ "ferrolb.io/gtsm-hops": "2" }), Down::NoAnswer, gtsm),
    ] {
        if let Some(hops) = spec.get("ferrolb.io/gtsm-hops") {
            let annotation = json!({ "metadata": { "annotations": { "ferrolb.io/gtsm-hops": hops } } });
            bench.api.patch("BGPPeer", NAMESPACE, "router", &annotation);
        }
        edit(&mut bench, "BGPPeer", "router", &spec);
        let failed = PeerReport { last_down: Some((bench.now, down)), ..report(&bench, State::Idle) };
        hear(&mut bench, failed);
        bench.settle();
        assert_eq!(reason(&bench), expected, "{spec}");
    }
}

#[test]
fn a_peer_that_cannot_be_reached_makes_a_write_every_five_minutes() {
    let mut bench = without_router();
    bench.hear(NODE1, Input::BGPSessions(Change::Reset(Vec::new())));
    let failed = |bench: &Bench, state, down| PeerReport {
        last_down: Some((bench.now, down)),
        ..report(bench, state)
    };
    let first = failed(&bench, State::Idle, Down::NoAnswer);
    hear(&mut bench, first);
    bench.take_writes();
    let shown = |bench: &Bench| bench.api.list("BGPSession").next().unwrap()["status"].clone();
    let before = shown(&bench);
    let mut all = Vec::new();
    // An attempt every ten seconds, for ten minutes, each of which fails alike.
    for _ in 0..60 {
        for state in [State::Connect, State::Active, State::OpenSent, State::Idle] {
            let again = failed(&bench, state, Down::NoAnswer);
            hear(&mut bench, again);
        }
        bench.run(Duration::from_millis(9600));
        all.extend(bench.take_writes());
    }
    assert_eq!(all, ["PATCH bgpsessions/status"; 2]);
    assert_ne!(shown(&bench)["lastFailure"]["time"], before["lastFailure"]["time"]);
    // Another reason is told at once, and so is that there is a session.
    let other = failed(&bench, State::Idle, Down::NotConnected("refused".to_owned()));
    hear(&mut bench, other);
    assert_eq!(bench.take_writes(), ["PATCH bgpsessions/status"]);
    let up = report(&bench, State::Established);
    hear(&mut bench, up);
    assert_eq!(bench.take_writes(), ["PATCH bgpsessions/status"]);
    assert_eq!(shown(&bench)["state"], json!("Established"));
}

// SPDX-License-Identifier: Apache-2.0
//! Sessions that go on, whatever becomes of other objects.

use std::time::Duration;

use ferrolb_bgp::{Down, State};
use ferrolb_net_types::PeerName;
use ferrolb_speaker_core::Input;
use ferrolb_speaker_core::bgp::{PeerReport, Rival};
use serde_json::{Value, json};

use crate::bench::{Bench, NODE1, NODE2, config, endpoints, report, service};
use crate::bgp::{edit, label, peer, serve, statuses, table, take_log, tutorial};

const A: &str = "192.168.20.100";

/// A peer at the router's address, older or younger than the router's own object.
fn other(name: &str, created: &str, more: Value) -> Value {
    let mut object = config(name, peer(more));
    object["metadata"]["creationTimestamp"] = json!(created);
    object
}

/// The router is told a route, and an older peer is in nobody's way: at another port, or not for this node.
fn beside_an_older_one(more: Value) -> Bench {
    let mut bench = tutorial();
    serve(&mut bench, "web", A, &[NODE1, NODE2]);
    bench.api.put("BGPPeer", other("older", "2025-01-01T00:00:00Z", more));
    bench.settle();
    take_log(&mut bench);
    bench
}

/// What the speaker of node 1 says of its configuration.
fn summary(bench: &Bench) -> (String, String) {
    let states = bench.api.list("ConfigurationState");
    let own = states.into_iter().find(|state| state["metadata"]["name"] == format!("speaker-{NODE1}"));
    let status = &own.unwrap()["status"];
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    (text("result"), text("errorSummary"))
}

#[test]
fn a_peer_that_gets_in_the_way_of_a_session_waits_however_old_it_is() {
    let rack = json!([{ "matchLabels": { "rack": "one" } }]);
    for (how, before, bring_about) in [
        (
            "an edit of its port",
            json!({ "peerPort": 180 }),
            (|bench| edit(bench, "BGPPeer", "older", &json!({ "peerPort": 179 }))) as fn(&mut Bench),
        ),
        ("an edit of its selector", json!({ "nodeSelectors": rack }), |bench| {
            edit(bench, "BGPPeer", "older", &json!({ "nodeSelectors": null }));
        }),
        ("a label of the node", json!({ "nodeSelectors": rack }), |bench| {
            label(bench, NODE1, &json!({ "rack": "one" }));
        }),
    ] {
        let mut bench = beside_an_older_one(before);
        assert_eq!(summary(&bench), ("Valid".to_owned(), String::new()), "{how}");
        bring_about(&mut bench);
        assert_eq!(take_log(&mut bench), [""; 0], "{how}: no session is touched, no route withdrawn");
        assert_eq!(table(&bench, "router"), [format!("{A}/32")], "{how}");
        let (result, error) = summary(&bench);
        assert_eq!(result, "Invalid", "{how}");
        let text = "configuration error: BGPPeer older: the session with 192.168.10.1";
        assert!(
            error.starts_with(text) && error.contains("excludes that of BGPPeer router"),
            "{how}: {error}"
        );
        assert!(bench.speakers[NODE1].stale, "{how}");
        // The router's own object still does what it says, and makes way when it is gone.
        edit(&mut bench, "BGPPeer", "router", &json!({ "holdTime": "30s" }));
        assert_eq!(take_log(&mut bench), ["edit router"], "{how}");
        bench.api.delete("BGPPeer", "metallb-system", "router");
        bench.settle();
        let log = take_log(&mut bench);
        assert!(log.contains(&"close router".to_owned()), "{how}: {log:?}");
        let sessions: Vec<_> = bench.speakers[NODE1].sessions.keys().map(ToString::to_string).collect();
        assert_eq!(sessions, ["older"], "{how}");
        assert_eq!(bench.speakers[NODE1].sessions["older"].remote.port(), 179, "{how}");
        assert_eq!(summary(&bench), ("Valid".to_owned(), String::new()), "{how}");
        assert!(!bench.speakers[NODE1].stale, "{how}");
        assert!(statuses(&bench).contains(&format!("web@{NODE1}: older")), "{how}: {:?}", statuses(&bench));
    }
}

#[test]
fn a_speaker_that_starts_anew_opens_the_older_of_two_peers() {
    let mut bench = beside_an_older_one(json!({ "peerPort": 180 }));
    edit(&mut bench, "BGPPeer", "older", &json!({ "peerPort": 179 }));
    bench.start(NODE1, "2");
    bench.settle();
    let sessions: Vec<_> = bench.speakers[NODE1].sessions.keys().map(ToString::to_string).collect();
    assert_eq!(sessions, ["older"]);
}

#[test]
fn sessions_and_routes_stay_for_as_long_as_the_api_is_away_and_only_what_is_new_is_told_afterwards() {
    let mut bench = tutorial();
    serve(&mut bench, "web", A, &[NODE1, NODE2]);
    serve(&mut bench, "gone", "192.168.20.102", &[NODE1]);
    bench
        .api
        .put("BGPPeer", other("second", "2026-01-01T00:00:00Z", json!({ "peerAddress": "192.168.10.2" })));
    bench.settle();
    let told = [format!("{A}/32"), "192.168.20.102/32".to_owned()];
    assert_eq!((table(&bench, "router"), table(&bench, "second")), (told.to_vec(), told.to_vec()));
    take_log(&mut bench);
    bench.take_events();

    let since = bench.now;
    bench.hear(NODE1, Input::ApiSilent { since });
    // No watch tells this node anything from now on, and the others go on as ever.
    bench.speakers.get_mut(NODE1).unwrap().delay = Duration::from_secs(30 * 24 * 3600);
    bench.api.delete("Service", "demo", "gone");
    bench.api.put("EndpointSlice", endpoints("new", &[NODE1]));
    bench.api.put("Service", service("new", "192.168.20.103"));
    bench.run(Duration::from_secs(3600));
    assert!(bench.speakers[NODE1].api_lost);
    // A router that restarts meanwhile finds the session as it was: how it is told again is the session's own affair.
    for state in [State::Idle, State::Connect, State::Established] {
        let news = report(bench.now, state);
        bench.hear(NODE1, Input::Peer { peer: PeerName::from("router"), report: Some(Box::new(news)) });
        bench.run(Duration::from_secs(10));
    }
    bench.run(Duration::from_secs(7 * 24 * 3600));
    assert_eq!(take_log(&mut bench), [""; 0], "a week later nothing was opened, closed, told or withdrawn");
    assert_eq!((table(&bench, "router"), table(&bench, "second")), (told.to_vec(), told.to_vec()));
    let sessions: Vec<_> = bench.speakers[NODE1].sessions.keys().map(ToString::to_string).collect();
    assert_eq!(sessions, ["router", "second"]);
    assert!(bench.speakers[NODE1].ready, "a Pod that goes on as well as it can is not to be replaced");

    // The server is back, with lists of what there is now.
    bench.speakers.get_mut(NODE1).unwrap().delay = Duration::from_millis(3);
    bench.reach_api(NODE1);
    bench.run(Duration::from_secs(1));
    let news = ["router", "second"]
        .map(|peer| [format!("{peer} -192.168.20.102/32"), format!("{peer} +192.168.20.103/32")]);
    assert_eq!(take_log(&mut bench), news.concat());
    assert!(!bench.speakers[NODE1].api_lost);
}

#[test]
fn a_peer_that_comes_from_the_address_of_another_ones_session_is_named_with_its_field() {
    let own = "192.168.10.20";
    for (more, field) in [
        (json!({ "sourceAddress": own }), format!("spec.sourceAddress {own}")),
        (json!({ "peerPort": 180 }), "spec.peerAddress 192.168.10.1".to_owned()),
    ] {
        let mut bench = beside_an_older_one(more);
        assert_eq!(summary(&bench), ("Valid".to_owned(), String::new()), "nothing tells yet");
        let rival = Rival {
            peer: PeerName::from("router"),
            remote: "192.168.10.1:179".parse().unwrap(),
            own: own.parse().unwrap(),
        };
        let down = Some((bench.now, Down::NotConnected(rival.to_string())));
        let idle = PeerReport { last_down: down, rival: Some(rival), ..report(bench.now, State::Idle) };
        let hear = |bench: &mut Bench, report| {
            let peer = PeerName::from("older");
            bench.hear(NODE1, Input::Peer { peer, report });
            bench.settle();
        };
        hear(&mut bench, Some(Box::new(idle.clone())));
        let (result, error) = summary(&bench);
        assert_eq!(result, "Invalid");
        assert_eq!(
            error,
            format!(
                "configuration error: BGPPeer older, {field}: BGPPeer router has the session with 192.168.10.1:179 from this \
                 node's address {own}, and a router cannot tell two apart that come from one"
            )
        );
        // Another attempt that fails for the same reason is no news.
        bench.take_writes();
        let again = idle.last_down.clone().map(|(_, down)| (bench.now, down));
        hear(&mut bench, Some(Box::new(PeerReport { last_down: again, ..idle })));
        let writes = bench.take_writes();
        assert!(writes.iter().all(|write| !write.contains("configurationstates")), "{writes:?}");
        let up = report(bench.now, State::Established);
        hear(&mut bench, Some(Box::new(up)));
        assert_eq!(summary(&bench), ("Valid".to_owned(), String::new()), "it is out of its way");
    }
}

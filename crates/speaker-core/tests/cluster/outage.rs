// SPDX-License-Identifier: Apache-2.0
//! Speakers without the API: one that loses it, and one that is started without it.

use std::time::Duration;

use ferrolb_config::state::OwnPod;
use ferrolb_speaker_core::{Input, SnapshotError};
use serde_json::json;

use crate::bench::{Bench, NODE1, NODE2, NODES, config, endpoints, service};

const IP: &str = "192.168.10.200";

/// One Service, led by NODE1, and what that speaker has kept.
fn kept() -> (Bench, Vec<u8>) {
    let mut bench = Bench::new();
    bench.settings = |settings| settings.keeps_snapshots = true;
    bench.start_all();
    bench.api.put("EndpointSlice", endpoints("web", &[NODE1]));
    bench.api.put("Service", service("web", IP));
    bench.run(Duration::from_secs(30));
    assert_eq!(bench.owner(IP), Some(NODE1));
    let kept = bench.speakers[NODE1].kept.clone().unwrap();
    bench.take_writes();
    bench.take_events();
    (bench, kept)
}

#[test]
fn a_start_without_the_api_goes_on_from_what_was_kept_and_says_that_its_view_is_stale_l2_21() {
    let (mut bench, kept) = kept();
    bench.start_without_api(NODE1, "1");
    bench.resume(NODE1, &kept).unwrap();
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    let speaker = &bench.speakers[NODE1];
    assert!(speaker.api_lost, "and comes last in elections");
    assert!(!speaker.ready);
    assert_eq!(speaker.announced, [("demo/web".to_owned(), IP.to_owned())].into());
    assert_eq!(bench.take_writes(), Vec::<String>::new());
    assert_eq!(bench.take_events(), Vec::<String>::new());

    bench.reach_api(NODE1);
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    assert!(!bench.speakers[NODE1].api_lost && bench.speakers[NODE1].ready);
    assert_eq!(bench.take_writes(), Vec::<String>::new());
    assert_eq!(bench.take_events(), Vec::<String>::new(), "a restart that changes nothing is told nobody");
}

#[test]
fn what_changed_meanwhile_holds_once_everything_was_listed() {
    let (mut bench, kept) = kept();
    bench.start_without_api(NODE1, "1");
    bench.resume(NODE1, &kept).unwrap();
    bench.settle();
    bench.api.delete("Service", "demo", "web");
    bench.api.put("EndpointSlice", endpoints("new", &[NODE1]));
    bench.api.put("Service", service("new", "192.168.10.202"));
    bench.settle();
    assert_eq!(bench.arping(IP).len(), 1, "it cannot know");
    bench.reach_api(NODE1);
    bench.settle();
    assert_eq!(bench.arping(IP).len(), 0);
    assert!(bench.owner("192.168.10.202").is_some());
    assert!(bench.statuses().iter().all(|status| status.contains("/new@")), "{:?}", bench.statuses());
}

#[test]
fn a_start_without_the_api_and_without_anything_kept_waits() {
    let (mut bench, _) = kept();
    bench.start_without_api(NODE1, "1");
    bench.run(Duration::from_secs(600));
    assert_eq!(bench.owner(IP), None);
    assert!(!bench.speakers[NODE1].ready);
    bench.reach_api(NODE1);
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    assert!(bench.speakers[NODE1].ready);
}

#[test]
fn what_is_damaged_or_anothers_is_as_if_there_were_nothing() {
    let (mut bench, kept) = kept();
    let damaged = kept[..kept.len() - 2].to_vec();
    for (snapshot, node, error) in
        [(&damaged, NODE1, SnapshotError::Damaged), (&kept, NODE2, SnapshotError::OtherNode(NODE1.into()))]
    {
        bench.start_without_api(node, "1");
        assert_eq!(bench.resume(node, snapshot), Err(error));
        bench.settle();
        assert!(!bench.speakers[node].api_lost);
        bench.reach_api(node);
        bench.settle();
        assert_eq!(bench.owner(IP), Some(NODE1));
    }
}

#[test]
fn nothing_secret_and_nothing_that_decides_nothing_is_kept() {
    let (mut bench, _) = kept();
    let password = "correct-horse-battery-staple";
    let peer = json!({
        "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1", "password": password,
    });
    bench.api.put("BGPPeer", config("router", peer));
    let annotated = json!({ "metadata": { "annotations": { "note": password } } });
    bench.api.patch("Service", "demo", "web", &annotated);
    bench.api.put("EndpointSlice", endpoints("web", &[NODE1, NODE2]));
    bench.run(Duration::from_secs(30));
    let text = String::from_utf8(bench.speakers[NODE1].kept.clone().unwrap()).unwrap();
    assert!(text.contains(IP) && text.contains(NODE2));
    for unwanted in [password, "router", "annotations", "10.244.1.1", "managedFields"] {
        assert!(!text.contains(unwanted), "{unwanted} in {text}");
    }
}

#[test]
fn what_was_kept_is_kept_anew_when_it_changes_and_only_then() {
    let (mut bench, kept) = kept();
    let forget = |bench: &mut Bench| bench.speakers.get_mut(NODE1).unwrap().kept = None;
    forget(&mut bench);
    bench.api.patch("Node", "", NODE1, &json!({ "status": { "conditions": [] } }));
    bench.run(Duration::from_secs(600));
    assert_eq!(bench.speakers[NODE1].kept, None);
    for n in 201..=210 {
        bench.api.put("Service", service(&format!("s{n}"), &format!("192.168.10.{n}")));
        bench.run(Duration::from_millis(500));
    }
    let soon = bench.speakers[NODE1].kept.clone().unwrap();
    assert_ne!(soon, kept);
    bench.run(Duration::from_secs(11));
    let text = String::from_utf8(bench.speakers[NODE1].kept.clone().unwrap()).unwrap();
    assert!(text.contains("192.168.10.210"));
}

#[test]
fn an_api_that_is_silent_for_thirteen_seconds_is_lost_and_its_first_answer_ends_that() {
    let (mut bench, _) = kept();
    let since = bench.now;
    bench.run(Duration::from_secs(12));
    bench.hear(NODE1, Input::ApiSilent { since });
    bench.run(Duration::from_millis(900));
    assert!(!bench.speakers[NODE1].api_lost);
    bench.run(Duration::from_millis(200));
    assert!(bench.speakers[NODE1].api_lost);
    assert!(!bench.speakers[NODE2].api_lost);
    assert_eq!(bench.owner(IP), Some(NODE1), "nothing that is announced is given up for it");
    bench.run(Duration::from_secs(600));
    bench.hear(NODE1, Input::ApiAnswers);
    bench.run(Duration::from_millis(1));
    assert!(!bench.speakers[NODE1].api_lost);
}

#[test]
fn what_is_announced_stays_for_as_long_as_the_api_is_away_x09_l2_18() {
    let (mut bench, _) = kept();
    let since = bench.now;
    for node in NODES {
        bench.hear(node, Input::ApiSilent { since });
    }
    bench.run(Duration::from_secs(3600));
    assert_eq!(bench.owner(IP), Some(NODE1));
    assert!(bench.speakers[NODE1].ready, "a Pod that goes on as well as it can is not to be replaced");
    assert_eq!(bench.take_events(), Vec::<String>::new());
}

#[test]
fn a_pod_that_is_found_only_later_owns_what_is_written() {
    let (mut bench, kept) = kept();
    bench.settings = |settings| settings.pod = None;
    bench.start_without_api(NODE1, "1");
    bench.resume(NODE1, &kept).unwrap();
    bench.settle();
    let pod = OwnPod { name: "speaker-late".into(), uid: "late".into() };
    bench.hear(NODE1, Input::OwnPod(pod));
    bench.run(Duration::from_millis(1));
    bench.reach_api(NODE1);
    bench.settle();
    assert_eq!(bench.take_writes(), ["PATCH servicel2statuses", "PATCH configurationstates"]);
    for object in bench.api.list("ServiceL2Status") {
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "late");
    }
}

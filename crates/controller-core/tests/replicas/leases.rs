// SPDX-License-Identifier: Apache-2.0
//! Several controllers and one Lease: who decides, what a successor takes over, and what may arrive late.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolb_api::Change;
use ferrolb_api::request::{Resource, WriteError};
use ferrolb_controller_core::{Input, LeaseRequest};
use serde_json::{Value, json};

use crate::bench::{Bench, identity};
use crate::cluster::NS;

const SECOND: Duration = Duration::from_secs(1);

/// Two controllers, of which the first leads.
fn two() -> Bench {
    two_under(0)
}

/// Two controllers, of which this one leads.
fn two_under(leader: usize) -> Bench {
    let mut bench = Bench::with_lease(2);
    bench.start(leader);
    bench.run_for(SECOND);
    bench.start(1 - leader);
    bench.run_for(10 * SECOND);
    assert!(bench.replicas[leader].leads && !bench.replicas[1 - leader].leads);
    bench
}

fn version(bench: &Bench, name: &str) -> String {
    let object = bench.api.object("services", NS, name).unwrap();
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn uid(bench: &Bench, name: &str) -> String {
    bench.api.object("services", NS, name).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Refuses every write to the Service `name`.
fn refuse(bench: &mut Bench, name: &'static str, error: WriteError) {
    bench.fate = Box::new(move |_, request| {
        let hit = request.resource == Resource::Services && request.name.as_deref() == Some(name);
        hit.then(|| error.clone())
    });
}

#[test]
fn the_holder_decides_and_the_other_listens() {
    let mut bench = two();
    bench.service(json!({ "name": "a" }));
    bench.run_for(Duration::from_millis(1));
    assert_eq!(bench.ips("a"), "1.2.3.0", "no later than by a controller that is alone");
    bench.run_for(10 * SECOND);
    assert_eq!((bench.sent(0), bench.sent(1).len()), (vec!["a".to_owned()], 0));
    assert!(bench.replicas[1].sent.is_empty() && bench.replicas[1].events.is_empty());
    assert_eq!(bench.replicas[1].counters["p"], 1, "a figure is no secret");
    assert_eq!(bench.intents(), [] as [Value; 0], "what is written is no intent any more");
    // One renewal a second, and two readings by the other.
    let before = bench.lease_requests;
    bench.run_for(60 * SECOND);
    let requests = bench.lease_requests - before;
    assert!((175..=185).contains(&requests), "{requests} requests in a minute");
    assert_eq!(bench.replicas[0].sent.iter().filter(|r| r.resource == Resource::Services).count(), 1);
}

#[test]
fn what_was_decided_upon_former_pools_is_not_sent() {
    let mut bench = two();
    bench.service(json!({ "name": "a" }));
    bench.run_for(SECOND);
    assert_eq!(bench.ips("a"), "1.2.3.0");
    // Neither what is given nor what is taken away can be committed for a while.
    bench.lease_fate = Box::new(|_, request| {
        matches!(request, LeaseRequest::Replace(_)).then(|| WriteError::no_answer("away"))
    });
    bench.service(json!({ "name": "b" }));
    bench.api.pool(json!({ "name": "p", "addresses": ["4.5.6.0/29"] }));
    bench.run_for(Duration::from_millis(100));
    bench.api.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32", "4.5.6.0/29"] }));
    bench.run_for(Duration::from_millis(100));
    bench.lease_fate = Box::new(|_, _| None);
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("1.2.3.0", "4.5.6.0"));
    assert_eq!(bench.sent(0), ["a", "b"], "the one before all this, and the one that is right");
}

#[test]
fn a_watch_that_lags_behind_a_reading_takes_nothing_from_a_service_made_again() {
    let mut bench = two();
    bench.api.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"] }));
    bench.service(json!({ "name": "b", "type": "ClusterIP" }));
    bench.service(json!({ "name": "a" }));
    bench.run_for(SECOND);
    bench.replicas[1].blind = true;
    bench.kill(0);
    bench.api.delete_service("a");
    bench.service(json!({ "name": "a" }));
    bench.replicas[1].slow = true;
    bench.until(10 * SECOND, |bench| !bench.late.is_empty());
    // The older one wants an address now, and the watch tells of it after it has told that the former `a` is gone.
    bench.service(json!({ "name": "b", "type": "LoadBalancer" }));
    bench.open_eyes(1);
    bench.run_for(SECOND);
    assert_eq!(bench.late.len(), 1, "the address is that of the write that is under way");
    bench.replicas[1].slow = false;
    bench.arrive();
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("1.2.3.0", ""));
}

#[test]
fn a_holder_does_not_make_way_for_a_decision_that_is_void() {
    let mut bench = two();
    let share =
        |name: &str, port: u16| json!({ "name": name, "ann": { "allow-shared-ip": "k" }, "ports": [port] });
    bench.service(share("a", 80));
    bench.run_for(SECOND);
    bench.lease_fate = Box::new(|_, request| {
        matches!(request, LeaseRequest::Replace(_)).then(|| WriteError::no_answer("away"))
    });
    // It is about to join, and then the two part before anything was sent.
    bench.service(share("b", 81));
    bench.run_for(Duration::from_millis(100));
    bench.service(json!({ "name": "b", "loadBalancerIP": "9.9.9.9" }));
    bench.service(json!({ "name": "a", "ann": { "allow-shared-ip": null } }));
    bench.run_for(Duration::from_millis(100));
    bench.lease_fate = Box::new(|_, _| None);
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("1.2.3.0", ""));
    assert_eq!(bench.sent(0), ["a"], "nothing had to move");
}

#[test]
fn a_holder_keeps_its_address_beside_a_decision_that_could_not_be_committed() {
    let mut bench = two();
    bench.api.pool(json!({ "name": "p", "addresses": ["1.2.3.0/31"] }));
    let share = |name: &str, key: &str, port: u16| json!({ "name": name, "ann": { "allow-shared-ip": key }, "ports": [port] });
    bench.service(share("a", "k", 80));
    bench.run_for(SECOND);
    bench.lease_fate = Box::new(|_, request| {
        matches!(request, LeaseRequest::Replace(_)).then(|| WriteError::no_answer("away"))
    });
    // The one is about to join, but nobody knows; the other one gives up the key.
    bench.service(share("b", "k", 81));
    bench.run_for(Duration::from_millis(100));
    bench.service(share("a", "", 80));
    bench.run_for(Duration::from_millis(100));
    bench.lease_fate = Box::new(|_, _| None);
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("1.2.3.0", "1.2.3.1"));
    assert_eq!(bench.sent(0), ["a", "b"]);
}

#[test]
fn what_could_not_be_committed_is_decided_again_before_it_is_sent() {
    let mut bench = two();
    let share = |name: &str, key: &str, port: u16| json!({ "name": name, "ann": { "allow-shared-ip": key }, "ports": [port] });
    bench.service(share("a", "k", 80));
    bench.service(share("b", "k", 81));
    bench.run_for(SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("1.2.3.0", "1.2.3.0"));
    bench.lease_fate = Box::new(|_, request| {
        matches!(request, LeaseRequest::Replace(_)).then(|| WriteError::no_answer("away"))
    });
    // It would have to move, and then the other one goes.
    bench.service(share("a", "other", 80));
    bench.run_for(Duration::from_millis(100));
    bench.api.delete_service("b");
    bench.run_for(2 * SECOND);
    bench.lease_fate = Box::new(|_, _| None);
    bench.run_for(10 * SECOND);
    assert_eq!(bench.ips("a"), "1.2.3.0");
    assert_eq!(bench.sent(0), ["a", "b"], "nothing had to move");
}

#[test]
fn who_was_refused_for_the_sake_of_a_decision_that_is_taken_back_is_served() {
    let mut bench = two();
    bench.api.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"] }));
    bench.run_for(SECOND);
    bench.lease_fate = Box::new(|_, request| {
        matches!(request, LeaseRequest::Replace(_)).then(|| WriteError::no_answer("away"))
    });
    bench.service(json!({ "name": "a" }));
    bench.run_for(Duration::from_millis(100));
    // It waits: the only address is about to be another's, who then asks for another one.
    bench.service(json!({ "name": "b" }));
    bench.run_for(Duration::from_millis(100));
    bench.service(json!({ "name": "a", "loadBalancerIP": "9.9.9.9" }));
    bench.run_for(Duration::from_millis(100));
    bench.lease_fate = Box::new(|_, _| None);
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("", "1.2.3.0"));
}

#[test]
fn what_is_under_way_keeps_its_address_though_new_pools_do_not_admit_it() {
    let mut bench = two();
    bench.api.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"] }));
    bench.run_for(SECOND);
    bench.replicas[0].slow = true;
    bench.service(json!({ "name": "a" }));
    bench.run_for(Duration::from_millis(100));
    assert_eq!(bench.late.len(), 1);
    let selectors = json!([{ "matchLabels": { "app": "b" } }]);
    let allocation = json!({ "serviceSelectors": selectors });
    bench.api.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"], "serviceAllocation": allocation }));
    bench.service(json!({ "name": "b", "labels": { "app": "b" } }));
    bench.run_for(Duration::from_millis(100));
    assert_eq!(bench.late.len(), 1, "nobody else is given the address");
    bench.replicas[0].slow = false;
    assert!(bench.arrive().iter().all(Result::is_ok));
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("", "1.2.3.0"));
}

#[test]
fn a_decision_for_a_service_that_went_to_another_class_leaves_nothing_behind() {
    let mut bench = two();
    bench.service(json!({ "name": "a" }));
    bench.run_for(SECOND);
    bench.lease_fate = Box::new(|_, request| {
        matches!(request, LeaseRequest::Replace(_)).then(|| WriteError::no_answer("away"))
    });
    bench.service(json!({ "name": "a", "loadBalancerIP": "1.2.3.5" }));
    bench.run_for(Duration::from_millis(100));
    bench.service(json!({ "name": "a", "loadBalancerClass": "x" }));
    bench.run_for(Duration::from_millis(100));
    bench.lease_fate = Box::new(|_, _| None);
    bench.run_for(10 * SECOND);
    assert_eq!(bench.replicas[0].counters["p"], 0);
    bench.service(json!({ "name": "b" }));
    bench.run_for(SECOND);
    assert_eq!(bench.ips("b"), "1.2.3.0", "what another controller lists is no matter of ours");
}

#[test]
fn a_dead_leader_is_replaced_within_five_seconds_whenever_it_dies() {
    for millis in (0..1000).step_by(90) {
        let mut bench = two();
        bench.run_for(Duration::from_millis(millis));
        bench.kill(0);
        bench.service(json!({ "name": "a" }));
        let took = bench.until(5 * SECOND, |bench| bench.ips("a") == "1.2.3.0");
        assert!(took >= 3 * SECOND, "nobody is dead after {took:?}");
        assert_eq!(bench.holder(), identity(1));
        assert_eq!(bench.lease.as_ref().unwrap().spec.as_ref().unwrap().lease_transitions, Some(1));
    }
}

#[test]
fn a_leader_that_ends_hands_over_at_once() {
    let mut bench = two();
    bench.stop(0);
    bench.service(json!({ "name": "a" }));
    let took = bench.until(SECOND, |bench| bench.ips("a") == "1.2.3.0");
    assert!(took <= Duration::from_millis(510), "{took:?}");
    assert!(bench.is_stopped(0));
    assert_eq!((bench.sent(0).len(), bench.sent(1)), (0, vec!["a".to_owned()]));
    bench.stop(1);
    bench.run_for(Duration::from_millis(1));
    assert!(bench.is_stopped(1));
    assert_eq!(bench.holder(), "");
}

#[test]
fn a_container_that_is_started_again_leads_at_once() {
    let mut bench = two();
    bench.kill(1);
    bench.kill(0);
    bench.start(0);
    bench.service(json!({ "name": "a" }));
    assert!(bench.until(SECOND, |bench| bench.ips("a") == "1.2.3.0") <= Duration::from_millis(10));
}

#[test]
fn s8_a_late_write_of_a_paused_leader_takes_nobodys_address() {
    // The successor cannot write `a`, so that nothing but the reservation keeps its address free.
    let mut bench = two();
    bench.replicas[0].slow = true;
    bench.service(json!({ "name": "a" }));
    bench.run_for(Duration::from_millis(100));
    assert_eq!(bench.late.len(), 1);
    bench.replicas[0].paused = true;
    bench.fate = Box::new(|n, request| {
        let hit = n == 1 && request.name.as_deref() == Some("a");
        hit.then(|| WriteError::refused(403, "Forbidden", "no"))
    });
    bench.until(6 * SECOND, |bench| bench.replicas[1].leads);
    bench.service(json!({ "name": "b" }));
    bench.service(json!({ "name": "c", "loadBalancerIP": "1.2.3.0" }));
    bench.run_for(60 * SECOND);
    assert_eq!(
        (bench.ips("a").as_str(), bench.ips("b").as_str(), bench.ips("c").as_str()),
        ("", "1.2.3.1", "")
    );
    assert!(bench.arrive()[0].is_ok(), "it arrives, after a minute");
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("c").as_str()), ("1.2.3.0", ""));
    // The first one wakes up, learns that it leads no more, and sends nothing.
    let sent = bench.replicas[0].sent.len();
    bench.replicas[0].paused = false;
    bench.service(json!({ "name": "d" }));
    bench.run_for(10 * SECOND);
    assert!(!bench.replicas[0].leads && bench.replicas[1].leads);
    assert_eq!(bench.replicas[0].sent.len(), sent);
    assert_eq!(bench.ips("d"), "1.2.3.2");
}

#[test]
fn a_write_that_arrives_after_the_successors_own_is_refused() {
    let mut bench = two();
    bench.replicas[0].slow = true;
    bench.service(json!({ "name": "a" }));
    bench.run_for(Duration::from_millis(100));
    bench.replicas[0].paused = true;
    bench.until(6 * SECOND, |bench| bench.ips("a") == "1.2.3.0");
    let before = version(&bench, "a");
    assert_eq!(bench.arrive()[0].clone().unwrap_err().code, 409);
    assert_eq!(version(&bench, "a"), before);
    bench.run_for(2 * SECOND);
    assert_eq!(bench.intents(), [] as [Value; 0]);
}

#[test]
fn what_a_leader_had_not_committed_when_it_lost_the_lease_is_never_sent() {
    let mut bench = two();
    // Its updates of the Lease do not arrive, and it does not know.
    bench.lease_fate = Box::new(|n, request| {
        let write = !matches!(request, LeaseRequest::Read);
        (n == 0 && write).then(|| WriteError::no_answer("lost"))
    });
    bench.service(json!({ "name": "a" }));
    bench.run_for(2 * SECOND);
    assert_eq!(bench.sent(0).len(), 0);
    bench.until(6 * SECOND, |bench| bench.replicas[1].leads && bench.ips("a") == "1.2.3.0");
    bench.lease_fate = Box::new(|_, _| None);
    bench.run_for(10 * SECOND);
    assert!(!bench.replicas[0].leads);
    assert_eq!((bench.sent(0).len(), bench.sent(1)), (0, vec!["a".to_owned()]));
    assert!(bench.replicas[0].events.is_empty(), "nobody hears of a decision that was not carried out");
    // It comes back to power and decides as if nothing had been.
    bench.kill(1);
    bench.service(json!({ "name": "b" }));
    bench.until(6 * SECOND, |bench| bench.ips("b") == "1.2.3.1");
}

#[test]
fn s8_two_that_wake_up_after_the_end_of_the_lease_do_not_both_lead() {
    let mut bench = two();
    bench.replicas[0].paused = true;
    bench.replicas[1].paused = true;
    bench.run_for(60 * SECOND);
    bench.service(json!({ "name": "a" }));
    bench.replicas[0].paused = false;
    bench.replicas[1].paused = false;
    bench.run_for(10 * SECOND);
    assert_ne!(bench.replicas[0].leads, bench.replicas[1].leads);
    assert_eq!(bench.sent(0).len() + bench.sent(1).len(), 1);
}

#[test]
fn a_lease_that_somebody_edits_is_taken_again_at_once() {
    let mut bench = two();
    bench.edit_lease(|lease| {
        lease.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    });
    bench.service(json!({ "name": "a" }));
    let took = bench.until(2 * SECOND, |bench| bench.ips("a") == "1.2.3.0");
    assert!(took <= SECOND, "{took:?}");
    assert_eq!(bench.holder(), identity(0));
    assert!(bench.lease.as_ref().unwrap().metadata.labels.is_some(), "the edit stays");
}

#[test]
fn a_lease_that_somebody_removes_comes_back_with_its_intents() {
    let mut bench = two();
    bench.replicas[0].slow = true;
    bench.service(json!({ "name": "a" }));
    bench.run_for(Duration::from_millis(100));
    bench.lease = None;
    bench.run_for(3 * SECOND);
    assert_eq!(bench.holder(), identity(0));
    assert_eq!(bench.intents()[0]["ips"], json!(["1.2.3.0"]));
    // Also one that nobody who lives made: it is taken after four seconds only.
    bench.kill(0);
    bench.lease = None;
    let took = bench.until(6 * SECOND, |bench| bench.replicas[1].leads);
    assert!(took >= 3 * SECOND, "{took:?}");
}

#[test]
fn an_outage_moves_no_leadership_and_is_no_tight_loop() {
    // Whichever of them asks first when it is over.
    for (leader, shift) in (0..500).step_by(50).flat_map(|shift| [(0, shift), (1, shift)]) {
        let mut bench = two_under(leader);
        bench.run_for(Duration::from_millis(3 * shift));
        bench.away = true;
        bench.service(json!({ "name": "a" }));
        let before = bench.lease_requests;
        bench.run_for(60 * SECOND);
        let requests = bench.lease_requests - before;
        assert!(requests <= 2 * 2 * 61, "{requests} requests in a minute, by two");
        bench.away = false;
        let took = bench.until(2 * SECOND, |bench| bench.ips("a") == "1.2.3.0");
        assert!(took <= SECOND, "{took:?}");
        bench.run_for(10 * SECOND);
        assert!(bench.replicas[leader].leads && !bench.replicas[1 - leader].leads, "{leader} {shift}");
        // Nor does a short one.
        bench.away = true;
        bench.run_for(4 * SECOND);
        bench.away = false;
        bench.run_for(10 * SECOND);
        assert!(bench.replicas[leader].leads && !bench.replicas[1 - leader].leads, "{leader} {shift}");
    }
}

#[test]
fn who_may_not_use_leases_decides_nothing_and_hammers_nobody() {
    let mut bench = Bench::with_lease(1);
    bench.lease_fate = Box::new(|_, _| Some(WriteError::refused(403, "Forbidden", "leases is forbidden")));
    bench.start(0);
    bench.service(json!({ "name": "a" }));
    bench.run_for(60 * SECOND);
    assert!(bench.replicas[0].sent.is_empty() && bench.lease_requests <= 61, "{}", bench.lease_requests);
    bench.lease_fate = Box::new(|_, _| None);
    bench.until(2 * SECOND, |bench| bench.ips("a") == "1.2.3.0");
}

#[test]
fn two_thousand_at_once_are_committed_in_batches_of_five_hundred() {
    let mut bench = two();
    bench.api.pool(json!({ "name": "p", "addresses": ["10.0.0.0/16"] }));
    bench.run_for(SECOND);
    let (annotations, requests) = (bench.annotations.len(), bench.lease_requests);
    for n in 0..2000 {
        bench.service(json!({ "name": format!("s{n:04}") }));
    }
    bench.run_for(Duration::from_millis(100));
    assert_eq!(bench.sent(0).len(), 2000, "one write each, and all at once");
    let mut known = BTreeSet::new();
    let mut new_ones = |text: &String| {
        let list = serde_json::from_str::<Vec<Value>>(text).unwrap();
        list.iter().filter(|intent| known.insert(intent["uid"].to_string())).count()
    };
    let batches: Vec<usize> = bench.annotations[annotations..].iter().map(&mut new_ones).collect();
    assert_eq!(batches.iter().filter(|count| **count > 0).collect::<Vec<_>>(), [&500; 4]);
    assert!(bench.lease_requests - requests <= 8, "{batches:?}");
    assert!(bench.annotations.iter().all(|text| text.len() <= 128 * 1024));
}

#[test]
fn the_annotation_keeps_its_size_while_writes_hang() {
    let mut bench = two();
    bench.api.pool(json!({ "name": "p", "addresses": ["10.0.0.0/16"] }));
    bench.run_for(SECOND);
    bench.replicas[0].slow = true;
    for n in 0..3000 {
        bench.service(json!({ "name": format!("s{n:04}") }));
    }
    let requests = bench.lease_requests;
    bench.run_for(10 * SECOND);
    let longest = bench.annotations.iter().map(String::len).max().unwrap();
    assert!((100 * 1024..=128 * 1024).contains(&longest), "{longest}");
    assert!(bench.sent(0).len() < 3000, "what does not fit waits");
    assert!(bench.lease_requests - requests <= 45, "a full Lease is not written again and again");
    bench.replicas[0].slow = false;
    bench.arrive();
    bench.run_for(10 * SECOND);
    assert_eq!(bench.sent(0).len(), 3000);
    assert_eq!(bench.intents(), [] as [Value; 0]);
}

/// A Service `a` for which a predecessor committed 1.2.3.1, which asks for 1.2.3.3 now and cannot be written; and `b`,
/// which wants 1.2.3.1. Whether the predecessor's intent is for the version that `a` has.
fn inheritance(same_version: bool) -> Bench {
    let mut bench = Bench::with_lease(1);
    bench.service(json!({ "name": "a", "loadBalancerIP": "1.2.3.3" }));
    bench.service(json!({ "name": "b", "loadBalancerIP": "1.2.3.1" }));
    let version = if same_version { version(&bench, "a") } else { "1".to_owned() };
    bench.leave_lease(&json!([{ "uid": uid(&bench, "a"), "rv": version, "ips": ["1.2.3.1"] }]));
    refuse(&mut bench, "a", WriteError::refused(403, "Forbidden", "no"));
    bench.start(0);
    bench.run_for(5 * SECOND);
    assert!(bench.replicas[0].leads);
    bench
}

#[test]
fn an_inherited_address_stays_reserved_for_as_long_as_it_takes() {
    let mut bench = inheritance(true);
    bench.run_for(3600 * SECOND);
    assert_eq!(bench.ips("b"), "");
    assert_eq!(bench.intents().len(), 1, "whoever comes next has to know as well: {:?}", bench.intents());
    // New pools change nothing about it, and a watch that starts over neither.
    bench.api.pool(json!({ "name": "q", "addresses": ["5.5.5.0/30"] }));
    bench.relist(0);
    bench.run_for(10 * SECOND);
    assert_eq!(bench.ips("b"), "");
}

#[test]
fn an_inherited_address_is_free_once_the_service_is_of_another_version() {
    let mut bench = inheritance(true);
    bench.service(json!({ "name": "a", "labels": { "touched": "yes" } }));
    bench.run_for(Duration::from_millis(1));
    assert_eq!(bench.ips("b"), "1.2.3.1");
    bench.run_for(2 * SECOND);
    assert_eq!(bench.intents().iter().filter(|intent| intent["ips"] == json!(["1.2.3.1"])).count(), 0);
}

#[test]
fn an_inherited_address_is_free_once_the_service_is_gone() {
    let mut bench = inheritance(true);
    bench.api.delete_service("a");
    bench.run_for(Duration::from_millis(1));
    assert_eq!(bench.ips("b"), "1.2.3.1");
}

#[test]
fn an_inherited_address_is_free_once_the_successor_has_written_the_service() {
    let mut bench = inheritance(true);
    bench.fate = Box::new(|_, _| None);
    bench.until(61 * SECOND, |bench| bench.ips("a") == "1.2.3.3");
    bench.run_for(Duration::from_millis(1));
    assert_eq!(bench.ips("b"), "1.2.3.1");
}

#[test]
fn intents_for_other_versions_and_for_services_that_are_gone_are_void() {
    let bench = inheritance(false);
    assert_eq!(bench.ips("b"), "1.2.3.1");
    let mut bench = Bench::with_lease(1);
    bench.service(json!({ "name": "b" }));
    bench.leave_lease(&json!([{ "uid": "nobody", "rv": "7", "ips": ["1.2.3.0"] }]));
    bench.start(0);
    bench.run_for(5 * SECOND);
    assert_eq!(bench.ips("b"), "1.2.3.0");
}

#[test]
fn a_service_that_needs_no_write_gets_one_if_its_version_is_in_doubt() {
    // It holds an address, and a predecessor may still move it.
    let mut bench = Bench::with_lease(1).conditions();
    bench.service(json!({ "name": "a", "st": ["1.2.3.3"], "ann": { "ip-allocated-from-pool": "p" } }));
    bench.service(json!({ "name": "b", "loadBalancerIP": "1.2.3.1" }));
    bench.leave_lease(&json!([{ "uid": uid(&bench, "a"), "rv": version(&bench, "a"), "ips": ["1.2.3.1"] }]));
    bench.start(0);
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("1.2.3.3", "1.2.3.1"));
    assert_eq!(bench.sent(0).iter().filter(|name| *name == "a").count(), 1);
}

#[test]
fn a_successor_reads_the_services_before_it_decides() {
    // It knows of `b`, but has not seen that the address it would give it is taken.
    let mut bench = two();
    bench.kill(0);
    bench.service(json!({ "name": "b" }));
    bench.run_for(Duration::from_millis(1));
    bench.replicas[1].blind = true;
    bench.service(json!({ "name": "a", "st": ["1.2.3.0"], "ann": { "ip-allocated-from-pool": "p" } }));
    bench.until(6 * SECOND, |bench| bench.ips("b") == "1.2.3.1");
    // Its watch delivers all that at last.
    bench.open_eyes(1);
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("1.2.3.0", "1.2.3.1"));
    assert_eq!(bench.sent(1), ["b"]);
}

#[test]
fn a_watch_that_starts_over_from_before_the_reading_hides_nothing() {
    let mut bench = Bench::with_lease(1);
    bench.start(0);
    bench.run_for(SECOND);
    // The watch broke, and lists anew, slowly. Meanwhile the Lease is lost and taken again.
    let list = bench.api.list("services");
    bench.replicas[0].blind = true;
    bench.service(json!({ "name": "a", "st": ["1.2.3.0"], "ann": { "ip-allocated-from-pool": "p" } }));
    bench.edit_lease(|_| {});
    bench.run_for(2 * SECOND);
    assert!(bench.replicas[0].leads);
    bench.deliver(0, Input::Services(Change::Reset(list)));
    bench.service(json!({ "name": "b" }));
    bench.run_for(SECOND);
    assert_eq!(bench.ips("b"), "1.2.3.1");
}

#[test]
fn a_reading_brings_nothing_back_that_is_gone() {
    let mut bench = two();
    bench.service(json!({ "name": "a" }));
    bench.run_for(SECOND);
    bench.hold_readings = true;
    bench.kill(0);
    bench.until(6 * SECOND, |bench| bench.held_readings() == 1);
    bench.service(json!({ "name": "b", "loadBalancerIP": "1.2.3.0" }));
    bench.run_for(SECOND);
    assert_eq!(bench.ips("b"), "", "nothing is decided before the reading is there");
    bench.api.delete_service("a");
    bench.run_for(SECOND);
    bench.release_readings();
    bench.run_for(Duration::from_millis(1));
    assert_eq!(bench.ips("b"), "1.2.3.0");
}

#[test]
fn a_reading_that_began_before_the_lease_was_lost_does_not_count() {
    let mut bench = two();
    bench.hold_readings = true;
    bench.edit_lease(|_| {});
    bench.run_for(2 * SECOND);
    assert_eq!(bench.held_readings(), 1, "it leads again, and reads");
    bench.edit_lease(|_| {});
    bench.run_for(2 * SECOND);
    assert_eq!(bench.held_readings(), 1, "never two at a time");
    bench.service(json!({ "name": "a", "st": ["1.2.3.0"] }));
    bench.replicas[0].blind = true;
    bench.release_readings();
    bench.hold_readings = true;
    bench.run_for(2 * SECOND);
    assert_eq!(bench.held_readings(), 1, "it reads once more");
    bench.release_readings();
    bench.run_for(SECOND);
    assert!(bench.replicas[0].leads);
}

#[test]
fn an_address_whose_write_got_no_answer_is_nobody_elses() {
    for count in [1, 2] {
        let mut bench = if count == 1 { Bench::with_lease(1) } else { two() };
        if count == 1 {
            bench.start(0);
            bench.run_for(SECOND);
        }
        bench.replicas[0].slow = true;
        bench.service(json!({ "name": "a" }));
        bench.run_for(Duration::from_millis(100));
        bench.give_up_waiting();
        bench.run_for(Duration::from_millis(1));
        // Pools have changed, and it is to get another one; that write gets no answer either.
        let late = std::mem::take(&mut bench.late);
        bench.api.pool(json!({ "name": "p", "addresses": ["1.2.3.0/29"], "autoAssign": false }));
        bench.api.pool(json!({ "name": "q", "addresses": ["5.5.5.5/32"] }));
        refuse(&mut bench, "a", WriteError::no_answer("lost"));
        bench.replicas[0].slow = false;
        bench.service(json!({ "name": "b", "loadBalancerIP": "1.2.3.0" }));
        bench.run_for(60 * SECOND);
        assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("", ""));
        // The first one arrives after all.
        bench.fate = Box::new(|_, _| None);
        bench.late = late;
        bench.arrive();
        bench.run_for(10 * SECOND);
        assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("1.2.3.0", ""));
    }
}

#[test]
fn a_start_among_services_that_have_what_they_should_writes_none_of_them() {
    let mut bench = Bench::with_lease(2).conditions();
    bench.api.pool(json!({ "name": "p", "addresses": ["10.0.0.0/16"] }));
    for n in 0..1000 {
        let ip = format!("10.0.{}.{}", n / 250, n % 250);
        bench.service(
            json!({ "name": format!("s{n:04}"), "st": [ip], "ann": { "ip-allocated-from-pool": "p" } }),
        );
    }
    bench.start(0);
    bench.start(1);
    bench.run_for(60 * SECOND);
    assert_eq!((bench.sent(0).len(), bench.sent(1).len()), (0, 0));
    bench.kill(0);
    bench.run_for(60 * SECOND);
    assert!(bench.replicas[1].leads);
    assert_eq!(bench.sent(1).len(), 0);
    bench.service(json!({ "name": "new" }));
    bench.run_for(60 * SECOND);
    assert_eq!(bench.sent(1), ["new"], "what is idle stays idle");
}

// SPDX-License-Identifier: Apache-2.0
//! Writes that fail, watches that lag, and others who write the same objects.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ferrolb_api::request::{ApiRequest, Resource, WriteError};
use serde_json::json;

use crate::cluster::{Cluster, NS, SYSTEM};

fn refusal(code: u16, reason: &str) -> WriteError {
    WriteError::refused(code, reason, format!("{reason}, says the test"))
}

fn cluster(addresses: &str) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": [addresses] }));
    cluster.quiet();
    cluster.writes.clear();
    cluster
}

/// Refuses the status of the Service `name` as long as the cell is positive, counting it down.
fn refuse(cluster: &mut Cluster, name: &'static str, times: u32, error: WriteError) -> Rc<Cell<u32>> {
    let left = Rc::new(Cell::new(times));
    let cell = Rc::clone(&left);
    cluster.fate = Box::new(move |request: &ApiRequest| {
        let hit = request.resource == Resource::Services && request.name.as_deref() == Some(name);
        if !hit || cell.get() == 0 {
            return None;
        }
        cell.set(cell.get() - 1);
        Some(error.clone())
    });
    left
}

#[test]
fn a_refused_write_is_repeated_and_told_once() {
    for error in [refusal(409, "Conflict"), refusal(500, "InternalError"), WriteError::no_answer("reset")] {
        let mut cluster = cluster("1.2.3.0/31");
        refuse(&mut cluster, "s", 4, error);
        cluster.service(json!({ "name": "s" }));
        let start = cluster.now;
        cluster.run_until(start + Duration::from_millis(74));
        assert_eq!(cluster.ips("s"), "", "5 + 10 + 20 + 40 ms have not passed");
        cluster.run_until(start + Duration::from_millis(75));
        assert_eq!(cluster.ips("s"), "1.2.3.0");
        cluster.quiet();
        assert_eq!(cluster.service_writes().len(), 5);
        assert_eq!(cluster.told(), [r#"s Normal IPAllocated: Assigned IP ["1.2.3.0"]"#]);
    }
}

#[test]
fn r3_a_write_that_always_fails_is_no_tight_loop_and_holds_up_nobody() {
    let mut cluster = cluster("1.2.3.0/29");
    refuse(&mut cluster, "bad", u32::MAX, refusal(403, "Forbidden"));
    cluster.service(json!({ "name": "bad" }));
    cluster.run_until(cluster.now + Duration::from_millis(1));
    // S3: everybody else is served and released at once, also across a restart.
    cluster.stop();
    cluster.start();
    cluster.service(json!({ "name": "good" }));
    cluster.run_until(cluster.now);
    assert_eq!(cluster.ips("good"), "1.2.3.1");
    cluster.delete_service("good");
    cluster.service(json!({ "name": "next", "loadBalancerIP": "1.2.3.1" }));
    cluster.run_until(cluster.now);
    assert_eq!(cluster.ips("next"), "1.2.3.1");
    cluster.service_writes();
    cluster.run_until(cluster.now + Duration::from_secs(3600));
    let writes = cluster.service_writes().len();
    assert!((60..=80).contains(&writes), "{writes} attempts in an hour");
    // What its owner changes is tried at once.
    cluster.fate = Box::new(|_| None);
    cluster.service(json!({ "name": "bad", "loadBalancerIP": "1.2.3.3" }));
    cluster.run_until(cluster.now);
    assert_eq!(cluster.ips("bad"), "1.2.3.3");
}

#[test]
fn what_a_stranger_lists_is_nobodys_while_the_status_cannot_be_put_right() {
    let mut cluster = cluster("1.2.3.0/30");
    let left = refuse(&mut cluster, "a", u32::MAX, refusal(403, "Forbidden"));
    cluster.service(json!({ "name": "a", "loadBalancerIP": "1.2.3.3" }));
    cluster.quiet();
    cluster.foreign_status("a", json!(["1.2.3.1"]), "stranger");
    cluster.run_until(cluster.now + Duration::from_millis(1));
    cluster.service(json!({ "name": "b", "loadBalancerIP": "1.2.3.1" }));
    cluster.run_until(cluster.now + Duration::from_secs(60));
    assert_eq!((cluster.ips("a").as_str(), cluster.ips("b").as_str()), ("1.2.3.1", ""));
    left.set(0);
    cluster.run_until(cluster.now + Duration::from_secs(60));
    assert_eq!((cluster.ips("a").as_str(), cluster.ips("b").as_str()), ("1.2.3.3", "1.2.3.1"));
}

#[test]
fn two_who_share_an_address_survive_an_outage_together() {
    let mut cluster = cluster("1.2.3.0/32");
    cluster.fate = Box::new(|request| {
        (request.resource == Resource::Services).then(|| WriteError::no_answer("connection refused"))
    });
    for (name, port) in [("a", 80), ("b", 81)] {
        cluster.service(json!({ "name": name, "ann": { "allow-shared-ip": "k" }, "ports": [port] }));
    }
    cluster.run_until(cluster.now + Duration::from_secs(5));
    cluster.fate = Box::new(|_| None);
    cluster.run_until(cluster.now + Duration::from_secs(60));
    assert_eq!((cluster.ips("a").as_str(), cluster.ips("b").as_str()), ("1.2.3.0", "1.2.3.0"));
}

#[test]
fn a_change_between_read_and_write_is_respected() {
    let mut cluster = cluster("1.2.3.0/30");
    // The user's second request is stored, but the watch does not tell yet.
    cluster.service(json!({ "name": "s" }));
    cluster.watches_lag = true;
    cluster.service(json!({ "name": "s", "loadBalancerIP": "1.2.3.3" }));
    cluster.run_until(cluster.now + Duration::from_millis(100));
    assert_eq!(cluster.ips("s"), "", "an outdated version is not written over a newer one");
    cluster.catch_up();
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "1.2.3.3");
}

#[test]
fn a_watch_that_lags_behind_our_own_write_changes_nothing() {
    let mut cluster = cluster("1.2.3.0/30");
    cluster.watches_lag = true;
    cluster.service(json!({ "name": "a" }));
    cluster.catch_up();
    cluster.watches_lag = true;
    cluster.quiet();
    assert_eq!(cluster.ips("a"), "1.2.3.0");
    cluster.service_writes();
    cluster.told();
    cluster.catch_up();
    cluster.quiet();
    assert_eq!(cluster.service_writes(), []);
    assert_eq!(cluster.told(), Vec::<String>::new());
}

#[test]
fn an_address_is_free_only_when_no_status_lists_it() {
    let mut cluster = cluster("1.2.3.0/32");
    cluster.pool(json!({ "name": "q", "addresses": ["4.4.4.4/32"], "autoAssign": false }));
    cluster.service(json!({ "name": "a" }));
    cluster.service(json!({ "name": "b" }));
    cluster.quiet();
    assert_eq!((cluster.ips("a").as_str(), cluster.ips("b").as_str()), ("1.2.3.0", ""));
    // It is to move, but its status cannot be written.
    let left = refuse(&mut cluster, "a", u32::MAX, refusal(500, "InternalError"));
    cluster.service(json!({ "name": "a", "ann": { "address-pool": "q" } }));
    cluster.quiet();
    assert_eq!((cluster.ips("a").as_str(), cluster.ips("b").as_str()), ("1.2.3.0", ""));
    // Not even new pools, or a restart, give it to somebody else.
    cluster.pool(json!({ "name": "r", "addresses": ["5.5.5.5/32"], "autoAssign": false }));
    cluster.quiet();
    cluster.stop();
    cluster.start();
    cluster.quiet();
    assert_eq!((cluster.ips("a").as_str(), cluster.ips("b").as_str()), ("1.2.3.0", ""));
    left.set(0);
    cluster.run_until(cluster.now + Duration::from_secs(60));
    assert_eq!((cluster.ips("a").as_str(), cluster.ips("b").as_str()), ("4.4.4.4", "1.2.3.0"));
}

#[test]
fn a_status_full_of_nonsense_is_put_right() {
    // AL-13 and others.
    for nonsense in [
        json!(["1.2.3.0", "1.2.3.1", "1.2.3.2"]),
        json!(["192.0.2.300"]),
        json!(["1.2.3.1", "1.2.3.2"]),
        json!(["1.2.3.1", "1.2.3.1"]),
        json!([{ "hostname": "a.example" }]),
        json!([{ "ip": "9.9.9.9", "hostname": "a.example" }]),
        json!([{ "ip": "1.2.3.0", "ports": [{ "port": 80, "protocol": "TCP" }] }]),
        json!(["", "::ffff:1.2.3.0"]),
        json!([{}]),
    ] {
        let mut cluster = cluster("1.2.3.0/29");
        cluster.service(json!({ "name": "s" }));
        cluster.quiet();
        cluster.service_writes();
        cluster.foreign_status("s", nonsense.clone(), "stranger");
        cluster.quiet();
        assert_eq!(cluster.ips("s"), "1.2.3.0", "{nonsense}");
        assert_eq!(cluster.service_writes().len(), 1, "{nonsense}");
    }
}

#[test]
fn a_stranger_who_keeps_writing_is_met_at_growing_intervals_and_named() {
    let mut cluster = cluster("1.2.3.0/30");
    cluster.service(json!({ "name": "s" }));
    cluster.quiet();
    cluster.told();
    cluster.service_writes();
    // It answers every write of ours within a millisecond, for an hour.
    let end = cluster.now + Duration::from_secs(3600);
    while cluster.now < end {
        if cluster.ips("s") == "1.2.3.0" {
            cluster.foreign_status("s", json!(["9.9.9.9"]), "other-lb");
        }
        cluster.run_until(cluster.now + Duration::from_millis(500));
    }
    let writes = cluster.service_writes().len();
    assert!((10..=30).contains(&writes), "{writes} writes in an hour");
    let contested: Vec<_> =
        cluster.told().into_iter().filter(|line| line.contains("StatusContested")).collect();
    assert_eq!(contested.len(), 1);
    assert!(contested[0].starts_with("s Warning StatusContested: other-lb keeps changing"), "{contested:?}");
    // It is over: the last word is ours, and what users change is heard at once.
    cluster.run_until(cluster.now + Duration::from_secs(300));
    assert_eq!(cluster.ips("s"), "1.2.3.0");
    cluster.service(json!({ "name": "s", "loadBalancerIP": "1.2.3.2" }));
    cluster.run_until(cluster.now);
    assert_eq!(cluster.ips("s"), "1.2.3.2");
}

#[test]
fn a_stranger_who_is_faster_than_the_answer_to_our_write_is_no_tight_loop() {
    let mut cluster = cluster("1.2.3.0/30");
    cluster.service(json!({ "name": "s" }));
    cluster.quiet();
    cluster.told();
    cluster.service_writes();
    cluster.rival = Some("other-lb");
    cluster.foreign_status("s", json!(["9.9.9.9"]), "other-lb");
    cluster.run_until(cluster.now + Duration::from_secs(3600));
    let writes = cluster.service_writes().len();
    assert!((10..=30).contains(&writes), "{writes} writes in an hour");
    assert_eq!(cluster.told().iter().filter(|line| line.contains("StatusContested")).count(), 1);
}

#[test]
fn after_a_contest_a_change_of_the_pools_is_heard_at_once() {
    let mut cluster = cluster("1.2.3.0/30");
    cluster.service(json!({ "name": "s" }));
    cluster.quiet();
    for _ in 0..6 {
        cluster.foreign_status("s", json!(["9.9.9.9"]), "other-lb");
        while cluster.ips("s") != "1.2.3.0" {
            cluster.run_until(cluster.now + Duration::from_millis(500));
        }
    }
    cluster.pool(json!({ "name": "p", "addresses": ["4.5.6.0/30"] }));
    cluster.run_until(cluster.now);
    assert_eq!(cluster.ips("s"), "4.5.6.0", "nobody contests the last write");
}

#[test]
fn a_contested_pool_status_is_no_tight_loop() {
    let mut cluster = cluster("1.2.3.0/30");
    let end = cluster.now + Duration::from_secs(3600);
    while cluster.now < end {
        let pool = cluster.object("ipaddresspools", SYSTEM, "p").unwrap();
        if pool["status"]["assignedIPv4"] == 0 {
            cluster.patch("ipaddresspools", SYSTEM, "p", &json!({ "status": { "assignedIPv4": 7 } }));
        }
        cluster.run_until(cluster.now + Duration::from_millis(500));
    }
    assert!((10..=30).contains(&cluster.writes.len()), "{} writes in an hour", cluster.writes.len());
}

#[test]
fn two_who_list_one_address_after_a_restart_the_older_keeps_it() {
    // SH-5 and S2, in every order of names.
    for (older, younger) in [("a", "b"), ("b", "a")] {
        let mut cluster = cluster("1.2.3.0/30");
        cluster.stop();
        cluster.service(json!({ "name": older, "st": ["1.2.3.1"] }));
        cluster.service(json!({ "name": younger, "st": ["1.2.3.1"] }));
        cluster.service(json!({ "name": "lost", "st": ["9.9.9.9"] }));
        cluster.service(json!({ "name": "low", "st": ["1.2.3.0"] }));
        cluster.start();
        cluster.quiet();
        assert_eq!(cluster.ips(older), "1.2.3.1");
        assert_eq!(cluster.ips("low"), "1.2.3.0", "nobody's next choice is somebody's address");
        let mut rest = [cluster.ips(younger), cluster.ips("lost")];
        rest.sort();
        assert_eq!(rest, ["1.2.3.2", "1.2.3.3"]);
    }
}

#[test]
fn r2_nothing_is_decided_before_everything_is_listed() {
    let mut cluster = cluster("1.2.3.0/30");
    cluster.service(json!({ "name": "a", "st": ["1.2.3.3"] }));
    cluster.service(json!({ "name": "b" }));
    cluster.quiet();
    cluster.writes.clear();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        for listed in 0..4 {
            cluster.stop();
            cluster.start_in_order(&order[..listed]);
            cluster.service(json!({ "name": "b", "labels": { "touched": format!("{order:?}{listed}") } }));
            cluster.quiet();
            assert_eq!(cluster.service_writes(), [], "{order:?} {listed}");
        }
    }
    assert_eq!(cluster.ips("a"), "1.2.3.3");
    assert!(cluster.object("services", NS, "b").is_some());
}

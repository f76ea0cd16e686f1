// SPDX-License-Identifier: Apache-2.0
//! An API server that is slow, throttles, restarts or refuses: bounded writes, nothing lost, nobody held up.

use std::time::Duration;

use ferrolb_api::request::{Resource, WriteError};
use serde_json::json;

use crate::bench::Bench;

const SECOND: Duration = Duration::from_secs(1);

/// One controller that leads.
fn leader() -> Bench {
    let mut bench = Bench::with_lease(1);
    bench.api.pool(json!({ "name": "p", "addresses": ["10.0.0.0/16"] }));
    bench.start(0);
    bench.run_for(2 * SECOND);
    bench
}

fn pool_writes(bench: &Bench) -> usize {
    let writes = bench.replicas[0].sent.iter();
    writes.filter(|request| request.resource == Resource::IPAddressPools).count()
}

#[test]
fn a_server_that_throttles_is_asked_again_when_it_says() {
    let mut bench = leader();
    bench.fate = Box::new(|_, request| {
        let hit = request.resource == Resource::Services;
        let retry_after = Some(Duration::from_secs(7));
        hit.then(|| WriteError { retry_after, ..WriteError::refused(429, "TooManyRequests", "slow down") })
    });
    bench.service(json!({ "name": "a" }));
    bench.run_for(Duration::from_millis(6_900));
    assert_eq!(bench.sent(0), ["a"]);
    bench.run_for(14 * SECOND);
    assert_eq!(bench.sent(0), ["a", "a", "a"]);
    bench.fate = Box::new(|_, _| None);
    bench.run_for(8 * SECOND);
    assert_eq!(bench.ips("a"), "10.0.0.0");
}

#[test]
fn a_slow_answer_delays_nobody_and_repeats_nothing() {
    let mut bench = leader();
    bench.replicas[0].slow = true;
    bench.service(json!({ "name": "a" }));
    bench.run_for(Duration::from_millis(1));
    bench.replicas[0].slow = false;
    for n in 0..20 {
        bench.service(json!({ "name": format!("s{n:02}") }));
        bench.service(json!({ "name": "a", "labels": { "touched": n.to_string() } }));
        bench.run_for(Duration::from_millis(1));
        assert_eq!(bench.ips(&format!("s{n:02}")), format!("10.0.0.{}", n + 1));
    }
    bench.run_for(10 * SECOND);
    assert_eq!(bench.sent(0).iter().filter(|name| *name == "a").count(), 1);
    assert_eq!(bench.arrive()[0].clone().unwrap_err().code, 409, "it was touched meanwhile");
    bench.run_for(SECOND);
    assert_eq!(bench.ips("a"), "10.0.0.0");
}

#[test]
fn a_watch_that_starts_over_again_and_again_writes_nothing() {
    let mut bench = leader();
    for n in 0..10 {
        bench.service(json!({ "name": format!("s{n}") }));
    }
    bench.run_for(2 * SECOND);
    let sent = bench.replicas[0].sent.len();
    for _ in 0..100 {
        bench.relist(0);
        bench.run_for(Duration::from_millis(100));
    }
    assert_eq!(bench.replicas[0].sent.len(), sent);
    // What comes at that very moment is served.
    bench.relist(0);
    bench.service(json!({ "name": "new" }));
    bench.run_for(Duration::from_millis(1));
    assert_eq!(bench.ips("new"), "10.0.0.10");
}

#[test]
fn endless_conflicts_are_no_tight_loop_and_cost_the_others_nothing() {
    let mut bench = leader();
    bench.fate = Box::new(|_, request| {
        let hit = request.resource == Resource::Services && request.name.as_deref() == Some("a");
        hit.then(|| WriteError::refused(409, "Conflict", "the object has been modified"))
    });
    bench.service(json!({ "name": "a" }));
    bench.service(json!({ "name": "b" }));
    let requests = bench.lease_requests;
    bench.run_for(3600 * SECOND);
    let writes = bench.sent(0).iter().filter(|name| *name == "a").count();
    assert!((60..=80).contains(&writes), "{writes} writes in an hour");
    assert!(bench.lease_requests - requests <= 3600 + 2 * writes, "{}", bench.lease_requests - requests);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("", "10.0.0.1"));
}

#[test]
fn a_start_while_the_server_is_away_waits_and_works_as_soon_as_it_is_back() {
    let mut bench = Bench::with_lease(1);
    bench.away = true;
    bench.start(0);
    bench.service(json!({ "name": "a" }));
    bench.run_for(60 * SECOND);
    bench.away = false;
    assert!(bench.until(2 * SECOND, |bench| bench.ips("a") == "1.2.3.0") <= SECOND);
}

#[test]
fn counters_are_written_at_once_and_then_once_a_second() {
    let mut bench = leader();
    let before = pool_writes(&bench);
    bench.service(json!({ "name": "s00" }));
    bench.run_for(Duration::from_millis(1));
    assert_eq!(pool_writes(&bench), before + 1, "the first one at once");
    for n in 1..50 {
        bench.service(json!({ "name": format!("s{n:02}") }));
        bench.run_for(Duration::from_millis(99));
        assert_eq!(bench.replicas[0].counters["p"], n + 1, "metrics do not wait");
    }
    bench.run_for(2 * SECOND);
    let writes = pool_writes(&bench) - before;
    assert!((5..=7).contains(&writes), "{writes} writes in five seconds");
    let pool = bench.api.object("ipaddresspools", "metallb-system", "p").unwrap();
    assert_eq!(pool["status"]["assignedIPv4"], 50);
}

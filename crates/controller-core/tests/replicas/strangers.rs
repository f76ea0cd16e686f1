// SPDX-License-Identifier: Apache-2.0
//! Somebody else writes the Lease, or forbids it: what the former leader meant to write is lost then, and its writes may
//! still be on their way.

use std::time::Duration;

use ferrolb_api::event::Event;
use ferrolb_api::request::{Resource, WriteError};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::cluster::NS;

const SECOND: Duration = Duration::from_secs(1);
const INTENTS: &str = "ferrolb.io/intents";

type Deed = fn(&mut Bench);

const GARBAGE: Deed = |bench| {
    bench.edit_lease(|lease| {
        lease.metadata.annotations.get_or_insert_default().insert(INTENTS.to_owned(), "{}".to_owned());
    });
};
const REMOVED: Deed = |bench| bench.edit_lease(|lease| lease.metadata.annotations = None);
const DELETED: Deed = |bench| bench.lease = None;

/// A pool of one address, for Services with the label `app: NAME` alone.
fn only_for(bench: &mut Bench, names: &[&str]) {
    let selectors: Vec<Value> = names.iter().map(|name| json!({ "matchLabels": { "app": name } })).collect();
    let allocation = json!({ "serviceSelectors": selectors });
    bench.api.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"], "serviceAllocation": allocation }));
}

/// The first of these controllers is about to give `a` the only address when it is paused; the write is on its way,
/// and the pool is not for `a` any more. For the next one there is nothing to write about `a`.
fn late(replicas: usize) -> Bench {
    let mut bench = Bench::with_lease(replicas).conditions();
    for n in 0..replicas {
        bench.start(n);
        bench.run_for(SECOND);
    }
    only_for(&mut bench, &["b"]);
    bench.service(json!({ "name": "a", "labels": { "app": "a" } }));
    bench.run_for(SECOND);
    bench.replicas[0].slow = true;
    only_for(&mut bench, &["a", "b"]);
    bench.run_for(Duration::from_millis(100));
    assert_eq!(bench.late.len(), 1);
    bench.replicas[0].paused = true;
    only_for(&mut bench, &["b"]);
    bench.service(json!({ "name": "b", "labels": { "app": "b" } }));
    bench
}

fn annotation(bench: &Bench) -> &str {
    &bench.lease.as_ref().unwrap().metadata.annotations.as_ref().unwrap()[INTENTS]
}

fn told<'a>(bench: &'a Bench, n: usize, reason: &str) -> Vec<&'a Event> {
    bench.replicas[n].events.iter().filter(|event| event.reason == reason).collect()
}

#[test]
fn a_late_write_of_which_nothing_is_known_any_more_takes_nobodys_address() {
    for (what, deed) in [("garbage", GARBAGE), ("removed", REMOVED), ("deleted", DELETED)] {
        let mut bench = late(2);
        deed(&mut bench);
        let took = bench.until(12 * SECOND, |bench| bench.ips("b") == "1.2.3.0");
        assert!(took <= 6 * SECOND, "{what}: {took:?}");
        assert_eq!(bench.arrive()[0].clone().unwrap_err().code, 409, "{what}");
        bench.run_for(10 * SECOND);
        assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("", "1.2.3.0"), "{what}");
        let [event] = told(&bench, 1, "IntentsUnreadable")[..] else { panic!("{what}") };
        assert_eq!((event.kind.as_str(), event.regarding.name.as_str()), ("Warning", "controller-1"));
        assert_eq!(annotation(&bench), "[]", "{what}: whoever comes next knows again");
    }
}

#[test]
fn what_stands_in_the_lease_is_known_and_nothing_has_to_be_written_for_it() {
    let mut bench = late(2);
    bench.run_for(10 * SECOND);
    assert!(bench.replicas[1].leads);
    assert!(told(&bench, 1, "IntentsUnreadable").is_empty());
}

#[test]
fn every_service_is_written_once_and_none_loses_its_address() {
    let mut bench = Bench::with_lease(2).conditions();
    // One with conditions, two without, and two that are none of its business.
    bench.start(0);
    bench.run_for(SECOND);
    bench.service(json!({ "name": "a" }));
    bench.run_for(SECOND);
    for (name, ip) in [("b", "1.2.3.1"), ("c", "1.2.3.2")] {
        bench.service(json!({ "name": name, "st": [ip], "ann": { "ip-allocated-from-pool": "p" } }));
    }
    bench.service(json!({ "name": "d", "type": "ClusterIP" }));
    bench.service(json!({ "name": "e", "loadBalancerClass": "x" }));
    bench.run_for(10 * SECOND);
    bench.start(1);
    bench.run_for(10 * SECOND);
    bench.kill(0);
    GARBAGE(&mut bench);
    bench.run_for(30 * SECOND);
    let mut sent = bench.sent(1);
    sent.sort();
    assert_eq!(sent, ["a", "b", "b", "c", "c"], "those without conditions get theirs in a second one");
    for (name, ip) in [("a", "1.2.3.0"), ("b", "1.2.3.1"), ("c", "1.2.3.2")] {
        assert_eq!(bench.ips(name), ip);
        let object = bench.api.object("services", NS, name).unwrap();
        assert_eq!(object["status"]["conditions"][0]["status"], "True", "{name}");
    }
    assert!(bench.replicas[1].events.iter().all(|event| event.regarding.kind == "Pod"));
    // The next one finds everything in order.
    bench.start(0);
    bench.run_for(SECOND);
    bench.kill(1);
    let before = bench.sent(0).len();
    bench.run_for(30 * SECOND);
    assert!(bench.replicas[0].leads);
    assert_eq!(bench.sent(0).len(), before);
}

#[test]
fn a_successor_that_dies_over_it_leaves_the_doubt_to_the_next_one() {
    let mut bench = late(3);
    GARBAGE(&mut bench);
    bench.fate = Box::new(|n, request| {
        let hit = n == 1 && request.resource == Resource::Services;
        hit.then(|| WriteError::no_answer("lost"))
    });
    bench.until(12 * SECOND, |bench| bench.replicas[1].leads);
    bench.run_for(30 * SECOND);
    assert_eq!(bench.ips("b"), "", "nothing is decided");
    assert!(bench.sent(1).len() < 40, "and nothing tried without pause: {:?}", bench.sent(1));
    assert_eq!(annotation(&bench), "unknown");
    bench.kill(1);
    bench.until(12 * SECOND, |bench| bench.ips("b") == "1.2.3.0");
    assert_eq!(bench.arrive()[0].clone().unwrap_err().code, 409);
    bench.run_for(10 * SECOND);
    assert_eq!((bench.ips("a").as_str(), bench.ips("b").as_str()), ("", "1.2.3.0"));
}

#[test]
fn a_service_that_may_not_be_written_holds_up_nobody() {
    let mut bench = late(2);
    GARBAGE(&mut bench);
    bench.fate = Box::new(|_, request| {
        let hit = request.resource == Resource::Services && request.name.as_deref() == Some("a");
        hit.then(|| WriteError::refused(403, "Forbidden", "a webhook says no"))
    });
    bench.until(12 * SECOND, |bench| bench.ips("b") == "1.2.3.0");
    assert_eq!(bench.arrive()[0].clone().unwrap_err().code, 403, "to the former leader as well");
}

#[test]
fn a_lease_that_somebody_made_for_the_controllers_is_no_reason_for_doubt() {
    let mut bench = Bench::with_lease(1).conditions();
    bench.service(json!({ "name": "a", "st": ["1.2.3.0"], "ann": { "ip-allocated-from-pool": "p" } }));
    bench.leave_lease(&json!([]));
    bench.edit_lease(|lease| {
        lease.metadata.annotations = None;
        lease.spec = None;
    });
    bench.start(0);
    bench.run_for(10 * SECOND);
    assert!(bench.replicas[0].leads);
    assert_eq!((bench.sent(0), bench.replicas[0].events.len()), (vec![], 0));
}

#[test]
fn who_may_not_use_the_lease_says_so_on_its_pod_once() {
    let mut bench = Bench::with_lease(1);
    let forbidden = || WriteError::refused(403, "Forbidden", "leases is forbidden");
    bench.lease_fate = Box::new(move |_, _| Some(forbidden()));
    bench.start(0);
    bench.run_for(600 * SECOND);
    let [event] = told(&bench, 0, "LeaseForbidden")[..] else { panic!("{:?}", bench.replicas[0].events) };
    assert_eq!((event.kind.as_str(), event.regarding.kind.as_str()), ("Warning", "Pod"));
    assert_eq!(
        (event.regarding.name.as_str(), event.regarding.uid.as_str()),
        ("controller-0", "uid-controller-0")
    );
    assert_eq!(
        event.message,
        "May not read Lease ferrolb-controller, by which controllers agree who assigns addresses; this one assigns none \
         until it may (leases is forbidden). Grant this ServiceAccount get, create and update on leases of its \
         namespace, or set FERROLB_LEVEL=A where MetalLB's manifests are used"
    );
    // It may, for a while: then it is news again.
    bench.lease_fate = Box::new(|_, _| None);
    bench.run_for(10 * SECOND);
    bench.lease_fate = Box::new(move |_, _| Some(forbidden()));
    bench.run_for(60 * SECOND);
    assert_eq!(told(&bench, 0, "LeaseForbidden").len(), 2);
}

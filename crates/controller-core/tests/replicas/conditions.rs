// SPDX-License-Identifier: Apache-2.0
//! The conditions of Services: what they say, with which write they come, and how often.

use std::time::Duration;

use ferrolb_api::request::ApiRequest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NS, SYSTEM};

const ALLOCATED: &str = "ferrolb.io/Allocated";
const ANNOUNCED: &str = "ferrolb.io/Announced";
const SECOND: Duration = Duration::from_secs(1);

fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.stop();
    cluster.settings.conditions = true;
    cluster.start();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/31"] }));
    cluster.quiet();
    cluster.writes.clear();
    cluster
}

/// A speaker says that it announces a Service.
fn announced(cluster: &mut Cluster, kind: &'static str, name: &str, service: &str, node: &str) {
    let object = json!({
        "metadata": { "namespace": SYSTEM, "name": name },
        "status": { "node": node, "serviceName": service, "serviceNamespace": NS },
    });
    cluster.store(kind, object);
}

/// A condition of a Service, as `status reason: message`; empty if there is none.
fn condition(cluster: &Cluster, name: &str, kind: &str) -> String {
    let Some(found) = conditions(cluster, name).into_iter().find(|c| c["type"] == kind) else {
        return String::new();
    };
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}

fn run_for(cluster: &mut Cluster, time: Duration) {
    cluster.run_until(cluster.now + time);
}

fn conditions(cluster: &Cluster, name: &str) -> Vec<Value> {
    let object = cluster.object("services", NS, name).unwrap();
    object["status"]["conditions"].as_array().cloned().unwrap_or_default()
}

#[test]
fn the_write_of_an_address_brings_both() {
    let mut cluster = cluster();
    cluster.service(json!({ "name": "s" }));
    cluster.quiet();
    assert_eq!(cluster.service_writes().len(), 1);
    assert_eq!(condition(&cluster, "s", ALLOCATED), "True Allocated: 1.2.3.0 from pool p");
    assert_eq!(condition(&cluster, "s", ANNOUNCED), "False NotAnnounced: no node announces it");
}

#[test]
fn others_conditions_stay() {
    let mut cluster = cluster();
    let theirs = json!({
        "type": "LoadBalancerPortsError", "status": "True", "reason": "X", "message": "m",
        "lastTransitionTime": "2024-01-01T00:00:00Z",
    });
    cluster.service(json!({ "name": "s" }));
    cluster.patch("services", NS, "s", &json!({ "status": { "conditions": [theirs] } }));
    cluster.quiet();
    let found = conditions(&cluster, "s");
    assert_eq!((found.len(), &found[0]), (3, &theirs));
    // Somebody adds one later: nothing of ours is to be written for that.
    cluster.service_writes();
    let more = json!({
        "type": "more", "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z",
    });
    let list: Vec<Value> = found.iter().cloned().chain([more.clone()]).collect();
    cluster.patch("services", NS, "s", &json!({ "status": { "conditions": list } }));
    cluster.quiet();
    assert_eq!(cluster.service_writes(), []);
    // And ours still change among them.
    announced(&mut cluster, "servicel2statuses", "l2-a", "s", "n1");
    cluster.quiet();
    let found = conditions(&cluster, "s");
    assert_eq!((found.len(), &found[0], &found[3]), (4, &theirs, &more));
    assert_eq!(condition(&cluster, "s", ANNOUNCED), "True Announced: layer 2 on n1");
}

#[test]
fn who_waits_is_told_why_in_one_write_and_again_when_it_changes() {
    let mut cluster = cluster();
    cluster.service(json!({ "name": "s", "ann": { "address-pool": "q" } }));
    cluster.quiet();
    assert_eq!(condition(&cluster, "s", ALLOCATED), "False UnknownPool: unknown pool \"q\"");
    assert_eq!(condition(&cluster, "s", ANNOUNCED), "");
    assert_eq!(cluster.service_writes().len(), 1);
    // Passes that come to the same are none of its concern.
    cluster.pool(json!({ "name": "r", "addresses": ["5.5.5.0/31"] }));
    cluster.quiet();
    cluster.stop();
    cluster.start();
    cluster.quiet();
    assert_eq!(cluster.service_writes(), []);
    let since = conditions(&cluster, "s")[0]["lastTransitionTime"].clone();
    cluster.pool(json!({ "name": "q", "addresses": ["6.6.6.0/32"] }));
    cluster.quiet();
    assert_eq!(cluster.service_writes().len(), 1);
    assert_eq!(condition(&cluster, "s", ALLOCATED), "True Allocated: 6.6.6.0 from pool q");
    assert_ne!(conditions(&cluster, "s")[0]["lastTransitionTime"], since);
}

#[test]
fn a_change_of_the_text_alone_keeps_the_time() {
    let mut cluster = cluster();
    cluster.service(json!({ "name": "s", "ann": { "address-pool": "q" } }));
    cluster.quiet();
    let since = conditions(&cluster, "s")[0]["lastTransitionTime"].clone();
    cluster.service(json!({ "name": "s", "ann": { "address-pool": "r" } }));
    cluster.quiet();
    assert_eq!(condition(&cluster, "s", ALLOCATED), "False UnknownPool: unknown pool \"r\"");
    assert_eq!(conditions(&cluster, "s")[0]["lastTransitionTime"], since);
}

/// Whatever others do to each other, nothing is written to who waits; and what is stored is what a start would store.
#[test]
fn why_somebody_waits_does_not_say_who_else_holds_what() {
    let with = |name: &str, mut short: Value| {
        short["name"] = json!(name);
        short
    };
    let of_d = || json!({ "ann": { "address-pool": "d" } });
    let v6 = || json!({ "v6": true, "ann": { "address-pool": "d" } });
    let share = |port: u16, key: &str| json!({ "loadBalancerIP": "1.2.3.0", "ann": { "allow-shared-ip": key }, "ports": [port] });
    for (what, waits, changes, expected) in [
        (
            "nothing of its family, and then nothing at all",
            with("s", of_d()),
            vec![with("b", v6()), with("c", of_d())],
            "False NoAddressInPool: no available IPs in pool d that the Service could use",
        ),
        (
            "one family of two, and then none",
            with("s", json!({ "dual": true, "ann": { "address-pool": "d" } })),
            vec![with("b", v6())],
            "False NoAddressInPool: no available IPs in pool d that the Service could use",
        ),
        (
            "another user, another port, another key",
            with("s", share(80, "k")),
            vec![with("b", share(81, "k")), with("c", share(80, "k")), with("holder", share(80, "k"))],
            "False AddressInUse: 1.2.3.0 in use by Services with which this one may not share",
        ),
        (
            "asks for another pool's address as well",
            with("s", json!({ "loadBalancerIP": "1.2.3.0", "ann": { "address-pool": "d" } })),
            vec![with("holder", json!({ "loadBalancerIP": "1.2.3.1" }))],
            "False PoolMismatch: requested loadBalancer IP(s) [\"1.2.3.0\"] is not compatible with requested address pool d",
        ),
    ] {
        let mut cluster = cluster();
        cluster.pool(json!({ "name": "d", "addresses": ["9.9.9.9/32", "1000::/128"], "autoAssign": false }));
        cluster.service(with("holder", share(80, "other")));
        cluster.service(with("taker", of_d()));
        cluster.quiet();
        cluster.service(waits);
        cluster.quiet();
        cluster.service_writes();
        assert_eq!(condition(&cluster, "s", ALLOCATED), expected, "{what}");
        for change in changes {
            cluster.service(change.clone());
            cluster.quiet();
            let written = |write: &ApiRequest| write.name.as_deref() == Some("s");
            assert!(!cluster.service_writes().iter().any(written), "{what}: {change}");
            cluster.stop();
            cluster.start();
            cluster.quiet();
            assert_eq!(cluster.service_writes(), [], "{what}: {change}");
        }
    }
}

#[test]
fn changes_of_who_announces_are_written_together() {
    let mut cluster = cluster();
    cluster.service(json!({ "name": "s" }));
    cluster.quiet();
    cluster.service_writes();
    for n in 1..=5 {
        announced(&mut cluster, "servicebgpstatuses", &format!("bgp-{n}"), "s", &format!("n{n}"));
        run_for(&mut cluster, Duration::from_millis(100));
    }
    assert_eq!(cluster.service_writes(), []);
    run_for(&mut cluster, SECOND);
    assert_eq!(cluster.service_writes().len(), 1);
    assert_eq!(condition(&cluster, "s", ANNOUNCED), "True Announced: BGP on n1, n2, n3, n4, n5");
    // A failover: the new node says it before the old one stops saying it.
    announced(&mut cluster, "servicel2statuses", "l2-a", "s", "n1");
    run_for(&mut cluster, Duration::from_millis(300));
    announced(&mut cluster, "servicel2statuses", "l2-b", "s", "n2");
    run_for(&mut cluster, Duration::from_millis(300));
    cluster.delete("servicel2statuses", SYSTEM, "l2-a");
    run_for(&mut cluster, 10 * SECOND);
    assert_eq!(cluster.service_writes().len(), 1);
    assert!(condition(&cluster, "s", ANNOUNCED).starts_with("True Announced: layer 2 on n2; BGP on n1"));
}

#[test]
fn a_service_that_is_released_or_no_load_balancer_any_more_says_so() {
    let mut cluster = cluster();
    cluster.service(json!({ "name": "s" }));
    announced(&mut cluster, "servicel2statuses", "l2-a", "s", "n1");
    cluster.quiet();
    cluster.pool(json!({ "name": "p", "addresses": ["7.7.7.7/32"], "autoAssign": false }));
    cluster.quiet();
    assert_eq!(condition(&cluster, "s", ALLOCATED), "False NoAddress: no available IPs");
    assert_eq!(condition(&cluster, "s", ANNOUNCED), "");
    cluster.service(json!({ "name": "s", "type": "ClusterIP" }));
    cluster.quiet();
    assert_eq!(conditions(&cluster, "s"), [] as [Value; 0]);
}

#[test]
fn a_service_that_was_there_before_is_written_only_when_something_changes() {
    let mut cluster = cluster();
    cluster.stop();
    cluster.service(json!({ "name": "s", "st": ["1.2.3.0"], "ann": { "ip-allocated-from-pool": "p" } }));
    announced(&mut cluster, "servicel2statuses", "l2-a", "s", "n1");
    cluster.start();
    cluster.quiet();
    assert_eq!(cluster.service_writes(), []);
    announced(&mut cluster, "servicel2statuses", "l2-a", "s", "n2");
    cluster.quiet();
    assert_eq!(cluster.service_writes().len(), 1);
    assert_eq!(condition(&cluster, "s", ALLOCATED), "True Allocated: 1.2.3.0 from pool p");
    assert_eq!(condition(&cluster, "s", ANNOUNCED), "True Announced: layer 2 on n2");
    // A restart finds nothing to do; one after a change that nobody saw does.
    cluster.stop();
    cluster.start();
    cluster.quiet();
    assert_eq!(cluster.service_writes(), []);
    cluster.stop();
    announced(&mut cluster, "servicel2statuses", "l2-a", "s", "n3");
    cluster.start();
    cluster.quiet();
    assert_eq!(cluster.service_writes().len(), 1);
    assert_eq!(condition(&cluster, "s", ANNOUNCED), "True Announced: layer 2 on n3");
}

#[test]
fn somebody_who_keeps_rewriting_ours_is_no_tight_loop() {
    let mut cluster = cluster();
    cluster.service(json!({ "name": "s" }));
    cluster.quiet();
    cluster.service_writes();
    let end = cluster.now + 3600 * SECOND;
    while cluster.now < end {
        if condition(&cluster, "s", ALLOCATED).starts_with("True") {
            let mut list = conditions(&cluster, "s");
            list[0]["status"] = json!("False");
            cluster.patch("services", NS, "s", &json!({ "status": { "conditions": list } }));
        }
        run_for(&mut cluster, Duration::from_millis(500));
    }
    let writes = cluster.service_writes().len();
    assert!((10..=30).contains(&writes), "{writes} writes in an hour");
}

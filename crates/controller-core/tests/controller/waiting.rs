// SPDX-License-Identifier: Apache-2.0
//! Who gets what becomes free: the first by rank, at once, and nobody is looked at in vain.

use serde_json::{Value, json};

use crate::cluster::Cluster;

/// A pool that is full, and Services that wait for it in order of their age.
fn full(addresses: Value, holders: usize, waiting: usize) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": addresses }));
    cluster.quiet();
    for n in 0..holders {
        cluster.service(json!({ "name": format!("holder{n}") }));
    }
    cluster.quiet();
    for n in 0..waiting {
        cluster.service(json!({ "name": format!("w{n:03}") }));
    }
    cluster.quiet();
    cluster.told();
    cluster.service_writes();
    cluster.reconciled = 0;
    cluster
}

#[test]
fn one_that_comes_while_an_address_becomes_free_stands_behind_those_who_wait() {
    for order in [[0, 1], [1, 0]] {
        let mut cluster = full(json!(["10.0.0.0/32"]), 1, 2);
        cluster.delete_service("holder0");
        cluster.service(json!({ "name": "a-newcomer" }));
        cluster.shuffle_inputs(&order);
        cluster.quiet();
        let ips = ["w000", "w001", "a-newcomer"].map(|name| cluster.ips(name));
        assert_eq!(ips, ["10.0.0.0", "", ""], "{order:?}");
    }
}

#[test]
fn one_that_moves_away_makes_room_for_the_oldest_who_waits_and_not_for_who_comes_with_the_answer() {
    let mut cluster = full(json!(["10.0.0.0/32"]), 1, 1);
    cluster.pool(json!({ "name": "q", "addresses": ["10.0.1.0/32"], "autoAssign": false }));
    cluster.service(json!({ "name": "holder0", "ann": { "address-pool": "q" } }));
    cluster.service(json!({ "name": "a-newcomer" }));
    cluster.quiet();
    let ips = ["holder0", "w000", "a-newcomer"].map(|name| cluster.ips(name));
    assert_eq!(ips, ["10.0.1.0", "10.0.0.0", ""]);
}

#[test]
fn a_release_asks_one_waiting_service_though_the_other_family_has_plenty() {
    let mut cluster = full(json!(["10.0.0.0/31", "fd00::/64"]), 2, 200);
    cluster.delete_service("holder1");
    cluster.quiet();
    assert_eq!(cluster.ips("w000"), "10.0.0.1");
    // The one that takes it, once more when its write is back, and the next in line, in vain.
    assert!(cluster.reconciled <= 3, "{} decisions", cluster.reconciled);
    cluster.reconciled = 0;
    cluster.service(json!({ "name": "six", "v6": true }));
    cluster.quiet();
    cluster.delete_service("six");
    cluster.quiet();
    assert!(cluster.reconciled <= 2, "an IPv6 address is of no use to them: {}", cluster.reconciled);
}

#[test]
fn a_release_asks_nobody_who_waits_for_another_pool() {
    let mut cluster = full(json!(["10.0.0.0/32"]), 1, 100);
    cluster.pool(json!({ "name": "mine", "addresses": ["10.0.1.0/32"],
        "serviceAllocation": { "namespaces": ["elsewhere"] } }));
    cluster.pool(json!({ "name": "named", "addresses": ["10.0.2.0/31"], "autoAssign": false }));
    cluster.service(json!({ "name": "other", "ns": "elsewhere" }));
    cluster.service(json!({ "name": "named", "ann": { "address-pool": "named" } }));
    cluster.quiet();
    cluster.reconciled = 0;
    cluster.delete("services", "elsewhere", "other");
    cluster.delete_service("named");
    cluster.quiet();
    assert_eq!(cluster.reconciled, 0);
}

#[test]
fn sharers_of_one_key_and_port_are_asked_once() {
    let mut cluster = full(json!(["10.0.0.0/32"]), 1, 0);
    cluster.delete_service("holder0");
    let share =
        |name: String, port: u16| json!({ "name": name, "ann": { "allow-shared-ip": "k" }, "ports": [port] });
    cluster.service(share("tls".to_owned(), 443));
    cluster.service(share("web".to_owned(), 80));
    for n in 0..100 {
        cluster.service(share(format!("s{n:03}"), 80));
    }
    cluster.quiet();
    cluster.reconciled = 0;
    cluster.delete_service("tls");
    cluster.quiet();
    assert_eq!(cluster.reconciled, 1, "the first, in vain");
    cluster.reconciled = 0;
    cluster.delete_service("web");
    cluster.quiet();
    assert_eq!(cluster.ips("s000"), "10.0.0.0");
    // It takes the port; the next in line asks in vain; and once more when the write is back.
    assert!(cluster.reconciled <= 3, "{} decisions", cluster.reconciled);
}

#[test]
fn one_that_waits_for_both_families_gets_them_when_the_rarer_one_is_free() {
    let mut cluster = full(json!(["10.0.0.0/31", "fd00::/127"]), 2, 0);
    cluster.service(json!({ "name": "both", "dual": true }));
    cluster.service(json!({ "name": "one" }));
    cluster.service(json!({ "name": "six0", "v6": true }));
    cluster.service(json!({ "name": "six1", "v6": true }));
    cluster.quiet();
    assert_eq!(["both", "one", "six0", "six1"].map(|name| cluster.ips(name)), ["", "", "fd00::", "fd00::1"]);
    cluster.delete_service("six0");
    cluster.quiet();
    assert_eq!(cluster.ips("both"), "");
    cluster.delete_service("holder1");
    cluster.quiet();
    assert_eq!(["both", "one"].map(|name| cluster.ips(name)), ["10.0.0.1 fd00::", ""]);
}

#[test]
fn one_whose_write_is_under_way_does_not_stand_in_the_way_of_those_behind_it() {
    let mut cluster = full(json!(["10.0.0.0/31"]), 2, 0);
    // Both lose what they listed and wait; the status of the first cannot be written.
    cluster.service(json!({ "name": "first", "st": ["9.9.9.9"] }));
    cluster.fate = Box::new(|request| {
        let error = || ferrolb_api::request::WriteError::no_answer("reset");
        (request.name.as_deref() == Some("first")).then(error)
    });
    cluster.service(json!({ "name": "second" }));
    cluster.quiet();
    cluster.delete_service("holder0");
    cluster.delete_service("holder1");
    cluster.run_until(cluster.now);
    assert_eq!(cluster.ips("second"), "10.0.0.0");
    cluster.fate = Box::new(|_| None);
    cluster.run_until(cluster.now + std::time::Duration::from_secs(60));
    assert_eq!(cluster.ips("first"), "10.0.0.1");
}

#[test]
fn a_freed_address_goes_to_the_oldest_who_waits() {
    // C42 and AL-3.
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"] }));
    cluster.service(json!({ "name": "holder" }));
    cluster.quiet();
    cluster.service(json!({ "name": "z-older" }));
    cluster.service(json!({ "name": "a-younger" }));
    cluster.quiet();
    cluster.told();
    cluster.service_writes();
    cluster.delete_service("holder");
    cluster.run_until(cluster.now);
    assert_eq!(cluster.ips("z-older"), "1.2.3.0");
    assert_eq!(cluster.ips("a-younger"), "");
    assert_eq!(cluster.told(), [r#"z-older Normal IPAllocated: Assigned IP ["1.2.3.0"]"#]);
    assert_eq!(cluster.service_writes().len(), 1);
}

#[test]
fn a_release_looks_at_no_more_services_than_it_can_help() {
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["10.0.0.0/29"] }));
    for n in 0..40 {
        cluster.service(json!({ "name": format!("s{n:02}") }));
    }
    for n in 0..40 {
        cluster.service(json!({ "name": format!("odd{n:02}"), "loadBalancerIP": "9.9.9.9" }));
    }
    cluster.quiet();
    cluster.reconciled = 0;
    cluster.delete_service("s00");
    cluster.quiet();
    assert_eq!(cluster.ips("s08"), "10.0.0.0");
    // The one that takes it, and once more when the write is back.
    assert_eq!(cluster.reconciled, 2);
}

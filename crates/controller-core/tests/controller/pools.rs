// SPDX-License-Identifier: Apache-2.0
//! Pools that come, change and go, and what that means to Services.

use serde_json::{Value, json};

use crate::cluster::{Cluster, NS, SYSTEM};
use crate::situations::dual_pool;

#[test]
fn pools_are_chosen_by_priority() {
    // C34 to C37, A45 to A47: the one pool that is taken first.
    let ns = |priority: Value| json!({ "priority": priority, "namespaces": [NS] });
    let label = |priority: Value| json!({ "priority": priority, "serviceSelectors": [{ "matchLabels": { "tier": "web" } }] });
    let pool = |name: &str, ip: &str, allocation: Value| {
        let mut pool = json!({ "name": name, "addresses": [format!("{ip}/32")] });
        if !allocation.is_null() {
            pool["serviceAllocation"] = allocation;
        }
        pool
    };
    let open = Value::Null;
    for (pools, expected) in [
        (vec![pool("a", "1.0.0.11", ns(json!(11))), pool("b", "1.0.0.10", ns(json!(10)))], "1.0.0.10"),
        (vec![pool("a", "1.0.0.1", open.clone()), pool("b", "1.0.0.2", ns(Value::Null))], "1.0.0.2"),
        (vec![pool("a", "1.0.0.9", label(json!(9))), pool("b", "1.0.0.8", label(json!(8)))], "1.0.0.8"),
        (
            vec![
                pool("a", "1.0.0.8", ns(json!(8))),
                pool("b", "1.0.0.18", label(json!(8))),
                pool("c", "1.0.0.9", label(json!(9))),
                pool("d", "1.0.0.10", ns(json!(10))),
                pool("e", "1.0.0.11", ns(json!(11))),
                pool("f", "1.0.0.5", label(json!(5))),
            ],
            "1.0.0.5",
        ),
        // Ties by name; negative before positive; none, and 0, last.
        (vec![pool("b", "1.0.0.2", ns(json!(5))), pool("a", "1.0.0.1", label(json!(5)))], "1.0.0.1"),
        (vec![pool("a", "1.0.0.1", ns(json!(1))), pool("b", "1.0.0.2", ns(json!(-1)))], "1.0.0.2"),
        (vec![pool("a", "1.0.0.1", ns(json!(0))), pool("b", "1.0.0.2", ns(json!(900)))], "1.0.0.2"),
        (vec![pool("z", "1.0.0.9", open.clone()), pool("b", "1.0.0.2", open.clone())], "1.0.0.2"),
        (
            vec![pool("a", "1.0.0.1", open.clone()), pool("z", "1.0.0.9", json!({ "priority": 50 }))],
            "1.0.0.9",
        ),
        (vec![pool("a", "1.0.0.1", open.clone()), pool("z", "1.0.0.9", json!({}))], "1.0.0.9"),
        (
            vec![
                pool("a", "1.0.0.1", json!({ "namespaces": ["elsewhere"] })),
                pool("b", "1.0.0.2", json!({ "namespaceSelectors": [{ "matchLabels": { "no": "body" } }] })),
                pool("z", "1.0.0.9", open),
            ],
            "1.0.0.9",
        ),
    ] {
        let mut cluster = Cluster::new();
        let text = format!("{pools:?}");
        for pool in pools {
            cluster.pool(pool);
        }
        cluster.service(json!({ "name": "s", "labels": { "tier": "web" } }));
        cluster.quiet();
        assert_eq!(cluster.ips("s"), expected, "{text}");
    }
}

#[test]
fn a_pool_that_no_namespace_matches_admits_nobody() {
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/31"],
        "serviceAllocation": { "namespaceSelectors": [{ "matchLabels": { "team": "a" } }] } }));
    cluster.service(json!({ "name": "s" }));
    cluster.service(json!({ "name": "t", "ann": { "address-pool": "p" } }));
    cluster.quiet();
    assert_eq!((cluster.ips("s").as_str(), cluster.ips("t").as_str()), ("", ""));
    cluster.namespace(NS, json!({ "team": "a" }));
    cluster.quiet();
    assert_eq!((cluster.ips("s").as_str(), cluster.ips("t").as_str()), ("1.2.3.0", "1.2.3.1"));
    cluster.namespace(NS, json!({}));
    cluster.quiet();
    assert_eq!((cluster.ips("s").as_str(), cluster.ips("t").as_str()), ("", ""));
}

#[test]
fn services_are_left_alone_until_there_is_a_pool() {
    // C39, C45, C62.
    let mut cluster = Cluster::new();
    cluster.service(json!({ "name": "a" }));
    cluster.service(json!({ "name": "b", "dual": true }));
    cluster.quiet();
    assert_eq!(cluster.service_writes(), []);
    assert_eq!(cluster.told(), Vec::<String>::new());
    dual_pool(&mut cluster);
    cluster.quiet();
    assert_eq!((cluster.ips("a").as_str(), cluster.ips("b").as_str()), ("1.2.3.0", "1.2.3.1 1000::"));
}

#[test]
fn what_pools_do_to_those_who_hold_an_address() {
    // C40, C43, C44, C54 to C56; A27 to A31.
    let v4 = |name: &str, block: &str| json!({ "name": name, "addresses": [block] });
    let mut cluster = Cluster::new();
    cluster.pool(v4("p", "1.2.3.0/31"));
    cluster.service(json!({ "name": "s", "prefer": true }));
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "1.2.3.0");
    cluster.told();
    cluster.service_writes();

    cluster.pool(json!({ "name": "q", "addresses": ["4.4.4.0/31", "4000::/127"] }));
    cluster.quiet();
    assert_eq!((cluster.ips("s").as_str(), cluster.service_writes()), ("1.2.3.0", vec![]), "another pool");

    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/31", "1000::/127"] }));
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "1.2.3.0 1000::", "its own pool gained the other family");
    assert_eq!(cluster.told(), [r#"s Normal IPAllocated: Assigned additional IP "1000::""#]);

    cluster.pool(json!({ "name": "p", "addresses": ["1000::/127"] }));
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "4.4.4.0 4000::", "its own pool lost one");
    assert_eq!(cluster.pool_of("s"), Some("q"));

    cluster.pool(v4("r", "5.5.5.0/31"));
    cluster.delete("ipaddresspools", SYSTEM, "q");
    cluster.quiet();
    // Two pools of one family each are left, and IPv4 is preferred.
    assert_eq!(cluster.ips("s"), "5.5.5.0");

    for pool in ["p", "r"] {
        cluster.delete("ipaddresspools", SYSTEM, pool);
    }
    cluster.quiet();
    assert_eq!((cluster.ips("s").as_str(), cluster.pool_of("s")), ("", None), "no pool is left");
}

#[test]
fn a_renamed_pool_takes_its_services_along() {
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "old", "addresses": ["1.2.3.0/30"] }));
    cluster.service(json!({ "name": "a" }));
    cluster.service(json!({ "name": "b" }));
    cluster.quiet();
    cluster.told();
    cluster.watches_lag = true;
    cluster.delete("ipaddresspools", SYSTEM, "old");
    cluster.pool(json!({ "name": "low", "addresses": ["1.2.3.0/32"] }));
    cluster.pool(json!({ "name": "high", "addresses": ["1.2.3.1/32"] }));
    cluster.catch_up();
    cluster.quiet();
    assert_eq!((cluster.ips("a").as_str(), cluster.pool_of("a")), ("1.2.3.0", Some("low")));
    assert_eq!((cluster.ips("b").as_str(), cluster.pool_of("b")), ("1.2.3.1", Some("high")));
    assert_eq!(cluster.told(), Vec::<String>::new());
    assert!(!cluster.counters.contains_key("old"));
}

#[test]
fn avoiding_buggy_addresses_moves_nobody() {
    let mut cluster = Cluster::new();
    let pool = |avoid: bool| json!({ "name": "p", "addresses": ["1.2.3.0/30"], "avoidBuggyIPs": avoid });
    cluster.pool(pool(false));
    cluster.service(json!({ "name": "a" }));
    cluster.quiet();
    cluster.pool(pool(true));
    cluster.service(json!({ "name": "b", "loadBalancerIP": "1.2.3.0", "ann": { "allow-shared-ip": "k" } }));
    cluster.service(json!({ "name": "c" }));
    cluster.quiet();
    assert_eq!(cluster.ips("a"), "1.2.3.0");
    assert_eq!(cluster.ips("b"), "", "nobody new gets it");
    assert_eq!(cluster.ips("c"), "1.2.3.1");
    cluster.service_writes();
    cluster.stop();
    cluster.start();
    cluster.quiet();
    assert_eq!((cluster.ips("a").as_str(), cluster.service_writes()), ("1.2.3.0", vec![]));
}

#[test]
fn a_pool_that_cannot_be_read_takes_nothing_from_anybody() {
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/31"] }));
    cluster.pool(json!({ "name": "q", "addresses": ["4.4.4.4/32"] }));
    cluster.service(json!({ "name": "a" }));
    cluster.quiet();
    cluster.told();
    cluster.service_writes();
    let broken = json!({ "name": "p", "addresses": ["1.2.3.9-1.2.3.1"] });
    cluster.pool(broken);
    cluster.quiet();
    assert_eq!(cluster.configuration, Some((true, true)));
    let state = cluster.object("configurationstates", SYSTEM, "controller").unwrap();
    assert_eq!(state["status"]["result"], "Invalid");
    let summary = state["status"]["errorSummary"].as_str().unwrap();
    assert!(summary.starts_with("configuration error: parsing address pool p: "), "{summary}");
    cluster.service(json!({ "name": "b" }));
    cluster.quiet();
    assert_eq!(cluster.ips("b"), "1.2.3.1", "the last good version is in force");

    // After a restart there is no last good version: what is held stays, and nothing new comes from there.
    cluster.stop();
    cluster.start();
    cluster.service(json!({ "name": "c" }));
    cluster.service(json!({ "name": "d" }));
    cluster.quiet();
    assert_eq!((cluster.ips("a").as_str(), cluster.pool_of("a")), ("1.2.3.0", Some("p")));
    assert_eq!((cluster.ips("b").as_str(), cluster.pool_of("b")), ("1.2.3.1", Some("p")));
    assert_eq!((cluster.ips("c").as_str(), cluster.ips("d").as_str()), ("4.4.4.4", ""));

    cluster.told();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/30"] }));
    cluster.quiet();
    assert_eq!((cluster.ips("a").as_str(), cluster.ips("b").as_str()), ("1.2.3.0", "1.2.3.1"));
    assert_eq!(cluster.ips("d"), "1.2.3.2");
    assert_eq!(cluster.told(), [r#"d Normal IPAllocated: Assigned IP ["1.2.3.2"]"#]);
    assert_eq!(cluster.configuration, Some((true, false)));
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
fn sharers_wait_for_keys_and_ports_too() {
    // SH-3, SH-7, C50.
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"] }));
    let share = |name: &str, port: u16, policy: &str| {
        json!({ "name": name, "ann": { "allow-shared-ip": "k" }, "ports": [port],
                "externalTrafficPolicy": policy })
    };
    cluster.service(share("a", 80, "Local"));
    cluster.service(share("b", 81, "Cluster"));
    cluster.quiet();
    assert_eq!((cluster.ips("a").as_str(), cluster.ips("b").as_str()), ("1.2.3.0", ""));
    cluster.service(json!({ "name": "a", "externalTrafficPolicy": "Cluster" }));
    cluster.quiet();
    assert_eq!(cluster.ips("b"), "1.2.3.0", "the first one gave up its policy");
    cluster.service(share("c", 80, "Cluster"));
    cluster.quiet();
    assert_eq!(cluster.ips("c"), "", "its port is taken");
    cluster.service(json!({ "name": "a", "ports": [443] }));
    cluster.quiet();
    assert_eq!(cluster.ips("c"), "1.2.3.0", "its port was given up");
    assert_eq!(cluster.counters["p"].ipv4.in_use, 1, "one address, whoever shares it");
}

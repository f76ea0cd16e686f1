// SPDX-License-Identifier: Apache-2.0
//! Rows of changes that users reported, from the first object to the last.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::situations::{dual_pool, with};

fn ips<const N: usize>(cluster: &Cluster, names: [&str; N]) -> [String; N] {
    names.map(|name| cluster.ips(name))
}

#[test]
fn local_sharers_follow_their_selectors() {
    // A44.
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"] }));
    let sharer = |name: &str, port: u16| json!({ "name": name, "ann": { "allow-shared-ip": "k" }, "ports": [port], "selector": { "app": "x" } });
    cluster.service(sharer("a", 80));
    cluster.service(sharer("b", 81));
    let steps = [
        (json!({ "name": "a" }), ["1.2.3.0", "1.2.3.0"], "both Cluster"),
        (json!({ "name": "b", "externalTrafficPolicy": "Local" }), ["1.2.3.0", ""], "the second is Local"),
        (json!({ "name": "a", "externalTrafficPolicy": "Local" }), ["1.2.3.0", "1.2.3.0"], "both are"),
        (json!({ "name": "b", "selector": { "app": "y" } }), ["1.2.3.0", ""], "the selectors differ"),
        (json!({ "name": "b", "selector": { "app": "x" } }), ["1.2.3.0", "1.2.3.0"], "and agree again"),
    ];
    for (change, expected, about) in steps {
        cluster.service(change);
        cluster.quiet();
        assert_eq!(ips(&cluster, ["a", "b"]), expected, "{about}");
    }
}

#[test]
fn three_sharers_of_whom_one_does_not_fit_agree_in_every_order() {
    // SH-6: who came first is served; the outcome is the same for equal ages, whatever the order of arrival.
    let sharer = |name: &str, port: u16, protocol: &str, policy: &str| {
        json!({ "name": name, "ann": { "allow-shared-ip": "k" }, "externalTrafficPolicy": policy,
                "ports": [{ "port": port, "protocol": protocol }] })
    };
    let services = [
        sharer("a", 514, "UDP", "Cluster"),
        sharer("b", 514, "TCP", "Cluster"),
        sharer("c", 515, "UDP", "Local"),
    ];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut cluster = Cluster::new();
        cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"] }));
        cluster.quiet();
        for service in &services {
            cluster.service(service.clone());
        }
        cluster.shuffle_inputs(&order);
        cluster.quiet();
        assert_eq!(ips(&cluster, ["a", "b", "c"]), ["1.2.3.0", "1.2.3.0", ""], "{order:?}");
    }
}

#[test]
fn policies_of_a_dual_stack_service() {
    // C57 and C60.
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/31"] }));
    cluster.service(json!({ "name": "s", "prefer": true }));
    cluster.quiet();
    let policy = |cluster: &mut Cluster, policy: &str| {
        cluster.service(json!({ "name": "s", "ipFamilyPolicy": policy }));
        cluster.quiet();
        cluster.ips("s")
    };
    assert_eq!(cluster.ips("s"), "1.2.3.0");
    assert_eq!(policy(&mut cluster, "RequireDualStack"), "");
    assert_eq!(policy(&mut cluster, "PreferDualStack"), "1.2.3.0");

    let mut cluster = with(dual_pool);
    cluster.service(json!({ "name": "s", "prefer": true }));
    cluster.quiet();
    assert_eq!(policy(&mut cluster, "RequireDualStack"), "1.2.3.0 1000::");
    let single = json!({ "name": "s", "ipFamilyPolicy": "SingleStack", "clusterIPs": ["10.96.0.1"] });
    cluster.service(single);
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "1.2.3.0");
    cluster.service(json!({ "name": "s", "clusterIPs": ["10.96.0.1", "fd00:96::1"] }));
    assert_eq!(policy(&mut cluster, "RequireDualStack"), "1.2.3.0 1000::");
}

#[test]
fn preferring_two_families_with_one_cluster_ip_is_steady() {
    // AL-9, and MetalLB's endless flapping.
    let mut cluster = with(dual_pool);
    cluster.service(json!({ "name": "s", "ipFamilyPolicy": "PreferDualStack", "st": ["1.2.3.1"] }));
    cluster.service(json!({ "name": "t" }));
    cluster.quiet();
    cluster.told();
    cluster.service_writes();
    cluster.delete_service("t");
    cluster.quiet();
    cluster.relist();
    cluster.quiet();
    assert_eq!((cluster.ips("s").as_str(), cluster.service_writes()), ("1.2.3.1", vec![]));
    assert_eq!(cluster.told(), Vec::<String>::new());
}

#[test]
fn a_requested_order_is_written_once() {
    // AL-25.
    let mut cluster = with(dual_pool);
    cluster.service(json!({ "name": "s", "dual": true, "ann": { "loadBalancerIPs": "1000::1,1.2.3.0" } }));
    cluster.quiet();
    cluster.service(json!({ "name": "s", "labels": { "touched": "yes" } }));
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "1000::1 1.2.3.0");
    assert_eq!(cluster.service_writes().len(), 1);
}

#[test]
fn the_second_family_comes_when_somebody_leaves_it() {
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/31", "1000::/128"] }));
    cluster.service(json!({ "name": "six", "v6": true }));
    cluster.quiet();
    cluster.service(json!({ "name": "s", "prefer": true }));
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "1.2.3.0");
    cluster.told();
    cluster.delete_service("six");
    cluster.run_until(cluster.now);
    assert_eq!(cluster.ips("s"), "1.2.3.0 1000::");
    assert_eq!(cluster.told(), [r#"s Normal IPAllocated: Assigned additional IP "1000::""#]);
}

#[test]
fn pool_and_request_change_together() {
    // AL-18, in either order of arrival.
    for order in [[0, 1], [1, 0]] {
        let mut cluster = Cluster::new();
        cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/30"] }));
        cluster.service(json!({ "name": "s", "loadBalancerIP": "1.2.3.0" }));
        cluster.quiet();
        cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.4/30"] }));
        cluster.service(json!({ "name": "s", "loadBalancerIP": "1.2.3.5" }));
        cluster.shuffle_inputs(&order);
        cluster.quiet();
        assert_eq!(cluster.ips("s"), "1.2.3.5");
    }
}

#[test]
fn a_request_for_another_pools_address_leaks_nothing() {
    // AL-5.
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"] }));
    cluster.pool(json!({ "name": "q", "addresses": ["1.2.3.1/32"] }));
    cluster.service(json!({ "name": "a", "ann": { "address-pool": "p", "loadBalancerIPs": "1.2.3.1" } }));
    cluster.quiet();
    cluster.service(json!({ "name": "b", "ann": { "address-pool": "q" } }));
    cluster.quiet();
    assert_eq!(ips(&cluster, ["a", "b"]), ["", "1.2.3.1"]);
}

#[test]
fn labels_admit_and_exclude() {
    // C58.
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/31"],
        "serviceAllocation": { "serviceSelectors": [{ "matchLabels": { "tier": "web" } }] } }));
    cluster.quiet();
    let refusal = r#"s Warning AllocationFailed: Failed to allocate IP for "demo/s": pool p not compatible for ip assignment"#;
    let label = |cluster: &mut Cluster, tier: Value| {
        cluster.service(json!({ "name": "s", "ann": { "address-pool": "p" }, "labels": { "tier": tier } }));
        cluster.quiet();
        (cluster.ips("s"), cluster.told())
    };
    assert_eq!(label(&mut cluster, json!("db")), (String::new(), vec![refusal.to_owned()]));
    let (got, told) = label(&mut cluster, json!("web"));
    assert_eq!((got.as_str(), told.len()), ("1.2.3.0", 1));
    let (got, told) = label(&mut cluster, json!("db"));
    assert_eq!(got, "");
    assert!(told[0].starts_with("s Normal ClearAssignment: "), "{told:?}");
    assert_eq!(told[1], refusal);
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

// SPDX-License-Identifier: Apache-2.0
//! The order in which changes arrive decides nothing.

use serde_json::json;

use crate::cluster::Cluster;

fn ips<const N: usize>(cluster: &Cluster, names: [&str; N]) -> [String; N] {
    names.map(|name| cluster.ips(name))
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
fn a_service_made_again_under_its_name_inherits_nothing() {
    // AL-10.
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/30"] }));
    cluster.service(json!({ "name": "s", "loadBalancerIP": "1.2.3.3" }));
    cluster.quiet();
    // The watch was away while it was deleted and made anew.
    cluster.watches_lag = true;
    cluster.delete_service("s");
    cluster.service(json!({ "name": "s" }));
    cluster.watches_lag = false;
    cluster.relist();
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "1.2.3.0");
    assert_eq!(cluster.counters["p"].ipv4.in_use, 1);
}

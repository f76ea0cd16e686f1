// SPDX-License-Identifier: Apache-2.0
//! Where MetalLB v0.16.1 goes wrong, and what is done instead. The edges that concern families, sharing and the choice
//! of a pool stand with those.

use serde_json::json;

use super::{NOTHING, assigned, cleared, delete, failed, play, pool, row, svc};
use crate::cluster::{Cluster, NS, SYSTEM};

#[test]
fn edges() {
    let got = |name: &str, ip: &str| [format!("{name}: {ip} (p)"), assigned(name, ip)];
    play(vec![
        row("S2", "after a restart nobody's next choice is another's address (MetalLB: the holder loses it)")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(json!({ "stop": {} }), NOTHING)
            .then(svc("a", json!({ "st": ["9.9.9.9"] })), ["a: 9.9.9.9"])
            .then(svc("b", json!({ "st": ["10.0.0.0"] })), ["b: 10.0.0.0"])
            .then(
                json!({ "start": {} }),
                [
                    "a: 10.0.0.1 (p)".to_owned(),
                    "b: 10.0.0.0 (p)".to_owned(),
                    cleared("a", r#"["9.9.9.9"] is not allowed in config"#),
                    assigned("a", "10.0.0.1"),
                ],
            ),
        row("S2", "a pool request that changed meanwhile, and a second family that could be added meanwhile")
            .then(pool("p", &["10.0.0.0/30", "fd00::/127"]), NOTHING)
            .then(json!({ "pool": { "name": "q", "addresses": ["11.0.0.0/30"], "autoAssign": false } }), NOTHING)
            .then(json!({ "stop": {} }), NOTHING)
            .then(
                svc("a", json!({ "st": ["11.0.0.0"], "ann": { "address-pool": "p" } })),
                ["a: 11.0.0.0"],
            )
            .then(svc("b", json!({ "prefer": true, "st": ["10.0.0.0"] })), ["b: 10.0.0.0"])
            .then(svc("c", json!({ "v6": true, "st": ["fd00::"] })), ["c: fd00::"])
            .then(
                json!({ "start": {} }),
                [
                    "a: 10.0.0.1 (p)".to_owned(),
                    "b: 10.0.0.0 fd00::1 (p)".to_owned(),
                    "c: fd00:: (p)".to_owned(),
                    r#"b Normal IPAllocated: Assigned additional IP "fd00::1""#.to_owned(),
                    assigned("a", "10.0.0.1"),
                ],
            ),
        row("S11", "what the API server adds to a status is no difference: no second write, at no occasion")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(svc("a", json!({})), got("a", "10.0.0.0"))
            .then(json!({ "touch": "a" }), NOTHING)
            .then(json!({ "restart": {} }), NOTHING)
            .then(pool("p", &["10.0.0.0/29"]), NOTHING)
            .then(json!({ "relist": {} }), NOTHING),
        row("S11", "a mode that somebody set stays")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(svc("a", json!({})), got("a", "10.0.0.0"))
            .then(
                json!({ "status": { "svc": "a", "ingress": [{ "ip": "10.0.0.0", "ipMode": "Proxy" }] } }),
                NOTHING,
            ),
        row("S31", "a Service with the name of MetalLB's internal signal is a Service")
            .then(json!({ "ns": { "name": "metallbreload", "labels": {} } }), NOTHING)
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(
                json!({ "svc": { "name": "reload", "ns": "metallbreload" } }),
                ["metallbreload/reload: 10.0.0.0 (p)".to_owned(), assigned("reload", "10.0.0.0")],
            ),
        row("S35", "host names and ports that others put into the status are wiped, as MetalLB does")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(svc("a", json!({})), got("a", "10.0.0.0"))
            .then(
                json!({ "status": { "svc": "a", "ingress": [{ "ip": "10.0.0.0", "hostname": "a.example" }] } }),
                NOTHING,
            )
            .then(
                json!({ "status": { "svc": "a", "ingress":
                    [{ "ip": "10.0.0.0", "ports": [{ "port": 80, "protocol": "TCP" }] }] } }),
                NOTHING,
            ),
        row("S3", "who is deleted before anything was written for it leaves nothing behind")
            .then(pool("p", &["10.0.0.0/32"]), NOTHING)
            .then_at_once(vec![svc("a", json!({})), delete("a")], NOTHING)
            .then(svc("b", json!({})), got("b", "10.0.0.0")),
        row("S13", "the same request twice has the same answer twice")
            .then(pool("p", &["10.0.0.0/32"]), NOTHING)
            .then(svc("a", json!({})), got("a", "10.0.0.0"))
            .then(svc("b", json!({})), ["b: none".to_owned(), failed("b", "no available IPs")])
            .then(delete("a"), got("b", "10.0.0.0"))
            .then(svc("a", json!({})), ["a: none".to_owned(), failed("a", "no available IPs")]),
    ]);
}

#[test]
fn s4_one_that_leaves_its_class_with_its_type_gives_its_address_back() {
    // An API server drops the class together with the type: MetalLB does not look at it again and leaks the address.
    let mut cluster = Cluster::of_class("example.com/lb");
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"] }));
    cluster.service(json!({ "name": "a", "loadBalancerClass": "example.com/lb" }));
    cluster.quiet();
    cluster.service(json!({ "name": "b", "loadBalancerClass": "example.com/lb" }));
    cluster.quiet();
    assert_eq!((cluster.ips("a").as_str(), cluster.ips("b").as_str()), ("1.2.3.0", ""));
    cluster.service_writes();
    cluster.told();
    cluster.service(json!({ "name": "a", "type": "ClusterIP", "loadBalancerClass": null }));
    cluster.quiet();
    assert_eq!(cluster.ips("b"), "1.2.3.0");
    assert_eq!(cluster.told(), [assigned("b", "1.2.3.0")]);
    let names: Vec<_> = cluster.service_writes().into_iter().map(|request| request.name.unwrap()).collect();
    assert_eq!(names, ["b"], "the status of a Service of another class is not ours to write");
}

#[test]
fn s10_a_configuration_that_is_good_again_is_not_stale() {
    // MetalLB takes a short cut where the objects are those of the last good one, and its alert fires for ever.
    let mut cluster = Cluster::new();
    let good = json!({ "name": "p", "addresses": ["10.0.0.0/30"] });
    cluster.pool(good.clone());
    cluster.quiet();
    assert_eq!(cluster.configuration, Some((true, false)));
    cluster.pool(json!({ "name": "p", "addresses": ["10.0.0.0/33"] }));
    cluster.quiet();
    assert_eq!(cluster.configuration, Some((true, true)));
    cluster.pool(good);
    cluster.quiet();
    assert_eq!(cluster.configuration, Some((true, false)));
    let state = cluster.object("configurationstates", SYSTEM, "controller").unwrap();
    assert_eq!(state["status"]["result"], "Valid");
}

#[test]
fn s25_the_status_of_a_pool_is_no_change_of_the_configuration() {
    // MetalLB's speakers evaluate everything anew whenever an address is given out.
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["10.0.0.0/30"] }));
    cluster.service(json!({ "name": "a" }));
    cluster.service(json!({ "name": "b" }));
    cluster.quiet();
    cluster.reconciled = 0;
    cluster.patch("ipaddresspools", SYSTEM, "p", &json!({ "status": { "assignedIPv4": 9 } }));
    cluster.patch("ipaddresspools", SYSTEM, "p", &json!({ "metadata": { "annotations": { "a": "b" } } }));
    cluster.quiet();
    assert_eq!(cluster.reconciled, 0);
    assert_eq!(cluster.object("ipaddresspools", SYSTEM, "p").unwrap()["status"]["assignedIPv4"], 2);
}

#[test]
fn s37_the_state_is_created_before_a_condition_is_reported() {
    // MetalLB reports first, is refused with 404, and retries: 62 errors in one recorded start.
    use ferrolb_api::request::Verb;
    let mut cluster = Cluster::stopped(ferrolb_controller_core::Settings {
        namespace: SYSTEM.to_owned(),
        ..ferrolb_controller_core::Settings::default()
    });
    cluster.start();
    cluster.quiet();
    let verbs: Vec<&Verb> = cluster.writes.iter().map(|write| &write.verb).collect();
    assert!(matches!(verbs[..], [Verb::Create, ..]), "{verbs:?}");
    assert_eq!(cluster.refused, 0);
    let state = cluster.object("configurationstates", SYSTEM, "controller").unwrap();
    assert_eq!(state["status"]["result"], "Valid");
}

#[test]
fn s21_one_address_that_is_never_given_is_none() {
    // MetalLB shows `availableIPv4: -1` for such a pool.
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["10.0.0.0/32"], "avoidBuggyIPs": true }));
    cluster.pool(json!({ "name": "q", "addresses": ["fd00::/64", "fd01::/64", "10.1.0.0/30"] }));
    cluster.quiet();
    let status = |name: &str| cluster.object("ipaddresspools", SYSTEM, name).unwrap()["status"].clone();
    assert_eq!(
        status("p"),
        json!({ "assignedIPv4": 0, "assignedIPv6": 0, "availableIPv4": 0, "availableIPv6": 0 })
    );
    assert_eq!(
        status("q"),
        json!({ "assignedIPv4": 0, "assignedIPv6": 0, "availableIPv4": 4, "availableIPv6": i64::MAX })
    );
    assert_eq!(cluster.counters["q"].total().capacity, i64::MAX);
    assert!(cluster.object("services", NS, "none").is_none());
}

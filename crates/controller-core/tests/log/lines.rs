// SPDX-License-Identifier: Apache-2.0
//! The log says what is new, and only that.

use serde_json::json;
use tracing::Level;

use crate::cluster::Cluster;
use crate::recorder::Recorder;

#[test]
fn a_fault_is_told_once_however_often_other_objects_change() {
    let bad = |n: u32| json!({ "name": format!("bad-{n:02}"), "addresses": ["nonsense"] });
    let lines = Recorder::start(Level::WARN);
    let told = || lines.told();
    let mut cluster = Cluster::new();
    for n in 0..20 {
        cluster.pool(bad(n));
        cluster.quiet();
    }
    let each = told();
    assert_eq!(each.len(), 21, "one line for each object, and one for the whole: {each:#?}");
    assert!((0..20).all(|n| each.iter().any(|line| line.contains(&format!("name=\"bad-{n:02}\"")))));

    cluster.pool(json!({ "name": "good", "addresses": ["10.0.0.0/24"] }));
    cluster.relist();
    cluster.quiet();
    assert_eq!(told(), Vec::<String>::new(), "nothing is newly wrong");

    cluster.pool(json!({ "name": "bad-03", "addresses": ["10.0.1.0/24"] }));
    cluster.quiet();
    assert_eq!(told(), Vec::<String>::new(), "put right");
    cluster.pool(bad(3));
    cluster.quiet();
    let again = told();
    assert_eq!(again.len(), 1, "wrong again, told again: {again:#?}");
    assert!(again[0].contains("configuration object is at fault"), "{again:#?}");
}

#[test]
fn s36_every_line_about_an_address_names_its_service() {
    // MetalLB's lines about allocation lack the name.
    let lines = Recorder::start(Level::INFO);
    let mut cluster = Cluster::new();
    let pool = |addresses: &[&str]| json!({ "name": "p", "addresses": addresses });
    cluster.pool(pool(&["10.0.0.0/31"]));
    cluster.quiet();
    lines.told();
    let old = "metallb.universe.tf/address-pool";
    cluster.service(json!({ "name": "a", "prefer": true, "ann": { old: "p" } }));
    cluster.service(json!({ "name": "b", "st": ["9.9.9.9"] }));
    cluster.service(json!({ "name": "c", "prefer": true }));
    cluster.quiet();
    let mut told = lines.told();
    cluster.pool(pool(&["10.0.0.0/31", "fd00::/128"]));
    cluster.quiet();
    // What is said of the configuration concerns no Service.
    told.extend(lines.told().into_iter().filter(|line| !line.contains("PoolReconciler")));
    cluster.service(json!({ "name": "b", "ann": { "loadBalancerIPs": "x" } }));
    cluster.service(json!({ "name": "a", "type": "NodePort" }));
    cluster.quiet();
    cluster.delete_service("b");
    cluster.quiet();
    told.extend(lines.told());
    for expected in [
        "IP address assigned by controller event=\"ipAllocated\" service=demo/a",
        "Additional IP address assigned by controller event=\"ipAllocated\" service=demo/a ip=fd00::",
        "IP allocation failed controller=\"ServiceReconciler\" event=\"failed to handle service\" op=\"allocateIPs\" service=demo/c",
        "current IP not allowed by config, clearing event=\"clearAssignment\" service=demo/b",
        "event=\"deprecatedAnnotation\"",
        "invalid requested loadbalancer IPs event=\"loadbalancerIP\" service=demo/b",
        "service deleted event=\"serviceDeleted\" service=demo/b",
        "updated service object event=\"serviceUpdated\" service=demo/a",
    ] {
        assert!(told.iter().any(|line| line.contains(expected)), "{expected}: {told:#?}");
    }
    assert!(told.iter().all(|line| line.contains("service=demo/")), "{told:#?}");
}

#[test]
fn what_people_search_the_log_for_is_there() {
    let lines = Recorder::start(Level::DEBUG);
    let mut cluster = Cluster::new();
    cluster.pool(json!({ "name": "p", "addresses": ["10.0.0.0/31"] }));
    cluster.service(json!({ "name": "a" }));
    cluster.quiet();
    cluster.service(json!({ "name": "a", "ann": { "loadBalancerIPs": "10.0.0.1" } }));
    cluster.quiet();
    cluster.service(json!({ "name": "a", "ann": { "loadBalancerIPs": null, "address-pool": "q" } }));
    cluster.quiet();
    cluster.namespace("demo", json!({ "team": "a" }));
    cluster.service(json!({ "name": "b", "st": ["nonsense"] }));
    cluster.quiet();
    cluster.service(json!({ "name": "b", "type": "NodePort" }));
    cluster.quiet();
    cluster.pool(json!({ "name": "q", "addresses": ["10.0.0.0/33"] }));
    cluster.quiet();
    let told = lines.told();
    for (level, expected) in [
        ("debug", "start of config update event=\"startUpdate\""),
        ("debug", "end of config update event=\"endUpdate\""),
        ("debug", "start of service update event=\"startUpdate\" service=demo/a"),
        ("debug", "end of service update event=\"endUpdate\" service=demo/a"),
        ("debug", "service converged, no change event=\"noChange\" service=demo/a"),
        ("debug", "event=\"configuration did not change, ignoring\""),
        ("info", "event=\"config reloaded\" controller=\"PoolReconciler\""),
        ("info", "event=\"force service reload\" controller=\"PoolReconciler\""),
        ("info", "controller=\"PoolReconciler\" start reconcile=\"metallb-system\""),
        ("info", "controller=\"PoolReconciler\" end reconcile=\"metallb-system\""),
        (
            "info",
            "controller=\"ConfigurationStateReconciler\" event=\"ConfigurationState created\" name=\"controller\"",
        ),
        ("info", "event=\"ConfigurationState updatedStatusOnly\" name=\"controller\""),
        ("debug", "not a LoadBalancer event=\"clearAssignment\" service=demo/b reason=\"notLoadBalancer\""),
        (
            "error",
            "Failed to retrieve lbIPs family event=\"clearAssignment\" service=demo/b reason=\"nolbIPsIPFamily\"",
        ),
        ("info", "reason=\"differentIPRequested\""),
        ("info", "reason=\"differentPoolRequested\""),
        (
            "error",
            "IP allocation failed controller=\"ServiceReconciler\" event=\"failed to handle service\" op=\"allocateIPs\"",
        ),
        ("error", "failed to parse the configuration controller=\"PoolReconciler\""),
    ] {
        assert!(told.iter().any(|line| line.contains(expected)), "{level}: {expected}: {told:#?}");
    }
    let at = |text: &str| told.iter().position(|line| line.contains(text));
    assert!(
        at("differentIPRequested") < at("ip=[10.0.0.1]"),
        "what went is told before what came: {told:#?}"
    );
}

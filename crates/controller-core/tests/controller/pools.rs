// SPDX-License-Identifier: Apache-2.0
//! Pools whose selectors find nothing, and pools that cannot be read: nothing is inferred from what is not known.

use serde_json::json;

use crate::cluster::{Cluster, NS, SYSTEM};

/// S5 and A15, over time: MetalLB admits everybody while no namespace matches.
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

/// C41: pools that are not known are not pools that are gone. Those that never were listed stand in `failures`.
#[test]
fn c41_a_pool_that_cannot_be_read_takes_nothing_from_anybody() {
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

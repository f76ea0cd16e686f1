// SPDX-License-Identifier: Apache-2.0
//! MetalLB's behaviour as a table: what a Service looks like, and what is told, in each situation.

use serde_json::{Value, json};

use crate::cluster::Cluster;

type Pools = fn(&mut Cluster);

/// Four pools of one family each: two that serve anybody, two that must be asked for.
pub(crate) fn plain_pools(cluster: &mut Cluster) {
    cluster.pool(json!({ "name": "p1", "addresses": ["1.2.3.0/31"] }));
    cluster.pool(json!({ "name": "p2", "addresses": ["3.4.5.6/32"], "autoAssign": false }));
    cluster.pool(json!({ "name": "p3", "addresses": ["1000::/127"] }));
    cluster.pool(json!({ "name": "p4", "addresses": ["2000::1/128"], "autoAssign": false }));
}

pub(crate) fn dual_pool(cluster: &mut Cluster) {
    cluster.pool(json!({ "name": "p5", "addresses": ["1.2.3.0/31", "1000::/127"] }));
}

pub(crate) fn with(pools: Pools) -> Cluster {
    let mut cluster = Cluster::new();
    pools(&mut cluster);
    cluster.quiet();
    cluster.told();
    cluster.writes.clear();
    cluster
}

fn failed(why: &str) -> String {
    format!(r#"s Warning AllocationFailed: Failed to allocate IP for "demo/s": {why}"#)
}

pub(crate) fn assigned(list: &str) -> String {
    format!("s Normal IPAllocated: Assigned IP {list}")
}

/// A Service named `s` is created; its addresses and its events are compared.
#[test]
fn a_new_service() {
    let plain: Pools = plain_pools;
    let dual: Pools = dual_pool;
    let one_of_four = r#"["1.2.3.0"]"#;
    let both = r#"["1.2.3.0" "1000::"]"#;
    let one_cluster_ip = json!({ "clusterIPs": ["10.96.0.1"], "ipFamilyPolicy": "PreferDualStack" });
    let merged = |a: &Value, b: Value| {
        let mut merged = a.clone();
        merged.as_object_mut().unwrap().extend(b.as_object().unwrap().clone());
        merged
    };
    let table: Vec<(&str, Pools, Value, &str, Vec<String>)> = vec![
        ("C3", plain, json!({}), "1.2.3.0", vec![assigned(one_of_four)]),
        ("C4", plain, json!({ "loadBalancerIP": "1.2.3.1" }), "1.2.3.1", vec![assigned(r#"["1.2.3.1"]"#)]),
        (
            "C5",
            plain,
            json!({ "ann": { "loadBalancerIPs": "1.2.3.1" } }),
            "1.2.3.1",
            vec![assigned(r#"["1.2.3.1"]"#)],
        ),
        (
            "C6",
            plain,
            json!({ "loadBalancerIP": "1.2.3.1", "ann": { "loadBalancerIPs": "1.2.3.1" } }),
            "",
            vec![failed("service can not have both metallb.io/loadBalancerIPs and svc.Spec.LoadBalancerIP")],
        ),
        (
            "C7 field",
            plain,
            json!({ "loadBalancerIP": "please" }),
            "",
            vec![failed(r#"invalid spec.loadBalancerIP "please""#)],
        ),
        (
            "C7 annotation",
            plain,
            json!({ "ann": { "loadBalancerIPs": "please" } }),
            "",
            vec![failed(r#"invalid metallb.io/loadBalancerIPs: "please""#)],
        ),
        (
            "C8",
            plain,
            json!({ "ann": { "loadBalancerIPs": "1.2.3.1", "address-pool": "p2" } }),
            "",
            vec![failed(
                r#"requested loadBalancer IP(s) ["1.2.3.1"] is not compatible with requested address pool p2"#,
            )],
        ),
        (
            "C9",
            plain,
            json!({ "ann": { "loadBalancerIPs": "1.2.3.1,1.2.3.2" } }),
            "",
            vec![failed(r#"IPFamilyForAddresses: same address family ["1.2.3.1" "1.2.3.2"]"#)],
        ),
        ("C11", plain, json!({ "ann": { "address-pool": "p1" } }), "1.2.3.0", vec![assigned(one_of_four)]),
        (
            "C13",
            plain,
            json!({ "ann": { "address-pool": "does-not-exist" } }),
            "",
            vec![failed(r#"unknown pool "does-not-exist""#)],
        ),
        (
            "C17",
            plain,
            json!({ "loadBalancerIP": "3.4.5.6", "externalTrafficPolicy": "Local" }),
            "3.4.5.6",
            vec![assigned(r#"["3.4.5.6"]"#)],
        ),
        ("C18", plain, json!({ "clusterIP": null, "clusterIPs": null }), "", vec![]),
        (
            "C19 field",
            plain,
            json!({ "v6": true, "loadBalancerIP": "1.2.3.0" }),
            "",
            vec![failed(
                r#"requested loadBalancer IP(s) ["1.2.3.0"] does not match the ipFamily of the service"#,
            )],
        ),
        (
            "C19 annotation",
            plain,
            json!({ "ann": { "loadBalancerIPs": "1000::" } }),
            "",
            vec![failed(
                r#"requested loadBalancer IP(s) ["1000::"] does not match the ipFamily of the service"#,
            )],
        ),
        ("C22", dual, json!({ "dual": true }), "1.2.3.0 1000::", vec![assigned(both)]),
        (
            "C23",
            dual,
            json!({ "dual": true, "ann": { "address-pool": "p5" } }),
            "1.2.3.0 1000::",
            vec![assigned(both)],
        ),
        ("C24", dual, json!({ "prefer": true }), "1.2.3.0 1000::", vec![assigned(both)]),
        (
            "C24 named",
            dual,
            json!({ "prefer": true, "ann": { "address-pool": "p5" } }),
            "1.2.3.0 1000::",
            vec![assigned(both)],
        ),
        ("C25", plain, one_cluster_ip.clone(), "1.2.3.0", vec![assigned(one_of_four)]),
        (
            "C26",
            plain,
            json!({ "prefer": true, "ann": { "address-pool": "p2" } }),
            "3.4.5.6",
            vec![
                assigned(r#"["3.4.5.6"]"#),
                "s Normal AdditionalAssignFailed: cannot assign additional IP in PreferDualStack: \
                 no available IPs in pool p2 for ipv6 IPFamily"
                    .to_owned(),
            ],
        ),
        (
            "C27",
            plain,
            json!({ "clusterIP": "fd00:96::1", "clusterIPs": ["fd00:96::1"], "ipFamilyPolicy": "PreferDualStack",
                    "ipFamilies": ["IPv6"] }),
            "1000::",
            vec![assigned(r#"["1000::"]"#)],
        ),
        ("C28", dual, one_cluster_ip, "1.2.3.0", vec![assigned(one_of_four)]),
        (
            "C29",
            dual,
            json!({ "ipFamilyPolicy": "RequireDualStack" }),
            "",
            vec![
                "s Warning not enough clusterips: Service requires dual stack but not enough clusterips \
                 [10.96.0.1]"
                    .to_owned(),
            ],
        ),
        (
            "C30",
            dual,
            json!({ "dual": true, "loadBalancerIP": "1.2.3.0" }),
            "",
            vec![failed(
                r#"requested loadBalancer IP(s) ["1.2.3.0"] does not match the ipFamily of the service"#,
            )],
        ),
        (
            "C31",
            dual,
            json!({ "dual": true, "ann": { "loadBalancerIPs": "1.2.3.0,1000::" } }),
            "1.2.3.0 1000::",
            vec![assigned(both)],
        ),
        (
            "C32",
            dual,
            json!({ "dual": true, "clusterIPs": ["fd00:96::1", "10.96.0.1"], "ipFamilies": ["IPv6", "IPv4"],
                    "st": [{ "hostname": "foo" }, "1000::"] }),
            "1.2.3.0 1000::",
            vec![assigned(both)],
        ),
        (
            "C33",
            dual,
            json!({ "clusterIPs": null, "ann": { "loadBalancerIPs": "1.2.3.0,1000::" } }),
            "",
            vec![failed(
                r#"requested loadBalancer IP(s) ["1.2.3.0" "1000::"] does not match the ipFamily of the service"#,
            )],
        ),
        (
            "C46",
            dual,
            json!({ "dual": true, "ann": { "loadBalancerIPs": " 1000::1 , 1.2.3.1 " } }),
            "1000::1 1.2.3.1",
            vec![assigned(r#"["1000::1" "1.2.3.1"]"#)],
        ),
        (
            "C47",
            plain,
            json!({ "ann": { "loadBalancerIPs": "10.0.0.1," } }),
            "",
            vec![failed(r#"invalid metallb.io/loadBalancerIPs: "10.0.0.1,""#)],
        ),
        (
            "C51",
            plain,
            json!({ "dual": true, "ann": { "loadBalancerIPs": "1.2.3.0,1000::" } }),
            "",
            vec![failed(r#"["1.2.3.0" "1000::"] is not allowed in config"#)],
        ),
        (
            "outside every pool",
            plain,
            json!({ "loadBalancerIP": "9.9.9.9" }),
            "",
            vec![failed(r#"["9.9.9.9"] is not allowed in config"#)],
        ),
        (
            "no pool of the family",
            plain,
            json!({ "ann": { "address-pool": "p3" } }),
            "",
            vec![failed("no available IPs in pool p3 for ipv4 IPFamily")],
        ),
        (
            "cluster IPs that are none",
            plain,
            json!({ "clusterIPs": ["None"], "clusterIP": "None" }),
            "",
            vec![
                r#"s Warning noclusterIPsIPFamily: Failed to retrieve ClusterIPs IPFamily for ["None"] None: IPFamilyForAddresses: Invalid address ["None"]"#
                    .to_owned(),
            ],
        ),
        // What the Service holds when it comes.
        (
            "C14",
            plain,
            json!({ "st": ["2.3.4.5"] }),
            "1.2.3.0",
            vec![
                r#"s Normal ClearAssignment: current IP for "demo/s" not allowed by config, will attempt for new IP assignment: ["2.3.4.5"] is not allowed in config"#
                    .to_owned(),
                assigned(one_of_four),
            ],
        ),
        (
            "C15",
            plain,
            json!({ "st": [{ "hostname": "foo" }, "10.10.10.10"] }),
            "1.2.3.0",
            vec![
                r#"s Normal ClearAssignment: current IP for "demo/s" not allowed by config, will attempt for new IP assignment: ["10.10.10.10"] is not allowed in config"#
                    .to_owned(),
                assigned(one_of_four),
            ],
        ),
        ("C20", plain, json!({ "st": ["1000::"] }), "1.2.3.0", vec![assigned(one_of_four)]),
        ("C21", plain, json!({ "v6": true, "st": ["1.2.3.0"] }), "1000::", vec![assigned(r#"["1000::"]"#)]),
        (
            "C38",
            plain,
            json!({ "st": ["1.2.3.0", "1.2.3.1", "1000::"] }),
            "1.2.3.0",
            vec![
                r#"s Warning nolbIPsIPFamily: Failed to retrieve LBIPs IPFamily for ["1.2.3.0" "1.2.3.1" "1000::"]: IPFamilyForAddresses: invalid ips length 3 ["1.2.3.0" "1.2.3.1" "1000::"]"#
                    .to_owned(),
                assigned(one_of_four),
            ],
        ),
        (
            "C53",
            plain,
            json!({ "st": ["192.0.2.300"] }),
            "1.2.3.0",
            vec![
                r#"s Warning nolbIPsIPFamily: Failed to retrieve LBIPs IPFamily for ["<nil>"]: IPFamilyForAddresses: Invalid address ["<nil>"]"#
                    .to_owned(),
                assigned(one_of_four),
            ],
        ),
        (
            "two of one family",
            plain,
            json!({ "st": ["1.2.3.0", "1.2.3.1"] }),
            "1.2.3.0",
            vec![
                r#"s Warning nolbIPsIPFamily: Failed to retrieve LBIPs IPFamily for ["1.2.3.0" "1.2.3.1"]: IPFamilyForAddresses: same address family ["1.2.3.0" "1.2.3.1"]"#
                    .to_owned(),
                assigned(one_of_four),
            ],
        ),
        ("held and legal", plain, json!({ "st": ["1.2.3.1"] }), "1.2.3.1", vec![]),
        ("C2", plain, json!({ "type": "ClusterIP" }), "", vec![]),
    ];
    for (id, pools, short, ips, events) in table {
        let mut cluster = with(pools);
        cluster.service(merged(&short, json!({ "name": "s" })));
        cluster.quiet();
        assert_eq!(cluster.ips("s"), ips, "{id}");
        assert_eq!(cluster.told(), events, "{id}");
        assert_eq!(cluster.pool_of("s").is_some(), !ips.is_empty(), "{id}");
        // One write if there is anything to write, and none when everybody looks again.
        let writes = cluster.service_writes().len();
        assert!(writes <= 1, "{id}: {writes} writes");
        cluster.service(json!({ "name": "s", "labels": { "touched": "yes" } }));
        cluster.stop();
        cluster.start();
        cluster.quiet();
        assert_eq!(cluster.ips("s"), ips, "{id}, after a restart");
        assert_eq!(cluster.service_writes(), [], "{id}, after a restart");
    }
}

#[test]
fn an_unknown_service_that_goes_is_nothing() {
    let mut cluster = with(plain_pools);
    cluster.service(json!({ "name": "s", "type": "ClusterIP" }));
    cluster.quiet();
    cluster.delete_service("s");
    cluster.quiet();
    assert_eq!(cluster.service_writes(), []);
    assert_eq!(cluster.told(), Vec::<String>::new());
}

/// A Service named `s` is created and then changed; its addresses and the events of the change are compared.
#[test]
fn a_service_that_changes() {
    let cleared = |why: &str| {
        format!(
            r#"s Normal ClearAssignment: current IP for "demo/s" not allowed by config, will attempt for new IP assignment: {why}"#
        )
    };
    type Row = (&'static str, Pools, Value, Value, &'static str, Vec<String>);
    let table: Vec<Row> = vec![
        (
            "C10",
            plain_pools,
            json!({ "loadBalancerIP": "1.2.3.1" }),
            json!({ "loadBalancerIP": "9.9.9.9" }),
            "",
            vec![failed(r#"["9.9.9.9"] is not allowed in config"#)],
        ),
        (
            "C12",
            plain_pools,
            json!({}),
            json!({ "ann": { "address-pool": "p2" } }),
            "3.4.5.6",
            vec![assigned(r#"["3.4.5.6"]"#)],
        ),
        ("C16", plain_pools, json!({}), json!({ "type": "NodePort" }), "", vec![]),
        (
            "C48",
            plain_pools,
            json!({}),
            json!({ "ann": { "loadBalancerIPs": "1.2.3.0," } }),
            "1.2.3.0",
            vec![
                r#"s Warning LoadBalancerFailed: invalid requested loadbalancer IPs: invalid metallb.io/loadBalancerIPs: "1.2.3.0,""#
                    .to_owned(),
            ],
        ),
        ("request removed", plain_pools, json!({ "loadBalancerIP": "1.2.3.1" }), json!({ "loadBalancerIP": null }), "1.2.3.1", vec![]),
        (
            "request names what is held, in the other order",
            dual_pool,
            json!({ "dual": true }),
            json!({ "ann": { "loadBalancerIPs": "1000::,1.2.3.0" } }),
            "1.2.3.0 1000::",
            vec![],
        ),
        (
            "C60 dual to single",
            dual_pool,
            json!({ "dual": true }),
            json!({ "ipFamilyPolicy": "SingleStack", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"] }),
            "1.2.3.0",
            vec![assigned(r#"["1.2.3.0"]"#)],
        ),
        (
            "C60 prefer to require",
            dual_pool,
            json!({ "prefer": true }),
            json!({ "ipFamilyPolicy": "RequireDualStack" }),
            "1.2.3.0 1000::",
            vec![],
        ),
        (
            "single to dual keeps its address",
            dual_pool,
            json!({ "st": ["1.2.3.1"] }),
            json!({ "dual": true, "clusterIPs": ["10.96.0.1", "fd00:96::1"] }),
            "1.2.3.1 1000::",
            vec![assigned(r#"["1.2.3.1" "1000::"]"#)],
        ),
        (
            "one requested address and then dual by preference",
            dual_pool,
            json!({ "loadBalancerIP": "1.2.3.1" }),
            json!({ "prefer": true, "clusterIPs": ["10.96.0.1", "fd00:96::1"] }),
            "1.2.3.1",
            vec![],
        ),
        (
            "cluster IPs become unreadable",
            plain_pools,
            json!({}),
            json!({ "clusterIPs": ["x"] }),
            "",
            vec![
                r#"s Warning noclusterIPsIPFamily: Failed to retrieve ClusterIPs IPFamily for ["x"] 10.96.0.1: IPFamilyForAddresses: Invalid address ["x"]"#
                    .to_owned(),
            ],
        ),
        (
            "labels that its pool does not admit",
            |cluster| {
                cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/31"], "serviceAllocation": {
                    "serviceSelectors": [{ "matchLabels": { "tier": "web" } }] } }));
            },
            json!({ "labels": { "tier": "web" } }),
            json!({ "labels": { "tier": "db" } }),
            "",
            vec![cleared("pool p not compatible for ip assignment"), failed("no available IPs")],
        ),
    ];
    for (id, pools, before, change, ips, events) in table {
        let mut cluster = with(pools);
        let named = |short: Value| {
            let mut short = short;
            short["name"] = json!("s");
            short
        };
        cluster.service(named(before));
        cluster.quiet();
        assert_ne!(cluster.ips("s"), "", "{id}");
        cluster.told();
        cluster.service(named(change));
        cluster.quiet();
        assert_eq!(cluster.ips("s"), ips, "{id}");
        assert_eq!(cluster.told(), events, "{id}");
        cluster.service(named(json!({ "labels": { "touched": "yes" } })));
        cluster.quiet();
        assert_eq!(cluster.ips("s"), ips, "{id}, on a later pass");
        assert_eq!(cluster.told(), Vec::<String>::new(), "{id}, on a later pass");
    }
}

#[test]
fn deprecated_annotations_count_and_are_objected_to_once() {
    // C49, C61.
    let mut cluster = with(plain_pools);
    let old = "metallb.universe.tf/address-pool";
    cluster.service(json!({ "name": "s", "ann": { "address-pool": "", old: "p2" } }));
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "1.2.3.0", "the new key hides the old one");
    let objection = format!("s Warning deprecatedAnnotation: Service uses deprecated annotation {old}");
    assert_eq!(cluster.told(), [assigned(r#"["1.2.3.0"]"#), objection]);
    cluster.service(json!({ "name": "s", "ann": { "address-pool": null } }));
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "3.4.5.6");
    assert_eq!(cluster.told(), [assigned(r#"["3.4.5.6"]"#)]);
}

#[test]
fn a_misspelt_annotation_is_named() {
    let mut cluster = with(plain_pools);
    cluster.service(json!({ "name": "s", "ann": { "allow-shared": "k" } }));
    cluster.quiet();
    let told = cluster.told();
    assert_eq!(told[0], assigned(r#"["1.2.3.0"]"#));
    assert!(
        told[1].starts_with("s Warning unknownAnnotation: Service has annotation metallb.io/allow-shared,")
    );
    cluster.service(json!({ "name": "s", "labels": { "touched": "yes" } }));
    cluster.quiet();
    assert_eq!(cluster.told(), Vec::<String>::new());
}

#[test]
fn services_of_other_classes_are_not_touched() {
    let mut cluster = with(plain_pools);
    cluster.service(json!({ "name": "s", "loadBalancerClass": "example.com/other", "st": ["9.9.9.9"] }));
    cluster.quiet();
    assert_eq!(cluster.ips("s"), "9.9.9.9");
    assert_eq!((cluster.told(), cluster.service_writes()), (vec![], vec![]));
}

#[test]
fn a_service_that_leaves_its_class_gives_its_address_back_unwritten() {
    let mut cluster = Cluster::of_class("example.com/lb");
    cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0/32"] }));
    cluster.service(json!({ "name": "plain" }));
    cluster.service(json!({ "name": "a", "loadBalancerClass": "example.com/lb" }));
    cluster.quiet();
    cluster.service(json!({ "name": "b", "loadBalancerClass": "example.com/lb" }));
    cluster.quiet();
    assert_eq!((cluster.ips("plain").as_str(), cluster.ips("a").as_str()), ("", "1.2.3.0"));
    cluster.service_writes();
    cluster.service(json!({ "name": "a", "type": "ClusterIP", "loadBalancerClass": null }));
    cluster.quiet();
    assert_eq!(cluster.ips("b"), "1.2.3.0");
    let names: Vec<_> = cluster.service_writes().into_iter().map(|request| request.name.unwrap()).collect();
    assert_eq!(names, ["b"]);
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

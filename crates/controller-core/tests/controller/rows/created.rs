// SPDX-License-Identifier: Apache-2.0
//! A Service is created, alone: what it gets, and what is told.

use serde_json::{Value, json};

use super::{NOTHING, assigned, cleared, dual_pool, failed, not_added, plain_pools, play, row, svc};

const BOTH: &str = "1.2.3.0 1000::";

/// A Service named `s` is created among the plain pools, or beside the dual one; its addresses and its events.
#[test]
fn a_new_service() {
    let (plain, dual) = (false, true);
    let one_cluster_ip = json!({ "clusterIPs": ["10.96.0.1"], "ipFamilyPolicy": "PreferDualStack" });
    let table: Vec<(&'static str, bool, Value, &str, Vec<String>)> = vec![
        ("C3", plain, json!({}), "1.2.3.0", vec![assigned("s", "1.2.3.0")]),
        ("C4", plain, json!({ "loadBalancerIP": "1.2.3.1" }), "1.2.3.1", vec![assigned("s", "1.2.3.1")]),
        (
            "C5",
            plain,
            json!({ "ann": { "loadBalancerIPs": "1.2.3.1" } }),
            "1.2.3.1",
            vec![assigned("s", "1.2.3.1")],
        ),
        (
            "C6",
            plain,
            json!({ "loadBalancerIP": "1.2.3.1", "ann": { "loadBalancerIPs": "1.2.3.1" } }),
            "",
            vec![failed("s", "service can not have both metallb.io/loadBalancerIPs and svc.Spec.LoadBalancerIP")],
        ),
        (
            "C7 field",
            plain,
            json!({ "loadBalancerIP": "please" }),
            "",
            vec![failed("s", r#"invalid spec.loadBalancerIP "please""#)],
        ),
        (
            "C7 annotation",
            plain,
            json!({ "ann": { "loadBalancerIPs": "please" } }),
            "",
            vec![failed("s", r#"invalid metallb.io/loadBalancerIPs: "please""#)],
        ),
        (
            "C8",
            plain,
            json!({ "ann": { "loadBalancerIPs": "1.2.3.1", "address-pool": "p2" } }),
            "",
            vec![failed(
"s",                 r#"requested loadBalancer IP(s) ["1.2.3.1"] is not compatible with requested address pool p2"#,
            )],
        ),
        (
            "C9",
            plain,
            json!({ "ann": { "loadBalancerIPs": "1.2.3.1,1.2.3.2" } }),
            "",
            vec![failed("s", r#"IPFamilyForAddresses: same address family ["1.2.3.1" "1.2.3.2"]"#)],
        ),
        ("C11", plain, json!({ "ann": { "address-pool": "p1" } }), "1.2.3.0", vec![assigned("s", "1.2.3.0")]),
        (
            "C13",
            plain,
            json!({ "ann": { "address-pool": "does-not-exist" } }),
            "",
            vec![failed("s", r#"unknown pool "does-not-exist""#)],
        ),
        (
            "C17",
            plain,
            json!({ "loadBalancerIP": "3.4.5.6", "externalTrafficPolicy": "Local" }),
            "3.4.5.6",
            vec![assigned("s", "3.4.5.6")],
        ),
        ("C18", plain, json!({ "clusterIP": null, "clusterIPs": null }), "", vec![]),
        (
            "C19 field",
            plain,
            json!({ "v6": true, "loadBalancerIP": "1.2.3.0" }),
            "",
            vec![failed(
"s",                 r#"requested loadBalancer IP(s) ["1.2.3.0"] does not match the ipFamily of the service"#,
            )],
        ),
        (
            "C19 annotation",
            plain,
            json!({ "ann": { "loadBalancerIPs": "1000::" } }),
            "",
            vec![failed(
"s",                 r#"requested loadBalancer IP(s) ["1000::"] does not match the ipFamily of the service"#,
            )],
        ),
        ("C22", dual, json!({ "dual": true }), "1.2.3.0 1000::", vec![assigned("s", BOTH)]),
        (
            "C23",
            dual,
            json!({ "dual": true, "ann": { "address-pool": "p5" } }),
            "1.2.3.0 1000::",
            vec![assigned("s", BOTH)],
        ),
        ("C24", dual, json!({ "prefer": true }), "1.2.3.0 1000::", vec![assigned("s", BOTH)]),
        (
            "C24 named",
            dual,
            json!({ "prefer": true, "ann": { "address-pool": "p5" } }),
            "1.2.3.0 1000::",
            vec![assigned("s", BOTH)],
        ),
        ("C25", plain, one_cluster_ip.clone(), "1.2.3.0", vec![assigned("s", "1.2.3.0")]),
        (
            "C26",
            plain,
            json!({ "prefer": true, "ann": { "address-pool": "p2" } }),
            "3.4.5.6",
            vec![
                assigned("s", "3.4.5.6"),
                not_added("s", "no available IPs in pool p2 for ipv6 IPFamily"),
            ],
        ),
        (
            "C27",
            plain,
            json!({ "clusterIP": "fd00:96::1", "clusterIPs": ["fd00:96::1"], "ipFamilyPolicy": "PreferDualStack",
                    "ipFamilies": ["IPv6"] }),
            "1000::",
            vec![assigned("s", "1000::")],
        ),
        ("C28", dual, one_cluster_ip, "1.2.3.0", vec![assigned("s", "1.2.3.0")]),
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
"s",                 r#"requested loadBalancer IP(s) ["1.2.3.0"] does not match the ipFamily of the service"#,
            )],
        ),
        (
            "C31",
            dual,
            json!({ "dual": true, "ann": { "loadBalancerIPs": "1.2.3.0,1000::" } }),
            "1.2.3.0 1000::",
            vec![assigned("s", BOTH)],
        ),
        (
            "C32",
            dual,
            json!({ "dual": true, "clusterIPs": ["fd00:96::1", "10.96.0.1"], "ipFamilies": ["IPv6", "IPv4"],
                    "st": [{ "hostname": "foo" }, "1000::"] }),
            "1.2.3.0 1000::",
            vec![assigned("s", BOTH)],
        ),
        (
            "C33",
            dual,
            json!({ "clusterIPs": null, "ann": { "loadBalancerIPs": "1.2.3.0,1000::" } }),
            "",
            vec![failed(
"s",                 r#"requested loadBalancer IP(s) ["1.2.3.0" "1000::"] does not match the ipFamily of the service"#,
            )],
        ),
        (
            "C46",
            dual,
            json!({ "dual": true, "ann": { "loadBalancerIPs": " 1000::1 , 1.2.3.1 " } }),
            "1000::1 1.2.3.1",
            vec![assigned("s", "1000::1 1.2.3.1")],
        ),
        (
            "C47",
            plain,
            json!({ "ann": { "loadBalancerIPs": "10.0.0.1," } }),
            "",
            vec![failed("s", r#"invalid metallb.io/loadBalancerIPs: "10.0.0.1,""#)],
        ),
        (
            "C51",
            plain,
            json!({ "dual": true, "ann": { "loadBalancerIPs": "1.2.3.0,1000::" } }),
            "",
            vec![failed("s", r#"["1.2.3.0" "1000::"] is not allowed in config"#)],
        ),
        (
            "4.4 outside every pool",
            plain,
            json!({ "loadBalancerIP": "9.9.9.9" }),
            "",
            vec![failed("s", r#"["9.9.9.9"] is not allowed in config"#)],
        ),
        (
            "S14",
            plain,
            json!({ "ann": { "address-pool": "p3" } }),
            "",
            vec![failed("s", "no available IPs in pool p3 for ipv4 IPFamily")],
        ),
        (
            "S23",
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
                cleared("s", r#"["2.3.4.5"] is not allowed in config"#),
                assigned("s", "1.2.3.0"),
            ],
        ),
        (
            "C15",
            plain,
            json!({ "st": [{ "hostname": "foo" }, "10.10.10.10"] }),
            "1.2.3.0",
            vec![
                cleared("s", r#"["10.10.10.10"] is not allowed in config"#),
                assigned("s", "1.2.3.0"),
            ],
        ),
        ("C20", plain, json!({ "st": ["1000::"] }), "1.2.3.0", vec![assigned("s", "1.2.3.0")]),
        ("C21", plain, json!({ "v6": true, "st": ["1.2.3.0"] }), "1000::", vec![assigned("s", "1000::")]),
        (
            "C38",
            plain,
            json!({ "st": ["1.2.3.0", "1.2.3.1", "1000::"] }),
            "1.2.3.0",
            vec![
                r#"s Warning nolbIPsIPFamily: Failed to retrieve LBIPs IPFamily for ["1.2.3.0" "1.2.3.1" "1000::"]: IPFamilyForAddresses: invalid ips length 3 ["1.2.3.0" "1.2.3.1" "1000::"]"#
                    .to_owned(),
                assigned("s", "1.2.3.0"),
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
                assigned("s", "1.2.3.0"),
            ],
        ),
        (
            "AL-13 two of one family",
            plain,
            json!({ "st": ["1.2.3.0", "1.2.3.1"] }),
            "1.2.3.0",
            vec![
                r#"s Warning nolbIPsIPFamily: Failed to retrieve LBIPs IPFamily for ["1.2.3.0" "1.2.3.1"]: IPFamilyForAddresses: same address family ["1.2.3.0" "1.2.3.1"]"#
                    .to_owned(),
                assigned("s", "1.2.3.0"),
            ],
        ),
        ("AL-2 held and legal", plain, json!({ "st": ["1.2.3.1"] }), "1.2.3.1", vec![]),
        ("C2", plain, json!({ "type": "ClusterIP" }), "", vec![]),
    ];
    for (id, is_dual, service, ips, told) in table {
        let pool = match ips.split('.').next().unwrap_or_default() {
            _ if is_dual => "p5",
            "3" => "p2",
            "1" => "p1",
            _ => "p3",
        };
        let holding = if ips.is_empty() { "s: none".to_owned() } else { format!("s: {ips} ({pool})") };
        let seen: Vec<String> = std::iter::once(holding).chain(told).collect();
        play(vec![
            row(id, "created")
                .pools(if is_dual { dual_pool() } else { plain_pools() })
                .then(svc("s", service), seen)
                .then(json!({ "touch": "s" }), NOTHING),
        ]);
    }
}

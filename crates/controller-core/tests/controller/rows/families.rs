// SPDX-License-Identifier: Apache-2.0
//! Two families: policies, pools of one family and of both, and API servers that know one only.

use serde_json::{Value, json};

use super::{
    NOTHING, added, assigned, cleared, delete, dual_pool, failed, not_added, play, play_single_stack, pool,
    row, svc,
};

fn both(name: &str, ip: &str, six: &str) -> Value {
    json!({ "name": name, "addresses": [format!("{ip}/31"), format!("{six}/127")] })
}

fn one(name: &str, block: &str) -> Value {
    json!({ "name": name, "addresses": [block] })
}

fn prefer(rest: Value) -> Value {
    let mut service = rest;
    service["prefer"] = json!(true);
    svc("s", service)
}

fn without_ipv6(pool: &str) -> String {
    not_added("s", &format!("no available IPs in pool {pool} for ipv6 IPFamily"))
}

fn policy(policy: &str) -> Value {
    svc("s", json!({ "ipFamilyPolicy": policy }))
}

#[test]
fn policies_and_pools() {
    let pinned = |pool: Value| {
        let mut pool = pool;
        pool["serviceAllocation"] = json!({ "namespaces": ["$ns"] });
        pool
    };
    let rather_v6 = json!({ "clusterIPs": ["fd00:96::1", "10.96.0.1"], "clusterIP": "fd00:96::1", "ipFamilies": ["IPv6", "IPv4"] });
    let s_has = |ips: &str, pool: &str| [format!("s: {ips} ({pool})"), assigned("s", ips)];
    play(vec![
        row("DS-1", "PreferDualStack on an IPv4 pool: IPv4")
            .pools(vec![one("p", "192.0.2.100/32")])
            .then(
                prefer(json!({})),
                ["s: 192.0.2.100 (p)".to_owned(), assigned("s", "192.0.2.100"), without_ipv6("p")],
            )
            .then(svc("s", json!({ "labels": { "a": "b" } })), NOTHING),
        row("DS-2", "the same by the pool's name")
            .pools(vec![one("p", "192.0.2.100/32")])
            .then(
                prefer(json!({ "ann": { "address-pool": "p" } })),
                ["s: 192.0.2.100 (p)".to_owned(), assigned("s", "192.0.2.100"), without_ipv6("p")],
            ),
        row("DS-2", "and on a pool of IPv6 only: IPv6")
            .pools(vec![one("p", "2001:db8:0:1::100/128")])
            .then(
                prefer(json!({ "ann": { "address-pool": "p" } })),
                [
                    "s: 2001:db8:0:1::100 (p)".to_owned(),
                    assigned("s", "2001:db8:0:1::100"),
                    not_added("s", "no available IPs in pool p for ipv4 IPFamily"),
                ],
            ),
        row("DS-3", "two pools by name: there is no pool of that name (a list is an option that does not exist yet)")
            .pools(vec![one("p4", "192.0.2.100/32"), one("p6", "2001:db8:0:1::100/128")])
            .then(
                svc("s", json!({ "dual": true, "ann": { "address-pool": "p4,p6" } })),
                ["s: none".to_owned(), failed("s", r#"unknown pool "p4,p6""#)],
            ),
        row("DS-5", "RequireDualStack with one cluster IP: told once, also when a pool comes and goes")
            .pools(dual_pool())
            .then(
                svc("s", json!({ "ipFamilyPolicy": "RequireDualStack" })),
                [
                    "s: none",
                    "s Warning not enough clusterips: Service requires dual stack but not enough clusterips [10.96.0.1]",
                ],
            )
            .then(svc("s", json!({ "labels": { "a": "b" } })), NOTHING)
            .then(json!({ "pool": one("q", "11.0.0.0/31") }), NOTHING),
        row("DS-6", "IPv4 stands first whatever `ipFamilies` says, also after a restart")
            .pools(dual_pool())
            .then(
                {
                    let mut service = rather_v6.clone();
                    service["ipFamilyPolicy"] = json!("RequireDualStack");
                    svc("s", service)
                },
                s_has("1.2.3.0 1000::", "p5"),
            )
            .then(json!({ "restart": {} }), NOTHING),
        row("DS-7", "one address of a pair is asked for: refused")
            .pools(dual_pool())
            .then(
                svc("s", json!({ "dual": true, "ann": { "loadBalancerIPs": "1.2.3.0" } })),
                [
                    "s: none".to_owned(),
                    failed(
                        "s",
                        r#"requested loadBalancer IP(s) ["1.2.3.0"] does not match the ipFamily of the service"#,
                    ),
                ],
            ),
        row("A23", "PreferDualStack and one cluster IP: one address of its family, whatever the pool has besides")
            .pools(dual_pool())
            .then(
                svc("s", json!({ "ipFamilyPolicy": "PreferDualStack" })),
                s_has("1.2.3.0", "p5"),
            )
            .then(json!({ "restart": {} }), NOTHING),
        row("A22", "pairs run out with the smaller family; a single one still fits")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/31", "1000::/128"] })])
            .then(svc("s", json!({ "dual": true })), s_has("10.0.0.0 1000::", "p"))
            .then(
                svc("t", json!({ "dual": true })),
                ["t: none".to_owned(), failed("t", "no available IPs")],
            )
            .then(
                svc("u", json!({ "dual": true, "ann": { "address-pool": "p" } })),
                ["u: none".to_owned(), failed("u", "no available IPs in pool p for dual IPFamily")],
            )
            .then(svc("v", json!({})), ["v: 10.0.0.1 (p)".to_owned(), assigned("v", "10.0.0.1")])
            .then(delete("s"), ["t: 10.0.0.0 1000:: (p)".to_owned(), assigned("t", "10.0.0.0 1000::")]),
        row("A33", "two cluster IPs without a policy cannot be served; no API server lets it pass")
            .pools(dual_pool())
            .then(
                svc("s", json!({ "clusterIPs": ["10.96.0.1", "fd00:96::1"] })),
                ["s: none".to_owned(), failed("s", "no available IPs")],
            ),
        row("A45", "PreferDualStack, one pool of each family: IPv4")
            .pools(vec![one("v4", "10.0.0.0/31"), one("a-v6", "1000::/127")])
            .then(
                prefer(json!({})),
                ["s: 10.0.0.0 (v4)".to_owned(), assigned("s", "10.0.0.0"), without_ipv6("v4")],
            ),
        row("A45", "unless IPv6 is its first family")
            .pools(vec![one("v4", "10.0.0.0/31"), one("v6", "1000::/127")])
            .then(
                {
                    let mut service = rather_v6;
                    service["ipFamilyPolicy"] = json!("PreferDualStack");
                    svc("s", service)
                },
                [
                    "s: 1000:: (v6)".to_owned(),
                    assigned("s", "1000::"),
                    not_added("s", "no available IPs in pool v6 for ipv4 IPFamily"),
                ],
            ),
        row("C57", "one address, then RequireDualStack on a pool of IPv4, and back: lost, and regained")
            .pools(vec![one("p", "10.0.0.0/31")])
            .then(
                prefer(json!({})),
                ["s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0"), without_ipv6("p")],
            )
            .then(policy("RequireDualStack"), ["s: none".to_owned(), failed("s", "no available IPs")])
            .then(
                policy("PreferDualStack"),
                ["s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0"), without_ipv6("p")],
            ),
        row("C59", "PreferDualStack, a pinned pool of IPv4, an open one of both: the pinned one")
            .pools(vec![pinned(one("p", "10.0.0.0/31")), both("q", "11.0.0.0", "1100::")])
            .then(
                prefer(json!({})),
                ["s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0"), without_ipv6("p")],
            ),
        row("C59", "between pinned pools the one of both families wins, whatever the priority")
            .pools(vec![
                json!({ "name": "p", "addresses": ["10.0.0.0/31"], "serviceAllocation": { "priority": 1 } }),
                json!({ "name": "q", "addresses": ["11.0.0.0/31", "1100::/127"], "serviceAllocation": { "priority": 9 } }),
            ])
            .then(prefer(json!({})), s_has("11.0.0.0 1100::", "q")),
        row("C60", "both of a dual pool, then RequireDualStack, SingleStack, RequireDualStack")
            .pools(dual_pool())
            .then(prefer(json!({})), s_has("1.2.3.0 1000::", "p5"))
            .then(policy("RequireDualStack"), NOTHING)
            .then(
                svc("s", json!({ "ipFamilyPolicy": "SingleStack", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"] })),
                s_has("1.2.3.0", "p5"),
            )
            .then(
                svc("s", json!({ "ipFamilyPolicy": "RequireDualStack", "clusterIPs": ["10.96.0.1", "fd00:96::1"],
                    "ipFamilies": ["IPv4", "IPv6"] })),
                // MetalLB gives up the held address and allocates both afresh.
                s_has("1.2.3.0 1000::", "p5"),
            ),
        row("S22", "from one address to RequireDualStack the held one stays (MetalLB: both afresh)")
            .pools(dual_pool())
            .then(svc("s", json!({ "loadBalancerIP": "1.2.3.1" })), s_has("1.2.3.1", "p5"))
            .then(svc("s", json!({ "loadBalancerIP": null })), NOTHING)
            .then(
                svc("s", json!({ "dual": true, "clusterIPs": ["10.96.0.1", "fd00:96::1"] })),
                ["s: 1.2.3.1 1000:: (p5)".to_owned(), assigned("s", "1.2.3.1 1000::")],
            ),
        row("S22", "one requested address and then PreferDualStack: it stays alone (MetalLB: gains one, loses both)")
            .pools(dual_pool())
            .then(svc("s", json!({ "loadBalancerIP": "1.2.3.1" })), s_has("1.2.3.1", "p5"))
            .then(
                svc("s", json!({ "prefer": true, "clusterIPs": ["10.96.0.1", "fd00:96::1"] })),
                NOTHING,
            ),
        row("S12", "a requested pair is published in the order asked for, once (MetalLB: in two orders in turn)")
            .pools(dual_pool())
            .then(
                svc("s", json!({ "dual": true, "ann": { "loadBalancerIPs": "1000::1,1.2.3.0" } })),
                ["s: 1000::1 1.2.3.0 (p5)".to_owned(), assigned("s", "1000::1 1.2.3.0")],
            )
            .then(svc("s", json!({ "labels": { "a": "b" } })), NOTHING)
            .then(svc("s", json!({ "ann": { "loadBalancerIPs": "1.2.3.0, 1000::1" } })), NOTHING),
        row("S12", "what is held is asked for, in the other order: nothing to write")
            .pools(dual_pool())
            .then(svc("s", json!({ "dual": true })), s_has("1.2.3.0 1000::", "p5"))
            .then(svc("s", json!({ "ann": { "loadBalancerIPs": "1000::,1.2.3.0" } })), NOTHING),
        row("S14", "a named pool has addresses, but none of the family (MetalLB: `[\"<nil>\"] is not allowed in config`)")
            .pools(dual_pool())
            .then_at_once(
                vec![pool("p5", &["1.2.3.0/31"]), pool("p6", &["1000::/127"])],
                NOTHING,
            )
            .then(
                svc("s", json!({ "ann": { "address-pool": "p6" } })),
                ["s: none".to_owned(), failed("s", "no available IPs in pool p6 for ipv4 IPFamily")],
            )
            .then(
                svc("t", json!({ "v6": true, "ann": { "address-pool": "p5" } })),
                ["t: none".to_owned(), failed("t", "no available IPs in pool p5 for ipv6 IPFamily")],
            ),
        row("A21", "a pool of the other family is asked for while an address is held: it is given up first")
            .pools(vec![one("p", "10.0.0.0/31"), one("p6", "1000::/127")])
            .then(svc("s", json!({})), s_has("10.0.0.0", "p"))
            .then(
                svc("s", json!({ "ann": { "address-pool": "p6" } })),
                ["s: none".to_owned(), failed("s", "no available IPs in pool p6 for ipv4 IPFamily")],
            ),
        row("C54", "the second family comes when somebody leaves it")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/31", "1000::/128"] })])
            .then(svc("six", json!({ "v6": true })), ["six: 1000:: (p)".to_owned(), assigned("six", "1000::")])
            .then(
                prefer(json!({})),
                ["s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0"), without_ipv6("p")],
            )
            .then(delete("six"), ["s: 10.0.0.0 1000:: (p)".to_owned(), added("s", "1000::")]),
        row("S23", "cluster IPs that cannot be read: the address is given up (MetalLB: listed, and perhaps another's)")
            .pools(vec![one("p", "10.0.0.0/32")])
            .then(svc("s", json!({})), s_has("10.0.0.0", "p"))
            .then(svc("t", json!({})), ["t: none".to_owned(), failed("t", "no available IPs")])
            .then(
                svc("s", json!({ "clusterIPs": ["x"] })),
                [
                    "s: none".to_owned(),
                    "t: 10.0.0.0 (p)".to_owned(),
                    r#"s Warning noclusterIPsIPFamily: Failed to retrieve ClusterIPs IPFamily for ["x"] 10.96.0.1: IPFamilyForAddresses: Invalid address ["x"]"#
                        .to_owned(),
                    assigned("t", "10.0.0.0"),
                ],
            ),
        row("AL-23", "two addresses of one family are asked for: refused (more than one is an option that does not exist)")
            .pools(vec![one("p", "192.0.2.100/30")])
            .then(
                svc("s", json!({ "ann": { "loadBalancerIPs": "192.0.2.100,192.0.2.101" } })),
                [
                    "s: none".to_owned(),
                    failed(
                        "s",
                        r#"IPFamilyForAddresses: same address family ["192.0.2.100" "192.0.2.101"]"#,
                    ),
                ],
            ),
        row("AL-9", "PreferDualStack, one cluster IP, an address; an unrelated Service goes: unchanged")
            .pools(vec![json!({ "name": "d", "addresses": ["192.0.2.100-192.0.2.103", "2001:db8:0:1::100/126"] })])
            .then(
                svc("s", json!({ "ipFamilyPolicy": "PreferDualStack", "clusterIPs": ["10.96.0.5"], "st": ["192.0.2.101"] })),
                ["s: 192.0.2.101 (d)"],
            )
            .then(svc("b", json!({})), ["b: 192.0.2.100 (d)".to_owned(), assigned("b", "192.0.2.100")])
            .then(delete("b"), NOTHING)
            .then(json!({ "relist": {} }), NOTHING),
        row("A14", "a pair of one pool; a pair of two")
            .pools(vec![both("p", "10.0.0.0", "1000::"), one("q", "1100::/127")])
            .then(
                svc("s", json!({ "dual": true, "ann": { "loadBalancerIPs": "10.0.0.1,1000::1" } })),
                s_has("10.0.0.1 1000::1", "p"),
            )
            .then(
                svc("s", json!({ "ann": { "loadBalancerIPs": "10.0.0.1,1100::1" } })),
                [
                    "s: none".to_owned(),
                    failed("s", r#"["10.0.0.1" "1100::1"] is not allowed in config"#),
                ],
            ),
        row("C56", "the pair's pool loses one family and no other pool has both: the preferred one")
            .pools(vec![both("p", "10.0.0.0", "1000::")])
            .then(prefer(json!({})), s_has("10.0.0.0 1000::", "p"))
            .then(
                pool("p", &["1000::/127"]),
                [
                    "s: 1000:: (p)".to_owned(),
                    cleared("s", r#"["10.0.0.0" "1000::"] is not allowed in config"#),
                    assigned("s", "1000::"),
                    not_added("s", "no available IPs in pool p for ipv4 IPFamily"),
                ],
            ),
    ]);
}

#[test]
fn an_api_server_that_knows_one_family() {
    // S1: there every PreferDualStack Service has one cluster IP. MetalLB gives it a second address, takes both, and
    // begins again, 187 times a second, for as long as the Service lives.
    play_single_stack(&[
        row("S1", "a pool of both families: one address, written once")
            .pools(dual_pool())
            .then(prefer(json!({})), ["s: 1.2.3.0 (p5)".to_owned(), assigned("s", "1.2.3.0")])
            .then(svc("s", json!({ "labels": { "a": "b" } })), NOTHING)
            .then(svc("t", json!({})), ["t: 1.2.3.1 (p5)".to_owned(), assigned("t", "1.2.3.1")])
            .then(delete("t"), NOTHING)
            .then(json!({ "relist": {} }), NOTHING)
            .then(json!({ "restart": {} }), NOTHING),
        row("S1", "a pool by name, of both families and of IPv4 only")
            .pools(vec![both("p5", "1.2.3.0", "1000::"), one("p4", "10.0.0.0/31")])
            .then(
                prefer(json!({ "ann": { "address-pool": "p5" } })),
                ["s: 1.2.3.0 (p5)".to_owned(), assigned("s", "1.2.3.0")],
            )
            .then(
                svc("s", json!({ "ann": { "address-pool": "p4" } })),
                ["s: 10.0.0.0 (p4)".to_owned(), assigned("s", "10.0.0.0")],
            ),
        row("S1", "its pool gains and loses IPv6")
            .pools(vec![one("p", "10.0.0.0/31")])
            .then(prefer(json!({})), ["s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0")])
            .then(pool("p", &["10.0.0.0/31", "1000::/127"]), NOTHING)
            .then(pool("p", &["10.0.0.0/31"]), NOTHING),
        row("S1", "a pool of IPv6 only serves nobody")
            .pools(vec![one("p", "1000::/127")])
            .then(prefer(json!({})), ["s: none".to_owned(), failed("s", "no available IPs")]),
        row("S1", "a requested address, and a shared one")
            .pools(dual_pool())
            .then(
                prefer(json!({ "ann": { "loadBalancerIPs": "1.2.3.1", "allow-shared-ip": "k" } })),
                ["s: 1.2.3.1 (p5)".to_owned(), assigned("s", "1.2.3.1")],
            )
            .then(
                svc("t", json!({ "prefer": true, "ports": [81], "ann": { "allow-shared-ip": "k", "loadBalancerIPs": "1.2.3.1" } })),
                ["t: 1.2.3.1 (p5)".to_owned(), assigned("t", "1.2.3.1")],
            ),
        row("S1", "two families are asked for by address")
            .pools(dual_pool())
            .then(
                prefer(json!({ "ann": { "loadBalancerIPs": "1.2.3.1,1000::1" } })),
                [
                    "s: none".to_owned(),
                    failed(
                        "s",
                        r#"requested loadBalancer IP(s) ["1.2.3.1" "1000::1"] does not match the ipFamily of the service"#,
                    ),
                ],
            ),
        row("S1", "a pinned pool of both families")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/31", "1000::/127"],
                "serviceAllocation": { "namespaces": ["$ns"] } })])
            .then(prefer(json!({})), ["s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0")]),
        row("S1", "a status of two families from former times")
            .pools(dual_pool())
            .then(
                prefer(json!({ "st": ["1.2.3.1", "1000::1"] })),
                ["s: 1.2.3.0 (p5)".to_owned(), assigned("s", "1.2.3.0")],
            ),
    ]);
}

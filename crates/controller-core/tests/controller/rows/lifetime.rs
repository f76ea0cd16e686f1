// SPDX-License-Identifier: Apache-2.0
//! What users reported about addresses: taken from their holders, never given, given to two, never given back.

use serde_json::{Value, json};

use super::{NOTHING, Row, assigned, cleared, delete, failed, play, pool, row, svc};

fn got(name: &str, ip: &str) -> [String; 2] {
    [format!("{name}: {ip} (p)"), assigned(name, ip)]
}

fn waits(name: &str) -> [String; 2] {
    [format!("{name}: none"), failed(name, "no available IPs")]
}

#[test]
fn an_address_that_is_held_stays_where_it_is() {
    let restart_among = |about, holder: &str, pending: &str| {
        row("AL-1", about)
            .then(json!({ "stop": {} }), NOTHING)
            .then(pool("p", &["192.0.2.100/32"]), NOTHING)
            .then(svc(pending, json!({})), [format!("{pending}: none")])
            .then(svc(holder, json!({ "st": ["192.0.2.100"] })), [format!("{holder}: 192.0.2.100")])
            .then(
                json!({ "start": {} }),
                [format!("{holder}: 192.0.2.100 (p)"), failed(pending, "no available IPs")],
            )
            .then(json!({ "restart": {} }), [failed(pending, "no available IPs")])
    };
    play(vec![
        restart_among("the controller starts among a holder and an older one that waits", "b", "a-pending"),
        restart_among("the same with the names the other way round", "a", "b-pending"),
        row("AL-17", "avoidBuggyIPs is switched on while .0 is held: kept (MetalLB: taken away)")
            .then(pool("p", &["192.0.2.0/30"]), NOTHING)
            .then(svc("a", json!({ "loadBalancerIP": "192.0.2.0" })), got("a", "192.0.2.0"))
            .then(
                json!({ "pool": { "name": "p", "addresses": ["192.0.2.0/30"], "avoidBuggyIPs": true } }),
                NOTHING,
            )
            .then(json!({ "restart": {} }), NOTHING)
            .then(svc("b", json!({})), got("b", "192.0.2.1"))
            .then(
                svc("c", json!({ "loadBalancerIP": "192.0.2.0" })),
                ["c: none".to_owned(), failed("c", r#"["192.0.2.0"] is not allowed in config"#)],
            ),
        row("AL-25", "an IPv6 address is asked for first: one order, written once")
            .then(pool("p", &["192.0.2.100/30", "2001:db8:0:1::100/120"]), NOTHING)
            .then(
                svc("a", json!({ "dual": true, "clusterIPs": ["fd00:96::1", "10.96.0.1"], "ipFamilies": ["IPv6", "IPv4"],
                    "ann": { "loadBalancerIPs": "2001:db8:0:1::102,192.0.2.100" } })),
                got("a", "2001:db8:0:1::102 192.0.2.100"),
            )
            .then(json!({ "touch": "a" }), NOTHING),
        row("AL-14", "another controller's host name beside the address is wiped, the address stays (as MetalLB, S35)")
            .then(pool("p", &["192.0.2.100/30"]), NOTHING)
            .then(svc("a", json!({})), got("a", "192.0.2.100"))
            .then(
                json!({ "status": { "svc": "a", "ingress": ["192.0.2.100", { "hostname": "a.example.net" }] } }),
                NOTHING,
            ),
        row("2.1", "pool and address requests that go away take nothing along")
            .then(pool("p", &["192.0.2.100/30"]), NOTHING)
            .then(
                svc("a", json!({ "ann": { "address-pool": "p", "loadBalancerIPs": "192.0.2.102" } })),
                got("a", "192.0.2.102"),
            )
            .then(svc("a", json!({ "ann": { "address-pool": null } })), NOTHING)
            .then(svc("a", json!({ "ann": { "loadBalancerIPs": null } })), NOTHING)
            .then(
                json!({ "pool": { "name": "p", "addresses": ["192.0.2.100/30"], "autoAssign": false } }),
                NOTHING,
            ),
        row("2.1", "blanks around requested addresses, capital letters, a mapped address")
            .then(pool("p", &["10.0.0.0/30", "fd00::/120"]), NOTHING)
            .then(svc("a", json!({ "ann": { "loadBalancerIPs": "  10.0.0.2 " } })), got("a", "10.0.0.2"))
            .then(svc("b", json!({ "v6": true, "ann": { "loadBalancerIPs": "FD00:0::B" } })), got("b", "fd00::b"))
            .then(svc("c", json!({ "ann": { "loadBalancerIPs": "::ffff:10.0.0.3" } })), got("c", "10.0.0.3")),
    ]);
}

#[test]
fn an_address_moves_when_it_has_to() {
    let remove = |name: &str| json!({ "delete": { "pool": name } });
    play(vec![
        row("AL-3", "the pool is full, a Service goes: the one that waits is served")
            .then(pool("p", &["192.0.2.100/32"]), NOTHING)
            .then(svc("a", json!({})), got("a", "192.0.2.100"))
            .then(svc("b", json!({})), waits("b"))
            .then(delete("a"), got("b", "192.0.2.100")),
        row("AL-10", "the pool goes, another remains: moved, with an event (as MetalLB)")
            .then(pool("p", &["192.0.2.100/32"]), NOTHING)
            .then(svc("a", json!({})), got("a", "192.0.2.100"))
            .then(pool("q", &["192.0.2.110/32"]), NOTHING)
            .then(
                remove("p"),
                [
                    "a: 192.0.2.110 (q)".to_owned(),
                    cleared("a", r#"["192.0.2.100"] is not allowed in config"#),
                    assigned("a", "192.0.2.110"),
                ],
            ),
        row("AL-10", "gone and made again under its name in between: nothing is inherited")
            .then(pool("p", &["192.0.2.100/32"]), NOTHING)
            .then(svc("a", json!({})), got("a", "192.0.2.100"))
            .then(pool("q", &["192.0.2.110/32"]), NOTHING)
            .then_at_once(
                vec![delete("a"), remove("p"), svc("a", json!({}))],
                ["a: 192.0.2.110 (q)".to_owned(), assigned("a", "192.0.2.110")],
            ),
        row("S28", "a pool edit that takes addresses in use is accepted, and they move at once")
            .then(pool("p", &["192.0.2.100/30"]), NOTHING)
            .then(svc("a", json!({})), got("a", "192.0.2.100"))
            .then(
                pool("p", &["192.0.2.104/30"]),
                [
                    "a: 192.0.2.104 (p)".to_owned(),
                    cleared("a", r#"["192.0.2.100"] is not allowed in config"#),
                    assigned("a", "192.0.2.104"),
                ],
            ),
        row("AL-18", "pool and request change in one burst")
            .then(pool("p", &["192.0.2.100/30"]), NOTHING)
            .then(svc("a", json!({ "loadBalancerIP": "192.0.2.100" })), got("a", "192.0.2.100"))
            .then_at_once(
                vec![pool("p", &["192.0.2.104/30"]), svc("a", json!({ "loadBalancerIP": "192.0.2.105" }))],
                [
                    "a: 192.0.2.105 (p)".to_owned(),
                    cleared("a", r#"["192.0.2.100"] is not allowed in config"#),
                    assigned("a", "192.0.2.105"),
                ],
            ),
        row("AL-19", "another address is asked for: given up and taken in one write")
            .then(pool("p", &["192.0.2.100/30"]), NOTHING)
            .then(svc("a", json!({ "loadBalancerIP": "192.0.2.100" })), got("a", "192.0.2.100"))
            .then(svc("a", json!({ "loadBalancerIP": "192.0.2.103" })), got("a", "192.0.2.103"))
            .then(svc("b", json!({ "loadBalancerIP": "192.0.2.100" })), got("b", "192.0.2.100")),
        row("AL-27", "a delegated prefix changes: moved to the new one (its host part kept is an option that does not exist)")
            .then(pool("p", &["2001:db8:0:1::/120"]), NOTHING)
            .then(
                svc("a", json!({ "v6": true, "ann": { "loadBalancerIPs": "2001:db8:0:1::1" } })),
                got("a", "2001:db8:0:1::1"),
            )
            .then(svc("a", json!({ "ann": { "loadBalancerIPs": null } })), NOTHING)
            .then(
                pool("p", &["2001:db8:0:9::/120"]),
                [
                    "a: 2001:db8:0:9:: (p)".to_owned(),
                    cleared("a", r#"["2001:db8:0:1::1"] is not allowed in config"#),
                    assigned("a", "2001:db8:0:9::"),
                ],
            ),
        nonsense(
            "three addresses",
            &json!(["192.0.2.100", "192.0.2.101", "192.0.2.102"]),
            r#"["192.0.2.100" "192.0.2.101" "192.0.2.102"]: IPFamilyForAddresses: invalid ips length 3 ["192.0.2.100" "192.0.2.101" "192.0.2.102"]"#,
        ),
        nonsense(
            "no address",
            &json!(["192.0.2.300"]),
            r#"["<nil>"]: IPFamilyForAddresses: Invalid address ["<nil>"]"#,
        ),
        nonsense(
            "two of one family",
            &json!(["192.0.2.100", "192.0.2.101"]),
            r#"["192.0.2.100" "192.0.2.101"]: IPFamilyForAddresses: same address family ["192.0.2.100" "192.0.2.101"]"#,
        ),
    ]);
}

/// AL-13: nonsense in the status is told, wiped and replaced.
fn nonsense(about: &'static str, status: &Value, told: &str) -> Row {
    row("AL-13", about).then(pool("p", &["192.0.2.100/30"]), NOTHING).then(
        svc("a", json!({ "st": status })),
        [
            "a: 192.0.2.100 (p)".to_owned(),
            format!("a Warning nolbIPsIPFamily: Failed to retrieve LBIPs IPFamily for {told}"),
            assigned("a", "192.0.2.100"),
        ],
    )
}

#[test]
fn an_address_is_asked_for() {
    let two_pools = || {
        vec![
            json!({ "name": "p", "addresses": ["192.0.2.100/32"] }),
            json!({ "name": "q", "addresses": ["192.0.2.101/32"] }),
        ]
    };
    play(vec![
        row("AL-5", "an address of another pool than the one asked for: refused, both named, nothing leaked")
            .pools(two_pools())
            .then(
                svc("a", json!({ "ann": { "address-pool": "p", "loadBalancerIPs": "192.0.2.101" } })),
                [
                    "a: none".to_owned(),
                    failed(
                        "a",
                        r#"requested loadBalancer IP(s) ["192.0.2.101"] is not compatible with requested address pool p"#,
                    ),
                ],
            )
            .then(
                svc("b", json!({ "ann": { "address-pool": "q" } })),
                ["b: 192.0.2.101 (q)".to_owned(), assigned("b", "192.0.2.101")],
            ),
        row("AL-6", "both ways of asking at once, though equal: refused, as MetalLB")
            .pools(two_pools())
            .then(
                svc("a", json!({ "loadBalancerIP": "192.0.2.100", "ann": { "loadBalancerIPs": "192.0.2.100" } })),
                [
                    "a: none".to_owned(),
                    failed("a", "service can not have both metallb.io/loadBalancerIPs and svc.Spec.LoadBalancerIP"),
                ],
            )
            .then(svc("a", json!({ "loadBalancerIP": null })), got("a", "192.0.2.100")),
        row("AL-11", "a pool without autoAssign: on request only")
            .pools(vec![json!({ "name": "p", "addresses": ["192.0.2.100/32"], "autoAssign": false })])
            .then(svc("a", json!({})), waits("a"))
            .then(svc("b", json!({ "ann": { "address-pool": "p" } })), got("b", "192.0.2.100")),
        row("AL-15", "blanks around the dash of a range")
            .pools(vec![json!({ "name": "p", "addresses": ["192.0.2.100 - 192.0.2.101"] })])
            .then(svc("a", json!({})), got("a", "192.0.2.100"))
            .then(svc("b", json!({})), got("b", "192.0.2.101"))
            .then(svc("c", json!({})), waits("c")),
        row("AL-21", "the pool asked for is full: the event names it")
            .pools(vec![json!({ "name": "p", "addresses": ["192.0.2.100/32"] })])
            .then(svc("a", json!({ "ann": { "address-pool": "p" } })), got("a", "192.0.2.100"))
            .then(
                svc("b", json!({ "ann": { "address-pool": "p" } })),
                ["b: none".to_owned(), failed("b", "no available IPs in pool p")],
            ),
        row("C47", "a trailing comma, an empty item, a third address")
            .pools(two_pools())
            .then(
                svc("a", json!({ "ann": { "loadBalancerIPs": "192.0.2.100," } })),
                ["a: none".to_owned(), failed("a", r#"invalid metallb.io/loadBalancerIPs: "192.0.2.100,""#)],
            )
            .then(
                svc("a", json!({ "ann": { "loadBalancerIPs": ",192.0.2.100" } })),
                [failed("a", r#"invalid metallb.io/loadBalancerIPs: ",192.0.2.100""#)],
            )
            .then(
                svc("a", json!({ "ann": { "loadBalancerIPs": "192.0.2.100,::1,::2" } })),
                [failed("a", r#"IPFamilyForAddresses: invalid ips length 3 ["192.0.2.100" "::1" "::2"]"#)],
            )
            .then(svc("a", json!({ "ann": { "loadBalancerIPs": "" } })), got("a", "192.0.2.100")),
    ]);
}

#[test]
fn al_22_k5_classes_are_matched_exactly() {
    // AL-22 and K5: the whole table of the contract, with both settings of the flag.
    use crate::cluster::Cluster;
    for (flag, class, served) in [
        ("", None, true),
        ("", Some("x"), false),
        ("x", None, false),
        ("x", Some("y"), false),
        ("x", Some("x"), true),
    ] {
        let mut cluster = Cluster::of_class(flag);
        cluster.pool(json!({ "name": "p", "addresses": ["192.0.2.100/32"] }));
        cluster.service(json!({ "name": "a", "loadBalancerClass": class, "st": ["9.9.9.9"] }));
        cluster.quiet();
        let expected = if served { "192.0.2.100" } else { "9.9.9.9" };
        assert_eq!(cluster.ips("a"), expected, "--lb-class={flag}, loadBalancerClass {class:?}");
        assert_eq!(cluster.service_writes().len(), usize::from(served), "an ignored Service is not touched");
        assert_eq!(cluster.told().len(), if served { 2 } else { 0 });
        cluster.delete_service("a");
        cluster.quiet();
        assert_eq!(cluster.counters["p"].ipv4.in_use, 0, "whatever its class, what it held is free");
    }
}

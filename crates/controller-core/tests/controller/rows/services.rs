// SPDX-License-Identifier: Apache-2.0
//! One Service and what becomes of it.

use serde_json::json;

use super::{
    NOTHING, assigned, cleared, delete, deprecated, dual_pool, failed, plain_pools, play, pool, row, svc,
};

#[test]
fn services_that_change() {
    let old_pool = "metallb.universe.tf/address-pool";
    let old_share = "metallb.universe.tf/allow-shared-ip";
    play(vec![
        row("C1", "a Service that held nothing goes")
            .pools(plain_pools())
            .then(svc("s", json!({ "type": "ClusterIP" })), ["s: none"])
            .then(delete("s"), NOTHING),
        row("C2", "no load balancer, no status")
            .pools(plain_pools())
            .then(svc("s", json!({ "type": "ClusterIP" })), ["s: none"])
            .then(svc("s", json!({ "labels": { "a": "b" } })), NOTHING),
        row("C10", "an address outside all pools is asked for while one is held")
            .pools(plain_pools())
            .then(
                svc("s", json!({ "ann": { "loadBalancerIPs": "1.2.3.1" } })),
                ["s: 1.2.3.1 (p1)".to_owned(), assigned("s", "1.2.3.1")],
            )
            .then(
                svc("s", json!({ "ann": { "loadBalancerIPs": "9.9.9.9" } })),
                ["s: none".to_owned(), failed("s", r#"["9.9.9.9"] is not allowed in config"#)],
            ),
        row("C12", "a manual pool is asked for while an address is held; the request goes")
            .pools(plain_pools())
            .then(svc("s", json!({})), ["s: 1.2.3.0 (p1)".to_owned(), assigned("s", "1.2.3.0")])
            .then(
                svc("s", json!({ "ann": { "address-pool": "p2" } })),
                ["s: 3.4.5.6 (p2)".to_owned(), assigned("s", "3.4.5.6")],
            )
            .then(svc("s", json!({ "ann": { "address-pool": null } })), NOTHING),
        row("C12", "the pool asked for is unknown, or full: what is held is given up first")
            .pools(plain_pools())
            .then(
                svc("t", json!({ "ann": { "address-pool": "p2" } })),
                ["t: 3.4.5.6 (p2)".to_owned(), assigned("t", "3.4.5.6")],
            )
            .then(svc("s", json!({})), ["s: 1.2.3.0 (p1)".to_owned(), assigned("s", "1.2.3.0")])
            .then(
                svc("s", json!({ "ann": { "address-pool": "p9" } })),
                ["s: none".to_owned(), failed("s", r#"unknown pool "p9""#)],
            )
            .then(
                svc("s", json!({ "ann": { "address-pool": "p2" } })),
                [failed("s", "no available IPs in pool p2")],
            ),
        row("C16", "from LoadBalancer to NodePort and back: silent, and others are served from what is free")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/32"] })])
            .then(svc("s", json!({})), ["s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0")])
            .then(svc("t", json!({})), ["t: none".to_owned(), failed("t", "no available IPs")])
            .then(
                svc("s", json!({ "type": "NodePort" })),
                ["s: none".to_owned(), "t: 10.0.0.0 (p)".to_owned(), assigned("t", "10.0.0.0")],
            )
            .then(svc("s", json!({ "type": "LoadBalancer" })), [failed("s", "no available IPs")]),
        row("C18", "the cluster IPs go: cleared without a word, given back with them")
            .pools(plain_pools())
            .then(svc("s", json!({})), ["s: 1.2.3.0 (p1)".to_owned(), assigned("s", "1.2.3.0")])
            .then(svc("s", json!({ "clusterIP": null, "clusterIPs": null })), ["s: none"])
            .then(
                svc("s", json!({ "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"] })),
                ["s: 1.2.3.0 (p1)".to_owned(), assigned("s", "1.2.3.0")],
            ),
        row("C33", "only `clusterIP` is set, and two addresses are asked for")
            .pools(dual_pool())
            .then(
                svc("s", json!({ "clusterIPs": null, "ann": { "loadBalancerIPs": "1.2.3.0,1000::" } })),
                [
                    "s: none".to_owned(),
                    failed(
                        "s",
                        r#"requested loadBalancer IP(s) ["1.2.3.0" "1000::"] does not match the ipFamily of the service"#,
                    ),
                ],
            ),
        row("C42", "a pool of one address: the second waits, and gets it when the first goes")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/32"] })])
            .then(svc("a", json!({})), ["a: 10.0.0.0 (p)".to_owned(), assigned("a", "10.0.0.0")])
            .then(svc("b", json!({})), ["b: none".to_owned(), failed("b", "no available IPs")])
            .then(delete("a"), ["b: 10.0.0.0 (p)".to_owned(), assigned("b", "10.0.0.0")]),
        row("C48", "a request that cannot be read while an address is held: kept, told once (MetalLB: at each pass)")
            .pools(plain_pools())
            .then(svc("s", json!({})), ["s: 1.2.3.0 (p1)".to_owned(), assigned("s", "1.2.3.0")])
            .then(
                svc("s", json!({ "ann": { "loadBalancerIPs": "1.2.3.0," } })),
                [
                    r#"s Warning LoadBalancerFailed: invalid requested loadbalancer IPs: invalid metallb.io/loadBalancerIPs: "1.2.3.0,""#,
                ],
            )
            .then(svc("s", json!({ "labels": { "a": "b" } })), NOTHING)
            .then(
                svc("s", json!({ "ann": { "loadBalancerIPs": "1.2.3.1" }, "loadBalancerIP": "1.2.3.1" })),
                [
                    "s Warning LoadBalancerFailed: invalid requested loadbalancer IPs: \
                     service can not have both metallb.io/loadBalancerIPs and svc.Spec.LoadBalancerIP",
                ],
            )
            .then(
                svc("s", json!({ "loadBalancerIP": null })),
                ["s: 1.2.3.1 (p1)".to_owned(), assigned("s", "1.2.3.1")],
            ),
        row("C49", "the new pool annotation is empty, the deprecated one set: no request, an objection")
            .pools(plain_pools())
            .then(
                svc("s", json!({ "ann": { "address-pool": "", old_pool: "p2" } })),
                ["s: 1.2.3.0 (p1)".to_owned(), assigned("s", "1.2.3.0"), deprecated("s", old_pool)],
            )
            .then(
                svc("s", json!({ "ann": { "address-pool": null } })),
                ["s: 3.4.5.6 (p2)".to_owned(), assigned("s", "3.4.5.6")],
            ),
        row("C50", "a Service with a sharing key: served, and whoever could join it is served too")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/32"] })])
            .then(svc("x", json!({})), ["x: 10.0.0.0 (p)".to_owned(), assigned("x", "10.0.0.0")])
            .then(
                svc("b", json!({ "ann": { "allow-shared-ip": "k" }, "ports": [81] })),
                ["b: none".to_owned(), failed("b", "no available IPs")],
            )
            .then(
                svc("x", json!({ "ann": { "allow-shared-ip": "k" } })),
                ["b: 10.0.0.0 (p)".to_owned(), assigned("b", "10.0.0.0")],
            ),
        row("C51", "two addresses of two pools are asked for").pools(plain_pools()).then(
            svc("s", json!({ "dual": true, "ann": { "loadBalancerIPs": "1.2.3.0,1000::" } })),
            ["s: none".to_owned(), failed("s", r#"["1.2.3.0" "1000::"] is not allowed in config"#)],
        ),
        row("C52", "the address in the status belongs to a pool of another namespace")
            .pools(vec![
                json!({ "name": "p", "addresses": ["10.0.0.0/31"], "serviceAllocation": { "namespaces": ["other"] } }),
            ])
            .then(
                svc("s", json!({ "st": ["10.0.0.0"] })),
                [
                    "s: none".to_owned(),
                    cleared("s", "pool p not compatible for ip assignment"),
                    failed("s", "no available IPs"),
                ],
            ),
        row("C58", "a pool by name that excludes the Service, until its labels match, and no longer")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/31"],
                "serviceAllocation": { "serviceSelectors": [{ "matchLabels": { "tier": "web" } }] } })])
            .then(
                svc("s", json!({ "ann": { "address-pool": "p" } })),
                ["s: none".to_owned(), failed("s", "pool p not compatible for ip assignment")],
            )
            .then(
                svc("s", json!({ "labels": { "tier": "web" } })),
                ["s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0")],
            )
            .then(
                svc("s", json!({ "labels": { "tier": "db" } })),
                [
                    "s: none".to_owned(),
                    cleared("s", "pool p not compatible for ip assignment"),
                    failed("s", "pool p not compatible for ip assignment"),
                ],
            ),
        row("C58", "the same by namespace")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/31"],
                "serviceAllocation": { "namespaceSelectors": [{ "matchLabels": { "team": "a" } }] } })])
            .then(
                svc("s", json!({ "ann": { "address-pool": "p" } })),
                ["s: none".to_owned(), failed("s", "pool p not compatible for ip assignment")],
            )
            .then(
                json!({ "ns": { "name": "$ns", "labels": { "team": "a" } } }),
                ["s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0")],
            )
            .then(
                json!({ "ns": { "name": "$ns", "labels": {} } }),
                [
                    "s: none".to_owned(),
                    cleared("s", "pool p not compatible for ip assignment"),
                    failed("s", "pool p not compatible for ip assignment"),
                ],
            ),
        row("C58", "its labels fit its pool no longer, and no other pool is there")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/31"],
                "serviceAllocation": { "serviceSelectors": [{ "matchLabels": { "tier": "web" } }] } })])
            .then(
                svc("s", json!({ "labels": { "tier": "web" } })),
                ["s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0")],
            )
            .then(
                svc("s", json!({ "labels": { "tier": "db" } })),
                [
                    "s: none".to_owned(),
                    cleared("s", "pool p not compatible for ip assignment"),
                    failed("s", "no available IPs"),
                ],
            ),
        row("C61", "an empty new annotation beside its deprecated twin counts: no sharing, and an objection")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/32"] })])
            .then(
                svc("a", json!({ "ann": { "allow-shared-ip": "k" } })),
                ["a: 10.0.0.0 (p)".to_owned(), assigned("a", "10.0.0.0")],
            )
            .then(
                svc("b", json!({ "ann": { "allow-shared-ip": "", old_share: "k" }, "ports": [81] })),
                // Nothing is written for a Service that waits, so there is no objection yet.
                ["b: none".to_owned(), failed("b", "no available IPs")],
            )
            .then(
                svc("b", json!({ "ann": { "allow-shared-ip": null } })),
                ["b: 10.0.0.0 (p)".to_owned(), assigned("b", "10.0.0.0"), deprecated("b", old_share)],
            ),
        row("C62", "Services that are older than the first pool: silent, then all served by rank")
            .then(svc("b", json!({})), ["b: none"])
            .then(svc("a", json!({})), ["a: none"])
            .then(svc("c", json!({})), ["c: none"])
            .then(
                pool("p", &["10.0.0.0/31"]),
                [
                    "a: 10.0.0.1 (p)".to_owned(),
                    "b: 10.0.0.0 (p)".to_owned(),
                    assigned("b", "10.0.0.0"),
                    assigned("a", "10.0.0.1"),
                    failed("c", "no available IPs"),
                ],
            ),
    ]);
}

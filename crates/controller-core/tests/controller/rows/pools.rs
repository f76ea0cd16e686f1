// SPDX-License-Identifier: Apache-2.0
//! Pools: which one is chosen, and what their changes do to those who hold an address.

use serde_json::{Value, json};

use super::{
    NOTHING, Row, added, assigned, cleared, delete, failed, not_added, plain_pools, play, pool, row, svc,
};

/// A pool of one address for these Services.
fn special(name: &str, ip: &str, allocation: Value) -> Value {
    json!({ "name": name, "addresses": [format!("{ip}/32")], "serviceAllocation": allocation })
}

fn by_namespace(name: &str, ip: &str, priority: Option<i64>) -> Value {
    let mut allocation = json!({ "namespaces": ["$ns"] });
    if let Some(priority) = priority {
        allocation["priority"] = json!(priority);
    }
    special(name, ip, allocation)
}

fn by_label(name: &str, ip: &str, priority: i64) -> Value {
    special(
        name,
        ip,
        json!({ "priority": priority, "serviceSelectors": [{ "matchLabels": { "tier": "web" } }] }),
    )
}

/// A row with one labelled Service, which gets this address.
fn chosen(id: &'static str, about: &'static str, pools: Vec<Value>, ip: &str, from: &str) -> Row {
    let pools = pools.into_iter().map(|pool| json!({ "pool": pool })).collect();
    row(id, about).then_at_once(pools, NOTHING).then(
        svc("s", json!({ "labels": { "tier": "web" } })),
        [format!("s: {ip} ({from})"), assigned("s", ip)],
    )
}

#[test]
fn which_pool_is_chosen() {
    let open = |name: &str, ip: &str| json!({ "name": name, "addresses": [format!("{ip}/32")] });
    play(vec![
        chosen(
            "C34",
            "pinned to the namespace, priorities 11 and 10",
            vec![by_namespace("a", "1.0.0.11", Some(11)), by_namespace("b", "1.0.0.10", Some(10))],
            "1.0.0.10",
            "b",
        ),
        chosen(
            "C35",
            "pinned without a priority, before an open one",
            vec![open("a", "1.0.0.1"), by_namespace("b", "1.0.0.2", None)],
            "1.0.0.2",
            "b",
        ),
        chosen(
            "C36",
            "pinned by label, priorities 9 and 8",
            vec![by_label("a", "1.0.0.9", 9), by_label("b", "1.0.0.8", 8)],
            "1.0.0.8",
            "b",
        ),
        chosen(
            "C37",
            "pinned either way, priorities 5, 8, 8, 9, 10, 11",
            vec![
                by_namespace("a", "1.0.0.8", Some(8)),
                by_label("b", "1.0.0.18", 8),
                by_label("c", "1.0.0.9", 9),
                by_namespace("d", "1.0.0.10", Some(10)),
                by_namespace("e", "1.0.0.11", Some(11)),
                by_label("f", "1.0.0.5", 5),
            ],
            "1.0.0.5",
            "f",
        ),
        chosen(
            "S13",
            "equal priorities: by name (MetalLB: at random)",
            vec![by_namespace("b", "1.0.0.2", Some(5)), by_label("a", "1.0.0.1", 5)],
            "1.0.0.1",
            "a",
        ),
        chosen(
            "S13",
            "open pools: by name (MetalLB: at random)",
            vec![open("z", "1.0.0.9"), open("b", "1.0.0.2"), open("c", "1.0.0.3")],
            "1.0.0.2",
            "b",
        ),
        chosen(
            "S13",
            "a negative priority ranks before a positive one",
            vec![by_namespace("a", "1.0.0.1", Some(1)), by_namespace("b", "1.0.0.2", Some(-1))],
            "1.0.0.2",
            "b",
        ),
        chosen(
            "A47",
            "priority 0 is last among the pinned",
            vec![by_namespace("a", "1.0.0.1", Some(0)), by_namespace("b", "1.0.0.2", Some(900))],
            "1.0.0.2",
            "b",
        ),
        chosen(
            "A47",
            "nothing but a priority",
            vec![open("a", "1.0.0.1"), special("z", "1.0.0.9", json!({ "priority": 50 }))],
            "1.0.0.9",
            "z",
        ),
        chosen(
            "A47",
            "an empty serviceAllocation",
            vec![open("a", "1.0.0.1"), special("z", "1.0.0.9", json!({}))],
            "1.0.0.9",
            "z",
        ),
        chosen(
            "AL-7",
            "nothing but a priority, and no other pool",
            vec![special("p", "192.0.2.100", json!({ "priority": 10 }))],
            "192.0.2.100",
            "p",
        ),
        chosen(
            "S5",
            "namespaceSelectors that match no namespace admit nobody (MetalLB: everybody)",
            vec![
                special("a", "1.0.0.1", json!({ "namespaces": ["elsewhere"] })),
                special("b", "1.0.0.2", json!({ "namespaceSelectors": [{ "matchLabels": { "no": "body" } }] })),
                special("c", "1.0.0.3", json!({ "namespaceSelectors": [{ "matchLabels": { "no": "body" } }],
                    "serviceSelectors": [{ "matchLabels": { "tier": "web" } }] })),
                open("z", "1.0.0.9"),
            ],
            "1.0.0.9",
            "z",
        ),
        row("A46", "the pinned pool is full, the open one is not")
            .pools(vec![by_namespace("z", "1.0.0.9", None), open("a", "1.0.0.1")])
            .then(svc("s", json!({})), ["s: 1.0.0.9 (z)".to_owned(), assigned("s", "1.0.0.9")])
            .then(svc("t", json!({})), ["t: 1.0.0.1 (a)".to_owned(), assigned("t", "1.0.0.1")])
            .then(svc("u", json!({})), ["u: none".to_owned(), failed("u", "no available IPs")]),
        row("A15", "pinned to a namespace: by name, by address, unasked, from within and from elsewhere")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/29"], "serviceAllocation": { "namespaces": ["other"] } })])
            .then(
                json!({ "svc": { "name": "s", "ns": "other" } }),
                ["other/s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0")],
            )
            .then(
                svc("named", json!({ "ann": { "address-pool": "p" } })),
                ["named: none".to_owned(), failed("named", "pool p not compatible for ip assignment")],
            )
            .then(
                svc("asked", json!({ "loadBalancerIP": "10.0.0.5" })),
                ["asked: none".to_owned(), failed("asked", "pool p not compatible for ip assignment")],
            )
            .then(svc("any", json!({})), ["any: none".to_owned(), failed("any", "no available IPs")]),
        row("A16", "pinned by label")
            .pools(vec![by_label("p", "10.0.0.0", 1)])
            .then(
                svc("s", json!({ "labels": { "tier": "db" } })),
                ["s: none".to_owned(), failed("s", "no available IPs")],
            )
            .then(
                svc("t", json!({ "labels": { "tier": "web" } })),
                ["t: 10.0.0.0 (p)".to_owned(), assigned("t", "10.0.0.0")],
            ),
        row("A17", "pinned by both: only who fits both")
            .pools(vec![json!({ "name": "p", "addresses": ["10.0.0.0/31"], "serviceAllocation": {
                "namespaces": ["other"], "serviceSelectors": [{ "matchLabels": { "tier": "web" } }] } })])
            .then(
                json!({ "svc": { "name": "both", "ns": "other", "labels": { "tier": "web" } } }),
                ["other/both: 10.0.0.0 (p)".to_owned(), assigned("both", "10.0.0.0")],
            )
            .then(
                json!({ "svc": { "name": "namespace", "ns": "other" } }),
                [
                    "other/namespace: none".to_owned(),
                    failed("namespace", "no available IPs").replace("demo/", "other/"),
                ],
            )
            .then(
                svc("label", json!({ "labels": { "tier": "web" } })),
                ["label: none".to_owned(), failed("label", "no available IPs")],
            ),
    ]);
}

#[test]
fn what_pools_do_to_those_who_hold_an_address() {
    let remove = |name: &str| json!({ "delete": { "pool": name } });
    let both = |name: &str, ip: &str, six: &str| json!({ "pool": { "name": name, "addresses": [format!("{ip}/31"), format!("{six}/127")] } });
    let holder = || ["s: 10.0.0.0 (p)".to_owned(), assigned("s", "10.0.0.0")];
    play(vec![
        row("C39", "before any pool: nothing is written, nothing told")
            .then(svc("s", json!({})), ["s: none"])
            .then(svc("s", json!({ "labels": { "a": "b" } })), NOTHING),
        row("C40", "the last pool goes: cleared without a word, and silent until there is one again")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(svc("s", json!({})), holder())
            .then(remove("p"), ["s: none"])
            .then(svc("s", json!({ "labels": { "a": "b" } })), NOTHING)
            .then(pool("p", &["10.0.0.0/30"]), holder()),
        row("C43", "a second pool changes nothing")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(svc("s", json!({})), holder())
            .then(pool("a", &["1.0.0.0/30"]), NOTHING),
        row("C44", "its own pool goes, another remains")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(svc("s", json!({})), holder())
            .then(pool("q", &["11.0.0.0/30"]), NOTHING)
            .then(
                remove("p"),
                [
                    "s: 11.0.0.0 (q)".to_owned(),
                    cleared("s", r#"["10.0.0.0"] is not allowed in config"#),
                    assigned("s", "11.0.0.0"),
                ],
            ),
        row("C45", "RequireDualStack before and after there is a pool")
            .then(svc("s", json!({ "dual": true })), ["s: none"])
            .then(
                both("p5", "1.2.3.0", "1000::"),
                ["s: 1.2.3.0 1000:: (p5)".to_owned(), assigned("s", "1.2.3.0 1000::")],
            ),
        row("C54", "PreferDualStack, and its own pool gains the other family")
            .then(pool("p", &["10.0.0.0/31"]), NOTHING)
            .then(
                svc("s", json!({ "prefer": true })),
                [
                    "s: 10.0.0.0 (p)".to_owned(),
                    assigned("s", "10.0.0.0"),
                    // MetalLB says `["10.0.0.0" "<nil>"] …`, on every pass.
                    not_added("s", "no available IPs in pool p for ipv6 IPFamily"),
                ],
            )
            .then(both("p", "10.0.0.0", "1000::"), ["s: 10.0.0.0 1000:: (p)".to_owned(), added("s", "1000::")]),
        row("C55", "PreferDualStack, and another pool has both")
            .then(pool("p", &["10.0.0.0/31"]), NOTHING)
            .then(
                svc("s", json!({ "prefer": true })),
                [
                    "s: 10.0.0.0 (p)".to_owned(),
                    assigned("s", "10.0.0.0"),
                    not_added("s", "no available IPs in pool p for ipv6 IPFamily"),
                ],
            )
            .then(both("q", "11.0.0.0", "1100::"), NOTHING),
        row("C56", "PreferDualStack with both; its pool loses IPv4, another pool has both")
            .then(both("p", "10.0.0.0", "1000::"), NOTHING)
            .then(
                svc("s", json!({ "prefer": true })),
                ["s: 10.0.0.0 1000:: (p)".to_owned(), assigned("s", "10.0.0.0 1000::")],
            )
            .then(both("q", "11.0.0.0", "1100::"), NOTHING)
            .then(
                pool("p", &["1000::/127"]),
                [
                    "s: 11.0.0.0 1100:: (q)".to_owned(),
                    cleared("s", r#"["10.0.0.0" "1000::"] is not allowed in config"#),
                    assigned("s", "11.0.0.0 1100::"),
                ],
            ),
        row("A27", "the pool is written anew, grows, and shrinks around what is held")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(svc("s", json!({})), holder())
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(pool("p", &["10.0.0.0/24", "11.0.0.0/24"]), NOTHING)
            .then(pool("p", &["10.0.0.0/32"]), NOTHING),
        row("A28", "the pool shrinks: only the one whose address is gone moves")
            .then(pool("p", &["10.0.0.0/31", "1000::/127"]), NOTHING)
            .then(svc("s", json!({})), holder())
            .then(svc("t", json!({})), ["t: 10.0.0.1 (p)".to_owned(), assigned("t", "10.0.0.1")])
            .then(svc("v", json!({ "v6": true })), ["v: 1000:: (p)".to_owned(), assigned("v", "1000::")])
            .then(
                pool("p", &["10.0.0.1/32", "11.0.0.0/32", "1000::/127"]),
                [
                    "s: 11.0.0.0 (p)".to_owned(),
                    cleared("s", r#"["10.0.0.0"] is not allowed in config"#),
                    assigned("s", "11.0.0.0"),
                ],
            ),
        row("A29", "the pool is renamed: the annotation follows, without a word")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(svc("s", json!({})), holder())
            .then_at_once(vec![remove("p"), pool("r", &["10.0.0.0/30"])], ["s: 10.0.0.0 (r)"]),
        row("A30", "the pool is split: each follows its block")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(svc("s", json!({})), holder())
            .then(svc("t", json!({})), ["t: 10.0.0.1 (p)".to_owned(), assigned("t", "10.0.0.1")])
            .then_at_once(
                vec![remove("p"), pool("low", &["10.0.0.0/32"]), pool("high", &["10.0.0.1/32"])],
                ["s: 10.0.0.0 (low)", "t: 10.0.0.1 (high)"],
            ),
        row("A30", "two families end up in two pools: both are given up")
            .then(both("p", "10.0.0.0", "1000::"), NOTHING)
            .then(
                svc("s", json!({ "dual": true })),
                ["s: 10.0.0.0 1000:: (p)".to_owned(), assigned("s", "10.0.0.0 1000::")],
            )
            .then_at_once(
                vec![pool("p", &["10.0.0.0/31"]), pool("six", &["1000::/127"])],
                [
                    "s: none".to_owned(),
                    cleared("s", r#"["10.0.0.0" "1000::"] is not allowed in config"#),
                    failed("s", "no available IPs"),
                ],
            ),
        row("A31", "avoidBuggyIPs is switched on: who holds such an address keeps it (MetalLB: loses it), nobody new gets it")
            .then(pool("p", &["10.0.0.0/31", "1000::/127"]), NOTHING)
            .then(svc("s", json!({})), holder())
            .then(svc("v", json!({ "v6": true })), ["v: 1000:: (p)".to_owned(), assigned("v", "1000::")])
            .then(
                json!({ "pool": { "name": "p", "addresses": ["10.0.0.0/31", "1000::/127"], "avoidBuggyIPs": true } }),
                NOTHING,
            )
            .then(svc("t", json!({})), ["t: 10.0.0.1 (p)".to_owned(), assigned("t", "10.0.0.1")])
            .then(delete("s"), NOTHING)
            .then(svc("u", json!({})), ["u: none".to_owned(), failed("u", "no available IPs")]),
        row("A32", "a pool without autoAssign serves only who asks for it, and keeps who holds")
            .pools(plain_pools())
            .then(
                svc("s", json!({ "ann": { "address-pool": "p2" } })),
                ["s: 3.4.5.6 (p2)".to_owned(), assigned("s", "3.4.5.6")],
            )
            .then(svc("a", json!({})), ["a: 1.2.3.0 (p1)".to_owned(), assigned("a", "1.2.3.0")])
            .then(svc("b", json!({})), ["b: 1.2.3.1 (p1)".to_owned(), assigned("b", "1.2.3.1")])
            .then(svc("c", json!({})), ["c: none".to_owned(), failed("c", "no available IPs")])
            .then(delete("s"), NOTHING)
            .then(svc("v", json!({ "v6": true })), ["v: 1000:: (p3)".to_owned(), assigned("v", "1000::")])
            .then(svc("w", json!({ "v6": true })), ["w: 1000::1 (p3)".to_owned(), assigned("w", "1000::1")])
            .then(svc("x", json!({ "v6": true })), ["x: none".to_owned(), failed("x", "no available IPs")])
            .then(
                json!({ "pool": { "name": "p1", "addresses": ["1.2.3.0/31"], "autoAssign": false } }),
                NOTHING,
            ),
    ]);
}

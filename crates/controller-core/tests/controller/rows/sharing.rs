// SPDX-License-Identifier: Apache-2.0
//! Services that share an address: with whom, until when, and what happens when one of them changes.

use serde_json::{Value, json};

use super::{NOTHING, assigned, cleared, delete, failed, play, pool, row, svc};

/// A Service with a sharing key and one TCP port, and the rest.
fn sharer(name: &str, key: &str, port: u16, rest: &Value) -> Value {
    let mut service = rest.clone();
    service["ann"] = json!({ "allow-shared-ip": key });
    service["ports"] = json!([port]);
    svc(name, service)
}

fn got(name: &str, ip: &str) -> [String; 2] {
    [format!("{name}: {ip} (p)"), assigned(name, ip)]
}

fn waits(name: &str) -> [String; 2] {
    [format!("{name}: none"), failed(name, "no available IPs")]
}

fn in_use(name: &str, users: &str) -> String {
    format!(r#"can't change sharing key for "demo/{name}", address also in use by {users}"#)
}

#[test]
fn with_whom_an_address_is_shared() {
    let local = json!({ "externalTrafficPolicy": "Local", "selector": { "app": "x" } });
    let bare_local = json!({ "externalTrafficPolicy": "Local", "selector": null });
    let plain = json!({});
    play(vec![
        row("A41", "one key, Cluster: a:80 and b:443 share the lowest address, c:80 takes the next")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(sharer("a", "k", 80, &plain), got("a", "10.0.0.0"))
            .then(sharer("b", "k", 443, &plain), got("b", "10.0.0.0"))
            .then(sharer("c", "k", 80, &plain), got("c", "10.0.0.1")),
        row("A42", "then a changes its key: it moves, b stays")
            .then(pool("p", &["10.0.0.0/30"]), NOTHING)
            .then(sharer("a", "k", 80, &plain), got("a", "10.0.0.0"))
            .then(sharer("b", "k", 443, &plain), got("b", "10.0.0.0"))
            .then(sharer("c", "k", 80, &plain), got("c", "10.0.0.1"))
            .then(
                svc("a", json!({ "ann": { "allow-shared-ip": "new" } })),
                [
                    "a: 10.0.0.2 (p)".to_owned(),
                    cleared("a", &in_use("a", "demo/b")),
                    assigned("a", "10.0.0.2"),
                ],
            ),
        row("A43", "Local and Cluster with one key do not share")
            .then(pool("p", &["10.0.0.0/31"]), NOTHING)
            .then(sharer("a", "k", 80, &local), got("a", "10.0.0.0"))
            .then(sharer("b", "k", 81, &plain), got("b", "10.0.0.1")),
        row("S30", "but a Local Service without a selector has no backend of its own, and shares with Cluster")
            .then(pool("p", &["10.0.0.0/31"]), NOTHING)
            .then(sharer("a", "k", 80, &bare_local), got("a", "10.0.0.0"))
            .then(sharer("b", "k", 81, &plain), got("b", "10.0.0.0")),
        row("SH-1", "protocols are ports of their own")
            .then(pool("p", &["10.0.0.0/31"]), NOTHING)
            .then(
                svc("t", json!({ "ann": { "allow-shared-ip": "dns" }, "ports": [{ "port": 53, "protocol": "TCP" }] })),
                got("t", "10.0.0.0"),
            )
            .then(
                svc("u", json!({ "ann": { "allow-shared-ip": "dns" }, "ports": [{ "port": 53, "protocol": "UDP" }] })),
                got("u", "10.0.0.0"),
            )
            .then(
                svc("v", json!({ "ann": { "allow-shared-ip": "dns" }, "ports": [{ "port": 53, "protocol": "UDP" }] })),
                got("v", "10.0.0.1"),
            ),
        row("SH-2", "a misspelt key shares nothing, and a warning names it (MetalLB: silence)")
            .then(pool("p", &["10.0.0.0/31"]), NOTHING)
            .then(
                svc("a", json!({ "ann": { "allow-shared": "k" } })),
                [
                    "a: 10.0.0.0 (p)".to_owned(),
                    assigned("a", "10.0.0.0"),
                    "a Warning unknownAnnotation: Service has annotation metallb.io/allow-shared, which means nothing; \
                     known are metallb.io/address-pool, metallb.io/loadBalancerIPs and metallb.io/allow-shared-ip"
                        .to_owned(),
                ],
            ),
        row("SH-10", "sharers that different advertisements select: the address is shared; who announces it is the speakers' to settle")
            .then(pool("p", &["192.0.2.100/30"]), NOTHING)
            .then(
                sharer("a", "k", 80, &json!({ "loadBalancerIP": "192.0.2.100", "labels": { "app": "a" } })),
                got("a", "192.0.2.100"),
            )
            .then(
                sharer("b", "k", 81, &json!({ "loadBalancerIP": "192.0.2.100", "labels": { "app": "b" } })),
                got("b", "192.0.2.100"),
            ),
        row("SH-11", "one of two families shares its IPv6 address with one of IPv6 only")
            .then(pool("p", &["192.0.2.100/30", "2001:db8:0:1::100/120"]), NOTHING)
            .then(
                svc("a", json!({ "dual": true, "ann": { "allow-shared-ip": "k", "loadBalancerIPs": "192.0.2.103,2001:db8:0:1::103" } })),
                got("a", "192.0.2.103 2001:db8:0:1::103"),
            )
            .then(
                svc("b", json!({ "v6": true, "ports": [81], "ann": { "allow-shared-ip": "k", "loadBalancerIPs": "2001:db8:0:1::103" } })),
                got("b", "2001:db8:0:1::103"),
            ),
        row("A7", "an address by request: the port is taken, the key is another, the backend is another")
            .then(pool("p", &["10.0.0.0/31"]), NOTHING)
            .then(sharer("a", "k", 80, &json!({ "loadBalancerIP": "10.0.0.1" })), got("a", "10.0.0.1"))
            .then(
                sharer("port", "k", 80, &json!({ "loadBalancerIP": "10.0.0.1" })),
                [
                    "port: none".to_owned(),
                    failed("port", r#"port TCP/80 is already in use on "10.0.0.1""#),
                ],
            )
            .then(
                sharer("key", "l", 81, &json!({ "loadBalancerIP": "10.0.0.1" })),
                ["key: none".to_owned(), failed("key", &in_use("key", "demo/a"))],
            )
            .then(
                svc("no-key", json!({ "loadBalancerIP": "10.0.0.1", "ports": [82] })),
                ["no-key: none".to_owned(), failed("no-key", &in_use("no-key", "demo/a"))],
            )
            .then(
                sharer("backend", "k", 83, &json!({ "loadBalancerIP": "10.0.0.1", "externalTrafficPolicy": "Local" })),
                ["backend: none".to_owned(), failed("backend", &in_use("backend", "demo/a"))],
            )
            .then(
                sharer("fits", "k", 84, &json!({ "loadBalancerIP": "10.0.0.1" })),
                got("fits", "10.0.0.1"),
            ),
    ]);
}

#[test]
fn what_becomes_of_sharers() {
    let plain = json!({});
    let of_x = json!({ "selector": { "app": "x" } });
    let policy = |name: &str, policy: &str| svc(name, json!({ "externalTrafficPolicy": policy }));
    play(vec![
        row("A6", "the sole user takes a key, another joins it")
            .then(pool("p", &["10.0.0.0/32"]), NOTHING)
            .then(svc("a", json!({})), got("a", "10.0.0.0"))
            .then(sharer("b", "k", 81, &plain), waits("b"))
            .then(svc("a", json!({ "ann": { "allow-shared-ip": "k" } })), got("b", "10.0.0.0")),
        row("A11", "a sharer changes its port to a free one, and the old one is free")
            .then(pool("p", &["10.0.0.0/32"]), NOTHING)
            .then(sharer("a", "k", 80, &plain), got("a", "10.0.0.0"))
            .then(sharer("b", "k", 81, &plain), got("b", "10.0.0.0"))
            .then(sharer("c", "k", 81, &plain), waits("c"))
            .then(svc("b", json!({ "ports": [82] })), got("c", "10.0.0.0")),
        row("A11", "a sharer adds a port that is taken: it moves; without it, it stays where it is")
            .then(pool("p", &["10.0.0.0/31"]), NOTHING)
            .then(sharer("a", "k", 80, &plain), got("a", "10.0.0.0"))
            .then(sharer("b", "k", 81, &plain), got("b", "10.0.0.0"))
            .then(
                svc("b", json!({ "ports": [81, 80] })),
                [
                    "b: 10.0.0.1 (p)".to_owned(),
                    cleared("b", r#"port TCP/80 is already in use on "10.0.0.0""#),
                    assigned("b", "10.0.0.1"),
                ],
            )
            .then(svc("b", json!({ "ports": [81] })), NOTHING),
        row("A12", "a sharer changes its backend: what it had goes to nobody else by mistake")
            .then(pool("p", &["10.0.0.0/32"]), NOTHING)
            .then(sharer("a", "k", 80, &of_x), got("a", "10.0.0.0"))
            .then(sharer("b", "k", 81, &of_x), got("b", "10.0.0.0"))
            .then(
                policy("b", "Local"),
                [
                    "b: none".to_owned(),
                    cleared("b", &in_use("b", "demo/a")),
                    failed("b", "no available IPs"),
                ],
            )
            .then(sharer("c", "k", 81, &of_x), got("c", "10.0.0.0")),
        row("A44", "one address, two Cluster sharers; policies and selectors part and meet")
            .then(pool("p", &["10.0.0.0/32"]), NOTHING)
            .then(sharer("a", "k", 80, &of_x), got("a", "10.0.0.0"))
            .then(sharer("b", "k", 81, &of_x), got("b", "10.0.0.0"))
            .then(
                policy("b", "Local"),
                [
                    "b: none".to_owned(),
                    cleared("b", &in_use("b", "demo/a")),
                    failed("b", "no available IPs"),
                ],
            )
            .then(policy("a", "Local"), got("b", "10.0.0.0"))
            .then(
                svc("b", json!({ "selector": { "app": "y" } })),
                [
                    "b: none".to_owned(),
                    cleared("b", &in_use("b", "demo/a")),
                    failed("b", "no available IPs"),
                ],
            )
            .then(svc("b", json!({ "selector": { "app": "x" } })), got("b", "10.0.0.0")),
        row("A48", "dual sharers on both addresses; a v4 and a v6 sharer take a port on either, a dual one waits for both")
            .then(pool("p", &["10.0.0.0/32", "1000::/128"]), NOTHING)
            .then(sharer("d1", "k", 80, &json!({ "dual": true })), got("d1", "10.0.0.0 1000::"))
            .then(sharer("d2", "k", 81, &json!({ "dual": true })), got("d2", "10.0.0.0 1000::"))
            .then(sharer("four", "k", 82, &plain), got("four", "10.0.0.0"))
            .then(sharer("six", "k", 82, &json!({ "v6": true })), got("six", "1000::"))
            .then(sharer("d3", "k", 82, &json!({ "dual": true })), waits("d3"))
            .then(delete("four"), NOTHING)
            .then(delete("six"), got("d3", "10.0.0.0 1000::")),
        row("A49", "a sole user drops its key; one with the old key has to wait; the user takes the key again")
            .then(pool("p", &["10.0.0.0/32"]), NOTHING)
            .then(sharer("a", "k", 80, &plain), got("a", "10.0.0.0"))
            .then(svc("a", json!({ "ann": { "allow-shared-ip": null } })), NOTHING)
            .then(sharer("b", "k", 81, &plain), waits("b"))
            .then(svc("a", json!({ "ann": { "allow-shared-ip": "k" } })), got("b", "10.0.0.0")),
        row("S29", "keys that read alike when they are written one after the other are not equal")
            .then(pool("p", &["10.0.0.0/32"]), NOTHING)
            .then(
                sharer("a", "2k", 80, &json!({ "externalTrafficPolicy": "Local", "selector": { "app": null, "x": "1" } })),
                got("a", "10.0.0.0"),
            )
            .then(
                sharer("b", "k", 81, &json!({ "externalTrafficPolicy": "Local", "selector": { "app": null, "x": "12" } })),
                waits("b"),
            )
            .then(
                svc("a", json!({ "ann": { "allow-shared-ip": "k" }, "selector": { "x": "12" } })),
                got("b", "10.0.0.0"),
            ),
        row("SH-3", "the first is Local, the second waits for the same address; the first becomes Cluster")
            .then(pool("p", &["192.0.2.100/32"]), NOTHING)
            .then(
                sharer("a", "k", 80, &json!({ "loadBalancerIP": "192.0.2.100", "externalTrafficPolicy": "Local" })),
                got("a", "192.0.2.100"),
            )
            .then(
                sharer("b", "k", 81, &json!({ "loadBalancerIP": "192.0.2.100" })),
                ["b: none".to_owned(), failed("b", &in_use("b", "demo/a"))],
            )
            .then(policy("a", "Cluster"), got("b", "192.0.2.100")),
        row("SH-5", "two who may not share list one address: the older keeps it (MetalLB: whoever comes first)")
            .then(json!({ "stop": {} }), NOTHING)
            .then(pool("p", &["10.0.0.0/31"]), NOTHING)
            .then(svc("z", json!({ "st": ["10.0.0.0"] })), ["z: 10.0.0.0"])
            .then(svc("b", json!({ "st": ["10.0.0.0"] })), ["b: 10.0.0.0"])
            .then(
                json!({ "start": {} }),
                [
                    "b: 10.0.0.1 (p)".to_owned(),
                    "z: 10.0.0.0 (p)".to_owned(),
                    cleared("b", &in_use("b", "demo/z")),
                    assigned("b", "10.0.0.1"),
                ],
            ),
        row("SH-7", "a port and a key are free exactly when their last user leaves")
            .then(pool("p", &["10.0.0.0/32"]), NOTHING)
            .then(sharer("a", "k", 80, &plain), got("a", "10.0.0.0"))
            .then(sharer("b", "k", 81, &plain), got("b", "10.0.0.0"))
            .then(delete("a"), NOTHING)
            .then(sharer("c", "k", 80, &plain), got("c", "10.0.0.0"))
            .then(
                svc("b", json!({ "ann": { "allow-shared-ip": null } })),
                [
                    "b: none".to_owned(),
                    cleared("b", &in_use("b", "demo/c")),
                    failed("b", "no available IPs"),
                ],
            )
            .then(delete("c"), got("b", "10.0.0.0"))
            .then(svc("d", json!({ "ports": [90] })), waits("d")),
    ]);
}

#[test]
fn three_of_whom_one_does_not_fit_agree_in_all_six_orders() {
    // SH-6: whoever is created first is served; the one that does not fit its address waits.
    let all = [
        ("a", json!({ "port": 514, "protocol": "UDP" }), "Cluster"),
        ("b", json!({ "port": 514, "protocol": "TCP" }), "Cluster"),
        ("c", json!({ "port": 515, "protocol": "UDP" }), "Local"),
    ];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut story = row("SH-6", "one key, the third Local").then(pool("p", &["10.0.0.0/32"]), NOTHING);
        let first_is_local = order[0] == 2;
        for (nth, n) in order.into_iter().enumerate() {
            let (name, port, policy) = &all[n];
            let service = svc(
                name,
                json!({ "ann": { "allow-shared-ip": "k" }, "ports": [port], "externalTrafficPolicy": policy }),
            );
            let served = nth == 0 || (*policy == "Cluster" && !first_is_local);
            story = story.then(service, if served { got(name, "10.0.0.0") } else { waits(name) });
        }
        play(vec![story]);
    }
}

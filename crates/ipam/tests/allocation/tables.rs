// SPDX-License-Identifier: Apache-2.0
//! MetalLB's allocator as a table.

use ferrolb_config::{Config, Pool};
use ferrolb_ipam::{Claim, IpFamilyPolicy, Outcome, PoolMark, Port, Protocol};

use crate::common::{
    allocator, claim, config, decide, dual, from_pool, holding, pinned, pool, sharing, v6, wants,
};

use IpFamilyPolicy::{PreferDualStack, RequireDualStack, SingleStack};

#[test]
fn a1_to_a13_two_services_on_one_address() {
    // A1 to A12, and A13: all of it for IPv6 as well.
    for (block, ip, family) in [
        ("1.2.3.0/24", "1.2.3.4", (|claim| claim) as fn(Claim) -> Claim),
        ("1000::/120", "1000::4", v6 as fn(Claim) -> Claim),
    ] {
        let one = |name: &str, key: &str, backend: &str, port: u16| {
            family(wants(sharing(claim(name), key, backend, port), &[ip]))
        };
        let in_use = |who: &str, users: &str| {
            format!(r#"can't change sharing key for "n/{who}", address also in use by {users}"#)
        };
        let port_in_use = |port: u16| format!("port TCP/{port} is already in use on \"{ip}\"");
        let mut a = allocator(vec![pool("p", &[block])]);
        let mut step = |claim: Claim, expected: &str, about: &str| {
            assert_eq!(decide(&mut a, &claim), expected, "{about} {block}");
        };
        step(one("s1", "", "", 80), ip, "A1 first");
        step(holding(one("s1", "", "", 80), &[ip.parse().unwrap()]), ip, "A1 again");
        step(one("s2", "", "", 80), &in_use("s2", "n/s1"), "A2");
        step(one("s2", "k", "", 81), &in_use("s2", "n/s1"), "A2 with a key of its own");
        step(holding(one("s1", "k", "b", 80), &[ip.parse().unwrap()]), ip, "A6 the sole user takes a key");
        step(one("s2", "k", "b", 80), &port_in_use(80), "A7");
        step(one("s2", "other", "b", 81), &in_use("s2", "n/s1"), "A8");
        step(one("s2", "k", "other", 81), &in_use("s2", "n/s1"), "A9");
        step(one("s2", "k", "b", 81), ip, "A10");
        let held = [ip.parse().unwrap()];
        step(holding(one("s2", "k", "b", 82), &held), ip, "A11 to a free port");
        step(one("s3", "k", "b", 81), ip, "A11 and the old one is free");
        step(one("s4", "x", "b", 83), &in_use("s4", "n/s1,n/s2,n/s3"), "all users are named");
        step(holding(one("s2", "x", "b", 82), &held), &in_use("s2", "n/s1,n/s3"), "A12");
        let mut a = allocator(vec![pool("p", &[block])]);
        assert_eq!(decide(&mut a, &one("s1", "", "", 80)), ip);
        assert!(a.release(&one("s1", "", "", 80).service));
        assert_eq!(decide(&mut a, &one("s2", "", "", 80)), ip, "A3");
    }
}

#[test]
fn protocols_are_ports_of_their_own() {
    // SH-1.
    let mut a = allocator(vec![pool("p", &["1.2.3.0/32"])]);
    let tcp = sharing(claim("t"), "dns", "", 53);
    let udp = Claim {
        ports: vec![Port { protocol: Protocol::Udp, number: 53 }],
        ..sharing(claim("u"), "dns", "", 53)
    };
    assert_eq!(decide(&mut a, &tcp), "1.2.3.0");
    assert_eq!(decide(&mut a, &udp), "1.2.3.0");
}

#[test]
fn buggy_addresses_are_not_handed_out() {
    let avoiding = |pool: Pool| Pool { avoid_buggy_ips: true, ..pool };
    let mut a = allocator(vec![avoiding(pool("p", &["1.2.3.0/24", "1000::/120"]))]);
    for ip in ["1.2.3.0", "1.2.3.255"] {
        let refusal = format!("[\"{ip}\"] is not allowed in config");
        assert_eq!(decide(&mut a, &wants(claim("s"), &[ip])), refusal, "A4");
    }
    assert_eq!(decide(&mut a, &wants(claim("s"), &["1.2.3.254"])), "1.2.3.254", "A4");
    assert_eq!(decide(&mut a, &v6(wants(claim("t"), &["1000::ff"]))), "1000::ff", "A5");

    let mut a = allocator(vec![
        pool("p", &["1.2.3.0/31", "1.2.3.254/31"]),
        avoiding(pool("q", &["1.2.4.0/31", "1.2.4.254/31"])),
    ]);
    let ips: Vec<String> = (0..7).map(|n| decide(&mut a, &claim(&format!("s{n}")))).collect();
    assert_eq!(
        ips,
        ["1.2.3.0", "1.2.3.1", "1.2.3.254", "1.2.3.255", "1.2.4.1", "1.2.4.254", "no available IPs"],
        "A26"
    );
}

#[test]
fn pools_admit_by_namespace_and_label() {
    // By label, and by both: A16 and A17 of the controller's rows.
    let restricted =
        |namespaces: &[&str]| allocator(vec![pinned(pool("p", &["1.2.3.0/31"]), namespaces, vec![], 0)]);
    let refusal = "pool p not compatible for ip assignment";
    for named in [wants(claim("s"), &["1.2.3.1"]), from_pool(claim("s"), "p")] {
        assert_eq!(decide(&mut restricted(&["m"]), &named), refusal, "A15");
        assert_ne!(decide(&mut restricted(&["m", "n"]), &named), refusal, "A15");
    }
    assert_eq!(decide(&mut restricted(&["m"]), &claim("s")), "no available IPs", "A15");

    let mut a = allocator(vec![pool("p", &["1.2.3.0/31"]), pool("q", &["1000::/127"])]);
    let both = wants(dual(claim("s"), RequireDualStack), &["1.2.3.0", "1000::"]);
    assert_eq!(decide(&mut a, &both), r#"["1.2.3.0" "1000::"] is not allowed in config"#, "A14");
    assert_eq!(decide(&mut a, &wants(claim("t"), &["1.2.3.0"])), "1.2.3.0", "A18: nothing leaked");
}

#[test]
fn what_is_refused_changes_nothing() {
    // A18: for every way to be refused, what others hold and every counter is as it was.
    let mut a = allocator(vec![
        pool("p", &["1.2.3.0/31", "1000::/127"]),
        pinned(pool("q", &["4.4.4.0/31"]), &["m"], vec![], 0),
    ]);
    decide(&mut a, &sharing(claim("x"), "k", "", 80));
    decide(&mut a, &dual(claim("y"), RequireDualStack));
    for (refused, why) in [
        (wants(claim("s"), &["9.9.9.9"]), r#"["9.9.9.9"] is not allowed in config"#),
        (wants(claim("s"), &["4.4.4.0"]), "pool q not compatible for ip assignment"),
        (
            wants(claim("s"), &["1000::"]),
            r#"requested loadBalancer IP(s) ["1000::"] does not match the ipFamily of the service"#,
        ),
        (
            wants(claim("s"), &["1.2.3.0"]),
            r#"can't change sharing key for "n/s", address also in use by n/x"#,
        ),
        (
            wants(sharing(claim("s"), "k", "", 80), &["1.2.3.0"]),
            r#"port TCP/80 is already in use on "1.2.3.0""#,
        ),
        (
            wants(dual(sharing(claim("s"), "k", "", 81), RequireDualStack), &["1.2.3.0", "1000::"]),
            r#"can't change sharing key for "n/s", address also in use by n/y"#,
        ),
        (
            from_pool(wants(sharing(claim("s"), "k", "", 81), &["1.2.3.0"]), "q"),
            r#"requested loadBalancer IP(s) ["1.2.3.0"] is not compatible with requested address pool q"#,
        ),
        (dual(claim("s"), RequireDualStack), "no available IPs"),
        (claim("s"), "no available IPs"),
    ] {
        let before = (a.counters("p"), a.counters("q"));
        let (x, y) = (a.allocation(&claim("x").service).cloned(), a.allocation(&claim("y").service).cloned());
        assert_eq!(decide(&mut a, &refused), why);
        assert_eq!((a.counters("p"), a.counters("q")), before, "{why}");
        assert_eq!(a.allocation(&claim("x").service).cloned(), x, "{why}");
        assert_eq!(a.allocation(&claim("y").service).cloned(), y, "{why}");
        assert_eq!(a.allocation(&claim("s").service), None, "{why}");
    }
}

#[test]
fn a_named_pool_until_it_is_full() {
    let mut a = allocator(vec![pool("p", &["1.2.3.0/30", "1000::/127"]), pool("spare", &["9.9.9.0/24"])]);
    let from = |name: &str| sharing(from_pool(claim(name), "p"), "k", "", 80);
    let ips: Vec<String> = (0..5).map(|n| decide(&mut a, &from(&format!("s{n}")))).collect();
    let full = "no available IPs in pool p for ipv4 IPFamily";
    assert_eq!(ips, ["1.2.3.0", "1.2.3.1", "1.2.3.2", "1.2.3.3", full], "A19");
    let neighbour = sharing(from_pool(claim("tls"), "p"), "k", "", 443);
    assert_eq!(decide(&mut a, &neighbour), "1.2.3.0", "A20: sharing lets one more in");
    a.release(&from("s1").service);
    assert_eq!(decide(&mut a, &from("s4")), "1.2.3.1", "A19: after a release");
    assert_eq!(decide(&mut a, &v6(from("a"))), "1000::");
    assert_eq!(decide(&mut a, &v6(from("b"))), "1000::1");
    assert_eq!(decide(&mut a, &v6(from("c"))), "no available IPs in pool p");
    assert_eq!(decide(&mut a, &from_pool(claim("x"), "none")), r#"unknown pool "none""#, "A24");
    let mut a = allocator(vec![pool("p", &["1.2.3.0/30"])]);
    assert_eq!(
        decide(&mut a, &from_pool(dual(claim("s"), RequireDualStack), "p")),
        "no available IPs in pool p for dual IPFamily",
        "A22"
    );
    let held = holding(claim("s"), &["1.2.3.0".parse().unwrap()]);
    assert_eq!(decide(&mut a, &held), "1.2.3.0");
    assert_eq!(
        decide(&mut a, &from_pool(v6(held), "p")),
        "no available IPs in pool p for ipv6 IPFamily",
        "A21"
    );
    assert_eq!(decide(&mut a, &dual(claim("s"), SingleStack)), "no available IPs", "A33");
}

#[test]
fn dual_stack_from_any_pool() {
    // A23, A45, C59; between pools the one with both families wins.
    let v4 = || pool("v4", &["1.2.3.0/31"]);
    let v6_only = || pool("six", &["1000::/127"]);
    let both = || pool("z", &["4.4.4.0/31", "4000::/128"]);
    let prefer = |name: &str| dual(claim(name), PreferDualStack);
    let rather_v6 = |name: &str| Claim { preferred_family: ferrolb_net_types::IpFamily::V6, ..prefer(name) };
    for (pools, claim, expected) in [
        (vec![v4(), v6_only()], prefer("s"), "1.2.3.0"),
        (vec![v4(), v6_only()], rather_v6("s"), "1000::"),
        (vec![v6_only()], prefer("s"), "1000::"),
        (vec![v4(), v6_only(), both()], prefer("s"), "4.4.4.0 4000::"),
        (vec![v4(), v6_only(), both()], rather_v6("s"), "4.4.4.0 4000::"),
        (vec![pinned(v4(), &["n"], vec![], 0), both()], prefer("s"), "1.2.3.0"),
        (
            vec![pinned(v4(), &["n"], vec![], 1), pinned(both(), &["n"], vec![], 9)],
            prefer("s"),
            "4.4.4.0 4000::",
        ),
        (vec![v4(), v6_only()], dual(claim("s"), RequireDualStack), "no available IPs"),
        (vec![v4()], v6(claim("s")), "no available IPs"),
    ] {
        let names: Vec<_> = pools.iter().map(|pool| pool.name.clone()).collect();
        assert_eq!(decide(&mut allocator(pools), &claim), expected, "{names:?}");
    }
    let mut a = allocator(vec![both()]);
    assert_eq!(decide(&mut a, &dual(claim("s"), RequireDualStack)), "4.4.4.0 4000::", "A22");
    assert_eq!(decide(&mut a, &dual(claim("t"), RequireDualStack)), "no available IPs", "A22");
    assert_eq!(decide(&mut a, &claim("u")), "4.4.4.1", "nothing leaked");
}

#[test]
fn pools_that_must_be_asked_for_and_pools_that_are_full() {
    // A32, A46.
    let by_hand = |pool: Pool| Pool { auto_assign: false, ..pool };
    let mut a = allocator(vec![
        by_hand(pool("a", &["1.1.1.1/32", "1000::1/128"])),
        pinned(pool("b", &["2.2.2.2/32"]), &["n"], vec![], 0),
        pool("c", &["3.3.3.3/32"]),
    ]);
    let ips: Vec<String> = (0..3).map(|n| decide(&mut a, &claim(&format!("s{n}")))).collect();
    assert_eq!(ips, ["2.2.2.2", "3.3.3.3", "no available IPs"]);
    assert_eq!(decide(&mut a, &v6(claim("v6"))), "no available IPs");
    assert_eq!(decide(&mut a, &from_pool(claim("s2"), "a")), "1.1.1.1");
}

#[test]
fn a25_any_pool_until_all_are_full() {
    // A25.
    let mut a = allocator(vec![pool("p", &["1.2.3.0/31"]), pool("q", &["4.4.4.0/31"])]);
    let sharer = |name: &str, port: u16| sharing(claim(name), "k", "", port);
    let ips: Vec<String> = (0..5).map(|n| decide(&mut a, &sharer(&format!("s{n}"), 80))).collect();
    assert_eq!(ips, ["1.2.3.0", "1.2.3.1", "4.4.4.0", "4.4.4.1", "no available IPs"]);
    assert_eq!(decide(&mut a, &sharer("s5", 443)), "1.2.3.0", "sharing helps");
}

#[test]
fn sharers_prefer_the_lowest_address_shared_or_not() {
    // A41 to A43, A48, A49.
    let mut a = allocator(vec![pool("p", &["1.2.3.0/30", "1000::/126"])]);
    let on = |name: &str, key: &str, port: u16| sharing(claim(name), key, "", port);
    assert_eq!(decide(&mut a, &on("other", "", 80)), "1.2.3.0");
    assert_eq!(decide(&mut a, &on("a", "k", 80)), "1.2.3.1");
    assert_eq!(decide(&mut a, &on("b", "k", 443)), "1.2.3.1");
    assert_eq!(decide(&mut a, &on("c", "k", 80)), "1.2.3.2");
    a.release(&on("other", "", 80).service);
    assert_eq!(decide(&mut a, &on("d", "k", 81)), "1.2.3.0", "an unused lower one wins");
    assert_eq!(decide(&mut a, &on("e", "k", 80)), "1.2.3.0", "and is shared from then on");
    let moved = decide(&mut a, &holding(on("a", "new", 80), &["1.2.3.1".parse().unwrap()]));
    assert_eq!(moved, "1.2.3.3", "one of two sharers changes its key");
    let local = sharing(claim("l"), "k", "app=l", 8080);
    assert_eq!(decide(&mut a, &local), "no available IPs", "another backend does not join");

    let mut a = allocator(vec![pool("p", &["1.2.3.0/32", "1000::/128"])]);
    let both = |name: &str, port: u16| sharing(dual(claim(name), RequireDualStack), "k", "", port);
    assert_eq!(decide(&mut a, &both("d1", 80)), "1.2.3.0 1000::");
    assert_eq!(decide(&mut a, &both("d2", 81)), "1.2.3.0 1000::");
    assert_eq!(decide(&mut a, &on("four", "k", 82)), "1.2.3.0");
    assert_eq!(decide(&mut a, &v6(on("six", "k", 82))), "1000::");
    assert_eq!(decide(&mut a, &both("d3", 82)), "no available IPs");
    a.release(&on("four", "k", 82).service);
    assert_eq!(decide(&mut a, &both("d3", 82)), "no available IPs");
    a.release(&on("six", "k", 82).service);
    assert_eq!(decide(&mut a, &both("d3", 82)), "1.2.3.0 1000::");
}

#[test]
fn counters_count_addresses_and_not_services() {
    // A34 to A38.
    let mut a = allocator(vec![pool("p", &["1.2.3.0/24", "1000::/64"])]);
    for (name, port) in [("a", 80), ("b", 81), ("c", 82)] {
        decide(&mut a, &sharing(claim(name), "k", "", port));
    }
    decide(&mut a, &v6(claim("six")));
    let counters = a.counters("p").unwrap();
    assert_eq!((counters.ipv4.capacity, counters.ipv4.in_use, counters.ipv4.available()), (256, 1, 255));
    assert_eq!((counters.ipv6.capacity, counters.ipv6.in_use), (i64::MAX, 1));
    assert_eq!(counters.ipv6.available(), i64::MAX - 1);
    assert_eq!((counters.total().capacity, counters.total().in_use), (i64::MAX, 2));
    for name in ["a", "b", "c"] {
        assert_eq!(a.counters("p").unwrap().ipv4.in_use, 1);
        a.release(&claim(name).service);
    }
    assert_eq!(a.counters("p").unwrap().ipv4.in_use, 0);
    assert_eq!(a.counters("q"), None);
}

#[test]
fn a_full_slash_eight_costs_no_more_than_its_holders() {
    // The last address of a /8 and of an IPv6 /64 are found without walking there.
    let mut a = allocator(vec![
        Pool { avoid_buggy_ips: true, ..pool("p", &["10.0.0.0/8"]) },
        pool("q", &["fd00::/64"]),
    ]);
    for n in 0..2000_u32 {
        let name = format!("s{n}");
        let ip = decide(&mut a, &claim(&name));
        assert_eq!(ip, format!("10.0.{}.{}", n / 254, n % 254 + 1));
        decide(&mut a, &v6(claim(&format!("v{n}"))));
    }
    assert_eq!(decide(&mut a, &v6(claim("last"))), "fd00::7d0");
}

#[test]
fn an_address_in_no_known_pool_stays_while_pools_are_missing() {
    let known = vec![pool("p", &["1.2.3.0/32"])];
    let partly = Config { pools_incomplete: true, ..config(known.clone()) };
    let held = holding(claim("s"), &["9.9.9.9".parse().unwrap()]);

    let mut a = ferrolb_ipam::Allocator::new(&partly);
    let decision = a.converge(&held);
    assert_eq!((decision.outcome, decision.pool), (Outcome::Kept, PoolMark::Unchanged));
    assert_eq!(decide(&mut a, &from_pool(held.clone(), "missing")), "9.9.9.9", "perhaps it lies there");
    assert_eq!(decide(&mut a, &from_pool(held.clone(), "p")), "1.2.3.0", "it certainly does not lie there");
    let other = wants(claim("t"), &["9.9.9.9"]);
    assert_eq!(decide(&mut a, &other), r#"["9.9.9.9"] is not allowed in config"#, "nothing new from there");

    let mut a = allocator(known);
    assert_eq!(decide(&mut a, &held), "1.2.3.0");
    let mut none = ferrolb_ipam::Allocator::new(&Config { pools_incomplete: true, ..Config::default() });
    assert_eq!(decide(&mut none, &held), "9.9.9.9", "not even if none is known");
}

#[test]
fn only_those_wait_whom_a_release_could_help() {
    let pools = || {
        let by_hand = Pool { auto_assign: false, ..pool("hand", &["5.5.5.5/32"]) };
        vec![pool("p", &["1.2.3.0/32"]), pool("q", &["4.4.4.0/32", "4000::/128"]), by_hand]
    };
    for (waiting, waits) in [
        (claim("s"), true),
        (from_pool(claim("s"), "p"), true),
        (from_pool(dual(claim("s"), RequireDualStack), "q"), true),
        (wants(claim("s"), &["1.2.3.0"]), true),
        (sharing(wants(claim("s"), &["1.2.3.0"]), "k", "", 80), true),
        (from_pool(dual(claim("s"), RequireDualStack), "hand"), false),
        (from_pool(v6(claim("s")), "hand"), false),
        (from_pool(claim("s"), "none"), false),
        (wants(claim("s"), &["9.9.9.9"]), false),
        (wants(claim("s"), &["1000::"]), false),
        (wants(from_pool(claim("s"), "q"), &["5.5.5.5"]), false),
    ] {
        let mut a = allocator(pools());
        decide(&mut a, &sharing(claim("x"), "k", "", 80));
        decide(&mut a, &claim("y"));
        let decision = a.converge(&waiting);
        assert_eq!(
            (decision.ingress.len(), decision.waits_for.is_some()),
            (0, waits),
            "{:?}",
            decision.notices
        );
    }
    let prefer = |name: &str| dual(claim(name), PreferDualStack);
    let mut a = allocator(vec![pool("p", &["1.2.3.0/31"])]);
    assert!(a.converge(&prefer("s")).waits_for.is_none(), "its pool has no IPv6 at all");
    let mut a = allocator(vec![pool("p", &["1.2.3.0/31", "1000::/128"])]);
    decide(&mut a, &v6(claim("six")));
    assert!(a.converge(&prefer("s")).waits_for.is_some(), "somebody has the one IPv6 address");
}

#[test]
fn an_address_is_free_when_no_status_lists_it_any_more() {
    let ip = ["1.2.3.0".parse().unwrap()];
    let listing = |name: &str| holding(claim(name), &ip);
    let listed = listing("x").held;
    let full = "no available IPs";

    // Its holder goes, but two others list it, who may not have it.
    let mut a = allocator(vec![pool("p", &["1.2.3.0/32"])]);
    assert_eq!(decide(&mut a, &claim("holder")), "1.2.3.0");
    for name in ["x", "y"] {
        a.hold_back(&claim(name).service, &listed);
    }
    assert!(a.release(&claim("holder").service));
    assert_eq!(decide(&mut a, &claim("w")), full);
    a.take_changes();
    a.hold_back(&claim("x").service, &[]);
    assert_eq!(decide(&mut a, &claim("w")), full, "one of them still does");
    assert!(a.take_changes().freed.is_empty());
    a.hold_back(&claim("y").service, &[]);
    let freed = a.take_changes().freed;
    let want = allocator(vec![pool("p", &["1.2.3.0/32"])]);
    assert!(!freed.is_empty() && freed.iter().any(|spot| want.has_room(spot)));
    assert_eq!(a.counters("p").unwrap().ipv4.in_use, 0);
    assert_eq!(decide(&mut a, &claim("w")), "1.2.3.0");

    // One who lists it may take it, once it is the last who does.
    let mut a = allocator(vec![pool("p", &["1.2.3.0/32"])]);
    for name in ["x", "y"] {
        a.hold_back(&claim(name).service, &listed);
    }
    assert_eq!(a.counters("p").unwrap().ipv4.in_use, 1);
    assert!(a.release(&claim("x").service));
    assert_eq!(decide(&mut a, &listing("y")), "1.2.3.0");
    assert_eq!(a.counters("p").unwrap().ipv4.in_use, 1);

    // A holder that changes its ports is not disturbed by one who lists its address.
    let mut a = allocator(vec![pool("p", &["1.2.3.0/32"])]);
    assert_eq!(decide(&mut a, &sharing(claim("holder"), "k", "", 80)), "1.2.3.0");
    a.hold_back(&claim("x").service, &listed);
    assert_eq!(decide(&mut a, &holding(sharing(claim("holder"), "k", "", 81), &ip)), "1.2.3.0");
    // Nobody joins it as long as that one does.
    assert_eq!(decide(&mut a, &sharing(claim("sharer"), "k", "", 80)), full);
    a.hold_back(&claim("x").service, &[]);
    assert_eq!(decide(&mut a, &sharing(claim("sharer"), "k", "", 80)), "1.2.3.0");
}

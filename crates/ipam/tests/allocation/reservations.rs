// SPDX-License-Identifier: Apache-2.0
//! Addresses that a Service may come to list, though nobody knows: who may have them meanwhile.

use std::net::IpAddr;

use ferrolb_ipam::Claim;

use crate::common::{allocator, claim, decide, holding, pool, sharing, wants};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_reserved_address_is_for_that_service_alone_until_it_is_reserved_no_more() {
    let mut allocator = allocator(vec![pool("p", &["1.2.3.0/31"])]);
    allocator.reserve(&claim("a"), vec![ip("1.2.3.0")]);
    assert_eq!(decide(&mut allocator, &claim("b")), "1.2.3.1");
    assert_eq!(decide(&mut allocator, &claim("c")), "no available IPs");
    let refused = decide(&mut allocator, &wants(claim("d"), &["1.2.3.0"]));
    assert!(refused.contains("n/a"), "it is told who has it: {refused}");
    // Deciding the Service itself, or holding back what it lists, takes nothing from the reservation.
    allocator.hold_back(&claim("a").service, &[]);
    assert!(decide(&mut allocator, &wants(claim("a"), &["9.9.9.9"])).contains("9.9.9.9"));
    assert_eq!(decide(&mut allocator, &claim("c")), "no available IPs");
    allocator.take_changes();
    allocator.reserve(&claim("a"), vec![]);
    assert!(!allocator.take_changes().freed.is_empty(), "those who wait hear of it");
    assert_eq!(decide(&mut allocator, &claim("c")), "1.2.3.0");
}

#[test]
fn the_service_itself_may_take_what_is_reserved_for_it() {
    let mut allocator = allocator(vec![pool("p", &["1.2.3.0/32"])]);
    allocator.reserve(&claim("a"), vec![ip("1.2.3.0")]);
    assert_eq!(decide(&mut allocator, &claim("a")), "1.2.3.0");
    allocator.reserve(&claim("a"), vec![]);
    assert_eq!(allocator.allocation(&claim("a").service).unwrap().ips, [ip("1.2.3.0")]);
}

#[test]
fn on_a_shared_address_that_is_reserved_for_a_stranger_nobody_joins_and_nobody_has_to_go() {
    let mut allocator = allocator(vec![pool("p", &["1.2.3.0/31"])]);
    let share = |name: &str, port: u16| sharing(claim(name), "k", "", port);
    assert_eq!(decide(&mut allocator, &share("a", 80)), "1.2.3.0");
    allocator.reserve(&claim("b"), vec![ip("1.2.3.0")]);
    assert_eq!(decide(&mut allocator, &share("c", 81)), "1.2.3.1");
    let stays: Claim = holding(share("a", 80), &[ip("1.2.3.0")]);
    assert_eq!(decide(&mut allocator, &stays), "1.2.3.0");
    // When the last one leaves it is still reserved.
    allocator.release(&stays.service);
    assert_eq!(decide(&mut allocator, &claim("d")), "no available IPs");
    assert_eq!(decide(&mut allocator, &share("b", 82)), "1.2.3.0");
}

#[test]
fn two_who_share_may_both_be_in_doubt_and_get_their_address_again() {
    let mut allocator = allocator(vec![pool("p", &["1.2.3.0/32"])]);
    let share = |name: &str, port: u16| sharing(claim(name), "k", "", port);
    let (a, b) = (share("a", 80), share("b", 81));
    for claim in [&a, &b] {
        assert_eq!(decide(&mut allocator, claim), "1.2.3.0");
    }
    // Nobody knows what became of either write, and neither is listed: both are decided again, in any order.
    for claim in [&a, &b] {
        allocator.reserve(claim, vec![ip("1.2.3.0")]);
    }
    for claim in [&b, &a, &b] {
        assert_eq!(decide(&mut allocator, claim), "1.2.3.0");
    }
    // Nobody else joins on a port that one of them may come to have, or without the key.
    let refused = decide(&mut allocator, &wants(share("c", 80), &["1.2.3.0"]));
    assert!(refused.contains("TCP/80"), "{refused}");
    assert_eq!(decide(&mut allocator, &claim("d")), "no available IPs");
    for claim in [&a, &b] {
        allocator.release(&claim.service);
    }
    assert_eq!(decide(&mut allocator, &claim("d")), "1.2.3.0", "nothing is left behind");
}

#[test]
fn who_lists_an_address_keeps_it_though_somebody_lists_it_who_has_to_go() {
    let mut allocator = allocator(vec![pool("p", &["1.2.3.0/31"])]);
    let share = |name: &str, port: u16| sharing(claim(name), "k", "", port);
    // A stranger wrote three addresses into a status, one of which is another's, whom nobody has decided yet.
    let three = [Some(ip("1.2.3.0")), Some(ip("1.2.3.1")), Some(ip("9.9.9.9"))];
    allocator.hold_back(&claim("b").service, &three);
    let listing = holding(share("a", 80), &[ip("1.2.3.0")]);
    assert_eq!(decide(&mut allocator, &listing), "1.2.3.0");
    // With the key, others may join once the stranger's list is gone.
    assert_eq!(decide(&mut allocator, &share("c", 81)), "no available IPs");
    allocator.hold_back(&claim("b").service, &[]);
    assert_eq!(decide(&mut allocator, &share("c", 81)), "1.2.3.0");
}

#[test]
fn for_whom_an_address_is_reserved_hears_when_nobody_stands_in_the_way_any_more() {
    let mut allocator = allocator(vec![pool("p", &["1.2.3.0/32"])]);
    allocator.reserve(&claim("a"), vec![ip("1.2.3.0")]);
    allocator.hold_back(&claim("stranger").service, &[Some(ip("1.2.3.0"))]);
    assert_eq!(decide(&mut allocator, &claim("a")), "no available IPs");
    allocator.take_changes();
    allocator.hold_back(&claim("stranger").service, &[]);
    assert!(allocator.take_changes().regained.contains(&claim("a").service));
    assert_eq!(decide(&mut allocator, &claim("a")), "1.2.3.0");
}

#[test]
fn deciding_one_that_waits_is_no_news_to_others_that_do() {
    let mut allocator = allocator(vec![pool("p", &["1.2.3.0/32"]), pool("q", &["4.5.6.0/32"])]);
    let waits = |name: &str, port: u16| wants(sharing(claim(name), "k", "", port), &["9.9.9.9"]);
    allocator.reserve(&waits("a", 80), vec![ip("1.2.3.0")]);
    allocator.reserve(&waits("b", 81), vec![ip("4.5.6.0")]);
    allocator.take_changes();
    for claim in [waits("a", 80), waits("b", 81)] {
        assert!(decide(&mut allocator, &claim).contains("is not allowed in config"));
        assert_eq!(allocator.take_changes().freed.into_iter().collect::<Vec<_>>(), []);
    }
}

#[test]
fn a_shared_address_is_joined_only_when_whoever_had_to_go_lists_it_no_more() {
    let mut allocator = allocator(vec![pool("p", &["1.2.3.0/31"])]);
    let share = |name: &str, key: &str, port: u16| sharing(claim(name), key, "", port);
    for claim in [share("a", "k", 80), share("b", "k", 81)] {
        assert_eq!(decide(&mut allocator, &claim), "1.2.3.0");
    }
    // Another key: it has to go, but its status lists the address until that is written.
    let goes = holding(share("b", "other", 81), &[ip("1.2.3.0")]);
    assert!(decide(&mut allocator, &goes).ends_with("1.2.3.1"));
    let joins = wants(share("c", "k", 82), &["1.2.3.0"]);
    let refused = decide(&mut allocator, &joins);
    assert!(refused.contains("n/b"), "{refused}");
    let stays = holding(share("a", "k", 80), &[ip("1.2.3.0")]);
    assert_eq!(decide(&mut allocator, &stays), "1.2.3.0");
    allocator.take_changes();
    assert_eq!(decide(&mut allocator, &holding(share("b", "other", 81), &[ip("1.2.3.1")])), "1.2.3.1");
    assert!(!allocator.take_changes().freed.is_empty(), "those who wait hear of it");
    assert_eq!(decide(&mut allocator, &joins), "1.2.3.0");
}

#[test]
fn a_service_that_is_gone_reserves_nothing() {
    let mut allocator = allocator(vec![pool("p", &["1.2.3.0/32"])]);
    allocator.reserve(&claim("a"), vec![ip("1.2.3.0")]);
    allocator.release(&claim("a").service);
    assert_eq!(decide(&mut allocator, &claim("b")), "1.2.3.0");
}

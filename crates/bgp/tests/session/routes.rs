// SPDX-License-Identifier: Apache-2.0
//! What an established session tells, when, and how much of it at a time.

use std::sync::Arc;

use ferrolb_bgp::wire::{
    AsPath, Capability, Community, Families, LargeCommunity, Message, NextHop, Open, RouteRefresh, Update,
    keepalive,
};
use ferrolb_bgp::{Input, Local, Notice, PeerAs, Route, Settings, State};
use ferrolb_net_types::{IpFamily, Prefix};

use crate::bench::{Bench, asn, hex, hold, id, local, peer_open, prefix, route, seconds, settings};

fn announces(bench: &Bench) -> Vec<(Vec<String>, AsPath, NextHop)> {
    let of = |update| match update {
        Update::Announce(some) => {
            let prefixes = some.prefixes().iter().map(ToString::to_string).collect();
            Some((prefixes, some.attributes().as_path.clone(), some.next_hop()))
        }
        _ => None,
    };
    bench.updates().into_iter().filter_map(of).collect()
}

fn ends(bench: &Bench) -> Vec<IpFamily> {
    let of = |update| match update {
        Update::EndOfRib(family) => Some(family),
        _ => None,
    };
    bench.updates().into_iter().filter_map(of).collect()
}

/// A session with a peer that sends this OPEN.
fn with_open(settings: Settings, open: &Open, local: Local) -> Bench {
    let mut bench = Bench::new(settings);
    let connection = bench.connection.unwrap();
    bench.input(Input::Connected { connection, local });
    bench.say(&open.encode());
    bench.say(&keepalive());
    bench
}

const A: &str = "192.168.20.100/32";
const V6: &str = "fd00:20::100/128";

#[test]
fn bg_25_everything_that_is_wanted_is_told_once_the_session_is_up() {
    let mut bench = Bench::new(settings());
    bench.input(Input::Routes(&[(prefix(A), Some(route(0)))]));
    bench.connect();
    bench.say(&peer_open().encode());
    assert_eq!((bench.session.status().told, bench.session.status().wanted), (0, 1));
    bench.say(&keepalive());
    assert_eq!(announces(&bench).len(), 1);
    assert_eq!(ends(&bench), [IpFamily::V4, IpFamily::V6], "S66");
    assert_eq!((bench.session.status().told, bench.session.status().settled), (1, true));
    // A drop forgets what was told, not what is wanted.
    bench.hang_up();
    assert_eq!((bench.session.status().told, bench.session.status().wanted), (0, 1));
}

#[test]
fn bg_26_a_route_goes_and_comes_back() {
    let mut bench = Bench::established(settings());
    bench.input(Input::Routes(&[(prefix(A), Some(route(0)))]));
    bench.forget();
    bench.input(Input::Routes(&[(prefix(A), None)]));
    assert!(
        matches!(&bench.updates()[..], [Update::Withdraw(prefixes)] if prefixes.as_slice() == [prefix(A)])
    );
    bench.forget();
    bench.input(Input::Routes(&[(prefix(A), Some(route(0)))]));
    assert_eq!(announces(&bench).len(), 1);
    bench.forget();
    bench.input(Input::Routes(&[(prefix(A), Some(route(0)))]));
    assert_eq!(bench.messages(), [], "what has not changed is not told");
}

#[test]
fn s71_bg_5_a_peer_of_two_octets_is_told_the_path_all_the_same() {
    let narrow = Open { my_as: 64_513, capabilities: vec![], ..peer_open() };
    for own in [64_512, 65_536, 4_200_000_001] {
        let mine = Settings { asn: asn(own), ..settings() };
        let mut bench = with_open(mine, &narrow, local("192.168.10.20"));
        assert_eq!(bench.state(), State::Established, "{own}");
        bench.input(Input::Routes(&[(prefix(A), Some(route(0)))]));
        // Read by somebody of two octets who knows of AS4_PATH, it is the whole number.
        assert_eq!(announces(&bench)[0].1, AsPath::own(asn(own), false));
        let bytes = &bench.sent.last().unwrap().1;
        let field = u16::try_from(own).unwrap_or(23_456).to_be_bytes();
        assert_eq!(bytes[19 + 4 + 4..][..7], [0x40, 2, 4, 2, 1, field[0], field[1]]);
        let as4_path = [&[0xc0, 17, 6, 2, 1][..], &own.to_be_bytes()].concat();
        assert_eq!(bytes.windows(9).any(|window| window == as4_path), own > 65_535, "{own}");
        bench.pass(seconds(89));
        assert_eq!(bench.attempts.len(), 1);
    }
}

#[test]
fn bg_5_bg_6_the_bytes_of_an_update() {
    let routes = [(prefix("203.0.113.7/32"), Some(route(0)))];
    for (open, wanted) in [
        (
            "ffffffffffffffffffffffffffffffff001d0104fbf0005ac000020100",
            "ffffffffffffffffffffffffffffffff002e0200000012400101004002040201fc00400304c000020b20cb007107",
        ),
        (
            "ffffffffffffffffffffffffffffffff00350104fbf0005ac00002011802060104000100010202800002020200020641040000fbf0",
            "ffffffffffffffffffffffffffffffff003002000000144001010040020602010000fc00400304c000020b20cb007107",
        ),
    ] {
        let mut bench = Bench::new(Settings { peer: PeerAs::Exactly(asn(64_496)), ..settings() });
        let connection = bench.connection.unwrap();
        bench.input(Input::Connected { connection, local: local("192.0.2.11") });
        bench.say(&hex(open));
        bench.say(&keepalive());
        bench.input(Input::Routes(&routes));
        assert_eq!(bench.sent.last().unwrap().1, hex(wanted));
    }
}

#[test]
fn bg_23_communities_are_a_union_that_the_caller_makes_and_the_bytes_ascend() {
    let mut bench = Bench::established(settings());
    let communities = [Community::new(64_512, 2), Community::new(64_512, 1)].into();
    let large_communities = [LargeCommunity { global: 4_200_000_001, local1: 1, local2: 2 }].into();
    let both = Arc::new(Route { communities, large_communities, ..Route::default() });
    bench.input(Input::Routes(&[(prefix(A), Some(both))]));
    let bytes = &bench.sent.last().unwrap().1;
    let tail = hex("c00808fc000001fc000002c0200cfa56ea01000000010000000220c0a81464");
    assert!(bytes.ends_with(&tail), "{bytes:02x?}");
}

#[test]
fn s72_only_families_that_both_take_are_told() {
    let both = [(prefix(A), Some(route(0))), (prefix(V6), Some(route(0)))];
    let here = Local::new("192.168.10.20".parse().unwrap(), &["fd00:10::20".parse().unwrap()], None, "node1");
    for (told, taken, wanted, refused) in [
        (Families::BOTH, Families::BOTH, vec![A, V6], vec![]),
        (Families::BOTH, Families::V4, vec![A], vec![IpFamily::V6]),
        (Families::BOTH, Families::V6, vec![V6], vec![IpFamily::V4]),
        (Families::V4, Families::V6, vec![], vec![IpFamily::V4]),
        (Families::V4, Families::BOTH, vec![A], vec![]),
    ] {
        let mine = Settings { families: told, ..settings() };
        let open = Open::new(asn(64_513), hold(90), id("192.168.10.1"), taken, vec![]);
        let mut bench = with_open(mine, &open, here);
        bench.input(Input::Routes(&both));
        let prefixes: Vec<String> =
            announces(&bench).into_iter().flat_map(|(prefixes, ..)| prefixes).collect();
        assert_eq!(
            (prefixes, bench.state()),
            (wanted.iter().map(ToString::to_string).collect(), State::Established)
        );
        let notices: Vec<Notice> = refused.into_iter().map(Notice::FamilyRefused).collect();
        assert_eq!(bench.notices, notices);
        assert_eq!(ends(&bench), taken.iter().collect::<Vec<_>>());
    }
}

#[test]
fn s61_s77_ipv6_over_either_transport() {
    let mine = Settings { families: Families::BOTH, ..settings() };
    let v6: std::net::Ipv6Addr = "fd00:10::20".parse().unwrap();
    for address in ["192.168.10.20", "fd00:10::20"] {
        let interface = ["192.168.10.20".parse().unwrap(), "fd00:10::20".parse().unwrap()];
        let here = Local::new(address.parse().unwrap(), &interface, None, "node1");
        let mut bench = with_open(mine.clone(), &peer_open(), here);
        bench.input(Input::Routes(&[(prefix(A), Some(route(0))), (prefix(V6), Some(route(0)))]));
        let hops: Vec<NextHop> = announces(&bench).into_iter().map(|(_, _, next_hop)| next_hop).collect();
        let (v4, v6) = (NextHop::V4([192, 168, 10, 20].into()), NextHop::V6 { global: v6, link_local: None });
        assert_eq!(hops, [v4, v6], "{address}");
        assert!(bench.notices.is_empty());
    }
    // A node without IPv6 cannot be where IPv6 leads.
    let mut bench = with_open(mine, &peer_open(), local("192.168.10.20"));
    bench.input(Input::Routes(&[(prefix(V6), Some(route(0)))]));
    assert_eq!((announces(&bench).len(), &bench.notices[..]), (0, &[Notice::NoNextHop(IpFamily::V6)][..]));
}

#[test]
fn a_peer_that_asks_is_told_again_what_was_agreed_on() {
    let mut bench = Bench::established(settings());
    bench.input(Input::Routes(&[(prefix(A), Some(route(0)))]));
    bench.forget();
    bench.say(&RouteRefresh::new(IpFamily::V4).encode());
    assert_eq!(announces(&bench).len(), 1);
    bench.forget();
    // What was not agreed on, or is not known, is ignored (RFC 2918, section 4).
    for refresh in
        [RouteRefresh { afi: 1, subtype: 0, safi: 128 }, RouteRefresh { afi: 1, subtype: 1, safi: 1 }]
    {
        bench.say(&refresh.encode());
    }
    assert_eq!((bench.messages(), bench.state()), (vec![], State::Established));
}

fn hosts(count: u32) -> Vec<(Prefix, Option<Arc<Route>>)> {
    let address = |n: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + n);
    let same = route(1);
    (0..count).map(|n| (Prefix::host(address(n).into()), Some(Arc::clone(&same)))).collect()
}

#[test]
fn bg_34_ten_thousand_routes_take_13_updates_and_go_in_13() {
    let mut bench = Bench::new(settings());
    bench.input(Input::Routes(&hosts(10_000)));
    bench.connect();
    bench.say(&peer_open().encode());
    bench.say(&keepalive());
    let count = |bench: &Bench| bench.updates().len() - ends(bench).len();
    assert_eq!((count(&bench), ends(&bench).len(), bench.session.status().told), (13, 2, 10_000));
    assert_eq!(bench.session.counters().sent.updates, 15);
    bench.forget();
    let gone: Vec<_> = hosts(10_000).into_iter().map(|(prefix, _)| (prefix, None)).collect();
    bench.input(Input::Routes(&gone));
    assert_eq!((count(&bench), bench.session.status().told), (13, 0));
}

#[test]
fn a_peer_that_reads_slowly_is_told_the_latest_state_and_no_history() {
    let mut bench = Bench::established(settings());
    bench.takes = false;
    bench.forget();
    bench.input(Input::Routes(&hosts(100_000)));
    let sent = |bench: &Bench| bench.sent.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    let before = sent(&bench);
    assert!(before <= 64 * 1024, "{before} bytes wait for a peer that does not read");
    // Everything changes a hundred times over meanwhile.
    for low in 2..102 {
        let changed: Vec<_> = hosts(1000).into_iter().map(|(prefix, _)| (prefix, Some(route(low)))).collect();
        bench.input(Input::Routes(&changed));
    }
    assert_eq!(sent(&bench), before);
    // It reads again.
    bench.takes = true;
    bench.forget();
    let connection = bench.connection.unwrap();
    bench.input(Input::Written { connection, bytes: before });
    assert_eq!((bench.session.status().told, bench.session.status().settled), (100_000, true));
    let last = bench.updates().into_iter().filter(|update| {
        matches!(update, Update::Announce(some) if some.attributes().communities.contains(&Community::new(64_512, 101)))
    });
    assert!(last.count() <= 2, "1,000 routes in their last state, and in no other");
    assert!(bench.updates().len() < 130);
}

#[test]
fn a_change_of_settings_that_the_peer_does_not_see_keeps_the_session() {
    let internal = Settings { peer: PeerAs::Internal, ..settings() };
    let open = Open::new(asn(64_512), hold(90), id("192.168.10.1"), Families::BOTH, vec![]);
    let mut bench = with_open(internal.clone(), &open, local("192.168.10.20"));
    bench.input(Input::Routes(&hosts(5)));
    bench.forget();
    let other = Settings { local_pref: 100, max_prefixes: Some(3), ..internal };
    bench.input(Input::Configure(Box::new(other.clone())));
    assert_eq!((bench.state(), bench.session.status().told), (State::Established, 3));
    assert!(bench.notices.contains(&Notice::HeldBack { family: IpFamily::V4, routes: 2 }));
    let announced = bench.updates().iter().any(|update| {
        matches!(update, Update::Announce(some) if some.attributes().local_pref == Some(100) && some.prefixes().len() == 3)
    });
    assert!(announced);
    bench.notices.clear();
    bench.input(Input::Configure(Box::new(Settings { max_prefixes: None, ..other })));
    assert_eq!(bench.session.status().told, 5);
    assert_eq!(bench.notices, [Notice::HeldBack { family: IpFamily::V4, routes: 0 }]);
}

#[test]
fn attributes_that_fill_a_message_are_reported_and_cost_nobody_else() {
    let mut bench = Bench::established(settings());
    let communities = (0..2000).map(|n| Community::new(1, n)).collect();
    let monster = Arc::new(Route { communities, ..Route::default() });
    bench.input(Input::Routes(&[
        (prefix(A), Some(Arc::clone(&monster))),
        (prefix("192.0.2.1/32"), Some(route(1))),
    ]));
    assert_eq!((announces(&bench).len(), bench.session.status().told), (1, 1));
    assert!(matches!(bench.notices[..], [Notice::TooLong { routes: 1, .. }]));
    assert_eq!(bench.state(), State::Established);
    // The same for another prefix needs no word, and one of two that is mended is not the end of it.
    bench.notices.clear();
    let other = prefix("192.0.2.2/32");
    bench.input(Input::Routes(&[(other, Some(Arc::clone(&monster)))]));
    bench.input(Input::Routes(&[(prefix(A), Some(route(2)))]));
    assert_eq!((bench.notices.len(), bench.session.status().told), (0, 2));
    bench.input(Input::Routes(&[(other, None)]));
    assert_eq!(bench.notices, [Notice::AllFit]);
    bench.notices.clear();
    bench.input(Input::Routes(&[(other, Some(route(2)))]));
    assert_eq!((bench.notices.len(), bench.session.status().told), (0, 3));
    bench.input(Input::Routes(&[(other, Some(monster))]));
    assert!(matches!(bench.notices[..], [Notice::TooLong { routes: 1, .. }]));
    assert_eq!(bench.session.status().told, 2);
}

#[test]
fn what_the_peer_announces_is_read_and_never_kept() {
    let mut bench = Bench::established(settings());
    let before = bench.session.status().wanted;
    let good = hex(
        "ffffffffffffffffffffffffffffffff002f020000001440010100400206 02010000fc01400304c0a80a0118cb0071"
            .replace(' ', "")
            .as_str(),
    );
    let faulty = hex(
        "ffffffffffffffffffffffffffffffff002f020000001440010107400206 02010000fc01400304c0a80a0118cb0071"
            .replace(' ', "")
            .as_str(),
    );
    bench.say(&good);
    assert_eq!(bench.notices, []);
    for _ in 0..1000 {
        bench.say(&faulty);
    }
    assert_eq!((bench.state(), bench.session.status().wanted), (State::Established, before));
    assert_eq!(bench.session.counters().faulty_updates, 1000);
    assert!(matches!(&bench.notices[..], [Notice::Faults(faults)] if faults.len() == 1), "told once");
    // Another one is told beside it; whoever thinks of something new each time is not listened to for ever. Flags that
    // ORIGIN cannot have: the byte behind header, both lengths.
    bench.notices.clear();
    for flags in (0..=255_u8).filter(|flags| flags & 0xd0 != 0x40) {
        let mut other = good.clone();
        other[23] = flags & !0x10;
        bench.say(&other);
    }
    let Some(Notice::Faults(faults)) = bench.notices.last() else { panic!("{:?}", bench.notices) };
    assert_eq!((faults.len(), bench.notices.len()), (16, 15));
    let text = faults[1].to_string();
    assert_eq!(text, "attribute 1 (ORIGIN) has flags 0x00: its routes count as withdrawn");
    assert_eq!((bench.state(), bench.session.status().wanted), (State::Established, before));
}

#[test]
fn what_the_open_offers_beside_metallbs_capabilities_is_a_setting() {
    let mut bench = Bench::new(Settings { capabilities: vec![Capability::RouteRefresh], ..settings() });
    bench.connect();
    let [Message::Open(open)] = &bench.messages()[..] else { panic!("{:?}", bench.messages()) };
    assert_eq!(open.capabilities.last(), Some(&Capability::RouteRefresh));
    bench.say(
        &Open {
            capabilities: open.capabilities.clone(),
            ..Open::new(asn(64_513), hold(90), id("192.168.10.1"), Families::V4, vec![])
        }
        .encode(),
    );
    // Its capability for four octets names our system, not its own.
    assert_eq!(bench.state(), State::Idle);
}

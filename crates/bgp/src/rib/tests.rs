// SPDX-License-Identifier: Apache-2.0
//! What a peer that remembers everything knows in the end.

use std::net::Ipv4Addr;

use ferrolb_net_types::Asn;
use proptest::prelude::*;

use super::*;
use crate::route::NextHops;
use crate::wire::{Community, Context, Message, Reader, Update};

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn route(low: u16) -> Option<Arc<Route>> {
    Some(Arc::new(Route { communities: [Community::new(64_512, low)].into(), ..Route::default() }))
}

fn export(families: Families) -> Export {
    Export {
        context: Context { internal: true, families, ..Context::default() },
        asn: Asn::new(64_512).unwrap(),
        next_hops: NextHops {
            v4: Some(Ipv4Addr::LOCALHOST),
            v6: Some((std::net::Ipv6Addr::LOCALHOST, None)),
        },
        local_pref: 100,
    }
}

/// A peer that remembers what it is told: communities and local preference of each prefix.
#[derive(Default)]
struct Peer {
    table: BTreeMap<Prefix, (Vec<Community>, Option<u32>)>,
    ends: Vec<IpFamily>,
    log: Vec<String>,
    /// It closes the session when it knows more of a family.
    limit: Option<usize>,
}

impl Peer {
    fn hear(&mut self, bytes: &[u8]) {
        let context = export(Families::BOTH).context;
        let (mut reader, mut bytes) = (Reader::new(), bytes);
        while let Some(message) = reader.read(&mut bytes, &context).unwrap() {
            let Message::Update(received) = message else { panic!("{message:?}") };
            assert_eq!(received.faults, []);
            for update in received.updates {
                match update {
                    Update::Announce(some) => {
                        self.log.push(format!("+{}", some.prefixes().len()));
                        for prefix in some.prefixes() {
                            let communities = some.attributes().communities.iter().copied().collect();
                            self.table.insert(*prefix, (communities, some.attributes().local_pref));
                        }
                        let family = some.prefixes().iter().next().unwrap().family();
                        let known = self.table.keys().filter(|prefix| prefix.family() == family).count();
                        assert!(self.limit.is_none_or(|limit| known <= limit), "{known} {family} prefixes");
                    }
                    Update::Withdraw(some) => {
                        self.log.push(format!("-{}", some.as_slice().len()));
                        for prefix in some.as_slice() {
                            assert!(self.table.remove(prefix).is_some(), "{prefix} was never announced");
                        }
                    }
                    Update::EndOfRib(family) => {
                        self.log.push(format!("end {family}"));
                        self.ends.push(family);
                    }
                }
            }
        }
    }

    fn drain(&mut self, rib: &mut AdjRibOut) {
        let mut out = Vec::new();
        while rib.write(&mut out).is_some() {}
        self.hear(&out);
        assert!(rib.is_settled());
        assert_eq!(self.table.len(), rib.told());
    }

    fn said(&mut self, rib: &mut AdjRibOut) -> Vec<String> {
        self.drain(rib);
        std::mem::take(&mut self.log)
    }
}

const A: &str = "192.168.20.100/32";
const B: &str = "192.168.20.101/32";
const C: &str = "fd00:20::1/128";

#[test]
fn s66_everything_is_told_and_then_its_end() {
    let (mut rib, mut peer) = (AdjRibOut::default(), Peer::default());
    for (prefix_text, low) in [(C, 1), (B, 1), (A, 1)] {
        rib.want(prefix(prefix_text), route(low));
    }
    rib.open(export(Families::BOTH));
    assert_eq!(peer.said(&mut rib), ["+2", "+1", "end ipv4", "end ipv6"]);
    assert!(peer.said(&mut rib).is_empty());
    // An empty table has an end too.
    let mut rib = AdjRibOut::default();
    rib.open(export(Families::V4));
    assert_eq!(Peer::default().said(&mut rib), ["end ipv4"]);
}

#[test]
fn a_change_is_told_once_and_without_a_withdrawal() {
    let (mut rib, mut peer) = (AdjRibOut::default(), Peer::default());
    rib.open(export(Families::V4));
    rib.want(prefix(A), route(1));
    rib.want(prefix(B), route(1));
    assert_eq!(peer.said(&mut rib), ["+2", "end ipv4"]);
    rib.want(prefix(A), route(2));
    assert_eq!(peer.said(&mut rib), ["+1"]);
    // Equal attributes, another value: nothing has changed.
    rib.want(prefix(A), route(2));
    assert!(peer.said(&mut rib).is_empty());
    // There and back again, before anybody was told.
    rib.want(prefix(A), route(3));
    rib.want(prefix(A), None);
    rib.want(prefix(A), route(2));
    rib.want(prefix("10.0.0.0/8"), route(1));
    rib.want(prefix("10.0.0.0/8"), None);
    assert!(peer.said(&mut rib).is_empty());
    // The new one goes before the old one, as an aggregate and its part.
    rib.want(prefix(A), None);
    rib.want(prefix("192.168.20.0/24"), route(2));
    assert_eq!(peer.said(&mut rib), ["+1", "-1"]);
    assert_eq!((rib.wanted(), rib.told()), (2, 2));
}

#[test]
fn s72_s77_routes_of_a_family_that_the_peer_does_not_take_are_not_told() {
    let (mut rib, mut peer) = (AdjRibOut::default(), Peer::default());
    rib.want(prefix(A), route(1));
    rib.want(prefix(C), route(1));
    rib.open(export(Families::V6));
    assert_eq!(peer.said(&mut rib), ["+1", "end ipv6"]);
    assert_eq!(rib.untold(), Untold { families: Families::V4, ..Untold::default() });
    rib.want(prefix(A), None);
    assert!(peer.said(&mut rib).is_empty());
    // Nor those that would lead nowhere.
    let mut rib = AdjRibOut::default();
    rib.want(prefix(C), route(1));
    rib.open(Export {
        next_hops: NextHops { v6: None, ..export(Families::BOTH).next_hops },
        ..export(Families::BOTH)
    });
    assert_eq!(Peer::default().said(&mut rib), ["end ipv4", "end ipv6"]);
    assert_eq!(rib.untold().families, Families::V6);
}

#[test]
fn a_peer_that_asks_is_told_all_of_the_family_again() {
    let (mut rib, mut peer) = (AdjRibOut::default(), Peer::default());
    for text in [A, B, C] {
        rib.want(prefix(text), route(1));
    }
    rib.open(export(Families::BOTH));
    peer.drain(&mut rib);
    peer.log.clear();
    rib.refresh(Families::V4);
    assert_eq!(peer.said(&mut rib), ["+2"]);
    // What goes meanwhile is withdrawn; what changes there and back is told, since it was asked for.
    rib.refresh(Families::V4);
    rib.want(prefix(A), None);
    rib.want(prefix(B), route(2));
    rib.want(prefix(B), route(1));
    assert_eq!(peer.said(&mut rib), ["+1", "-1"]);
}

#[test]
fn a_goodbye_marks_the_routes_and_then_withdraws_them() {
    let (mut rib, mut peer) = (AdjRibOut::default(), Peer::default());
    rib.want(prefix(A), route(1));
    rib.want(prefix(B), route(2));
    rib.open(export(Families::V4));
    peer.drain(&mut rib);
    peer.log.clear();
    rib.set_mode(Mode::AboutToGo);
    assert_eq!(peer.said(&mut rib), ["+1", "+1"]);
    let marked = (vec![Community::new(64_512, 1), Community::GRACEFUL_SHUTDOWN], Some(0));
    assert_eq!(peer.table[&prefix(A)], marked);
    rib.set_mode(Mode::Gone);
    assert_eq!(peer.said(&mut rib), ["-2"]);
    assert_eq!((rib.wanted(), rib.told()), (2, 0));
    // Whoever listens next is told everything.
    rib.open(export(Families::V4));
    assert_eq!(peer.said(&mut rib), ["+1", "+1", "end ipv4"]);
}

#[test]
fn the_fuse_holds_back_what_comes_last() {
    let (mut rib, mut peer) = (AdjRibOut::default(), Peer::default());
    rib.set_limit(Some(2));
    rib.open(export(Families::BOTH));
    let hosts = ["10.0.0.5/32", "10.0.0.4/32", "10.0.0.3/32", "10.0.0.2/32", C];
    hosts.iter().for_each(|text| rib.want(prefix(text), route(1)));
    peer.drain(&mut rib);
    let known = |peer: &Peer| peer.table.keys().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(known(&peer), ["10.0.0.4/32", "10.0.0.5/32", C]);
    assert_eq!((rib.held_back(IpFamily::V4), rib.wanted()), (2, 5));
    let prefixes = [prefix("10.0.0.2/32"), prefix("10.0.0.3/32")].into();
    assert_eq!(rib.untold(), Untold { families: Families::NONE, prefixes });
    // One that goes makes room for the first that waits; one that waited makes none.
    rib.want(prefix(hosts[3]), None);
    rib.want(prefix(hosts[0]), None);
    peer.drain(&mut rib);
    assert_eq!(known(&peer), ["10.0.0.3/32", "10.0.0.4/32", C]);
    hosts.iter().for_each(|text| rib.want(prefix(text), route(2)));
    rib.set_limit(Some(3));
    peer.drain(&mut rib);
    assert_eq!(known(&peer), ["10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32", C]);
    rib.set_limit(Some(1));
    peer.drain(&mut rib);
    assert_eq!(known(&peer), ["10.0.0.2/32", C]);
    rib.set_limit(None);
    peer.drain(&mut rib);
    assert_eq!((known(&peer).len(), rib.held_back(IpFamily::V4)), (5, 0));
}

#[test]
fn the_peer_never_knows_more_than_the_limit_not_even_in_between() {
    let all = |rib: &mut AdjRibOut, range: std::ops::Range<u8>, low: Option<u16>| {
        for n in range {
            rib.want(Prefix::host(Ipv4Addr::new(192, 168, 20, n).into()), low.and_then(route));
        }
    };
    let (mut rib, mut peer) = (AdjRibOut::default(), Peer { limit: Some(4), ..Peer::default() });
    rib.set_limit(Some(4));
    rib.open(export(Families::BOTH));
    all(&mut rib, 0..6, Some(1));
    assert_eq!(peer.said(&mut rib), ["+4", "end ipv4", "end ipv6"]);
    // One goes, and one that was held back comes.
    all(&mut rib, 0..1, None);
    assert_eq!(peer.said(&mut rib), ["-1", "+1"]);
    // One is replaced by another, while what is told of a third changes.
    all(&mut rib, 5..6, None);
    all(&mut rib, 1..2, None);
    all(&mut rib, 2..3, Some(2));
    all(&mut rib, 6..7, Some(2));
    assert_eq!(peer.said(&mut rib), ["-1", "+2"]);
    // Four become one, which fits only once they are gone.
    all(&mut rib, 0..7, None);
    rib.want(prefix("192.168.20.0/29"), route(1));
    assert_eq!(peer.said(&mut rib), ["-4", "+1"]);
    // One becomes four: there is room for three beside it.
    all(&mut rib, 0..3, Some(1));
    rib.want(prefix("192.168.20.0/29"), None);
    assert_eq!(peer.said(&mut rib), ["+3", "-1"]);
    // The other family has room of its own.
    all(&mut rib, 3..4, Some(1));
    peer.drain(&mut rib);
    peer.log.clear();
    rib.want(prefix(C), route(1));
    all(&mut rib, 3..4, None);
    assert_eq!(peer.said(&mut rib), ["+1", "-1"]);
    // A lower limit.
    rib.set_limit(Some(2));
    peer.limit = Some(2);
    all(&mut rib, 0..1, None);
    all(&mut rib, 1..2, Some(3));
    assert_eq!(peer.said(&mut rib), ["-1", "+1"]);
}

#[test]
fn a_route_that_cannot_be_told_costs_only_itself() {
    let (mut rib, mut peer) = (AdjRibOut::default(), Peer::default());
    rib.open(export(Families::V4));
    rib.want(prefix(A), route(1));
    rib.want(prefix(B), route(1));
    peer.drain(&mut rib);
    let communities = (0..1100).map(|n| Community::new(1, n)).collect();
    rib.want(prefix(A), Some(Arc::new(Route { communities, ..Route::default() })));
    rib.want(prefix(B), route(2));
    let mut out = Vec::new();
    let mut written = Vec::new();
    while let Some(one) = rib.write(&mut out) {
        written.push(one);
    }
    peer.hear(&out);
    // 14 + 7 bytes, the communities and 4 bytes in front of them.
    let error = TooLong(4 + 3 + 7 + 7 + 4 + 4400);
    assert_eq!(written, [Written::TooLong { routes: 1, error }, Written::Update(1), Written::Update(1)]);
    assert_eq!(peer.table.keys().copied().collect::<Vec<_>>(), [prefix(B)]);
    assert_eq!(rib.untold().prefixes, [prefix(A)].into());
    rib.want(prefix(A), route(3));
    peer.drain(&mut rib);
    assert!(rib.untold().prefixes.is_empty());
    assert_eq!(peer.table.len(), 2);
}

#[test]
fn another_default_preference_is_told_to_an_internal_peer() {
    let (mut rib, mut peer) = (AdjRibOut::default(), Peer::default());
    rib.want(prefix(A), route(1));
    rib.open(export(Families::V4));
    peer.drain(&mut rib);
    assert_eq!(peer.table[&prefix(A)].1, Some(100));
    rib.set_local_pref(0);
    peer.drain(&mut rib);
    assert_eq!(peer.table[&prefix(A)].1, Some(0));
    peer.log.clear();
    rib.set_local_pref(0);
    // What is told by default and what is asked for look the same.
    let zero =
        |route: Option<Arc<Route>>| Arc::new(Route { local_pref: Some(0), ..Route::clone(&route.unwrap()) });
    rib.want(prefix(A), Some(zero(route(1))));
    assert!(peer.said(&mut rib).is_empty());
}

#[test]
fn an_external_peer_is_not_told_of_a_preference_that_it_does_not_see() {
    let (mut rib, mut peer) = (AdjRibOut::default(), Peer::default());
    let external = Context { internal: false, ..export(Families::V4).context };
    rib.want(prefix(A), route(1));
    rib.open(Export { context: external, ..export(Families::V4) });
    peer.drain(&mut rib);
    peer.log.clear();
    let preferred = Route { local_pref: Some(150), ..Route::clone(&route(1).unwrap()) };
    rib.want(prefix(A), Some(Arc::new(preferred)));
    rib.set_local_pref(7);
    assert!(peer.said(&mut rib).is_empty());
}

#[test]
fn routes_that_are_no_more_take_no_room() {
    let mut rib = AdjRibOut::default();
    rib.open(export(Families::V4));
    for low in 0..10_000 {
        rib.want(prefix(A), route(low));
    }
    assert!(rib.policy.shown.len() <= 19, "{}", rib.policy.shown.len());
}

#[derive(Clone, Debug)]
enum Move {
    Want(u8, Option<u16>),
    WantAll(Vec<(u8, Option<u16>)>),
    Write,
    Refresh(IpFamily),
    Limit(Option<usize>),
    Mode(Mode),
    Reopen,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let family = prop_oneof![Just(IpFamily::V4), Just(IpFamily::V6)];
    let mode = prop_oneof![Just(Mode::Normal), Just(Mode::AboutToGo), Just(Mode::Gone)];
    let want = || (0_u8..12, prop::option::of(0_u16..3));
    let one = prop_oneof![
        4 => proptest::collection::vec(want(), 0..20).prop_map(Move::WantAll),
        20 => want().prop_map(|(n, low)| Move::Want(n, low)),
        8 => Just(Move::Write),
        1 => family.prop_map(Move::Refresh),
        1 => prop::option::of(0_usize..8).prop_map(Move::Limit),
        1 => mode.prop_map(Move::Mode),
        1 => Just(Move::Reopen),
    ];
    proptest::collection::vec(one, 0..80)
}

proptest! {
    #[test]
    fn once_all_is_told_the_peer_knows_what_is_wanted(moves in moves()) {
        let (mut rib, mut peer) = (AdjRibOut::default(), Peer::default());
        let mut wanted: BTreeMap<Prefix, u16> = BTreeMap::new();
        let (mut limit, mut mode) = (None, Mode::Normal);
        let nth = |n: u8| match n % 2 {
            0 => Prefix::host(Ipv4Addr::new(10, 0, 0, n).into()),
            _ => Prefix::host(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).into()),
        };
        rib.open(export(Families::BOTH));
        for step in moves {
            let untold = (rib.untold_version(), rib.untold());
            match step {
                Move::Want(n, low) => {
                    match low {
                        Some(low) => wanted.insert(nth(n), low),
                        None => wanted.remove(&nth(n)),
                    };
                    rib.want(nth(n), low.and_then(route));
                }
                Move::WantAll(all) => {
                    for (n, low) in &all {
                        match low {
                            Some(low) => wanted.insert(nth(*n), *low),
                            None => wanted.remove(&nth(*n)),
                        };
                    }
                    let all: Vec<_> = all.iter().map(|(n, low)| (nth(*n), low.and_then(route))).collect();
                    rib.want_all(&all);
                }
                Move::Write => {
                    let mut out = Vec::new();
                    rib.write(&mut out);
                    peer.hear(&out);
                }
                Move::Refresh(family) => rib.refresh(Families::NONE.with(family)),
                Move::Limit(new) => {
                    limit = new;
                    peer.limit = new;
                    rib.set_limit(new);
                }
                Move::Mode(new) => {
                    mode = new;
                    rib.set_mode(new);
                }
                Move::Reopen => {
                    mode = Mode::Normal;
                    peer = Peer { limit, ..Peer::default() };
                    rib.open(export(Families::BOTH));
                }
            }
            prop_assert!(untold.0 != rib.untold_version() || untold.1 == rib.untold());
        }
        peer.drain(&mut rib);
        if mode != Mode::Gone {
            let untold = rib.untold().prefixes;
            let told = |prefix: &&Prefix| !untold.contains(*prefix);
            prop_assert!(peer.table.keys().eq(wanted.keys().filter(told)), "{:?}", untold);
        }
        for family in [IpFamily::V4, IpFamily::V6] {
            let of = |prefix: &&Prefix| prefix.family() == family;
            let count = wanted.keys().filter(of).count().min(limit.unwrap_or(usize::MAX));
            let known = peer.table.keys().filter(of).count();
            prop_assert_eq!(known, if mode == Mode::Gone { 0 } else { count });
        }
        for (prefix, (communities, preference)) in &peer.table {
            let mut right = vec![Community::new(64_512, wanted[prefix])];
            right.extend((mode == Mode::AboutToGo).then_some(Community::GRACEFUL_SHUTDOWN));
            prop_assert_eq!(communities, &right);
            prop_assert_eq!(*preference, Some(if mode == Mode::AboutToGo { 0 } else { 100 }));
        }
        prop_assert_eq!(rib.wanted(), wanted.len());
        prop_assert!(rib.entries.values().all(|entry| !entry.is_idle()));
        // The end of each family came once.
        peer.ends.sort();
        prop_assert_eq!(&peer.ends, &[IpFamily::V4, IpFamily::V6]);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What is written is read back the same; what a stranger writes is read or refused, never more.

use std::net::{Ipv4Addr, Ipv6Addr};

use ferrolb_bgp::wire::{
    Announce, AsPath, Attributes, Capability, Code, Community, Context, ExtendedCommunity, Families,
    HoldTime, LargeCommunity, Message, NextHop, Notification, Open, Origin, OtherAttribute, Prefixes, Reader,
    RouteRefresh, RouterId, Segment, SegmentKind, Update,
};
use ferrolb_net_types::{Asn, IpFamily, Prefix};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

/// All messages of some bytes, which have to be whole.
fn read_all(mut bytes: &[u8], context: &Context) -> Vec<Message> {
    let mut reader = Reader::new();
    let mut messages = Vec::new();
    while let Some(message) = reader.read(&mut bytes, context).unwrap() {
        messages.push(message);
    }
    messages
}

fn asn() -> impl Strategy<Value = Asn> {
    prop_oneof![1_u32..=65_535, 65_536..=u32::MAX].prop_map(|number| Asn::new(number).unwrap())
}

fn capability() -> impl Strategy<Value = Capability> {
    prop_oneof![
        Just((1, vec![0, 1, 0, 1])),
        Just((2, vec![])),
        Just((65, vec![0, 1, 0, 0])),
        (any::<u8>(), vec(any::<u8>(), 0..20)),
        (any::<u8>(), vec(any::<u8>(), 200..256)),
    ]
    .prop_map(|(code, value)| Capability::of(code, &value).unwrap())
}

fn open() -> impl Strategy<Value = Open> {
    let hold_time = any::<u16>().prop_map(|seconds| HoldTime::seconds(seconds).unwrap_or(HoldTime::ZERO));
    let identifier = (1..=u32::MAX).prop_map(|bits| RouterId::new(Ipv4Addr::from_bits(bits)).unwrap());
    (any::<u16>(), hold_time, identifier, vec(capability(), 0..12)).prop_map(
        |(my_as, hold_time, identifier, capabilities)| Open { my_as, hold_time, identifier, capabilities },
    )
}

fn path() -> impl Strategy<Value = AsPath> {
    let kind = prop_oneof![Just(SegmentKind::Sequence), Just(SegmentKind::Set)];
    let segment = (kind, vec(asn(), 1..5)).prop_map(|(kind, systems)| Segment::new(kind, systems).unwrap());
    vec(segment, 0..3).prop_map(AsPath)
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let origin = prop_oneof![Just(Origin::Igp), Just(Origin::Egp), Just(Origin::Incomplete)];
    let large =
        any::<[u32; 3]>().prop_map(|[global, local1, local2]| LargeCommunity { global, local1, local2 });
    let other = (40_u8.., vec(any::<u8>(), 0..300));
    let others = vec(other, 0..3).prop_map(|all| {
        let mut all: Vec<_> =
            all.into_iter().filter_map(|(code, value)| OtherAttribute::new(code, value)).collect();
        all.sort();
        all.dedup_by_key(|other| other.attribute());
        all.into_iter().collect()
    });
    (
        (origin, path(), any::<Option<u32>>(), any::<Option<u32>>()),
        btree_set(any::<u32>().prop_map(Community), 0..70),
        btree_set(any::<[u8; 8]>().prop_map(ExtendedCommunity), 0..4),
        btree_set(large, 0..4),
        others,
    )
        .prop_map(|(scalars, communities, extended_communities, large_communities, others)| {
            let (origin, as_path, multi_exit_disc, local_pref) = scalars;
            Attributes {
                origin,
                as_path,
                multi_exit_disc,
                local_pref,
                communities,
                extended_communities,
                large_communities,
                others,
            }
        })
}

fn prefixes(family: IpFamily) -> impl Strategy<Value = Prefixes> {
    let prefix = (any::<u32>(), any::<u32>(), 0..=family.bits()).prop_map(move |(a, b, length)| {
        let address = match family {
            IpFamily::V4 => Ipv4Addr::from_bits(a).into(),
            IpFamily::V6 => Ipv6Addr::from_bits(0x2001 << 112 | u128::from(a) << 64 | u128::from(b)).into(),
        };
        Prefix::new(address, length).unwrap()
    });
    prop_oneof![9 => vec(prefix.clone(), 1..20), 1 => vec(prefix, 1000..2000)]
        .prop_map(|prefixes| Prefixes::new(prefixes).unwrap())
}

fn update() -> impl Strategy<Value = Update> {
    let family = || prop_oneof![Just(IpFamily::V4), Just(IpFamily::V6)];
    let announce = (family(), any::<u32>(), any::<u128>(), any::<Option<u128>>(), attributes())
        .prop_flat_map(|(family, v4, global, link_local, attributes)| {
            let next_hop = match family {
                IpFamily::V4 => NextHop::V4(Ipv4Addr::from_bits(v4)),
                IpFamily::V6 => NextHop::V6 {
                    global: Ipv6Addr::from_bits(global),
                    link_local: link_local.map(Ipv6Addr::from_bits),
                },
            };
            prefixes(family).prop_map(move |prefixes| {
                Update::Announce(Box::new(Announce::new(prefixes, next_hop, attributes.clone()).unwrap()))
            })
        });
    prop_oneof![
        4 => announce,
        2 => family().prop_flat_map(prefixes).prop_map(Update::Withdraw),
        1 => family().prop_map(Update::EndOfRib),
    ]
}

/// Parts of one update that came in several messages, put together again.
fn join(parts: Vec<Update>) -> Option<Update> {
    let mut prefixes = Vec::new();
    let mut whole: Option<Update> = None;
    for part in parts {
        let (said, empty) = match &part {
            Update::Withdraw(some) => (some.as_slice(), part.clone()),
            Update::Announce(some) => (some.prefixes(), part.clone()),
            Update::EndOfRib(_) => return Some(part),
        };
        prefixes.extend_from_slice(said);
        if let (Some(Update::Announce(a)), Update::Announce(b)) = (&whole, &empty) {
            assert_eq!((a.next_hop(), a.attributes()), (b.next_hop(), b.attributes()));
        }
        whole.get_or_insert(empty);
    }
    let prefixes = Prefixes::new(prefixes)?;
    Some(match whole? {
        Update::Announce(a) => {
            Update::Announce(Box::new(Announce::new(prefixes, a.next_hop(), a.attributes().clone())?))
        }
        _ => Update::Withdraw(prefixes),
    })
}

proptest! {
    #[test]
    fn an_open_is_read_back_the_same(open in open()) {
        prop_assert_eq!(read_all(&open.encode(), &Context::default()), [Message::Open(open)]);
    }

    #[test]
    fn an_update_is_read_back_the_same(update in update(), four_octet_as: bool, internal: bool) {
        let context = Context { four_octet_as, internal, families: Families::BOTH };
        let Ok(bytes) = update.encode(&context) else { return Ok(()) };
        let mut parts = Vec::new();
        for message in read_all(&bytes, &context) {
            let Message::Update(received) = message else { panic!("{message:?}") };
            let discarded: Vec<u8> = received.faults.iter().map(|fault| fault.attribute).collect();
            // An external peer's local preference is none of our business.
            prop_assert!(discarded.iter().all(|code| *code == 5 && !internal), "{:?}", received.faults);
            prop_assert_eq!(received.updates.len(), 1);
            parts.extend(received.updates);
        }
        let mut wanted = update;
        if let (Update::Announce(announce), false) = (&wanted, internal) {
            let attributes = Attributes { local_pref: None, ..announce.attributes().clone() };
            let prefixes = Prefixes::new(announce.prefixes().to_vec()).unwrap();
            wanted = Update::Announce(Box::new(Announce::new(prefixes, announce.next_hop(), attributes).unwrap()));
        }
        prop_assert_eq!(join(parts), Some(wanted));
    }

    #[test]
    fn a_notification_is_read_back_the_same(code: u8, subcode: u8, data in vec(any::<u8>(), 0..300)) {
        let notification = Notification::new(Code { code, subcode }, &data);
        // Whatever it says can be printed on one line.
        prop_assert!(!notification.to_string().contains(char::is_control));
        prop_assert_eq!(read_all(&notification.encode(), &Context::default()), [Message::Notification(notification)]);
    }

    #[test]
    fn a_route_refresh_is_read_back_the_same(afi: u16, subtype: u8, safi: u8) {
        let refresh = RouteRefresh { afi, subtype, safi };
        prop_assert_eq!(read_all(&refresh.encode(), &Context::default()), [Message::RouteRefresh(refresh)]);
    }

    #[test]
    fn w07_bytes_of_a_stranger_are_read_or_refused(
        kind in 0_u8..7,
        body in vec(prop_oneof![Just(0), Just(255), any::<u8>()], 0..200),
        four_octet_as: bool,
        internal: bool,
    ) {
        let context = Context { four_octet_as, internal, families: Families::BOTH };
        let length = u16::try_from(19 + body.len()).unwrap().to_be_bytes();
        let message = [&[0xff; 16][..], &length, &[kind], &body].concat();
        match Reader::new().read(&mut &message[..], &context) {
            Ok(read) => prop_assert!(read.is_some()),
            Err(error) => prop_assert!(error.notification().code.is_registered(), "{}", error),
        }
    }

    #[test]
    fn an_update_that_was_damaged_is_read_or_refused(
        update in update(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let context = Context { families: Families::BOTH, ..Context::default() };
        let Ok(mut bytes) = update.encode(&context) else { return Ok(()) };
        for (place, value) in damage {
            let place = 19 + place.index(bytes.len() - 19);
            bytes[place] = value;
        }
        let mut input = &bytes[..];
        let mut reader = Reader::new();
        while let Ok(Some(_)) = reader.read(&mut input, &context) {}
    }
}

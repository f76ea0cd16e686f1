// SPDX-License-Identifier: Apache-2.0
//! The classes of published failures, each with everything that belongs to it: every type with every wrong flag, every
//! length about the right one, every kind of segment, every code that nobody knows.

use ferrolb_bgp::wire::{Code, Message, Reader};

use crate::malformed::{
    EXTERNAL, HOP, INTERNAL, NARROW, NLRI, ORIGIN, Outcome, PATH, hex, outcome, raw, update,
};
use Outcome::{Accept, Reset, Withdraw};

/// A known attribute: its flags, its type, a value that is right where both have said what they can do, and whether it
/// is for peers without four octets.
const KNOWN: &[(u8, u8, &str, bool)] = &[
    (0x40, 1, "00", false),
    (0x40, 2, "0201 0000fc01", false),
    (0x40, 3, "c0a80a01", false),
    (0x80, 4, "00000001", false),
    (0x40, 5, "00000064", false),
    (0x40, 6, "", false),
    (0xc0, 7, "0000fc01 c0a80a01", false),
    (0xc0, 8, "00010002", false),
    (0x80, 9, "01020304", false),
    (0x80, 10, "01020304", false),
    (0x80, 14, "000201 10 fd000000000000000000000000000001 00 40 fd00002000000000", false),
    (0x80, 15, "000201 40 fd00002100000000", false),
    (0xc0, 16, "0002000100000000", false),
    (0xc0, 17, "0201 fa56ea01", true),
    (0xc0, 18, "fa56ea01 c0a80a01", true),
    (0xc0, 25, "0002000100000000000000000000000000000000", false),
    (0xc0, 32, "000000010000000200000003", false),
];

/// An UPDATE with this attribute and whatever else has to be in one.
fn with(flags: u8, code: u8, value: &[u8], narrow: bool) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap();
    let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    let attribute = format!("{flags:02x}{code:02x}{length:02x} {digits}");
    let path = if narrow { "400204 0201 fc01" } else { PATH };
    let others = [(1, ORIGIN), (2, path), (3, HOP)].into_iter().filter(|(other, _)| *other != code);
    let others: Vec<&str> = others.map(|(_, text)| text).collect();
    update("", &format!("{} {attribute}", others.concat()), NLRI)
}

#[test]
fn flags_that_a_known_attribute_cannot_have_withdraw_the_routes() {
    for (right, code, value, narrow) in KNOWN {
        let context = if *narrow { NARROW } else { INTERNAL };
        let value = hex(value);
        for flags in [0x00, 0x40, 0x80, 0xc0] {
            let wanted = if flags == *right { Accept } else { Withdraw };
            // The bit for what was passed on in part, and those that mean nothing, make no difference.
            for unused in [0x00, 0x20, 0x0f] {
                let message = with(flags | unused, *code, &value, *narrow);
                assert_eq!(outcome(&message, &context), wanted, "type {code}, flags {:02x}", flags | unused);
            }
        }
    }
}

#[test]
fn an_attribute_of_fixed_length_has_that_one() {
    for (flags, code, right) in
        [(0x40, 1, 1), (0x40, 3, 4), (0x80, 4, 4), (0x40, 5, 4), (0x40, 6, 0), (0xc0, 7, 8), (0x80, 9, 4)]
    {
        for length in 0..=right + 1 {
            let value = [&[0, 0, 0, 1, 192, 168, 10, 1, 0][..]].concat()[..length].to_vec();
            let harmless = matches!(code, 6 | 7);
            let wanted = match length == right {
                true => Accept,
                false if harmless => Outcome::Discard,
                false => Withdraw,
            };
            assert_eq!(
                outcome(&with(flags, code, &value, false), &INTERNAL),
                wanted,
                "type {code}, {length}"
            );
        }
    }
    for (flags, code, unit) in [(0xc0, 8, 4), (0x80, 10, 4), (0xc0, 16, 8), (0xc0, 25, 20), (0xc0, 32, 12)] {
        for length in 0..=2 * unit + 1 {
            let wanted = if length > 0 && length % unit == 0 { Accept } else { Withdraw };
            let message = with(flags, code, &vec![1; length], false);
            assert_eq!(outcome(&message, &INTERNAL), wanted, "type {code}, {length}");
        }
    }
}

#[test]
fn a_path_has_segments_of_known_kinds_that_are_whole() {
    for kind in 0..=255_u8 {
        let wanted = if matches!(kind, 1 | 2) { Accept } else { Withdraw };
        let value = [&[kind, 1][..], &[0, 0, 0xfc, 1]].concat();
        assert_eq!(outcome(&with(0x40, 2, &value, false), &EXTERNAL), wanted, "kind {kind}");
    }
    for count in 0..=255_u8 {
        let wanted = if count == 2 { Accept } else { Withdraw };
        let value = [&[2, count][..], &[0, 0, 0xfc, 1].repeat(2)].concat();
        assert_eq!(
            outcome(&with(0x40, 2, &value, false), &EXTERNAL),
            wanted,
            "{count} systems in room for two"
        );
    }
    // As many segments as a message holds, and the own system in the path: nothing here goes by it.
    let long = hex(&"0201 0000fc00".repeat(600));
    let attribute = [&[0x50, 2][..], &u16::try_from(long.len()).unwrap().to_be_bytes(), &long].concat();
    let list = [hex(ORIGIN), attribute, hex(HOP)].concat();
    let lengths = [&[0, 0][..], &u16::try_from(list.len()).unwrap().to_be_bytes()].concat();
    assert_eq!(outcome(&raw(&[&lengths[..], &list, &hex(NLRI)].concat()), &EXTERNAL), Accept);
}

#[test]
fn a_code_that_nobody_knows_may_be_anything_but_known_to_all() {
    for code in 40..=255_u8 {
        for content in ["", "00", "ffffffffffff"] {
            for flags in [0x80, 0xc0, 0xe0] {
                let message = with(flags, code, &hex(content), false);
                assert_eq!(outcome(&message, &EXTERNAL), Accept, "type {code}, {flags:02x}, {content}");
            }
            for flags in [0x00, 0x40] {
                let message = with(flags, code, &hex(content), false);
                let wanted = Reset(Code::UNRECOGNIZED_WELL_KNOWN);
                assert_eq!(outcome(&message, &EXTERNAL), wanted, "type {code}, {flags:02x}, {content}");
            }
        }
    }
}

#[test]
fn prefixes_of_another_family_that_cannot_be_found_end_the_session() {
    let reach = |rest: &str| format!("000201 10 fd000000000000000000000000000001 {rest}");
    for (what, value, wanted) in [
        ("as it should be", reach("00 40 fd00002000000000"), Accept),
        ("the reserved octet, which once counted SNPAs", reach("07 40 fd00002000000000"), Accept),
        ("no reserved octet", reach(""), Reset(Code::OPTIONAL_ATTRIBUTE)),
        (
            "a prefix of 129 bits",
            reach("00 81 fd0000200000000000000000000000000000"),
            Reset(Code::OPTIONAL_ATTRIBUTE),
        ),
        ("a prefix that is cut", reach("00 40 fd000020"), Reset(Code::OPTIONAL_ATTRIBUTE)),
        ("a second one that is cut", reach("00 40 fd00002000000000 80 fd"), Reset(Code::OPTIONAL_ATTRIBUTE)),
        ("everything", reach("00 00"), Accept),
    ] {
        assert_eq!(outcome(&with(0x80, 14, &hex(&value), false), &EXTERNAL), wanted, "{what}");
    }
    // VPN, multicast, labels, FlowSpec, BGP-LS, EVPN, route targets: skipped by length alone, whatever is in them.
    for (afi, safi) in [
        ("0001", "80"),
        ("0001", "02"),
        ("0001", "04"),
        ("0001", "85"),
        ("4004", "47"),
        ("0019", "46"),
        ("0001", "84"),
    ] {
        for body in ["", "00", "ff ffffff", "20 fd000000000000000000000000000001 00 ff"] {
            for code in [14, 15] {
                let value = hex(&format!("{afi} {safi} {body}"));
                // Of a length that names no next hop there is no telling where it ends.
                let found = outcome(&with(0x80, code, &value, false), &EXTERNAL);
                let allowed = [Outcome::Discard, Reset(Code::OPTIONAL_ATTRIBUTE)];
                assert!(allowed.contains(&found), "{afi}/{safi}, type {code}, {body}: {found:?}");
                assert!(code == 14 || found == Outcome::Discard, "{afi}/{safi}, {body}: {found:?}");
            }
        }
    }
}

#[test]
fn a_capability_that_comes_twice_counts_as_it_came_first() {
    let open = |capabilities: &str| {
        let capabilities = hex(capabilities);
        let length = u8::try_from(capabilities.len()).unwrap();
        let body = [&hex("04 5ba0 005a c0000201")[..], &[length + 2, 2, length], &capabilities].concat();
        let header = [&[0xff; 16][..], &[0, u8::try_from(19 + body.len()).unwrap(), 1]].concat();
        match Reader::new().read(&mut &[header, body].concat()[..], &EXTERNAL) {
            Ok(Some(Message::Open(open))) => {
                (open.asn().map(|asn| asn.number()), open.families().iter().count())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(open("4104 0000fbf0 4104 0000fbf1"), (Some(64_496), 1));
    assert_eq!(open("0104 00010001 0104 00010001 0104 00020001 4104 0000fbf0"), (Some(64_496), 2));
    // Unknown ones, and known ones of another length, are as if they were not there.
    assert_eq!(open("c800 ff03 010203 4103 00fbf0 4104 0000fbf0 0103 000100"), (Some(64_496), 1));
}

// SPDX-License-Identifier: Apache-2.0
//! Malformed UPDATEs as a table: what each costs. Sources are the published failures of BGP speakers and RFC 7606.

use ferrolb_bgp::wire::{Code, Context, Families, Message, MessageError, Reader, Treatment, Update};
use ferrolb_net_types::IpFamily;

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// An UPDATE of these parts, with lengths that are true.
pub(crate) fn update(withdrawn: &str, attributes: &str, announced: &str) -> Vec<u8> {
    let (withdrawn, attributes) = (hex(withdrawn), hex(attributes));
    let count = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_be_bytes();
    raw(&[&count(&withdrawn)[..], &withdrawn, &count(&attributes), &attributes, &hex(announced)].concat())
}

pub(crate) fn raw(body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(19 + body.len()).unwrap().to_be_bytes();
    [&[0xff; 16][..], &length, &[2], body].concat()
}

pub(crate) const EXTERNAL: Context =
    Context { four_octet_as: true, internal: false, families: Families::BOTH };
pub(crate) const INTERNAL: Context = Context { internal: true, ..EXTERNAL };
pub(crate) const NARROW: Context = Context { four_octet_as: false, ..EXTERNAL };
const V4_ONLY: Context = Context { families: Families::V4, ..EXTERNAL };

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is wrong.
    Accept,
    /// An attribute is ignored, the routes are there.
    Discard,
    /// The routes count as withdrawn.
    Withdraw,
    /// The session ends with this NOTIFICATION.
    Reset(Code),
}

pub(crate) fn outcome(message: &[u8], context: &Context) -> Outcome {
    match Reader::new().read(&mut &message[..], context) {
        Err(error) => Outcome::Reset(error.notification().code),
        Ok(Some(Message::Update(received))) => {
            let announces = received.updates.iter().any(|update| matches!(update, Update::Announce(_)));
            if received.faults.is_empty() {
                return Outcome::Accept;
            }
            if received.faults.iter().any(|fault| fault.treatment == Treatment::Withdraw) {
                assert!(!announces, "{received:?}");
                return Outcome::Withdraw;
            }
            Outcome::Discard
        }
        other => panic!("{other:?}"),
    }
}

/// ORIGIN, AS_PATH and NEXT_HOP as they should be.
pub(crate) const ORIGIN: &str = "400101 00";
pub(crate) const PATH: &str = "400206 0201 0000fc01";
pub(crate) const HOP: &str = "400304 c0a80a01";
pub(crate) const NLRI: &str = "18 cb0071";

#[test]
fn each_attribute_that_is_wrong_costs_what_rfc_7606_says() {
    use Outcome::{Accept, Discard, Reset, Withdraw};
    let reset = |code| Reset(code);
    let table: &[(&str, &Context, &str, Outcome)] = &[
        // ORIGIN (7.1)
        ("ORIGIN without a value", &EXTERNAL, "400100", Withdraw),
        ("ORIGIN of two octets", &EXTERNAL, "400102 0000", Withdraw),
        ("ORIGIN 3", &EXTERNAL, "400101 03", Withdraw),
        ("ORIGIN with the flags of an optional attribute", &EXTERNAL, "c00101 00", Withdraw),
        ("ORIGIN with a length of two octets", &EXTERNAL, "50010001 00", Accept),
        // AS_PATH (7.2)
        ("AS_PATH with a segment that is empty", &EXTERNAL, "400202 0200", Withdraw),
        ("AS_PATH with a segment that runs over", &EXTERNAL, "400206 0202 0000fc01", Withdraw),
        ("AS_PATH of unknown kind", &EXTERNAL, "400206 0501 0000fc01", Withdraw),
        ("AS_PATH of a confederation", &EXTERNAL, "400206 0301 0000fc01", Withdraw),
        ("AS_PATH with system 0", &EXTERNAL, "400206 0201 00000000", Withdraw),
        ("AS_PATH of one octet", &EXTERNAL, "400201 02", Withdraw),
        ("AS_PATH of two octets where four were agreed on", &EXTERNAL, "400204 0201 fc01", Withdraw),
        ("AS_PATH of two octets where two were agreed on", &NARROW, "400204 0201 fc01", Accept),
        ("AS_PATH that is empty", &INTERNAL, "400200", Accept),
        // NEXT_HOP (7.3)
        ("NEXT_HOP of three octets", &EXTERNAL, "400303 c0a80a", Withdraw),
        ("NEXT_HOP without a value", &EXTERNAL, "400300", Withdraw),
        ("NEXT_HOP of sixteen octets", &EXTERNAL, "400310 fd000000000000000000000000000001", Withdraw),
        // MULTI_EXIT_DISC (7.4), LOCAL_PREF (7.5)
        ("MULTI_EXIT_DISC of three octets", &EXTERNAL, "800403 000001", Withdraw),
        ("LOCAL_PREF of three octets, internal", &INTERNAL, "400503 000001", Withdraw),
        ("LOCAL_PREF of three octets, external", &EXTERNAL, "400503 000001", Discard),
        ("LOCAL_PREF, external", &EXTERNAL, "400504 00000064", Discard),
        ("LOCAL_PREF, internal", &INTERNAL, "400504 00000064", Accept),
        // ATOMIC_AGGREGATE (7.6), AGGREGATOR (7.7)
        ("ATOMIC_AGGREGATE with a value", &EXTERNAL, "400601 00", Discard),
        ("ATOMIC_AGGREGATE", &EXTERNAL, "400600", Accept),
        ("AGGREGATOR of six octets where four were agreed on", &EXTERNAL, "c00706 fc01c0a80a01", Discard),
        ("AGGREGATOR of six octets where two were agreed on", &NARROW, "c00706 fc01c0a80a01", Accept),
        ("AGGREGATOR without a value", &EXTERNAL, "c00700", Discard),
        // COMMUNITIES (7.8)
        ("COMMUNITIES without a value", &EXTERNAL, "c00800", Withdraw),
        ("COMMUNITIES of five octets", &EXTERNAL, "c00805 0001000203", Withdraw),
        ("COMMUNITIES", &EXTERNAL, "c00808 0001000200010003", Accept),
        // ORIGINATOR_ID (7.9), CLUSTER_LIST (7.10)
        ("ORIGINATOR_ID of three octets, internal", &INTERNAL, "800903 010203", Withdraw),
        ("ORIGINATOR_ID, external", &EXTERNAL, "800904 01020304", Discard),
        ("CLUSTER_LIST of five octets, internal", &INTERNAL, "800a05 0102030405", Withdraw),
        ("CLUSTER_LIST without a value, internal", &INTERNAL, "800a00", Withdraw),
        ("CLUSTER_LIST of five octets, external", &EXTERNAL, "800a05 0102030405", Discard),
        // EXTENDED COMMUNITIES (7.14, 7.15), LARGE_COMMUNITIES (RFC 8092)
        ("EXTENDED COMMUNITIES of seven octets", &EXTERNAL, "c01007 00020001000000", Withdraw),
        ("EXTENDED COMMUNITIES without a value", &EXTERNAL, "c01000", Withdraw),
        ("IPv6 EXTENDED COMMUNITIES of eight octets", &EXTERNAL, "c01908 0002000100000000", Withdraw),
        ("LARGE_COMMUNITIES of eleven octets", &EXTERNAL, "c0200b 0000000100000002000000", Withdraw),
        ("LARGE_COMMUNITIES without a value", &EXTERNAL, "c02000", Withdraw),
        // AS4_PATH and AS4_AGGREGATOR (RFC 6793, section 6)
        ("AS4_PATH from who has four octets", &EXTERNAL, "c01106 0201 fa56ea01", Discard),
        ("AS4_PATH that is malformed", &NARROW, "c01105 0201 fa56ea", Discard),
        ("AS4_AGGREGATOR of seven octets", &NARROW, "c01207 00000001c0a80a", Discard),
        // What nobody here knows
        ("an unknown attribute that is passed on, of any content", &EXTERNAL, "c01c03 ffffff", Accept),
        ("OTC with a wrong length", &EXTERNAL, "c02303 000001", Accept),
        ("an unknown attribute that is not passed on", &EXTERNAL, "80c803 ffffff", Accept),
        ("Prefix-SID without a value", &EXTERNAL, "c02800", Accept),
        ("tunnel encapsulation, corrupt", &EXTERNAL, "c01702 ffff", Accept),
        ("unknown, yet known to all", &EXTERNAL, "40c801 00", reset(Code::UNRECOGNIZED_WELL_KNOWN)),
        (
            "unknown, neither optional nor passed on",
            &EXTERNAL,
            "002801 00",
            reset(Code::UNRECOGNIZED_WELL_KNOWN),
        ),
        // MP_REACH_NLRI, MP_UNREACH_NLRI (7.11, 7.12)
        ("MP_REACH_NLRI without a value", &EXTERNAL, "800e00", reset(Code::OPTIONAL_ATTRIBUTE)),
        ("MP_REACH_NLRI without a next hop", &EXTERNAL, "800e05 0002010000", reset(Code::OPTIONAL_ATTRIBUTE)),
        (
            "MP_REACH_NLRI whose next hop runs over",
            &EXTERNAL,
            "800e06 000201100000",
            reset(Code::OPTIONAL_ATTRIBUTE),
        ),
        ("MP_REACH_NLRI about a VPN", &EXTERNAL, "800e08 000180 00 00 ffffff", Discard),
        ("MP_REACH_NLRI about BGP-LS, corrupt", &EXTERNAL, "800e08 400447 01 ff 00 ffff", Discard),
        (
            "MP_REACH_NLRI with wrong flags",
            &EXTERNAL,
            "c00e15 000201 10 fd000000000000000000000000000001 00",
            Withdraw,
        ),
        ("MP_UNREACH_NLRI of two octets", &EXTERNAL, "800f02 0002", reset(Code::OPTIONAL_ATTRIBUTE)),
        (
            "MP_UNREACH_NLRI with a prefix of 129 bits",
            &EXTERNAL,
            "800f04 000201 81",
            reset(Code::OPTIONAL_ATTRIBUTE),
        ),
        ("MP_UNREACH_NLRI about FlowSpec, corrupt", &EXTERNAL, "800f06 000185 ffffff", Discard),
        ("MP_UNREACH_NLRI about IPv6, not agreed on", &V4_ONLY, "800f04 000201 ff", Discard),
    ];
    for (what, context, attribute, wanted) in table {
        let others = |code: &str| attribute.get(2..4) != Some(code);
        let rest: Vec<&str> = [
            ("01", ORIGIN),
            ("02", if context.four_octet_as { PATH } else { "400204 0201 fc01" }),
            ("03", HOP),
        ]
        .into_iter()
        .filter(|(code, _)| others(code))
        .map(|(_, text)| text)
        .collect();
        for order in [format!("{} {attribute}", rest.concat()), format!("{attribute} {}", rest.concat())] {
            assert_eq!(outcome(&update("", &order, NLRI), context), *wanted, "{what}: {order}");
        }
    }
}

#[test]
fn a_list_that_breaks_off_withdraws_its_routes() {
    for (what, end) in [
        ("an attribute longer than the list", "c008ff 00010002"),
        ("an attribute without a length", "c008"),
        ("a length of two octets cut to one", "d00800"),
        ("one octet behind the list", "c0"),
        ("an unknown attribute longer than the list", "c0c8ff 00"),
    ] {
        let message = update("", &format!("{ORIGIN} {PATH} {HOP} {end}"), NLRI);
        assert_eq!(outcome(&message, &EXTERNAL), Outcome::Withdraw, "{what}");
    }
}

#[test]
fn the_length_of_a_next_hop_decides_where_its_prefixes_are() {
    for length in 0..=64_u8 {
        let next_hop = "fd".repeat(length.into());
        let value = format!("000201 {length:02x} {next_hop} 00 40 fd00002000000000");
        let attribute = format!("800e{:02x} {value}", hex(&value).len());
        let wanted = match length {
            16 | 32 => Outcome::Accept,
            _ => Outcome::Reset(Code::OPTIONAL_ATTRIBUTE),
        };
        let message = update("", &format!("{attribute} {ORIGIN} {PATH}"), "");
        assert_eq!(outcome(&message, &EXTERNAL), wanted, "{length}");
    }
}

#[test]
fn a_mandatory_attribute_that_is_missing_withdraws_the_routes() {
    for (what, attributes) in [
        ("none at all, but routes", String::new()),
        ("no ORIGIN", format!("{PATH} {HOP}")),
        ("no AS_PATH", format!("{ORIGIN} {HOP}")),
        ("no NEXT_HOP", format!("{ORIGIN} {PATH}")),
    ] {
        let message = update("", &attributes, NLRI);
        assert_eq!(outcome(&message, &EXTERNAL), Outcome::Withdraw, "{what}");
        let Ok(Some(Message::Update(received))) = Reader::new().read(&mut &message[..], &EXTERNAL) else {
            panic!()
        };
        assert!(
            matches!(&received.updates[..], [Update::Withdraw(prefixes)] if prefixes.as_slice().len() == 1)
        );
    }
    // The next hop of IPv6 routes stands with them.
    let v6 = "800e1e 000201 10 fd000000000000000000000000000001 00 40 fd00002000000000";
    assert_eq!(outcome(&update("", &format!("{v6} {ORIGIN} {PATH}"), ""), &EXTERNAL), Outcome::Accept);
    assert_eq!(outcome(&update("", &format!("{v6} {ORIGIN}"), ""), &EXTERNAL), Outcome::Withdraw);
}

#[test]
fn a_second_copy_is_ignored_unless_it_holds_prefixes() {
    let good = format!("{ORIGIN} {PATH} {HOP}");
    for attribute in [ORIGIN, PATH, HOP, "c00804 00010002", "c0c801 00"] {
        let message = update("", &format!("{good} {attribute} {attribute}"), NLRI);
        assert_eq!(outcome(&message, &EXTERNAL), Outcome::Discard, "{attribute}");
    }
    // The first one counts.
    let message = update("", &format!("{good} c00804 00010002 c00804 00030004 400101 07"), NLRI);
    let Ok(Some(Message::Update(received))) = Reader::new().read(&mut &message[..], &EXTERNAL) else {
        panic!()
    };
    let [Update::Announce(announce)] = &received.updates[..] else { panic!("{received:?}") };
    let communities: Vec<String> =
        announce.attributes().communities.iter().map(ToString::to_string).collect();
    assert_eq!((communities, received.faults.len()), (vec!["1:2".to_owned()], 2));
    for attribute in ["800f03 000201", "800e15 000201 10 fd000000000000000000000000000001 00"] {
        let message = update("", &format!("{attribute} {good} {attribute}"), NLRI);
        assert_eq!(
            outcome(&message, &EXTERNAL),
            Outcome::Reset(Code::MALFORMED_ATTRIBUTE_LIST),
            "{attribute}"
        );
    }
}

#[test]
fn lengths_and_prefixes_that_hide_each_other_end_the_session() {
    let lists = Outcome::Reset(Code::MALFORMED_ATTRIBUTE_LIST);
    for (what, body) in [
        ("withdrawn routes longer than the message", "00ff 0000"),
        ("withdrawn routes up to the end, no length of attributes", "0002 0000"),
        ("attributes longer than the message", "0000 00ff 400101 00"),
        ("both lengths together longer than the message", "0002 00ff ffff 400101 00"),
        ("the largest lengths there are", "ffff ffff"),
    ] {
        assert_eq!(outcome(&raw(&hex(body)), &EXTERNAL), lists, "{what}");
    }
    let good = format!("{ORIGIN} {PATH} {HOP}");
    let network = Outcome::Reset(Code::INVALID_NETWORK);
    for (what, withdrawn, announced) in [
        ("announced prefix of 33 bits", "", "21 c0a8146400"),
        ("withdrawn prefix of 255 bits", "ff", ""),
        ("announced prefix cut short", "", "20 c0a814"),
        ("second withdrawn prefix cut short", "18 c0a814 18 c0", ""),
    ] {
        assert_eq!(outcome(&update(withdrawn, &good, announced), &EXTERNAL), network, "{what}");
    }
}

#[test]
fn what_is_withdrawn_and_announced_at_once_is_there() {
    let good = format!("{ORIGIN} {PATH} {HOP}");
    let message = update(NLRI, &good, NLRI);
    let Ok(Some(Message::Update(received))) = Reader::new().read(&mut &message[..], &EXTERNAL) else {
        panic!()
    };
    assert!(matches!(&received.updates[..], [Update::Withdraw(_), Update::Announce(_)]), "{received:?}");
    // The whole address space and a prefix with bits behind it are prefixes like others.
    for announced in ["00", "14 0a01ff", &format!("{NLRI}{NLRI}")] {
        assert_eq!(outcome(&update("", &good, announced), &EXTERNAL), Outcome::Accept, "{announced}");
    }
}

#[test]
fn routes_of_two_families_in_one_message_are_all_there() {
    let v6 = "800e1e 000201 10 fd000000000000000000000000000001 00 40 fd00002000000000";
    let gone = "800f0c 000201 40 fd00002100000000";
    let attributes = format!("{v6} {gone} {ORIGIN} {PATH} {HOP}");
    let message = update("18 cb0072", &attributes, NLRI);
    let Ok(Some(Message::Update(received))) = Reader::new().read(&mut &message[..], &EXTERNAL) else {
        panic!()
    };
    let families: Vec<(bool, IpFamily)> = received
        .updates
        .iter()
        .map(|update| match update {
            Update::Withdraw(prefixes) => (false, prefixes.family()),
            Update::Announce(announce) => (true, announce.next_hop().family()),
            Update::EndOfRib(family) => panic!("{family}"),
        })
        .collect();
    let (v4, v6) = (IpFamily::V4, IpFamily::V6);
    assert_eq!(
        (families, received.faults.len()),
        (vec![(false, v4), (false, v6), (true, v4), (true, v6)], 0)
    );
    // Where IPv6 was not agreed on, the rest is there.
    let Ok(Some(Message::Update(received))) = Reader::new().read(&mut &message[..], &V4_ONLY) else {
        panic!()
    };
    assert_eq!((received.updates.len(), received.faults.len()), (2, 2));
}

#[test]
fn the_end_of_a_table_is_an_update_that_says_nothing() {
    let read = |message: Vec<u8>| match Reader::new().read(&mut &message[..], &EXTERNAL) {
        Ok(Some(Message::Update(received))) => received.updates,
        other => panic!("{other:?}"),
    };
    assert_eq!(read(update("", "", "")), [Update::EndOfRib(IpFamily::V4)]);
    assert_eq!(read(update("", "800f03 000201", "")), [Update::EndOfRib(IpFamily::V6)]);
    // Attributes without routes are neither routes nor the end.
    assert_eq!(read(update("", ORIGIN, "")), []);
    assert_eq!(read(update("", &format!("800f03 000201 {ORIGIN}"), "")), []);
}

#[test]
fn a_message_of_many_faults_is_read_within_bounds() {
    // 1,350 attributes of no length, all of one type: the first counts, 16 faults are remembered.
    let message = update("", &"c0c800".repeat(1350), "");
    let Ok(Some(Message::Update(received))) = Reader::new().read(&mut &message[..], &EXTERNAL) else {
        panic!()
    };
    assert_eq!(received.faults.len(), 16);
    // One that withdraws is not lost behind them.
    let message = update("", &"c0c800".repeat(1300), NLRI);
    assert_eq!(outcome(&message, &EXTERNAL), Outcome::Withdraw);
    let error = Reader::new().read(&mut &update("", "40c801 07", NLRI)[..], &EXTERNAL).unwrap_err();
    assert!(matches!(error, MessageError::Update(_)));
    assert_eq!(error.notification().data, hex("40c80107"), "the attribute is shown to its sender");
}

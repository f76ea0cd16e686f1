// SPDX-License-Identifier: Apache-2.0
//! Neighbor Solicitations and Advertisements (RFC 4861 sections 4.3, 4.4 and 4.6) in Ethernet frames.
//!
//! What is read was validated as sections 7.1.1 and 7.1.2 ask: it passed no router, its checksum is right, its target
//! is no group, no option has length 0, and who has no address yet asks a group and gives no hardware address. Options
//! other than hardware addresses are passed over.

use std::fmt;
use std::net::Ipv6Addr;

use ferrolb_net_types::Mac;

use super::ipv6::{self, IPV6};
use super::{Bytes, Error, Field, ethernet};

/// A Neighbor Discovery message in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Whom it is for.
    pub destination: Mac,
    /// Whom it is from.
    pub source: Mac,
    /// What it carries.
    pub packet: Packet,
}

/// A Neighbor Discovery message in an IPv6 packet with hop limit 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Whom it is from; unspecified while the sender has no address.
    pub source: Ipv6Addr,
    /// Whom it is for.
    pub destination: Ipv6Addr,
    /// The message.
    pub message: Message,
}

/// One of the two messages by which hardware addresses are found.
///
/// ```text
///  0               1               2               3               4
/// +---------------+---------------+-------------------------------+
/// | type 135, 136 | code 0        | checksum                      |
/// +-+-+-+---------+---------------+-------------------------------+
/// |R|S|O| reserved (R, S, O: advertisements only)                 |
/// +-+-+-+---------------------------------------------------------+
/// | target address (8), 16 bytes                                  |
/// +---------------+---------------+-------------------------------+
/// | option type   | length / 8    | value …                       |
/// +---------------+---------------+-------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Who has the target?
    Solicitation(Solicitation),
    /// The target is here.
    Advertisement(Advertisement),
}

/// Type 135: who has the target?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The address that is asked for.
    pub target: Ipv6Addr,
    /// Source link-layer address, the option of type 1.
    pub source_mac: Option<Mac>,
}

/// Type 136: the target is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The address that is told of.
    pub target: Ipv6Addr,
    /// R: the sender is a router.
    pub router: bool,
    /// S: it answers a solicitation.
    pub solicited: bool,
    /// O: it replaces a hardware address that is known.
    pub overrides: bool,
    /// Target link-layer address, the option of type 2.
    pub target_mac: Option<Mac>,
}

impl Frame {
    /// Reads a whole frame. A VLAN tag is passed over.
    ///
    /// # Errors
    ///
    /// [`Error`], if it is cut short or does not hold a valid message. Extension headers before the message are not
    /// understood.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let view = ethernet::View::new(bytes)?;
        Field::EtherType.expect(12, view.kind(), IPV6)?;
        let packet = Packet::parse(&ipv6::View::new(view.payload())?)?;
        Ok(Self { destination: view.destination(), source: view.source(), packet })
    }

    /// Writes the frame.
    pub fn emit(&self) -> Bytes {
        let Packet { source, destination, message } = self.packet;
        let body = message.emit(source, destination);
        let header = ipv6::header(source, destination, ICMPV6, HOP_LIMIT, body.len() as u16); // at most 32
        Bytes::of(&[&self.destination.0, &self.source.0, &IPV6.to_be_bytes(), &header, &body])
    }
}

impl Packet {
    /// Takes the message out of an IPv6 packet.
    ///
    /// # Errors
    ///
    /// As [`Frame::parse`].
    pub fn parse(view: &ipv6::View<'_>) -> Result<Self, Error> {
        let (source, destination, body) = (view.source(), view.destination(), view.payload());
        Field::NextHeader.expect(6, view.next_header().into(), ICMPV6.into())?;
        Field::HopLimit.expect(7, view.hop_limit().into(), HOP_LIMIT.into())?;
        let short =
            || Error::Truncated { layer: "neighbor discovery message", needed: LENGTH, found: body.len() };
        let (&[kind, code, _, _], rest) = body.split_first_chunk().ok_or_else(short)?;
        let (&[flags, _, _, _], rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (target, options) = rest.split_first_chunk().ok_or_else(short)?;
        if kind != ADVERTISEMENT {
            Field::MessageType.expect(0, kind.into(), SOLICITATION.into())?;
        }
        if ipv6::checksum(source, destination, ICMPV6, body) != 0 {
            return Err(Error::Checksum);
        }
        Field::Code.expect(1, code.into(), 0)?;
        let target = Ipv6Addr::from_octets(*target);
        let misplaced = |role, address| Err(Error::Address { role, address });
        if target.is_multicast() {
            return misplaced("target", target);
        }
        if source.is_multicast() {
            return misplaced("source", source);
        }
        let wanted = if kind == SOLICITATION { SOURCE_MAC } else { TARGET_MAC };
        let mac = hardware_address(options, wanted)?;
        let message = if kind == SOLICITATION {
            if source.is_unspecified() && destination != ipv6::solicited_node(destination) {
                return misplaced("destination", destination);
            }
            if source.is_unspecified() && mac.is_some() {
                return Err(Error::Option { kind: SOURCE_MAC, length: 1 });
            }
            Message::Solicitation(Solicitation { target, source_mac: mac })
        } else {
            let [router, solicited, overrides] = [ROUTER, SOLICITED, OVERRIDES].map(|flag| flags & flag != 0);
            if solicited && destination.is_multicast() {
                return misplaced("destination", destination);
            }
            Message::Advertisement(Advertisement { target, router, solicited, overrides, target_mac: mac })
        };
        Ok(Self { source, destination, message })
    }
}

impl Message {
    /// The address that it is about.
    pub const fn target(&self) -> Ipv6Addr {
        match self {
            Self::Solicitation(Solicitation { target, .. })
            | Self::Advertisement(Advertisement { target, .. }) => *target,
        }
    }

    /// The message with its checksum.
    fn emit(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Bytes {
        let (kind, flags, option, mac) = match self {
            Self::Solicitation(Solicitation { source_mac, .. }) => (SOLICITATION, 0, SOURCE_MAC, source_mac),
            Self::Advertisement(Advertisement { router, solicited, overrides, target_mac, .. }) => {
                let flag = |set: bool, flag: u8| if set { flag } else { 0 };
                let flags = flag(*router, ROUTER) | flag(*solicited, SOLICITED) | flag(*overrides, OVERRIDES);
                (ADVERTISEMENT, flags, TARGET_MAC, target_mac)
            }
        };
        let option = mac.map(|Mac([a, b, c, d, e, f])| [option, 1, a, b, c, d, e, f]);
        let option = option.as_ref().map_or(&[][..], |option| option);
        let target = self.target().octets();
        let with = |checksum: u16| {
            Bytes::of(&[&[kind, 0], &checksum.to_be_bytes(), &[flags, 0, 0, 0], &target, option])
        };
        with(ipv6::checksum(source, destination, ICMPV6, &with(0)))
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, .. } = self;
        match self.message {
            Message::Solicitation(Solicitation { target, source_mac: Some(mac) }) => {
                write!(f, "who has {target}, tell {source} at {mac}")
            }
            Message::Solicitation(Solicitation { target, source_mac: None }) => {
                write!(f, "who has {target}, tell {source}")
            }
            Message::Advertisement(Advertisement { target, target_mac: Some(mac), .. }) => {
                write!(f, "{target} is at {mac}")
            }
            Message::Advertisement(Advertisement { target, target_mac: None, .. }) => {
                write!(f, "{target} is reachable")
            }
        }
    }
}

/// The value of the first option of this kind, after a look at all of them: each is a type, a length in units of eight
/// bytes, a value.
fn hardware_address(mut options: &[u8], wanted: u8) -> Result<Option<Mac>, Error> {
    let mut found = None;
    while let Some((&kind, rest)) = options.split_first() {
        let &length = rest.first().ok_or(Error::Truncated { layer: "option", needed: 2, found: 1 })?;
        let needed = usize::from(length) * 8;
        let (option, rest) = options.split_at_checked(needed).ok_or(Error::Truncated {
            layer: "option",
            needed,
            found: options.len(),
        })?;
        let wrong = Error::Option { kind, length };
        if length == 0 {
            return Err(wrong);
        }
        if kind == wanted && found.is_none() {
            // An Ethernet address takes just one unit (RFC 2464 section 6), and is somebody's.
            let &[_, _, a, b, c, d, e, f] = option else { return Err(wrong) };
            let mac = Mac([a, b, c, d, e, f]);
            if mac.is_multicast() || mac == Mac::ZERO {
                return Err(wrong);
            }
            found = Some(mac);
        }
        options = rest;
    }
    Ok(found)
}

/// ICMPv6 as IPv6's next header (RFC 4443 section 1).
const ICMPV6: u8 = 58;

/// The hop limit that proves that a message passed no router.
const HOP_LIMIT: u8 = 255;

/// The length of a message without options.
const LENGTH: usize = 24;

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;

const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDES: u8 = 0x20;

/// Options: source and target link-layer address.
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;

#[cfg(test)]
#[allow(clippy::indexing_slicing)] // a wrong index fails the test
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn solicitation() -> Frame {
        let message =
            Message::Solicitation(Solicitation { target: ip("2001:db8::9"), source_mac: Some(MAC) });
        let (source, destination) = (ip("2001:db8::1"), ip("ff02::1:ff00:9"));
        let packet = Packet { source, destination, message };
        Frame { destination: ipv6::group_mac(destination), source: MAC, packet }
    }

    fn advertisement() -> Frame {
        let message = Message::Advertisement(Advertisement {
            target: ip("2001:db8::9"),
            router: false,
            solicited: true,
            overrides: false,
            target_mac: Some(MAC),
        });
        let packet = Packet { source: ip("fe80::1"), destination: ip("2001:db8::1"), message };
        Frame { destination: Mac([2, 0, 0, 0, 0, 9]), source: MAC, packet }
    }

    /// The frame with bytes replaced and the checksum put right.
    fn changed(frame: &Frame, changes: &[(usize, u8)], more: &[u8]) -> Vec<u8> {
        let mut bytes = frame.emit().to_vec();
        bytes.extend_from_slice(more);
        let length = bytes.len() as u16 - 54;
        bytes[18..20].copy_from_slice(&length.to_be_bytes());
        for (at, value) in changes {
            bytes[*at] = *value;
        }
        bytes[56..58].fill(0);
        let address = |at: usize| Ipv6Addr::from_octets(bytes[at..at + 16].try_into().unwrap());
        let sum = ipv6::checksum(address(22), address(38), 58, &bytes[54..]);
        bytes[56..58].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn bytes_and_value_are_the_same_in_both_directions() {
        let bytes = solicitation().emit();
        let wanted = [
            0x33, 0x33, 0xff, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, // Ethernet
            0x60, 0, 0, 0, 0, 32, 58, 255, // IPv6
            0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // source
            0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 9, // destination
            135, 0, 0x1c, 0x19, 0, 0, 0, 0, // solicitation
            0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, // target
            1, 1, 2, 0, 0, 0, 0, 1, // source link-layer address
        ];
        assert_eq!(*bytes, wanted);
        assert_eq!(Frame::parse(&wanted), Ok(solicitation()));
        assert_eq!(Frame::parse(&advertisement().emit()), Ok(advertisement()));
        for (frame, text) in [
            (solicitation(), "who has 2001:db8::9, tell 2001:db8::1 at 02:00:00:00:00:01"),
            (advertisement(), "2001:db8::9 is at 02:00:00:00:00:01"),
        ] {
            assert_eq!(frame.packet.to_string(), text);
        }
    }

    #[test]
    fn every_prefix_is_an_error_and_padding_is_passed_over() {
        let bytes = solicitation().emit();
        for length in 0..bytes.len() {
            let error = Frame::parse(&bytes[..length]).unwrap_err();
            assert!(matches!(error, Error::Truncated { .. }), "{length}: {error}");
        }
        let padded = [&bytes, &[0xaa; 20][..]].concat();
        assert_eq!(Frame::parse(&padded), Ok(solicitation()));
        let mut tagged = bytes.to_vec();
        tagged.splice(12..12, [0x81, 0, 0x20, 5]);
        assert_eq!(Frame::parse(&tagged), Ok(solicitation()));
    }

    /// RFC 4861 section 7.1.1, line by line; the last rows are of section 7.1.2.
    #[test]
    fn what_is_not_valid_is_refused_with_its_reason() {
        let (ns, na) = (solicitation(), advertisement());
        let bare = changed(&Frame { packet: unsolicitous(ns.packet), ..ns }, &[], &[]);
        assert!(Frame::parse(&bare).is_ok(), "no option is needed");
        let from_nobody: Vec<_> = (22..38).map(|at| (at, 0)).collect();
        let to_all_nodes = [(49, 0), (50, 0), (51, 0), (53, 1)];
        let and = |more: &[(usize, u8)]| [&from_nobody, more].concat();
        let bare_frame = Frame { packet: unsolicitous(ns.packet), ..ns };
        for (what, bytes, wanted) in [
            ("another type", changed(&ns, &[(13, 0)], &[]), "type at byte 12 is 0x8600, not 0x86dd"),
            ("IPv4", changed(&ns, &[(14, 0x45)], &[]), "IP version at byte 0 is 0x0004, not 0x0006"),
            ("UDP", changed(&ns, &[(20, 17)], &[]), "next header at byte 6 is 0x0011, not 0x003a"),
            (
                "a router passed it on",
                changed(&ns, &[(21, 254)], &[]),
                "hop limit at byte 7 is 0x00fe, not 0x00ff",
            ),
            (
                "an echo request",
                changed(&ns, &[(54, 128)], &[]),
                "message type at byte 0 is 0x0080, not 0x0087",
            ),
            ("code", changed(&ns, &[(55, 1)], &[]), "code at byte 1 is 0x0001, not 0x0000"),
            (
                "too short",
                changed(&ns, &[(19, 23)], &[]),
                "neighbor discovery message needs 24 bytes, only 23 are there",
            ),
            (
                "target is a group",
                changed(&ns, &[(62, 0xff)], &[]),
                "ff01:db8::9 cannot be the target of this message",
            ),
            (
                "source is a group",
                changed(&ns, &[(22, 0xff)], &[]),
                "ff01:db8::1 cannot be the source of this message",
            ),
            (
                "an option of length 0",
                changed(&ns, &[], &[14, 0, 0, 0, 0, 0, 0, 0]),
                "option 14 of length 0 does not belong here",
            ),
            (
                "an option cut short",
                changed(&ns, &[], &[14, 2, 0, 0, 0, 0, 0, 0]),
                "option needs 16 bytes, only 8 are there",
            ),
            ("a lone byte", changed(&ns, &[], &[14]), "option needs 2 bytes, only 1 are there"),
            (
                "a long hardware address",
                changed(&bare_frame, &[], &[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                "option 1 of length 2 does not belong here",
            ),
            (
                "a group's hardware address",
                changed(&ns, &[(80, 3)], &[]),
                "option 1 of length 1 does not belong here",
            ),
            (
                "no hardware address",
                changed(&ns, &[(80, 0), (85, 0)], &[]),
                "option 1 of length 1 does not belong here",
            ),
            (
                "nobody gives a hardware address",
                changed(&ns, &from_nobody, &[]),
                "option 1 of length 1 does not belong here",
            ),
            (
                "nobody asks everybody",
                changed(&bare_frame, &and(&to_all_nodes), &[]),
                "ff02::1 cannot be the destination of this message",
            ),
            (
                "a solicited answer to everybody",
                changed(&na, &[(38, 0xff)], &[]),
                "ff01:db8::1 cannot be the destination of this message",
            ),
            (
                "an answer a router passed on",
                changed(&na, &[(21, 64)], &[]),
                "hop limit at byte 7 is 0x0040, not 0x00ff",
            ),
        ] {
            assert_eq!(
                Frame::parse(&bytes).map_err(|error| error.to_string()),
                Err(wanted.to_owned()),
                "{what}"
            );
        }
        assert!(
            Frame::parse(&changed(&bare_frame, &from_nobody, &[])).is_ok(),
            "duplicate address detection"
        );
        let mut bytes = ns.emit().to_vec();
        bytes[57] ^= 1;
        assert_eq!(Frame::parse(&bytes), Err(Error::Checksum));
    }

    /// The same solicitation without its option.
    fn unsolicitous(packet: Packet) -> Packet {
        let message =
            Message::Solicitation(Solicitation { target: packet.message.target(), source_mac: None });
        Packet { message, ..packet }
    }

    fn unicast() -> impl Strategy<Value = Mac> {
        any::<[u8; 6]>().prop_map(|mut mac| {
            mac[0] = mac[0] & 0xfe | 2;
            Mac(mac)
        })
    }

    /// Any address that is no group.
    fn one() -> impl Strategy<Value = Ipv6Addr> {
        any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits >> 1))
    }

    prop_compose! {
        fn any_frame()(
            (destination, source) in any::<([u8; 6], [u8; 6])>(),
            (sender, receiver, target) in (one(), one(), one()),
            mac in prop::option::of(unicast()),
            (asks, router, solicited, overrides) in any::<(bool, bool, bool, bool)>(),
        ) -> Frame {
            let message = if asks {
                Message::Solicitation(Solicitation { target, source_mac: mac })
            } else {
                Message::Advertisement(Advertisement { target, router, solicited, overrides, target_mac: mac })
            };
            let packet = Packet { source: sender, destination: receiver, message };
            Frame { destination: Mac(destination), source: Mac(source), packet }
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(frame in any_frame(), padding in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut bytes = frame.emit().to_vec();
            bytes.extend(padding);
            prop_assert_eq!(Frame::parse(&bytes), Ok(frame));
        }

        #[test]
        fn one_changed_bit_of_the_message_is_always_noticed(frame in any_frame(), bit in 0..24_usize * 8) {
            let mut bytes = frame.emit().to_vec();
            bytes[54 + bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Frame::parse(&bytes).is_err());
        }

        #[test]
        fn options_in_any_order_are_passed_over(others in prop::collection::vec((3..255_u8, 1..4_u8), 0..5), at in 0..6_usize) {
            let bare = Frame { packet: unsolicitous(solicitation().packet), ..solicitation() };
            let mut options: Vec<Vec<u8>> = others
                .iter()
                .map(|(kind, length)| [&[*kind, *length][..], &vec![0xab; usize::from(*length) * 8 - 2]].concat())
                .collect();
            options.insert(at.min(options.len()), [&[1, 1][..], &MAC.0].concat());
            prop_assert_eq!(Frame::parse(&changed(&bare, &[], &options.concat())), Ok(solicitation()));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(head in 0..87_usize, tail in prop::collection::vec(any::<u8>(), 0..80)) {
            let bytes = solicitation().emit();
            let mixed = [bytes.get(..head).unwrap_or(&bytes), &tail].concat();
            if let Ok(frame) = Frame::parse(&mixed) {
                prop_assert_eq!(Frame::parse(&frame.emit()), Ok(frame));
            }
        }
    }
}

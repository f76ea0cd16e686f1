// SPDX-License-Identifier: Apache-2.0
//! Neighbor Discovery as a host on the wire sees it (RFC 4861): a solicitation that it sends, an advertisement that it hears.
//!
//! Read and written here byte by byte, on purpose apart from the product's own code: a fault there must not hide itself.

use std::net::Ipv6Addr;

use ferrolb_net_types::Mac;

/// A Neighbor Solicitation (section 4.3) for `target` in a frame of 86 bytes, to its solicited-node group, with `mac` as its source
/// link-layer address.
pub(crate) fn solicitation(mac: Mac, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    let message = |sum: [u8; 2]| {
        [&[SOLICITATION, 0][..], &sum, &[0; 4], &target.octets(), &[SOURCE_LINK_LAYER, 1], &mac.0].concat()
    };
    let sum = checksum(source, group, &message([0, 0]));
    let to = [0x33, 0x33, 0xff, a, b, c];
    let header = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, ICMPV6, 255];
    [&to[..], &mac.0, &header, &source.octets(), &group.octets(), &message(sum)].concat()
}

/// A Neighbor Advertisement (section 4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Advertisement {
    /// Whom the packet is for.
    pub(crate) to: Ipv6Addr,
    /// Whose address it is about.
    pub(crate) target: Ipv6Addr,
    /// Whether it answers a solicitation.
    pub(crate) solicited: bool,
    /// Its target link-layer address, else where the frame comes from.
    pub(crate) mac: Mac,
}

impl Advertisement {
    /// The message in a frame; `None` if it is none.
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let address =
            |from: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(frame.get(from..from + 16)?).ok()?));
        let mac = |from: usize| Some(Mac(frame.get(from..from + 6)?.try_into().ok()?));
        // EtherType IPv6, next header ICMPv6, hop limit 255, a Neighbor Advertisement.
        (frame.get(12..14)? == [0x86, 0xdd] && frame.get(20..22)? == [ICMPV6, 255]).then_some(())?;
        (*frame.get(54)? == ADVERTISEMENT).then_some(())?;
        let told = (frame.get(78..80) == Some(&[TARGET_LINK_LAYER, 1])).then(|| mac(80)).flatten();
        Some(Self {
            to: address(38)?,
            target: address(62)?,
            solicited: frame.get(58)? & 0x40 != 0,
            mac: told.or_else(|| mac(6))?,
        })
    }
}

/// The checksum of an ICMPv6 message (RFC 4443, section 2.3; RFC 8200, section 8.1).
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> [u8; 2] {
    let length = (message.len() as u32).to_be_bytes(); // 32
    let pseudo = [&source.octets()[..], &destination.octets(), &length, &[0, 0, 0, ICMPV6]].concat();
    let words = pseudo.chunks(2).chain(message.chunks(2));
    let mut sum: u32 =
        words.map(|word| u32::from(word[0]) << 8 | word.get(1).copied().map_or(0, u32::from)).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes() // at most 0xffff after the loop
}

const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0x3a, 0x10, 0x50]);
    const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 0x50);
    const TARGET: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0x12, 0x3456);

    #[test]
    fn a_solicitation_goes_to_its_group_and_its_sum_is_right() {
        let frame = solicitation(MAC, OWN, TARGET);
        assert_eq!(frame.len(), 86);
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
        let group: Ipv6Addr = "ff02::1:ff12:3456".parse().unwrap();
        assert_eq!(frame[38..54], group.octets());
        // The sum over a message with its checksum is nothing.
        assert_eq!(checksum(OWN, group, &frame[54..]), [0, 0]);
    }

    #[test]
    fn an_advertisement_says_whose_it_is_and_whether_it_was_asked_for() {
        let other = Mac([2, 0, 0, 0, 0, 9]);
        let mut frame = solicitation(MAC, OWN, TARGET);
        assert_eq!(Advertisement::parse(&frame), None, "a solicitation");
        frame[38..54].copy_from_slice(&OWN.octets());
        frame[54] = ADVERTISEMENT;
        frame[58] = 0x40;
        frame[78] = TARGET_LINK_LAYER;
        frame[80..86].copy_from_slice(&other.0);
        let said = Advertisement { to: OWN, target: TARGET, solicited: true, mac: other };
        assert_eq!(Advertisement::parse(&frame), Some(said));
        frame[58] = 0x20;
        let unasked = Advertisement { solicited: false, mac: MAC, ..said };
        assert_eq!(Advertisement::parse(&frame[..78]), Some(unasked), "without its option");
        assert_eq!(Advertisement::parse(&frame[..70]), None, "cut short");
    }
}

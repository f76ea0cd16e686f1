// SPDX-License-Identifier: Apache-2.0
//! IPv6 headers (RFC 8200 section 3), the checksum over them, and the hardware addresses of groups.

use std::net::Ipv6Addr;

use ferrolb_net_types::Mac;

use super::{Error, Field};

/// The Ethernet type of IPv6 (RFC 2464 section 3).
pub const IPV6: u16 = 0x86dd;

/// The length of the header.
pub const LENGTH: usize = 40;

/// `ff02::1`: every node of the link (RFC 4291 section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// `ff02::2`: every router of the link (RFC 4291 section 2.7.1).
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// A received packet whose length was checked.
///
/// ```text
///  0               1               2               3               4
/// +-------+---------------+---------------------------------------+
/// |version| traffic class | flow label                            |
/// +-------+-----------------------+---------------+---------------+
/// | payload length                | next header   | hop limit     |
/// +-------------------------------+---------------+---------------+
/// | source address (8), 16 bytes                                  |
/// | destination address (24), 16 bytes                            |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    next_header: u8,
    hop_limit: u8,
    source: &'a [u8; 16],
    destination: &'a [u8; 16],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Reads the header; what follows the payload is padding.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if the header or the payload is not whole, [`Error::Unexpected`] if this is another
    /// version.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let short = || Error::Truncated { layer: "IPv6 header", needed: LENGTH, found: bytes.len() };
        let (&[first, _, _, _], rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let (length, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (&[next_header, hop_limit], rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (source, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (destination, rest) = rest.split_first_chunk().ok_or_else(short)?;
        Field::Version.expect(0, (first >> 4).into(), 6)?;
        let needed = u16::from_be_bytes(*length).into();
        let payload = rest.get(..needed).ok_or(Error::Truncated {
            layer: "IPv6 payload",
            needed,
            found: rest.len(),
        })?;
        Ok(Self { next_header, hop_limit, source, destination, payload })
    }

    /// What the payload is; 58 is ICMPv6.
    pub const fn next_header(&self) -> u8 {
        self.next_header
    }

    /// How many routers may still pass it on; what was sent with 255 and has 255 passed none.
    pub const fn hop_limit(&self) -> u8 {
        self.hop_limit
    }

    /// Whom it is from.
    pub const fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(*self.source)
    }

    /// Whom it is for.
    pub const fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(*self.destination)
    }

    /// The payload, without padding.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A header with no traffic class and no flow label.
pub(super) fn header(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    next_header: u8,
    hop_limit: u8,
    payload: u16,
) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    let mut rest = bytes.as_mut_slice();
    let parts: [&[u8]; 5] = [
        &[6 << 4, 0, 0, 0],
        &payload.to_be_bytes(),
        &[next_header, hop_limit],
        &source.octets(),
        &destination.octets(),
    ];
    for part in parts {
        let Some((head, tail)) = rest.split_at_mut_checked(part.len()) else { break };
        head.copy_from_slice(part);
        rest = tail;
    }
    bytes
}

/// The checksum of a payload with the pseudo-header of its addresses (RFC 8200 section 8.1). Over a payload that
/// holds its checksum it is 0.
pub(super) fn checksum(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u64 {
        let (pairs, odd) = bytes.as_chunks::<2>();
        let whole: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
        whole + odd.first().map_or(0, |last| u64::from(*last) << 8)
    };
    let addresses = words(&source.octets()) + words(&destination.octets());
    let mut sum = addresses + payload.len() as u64 + u64::from(next_header) + words(payload);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16) // what is left has 16 bits
}

/// The group in which a node listens that has the address: `ff02::1:ff` and its last three bytes (RFC 4291 section
/// 2.7.1). Several addresses may share one.
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let low = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a as u16, low)
}

/// The hardware address of a group: `33:33` and its last four bytes (RFC 2464 section 7).
pub const fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_addresses_and_their_hardware_addresses() {
        for (address, group, mac) in [
            ("fd00:10::201", "ff02::1:ff00:201", "33:33:ff:00:02:01"),
            ("2001:db8:0:1::1:100", "ff02::1:ff01:100", "33:33:ff:01:01:00"),
            ("4037::01:800:200e:8c6c", "ff02::1:ff0e:8c6c", "33:33:ff:0e:8c:6c"), // RFC 4291's example
        ] {
            let solicited = solicited_node(address.parse().unwrap());
            assert_eq!(solicited, group.parse::<Ipv6Addr>().unwrap());
            assert_eq!(group_mac(solicited).to_string(), mac);
        }
        assert_eq!(group_mac(ALL_NODES).to_string(), "33:33:00:00:00:01");
    }

    #[test]
    fn a_checksum_covers_addresses_length_kind_and_every_byte() {
        let (one, other) = (Ipv6Addr::LOCALHOST, ALL_NODES);
        let plain = checksum(one, other, 58, &[1, 2, 3]);
        // Worked out by hand: 1 + ff02 + 1 + 3 + 58 + 0102 + 0300, folded.
        assert_eq!(plain, !0x0344_u16);
        for changed in [
            checksum(Ipv6Addr::UNSPECIFIED, other, 58, &[1, 2, 3]),
            checksum(one, ALL_ROUTERS, 58, &[1, 2, 3]),
            checksum(one, other, 17, &[1, 2, 3]),
            checksum(one, other, 58, &[1, 2, 3, 0]),
            checksum(one, other, 58, &[1, 2, 4]),
        ] {
            assert_ne!(changed, plain);
        }
    }
}

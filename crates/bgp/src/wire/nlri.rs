// SPDX-License-Identifier: Apache-2.0
//! Prefixes as UPDATEs have them: a length in bits, then as many octets as that takes (RFC 4271, section 4.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferrolb_net_types::{IpFamily, Prefix};

use super::cursor::Cursor;

/// How many bytes it takes.
pub(crate) fn length(prefix: Prefix) -> usize {
    1 + usize::from(prefix.length()).div_ceil(8)
}

/// Writes a prefix.
pub(crate) fn encode(prefix: Prefix, out: &mut Vec<u8>) {
    let octets = length(prefix) - 1;
    out.push(prefix.length());
    match prefix.first() {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()[..octets]),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()[..octets]),
    }
}

/// Reads prefixes of a family to the end; bits behind a prefix mean nothing. `None` if a length is impossible, or one
/// is cut short. An IPv6 prefix within `::ffff:0:0/96`, whose addresses are IPv4 addresses, is left out: no router
/// can mean it.
pub(crate) fn decode(family: IpFamily, bytes: &[u8]) -> Option<Vec<Prefix>> {
    let mut cursor = Cursor::new(bytes);
    let mut prefixes = Vec::with_capacity(bytes.len() / 5);
    while let Some(length) = cursor.u8() {
        if length > family.bits() {
            return None;
        }
        let given = cursor.take(usize::from(length).div_ceil(8))?;
        let mut octets = [0; 16];
        octets[..given.len()].copy_from_slice(given);
        let address = match family {
            IpFamily::V4 => {
                let [a, b, c, d, ..] = octets;
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            IpFamily::V6 => IpAddr::V6(Ipv6Addr::from_octets(octets)),
        };
        prefixes.extend(Prefix::new(address, length).filter(|prefix| prefix.family() == family));
    }
    Some(prefixes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(family: IpFamily, bytes: &[u8]) -> Option<Vec<String>> {
        decode(family, bytes).map(|prefixes| prefixes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn as_many_octets_as_the_length_takes() {
        for (text, bytes) in [
            ("0.0.0.0/0", &[0][..]),
            ("128.0.0.0/1", &[1, 128]),
            ("10.0.0.0/8", &[8, 10]),
            ("192.168.20.0/24", &[24, 192, 168, 20]),
            ("192.168.20.100/30", &[30, 192, 168, 20, 100]),
            ("192.168.20.100/32", &[32, 192, 168, 20, 100]),
            ("::/0", &[0]),
            ("fd00:20::/64", &[64, 0xfd, 0, 0, 0x20, 0, 0, 0, 0]),
        ] {
            let prefix: Prefix = text.parse().unwrap();
            let mut out = Vec::new();
            encode(prefix, &mut out);
            assert_eq!(out, bytes, "{text}");
            assert_eq!(length(prefix), bytes.len());
            assert_eq!(decode(prefix.family(), bytes), Some(vec![prefix]));
        }
    }

    #[test]
    fn bits_behind_a_prefix_mean_nothing() {
        assert_eq!(texts(IpFamily::V4, &[20, 10, 1, 0xff]), Some(vec!["10.1.240.0/20".to_owned()]));
    }

    #[test]
    fn malformed_prefixes() {
        for (family, bytes) in [
            (IpFamily::V4, &[33, 1, 2, 3, 4, 5][..]),
            (IpFamily::V4, &[255]),
            (IpFamily::V4, &[32, 1, 2, 3]),
            (IpFamily::V4, &[8, 10, 24, 1, 2]),
            (IpFamily::V6, &[129; 18]),
            (IpFamily::V6, &[64, 0xfd]),
        ] {
            assert_eq!(decode(family, bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn an_ipv6_prefix_of_ipv4_addresses_is_left_out() {
        let mapped = [&[128][..], &Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets()].concat();
        assert_eq!(decode(IpFamily::V6, &mapped), Some(vec![]));
    }
}

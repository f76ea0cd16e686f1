// SPDX-License-Identifier: Apache-2.0
//! IP addresses: families, prefixes, and the one textual form that Kubernetes objects carry.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// The family of an address. An IPv4-mapped IPv6 address is IPv4.
    pub fn of(ip: IpAddr) -> Self {
        match canonical(ip) {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Length of an address in bits: 32 or 128.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// Prints `ipv4` or `ipv6`, as MetalLB does in its messages.
impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        })
    }
}

/// The canonical form of an address: an IPv4-mapped IPv6 address is its IPv4 address.
pub fn canonical(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// Parses an address as MetalLB does: no blanks, no zone, no octets with leading zeros; IPv4-mapped becomes IPv4.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(canonical)
}

/// A network prefix whose host bits are zero.
///
/// Ordered by family, then address, then length (shorter first).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// A prefix; host bits of `address` are cleared. `None` if `length` exceeds the family's.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let address = canonical(address);
        let bits = IpFamily::of(address).bits();
        (length <= bits).then(|| Self { address: mask(address, length), length })
    }

    /// The prefix that holds this one address.
    pub fn host(address: IpAddr) -> Self {
        let address = canonical(address);
        Self { address, length: IpFamily::of(address).bits() }
    }

    /// The first address.
    pub const fn first(&self) -> IpAddr {
        self.address
    }

    /// The last address.
    pub fn last(&self) -> IpAddr {
        let host_bits = self.family().bits() - self.length;
        match self.address {
            IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() | low_bits_v4(host_bits))),
            IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() | low_bits_v6(host_bits))),
        }
    }

    /// The length in bits.
    pub const fn length(&self) -> u8 {
        self.length
    }

    /// The family.
    pub const fn family(&self) -> IpFamily {
        match self.address {
            IpAddr::V4(_) => IpFamily::V4,
            IpAddr::V6(_) => IpFamily::V6,
        }
    }

    /// Whether the address lies in the prefix.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = canonical(ip);
        IpFamily::of(ip) == self.family() && mask(ip, self.length) == self.address
    }

    /// Whether the two share an address, that is whether one contains the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    /// The fewest aligned prefixes that cover `first..=last`, ascending.
    ///
    /// Empty if the families differ or `first` is after `last`.
    pub fn cover(first: IpAddr, last: IpAddr) -> Vec<Self> {
        match (canonical(first), canonical(last)) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                cover_bits(a.to_bits().into(), b.to_bits().into(), 32, |bits| {
                    // The loop stays within `first..=last`, so the value fits.
                    IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX)))
                })
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                cover_bits(a.to_bits(), b.to_bits(), 128, |bits| IpAddr::V6(Ipv6Addr::from_bits(bits)))
            }
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a CIDR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsePrefixError;

impl fmt::Display for ParsePrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a network prefix of the form ADDRESS/LENGTH")
    }
}

impl std::error::Error for ParsePrefixError {}

/// Host bits are cleared; an IPv4-mapped prefix of /96 or longer becomes IPv4.
impl FromStr for Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, length) = text.split_once('/').ok_or(ParsePrefixError)?;
        let written: IpAddr = address.parse().map_err(|_| ParsePrefixError)?;
        let plain_number = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
        let leading_zero = length.len() > 1 && length.starts_with('0');
        if !plain_number || leading_zero {
            return Err(ParsePrefixError);
        }
        let length: u8 = length.parse().map_err(|_| ParsePrefixError)?;
        let length = match (written, canonical(written)) {
            (IpAddr::V6(_), IpAddr::V4(_)) => length.checked_sub(96).ok_or(ParsePrefixError)?,
            _ => length,
        };
        Self::new(written, length).ok_or(ParsePrefixError)
    }
}

fn mask(ip: IpAddr, length: u8) -> IpAddr {
    match ip {
        IpAddr::V4(a) => {
            IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & !low_bits_v4(32_u8.saturating_sub(length))))
        }
        IpAddr::V6(a) => {
            IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & !low_bits_v6(128_u8.saturating_sub(length))))
        }
    }
}

fn low_bits_v4(count: u8) -> u32 {
    1_u32.checked_shl(count.into()).map_or(u32::MAX, |bit| bit - 1)
}

fn low_bits_v6(count: u8) -> u128 {
    1_u128.checked_shl(count.into()).map_or(u128::MAX, |bit| bit - 1)
}

fn cover_bits(mut first: u128, last: u128, bits: u32, address: impl Fn(u128) -> IpAddr) -> Vec<Prefix> {
    let mut blocks = Vec::new();
    while first <= last {
        let aligned = if first == 0 { bits } else { first.trailing_zeros().min(bits) };
        // The largest aligned block that starts here and does not pass the end.
        let size = (0..=aligned)
            .rev()
            .find(|&n| low_bits_v6(u8::try_from(n).unwrap_or(u8::MAX)) <= last - first)
            .unwrap_or(0);
        blocks.extend(Prefix::new(address(first), u8::try_from(bits - size).unwrap_or(0)));
        let span = low_bits_v6(u8::try_from(size).unwrap_or(u8::MAX));
        let Some(next) = first.checked_add(span).and_then(|end| end.checked_add(1)) else { break };
        first = next;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_becomes_the_fewest_aligned_blocks() {
        let texts = |a, b| Prefix::cover(ip(a), ip(b)).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            texts("40.0.0.150", "40.0.0.200"),
            ["40.0.0.150/31", "40.0.0.152/29", "40.0.0.160/27", "40.0.0.192/29", "40.0.0.200/32"]
        );
        assert_eq!(texts("40.0.0.250", "40.0.0.250"), ["40.0.0.250/32"]);
        assert_eq!(texts("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(texts("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
        assert!(texts("1.2.3.4", "1.2.3.3").is_empty());
        assert!(texts("1.2.3.4", "::1").is_empty());
    }

    #[test]
    fn text_forms() {
        let ok = |t: &str| t.parse::<Prefix>().unwrap().to_string();
        assert_eq!(ok("10.0.0.5/24"), "10.0.0.0/24");
        assert_eq!(ok("::ffff:10.0.0.5/120"), "10.0.0.0/24");
        assert_eq!(ok("2001:DB8::/32"), "2001:db8::/32");
        for bad in [
            "10.0.0.1",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            " 10.0.0.0/8",
            "010.0.0.0/8",
            "10.0.0.0/08",
            "fe80::%eth0/64",
            "100.200.300.400/24",
        ] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_cover_is_exact(a: u32, span in 0_u32..70_000) {
            let first = Ipv4Addr::from_bits(a);
            let last = Ipv4Addr::from_bits(a.saturating_add(span));
            let blocks = Prefix::cover(first.into(), last.into());
            prop_assert_eq!(blocks[0].first(), IpAddr::V4(first));
            prop_assert_eq!(blocks.last().unwrap().last(), IpAddr::V4(last));
            for pair in blocks.windows(2) {
                let (IpAddr::V4(end), IpAddr::V4(start)) = (pair[0].last(), pair[1].first()) else { panic!() };
                prop_assert_eq!(end.to_bits() + 1, start.to_bits());
            }
            prop_assert!(blocks.len() <= 62);
        }

        #[test]
        fn text_survives_a_round_trip(a: u128, length in 0_u8..=128) {
            let prefix = Prefix::new(Ipv6Addr::from_bits(a).into(), length);
            if let Some(prefix) = prefix.filter(|p| p.family() == IpFamily::V6 && p.first().to_canonical().is_ipv6()) {
                prop_assert_eq!(prefix.to_string().parse::<Prefix>(), Ok(prefix));
            }
        }
    }
}

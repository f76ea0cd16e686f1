// SPDX-License-Identifier: Apache-2.0
//! Communities: marks on a route that routers act upon (RFC 1997, RFC 4360, RFC 8092).

use std::fmt;

use ferrolb_net_types::Asn;

/// A community of four octets, written `64512:100` (RFC 1997).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Community(pub u32);

impl Community {
    /// GRACEFUL_SHUTDOWN, 65535:0: the route is about to go, prefer every other (RFC 8326).
    pub const GRACEFUL_SHUTDOWN: Self = Self::new(65_535, 0);

    /// The community of these two halves.
    #[must_use]
    pub const fn new(high: u16, low: u16) -> Self {
        Self((high as u32) << 16 | low as u32)
    }
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0 >> 16, self.0 & 0xffff)
    }
}

impl fmt::Debug for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A community of twelve octets, written `4200000001:1:2` (RFC 8092).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeCommunity {
    /// Global Administrator: usually an autonomous system, which says what the rest means.
    pub global: u32,
    /// Local Data Part 1.
    pub local1: u32,
    /// Local Data Part 2.
    pub local2: u32,
}

impl LargeCommunity {
    pub(crate) fn octets(self) -> [u8; 12] {
        let mut octets = [0; 12];
        for (place, part) in octets.chunks_mut(4).zip([self.global, self.local1, self.local2]) {
            place.copy_from_slice(&part.to_be_bytes());
        }
        octets
    }
}

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.global, self.local1, self.local2)
    }
}

impl fmt::Debug for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An extended community: eight octets that begin with a type (RFC 4360).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtendedCommunity(pub [u8; 8]);

/// Two-octet AS specific; with the bit 0x40, not for other autonomous systems (RFC 7153).
const TWO_OCTET_AS: u8 = 0x00;
const NON_TRANSITIVE: u8 = 0x40;
const LINK_BANDWIDTH: u8 = 0x04;

impl ExtendedCommunity {
    /// Link bandwidth: how much traffic to send this way, in proportion to other ways (draft-ietf-idr-link-bandwidth).
    ///
    /// As the draft has it, it is non-transitive, and some routers take it from an external peer nevertheless; others
    /// take only the transitive one. A system beyond two octets is AS_TRANS.
    #[must_use]
    pub fn link_bandwidth(asn: Asn, bytes_per_second: f32, transitive: bool) -> Self {
        let kind = if transitive { TWO_OCTET_AS } else { TWO_OCTET_AS | NON_TRANSITIVE };
        let [a, b] = asn.two_octets().or(Asn::TRANS.two_octets()).unwrap_or_default().to_be_bytes();
        let [c, d, e, f] = bytes_per_second.to_be_bytes();
        Self([kind, LINK_BANDWIDTH, a, b, c, d, e, f])
    }

    /// Its link bandwidth in bytes per second, if that is what it is, transitive or not.
    #[must_use]
    pub const fn as_link_bandwidth(self) -> Option<f32> {
        match self.0 {
            [kind, LINK_BANDWIDTH, _, _, c, d, e, f] if kind & !NON_TRANSITIVE == TWO_OCTET_AS => {
                Some(f32::from_be_bytes([c, d, e, f]))
            }
            _ => None,
        }
    }
}

impl fmt::Debug for ExtendedCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_link_bandwidth() {
            Some(bandwidth) => write!(f, "LB:{bandwidth}"),
            None => write!(f, "{:016x}", u64::from_be_bytes(self.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_order() {
        assert_eq!(Community::new(64_512, 1234).to_string(), "64512:1234");
        assert_eq!(Community::GRACEFUL_SHUTDOWN.0, 0xffff_0000);
        assert!(Community::new(1, 65_535) < Community::new(2, 0));
        let large = LargeCommunity { global: 4_200_000_001, local1: 1, local2: 2 };
        assert_eq!(large.to_string(), "4200000001:1:2");
        assert_eq!(large.octets(), [0xfa, 0x56, 0xea, 0x01, 0, 0, 0, 1, 0, 0, 0, 2]);
    }

    #[test]
    fn bg_39_link_bandwidth_is_a_float_of_bytes_per_second() {
        let asn = Asn::new(64_512).unwrap();
        let ten_megabits = ExtendedCommunity::link_bandwidth(asn, 1_250_000.0, false);
        assert_eq!(ten_megabits.0, [0x40, 4, 0xfc, 0, 0x49, 0x98, 0x96, 0x80]);
        assert_eq!(ten_megabits.as_link_bandwidth(), Some(1_250_000.0));
        let transitive = ExtendedCommunity::link_bandwidth(Asn::new(4_200_000_001).unwrap(), 1.0, true);
        assert_eq!(transitive.0, [0, 4, 0x5b, 0xa0, 0x3f, 0x80, 0, 0]);
        assert_eq!(ExtendedCommunity([0, 2, 0, 1, 0, 0, 0, 1]).as_link_bandwidth(), None);
    }
}

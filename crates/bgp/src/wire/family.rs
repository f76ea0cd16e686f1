// SPDX-License-Identifier: Apache-2.0
//! Address families as BGP numbers them (RFC 4760): IPv4 and IPv6, unicast.

use std::fmt;

use ferrolb_net_types::IpFamily;

/// The subsequent address family of unicast routes.
pub(crate) const UNICAST: u8 = 1;

/// The address family's number.
pub(crate) const fn afi(family: IpFamily) -> u16 {
    match family {
        IpFamily::V4 => 1,
        IpFamily::V6 => 2,
    }
}

/// The family whose unicast routes these numbers mean; `None` for everything else there is.
pub(crate) const fn family(afi: u16, safi: u8) -> Option<IpFamily> {
    match (afi, safi) {
        (1, UNICAST) => Some(IpFamily::V4),
        (2, UNICAST) => Some(IpFamily::V6),
        _ => None,
    }
}

/// A set of families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    v4: bool,
    v6: bool,
}

impl Families {
    /// Neither.
    pub const NONE: Self = Self { v4: false, v6: false };
    /// IPv4 alone.
    pub const V4: Self = Self { v4: true, v6: false };
    /// IPv6 alone.
    pub const V6: Self = Self { v4: false, v6: true };
    /// Both.
    pub const BOTH: Self = Self { v4: true, v6: true };

    /// Whether the family is one of them.
    #[must_use]
    pub const fn contains(self, family: IpFamily) -> bool {
        match family {
            IpFamily::V4 => self.v4,
            IpFamily::V6 => self.v6,
        }
    }

    /// These and one more.
    #[must_use]
    pub const fn with(self, family: IpFamily) -> Self {
        match family {
            IpFamily::V4 => Self { v4: true, ..self },
            IpFamily::V6 => Self { v6: true, ..self },
        }
    }

    /// Those that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { v4: self.v4 && other.v4, v6: self.v6 && other.v6 }
    }

    /// Those that are in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self { v4: self.v4 || other.v4, v6: self.v6 || other.v6 }
    }

    /// Those of these that are not in the other set.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self { v4: self.v4 && !other.v4, v6: self.v6 && !other.v6 }
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        !self.v4 && !self.v6
    }

    /// The families, IPv4 first.
    pub fn iter(self) -> impl Iterator<Item = IpFamily> {
        [IpFamily::V4, IpFamily::V6].into_iter().filter(move |family| self.contains(*family))
    }
}

/// Prints `ipv4`, `ipv6`, `ipv4 and ipv6` or `none`.
impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.v4, self.v6) {
            (true, true) => "ipv4 and ipv6",
            (true, false) => "ipv4",
            (false, true) => "ipv6",
            (false, false) => "none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unicast_has_a_family() {
        for wanted in [IpFamily::V4, IpFamily::V6] {
            assert_eq!(family(afi(wanted), UNICAST), Some(wanted));
        }
        for (afi, safi) in [(0, 1), (1, 0), (1, 2), (1, 128), (2, 133), (25, 70), (3, 1)] {
            assert_eq!(family(afi, safi), None, "{afi}/{safi}");
        }
    }

    #[test]
    fn sets() {
        assert_eq!(Families::V4.or(Families::V6), Families::BOTH);
        assert_eq!(Families::BOTH.without(Families::V4), Families::V6);
        assert!(Families::V4.and(Families::V6).is_empty());
        assert_eq!(Families::NONE.with(IpFamily::V6), Families::V6);
        assert!(Families::BOTH.iter().eq([IpFamily::V4, IpFamily::V6]));
        assert_eq!(Families::V4.to_string(), "ipv4");
    }
}

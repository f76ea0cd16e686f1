// SPDX-License-Identifier: Apache-2.0
//! Numbers of autonomous systems.

use std::fmt;
use std::num::NonZeroU32;

/// The number of an autonomous system, four octets wide (RFC 6793). Never 0, which is nobody's (RFC 7607).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asn(NonZeroU32);

impl Asn {
    /// AS_TRANS, 23456: it stands where a number does not fit into two octets.
    pub const TRANS: Self = Self(NonZeroU32::MIN.saturating_add(23_455));

    /// The system of this number; `None` for 0.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0.get()
    }

    /// The number in two octets; `None` if it does not fit.
    pub fn two_octets(self) -> Option<u16> {
        self.number().try_into().ok()
    }
}

/// Prints the plain number ("asplain", RFC 5396).
impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AS{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_system_and_65536_is_the_first_that_does_not_fit_into_two_octets() {
        assert_eq!(Asn::new(0), None);
        assert_eq!(Asn::TRANS.to_string(), "23456");
        assert_eq!(Asn::new(65_535).and_then(Asn::two_octets), Some(65_535));
        assert_eq!(Asn::new(65_536).and_then(Asn::two_octets), None);
    }
}

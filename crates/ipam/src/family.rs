// SPDX-License-Identifier: Apache-2.0
//! Whether a list of addresses is IPv4, IPv6 or dual-stack.

use std::fmt;
use std::net::IpAddr;

use ferrolb_net_types::{IpFamily, parse_ip};
use thiserror::Error;

use crate::text::{Addresses, QuotedList};

/// The families of a Service, or of the addresses it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// One address of this family.
    One(IpFamily),
    /// One address of each family.
    Dual,
}

impl Families {
    /// The families of the addresses in a status; `None` stands for a text that is no address.
    ///
    /// # Errors
    /// See [`FamilyError`]. An empty list is a list of the wrong length.
    pub fn of(ips: &[Option<IpAddr>]) -> Result<Self, FamilyError> {
        classify(ips, || Addresses(ips).to_string())
    }

    /// The families of a Service's cluster IPs.
    ///
    /// # Errors
    /// See [`FamilyError`].
    pub fn of_texts(texts: &[String]) -> Result<Self, FamilyError> {
        let ips: Vec<_> = texts.iter().map(|text| parse_ip(text)).collect();
        classify(&ips, || QuotedList(texts).to_string())
    }
}

impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(family) => family.fmt(f),
            Self::Dual => f.write_str("dual"),
        }
    }
}

/// Why a list of addresses has no family. Each holds the list as it is printed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FamilyError {
    /// An item is not an address.
    #[error("IPFamilyForAddresses: Invalid address {0}")]
    Invalid(String),
    /// Two addresses of one family.
    #[error("IPFamilyForAddresses: same address family {0}")]
    Same(String),
    /// Neither one address nor two.
    #[error("IPFamilyForAddresses: invalid ips length {0} {1}")]
    Length(usize, String),
}

fn classify(ips: &[Option<IpAddr>], printed: impl Fn() -> String) -> Result<Families, FamilyError> {
    match ips {
        [Some(ip)] => Ok(Families::One(IpFamily::of(*ip))),
        [Some(a), Some(b)] if IpFamily::of(*a) == IpFamily::of(*b) => Err(FamilyError::Same(printed())),
        [Some(_), Some(_)] => Ok(Families::Dual),
        [_] | [_, _] => Err(FamilyError::Invalid(printed())),
        _ => Err(FamilyError::Length(ips.len(), printed())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k4_lists_of_addresses_have_a_family_or_a_fault() {
        let of = |texts: &[&str]| {
            Families::of_texts(&texts.iter().map(ToString::to_string).collect::<Vec<_>>())
                .map_or_else(|e| e.to_string(), |f| f.to_string())
        };
        for (texts, expected) in [
            (&["10.0.0.1"][..], "ipv4"),
            (&["fd00::1"], "ipv6"),
            (&["::ffff:10.0.0.1"], "ipv4"),
            (&["fd00::1", "10.0.0.1"], "dual"),
            (
                &["10.0.0.1", "10.0.0.2"],
                r#"IPFamilyForAddresses: same address family ["10.0.0.1" "10.0.0.2"]"#,
            ),
            (&["None"], r#"IPFamilyForAddresses: Invalid address ["None"]"#),
            (&["10.0.0.1", ""], r#"IPFamilyForAddresses: Invalid address ["10.0.0.1" ""]"#),
            (&["a", "b", "c"], r#"IPFamilyForAddresses: invalid ips length 3 ["a" "b" "c"]"#),
        ] {
            assert_eq!(of(texts), expected);
        }
        assert_eq!(
            Families::of(&[None]).unwrap_err().to_string(),
            r#"IPFamilyForAddresses: Invalid address ["<nil>"]"#
        );
    }
}

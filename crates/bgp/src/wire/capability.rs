// SPDX-License-Identifier: Apache-2.0
//! Capabilities: what a speaker says in its OPEN that it can do (RFC 5492).

use ferrolb_net_types::IpFamily;

use super::cursor::Cursor;
use super::family::{Families, UNICAST, afi, family};

const MULTIPROTOCOL: u8 = 1;
const ROUTE_REFRESH: u8 = 2;
const GRACEFUL_RESTART: u8 = 64;
const FOUR_OCTET_AS: u8 = 65;
const FQDN: u8 = 73;

/// Something that a speaker can do.
///
/// One whose value is not what its RFC says is [`Capability::Other`]: the session goes on as if it had not been
/// there, which is what its sender must be ready for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// Routes of this family (RFC 4760); the families that this crate has.
    Multiprotocol(IpFamily),
    /// ROUTE-REFRESH (RFC 2918).
    RouteRefresh,
    /// Graceful restart (RFC 4724).
    GracefulRestart(GracefulRestart),
    /// Four octets for numbers of autonomous systems (RFC 6793), with the own one as it was sent, 0 included.
    FourOctetAs(u32),
    /// Anything else.
    Other(OtherCapability),
}

/// The longest name that fits, with its length and that of the domain.
const LONGEST_HOST: usize = 253;

/// A capability that means nothing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherCapability {
    code: u8,
    value: Vec<u8>,
}

/// What a speaker says of its restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GracefulRestart {
    /// The R bit: it has just restarted.
    pub restarting: bool,
    /// The N bit: graceful restart also covers NOTIFICATIONs (RFC 8538).
    pub notification: bool,
    /// How long its routes are to be kept until it is back, in seconds: 0 to 4095.
    pub restart_seconds: u16,
    /// The families for which it holds; `true`, the F bit, where forwarding went on.
    pub families: Vec<(IpFamily, bool)>,
}

impl OtherCapability {
    /// Its code.
    #[must_use]
    pub const fn code(&self) -> u8 {
        self.code
    }

    /// Its value: at most 255 bytes.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

impl Capability {
    /// The capability of this code and value; `None` if the value is longer than the 255 bytes that fit.
    #[must_use]
    pub fn of(code: u8, value: &[u8]) -> Option<Self> {
        (value.len() <= 255).then(|| {
            Self::known(code, value)
                .unwrap_or_else(|| Self::Other(OtherCapability { code, value: value.to_vec() }))
        })
    }

    /// What the speaker is called, for its peer to show (draft-walton-bgp-hostname-capability), in no domain. Of a name
    /// that is longer, as no host's is, the first 253 bytes.
    #[must_use]
    pub fn fqdn(host: &str) -> Self {
        let host = &host.as_bytes()[..host.len().min(LONGEST_HOST)];
        // Bounded by the line above.
        let length = u8::try_from(host.len()).unwrap_or(u8::MAX);
        let value = [&[length], host, &[0]].concat();
        Self::Other(OtherCapability { code: FQDN, value })
    }

    /// Its code.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::Multiprotocol(_) => MULTIPROTOCOL,
            Self::RouteRefresh => ROUTE_REFRESH,
            Self::GracefulRestart(_) => GRACEFUL_RESTART,
            Self::FourOctetAs(_) => FOUR_OCTET_AS,
            Self::Other(other) => other.code,
        }
    }

    /// The families that a list of capabilities allows. Who lists none at all means IPv4 (RFC 4760, section 8).
    pub(crate) fn families(list: &[Self]) -> Families {
        let multiprotocol = |capability: &&Self| match capability {
            Self::Multiprotocol(_) => true,
            // Another family; or a value that says nothing, and so is not there.
            Self::Other(other) => other.code == MULTIPROTOCOL && other.value.len() == 4,
            _ => false,
        };
        if list.iter().find(multiprotocol).is_none() {
            return Families::V4;
        }
        list.iter().fold(Families::NONE, |families, capability| match capability {
            Self::Multiprotocol(family) => families.with(*family),
            _ => families,
        })
    }

    fn known(code: u8, value: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(value);
        let capability = match code {
            MULTIPROTOCOL => {
                let (afi, [_reserved, safi]) = (cursor.u16()?, cursor.array()?);
                Self::Multiprotocol(family(afi, safi)?)
            }
            ROUTE_REFRESH => Self::RouteRefresh,
            GRACEFUL_RESTART => Self::GracefulRestart(GracefulRestart::decode(&mut cursor)?),
            FOUR_OCTET_AS => Self::FourOctetAs(cursor.u32()?),
            _ => return None,
        };
        cursor.is_empty().then_some(capability)
    }

    /// Code, length and value.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.code());
        let place = out.len();
        out.push(0);
        match self {
            Self::Multiprotocol(family) => {
                out.extend(afi(*family).to_be_bytes());
                out.extend([0, UNICAST]);
            }
            Self::RouteRefresh => {}
            Self::GracefulRestart(restart) => restart.encode(out),
            Self::FourOctetAs(number) => out.extend(number.to_be_bytes()),
            Self::Other(other) => out.extend(&other.value),
        }
        // None is longer than 255 bytes: `of` refuses those, and there are two families to restart.
        out[place] = u8::try_from(out.len() - place - 1).unwrap_or(u8::MAX);
    }
}

impl GracefulRestart {
    fn decode(cursor: &mut Cursor<'_>) -> Option<Self> {
        let head = cursor.u16()?;
        let mut families = Vec::new();
        while !cursor.is_empty() {
            let (afi, [safi, flags]) = (cursor.u16()?, cursor.array()?);
            let entry = family(afi, safi).map(|family| (family, flags & 0x80 != 0));
            // Families of no concern, and what is said twice, are left out.
            families.extend(entry.filter(|(family, _)| families.iter().all(|(known, _)| known != family)));
        }
        Some(Self {
            restarting: head & 0x8000 != 0,
            notification: head & 0x4000 != 0,
            restart_seconds: head & 0x0fff,
            families,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let head = flag(self.restarting, 0x8000) | flag(self.notification, 0x4000);
        out.extend((head | self.restart_seconds & 0x0fff).to_be_bytes());
        for (family, forwarding) in self.families.iter().take(2) {
            out.extend(afi(*family).to_be_bytes());
            out.extend([UNICAST, if *forwarding { 0x80 } else { 0 }]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_says_its_name_and_no_domain() {
        let bytes = |name: &str| {
            let mut out = Vec::new();
            Capability::fqdn(name).encode(&mut out);
            out
        };
        assert_eq!(bytes("k8s-node-1"), [&[73, 12, 10], &b"k8s-node-1"[..], &[0]].concat());
        assert_eq!(bytes(&"x".repeat(300))[..3], [73, 255, 253]);
    }

    #[test]
    fn a_known_code_with_a_wrong_length_counts_as_not_offered() {
        for code in [MULTIPROTOCOL, ROUTE_REFRESH, GRACEFUL_RESTART, FOUR_OCTET_AS] {
            let right = |length: usize| match code {
                MULTIPROTOCOL | FOUR_OCTET_AS => length == 4,
                ROUTE_REFRESH => length == 0,
                _ => length >= 2 && (length - 2).is_multiple_of(4),
            };
            for length in [0, 1, 2, 3, 4, 5, 6, 7, 254, 255] {
                let mut value = vec![0; length];
                if code == MULTIPROTOCOL && length >= 4 {
                    value[..4].copy_from_slice(&[0, 1, 0, 1]);
                }
                let other = matches!(Capability::of(code, &value), Some(Capability::Other(_)));
                assert_eq!(other, !right(length), "code {code}, length {length}");
            }
        }
        assert_eq!(Capability::of(FOUR_OCTET_AS, &[0; 256]), None);
    }

    #[test]
    fn s72_the_reserved_octet_of_multiprotocol_is_no_part_of_the_safi() {
        assert_eq!(
            Capability::of(MULTIPROTOCOL, &[0, 2, 9, 1]),
            Some(Capability::Multiprotocol(IpFamily::V6))
        );
    }

    #[test]
    fn who_lists_no_family_means_ipv4() {
        let of = |code, value: &[u8]| Capability::of(code, value).unwrap();
        let as4 = of(FOUR_OCTET_AS, &[0, 0, 0xfc, 0]);
        assert_eq!(Capability::families(std::slice::from_ref(&as4)), Families::V4);
        let (v6, vpn) = (of(MULTIPROTOCOL, &[0, 2, 0, 1]), of(MULTIPROTOCOL, &[0, 1, 0, 128]));
        assert_eq!(Capability::families(&[v6.clone(), as4]), Families::V6);
        assert_eq!(Capability::families(std::slice::from_ref(&vpn)), Families::NONE);
        assert_eq!(Capability::families(&[vpn, v6]), Families::V6);
    }

    #[test]
    fn graceful_restart_as_bird_sends_it() {
        let value = [0xc0, 0x0f, 0, 1, 1, 0x80, 0, 2, 1, 0];
        let restart = GracefulRestart {
            restarting: true,
            notification: true,
            restart_seconds: 15,
            families: vec![(IpFamily::V4, true), (IpFamily::V6, false)],
        };
        let capability = Capability::GracefulRestart(restart);
        assert_eq!(Capability::of(64, &value).as_ref(), Some(&capability));
        let mut bytes = Vec::new();
        capability.encode(&mut bytes);
        assert_eq!(bytes, [&[64, 10][..], &value].concat());
    }
}

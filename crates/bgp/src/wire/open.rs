// SPDX-License-Identifier: Apache-2.0
//! OPEN: who a speaker is and what it can do (RFC 4271, section 4.2; RFC 5492; RFC 9072).

use std::fmt;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::time::Duration;

use ferrolb_net_types::Asn;
use thiserror::Error;

use super::capability::Capability;
use super::cursor::Cursor;
use super::family::Families;
use super::notification::{Code, Notification};
use super::{Kind, MAX_LENGTH, begin, end};

const VERSION: u8 = 4;
/// The one optional parameter there is: capabilities.
const CAPABILITIES: u8 = 2;
/// In place of a parameter's type: lengths are two octets wide from here on (RFC 9072).
const EXTENDED: u8 = 255;

/// How long a speaker goes without a sign of life from the other: 0 (for ever) or 3 to 65,535 whole seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldTime(u16);

/// A time that is no hold time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("invalid hold time {0:?}: must be 0, or 3 to 65535 seconds")]
pub struct HoldTimeError(pub Duration);

impl HoldTime {
    /// For ever: nobody sends KEEPALIVEs.
    pub const ZERO: Self = Self(0);

    /// A hold time of so many seconds; `None` for 1 and 2, which RFC 4271 (section 6.2) refuses.
    #[must_use]
    pub const fn seconds(seconds: u16) -> Option<Self> {
        match seconds {
            1 | 2 => None,
            _ => Some(Self(seconds)),
        }
    }

    /// As a time; zero stands for ever.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0 as u64)
    }

    /// What two speakers agree on (RFC 4271, section 4.2): the smaller one.
    #[must_use]
    pub fn agree(self, other: Self) -> Self {
        self.min(other)
    }
}

/// Parts of seconds are cut off.
impl TryFrom<Duration> for HoldTime {
    type Error = HoldTimeError;

    fn try_from(time: Duration) -> Result<Self, HoldTimeError> {
        u16::try_from(time.as_secs()).ok().and_then(Self::seconds).ok_or(HoldTimeError(time))
    }
}

impl fmt::Debug for HoldTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

/// A BGP Identifier: four octets, not all zero (RFC 6286). Printed like an IPv4 address, which it usually is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouterId(NonZeroU32);

impl RouterId {
    /// The highest there is.
    pub(crate) const LAST: Self = Self(NonZeroU32::MAX);

    /// The identifier that reads like this address; `None` for 0.0.0.0.
    #[must_use]
    pub fn new(address: Ipv4Addr) -> Option<Self> {
        NonZeroU32::new(address.to_bits()).map(Self)
    }

    /// The address that it reads like.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0.get())
    }
}

impl fmt::Display for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address(), f)
    }
}

impl fmt::Debug for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An OPEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The field My Autonomous System, two octets wide: a number that does not fit is AS_TRANS here.
    pub my_as: u16,
    /// The hold time it proposes.
    pub hold_time: HoldTime,
    /// Its BGP Identifier.
    pub identifier: RouterId,
    /// What it can do, in the order in which it says so.
    pub capabilities: Vec<Capability>,
}

/// Why an OPEN is refused. [`OpenError::notification`] is what its sender is to be told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// A version other than 4.
    #[error("wrong BGP version {0}, want 4")]
    Version(u8),
    /// An identifier of 0.0.0.0 (RFC 6286, section 2.2).
    #[error("bad BGP identifier {0}")]
    Identifier(Ipv4Addr),
    /// A hold time of one or two seconds.
    #[error("invalid hold time {0}s, must be 0 or >=3s")]
    HoldTime(u16),
    /// An optional parameter that is not the one for capabilities.
    #[error("unknown BGP option type {0}")]
    Parameter(u8),
    /// Lengths that contradict each other.
    #[error("the optional parameters do not fit into their lengths")]
    Lengths,
}

impl OpenError {
    /// The NOTIFICATION for it (RFC 4271, section 6.2).
    #[must_use]
    pub fn notification(&self) -> Notification {
        match self {
            Self::Version(_) => Notification::new(Code::UNSUPPORTED_VERSION, &[0, VERSION]),
            Self::Identifier(_) => Code::BAD_IDENTIFIER.into(),
            Self::HoldTime(_) => Code::UNACCEPTABLE_HOLD_TIME.into(),
            Self::Parameter(_) => Code::UNSUPPORTED_PARAMETER.into(),
            Self::Lengths => Code::OPEN_UNSPECIFIC.into(),
        }
    }
}

impl Open {
    /// What MetalLB says, byte by byte, if `families` are both and nothing follows: the families, then four-octet
    /// numbers of autonomous systems, then what else there is.
    #[must_use]
    pub fn new(
        asn: Asn,
        hold_time: HoldTime,
        identifier: RouterId,
        families: Families,
        more: Vec<Capability>,
    ) -> Self {
        let mut capabilities: Vec<Capability> = families.iter().map(Capability::Multiprotocol).collect();
        capabilities.push(Capability::FourOctetAs(asn.number()));
        capabilities.extend(more);
        let my_as = asn.two_octets().or(Asn::TRANS.two_octets()).unwrap_or_default();
        Self { my_as, hold_time, identifier, capabilities }
    }

    /// The sender's autonomous system: as the capability says, else as the field says. `None` if it claims 0.
    #[must_use]
    pub fn asn(&self) -> Option<Asn> {
        Asn::new(self.four_octet_as().unwrap_or_else(|| self.my_as.into()))
    }

    /// The value of the capability for four-octet numbers, if it has it (RFC 6793).
    #[must_use]
    pub fn four_octet_as(&self) -> Option<u32> {
        self.capabilities.iter().find_map(|capability| match capability {
            Capability::FourOctetAs(number) => Some(*number),
            _ => None,
        })
    }

    /// The families that it can have routes of.
    #[must_use]
    pub fn families(&self) -> Families {
        Capability::families(&self.capabilities)
    }

    /// Reads the body of an OPEN.
    ///
    /// # Errors
    ///
    /// [`OpenError`]. Whether its sender is the one that is expected is the session's to judge.
    pub fn decode(body: &[u8]) -> Result<Self, OpenError> {
        let mut cursor = Cursor::new(body);
        let mut fixed = || Some((cursor.u8()?, cursor.u16()?, cursor.u16()?, cursor.array()?));
        let (version, my_as, hold_time, identifier) = fixed().ok_or(OpenError::Lengths)?;
        if version != VERSION {
            return Err(OpenError::Version(version));
        }
        let hold_time = HoldTime::seconds(hold_time).ok_or(OpenError::HoldTime(hold_time))?;
        let address = Ipv4Addr::from_octets(identifier);
        let identifier = RouterId::new(address).ok_or(OpenError::Identifier(address))?;
        let capabilities = parameters(cursor)?;
        Ok(Self { my_as, hold_time, identifier, capabilities })
    }

    /// The whole message. Capabilities beyond its 4,096 bytes, of which nobody has as many, are left out.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut capabilities = Vec::new();
        let room = usize::from(MAX_LENGTH) - super::HEADER - 16;
        for capability in &self.capabilities {
            let before = capabilities.len();
            capability.encode(&mut capabilities);
            if capabilities.len() > room {
                capabilities.truncate(before);
                break;
            }
        }
        let mut out = Vec::with_capacity(64);
        let start = begin(&mut out, Kind::Open);
        out.push(VERSION);
        out.extend(self.my_as.to_be_bytes());
        out.extend(self.hold_time.0.to_be_bytes());
        out.extend(self.identifier.address().octets());
        match (u8::try_from(capabilities.len()), u8::try_from(capabilities.len() + 2)) {
            (Ok(0), _) => out.push(0),
            // 255 parameter bytes would be taken for the mark of the extended form.
            (Ok(length), Ok(all)) if all < EXTENDED => out.extend([all, CAPABILITIES, length]),
            _ => {
                // Bounded by `room` above.
                let length = u16::try_from(capabilities.len()).unwrap_or(u16::MAX);
                out.extend([EXTENDED, EXTENDED]);
                out.extend(length.saturating_add(3).to_be_bytes());
                out.push(CAPABILITIES);
                out.extend(length.to_be_bytes());
            }
        }
        out.extend(capabilities);
        end(&mut out, start);
        out
    }
}

/// All capabilities of all optional parameters, of which there may be none.
fn parameters(mut cursor: Cursor<'_>) -> Result<Vec<Capability>, OpenError> {
    let length = cursor.u8().ok_or(OpenError::Lengths)?;
    // RFC 9072, section 2: where the first parameter's type is 255, the length before it means nothing.
    let extended = length != 0 && cursor.rest().first() == Some(&EXTENDED);
    let declared = if extended {
        cursor.u8();
        cursor.u16().map(usize::from)
    } else {
        Some(length.into())
    };
    if declared != Some(cursor.rest().len()) {
        return Err(OpenError::Lengths);
    }
    let mut capabilities = Vec::new();
    while let Some(kind) = cursor.u8() {
        let value = if extended { cursor.counted_u16() } else { cursor.counted_u8() };
        let mut value = Cursor::new(value.ok_or(OpenError::Lengths)?);
        if kind != CAPABILITIES {
            return Err(OpenError::Parameter(kind));
        }
        while let Some(code) = value.u8() {
            let capability = value.counted_u8().and_then(|value| Capability::of(code, value));
            capabilities.push(capability.ok_or(OpenError::Lengths)?);
        }
    }
    Ok(capabilities)
}

#[cfg(test)]
mod tests {
    use ferrolb_net_types::IpFamily;

    use super::*;

    fn asn(number: u32) -> Asn {
        Asn::new(number).unwrap()
    }

    fn id(text: &str) -> RouterId {
        RouterId::new(text.parse().unwrap()).unwrap()
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    fn decode(message: &str) -> Result<Open, OpenError> {
        Open::decode(&hex(message)[19..])
    }

    const MARKER: &str = "ffffffffffffffffffffffffffffffff";

    #[test]
    fn w03_the_open_of_a_peer_with_four_octets_is_the_one_that_is_sent_too() {
        let bytes = format!("{MARKER}00310104fdea005ab9ecf02714021201040001000101040002000141040000fdea");
        let open = Open::new(
            asn(65_002),
            HoldTime::seconds(90).unwrap(),
            id("185.236.240.39"),
            Families::BOTH,
            vec![],
        );
        assert_eq!(decode(&bytes).as_ref(), Ok(&open));
        assert_eq!(open.encode(), hex(&bytes));
        assert_eq!((open.asn(), open.four_octet_as()), (Some(asn(65_002)), Some(65_002)));
    }

    #[test]
    fn w04_an_open_without_four_octets() {
        let message = format!("{MARKER}002b0104fde900b4b9ecf0400e020c0104000100010200400200b4");
        let open = decode(&message).unwrap();
        assert_eq!((open.asn(), open.four_octet_as()), (Some(asn(65_001)), None));
        assert_eq!(open.hold_time, HoldTime::seconds(180).unwrap());
    }

    #[test]
    fn bg_1_w02_the_opens_of_real_routers() {
        for (router, message, hold, families, refresh, restart) in [
            (
                "BIRD 2.0.12",
                "00430104fc0100f07f0000012602240104000100010104000200010200400a0078000101000002010041040000fc0146004700",
                240,
                Families::BOTH,
                true,
                Some(120),
            ),
            (
                "GoBGP 3.10",
                "003b0104fc01005a7f0000011e021c020049040272310001040001000141040000fc010506000100010002",
                90,
                Families::V4,
                true,
                None,
            ),
            (
                "FRR 8.4.4",
                "00710104fc0100b47f000001540206010400010001020601040002000102028000020202000202460002064104\
                 0000fc0102020600020a4508000101010002010102064904027231 0002044002c0780210470e0001018000000000020180000000",
                180,
                Families::BOTH,
                true,
                Some(120),
            ),
        ] {
            let open = decode(&format!("{MARKER}{}", message.replace(' ', ""))).unwrap();
            assert_eq!((open.asn(), open.four_octet_as()), (Some(asn(64_513)), Some(64_513)), "{router}");
            assert_eq!(
                (open.hold_time, open.families()),
                (HoldTime::seconds(hold).unwrap(), families),
                "{router}"
            );
            assert_eq!(open.capabilities.contains(&Capability::RouteRefresh), refresh, "{router}");
            let seconds = open.capabilities.iter().find_map(|capability| match capability {
                Capability::GracefulRestart(restart) => Some(restart.restart_seconds),
                _ => None,
            });
            assert_eq!(seconds, restart, "{router}");
        }
    }

    #[test]
    fn opens_that_are_accepted() {
        let table = [
            (
                "BG-2 one capability in each parameter",
                "00350104fbf0005ac00002011802060104000100010202800002020200020641040000fbf0",
            ),
            (
                "BG-3, S70 the extended form",
                "00320104fbf0005ac0000201ffff001202000601040001000102000641040000fbf0",
            ),
            ("BG-5, S70 no parameters at all", "001d0104fbf0005ac000020100"),
            ("BG-14 hold time 0", "00250104fbf00000c000020108020641040000fbf0"),
            ("the extended form without a parameter", "00200104fbf0005ac000020101ff0000"),
        ];
        for (what, message) in table {
            let open =
                decode(&format!("{MARKER}{message}")).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(open.asn(), Some(asn(64_496)), "{what}");
            let length = u16::from_str_radix(&message[..4], 16).unwrap();
            assert_eq!(usize::from(length) * 2, MARKER.len() + message.len(), "{what}");
        }
    }

    #[test]
    fn opens_that_are_refused() {
        let refused = |body: &str| Open::decode(&hex(body)).unwrap_err();
        let code = |body: &str| {
            let notification = refused(body).notification();
            (notification.code.code, notification.code.subcode)
        };
        let table = [
            ("version 3", "03fc01005ac0a80a0100", (2, 1)),
            ("BG-14 hold time 2", "04fbf00002c000020108020641040000fbf0", (2, 6)),
            ("hold time 1", "04fbf00001c000020100", (2, 6)),
            ("identifier 0.0.0.0", "04fc01005a0000000000", (2, 3)),
            ("the parameter for authentication", "04fc01005ac0a80a010c010a00000000000000000000", (2, 4)),
            ("a capability that runs over its parameter", "04fc01005ac0a80a010a02080104000100014109", (2, 0)),
            ("a parameter that runs over the message", "04fc01005ac0a80a01040206", (2, 0)),
            ("a parameter without its length", "04fc01005ac0a80a010102", (2, 0)),
            ("a capability without its length", "04fc01005ac0a80a0103020141", (2, 0)),
            ("parameters longer than the message", "04fc01005ac0a80a010a0206", (2, 0)),
            ("parameters shorter than the message", "04fc01005ac0a80a010002060104", (2, 0)),
            ("no length of parameters", "04fc01005ac0a80a01", (2, 0)),
            ("the extended form, cut at its mark", "04fc01005ac0a80a01ffff", (2, 0)),
            ("the extended form, cut in its length", "04fc01005ac0a80a01ffff00", (2, 0)),
            ("the extended form, longer than the message", "04fc01005ac0a80a01ffff0100", (2, 0)),
            ("an extended parameter that runs over", "04fc01005ac0a80a01ffff0003020001", (2, 0)),
        ];
        for (what, body, wanted) in table {
            assert_eq!(code(body), wanted, "{what}");
        }
        assert_eq!(
            refused("03fc01005ac0a80a0100").notification().data,
            [0, 4],
            "the version that is supported"
        );
    }

    #[test]
    fn many_capabilities_take_the_extended_form() {
        let few = |count: u8| (0..count).map(|n| Capability::of(200, &[n; 40]).unwrap()).collect::<Vec<_>>();
        for (count, extended) in [(0, false), (5, false), (6, true), (90, true)] {
            let open = Open::new(asn(1), HoldTime::ZERO, id("1.2.3.4"), Families::V6, few(count));
            let bytes = open.encode();
            assert_eq!(bytes[28] == EXTENDED && bytes[29] == EXTENDED, extended, "{count}");
            assert_eq!(Open::decode(&bytes[19..]), Ok(open), "{count}");
        }
        let all = Open::new(asn(1), HoldTime::ZERO, id("1.2.3.4"), Families::NONE, few(120)).encode();
        assert!(all.len() <= 4096);
        assert!(Open::decode(&all[19..]).unwrap().capabilities.len() > 90);
    }

    #[test]
    fn hold_times_are_whole_seconds_and_never_wrap_around() {
        let of = |millis| HoldTime::try_from(Duration::from_millis(millis)).ok().map(HoldTime::duration);
        assert_eq!(of(0), Some(Duration::ZERO));
        assert_eq!(of(90_900), Some(Duration::from_secs(90)));
        assert_eq!(of(65_535_000), Some(Duration::from_secs(65_535)));
        assert_eq!((of(1_000), of(2_999), of(65_537_000)), (None, None, None));
        let seconds = |n| HoldTime::seconds(n).unwrap();
        assert_eq!(seconds(90).agree(seconds(30)), seconds(30));
        assert_eq!(seconds(90).agree(HoldTime::ZERO), HoldTime::ZERO);
    }

    #[test]
    fn a_number_beyond_two_octets_is_as_trans_in_the_field() {
        let open = Open::new(asn(4_200_000_001), HoldTime::ZERO, id("1.1.1.1"), Families::BOTH, vec![]);
        assert_eq!((open.my_as, open.asn()), (23_456, Some(asn(4_200_000_001))));
        assert_eq!(open.families(), Families::BOTH);
        assert_eq!(open.capabilities[0], Capability::Multiprotocol(IpFamily::V4));
    }
}

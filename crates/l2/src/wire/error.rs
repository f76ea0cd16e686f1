// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a frame, and where.

use std::net::Ipv6Addr;

/// A frame that is neither a whole ARP packet of Ethernet and IPv4 nor a valid Neighbor Discovery message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It ends too early.
    #[error("{layer} needs {needed} bytes, only {found} are there")]
    Truncated {
        /// What is cut short: the `Ethernet header`, the `VLAN tag`, the `ARP packet` …
        layer: &'static str,
        /// The bytes it has at least.
        needed: usize,
        /// The bytes that are there.
        found: usize,
    },
    /// A field has a value for something else.
    #[error("{field} at byte {offset} is {found:#06x}, not {wanted:#06x}")]
    Unexpected {
        /// Which field.
        field: Field,
        /// Its place, counted from the start of its layer.
        offset: usize,
        /// Its value.
        found: u16,
        /// The only value understood here.
        wanted: u16,
    },
    /// An IPv6 address stands where one of its kind has no meaning.
    #[error("{address} cannot be the {role} of this message")]
    Address {
        /// What it should be: `source`, `destination` or `target`.
        role: &'static str,
        /// The address.
        address: Ipv6Addr,
    },
    /// An option of this kind and length has no meaning there.
    #[error("option {kind} of length {length} does not belong here")]
    Option {
        /// Its kind.
        kind: u8,
        /// Its length in units of eight bytes.
        length: u8,
    },
    /// The checksum is not that of the message.
    #[error("the checksum is wrong")]
    Checksum,
}

/// A field whose value says what the rest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Ethernet's type.
    EtherType,
    /// ARP's hardware type, `ar$hrd`.
    HardwareType,
    /// ARP's protocol type, `ar$pro`.
    ProtocolType,
    /// Length of a hardware address, `ar$hln`.
    HardwareLength,
    /// Length of a protocol address, `ar$pln`.
    ProtocolLength,
    /// The version of IP.
    Version,
    /// IPv6's next header.
    NextHeader,
    /// IPv6's hop limit.
    HopLimit,
    /// ICMPv6's type.
    MessageType,
    /// ICMPv6's code.
    Code,
}

impl Field {
    /// The field must have this value.
    pub(super) fn expect(self, offset: usize, found: u16, wanted: u16) -> Result<(), Error> {
        if found == wanted { Ok(()) } else { Err(Error::Unexpected { field: self, offset, found, wanted }) }
    }
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::EtherType => "type",
            Self::HardwareType => "hardware type",
            Self::ProtocolType => "protocol type",
            Self::HardwareLength => "hardware address length",
            Self::ProtocolLength => "protocol address length",
            Self::Version => "IP version",
            Self::NextHeader => "next header",
            Self::HopLimit => "hop limit",
            Self::MessageType => "message type",
            Self::Code => "code",
        })
    }
}

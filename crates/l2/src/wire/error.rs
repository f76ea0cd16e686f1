// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a frame, and where.

/// A frame that is not an ARP packet of Ethernet and IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It ends too early.
    #[error("{layer} needs {needed} bytes, only {found} are there")]
    Truncated {
        /// What is cut short: the `Ethernet header`, the `VLAN tag`, the `ARP packet`.
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
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::EtherType => "type",
            Self::HardwareType => "hardware type",
            Self::ProtocolType => "protocol type",
            Self::HardwareLength => "hardware address length",
            Self::ProtocolLength => "protocol address length",
        })
    }
}

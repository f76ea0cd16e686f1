// SPDX-License-Identifier: Apache-2.0
//! ARP packets of Ethernet and IPv4 (RFC 826).

use std::fmt;
use std::net::Ipv4Addr;

use ferrolb_net_types::Mac;

use super::{Error, Field};

/// Length of an ARP packet of Ethernet and IPv4.
pub const LENGTH: usize = 28;

/// A received ARP packet, whose length was checked; its fields say whether it is one of Ethernet and IPv4.
///
/// ```text
///  0               2               4       5       6               8
/// +---------------+---------------+-------+-------+---------------+
/// | ar$hrd        | ar$pro        | ar$hln| ar$pln| ar$op         |
/// +---------------+---------------+-------+-------+---------------+
/// | ar$sha                                        | ar$spa  (14)
/// +-----------------------------------------------+---------------+
///   ar$spa        | ar$tha  (18)                                  |
/// +---------------+-------------------------------+---------------+
/// | ar$tpa  (24)                  |                             28
/// +-------------------------------+
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    hardware_type: &'a [u8; 2],
    protocol_type: &'a [u8; 2],
    hardware_length: u8,
    protocol_length: u8,
    operation: &'a [u8; 2],
    sender_mac: &'a [u8; 6],
    sender_ip: &'a [u8; 4],
    target_mac: &'a [u8; 6],
    target_ip: &'a [u8; 4],
}

impl<'a> View<'a> {
    /// Reads the fields; what follows the packet is padding.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if fewer than 28 bytes are there.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let short = || Error::Truncated { layer: "ARP packet", needed: LENGTH, found: bytes.len() };
        let (hardware_type, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let (protocol_type, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (&hardware_length, rest) = rest.split_first().ok_or_else(short)?;
        let (&protocol_length, rest) = rest.split_first().ok_or_else(short)?;
        let (operation, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (sender_mac, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (sender_ip, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (target_mac, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let target_ip = rest.first_chunk().ok_or_else(short)?;
        Ok(Self {
            hardware_type,
            protocol_type,
            hardware_length,
            protocol_length,
            operation,
            sender_mac,
            sender_ip,
            target_mac,
            target_ip,
        })
    }

    /// `ar$hrd`: 1 is Ethernet.
    pub const fn hardware_type(&self) -> u16 {
        u16::from_be_bytes(*self.hardware_type)
    }

    /// `ar$pro`: 0x0800 is IPv4.
    pub const fn protocol_type(&self) -> u16 {
        u16::from_be_bytes(*self.protocol_type)
    }

    /// `ar$hln`, in bytes.
    pub const fn hardware_length(&self) -> u8 {
        self.hardware_length
    }

    /// `ar$pln`, in bytes.
    pub const fn protocol_length(&self) -> u8 {
        self.protocol_length
    }

    /// `ar$op`.
    pub const fn operation(&self) -> Operation {
        Operation::from_number(u16::from_be_bytes(*self.operation))
    }

    /// `ar$sha`.
    pub const fn sender_mac(&self) -> Mac {
        Mac(*self.sender_mac)
    }

    /// `ar$spa`.
    pub const fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(*self.sender_ip)
    }

    /// `ar$tha`.
    pub const fn target_mac(&self) -> Mac {
        Mac(*self.target_mac)
    }

    /// `ar$tpa`.
    pub const fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(*self.target_ip)
    }
}

/// An ARP packet of Ethernet and IPv4. Prints a line as packet analysers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// What it is.
    pub operation: Operation,
    /// The sender's hardware address.
    pub sender_mac: Mac,
    /// The sender's address; 0.0.0.0 in a probe (RFC 5227).
    pub sender_ip: Ipv4Addr,
    /// The target's hardware address; without meaning in a request.
    pub target_mac: Mac,
    /// The target's address: in a request the one that is asked for.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// Takes the packet's meaning from its fields.
    ///
    /// # Errors
    ///
    /// [`Error::Unexpected`] if types or lengths are not those of Ethernet and IPv4. RFC 826 has the receiver
    /// check both types before it looks any further.
    pub fn parse(view: &View<'_>) -> Result<Self, Error> {
        let fields = [
            (Field::HardwareType, 0, view.hardware_type(), ETHERNET),
            (Field::ProtocolType, 2, view.protocol_type(), IPV4),
            (Field::HardwareLength, 4, view.hardware_length().into(), 6),
            (Field::ProtocolLength, 5, view.protocol_length().into(), 4),
        ];
        for (field, offset, found, wanted) in fields {
            field.expect(offset, found, wanted)?;
        }
        Ok(Self {
            operation: view.operation(),
            sender_mac: view.sender_mac(),
            sender_ip: view.sender_ip(),
            target_mac: view.target_mac(),
            target_ip: view.target_ip(),
        })
    }

    /// Writes the packet.
    pub fn emit(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let mut rest = bytes.as_mut_slice();
        let parts: [&[u8]; 9] = [
            &ETHERNET.to_be_bytes(),
            &IPV4.to_be_bytes(),
            &[6],
            &[4],
            &self.operation.number().to_be_bytes(),
            &self.sender_mac.0,
            &self.sender_ip.octets(),
            &self.target_mac.0,
            &self.target_ip.octets(),
        ];
        for part in parts {
            let Some((head, tail)) = rest.split_at_mut_checked(part.len()) else { break };
            head.copy_from_slice(part);
            rest = tail;
        }
        bytes
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sender_mac, sender_ip, target_ip, .. } = self;
        match self.operation {
            Operation::Request => write!(f, "who has {target_ip}, tell {sender_ip} at {sender_mac}"),
            Operation::Reply => write!(f, "{sender_ip} is at {sender_mac}"),
            Operation::Unknown(number) => {
                write!(f, "operation {number} from {sender_ip} at {sender_mac} for {target_ip}")
            }
        }
    }
}

/// What an ARP packet is, `ar$op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// 1: who has the target address?
    Request,
    /// 2: the sender address is at the sender's hardware address.
    Reply,
    /// Any other number.
    Unknown(u16),
}

impl Operation {
    /// The operation with this number.
    pub const fn from_number(number: u16) -> Self {
        match number {
            1 => Self::Request,
            2 => Self::Reply,
            other => Self::Unknown(other),
        }
    }

    /// The operation's number.
    pub const fn number(self) -> u16 {
        match self {
            Self::Request => 1,
            Self::Reply => 2,
            Self::Unknown(other) => other,
        }
    }
}

/// `ar$hrd` of Ethernet.
const ETHERNET: u16 = 1;

/// `ar$pro` of IPv4.
const IPV4: u16 = 0x0800;

#[cfg(test)]
#[allow(clippy::indexing_slicing)] // a wrong index fails the test
mod tests {
    use proptest::prelude::*;

    use super::super::{Frame, MINIMUM};
    use super::*;

    /// RFC 826's example in numbers: who has 192.0.2.9, asked by 192.0.2.1.
    const REQUEST: [u8; 42] = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x06, // Ethernet
        0, 1, 0x08, 0, 6, 4, 0, 1, // ARP: Ethernet, IPv4, lengths, request
        0x02, 0, 0, 0, 0, 0x01, 192, 0, 2, 1, // sender
        0, 0, 0, 0, 0, 0, 192, 0, 2, 9, // target
    ];

    fn request() -> Frame {
        let sender_mac = Mac([2, 0, 0, 0, 0, 1]);
        Frame {
            destination: Mac::BROADCAST,
            source: sender_mac,
            packet: Packet {
                operation: Operation::Request,
                sender_mac,
                sender_ip: Ipv4Addr::new(192, 0, 2, 1),
                target_mac: Mac::ZERO,
                target_ip: Ipv4Addr::new(192, 0, 2, 9),
            },
        }
    }

    #[test]
    fn bytes_and_value_are_the_same_in_both_directions() {
        assert_eq!(Frame::parse(&REQUEST), Ok(request()));
        let bytes = request().emit();
        assert_eq!(bytes[..42], REQUEST);
        assert_eq!(bytes[42..], [0; MINIMUM - 42]);
        assert_eq!(request().packet.to_string(), "who has 192.0.2.9, tell 192.0.2.1 at 02:00:00:00:00:01");
    }

    #[test]
    fn every_prefix_is_an_error() {
        for length in 0..REQUEST.len() {
            let error = Frame::parse(&REQUEST[..length]).unwrap_err();
            assert!(matches!(error, Error::Truncated { .. }), "{length}: {error}");
        }
        let mut tagged = REQUEST.to_vec();
        tagged.splice(12..12, [0x81, 0, 0x20, 5]);
        assert_eq!(Frame::parse(&tagged), Ok(request()));
        for length in 0..tagged.len() {
            assert!(Frame::parse(&tagged[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn another_type_or_length_is_named_with_its_place() {
        for (offset, value, message) in [
            (13, 0, "type at byte 12 is 0x0800, not 0x0806"),
            (15, 6, "hardware type at byte 0 is 0x0006, not 0x0001"),
            (14, 1, "hardware type at byte 0 is 0x0101, not 0x0001"),
            (16, 0x86, "protocol type at byte 2 is 0x8600, not 0x0800"),
            (18, 5, "hardware address length at byte 4 is 0x0005, not 0x0006"),
            (18, 7, "hardware address length at byte 4 is 0x0007, not 0x0006"),
            (19, 3, "protocol address length at byte 5 is 0x0003, not 0x0004"),
            (19, 5, "protocol address length at byte 5 is 0x0005, not 0x0004"),
        ] {
            let mut bytes = REQUEST;
            bytes[offset] = value;
            assert_eq!(Frame::parse(&bytes).unwrap_err().to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(
            destination: [u8; 6], source: [u8; 6], sha: [u8; 6], tha: [u8; 6], spa: u32, tpa: u32, op: u16,
            padding in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let frame = Frame {
                destination: Mac(destination),
                source: Mac(source),
                packet: Packet {
                    operation: Operation::from_number(op),
                    sender_mac: Mac(sha),
                    sender_ip: Ipv4Addr::from_bits(spa),
                    target_mac: Mac(tha),
                    target_ip: Ipv4Addr::from_bits(tpa),
                },
            };
            let mut bytes = frame.emit().to_vec();
            bytes.extend(padding);
            prop_assert_eq!(Frame::parse(&bytes), Ok(frame));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Frame::parse(&bytes);
        }

        #[test]
        fn a_frame_with_changed_bytes_is_read_or_refused(at in 0..42_usize, value: u8) {
            let mut bytes = REQUEST;
            bytes[at] = value;
            if let Ok(frame) = Frame::parse(&bytes) {
                prop_assert_eq!(&frame.emit()[..42], &bytes);
            }
        }
    }
}

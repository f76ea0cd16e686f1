// SPDX-License-Identifier: Apache-2.0
//! Ethernet frames (RFC 894), with at most one 802.1Q tag; those that carry ARP as values.

use ferrolb_net_types::Mac;

use super::arp::{self, Packet};
use super::{Error, Field};

/// The shortest frame that Ethernet carries, without its checksum (RFC 894). ARP is shorter and is padded.
pub const MINIMUM: usize = 60;

/// The type of ARP.
pub const ARP: u16 = 0x0806;

/// The type that announces a VLAN tag (802.1Q).
const VLAN: u16 = 0x8100;

/// The header of a received frame, whose length was checked.
///
/// ```text
///  0                   6                  12      14
/// +-------------------+-------------------+-------+----------- - -
/// | destination       | source            | type  | payload
/// +-------------------+-------------------+-------+----------- - -
///                                          0x8100  tag  type     if tagged: four bytes more
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    destination: &'a [u8; 6],
    source: &'a [u8; 6],
    tag: Option<u16>,
    kind: u16,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if the header, or the tag it announces, is not whole.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let short = || Error::Truncated { layer: "Ethernet header", needed: 14, found: bytes.len() };
        let (destination, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let (source, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (kind, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let untagged =
            Self { destination, source, tag: None, kind: u16::from_be_bytes(*kind), payload: rest };
        if untagged.kind != VLAN {
            return Ok(untagged);
        }
        let short = || Error::Truncated { layer: "VLAN tag", needed: 4, found: rest.len() };
        let (tag, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (kind, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (tag, kind) = (Some(u16::from_be_bytes(*tag)), u16::from_be_bytes(*kind));
        Ok(Self { tag, kind, payload: rest, ..untagged })
    }

    /// Whom it is for.
    pub const fn destination(&self) -> Mac {
        Mac(*self.destination)
    }

    /// Whom it is from.
    pub const fn source(&self) -> Mac {
        Mac(*self.source)
    }

    /// The VLAN of its tag, 0 to 4095, without the priority bits; `None` if it has no tag.
    pub fn vlan(&self) -> Option<u16> {
        self.tag.map(|tag| tag & 0x0fff)
    }

    /// The type of what it carries.
    pub const fn kind(&self) -> u16 {
        self.kind
    }

    /// What it carries, padding included.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An untagged Ethernet frame with an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Whom it is for.
    pub destination: Mac,
    /// Whom it is from.
    pub source: Mac,
    /// What it carries.
    pub packet: Packet,
}

impl Frame {
    /// Reads a whole frame; what follows the ARP packet is padding. A VLAN tag is passed over.
    ///
    /// # Errors
    ///
    /// [`Error`], if it is cut short or is not ARP of Ethernet and IPv4.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let view = View::new(bytes)?;
        Field::EtherType.expect(12, view.kind(), ARP)?;
        let packet = Packet::parse(&arp::View::new(view.payload())?)?;
        Ok(Self { destination: view.destination(), source: view.source(), packet })
    }

    /// Writes the frame, padded with zeros to the shortest that Ethernet carries.
    pub fn emit(&self) -> [u8; MINIMUM] {
        let mut bytes = [0; MINIMUM];
        let mut rest = bytes.as_mut_slice();
        for part in [&self.destination.0[..], &self.source.0, &ARP.to_be_bytes(), &self.packet.emit()] {
            let Some((head, tail)) = rest.split_at_mut_checked(part.len()) else { break };
            head.copy_from_slice(part);
            rest = tail;
        }
        bytes
    }
}

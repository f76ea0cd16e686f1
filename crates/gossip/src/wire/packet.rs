// SPDX-License-Identifier: Apache-2.0
//! Datagrams: several messages at once, compressed where that helps, with a checksum where the receiver knows it.

use thiserror::Error;

use super::message::{Message, MessageError, kind};
use super::{Codec, CompressError, LabelError, NONCE, OpenError, decompress, split_label};

/// Bytes that the compressed parts of one datagram may expand to, together.
pub const MAX_EXPANDED: usize = 1 << 20;
/// How deep wrappers may stand in each other.
pub const MAX_DEPTH: usize = 8;
/// Messages that are taken from one datagram.
pub const MAX_MESSAGES: usize = 8192;
/// How many reasons are kept of one datagram, however much of it was unreadable.
const MAX_REASONS: usize = 8;

/// What a datagram held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Its messages, in order.
    pub messages: Vec<Message>,
    /// What was wrong with parts that could not be read; the first few of them.
    pub refused: Vec<PartError>,
    /// How many parts could not be read.
    pub lost: usize,
}

/// Why a datagram is not looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PacketError {
    /// There is nothing in it.
    #[error("the datagram is empty")]
    Empty,
    /// It is another cluster's.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// It is not encrypted with a key of ours.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It was altered on its way.
    #[error("the checksum is wrong")]
    Checksum,
}

/// Why a part of a datagram is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PartError {
    /// A message that cannot be read.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A compressed part that cannot be expanded.
    #[error(transparent)]
    Compress(#[from] CompressError),
    /// A compound without the table of its parts' lengths.
    #[error("a compound message lacks the lengths of its parts")]
    Lengths,
    /// A compound whose data ends before its last parts.
    #[error("a compound message lacks its last {0} parts")]
    Parts(usize),
    /// Wrappers too deep in each other.
    #[error("wrappers are nested too deep")]
    Nested,
    /// More messages than one datagram can mean.
    #[error("more messages than a datagram can mean")]
    TooMany,
}

/// Messages as one: a single one as it is, several as compounds of at most 255 parts.
#[must_use]
pub fn compound(messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if let [single] = messages {
        return vec![single.clone()];
    }
    messages
        .chunks(255)
        .map(|parts| {
            let mut bytes = vec![kind::COMPOUND, parts.len() as u8];
            for part in parts {
                // A part comes from a datagram's budget, which is far below 64 KiB.
                bytes.extend(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
            }
            bytes.extend(parts.iter().flatten());
            bytes
        })
        .collect()
}

/// The parts of a compound's body, and how many are missing at its end.
///
/// # Errors
///
/// If the table of lengths is incomplete.
pub fn parts(body: &[u8]) -> Result<(Vec<&[u8]>, usize), PartError> {
    let (&count, rest) = body.split_first().ok_or(PartError::Lengths)?;
    let count = usize::from(count);
    let (lengths, mut rest) = rest.split_at_checked(2 * count).ok_or(PartError::Lengths)?;
    let mut parts = Vec::with_capacity(count);
    for length in lengths.chunks_exact(2) {
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let Some((part, after)) = rest.split_at_checked(length) else {
            let missing = count - parts.len();
            return Ok((parts, missing));
        };
        parts.push(part);
        rest = after;
    }
    Ok((parts, 0))
}

impl Codec {
    /// The datagram for one message or compound. `checksum`: whether the receiver is known to read it (its highest
    /// protocol version is 5 or more). The nonce is used only where there are keys, and must never be used again.
    #[must_use]
    pub fn packet(&self, message: Vec<u8>, checksum: bool, nonce: &[u8; NONCE]) -> Vec<u8> {
        let mut bytes = message;
        if self.compress {
            let smaller = super::compressed(&bytes);
            if smaller.len() < bytes.len() {
                bytes = smaller;
            }
        }
        if checksum {
            let mut checked = vec![kind::CHECKSUM];
            checked.extend(crc32(&bytes).to_be_bytes());
            checked.extend(bytes);
            bytes = checked;
        }
        if let Some(keyring) = self.sealing() {
            bytes = keyring.seal(&bytes, &self.label, nonce);
        }
        let header = self.label_header();
        if header.is_empty() { bytes } else { [header, bytes].concat() }
    }

    /// Reads a datagram.
    ///
    /// # Errors
    ///
    /// If it is empty, another cluster's, not encrypted as it has to be, or altered. What is wrong inside of it costs
    /// the parts concerned alone.
    pub fn read_packet(&self, bytes: &[u8]) -> Result<Packet, PacketError> {
        let (label, rest) = split_label(bytes)?;
        if label != self.label {
            return Err(LabelError::Other.into());
        }
        if rest.is_empty() {
            return Err(PacketError::Empty);
        }
        let opened = match &self.keyring {
            None => None,
            Some(keyring) => match keyring.open(rest, &self.label) {
                Ok(text) => Some(text),
                Err(error) if self.verify_incoming => return Err(error.into()),
                Err(_) => None,
            },
        };
        let mut message = opened.as_deref().unwrap_or(rest);
        if let [kind::CHECKSUM, sum @ ..] = message
            && let Some((sum, checked)) = sum.split_first_chunk::<4>()
        {
            if u32::from_be_bytes(*sum) != crc32(checked) {
                return Err(PacketError::Checksum);
            }
            message = checked;
        }
        let mut unwrapping = Unwrapping { packet: Packet::default(), budget: MAX_EXPANDED };
        unwrapping.unwrap(message, 0);
        Ok(unwrapping.packet)
    }
}

struct Unwrapping {
    packet: Packet,
    /// Bytes that may still come out of compressed parts.
    budget: usize,
}

impl Unwrapping {
    fn unwrap(&mut self, message: &[u8], depth: usize) {
        if let Err(error) = self.part(message, depth) {
            self.refuse(error);
        }
    }

    fn part(&mut self, message: &[u8], depth: usize) -> Result<(), PartError> {
        if depth >= MAX_DEPTH {
            return Err(PartError::Nested);
        }
        match message {
            [kind::COMPOUND, body @ ..] => {
                let (parts, missing) = parts(body)?;
                for part in parts {
                    self.unwrap(part, depth + 1);
                }
                if missing > 0 {
                    // Each of them is lost; one of them by what is returned.
                    self.packet.lost += missing - 1;
                    return Err(PartError::Parts(missing));
                }
            }
            [kind::COMPRESS, body @ ..] => {
                let inner = decompress(body, self.budget)?;
                self.budget -= inner.len();
                self.unwrap(&inner, depth + 1);
            }
            _ if self.packet.messages.len() >= MAX_MESSAGES => return Err(PartError::TooMany),
            _ => self.packet.messages.push(Message::decode(message)?),
        }
        Ok(())
    }

    fn refuse(&mut self, error: PartError) {
        self.packet.lost += 1;
        if self.packet.refused.len() < MAX_REASONS {
            self.packet.refused.push(error);
        }
    }
}

/// CRC-32 as zlib has it.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |sum, byte| TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize] ^ (sum >> 8))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::lzw::LzwError;
    use crate::wire::{Key, Keyring, compressed};

    fn nack(sequence: u32) -> Vec<u8> {
        Message::Nack { sequence }.encode()
    }

    fn wrapped(part: &[u8]) -> Vec<u8> {
        [&[kind::COMPOUND, 1], (part.len() as u16).to_be_bytes().as_slice(), part].concat()
    }

    #[test]
    fn the_checksum_is_that_of_zlib() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn more_than_255_messages_are_several_compounds() {
        let messages: Vec<Vec<u8>> = (0..256).map(nack).collect();
        let compounds = compound(&messages);
        assert_eq!(compounds.iter().map(|compound| compound[1]).collect::<Vec<_>>(), [255, 1]);
        assert_eq!(compound(&messages[..1]), messages[..1]);
    }

    #[test]
    fn wrappers_nest_eight_deep_and_no_deeper() {
        let codec = Codec::new(None);
        let mut message = nack(1);
        for depth in 1..MAX_DEPTH {
            message = if depth % 2 == 0 { wrapped(&message) } else { compressed(&message) };
        }
        assert_eq!(codec.read_packet(&message).unwrap().messages, [Message::Nack { sequence: 1 }]);
        let deeper = codec.read_packet(&wrapped(&message)).unwrap();
        assert_eq!((deeper.messages.len(), deeper.refused), (0, vec![PartError::Nested]));
    }

    #[test]
    fn bombs_share_one_budget_and_the_rest_of_the_packet_is_read() {
        let half = compressed(&[vec![kind::USER], vec![0; MAX_EXPANDED / 2]].concat());
        let packet =
            Codec::new(None).read_packet(&compound(&[half.clone(), half.clone(), half, nack(3)])[0]).unwrap();
        assert_eq!(packet.messages.len(), 2);
        assert_eq!(packet.messages[1], Message::Nack { sequence: 3 });
        assert!(matches!(
            packet.refused[..],
            [PartError::Compress(CompressError::Block(LzwError::TooLarge(_))), _]
        ));
        // Compounds of compounds of the smallest messages.
        let many = compound(&vec![nack(1); 255])[0].clone();
        let packet = Codec::new(None).read_packet(&compressed(&compound(&vec![many; 200])[0])).unwrap();
        assert_eq!((packet.messages.len(), packet.lost), (MAX_MESSAGES, 200 * 255 - MAX_MESSAGES));
        assert_eq!(packet.refused, [PartError::TooMany; MAX_REASONS]);
    }

    #[test]
    fn what_is_not_encrypted_passes_only_where_nobody_asked_for_it() {
        let keyring = || Keyring::new(Key::new(&[1; 32]).unwrap(), Vec::new());
        let mut codec = Codec::new(Some(keyring()));
        let plain = nack(1);
        assert_eq!(codec.read_packet(&plain), Err(PacketError::Open(OpenError::Version(kind::NACK))));
        codec.verify_incoming = false;
        assert_eq!(codec.read_packet(&plain).unwrap().messages.len(), 1);
        codec.verify_outgoing = false;
        assert_eq!(codec.packet(plain.clone(), false, &[0; NONCE]), plain);
    }

    proptest! {
        #[test]
        fn a_packet_is_read_as_it_was_written(
            payloads in prop::collection::vec(prop::collection::vec(0_u8..8, 0..300), 1..20),
            checksum: bool, compress: bool, encrypt: bool, label in "[a-z]{0,5}", nonce: [u8; NONCE],
        ) {
            let keyring = encrypt.then(|| Keyring::new(Key::new(&[9; 16]).unwrap(), Vec::new()));
            let mut codec = Codec::new(keyring).with_label(&label).unwrap();
            codec.compress = compress;
            let messages: Vec<Message> = payloads.into_iter().map(Message::User).collect();
            let encoded: Vec<Vec<u8>> = messages.iter().map(Message::encode).collect();
            let bytes = codec.packet(compound(&encoded)[0].clone(), checksum, &nonce);
            prop_assert_eq!(codec.read_packet(&bytes), Ok(Packet { messages, refused: Vec::new(), lost: 0 }));
            let other = codec.with_label("other").unwrap();
            prop_assert_eq!(other.read_packet(&bytes), Err(PacketError::Label(LabelError::Other)));
        }

        #[test]
        fn any_datagram_is_read_or_refused(bytes in prop::collection::vec(prop_oneof![0_u8..14, any::<u8>()], 0..300)) {
            if let Ok(packet) = Codec::new(None).read_packet(&bytes) {
                prop_assert!(packet.messages.len() <= MAX_MESSAGES && packet.refused.len() <= packet.lost);
            }
        }
    }
}

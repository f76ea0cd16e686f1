// SPDX-License-Identifier: Apache-2.0
//! What members say to each other, in bytes.
//!
//! ```text
//!   datagram:  [label] [sealed unit] [checksum] [compress] message or compound
//!   stream:    [label, dialler only] [frame with a sealed unit] [compress] message
//! ```
//!
//! Every layer but the message is optional. A [`Codec`] knows which of them a member uses; [`packet`] and [`stream`]
//! apply them. Whatever comes from the network is taken for a lie until proven: every count, every length, every
//! nesting and every expansion has a bound, and nothing is refused without saying what was wrong with it.

pub mod crypt;
pub mod lzw;
pub mod message;
pub mod msgpack;
pub mod packet;
pub mod stream;

use thiserror::Error;

pub use crypt::{Key, KeyLengthError, KeyRule, Keyring, NONCE, OpenError};
pub use message::{Accusation, Ack, Alive, IndirectPing, Message, MessageError, Ping, Source, kind};
pub use packet::{Packet, PacketError, PartError};
pub use stream::{NodeState, PushPull, State, StreamError, StreamMessage, StreamReader};

use msgpack::{MsgpackError, Reader, Writer};

/// How a member's bytes are wrapped.
#[derive(Clone, Debug)]
pub struct Codec {
    /// The keys; none: nothing is encrypted, and nothing encrypted is understood.
    pub keyring: Option<Keyring>,
    /// Whether what is not encrypted is refused where there are keys.
    pub verify_incoming: bool,
    /// Whether what is sent is encrypted where there are keys.
    pub verify_outgoing: bool,
    /// Whether what is sent is compressed. What comes in compressed is always understood.
    pub compress: bool,
    label: Vec<u8>,
}

/// A label was given that is longer than 255 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a label has at most 255 bytes, not {0}")]
pub struct LabelLengthError(pub usize);

/// Why the front of a datagram or a stream is not for this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LabelError {
    /// The header of a label says that the label is empty.
    #[error("a label that is there cannot be empty")]
    Empty,
    /// The header of a label is cut short.
    #[error("the label is cut short")]
    Short,
    /// A label that is not this member's, or none where it has one.
    #[error("the label is another cluster's")]
    Other,
}

/// Why a compressed message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CompressError {
    /// Its body is no proper map.
    #[error("the compressed message is malformed: {0}")]
    Body(#[from] MsgpackError),
    /// An algorithm that does not exist.
    #[error("compression algorithm {0} is not supported")]
    Algorithm(u8),
    /// The block itself.
    #[error(transparent)]
    Block(#[from] lzw::LzwError),
}

impl Codec {
    /// What a speaker uses: everything sealed and verified if there are keys, compression, no label.
    #[must_use]
    pub const fn new(keyring: Option<Keyring>) -> Self {
        Self { keyring, verify_incoming: true, verify_outgoing: true, compress: true, label: Vec::new() }
    }

    /// The same, in a cluster with a label.
    ///
    /// # Errors
    ///
    /// If the label does not fit its header.
    pub fn with_label(mut self, label: &str) -> Result<Self, LabelLengthError> {
        if label.len() > 255 {
            return Err(LabelLengthError(label.len()));
        }
        self.label = label.into();
        Ok(self)
    }

    /// Bytes that the layers outside of the message take at most, a checksum not counted, as memberlist counts them.
    pub(crate) fn overhead(&self) -> usize {
        let label = if self.label.is_empty() { 0 } else { self.label.len() + 2 };
        label + if self.sealing().is_some() { crypt::OVERHEAD } else { 0 }
    }

    fn sealing(&self) -> Option<&Keyring> {
        self.keyring.as_ref().filter(|_| self.verify_outgoing)
    }

    /// The label's header; empty if there is no label.
    fn label_header(&self) -> Vec<u8> {
        match u8::try_from(self.label.len()) {
            Ok(length @ 1..) => [&[kind::LABEL, length], self.label.as_slice()].concat(),
            _ => Vec::new(),
        }
    }
}

/// Splits a label's header off: the label, which is empty if there is no header, and what follows.
///
/// # Errors
///
/// If there is a header without a label, or it is cut short.
pub fn split_label(bytes: &[u8]) -> Result<(&[u8], &[u8]), LabelError> {
    match bytes {
        [kind::LABEL, 0, ..] => Err(LabelError::Empty),
        [kind::LABEL, length, rest @ ..] => {
            rest.split_at_checked(usize::from(*length)).ok_or(LabelError::Short)
        }
        [kind::LABEL] => Err(LabelError::Short),
        _ => Ok((&[], bytes)),
    }
}

/// Wraps a message into a compressed one.
fn compressed(message: &[u8]) -> Vec<u8> {
    let mut w = Writer::message(kind::COMPRESS);
    w.map(2);
    w.key("Algo");
    w.unsigned(0);
    w.key("Buf");
    w.raw(&lzw::compress(message));
    w.finish()
}

/// Reads the body of a compressed message.
///
/// # Errors
///
/// If it is malformed, of an unknown algorithm, or expands to more than `limit` bytes.
pub fn decompress(body: &[u8], limit: usize) -> Result<Vec<u8>, CompressError> {
    let (mut algorithm, mut block) = (0, Vec::new());
    Reader::new(body).structure(&["Algo", "Buf"], |field, r| {
        match field {
            // At most 255, as asked.
            0 => algorithm = r.unsigned(0xff)? as u8,
            _ => block = r.bytes()?.unwrap_or_default(),
        }
        Ok(())
    })?;
    if algorithm != 0 {
        return Err(CompressError::Algorithm(algorithm));
    }
    Ok(lzw::expand(&block, limit)?)
}

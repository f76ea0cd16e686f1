// SPDX-License-Identifier: Apache-2.0
//! The messages that travel in datagrams: one byte for the type, then one map.

use thiserror::Error;

use super::msgpack::{MsgpackError, Reader, Writer};
use crate::name::Name;

/// The byte that starts a message, a wrapper or a frame.
pub mod kind {
    /// A probe.
    pub const PING: u8 = 0;
    /// A request to probe somebody.
    pub const INDIRECT_PING: u8 = 1;
    /// The answer to a probe.
    pub const ACK: u8 = 2;
    /// A member is suspected.
    pub const SUSPECT: u8 = 3;
    /// A member is alive.
    pub const ALIVE: u8 = 4;
    /// A member is dead, or has left.
    pub const DEAD: u8 = 5;
    /// An exchange of all that two members know.
    pub const PUSH_PULL: u8 = 6;
    /// Several messages in one datagram.
    pub const COMPOUND: u8 = 7;
    /// Bytes for the application.
    pub const USER: u8 = 8;
    /// A compressed message.
    pub const COMPRESS: u8 = 9;
    /// An encrypted frame of a stream.
    pub const ENCRYPT: u8 = 10;
    /// A helper's word that it had no answer.
    pub const NACK: u8 = 11;
    /// A message with its checksum.
    pub const CHECKSUM: u8 = 12;
    /// The answer to what could not be read.
    pub const ERROR: u8 = 13;
    /// A label in front of everything.
    pub const LABEL: u8 = 244;
}

/// What one member tells another in a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// "Are you there?"
    Ping(Ping),
    /// "Ask somebody whether it is there."
    IndirectPing(IndirectPing),
    /// "I am here", or "it is".
    Ack(Ack),
    /// "I asked it and have no answer."
    Nack {
        /// The number of the request.
        sequence: u32,
    },
    /// "It does not answer."
    Suspect(Accusation),
    /// "It is alive, at this address."
    Alive(Alive),
    /// "It is dead", or, from itself, "I leave".
    Dead(Accusation),
    /// Bytes that only the application understands.
    User(Vec<u8>),
}

/// A probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ping {
    /// The number that the answer is to have.
    pub sequence: u32,
    /// Who is meant; empty: whoever gets it.
    pub node: Vec<u8>,
    /// Where the answer is to go.
    pub source: Source,
}

/// Where an answer is to go. Fields that are empty or 0 are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// 4 or 16 bytes; empty: where the datagram came from.
    pub address: Vec<u8>,
    /// The port; 0: where the datagram came from.
    pub port: u16,
    /// The name of who asks.
    pub node: Vec<u8>,
}

/// A request to probe a third member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndirectPing {
    /// The number that the answer is to have.
    pub sequence: u32,
    /// The address of the one to probe.
    pub target: Vec<u8>,
    /// Its port; 0: the one that the helper itself is bound to.
    pub port: u16,
    /// Its name.
    pub node: Vec<u8>,
    /// Whether the helper is to say so when it gets no answer.
    pub nack: bool,
    /// Where the answer is to go.
    pub source: Source,
}

/// The answer to a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The number of the probe.
    pub sequence: u32,
    /// The application's; speakers send none.
    pub payload: Option<Vec<u8>>,
}

/// A word against a member: it is suspected, or dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accusation {
    /// The incarnation that is meant.
    pub incarnation: u32,
    /// Who is meant.
    pub node: Name,
    /// Who says so. A member that says of itself that it is dead has left.
    pub from: Name,
}

/// A word for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    /// The incarnation: the member itself counts it up to overrule what is said of it.
    pub incarnation: u32,
    /// Who is meant.
    pub node: Name,
    /// Its address, as it told it: 4 bytes, or 16.
    pub address: Vec<u8>,
    /// Its port; 0: the port that the receiver itself is bound to.
    pub port: u16,
    /// Its metadata. None and empty differ on the wire.
    pub meta: Option<Vec<u8>>,
    /// Protocol least, most, current; then the same of the application's. Anything but six bytes is somebody's error.
    pub versions: Option<Vec<u8>>,
}

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// There is not even a type.
    #[error("the message is empty")]
    Empty,
    /// A type that has no place here.
    #[error("a message of type {0} is not understood here")]
    Type(u8),
    /// The body is no proper map.
    #[error("a message of type {kind} is malformed: {error}")]
    Body {
        /// The type.
        kind: u8,
        /// What is wrong with it.
        error: MsgpackError,
    },
}

impl Message {
    /// The bytes, in the form that every version of memberlist sends.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ping(ping) => ping.encode(),
            Self::IndirectPing(request) => request.encode(),
            Self::Ack(ack) => ack.encode(),
            Self::Nack { sequence } => {
                let mut w = Writer::message(kind::NACK);
                w.map(1);
                w.key("SeqNo");
                w.unsigned(*sequence);
                w.finish()
            }
            Self::Suspect(accusation) => accusation.encode(kind::SUSPECT),
            Self::Dead(accusation) => accusation.encode(kind::DEAD),
            Self::Alive(alive) => alive.encode(),
            Self::User(payload) => [&[kind::USER], payload.as_slice()].concat(),
        }
    }

    /// Reads one message, which is none of the wrappers. Bytes after its map are ignored.
    ///
    /// # Errors
    ///
    /// If the type is none of a datagram's, or the body is not what its type asks for.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (&kind, body) = bytes.split_first().ok_or(MessageError::Empty)?;
        let mut reader = Reader::new(body);
        let r = &mut reader;
        match kind {
            kind::PING => Ping::decode(r).map(Self::Ping),
            kind::INDIRECT_PING => IndirectPing::decode(r).map(Self::IndirectPing),
            kind::ACK => Ack::decode(r).map(Self::Ack),
            kind::NACK => {
                let mut sequence = 0;
                r.structure(&["SeqNo"], |_, r| {
                    sequence = r.u32()?;
                    Ok(())
                })
                .map(|()| Self::Nack { sequence })
            }
            kind::SUSPECT => Accusation::decode(r).map(Self::Suspect),
            kind::DEAD => Accusation::decode(r).map(Self::Dead),
            kind::ALIVE => Alive::decode(r).map(Self::Alive),
            kind::USER => Ok(Self::User(body.to_vec())),
            other => return Err(MessageError::Type(other)),
        }
        .map_err(|error| MessageError::Body { kind, error })
    }
}

impl Ping {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::message(kind::PING);
        w.map(2 + self.source.fields());
        w.key("Node");
        w.raw(&self.node);
        w.key("SeqNo");
        w.unsigned(self.sequence);
        self.source.write(&mut w);
        w.finish()
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, MsgpackError> {
        let mut ping = Self::default();
        r.structure(&["SeqNo", "Node", "SourceAddr", "SourcePort", "SourceNode"], |field, r| {
            match field {
                0 => ping.sequence = r.u32()?,
                1 => ping.node = r.bytes()?.unwrap_or_default(),
                2 => ping.source.address = r.bytes()?.unwrap_or_default(),
                3 => ping.source.port = r.u16()?,
                _ => ping.source.node = r.bytes()?.unwrap_or_default(),
            }
            Ok(())
        })?;
        Ok(ping)
    }
}

impl Source {
    fn fields(&self) -> u8 {
        u8::from(!self.address.is_empty()) + u8::from(self.port != 0) + u8::from(!self.node.is_empty())
    }

    /// The three fields; in the order of their keys they stand next to each other.
    fn write(&self, w: &mut Writer) {
        if !self.address.is_empty() {
            w.key("SourceAddr");
            w.raw(&self.address);
        }
        if !self.node.is_empty() {
            w.key("SourceNode");
            w.raw(&self.node);
        }
        if self.port != 0 {
            w.key("SourcePort");
            w.unsigned(self.port.into());
        }
    }
}

impl IndirectPing {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::message(kind::INDIRECT_PING);
        w.map(5 + self.source.fields());
        w.key("Nack");
        w.boolean(self.nack);
        w.key("Node");
        w.raw(&self.node);
        w.key("Port");
        w.unsigned(self.port.into());
        w.key("SeqNo");
        w.unsigned(self.sequence);
        self.source.write(&mut w);
        w.key("Target");
        w.bytes(some(&self.target));
        w.finish()
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, MsgpackError> {
        let mut request = Self::default();
        let names = ["SeqNo", "Target", "Port", "Node", "Nack", "SourceAddr", "SourcePort", "SourceNode"];
        r.structure(&names, |field, r| {
            match field {
                0 => request.sequence = r.u32()?,
                1 => request.target = r.bytes()?.unwrap_or_default(),
                2 => request.port = r.u16()?,
                3 => request.node = r.bytes()?.unwrap_or_default(),
                4 => request.nack = r.boolean()?,
                5 => request.source.address = r.bytes()?.unwrap_or_default(),
                6 => request.source.port = r.u16()?,
                _ => request.source.node = r.bytes()?.unwrap_or_default(),
            }
            Ok(())
        })?;
        Ok(request)
    }
}

impl Ack {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::message(kind::ACK);
        w.map(2);
        w.key("Payload");
        w.bytes(self.payload.as_deref());
        w.key("SeqNo");
        w.unsigned(self.sequence);
        w.finish()
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, MsgpackError> {
        let mut ack = Self::default();
        r.structure(&["SeqNo", "Payload"], |field, r| {
            match field {
                0 => ack.sequence = r.u32()?,
                _ => ack.payload = r.bytes()?,
            }
            Ok(())
        })?;
        Ok(ack)
    }
}

impl Accusation {
    fn encode(&self, kind: u8) -> Vec<u8> {
        let mut w = Writer::message(kind);
        w.map(3);
        w.key("From");
        w.raw(self.from.as_bytes());
        w.key("Incarnation");
        w.unsigned(self.incarnation);
        w.key("Node");
        w.raw(self.node.as_bytes());
        w.finish()
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, MsgpackError> {
        let (mut incarnation, mut node, mut from) = (0, Vec::new(), Vec::new());
        r.structure(&["Incarnation", "Node", "From"], |field, r| {
            match field {
                0 => incarnation = r.u32()?,
                1 => node = r.bytes()?.unwrap_or_default(),
                _ => from = r.bytes()?.unwrap_or_default(),
            }
            Ok(())
        })?;
        Ok(Self { incarnation, node: node.into(), from: from.into() })
    }
}

impl Alive {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::message(kind::ALIVE);
        w.map(6);
        w.key("Addr");
        w.bytes(some(&self.address));
        w.key("Incarnation");
        w.unsigned(self.incarnation);
        w.key("Meta");
        w.bytes(self.meta.as_deref());
        w.key("Node");
        w.raw(self.node.as_bytes());
        w.key("Port");
        w.unsigned(self.port.into());
        w.key("Vsn");
        w.bytes(self.versions.as_deref());
        w.finish()
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, MsgpackError> {
        let (mut incarnation, mut node, mut address, mut port) = (0, Vec::new(), Vec::new(), 0);
        let (mut meta, mut versions) = (None, None);
        r.structure(&["Incarnation", "Node", "Addr", "Port", "Meta", "Vsn"], |field, r| {
            match field {
                0 => incarnation = r.u32()?,
                1 => node = r.bytes()?.unwrap_or_default(),
                2 => address = r.bytes()?.unwrap_or_default(),
                3 => port = r.u16()?,
                4 => meta = r.bytes()?,
                _ => versions = r.bytes()?,
            }
            Ok(())
        })?;
        Ok(Self { incarnation, node: node.into(), address, port, meta, versions })
    }
}

/// An empty address is `nil`, as that of an unset field is.
pub(crate) fn some(bytes: &[u8]) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..80)
    }

    fn source() -> impl Strategy<Value = Source> {
        (bytes(), any::<u16>(), bytes()).prop_map(|(address, port, node)| Source { address, port, node })
    }

    fn accusation() -> impl Strategy<Value = Accusation> {
        (any::<u32>(), bytes(), bytes()).prop_map(|(incarnation, node, from)| Accusation {
            incarnation,
            node: node.into(),
            from: from.into(),
        })
    }

    fn message() -> impl Strategy<Value = Message> {
        let optional = || prop::option::of(bytes());
        prop_oneof![
            (any::<u32>(), bytes(), source()).prop_map(|(sequence, node, source)| Message::Ping(Ping {
                sequence,
                node,
                source
            })),
            (any::<u32>(), bytes(), any::<u16>(), bytes(), any::<bool>(), source()).prop_map(
                |(sequence, target, port, node, nack, source)| {
                    Message::IndirectPing(IndirectPing { sequence, target, port, node, nack, source })
                }
            ),
            (any::<u32>(), optional())
                .prop_map(|(sequence, payload)| Message::Ack(Ack { sequence, payload })),
            any::<u32>().prop_map(|sequence| Message::Nack { sequence }),
            accusation().prop_map(Message::Suspect),
            accusation().prop_map(Message::Dead),
            (any::<u32>(), bytes(), bytes(), any::<u16>(), optional(), optional()).prop_map(
                |(incarnation, node, address, port, meta, versions)| {
                    Message::Alive(Alive { incarnation, node: node.into(), address, port, meta, versions })
                }
            ),
            bytes().prop_map(Message::User),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(message in message()) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn a_message_that_is_cut_short_is_refused(message in message(), cut in any::<prop::sample::Index>()) {
            prop_assume!(!matches!(message, Message::User(_)));
            let whole = message.encode();
            prop_assert!(Message::decode(&whole[..cut.index(whole.len())]).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
        }
    }
}

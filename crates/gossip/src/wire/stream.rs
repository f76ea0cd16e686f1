// SPDX-License-Identifier: Apache-2.0
//! Streams: one message in each direction, then the end.
//!
//! Nobody half-closes, so a reader has to know from the bytes alone when a message is whole: [`StreamReader`].

use thiserror::Error;

use super::message::{Ack, Ping, kind, some};
use super::msgpack::{MsgpackError, Reader, Writer};
use super::{Codec, CompressError, LabelError, NONCE, OpenError, decompress, split_label};
use crate::name::Name;

/// Bytes that a frame, an uncompressed message, or what a compressed one expands to may have.
pub const MAX_STREAM: usize = 20 << 20;
/// Members that an exchange may name: more than anybody remembers. A state takes a byte on the wire and a hundred in
/// memory, so a bound on bytes alone is none.
pub const MAX_STATES: usize = 20_000;
/// Bytes that a message without a list, or one state of a list, may have.
const MAX_ITEM: usize = 64 << 10;
const HEADER: usize = 5;

/// What is said on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamMessage {
    /// A probe, where datagrams were not answered.
    Ping(Ping),
    /// Its answer.
    Ack(Ack),
    /// All that a member knows; the answer is of the same kind.
    PushPull(PushPull),
    /// Bytes for the application; no answer.
    User(Vec<u8>),
    /// What was sent could not be read.
    Error(String),
}

/// All that a member knows of the others and itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushPull {
    /// Whether this is somebody's first exchange.
    pub join: bool,
    /// One state for each member.
    pub states: Vec<NodeState>,
    /// The application's; speakers send none.
    pub user_state: Vec<u8>,
}

/// What a member knows of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// Its name.
    pub name: Name,
    /// Its address, as it told it.
    pub address: Vec<u8>,
    /// Its port.
    pub port: u16,
    /// Its metadata.
    pub meta: Option<Vec<u8>>,
    /// The incarnation that the state is of.
    pub incarnation: u32,
    /// How it is.
    pub state: State,
    /// As in [`super::Alive`].
    pub versions: Option<Vec<u8>>,
}

/// How a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It answers.
    Alive = 0,
    /// Somebody had no answer; until it is declared dead it counts as a member.
    Suspect = 1,
    /// It did not answer, and nobody has heard of it since.
    Dead = 2,
    /// It said that it leaves.
    Left = 3,
}

/// Why a stream is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StreamError {
    /// It is another cluster's.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// It is not encrypted, which it has to be.
    #[error("encryption is required, but what was sent is not encrypted")]
    Plain,
    /// It is encrypted, and there is no key.
    #[error("what was sent is encrypted, but encryption is not configured")]
    Encrypted,
    /// A frame, a list or a text that claims to be larger than all that is accepted.
    #[error("{0} bytes are more than what is accepted")]
    TooLarge(u64),
    /// The frame is not encrypted with a key of ours.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A compressed message that cannot be expanded.
    #[error(transparent)]
    Compress(#[from] CompressError),
    /// A type that has no place on a stream.
    #[error("a message of type {0} is not understood on a stream")]
    Type(u8),
    /// The message is malformed.
    #[error("a message of type {kind} is malformed: {error}")]
    Body {
        /// The type.
        kind: u8,
        /// What is wrong with it.
        error: MsgpackError,
    },
    /// An exchange with more members than anybody has.
    #[error("more than {MAX_STATES} members are named")]
    States,
    /// It ended before its message did.
    #[error("the stream ended inside a message")]
    Cut,
    /// Nothing was sent at all.
    #[error("the stream ended before a message")]
    Nothing,
}

impl StreamError {
    /// Whether the other side is told: only what could not be unwrapped is answered, with this error's text.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        matches!(self, Self::Plain | Self::Encrypted | Self::TooLarge(_) | Self::Open(_) | Self::Compress(_))
    }
}

impl Codec {
    /// The bytes that one side of a stream writes. `dialler`: whether it is the one that opened the stream. The nonce
    /// is used only where there are keys, and must never be used again.
    #[must_use]
    pub fn stream(&self, message: &StreamMessage, dialler: bool, nonce: &[u8; NONCE]) -> Vec<u8> {
        let mut bytes = message.encode();
        if self.compress {
            bytes = super::compressed(&bytes);
        }
        if let Some(keyring) = self.sealing() {
            // What is larger than 4 GiB nobody would read anyway.
            let length = u32::try_from(bytes.len() + super::crypt::OVERHEAD).unwrap_or(u32::MAX);
            let mut frame = vec![kind::ENCRYPT];
            frame.extend(length.to_be_bytes());
            let sealed = keyring.seal(&bytes, &[frame.as_slice(), &self.label].concat(), nonce);
            frame.extend(sealed);
            bytes = frame;
        }
        if dialler { [self.label_header(), bytes].concat() } else { bytes }
    }
}

/// Reads one message from the bytes of a stream as they come.
///
/// Work is in proportion to the bytes: a list is read on where it was interrupted.
#[derive(Debug)]
pub struct StreamReader {
    buffer: Vec<u8>,
    /// The label is still to come: only the dialler sends one.
    label: bool,
    plain: Plain,
}

impl StreamReader {
    /// For a stream that somebody opened to us.
    #[must_use]
    pub fn accepted() -> Self {
        Self { buffer: Vec::new(), label: true, plain: Plain::default() }
    }

    /// For a stream that we opened.
    #[must_use]
    pub fn dialled() -> Self {
        Self { label: false, ..Self::accepted() }
    }

    /// Takes the next bytes; the message, once it is whole. What follows it is ignored.
    ///
    /// # Errors
    ///
    /// If the message can never become one. The stream is then to be closed, after an answer if
    /// [`StreamError::is_answered`].
    pub fn push(&mut self, codec: &Codec, bytes: &[u8]) -> Result<Option<StreamMessage>, StreamError> {
        self.buffer.extend(bytes);
        if self.label {
            let (label, rest) = match split_label(&self.buffer) {
                _ if self.buffer.is_empty() => return Ok(None),
                Err(LabelError::Short) => return Ok(None),
                split => split?,
            };
            if label != codec.label {
                return Err(LabelError::Other.into());
            }
            let header = self.buffer.len() - rest.len();
            self.buffer.drain(..header);
            self.label = false;
        }
        let Some(&first) = self.buffer.first() else { return Ok(None) };
        match (&codec.keyring, first) {
            (None, kind::ENCRYPT) => return Err(StreamError::Encrypted),
            (Some(keyring), kind::ENCRYPT) => {
                let Some((header, sealed)) = self.buffer.split_first_chunk::<HEADER>() else {
                    return Ok(None);
                };
                let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
                if length > MAX_STREAM {
                    return Err(StreamError::TooLarge(length as u64));
                }
                let Some(sealed) = sealed.get(..length) else { return Ok(None) };
                let data = [header.as_slice(), &codec.label].concat();
                return unwrapped(&keyring.open(sealed, &data)?).map(Some);
            }
            (Some(_), _) if codec.verify_incoming => return Err(StreamError::Plain),
            _ => {}
        }
        if self.buffer.len() > MAX_STREAM {
            return Err(StreamError::TooLarge(self.buffer.len() as u64));
        }
        if first == kind::COMPRESS {
            return match decompress(&self.buffer[1..], MAX_STREAM) {
                Err(CompressError::Body(MsgpackError::Short)) => Ok(None),
                expanded => whole(&expanded?).map(Some),
            };
        }
        self.plain.read(&self.buffer)
    }

    /// What it means that no more bytes come.
    #[must_use]
    pub fn ended(&self) -> StreamError {
        if self.buffer.is_empty() { StreamError::Nothing } else { StreamError::Cut }
    }
}

/// Reads what a frame held.
fn unwrapped(bytes: &[u8]) -> Result<StreamMessage, StreamError> {
    match bytes {
        [kind::COMPRESS, body @ ..] => whole(&decompress(body, MAX_STREAM)?),
        _ => whole(bytes),
    }
}

/// Reads a message of which no more can come.
fn whole(bytes: &[u8]) -> Result<StreamMessage, StreamError> {
    Plain::default().read(bytes)?.ok_or(StreamError::Cut)
}

/// A message without wrappers, as far as it is there.
#[derive(Debug, Default)]
struct Plain {
    /// Where to read on; 0: nothing has been read.
    at: usize,
    /// States that are to come.
    missing: u64,
    user_state: usize,
    exchange: PushPull,
}

impl Plain {
    fn read(&mut self, bytes: &[u8]) -> Result<Option<StreamMessage>, StreamError> {
        let Some((&kind, body)) = bytes.split_first() else { return Ok(None) };
        let result = match kind {
            kind::PING => Ping::decode(&mut Reader::new(body)).map(|ping| Some(StreamMessage::Ping(ping))),
            kind::ACK => Ack::decode(&mut Reader::new(body)).map(|ack| Some(StreamMessage::Ack(ack))),
            kind::ERROR => error_text(body).map(|text| Some(StreamMessage::Error(text))),
            kind::USER => user(body).map(|payload| payload.map(StreamMessage::User)),
            kind::PUSH_PULL => return self.push_pull(bytes),
            other => return Err(StreamError::Type(other)),
        };
        match result {
            // A user message whose length is known is bounded by that; the others are small.
            Err(MsgpackError::Short) if body.len() <= MAX_ITEM => Ok(None),
            Err(MsgpackError::Short) => Err(StreamError::TooLarge(body.len() as u64)),
            result => result.map_err(|error| StreamError::Body { kind, error }),
        }
    }

    fn push_pull(&mut self, bytes: &[u8]) -> Result<Option<StreamMessage>, StreamError> {
        let body = |error| StreamError::Body { kind: kind::PUSH_PULL, error };
        if self.at == 0 {
            let mut reader = Reader::new(&bytes[1..]);
            let (mut nodes, mut user_state) = (0, 0);
            let header = reader.structure(&["Nodes", "UserStateLen", "Join"], |field, r| {
                match field {
                    0 => nodes = r.unsigned(MAX_STREAM as u64)?,
                    1 => user_state = r.unsigned(MAX_STREAM as u64)?,
                    _ => self.exchange.join = r.boolean()?,
                }
                Ok(())
            });
            match header {
                Err(MsgpackError::Short) if bytes.len() <= MAX_ITEM => return Ok(None),
                header => header.map_err(body)?,
            }
            if nodes > MAX_STATES as u64 {
                return Err(StreamError::States);
            }
            // At most MAX_STREAM, as asked.
            (self.missing, self.user_state) = (nodes, user_state as usize);
            self.at = bytes.len() - reader.rest().len();
        }
        while self.missing > 0 {
            let mut reader = Reader::new(bytes.get(self.at..).unwrap_or_default());
            match NodeState::decode(&mut reader) {
                Err(MsgpackError::Short) if bytes.len() - self.at <= MAX_ITEM => return Ok(None),
                state => self.exchange.states.extend(state.map_err(body)?),
            }
            self.missing -= 1;
            self.at = bytes.len() - reader.rest().len();
        }
        let Some(user_state) = bytes.get(self.at..).and_then(|rest| rest.get(..self.user_state)) else {
            return Ok(None);
        };
        self.exchange.user_state = user_state.to_vec();
        Ok(Some(StreamMessage::PushPull(std::mem::take(&mut self.exchange))))
    }
}

fn error_text(body: &[u8]) -> Result<String, MsgpackError> {
    let mut text = Vec::new();
    Reader::new(body).structure(&["Error"], |_, r| {
        text = r.bytes()?.unwrap_or_default();
        Ok(())
    })?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn user(body: &[u8]) -> Result<Option<Vec<u8>>, MsgpackError> {
    let mut reader = Reader::new(body);
    let mut length = 0;
    reader.structure(&["UserMsgLen"], |_, r| {
        length = r.unsigned(MAX_STREAM as u64)?;
        Ok(())
    })?;
    // At most MAX_STREAM, as asked.
    Ok(reader.rest().get(..length as usize).map(<[u8]>::to_vec))
}

impl StreamMessage {
    /// The bytes without any wrapper.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // What does not fit 32 bits cannot be held, let alone read.
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        match self {
            Self::Ping(ping) => ping.encode(),
            Self::Ack(ack) => ack.encode(),
            Self::Error(text) => {
                let mut w = Writer::message(kind::ERROR);
                w.map(1);
                w.key("Error");
                w.raw(text.as_bytes());
                w.finish()
            }
            Self::User(payload) => {
                let mut w = Writer::message(kind::USER);
                w.map(1);
                w.key("UserMsgLen");
                w.signed(count(payload.len()));
                [w.finish(), payload.clone()].concat()
            }
            Self::PushPull(exchange) => {
                let mut w = Writer::message(kind::PUSH_PULL);
                w.map(3);
                w.key("Join");
                w.boolean(exchange.join);
                w.key("Nodes");
                w.signed(count(exchange.states.len()));
                w.key("UserStateLen");
                w.signed(count(exchange.user_state.len()));
                let mut bytes = w.finish();
                for state in &exchange.states {
                    bytes = state.encode(bytes);
                }
                bytes.extend(&exchange.user_state);
                bytes
            }
        }
    }
}

impl NodeState {
    fn encode(&self, onto: Vec<u8>) -> Vec<u8> {
        let mut w = Writer::onto(onto);
        w.map(7);
        w.key("Addr");
        w.bytes(some(&self.address));
        w.key("Incarnation");
        w.unsigned(self.incarnation);
        w.key("Meta");
        w.bytes(self.meta.as_deref());
        w.key("Name");
        w.raw(self.name.as_bytes());
        w.key("Port");
        w.unsigned(self.port.into());
        w.key("State");
        w.signed(self.state as u32);
        w.key("Vsn");
        w.bytes(self.versions.as_deref());
        w.finish()
    }

    /// None: a state that does not exist, of which nothing can be concluded.
    fn decode(r: &mut Reader<'_>) -> Result<Option<Self>, MsgpackError> {
        let (mut name, mut address, mut port, mut meta) = (Vec::new(), Vec::new(), 0, None);
        let (mut incarnation, mut state, mut versions) = (0, Some(State::Alive), None);
        r.structure(&["Name", "Addr", "Port", "Meta", "Incarnation", "State", "Vsn"], |field, r| {
            match field {
                0 => name = r.bytes()?.unwrap_or_default(),
                1 => address = r.bytes()?.unwrap_or_default(),
                2 => port = r.u16()?,
                3 => meta = r.bytes()?,
                4 => incarnation = r.u32()?,
                5 => {
                    state = match r.u32()? {
                        0 => Some(State::Alive),
                        1 => Some(State::Suspect),
                        2 => Some(State::Dead),
                        3 => Some(State::Left),
                        _ => None,
                    }
                }
                _ => versions = r.bytes()?,
            }
            Ok(())
        })?;
        Ok(state.map(|state| Self { name: name.into(), address, port, meta, incarnation, state, versions }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{Key, Keyring, compressed};

    fn state(number: u32) -> NodeState {
        NodeState {
            name: format!("node-{number}").as_str().into(),
            address: vec![10, 0, 0, number as u8],
            port: 7946,
            meta: None,
            incarnation: number,
            state: State::Alive,
            versions: Some(vec![1, 5, 2, 0, 0, 0]),
        }
    }

    fn exchange(nodes: u32) -> StreamMessage {
        let states = (0..nodes).map(state).collect();
        StreamMessage::PushPull(PushPull { join: true, states, user_state: vec![1, 2, 3] })
    }

    fn plain() -> Codec {
        Codec { compress: false, ..Codec::new(None) }
    }

    #[test]
    fn counts_are_claims_and_negative_ones_are_refused() {
        let header = |nodes: &[u8], user: &[u8]| {
            [b"\x06\x83\xa4Join\xc2\xa5Nodes".as_slice(), nodes, b"\xacUserStateLen", user].concat()
        };
        for (nodes, user) in [
            (b"\xd1\xff\xff".as_slice(), b"\x00".as_slice()),
            (b"\xff", b"\x00"),
            (b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", b"\x00"),
            (b"\x00", b"\xd3\xff\xff\xff\xff\xff\xff\xff\xff"),
            (b"\x00", b"\xce\x7f\xff\xff\xff"),
        ] {
            let read = StreamReader::accepted().push(&plain(), &header(nodes, user));
            assert!(
                matches!(read, Err(StreamError::Body { kind: 6, error: MsgpackError::Range(_) })),
                "{read:?}"
            );
        }
        // Many states that never come: nothing is reserved for them, the reader just waits.
        let mut reader = StreamReader::accepted();
        assert_eq!(reader.push(&plain(), &header(b"\xcd\x4e\x20", b"\x00")), Ok(None));
        assert_eq!((reader.plain.missing, reader.plain.exchange.states.capacity()), (20_000, 0));
        assert_eq!(reader.ended(), StreamError::Cut);
        assert_eq!(StreamReader::accepted().ended(), StreamError::Nothing);
    }

    #[test]
    fn a_state_of_unbounded_size_is_refused_before_it_is_whole() {
        let mut reader = StreamReader::accepted();
        let mut first =
            b"\x06\x83\xa4Join\xc2\xa5Nodes\x01\xacUserStateLen\x00\x87\xa4Meta\xdb\x01\x00\x00\x00".to_vec();
        first.extend(vec![0; MAX_ITEM]);
        assert!(matches!(reader.push(&plain(), &first), Err(StreamError::Body { .. })));
        let mut ping = b"\x00\x82\xa4Node\xdb\x01\x00\x00\x00".to_vec();
        ping.extend(vec![0; MAX_ITEM]);
        assert!(matches!(StreamReader::accepted().push(&plain(), &ping), Err(StreamError::TooLarge(_))));
    }

    #[test]
    fn a_bomb_on_a_stream_stops_at_its_bound() {
        let bomb = compressed(&[vec![kind::USER, 0x81], vec![0; MAX_STREAM]].concat());
        let read = StreamReader::accepted().push(&Codec::new(None), &bomb);
        assert!(matches!(read, Err(StreamError::Compress(CompressError::Block(_)))), "{read:?}");
        // Compression is unwrapped once.
        let twice = compressed(&compressed(&exchange(1).encode()));
        assert_eq!(
            StreamReader::accepted().push(&Codec::new(None), &twice),
            Err(StreamError::Type(kind::COMPRESS))
        );
    }

    #[test]
    fn states_that_take_next_to_nothing_on_the_wire_take_no_more_than_their_share_of_memory() {
        let most = u32::try_from(MAX_STATES).unwrap();
        // Nothing at all, an empty map, and the shortest that has a name.
        for state in [b"\xc0".as_slice(), b"\x80", b"\x91\xa1n"] {
            let exchange = |claimed: u32, states: usize| {
                let header =
                    [b"\x06\x83\xa4Join\xc2\xa5Nodes\xce", claimed.to_be_bytes().as_slice()].concat();
                [header, b"\xacUserStateLen\x00".to_vec(), state.repeat(states)].concat()
            };
            let bomb = compressed(&exchange(1 << 22, 1 << 22));
            assert!(bomb.len() < MAX_ITEM, "{}", bomb.len());
            assert_eq!(StreamReader::accepted().push(&Codec::new(None), &bomb), Err(StreamError::States));
            let read = StreamReader::accepted().push(&plain(), &exchange(most + 1, 0));
            assert_eq!(read, Err(StreamError::States));
            let read = StreamReader::accepted().push(&plain(), &exchange(most, MAX_STATES));
            assert!(matches!(read, Ok(Some(StreamMessage::PushPull(_)))));
        }
    }

    #[test]
    fn a_label_comes_from_the_dialler_alone_and_is_authenticated_both_ways() {
        let codec = Codec::new(Some(Keyring::new(Key::new(&[1; 32]).unwrap(), Vec::new())))
            .with_label("blue")
            .unwrap();
        let request = codec.stream(&exchange(2), true, &[1; NONCE]);
        let answer = codec.stream(&exchange(2), false, &[2; NONCE]);
        assert_eq!((&request[..6], answer[0]), (b"\xf4\x04blue".as_slice(), kind::ENCRYPT));
        assert_eq!(StreamReader::accepted().push(&codec, &request), Ok(Some(exchange(2))));
        assert_eq!(StreamReader::dialled().push(&codec, &answer), Ok(Some(exchange(2))));
        assert_eq!(StreamReader::accepted().push(&codec, &answer), Err(LabelError::Other.into()));
        let other = codec.with_label("green").unwrap();
        assert_eq!(StreamReader::accepted().push(&other, &request), Err(LabelError::Other.into()));
        assert_eq!(StreamReader::dialled().push(&other, &answer), Err(OpenError::Key.into()));
        assert!(
            !StreamError::from(LabelError::Other).is_answered()
                && StreamError::from(OpenError::Key).is_answered()
        );
    }

    proptest! {
        #[test]
        fn a_message_is_whole_with_its_last_byte_however_it_is_cut(
            nodes in 0_u32..6, compress: bool, encrypt: bool, label in "[a-z]{0,3}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let keyring = encrypt.then(|| Keyring::new(Key::new(&[9; 24]).unwrap(), Vec::new()));
            let mut codec = Codec::new(keyring).with_label(&label).unwrap();
            codec.compress = compress;
            for message in [exchange(nodes), StreamMessage::User(vec![5; 70_000]), StreamMessage::Error("no".into())] {
                let bytes = codec.stream(&message, true, &[3; NONCE]);
                let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
                cuts.push(0);
                cuts.sort_unstable();
                let mut reader = StreamReader::accepted();
                for (place, &from) in cuts.iter().enumerate() {
                    let to = cuts.get(place + 1).copied();
                    let read = reader.push(&codec, &bytes[from..to.unwrap_or(bytes.len())]);
                    prop_assert_eq!(read, Ok(to.is_none().then(|| message.clone())));
                }
            }
        }

        #[test]
        fn any_bytes_on_a_stream_are_read_or_refused(bytes in prop::collection::vec(prop_oneof![0_u8..14, any::<u8>()], 0..300)) {
            let _read = StreamReader::accepted().push(&plain(), &bytes);
        }
    }
}

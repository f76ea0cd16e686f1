// SPDX-License-Identifier: Apache-2.0
//! Messages out of a stream of bytes, however it is cut into pieces.

use thiserror::Error;

use super::cursor::Cursor;
use super::message::{Message, MessageError};
use super::notification::{Code, Notification};
use super::update::Context;
use super::{HEADER, Kind, MARKER, MAX_LENGTH};

/// Why what comes is no message (RFC 4271, section 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// The marker is not all ones: this is not BGP, or both sides have lost their place in the stream.
    #[error("synchronization error, incorrect header marker")]
    Marker,
    /// A length below 19 or over 4,096, or one that this type of message cannot have.
    #[error("a message cannot be {0} bytes long")]
    Length(u16),
    /// A type that was not agreed on.
    #[error("unknown message type {0}")]
    Type(u8),
}

impl HeaderError {
    /// The NOTIFICATION for it.
    #[must_use]
    pub fn notification(&self) -> Notification {
        match self {
            Self::Marker => Code::NOT_SYNCHRONIZED.into(),
            Self::Length(length) => Notification::new(Code::BAD_LENGTH, &length.to_be_bytes()),
            Self::Type(kind) => Notification::new(Code::BAD_TYPE, &[*kind]),
        }
    }
}

/// Puts messages together. It never holds more than one message of at most 4,096 bytes, and judges a header as soon
/// as its 19 bytes are there.
#[derive(Debug, Default)]
pub struct Reader {
    /// What there is of the message that is not whole yet.
    partial: Vec<u8>,
}

impl Reader {
    /// A reader at the beginning of a stream.
    #[must_use]
    pub const fn new() -> Self {
        Self { partial: Vec::new() }
    }

    /// Takes from the front of `input` what belongs to one message. `None` when `input` is used up before the message
    /// is whole; call again, with the same `input`, until then. The context is that of the message to come.
    ///
    /// # Errors
    ///
    /// [`MessageError`]; there is nothing more to be read from this stream.
    pub fn read(&mut self, input: &mut &[u8], context: &Context) -> Result<Option<Message>, MessageError> {
        if !self.fill(input, HEADER) {
            return Ok(None);
        }
        let (kind, length) = header(&self.partial)?;
        if !self.fill(input, length) {
            return Ok(None);
        }
        let message = Message::decode(kind, &self.partial[HEADER..], context);
        self.partial.clear();
        message.map(Some)
    }

    /// Whether so many bytes of the message are there, now that `input` was drawn on.
    fn fill(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.partial.len()).min(input.len());
        let (taken, rest) = input.split_at(missing);
        self.partial.extend_from_slice(taken);
        *input = rest;
        self.partial.len() >= wanted
    }
}

/// Type and length of the message that begins with these bytes, of which there are 19 or more.
fn header(bytes: &[u8]) -> Result<(Kind, usize), HeaderError> {
    let mut cursor = Cursor::new(bytes);
    if cursor.array() != Some(MARKER) {
        return Err(HeaderError::Marker);
    }
    let length = cursor.u16().unwrap_or_default();
    let wrong = Err(HeaderError::Length(length));
    if usize::from(length) < HEADER || length > MAX_LENGTH {
        return wrong;
    }
    // RFC 4271, section 6.1, and RFC 2918, section 3.
    let (kind, allowed) = match cursor.u8().unwrap_or_default() {
        1 => (Kind::Open, 29..=MAX_LENGTH),
        2 => (Kind::Update, 23..=MAX_LENGTH),
        3 => (Kind::Notification, 21..=MAX_LENGTH),
        4 => (Kind::Keepalive, 19..=19),
        5 => (Kind::RouteRefresh, 23..=23),
        other => return Err(HeaderError::Type(other)),
    };
    if allowed.contains(&length) { Ok((kind, length.into())) } else { wrong }
}

#[cfg(test)]
mod tests {
    use ferrolb_net_types::IpFamily;

    use super::super::message::{RouteRefresh, keepalive};
    use super::*;

    fn with_header(length: u16, kind: u8) -> Vec<u8> {
        [&MARKER[..], &length.to_be_bytes(), &[kind]].concat()
    }

    fn first(mut bytes: &[u8]) -> Result<Option<Message>, MessageError> {
        Reader::new().read(&mut bytes, &Context::default())
    }

    #[test]
    fn headers_that_no_message_has() {
        let marker = [&[0; 16][..], &[0, 19, 4]].concat();
        assert_eq!(first(&marker), Err(HeaderError::Marker.into()));
        assert_eq!(HeaderError::Marker.notification(), Code::NOT_SYNCHRONIZED.into());
        let one_bit = [&[0xff; 15][..], &[0xfe, 0, 19, 4]].concat();
        assert_eq!(first(&one_bit), Err(HeaderError::Marker.into()));
        for length in [0, 1, 18, 4097, 65_535] {
            for kind in 0..=6 {
                assert_eq!(first(&with_header(length, kind)), Err(HeaderError::Length(length).into()));
            }
        }
        assert_eq!(HeaderError::Length(4097).notification().data, [0x10, 0x01]);
        for kind in [0, 6, 7, 128, 255] {
            assert_eq!(first(&with_header(19, kind)), Err(HeaderError::Type(kind).into()));
        }
        assert_eq!(HeaderError::Type(6).notification(), Notification::new(Code::BAD_TYPE, &[6]));
    }

    #[test]
    fn each_type_has_lengths_of_its_own() {
        for (kind, too_short, too_long) in [
            (1, Some(28), None),
            (2, Some(22), None),
            (3, Some(20), None),
            (4, None, Some(20)),
            (5, Some(22), Some(24)),
        ] {
            for length in [too_short, too_long].into_iter().flatten() {
                assert_eq!(
                    first(&with_header(length, kind)),
                    Err(HeaderError::Length(length).into()),
                    "{kind}"
                );
            }
        }
    }

    #[test]
    fn a_header_is_judged_before_the_message_is_whole() {
        assert_eq!(first(&with_header(4096, 2)), Ok(None));
        assert_eq!(first(&with_header(4096, 4)), Err(HeaderError::Length(4096).into()));
        assert_eq!(first(&with_header(19, 4)[..18]), Ok(None));
    }

    #[test]
    fn messages_come_out_however_the_stream_is_cut() {
        let refresh = RouteRefresh::new(IpFamily::V6);
        let notification = Notification::with_text(Code::ADMINISTRATIVE_SHUTDOWN, "maint");
        let stream = [keepalive(), refresh.encode(), notification.encode()].concat();
        let wanted =
            [Message::Keepalive, Message::RouteRefresh(refresh), Message::Notification(notification)];
        for size in 1..=stream.len() {
            let mut reader = Reader::new();
            let mut messages = Vec::new();
            for mut piece in stream.chunks(size) {
                while let Some(message) = reader.read(&mut piece, &Context::default()).unwrap() {
                    messages.push(message);
                }
                assert!(piece.is_empty());
            }
            assert_eq!(messages, wanted, "pieces of {size}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The part of MessagePack that members speak: maps keyed by field name, in its form of before 2013.
//!
//! There, text and bytes are one family ("raw"), so what is written has neither `str 8` nor `bin`. What is read may
//! have both, and more: any order of keys, unknown keys, `nil` for anything, any width of integer that fits, a list
//! in place of a map. Lengths and counts are claims until the bytes are there: nothing is reserved for them, and no
//! nesting is followed by recursion.

use thiserror::Error;

/// Why a body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MsgpackError {
    /// The input ends inside a value.
    #[error("the message ends inside a value")]
    Short,
    /// A value of another kind than its place asks for.
    #[error("expected {expected}, found a value that starts with {found:#04x}")]
    Kind {
        /// What its place asks for.
        expected: &'static str,
        /// The byte that is there.
        found: u8,
    },
    /// An integer that does not fit its field.
    #[error("an integer does not fit its field, whose largest value is {0}")]
    Range(u64),
}

/// Writes values in the one form that every version of memberlist sends.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// A writer whose output starts with the byte that tells the type of a message.
    pub(crate) fn message(kind: u8) -> Self {
        Self(vec![kind])
    }

    /// A writer that continues.
    pub(crate) const fn onto(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    /// The head of a map; every map here has fewer than 16 fields.
    pub(crate) fn map(&mut self, fields: u8) {
        debug_assert!(fields < 16);
        self.0.push(0x80 | (fields & 0x0f));
    }

    pub(crate) fn key(&mut self, key: &str) {
        self.raw(key.as_bytes());
    }

    /// Text or bytes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let length = bytes.len();
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short), _) if short < 32 => self.0.push(0xa0 | short),
            (_, Ok(medium)) => {
                self.0.push(0xda);
                self.0.extend(medium.to_be_bytes());
            }
            _ => {
                self.0.push(0xdb);
                // Nobody holds 4 GiB of message; a longer one would be cut, never misread.
                self.0.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
            }
        }
        self.0.extend(bytes.iter().take(u32::MAX as usize));
    }

    /// Bytes, or `nil`.
    pub(crate) fn bytes(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.raw(bytes),
            None => self.0.push(0xc0),
        }
    }

    pub(crate) fn unsigned(&mut self, value: u32) {
        match (u8::try_from(value), u16::try_from(value)) {
            (Ok(small), _) if small < 128 => self.0.push(small),
            (Ok(byte), _) => self.0.extend([0xcc, byte]),
            (_, Ok(short)) => {
                self.0.push(0xcd);
                self.0.extend(short.to_be_bytes());
            }
            _ => {
                self.0.push(0xce);
                self.0.extend(value.to_be_bytes());
            }
        }
    }

    /// A number of the reference's signed type: above 127 its width is that of a signed integer.
    pub(crate) fn signed(&mut self, value: u32) {
        match (u8::try_from(value), i16::try_from(value), i32::try_from(value)) {
            (Ok(small), ..) if small < 128 => self.0.push(small),
            (_, Ok(short), _) => {
                self.0.push(0xd1);
                self.0.extend(short.to_be_bytes());
            }
            (.., Ok(medium)) => {
                self.0.push(0xd2);
                self.0.extend(medium.to_be_bytes());
            }
            _ => {
                self.0.push(0xd3);
                self.0.extend(i64::from(value).to_be_bytes());
            }
        }
    }

    pub(crate) fn boolean(&mut self, value: bool) {
        self.0.push(if value { 0xc3 } else { 0xc2 });
    }
}

/// Reads values from the front of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads a structure: calls `field` with the place of each known key in `names`, which stand in the order of
    /// declaration, at its value. Unknown keys are skipped, missing ones never called for.
    pub(crate) fn structure(
        &mut self,
        names: &[&str],
        mut field: impl FnMut(usize, &mut Self) -> Result<(), MsgpackError>,
    ) -> Result<(), MsgpackError> {
        let head = self.byte()?;
        let (list, count) = match head {
            0xc0 => return Ok(()),
            0x80..=0x8f => (false, u64::from(head & 0x0f)),
            0xde => (false, self.number(2)?),
            0xdf => (false, self.number(4)?),
            0x90..=0x9f => (true, u64::from(head & 0x0f)),
            0xdc => (true, self.number(2)?),
            0xdd => (true, self.number(4)?),
            found => return Err(MsgpackError::Kind { expected: "a map", found }),
        };
        for place in 0..count {
            let known = if list {
                usize::try_from(place).ok().filter(|place| *place < names.len())
            } else {
                let key = self.text()?;
                names.iter().position(|name| name.as_bytes() == key)
            };
            match known {
                Some(index) => field(index, self)?,
                None => self.skip()?,
            }
        }
        Ok(())
    }

    /// A key: raw, `str 8` or `bin`.
    fn text(&mut self) -> Result<&'a [u8], MsgpackError> {
        let head = self.byte()?;
        match self.raw_length(head)? {
            Some(length) => self.take(length),
            None => Err(MsgpackError::Kind { expected: "text", found: head }),
        }
    }

    /// Text or bytes: raw, `str 8`, `bin`, a list of small integers; `nil` is none.
    pub(crate) fn bytes(&mut self) -> Result<Option<Vec<u8>>, MsgpackError> {
        let head = self.byte()?;
        if head == 0xc0 {
            return Ok(None);
        }
        if let Some(length) = self.raw_length(head)? {
            return self.take(length).map(|bytes| Some(bytes.to_vec()));
        }
        let count = match head {
            0x90..=0x9f => u64::from(head & 0x0f),
            0xdc => self.number(2)?,
            0xdd => self.number(4)?,
            found => return Err(MsgpackError::Kind { expected: "text or bytes", found }),
        };
        // Each element takes a byte at least, so a count beyond what is left ends as `Short`.
        let mut bytes = Vec::new();
        for _ in 0..count {
            // At most 255, as asked.
            bytes.push(self.unsigned(0xff)? as u8);
        }
        Ok(Some(bytes))
    }

    /// An integer from 0 to `most`; `nil` is 0.
    pub(crate) fn unsigned(&mut self, most: u64) -> Result<u64, MsgpackError> {
        let range = MsgpackError::Range(most);
        let head = self.byte()?;
        let value = match head {
            0xc0 => 0,
            0x00..=0x7f => u64::from(head),
            0xcc => self.number(1)?,
            0xcd => self.number(2)?,
            0xce => self.number(4)?,
            0xcf => self.number(8)?,
            0xd0..=0xd3 => {
                let width = 1_u32 << (head - 0xd0);
                let value = self.number(width)?;
                if value >> (8 * width - 1) != 0 {
                    return Err(range);
                }
                value
            }
            0xe0..=0xff => return Err(range),
            found => return Err(MsgpackError::Kind { expected: "an integer", found }),
        };
        if value > most { Err(range) } else { Ok(value) }
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MsgpackError> {
        // Fits, as asked.
        self.unsigned(u64::from(u32::MAX)).map(|value| value as u32)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, MsgpackError> {
        // Fits, as asked.
        self.unsigned(u64::from(u16::MAX)).map(|value| value as u16)
    }

    /// True or false, also as 1 or 0; `nil` is false.
    pub(crate) fn boolean(&mut self) -> Result<bool, MsgpackError> {
        match self.byte()? {
            0xc0 | 0xc2 | 0x00 => Ok(false),
            0xc3 | 0x01 => Ok(true),
            found => Err(MsgpackError::Kind { expected: "a boolean", found }),
        }
    }

    /// Skips one value with all that it holds.
    fn skip(&mut self) -> Result<(), MsgpackError> {
        let mut pending = 1_u64;
        while pending > 0 {
            pending -= 1;
            let head = self.byte()?;
            if let Some(length) = self.raw_length(head)? {
                self.take(length)?;
                continue;
            }
            // A count of up to 2^33 is added per five bytes of input: no overflow, and every pending one needs a byte.
            match head {
                0x80..=0x8f => pending += 2 * u64::from(head & 0x0f),
                0x90..=0x9f => pending += u64::from(head & 0x0f),
                0xdc => pending += self.number(2)?,
                0xdd => pending += self.number(4)?,
                0xde => pending += 2 * self.number(2)?,
                0xdf => pending += 2 * self.number(4)?,
                0xcc | 0xd0 => drop(self.take(1)?),
                0xcd | 0xd1 => drop(self.take(2)?),
                0xca | 0xce | 0xd2 => drop(self.take(4)?),
                0xcb | 0xcf | 0xd3 => drop(self.take(8)?),
                0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => {}
                found => return Err(MsgpackError::Kind { expected: "a value", found }),
            }
        }
        Ok(())
    }

    /// The length of the text or bytes that start with `head`, or none if it starts something else.
    fn raw_length(&mut self, head: u8) -> Result<Option<u64>, MsgpackError> {
        match head {
            0xa0..=0xbf => Ok(Some(u64::from(head & 0x1f))),
            0xd9 | 0xc4 => self.number(1).map(Some),
            0xda | 0xc5 => self.number(2).map(Some),
            0xdb | 0xc6 => self.number(4).map(Some),
            _ => Ok(None),
        }
    }

    fn byte(&mut self) -> Result<u8, MsgpackError> {
        let (first, rest) = self.rest.split_first().ok_or(MsgpackError::Short)?;
        self.rest = rest;
        Ok(*first)
    }

    /// A big-endian number of up to eight bytes.
    fn number(&mut self, width: u32) -> Result<u64, MsgpackError> {
        Ok(self.take(u64::from(width))?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], MsgpackError> {
        let length = usize::try_from(length).map_err(|_| MsgpackError::Short)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(MsgpackError::Short)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_shrink_to_their_value_and_signed_ones_keep_their_sign_bit() {
        let written = |write: &dyn Fn(&mut Writer)| {
            let mut writer = Writer::default();
            write(&mut writer);
            writer.finish()
        };
        for (value, unsigned, signed) in [
            (5, vec![5], vec![5]),
            (127, vec![127], vec![127]),
            (200, vec![0xcc, 200], vec![0xd1, 0, 200]),
            (7946, vec![0xcd, 0x1f, 0x0a], vec![0xd1, 0x1f, 0x0a]),
            (40_000, vec![0xcd, 0x9c, 0x40], vec![0xd2, 0, 0, 0x9c, 0x40]),
            (70_000, vec![0xce, 0, 1, 0x11, 0x70], vec![0xd2, 0, 1, 0x11, 0x70]),
            (u32::MAX, vec![0xce, 255, 255, 255, 255], vec![0xd3, 0, 0, 0, 0, 255, 255, 255, 255]),
        ] {
            assert_eq!(written(&|w| w.unsigned(value)), unsigned);
            assert_eq!(written(&|w| w.signed(value)), signed);
            for bytes in [unsigned, signed] {
                assert_eq!(Reader::new(&bytes).u32(), Ok(value));
            }
        }
    }

    #[test]
    fn raw_has_three_lengths() {
        for (length, head) in
            [(0, vec![0xa0]), (31, vec![0xbf]), (32, vec![0xda, 0, 32]), (65_536, vec![0xdb, 0, 1, 0, 0])]
        {
            let mut writer = Writer::default();
            writer.raw(&vec![7; length]);
            let bytes = writer.finish();
            assert_eq!(bytes[..head.len()], head);
            assert_eq!(Reader::new(&bytes).bytes(), Ok(Some(vec![7; length])));
        }
    }

    #[test]
    fn skipping_follows_no_nesting_and_believes_no_count() {
        // A hundred thousand lists in lists, then a list that claims four thousand million elements.
        let mut deep = vec![0x91; 100_000];
        deep.push(0xc0);
        let mut reader = Reader::new(&deep);
        assert_eq!((reader.skip(), reader.rest().len()), (Ok(()), 0));
        assert_eq!(Reader::new(&[0xdf, 255, 255, 255, 255, 0xc0]).skip(), Err(MsgpackError::Short));
        assert_eq!(Reader::new(&[0xdd, 255, 255, 255, 255, 1]).bytes(), Err(MsgpackError::Short));
        assert_eq!(Reader::new(&[0xc6, 255, 255, 255, 255, 1]).bytes(), Err(MsgpackError::Short));
    }
}

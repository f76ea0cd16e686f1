// SPDX-License-Identifier: Apache-2.0
//! The bytes of a frame that is to be sent.

use std::fmt;
use std::ops::Deref;

/// The longest frame that is written here: a neighbor discovery message with one option.
const LONGEST: usize = 86;

/// A whole Ethernet frame, ready to be sent; the bytes are read by dereferencing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Bytes {
    /// These parts, one after the other. What does not fit is left out; the codecs write nothing longer.
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let mut bytes = [0; LONGEST];
        let mut length = 0;
        for part in parts {
            let Some(place) = bytes.get_mut(length..length + part.len()) else { break };
            place.copy_from_slice(part);
            length += part.len();
        }
        Self { bytes, length }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&self.bytes)
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Self {
        const { assert!(N <= LONGEST) };
        Self::of(&[&bytes])
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Reading fields one after the other, never beyond the end.

/// What of some bytes has not been read yet. A read that asks for more than is left gives `None` and reads nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// As many bytes as the length in front of them says, which is one octet wide.
    pub(crate) fn counted_u8(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let count = ahead.u8()?;
        let taken = ahead.take(count.into())?;
        *self = ahead;
        Some(taken)
    }

    /// As many bytes as the length in front of them says, which is two octets wide.
    pub(crate) fn counted_u16(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let count = ahead.u16()?;
        let taken = ahead.take(count.into())?;
        *self = ahead;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_beyond_the_end_reads_nothing() {
        let mut cursor = Cursor::new(&[0, 2, 7]);
        assert_eq!(cursor.counted_u16(), None);
        assert_eq!(cursor.u32(), None);
        assert_eq!(cursor.u16(), Some(2));
        assert_eq!(cursor.counted_u8(), None);
        assert_eq!(cursor.u8(), Some(7));
        assert!(cursor.is_empty());
        assert_eq!(cursor.u8(), None);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! LZW as GIF has it: least significant bit first, literals of eight bits, codes of 9 to 12.
//!
//! The writer makes the very bytes that memberlist makes. The reader takes what memberlist's takes and refuses to
//! grow beyond a bound.

use thiserror::Error;

const CLEAR: u16 = 256;
const END: u16 = 257;
const LITERAL_WIDTH: u32 = 8;
const MAX_WIDTH: u32 = 12;
const MAX_CODE: u16 = (1 << MAX_WIDTH) - 1;

/// Why a block cannot be expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LzwError {
    /// The block has no end code.
    #[error("the compressed block has no end")]
    Short,
    /// A code that nothing has defined.
    #[error("the compressed block uses code {0}, which is not defined")]
    Code(u16),
    /// More output than the reader is willing to hold.
    #[error("the compressed block expands to more than {0} bytes")]
    TooLarge(usize),
}

/// Expands a block; at most `limit` bytes come out.
///
/// # Errors
///
/// If the block has no end, uses an undefined code, or holds more than `limit` bytes. What follows the end is ignored.
pub fn expand(block: &[u8], limit: usize) -> Result<Vec<u8>, LzwError> {
    let mut codes = BitReader { bytes: block, bits: 0, count: 0 };
    let mut output = Vec::new();
    let mut prefix = [0_u16; 1 << MAX_WIDTH];
    let mut suffix = [0_u8; 1 << MAX_WIDTH];
    // What one code stands for, last byte first.
    let mut reversed = Vec::with_capacity(1 << MAX_WIDTH);
    let mut width = LITERAL_WIDTH + 1;
    // The newest code, and the first that is too wide.
    let (mut newest, mut overflow) = (END, 1_u16 << width);
    // The code before this one, unless it ends a run of which nothing is learned.
    let mut last: Option<u16> = None;
    loop {
        let code = codes.next(width).ok_or(LzwError::Short)?;
        match code {
            CLEAR => {
                width = LITERAL_WIDTH + 1;
                (newest, overflow) = (END, 1 << width);
                last = None;
                continue;
            }
            END => return Ok(output),
            _ if code > newest => return Err(LzwError::Code(code)),
            _ => {}
        }
        reversed.clear();
        let mut walk = code;
        if let Some(last) = last.filter(|_| code == newest && code > END) {
            // The code that is being defined: what the last one stands for, and its own first byte again.
            walk = last;
            let mut first = last;
            while first >= CLEAR {
                first = prefix[usize::from(first)];
            }
            reversed.push(first as u8);
        }
        while walk >= CLEAR {
            reversed.push(suffix[usize::from(walk)]);
            walk = prefix[usize::from(walk)];
        }
        // Below CLEAR: a byte.
        let first = walk as u8;
        reversed.push(first);
        if output.len() + reversed.len() > limit {
            return Err(LzwError::TooLarge(limit));
        }
        output.extend(reversed.iter().rev());
        if let Some(last) = last {
            suffix[usize::from(newest)] = first;
            prefix[usize::from(newest)] = last;
        }
        last = Some(code);
        newest += 1;
        if newest >= overflow {
            if width == MAX_WIDTH {
                // Full, and no clear came: nothing is learned any more.
                last = None;
                newest -= 1;
            } else {
                width += 1;
                overflow = 1 << width;
            }
        }
    }
}

/// Compresses.
#[must_use]
pub fn compress(input: &[u8]) -> Vec<u8> {
    let mut writer = Compressor { output: Vec::with_capacity(input.len() / 2 + 8), ..Compressor::default() };
    writer.emit(CLEAR);
    let mut bytes = input.iter();
    if let Some(&first) = bytes.next() {
        let mut code = u16::from(first);
        for &byte in bytes {
            match writer.table.slot(code, byte) {
                Ok(longer) => code = longer,
                Err(slot) => {
                    writer.emit(code);
                    if writer.advance() {
                        writer.table.set(slot, code, byte, writer.newest);
                    }
                    code = u16::from(byte);
                }
            }
        }
        writer.emit(code);
        writer.advance();
    }
    writer.emit(END);
    writer.finish()
}

struct Compressor {
    output: Vec<u8>,
    bits: u32,
    count: u32,
    width: u32,
    newest: u16,
    table: Table,
}

impl Default for Compressor {
    fn default() -> Self {
        Self {
            output: Vec::new(),
            bits: 0,
            count: 0,
            width: LITERAL_WIDTH + 1,
            newest: END,
            table: Table::default(),
        }
    }
}

impl Compressor {
    fn emit(&mut self, code: u16) {
        self.bits |= u32::from(code) << self.count;
        self.count += self.width;
        while self.count >= 8 {
            self.output.push(self.bits as u8);
            self.bits >>= 8;
            self.count -= 8;
        }
    }

    /// Counts a code that was sent; whether the number it got may be used, which it may not when all are used up.
    fn advance(&mut self) -> bool {
        self.newest += 1;
        if self.newest == 1 << self.width {
            self.width += 1;
        }
        if self.newest < MAX_CODE {
            return true;
        }
        self.emit(CLEAR);
        self.width = LITERAL_WIDTH + 1;
        self.newest = END;
        self.table = Table::default();
        false
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.output.push(self.bits as u8);
        }
        self.output
    }
}

const SLOTS: usize = 1 << 13;

/// Strings by their longest proper prefix and last byte: open addressing, at most half full.
struct Table(Box<[u32]>);

impl Default for Table {
    fn default() -> Self {
        Self(vec![0; SLOTS].into_boxed_slice())
    }
}

impl Table {
    /// The code of a string, or the free slot where it belongs.
    fn slot(&self, prefix: u16, byte: u8) -> Result<u16, usize> {
        let key = u32::from(prefix) << 8 | u32::from(byte);
        let mut slot = (key.wrapping_mul(0x9e37_79b1) >> 19) as usize % SLOTS;
        loop {
            // No code is 0, so 0 is free.
            match self.0[slot] {
                0 => return Err(slot),
                entry if entry >> 12 == key => return Ok((entry & 0xfff) as u16),
                _ => slot = (slot + 1) % SLOTS,
            }
        }
    }

    fn set(&mut self, slot: usize, prefix: u16, byte: u8, code: u16) {
        self.0[slot] = (u32::from(prefix) << 8 | u32::from(byte)) << 12 | u32::from(code);
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    bits: u32,
    count: u32,
}

impl BitReader<'_> {
    fn next(&mut self, width: u32) -> Option<u16> {
        while self.count < width {
            let (first, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            self.bits |= u32::from(*first) << self.count;
            self.count += 8;
        }
        let code = self.bits & ((1 << width) - 1);
        self.bits >>= width;
        self.count -= width;
        Some(code as u16)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let bomb = compress(&vec![0; 1 << 20]);
        assert!(bomb.len() < 4000, "{}", bomb.len());
        assert_eq!(expand(&bomb, (1 << 20) - 1), Err(LzwError::TooLarge((1 << 20) - 1)));
        assert_eq!(expand(&bomb, 1 << 20).map(|plain| plain.len()), Ok(1 << 20));
    }

    #[test]
    fn a_full_table_without_a_clear_goes_on_with_twelve_bits() {
        // Literals only: each defines a string until all numbers are used; a writer that never clears may go on.
        let mut bits = Compressor::default();
        bits.emit(CLEAR);
        let mut newest = END;
        let text: Vec<u8> = (0..6000_u32).map(|i| (i * 7 % 251) as u8).collect();
        for &byte in &text {
            bits.emit(u16::from(byte));
            newest = (newest + 1).min(MAX_CODE + 1);
            if newest == 1 << bits.width && bits.width < MAX_WIDTH {
                bits.width += 1;
            }
        }
        bits.emit(END);
        assert_eq!(expand(&bits.finish(), 6000), Ok(text));
    }

    proptest! {
        #[test]
        fn what_is_compressed_expands_to_itself(
            few in prop::collection::vec(0_u8..4, 0..20_000),
            many in prop::collection::vec(any::<u8>(), 0..9000),
        ) {
            for input in [few, many] {
                prop_assert_eq!(expand(&compress(&input), input.len()), Ok(input));
            }
        }

        #[test]
        fn any_bytes_are_expanded_or_refused_within_the_limit(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(plain) = expand(&bytes, 1000) {
                prop_assert!(plain.len() <= 1000);
            }
        }
    }
}

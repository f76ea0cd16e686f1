// SPDX-License-Identifier: Apache-2.0
//! Chance as an input: a stream of numbers that a seed determines.

use sha2::{Digest, Sha256};

use crate::wire::NONCE;

/// SHA-256 of a seed and a counter. Equal seeds give equal streams, so that a test can be had again; a seed that nobody
/// else has gives nonces that nobody has used: the same 96 bits come twice only by an accident of cryptographic size.
#[derive(Clone)]
pub(crate) struct Random {
    seed: [u8; 32],
    block: u64,
    left: Vec<u8>,
}

impl Random {
    pub(crate) const fn new(seed: [u8; 32]) -> Self {
        Self { seed, block: 0, left: Vec::new() }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| {
            loop {
                if let Some(byte) = self.left.pop() {
                    break byte;
                }
                let digest =
                    Sha256::new().chain_update(self.seed).chain_update(self.block.to_be_bytes()).finalize();
                self.left.extend(digest);
                self.block += 1;
            }
        })
    }

    pub(crate) fn nonce(&mut self) -> [u8; NONCE] {
        self.bytes()
    }

    /// A number below `bound`; 0 if that is 0. The bias is beyond notice: bounds here are small.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        u64::from_be_bytes(self.bytes()).checked_rem(bound).unwrap_or(0)
    }

    /// A place in a list of this length; 0 if it is empty.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        // Below a length, so it fits.
        self.below(length as u64) as usize
    }

    /// A part of this time, its end excluded.
    pub(crate) fn part(&mut self, whole: std::time::Duration) -> std::time::Duration {
        let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
        std::time::Duration::from_nanos(self.below(nanos))
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.index(last + 1));
        }
    }
}

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Random")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_streams_and_no_nonce_comes_twice() {
        let stream = |seed| {
            let mut random = Random::new([seed; 32]);
            (0..1000).map(|_| random.nonce()).collect::<Vec<_>>()
        };
        assert_eq!(stream(1), stream(1));
        let mut both = [stream(1), stream(2)].concat();
        both.sort_unstable();
        both.dedup();
        assert_eq!(both.len(), 2000);
    }

    #[test]
    fn a_shuffle_keeps_everything_and_moves_most() {
        let mut list: Vec<u32> = (0..1000).collect();
        Random::new([3; 32]).shuffle(&mut list);
        assert!(list.iter().enumerate().filter(|(place, value)| *place == **value as usize).count() < 20);
        list.sort_unstable();
        assert!(list.into_iter().eq(0..1000));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Random bytes, UIDs and name suffixes.

use rustls::crypto::aws_lc_rs::default_provider;

/// Random bytes of the TLS library's generator.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    default_provider()
        .secure_random
        .fill(&mut bytes)
        .expect("the generator fails only where the operating system has no randomness at all");
    bytes
}

/// A random UUID (version 4).
pub(crate) fn uid() -> String {
    let mut b: [u8; 16] = bytes();
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let n = u128::from_be_bytes(b);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        n >> 96,
        (n >> 80) & 0xffff,
        (n >> 64) & 0xffff,
        (n >> 48) & 0xffff,
        n & 0xffff_ffff_ffff
    )
}

/// Five letters that `generateName` appends; no vowels, so that they spell nothing.
pub(crate) fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    bytes::<5>().iter().map(|&b| char::from(LETTERS[usize::from(b) % LETTERS.len()])).collect()
}

/// A random number below `limit` (0 for a limit of 0).
pub(crate) fn below(limit: u64) -> u64 {
    if limit == 0 { 0 } else { u64::from_be_bytes(bytes()) % limit }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_uid_is_a_version_4_uuid() {
        let uid = super::uid();
        assert_eq!((uid.len(), &uid[14..15]), (36, "4"), "{uid}");
        assert_ne!(uid, super::uid());
    }
}

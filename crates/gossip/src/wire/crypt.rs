// SPDX-License-Identifier: Apache-2.0
//! Sealing with AES-GCM, and how a Secret becomes a key.
//!
//! A sealed unit is `version, 12 bytes of nonce, ciphertext, 16 bytes of tag`. Version 1 is what speakers send; version
//! 0 pads the text to whole blocks first, and is read too. The version is not covered by the tag, so whoever stands on
//! the path can turn one into the other: a pad is believed only where it is possible.

use std::fmt;

use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::aes::Aes192;
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Bytes of a nonce.
pub const NONCE: usize = 12;
/// Bytes that sealing adds.
pub const OVERHEAD: usize = 1 + NONCE + TAG;
const TAG: usize = 16;
const BLOCK: usize = 16;

/// Why a sealed unit cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// No sealed unit is that short.
    #[error("{0} bytes are too few for something encrypted")]
    Short(usize),
    /// A version that does not exist.
    #[error("encryption version {0} is not supported")]
    Version(u8),
    /// No key fits: another key, something that was altered, or something that is not encrypted at all.
    #[error("no key opens it")]
    Key,
    /// The text is authentic, but its padding is impossible: somebody changed the version on the way.
    #[error("the padding is impossible")]
    Padding,
}

/// A key was given that is not 16, 24 or 32 bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a key has 16, 24 or 32 bytes, not {0}")]
pub struct KeyLengthError(pub usize);

/// How the content of the Secret becomes a key. All members need the same rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyRule {
    /// MetalLB v0.14 to v0.16.1: the first 32 bytes of the content followed by the SHA-256 of nothing.
    #[default]
    Truncated,
    /// MetalLB after v0.16.1: the SHA-256 of the content.
    Hashed,
    /// MetalLB up to v0.13: as `Truncated`, but 16 bytes.
    Short,
}

/// An AES key. Never printed.
#[derive(Clone)]
pub struct Key(Cipher);

#[derive(Clone)]
enum Cipher {
    Aes128(Box<Aes128Gcm>),
    Aes192(Box<AesGcm<Aes192, U12>>),
    Aes256(Box<Aes256Gcm>),
}

impl Key {
    /// A key of 16, 24 or 32 bytes.
    ///
    /// # Errors
    ///
    /// If it has another length.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyLengthError> {
        let wrong = |_| KeyLengthError(bytes.len());
        Ok(Self(match bytes.len() {
            16 => Cipher::Aes128(Box::new(Aes128Gcm::new_from_slice(bytes).map_err(wrong)?)),
            24 => Cipher::Aes192(Box::new(AesGcm::new_from_slice(bytes).map_err(wrong)?)),
            32 => Cipher::Aes256(Box::new(Aes256Gcm::new_from_slice(bytes).map_err(wrong)?)),
            other => return Err(KeyLengthError(other)),
        }))
    }

    /// The key that speakers make of the content of their Secret's file, byte for byte, a newline at its end included.
    /// None if it is empty: then nothing is encrypted.
    #[must_use]
    pub fn of_secret(content: &[u8], rule: KeyRule) -> Option<Self> {
        let bytes = secret_bytes(content, rule)?;
        Self::new(&bytes).ok()
    }

    fn seal(&self, nonce: &[u8; NONCE], data: &[u8], text: &mut Vec<u8>) {
        let sealed = match &self.0 {
            Cipher::Aes128(cipher) => cipher.encrypt_in_place(&(*nonce).into(), data, text),
            Cipher::Aes192(cipher) => cipher.encrypt_in_place(&(*nonce).into(), data, text),
            Cipher::Aes256(cipher) => cipher.encrypt_in_place(&(*nonce).into(), data, text),
        };
        // AES-GCM takes 64 GiB at a time, and a vector always has room for the tag.
        debug_assert!(sealed.is_ok());
    }

    fn open(&self, nonce: &[u8; NONCE], data: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut text = sealed.to_vec();
        match &self.0 {
            Cipher::Aes128(cipher) => cipher.decrypt_in_place(&(*nonce).into(), data, &mut text),
            Cipher::Aes192(cipher) => cipher.decrypt_in_place(&(*nonce).into(), data, &mut text),
            Cipher::Aes256(cipher) => cipher.decrypt_in_place(&(*nonce).into(), data, &mut text),
        }
        .ok()
        .map(|()| text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Cipher::Aes128(_) => "Key(AES-128)",
            Cipher::Aes192(_) => "Key(AES-192)",
            Cipher::Aes256(_) => "Key(AES-256)",
        })
    }
}

/// The bytes of the key that a Secret's content stands for; none if the content is empty.
fn secret_bytes(content: &[u8], rule: KeyRule) -> Option<Vec<u8>> {
    if content.is_empty() {
        return None;
    }
    let length = match rule {
        KeyRule::Hashed => return Some(Sha256::digest(content).to_vec()),
        KeyRule::Truncated => 32,
        KeyRule::Short => 16,
    };
    let mut bytes = [content, Sha256::digest([]).as_slice()].concat();
    bytes.truncate(length);
    Some(bytes)
}

/// The keys of a member: the first seals, each may open.
#[derive(Clone, Debug)]
pub struct Keyring {
    first: Key,
    others: Vec<Key>,
}

impl Keyring {
    /// A ring whose first key seals. The others only open, so that a member can understand another rule as well.
    #[must_use]
    pub const fn new(first: Key, others: Vec<Key>) -> Self {
        Self { first, others }
    }

    /// Seals `text` in version 1. `data` is authenticated with it. A nonce must never be used twice with one key.
    #[must_use]
    pub fn seal(&self, text: &[u8], data: &[u8], nonce: &[u8; NONCE]) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(text.len() + OVERHEAD);
        sealed.extend(text);
        self.first.seal(nonce, data, &mut sealed);
        let mut unit = Vec::with_capacity(text.len() + OVERHEAD);
        unit.push(1);
        unit.extend(nonce);
        unit.extend(sealed);
        unit
    }

    /// Opens a sealed unit.
    ///
    /// # Errors
    ///
    /// If it is too short, of an unknown version, no key opens it, or its padding is impossible.
    pub fn open(&self, unit: &[u8], data: &[u8]) -> Result<Vec<u8>, OpenError> {
        let least = match unit.first() {
            Some(0) => OVERHEAD + BLOCK,
            Some(1) => OVERHEAD,
            Some(&version) => return Err(OpenError::Version(version)),
            None => return Err(OpenError::Short(0)),
        };
        let split = unit[1..].split_first_chunk::<NONCE>().filter(|_| unit.len() >= least);
        let (nonce, sealed) = split.ok_or(OpenError::Short(unit.len()))?;
        let mut keys = std::iter::once(&self.first).chain(&self.others);
        let mut text = keys.find_map(|key| key.open(nonce, data, sealed)).ok_or(OpenError::Key)?;
        if unit[0] == 0 {
            let pad = text.last().copied().unwrap_or(0);
            let kept = text.len().checked_sub(usize::from(pad)).ok_or(OpenError::Padding)?;
            if !(1..=BLOCK).contains(&usize::from(pad)) || text[kept..].iter().any(|byte| *byte != pad) {
                return Err(OpenError::Padding);
            }
            text.truncate(kept);
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_padding_that_cannot_be_is_refused_where_the_original_would_crash() {
        let ring = Keyring::new(Key::new(&[7; 32]).unwrap(), Vec::new());
        for (text, expected) in [
            (vec![0xff; 32], Err(OpenError::Padding)),
            (vec![0; 32], Err(OpenError::Padding)),
            ([vec![1; 15], vec![17]].concat(), Err(OpenError::Padding)),
            ([vec![1; 30], vec![2, 2]].concat(), Ok(vec![1; 30])),
            ([vec![1; 30], vec![3, 2]].concat(), Err(OpenError::Padding)),
            (vec![16; 16], Ok(Vec::new())),
        ] {
            let mut unit = ring.seal(&text, b"", &[1; NONCE]);
            unit[0] = 0;
            assert_eq!(ring.open(&unit, b""), expected);
        }
    }

    #[test]
    fn every_key_opens_and_the_first_seals() {
        let key = |byte| Key::new(&[byte; 32]).unwrap();
        let both = Keyring::new(key(1), vec![key(2)]);
        let unit = Keyring::new(key(2), Vec::new()).seal(b"text", b"data", &[1; NONCE]);
        assert_eq!(both.open(&unit, b"data").as_deref(), Ok(b"text".as_slice()));
        assert_eq!(both.open(&unit, b"other data"), Err(OpenError::Key));
        let unit = both.seal(b"text", b"", &[1; NONCE]);
        assert!(Keyring::new(key(1), Vec::new()).open(&unit, b"").is_ok());
        assert_eq!(Keyring::new(key(2), Vec::new()).open(&unit, b""), Err(OpenError::Key));
        assert_eq!(Key::new(&[0; 22]).err(), Some(KeyLengthError(22)));
        assert_eq!(format!("{both:?}"), "Keyring { first: Key(AES-256), others: [Key(AES-256)] }");
    }

    #[test]
    fn go_3_a_secret_is_cut_not_hashed_unless_the_rule_says_so() {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/data/key_derivation.json")).unwrap();
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for vector in vectors["vectors"].as_array().unwrap() {
            let content = vector["secret_text"].as_str().unwrap().as_bytes();
            for (rule, field) in [
                (KeyRule::Truncated, "rule_v0_16_hex"),
                (KeyRule::Hashed, "rule_next_hex"),
                (KeyRule::Short, "rule_v0_13_hex"),
            ] {
                assert_eq!(
                    secret_bytes(content, rule).map(hex).as_deref(),
                    vector[field].as_str(),
                    "{vector}"
                );
                assert_eq!(Key::of_secret(content, rule).is_some(), vector["encryption"] == true);
            }
        }
        assert_eq!(
            secret_bytes(b"k1", KeyRule::Truncated).map(|bytes| bytes[..4].to_vec()),
            Some(vec![0x6b, 0x31, 0xe3, 0xb0])
        );
    }
}

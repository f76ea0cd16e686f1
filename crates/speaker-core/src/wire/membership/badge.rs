// SPDX-License-Identifier: Apache-2.0
//! What ours tell each other about themselves, in the metadata that memberlist carries and MetalLB leaves empty.
//!
//! ```text
//!   "ferrolb" | version: 1 byte | features: 4 bytes, big-endian | flags: 1 byte | anything later versions add
//! ```
//!
//! Whoever has no badge is a speaker of MetalLB. Every change of a badge makes MetalLB's speakers announce all their
//! addresses again, so it holds little and changes seldom.

/// What one of ours says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Badge {
    /// It lost the Kubernetes API, so what it announces may be out of date.
    pub(super) stale: bool,
    /// It has said so for so long, while others have the API, that it comes last in elections.
    pub(super) last: bool,
}

impl Badge {
    pub(super) fn encode(self) -> Vec<u8> {
        let flags = if self.stale { STALE } else { 0 } | if self.last { LAST } else { 0 };
        [MAGIC, &[VERSION], &FEATURES.to_be_bytes(), &[flags]].concat()
    }

    /// The badge in a member's metadata, if it has one. Later versions keep these fields.
    pub(super) fn read(meta: Option<&[u8]>) -> Option<Self> {
        let (_version, rest) = meta?.strip_prefix(MAGIC)?.split_first()?;
        let (_features, rest) = rest.split_first_chunk::<4>()?;
        let flags = rest.first()?;
        Some(Self { stale: flags & STALE != 0, last: flags & LAST != 0 })
    }
}

const MAGIC: &[u8] = b"ferrolb";
const VERSION: u8 = 1;
/// No feature needs the others' consent yet.
const FEATURES: u32 = 0;
const STALE: u8 = 1;
const LAST: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_badge_is_read_as_it_was_written_and_also_with_what_later_versions_add() {
        for (stale, last) in [(false, false), (true, false), (true, true)] {
            let badge = Badge { stale, last };
            let mut meta = badge.encode();
            assert_eq!(Badge::read(Some(&meta)), Some(badge));
            meta[MAGIC.len()] = 9;
            meta[MAGIC.len() + 1] = 0x80;
            meta.extend(b"more");
            assert_eq!(Badge::read(Some(&meta)), Some(badge));
            assert!(badge.encode().len() <= ferrolb_gossip::MAX_META);
        }
    }

    #[test]
    fn anything_else_is_metallbs() {
        let whole = Badge::default().encode();
        let cut = (0..whole.len()).map(|length| whole[..length].to_vec());
        for meta in cut.chain([b"eth0".to_vec(), b"FERROLB\x01\0\0\0\0\0".to_vec()]) {
            assert_eq!(Badge::read(Some(&meta)), None, "{meta:?}");
        }
        assert_eq!(Badge::read(None), None);
    }
}

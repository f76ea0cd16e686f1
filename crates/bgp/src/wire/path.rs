// SPDX-License-Identifier: Apache-2.0
//! AS_PATH: which autonomous systems a route has come through (RFC 4271, section 5.1.2), two or four octets wide
//! (RFC 6793).

use ferrolb_net_types::Asn;

use super::cursor::Cursor;

/// A path, nearest system first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AsPath(pub Vec<Segment>);

/// What the systems of a segment are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentKind {
    /// Passed through in no order that is known.
    Set = 1,
    /// Passed through one after the other.
    Sequence = 2,
}

/// A part of a path: 1 to 255 systems.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    kind: SegmentKind,
    systems: Vec<Asn>,
}

impl Segment {
    /// A segment; `None` if there are no systems, or more than 255.
    #[must_use]
    pub fn new(kind: SegmentKind, systems: Vec<Asn>) -> Option<Self> {
        (1..=255).contains(&systems.len()).then_some(Self { kind, systems })
    }

    /// What the systems are to each other.
    #[must_use]
    pub const fn kind(&self) -> SegmentKind {
        self.kind
    }

    /// The systems.
    #[must_use]
    pub fn systems(&self) -> &[Asn] {
        &self.systems
    }

    /// How much it adds to the length of a path: a set counts as one (RFC 4271, section 9.1.2.2).
    const fn length(&self) -> usize {
        match self.kind {
            SegmentKind::Set => 1,
            SegmentKind::Sequence => self.systems.len(),
        }
    }
}

impl AsPath {
    /// The path of a route of one's own: towards another system that one alone, within the own one nothing.
    #[must_use]
    pub fn own(asn: Asn, internal: bool) -> Self {
        let segment = Segment { kind: SegmentKind::Sequence, systems: vec![asn] };
        Self(if internal { Vec::new() } else { vec![segment] })
    }

    /// Whether a system in it does not fit into two octets.
    pub(crate) fn needs_four_octets(&self) -> bool {
        self.0.iter().flat_map(|segment| &segment.systems).any(|asn| asn.two_octets().is_none())
    }

    /// The value of an AS_PATH or AS4_PATH. In two octets, what does not fit is AS_TRANS.
    pub(crate) fn encode(&self, four_octets: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for segment in &self.0 {
            out.extend([segment.kind as u8, u8::try_from(segment.systems.len()).unwrap_or(u8::MAX)]);
            for asn in &segment.systems {
                if four_octets {
                    out.extend(asn.number().to_be_bytes());
                } else {
                    let number = asn.two_octets().or(Asn::TRANS.two_octets()).unwrap_or_default();
                    out.extend(number.to_be_bytes());
                }
            }
        }
        out
    }

    /// Reads the value of an AS_PATH or AS4_PATH; `None` if it is malformed (RFC 7606, section 7.2): a segment of a
    /// kind that is not for strangers, without systems or longer than the rest; and system 0 (RFC 7607).
    pub(crate) fn decode(value: &[u8], four_octets: bool) -> Option<Self> {
        let mut cursor = Cursor::new(value);
        let mut segments = Vec::new();
        while !cursor.is_empty() {
            let [kind, count] = cursor.array()?;
            let kind = match kind {
                1 => SegmentKind::Set,
                2 => SegmentKind::Sequence,
                _ => return None,
            };
            let number = || if four_octets { cursor.u32() } else { cursor.u16().map(u32::from) };
            let systems = std::iter::repeat_with(number).take(count.into());
            let systems = systems.map(|number| number.and_then(Asn::new)).collect::<Option<Vec<_>>>()?;
            segments.push(Segment::new(kind, systems)?);
        }
        Some(Self(segments))
    }

    /// The path that a peer of two octets means by its AS_PATH together with an AS4_PATH (RFC 6793, section 4.2.3):
    /// what was added in front by systems that know of no AS4_PATH, then the AS4_PATH.
    pub(crate) fn reconstruct(self, four: Self) -> Self {
        let length = |path: &Self| path.0.iter().map(Segment::length).sum::<usize>();
        let Some(mut ahead) = length(&self).checked_sub(length(&four)) else { return self };
        let mut segments = Vec::new();
        for mut segment in self.0 {
            if ahead == 0 {
                break;
            }
            if segment.kind == SegmentKind::Sequence {
                segment.systems.truncate(ahead);
            }
            ahead -= segment.length();
            segments.push(segment);
        }
        segments.extend(four.0);
        Self(segments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(segments: &[(SegmentKind, &[u32])]) -> AsPath {
        let segment = |(kind, numbers): &(SegmentKind, &[u32])| {
            Segment::new(*kind, numbers.iter().map(|number| Asn::new(*number).unwrap()).collect()).unwrap()
        };
        AsPath(segments.iter().map(segment).collect())
    }

    use SegmentKind::{Sequence, Set};

    #[test]
    fn bg_7_the_own_system_is_a_sequence() {
        let own = AsPath::own(Asn::new(64_512).unwrap(), false);
        assert_eq!(own.encode(true), [2, 1, 0, 0, 0xfc, 0]);
        assert_eq!(own.encode(false), [2, 1, 0xfc, 0]);
        assert_eq!(AsPath::own(Asn::new(64_512).unwrap(), true).encode(true), []);
    }

    #[test]
    fn s71_a_system_beyond_two_octets_is_as_trans_for_who_has_only_two() {
        let own = AsPath::own(Asn::new(65_536).unwrap(), false);
        assert!(own.needs_four_octets());
        assert_eq!(own.encode(false), [2, 1, 0x5b, 0xa0]);
    }

    #[test]
    fn malformed_paths() {
        for (what, value) in [
            ("a segment without its length", &[2][..]),
            ("a segment that runs over", &[2, 2, 0, 0, 0, 1]),
            ("a segment cut within a system", &[2, 1, 0, 0, 1]),
            ("a segment without systems", &[2, 0]),
            ("an unknown kind", &[0, 1, 0, 0, 0, 1]),
            ("an unknown kind", &[5, 1, 0, 0, 0, 1]),
            ("a kind for confederations only", &[3, 1, 0, 0, 0, 1]),
            ("system 0", &[2, 1, 0, 0, 0, 0]),
            ("one octet behind the path", &[2, 1, 0, 0, 0, 1, 2]),
            ("two octets where four were agreed on", &[2, 1, 0, 1]),
        ] {
            assert_eq!(AsPath::decode(value, true), None, "{what}");
        }
        assert_eq!(AsPath::decode(&[], true), Some(AsPath::default()));
        let longest = [&[2, 255][..], &[0, 0, 0, 1].repeat(255)].concat();
        assert!(AsPath::decode(&longest, true).is_some());
    }

    #[test]
    fn two_paths_are_one() {
        let big = 4_200_000_001;
        for (two, four, wanted) in [
            // All of the same length: the wide one.
            (
                path(&[(Sequence, &[23_456, 1])]),
                path(&[(Sequence, &[big, 1])]),
                path(&[(Sequence, &[big, 1])]),
            ),
            // Somebody without four octets came in front.
            (
                path(&[(Sequence, &[7, 23_456, 1])]),
                path(&[(Sequence, &[big, 1])]),
                path(&[(Sequence, &[7]), (Sequence, &[big, 1])]),
            ),
            (
                path(&[(Set, &[8, 9]), (Sequence, &[7, 23_456])]),
                path(&[(Sequence, &[big])]),
                path(&[(Set, &[8, 9]), (Sequence, &[7]), (Sequence, &[big])]),
            ),
            // A wide path that is longer than the path is none.
            (path(&[(Sequence, &[23_456])]), path(&[(Sequence, &[big, 1])]), path(&[(Sequence, &[23_456])])),
        ] {
            assert_eq!(two.clone().reconstruct(four), wanted, "{two:?}");
        }
    }
}

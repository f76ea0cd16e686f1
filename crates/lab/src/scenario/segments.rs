// SPDX-License-Identifier: Apache-2.0
//! TCP as it passes an interface: segments read from frames, and a direction's bytes put into their order.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A segment in a frame; the kernel may have put several into one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// The number of its first byte, or of its SYN.
    pub(crate) sequence: u32,
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) payload: Vec<u8>,
}

impl Segment {
    /// The segment in a frame; `None` if there is none.
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let (addresses, tcp): ((IpAddr, IpAddr), &[u8]) = match frame.get(12..14)? {
            [0x08, 0x00] => {
                let packet = frame.get(14..)?;
                let header = usize::from(packet.first()? & 0xf) * 4;
                // What follows the packet is padding of the frame.
                let length = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
                let address =
                    |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
                ((address(12)?.into(), address(16)?.into()), packet.get(header..length)?)
            }
            [0x86, 0xdd] => {
                let packet = frame.get(14..)?;
                let length = usize::from(u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?));
                let address =
                    |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
                ((address(8)?.into(), address(24)?.into()), packet.get(40..40 + length)?)
            }
            _ => return None,
        };
        let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let flags = *tcp.get(13)?;
        Some(Self {
            from: SocketAddr::new(addresses.0, port(0)?),
            to: SocketAddr::new(addresses.1, port(2)?),
            sequence: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
            syn: flags & 0x02 != 0,
            ack: flags & 0x10 != 0,
            payload: tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?.to_vec(),
        })
    }
}

/// One direction of a connection, from its SYN on.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// The number of the next byte; `None` before the SYN.
    next: Option<u32>,
    /// What came before what goes before it.
    early: BTreeMap<u32, Vec<u8>>,
}

impl Direction {
    /// Takes a segment: the bytes that are now in order.
    pub(crate) fn take(&mut self, segment: Segment) -> Vec<u8> {
        if segment.syn {
            *self = Self { next: Some(segment.sequence.wrapping_add(1)), early: BTreeMap::new() };
            return Vec::new();
        }
        let Some(mut next) = self.next else { return Vec::new() };
        let mut ordered = Vec::new();
        if !segment.payload.is_empty() {
            self.early.insert(segment.sequence, segment.payload);
        }
        // A number is ahead if it is less than half of all numbers away. Few are held back: whichever fits is found.
        while let Some(start) =
            self.early.keys().copied().find(|start| next.wrapping_sub(*start) < u32::MAX / 2)
        {
            let bytes = self.early.remove(&start).unwrap_or_default();
            let known = usize::try_from(next.wrapping_sub(start)).unwrap_or(usize::MAX);
            if let Some(fresh) = bytes.get(known..) {
                ordered.extend_from_slice(fresh);
                next = next.wrapping_add(u32::try_from(fresh.len()).unwrap_or(0));
            }
        }
        self.next = Some(next);
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(sequence: u32, syn: bool, payload: &str) -> Segment {
        let address = "192.0.2.1:179".parse().unwrap();
        Segment { from: address, to: address, sequence, syn, ack: false, payload: payload.into() }
    }

    #[test]
    fn bytes_come_in_order_however_the_segments_do() {
        // The numbers wrap around within the stream.
        let first = u32::MAX - 3;
        let mut direction = Direction::default();
        assert_eq!(direction.take(segment(first.wrapping_add(1), false, "lost")), b"", "no SYN yet");
        assert_eq!(direction.take(segment(first, true, "")), b"");
        let at = |offset: u32| first.wrapping_add(1).wrapping_add(offset);
        assert_eq!(direction.take(segment(at(0), false, "ab")), b"ab");
        assert_eq!(direction.take(segment(at(6), false, "gh")), b"");
        assert_eq!(direction.take(segment(at(0), false, "ab")), b"", "sent again");
        assert_eq!(direction.take(segment(at(1), false, "bcdef")), b"cdefgh");
        assert_eq!(direction.take(segment(at(8), false, "")), b"", "an acknowledgement");
        assert_eq!(direction.take(segment(at(8), false, "i")), b"i");
    }

    #[test]
    fn a_frame_gives_its_segment_without_the_padding() {
        let ip4 = [
            &[0x45, 0, 0, 42, 0, 0, 0, 0, 64, 6, 0, 0, 192, 168, 10, 20, 192, 168, 10, 1][..],
            &[0x9c, 0x40, 0, 179, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 0, 0, 0, b'h', b'i', 0, 0],
        ];
        let frame = [&[0; 12][..], &[8, 0], ip4[0], ip4[1]].concat();
        let seen = Segment::parse(&frame).unwrap();
        assert_eq!(
            (seen.from.to_string(), seen.to.to_string()),
            ("192.168.10.20:40000".into(), "192.168.10.1:179".into())
        );
        assert_eq!(
            (seen.sequence, seen.syn, seen.ack, seen.payload.as_slice()),
            (7, false, true, &b"hi"[..])
        );
        for length in 0..frame.len() - 2 {
            assert_eq!(Segment::parse(&frame[..length]), None, "{length}");
        }
        let ip6 = [&[0x60, 0, 0, 0, 0, 20, 6, 64][..], &[0xfd; 32], &ip4[1][..20]].concat();
        let seen = Segment::parse(&[&[0; 12][..], &[0x86, 0xdd], &ip6].concat()).unwrap();
        assert!(seen.from.is_ipv6() && seen.payload.is_empty());
    }
}

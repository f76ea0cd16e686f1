// SPDX-License-Identifier: Apache-2.0
//! What one of ours tells another when they find together again: the addresses that it answered for meanwhile and now
//! leaves to that one.
//!
//! Whoever goes on leading an address does not hear it be announced in another part of a parted segment. There neighbours
//! look for it where it was, so it has to be announced again; what nobody else had is not.
//!
//! ```text
//!   "ferrolb" | 1: given up | for each address: its length, 4 or 16, and its bytes
//! ```
//!
//! It travels as a user message of memberlist, which speakers of MetalLB ignore.

use std::net::IpAddr;

/// The messages that say so about these addresses, each small enough for a datagram.
pub(super) fn messages(addresses: &[IpAddr]) -> impl Iterator<Item = Vec<u8>> {
    addresses.chunks(PER_MESSAGE).map(|some| {
        let mut message = [MAGIC, &[GIVEN_UP]].concat();
        for address in some {
            match address {
                IpAddr::V4(address) => message.extend([&[4][..], &address.octets()].concat()),
                IpAddr::V6(address) => message.extend([&[16][..], &address.octets()].concat()),
            }
        }
        message
    })
}

/// The addresses of such a message; nothing of any other, nor of what follows something that is none.
pub(super) fn read(message: &[u8]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    let mut rest =
        message.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(&[GIVEN_UP])).unwrap_or_default();
    while let Some((length, behind)) = rest.split_first() {
        let found = match length {
            4 => behind.split_first_chunk::<4>().map(|(address, rest)| (IpAddr::from(*address), rest)),
            16 => behind.split_first_chunk::<16>().map(|(address, rest)| (IpAddr::from(*address), rest)),
            _ => None,
        };
        let Some((address, behind)) = found else { break };
        addresses.push(address);
        rest = behind;
    }
    addresses
}

const MAGIC: &[u8] = b"ferrolb";
const GIVEN_UP: u8 = 1;

/// At most 1,096 bytes.
const PER_MESSAGE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_read_as_it_was_told_and_nothing_else_is() {
        let v4 = (0..100).map(|last| IpAddr::from([192, 0, 2, last]));
        let v6 = (0..100).map(|last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]));
        let all: Vec<IpAddr> = v4.chain(v6).collect();
        let told: Vec<Vec<u8>> = messages(&all).collect();
        assert!(told.iter().all(|message| message.len() <= 1096));
        assert_eq!(told.iter().flat_map(|message| read(message)).collect::<Vec<_>>(), all);
        assert_eq!(messages(&[]).count(), 0);
        for (message, some) in [
            (&b""[..], 0),
            (b"ferrolb", 0),
            (b"ferrolb\x02\x04\x01\x02\x03\x04", 0),
            (b"another\x01\x04\x01\x02\x03\x04", 0),
            (b"ferrolb\x01\x04\x01\x02\x03", 0),
            (b"ferrolb\x01\x04\x01\x02\x03\x04\x05\x01\x02\x03\x04\x05", 1),
            (b"ferrolb\x01\x04\x01\x02\x03\x04\x10\x01", 1),
        ] {
            assert_eq!(read(message).len(), some, "{message:?}");
        }
    }
}

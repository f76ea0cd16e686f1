// SPDX-License-Identifier: Apache-2.0
//! What ours tell each other about addresses, and nobody else.
//!
//! When two find together again: the addresses that one answered for meanwhile and now leaves to the other. Whoever goes on
//! leading an address does not hear it be announced in another part of a parted segment. There neighbours look for it where
//! it was, so it has to be announced again; what nobody else had is not.
//!
//! While one has lost the API and others have it: what it answers for still, as a question, and which of it is still its own,
//! as the answer.
//!
//! ```text
//!   "ferrolb" | 1: given up | addresses
//!   "ferrolb" | 2: held     | length of the node's name | the name | addresses
//!   "ferrolb" | 3: void     | addresses
//!   "ferrolb" | 4: yours    | addresses          each address: its length, 4 or 16, and its bytes
//! ```
//!
//! It travels as a user message of memberlist, which speakers of MetalLB ignore.

use std::net::IpAddr;

use ferrolb_net_types::NodeName;

/// What is told of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::wire) enum Word {
    /// The teller has answered for them, and leaves them to whom it tells.
    GivenUp,
    /// The speaker on this node answers for them, and asks whether it is to.
    Held(NodeName),
    /// Whoever asked is not to answer for them.
    Void,
    /// Whoever asked is.
    Yours,
}

/// The messages that say so about these addresses, each small enough for a datagram.
pub(super) fn messages<'a>(word: &Word, addresses: &'a [IpAddr]) -> impl Iterator<Item = Vec<u8>> + use<'a> {
    let mut head = MAGIC.to_vec();
    match word {
        Word::GivenUp => head.push(1),
        Word::Held(node) => {
            let name = node.as_str().as_bytes();
            // The name of a node has no more than 253 bytes; of one that had, the question would be nobody's.
            let length = u8::try_from(name.len()).unwrap_or_default();
            head.extend([2, length]);
            head.extend(name.iter().take(usize::from(length)));
        }
        Word::Void => head.push(3),
        Word::Yours => head.push(4),
    }
    addresses.chunks(PER_MESSAGE).map(move |some| {
        let mut message = head.clone();
        for address in some {
            match address {
                IpAddr::V4(address) => message.extend([&[4][..], &address.octets()].concat()),
                IpAddr::V6(address) => message.extend([&[16][..], &address.octets()].concat()),
            }
        }
        message
    })
}

/// What such a message says; of addresses, nothing of what follows something that is none.
pub(super) fn read(message: &[u8]) -> Option<(Word, Vec<IpAddr>)> {
    let (kind, mut rest) = message.strip_prefix(MAGIC)?.split_first()?;
    let word = match kind {
        1 => Word::GivenUp,
        2 => {
            let (length, behind) = rest.split_first()?;
            let (name, behind) = behind.split_at_checked(usize::from(*length))?;
            rest = behind;
            Word::Held(NodeName::from(std::str::from_utf8(name).ok()?))
        }
        3 => Word::Void,
        4 => Word::Yours,
        _ => return None,
    };
    let mut addresses = Vec::new();
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
    Some((word, addresses))
}

const MAGIC: &[u8] = b"ferrolb";

/// At most 1,096 bytes, and a name.
const PER_MESSAGE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_read_as_it_was_told_and_nothing_else_is() {
        let v4 = (0..100).map(|last| IpAddr::from([192, 0, 2, last]));
        let v6 = (0..100).map(|last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]));
        let all: Vec<IpAddr> = v4.chain(v6).collect();
        for word in [Word::GivenUp, Word::Held("k8s-node-1".into()), Word::Void, Word::Yours] {
            let told: Vec<Vec<u8>> = messages(&word, &all).collect();
            assert!(told.iter().all(|message| message.len() <= 1120));
            let read: Vec<(Word, Vec<IpAddr>)> = told.iter().map(|message| read(message).unwrap()).collect();
            assert!(read.iter().all(|(told, _)| *told == word));
            assert_eq!(read.into_iter().flat_map(|(_, some)| some).collect::<Vec<_>>(), all);
            assert_eq!(messages(&word, &[]).count(), 0);
        }
        for (message, some) in [
            (&b""[..], None),
            (b"ferrolb", None),
            (b"ferrolb\x05\x04\x01\x02\x03\x04", None),
            (b"another\x01\x04\x01\x02\x03\x04", None),
            (b"ferrolb\x02", None),
            (b"ferrolb\x02\x09n1", None),
            (b"ferrolb\x02\x02\xff\xff\x04\x01\x02\x03\x04", None),
            (b"ferrolb\x02\x02n1\x04\x01\x02\x03\x04", Some(1)),
            (b"ferrolb\x01", Some(0)),
            (b"ferrolb\x01\x04\x01\x02\x03", Some(0)),
            (b"ferrolb\x03\x04\x01\x02\x03\x04\x05\x01\x02\x03\x04\x05", Some(1)),
            (b"ferrolb\x04\x04\x01\x02\x03\x04\x10\x01", Some(1)),
        ] {
            assert_eq!(read(message).map(|(_, addresses)| addresses.len()), some, "{message:?}");
        }
    }
}

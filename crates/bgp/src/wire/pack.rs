// SPDX-License-Identifier: Apache-2.0
//! UPDATEs in bytes, each with as many prefixes as fit into 4,096 of them.

use ferrolb_net_types::{IpFamily, Prefix};
use thiserror::Error;

use super::attribute::{code, flag};
use super::family::{UNICAST, afi};
use super::update::NextHop;
use super::{Kind, MAX_LENGTH, begin, end, nlri};

/// What an UPDATE has beside its header, attributes and prefixes: two lengths.
const LENGTHS: usize = 4;
/// Flags, type and a length of two octets of an attribute; address family and subsequent one.
const MP_HEAD: usize = 4 + 3;

/// A set of attributes in bytes, next hop included: what all the UPDATEs with it have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeBlock {
    pub(crate) next_hop: NextHop,
    /// All attributes but MP_REACH_NLRI.
    pub(crate) bytes: Vec<u8>,
}

/// The attributes fill a message, so that no prefix fits beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("attributes of {0} bytes leave no room for a prefix in a message of {MAX_LENGTH}")]
pub struct TooLong(pub usize);

/// Writes one UPDATE that announces the first of these prefixes, which are of the next hop's family. Gives how many.
///
/// # Errors
///
/// [`TooLong`] if not one fits; nothing was written then.
pub fn announce<'a>(
    out: &mut Vec<u8>,
    block: &AttributeBlock,
    prefixes: impl IntoIterator<Item = &'a Prefix>,
) -> Result<usize, TooLong> {
    let before = out.len();
    let start = begin(out, Kind::Update);
    out.extend([0, 0]);
    let count = match block.next_hop {
        NextHop::V4(_) => {
            out.extend(length_of(block.bytes.len()));
            out.extend(&block.bytes);
            fill(out, start + usize::from(MAX_LENGTH), prefixes)
        }
        NextHop::V6 { global, link_local } => {
            // RFC 7606, section 5.1: the prefixes come first of all attributes, so that they are found in any case.
            out.extend([0, 0]);
            let attributes = out.len();
            out.extend([flag::OPTIONAL | flag::EXTENDED_LENGTH, code::MP_REACH_NLRI, 0, 0]);
            let value = out.len();
            out.extend(afi(IpFamily::V6).to_be_bytes());
            out.extend([UNICAST, if link_local.is_some() { 32 } else { 16 }]);
            out.extend(global.octets());
            out.extend(link_local.iter().flat_map(|address| address.octets()));
            out.push(0);
            let limit = (start + usize::from(MAX_LENGTH)).saturating_sub(block.bytes.len());
            let count = fill(out, limit, prefixes);
            let length = length_of(out.len() - value);
            out[value - 2..value].copy_from_slice(&length);
            out.extend(&block.bytes);
            let length = length_of(out.len() - attributes);
            out[attributes - 2..attributes].copy_from_slice(&length);
            count
        }
    };
    if count == 0 {
        out.truncate(before);
        return Err(TooLong(block.bytes.len()));
    }
    end(out, start);
    Ok(count)
}

/// Writes one UPDATE that withdraws the first of these prefixes, which are of this family. Gives how many: none only
/// if there is none.
pub fn withdraw<'a>(
    out: &mut Vec<u8>,
    family: IpFamily,
    prefixes: impl IntoIterator<Item = &'a Prefix>,
) -> usize {
    let start = begin(out, Kind::Update);
    let limit = start + usize::from(MAX_LENGTH);
    let count = match family {
        IpFamily::V4 => {
            out.extend([0, 0]);
            let routes = out.len();
            let count = fill(out, limit - 2, prefixes);
            let length = length_of(out.len() - routes);
            out[routes - 2..routes].copy_from_slice(&length);
            out.extend([0, 0]);
            count
        }
        IpFamily::V6 => {
            out.extend([0; LENGTHS]);
            let attributes = unreach(out, family);
            let count = fill(out, limit, prefixes);
            let length = length_of(out.len() - attributes);
            out[attributes - 2..attributes].copy_from_slice(&length);
            let length = length_of(out.len() - attributes - 4);
            out[attributes + 2..attributes + 4].copy_from_slice(&length);
            count
        }
    };
    if count == 0 {
        out.truncate(start);
    } else {
        end(out, start);
    }
    count
}

/// Writes the mark that all routes of a family have been told (RFC 4724, section 2): an UPDATE that says nothing.
pub fn end_of_rib(out: &mut Vec<u8>, family: IpFamily) {
    let start = begin(out, Kind::Update);
    out.extend([0; LENGTHS]);
    if family == IpFamily::V6 {
        let attributes = out.len();
        out.extend([flag::OPTIONAL, code::MP_UNREACH_NLRI, 3]);
        out.extend(afi(family).to_be_bytes());
        out.push(UNICAST);
        let length = length_of(out.len() - attributes);
        out[attributes - 2..attributes].copy_from_slice(&length);
    }
    end(out, start);
}

/// Begins an MP_UNREACH_NLRI, with an open length of two octets; gives its place.
fn unreach(out: &mut Vec<u8>, family: IpFamily) -> usize {
    let place = out.len();
    out.extend([flag::OPTIONAL | flag::EXTENDED_LENGTH, code::MP_UNREACH_NLRI, 0, 0]);
    out.extend(afi(family).to_be_bytes());
    out.push(UNICAST);
    debug_assert_eq!(out.len() - place, MP_HEAD);
    place
}

/// Writes prefixes as long as the next one ends before the limit; gives how many.
fn fill<'a>(out: &mut Vec<u8>, limit: usize, prefixes: impl IntoIterator<Item = &'a Prefix>) -> usize {
    let fits = |prefix: &&Prefix| nlri::length(**prefix);
    let mut count = 0;
    for prefix in prefixes {
        if out.len() + fits(&prefix) > limit {
            break;
        }
        nlri::encode(*prefix, out);
        count += 1;
    }
    count
}

fn length_of(bytes: usize) -> [u8; 2] {
    // What does not fit into a message is found too long before it is sent.
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::super::HEADER;
    use super::super::attribute::{Attributes, OtherAttribute};
    use super::super::update::Context;
    use super::*;

    const V4: NextHop = NextHop::V4(Ipv4Addr::new(192, 168, 10, 20));
    const V6: NextHop = NextHop::V6 { global: Ipv6Addr::LOCALHOST, link_local: Some(Ipv6Addr::LOCALHOST) };
    const HEAD: usize = HEADER + LENGTHS;

    fn prefixes(family: IpFamily, count: u32) -> Vec<Prefix> {
        let nth = |n| match family {
            IpFamily::V4 => Prefix::host(Ipv4Addr::from_bits(0x0a00_0000 + n).into()),
            IpFamily::V6 => Prefix::host(Ipv6Addr::from_bits((0xfd << 120) + u128::from(n)).into()),
        };
        (0..count).map(nth).collect()
    }

    #[test]
    fn bg_34_x11_s67_withdrawals_and_announcements_are_split_at_4096_bytes_and_packed_up_to_them() {
        for family in [IpFamily::V4, IpFamily::V6] {
            let all = prefixes(family, 10_000);
            let next_hop = if family == IpFamily::V4 { V4 } else { V6 };
            let block = Attributes::default().block(next_hop, &Context::default());
            for withdrawing in [true, false] {
                let (mut left, mut messages) = (&all[..], 0);
                while !left.is_empty() {
                    let mut out = vec![7];
                    let count = if withdrawing {
                        withdraw(&mut out, family, left)
                    } else {
                        announce(&mut out, &block, left).unwrap()
                    };
                    assert!(out.len() <= 4097 && (out.len() > 4097 - 17 || count == left.len()));
                    assert_eq!(u16::from_be_bytes([out[17], out[18]]), u16::try_from(out.len() - 1).unwrap());
                    left = &left[count..];
                    messages += 1;
                }
                let wanted = match (family, withdrawing) {
                    (IpFamily::V4, _) => 13,
                    (IpFamily::V6, true) => 42,
                    (IpFamily::V6, false) => 43,
                };
                assert_eq!(messages, wanted, "{family} {withdrawing}");
            }
        }
    }

    #[test]
    fn bg_35_attributes_may_fill_a_message_but_for_one_prefix() {
        for next_hop in [V4, V6] {
            let family = next_hop.family();
            let prefix = &prefixes(family, 2)[..];
            let with = |length| Attributes {
                others: OtherAttribute::new(200, vec![0; length]).into_iter().collect(),
                ..Attributes::default()
            };
            let block = |length| with(length).block(next_hop, &Context::default());
            let mp = if family == IpFamily::V6 { MP_HEAD + 34 } else { 0 };
            let room = 4096 - HEAD - mp - block(1000).bytes.len() + 1000;
            let one = nlri::length(prefix[0]);
            let mut out = vec![1, 2, 3];
            assert_eq!(announce(&mut out, &block(room - one), prefix), Ok(1));
            assert_eq!(out.len(), 3 + 4096);
            let mut out = vec![1, 2, 3];
            let error = announce(&mut out, &block(room - one + 1), prefix);
            assert_eq!((error, &out[..]), (Err(TooLong(block(room - one + 1).bytes.len())), &[1, 2, 3][..]));
            assert!(announce(&mut out, &block(70_000), prefix).is_err());
        }
    }

    #[test]
    fn s66_the_end_of_the_table_says_nothing_else() {
        let mark = |family| {
            let mut out = Vec::new();
            end_of_rib(&mut out, family);
            out[HEADER - 3..].to_vec()
        };
        assert_eq!(mark(IpFamily::V4), [0, 23, 2, 0, 0, 0, 0]);
        assert_eq!(mark(IpFamily::V6), [0, 29, 2, 0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1]);
    }

    #[test]
    fn nothing_to_withdraw_is_no_message() {
        let mut out = Vec::new();
        assert_eq!((withdraw(&mut out, IpFamily::V6, &[]), out.len()), (0, 0));
    }
}

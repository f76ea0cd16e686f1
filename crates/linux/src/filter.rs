// SPDX-License-Identifier: Apache-2.0
//! Classic BPF programs for packet sockets: which frames the kernel hands over.
//!
//! On a segment with many hosts nearly every request is for somebody else, and a request that wakes a speaker for
//! nothing takes the processor from the one that has to answer. So the program knows the addresses. 4,096 instructions
//! do not hold ten thousand of them one by one, but addresses of a pool stand close together, whichever of them this
//! node owns: they are kept as bit sets of 32 neighbours each, found by binary search. Where even those are too many
//! (addresses strewn over everything) a bit stands for 2, 4, 8 … neighbours, so a few requests for others pass.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// Addresses with all their neighbours, 256 each: a set that is small however many addresses are put into it, and that
/// rarely changes with one more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbourhoods {
    v4: BTreeSet<u32>,
    v6: BTreeSet<u32>,
}

impl Neighbourhoods {
    /// Adds an address; whether it was not in the set, neither it nor a neighbour of it.
    pub fn insert(&mut self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.insert(address.to_bits() >> NEIGHBOURS),
            IpAddr::V6(address) => self.v6.insert(digest(address) >> NEIGHBOURS),
        }
    }
}

impl FromIterator<IpAddr> for Neighbourhoods {
    fn from_iter<T: IntoIterator<Item = IpAddr>>(addresses: T) -> Self {
        let mut all = Self::default();
        for address in addresses {
            all.insert(address);
        }
        all
    }
}

/// Which addresses a program lets pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Targets<'a> {
    /// Every one.
    Any,
    /// These, as precisely as there is room.
    These(&'a BTreeSet<IpAddr>),
    /// These and their neighbours.
    Near(&'a Neighbourhoods),
}

impl Targets<'_> {
    /// Whether an IPv6 address is among them.
    pub(crate) fn has_v6(self) -> bool {
        self.values(true).is_none_or(|(values, _)| !values.is_empty())
    }

    /// The addresses of one family as 32 bits each, and how many of their last bits do not count; `None`: all pass.
    fn values(self, v6: bool) -> Option<(Vec<u32>, u32)> {
        let bits = |address: &IpAddr| match address {
            IpAddr::V4(address) => (!v6).then(|| address.to_bits()),
            IpAddr::V6(address) => v6.then(|| digest(*address)),
        };
        match self {
            Self::Any => None,
            Self::These(addresses) => Some((addresses.iter().filter_map(bits).collect(), 0)),
            Self::Near(near) => {
                let numbers = if v6 { &near.v6 } else { &near.v4 };
                Some((numbers.iter().map(|number| number << NEIGHBOURS).collect(), NEIGHBOURS))
            }
        }
    }
}

/// Bits in which neighbours differ.
const NEIGHBOURS: u32 = 8;

/// ARP frames of any kind.
pub(crate) const EVERY_ARP: [libc::sock_filter; 4] =
    [load(libc::BPF_H, TYPE), equal(libc::ETH_P_ARP as u32, 0, 1), give(ARP_KEPT), give(0)];

/// ARP replies to this host.
pub(crate) const ARP_REPLIES: [libc::sock_filter; 8] = [
    load(libc::BPF_B, (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned()),
    equal(libc::PACKET_HOST as u32, 0, 5),
    load(libc::BPF_H, TYPE),
    equal(libc::ETH_P_ARP as u32, 0, 3),
    load(libc::BPF_H, OPERATION),
    equal(REPLY, 0, 1),
    give(ARP_KEPT),
    give(0),
];

/// Neighbor Solicitations and Advertisements of any kind.
pub(crate) const EVERY_NDP: [libc::sock_filter; 9] = [
    load(libc::BPF_H, TYPE),
    equal(libc::ETH_P_IPV6 as u32, 0, 6),
    load(libc::BPF_B, NEXT_HEADER),
    equal(ICMPV6, 0, 4),
    load(libc::BPF_B, MESSAGE),
    equal(SOLICITATION, 1, 0),
    equal(ADVERTISEMENT, 0, 1),
    give(NDP_KEPT),
    give(0),
];

/// TCP over either family; of IPv6, what has no extension headers.
pub(crate) const EVERY_TCP: [libc::sock_filter; 9] = [
    load(libc::BPF_H, TYPE),
    equal(libc::ETH_P_IP as u32, 0, 2),
    load(libc::BPF_B, PROTOCOL),
    equal(TCP, 3, 4),
    equal(libc::ETH_P_IPV6 as u32, 0, 3),
    load(libc::BPF_B, NEXT_HEADER),
    equal(TCP, 0, 1),
    give(TCP_KEPT),
    give(0),
];

/// ARP requests for one of these addresses and replies to whoever has one, except those that the interface only overheard
/// and those that go out; and replies to nobody's address, which answer a probe. `most` is one of [`SIZES`].
pub(crate) fn arp_requests(targets: Targets<'_>, most: usize) -> Vec<libc::sock_filter> {
    let mut program = incoming();
    program.extend([
        load(libc::BPF_H, TYPE),
        equal(libc::ETH_P_ARP as u32, 1, 0),
        give(0),
        load(libc::BPF_H, OPERATION),
        equal(REQUEST, 5, 0),
        equal(REPLY, 1, 0),
        give(0),
        load(libc::BPF_W, ARP_TARGET),
        equal(0, 0, 1),
        give(ARP_KEPT),
    ]);
    let Some((values, blur)) = targets.values(false) else {
        program.push(give(ARP_KEPT));
        return program;
    };
    program.push(load(libc::BPF_W, ARP_TARGET));
    one_of(&mut program, &values, blur, most, ARP_KEPT);
    program
}

/// Neighbor Solicitations and Advertisements about one of these addresses, except those that the interface only
/// overheard and those that go out. One about another address passes once in thousands of millions. `most` is one of
/// [`SIZES`].
pub(crate) fn neighbor_discovery(targets: Targets<'_>, most: usize) -> Vec<libc::sock_filter> {
    let mut program = incoming();
    program.extend([
        load(libc::BPF_H, TYPE),
        equal(libc::ETH_P_IPV6 as u32, 1, 0),
        give(0),
        load(libc::BPF_B, NEXT_HEADER),
        equal(ICMPV6, 1, 0),
        give(0),
        load(libc::BPF_B, MESSAGE),
        equal(SOLICITATION, 2, 0),
        equal(ADVERTISEMENT, 1, 0),
        give(0),
    ]);
    let Some((values, blur)) = targets.values(true) else {
        program.push(give(NDP_KEPT));
        return program;
    };
    program.push(load(libc::BPF_W, NDP_TARGET));
    for word in 1..4 {
        program.extend([multiply(SPREAD), to_index(), load(libc::BPF_W, NDP_TARGET + 4 * word), add_index()]);
    }
    one_of(&mut program, &values, blur, most, NDP_KEPT);
    program
}

/// Drops what was overheard and what goes out.
fn incoming() -> Vec<libc::sock_filter> {
    vec![
        load(libc::BPF_B, (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned()),
        equal(libc::PACKET_OTHERHOST as u32, 1, 0),
        equal(libc::PACKET_OUTGOING as u32, 0, 1),
        give(0),
    ]
}

/// An IPv6 address in 32 bits: its last ones moved by a number that the others give, so that neighbours stay
/// neighbours.
fn digest(address: Ipv6Addr) -> u32 {
    let [a, b, c, d, e, f, g, h] = address.segments().map(u32::from);
    let [first, others @ ..] = [a << 16 | b, c << 16 | d, e << 16 | f, g << 16 | h];
    others.into_iter().fold(first, |digest, word| digest.wrapping_mul(SPREAD).wrapping_add(word))
}

/// Gives so many bytes if the accumulator is one of the values, whose last `blur` bits do not count.
fn one_of(program: &mut Vec<libc::sock_filter>, values: &[u32], blur: u32, most: usize, kept: u32) {
    let mut shift = blur;
    let mut sets = bit_sets(values, shift);
    while sets.len() > most {
        shift += 1; // at most 22: with that there are no more than 32
        sets = bit_sets(values, shift);
    }
    // Which bit in the index register, which set in the accumulator.
    program.extend([
        store(),
        right(shift),
        and(31),
        to_index(),
        load_stored(),
        right(shift + 5), // at most 27
    ]);
    let mut found = Vec::new();
    search(program, &sets, &mut found);
    // Of the set in the accumulator the bit.
    let test = program.len();
    program.extend([right_by_index(), has_bits(1, 0, 1), give(kept), give(0)]);
    for jump in found {
        program[jump] = skip((test - jump - 1) as u32); // a program has at most 4,096 instructions
    }
}

/// Sets of 32 neighbours by their number; a bit is for 2^`shift` values.
fn bit_sets(values: &[u32], shift: u32) -> Vec<(u32, u32)> {
    let mut sets = BTreeMap::new();
    for value in values {
        *sets.entry(value >> (shift + 5)).or_default() |= 1_u32 << (value >> shift & 31);
    }
    sets.into_iter().collect()
}

/// Loads the set whose number is in the accumulator and leaves by one of the jumps in `found`, which are to be filled
/// in; refuses if there is no such set.
fn search(program: &mut Vec<libc::sock_filter>, sets: &[(u32, u32)], found: &mut Vec<usize>) {
    let (low, high) = sets.split_at(sets.len() / 2);
    if let (true, Some(&(middle, _))) = (sets.len() > CHAIN, high.first()) {
        // Conditional jumps reach 255 instructions, unconditional ones any.
        program.push(at_least(middle, 0, 1));
        let jump = program.len();
        program.push(skip(0));
        search(program, low, found);
        program[jump] = skip((program.len() - jump - 1) as u32);
        search(program, high, found);
        return;
    }
    for (index, &(number, _)) in sets.iter().enumerate() {
        // Behind the other comparisons and the refusal, two instructions for each set before this one.
        program.push(equal(number, (sets.len() + index) as u8, 0)); // at most 15
    }
    program.push(give(0));
    for &(_, bits) in sets {
        program.push(set(bits));
        found.push(program.len());
        program.push(skip(0));
    }
}

/// Bytes of an ARP frame that are handed over: a packet, its tag if it has one, and some padding.
const ARP_KEPT: u32 = 128;

/// Bytes of a frame of Neighbor Discovery that are handed over; options may be long.
const NDP_KEPT: u32 = 2048;

/// Bytes of a frame with TCP that are handed over: all of it, also where the kernel has put several segments together.
const TCP_KEPT: u32 = 1 << 17;

/// Where Ethernet's type, ARP's operation and ARP's target address stand in a frame.
const TYPE: u32 = 12;
const OPERATION: u32 = 20;
const ARP_TARGET: u32 = 38;

/// Where IPv4's protocol stands in a frame.
const PROTOCOL: u32 = 23;

/// Where IPv6's next header, ICMPv6's type and the target address stand in a frame.
const NEXT_HEADER: u32 = 20;
const MESSAGE: u32 = 54;
const NDP_TARGET: u32 = 62;

/// ARP's operations.
const REQUEST: u32 = 1;
const REPLY: u32 = 2;

const TCP: u32 = libc::IPPROTO_TCP as u32;
const ICMPV6: u32 = libc::IPPROTO_ICMPV6 as u32;
const SOLICITATION: u32 = 135;
const ADVERTISEMENT: u32 = 136;

/// A large odd number.
const SPREAD: u32 = 0x9e37_79b1;

/// Sets that are compared one by one.
const CHAIN: usize = 8;

/// How many sets there may be, to be tried in this order. With the first the program just fits into the 4,096
/// instructions that the kernel takes: each set costs three, a chain of at least four one more, each branch two. The
/// others are for kernels that give a socket less memory (20 KiB before Linux 6.7, for the former program and the new
/// one).
pub(crate) const SIZES: [usize; 3] = [1000, 250, 32];

/// Loads `size` bytes at `offset` of the frame.
const fn load(size: u32, offset: u32) -> libc::sock_filter {
    plain(libc::BPF_LD | size | libc::BPF_ABS, offset)
}

/// Loads a number.
const fn set(value: u32) -> libc::sock_filter {
    plain(libc::BPF_LD | libc::BPF_IMM, value)
}

/// Keeps what was loaded.
const fn store() -> libc::sock_filter {
    plain(libc::BPF_ST, 0)
}

/// Loads what was kept.
const fn load_stored() -> libc::sock_filter {
    plain(libc::BPF_LD | libc::BPF_MEM, 0)
}

/// Copies what was loaded into the index register.
const fn to_index() -> libc::sock_filter {
    plain(libc::BPF_MISC | libc::BPF_TAX, 0)
}

const fn and(value: u32) -> libc::sock_filter {
    plain(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, value)
}

const fn multiply(value: u32) -> libc::sock_filter {
    plain(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, value)
}

const fn add_index() -> libc::sock_filter {
    plain(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0)
}

const fn right(bits: u32) -> libc::sock_filter {
    plain(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, bits)
}

const fn right_by_index() -> libc::sock_filter {
    plain(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_X, 0)
}

/// Skips `yes` instructions if what was loaded is `value`, else `no`.
const fn equal(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    compare(libc::BPF_JEQ, value, yes, no)
}

/// Skips `yes` instructions if what was loaded is `value` or more, else `no`.
const fn at_least(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    compare(libc::BPF_JGE, value, yes, no)
}

/// Skips `yes` instructions if what was loaded has one of the bits, else `no`.
const fn has_bits(bits: u32, yes: u8, no: u8) -> libc::sock_filter {
    compare(libc::BPF_JSET, bits, yes, no)
}

const fn compare(how: u32, value: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | how | libc::BPF_K) as u16, jt: yes, jf: no, k: value }
}

/// Skips that many instructions.
const fn skip(instructions: u32) -> libc::sock_filter {
    plain(libc::BPF_JMP | libc::BPF_JA, instructions)
}

/// Hands over at most this many bytes of the frame; none drops it.
const fn give(bytes: u32) -> libc::sock_filter {
    plain(libc::BPF_RET | libc::BPF_K, bytes)
}

const fn plain(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Runs a program as the kernel would, on a frame of this packet type.
    fn run(program: &[libc::sock_filter], frame: &[u8], packet_type: u32) -> u32 {
        let (mut at, mut loaded, mut index, mut kept) = (0, 0_u32, 0_u32, 0_u32);
        loop {
            let step = program[at];
            at += 1;
            let (code, k) = (u32::from(step.code), step.k);
            match code & 0x07 {
                libc::BPF_LD if code & 0xe0 == libc::BPF_IMM => loaded = k,
                libc::BPF_LD if code & 0xe0 == libc::BPF_MEM => loaded = kept,
                libc::BPF_LD if k >= libc::SKF_AD_OFF.cast_unsigned() => loaded = packet_type,
                libc::BPF_LD => {
                    let size = match code & 0x18 {
                        libc::BPF_B => 1,
                        libc::BPF_H => 2,
                        _ => 4,
                    };
                    let Some(bytes) = frame.get(k as usize..k as usize + size) else { return 0 };
                    loaded = bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                }
                libc::BPF_ST => kept = loaded,
                libc::BPF_MISC => index = loaded,
                libc::BPF_ALU => {
                    let by = if code & 0x08 == libc::BPF_X { index } else { k };
                    loaded = match code & 0xf0 {
                        libc::BPF_ADD => loaded.wrapping_add(by),
                        libc::BPF_MUL => loaded.wrapping_mul(by),
                        libc::BPF_AND => loaded & by,
                        libc::BPF_RSH => loaded >> by,
                        other => panic!("operation {other:#x}"),
                    };
                }
                libc::BPF_JMP if code & 0xf0 == libc::BPF_JA => at += k as usize,
                libc::BPF_JMP => {
                    let yes = match code & 0xf0 {
                        libc::BPF_JEQ => loaded == k,
                        libc::BPF_JGE => loaded >= k,
                        _ => loaded & k != 0,
                    };
                    at += usize::from(if yes { step.jt } else { step.jf });
                }
                _ => return k,
            }
        }
    }

    fn frame(kind: u16, operation: u16, target: u32) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        frame[20..22].copy_from_slice(&operation.to_be_bytes());
        frame[38..42].copy_from_slice(&target.to_be_bytes());
        frame
    }

    fn neighbor(kind: u16, next_header: u8, message: u8, target: Ipv6Addr) -> [u8; 86] {
        let mut frame = [0; 86];
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        (frame[20], frame[54]) = (next_header, message);
        frame[62..78].copy_from_slice(&target.octets());
        frame
    }

    fn arp(targets: &BTreeSet<IpAddr>) -> Vec<libc::sock_filter> {
        arp_requests(Targets::These(targets), SIZES[0])
    }

    const HOST: u32 = libc::PACKET_HOST as u32;
    const BROADCAST: u32 = libc::PACKET_BROADCAST as u32;
    const MULTICAST: u32 = libc::PACKET_MULTICAST as u32;
    const OVERHEARD: u32 = libc::PACKET_OTHERHOST as u32;
    const OUTGOING: u32 = libc::PACKET_OUTGOING as u32;
    const LIMIT: usize = 4096;

    #[test]
    fn only_requests_for_this_host_or_everybody_pass() {
        let program = arp_requests(Targets::Any, 0);
        for packet_type in [HOST, BROADCAST] {
            assert_eq!(run(&program, &frame(0x0806, 1, 7), packet_type), ARP_KEPT);
            assert_eq!(run(&program, &frame(0x0806, 2, 7), packet_type), ARP_KEPT);
            assert_eq!(run(&program, &frame(0x0806, 3, 7), packet_type), 0);
            assert_eq!(run(&program, &frame(0x0800, 1, 7), packet_type), 0);
        }
        for packet_type in [OVERHEARD, OUTGOING] {
            assert_eq!(run(&program, &frame(0x0806, 1, 7), packet_type), 0);
        }
        assert_eq!(run(&program, &frame(0x0806, 1, 7)[..21], HOST), 0, "cut short");
        assert_eq!(run(&ARP_REPLIES, &frame(0x0806, 2, 7), HOST), ARP_KEPT);
        assert_eq!(run(&ARP_REPLIES, &frame(0x0806, 1, 7), HOST), 0);
        assert_eq!(run(&ARP_REPLIES, &frame(0x0800, 2, 7), HOST), 0);
        assert_eq!(run(&ARP_REPLIES, &frame(0x0806, 2, 7), BROADCAST), 0);
    }

    /// What a host announces by a reply is about its address; what it says to a probe (RFC 5227) is for nobody's.
    #[test]
    fn replies_pass_that_announce_one_of_the_addresses_or_answer_a_probe() {
        let program = arp(&[IpAddr::from([192, 0, 2, 7])].into());
        let passes = |operation, target: [u8; 4]| {
            run(&program, &frame(0x0806, operation, u32::from_be_bytes(target)), BROADCAST) != 0
        };
        assert!(passes(1, [192, 0, 2, 7]) && passes(2, [192, 0, 2, 7]) && passes(2, [0, 0, 0, 0]));
        assert!(!passes(1, [192, 0, 2, 8]) && !passes(2, [192, 0, 2, 8]) && !passes(1, [0, 0, 0, 0]));
        assert!(!passes(3, [192, 0, 2, 7]) && !passes(3, [0, 0, 0, 0]));
        assert_eq!(run(&program, &frame(0x0806, 2, 0), OVERHEARD), 0);
    }

    /// From one address to ten thousand, as a pool gives them: all, every other, every third, strewn by a hash.
    #[test]
    fn of_any_number_of_addresses_of_a_pool_just_those_pass() {
        let pool = 0xc0a8_0000_u32..0xc0a8_7800;
        let strewn = |address: &u32| address.wrapping_mul(SPREAD) < u32::MAX / 3;
        for count in [0, 1, 2, 31, 32, 33, 255, 256, 257, 1_000, 10_000] {
            let choices: [Vec<u32>; 4] = [
                pool.clone().take(count).collect(),
                pool.clone().step_by(2).take(count).collect(),
                pool.clone().step_by(3).take(count).collect(),
                pool.clone().filter(strewn).take(count).collect(),
            ];
            for choice in choices {
                let targets = choice.iter().map(|bits| Ipv4Addr::from_bits(*bits).into()).collect();
                let program = arp(&targets);
                assert!(program.len() <= LIMIT, "{count} addresses take {} instructions", program.len());
                let chosen: BTreeSet<_> = choice.into_iter().collect();
                let all = pool.start - 64..pool.end + 64;
                for asked in all.step_by(if count < 300 { 1 } else { 37 }) {
                    let wanted = if chosen.contains(&asked) { ARP_KEPT } else { 0 };
                    assert_eq!(
                        run(&program, &frame(0x0806, 1, asked), BROADCAST),
                        wanted,
                        "{asked:x} of {count}"
                    );
                }
            }
        }
    }

    /// Every program fits, every address passes; just those while each has a set, and of more only near ones beside them.
    #[test]
    fn addresses_strewn_over_everything_all_pass_and_few_others() {
        let counts = [1, 7, 8, 9, 16, 17, 32, 33, 100, 250, 251, 1_000, 1_001, 2_500, 20_000];
        for (count, most) in counts.into_iter().flat_map(|count| SIZES.map(|most| (count, most))) {
            let step = u32::MAX / (count as u32 + 1);
            let values: Vec<_> = (0..count as u32).map(|n| n * step + 1).collect();
            let targets: BTreeSet<IpAddr> =
                values.iter().map(|bits| Ipv4Addr::from_bits(*bits).into()).collect();
            let program = arp_requests(Targets::These(&targets), most);
            assert!(
                program.len() <= LIMIT.min(4 * most + 60),
                "{count}, {most}: {} instructions",
                program.len()
            );
            let passes = |asked: u32| run(&program, &frame(0x0806, 1, asked), BROADCAST) != 0;
            assert!(values.iter().all(|value| passes(*value)), "{count}, {most}");
            let others = values.iter().map(|value| value.wrapping_add(step / 2));
            let passing = others.filter(|other| passes(*other)).count();
            assert!(passing == 0 || count > most, "{passing} of {count} others pass");
            assert!(!passes(u32::MAX) || count > most);
        }
    }

    #[test]
    fn neighbor_discovery_about_the_addresses_passes_and_nothing_else() {
        let pool: Vec<Ipv6Addr> =
            (0..10_000_u16).map(|n| Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, n * 3)).collect();
        for count in [0, 1, 3, 2_000, 10_000] {
            let targets: BTreeSet<IpAddr> = pool.iter().take(count).map(|ip| IpAddr::V6(*ip)).collect();
            let program = neighbor_discovery(Targets::These(&targets), SIZES[0]);
            assert!(program.len() <= LIMIT, "{count} addresses take {} instructions", program.len());
            for target in &pool {
                let wanted = if targets.contains(&IpAddr::V6(*target)) { NDP_KEPT } else { 0 };
                for message in [135, 136] {
                    let frame = neighbor(0x86dd, 58, message, *target);
                    assert_eq!(run(&program, &frame, MULTICAST), wanted, "{target} of {count}");
                    assert_eq!(run(&program, &frame, HOST), wanted);
                }
                let [.., before, after] = target.segments();
                let other = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, before, after + 1);
                assert_eq!(
                    run(&program, &neighbor(0x86dd, 58, 135, other), MULTICAST),
                    0,
                    "{other} of {count}"
                );
                let elsewhere = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, before, after);
                assert_eq!(run(&program, &neighbor(0x86dd, 58, 135, elsewhere), MULTICAST), 0);
            }
        }
        let program = neighbor_discovery(Targets::These(&[IpAddr::V6(pool[0])].into()), SIZES[2]);
        let good = neighbor(0x86dd, 58, 135, pool[0]);
        assert_eq!(run(&program, &good, HOST), NDP_KEPT);
        for (what, frame, packet_type) in [
            ("overheard", good, OVERHEARD),
            ("outgoing", good, OUTGOING),
            ("another type", neighbor(0x0800, 58, 135, pool[0]), HOST),
            ("UDP", neighbor(0x86dd, 17, 135, pool[0]), HOST),
            ("an echo request", neighbor(0x86dd, 58, 128, pool[0]), HOST),
        ] {
            assert_eq!(run(&program, &frame, packet_type), 0, "{what}");
        }
        assert_eq!(run(&program, &good[..77], HOST), 0, "cut short");
        let program = neighbor_discovery(Targets::Any, 0);
        assert_eq!(run(&program, &neighbor(0x86dd, 58, 135, pool[1]), MULTICAST), NDP_KEPT);
        assert_eq!(run(&program, &neighbor(0x86dd, 58, 134, pool[1]), MULTICAST), 0);
        assert_eq!(run(&EVERY_NDP, &good, OUTGOING), NDP_KEPT);
        assert_eq!(run(&EVERY_NDP, &neighbor(0x86dd, 58, 136, pool[1]), HOST), NDP_KEPT);
        assert_eq!(run(&EVERY_NDP, &neighbor(0x86dd, 58, 133, pool[1]), HOST), 0);
        assert_eq!(run(&EVERY_NDP, &neighbor(0x86dd, 6, 135, pool[1]), HOST), 0);
        assert_eq!(run(&EVERY_NDP, &neighbor(0x0806, 58, 135, pool[1]), HOST), 0);
    }

    #[test]
    fn tcp_of_either_family_passes_whichever_way_it_goes() {
        let packet = |kind: u16, v4: u8, v6: u8| {
            let mut frame = neighbor(kind, v6, 0, Ipv6Addr::LOCALHOST);
            frame[23] = v4;
            frame
        };
        for (kind, v4, v6, kept) in [
            (0x0800, 6, 0, TCP_KEPT),
            (0x0800, 17, 6, 0),
            (0x86dd, 0, 6, TCP_KEPT),
            (0x86dd, 6, 58, 0),
            (0x0806, 6, 6, 0),
        ] {
            for packet_type in [HOST, OUTGOING] {
                assert_eq!(run(&EVERY_TCP, &packet(kind, v4, v6), packet_type), kept, "{kind:#x} {v4} {v6}");
            }
        }
    }

    #[test]
    fn with_their_neighbours_addresses_pass_that_are_put_in_later() {
        let (one, far) = (
            Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 0x17),
            Ipv6Addr::new(0xfd00, 0x11, 0, 0, 0, 0, 0, 0x17),
        );
        let mut near: Neighbourhoods = [[192, 0, 2, 7].into(), IpAddr::V6(one)].into_iter().collect();
        let v4 = |near: &Neighbourhoods, address: [u8; 4]| {
            let program = arp_requests(Targets::Near(near), SIZES[0]);
            run(&program, &frame(0x0806, 1, u32::from_be_bytes(address)), BROADCAST) != 0
        };
        let v6 = |near: &Neighbourhoods, address| {
            let program = neighbor_discovery(Targets::Near(near), SIZES[0]);
            run(&program, &neighbor(0x86dd, 58, 135, address), MULTICAST) != 0
        };
        assert!(v4(&near, [192, 0, 2, 0]) && v4(&near, [192, 0, 2, 255]) && v6(&near, one));
        assert!(!v4(&near, [192, 0, 3, 0]) && !v4(&near, [192, 0, 1, 255]) && !v6(&near, far));
        assert!(!near.insert([192, 0, 2, 200].into()) && !near.insert(one.into()));
        assert!(near.insert([192, 0, 3, 1].into()) && near.insert(far.into()));
        assert!(v4(&near, [192, 0, 3, 0]) && v6(&near, far));
    }
}

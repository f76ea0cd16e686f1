// SPDX-License-Identifier: Apache-2.0
//! Classic BPF programs for packet sockets: which ARP frames the kernel hands over.
//!
//! On a segment with many hosts nearly every request is for somebody else, and a request that wakes a speaker for
//! nothing takes the processor from the one that has to answer. So the program knows the addresses, as a binary search
//! that ends in short chains of comparisons.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// ARP frames of any kind.
pub(crate) const EVERY_ARP: [libc::sock_filter; 4] =
    [load(libc::BPF_H, TYPE), equal(libc::ETH_P_ARP as u32, 0, 1), give(KEPT), give(0)];

/// ARP requests for one of these addresses, or for any, except those that the interface only overheard and those that
/// go out. With more addresses than a program can hold it lets requests for any pass.
pub(crate) fn requests(targets: Option<&BTreeSet<Ipv4Addr>>) -> Vec<libc::sock_filter> {
    let mut program = vec![
        load(libc::BPF_B, (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned()),
        equal(libc::PACKET_OTHERHOST as u32, 5, 0),
        equal(libc::PACKET_OUTGOING as u32, 4, 0),
        load(libc::BPF_H, TYPE),
        equal(libc::ETH_P_ARP as u32, 0, 2),
        load(libc::BPF_H, OPERATION),
        equal(REQUEST, 1, 0),
        give(0),
    ];
    match targets {
        Some(targets) if targets.len() <= MOST => {
            let sorted: Vec<u32> = targets.iter().map(|target| target.to_bits()).collect();
            program.push(load(libc::BPF_W, TARGET));
            search(&mut program, &sorted);
        }
        Some(_) | None => program.push(give(KEPT)),
    }
    program
}

/// Gives the frame if the accumulator is one of the values, which are ascending.
fn search(program: &mut Vec<libc::sock_filter>, values: &[u32]) {
    let (low, high) = values.split_at(values.len() / 2);
    if let (true, Some(&middle)) = (values.len() > CHAIN, high.first()) {
        // Conditional jumps reach 255 instructions, unconditional ones any.
        program.push(at_least(middle, 0, 1));
        let jump = program.len();
        program.push(skip(0));
        search(program, low);
        // A program has at most 4,096 instructions.
        program[jump] = skip((program.len() - jump - 1) as u32);
        search(program, high);
        return;
    }
    for (index, &value) in values.iter().enumerate() {
        // To behind the others and the refusal.
        program.push(equal(value, (values.len() - index) as u8, 0));
    }
    program.push(give(0));
    if !values.is_empty() {
        program.push(give(KEPT));
    }
}

/// Bytes of a frame that are handed over: an ARP packet, its tag if it has one, and some padding.
const KEPT: u32 = 128;

/// Where Ethernet's type, ARP's operation and ARP's target address stand in a frame.
const TYPE: u32 = 12;
const OPERATION: u32 = 20;
const TARGET: u32 = 38;

/// ARP's operation of a request.
const REQUEST: u32 = 1;

/// Values that are compared one by one.
const CHAIN: usize = 8;

/// Addresses for which the program certainly fits into the 4,096 instructions that the kernel takes: a chain holds at
/// least four and costs two more instructions, and so does each branch.
const MOST: usize = 2000;

/// Loads `size` bytes at `offset` of the frame.
const fn load(size: u32, offset: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_LD | size | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

/// Skips `yes` instructions if what was loaded is `value`, else `no`.
const fn equal(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    compare(libc::BPF_JEQ, value, yes, no)
}

/// Skips `yes` instructions if what was loaded is `value` or more, else `no`.
const fn at_least(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    compare(libc::BPF_JGE, value, yes, no)
}

const fn compare(how: u32, value: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | how | libc::BPF_K) as u16, jt: yes, jf: no, k: value }
}

/// Skips that many instructions.
const fn skip(instructions: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JA) as u16, jt: 0, jf: 0, k: instructions }
}

/// Hands over at most this many bytes of the frame; none drops it.
const fn give(bytes: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would, on a frame of this packet type.
    fn run(program: &[libc::sock_filter], frame: &[u8], packet_type: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0_u32);
        loop {
            let step = program[at];
            at += 1;
            let code = u32::from(step.code);
            match code & 0x07 {
                libc::BPF_LD if step.k >= libc::SKF_AD_OFF.cast_unsigned() => loaded = packet_type,
                libc::BPF_LD => {
                    let size = match code & 0x18 {
                        libc::BPF_B => 1,
                        libc::BPF_H => 2,
                        _ => 4,
                    };
                    let Some(bytes) = frame.get(step.k as usize..step.k as usize + size) else { return 0 };
                    loaded = bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                }
                libc::BPF_JMP if code & 0xf0 == libc::BPF_JA => at += step.k as usize,
                libc::BPF_JMP => {
                    let yes = if code & 0xf0 == libc::BPF_JEQ { loaded == step.k } else { loaded >= step.k };
                    at += usize::from(if yes { step.jt } else { step.jf });
                }
                _ => return step.k,
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

    const HOST: u32 = libc::PACKET_HOST as u32;
    const BROADCAST: u32 = libc::PACKET_BROADCAST as u32;

    #[test]
    fn only_requests_for_this_host_or_everybody_pass() {
        let program = requests(None);
        for packet_type in [HOST, BROADCAST] {
            assert_eq!(run(&program, &frame(0x0806, 1, 7), packet_type), KEPT);
            assert_eq!(run(&program, &frame(0x0806, 2, 7), packet_type), 0);
            assert_eq!(run(&program, &frame(0x0800, 1, 7), packet_type), 0);
        }
        for packet_type in [libc::PACKET_OTHERHOST as u32, libc::PACKET_OUTGOING as u32] {
            assert_eq!(run(&program, &frame(0x0806, 1, 7), packet_type), 0);
        }
        assert_eq!(run(&program, &frame(0x0806, 1, 7)[..21], HOST), 0, "cut short");
    }

    #[test]
    fn of_any_number_of_addresses_just_those_pass() {
        for count in [0, 1, 2, 7, 8, 9, 16, 17, 100, 1000, MOST] {
            let step = u32::MAX / (count as u32 + 1);
            let targets: BTreeSet<_> = (0..count as u32).map(|n| Ipv4Addr::from_bits(n * step + 1)).collect();
            let program = requests(Some(&targets));
            assert!(program.len() <= 4096, "{count} addresses take {} instructions", program.len());
            for target in &targets {
                for asked in [target.to_bits() - 1, target.to_bits(), target.to_bits() + 1] {
                    let wanted = if targets.contains(&Ipv4Addr::from_bits(asked)) { KEPT } else { 0 };
                    assert_eq!(
                        run(&program, &frame(0x0806, 1, asked), BROADCAST),
                        wanted,
                        "{asked} of {count}"
                    );
                }
            }
            assert_eq!(run(&program, &frame(0x0806, 1, u32::MAX), BROADCAST), 0);
        }
    }

    #[test]
    fn more_addresses_than_fit_let_every_request_pass() {
        let targets: BTreeSet<_> = (1..=MOST as u32 + 1).map(Ipv4Addr::from_bits).collect();
        assert_eq!(run(&requests(Some(&targets)), &frame(0x0806, 1, u32::MAX), BROADCAST), KEPT);
    }
}

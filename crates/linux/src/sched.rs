// SPDX-License-Identifier: Apache-2.0
//! How soon a thread that is woken gets a processor.

use crate::error::{Attempt, Result};

/// Asks for short turns of the processor: the calling thread then gets it sooner when it is woken while others work
/// (EEVDF's deadline is nearer), and takes no more of it. Needs no capability.
///
/// Kernels before Linux 6.12 accept it and change nothing.
///
/// # Errors
///
/// EPERM where a filter of system calls forbids it.
pub fn take_short_turns() -> Result<()> {
    let size = size_of::<Attributes>() as u32; // 48
    let attributes = Attributes { size, runtime: TURN, ..Attributes::default() };
    // SAFETY: the structure is alive, and `size` says how long it is; 0 is the calling thread.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    let done = if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) };
    done.attempting(|| "ask for short turns of the processor")
}

/// The first version of `struct sched_attr` (sched_setattr(2)), whose policy 0 is the usual one.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// In nanoseconds; of the usual policy a wish for the length of a turn.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The shortest that the kernel grants, 100 µs.
const TURN: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_turns_can_be_had_without_rights() {
        std::thread::spawn(take_short_turns).join().unwrap().unwrap();
    }
}

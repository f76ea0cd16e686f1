// SPDX-License-Identifier: Apache-2.0
//! Memory that a daemon no longer needs: the pages of its own program that only its start, or something rare, used.
//!
//! A daemon that waits most of the time keeps little data; most of what is resident are pages of its program, mapped
//! around every place that was ever run or read: code, and before it the relocations, which only the start reads, with
//! constants and unwind tables. They cost nothing to give back, since the file still holds them: a page that is
//! needed again is mapped from the page cache within microseconds.

use std::fs;
use std::ops::Range;

use crate::error::{Attempt, Result, check};

/// Unmaps the pages of program code and of what stands before it in its file, in all mappings of the calling process.
///
/// Returns how many bytes of mappings it covered. Meant for a daemon that has become idle; once in minutes is often.
///
/// # Errors
///
/// `/proc/self/maps` cannot be read, or the kernel refuses.
pub fn release_program() -> Result<usize> {
    let maps = fs::read_to_string("/proc/self/maps").attempting(|| "read /proc/self/maps")?;
    let mut covered = 0;
    for range in maps.lines().filter_map(program) {
        let length = range.end - range.start;
        // SAFETY: the range is a whole private mapping of a file, as the kernel has just listed it, that is not writable
        // and never was: it is executable (there are no text relocations in position-independent programs), or begins
        // where the file does, with the ELF header (what is relocated and then protected lies in segments behind the
        // code). So its pages hold what the file holds, and MADV_DONTNEED makes the next access read just that again.
        // This process never unmaps its own program or libraries.
        let done = unsafe {
            libc::madvise(std::ptr::with_exposed_provenance_mut(range.start), length, libc::MADV_DONTNEED)
        };
        check(done).attempting(|| "give back pages of the program")?;
        covered += length;
    }
    Ok(covered)
}

/// The range of a line of `/proc/PID/maps`, if it maps a part of a program that nobody ever wrote to.
fn program(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (permissions, offset) = (fields.next()?, fields.next()?);
    let of_a_file = fields.nth(1)? != "0";
    let number = |text| usize::from_str_radix(text, 16).ok();
    let unwritten = permissions == "r-xp" || permissions == "r--p" && number(offset)? == 0;
    (unwritten && of_a_file).then_some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_parts_of_files_that_were_never_written_are_given_back() {
        let line = |perms, offset, inode| {
            format!("55d0c0a00000-55d0c0a21000 {perms} {offset} fe:00 {inode}  /speaker")
        };
        let range = Some(0x55d0_c0a0_0000..0x55d0_c0a2_1000);
        assert_eq!(program(&line("r-xp", "00001000", "1234")), range);
        assert_eq!(program(&line("r--p", "00000000", "1234")), range);
        assert_eq!(program(&line("r--p", "00001000", "1234")), None, "it may have been relocated");
        assert_eq!(program(&line("rw-p", "00000000", "1234")), None);
        assert_eq!(program(&line("r-xs", "00001000", "1234")), None);
        assert_eq!(program(&line("r--p", "00000000", "0")), None);
        assert_eq!(program("7ffd5a9f0000-7ffd5a9f2000 r-xp 00000000 00:00 0    [vdso]"), None);
        assert_eq!(program(""), None);
    }

    #[test]
    fn the_program_runs_on() {
        assert!(release_program().unwrap() > 0);
        assert_eq!("still here".to_uppercase(), "STILL HERE");
    }
}

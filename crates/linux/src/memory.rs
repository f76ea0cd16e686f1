// SPDX-License-Identifier: Apache-2.0
//! Memory that a daemon no longer needs: the pages of its own code that only its start, or something rare, ran.
//!
//! A daemon that waits most of the time keeps little data; most of what is resident are pages of its program, mapped
//! around every place that ever ran. They cost nothing to give back, since the file still holds them: a page that is
//! needed again is mapped from the page cache within microseconds.

use std::fs;
use std::ops::Range;

use crate::error::{Attempt, Result, check};

/// Unmaps the pages of program code, in all mappings of the calling process.
///
/// Returns how many bytes of mappings it covered. Meant for a daemon that has become idle; once in minutes is often.
///
/// # Errors
///
/// `/proc/self/maps` cannot be read, or the kernel refuses.
pub fn release_code() -> Result<usize> {
    let maps = fs::read_to_string("/proc/self/maps").attempting(|| "read /proc/self/maps")?;
    let mut covered = 0;
    for range in maps.lines().filter_map(code) {
        let length = range.end - range.start;
        // SAFETY: the range is a whole private mapping of a file that is executable and not writable, as the kernel
        // has just listed it. This process never unmaps its own program or libraries. Such a mapping was never written
        // to (code is not relocated: there are no text relocations in position-independent programs), so its pages hold
        // what the file holds, and MADV_DONTNEED makes the next access read just that again.
        let done = unsafe {
            libc::madvise(std::ptr::with_exposed_provenance_mut(range.start), length, libc::MADV_DONTNEED)
        };
        check(done).attempting(|| "give back pages of the program's code")?;
        covered += length;
    }
    Ok(covered)
}

/// The range of a line of `/proc/PID/maps`, if it maps code of a file privately.
fn code(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let private_code = fields.next()? == "r-xp";
    let of_a_file = fields.nth(2)? != "0";
    let address = |text| usize::from_str_radix(text, 16).ok();
    (private_code && of_a_file).then_some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_code_of_files_is_given_back() {
        let line =
            |perms, inode| format!("55d0c0a00000-55d0c0a21000 {perms} 00001000 fe:00 {inode}  /speaker");
        assert_eq!(code(&line("r-xp", "1234")), Some(0x55d0_c0a0_0000..0x55d0_c0a2_1000));
        assert_eq!(code(&line("r--p", "1234")), None, "read-only data may have been relocated");
        assert_eq!(code(&line("rw-p", "1234")), None);
        assert_eq!(code(&line("r-xs", "1234")), None);
        assert_eq!(code("7ffd5a9f0000-7ffd5a9f2000 r-xp 00000000 00:00 0    [vdso]"), None);
        assert_eq!(code(""), None);
    }

    #[test]
    fn the_program_runs_on() {
        assert!(release_code().unwrap() > 0);
        assert_eq!("still here".to_uppercase(), "STILL HERE");
    }
}

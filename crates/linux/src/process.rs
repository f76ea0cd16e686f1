// SPDX-License-Identifier: Apache-2.0
//! Who a process is: a pid together with the moment it started, so that it is never taken for a later one.

use std::fmt;
use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use crate::error::{Attempt, Error, Result};

/// A process id. The kernel uses it again once the process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A process, told apart from every other that has had or will have the same pid on this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The process id.
    pub pid: Pid,
    /// When it started, in clock ticks since boot.
    pub started: u64,
}

impl Identity {
    /// The process that has this pid now; `None` if there is none, or if it has ended and only waits to be
    /// collected by its parent.
    pub fn of(pid: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, started) = parse_stat(&stat)?;
        (!matches!(state, 'Z' | 'X')).then_some(Self { pid, started })
    }

    /// The calling process.
    ///
    /// # Errors
    ///
    /// If /proc is not mounted.
    pub fn own() -> Result<Self> {
        let pid = Pid(std::process::id());
        Self::of(pid)
            .ok_or_else(|| Error::other(format!("read /proc/{pid}/stat"), "not there; is /proc mounted?"))
    }

    /// Whether the process still runs.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }

    /// Sends a signal; `false` if the process had ended.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if it is somebody else's process.
    pub fn signal(&self, signal: Signal) -> Result<bool> {
        if !self.is_alive() {
            return Ok(false);
        }
        let pid = nix::unistd::Pid::from_raw(self.pid.0.cast_signed());
        match kill(pid, signal) {
            Ok(()) => Ok(true),
            Err(nix::Error::ESRCH) => Ok(false),
            Err(cause) => Err(Error::new(format!("send {signal} to process {}", self.pid), cause)),
        }
    }
}

/// All processes, ascending.
///
/// # Errors
///
/// If /proc cannot be read.
pub fn all() -> Result<Vec<Pid>> {
    let entries = fs::read_dir("/proc").attempting(|| "list /proc")?;
    let mut pids: Vec<_> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid)).collect();
    pids.sort();
    Ok(pids)
}

/// Resident memory of a process in bytes (`VmRSS`); `None` once it is gone.
pub fn resident_bytes(pid: Pid) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// User and system time that a process has used so far, all its threads together; `None` once it is gone.
pub fn cpu_time(pid: Pid) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11); // behind field 2 come 3 to 13
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?; // fields 14, 15
    Some(Duration::from_millis(ticks * 1000 / TICKS))
}

/// Ticks per second in what the kernel tells, on every architecture that Rust's Linux targets know.
const TICKS: u64 = 100;

/// State and start time out of /proc/PID/stat. The second field is the program's name in parentheses and may
/// itself hold blanks and parentheses, so the count starts after the last one.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?; // field 3
    let started = fields.nth(18)?.parse().ok()?; // field 22
    Some((state, started))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn time_that_was_used_is_counted() {
        let own = Pid(std::process::id());
        let before = cpu_time(own).unwrap();
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while cpu_time(own).unwrap() < before + Duration::from_millis(30) {
            assert!(std::time::Instant::now() < end, "nothing was counted");
        }
        assert_eq!(cpu_time(Pid(u32::MAX)), None);
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat =
            "77 (a) b) S 1 77 77 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1000 200 18446744073709551615";
        assert_eq!(parse_stat(stat), Some(('S', 4242)));
        assert_eq!(parse_stat("77 (a"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn the_own_process_lives_and_another_start_time_is_another_process() {
        let own = Identity::own().unwrap();
        assert!(own.is_alive());
        assert!(!Identity { started: own.started + 1, ..own }.is_alive());
        assert!(all().unwrap().contains(&own.pid));
        assert!(resident_bytes(own.pid).unwrap() > 100_000);
    }

    #[test]
    fn a_process_that_was_killed_and_not_collected_is_not_alive() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(Pid(child.id())).unwrap();
        assert!(identity.signal(Signal::SIGKILL).unwrap());
        for _ in 0..1_000 {
            if !identity.is_alive() {
                break;
            }
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!identity.is_alive());
        assert!(!identity.signal(Signal::SIGKILL).unwrap());
    }
}

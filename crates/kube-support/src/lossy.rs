// SPDX-License-Identifier: Apache-2.0
//! A stream that is written to only while its reader keeps up.
//!
//! Whoever reads a daemon's log can stop doing so: a stuck container runtime, a paused terminal. A thread that
//! answers on the network must not wait for it, so lines that do not fit in the pipe are dropped, and their
//! number is told when there is room again.

use std::io::{self, Write};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Drops what would block. Whole lines go in: a pipe that is writable takes 4096 bytes (PIPE_BUF) at once.
#[derive(Debug)]
pub(crate) struct Lossy<F> {
    stream: F,
    lost: u64,
}

impl<F: Write + AsFd> Lossy<F> {
    pub(crate) fn new(stream: F) -> Self {
        Self { stream, lost: 0 }
    }

    fn has_room(&self) -> bool {
        let mut wait = [PollFd::new(self.stream.as_fd(), PollFlags::POLLOUT)];
        // An error, of which a closed reader is one, is left to the write to find.
        poll(&mut wait, PollTimeout::ZERO).map_or(true, |ready| ready > 0)
    }
}

impl<F: Write + AsFd> Write for Lossy<F> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.has_room() {
            self.lost += 1;
            return Ok(line.len());
        }
        if self.lost > 0 {
            let lost = self.lost;
            self.lost = 0;
            let told = serde_json::json!({
                "caller": "lossy.rs", "level": "warn", "lines": lost, "msg": "the log's reader was too slow, lines are lost",
                "ts": crate::logging::timestamp(),
            });
            self.stream.write_all(format!("{told}\n").as_bytes())?;
        }
        self.stream.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_reader_that_stops_costs_lines_and_no_time() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut log = Lossy::new(writer);
        let line = format!("{}\n", "x".repeat(999));
        // Far more than a pipe holds.
        for _ in 0..1000 {
            assert_eq!(log.write(line.as_bytes()).unwrap(), line.len());
        }
        let lost = log.lost;
        assert!(lost > 0 && lost < 1000, "{lost}");

        let mut read = vec![0; 1000 * (1000 - usize::try_from(lost).unwrap())];
        reader.read_exact(&mut read).unwrap();
        log.write_all(b"there again\n").unwrap();
        drop(log);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let (told, last) = rest.split_once('\n').unwrap();
        let told: serde_json::Value = serde_json::from_str(told).unwrap();
        assert_eq!(told["lines"], lost);
        assert_eq!(last, "there again\n");
    }
}

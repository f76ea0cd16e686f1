// SPDX-License-Identifier: Apache-2.0
//! The one error of this crate: what was attempted, on what, and what the kernel said.

use std::io;

/// What was attempted, and why the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{attempted}: {cause}")]
pub struct Error {
    attempted: String,
    cause: io::Error,
}

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of its own making, for callers that join several steps into one.
    pub fn new(attempted: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self { attempted: attempted.into(), cause: cause.into() }
    }

    /// An error for which the kernel gave no number.
    pub(crate) fn other(attempted: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self::new(attempted, io::Error::other(cause.to_string()))
    }

    /// The kernel's error number (`libc::EPERM` …), where there is one.
    pub fn os_error(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }

    /// What the standard library calls this kind of failure.
    pub fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }
}

/// Puts words to an error: `call().attempting(|| format!("open {path}"))`.
pub(crate) trait Attempt<T> {
    /// Names what was attempted.
    fn attempting<S: Into<String>>(self, words: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<io::Error>> Attempt<T> for std::result::Result<T, E> {
    fn attempting<S: Into<String>>(self, words: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|cause| Error::new(words(), cause))
    }
}

/// The result of a system call that answers -1 and sets `errno`.
pub(crate) fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

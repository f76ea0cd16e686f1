// SPDX-License-Identifier: Apache-2.0
//! The connection of a session: bytes in, bytes out, and a last word that is heard.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferrolb_bgp::ConnectionId;
use ferrolb_linux::tcp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest, Ready};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// A connection that is there. Dropping it closes it at once.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) id: ConnectionId,
    /// Its own end.
    pub(super) address: SocketAddr,
    /// Why nothing can be said any more; there may be something left to be heard.
    pub(super) broken: Option<String>,
    stream: TcpStream,
    /// What is to be sent and was not taken yet; the session keeps it below 64 KiB.
    unwritten: VecDeque<u8>,
}

impl Line {
    pub(super) fn new(id: ConnectionId, address: SocketAddr, stream: TcpStream) -> Self {
        Self { id, address, broken: None, stream, unwritten: VecDeque::new() }
    }

    pub(super) fn send(&mut self, bytes: Vec<u8>) {
        if self.unwritten.is_empty() {
            self.unwritten = bytes.into();
        } else {
            self.unwritten.extend(bytes);
        }
    }

    /// Hands over to the operating system what it takes: so many bytes.
    pub(super) fn flush(&mut self) -> io::Result<usize> {
        let (bytes, _) = self.unwritten.as_slices();
        if bytes.is_empty() {
            return Ok(0);
        }
        match self.stream.try_write(bytes) {
            Ok(count) => {
                self.unwritten.drain(..count);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// What has come: so many bytes, 0 once the peer has closed; `None` if there is nothing.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.stream.try_read(buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Line::read`] where nobody has said yet that there is something: the runtime learns it only when it asks the
    /// kernel, and has not done so if the process was stopped, or the thread busy, meanwhile.
    pub(super) fn look(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        tcp::receive(&self.stream, buffer)
    }

    /// How much of what the operating system has taken the peer's has not acknowledged.
    pub(super) fn unacknowledged(&self) -> usize {
        // It fails on no connection. If it did, that would be no reason to drop one.
        tcp::unacknowledged(&self.stream).unwrap_or_default()
    }

    /// Waits until something can be read, or written if there is something to be written. May be dropped meanwhile.
    pub(super) async fn ready(&self) -> io::Result<Ready> {
        let interest = if self.unwritten.is_empty() {
            Interest::READABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        };
        self.stream.ready(interest).await
    }

    /// Goes on with another password, or none.
    pub(super) fn set_password(&self, peer: IpAddr, password: &[u8]) -> ferrolb_linux::Result<()> {
        tcp::set_password(&self.stream, peer, password)
    }

    /// Closes it. What the peer has left unread is not worth waiting for.
    pub(super) fn close(self) {
        if !self.unwritten.is_empty() || self.unacknowledged() > 0 {
            self.reset();
        }
    }

    /// Says what is still to be said, and waits until the peer has closed too: closing with something unread would reset
    /// the connection, and the last word would be lost. All that takes [`LAST_WORD`] at most.
    pub(super) async fn say_last_word(mut self) {
        let end = Instant::now() + LAST_WORD;
        let unwritten: Vec<u8> = std::mem::take(&mut self.unwritten).into();
        let said = async {
            self.stream.write_all(&unwritten).await?;
            self.stream.shutdown().await
        };
        if !matches!(timeout_at(end, said).await, Ok(Ok(()))) {
            return self.reset();
        }
        let mut rest = vec![0; 4096];
        let heard = async { while self.stream.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
        // Whoever does not close in time is left to the operating system.
        let _ = timeout_at(end, heard).await;
    }

    fn reset(self) {
        // It fails on no socket that is one.
        let _ = self.stream.set_zero_linger();
    }
}

/// How long a last word may take.
pub(super) const LAST_WORD: Duration = Duration::from_secs(1);

// SPDX-License-Identifier: Apache-2.0
//! Notices that something about the interfaces of a namespace changed.
//!
//! It does not say what: the one that asks reads the whole table anyway, so that a notification that was lost
//! or could not be read changes nothing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::Socket;

use crate::error::{Attempt, Result};
use crate::netlink::open_socket;

/// A netlink socket that hears of interfaces and their addresses.
pub struct LinkMonitor {
    socket: Socket,
}

impl LinkMonitor {
    /// Begins to listen in the calling thread's namespace. Needs no capability.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the socket.
    pub fn open() -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let socket = open_socket()?;
            for group in [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR] {
                socket.add_membership(group)?;
            }
            socket.set_non_blocking(true)?;
            Ok(socket)
        };
        open().map(|socket| Self { socket }).attempting(|| "listen to changes of interfaces")
    }

    /// Takes everything that was heard; whether that was anything.
    ///
    /// # Errors
    ///
    /// If the socket is broken. Having missed something for lack of room is no error, but a change.
    pub fn take(&mut self) -> Result<bool> {
        let mut changed = false;
        // Notifications are not read, so it does not matter that most are longer.
        let mut buffer = [0_u8; 16];
        loop {
            match self.socket.recv(&mut buffer.as_mut_slice(), 0) {
                Ok(_) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changed),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).attempting(|| "hear of changes of interfaces"),
            }
        }
    }
}

impl AsFd for LinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the socket's, which lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

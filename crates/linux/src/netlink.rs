// SPDX-License-Identifier: Apache-2.0
//! A synchronous route-netlink socket: one request, its answers, done.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::error::{Attempt, Error, Result};
use crate::netns::Namespace;

/// A conversation with the kernel of one network namespace.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the socket.
    pub fn open() -> Result<Self> {
        let socket = open_socket().attempting(|| "open a netlink socket")?;
        Ok(Self { socket, sequence: 0, buffer: Vec::new() })
    }

    /// Opens a socket in another namespace; the calling thread stays where it is.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open) and [`Namespace::enter`].
    pub fn open_in(namespace: &Namespace) -> Result<Self> {
        namespace.run(Self::open)?
    }

    /// Sends a request that changes something and waits for the kernel's verdict.
    pub(crate) fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_REQUEST | NLM_F_ACK | flags)?;
        loop {
            let received = self.receive()?;
            for message in Messages(self.buffer.get(..received).unwrap_or_default()) {
                let message = message?;
                if message.header.sequence_number != self.sequence {
                    continue; // what is left of an earlier request that failed half-way
                }
                match message.payload {
                    NetlinkPayload::Error(answer) if answer.code.is_none() => return Ok(()),
                    NetlinkPayload::Error(answer) => return Err(answer.to_io()),
                    _ => {}
                }
            }
        }
    }

    /// Asks for a table and hands each row to `row`.
    ///
    /// A row that cannot be read is left out: an attribute unknown to this library on one interface must not
    /// hide the others. If the table changed while it was read, it is read again, so `row` may see a row twice
    /// and `restart` is called before.
    pub(crate) fn dump<S>(
        &mut self,
        request: &RouteNetlinkMessage,
        state: &mut S,
        restart: impl Fn(&mut S),
        row: impl Fn(&mut S, RouteNetlinkMessage),
    ) -> Result<()> {
        const ATTEMPTS: usize = 8;
        for _ in 0..ATTEMPTS {
            restart(state);
            if self.dump_once(request, state, &row).attempting(|| "read a table of the kernel")? {
                return Ok(());
            }
        }
        Err(Error::other("read a table of the kernel", "it changed every time while it was read"))
    }

    /// One reading; `false` if the table changed meanwhile.
    fn dump_once<S>(
        &mut self,
        request: &RouteNetlinkMessage,
        state: &mut S,
        row: &impl Fn(&mut S, RouteNetlinkMessage),
    ) -> io::Result<bool> {
        self.send(request.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
        let mut steady = true;
        loop {
            let received = self.receive()?;
            for message in Messages(self.buffer.get(..received).unwrap_or_default()) {
                let Ok(message) = message else { continue };
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                steady &= message.header.flags & NLM_F_DUMP_INTR == 0;
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(steady),
                    NetlinkPayload::Error(answer) if answer.code.is_some() => return Err(answer.to_io()),
                    NetlinkPayload::InnerMessage(inner) => row(state, inner),
                    _ => {}
                }
            }
        }
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(|_| ())
    }

    /// One datagram into the buffer. The kernel never sends more than 32 KiB at once to a reader with this room.
    fn receive(&mut self) -> io::Result<usize> {
        const ROOM: usize = 32 * 1024;
        self.buffer.clear();
        self.buffer.reserve(ROOM);
        self.socket.recv(&mut self.buffer, 0)
    }
}

/// A route-netlink socket, connected to the kernel.
pub(crate) fn open_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// The messages of one datagram, each aligned to four bytes.
struct Messages<'a>(&'a [u8]);

impl Iterator for Messages<'_> {
    type Item = io::Result<NetlinkMessage<RouteNetlinkMessage>>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = self.0.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes) as usize)?;
        let message = self.0.get(..length).filter(|bytes| bytes.len() >= 16);
        let rest = message.and_then(|_| self.0.get(length.next_multiple_of(4)..)).unwrap_or_default();
        let bytes = std::mem::replace(&mut self.0, rest);
        let bytes = message.unwrap_or(bytes);
        Some(NetlinkMessage::deserialize(bytes).map_err(|error| io::Error::other(error.to_string())))
    }
}

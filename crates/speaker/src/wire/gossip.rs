// SPDX-License-Identifier: Apache-2.0
//! The sockets of the member list: datagrams in the wire thread, streams on theirs.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ferrolb_gossip::{Input, Output};
use ferrolb_linux::Waker;
use ferrolb_speaker_core::wire::Gossip;

use super::streams::Streams;

/// What a speaker with a member list needs beside its wire.
#[derive(Debug)]
pub struct MemberList {
    /// What its member is told.
    pub gossip: Gossip,
    /// Where it listens.
    pub sockets: Sockets,
}

/// The port of the member list, both its halves.
#[derive(Debug)]
pub struct Sockets {
    datagrams: UdpSocket,
    streams: TcpListener,
}

/// One half of the port cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("listen on {protocol} {address}: {error}")]
pub struct BindError {
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// Where.
    pub address: SocketAddr,
    /// Why not.
    #[source]
    pub error: io::Error,
}

impl BindError {
    /// Whether it may be another matter in a moment: a former process still holds the port, or the address is still to
    /// be given to the host.
    pub fn may_pass(&self) -> bool {
        matches!(self.error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
    }
}

impl Sockets {
    /// Takes the port, in the caller's network namespace.
    ///
    /// # Errors
    ///
    /// If one of the halves is in use, or the address is none of this host's.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |protocol| move |error| BindError { protocol, address, error };
        let streams = TcpListener::bind(address).map_err(failed("tcp"))?;
        let datagrams = UdpSocket::bind(address).map_err(failed("udp"))?;
        datagrams.set_nonblocking(true).map_err(failed("udp"))?;
        Ok(Self { datagrams, streams })
    }
}

/// The address that others reach this host by when it listens on all: where it would send from.
///
/// # Errors
///
/// If there is no route to anywhere.
pub fn advertised(bound: IpAddr) -> io::Result<IpAddr> {
    // Of networks for documentation, where nothing is ever sent; RFC 5737 and RFC 3849.
    let (any, far) = match bound {
        IpAddr::V4(address) if address.is_unspecified() => ("0.0.0.0:0", "192.0.2.1:9"),
        IpAddr::V6(address) if address.is_unspecified() => ("[::]:0", "[2001:db8::1]:9"),
        address => return Ok(address),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(far)?;
    Ok(socket.local_addr()?.ip())
}

/// The sockets in use.
#[derive(Debug)]
pub(super) struct Lines {
    datagrams: UdpSocket,
    streams: Streams,
    buffer: Box<[u8]>,
}

impl Lines {
    pub(super) fn open(list: &Gossip, sockets: Sockets, waker: Waker) -> io::Result<Self> {
        let (codec, patience) = (list.settings.codec.clone(), list.settings.profile.tcp_timeout);
        let patience = patience.max(Duration::from_millis(1));
        let streams = Streams::start(sockets.streams, codec, patience, waker)?;
        Ok(Self { datagrams: sockets.datagrams, streams, buffer: vec![0; LARGEST].into_boxed_slice() })
    }

    /// The next datagram, if there is one.
    pub(super) fn receive(&mut self) -> Option<(SocketAddr, &[u8])> {
        loop {
            match self.datagrams.recv_from(&mut self.buffer) {
                Ok((length, source)) => {
                    let source = SocketAddr::new(source.ip().to_canonical(), source.port());
                    return Some((source, self.buffer.get(..length)?));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Nothing there; or an error of something that was sent, which the next call does not have.
                Err(_) => return None,
            }
        }
    }

    /// The next thing that happened to a stream, if any.
    pub(super) fn next(&mut self) -> Option<Input<'static>> {
        self.streams.next()
    }

    /// Carries an output of the engine out; what that makes happen at once.
    pub(super) fn carry_out(&self, output: Output) -> Option<Input<'static>> {
        match output {
            Output::Datagram { to, bytes } => match self.datagrams.send_to(&bytes, to) {
                Ok(_) => None,
                // A full queue loses it, as any network may.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(_) => Some(Input::Unreachable(to)),
            },
            output => self.streams.carry_out(output),
        }
    }
}

impl AsFd for Lines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.datagrams.as_fd()
    }
}

/// No datagram is larger.
const LARGEST: usize = 65_536;

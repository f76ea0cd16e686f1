// SPDX-License-Identifier: Apache-2.0
//! Packet sockets for ARP and for Neighbor Discovery, one of each per interface.
//!
//! They need CAP_NET_RAW and nothing else: no address on the interface, no other capability. A classic filter
//! in the kernel drops what is not wanted before it costs anything, and is in place before the socket can
//! receive. Plain receive calls are used on purpose: a ring with block timers delays a single frame by up to a
//! millisecond.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use ferrolb_net_types::IfIndex;

use crate::error::{Attempt, Result, check};
use crate::filter::{self, Neighbourhoods, Targets};

/// A packet socket bound to one interface. Receiving never blocks.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    index: IfIndex,
    frames: Frames,
    /// Whether it receives.
    bound: Cell<bool>,
}

/// Which frames a socket gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// ARP requests that are for this host or for everybody.
    ArpRequests,
    /// Neighbor Solicitations and Advertisements for this host or a group, about addresses yet to be named by
    /// [`PacketSocket::narrow`]. Until then the socket costs nothing: other IPv6 packets do not pass it.
    NeighborDiscovery,
    /// ARP replies to this host.
    ArpReplies,
    /// Every ARP frame that comes in or goes out, other sockets' included, each with the kernel's time stamp.
    ObservedArp,
    /// As [`ObservedArp`](Self::ObservedArp), of Neighbor Solicitations and Advertisements.
    ObservedNdp,
    /// As [`ObservedArp`](Self::ObservedArp), of TCP over either family. A frame may hold several segments, put together: up
    /// to 64 KiB.
    ObservedTcp,
}

/// What is known of a received frame beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// How many bytes of the buffer are the frame's.
    pub length: usize,
    /// The VLAN of the tag that the kernel or the hardware took off, 0 to 4095.
    pub vlan: Option<u16>,
    /// Whether the frame was on its way out.
    pub outgoing: bool,
    /// When the kernel saw it, since 1970. Only with the observing kinds of [`Frames`].
    pub at: Option<Duration>,
}

impl PacketSocket {
    /// Opens a socket on an interface of the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` without CAP_NET_RAW, ENODEV if the interface is gone, ENETDOWN if it is down.
    pub fn open(index: IfIndex, frames: Frames) -> Result<Self> {
        Self::open_and_bind(index, frames)
            .attempting(|| format!("open a packet socket on interface {}", index.0))
    }

    fn open_and_bind(index: IfIndex, frames: Frames) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes numbers only. Protocol 0 receives nothing until bind.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let socket = Self { fd, index, frames, bound: Cell::new(false) };
        match frames {
            Frames::ArpRequests => {
                socket.filter(&filter::arp_requests(Targets::Any, 0))?;
                socket.switch_on(libc::SOL_PACKET, libc::PACKET_AUXDATA)?;
                socket.bind(libc::ETH_P_ARP)?;
            }
            Frames::ArpReplies => {
                socket.filter(&filter::ARP_REPLIES)?;
                socket.bind(libc::ETH_P_ARP)?;
            }
            Frames::NeighborDiscovery => {
                socket.filter(&filter::neighbor_discovery(Targets::These(&BTreeSet::new()), 0))?;
                socket.switch_on(libc::SOL_PACKET, libc::PACKET_AUXDATA)?;
                socket.bind(0)?; // sends, and receives nothing
            }
            Frames::ObservedArp | Frames::ObservedNdp | Frames::ObservedTcp => {
                socket.filter(match frames {
                    Frames::ObservedNdp => &filter::EVERY_NDP,
                    Frames::ObservedTcp => &filter::EVERY_TCP,
                    _ => &filter::EVERY_ARP,
                })?;
                socket.switch_on(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)?;
                socket.bind(libc::ETH_P_ALL)?; // a socket of one protocol does not see what goes out
            }
        }
        Ok(socket)
    }

    /// Takes the next frame; `None` if there is none. A frame longer than the buffer is cut.
    ///
    /// # Errors
    ///
    /// ENETDOWN once when the interface went down; the socket then receives nothing until it is up again.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut control = Control([0; 64]);
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all-zero bytes are valid for both.
        let (mut from, mut message): (libc::sockaddr_ll, libc::msghdr) = unsafe { mem::zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of_val(&from) as u32; // 20
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _; // 64; its type differs between C libraries
        // SAFETY: every pointer of the message is to a live local or to the caller's buffer, with its length.
        let length = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0) };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        };
        let outgoing = from.sll_pkttype == libc::PACKET_OUTGOING;
        let mut received = Received { length, vlan: None, outgoing, at: None };
        // SAFETY: the kernel filled in `message`, whose control buffer is alive; CMSG_NXTHDR stays inside it.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&raw const message);
            while let Some(found) = header.as_ref() {
                received.note(found, libc::CMSG_DATA(header));
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
        }
        Ok(Some(received))
    }

    /// From now on receives only what is about these addresses (those of the socket's family), so that nobody else's
    /// requests wake the thread.
    ///
    /// # Errors
    ///
    /// ENOMEM; else as [`open`](Self::open).
    pub fn narrow(&self, targets: &BTreeSet<IpAddr>) -> io::Result<()> {
        self.aim(Targets::These(targets))
    }

    /// As [`narrow`](Self::narrow), to addresses and their neighbours: less precise, and cheap however many they are.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn narrow_to_neighbourhoods(&self, targets: &Neighbourhoods) -> io::Result<()> {
        self.aim(Targets::Near(targets))
    }

    fn aim(&self, targets: Targets<'_>) -> io::Result<()> {
        let program = match self.frames {
            Frames::ArpRequests => filter::arp_requests,
            Frames::NeighborDiscovery => filter::neighbor_discovery,
            Frames::ArpReplies | Frames::ObservedArp | Frames::ObservedNdp | Frames::ObservedTcp => {
                return Ok(());
            }
        };
        // A program that is too large for the socket's memory is made smaller, at the price of its precision.
        let too_large = |error: &io::Error| error.raw_os_error() == Some(libc::ENOMEM);
        let mut attempts = filter::SIZES.into_iter().map(|most| self.filter(&program(targets, most)));
        let done = attempts.find(|done| !done.as_ref().is_err_and(too_large));
        done.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::ENOMEM)))?;
        if self.frames == Frames::NeighborDiscovery && targets.has_v6() { self.listen() } else { Ok(()) }
    }

    /// Sends a whole Ethernet frame.
    ///
    /// # Errors
    ///
    /// ENETDOWN if the interface is down, `WouldBlock` or ENOBUFS if its queue is full, ENXIO if it is gone.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length are those of the slice.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// A socket for Neighbor Discovery receives from then on. It goes on once it does: to stop costs a wait for all
    /// processors.
    fn listen(&self) -> io::Result<()> {
        if !self.bound.replace(true)
            && let Err(error) = self.bind(libc::ETH_P_IPV6)
        {
            self.bound.set(false);
            return Err(error);
        }
        Ok(())
    }

    /// Binds to the interface; receives what has this Ethernet type from then on.
    fn bind(&self, protocol: libc::c_int) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET.cast_unsigned() as u16; // 17
        address.sll_protocol = (protocol as u16).to_be(); // 0, 0x0003, 0x0806 or 0x86dd
        address.sll_ifindex = self.index.0.cast_signed();
        let length = size_of_val(&address) as u32; // 20
        // SAFETY: pointer and length describe the structure above.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
    }

    fn filter(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: program.len() as u16, // at most 4096
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel copies the program, which it only reads.
        unsafe { self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
    }

    fn switch_on(&self, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
        let on: libc::c_int = 1;
        // SAFETY: the options used here take an int.
        unsafe { self.set(level, option, &on) }
    }

    /// # Safety
    ///
    /// `T` is what the option takes.
    unsafe fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let size = size_of::<T>() as u32; // at most 16
        let value = std::ptr::from_ref(value).cast();
        // SAFETY: pointer and size describe a live value, and the caller vouches for its type.
        check(unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, value, size) }).map(|_| ())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Received {
    /// Takes what a control message says.
    ///
    /// # Safety
    ///
    /// `data` is the data of the control message `header`, as the kernel wrote it.
    unsafe fn note(&mut self, header: &libc::cmsghdr, data: *const u8) {
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: this message carries this structure, at no particular alignment.
                let auxiliary: libc::tpacket_auxdata =
                    unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                let tagged = auxiliary.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
                self.vlan = tagged.then_some(auxiliary.tp_vlan_tci & 0x0fff);
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: as above.
                let time: libc::timespec = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
                self.at = Some(Duration::from_secs(seconds) + Duration::from_nanos(nanos));
            }
            _ => {}
        }
    }
}

/// Room for control messages, aligned as their headers must be.
#[repr(align(8))]
struct Control([u8; 64]);

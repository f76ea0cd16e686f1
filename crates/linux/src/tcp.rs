// SPDX-License-Identifier: Apache-2.0
//! What a TCP socket to a router needs beyond what other libraries offer: a password, how far its packets come from, what
//! has come, whoever knows of it, and how far what was sent has come.
//!
//! Everything works on any socket, whoever made it. The password and the hops can be set before it connects and on one
//! that is connected. None of it needs a capability.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use ferrolb_net_types::IpFamily;
use libc::c_int;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

use crate::error::{Attempt, Result, check};

/// The longest password in bytes.
pub const LONGEST_PASSWORD: usize = 80;

/// Signs every segment to this peer with a password, and takes only such that are signed with it (RFC 2385); none if it
/// is empty. A connection that is there goes on with it: what the other side signed otherwise is lost, and sent again by
/// its TCP until both have the same.
///
/// # Errors
///
/// EINVAL if the password is longer than [`LONGEST_PASSWORD`] or the socket is not of the peer's family; ENOPROTOOPT if
/// the kernel was built without it; ENOENT if there was no password to take away.
pub fn set_password(socket: impl AsFd, peer: IpAddr, password: &[u8]) -> Result<()> {
    let words = || format!("set the TCP password for {peer}");
    let mut option = Md5Signature { key: [0; LONGEST_PASSWORD], ..Md5Signature::for_peer(peer) };
    let Some(key) = option.key.get_mut(..password.len()) else {
        let cause = io::Error::from_raw_os_error(libc::EINVAL);
        return Err(cause).attempting(words);
    };
    key.copy_from_slice(password);
    // It is at most 80.
    option.key_length = password.len() as u16;
    set(&socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &option).attempting(words)
}

/// After how many routers what is sent is dropped: 1 reaches only neighbours, 255 is what a peer that checks the distance
/// (RFC 5082) wants to see.
///
/// # Errors
///
/// EINVAL for 0; ENOPROTOOPT or EINVAL if the socket is of another family.
pub fn set_hops(socket: impl AsFd, family: IpFamily, hops: u8) -> Result<()> {
    let (level, name) = match family {
        IpFamily::V4 => (libc::IPPROTO_IP, libc::IP_TTL),
        IpFamily::V6 => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    };
    set(&socket, level, name, &c_int::from(hops)).attempting(|| format!("send with a hop limit of {hops}"))
}

/// Drops what comes with fewer hops left than this, so that nobody farther away than 255 less this can say anything
/// (RFC 5082); 0 takes all.
///
/// # Errors
///
/// ENOPROTOOPT or EINVAL if the socket is of another family.
pub fn set_least_hops(socket: impl AsFd, family: IpFamily, least: u8) -> Result<()> {
    let (level, name) = match family {
        IpFamily::V4 => (libc::IPPROTO_IP, libc::IP_MINTTL),
        IpFamily::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
    };
    set(&socket, level, name, &c_int::from(least))
        .attempting(|| format!("take only what has {least} hops left"))
}

/// Reads what lies there, without waiting: so many bytes, 0 once the other side has closed; `None` if there is nothing.
/// The kernel is asked, whatever an event loop knows or does not know yet.
///
/// # Errors
///
/// The kernel's: that the connection is no more, mostly.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match recv(socket.as_fd().as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(count) => return Ok(Some(count)),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// How many of the bytes that a connected socket has taken were not acknowledged by the other side yet, sent or not.
/// Where nobody reads what is sent, they stay once the other side has no more room for them.
///
/// # Errors
///
/// EINVAL if the socket listens; EBADF and ENOTTY on what is no socket.
pub fn unacknowledged(socket: impl AsFd) -> Result<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: the file descriptor is open as long as it is borrowed; the kernel writes one int (`SIOCOUTQ`, tcp(7),
    // which is this very number), to a place that is alive.
    let answer = unsafe {
        libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, std::ptr::from_mut::<c_int>(&mut bytes))
    };
    check(answer).attempting(|| "count what is not acknowledged")?;
    // The kernel counts no fewer than none.
    Ok(usize::try_from(bytes).unwrap_or_default())
}

/// What the kernel takes as the value of a socket option: plain data of a fixed layout.
///
/// # Safety
///
/// The type has no padding and nothing that only this process understands.
unsafe trait Plain {}

// SAFETY: an integer.
unsafe impl Plain for c_int {}

// SAFETY: bytes and integers; the fields fill it up, as a test says.
unsafe impl Plain for Md5Signature {}

/// `struct tcp_md5sig` (linux/tcp.h).
#[repr(C)]
struct Md5Signature {
    address: Address,
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface: c_int,
    key: [u8; LONGEST_PASSWORD],
}

/// `struct sockaddr_storage`, as bytes.
#[repr(C, align(8))]
struct Address([u8; 128]);

impl Md5Signature {
    fn for_peer(peer: IpAddr) -> Self {
        let mut address = Address([0; 128]);
        let mut put = |at: usize, bytes: &[u8]| address.0[at..at + bytes.len()].copy_from_slice(bytes);
        // Both are below 65536. The kernel looks at no port and no scope.
        match peer {
            IpAddr::V4(v4) => {
                put(0, &(libc::AF_INET as u16).to_ne_bytes());
                put(4, &v4.octets());
            }
            IpAddr::V6(v6) => {
                put(0, &(libc::AF_INET6 as u16).to_ne_bytes());
                put(8, &v6.octets());
            }
        }
        Self { address, flags: 0, prefix_length: 0, key_length: 0, interface: 0, key: [0; LONGEST_PASSWORD] }
    }
}

fn set<T: Plain>(socket: &impl AsFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the value is alive, plain data, and its length is given; the kernel only reads it.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(answer).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_structure_is_the_kernels() {
        // 128 of the address, 8 of four numbers, 80 of the key.
        assert_eq!(size_of::<Md5Signature>(), 216);
        assert_eq!(std::mem::offset_of!(Md5Signature, key), 136);
    }

    #[test]
    fn what_no_socket_can_have_is_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let peer = Ipv4Addr::LOCALHOST.into();
        let long = [b'x'; LONGEST_PASSWORD + 1];
        assert_eq!(set_password(&listener, peer, &long).unwrap_err().os_error(), Some(libc::EINVAL));
        set_password(&listener, peer, &long[1..]).unwrap();
        assert_eq!(set_hops(&listener, IpFamily::V4, 0).unwrap_err().os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn what_nobody_reads_stays_unacknowledged_until_somebody_does() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert_eq!(unacknowledged(&listener).unwrap_err().os_error(), Some(libc::EINVAL));
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        assert_eq!(unacknowledged(&stream).unwrap(), 0);
        stream.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = stream.write(&[0; 65_536]) {
            written += count;
        }
        let waits = unacknowledged(&stream).unwrap();
        assert!(waits > 0 && waits <= written, "{waits} of {written}");
        let mut rest = vec![0; 65_536];
        while written > 0 {
            written -= peer.read(&mut rest).unwrap();
        }
        // The last acknowledgement may be on its way.
        let end = Instant::now() + Duration::from_secs(10);
        while unacknowledged(&stream).unwrap() > 0 {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_lies_there_is_read_at_once_and_nothing_is_waited_for() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let mut buffer = [0; 3];
        assert_eq!(receive(&stream, &mut buffer).unwrap(), None);
        peer.write_all(b"abcd").unwrap();
        drop(peer);
        let mut next = || {
            let end = Instant::now() + Duration::from_secs(10);
            loop {
                if let Some(count) = receive(&stream, &mut buffer).unwrap() {
                    return buffer[..count].to_vec();
                }
                assert!(Instant::now() < end);
            }
        };
        assert_eq!([next(), next(), next()], [&b"abc"[..], b"d", b""]);
    }

    #[test]
    fn a_connection_that_is_there_takes_a_password_another_and_none() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = Ipv4Addr::LOCALHOST.into();
        for password in [&b"one"[..], b"another", b""] {
            set_password(&stream, peer, password).unwrap();
        }
        assert_eq!(set_password(&stream, peer, b"").unwrap_err().os_error(), Some(libc::ENOENT));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Listening sockets and the loop that takes connections off them.
//!
//! A connection costs its own task only; there is a bound on how many there can be, so that strangers cannot
//! fill the process's memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections that one server serves at a time.
const CONNECTIONS: u32 = 64;
const BACKLOG: i32 = 128;

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind {
    /// Every address of both families.
    Everywhere,
    /// 127.0.0.1 only.
    Loopback,
}

/// A port that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}. Is another process using the port? `ss -ltnp` shows it")]
pub struct ListenError {
    address: SocketAddr,
    error: std::io::Error,
}

/// Opens a listening socket; port 0 takes a free one.
///
/// # Errors
///
/// [`ListenError`] when the port is taken or forbidden.
pub fn listen(bind: Bind, port: u16) -> Result<TcpListener, ListenError> {
    let v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    match bind {
        Bind::Loopback => open(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        Bind::Everywhere => open(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port))
            // A kernel without IPv6 still has the other family.
            .or_else(|error| if no_ipv6(&error) { open(v4) } else { Err(error) }),
    }
}

fn no_ipv6(error: &ListenError) -> bool {
    use std::io::ErrorKind::{AddrNotAvailable, Unsupported};
    // EAFNOSUPPORT has no ErrorKind of its own.
    matches!(error.error.kind(), AddrNotAvailable | Unsupported) || error.error.raw_os_error() == Some(97)
}

fn open(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let attempt = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            // Whatever net.ipv6.bindv6only says: one socket for both families.
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    attempt().map_err(|error| ListenError { address, error })
}

/// Takes connections for ever and serves each in its own task.
pub async fn serve<H, F>(listener: TcpListener, handle: H)
where
    H: Fn(TcpStream) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    serve_until(std::future::pending(), CONNECTIONS, listener, handle).await;
}

/// The connections of a server that takes no more.
#[derive(Debug)]
pub(crate) struct Open {
    room: Arc<Semaphore>,
    connections: u32,
}

impl Open {
    /// Waits until all of them have ended.
    pub(crate) async fn closed(&self) {
        // The semaphore is never closed, so there is no other outcome.
        let _ = self.room.acquire_many(self.connections).await;
    }
}

/// Takes connections until `end` and serves each in its own task, `connections` at a time. What is open then goes on.
pub(crate) async fn serve_until<H, F>(
    end: impl Future<Output = ()>,
    connections: u32,
    listener: TcpListener,
    handle: H,
) -> Open
where
    H: Fn(TcpStream) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(connections as usize));
    let open = Open { room: Arc::clone(&room), connections };
    tokio::select! {
        () = end => {}
        () = take(&room, &listener, handle) => {}
    }
    open
}

async fn take<H, F>(room: &Arc<Semaphore>, listener: &TcpListener, handle: H)
where
    H: Fn(TcpStream) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        // The semaphore is never closed, so the error cannot happen.
        let Ok(permit) = Arc::clone(room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = handle(stream);
                tokio::spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            // Out of file descriptors, mostly; trying again at once would spin.
            Err(error) => {
                tracing::debug!(op = "accept", error = %error, "connection not taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_families_reach_the_wildcard_and_only_one_the_loopback() {
        let everywhere = listen(Bind::Everywhere, 0).unwrap();
        let port = everywhere.local_addr().unwrap().port();
        assert!(TcpStream::connect(("127.0.0.1", port)).await.is_ok());
        if everywhere.local_addr().unwrap().is_ipv6() {
            assert!(TcpStream::connect(("::1", port)).await.is_ok());
        }
        let loopback = listen(Bind::Loopback, 0).unwrap();
        assert_eq!(loopback.local_addr().unwrap().ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    }

    #[tokio::test]
    async fn a_taken_port_is_named_with_what_to_do() {
        let first = listen(Bind::Loopback, 0).unwrap();
        let port = first.local_addr().unwrap().port();
        let text = listen(Bind::Loopback, port).unwrap_err().to_string();
        assert!(text.starts_with(&format!("cannot listen on 127.0.0.1:{port}: ")), "{text}");
        assert!(text.contains("ss -ltnp"), "{text}");
    }
}

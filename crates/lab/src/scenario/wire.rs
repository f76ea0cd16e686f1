// SPDX-License-Identifier: Apache-2.0
//! What a host of the bench sees on its wire, and what it sends: frames, requests, neighbour entries.
//!
//! ARP is read and written here byte by byte (RFC 826), on purpose apart from the product's own code: a fault there
//! must not hide itself.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use ferrolb_linux::inspect::{self, Interface};
use ferrolb_linux::probe::{Listener, Prober};
use ferrolb_linux::{Namespace, Netlink};
use ferrolb_net_types::Mac;

use super::cluster::eventually;
use crate::host::Host;

/// How long one HTTP request may take while the address moves.
const REQUEST_LIMIT: Duration = Duration::from_secs(3);

/// How long it may take when it is repeated until it succeeds. A connection that was opened before the node had its
/// rules stays lost, so a new one is tried soon.
const ATTEMPT_LIMIT: Duration = Duration::from_millis(400);

/// What an ARP message asks for or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Request,
    Reply,
}

/// An ARP message for IPv4 over Ethernet, as it was on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Arp {
    /// When it was seen, by the kernel's clock.
    pub(crate) at: Duration,
    /// Length of the frame in bytes, without the checksum.
    pub(crate) length: usize,
    pub(crate) destination: Mac,
    pub(crate) source: Mac,
    pub(crate) operation: Operation,
    pub(crate) sender_mac: Mac,
    pub(crate) sender: Ipv4Addr,
    pub(crate) target: Ipv4Addr,
}

impl Arp {
    /// The message in a frame; `None` if it is none that a host would understand.
    pub(crate) fn parse(at: Duration, frame: &[u8]) -> Option<Self> {
        let field = |from: usize, to: usize| frame.get(from..to);
        let mac = |from: usize| Some(Mac(field(from, from + 6)?.try_into().ok()?));
        let address = |from: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(field(from, from + 4)?).ok()?));
        // EtherType ARP, hardware Ethernet, protocol IPv4, lengths 6 and 4.
        (field(12, 20)? == [0x08, 0x06, 0, 1, 0x08, 0, 6, 4]).then_some(())?;
        let operation = match field(20, 22)? {
            [0, 1] => Operation::Request,
            [0, 2] => Operation::Reply,
            _ => return None,
        };
        Some(Self {
            at,
            length: frame.len(),
            destination: mac(0)?,
            source: mac(6)?,
            operation,
            sender_mac: mac(22)?,
            sender: address(28)?,
            // The target's hardware address, bytes 32 to 37, is what the sender does not know.
            target: address(38)?,
        })
    }

    pub(crate) fn is_reply_for(&self, address: Ipv4Addr) -> bool {
        self.operation == Operation::Reply && self.sender == address && self.target != address
    }

    pub(crate) fn is_gratuitous_for(&self, address: Ipv4Addr) -> bool {
        self.sender == address && self.target == address
    }
}

/// ARP messages on an interface, collected until [`stop`](Self::stop).
#[derive(Debug)]
pub(crate) struct Capture {
    end: Arc<AtomicBool>,
    heard: Arc<Mutex<Vec<Arp>>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Capture {
    /// Starts to listen; what is on the wire once this returns is heard.
    pub(crate) fn start(namespace: &Namespace, interface: &str) -> Result<Self> {
        let mut listener = listen(namespace, interface)?;
        let end = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&end);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&heard);
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                if let Some(next) = listener.next(Instant::now() + Duration::from_millis(20))? {
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    all.extend(Arp::parse(next.at, &next.frame));
                }
            }
            Ok(())
        });
        Ok(Self { end, heard, thread: Some(thread) })
    }

    /// Waits for a message.
    pub(crate) async fn hears(&self, limit: Duration, test: impl Fn(&Arp) -> bool) -> Result<Arp> {
        eventually(limit, async || {
            let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.iter().find(|arp| test(arp)).cloned().context("no such frame was heard")
        })
        .await
    }

    /// Ends the capture: what passed the interface, in order, the host's own frames included.
    pub(crate) fn stop(mut self) -> Result<Vec<Arp>> {
        self.end.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the capture has ended already")?;
        thread.join().map_err(|_| anyhow!("the capture panicked"))??;
        Ok(std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

fn listen(namespace: &Namespace, interface: &str) -> Result<Listener> {
    let own = interfaces(namespace)?.into_iter().find(|own| own.name.as_str() == interface);
    let own = own.with_context(|| format!("there is no {interface}"))?;
    Ok(namespace.run(|| Listener::open(own.index))??)
}

/// The hardware addresses in the answers to one request of `host` for `target`.
pub(crate) async fn ask(
    namespace: &Namespace,
    host: Host,
    target: Ipv4Addr,
    window: Duration,
) -> Result<BTreeSet<Mac>> {
    ask_on(namespace, (host.interface(), host.address()), target, window).await
}

/// The same from this interface, with this address as the sender's.
pub(crate) async fn ask_on(
    namespace: &Namespace,
    (interface, own): (&str, Ipv4Addr),
    target: Ipv4Addr,
    window: Duration,
) -> Result<BTreeSet<Mac>> {
    let mut prober = namespace.run(|| Prober::open(interface, own))??;
    blocking(move || Ok(prober.answers(target, window)?.iter().map(|answer| answer.mac).collect())).await
}

/// Waits until there was no gratuitous frame for the address during `window`.
pub(crate) async fn quiet(
    namespace: &Namespace,
    address: Ipv4Addr,
    window: Duration,
    limit: Duration,
) -> Result<()> {
    quiet_on(namespace, Host::Client.interface(), address, window, limit).await
}

/// The same on this interface.
pub(crate) async fn quiet_on(
    namespace: &Namespace,
    interface: &str,
    address: Ipv4Addr,
    window: Duration,
    limit: Duration,
) -> Result<()> {
    let mut listener = listen(namespace, interface)?;
    blocking(move || {
        let began = Instant::now();
        let mut last = began;
        while last.elapsed() < window {
            ensure!(began.elapsed() < limit, "gratuitous frames for {address} do not end");
            if let Some(next) = listener.next(Instant::now() + Duration::from_millis(50))?
                && Arp::parse(next.at, &next.frame).is_some_and(|arp| arp.is_gratuitous_for(address))
            {
                last = Instant::now();
            }
        }
        Ok(())
    })
    .await
}

/// Requests sent one after the other while something happens.
#[derive(Debug)]
pub(crate) struct Requests {
    enough: Arc<AtomicBool>,
    thread: JoinHandle<Outcome>,
}

/// What became of them.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How many were sent.
    pub(crate) count: usize,
    /// Number of the request, and what went wrong.
    pub(crate) failures: Vec<(usize, String)>,
    /// The time the slowest one took.
    pub(crate) slowest: Duration,
}

impl Requests {
    /// Sends `count` HTTP requests, each on a new connection, one every `between`.
    pub(crate) fn start(
        namespace: &Namespace,
        address: (Ipv4Addr, u16),
        count: usize,
        between: Duration,
    ) -> Result<Self> {
        let namespace = Namespace::open(namespace.name())?;
        let address = SocketAddr::from(address);
        let enough = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&enough);
        let thread = std::thread::spawn(move || {
            let mut outcome = Outcome::default();
            if let Err(error) = namespace.enter() {
                outcome.failures.push((0, error.to_string()));
                return outcome;
            }
            for number in 1..=count {
                if told.load(Ordering::Relaxed) {
                    break;
                }
                outcome.count = number;
                let began = Instant::now();
                if let Err(error) = get(address, REQUEST_LIMIT) {
                    outcome.failures.push((number, format!("{error:#}")));
                }
                let took = began.elapsed();
                outcome.slowest = outcome.slowest.max(took);
                std::thread::sleep(between.saturating_sub(took));
            }
            outcome
        });
        Ok(Self { enough, thread })
    }

    /// Sends HTTP requests, each on a new connection, one every `between`, until [`Self::enough`].
    pub(crate) fn until_told(
        namespace: &Namespace,
        address: (Ipv4Addr, u16),
        between: Duration,
    ) -> Result<Self> {
        Self::start(namespace, address, usize::MAX, between)
    }

    /// Sends no more, and waits for the last one.
    pub(crate) async fn enough(self) -> Result<Outcome> {
        self.enough.store(true, Ordering::Relaxed);
        self.finish().await
    }

    /// Waits for the last one.
    pub(crate) async fn finish(self) -> Result<Outcome> {
        blocking(move || self.thread.join().map_err(|_| anyhow!("the requests panicked"))).await
    }
}

/// The body of the answer to one HTTP request.
pub(crate) async fn body(namespace: &Namespace, address: impl Into<SocketAddr>) -> Result<String> {
    let (namespace, address) = (Namespace::open(namespace.name())?, address.into());
    blocking(move || namespace.run(|| get(address, ATTEMPT_LIMIT))?).await
}

/// Sends a request whose outcome does not matter: the kernel looks the address up for it.
pub(crate) async fn touch(namespace: &Namespace, address: impl Into<SocketAddr>) -> Result<()> {
    let namespace = Namespace::open(namespace.name())?;
    let address = address.into();
    blocking(move || {
        let _ = namespace.run(|| get(address, ATTEMPT_LIMIT))?;
        Ok(())
    })
    .await
}

/// Whether a TCP connection to the address is answered: accepted, or refused.
pub(crate) async fn reaches(namespace: &Namespace, address: (Ipv4Addr, u16)) -> Result<bool> {
    let namespace = Namespace::open(namespace.name())?;
    let connect = move || TcpStream::connect_timeout(&address.into(), ATTEMPT_LIMIT);
    blocking(move || {
        Ok(match namespace.run(connect)? {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        })
    })
    .await
}

fn get(address: SocketAddr, limit: Duration) -> Result<String> {
    let deadline = Instant::now() + limit;
    let mut stream = TcpStream::connect_timeout(&address, limit).context("connect")?;
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut said = Vec::new();
    let mut piece = [0; 1024];
    loop {
        if let Some(body) = complete(&said) {
            ensure!(said.starts_with(b"HTTP/1.1 200 "), "answered {:?}", String::from_utf8_lossy(&said));
            return Ok(body);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let count = stream.read(&mut piece).context("read the answer")?;
        ensure!(count > 0, "the connection ended within the answer");
        said.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
}

/// The body of an answer that has come in whole.
fn complete(said: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(said);
    let (head, body) = said.split_once("\r\n\r\n")?;
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())?;
    body.get(..length).map(|body| body.trim_end().to_owned())
}

/// All interfaces of a namespace with their addresses.
pub(crate) fn interfaces(namespace: &Namespace) -> Result<Vec<Interface>> {
    Ok(inspect::interfaces(&mut Netlink::open_in(namespace)?)?)
}

/// The hardware address that a namespace's neighbour table has for an address.
pub(crate) fn neighbour(namespace: &Namespace, address: impl Into<IpAddr>) -> Result<Option<Mac>> {
    let address = address.into();
    let table = inspect::neighbours(&mut Netlink::open_in(namespace)?)?;
    Ok(table.into_iter().find(|entry| entry.address == address).and_then(|entry| entry.mac))
}

/// Runs what blocks on a thread of its own.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_replies_and_gratuitous_frames_are_told_apart() {
        let (target, client) = (Ipv4Addr::new(192, 168, 10, 200), Host::Client.mac().0);
        let header = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1];
        let sender = Host::Client.address().octets();
        let mut frame =
            [&[0xff; 6][..], &client, &header, &client, &sender, &[0; 6], &target.octets()].concat();
        let arp = Arp::parse(Duration::ZERO, &frame).unwrap();
        assert_eq!(arp.operation, Operation::Request);
        assert_eq!(
            (arp.source, arp.sender_mac, arp.sender),
            (Host::Client.mac(), Host::Client.mac(), Host::Client.address())
        );
        assert_eq!((arp.destination, arp.target, arp.length), (Mac::BROADCAST, target, 42));
        assert!(!arp.is_gratuitous_for(target) && !arp.is_reply_for(Host::Client.address()));
        for length in 0..frame.len() {
            assert!(Arp::parse(Duration::ZERO, &frame[..length]).is_none(), "{length}");
        }
        // A reply of the client about itself.
        frame[21] = 2;
        assert!(Arp::parse(Duration::ZERO, &frame).unwrap().is_reply_for(Host::Client.address()));
        frame[38..42].copy_from_slice(&Host::Client.address().octets());
        let gratuitous = Arp::parse(Duration::ZERO, &frame).unwrap();
        assert!(gratuitous.is_gratuitous_for(Host::Client.address()));
        assert!(!gratuitous.is_reply_for(Host::Client.address()));
    }

    #[test]
    fn an_answer_is_complete_when_its_whole_body_is_there() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello\n";
        for length in 0..answer.len() {
            assert_eq!(complete(&answer[..length]), None, "{length}");
        }
        assert_eq!(complete(answer).as_deref(), Some("hello"));
    }
}

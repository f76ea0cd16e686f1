// SPDX-License-Identifier: Apache-2.0
//! Peers that wait for a session, let it come up when they are told to, and count what they are told.
//!
//! ```text
//!  dialler ── OPEN ──►  peer        the gate: a session that lacks nothing but the peer's KEEPALIVE waits until
//!          ◄── OPEN ──              every session that is to come up at once does
//!          ── KEEPALIVE ──►
//!          ◄── KEEPALIVE ──  at the bench's word: from here on it is timed
//!          ── UPDATEs ──►    counted as they are read
//! ```
//!
//! Each has an address, a thread and a socket of its own on the router. Who waits at the gate for longer than its hold time
//! gives up, and dials again.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use ferrolb_bgp::wire::{Context, Families, HoldTime, Message, Open, Reader, RouterId, Update, keepalive};
use ferrolb_linux::Netlink;
use ferrolb_net_types::Asn;
use socket2::SockRef;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::bench_handle::Bench;
use crate::host::Host;

/// The peers' autonomous system.
pub(super) const ASN: u32 = 64_513;
/// The system of whoever has a session with them.
pub(super) const THEIRS: u32 = 64_512;

const PORT: u16 = 179;

/// The address of a peer, on the segment of the nodes.
pub(super) fn address(index: usize) -> Ipv4Addr {
    let last = u8::try_from(index).map_or(u8::MAX, |index| 61 + index);
    Ipv4Addr::new(192, 168, 10, last)
}

/// What a peer was told since its session came up, or since [`Peers::forget`].
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// Prefixes that were announced.
    pub(super) announced: usize,
    /// Prefixes that were withdrawn.
    pub(super) withdrawn: usize,
    /// UPDATEs with prefixes.
    pub(super) updates: usize,
    /// Whether the end of the table was told.
    pub(super) end_of_rib: bool,
    /// When the last UPDATE with prefixes was read.
    pub(super) last: Option<Moment>,
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at: Instant,
    /// Since 1970.
    pub(super) wall: Duration,
}

impl Moment {
    pub(super) fn now() -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { at: Instant::now(), wall }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Peers {
    all: Vec<Peer>,
    news: UnboundedReceiver<(usize, News)>,
}

#[derive(Debug)]
struct Peer {
    heard: Heard,
    /// The session waits at the gate.
    ready: bool,
    /// Why the last session ended.
    ended: Option<String>,
    gate: Sender<()>,
    listener: TcpListener,
    line: Line,
}

/// The connection of a peer, for whoever wants to end it.
type Line = Arc<Mutex<Option<TcpStream>>>;

#[derive(Debug)]
enum News {
    Ready,
    Told { at: Moment, announced: usize, withdrawn: usize, updates: usize, end_of_rib: bool },
    Ended(String),
}

impl Peers {
    /// So many peers, who wait for connections on the router.
    ///
    /// # Errors
    /// The router cannot have their addresses, or port 179 is taken there.
    pub(super) fn listen(bench: &Bench, count: usize) -> Result<Self> {
        let (tell, news) = unbounded_channel();
        let namespace = bench.namespace(Host::Router);
        let mut link = Netlink::open_in(namespace)?;
        let mut all = Vec::new();
        for index in 0..count {
            let own = address(index);
            link.add_address(Host::Router.interface(), own.into(), 24)?;
            let listener = namespace.run(|| TcpListener::bind((own, PORT)))?;
            let listener = listener.with_context(|| format!("listen on {own}:{PORT}"))?;
            let (gate, opened) = mpsc::channel();
            let line = Line::default();
            let server = Server {
                index,
                listener: listener.try_clone()?,
                open: open(own)?,
                gate: opened,
                line: Arc::clone(&line),
                news: tell.clone(),
            };
            std::thread::Builder::new().name(format!("peer-{index}")).spawn(move || server.run())?;
            all.push(Peer { heard: Heard::default(), ready: false, ended: None, gate, listener, line });
        }
        Ok(Self { all, news })
    }

    /// Lets the sessions of the first `count` peers come up, all at once, as soon as all of them are about to: the moment.
    ///
    /// # Errors
    /// They are not within `limit`.
    pub(super) async fn come_up(&mut self, count: usize, limit: Duration) -> Result<Moment> {
        self.until(count, limit, |peer| peer.ready).await.context("sessions do not come up")?;
        self.forget();
        let now = Moment::now();
        for peer in self.all.iter_mut().take(count) {
            (peer.ready, peer.ended) = (false, None);
            peer.gate.send(()).ok().context("a peer's thread ended")?;
        }
        Ok(now)
    }

    /// Forgets what was told so far.
    pub(super) fn forget(&mut self) {
        self.all.iter_mut().for_each(|peer| peer.heard = Heard::default());
    }

    /// Waits until each of the first `count` peers was told enough: what each was told.
    ///
    /// # Errors
    /// Not within `limit`, or a session ended.
    pub(super) async fn told(
        &mut self,
        count: usize,
        limit: Duration,
        enough: impl Fn(&Heard) -> bool,
    ) -> Result<Vec<Heard>> {
        self.until(count, limit, |peer| enough(&peer.heard) || peer.ended.is_some()).await?;
        let peers = self.all.iter().take(count);
        peers
            .map(|peer| match &peer.ended {
                Some(why) => bail!("a session ended: {why}"),
                None => Ok(peer.heard.clone()),
            })
            .collect()
    }

    /// Takes note of what comes for so long.
    pub(super) async fn listen_for(&mut self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while let Ok(Some(news)) = tokio::time::timeout_at(end, self.news.recv()).await {
            self.note(news);
        }
    }

    /// Ends the sessions of the first `count` peers; who dials again waits at the gate.
    ///
    /// # Errors
    /// They do not end.
    pub(super) async fn hang_up(&mut self, count: usize) -> Result<()> {
        for peer in self.all.iter_mut().take(count).filter(|peer| !peer.ready && peer.ended.is_none()) {
            if let Some(stream) = lock(&peer.line).as_ref() {
                // One that is gone already is what is wanted.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.until(count, ENDED_WITHIN, |peer| peer.ready || peer.ended.is_some()).await
    }

    async fn until(&mut self, count: usize, limit: Duration, enough: impl Fn(&Peer) -> bool) -> Result<()> {
        let end = tokio::time::Instant::now() + limit;
        while !self.all.iter().take(count).all(&enough) {
            match tokio::time::timeout_at(end, self.news.recv()).await {
                Ok(Some(news)) => self.note(news),
                Ok(None) => bail!("the peers' threads ended"),
                Err(_) => {
                    let states: Vec<String> = self.all.iter().take(count).map(Peer::describe).collect();
                    bail!("after {} s: {}", limit.as_secs(), states.join("; "));
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, (index, news): (usize, News)) {
        let Some(peer) = self.all.get_mut(index) else { return };
        match news {
            News::Ready => peer.ready = true,
            News::Ended(why) => (peer.ready, peer.ended) = (false, Some(why)),
            News::Told { at, announced, withdrawn, updates, end_of_rib } => {
                let heard = &mut peer.heard;
                heard.announced += announced;
                heard.withdrawn += withdrawn;
                heard.updates += updates;
                heard.end_of_rib |= end_of_rib;
                if updates > 0 {
                    heard.last = Some(at);
                }
            }
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for peer in &self.all {
            // The threads wake up, find nobody and end.
            let _ = SockRef::from(&peer.listener).shutdown(Shutdown::Both);
            if let Some(stream) = lock(&peer.line).as_ref() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Peer {
    fn describe(&self) -> String {
        let Self { heard, ready, ended, .. } = self;
        let Heard { announced, withdrawn, updates, .. } = heard;
        let state = if *ready { "waits to come up" } else { ended.as_deref().unwrap_or("is up or awaited") };
        format!("{state}, {announced} announced and {withdrawn} withdrawn by {updates} UPDATEs")
    }
}

/// The thread of a peer.
struct Server {
    index: usize,
    listener: TcpListener,
    open: Vec<u8>,
    gate: Receiver<()>,
    line: Line,
    news: UnboundedSender<(usize, News)>,
}

impl Server {
    fn run(self) {
        while let Ok((stream, _)) = self.listener.accept() {
            *lock(&self.line) = stream.try_clone().ok();
            let why = match self.converse(stream) {
                Ok(()) => "the connection was closed".to_owned(),
                Err(error) => format!("{error:#}"),
            };
            *lock(&self.line) = None;
            if self.tell(News::Ended(why)).is_err() {
                return;
            }
        }
    }

    fn tell(&self, news: News) -> Result<()> {
        self.news.send((self.index, news)).ok().context("nobody counts any more")
    }

    /// One session, to its end.
    fn converse(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let context = Context { four_octet_as: true, internal: false, families: Families::V4 };
        let (mut reader, mut buffer) = (Reader::new(), vec![0; 1 << 18]);
        let mut up = false;
        stream.set_read_timeout(Some(KEEPALIVE))?;
        loop {
            let count = match stream.read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if up {
                        stream.write_all(&keepalive())?;
                    }
                    continue;
                }
                read => read?,
            };
            let at = Moment::now();
            if count == 0 {
                return Ok(());
            }
            let mut rest = buffer.get(..count).unwrap_or_default();
            let (mut announced, mut withdrawn, mut updates, mut end_of_rib) = (0, 0, 0, false);
            while let Some(message) = reader.read(&mut rest, &context)? {
                match message {
                    Message::Open(_) => stream.write_all(&self.open)?,
                    Message::Keepalive if !up => {
                        self.wait(&mut stream)?;
                        stream.write_all(&keepalive())?;
                        up = true;
                    }
                    Message::Update(received) => {
                        let before = announced + withdrawn;
                        for update in &received.updates {
                            match update {
                                Update::Announce(announce) => announced += announce.prefixes().len(),
                                Update::Withdraw(prefixes) => withdrawn += prefixes.as_slice().len(),
                                Update::EndOfRib(_) => end_of_rib = true,
                            }
                        }
                        updates += usize::from(announced + withdrawn > before);
                    }
                    Message::Notification(notification) => bail!("{notification:?}"),
                    Message::Keepalive | Message::RouteRefresh(_) => {}
                }
            }
            if updates > 0 || end_of_rib {
                self.tell(News::Told { at, announced, withdrawn, updates, end_of_rib })?;
            }
        }
    }

    /// Waits at the gate, as long as the other side does.
    fn wait(&self, stream: &mut TcpStream) -> Result<()> {
        // A word for a session that has ended meanwhile is not for this one.
        while self.gate.try_recv().is_ok() {}
        self.tell(News::Ready)?;
        loop {
            match self.gate.recv_timeout(GLANCE) {
                Ok(()) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => bail!("nobody counts any more"),
                Err(RecvTimeoutError::Timeout) => {
                    stream.set_nonblocking(true)?;
                    let read = stream.read(&mut [0; 64]);
                    stream.set_nonblocking(false)?;
                    let on = match read {
                        // There is nothing to say yet but that it is still there.
                        Ok(count) => count > 0 && count % keepalive().len() == 0,
                        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
                    };
                    ensure!(on, "the session ended before it was up");
                }
            }
        }
    }
}

/// What a peer with this address says of itself.
fn open(own: Ipv4Addr) -> Result<Vec<u8>> {
    let asn = Asn::new(ASN).context("the number of a system")?;
    let id = RouterId::new(own).context("an identifier")?;
    let hold = HoldTime::seconds(240).context("a hold time")?;
    Ok(Open::new(asn, hold, id, Families::V4, Vec::new()).encode())
}

/// What is in it is whole at every moment.
fn lock(line: &Line) -> MutexGuard<'_, Option<TcpStream>> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often a peer says that it is still there: several times in every daemon's hold time.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// How often a session that waits at the gate is looked at.
const GLANCE: Duration = Duration::from_millis(50);

const ENDED_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use ferrolb_bgp::wire::{AsPath, Attributes, NextHop, announce, end_of_rib};
    use ferrolb_net_types::{IpFamily, Prefix};

    use super::*;

    fn read(stream: &mut TcpStream, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_session_waits_for_the_word_and_what_it_tells_is_counted() {
        let own = Ipv4Addr::LOCALHOST;
        let listener = TcpListener::bind((own, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let ((gate, opened), line, (tell, news)) = (mpsc::channel(), Line::default(), unbounded_channel());
        let server = Server {
            index: 0,
            listener: listener.try_clone().unwrap(),
            open: open(own).unwrap(),
            gate: opened,
            line: Arc::clone(&line),
            news: tell,
        };
        std::thread::spawn(move || server.run());
        let peer = Peer { heard: Heard::default(), ready: false, ended: None, gate, listener, line };
        let mut peers = Peers { all: vec![peer], news };
        let limit = Duration::from_secs(10);

        let mut stream = TcpStream::connect(address).unwrap();
        let own_open = open(own).unwrap();
        stream.write_all(&own_open).unwrap();
        assert_eq!(read(&mut stream, own_open.len()), own_open);
        stream.write_all(&keepalive()).unwrap();
        peers.come_up(1, limit).await.unwrap();
        assert_eq!(read(&mut stream, keepalive().len()), keepalive());

        let prefixes = [1, 2].map(|last| Prefix::host(Ipv4Addr::new(192, 0, 2, last).into()));
        let context = Context { four_octet_as: true, internal: false, families: Families::V4 };
        let block =
            Attributes { as_path: AsPath::own(Asn::new(THEIRS).unwrap(), false), ..Attributes::default() };
        let mut bytes = Vec::new();
        announce(&mut bytes, &block.block(NextHop::V4(own), &context), &prefixes).unwrap();
        end_of_rib(&mut bytes, IpFamily::V4);
        stream.write_all(&bytes).unwrap();
        let heard = peers.told(1, limit, |heard| heard.end_of_rib).await.unwrap().remove(0);
        assert_eq!((heard.announced, heard.withdrawn, heard.updates), (2, 0, 1));
        assert!(heard.last.is_some());

        drop(stream);
        assert!(peers.told(1, limit, |heard| heard.withdrawn > 0).await.is_err(), "nobody is left to tell");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The member list as MetalLB v0.16.1 uses memberlist: it is a member from the first moment, and joins afterwards.
//!
//! Its Pods are listed once at the start and again when five minutes are over; joins happen once a minute and when the own Node
//! changes, to addresses that no member has.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ferrolb_gossip::wire::{Codec, Key, KeyRule, Keyring, StreamMessage, StreamReader};
use ferrolb_gossip::{Engine, Input, Name, Output, Settings, StreamFailure, StreamId};
use ferrolb_net_types::{NodeName, Time};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{mpsc, oneshot};

use super::MemberList;
use super::log;

/// Who is a member now, the own node included; shared with whoever decides.
pub(super) type Usable = Arc<Mutex<BTreeSet<NodeName>>>;

/// The own membership.
#[derive(Clone)]
pub(super) struct Membership {
    usable: Usable,
    asks: mpsc::UnboundedSender<Event>,
}

enum Event {
    Datagram(SocketAddr, Vec<u8>),
    Accepted(TcpStream, SocketAddr),
    Connected(StreamId),
    Said(StreamId, Result<StreamMessage, StreamFailure>),
    Closed(StreamId),
    Join(Vec<IpAddr>),
    Leave(oneshot::Sender<()>),
}

impl Membership {
    /// Opens the sockets and is a member. `changed` is called whenever somebody joins, leaves or changes.
    ///
    /// # Errors
    /// The port is taken.
    pub(super) async fn start(
        node: &NodeName,
        list: &MemberList,
        changed: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let context = || format!("could not set up network transport on {}", list.address);
        let udp = Arc::new(UdpSocket::bind(list.address).await.with_context(context)?);
        let tcp = TcpListener::bind(list.address).await.with_context(context)?;
        let keyring =
            Key::of_secret(&list.secret, KeyRule::Truncated).map(|key| Keyring::new(key, Vec::new()));
        let settings = Settings::plain(Name::from(node.as_str()), list.address, Codec::new(keyring));

        let (events, received) = mpsc::unbounded_channel();
        let (datagrams, socket) = (events.clone(), Arc::clone(&udp));
        tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            loop {
                // An error is a datagram of ours that was not welcome somewhere.
                let Ok((length, source)) = socket.recv_from(&mut buffer).await else { continue };
                let bytes = buffer.get(..length).unwrap_or_default().to_vec();
                if datagrams.send(Event::Datagram(source, bytes)).is_err() {
                    return;
                }
            }
        });
        let streams = events.clone();
        tokio::spawn(async move {
            while let Ok((stream, source)) = tcp.accept().await {
                if streams.send(Event::Accepted(stream, source)).is_err() {
                    return;
                }
            }
        });
        let usable = Usable::default();
        let owner = Owner {
            codec: settings.codec.clone(),
            port: list.address.port(),
            udp,
            events: events.clone(),
            usable: Arc::clone(&usable),
            accepted: BTreeMap::new(),
            streams: 0,
            nonces: 0,
            began: Instant::now(),
            left: None,
        };
        let engine = Engine::new(owner.now(), settings, seed());
        owner.publish(&engine);
        tokio::spawn(owner.run(engine, received, changed));
        Ok(Self { usable, asks: events })
    }

    /// Who is alive or suspected, the own node included.
    pub(super) fn usable(&self) -> BTreeSet<NodeName> {
        self.usable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Joins those of the addresses that no member has.
    pub(super) fn join(&self, addresses: Vec<IpAddr>) {
        let _ = self.asks.send(Event::Join(addresses));
    }

    /// Says goodbye; a second is enough, or has to be.
    pub(super) async fn leave(&self) {
        let (told, left) = oneshot::channel();
        let _ = self.asks.send(Event::Leave(told));
        let _ = tokio::time::timeout(Duration::from_secs(1), left).await;
    }
}

struct Owner {
    codec: Codec,
    port: u16,
    udp: Arc<UdpSocket>,
    events: mpsc::UnboundedSender<Event>,
    usable: Usable,
    accepted: BTreeMap<StreamId, OwnedWriteHalf>,
    streams: u64,
    nonces: u32,
    began: Instant,
    left: Option<oneshot::Sender<()>>,
}

impl Owner {
    fn now(&self) -> Time {
        Time::after(self.began.elapsed())
    }

    fn publish(&self, engine: &Engine) {
        let usable = engine.members().filter(|member| member.is_usable());
        let names = usable.filter_map(|member| member.name.as_str().map(NodeName::from)).collect();
        *self.usable.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    async fn run(
        mut self,
        mut engine: Engine,
        mut received: mpsc::UnboundedReceiver<Event>,
        changed: impl Fn(),
    ) {
        loop {
            let mut news = false;
            while let Some(output) = engine.poll() {
                news |= matches!(output, Output::Member { .. });
                self.act(output).await;
            }
            if news {
                self.publish(&engine);
                changed();
            }
            let deadline = engine.next_deadline().map(|deadline| deadline - self.now());
            let wait = tokio::time::sleep(deadline.unwrap_or(Duration::from_secs(1)));
            tokio::select! {
                biased;
                event = received.recv() => match event {
                    Some(event) => self.take(&mut engine, event),
                    None => return,
                },
                () = wait => {}
            }
            if received.is_empty() && engine.next_deadline().is_some_and(|deadline| deadline <= self.now()) {
                engine.handle_timeout(self.now());
            }
        }
    }

    fn take(&mut self, engine: &mut Engine, event: Event) {
        let now = self.now();
        match event {
            Event::Datagram(source, bytes) => engine.handle(now, Input::Datagram { source, bytes: &bytes }),
            Event::Accepted(stream, source) => {
                self.streams += 1;
                let id = StreamId::Accepted(self.streams);
                engine.handle(now, Input::Accepted { stream: self.streams, source });
                let (reading, writing) = stream.into_split();
                self.accepted.insert(id, writing);
                let (codec, events) = (self.codec.clone(), self.events.clone());
                tokio::spawn(async move {
                    let said = read(reading, &codec, StreamReader::accepted()).await;
                    let _ = events.send(Event::Said(id, said));
                });
            }
            Event::Connected(stream) => engine.handle(now, Input::Connected(stream)),
            Event::Said(stream, Ok(message)) => engine.handle(now, Input::Received { stream, message }),
            Event::Said(stream, Err(failure)) => engine.handle(now, Input::Failed { stream, failure }),
            Event::Closed(stream) => engine.handle(now, Input::Closed(stream)),
            Event::Join(addresses) => {
                let known: Vec<SocketAddr> = engine
                    .members()
                    .filter(|member| member.is_usable())
                    .filter_map(ferrolb_gossip::Member::socket)
                    .collect();
                let wanted: Vec<SocketAddr> = addresses
                    .into_iter()
                    .map(|address| SocketAddr::new(address, self.port))
                    .filter(|address| !known.contains(address))
                    .collect();
                if !wanted.is_empty() {
                    engine.handle(now, Input::Join(&wanted));
                }
            }
            Event::Leave(told) => {
                self.left = Some(told);
                engine.handle(now, Input::Leave { within: Duration::from_secs(1) });
            }
        }
    }

    async fn act(&mut self, output: Output) {
        match output {
            Output::Datagram { to, bytes } => {
                // A datagram that cannot be sent is one that is lost.
                let _ = self.udp.send_to(&bytes, to).await;
            }
            Output::Open { stream, to, message } => {
                let nonce = self.nonce();
                let bytes = self.codec.stream(&message, true, &nonce);
                let (codec, events) = (self.codec.clone(), self.events.clone());
                tokio::spawn(async move {
                    let opened = tokio::time::timeout(STREAM_LIMIT, dial(to, &bytes)).await;
                    let said = match opened.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                        Ok(opened) => {
                            let _ = events.send(Event::Connected(stream));
                            read(opened, &codec, StreamReader::dialled()).await
                        }
                        Err(error) => Err(StreamFailure::Connection(error.to_string())),
                    };
                    let _ = events.send(Event::Said(stream, said));
                });
            }
            Output::Answer { stream, message } => {
                let nonce = self.nonce();
                let bytes = self.codec.stream(&message, false, &nonce);
                if let Some(mut accepted) = self.accepted.remove(&stream) {
                    let events = self.events.clone();
                    tokio::spawn(async move {
                        let _ = accepted.write_all(&bytes).await;
                        let _ = accepted.shutdown().await;
                        let _ = events.send(Event::Closed(stream));
                    });
                }
            }
            Output::Close(stream) => drop(self.accepted.remove(&stream)),
            Output::Member { change, member } => {
                let facts = json!({"node name": member.name.as_str(), "node event": format!("{change:?}")});
                log("info", "node event - forcing sync", &facts);
            }
            Output::Exchanged { with, result } => {
                let facts = json!({"with": with.to_string(), "result": format!("{result:?}")});
                log("info", "memberlist exchange", &facts);
            }
            Output::Left => {
                if let Some(told) = self.left.take() {
                    let _ = told.send(());
                }
            }
            _ => {}
        }
    }

    /// Eight random bytes of this call's own, and a count.
    fn nonce(&mut self) -> [u8; 12] {
        self.nonces += 1;
        let mut nonce = [0; 12];
        let (count, chance) = nonce.split_at_mut(4);
        count.copy_from_slice(&self.nonces.to_be_bytes());
        chance.copy_from_slice(&chance_bytes());
        nonce
    }
}

async fn dial(to: SocketAddr, bytes: &[u8]) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(bytes).await?;
    Ok(stream)
}

async fn read<S: AsyncRead + Unpin>(
    mut stream: S,
    codec: &Codec,
    mut reader: StreamReader,
) -> Result<StreamMessage, StreamFailure> {
    let mut buffer = vec![0; 8192];
    loop {
        let read = tokio::time::timeout(STREAM_LIMIT, stream.read(&mut buffer)).await;
        let read = read.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let length = read.map_err(|error| StreamFailure::Connection(error.to_string()))?;
        if length == 0 {
            return Err(reader.ended().into());
        }
        if let Some(message) = reader.push(codec, buffer.get(..length).unwrap_or_default())? {
            return Ok(message);
        }
    }
}

/// Bytes that differ from call to call and from process to process; enough for a bench.
fn chance_bytes() -> [u8; 8] {
    std::hash::RandomState::new().build_hasher().finish().to_be_bytes()
}

fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    seed.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&chance_bytes()));
    seed
}

/// memberlist's TCP timeout on a LAN.
const STREAM_LIMIT: Duration = Duration::from_secs(10);

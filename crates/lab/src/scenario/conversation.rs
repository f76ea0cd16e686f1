// SPDX-License-Identifier: Apache-2.0
//! BGP as it is said on an interface: every message of every connection to port 179, read from the frames that pass.
//!
//! It reads what the product's own engine writes with that engine's decoder, and keeps the bytes beside it: where bytes matter,
//! bytes are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ferrolb_bgp::wire::{self, Attributes, Families, Message, Reader, Update};
use ferrolb_linux::packet::Frames;
use ferrolb_linux::{Namespace, Netlink, PacketSocket, Poller, inspect};
use ferrolb_net_types::Prefix;

use super::cluster::eventually;
use super::segments::{Direction, Segment};

/// Where BGP is spoken.
pub(crate) const PORT: u16 = 179;

/// A message that passed.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    /// The message as it was.
    pub(crate) bytes: Vec<u8>,
    /// What it says; `None` if it is malformed.
    pub(crate) message: Option<Message>,
}

impl Said {
    /// What an UPDATE says; nothing if it is another message.
    pub(crate) fn updates(&self) -> &[Update] {
        match &self.message {
            Some(Message::Update(received)) => &received.updates,
            _ => &[],
        }
    }
}

/// One thing that was said about a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It is there, like this.
    Announced(Prefix, Attributes),
    /// It is gone.
    Withdrawn(Prefix),
}

impl Word {
    pub(crate) const fn prefix(&self) -> Prefix {
        match self {
            Self::Announced(prefix, _) | Self::Withdrawn(prefix) => *prefix,
        }
    }
}

/// All that was heard so far.
#[derive(Debug, Default)]
struct Heard {
    said: Vec<Said>,
    /// Who asked whom for a connection.
    dialled: Vec<(SocketAddr, SocketAddr)>,
}

type Shared = Arc<Mutex<Heard>>;

fn lock(heard: &Shared) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A capture under way. It ends with the value.
#[derive(Debug)]
pub(crate) struct Conversation {
    end: Arc<AtomicBool>,
    heard: Shared,
    _thread: JoinHandle<()>,
}

impl Conversation {
    /// Begins to listen to what this host says and is told; what is on the wire once this returns is heard.
    pub(crate) fn start(namespace: &Namespace, interface: &str) -> Result<Self> {
        let found = inspect::interfaces(&mut Netlink::open_in(namespace)?)?;
        let own = found.into_iter().find(|own| own.name.as_str() == interface);
        let own = own.with_context(|| format!("there is no {interface}"))?;
        let index = own.index;
        let socket = namespace.run(|| PacketSocket::open(index, Frames::ObservedTcp))??;
        let poller = Poller::new()?;
        poller.add(&socket, 0)?;
        let (end, heard) = (Arc::new(AtomicBool::new(false)), Shared::default());
        let mut listener = Listener {
            socket,
            poller,
            end: Arc::clone(&end),
            heard: Arc::clone(&heard),
            own: own.addresses.iter().map(|(address, _)| *address).collect(),
            connections: BTreeMap::new(),
        };
        let thread = std::thread::Builder::new().name("conversation".to_owned());
        let thread = thread.spawn(move || {
            if let Err(error) = listener.run() {
                tracing::error!(error = format!("{error:#}"), "the capture of BGP ended");
            }
        })?;
        Ok(Self { end, heard, _thread: thread })
    }

    /// How many messages were heard so far: from where a step looks.
    pub(crate) fn mark(&self) -> usize {
        lock(&self.heard).said.len()
    }

    /// The messages of a host since a mark.
    pub(crate) fn of(&self, from: IpAddr, mark: usize) -> Vec<Said> {
        let heard = lock(&self.heard);
        heard.said.iter().skip(mark).filter(|said| said.from == from).cloned().collect()
    }

    /// What a host said about prefixes since a mark, in order.
    pub(crate) fn words(&self, from: IpAddr, mark: usize) -> Vec<Word> {
        let mut words = Vec::new();
        for said in self.of(from, mark) {
            for update in said.updates() {
                match update {
                    Update::Withdraw(prefixes) => {
                        words.extend(prefixes.as_slice().iter().map(|prefix| Word::Withdrawn(*prefix)));
                    }
                    Update::Announce(announce) => words.extend(
                        announce
                            .prefixes()
                            .iter()
                            .map(|p| Word::Announced(*p, announce.attributes().clone())),
                    ),
                    Update::EndOfRib(_) => {}
                }
            }
        }
        words
    }

    /// Waits for a message of a host since a mark.
    pub(crate) async fn hears(
        &self,
        from: IpAddr,
        mark: usize,
        limit: Duration,
        test: impl Fn(&Said) -> bool,
    ) -> Result<Said> {
        eventually(limit, async || {
            let said = self.of(from, mark);
            let found = said.iter().find(|said| test(said)).cloned();
            found.with_context(|| format!("{from} said {} other things", said.len()))
        })
        .await
    }

    /// Who asked whom for a connection, in order.
    pub(crate) fn dialled(&self) -> Vec<(SocketAddr, SocketAddr)> {
        lock(&self.heard).dialled.clone()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

struct Listener {
    socket: PacketSocket,
    poller: Poller,
    end: Arc<AtomicBool>,
    heard: Shared,
    /// The host's addresses: a switch may let it hear others'.
    own: BTreeSet<IpAddr>,
    /// By who dialled and who was dialled.
    connections: BTreeMap<(SocketAddr, SocketAddr), Connection>,
}

/// A connection: the dialler's side first.
#[derive(Default)]
struct Connection {
    sides: [Side; 2],
}

/// What one of the two says.
#[derive(Default)]
struct Side {
    direction: Direction,
    /// The beginning of a message that is not whole.
    partial: Vec<u8>,
    open: Option<wire::Open>,
}

impl Listener {
    fn run(&mut self) -> Result<()> {
        let mut buffer = vec![0; 1 << 17];
        while !self.end.load(Ordering::Relaxed) {
            while let Some(received) = self.socket.receive(&mut buffer)? {
                let frame = buffer.get(..received.length).unwrap_or(&buffer);
                if let Some(segment) = Segment::parse(frame) {
                    self.take(segment);
                }
            }
            self.poller.wait(Some(Instant::now() + Duration::from_millis(20)))?.for_each(drop);
        }
        Ok(())
    }

    fn take(&mut self, segment: Segment) {
        let (from, to) = (segment.from, segment.to);
        if !self.own.contains(&from.ip()) && !self.own.contains(&to.ip()) {
            return;
        }
        let (dialler, side) = match (from.port() == PORT, to.port() == PORT) {
            (false, true) => ((from, to), 0),
            (true, false) => ((to, from), 1),
            _ => return,
        };
        if segment.syn && !segment.ack {
            self.connections.remove(&dialler);
            lock(&self.heard).dialled.push(dialler);
        }
        let connection = self.connections.entry(dialler).or_default();
        for (bytes, message) in connection.take(side, segment) {
            lock(&self.heard).said.push(Said { from: from.ip(), to: to.ip(), bytes, message });
        }
    }
}

impl Connection {
    /// Takes a segment of a side: the messages that are whole with it.
    fn take(&mut self, side: usize, segment: Segment) -> Vec<(Vec<u8>, Option<Message>)> {
        let context = self.context();
        let [one, other] = &mut self.sides;
        let own = if side == 0 { one } else { other };
        let fresh = own.direction.take(segment);
        own.partial.extend(fresh);
        let mut messages = Vec::new();
        while let Some(bytes) = whole(&mut own.partial) {
            let message = Reader::new().read(&mut bytes.as_slice(), &context).ok().flatten();
            if let Some(Message::Open(open)) = &message {
                own.open = Some(open.clone());
            }
            messages.push((bytes, message));
        }
        messages
    }

    /// What the two have agreed on. Nobody says anything that depends on it before both OPENs have passed.
    fn context(&self) -> wire::Context {
        match (&self.sides[0].open, &self.sides[1].open) {
            (Some(one), Some(other)) => wire::Context {
                four_octet_as: one.four_octet_as().is_some() && other.four_octet_as().is_some(),
                internal: one.asn() == other.asn(),
                families: one.families().and(other.families()),
            },
            _ => wire::Context { families: Families::BOTH, ..wire::Context::default() },
        }
    }
}

/// Takes the first message off, if it is whole: by the length in its header.
fn whole(partial: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_be_bytes(partial.get(16..18)?.try_into().ok()?)).max(wire::HEADER);
    (partial.len() >= length).then(|| partial.drain(..length).collect())
}

#[cfg(test)]
mod tests {
    use ferrolb_bgp::wire::{HoldTime, Open, RouterId, keepalive};
    use ferrolb_net_types::Asn;

    use super::*;

    fn segment(sequence: u32, syn: bool, payload: &[u8]) -> Segment {
        let (from, to) = ("192.0.2.1:40000".parse().unwrap(), "192.0.2.2:179".parse().unwrap());
        Segment { from, to, sequence, syn, ack: false, payload: payload.to_vec() }
    }

    #[test]
    fn messages_are_read_wherever_segments_end_and_by_what_both_opens_say() {
        let open = |asn: u32| {
            let id = RouterId::new("192.0.2.1".parse().unwrap()).unwrap();
            let asn = Asn::new(asn).unwrap();
            Open::new(asn, HoldTime::seconds(90).unwrap(), id, Families::BOTH, Vec::new()).encode()
        };
        let mut connection = Connection::default();
        assert!(!connection.context().internal);
        for side in [0, 1] {
            let said = [open(64_512), keepalive()].concat();
            let (first, second) = said.split_at(30);
            assert!(connection.take(side, segment(9, true, b"")).is_empty());
            assert!(connection.take(side, segment(10, false, first)).is_empty());
            let messages = connection.take(side, segment(40, false, second));
            assert!(matches!(messages[0].1, Some(Message::Open(_))), "{messages:?}");
            assert_eq!((messages[0].0.len(), &messages[1].1), (49, &Some(Message::Keepalive)));
        }
        let agreed = connection.context();
        assert!(agreed.internal && agreed.four_octet_as && agreed.families == Families::BOTH);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The streams of the member list, on a thread of their own: the wire thread never waits for one.
//!
//! ```text
//!   wire thread ── Open, Answer, Close (bounded, never waited for) ──► streams ◄──► TCP
//!               ◄── whole messages (bounded, waited for), waker ─────┘
//! ```
//!
//! Connecting, reading, decoding and encoding of what may be large happen here, each stream with a deadline, and all
//! together with a bound on what they hold: anybody can open a stream and send.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ferrolb_gossip::wire::{Codec, NONCE, StreamMessage, StreamReader};
use ferrolb_gossip::{Input, Output, StreamFailure, StreamId};
use ferrolb_linux::Waker;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// The thread. Dropping it closes every stream.
#[derive(Debug)]
pub(super) struct Streams {
    commands: Option<mpsc::Sender<Output>>,
    events: mpsc::Receiver<Input<'static>>,
    thread: Option<JoinHandle<()>>,
}

/// What every stream needs.
#[derive(Clone)]
struct Shared {
    codec: Codec,
    /// How long anything on a stream may take.
    patience: Duration,
    events: mpsc::Sender<Input<'static>>,
    waker: Waker,
    held: Arc<AtomicUsize>,
    lingering: Arc<AtomicUsize>,
    random: Arc<File>,
}

/// A stream that is open, as the one that gives orders knows it.
struct Open {
    task: AbortHandle,
    /// Where its answer goes, if it is to get one.
    answer: Option<oneshot::Sender<StreamMessage>>,
}

impl Streams {
    /// Starts the thread, in the network namespace of the caller.
    ///
    /// # Errors
    ///
    /// If threads, or what a runtime needs, are not to be had.
    pub(super) fn start(
        listener: std::net::TcpListener,
        codec: Codec,
        patience: Duration,
        waker: Waker,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (events_in, events) = mpsc::channel(EVENTS);
        let (commands, orders) = mpsc::channel(COMMANDS);
        let shared = Shared {
            codec,
            patience,
            events: events_in,
            waker,
            held: Arc::default(),
            lingering: Arc::default(),
            random: Arc::new(File::open("/dev/urandom")?),
        };
        let thread = std::thread::Builder::new()
            .name("streams".to_owned())
            .spawn(move || runtime.block_on(run(listener, orders, shared)))?;
        Ok(Self { commands: Some(commands), events, thread: Some(thread) })
    }

    /// Has an output of the engine carried out that concerns a stream. What happens instead if that is not possible now.
    pub(super) fn carry_out(&self, output: Output) -> Option<Input<'static>> {
        let Some(commands) = &self.commands else { return None };
        let refused = match commands.try_send(output) {
            Ok(()) => return None,
            Err(mpsc::error::TrySendError::Full(refused) | mpsc::error::TrySendError::Closed(refused)) => {
                refused
            }
        };
        match refused {
            Output::Open { stream, .. } => {
                let failure = StreamFailure::Connection("too much is under way".to_owned());
                Some(Input::Failed { stream, failure })
            }
            // It ends by its deadline.
            _ => None,
        }
    }

    /// What has happened, one thing after the other.
    pub(super) fn next(&mut self) -> Option<Input<'static>> {
        self.events.try_recv().ok()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.commands = None;
        // Whoever waits to say something gives up.
        self.events.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

async fn run(listener: TcpListener, mut orders: mpsc::Receiver<Output>, shared: Shared) {
    let mut open: BTreeMap<StreamId, Open> = BTreeMap::new();
    let mut tasks: JoinSet<StreamId> = JoinSet::new();
    let mut accepted = 0;
    loop {
        tokio::select! {
            stream = listener.accept(), if open.len() < MAX_OPEN => match stream {
                Ok((stream, source)) => {
                    accepted += 1;
                    // A socket for both families has IPv4 addresses in IPv6's clothes.
                    let source = SocketAddr::new(source.ip().to_canonical(), source.port());
                    let (answer, answered) = oneshot::channel();
                    let task = tasks.spawn(serve(stream, accepted, source, answered, shared.clone()));
                    open.insert(StreamId::Accepted(accepted), Open { task, answer: Some(answer) });
                }
                Err(error) => {
                    tracing::debug!(op = "memberlist", %error, "a stream could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
            order = orders.recv() => match order {
                None => return,
                Some(Output::Open { stream, to, message }) => {
                    let task = tasks.spawn(dial(stream, to, message, shared.clone()));
                    open.insert(stream, Open { task, answer: None });
                }
                Some(Output::Answer { stream, message }) => {
                    if let Some(answer) = open.get_mut(&stream).and_then(|open| open.answer.take()) {
                        // Its task may just have run out of time.
                        let _ = answer.send(message);
                    }
                }
                Some(Output::Close(stream)) => {
                    if let Some(open) = open.remove(&stream) {
                        open.task.abort();
                    }
                }
                Some(_) => {}
            },
            Some(done) = tasks.join_next() => if let Ok(stream) = done {
                open.remove(&stream);
            },
        }
    }
}

/// Serves a stream that somebody opened: one message, one answer.
async fn serve(
    mut stream: TcpStream,
    number: u64,
    source: SocketAddr,
    answer: oneshot::Receiver<StreamMessage>,
    shared: Shared,
) -> StreamId {
    let id = StreamId::Accepted(number);
    shared.say(Input::Accepted { stream: number, source }).await;
    let said = shared.read(&mut stream, StreamReader::accepted()).await;
    shared.say(heard(id, said)).await;
    let Ok(Ok(message)) = timeout(shared.patience, answer).await else { return id };
    let written = shared.write(&mut stream, &message, false).await;
    shared.say(Input::Closed(id)).await;
    if written.is_ok()
        && let Some(_place) = Place::take(&shared.lingering)
    {
        // Closing with something unread would reset the stream under the answer, so the other side closes first.
        let mut rest = [0; 256];
        let _ =
            timeout(LINGER, async { while stream.read(&mut rest).await.is_ok_and(|length| length > 0) {} })
                .await;
    }
    id
}

/// Opens a stream, says a message, and reads what is answered.
async fn dial(id: StreamId, to: SocketAddr, message: StreamMessage, shared: Shared) -> StreamId {
    let opened = match timeout(shared.patience, TcpStream::connect(to)).await {
        Ok(opened) => opened.map_err(|error| failed(&error)),
        Err(_) => Err(StreamFailure::Connection("no connection in time".to_owned())),
    };
    let mut stream = match opened {
        Ok(stream) => stream,
        Err(failure) => {
            shared.say(Input::Failed { stream: id, failure }).await;
            return id;
        }
    };
    if let Err(failure) = shared.write(&mut stream, &message, true).await {
        shared.say(Input::Failed { stream: id, failure }).await;
        return id;
    }
    shared.say(Input::Connected(id)).await;
    let said = shared.read(&mut stream, StreamReader::dialled()).await;
    shared.say(heard(id, said)).await;
    id
}

impl Shared {
    /// Tells the wire thread, however long that takes.
    async fn say(&self, event: Input<'static>) {
        // It does not listen any more only when everything ends.
        if self.events.send(event).await.is_ok() {
            self.waker.wake();
        }
    }

    async fn write(
        &self,
        stream: &mut TcpStream,
        message: &StreamMessage,
        dialler: bool,
    ) -> Result<(), StreamFailure> {
        let mut nonce = [0; NONCE];
        // Nothing is sealed with a nonce that may have been used.
        (&*self.random).read_exact(&mut nonce).map_err(|error| failed(&error))?;
        let bytes = self.codec.stream(message, dialler, &nonce);
        match timeout(self.patience, stream.write_all(&bytes)).await {
            Ok(written) => written.map_err(|error| failed(&error)),
            Err(_) => Err(StreamFailure::Connection("nothing is taken from the stream".to_owned())),
        }
    }

    async fn read(
        &self,
        stream: &mut TcpStream,
        mut reader: StreamReader,
    ) -> Result<StreamMessage, StreamFailure> {
        let mut held = Held { all: &self.held, own: 0 };
        let reading = async {
            let mut buffer = vec![0; BUFFER];
            loop {
                let length = stream.read(&mut buffer).await.map_err(|error| failed(&error))?;
                if length == 0 {
                    return Err(reader.ended().into());
                }
                if !held.take(length) {
                    return Err(StreamFailure::Connection("too much is being received at once".to_owned()));
                }
                if let Some(message) = reader.push(&self.codec, buffer.get(..length).unwrap_or_default())? {
                    return Ok(message);
                }
            }
        };
        let late = || Err(StreamFailure::Connection("nothing whole was said in time".to_owned()));
        timeout(self.patience, reading).await.unwrap_or_else(|_| late())
    }
}

/// What a stream holds of what all may hold.
struct Held<'a> {
    all: &'a AtomicUsize,
    own: usize,
}

impl Held<'_> {
    /// Whether there is room for more. A list of members of the usual size always has some, whatever others hold.
    fn take(&mut self, bytes: usize) -> bool {
        self.own += bytes;
        let all = self.all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        all <= MAX_HELD || self.own <= SMALL
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// A place among the streams that linger; there are only so many, so that lingering keeps nobody out.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(lingering: &'a AtomicUsize) -> Option<Self> {
        let place = Self(lingering);
        (lingering.fetch_add(1, Ordering::Relaxed) < MAX_LINGERING).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn heard(stream: StreamId, said: Result<StreamMessage, StreamFailure>) -> Input<'static> {
    match said {
        Ok(message) => Input::Received { stream, message },
        Err(failure) => Input::Failed { stream, failure },
    }
}

fn failed(error: &io::Error) -> StreamFailure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => StreamFailure::Refused,
        _ => StreamFailure::Connection(error.to_string()),
    }
}

/// Streams that may be open at the same time. The engine itself opens and keeps fewer, even with those that linger.
const MAX_OPEN: usize = 384;

/// Streams that may linger at the same time.
const MAX_LINGERING: usize = 64;

/// Bytes that streams may hold together of messages that are not whole yet.
const MAX_HELD: usize = 32 << 20;

/// Bytes that each may hold whatever the others do: the list of a cluster of hundreds.
const SMALL: usize = 64 << 10;

/// Bytes that are read at a time.
const BUFFER: usize = 16 << 10;

/// Orders and events that may wait.
const COMMANDS: usize = 1024;
const EVENTS: usize = 64;

/// How long the other side may take to close a stream after its answer.
const LINGER: Duration = Duration::from_secs(2);

/// The pause after a stream could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_a_lot_leaves_room_for_those_that_hold_little() {
        let all = AtomicUsize::new(0);
        let mut hoarder = Held { all: &all, own: 0 };
        assert!(hoarder.take(MAX_HELD));
        assert!(!hoarder.take(1));
        let mut small = Held { all: &all, own: 0 };
        assert!(small.take(BUFFER) && small.take(SMALL - BUFFER));
        assert!(!small.take(1));
        drop((hoarder, small));
        assert_eq!(all.into_inner(), 0);
    }

    #[test]
    fn only_so_many_linger() {
        let lingering = AtomicUsize::new(0);
        let places: Vec<_> = (0..MAX_LINGERING).map(|_| Place::take(&lingering).unwrap()).collect();
        for _ in 0..3 {
            assert!(Place::take(&lingering).is_none());
        }
        drop(places);
        assert!(Place::take(&lingering).is_some());
        assert_eq!(lingering.into_inner(), 0);
    }

    #[test]
    fn a_stream_over_ipv4_comes_from_an_ipv4_address_on_a_socket_for_both_too() {
        // A host without IPv6 has no such socket.
        let Ok(listener) = std::net::TcpListener::bind("[::]:0") else { return };
        let port = listener.local_addr().unwrap().port();
        let poller = ferrolb_linux::Poller::new().unwrap();
        let patience = Duration::from_secs(10);
        let mut streams = Streams::start(listener, Codec::new(None), patience, poller.waker()).unwrap();
        let stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let happened = streams.events.blocking_recv();
        let expected = stream.local_addr().unwrap();
        assert!(
            matches!(happened, Some(Input::Accepted { source, .. }) if source == expected),
            "{happened:?}, not from {expected}"
        );
    }
}

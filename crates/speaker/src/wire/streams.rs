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
    if written.is_ok() {
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
    fn take(&mut self, bytes: usize) -> bool {
        self.own += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_HELD
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
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

/// Streams that may be open at the same time. The engine itself opens and keeps fewer.
const MAX_OPEN: usize = 320;

/// Bytes that streams may hold together of messages that are not whole yet.
const MAX_HELD: usize = 32 << 20;

/// Bytes that are read at a time.
const BUFFER: usize = 16 << 10;

/// Orders and events that may wait.
const COMMANDS: usize = 1024;
const EVENTS: usize = 64;

/// How long the other side may take to close a stream after its answer.
const LINGER: Duration = Duration::from_secs(2);

/// The pause after a stream could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

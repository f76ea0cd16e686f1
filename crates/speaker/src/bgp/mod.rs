// SPDX-License-Identifier: Apache-2.0
//! The BGP thread: one task per peer, with its session, its socket and its timers.
//!
//! ```text
//!   Handle ── plan, routes, goodbye ──► mailbox ──► task: Session, socket, timers ◄──► the peer
//!          ◄── how it is ───────────── board ◄──────┘      (one of each per peer)
//! ```
//!
//! Tasks share the thread and nothing else: no lock, no queue. A mailbox holds the latest wish for each prefix, so it
//! never holds more than there are prefixes, and whoever writes into it never waits. A peer that does not answer, does
//! not read or falls silent costs its own task only; one that floods, with whatever it is, a part of the thread's time
//! that the others get as well, in turns of a few milliseconds at most. What a session says and when it ends is
//! [`ferrolb_bgp::Session`]'s decision; here is only I/O.
//!
//! Sessions are dialled. Nothing listens: port 179 stays free for whoever else speaks BGP on the node.

mod board;
mod dial;
mod ends;
mod gauges;
mod line;
mod lines;
mod mailbox;
mod task;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use ferrolb_bgp::{Goodbye, Route};
use ferrolb_kube_support::daemon::Clocks;
use ferrolb_net_types::{NodeName, PeerName, Prefix};
use ferrolb_speaker_core::bgp::{PeerPlan, PeerReport};
use tokio::sync::{Notify, oneshot};

pub(crate) use self::gauges::Gauges;

use self::board::Board;
use self::ends::Ends;
use self::mailbox::Mailbox;
use self::task::Task;

/// What changes of the routes of a peer: a prefix has another route, or none.
pub type Change = (Prefix, Option<Arc<Route>>);

/// The sessions, as the control side has them. Dropping it ends the thread; whatever was to be said still is not said
/// then, so [`Handle::leave`] comes first.
#[derive(Debug)]
pub struct Handle {
    node: NodeName,
    clocks: Clocks,
    /// There is a thread from the first session on.
    thread: Option<Thread>,
    sessions: BTreeMap<PeerName, Arc<Shared>>,
    /// Those that have to say goodbye and are no longer wanted.
    leaving: Vec<(PeerName, Arc<Shared>)>,
    /// Some board shows something new.
    news: Arc<Notify>,
    ends: Arc<Ends>,
    /// There is no thread to be had.
    failed: Option<String>,
}

/// The news of one session: how it is, or `None` once a session that was to end is over.
pub type News = (PeerName, Option<Box<PeerReport>>);

/// There can be no sessions, or one ended that nobody had ended.
///
/// Either ends the process. A task that panicked takes with it what its peer was told and which wishes it had taken, and
/// what of it holds still is not known: going on by a guess, it might leave routes at a router that lead nowhere. So the
/// other sessions say goodbye, layer 2 is handed over, and a new process makes everything from the objects; its restarts
/// are paced, counted and seen like those of any container. What a peer sends is to be no reason for a panic: what reads
/// it is fuzzed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// No thread, or nothing that a runtime needs, was to be had: the operating system's words.
    #[error("the BGP thread cannot be started: {0}")]
    Thread(String),
    /// A task panicked, and said so on standard error.
    #[error("the BGP session with {0} broke")]
    Session(PeerName),
}

/// What the control side and the task of a session have in common.
#[derive(Debug)]
struct Shared {
    mailbox: Mailbox,
    board: Board,
}

#[derive(Debug)]
struct Thread {
    runtime: tokio::runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// No session yet. The clocks are those of the times that plans and reports name.
    pub fn new(node: NodeName, clocks: Clocks) -> Self {
        Self {
            node,
            clocks,
            thread: None,
            sessions: BTreeMap::new(),
            leaving: Vec::new(),
            news: Arc::default(),
            ends: Arc::default(),
            failed: None,
        }
    }

    /// From now on there is a session with this peer, by this plan; or none any more, once goodbye is said. A plan that
    /// differs from the one before only in what the peer does not see leaves the session up.
    pub fn session(&mut self, peer: PeerName, plan: Option<Box<PeerPlan>>) {
        match (plan, self.sessions.get(&peer)) {
            (Some(plan), Some(session)) => session.mailbox.plan(plan),
            (Some(plan), None) => self.start(peer, *plan),
            (None, _) => {
                if let Some(session) = self.sessions.remove(&peer) {
                    session.mailbox.leave(Goodbye::deconfigured());
                    self.leaving.push((peer, session));
                }
            }
        }
    }

    fn start(&mut self, peer: PeerName, plan: PeerPlan) {
        if self.thread.is_none() {
            match Thread::start() {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => {
                    self.failed = Some(error.to_string());
                    self.news.notify_one();
                }
            }
        }
        let Some(thread) = &self.thread else { return };
        let shared = Arc::new(Shared { mailbox: Mailbox::default(), board: Board::new(self.news.clone()) });
        let seed = seed(self.node.as_str(), peer.as_str());
        let task =
            Task::new(self.node.clone(), peer.clone(), plan, seed, self.clocks, shared.clone(), &self.ends);
        thread.runtime.spawn(task.run());
        self.sessions.insert(peer, shared);
    }

    /// Tells a peer that has a session these routes from now on. Never waits for it.
    pub fn routes(&self, peer: &PeerName, changes: Vec<Change>) {
        if let Some(session) = self.sessions.get(peer) {
            session.mailbox.routes(changes);
        }
    }

    /// Waits for the news of sessions: of each that has some, the latest. May be dropped while it waits.
    ///
    /// # Errors
    ///
    /// [`Broken`] if there can be no sessions, or one ended that nobody had ended.
    pub async fn news(&mut self) -> Result<Vec<News>, Broken> {
        loop {
            self.news.notified().await;
            let news = self.read_boards()?;
            if !news.is_empty() {
                return Ok(news);
            }
        }
    }

    /// Says goodbye to every peer. [`Handle::left`] waits for the end of it.
    pub fn leave(&self, goodbye: &Goodbye) {
        for session in self.sessions.values() {
            session.mailbox.leave(goodbye.clone());
        }
    }

    /// Waits until every session is over: those that [`Handle::leave`] ended, and those that were no longer wanted.
    pub async fn left(&self) {
        let all = || self.sessions.values().chain(self.leaving.iter().map(|(_, session)| session));
        while !all().all(|session| session.board.is_over()) {
            self.news.notified().await;
        }
    }

    fn read_boards(&mut self) -> Result<Vec<News>, Broken> {
        if let Some(words) = &self.failed {
            return Err(Broken::Thread(words.clone()));
        }
        let mut news = Vec::new();
        for (peer, session) in &self.sessions {
            news.extend(session.board.take().map(|report| (peer.clone(), Some(report))));
        }
        let sessions = &self.sessions;
        self.leaving.retain(|(peer, session)| {
            let over = session.board.is_over();
            // Of a peer that is wanted again, what comes from now on is the news.
            if over && !sessions.contains_key(peer) {
                news.push((peer.clone(), None));
            }
            !over
        });
        let mut all = self.sessions.iter().chain(self.leaving.iter().map(|(peer, session)| (peer, session)));
        match all.find(|(_, session)| session.board.is_broken()) {
            Some((peer, _)) => Err(Broken::Session(peer.clone())),
            None => Ok(news),
        }
    }
}

impl Thread {
    /// Starts the thread in the calling thread's network namespace.
    fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            // What asks the kernel for the addresses of an interface, once per connection.
            .max_blocking_threads(1)
            .thread_keep_alive(std::time::Duration::from_secs(1))
            .thread_name("bgp-addresses")
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            // An answer and a sender that is gone mean the same.
            let _ = runtime.block_on(stopped);
        };
        let thread = std::thread::Builder::new().name("bgp".to_owned()).spawn(run)?;
        Ok(Self { runtime: handle, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// Decides the chances of a session: no two nodes, and no two peers of a node, have the same ones (FNV-1a).
fn seed(node: &str, peer: &str) -> u64 {
    let bytes = node.bytes().chain([0]).chain(peer.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

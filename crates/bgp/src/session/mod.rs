// SPDX-License-Identifier: Apache-2.0
//! The session with one peer: RFC 4271's finite state machine (section 8), and what the peer is told.
//!
//! ```text
//!                 ┌──────────────────────── wait, 1 s to 2 min ◄──────────────────────┐
//!                 ▼                                                                   │ anything goes wrong
//!   Idle ──► Connect ──► OpenSent ──► OpenConfirm ──► Established ─────────────────────┤
//!     └────► Active ────────▲  (accepts)                                              ▼
//!                                                                             NOTIFICATION, close
//! ```
//!
//! A session that only dials has one connection. One whose owner accepts connections for it can for a moment have two:
//! which stays is settled by RFC 4271, section 6.8. Of the optional attributes of section 8.1, DampPeerOscillations is
//! on (every failure makes for a wait in Idle, in which one that dials still takes a connection), DelayOpen and
//! CollisionDetectEstablishedState are off.
//!
//! What is sent is counted until it is written ([`Input::Written`]): a peer that reads slowly is told the latest state
//! and no history, and no more than 64 KiB ever wait for it here. One that does not read at all is dropped (RFC 9687),
//! whatever room the operating system still has for it ([`Input::Unacknowledged`]).

mod connection;
mod connections;
mod down;
mod engine;
mod local;
mod outbox;
mod retry;
mod settings;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ferrolb_net_types::{Prefix, Time};

pub use connection::Peer;
pub use down::{Down, Notice};
pub use engine::{DIAL, Session};
pub use local::Local;
pub use settings::{PeerAs, RETRY_AT_MOST, Settings};

use crate::route::Route;
use crate::wire::{Code, Notification};

/// A connection, by a number that stands for it as long as the session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionId {
    /// One that the session asked for; it numbers them.
    Dialled(u64),
    /// One that the peer opened; the caller numbers them.
    Accepted(u64),
}

/// Something that happened. What is said of a connection that was closed is ignored.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// The settings are these from now on. Only what the peer sees of them ends an established session.
    Configure(Box<Settings>),
    /// Connect at once, also after a [`Input::Stop`]; what was wrong may be right by now.
    Start,
    /// Say goodbye; [`Output::Stopped`] follows.
    Stop(Goodbye),
    /// These prefixes are to have these routes from now on, or none.
    Routes(&'a [(Prefix, Option<Arc<Route>>)]),
    /// A connection that was asked for is there.
    Connected {
        /// Which.
        connection: ConnectionId,
        /// Its own end.
        local: Local,
    },
    /// A connection that was asked for cannot be had.
    ConnectFailed {
        /// Which.
        connection: ConnectionId,
        /// The operating system's words.
        error: String,
    },
    /// The peer opened a connection.
    Accepted {
        /// Its number.
        connection: ConnectionId,
        /// Its own end.
        local: Local,
    },
    /// Bytes came. Hand in what has been received before [`Session::handle_timeout`]: a KEEPALIVE that lies in a
    /// buffer is a sign of life.
    Received {
        /// On which connection.
        connection: ConnectionId,
        /// The bytes, cut anyhow.
        bytes: &'a [u8],
    },
    /// So many bytes of those that were to be sent were taken by the operating system.
    Written {
        /// On which connection.
        connection: ConnectionId,
        /// How many.
        bytes: usize,
    },
    /// So many bytes of those that were taken by the operating system were not acknowledged by the peer's. Hand it in
    /// before [`Session::handle_timeout`]: a peer of which nothing is acknowledged for long is dropped.
    Unacknowledged {
        /// On which connection.
        connection: ConnectionId,
        /// How many.
        bytes: usize,
    },
    /// A connection is no more, and everything that came on it was handed in.
    Closed {
        /// Which.
        connection: ConnectionId,
        /// The operating system's words; `None` where it ended in good order.
        error: Option<String>,
    },
}

/// How to end a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goodbye {
    /// What the peer is told.
    pub notification: Notification,
    /// How long its routes are told to be about to go (RFC 8326) before they are withdrawn; zero: not at all.
    pub graceful: Duration,
}

impl Goodbye {
    /// The speaker ends; a text says why (RFC 9003).
    #[must_use]
    pub fn shutdown(text: &str, graceful: Duration) -> Self {
        Self { notification: Notification::with_text(Code::ADMINISTRATIVE_SHUTDOWN, text), graceful }
    }

    /// The peer is no longer configured.
    #[must_use]
    pub fn deconfigured() -> Self {
        Self { notification: Code::PEER_DECONFIGURED.into(), graceful: Duration::ZERO }
    }

    /// The session ends for something that only a new one has: another address, say. A text says why.
    #[must_use]
    pub fn reset(text: &str) -> Self {
        Self {
            notification: Notification::with_text(Code::ADMINISTRATIVE_RESET, text),
            graceful: Duration::ZERO,
        }
    }
}

/// Something to be done, or to be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Connect to the peer; report by [`Input::Connected`] or [`Input::ConnectFailed`].
    Connect(ConnectionId),
    /// Send these bytes; report by [`Input::Written`].
    Send {
        /// On which connection.
        connection: ConnectionId,
        /// Whole messages.
        bytes: Vec<u8>,
    },
    /// Close a connection, or give up connecting. It is not to be reported on any more.
    Close {
        /// Which.
        connection: ConnectionId,
        /// Whether what was to be sent is worth a moment.
        how: Close,
    },
    /// The state has changed.
    State {
        /// What it was.
        from: State,
        /// What it is.
        to: State,
    },
    /// Something that somebody should see.
    Notice(Notice),
    /// The goodbye is said.
    Stopped,
}

/// How to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Once everything is written, a last word among it; or after a second, if the peer does not read.
    AfterWriting,
    /// At once.
    AtOnce,
}

/// The states of RFC 4271, section 8.2.2, nearest to a session last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It was stopped, or waits before it tries again.
    Idle,
    /// It connects.
    Connect,
    /// It waits for the peer to connect.
    Active,
    /// It waits for the peer's OPEN.
    OpenSent,
    /// It waits for the peer's first KEEPALIVE.
    OpenConfirm,
    /// Routes are told.
    Established,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Idle => "Idle",
            Self::Connect => "Connect",
            Self::Active => "Active",
            Self::OpenSent => "OpenSent",
            Self::OpenConfirm => "OpenConfirm",
            Self::Established => "Established",
        })
    }
}

/// What a session is at, for status and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status<'a> {
    /// Its state.
    pub state: State,
    /// Since when it is in that state.
    pub since: Time,
    /// Who is at the other end, from OpenConfirm on.
    pub peer: Option<&'a Peer>,
    /// When it tries again, if it waits.
    pub next_attempt: Option<Time>,
    /// How many routes are wanted.
    pub wanted: usize,
    /// How many prefixes the peer knows.
    pub told: usize,
    /// Whether there is nothing more to tell.
    pub settled: bool,
    /// When and why the last attempt failed, or the last session ended.
    pub last_down: Option<&'a (Time, Down)>,
    /// When and why the last established session ended, whatever attempts have come to since.
    pub last_drop: Option<&'a (Time, Down)>,
    /// How many established sessions have ended.
    pub drops: u64,
}

/// Messages that have been counted since the start, whole ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// OPEN.
    pub opens: u64,
    /// UPDATE.
    pub updates: u64,
    /// NOTIFICATION.
    pub notifications: u64,
    /// KEEPALIVE.
    pub keepalives: u64,
    /// ROUTE-REFRESH.
    pub route_refreshes: u64,
}

impl Tally {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.opens + self.updates + self.notifications + self.keepalives + self.route_refreshes
    }
}

/// What has been counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent.
    pub sent: Tally,
    /// Messages received.
    pub received: Tally,
    /// UPDATEs received with something wrong that was borne with.
    pub faulty_updates: u64,
}

// SPDX-License-Identifier: Apache-2.0
//! BGP-4 for a speaker that announces addresses, without I/O.
//!
//! ```text
//!   Routes ─────────────────┐                                      ┌──► Connect, Send, Close
//!   Connected, Received,    ├─► Session (state machine, timers, ───┤
//!   Written, Closed         │   Adj-RIB-Out)                       ├──► State, Notice
//!   Configure, Start, Stop ─┘                                      └──► next_deadline
//! ```
//!
//! A [`Session`] is all that one peer needs; sessions share nothing. It decides when to connect, talks, tells the peer
//! the [`Route`]s that it is given, and says why it ends. Its owner has the sockets and the clock: it connects, writes
//! what is to be sent, hands in what comes. Routes from the peer are read, as the protocol's duty, and never kept.
//!
//! [`AdjRibOut`] is what a peer is told; [`wire`] holds the bytes: messages, their attributes, the stream that they come
//! in.

mod rib;
mod route;
mod session;
pub mod wire;

pub use rib::{AdjRibOut, Mode, Untold, Written};
pub use route::{Export, NextHops, Route};
pub use session::{
    Close, ConnectionId, Counters, DIAL, Down, Goodbye, Input, Local, Notice, Output, Peer, PeerAs,
    RETRY_AT_MOST, Session, Settings, State, Status, Tally,
};

// SPDX-License-Identifier: Apache-2.0
//! ARP: packets, answering and announcing, without I/O.
//!
//! An [`Engine`] answers, on the interfaces it is given, for the IPv4 addresses it is given, and tells the
//! segment when it gains one. Which addresses those are is decided elsewhere: it announces nothing by itself.
//!
//! ```text
//!   Interfaces ──┐                                   ┌──► Send { interface, frame of 60 bytes }
//!   Announce     ├─► Engine (who answers for what, ──┤
//!   Withdraw     │   bursts in progress, counters)   └──► next_deadline
//!   Frame ───────┘
//! ```
//!
//! The caller hands in what a packet socket received together with the time, takes what is to be sent from
//! [`Engine::poll`] until there is nothing left, and calls [`Engine::handle_timeout`] when
//! [`Engine::next_deadline`] has come. The engine never fails: a frame that is not to be answered has a
//! [`DropReason`].
//!
//! [`wire`] holds the packets themselves.

mod burst;
mod engine;
mod reason;
pub mod wire;

pub use burst::{GAP, ROUNDS};
pub use engine::{Counters, Engine, Input, Interface, Output, Purpose};
pub use reason::DropReason;

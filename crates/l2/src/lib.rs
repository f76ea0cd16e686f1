// SPDX-License-Identifier: Apache-2.0
//! ARP and NDP: packets, answering and announcing, without I/O.
//!
//! An [`Engine`] answers, on the interfaces it is given, for the addresses it is given, and tells the segment when it
//! gains one. Which addresses those are is decided elsewhere: it announces nothing by itself.
//!
//! ```text
//!   Interfaces ──┐                                   ┌──► Send { interface, frame }
//!   Announce     ├─► Engine (who answers for what, ──┤    Join, Leave { interface, group }
//!   Withdraw     │   bursts in progress, groups,     │    Claimed, Answered { interface, address, mac }
//!   Ask, Frame ──┘   counters)                       └──► next_deadline
//! ```
//!
//! The caller hands in what a packet socket received together with the time, takes what is to be done from
//! [`Engine::poll`] until there is nothing left, and calls [`Engine::handle_timeout`] when
//! [`Engine::next_deadline`] has come. The engine never fails: a frame that is not to be answered has a
//! [`DropReason`].
//!
//! [`wire`] holds the packets themselves.

mod burst;
mod engine;
mod groups;
mod reason;
pub mod wire;

pub use burst::{GAP, ROUNDS};
pub use engine::{Answer, Changes, Counters, Engine, Input, Interface, Output, Purpose};
pub use reason::DropReason;

// SPDX-License-Identifier: Apache-2.0
//! BGP-4 for a speaker that announces addresses, without I/O.
//!
//! [`AdjRibOut`] decides what to tell a peer; [`wire`] holds the bytes: messages, their attributes, the stream that
//! they come in.

mod rib;
mod route;
pub mod wire;

pub use rib::{AdjRibOut, Mode, Written};
pub use route::{Export, NextHops, Route};

// SPDX-License-Identifier: Apache-2.0
//! ARP packets in Ethernet frames (RFC 826, RFC 894).
//!
//! For each layer there is a checked view of received bytes ([`ethernet::View`], [`arp::View`]), whose accessors
//! cannot fail, and a plain value ([`Frame`], [`Packet`]) that can be built, compared and sent. Reading a value
//! back from what it was written to gives the same value.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod arp;
mod error;
pub mod ethernet;

pub use arp::{Operation, Packet};
pub use error::{Error, Field};
pub use ethernet::{Frame, MINIMUM};

// SPDX-License-Identifier: Apache-2.0
//! ARP packets and Neighbor Discovery messages in Ethernet frames (RFC 826, RFC 894; RFC 4861, RFC 2464).
//!
//! For each layer there is a checked view of received bytes ([`ethernet::View`], [`arp::View`], [`ipv6::View`]), whose
//! accessors cannot fail, and plain values ([`Frame`] and [`Packet`] of ARP, [`ndp::Frame`] and [`ndp::Packet`]) that
//! can be built, compared and sent. Reading a value back from what it was written to gives the same value.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod arp;
mod bytes;
mod error;
pub mod ethernet;
pub mod ipv6;
pub mod ndp;

pub use arp::{Operation, Packet};
pub use bytes::Bytes;
pub use error::{Error, Field};
pub use ethernet::{Frame, MINIMUM};

// SPDX-License-Identifier: Apache-2.0
//! Membership by gossip: who is there, and who is not, agreed upon without a centre.
//!
//! Wire-compatible with HashiCorp memberlist 0.5.1 as MetalLB uses it, so that a member of this crate and a MetalLB
//! speaker share one cluster. No I/O, no clock, no threads.
//!
//! [`wire`] holds the bytes: messages, their wrappers, encryption, streams.

mod name;
pub mod wire;

pub use name::Name;

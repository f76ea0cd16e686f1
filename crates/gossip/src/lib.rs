// SPDX-License-Identifier: Apache-2.0
//! Membership by gossip: who is there, and who is not, agreed upon without a centre.
//!
//! Wire-compatible with HashiCorp memberlist 0.5.1 as MetalLB uses it, so that a member of this crate and a MetalLB
//! speaker share one cluster. No I/O, no clock, no threads.
//!
//! ```text
//!   Datagram, streams ──┐                                        ┌──► Datagram, Open, Answer, Close
//!   Join, Candidates    ├─► Engine (members, probes, suspicions, ┤
//!   Metadata, Leave ────┘   news on their way)                   └──► Member { joined, updated, left, died }
//! ```
//!
//! [`Engine`] decides; [`wire`] holds the bytes: messages, their wrappers, encryption, streams. A datagram is handed to
//! the engine as it came. A stream is read and written by its owner, with [`wire::StreamReader`] and
//! [`wire::Codec::stream`], wherever a large list may take its time: the engine gets and gives whole messages.
//!
//! Where memberlist could be brought to crash, or to grow without bound, by whoever has the key (or by anybody where there
//! is none), this one refuses: impossible padding, members without versions, counts that are not true, nested wrappers,
//! compressed nothing.

mod broadcast;
mod config_file;
mod engine;
mod member;
mod name;
mod random;
mod settings;
mod suspicion;
mod timing;
pub mod wire;

pub use config_file::{ConfigFile, ConfigFileError};
pub use engine::{
    Change, Counters, Engine, ExchangeError, Input, MAX_MEMBERS, Notice, Output, StreamFailure, StreamId,
};
pub use member::Member;
pub use name::Name;
pub use settings::{MAX_META, Role, Settings, VERSIONS};
pub use timing::Profile;

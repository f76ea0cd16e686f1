// SPDX-License-Identifier: Apache-2.0
//! What a member is told before it starts.

use std::net::SocketAddr;
use std::time::Duration;

use crate::name::Name;
use crate::timing::Profile;
use crate::wire::Codec;

/// The versions that MetalLB's speakers have: understands protocols 1 to 5, speaks 2, nothing of an application's.
pub const VERSIONS: [u8; 6] = [1, 5, 2, 0, 0, 0];

/// The largest metadata that everybody takes.
pub const MAX_META: usize = 512;

/// Whether the others are to see this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads what the others know, but is no member yet and answers no probes: others give work to every member
    /// they see, so nobody is to be one that cannot do it.
    Reader,
    /// It is a member.
    Member,
}

/// What a member is told before it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name: in a cluster of speakers, its node's.
    pub name: Name,
    /// The address and port where it is reached, which the others are told.
    pub address: SocketAddr,
    /// How often and how long.
    pub profile: Profile,
    /// Keys, label, compression.
    pub codec: Codec,
    /// The versions that it tells.
    pub versions: [u8; 6],
    /// Its metadata; at most [`MAX_META`] bytes.
    pub meta: Option<Vec<u8>>,
    /// What it starts as.
    pub role: Role,
    /// After how long a dead member's name may be taken by another address; zero: only once it has been forgotten.
    pub reclaim: Duration,
    /// How often those of [`crate::Input::Candidates`] that are no members are joined again, with a quarter of jitter;
    /// zero: never.
    pub rejoin: Duration,
    /// How often dead candidates are asked whether they are back; the answer, like anything else from a dead member,
    /// starts an exchange at once. Longer in clusters of more than 32. Zero: never, and a dead member that is heard
    /// has to join by itself.
    pub knock: Duration,
}

impl Settings {
    /// A member that behaves exactly as memberlist does within a MetalLB speaker.
    #[must_use]
    pub const fn plain(name: Name, address: SocketAddr, codec: Codec) -> Self {
        Self {
            name,
            address,
            profile: Profile::lan(),
            codec,
            versions: VERSIONS,
            meta: None,
            role: Role::Member,
            reclaim: Duration::ZERO,
            rejoin: Duration::ZERO,
            knock: Duration::ZERO,
        }
    }

    /// A member of ours: it starts as a reader, and what was separated finds together again by itself.
    #[must_use]
    pub fn speaker(name: Name, address: SocketAddr, codec: Codec) -> Self {
        Self {
            role: Role::Reader,
            rejoin: Duration::from_secs(2),
            knock: Duration::from_millis(400),
            ..Self::plain(name, address, codec)
        }
    }
}

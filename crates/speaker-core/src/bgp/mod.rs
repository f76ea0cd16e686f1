// SPDX-License-Identifier: Apache-2.0
//! BGP on the control side: which sessions there should be, what each peer is to be told, and how they are.
//!
//! ```text
//!   configuration ─► PeerPlan ──► Effect::Session ─┐
//!   announce::bgp ─► routes ────► Effect::Routes ──┴─► the sessions (another thread) ─► Input::Peer(PeerReport)
//! ```
//!
//! A session is named by its BGPPeer. What the sessions do on the wire is `ferrolb_bgp`'s and the shell's business.

mod control;
mod convert;
mod objects;
mod services;
mod sessions;
mod untold;
mod weights;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ferrolb_bgp::wire::RouterId;
use ferrolb_bgp::{Counters, Down, Peer, State, Untold};
use ferrolb_config::Password;
use ferrolb_net_types::{PeerName, Time};

pub(crate) use control::Control;
pub(crate) use objects::Objects;
pub(crate) use sessions::Gone;

/// How to speak with a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPlan {
    /// What the session's state machine is configured with.
    pub settings: ferrolb_bgp::Settings,
    /// Where to connect to.
    pub remote: SocketAddr,
    /// The address to connect from; the kernel chooses if there is none.
    pub source: Option<IpAddr>,
    /// The password (RFC 2385): at most 80 bytes are of use to the kernel.
    pub password: Option<Password>,
    /// How far away the peer may be.
    pub hops: Hops,
    /// The BGP Identifier; else `ferrolb_bgp::Local::new` finds one.
    pub router_id: Option<RouterId>,
}

/// How far away a peer may be, as the TTL of the connection's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hops {
    /// The TTL stays as the kernel has it, as in MetalLB's native mode.
    Unlimited,
    /// On the link: packets go out with TTL 1.
    Direct,
    /// Packets go out with TTL 255.
    Multihop,
    /// At most so many hops away, 1 being on the link (RFC 5082): packets go out with TTL 255, and those that come with
    /// less than 256 less this number are dropped by the kernel.
    Gtsm(u8),
}

/// Why there is no session, in a sentence, for whoever is to mend it. Where nothing answers, a password may be why, or a
/// limit of hops.
pub fn reason(down: &Down, password: Option<&Password>, gtsm_hops: Option<u8>) -> String {
    let mut text = down.to_string();
    if *down == Down::NoAnswer {
        if password.is_some() {
            text += "; the router may have another password, or none, and then answers nothing";
        }
        if let Some(hops) = gtsm_hops {
            text += &format!(
                "; the router may be farther away than ferrolb.io/gtsm-hops, {hops}, allows, or send with a TTL below 255 \
                 (RFC 5082), and then is not heard"
            );
        }
    }
    text
}

/// How a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// Its state.
    pub state: State,
    /// Since when it is in that state.
    pub since: Time,
    /// Who is at the other end, from OpenConfirm on.
    pub remote: Option<Peer>,
    /// The own end of the connection, if there is one.
    pub local: Option<SocketAddr>,
    /// How many routes are wanted.
    pub wanted: usize,
    /// How many prefixes the peer knows.
    pub told: usize,
    /// Whether there is nothing more to tell.
    pub settled: bool,
    /// Which of the routes that are wanted the peer is not told, nor about to be, as far as that is known.
    pub untold: Arc<Untold>,
    /// When it tries again, if it waits.
    pub next_attempt: Option<Time>,
    /// When and why the last attempt failed, or the last session ended.
    pub last_down: Option<(Time, Down)>,
    /// When and why the last established session ended, whatever attempts have come to since.
    pub last_drop: Option<(Time, Down)>,
    /// How many established sessions have ended.
    pub drops: u64,
    /// What was counted.
    pub counters: Counters,
    /// Something about it that users should know although it goes on: routes that are held back, a family that the
    /// peer does not take, an address that the node lacks. A sentence.
    pub finding: Option<String>,
    /// Whose session keeps it from connecting, as the last attempt found; `None` for none, and while it is up.
    pub rival: Option<Rival>,
}

/// Another peer, whose session has the two addresses that this one would have. The configuration does not tell: where a
/// peer names no address to connect from, the kernel chooses one. Prints a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "BGPPeer {peer} has the session with {remote} from this node's address {own}, and a router cannot tell two apart that \
     come from one"
)]
pub struct Rival {
    /// Its BGPPeer.
    pub peer: PeerName,
    /// The router.
    pub remote: SocketAddr,
    /// The node's address.
    pub own: IpAddr,
}

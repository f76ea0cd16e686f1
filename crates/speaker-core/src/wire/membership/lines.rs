// SPDX-License-Identifier: Apache-2.0
//! What the log says of members, in MetalLB's words where it has some, and each thing once.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ferrolb_gossip::{Change, Member};

use super::Trouble;

/// A member came, changed or went.
pub(super) fn member(change: &Change, member: &Member) {
    let event = match change {
        Change::Joined => "NodeJoin",
        Change::Updated => "NodeUpdate",
        Change::Left | Change::Died { .. } => "NodeLeave",
    };
    let address = member.socket().map(|socket| socket.ip().to_string()).unwrap_or_default();
    tracing::info!(
        "node addr" = address,
        "node event" = event,
        "node name" = %member.name,
        "node event - forcing sync"
    );
}

/// The first round of exchanges is over.
pub(super) fn joined(awaited: usize, unheard: &[SocketAddr]) {
    if awaited == 0 {
        return;
    }
    if unheard.is_empty() {
        tracing::info!(
            op = "Member detection",
            "number of other nodes" = awaited,
            "memberlist join successfully"
        );
    } else {
        let silent: Vec<String> =
            unheard.iter().map(|address| format!("no exchange with {address} in time")).collect();
        tracing::error!(
            op = "memberDiscovery",
            joined = awaited - unheard.len(),
            expected = awaited,
            error = silent.join("; "),
            "partial join"
        );
    }
}

/// What keeps others from being members is no longer the same.
pub(super) fn troubles(before: &BTreeSet<Trouble>, now: &BTreeSet<Trouble>) {
    for trouble in now.difference(before) {
        tracing::warn!(
            op = "memberDiscovery",
            node = %trouble.node,
            address = %trouble.address,
            error = %trouble.cause,
            "another speaker is no proper member"
        );
    }
    for trouble in before.difference(now) {
        tracing::info!(
            op = "memberDiscovery",
            node = %trouble.node,
            address = %trouble.address,
            "no longer so: {}",
            trouble.cause
        );
    }
}

/// It leaves for good.
pub(super) fn leaving() {
    tracing::info!(op = "shutdown", "leaving memberlist cluster");
}

/// … and the others have been told.
pub(super) fn left() {
    tracing::info!(op = "shutdown", "left memberlist cluster");
}

/// It leaves for as long as others know better what is to be announced.
pub(super) fn steps_aside() {
    tracing::warn!(
        op = "memberDiscovery",
        "the Kubernetes API is lost here and not elsewhere: leaving the member list, beside MetalLB's speakers, until \
         it is back"
    );
}

/// … and comes back.
pub(super) fn comes_back() {
    tracing::info!(op = "memberDiscovery", "joining the member list again");
}

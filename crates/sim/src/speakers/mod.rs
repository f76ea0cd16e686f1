// SPDX-License-Identifier: Apache-2.0
//! A cluster of speakers: who answers for which address, whatever happens to the network and to them.
//!
//! Every speaker is the wire side of `ferrolb-speaker-core` with its gossip engine; its control side is reduced to
//! what decides: plans and lists of Pods that come late, or not at all while it has lost the API. Stand-ins for
//! MetalLB's speakers take part on request. Datagrams, streams and announcements pass a network that loses, delays and
//! parts them. Who answers is judged all the time ([`Tally`] names the rules), by a rule of election of the judge's own, each
//! fault with the time that it may take until all is well again.

mod agenda;
mod bounds;
mod cluster;
mod faults;
mod judge;
mod links;
mod oracle;
mod process;
mod run;
mod standin;
mod tally;
mod traffic;
mod world;

pub use run::{Shape, run, story};
pub use tally::{Cause, Group, Tally, Worst};

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Violation {
    rule: tally::Mark,
    what: String,
}

// SPDX-License-Identifier: Apache-2.0
//! What a node announces by BGP: which Services, as which prefixes, with which attributes, to which peers.
//!
//! ```text
//!   Services, endpoints ─┐                    ┌─► per Service: its advertisements, or why there is nothing to announce
//!   nodes ───────────────┼─► BgpPlan::replan ─┤
//!   BGPAdvertisements ───┘                    └─► per prefix: what advertises it, counted ─► route for a peer
//! ```
//!
//! Every node announces what it can serve; nobody is elected. Services and advertisements that come to the same prefix
//! are counted, so that it goes with the last of them; what they say of it is united.

mod plan;
mod reason;
mod route;

pub use plan::{BgpOffer, BgpPlan, BgpServicePlan};
pub use reason::BgpReason;
pub use route::BgpRoute;

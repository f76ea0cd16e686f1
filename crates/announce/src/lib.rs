// SPDX-License-Identifier: Apache-2.0
//! Which node announces which address, how, and why not.
//!
//! [`plan`] turns what is known of the cluster (configuration, nodes, Services with their endpoints) into a
//! [`NodePlan`]: per Service what the own node may announce of it or the reason why nothing, per address the
//! nodes that could answer for it, best first, and the interfaces of the own node. [`owner`] then says who of
//! the living answers, MetalLB's speakers among them ([`metallb`] is their rule). The two are apart because members come and go faster than objects do: a failover needs
//! no new plan.
//!
//! Over BGP every node announces what it can serve: [`bgp`] has its own plan, made from the same inputs.
//!
//! Everything here is a pure function, and incremental work ([`NodePlan::replan`]) gives what a full pass would.

mod addresses;
pub mod bgp;
mod election;
mod inputs;
mod members;
pub mod metallb;
mod plan;
mod reason;
mod sharing;

pub use addresses::AddressPlans;
pub use election::{Digest, digest};
pub use inputs::{Counts, Endpoint, Endpoints, Ingress, Inputs, Node, Service, Settings, handles_class};
pub use members::{Members, Standing, metallb_owners, owner};
pub use plan::{NodePlan, Offer, ServicePlan, plan, why_no_candidate};
pub use reason::Reason;
pub use sharing::{AddressPlan, Finding};

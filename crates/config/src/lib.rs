// SPDX-License-Identifier: Apache-2.0
//! Custom resources in, one consistent configuration out.
//!
//! ```text
//!  Resources (objects, labels of nodes and namespaces) ─┐
//!                                                       ├─► evaluate ─► Config            what is in force
//!  LastGood (of the former evaluation) ─────────────────┘              LastGood          for the next one
//!                                                                      diagnostics       what is wrong, in MetalLB's order
//!                                                                      verdict           what MetalLB v0.16.1 says of the whole
//! ```
//!
//! [`evaluate`] is the only way to a [`Config`]; the controller, the speakers, the webhooks and the offline commands
//! all use it. Where MetalLB refuses the whole configuration for one bad object, here that object keeps its last
//! good version and the others go on; the verdict is computed all the same. [`state`] shows it to the users, and
//! [`admission`] judges objects before they are stored.

pub mod admission;
pub mod state;

mod bgp;
mod community;
mod diagnostic;
mod duplicates;
mod evaluate;
mod l2;
mod label_syntax;
mod model;
mod overlap;
mod password;
mod pool;
mod resources;
mod selector;
mod settle;

pub use bgp::{Bgp, BgpAdvertisement, BgpCapability, BgpDefaults, BgpPeer, LinkBandwidth, PeerAs};
pub use community::{BgpCommunity, ParseCommunityError};
pub use diagnostic::Diagnostic;
pub use evaluate::{Evaluation, LastGood, evaluate};
pub use model::{Config, L2Advertisement, Pool, ServiceAllocation};
pub use password::Password;
pub(crate) use resources::by_name;
pub use resources::{BgpType, Resources, Undecodable, apply, secrets_named};
pub use selector::{Labels, ParseSelectorError, Selector};

// SPDX-License-Identifier: Apache-2.0
//! The custom resources of `metallb.io` as Rust types, and what both daemons exchange with the Kubernetes API.
//!
//! - One module per kind, with the plain shape of the object as the API server stores it. Decoding is tolerant:
//!   what can be wrong in an object is judged by `ferrolb-config`, object by object.
//! - [`crds`] gives the definitions of all kinds, as MetalLB v0.16.1 (and its main branch) ships them.
//! - [`conversion`] of BGPPeers between their two versions.
//! - [`annotations`] and [`labels`]: the names users and tools know.
//! - [`ApiRequest`](request::ApiRequest), [`Event`](event::Event), [`Change`] and [`Clock`]: what the daemons' cores
//!   say and hear. They are values: a core decides, the daemon around it does the input and output.

// Each printer column of a kind repeats the keys of `printcolumn`, and often the column's type.
#![allow(clippy::duplicated_attributes)]

/// The one place that says `ferrolb.io`.
macro_rules! own_group {
    () => {
        "ferrolb.io"
    };
}

pub mod annotations;
pub mod bfdprofile;
pub mod bgpadvertisement;
pub mod bgppeer;
pub mod bgppeer_v1beta1;
pub mod bgpsession;
pub mod community;
pub mod configurationstate;
pub mod conversion;
pub mod event;
pub mod ipaddresspool;
pub mod l2advertisement;
pub mod labels;
pub mod request;
pub mod servicebgpstatus;
pub mod servicel2status;

mod change;
mod clock;
mod definitions;
mod duration;
mod schema;

pub use bfdprofile::{BFDProfile, BFDProfileSpec};
pub use bgpadvertisement::{BGPAdvertisement, BGPAdvertisementSpec};
pub use bgppeer::{BGPPeer, BGPPeerSpec};
pub use bgpsession::{BGPSession, BGPSessionStatus};
pub use change::Change;
pub use clock::Clock;
pub use community::{Community, CommunityAlias, CommunitySpec};
pub use configurationstate::{ConfigurationResult, ConfigurationState, ConfigurationStateStatus};
pub use definitions::{crds, crds_in, manifests, own_manifests};
pub use duration::{Duration, ParseDurationError};
pub use ipaddresspool::{IPAddressPool, IPAddressPoolSpec, IPAddressPoolStatus, ServiceAllocation};
pub use l2advertisement::{L2Advertisement, L2AdvertisementSpec, PreferredNodeSelector};
pub use servicebgpstatus::{ServiceBGPStatus, ServiceBGPStatusStatus};
pub use servicel2status::{InterfaceRef, ServiceL2Status, ServiceL2StatusStatus};

/// The API group of every kind here.
pub const GROUP: &str = "metallb.io";

/// The group of ferrolb's own kinds, and the prefix of its own annotations and conditions.
pub const OWN_GROUP: &str = own_group!();

/// The condition of a ConfigurationState that carries every diagnostic beside the one its verdict shows.
pub const DIAGNOSTICS_CONDITION: &str = concat!(own_group!(), "/Diagnostics");

/// The condition of a speaker's ConfigurationState that names other speakers which run and cannot be reached; absent
/// while there are none.
pub const MEMBERS_CONDITION: &str = concat!(own_group!(), "/Members");

/// The condition of a Service that says whether it has its addresses, or why not.
pub const ALLOCATED_CONDITION: &str = concat!(own_group!(), "/Allocated");

/// The condition of a Service that says who announces its addresses.
pub const ANNOUNCED_CONDITION: &str = concat!(own_group!(), "/Announced");

/// The namespace of MetalLB's manifests.
pub const DEFAULT_NAMESPACE: &str = "metallb-system";

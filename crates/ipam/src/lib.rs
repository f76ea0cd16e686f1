// SPDX-License-Identifier: Apache-2.0
//! Which address a Service gets, and why.
//!
//! The pools of a [`ferrolb_config::Config`] are turned into an [`Allocator`], which knows who holds what. One
//! Service at a time, as a [`Claim`], goes in; a [`Decision`] comes out: the addresses its status should list,
//! the pool they belong to, the [`Notice`]s its events should tell and the [`Outcome`] with its reason. Nothing
//! here knows Kubernetes objects, clocks or the network, and nothing depends on a pool's size: a `/8` and an
//! IPv6 `/64` cost what their *held* addresses cost.
//!
//! A pass over many Services has two phases, so that an address in somebody's status is never given away: first
//! [`Allocator::adopt`] for every Service that lists something, by [`Rank`], and [`Allocator::hold_back`] for
//! those that may not keep what they list; then [`Allocator::converge`] for all, by [`Rank`] again.

mod allocator;
mod choose;
mod claim;
mod converge;
mod family;
mod lack;
mod notice;
mod ranges;
mod refusal;
mod request;
mod space;
mod text;
mod want;

pub use allocator::{Allocation, Allocator, Changes, Counters, Usage};
pub use claim::{Claim, IpFamilyPolicy, Keys, Port, Protocol, Rank};
pub use converge::{Choice, Cleared, Decision, Outcome, PoolMark};
pub use family::{Families, FamilyError};
pub use lack::Lack;
pub use notice::{Kind, Notice};
pub use refusal::Refusal;
pub use request::{RequestError, requested_ips};
pub use want::{Spot, Want};

// SPDX-License-Identifier: Apache-2.0
//! Words that every crate uses: addresses, names, time.
//!
//! Plain values without behaviour of their own beyond parsing, printing and order. This crate depends on
//! nothing, so that a protocol engine can use it without seeing Kubernetes or the operating system.

mod address;
mod asn;
mod interfaces;
mod mac;
mod name;
mod time;

pub use address::{IpFamily, ParsePrefixError, Prefix, canonical, parse_ip};
pub use asn::Asn;
pub use interfaces::Interfaces;
pub use mac::{Mac, ParseMacError};
pub use name::{IfIndex, InterfaceName, NodeName, PeerName, PoolName, ServiceKey};
pub use time::Time;

// SPDX-License-Identifier: Apache-2.0
//! The only crate that touches the operating system below std: packet sockets, netlink, namespaces, privileges.
//!
//! Everything here is synchronous and returns [`Error`], which says what was attempted and on what. Nothing
//! here decides anything: which interface answers for which address is the engines' business.
//!
//! ```text
//!   netns ── link ── inspect            the lab: hosts, cables, addresses; and what the kernel made of them
//!      └──── sysctl   container         a process as a container runtime would start it
//!                     process           who a pid is, so that it is never taken for another
//!                     clock             time that suspensions are part of
//!   packet ── poll ── monitor           the speaker: frames in and out, waiting, interfaces that change
//!      │      groups                    IPv6 multicast groups, so that switches pass on who asks
//!      │      sched                     how soon a thread that is woken gets a processor
//!      └──── probe                      who answers by ARP, and how fast
//!   tcp                                 passwords and hops of connections to routers
//! ```
#![allow(unsafe_code)] // Each block says why it is sound.

pub mod clock;
pub mod container;
mod error;
mod filter;
mod groups;
pub mod inspect;
pub mod link;
pub mod memory;
mod monitor;
mod netlink;
pub mod netns;
pub mod packet;
pub mod poll;
pub mod probe;
pub mod process;
pub mod sched;
pub mod sysctl;
pub mod tcp;

pub use error::{Error, Result};
pub use filter::Neighbourhoods;
pub use groups::Groups;
pub use monitor::LinkMonitor;
pub use netlink::Netlink;
pub use netns::Namespace;
pub use packet::PacketSocket;
pub use poll::{Poller, Waker};

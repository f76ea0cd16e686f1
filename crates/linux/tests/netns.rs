// SPDX-License-Identifier: Apache-2.0
//! What only a kernel can show: namespaces, cables, containers, packet sockets.
//!
//! These tests need root. Without it each says loudly that it is skipped. Every test makes its own namespaces,
//! sends packets nowhere else, and takes them away again.
#![allow(clippy::unwrap_used)] // a failure in a helper is a failure of the test

#[path = "netns/containers.rs"]
mod containers;
#[path = "netns/hosts.rs"]
mod hosts;
#[path = "netns/neighbors.rs"]
mod neighbors;
#[path = "netns/packets.rs"]
mod packets;
#[path = "netns/routers.rs"]
mod routers;
#[path = "netns/support.rs"]
mod support;

// SPDX-License-Identifier: Apache-2.0
//! Watches, writes, events, metrics and webhooks against an API server on a real socket.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test")]

mod cable;
mod events;
mod metrics;
mod pulse;
mod rotation;
mod watch;
mod webhook;
mod writes;

// SPDX-License-Identifier: Apache-2.0
//! Watches, writes, events and metrics against an API server on a real socket.

mod cable;
mod events;
mod metrics;
mod watch;
mod writes;

// SPDX-License-Identifier: Apache-2.0
//! BGP-4 for a speaker that announces addresses, without I/O.
//!
//! [`wire`] holds the bytes: messages, their attributes, the stream that they come in.

pub mod wire;

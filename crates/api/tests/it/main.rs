// SPDX-License-Identifier: Apache-2.0
//! The kinds as users and the API server see them.

#![allow(clippy::unwrap_used)] // a test may fail by it, in its helpers too

mod decoding;
mod definitions;

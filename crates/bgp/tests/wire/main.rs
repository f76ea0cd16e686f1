// SPDX-License-Identifier: Apache-2.0
//! Bytes: the laws that hold for all of them, and the malformed ones that are known to have hurt others.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on says so

mod classes;
mod laws;
mod malformed;

// SPDX-License-Identifier: Apache-2.0
//! The controller's decisions over time, without I/O.
//!
//! A [`Core`] is told what the watches deliver and how writes ended, as [`Input`]s, and says what to do, as
//! [`Effect`]s. It has no clock and no connection: the daemon around it, a test or a simulator drive it alike.

mod core;
mod io;

pub use crate::core::Core;
pub use io::{Effect, Input, Settings, WriteId};

// SPDX-License-Identifier: Apache-2.0
//! Keeps a daemon's ConfigurationState true: the object that tells users whether the configuration is accepted.
//!
//! [`Reporter`] is a state machine without I/O. It hears of the object through a watch, of the configuration through
//! [`Outcome`]s, and of its own writes; it says what to write next. At most one request is under way; nothing is
//! written that already stands in the object, also after a restart.
//!
//! The forms are MetalLB's: the object is created with labels and a reference to the own Pod, the condition goes by
//! server-side apply, result and summary by merge patch. Everything that the condition has no room for stands in a
//! further condition, `ferrolb.io/Diagnostics`, which is absent when there is nothing more to say. A speaker that cannot
//! reach others names them in `ferrolb.io/Members`; that is no fault of the configuration, and leaves the result alone.

mod object;
mod reporter;

pub use object::{Component, Identity, OwnPod};
pub use reporter::{Input, Outcome, Reporter};

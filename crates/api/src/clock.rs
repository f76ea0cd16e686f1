// SPDX-License-Identifier: Apache-2.0
//! The two readings of time that a core's call carries.

use ferrolb_net_types::Time;
use jiff::Timestamp;

/// One reading of both clocks, made by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Monotonic: for deadlines and durations.
    pub now: Time,
    /// Wall clock: only for times that are written into objects.
    pub wall: Timestamp,
}

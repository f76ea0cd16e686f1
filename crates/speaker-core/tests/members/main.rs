// SPDX-License-Identifier: Apache-2.0
//! Wire sides among themselves, in simulated time: who answers when speakers start, stop, die, sleep, part and meet.
#![allow(clippy::unwrap_used)] // the helpers of tests

mod away;
mod disputes;
mod entering;
mod lines;
mod network;
mod numbers;
mod orders;
mod outdated;
mod reasons;
#[path = "../log/recorder.rs"]
mod recorder;
mod segments;
mod start;

use std::time::Duration;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

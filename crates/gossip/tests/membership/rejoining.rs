// SPDX-License-Identifier: Apache-2.0
//! The rhythm in which a candidate that is no member is tried: every two seconds, and not by all at the same moment.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolb_gossip::{Engine, Input, Output, StreamFailure};
use ferrolb_net_types::Time;

use crate::network::{address, ours};

/// When a member tries the one that is missing within ten minutes, of which each try is refused.
fn tries(seed: u8, from: Time) -> Vec<Time> {
    let mut engine = Engine::new(Time::ZERO, ours(0), [seed; 32]);
    engine.handle(Time::ZERO, Input::Participate);
    engine.handle(from, Input::Candidates(&[address(1)]));
    let (mut now, end) = (from, from + Duration::from_secs(600));
    let mut times = Vec::new();
    while now < end {
        engine.handle_timeout(now);
        while let Some(output) = engine.poll() {
            if let Output::Open { stream, to, .. } = output {
                assert_eq!(to, address(1));
                times.push(now);
                engine.handle(now, Input::Failed { stream, failure: StreamFailure::Refused });
            }
        }
        now = engine.next_deadline().map_or(end, |deadline| deadline.max(now + Duration::from_micros(1)));
    }
    times
}

#[test]
fn who_is_missed_is_tried_every_two_seconds_with_jitter() {
    let mut all = BTreeSet::new();
    for seed in 0..20 {
        let times = tries(seed, Time::millis(5000));
        assert_eq!(times[0], Time::millis(5000), "at once");
        assert!((270..=330).contains(&times.len()), "seed {seed}: {}", times.len());
        let pauses: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let bounds = Duration::from_millis(1500)..=Duration::from_millis(2500);
        assert!(pauses.iter().all(|pause| bounds.contains(pause)), "seed {seed}: {pauses:?}");
        let short = pauses.iter().filter(|pause| **pause < Duration::from_millis(1750)).count();
        let long = pauses.iter().filter(|pause| **pause > Duration::from_millis(2250)).count();
        assert!(short > 30 && long > 30, "seed {seed}: the jitter is spread over a second");
        all.extend(times[1..20].iter().copied());
    }
    assert!(all.len() > 19 * 19, "those that miss one at the same moment do not try it at the same moments");
}

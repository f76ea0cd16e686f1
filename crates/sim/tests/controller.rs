// SPDX-License-Identifier: Apache-2.0
//! Sequences against the controller's core. `ferrolb sim controller` plays far more of them.

use ferrolb_sim::controller::{Group, Tally, run};

const SEQUENCES: u64 = 2_000;

#[test]
fn the_controller_keeps_every_rule() {
    let mut tally = Tally::default();
    for seed in 0..SEQUENCES {
        match run(seed) {
            Ok(counts) => tally.add(&counts),
            Err(broken) => panic!("{broken}"),
        }
    }
    println!("{tally}");
    assert!(tally.mean_steps() >= 30.0, "{} steps", tally.mean_steps());
    // The rest is so rare that only the long run is sure to meet it.
    for group in [Group::Rules, Group::Steps, Group::Faults] {
        let missing: Vec<&str> = tally.counts(group).filter(|(_, n)| *n == 0).map(|(text, _)| text).collect();
        assert_eq!(missing, Vec::<&str>::new(), "{}", group.title());
    }
}

#[test]
fn a_seed_always_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Sequences against clusters of speakers. `ferrolb sim speakers` plays far more of them.

use ferrolb_sim::speakers::{Shape, Tally, run};

fn play(shape: Shape, sequences: u64) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..sequences {
        match run(seed, shape) {
            Ok(counts) => tally.add(&counts),
            Err(broken) => panic!("{broken}"),
        }
    }
    println!("{tally}");
    tally
}

#[test]
fn three_speakers_keep_every_rule() {
    play(Shape { nodes: 3, metallb: 0 }, 60);
}

#[test]
fn ten_speakers_keep_every_rule() {
    play(Shape { nodes: 10, metallb: 0 }, 20);
}

#[test]
fn speakers_of_both_kinds_keep_every_rule() {
    play(Shape { nodes: 3, metallb: 1 }, 30);
    play(Shape { nodes: 4, metallb: 2 }, 30);
}

#[test]
fn a_seed_always_gives_the_same_run() {
    for seed in 0..5 {
        let shape = Shape { nodes: 4, metallb: 1 };
        assert_eq!(run(seed, shape), run(seed, shape));
    }
}

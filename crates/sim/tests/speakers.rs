// SPDX-License-Identifier: Apache-2.0
//! Sequences against clusters of speakers. `ferrolb sim speakers` plays far more of them.

use ferrolb_sim::speakers::{Group, Shape, Tally, run};

fn play(shape: Shape, sequences: u64) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..sequences {
        match run(seed, shape) {
            Ok(counts) => tally.add(&counts),
            Err(broken) => panic!("{broken}"),
        }
    }
    println!("{tally}");
    // The rest is so rare that only a long run is sure to meet it.
    let untested: Vec<&str> =
        tally.counts(Group::Rules).filter(|(_, n)| *n == 0).map(|(text, _)| text).collect();
    assert_eq!(untested, Vec::<&str>::new(), "rules that were never put to the test");
    tally
}

#[test]
fn x03_x09_three_speakers_keep_every_rule() {
    play(Shape { nodes: 3, metallb: 0 }, 60);
}

#[test]
fn x03_x09_ten_speakers_keep_every_rule() {
    play(Shape { nodes: 10, metallb: 0 }, 20);
}

#[test]
fn x01_speakers_of_both_kinds_keep_every_rule() {
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

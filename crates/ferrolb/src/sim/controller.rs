// SPDX-License-Identifier: Apache-2.0
//! `ferrolb sim controller`: what was played, and what it came to.

use std::num::NonZero;
use std::time::{Duration, Instant};

use ferrolb_sim::controller::{self, Group, Tally};
use serde_json::{Value, json};

use super::play::{Counts, Played, Sequences, play};
use super::{Form, Report, broken_json};

pub(super) const EXAMPLES: &str = "\
Each sequence is drawn from a seed: the same seed is the same sequence. One that breaks a rule is cut down to the steps
that it takes, and told. Exit status: 1 if a rule was broken, or if anything that is counted never happened (in
10,000 sequences or more).

Examples:
  ferrolb sim controller                                 10,000 sequences
  ferrolb sim controller --sequences 100000 -o json      what CI does, for a program
  ferrolb sim controller --seed 1703 --sequences 1       one sequence again";

/// How much, and how it is reported.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many sequences to play.
    #[arg(long, default_value_t = 10_000)]
    sequences: u64,
    /// Seed of the first one; the others follow it.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads to play them on; as many as there are processors if not given.
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Form of the report.
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    pub(super) output: Form,
}

/// What never happens in so many sequences was forgotten, not missed by chance.
const MANY: u64 = 10_000;

impl Counts for Tally {
    fn add(&mut self, other: &Self) {
        self.add(other);
    }
}

pub(super) fn run(args: &Args) -> Report {
    let started = Instant::now();
    let Args { sequences: count, seed: first, threads, .. } = *args;
    let played = play(&Sequences { first, count, threads }, controller::run);
    let took = started.elapsed();
    Report { text: text(&played, took), json: json_of(&played, took), fine: is_fine(&played) }
}

/// What never happened, if there were enough sequences to say so.
fn missing(played: &Played<Tally>) -> Vec<&'static str> {
    if played.tally.sequences < MANY { vec![] } else { played.tally.missing().collect() }
}

fn is_fine(played: &Played<Tally>) -> bool {
    played.broken.is_empty() && missing(played).is_empty()
}

fn text(played: &Played<Tally>, took: Duration) -> String {
    let mut text = format!("{}\nin {:.1} s\n", played.tally, took.as_secs_f64());
    for broken in &played.broken {
        text.push_str(&format!("\n{broken}"));
    }
    let missing = missing(played);
    if !missing.is_empty() {
        text.push_str(&format!("\nnever happened: {}\n", missing.join("; ")));
    }
    text.push_str(if is_fine(played) { "\nno rule was broken\n" } else { "\nFAILED\n" });
    text
}

fn json_of(played: &Played<Tally>, took: Duration) -> Value {
    let counts = |group: &Group| {
        let counts = played.tally.counts(*group).map(|(text, n)| (text.to_owned(), json!(n)));
        (group.title().to_owned(), Value::Object(counts.collect()))
    };
    json!({
        "sequences": played.tally.sequences,
        "meanSteps": played.tally.mean_steps(),
        "requests": played.tally.requests,
        "simulatedSeconds": played.tally.seconds,
        "seconds": took.as_secs_f64(),
        "counts": Group::ALL.iter().map(counts).collect::<serde_json::Map<_, _>>(),
        "missing": missing(played),
        "broken": played.broken.iter().map(broken_json).collect::<Vec<_>>(),
        "ok": is_fine(played),
    })
}

#[cfg(test)]
mod tests {
    use ferrolb_sim::Broken;

    use super::*;

    fn played(count: u64, threads: usize) -> Played<Tally> {
        play(&Sequences { first: 5, count, threads: NonZero::new(threads) }, controller::run)
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let (one, two) = (played(40, 1), played(40, 2));
        assert_eq!(one.tally, two.tally);
        assert_eq!((one.tally.sequences, one.broken.len()), (40, 0));
    }

    #[test]
    fn what_never_happened_fails_a_long_run() {
        let mut played = played(1, 1);
        assert!(is_fine(&played), "one sequence need not meet everything");
        played.tally.sequences = MANY;
        assert!(!is_fine(&played));
        assert!(text(&played, Duration::ZERO).contains("never happened: "));
        assert_eq!(json_of(&played, Duration::ZERO)["ok"], json!(false));
    }

    #[test]
    fn a_broken_rule_is_told_in_both_forms() {
        let broken = Broken {
            seed: 7,
            rule: "the rule",
            what: "somebody did".to_owned(),
            steps: 1,
            story: vec!["it began".to_owned()],
        };
        let played = Played { tally: Tally::default(), broken: vec![broken] };
        assert!(!is_fine(&played));
        let text = text(&played, Duration::from_millis(1500));
        for part in ["in 1.5 s", "seed 7 breaks the rule: the rule", "somebody did", "it began", "FAILED"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(json_of(&played, Duration::ZERO)["broken"][0]["story"], json!(["it began"]));
    }
}

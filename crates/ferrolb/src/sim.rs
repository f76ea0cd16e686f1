// SPDX-License-Identifier: Apache-2.0
//! `ferrolb sim`: sequences of events in simulated time, spread over the machine's processors.
//!
//! A sequence depends on its seed alone, so the number of threads changes nothing but the time it takes.

use std::io::IsTerminal as _;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Subcommand, ValueEnum};
use ferrolb_sim::controller::{self, Broken, Group, Tally};
use serde_json::{Value, json};

use crate::print;

/// What is simulated.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The controller against users, strangers, faults and a second controller: who gets which address.
    #[command(after_help = EXAMPLES)]
    Controller(Args),
}

const EXAMPLES: &str = "\
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
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What never happens in so many sequences was forgotten, not missed by chance.
const MANY: u64 = 10_000;

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let Command::Controller(args) = command;
    let started = Instant::now();
    let report = play(args);
    let took = started.elapsed();
    let text = match args.output {
        Form::Text => report.text(took),
        Form::Json => serde_json::to_string_pretty(&report.json(took))? + "\n",
    };
    print(&text)?;
    Ok(if report.is_fine() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What all sequences came to.
struct Report {
    tally: Tally,
    broken: Vec<Broken>,
}

/// A sequence that takes longer than this has no end; to cut a broken one down may take its time.
const ENDLESS: Duration = Duration::from_secs(300);

/// Plays the sequences until all are done or one breaks a rule. Ends the process if one has no end.
fn play(args: &Args) -> Report {
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let under_way: Vec<Mutex<Option<(u64, Instant)>>> = (0..threads).map(|_| Mutex::new(None)).collect();
    let note = |player: usize, what: Option<(u64, Instant)>| {
        if let Ok(mut slot) = under_way[player].lock() {
            *slot = what;
        }
    };
    let report = Mutex::new(Report { tally: Tally::default(), broken: vec![] });
    std::thread::scope(|scope| {
        let (next, done, over, report, note) = (&next, &done, &over, &report, &note);
        let players: Vec<_> = (0..threads)
            .map(|player| {
                scope.spawn(move || {
                    let mut tally = Tally::default();
                    let mut broken = Vec::new();
                    while !over.load(Ordering::Relaxed) {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= args.sequences {
                            break;
                        }
                        let seed = args.seed.wrapping_add(n);
                        let mourner = Mourner(seed);
                        note(player, Some((seed, Instant::now())));
                        match controller::run(seed) {
                            Ok(counts) => tally.add(&counts),
                            Err(found) => {
                                over.store(true, Ordering::Relaxed);
                                broken.push(*found);
                            }
                        }
                        std::mem::forget(mourner);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    note(player, None);
                    // Only a thread that panics leaves it poisoned, and then the whole ends.
                    if let Ok(mut report) = report.lock() {
                        report.tally.add(&tally);
                        report.broken.append(&mut broken);
                    }
                })
            })
            .collect();
        let shows = std::io::stderr().is_terminal();
        while players.iter().any(|player| !player.is_finished()) {
            if shows {
                eprint!("\r{} of {} sequences ", done.load(Ordering::Relaxed), args.sequences);
            }
            for slot in &under_way {
                let begun = slot.lock().ok().and_then(|slot| *slot);
                if let Some((seed, _)) = begun.filter(|(_, begun)| begun.elapsed() > ENDLESS) {
                    eprintln!("the sequence with seed {seed} has no end");
                    std::process::exit(1);
                }
            }
            std::thread::sleep(Duration::from_millis(if shows { 200 } else { 20 }));
        }
        if shows {
            eprint!("\r\x1b[K");
        }
    });
    let mut report = report.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    report.broken.sort_by_key(|broken| broken.seed);
    report
}

/// Says which sequence it was that a panic ended.
struct Mourner(u64);

impl Drop for Mourner {
    fn drop(&mut self) {
        eprintln!("the sequence with seed {} ended in a panic", self.0);
    }
}

impl Report {
    /// What never happened, if there were enough sequences to say so.
    fn missing(&self) -> Vec<&'static str> {
        if self.tally.sequences < MANY { vec![] } else { self.tally.missing().collect() }
    }

    fn is_fine(&self) -> bool {
        self.broken.is_empty() && self.missing().is_empty()
    }

    fn text(&self, took: Duration) -> String {
        let mut text = format!("{}\nin {:.1} s\n", self.tally, took.as_secs_f64());
        for broken in &self.broken {
            text.push_str(&format!("\n{broken}"));
        }
        let missing = self.missing();
        if !missing.is_empty() {
            text.push_str(&format!("\nnever happened: {}\n", missing.join("; ")));
        }
        text.push_str(if self.is_fine() { "\nno rule was broken\n" } else { "\nFAILED\n" });
        text
    }

    fn json(&self, took: Duration) -> Value {
        let counts = |group: &Group| {
            let counts = self.tally.counts(*group).map(|(text, n)| (text.to_owned(), json!(n)));
            (group.title().to_owned(), Value::Object(counts.collect()))
        };
        let broken = |broken: &Broken| {
            json!({
                "seed": broken.seed, "rule": broken.rule, "what": broken.what, "steps": broken.steps,
                "story": broken.story,
            })
        };
        json!({
            "sequences": self.tally.sequences,
            "meanSteps": self.tally.mean_steps(),
            "requests": self.tally.requests,
            "simulatedSeconds": self.tally.seconds,
            "seconds": took.as_secs_f64(),
            "counts": Group::ALL.iter().map(counts).collect::<serde_json::Map<_, _>>(),
            "missing": self.missing(),
            "broken": self.broken.iter().map(broken).collect::<Vec<_>>(),
            "ok": self.is_fine(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(sequences: u64, threads: usize) -> Args {
        Args { sequences, seed: 5, threads: NonZero::new(threads), output: Form::Json }
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let (one, two) = (play(&args(40, 1)), play(&args(40, 2)));
        assert_eq!(one.tally, two.tally);
        assert_eq!((one.tally.sequences, one.broken.len()), (40, 0));
    }

    #[test]
    fn what_never_happened_fails_a_long_run() {
        let mut report = play(&args(1, 1));
        assert!(report.is_fine(), "one sequence need not meet everything");
        report.tally.sequences = MANY;
        assert!(!report.is_fine());
        assert!(report.text(Duration::ZERO).contains("never happened: "));
        assert_eq!(report.json(Duration::ZERO)["ok"], json!(false));
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
        let report = Report { tally: Tally::default(), broken: vec![broken] };
        assert!(!report.is_fine());
        let text = report.text(Duration::from_millis(1500));
        for part in ["in 1.5 s", "seed 7 breaks the rule: the rule", "somebody did", "it began", "FAILED"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(report.json(Duration::ZERO)["broken"][0]["story"], json!(["it began"]));
    }
}

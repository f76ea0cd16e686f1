// SPDX-License-Identifier: Apache-2.0
//! Figures beside their aims, measured in one run: what, measured, aim, met or missed.
//!
//! Times are CPU times, the best of several rounds, since whatever else the machine does can only lengthen them. With
//! `--quick` there is one round, and the run fails only where a figure is beyond ten times its aim: a slow machine is
//! no defect, a cost that grows with the wrong number is.

use std::process::ExitCode;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// How a figure is printed.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    /// A time, in milliseconds.
    Milliseconds,
    /// A time, in microseconds.
    Microseconds,
    /// A ratio of two times of this run.
    Times,
    /// A number of things.
    Count,
}

/// The table of one run.
pub(crate) struct Table {
    quick: bool,
    rows: Vec<Row>,
}

struct Row {
    what: String,
    measured: f64,
    aim: Option<f64>,
    unit: Unit,
}

impl Table {
    /// A table as the command line asks for it; `cargo bench` adds arguments of its own, which mean nothing here.
    pub(crate) fn from_arguments() -> Self {
        Self { quick: std::env::args().any(|argument| argument == "--quick"), rows: vec![] }
    }

    /// The best time of several rounds of `work`, each on a fresh `set_up`, which is not measured.
    pub(crate) fn best<S, R>(&self, set_up: impl Fn() -> S, work: impl Fn(S) -> R) -> Duration {
        let rounds = if self.quick { 1 } else { 7 };
        let round = |_| {
            let state = set_up();
            let start = cpu_time();
            let result = work(state);
            let took = cpu_time() - start;
            drop(std::hint::black_box(result));
            took
        };
        (0..rounds).map(round).min().unwrap_or_default()
    }

    /// Adds a time.
    pub(crate) fn time(&mut self, what: &str, took: Duration, aim: Option<Duration>, unit: Unit) {
        let in_unit = |time: Duration| match unit {
            Unit::Microseconds => time.as_secs_f64() * 1e6,
            _ => time.as_secs_f64() * 1e3,
        };
        self.rows.push(Row { what: what.to_owned(), measured: in_unit(took), aim: aim.map(in_unit), unit });
    }

    /// Adds a ratio.
    pub(crate) fn ratio(&mut self, what: &str, slow: Duration, fast: Duration, aim: f64) {
        let measured = slow.as_secs_f64() / fast.as_secs_f64().max(1e-9);
        self.rows.push(Row { what: what.to_owned(), measured, aim: Some(aim), unit: Unit::Times });
    }

    /// Adds a number that no machine can change.
    pub(crate) fn count(&mut self, what: &str, number: usize, aim: usize) {
        let (measured, aim) = (number as f64, Some(aim as f64));
        self.rows.push(Row { what: what.to_owned(), measured, aim, unit: Unit::Count });
    }

    /// Prints the table. Fails where an aim is missed; quickly, where it is missed by far.
    pub(crate) fn finish(self) -> ExitCode {
        let width = self.rows.iter().map(|row| row.what.chars().count()).max().unwrap_or_default();
        println!("{:width$}  {:>10}  {:>10}  ", "what", "measured", "aim");
        let mut good = true;
        for Row { what, measured, aim, unit } in &self.rows {
            let print = |figure: f64| match unit {
                Unit::Milliseconds => format!("{figure:.1} ms"),
                Unit::Microseconds => format!("{figure:.1} µs"),
                Unit::Times => format!("{figure:.2}×"),
                Unit::Count => format!("{figure:.0}"),
            };
            let aim_text = aim.map(|aim| format!("≤ {}", print(aim))).unwrap_or_default();
            let verdict = aim.map_or("", |aim| if *measured <= aim { "met" } else { "missed" });
            println!("{what:width$}  {:>10}  {aim_text:>10}  {verdict}", print(*measured));
            let factor = if self.quick && !matches!(unit, Unit::Count) { 10.0 } else { 1.0 };
            good &= aim.is_none_or(|aim| *measured <= aim * factor);
        }
        if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// What this thread has cost so far.
pub(crate) fn cpu_time() -> Duration {
    // Every kernel of the last twenty years has this clock.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

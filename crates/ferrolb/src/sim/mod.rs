// SPDX-License-Identifier: Apache-2.0
//! `ferrolb sim`: sequences of events in simulated time.

mod controller;
mod play;
mod speakers;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use ferrolb_sim::Broken;
use serde_json::{Value, json};

use ferrolb_program::print;

/// What is simulated.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The controller against users, strangers, faults and a second controller: who gets which address.
    #[command(after_help = controller::EXAMPLES)]
    Controller(controller::Args),
    /// A cluster of speakers against a bad network, deaths and restarts: who answers for which address.
    #[command(after_help = speakers::EXAMPLES)]
    Speakers(speakers::Args),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What was played, and what it came to.
struct Report {
    text: String,
    json: Value,
    /// No rule was broken, and everything happened that can.
    fine: bool,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let (report, form) = match command {
        Command::Controller(args) => (controller::run(args), args.output),
        Command::Speakers(args) => (speakers::run(args), args.output),
    };
    let text = match form {
        Form::Text => report.text,
        Form::Json => serde_json::to_string_pretty(&report.json)? + "\n",
    };
    print(&text)?;
    Ok(if report.fine { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn broken_json(broken: &Broken) -> Value {
    json!({
        "seed": broken.seed, "rule": broken.rule, "what": broken.what, "steps": broken.steps,
        "story": broken.story,
    })
}

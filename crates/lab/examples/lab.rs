// SPDX-License-Identifier: Apache-2.0
//! The lab's command line alone, without the daemons: for work on the bench itself.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ferrolb_lab::cli;

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Lab(cli::Command),
    #[command(flatten)]
    Hidden(cli::Hidden),
}

fn main() -> ExitCode {
    let result = match Line::parse().command {
        Command::Lab(command) => cli::run(command),
        Command::Hidden(command) => cli::run_hidden(command),
    };
    result.unwrap_or_else(|error| {
        anstream::eprintln!("Error: {error:#}");
        ExitCode::from(2)
    })
}

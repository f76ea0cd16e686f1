// SPDX-License-Identifier: Apache-2.0
//! The program with everything: what images hold, the bench, and the simulations.

mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ferrolb_lab::cli as lab;

#[derive(Debug, Parser)]
#[command(
    name = "ferrolb",
    version,
    about = "External addresses for Services of type LoadBalancer, as MetalLB gives them",
    after_help = examples()
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn examples() -> String {
    format!(
        "\
Examples:
  ferrolb lab up                                     build a small cluster and its network on this machine
  ferrolb lab exec client -- curl 192.168.10.200     run a command on one of its hosts
  ferrolb sim controller                             try to make the controller break its rules
  ferrolb sim speakers                               try to make a cluster of speakers break theirs
{}",
        ferrolb_program::EXAMPLES
    )
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Shipped(ferrolb_program::Command),
    /// The bench: a small cluster and its network, on one Linux machine.
    #[command(subcommand)]
    Lab(lab::Command),
    /// Failure studies in simulated time.
    #[command(subcommand)]
    Sim(sim::Command),
    #[command(flatten)]
    Hidden(lab::Hidden),
}

fn main() -> ExitCode {
    ferrolb_program::main(|cli: Cli| match cli.command {
        Command::Shipped(command) => command.run(),
        Command::Lab(command) => lab::run(command),
        Command::Sim(command) => sim::run(&command),
        Command::Hidden(command) => lab::run_hidden(command),
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_of_the_daemons_pass_as_they_are() {
        let cli =
            Cli::parse_from(["ferrolb", "speaker", "-node-name", "n1", "--ml-wan-config=false", "--help"]);
        let Command::Shipped(ferrolb_program::Command::Speaker(raw)) = cli.command else { panic!("{cli:?}") };
        assert_eq!(raw.args, ["-node-name", "n1", "--ml-wan-config=false", "--help"]);
    }
}

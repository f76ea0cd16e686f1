// SPDX-License-Identifier: Apache-2.0
//! The program that images hold: the daemons, and what an operator asks of them. No bench, no API server of its own.

use std::process::ExitCode;

use clap::Parser;
use ferrolb_program::{Command, EXAMPLES};

#[derive(Debug, Parser)]
#[command(
    name = "ferrolb",
    version,
    about = "External addresses for Services of type LoadBalancer, as MetalLB gives them",
    after_help = format!("Examples:\n{EXAMPLES}")
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    ferrolb_program::main(|cli: Cli| cli.command.run())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}

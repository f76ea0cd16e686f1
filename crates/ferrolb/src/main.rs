// SPDX-License-Identifier: Apache-2.0
//! The one binary.
//!
//! Called by the name `controller` or `speaker`, as MetalLB's images call their programs, it is that daemon
//! with MetalLB's flags; so it is with the helpers of MetalLB's FRR mode. Under its own name it has subcommands. Exit status: 0 fine, 1 found something (of a
//! daemon: could not go on), 2 could not run.

mod manifests;
mod sim;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};
use ferrolb_lab::cli as lab;

#[derive(Debug, Parser)]
#[command(
    name = "ferrolb",
    version,
    about = "External addresses for Services of type LoadBalancer, as MetalLB gives them",
    after_help = EXAMPLES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  ferrolb lab up                                     build a small cluster and its network on this machine
  ferrolb lab exec client -- curl 192.168.10.200     run a command on one of its hosts
  ferrolb manifests | kubectl apply -f -             install everything
  ferrolb crds | kubectl apply -f -                  install the custom resource definitions alone
  ferrolb sim controller                             try to make the controller break its rules
  ferrolb sim speakers                               try to make a cluster of speakers break theirs
  ferrolb controller --help                          the controller's flags, which are MetalLB's
  ferrolb speaker --help                             the speaker's

A link to this program that is named controller or speaker is that daemon.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller; takes MetalLB's flags.
    #[command(disable_help_flag = true)]
    Controller(Raw),
    /// Run the speaker; takes MetalLB's flags.
    #[command(disable_help_flag = true)]
    Speaker(Raw),
    /// Print the custom resource definitions.
    #[command(after_help = "Example:\n  ferrolb crds | kubectl apply -f -")]
    Crds {
        /// Form of the output.
        #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
        output: Output,
    },
    /// Print everything that an installation consists of.
    #[command(after_help = manifests::EXAMPLES)]
    Manifests(manifests::Args),
    /// The bench: a small cluster and its network, on one Linux machine.
    #[command(subcommand)]
    Lab(lab::Command),
    /// Failure studies in simulated time.
    #[command(subcommand)]
    Sim(sim::Command),
    /// Print the version.
    #[command(after_help = "Examples:\n  ferrolb version\n  ferrolb version -o json")]
    Version {
        /// Print it for programs.
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    #[command(flatten)]
    Hidden(lab::Hidden),
}

/// Arguments that are read by Go's rules, not by clap's.
#[derive(Debug, clap::Args)]
struct Raw {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    args: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// YAML documents.
    Yaml,
    /// A JSON list, as `kubectl get -o json` gives it.
    Json,
}

fn main() -> ExitCode {
    let mut args = match texts(std::env::args_os()) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("ferrolb: {message}");
            return ExitCode::from(2);
        }
    };
    let name = args.first().and_then(|path| Path::new(path).file_name()).and_then(|name| name.to_str());
    match name {
        Some("controller") => return ferrolb_controller::main(args.split_off(1)),
        Some("speaker") => return ferrolb_speaker::main(args.split_off(1)),
        Some(helper) if ferrolb_speaker::sidecar::NAMES.contains(&helper) => {
            let helper = helper.to_owned();
            if let Some(code) = ferrolb_speaker::sidecar::main(&helper, args.split_off(1)) {
                return code;
            }
        }
        _ => {}
    }
    match run(Cli::parse_from(args).command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ferrolb: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The arguments as texts, which all of them have to be; but for the program's name, which nothing depends on if it is
/// none of ours.
fn texts(args: impl Iterator<Item = OsString>) -> Result<Vec<String>, String> {
    args.enumerate()
        .map(|(number, arg)| match arg.into_string() {
            Ok(text) => Ok(text),
            Err(raw) if number == 0 => Ok(raw.to_string_lossy().into_owned()),
            Err(raw) => Err(format!("argument {number} is not UTF-8: {raw:?}")),
        })
        .collect()
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Controller(raw) => return Ok(ferrolb_controller::main(raw.args)),
        Command::Speaker(raw) => return Ok(ferrolb_speaker::main(raw.args)),
        Command::Crds { output } => print(&crds(output)?)?,
        Command::Manifests(args) => print(&manifests::text(&args)?)?,
        Command::Lab(command) => return lab::run(command),
        Command::Sim(command) => return sim::run(&command),
        Command::Hidden(command) => return lab::run_hidden(command),
        Command::Version { output } => print(&version(output)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn version(output: Option<Output>) -> anyhow::Result<String> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let value = serde_json::json!({ "name": "ferrolb", "version": VERSION });
    Ok(match output {
        None => format!("ferrolb {VERSION}\n"),
        Some(Output::Json) => serde_json::to_string_pretty(&value)? + "\n",
        Some(Output::Yaml) => serde_saphyr::to_string(&value).context("cannot write YAML")?,
    })
}

fn crds(output: Output) -> anyhow::Result<String> {
    let definitions = ferrolb_api::manifests(ferrolb_api::DEFAULT_NAMESPACE);
    match output {
        Output::Json => {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": definitions});
            Ok(serde_json::to_string_pretty(&list)? + "\n")
        }
        Output::Yaml => {
            let mut text = String::new();
            for definition in &definitions {
                text.push_str("---\n");
                text.push_str(&serde_saphyr::to_string(definition).context("cannot write YAML")?);
            }
            Ok(text)
        }
    }
}

/// Writes to standard output. A reader that has had enough (`| head`) is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
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
        let Command::Speaker(raw) = cli.command else { panic!("{cli:?}") };
        assert_eq!(raw.args, ["-node-name", "n1", "--ml-wan-config=false", "--help"]);
    }

    #[test]
    fn both_forms_hold_all_nine_kinds() {
        let kinds = |value: &serde_json::Value| value["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        let json: serde_json::Value = serde_json::from_str(&crds(Output::Json).unwrap()).unwrap();
        let from_json: Vec<String> = json["items"].as_array().unwrap().iter().map(kinds).collect();
        assert_eq!(from_json.len(), 9);
        let yaml = crds(Output::Yaml).unwrap();
        let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        assert_eq!(documents.iter().map(kinds).collect::<Vec<_>>(), from_json);
        assert_eq!(documents, *json["items"].as_array().unwrap());
    }
}

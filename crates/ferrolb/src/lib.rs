// SPDX-License-Identifier: Apache-2.0
//! What both programs of this package do: the daemons, and what an operator asks of them.
//!
//! `ferrolb-daemons` does nothing else, and is what images hold; `ferrolb` also has the bench and the simulations. Called
//! by the name `controller` or `speaker`, as MetalLB's images call their programs, either is that daemon with MetalLB's
//! flags; so it is with the helpers of MetalLB's FRR mode. Under another name it has subcommands. Exit status: 0 fine, 1
//! found something (of a daemon: could not go on), 2 could not run.

pub mod manifests;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};

/// What both programs have.
#[derive(Debug, Subcommand)]
pub enum Command {
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
    /// Print the version.
    #[command(after_help = "Examples:\n  ferrolb version\n  ferrolb version -o json")]
    Version {
        /// Print it for programs.
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
}

/// The ends of `--help`'s examples, which both programs have.
pub const EXAMPLES: &str = "\
  ferrolb manifests | kubectl apply -f -             install everything
  ferrolb crds | kubectl apply -f -                  install the custom resource definitions alone
  ferrolb controller --help                          the controller's flags, which are MetalLB's
  ferrolb speaker --help                             the speaker's

A link to this program that is named controller or speaker is that daemon.";

/// Arguments that are read by Go's rules, not by clap's.
#[derive(Debug, clap::Args)]
pub struct Raw {
    /// As they were given.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    pub args: Vec<String>,
}

/// Form of what is printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Output {
    /// YAML documents.
    Yaml,
    /// A JSON list, as `kubectl get -o json` gives it.
    Json,
}

/// Runs a program: the daemon whose name it was called by, or the subcommand that `run` knows.
pub fn main<Cli: Parser>(run: impl FnOnce(Cli) -> anyhow::Result<ExitCode>) -> ExitCode {
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
    match run(Cli::parse_from(args)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ferrolb: {error:#}");
            ExitCode::from(2)
        }
    }
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    /// What is to be printed cannot be made or written. A daemon has an exit status instead.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Controller(raw) => return Ok(ferrolb_controller::main(raw.args)),
            Self::Speaker(raw) => return Ok(ferrolb_speaker::main(raw.args)),
            Self::Crds { output } => print(&crds(output)?)?,
            Self::Manifests(args) => print(&manifests::text(&args)?)?,
            Self::Version { output } => print(&version(output)?)?,
        }
        Ok(ExitCode::SUCCESS)
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
///
/// # Errors
/// Nobody can read it.
pub fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

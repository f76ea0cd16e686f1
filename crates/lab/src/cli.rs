// SPDX-License-Identifier: Apache-2.0
//! The command line: `ferrolb lab …`, and the hidden subcommands by which the lab starts its own parts.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

pub use crate::api_server::FakekubeArgs;
use crate::host::LabName;
pub use crate::launch::EnterArgs;
pub use crate::metallb_speaker::SpeakerArgs;
pub use crate::pod::PodArgs;
pub use crate::supervisor::{ApiKind, ProcessStatus, Status, SupervisorArgs};
use crate::{api_server, launch, metallb_speaker, pod, supervisor};

/// The bench, on one Linux machine, with no cluster.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Play a story on a bench, show every step, and take the bench down.
    #[command(
        after_help = "Examples:\n  ferrolb lab run l2\n  ferrolb lab run controller\n  ferrolb lab run install\n  ferrolb lab run l2 -o json | jq '.steps[] | select(.ok | not)'\n  ferrolb lab run l2 --kubeconfig FILE     on another API server"
    )]
    Run(crate::scenario::RunArgs),
    /// Measure on a bench, and take it down.
    #[command(
        after_help = "Examples:\n  ferrolb lab bench arp\n  ferrolb lab bench address --quick\n  ferrolb lab bench memory -o json"
    )]
    Bench(crate::bench::BenchArgs),
    /// Play recorded cases again and compare every answer with MetalLB's.
    #[command(
        after_help = "Examples:\n  ferrolb lab conformance crates/lab/tests/data/metallb/*.json\n  ferrolb lab conformance FILE --api kapi -o json | jq '.files[].cases[] | select(.verdict == \"unexpected\")'"
    )]
    Conformance(crate::conformance::ConformanceArgs),
    /// Build the bench and leave it running.
    #[command(
        after_help = "Examples:\n  ferrolb lab up\n  ferrolb lab exec client -- kubectl get nodes\n  ferrolb lab down"
    )]
    Up {
        /// Which bench.
        #[command(flatten)]
        bench: SupervisorArgs,
        /// How to tell what is up now.
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Take a bench down, or clear up after one that was killed.
    #[command(after_help = "Example:\n  ferrolb lab down")]
    Down(Named),
    /// Run a command on a host of the bench, or in a Pod.
    #[command(
        after_help = "Examples:\n  ferrolb lab exec client -- curl -m 2 http://192.168.10.200/\n  ferrolb lab exec k8s-node-2 -- arping -c 3 -i ens18 192.168.10.200"
    )]
    Exec {
        /// Which lab.
        #[command(flatten)]
        lab: Named,
        /// A host (client, k8s-master-1, k8s-node-1, k8s-node-2, router, outside) or a Pod.
        place: String,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Show what is up on this machine.
    #[command(after_help = "Example:\n  ferrolb lab status -o json")]
    Status {
        /// Only the lab of this name.
        #[arg(long)]
        name: Option<LabName>,
        /// How to show it.
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Show what a Pod, or another part of the bench, wrote.
    #[command(after_help = "Example:\n  ferrolb lab logs api-server")]
    Logs {
        /// Which lab.
        #[command(flatten)]
        lab: Named,
        /// A Pod, `api-server` or `stand-ins`.
        part: String,
    },
}

/// Parts of the lab that it starts itself.
#[derive(Clone, Debug, Subcommand)]
pub enum Hidden {
    /// Becomes a program in a namespace.
    #[command(name = "__enter", hide = true)]
    Enter(EnterArgs),
    /// Serves the in-memory API.
    #[command(name = "__fakekube", hide = true)]
    Fakekube(FakekubeArgs),
    /// Plays a speaker of MetalLB v0.16.1.
    #[command(name = "__metallb-speaker", hide = true)]
    MetallbSpeaker(SpeakerArgs),
    /// Serves the application of the stories.
    #[command(name = "__pod", hide = true)]
    Pod(PodArgs),
    /// Holds a bench.
    #[command(name = "__lab-supervisor", hide = true)]
    Supervisor(SupervisorArgs),
}

/// Which lab.
#[derive(Clone, Debug, clap::Args)]
pub struct Named {
    /// Name of the lab.
    #[arg(long, default_value_t)]
    pub name: LabName,
}

/// How results are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Runs a command. 0 is fine, 1 found something, 2 (an error) could not run.
///
/// It must be called on a process with a single thread: `exec` becomes another program.
///
/// # Errors
/// The command could not run.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(args) => return crate::scenario::run(&args),
        Command::Bench(args) => return crate::bench::run(&args),
        Command::Conformance(args) => return crate::conformance::run(&args),
        Command::Up { bench, output } => {
            supervisor::up(&bench)?;
            match output {
                Output::Text => supervisor::print_usage(bench.name()),
                Output::Json => show_status(Some(bench.name()), output)?,
            }
        }
        Command::Down(lab) => supervisor::down(&lab.name)?,
        Command::Exec { lab, place, command } => {
            return Err(supervisor::exec(&lab.name, &place, &command));
        }
        Command::Status { name, output } => show_status(name.as_ref(), output)?,
        Command::Logs { lab, part } => {
            anstream::stdout().lock().write_all(supervisor::logs(&lab.name, &part)?.as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a part of the lab. It must be called on a process with a single thread.
///
/// # Errors
/// The part could not run.
pub fn run_hidden(command: Hidden) -> Result<ExitCode> {
    match command {
        Hidden::Enter(args) => return Err(launch::enter(&args)),
        Hidden::Fakekube(args) => runtime()?.block_on(api_server::serve_fakekube(args))?,
        Hidden::MetallbSpeaker(args) => runtime()?.block_on(metallb_speaker::run(&args))?,
        Hidden::Pod(args) => runtime()?.block_on(pod::serve(args))?,
        Hidden::Supervisor(args) => supervisor::supervise(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn show_status(name: Option<&LabName>, output: Output) -> Result<()> {
    let labs = supervisor::status(name);
    let mut stdout = anstream::stdout().lock();
    if output == Output::Json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&labs)?)?;
        return Ok(());
    }
    if labs.is_empty() {
        writeln!(stdout, "no lab is up")?;
    }
    for lab in labs {
        let state = match (lab.alive, lab.owner) {
            (true, Some(pid)) => format!("up, held by process {pid}"),
            _ => "left by a process that was killed; `ferrolb lab down` removes it".to_owned(),
        };
        writeln!(stdout, "{}: {state}\n  kubeconfig {}", lab.name, lab.kubeconfig)?;
        writeln!(stdout, "  places     {}", lab.places.join(" "))?;
        for process in lab.processes {
            let mib = process.resident_bytes.map_or_else(String::new, |bytes| {
                format!("{:.1} MiB", f64::from(u32::try_from(bytes / 1024).unwrap_or(u32::MAX)) / 1024.0)
            });
            writeln!(stdout, "  {:>8}  {:>9}  {}", process.pid, mib, process.role)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    #[test]
    fn every_command_has_an_example() {
        use clap::CommandFactory as _;
        for command in Line::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("ferrolb lab {}", command.get_name())), "{command}: {help:?}");
        }
    }

    #[test]
    fn a_command_for_a_host_comes_after_two_hyphens() {
        let line = Line::try_parse_from(["lab", "exec", "client", "--", "curl", "-m", "2"]).unwrap();
        let Command::Exec { lab, place, command } = line.command else { panic!("{line:?}") };
        assert_eq!((lab.name.as_str(), place.as_str()), ("ferrolb", "client"));
        assert_eq!(command, ["curl", "-m", "2"]);
        assert!(Line::try_parse_from(["lab", "exec", "client"]).is_err());
    }

    #[test]
    fn an_api_server_is_brought_up_or_given_but_not_both() {
        assert!(Line::try_parse_from(["lab", "up", "--api", "kapi"]).is_ok());
        assert!(Line::try_parse_from(["lab", "up", "--kubeconfig", "/x"]).is_ok());
        assert!(Line::try_parse_from(["lab", "up", "--kubeconfig", "/x", "--api", "kapi"]).is_err());
        assert!(Line::try_parse_from(["lab", "up", "--name", "a/b"]).is_err());
    }
}

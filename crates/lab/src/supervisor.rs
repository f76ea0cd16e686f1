// SPDX-License-Identifier: Apache-2.0
//! A bench that stays up without its caller: `lab up`, `down`, `exec`, `status`, `logs`.
//!
//! `up` starts this program again, in a session of its own, to hold the bench; it passes on what that says until the
//! bench is ready. The others find the bench through its state directory.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use ferrolb_linux::process::Identity;
use ferrolb_linux::{Namespace, netns};
use nix::sys::signal::Signal;
use serde::Serialize;

use crate::api_server::ApiSource;
use crate::host::{Host, LabName};
use crate::launch;
use crate::ledger::Ledger;
use crate::progress::{Line, Progress};
use crate::seed::Manifests;
use crate::stage::{self, Interrupted, Options};
use crate::{tools, topology};

/// What the hidden subcommand `__lab-supervisor` takes: a bench, as `lab up` was asked for it.
#[derive(Clone, Debug, clap::Args)]
pub struct SupervisorArgs {
    /// Name of the lab.
    #[arg(long, default_value_t)]
    name: LabName,
    /// `fakekube` (in memory) or `kapi` (what the script named by FERROLB_KAPI brings up).
    #[arg(long, default_value = "fakekube")]
    api: ApiKind,
    /// Use the API server of this kubeconfig instead of one of the bench's own.
    #[arg(long, conflicts_with = "api")]
    kubeconfig: Option<PathBuf>,
    /// Whose manifests the daemons run by: MetalLB's with the images changed, or ferrolb's own.
    #[arg(long, value_enum, default_value_t)]
    manifests: Manifests,
    /// Build the bench without the daemons.
    #[arg(long)]
    no_daemons: bool,
}

/// API servers that the bench brings up itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum ApiKind {
    /// In memory.
    Fakekube,
    /// What the script named by FERROLB_KAPI brings up.
    Kapi,
}

impl ApiKind {
    /// The API server of this kind.
    pub(crate) const fn source(self) -> ApiSource {
        match self {
            Self::Fakekube => ApiSource::Fakekube,
            Self::Kapi => ApiSource::Kapi,
        }
    }

    /// The word for it on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fakekube => "fakekube",
            Self::Kapi => "kapi",
        }
    }
}

impl SupervisorArgs {
    /// The bench that is asked for.
    pub fn options(&self, progress: Progress) -> Options {
        Options {
            name: self.name.clone(),
            api: match (&self.kubeconfig, self.api) {
                (Some(path), _) => ApiSource::Kubeconfig(path.clone()),
                (None, kind) => kind.source(),
            },
            crds: true,
            daemons: !self.no_daemons,
            manifests: self.manifests,
            traffic: true,
            progress,
        }
    }

    /// Its name.
    pub(crate) const fn name(&self) -> &LabName {
        &self.name
    }

    fn words(&self) -> Vec<String> {
        let mut words = vec!["--name".to_owned(), self.name.to_string()];
        match (&self.kubeconfig, self.api) {
            (Some(path), _) => words.extend(["--kubeconfig".to_owned(), path.display().to_string()]),
            (None, ApiKind::Kapi) => words.extend(["--api".to_owned(), "kapi".to_owned()]),
            (None, ApiKind::Fakekube) => {}
        }
        if let Some(value) = self.manifests.to_possible_value() {
            words.extend(["--manifests".to_owned(), value.get_name().to_owned()]);
        }
        if self.no_daemons {
            words.push("--no-daemons".to_owned());
        }
        words
    }
}

/// Brings a bench up that outlives the caller.
///
/// # Errors
/// Whatever keeps the bench from coming up.
pub(crate) fn up(args: &SupervisorArgs) -> Result<()> {
    tools::require_root()?;
    let mut child = Command::new(launch::program()?)
        .arg("__lab-supervisor")
        .args(args.words())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("start the supervisor")?;
    let output = child.stdout.take().context("the supervisor has no output")?;
    let progress = Progress::stderr();
    for line in BufReader::new(output).lines() {
        let line = line.context("read what the supervisor says")?;
        match line.split_once(' ') {
            Some(("ready", _)) => return Ok(()),
            Some(("failed", text)) => bail!("{}", text.replace('\u{1}', "\n")),
            Some(("command", text)) => progress.command(text),
            Some((_, text)) => progress.step(text),
            None => progress.step(&line),
        }
    }
    let status = child.wait().context("wait for the supervisor")?;
    bail!("the supervisor of the bench ended with {status}")
}

/// Holds a bench until a signal comes. Its output is for [`up`].
///
/// # Errors
/// Whatever keeps the bench from coming up; it was told to [`up`] as well.
pub(crate) fn supervise(args: &SupervisorArgs) -> Result<()> {
    // A session of its own: the terminal's Ctrl-C and hang-up are not for the bench.
    nix::unistd::setsid().context("start a session")?;
    let progress = Progress::new(|line| match line {
        Line::Step(text) => say("step", text),
        Line::Command(text) => say("command", text),
    });
    let ended = stage::play(&args.options(progress), async |_| {
        say("ready", "");
        std::future::pending::<Result<()>>().await
    });
    match ended {
        Err(error) if error.is::<Interrupted>() => Ok(()),
        Err(error) => {
            say("failed", &format!("{error:#}").replace('\n', "\u{1}"));
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

/// Takes a bench down: asks the process that holds it, or clears up after one that was killed.
///
/// # Errors
/// The bench does not go.
pub(crate) fn down(lab: &LabName) -> Result<()> {
    tools::require_root()?;
    let ledger = Ledger::at(lab);
    if !ledger.path().exists() {
        Progress::stderr().step(&format!("no lab named {lab} is up"));
        return Ok(());
    }
    let progress = Progress::stderr();
    if let Some(owner) = ledger.owner().filter(Identity::is_alive) {
        progress.step(&format!("ending the lab {lab} (process {})", owner.pid));
        owner.signal(Signal::SIGTERM)?;
        let started = Instant::now();
        let mut told = Duration::from_secs(2);
        while owner.is_alive() {
            if started.elapsed() > DOWN_WITHIN {
                bail!("process {} still holds the lab {lab} after {} s", owner.pid, DOWN_WITHIN.as_secs());
            }
            if started.elapsed() > told {
                progress.step(&format!("waiting for process {}: {} s so far", owner.pid, told.as_secs()));
                told += Duration::from_secs(5);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // What it could not remove itself, or everything, if it was killed.
    ledger.sweep_if_dead()?;
    Ok(())
}

/// Becomes a command on a host, or in a Pod, of a bench that is up. Gives back only an error.
pub(crate) fn exec(lab: &LabName, place: &str, command: &[String]) -> anyhow::Error {
    let attempt = || -> Result<Infallible> {
        tools::require_root()?;
        let ledger = living(lab)?;
        let namespace = topology::namespace_name(&ledger, place);
        if !netns::exists(&namespace) {
            let names: Vec<&str> = Host::ALL.iter().map(|host| host.name()).collect();
            bail!(
                "there is no host or Pod {place:?} on the lab {lab}: hosts are {}; Pods on their node's network have none of their own",
                names.join(", ")
            );
        }
        let [program, arguments @ ..] = command else { bail!("no command given after --") };
        let mut command = match tools::find(program) {
            Some(path) => Command::new(path),
            None => return Err(tools::explain(program, std::io::ErrorKind::NotFound.into())),
        };
        command.args(arguments).env("KUBECONFIG", ledger.kubeconfig());
        for name in launch::PROXIES {
            command.env_remove(name);
        }
        ledger.note_process(Identity::own()?, &format!("exec {place}"))?;
        // The network alone is the host's: files, and the directory the caller is in, stay.
        Namespace::open(&namespace)?.enter()?;
        Err(anyhow::Error::new(command.exec()).context(format!("start {program}")))
    };
    match attempt() {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

/// A bench as `lab status` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Whether a process holds it; otherwise it is what a killed one left.
    pub alive: bool,
    /// The process that holds it.
    pub owner: Option<u32>,
    /// The kubeconfig with full rights.
    pub kubeconfig: String,
    /// Hosts and Pods that can be entered.
    pub places: Vec<String>,
    /// Its processes.
    pub processes: Vec<ProcessStatus>,
}

/// A process of a bench.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessStatus {
    /// Its pid.
    pub pid: u32,
    /// What it is.
    pub role: String,
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
}

/// Every bench on this machine, or the one of this name.
pub(crate) fn status(lab: Option<&LabName>) -> Vec<Status> {
    let labs = Ledger::labs();
    labs.iter()
        .filter(|name| lab.is_none_or(|lab| lab == *name))
        .map(|name| status_of(&Ledger::at(name)))
        .collect()
}

/// What a Pod's process, or another part of the bench, wrote.
///
/// # Errors
/// The lab is not up, or has no such part.
pub(crate) fn logs(lab: &LabName, part: &str) -> Result<String> {
    let ledger = living(lab)?;
    let directory = ledger.path().join("logs");
    let mut names: Vec<String> = std::fs::read_dir(&directory)
        .with_context(|| format!("read {}", directory.display()))?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let matches = |name: &&String| **name == format!("{part}.log") || name.starts_with(&format!("{part}_"));
    let found: Vec<&String> = names.iter().filter(matches).collect();
    if found.is_empty() {
        let parts: Vec<&str> = names.iter().filter_map(|name| name.split(['_', '.']).next()).collect();
        bail!("nothing named {part} has a log; there are: {}", parts.join(", "));
    }
    let mut text = String::new();
    for name in found {
        text.push_str(&std::fs::read_to_string(directory.join(name))?);
    }
    Ok(text)
}

fn status_of(ledger: &Ledger) -> Status {
    let owner = ledger.owner();
    let prefix = format!("{}-", ledger.lab());
    let processes = ledger.processes().into_iter().map(|(identity, role)| ProcessStatus {
        pid: identity.pid.0,
        role,
        resident_bytes: ferrolb_linux::process::resident_bytes(identity.pid),
    });
    Status {
        name: ledger.lab().to_string(),
        alive: owner.is_some_and(|owner| owner.is_alive()),
        owner: owner.map(|owner| owner.pid.0),
        kubeconfig: ledger.kubeconfig().display().to_string(),
        places: ledger
            .namespaces()
            .iter()
            .filter(|name| Namespace::open(name).is_ok())
            .map(|name| name.strip_prefix(&prefix).unwrap_or(name).to_owned())
            .collect(),
        processes: processes.collect(),
    }
}

/// The ledger of a lab that is up.
fn living(lab: &LabName) -> Result<Ledger> {
    let ledger = Ledger::at(lab);
    if ledger.owner().is_some_and(|owner| owner.is_alive()) {
        return Ok(ledger);
    }
    bail!("no lab named {lab} is up: start it with `ferrolb lab up --name {lab}`")
}

/// Tells a person how to use a bench that is up.
pub(crate) fn print_usage(lab: &LabName) {
    let ledger = Ledger::at(lab);
    let name = if *lab == LabName::default() { String::new() } else { format!(" --name {lab}") };
    let mut stdout = anstream::stdout().lock();
    let text = format!(
        "The bench is up.\n\
         \n  kubeconfig          {} (works on the bench's hosts only)\n  kubectl             ferrolb lab exec{name} client -- kubectl get nodes\n  \
         a host              ferrolb lab exec{name} client -- curl -m 2 http://192.168.10.200/\n  \
         hosts               {}\n  what runs           ferrolb lab status{name}\n  \
         a log               ferrolb lab logs{name} POD\n  the end             ferrolb lab down{name}\n",
        ledger.kubeconfig().display(),
        Host::ALL.map(Host::name).join(" "),
    );
    // Who closed our standard output does not want to know.
    let _ = stdout.write_all(text.as_bytes());
}

/// One line for [`up`]. Once that has seen `ready` nobody reads any more, which is no error.
fn say(kind: &str, text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{kind} {text}").and_then(|()| stdout.flush());
}

const DOWN_WITHIN: Duration = Duration::from_secs(30);

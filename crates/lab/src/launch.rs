// SPDX-License-Identifier: Apache-2.0
//! Processes of the lab: how they start, how they are found again, how they end.
//!
//! Everything that lives longer than a command goes through the hidden subcommand `__enter`: the fresh process writes
//! itself into the ledger and then becomes the program, so that no process exists that the ledger does not know.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ferrolb_linux::Namespace;
use ferrolb_linux::container::{self, Spec};
use ferrolb_linux::process::{Identity, Pid};
use ferrolb_manifests::release::DAEMONS;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};

use crate::host::LabName;
use crate::ledger::Ledger;

/// A program and what it finds around itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// What the process is, for people: `speaker-x7k2p/speaker`.
    pub role: String,
    /// Namespaces, mounts and privileges.
    pub spec: Spec,
    /// The program's path inside, and its arguments.
    pub argv: Vec<String>,
}

/// What the hidden subcommand `__enter` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct EnterArgs {
    /// The lab the process belongs to.
    #[arg(long)]
    lab: LabName,
    /// A [`Launch`] as JSON.
    launch: String,
}

/// Writes the calling process into the ledger and becomes the program. Gives back only an error.
///
/// The process must have a single thread.
pub(crate) fn enter(args: &EnterArgs) -> anyhow::Error {
    let attempt = || -> Result<Launch> {
        let launch: Launch = serde_json::from_str(&args.launch).context("read what to start")?;
        Ledger::at(&args.lab).note_process(Identity::own()?, &launch.role)?;
        Ok(launch)
    };
    match attempt() {
        Ok(launch) => {
            let argv: Vec<OsString> = launch.argv.iter().map(OsString::from).collect();
            container::enter_and_exec(&launch.spec, &argv).into()
        }
        Err(error) => error,
    }
}

/// A process that runs until it is told to end.
#[derive(Debug)]
pub(crate) struct Process {
    ledger: Arc<Ledger>,
    identity: Identity,
    child: Child,
}

impl Process {
    /// Starts `launch` with its output appended to `log`. Needs a tokio runtime.
    ///
    /// # Errors
    /// The log cannot be opened, or no process can be started. A program that cannot be found says so in its log.
    pub(crate) fn start(ledger: &Arc<Ledger>, launch: &Launch, log: &Path) -> Result<Self> {
        let output = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open {}", log.display()))?;
        let child = Command::new(program()?)
            .args(["__enter", "--lab", ledger.lab().as_str()])
            .arg(serde_json::to_string(launch)?)
            // Ctrl-C at the terminal is for the lab, which ends its processes itself.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {}", launch.role))?;
        let pid = Pid(child.id().with_context(|| format!("{} ended at once", launch.role))?);
        // Even a process that has ended by now has an identity until it is waited for; only its state tells.
        let identity = Identity::of(pid).unwrap_or(Identity { pid, started: 0 });
        Ok(Self { ledger: Arc::clone(ledger), identity, child })
    }

    /// Its process id.
    pub(crate) const fn pid(&self) -> Pid {
        self.identity.pid
    }

    /// Waits for its end, whoever causes it.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.ledger.forget_process(self.identity.pid);
        Ok(status)
    }

    /// SIGTERM, and SIGKILL when `grace` is over; returns when it has ended.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) async fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.identity.signal(Signal::SIGTERM)?;
        match tokio::time::timeout(grace, self.ended()).await {
            Ok(status) => status,
            Err(_) => {
                self.identity.signal(Signal::SIGKILL)?;
                self.ended().await
            }
        }
    }
}

/// What a command left.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command as a person would type it.
    pub command: String,
    /// Exit code; `None` when a signal or the time limit ended it.
    pub code: Option<i32>,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// From start to end.
    pub took: Duration,
}

impl Outcome {
    /// Whether it ended with exit code 0.
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// Standard output, if it ended with exit code 0.
    ///
    /// # Errors
    /// It did not; the text says what it wrote.
    pub fn success(self) -> Result<String> {
        if self.ok() {
            return Ok(self.stdout);
        }
        let end = match self.code {
            Some(code) => format!("exit code {code}"),
            None if self.timed_out => format!("no end within {:.1} s", self.took.as_secs_f64()),
            None => "ended by a signal".to_owned(),
        };
        bail!("`{}`: {end}: {}", self.command, self.stderr.trim())
    }
}

/// Runs a command in a namespace (`None`: the caller's) and waits for it, at most `limit`; then it is killed.
///
/// # Errors
/// The program is not installed ([`crate::tools`] says which package has it), or cannot be started.
pub(crate) async fn run(
    namespace: Option<&Namespace>,
    argv: &[&str],
    environment: &[(&str, &Path)],
    stdin: Option<&str>,
    limit: Duration,
) -> Result<Outcome> {
    let [name, arguments @ ..] = argv else { bail!("no command given") };
    // An administrator's programs may be outside of PATH.
    let mut command = Command::new(crate::tools::find(name).unwrap_or_else(|| PathBuf::from(name)));
    command
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    for name in PROXIES {
        // The caller's way to the internet does not lead into the bench.
        command.env_remove(name);
    }
    let started = Instant::now();
    let runtime = tokio::runtime::Handle::current();
    let mut spawn = || {
        let _guard = runtime.enter();
        command.spawn()
    };
    let spawned = match namespace {
        // setns(2) moves one thread: the child starts where its parent thread is.
        Some(namespace) => namespace.run(spawn)?,
        None => spawn(),
    };
    let mut child = spawned.map_err(|error| crate::tools::explain(name, error))?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        let text = text.to_owned();
        // A command that does not read its input must not keep us; it says itself what was wrong.
        tokio::spawn(async move {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut pipe, text.as_bytes()).await;
        });
    }
    let pid = child.id();
    let finished = tokio::time::timeout(limit, child.wait_with_output()).await;
    let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
    let mut outcome = Outcome {
        command: words.join(" "),
        code: None,
        timed_out: false,
        stdout: String::new(),
        stderr: String::new(),
        took: started.elapsed(),
    };
    match finished {
        Ok(output) => {
            let output = output.with_context(|| format!("wait for {name} (process {pid:?})"))?;
            outcome.code = output.status.code();
            outcome.stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            outcome.stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        }
        // Dropping the child killed it.
        Err(_) => outcome.timed_out = true,
    }
    Ok(outcome)
}

/// The running program's own file, for starting it again.
pub(crate) fn program() -> Result<PathBuf> {
    let path = std::env::current_exe().context("find the own program")?;
    if path.exists() {
        return Ok(path);
    }
    // Replaced while it runs, as a build does.
    Ok(PathBuf::from("/proc/self/exe"))
}

/// The file of the program whose daemons the bench runs: what images hold, where it lies beside the running program, since
/// both were built at once; else the running program, which has the daemons too.
pub(crate) fn daemons() -> Result<PathBuf> {
    let own = program()?;
    Ok(shipped_beside(&own).unwrap_or(own))
}

fn shipped_beside(own: &Path) -> Option<PathBuf> {
    Some(own.with_file_name(DAEMONS)).filter(|shipped| shipped.is_file())
}

/// A word as a shell would need it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Variables by which programs find a way to the internet.
pub(crate) const PROXIES: [&str; 6] =
    ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

#[cfg(test)]
mod tests {
    use super::*;

    async fn here(argv: &[&str], stdin: Option<&str>, limit: Duration) -> Outcome {
        run(None, argv, &[], stdin, limit).await.unwrap()
    }

    #[test]
    fn the_daemons_are_those_of_the_images_where_they_were_built() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("ferrolb");
        assert_eq!(shipped_beside(&own), None);
        let shipped = directory.path().join("ferrolb-daemons");
        std::fs::create_dir(&shipped).unwrap();
        assert_eq!(shipped_beside(&own), None);
        std::fs::remove_dir(&shipped).unwrap();
        std::fs::write(&shipped, "").unwrap();
        assert_eq!(shipped_beside(&own), Some(shipped));
    }

    #[tokio::test]
    async fn a_command_gives_its_output_and_its_code() {
        let limit = Duration::from_secs(20);
        let outcome = here(&["sh", "-c", "cat; echo no >&2; exit 3"], Some("yes"), limit).await;
        assert_eq!(
            (outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()),
            (Some(3), "yes", "no\n")
        );
        let error = outcome.success().unwrap_err().to_string();
        assert_eq!(error, "`sh -c 'cat; echo no >&2; exit 3'`: exit code 3: no");
    }

    #[tokio::test]
    async fn a_command_that_does_not_end_is_killed() {
        let outcome = here(&["sleep", "100"], None, Duration::from_millis(50)).await;
        assert!(outcome.timed_out && outcome.code.is_none());
        assert!(outcome.success().unwrap_err().to_string().contains("no end within"));
    }

    #[tokio::test]
    async fn a_tool_that_is_missing_is_named_with_its_package() {
        let error = run(None, &["no-such-tool-here"], &[], None, Duration::from_secs(1)).await.unwrap_err();
        assert!(error.to_string().contains("no-such-tool-here"), "{error}");
    }

    #[test]
    fn a_word_is_quoted_when_a_shell_would_take_it_apart() {
        for (word, expected) in [
            ("get", "get"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("{}", "'{}'"),
            ("a=b/c", "a=b/c"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! BIRD: on a node as Calico runs it, where it listens on port 179 and has a session with every other node, or as a router.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ferrolb_linux::container::Spec;

use super::{STARTED_WITHIN, Site};
use crate::bench_handle::Bench;
use crate::host::Host;
use crate::launch::{Launch, Process};
use crate::tools;

/// BIRD on a host.
#[derive(Debug)]
pub(crate) struct Bird {
    bench: Bench,
    host: Host,
    file: PathBuf,
    control: PathBuf,
    process: Process,
}

impl Bird {
    /// Starts it with this configuration.
    ///
    /// # Errors
    /// It is not installed, or does not answer.
    pub(crate) async fn start(bench: &Bench, host: Host, config: &str) -> Result<Self> {
        Self::start_at(bench, &Site::of(host), config).await
    }

    /// Starts one of several on a host.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) async fn start_at(bench: &Bench, site: &Site, config: &str) -> Result<Self> {
        let (ledger, host, label) = (bench.ledger(), site.host, &site.label);
        let directory = ledger.directory(&format!("bird-{label}"))?;
        let (file, control) = (directory.join("bird.conf"), directory.join("bird.ctl"));
        std::fs::write(&file, config).with_context(|| format!("write {}", file.display()))?;
        let program = tools::find(tools::BIRD.program).context("bird is not installed")?;
        let (program, path, socket) =
            (program.display().to_string(), file.display().to_string(), control.display().to_string());
        let argv = [&program, "-f", "-c", &path, "-s", &socket].map(ToString::to_string);
        let launch = Launch {
            role: format!("bird on {label}"),
            spec: Spec::host(bench.namespace(host).name()),
            argv: argv.to_vec(),
        };
        let log = ledger.log(&format!("bird-{label}"))?;
        let process = Process::start(ledger, &launch, &log)?;
        let up = async {
            // Its socket is there before it has read its configuration, and stays when it refuses that.
            while UnixStream::connect(&control).is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(STARTED_WITHIN, up).await.with_context(|| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            format!("bird on {label} does not come up: {}", said.trim())
        })?;
        Ok(Self { bench: bench.clone(), host, file, control, process })
    }

    /// The command by which a person asks it, to be run on the host.
    pub(crate) fn words(&self, question: &str) -> Vec<String> {
        let control = self.control.display().to_string();
        let mut words = vec![tools::BIRDC.program.to_owned(), "-s".to_owned(), control];
        words.extend(question.split(' ').map(str::to_owned));
        words
    }

    /// What it answers.
    pub(crate) async fn ask(&self, question: &str) -> Result<String> {
        let words = self.words(question);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.bench.run(self.host, &words).await?.success()
    }

    /// Goes by another configuration.
    pub(crate) async fn configure(&self, config: &str) -> Result<()> {
        std::fs::write(&self.file, config).with_context(|| format!("write {}", self.file.display()))?;
        let said = self.ask("configure").await?;
        ensure!(said.contains("Reconfigur"), "bird refuses a configuration: {said}");
        Ok(())
    }

    /// The host that it is on.
    pub(crate) const fn host(&self) -> Host {
        self.host
    }

    /// Its process's number.
    pub(crate) const fn pid(&self) -> u32 {
        self.process.pid().0
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.process.stop(Duration::from_secs(5)).await.map(drop)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! GoBGP, asked through its command line, which speaks to it by a socket in its directory.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ferrolb_linux::container::Spec;
use ferrolb_linux::process::Identity;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{STARTED_WITHIN, Site};
use crate::bench_handle::Bench;
use crate::launch::{Launch, Outcome, Process};
use crate::tools;

/// GoBGP on a host.
#[derive(Debug)]
pub(crate) struct GoBgp {
    bench: Bench,
    site: Site,
    directory: PathBuf,
    process: Process,
}

impl GoBgp {
    /// Starts it with this configuration, in TOML.
    ///
    /// # Errors
    /// It is not installed, or does not answer.
    pub(crate) async fn start_at(bench: &Bench, site: Site, config: &str) -> Result<Self> {
        let ledger = bench.ledger();
        let directory = ledger.directory(&format!("gobgp-{}", site.label))?;
        let file = directory.join(CONFIG);
        std::fs::write(&file, config).with_context(|| format!("write {}", file.display()))?;
        let program = tools::find(tools::GOBGPD.program).context("gobgpd is not installed")?;
        let (program, file) = (program.display().to_string(), file.display().to_string());
        let api = format!("unix://{}", directory.join(SOCKET).display());
        let argv = [&program, "-f", &file, "--api-hosts", &api, "--pprof-disable", "--log-plain"];
        let launch = Launch {
            role: format!("gobgpd on {}", site.label),
            spec: Spec::host(bench.namespace(site.host).name()),
            argv: argv.map(ToString::to_string).to_vec(),
        };
        let log = ledger.log(&format!("gobgpd-{}", site.label))?;
        let process = Process::start(ledger, &launch, &log)?;
        let gobgp = Self { bench: bench.clone(), site, directory, process };
        let up = async {
            while !gobgp.run(&["global"]).await.is_ok_and(|outcome| outcome.ok()) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(STARTED_WITHIN, up).await.with_context(|| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            format!("gobgpd on {} does not come up: {}", gobgp.site.label, said.trim())
        })?;
        Ok(gobgp)
    }

    async fn run(&self, arguments: &[&str]) -> Result<Outcome> {
        let target = format!("unix://{}", self.directory.join(SOCKET).display());
        let words = [&[tools::GOBGP.program, "--target", &target], arguments].concat();
        self.bench.run(self.site.host, &words).await
    }

    /// What it answers to a question, in JSON.
    pub(crate) async fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let said = self.run(&[&["-j"], arguments].concat()).await?.success()?;
        serde_json::from_str(&said).with_context(|| format!("gobgp {}: {said}", arguments.join(" ")))
    }

    /// Tells it to do something.
    pub(crate) async fn order(&self, arguments: &[&str]) -> Result<()> {
        self.run(arguments).await?.success().map(drop)
    }

    /// Goes by another configuration.
    pub(crate) fn configure(&self, config: &str) -> Result<()> {
        let file = self.directory.join(CONFIG);
        std::fs::write(&file, config).with_context(|| format!("write {}", file.display()))?;
        let process = Identity::of(self.process.pid()).context("gobgpd has ended")?;
        process.signal(Signal::SIGHUP)?;
        Ok(())
    }
}

const CONFIG: &str = "gobgpd.toml";
const SOCKET: &str = "api.sock";

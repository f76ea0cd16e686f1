// SPDX-License-Identifier: Apache-2.0
//! FRR: bgpd, and zebra where routes are to be in the kernel.
//!
//! Its daemons give up root for a user of their own, which may not enter the lab's directory. So each sees its directory as
//! `/etc/frr`, in a mount namespace of its own; who asks them is root and takes the directory's real path.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ferrolb_linux::container::{Content, Mount, Spec};
use nix::unistd::User;
use serde_json::Value;

use super::{STARTED_WITHIN, Site};
use crate::bench_handle::Bench;
use crate::host::Host;
use crate::launch::{Launch, Outcome, Process};
use crate::ledger::Ledger;
use crate::tools;

/// FRR on a host.
#[derive(Debug)]
pub(crate) struct Frr {
    bench: Bench,
    site: Site,
    directory: PathBuf,
    processes: Vec<Process>,
}

impl Frr {
    /// Starts it with this configuration. With `kernel` the routes that it chooses are the host's.
    ///
    /// # Errors
    /// It is not installed, or does not answer.
    pub(crate) async fn start(bench: &Bench, host: Host, config: &str, kernel: bool) -> Result<Self> {
        Self::start_at(bench, Site::of(host), config, kernel).await
    }

    /// Starts one of several on a host, of which one at most may have `kernel`.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) async fn start_at(bench: &Bench, site: Site, config: &str, kernel: bool) -> Result<Self> {
        let ledger = bench.ledger();
        let directory = ledger.directory(&format!("frr-{}", site.label))?;
        let user = User::from_name("frr")?.context("there is no user frr")?;
        let file = directory.join("bgpd.conf");
        std::fs::write(&file, config).with_context(|| format!("write {}", file.display()))?;
        for path in [&directory, &file] {
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .with_context(|| format!("give {} to frr", path.display()))?;
        }
        let listen = site.listen.map(|address| address.to_string());
        let mut frr = Self { bench: bench.clone(), site, directory, processes: Vec::new() };
        let mut bgpd = vec!["-f", CONFIG];
        bgpd.extend(listen.iter().flat_map(|address| ["-l", address]));
        if kernel {
            frr.run(ledger, tools::ZEBRA.program, &["-f", "/dev/null", "-z", SERVER]).await?;
            bgpd.extend(["-z", SERVER]);
        } else {
            // Neither zebra nor the kernel: all next hops count as reachable.
            bgpd.extend(["-n", "-Z"]);
        }
        frr.run(ledger, tools::BGPD.program, &bgpd).await?;
        Ok(frr)
    }

    async fn run(&mut self, ledger: &Arc<Ledger>, program: &str, more: &[&str]) -> Result<()> {
        let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or("frr");
        let pid = format!("{SEEN_AS}/{name}.pid");
        let mut argv = vec![program, "-A", "127.0.0.1", "-P", "0", "--log", "stdout", "-i", &pid];
        argv.extend(["--vty_socket", SEEN_AS]);
        argv.extend(more);
        let role = format!("{name} on {}", self.site.label);
        let own = Content::Bind { source: self.directory.clone(), read_only: false };
        let launch = Launch {
            spec: Spec {
                mounts: vec![Mount { target: PathBuf::from(SEEN_AS), content: own }],
                ..Spec::host(self.bench.namespace(self.site.host).name())
            },
            argv: argv.iter().map(ToString::to_string).collect(),
            role: role.clone(),
        };
        let log = ledger.log(&format!("{name}-{}", self.site.label))?;
        self.processes.push(Process::start(ledger, &launch, &log)?);
        let socket = self.directory.join(format!("{name}.vty"));
        let up = async {
            while !socket.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(STARTED_WITHIN, up).await.with_context(|| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            format!("{role} does not come up: {}", said.trim())
        })
    }

    /// The command by which a person asks it, to be run on the host.
    pub(crate) fn words(&self, commands: &[&str]) -> Vec<String> {
        let directory = self.directory.display().to_string();
        let mut words = vec![tools::VTYSH.program.to_owned(), "--vty_socket".to_owned(), directory];
        words.extend(commands.iter().flat_map(|command| ["-c".to_owned(), (*command).to_owned()]));
        words
    }

    async fn vtysh(&self, commands: &[&str]) -> Result<Outcome> {
        let words = self.words(commands);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.bench.run(self.site.host, &words).await
    }

    /// What it answers to a question whose answer is JSON.
    pub(crate) async fn ask(&self, question: &str) -> Result<Value> {
        let said = self.vtysh(&[question]).await?.success()?;
        serde_json::from_str(&said).with_context(|| format!("{question}: {said}"))
    }

    /// Tells it to do something.
    pub(crate) async fn order(&self, command: &str) -> Result<()> {
        let said = self.vtysh(&[command]).await?.success()?;
        ensure!(!said.contains('%'), "FRR refuses {command:?}: {said}");
        Ok(())
    }

    /// Changes its configuration.
    pub(crate) async fn configure(&self, lines: &[&str]) -> Result<()> {
        let commands = [&["configure terminal"], lines].concat();
        let said = self.vtysh(&commands).await?.success()?;
        ensure!(!said.contains('%'), "FRR refuses {lines:?}: {said}");
        Ok(())
    }

    /// The host that it is on.
    pub(crate) const fn host(&self) -> Host {
        self.site.host
    }
}

/// Where its daemons see their directory.
const SEEN_AS: &str = "/etc/frr";
const CONFIG: &str = "/etc/frr/bgpd.conf";
const SERVER: &str = "/etc/frr/zserv.api";

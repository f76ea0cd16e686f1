// SPDX-License-Identifier: Apache-2.0
//! ExaBGP: no router, but a program that tells in JSON what it hears.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ferrolb_linux::container::Spec;
use serde_json::Value;

use super::{STARTED_WITHIN, Site};
use crate::bench_handle::Bench;
use crate::launch::{Launch, Process};
use crate::tools;

/// ExaBGP on a host.
#[derive(Debug)]
pub(crate) struct ExaBgp {
    events: PathBuf,
    _process: Process,
}

impl ExaBgp {
    /// Starts it with these neighbors, whose events go to the process `events`.
    ///
    /// # Errors
    /// It is not installed, or does not take the configuration.
    pub(crate) async fn start_at(bench: &Bench, site: &Site, neighbors: &str) -> Result<Self> {
        let (ledger, label) = (bench.ledger(), &site.label);
        let directory = ledger.directory(&format!("exabgp-{label}"))?;
        let (file, script, events) =
            (directory.join("exabgp.conf"), directory.join("events.sh"), directory.join("events"));
        let write = |path: &PathBuf, text: &str| {
            std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
        };
        let run = format!("process events {{ run {}; encoder json; }}\n", script.display());
        write(&file, &(run + neighbors))?;
        // It ends a process that closes its standard output.
        write(&script, &format!("#!/bin/sh\nexec 3>&1 >>'{}'\nexec cat\n", events.display()))?;
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700))?;
        let program = tools::find(tools::EXABGP.program).context("exabgp is not installed")?;
        let listen = site.listen.map(|address| format!("exabgp.tcp.bind={address}"));
        let settings = [
            "exabgp.tcp.port=179",
            "exabgp.daemon.user=root",
            "exabgp.api.cli=false",
            "exabgp.log.destination=stdout",
        ];
        let mut argv = vec!["/usr/bin/env".to_owned()];
        argv.extend(settings.map(str::to_owned));
        argv.extend(listen);
        argv.extend([program.display().to_string(), file.display().to_string()]);
        let launch = Launch {
            role: format!("exabgp on {label}"),
            spec: Spec::host(bench.namespace(site.host).name()),
            argv,
        };
        let log = ledger.log(&format!("exabgp-{label}"))?;
        let process = Process::start(ledger, &launch, &log)?;
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        let up = async {
            while !said().contains("loaded new configuration successfully") {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let up = tokio::time::timeout(STARTED_WITHIN, up).await;
        up.with_context(|| format!("exabgp on {label} does not come up: {}", said().trim()))?;
        Ok(Self { events, _process: process })
    }

    /// What it has told so far, in order.
    pub(crate) fn events(&self) -> Vec<Value> {
        let told = std::fs::read_to_string(&self.events).unwrap_or_default();
        // The last line may be under way.
        told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

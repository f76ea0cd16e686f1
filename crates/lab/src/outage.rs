// SPDX-License-Identifier: Apache-2.0
//! An API server that goes away for a while: for everybody, or for one Pod.
//!
//! The server of a script is stopped and started by the script. Any other one stays where it is, and the host it is on
//! resets every connection to it.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::api_server::{self, ApiSource};
use crate::bench_handle::Bench;
use crate::host::Host;
use crate::launch;
use crate::ledger::PID_FILES;

/// An outage under way. It lasts until [`Outage::over`].
#[derive(Debug)]
#[must_use = "it lasts until it is ended"]
pub struct Outage<'a> {
    bench: &'a Bench,
    stopped: bool,
}

impl Bench {
    /// Takes the API server away from everybody.
    ///
    /// # Errors
    /// It cannot be stopped.
    pub async fn without_api(&self) -> Result<Outage<'_>> {
        if *self.api() == ApiSource::Kapi {
            let directory = self.ledger().directory(PID_FILES)?;
            api_server::script(&directory, "stop", self.namespace(Host::Master1), api_server::ADDRESS)
                .await?;
            return Ok(Outage { bench: self, stopped: true });
        }
        reset_connections(self, "").await?;
        Ok(Outage { bench: self, stopped: false })
    }

    /// Takes the API server away from the Pod of this address.
    ///
    /// # Errors
    /// The rule cannot be made.
    pub async fn without_api_for(&self, pod: &str) -> Result<Outage<'_>> {
        reset_connections(self, &format!("ip saddr {pod} ")).await?;
        Ok(Outage { bench: self, stopped: false })
    }
}

impl Outage<'_> {
    /// Ends it: the API server answers when this returns.
    ///
    /// # Errors
    /// It does not come back.
    pub async fn over(self) -> Result<()> {
        let Self { bench, stopped } = self;
        let master = bench.namespace(Host::Master1);
        if stopped {
            let directory = bench.ledger().directory(PID_FILES)?;
            api_server::script(&directory, "start", master, api_server::ADDRESS).await?;
            return api_server::note_processes(bench.ledger(), &directory);
        }
        let words = ["nft", "delete", "table", "ip", "outage"];
        launch::run(Some(master), &words, &[], None, NFT_LIMIT).await?.success().map(drop)
    }
}

async fn reset_connections(bench: &Bench, whose: &str) -> Result<()> {
    let port = api_server::ADDRESS.port();
    let text = format!(
        "add table ip outage\ndelete table ip outage\ntable ip outage {{\n  chain input {{\n    type filter hook input \
         priority -5\n    {whose}tcp dport {port} reject with tcp reset\n  }}\n}}\n"
    );
    let master = bench.namespace(Host::Master1);
    launch::run(Some(master), &["nft", "-f", "-"], &[], Some(&text), NFT_LIMIT)
        .await?
        .success()
        .context("take the API server away")
        .map(drop)
}

const NFT_LIMIT: Duration = Duration::from_secs(10);

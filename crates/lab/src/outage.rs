// SPDX-License-Identifier: Apache-2.0
//! An API server that is out of reach for a while: for everybody, or for one Pod.
//!
//! The server itself stays as it is, with its data and whatever else it keeps in memory; the host it is on resets every
//! connection to it.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::api_server;
use crate::bench_handle::Bench;
use crate::host::Host;
use crate::launch;

/// An outage under way. It lasts until [`Outage::over`].
#[derive(Debug)]
#[must_use = "it lasts until it is ended"]
pub struct Outage<'a> {
    bench: &'a Bench,
}

impl Bench {
    /// Takes the API server away from everybody.
    ///
    /// # Errors
    /// The rule cannot be made.
    pub async fn without_api(&self) -> Result<Outage<'_>> {
        self.reset_connections("").await
    }

    /// Takes the API server away from the Pod of this address.
    ///
    /// # Errors
    /// The rule cannot be made.
    pub async fn without_api_for(&self, pod: &str) -> Result<Outage<'_>> {
        self.reset_connections(&format!("ip saddr {pod} ")).await
    }

    async fn reset_connections(&self, whose: &str) -> Result<Outage<'_>> {
        let port = api_server::ADDRESS.port();
        let text = format!(
            "add table ip outage\ndelete table ip outage\ntable ip outage {{\n  chain input {{\n    type filter hook \
             input priority -5\n    {whose}tcp dport {port} reject with tcp reset\n  }}\n}}\n"
        );
        let master = self.namespace(Host::Master1);
        let made = launch::run(Some(master), &["nft", "-f", "-"], &[], Some(&text), NFT_LIMIT).await?;
        made.success().context("take the API server away")?;
        Ok(Outage { bench: self })
    }
}

impl Outage<'_> {
    /// Ends it: connections get through when this returns.
    ///
    /// # Errors
    /// The rule stays.
    pub async fn over(self) -> Result<()> {
        let master = self.bench.namespace(Host::Master1);
        let words = ["nft", "delete", "table", "ip", "outage"];
        launch::run(Some(master), &words, &[], None, NFT_LIMIT).await?.success().map(drop)
    }
}

const NFT_LIMIT: Duration = Duration::from_secs(10);

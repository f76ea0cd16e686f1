// SPDX-License-Identifier: Apache-2.0
//! An API server that is out of reach for a while: for everybody, or for one Pod.
//!
//! The server itself stays as it is, with its data and whatever else it keeps in memory. The host it is on refuses every
//! connection to it; or the Pod's own network does.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ferrolb_linux::Namespace;

use crate::api_server;
use crate::bench_handle::Bench;
use crate::host::Host;
use crate::launch;

/// An outage under way. It lasts until [`Outage::over`].
#[derive(Debug)]
#[must_use = "it lasts until it is ended"]
pub struct Outage {
    /// Where the rule is.
    place: Arc<Namespace>,
}

impl Bench {
    /// Takes the API server away from everybody.
    ///
    /// # Errors
    /// The rule cannot be made.
    pub async fn without_api(&self) -> Result<Outage> {
        let port = api_server::ADDRESS.port();
        Outage::begin(Arc::clone(self.namespace(Host::Master1)), "input", port).await
    }

    /// Takes the API server, and whatever else is at port 443, away from a Pod with a network of its own.
    ///
    /// # Errors
    /// There is no such Pod, or the rule cannot be made.
    pub async fn without_api_for(&self, pod: &str) -> Result<Outage> {
        Outage::begin(Arc::new(self.pod_namespace(pod)?), "output", 443).await
    }
}

impl Outage {
    async fn begin(place: Arc<Namespace>, hook: &str, port: u16) -> Result<Self> {
        let text = format!(
            "add table ip outage\ndelete table ip outage\ntable ip outage {{\n  chain refuse {{\n    type filter hook {hook} \
             priority -5\n    tcp dport {port} reject with tcp reset\n  }}\n}}\n"
        );
        let made = launch::run(Some(&*place), &["nft", "-f", "-"], &[], Some(&text), NFT_LIMIT).await?;
        made.success().context("take the API server away")?;
        Ok(Self { place })
    }

    /// Ends it: connections get through when this returns.
    ///
    /// # Errors
    /// The rule stays.
    pub async fn over(self) -> Result<()> {
        let words = ["nft", "delete", "table", "ip", "outage"];
        launch::run(Some(&*self.place), &words, &[], None, NFT_LIMIT).await?.success().map(drop)
    }
}

const NFT_LIMIT: Duration = Duration::from_secs(10);

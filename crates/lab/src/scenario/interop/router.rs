// SPDX-License-Identifier: Apache-2.0
//! A router of any make: what it knows, and what its operator does.

use anyhow::Result;

use super::configs;
use super::makes::{Case, Make};
use super::read::{self, Route};
use crate::bench_handle::Bench;
use crate::host::Host;
use crate::routers::{Bird, ExaBgp, Frr, GoBgp};

/// A router that runs.
pub(super) struct Router {
    pub(super) make: Make,
    case: Case,
    daemon: Daemon,
}

enum Daemon {
    Frr(Frr),
    Bird(Bird),
    GoBgp(GoBgp),
    ExaBgp(ExaBgp),
}

impl Router {
    /// Starts one for a case; those with a password get this one.
    pub(super) async fn start(bench: &Bench, make: Make, case: Case, password: &str) -> Result<Self> {
        let site = case.site(make);
        let daemon = match make {
            // The one whose routes the kernel is to have.
            Make::Frr => {
                let config = configs::frr(case, password);
                Daemon::Frr(Frr::start_at(bench, site, &config, case == Case::Ebgp).await?)
            }
            Make::Bird => Daemon::Bird(Bird::start_at(bench, &site, &configs::bird(case, password)).await?),
            Make::GoBgp => {
                Daemon::GoBgp(GoBgp::start_at(bench, site, &configs::gobgp(case, password)).await?)
            }
            Make::ExaBgp => {
                Daemon::ExaBgp(ExaBgp::start_at(bench, &site, &configs::exabgp(case, password)).await?)
            }
        };
        Ok(Self { make, case, daemon })
    }

    /// What it has been told of a prefix by a node; `None` if it has no such route.
    pub(super) async fn route(&self, node: Host, prefix: &str) -> Result<Option<Route>> {
        let neighbor = self.case.address_of(node);
        match &self.daemon {
            Daemon::Frr(frr) => {
                let family = if self.case == Case::Ipv6 { "ipv6" } else { "ipv4" };
                let said = frr.ask(&format!("show bgp {family} unicast {prefix} json")).await?;
                read::frr(&said, neighbor)
            }
            Daemon::Bird(bird) => {
                let protocol = configs::bird_protocol(node);
                let said = bird.ask(&format!("show route for {prefix} protocol {protocol} all")).await;
                // It calls it an error to have none.
                said.map_or(Ok(None), |said| read::bird(&said, prefix))
            }
            Daemon::GoBgp(gobgp) => {
                let family = if self.case == Case::Ipv6 { "ipv6" } else { "ipv4" };
                let question = ["neighbor", &neighbor.to_string(), "adj-in", "-a", family];
                // It calls it an error to have no session.
                let said = gobgp.ask(&question).await;
                said.map_or(Ok(None), |said| read::gobgp(&said, prefix))
            }
            Daemon::ExaBgp(exabgp) => Ok(read::exabgp(&exabgp.events(), neighbor, prefix)),
        }
    }

    /// Gives it another password, for one that can be given another while it runs.
    pub(super) async fn change_password(&self, password: &str) -> Result<()> {
        match &self.daemon {
            Daemon::Frr(frr) => {
                let lines = configs::frr_password(password);
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                frr.configure(&lines).await
            }
            Daemon::Bird(bird) => bird.configure(&configs::bird(self.case, password)).await,
            Daemon::GoBgp(gobgp) => gobgp.configure(&configs::gobgp(self.case, password)),
            Daemon::ExaBgp(_) => Ok(()),
        }
    }

    /// What an operator does so that it takes a peer again that had told it too much.
    pub(super) async fn let_in_again(&self) -> Result<()> {
        let node = self.case.address_of(Host::Node1).to_string();
        match &self.daemon {
            Daemon::Frr(frr) => frr.order(&format!("clear bgp {node}")).await,
            Daemon::GoBgp(gobgp) => gobgp.order(&["neighbor", &node, "enable"]).await,
            // It does by itself.
            Daemon::Bird(_) | Daemon::ExaBgp(_) => Ok(()),
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Other people's routing daemons with the same routes for the same peers, each from a configuration of its own.
//!
//! FRR and BIRD have the routes in their configuration. GoBGP has none there: it is given a dump of a table (RFC 6396), as an
//! operator would.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ferrolb_linux::process::Identity;
use serde_json::Value;

use super::peers::{self, ASN, THEIRS};
use super::services;
use crate::bench_handle::Bench;
use crate::host::Host;
use crate::launch;
use crate::routers::{Bird, Frr, GoBgp, Site};
use crate::tools::{self, Tool};

/// Where it runs.
const HOST: Host = Host::Node2;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Frr,
    Bird,
    GoBgp,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Frr, Self::Bird, Self::GoBgp];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Frr => "FRR",
            Self::Bird => "BIRD",
            Self::GoBgp => "GoBGP",
        }
    }

    /// What has to be installed for it.
    pub(super) const fn tools(self) -> &'static [Tool] {
        match self {
            Self::Frr => &[tools::BGPD, tools::VTYSH],
            Self::Bird => &[tools::BIRD, tools::BIRDC],
            Self::GoBgp => &[tools::GOBGPD, tools::GOBGP],
        }
    }

    /// What it calls its version.
    pub(super) async fn version(self) -> Result<String> {
        let daemon = self.tools().first().context("a tool of its own")?.program;
        let said = launch::run(None, &[daemon, "--version"], &[], None, SOON).await?;
        // BIRD says it on standard error.
        let first = said.stdout.lines().chain(said.stderr.lines()).next().unwrap_or_default();
        Ok(first.split_whitespace().last().unwrap_or_default().to_owned())
    }
}

/// A daemon that runs, with so many routes.
#[derive(Debug)]
pub(super) struct Router {
    daemon: Daemon,
    identity: Identity,
}

#[derive(Debug)]
enum Daemon {
    Frr(Frr),
    Bird(Bird),
    GoBgp(GoBgp),
}

impl Router {
    /// Starts it.
    ///
    /// # Errors
    /// It does not come up, or does not take its routes.
    pub(super) async fn start(bench: &Bench, kind: Kind, peers: usize, routes: usize) -> Result<Self> {
        let daemon = match kind {
            Kind::Frr => Daemon::Frr(Frr::start(bench, HOST, &frr(peers, routes), false).await?),
            Kind::Bird => Daemon::Bird(Bird::start(bench, HOST, &bird(peers, routes)).await?),
            Kind::GoBgp => {
                let file = bench.ledger().directory("gobgp-table")?.join("table.mrt");
                std::fs::write(&file, dump(routes)).with_context(|| format!("write {}", file.display()))?;
                let gobgp = GoBgp::start_at(bench, Site::of(HOST), &gobgp(peers)).await?;
                inject(&gobgp, &file, routes).await?;
                Daemon::GoBgp(gobgp)
            }
        };
        let program = match kind {
            Kind::Frr => "bgpd",
            Kind::Bird => "bird",
            Kind::GoBgp => "gobgpd",
        };
        let role = format!("{program} on {HOST}");
        let mut processes = bench.ledger().processes().into_iter();
        let found = processes.find(|(identity, of)| *of == role && identity.is_alive());
        let (identity, _) = found.with_context(|| format!("there is no process {role}"))?;
        Ok(Self { daemon, identity })
    }

    /// Its process.
    pub(super) const fn identity(&self) -> Identity {
        self.identity
    }

    /// Has it take back all that it told the first peer, which alone has a session.
    ///
    /// # Errors
    /// It refuses.
    pub(super) async fn silence(&self) -> Result<()> {
        match &self.daemon {
            Daemon::Frr(frr) => {
                let neighbour = format!("neighbor {} prefix-list none out", peers::address(0));
                let lines = [&format!("router bgp {THEIRS}"), "address-family ipv4 unicast", &neighbour];
                frr.configure(&lines).await
            }
            Daemon::Bird(bird) => bird.ask("disable prefixes").await.map(drop),
            Daemon::GoBgp(gobgp) => gobgp.order(&["global", "rib", "del", "all"]).await,
        }
    }
}

/// Has it take a dump of so many routes. `gobgp` may end before the last ones of a dump are taken: then once more.
async fn inject(gobgp: &GoBgp, file: &Path, routes: usize) -> Result<()> {
    let mut taken = 0;
    for _ in 0..INJECTIONS {
        gobgp.order(&["mrt", "inject", "global", &file.display().to_string()]).await?;
        let table = gobgp.ask(&["global", "rib", "summary"]).await?;
        taken = table.get("num_destination").and_then(Value::as_u64).unwrap_or_default();
        if usize::try_from(taken).is_ok_and(|taken| taken == routes) {
            return Ok(());
        }
    }
    bail!("GoBGP has {taken} of {routes} routes after {INJECTIONS} times")
}

/// Without its pause of a second before the first UPDATE of a session. That of five seconds after any change of its
/// configuration cannot be set.
fn frr(peers: usize, routes: usize) -> String {
    let mut text = format!(
        "ip prefix-list none seq 5 deny any\n\
         router bgp {THEIRS}\n bgp router-id {}\n no bgp ebgp-requires-policy\n no bgp network import-check\n coalesce-time 0\n",
        HOST.address()
    );
    for peer in (0..peers).map(peers::address) {
        let _ = write!(text, " neighbor {peer} remote-as {ASN}\n neighbor {peer} timers connect 1\n");
    }
    text.push_str(" address-family ipv4 unicast\n");
    for route in (0..routes).map(services::address) {
        let _ = writeln!(text, "  network {route}/32");
    }
    text.push_str(" exit-address-family\n");
    text
}

fn bird(peers: usize, routes: usize) -> String {
    let own = HOST.address();
    let mut text = format!("router id {own};\nprotocol device {{}}\nprotocol static prefixes {{\n  ipv4;\n");
    for route in (0..routes).map(services::address) {
        let _ = writeln!(text, "  route {route}/32 blackhole;");
    }
    text.push_str("}\n");
    for (index, peer) in (0..peers).map(peers::address).enumerate() {
        let _ = writeln!(
            text,
            "protocol bgp peer{index} {{ local {own} as {THEIRS}; neighbor {peer} as {ASN}; connect delay time 1; \
             connect retry time 1; error wait time 1, 1; ipv4 {{ import none; export all; }}; }}"
        );
    }
    text
}

fn gobgp(peers: usize) -> String {
    let mut text = format!("[global.config]\nas = {THEIRS}\nrouter-id = \"{}\"\nport = -1\n", HOST.address());
    for peer in (0..peers).map(peers::address) {
        let _ = write!(
            text,
            "[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{peer}\"\npeer-as = {ASN}\n\
             [neighbors.timers.config]\nconnect-retry = 1\nidle-hold-time-after-reset = 1\n\
             [[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"ipv4-unicast\"\n"
        );
    }
    text
}

/// A table of these routes as a dump (RFC 6396, section 4.3), and some of them again, since `gobgp` reads faster than it is
/// heard, and what it has read last is lost.
fn dump(routes: usize) -> Vec<u8> {
    let own = HOST.address().octets();
    let mut bytes = Vec::new();
    // Collector, a view without a name, one peer: of IPv4, with a system of four octets.
    let peers = [&own[..], &[0, 0, 0, 1, 2], &own, &own, &THEIRS.to_be_bytes()].concat();
    record(&mut bytes, PEER_INDEX_TABLE, &peers);
    let attributes = [&[0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 3, 4][..], &own].concat();
    let length = u16::try_from(attributes.len()).unwrap_or_default().to_be_bytes();
    for number in (0..routes).cycle().take(routes + LOST_AT_MOST) {
        let sequence = u32::try_from(number).unwrap_or_default().to_be_bytes();
        let route: Ipv4Addr = services::address(number);
        // One entry, from the peer, at the beginning of time.
        let parts = [&sequence[..], &[32], &route.octets(), &[0, 1, 0, 0, 0, 0, 0, 0], &length, &attributes];
        record(&mut bytes, RIB_IPV4_UNICAST, &parts.concat());
    }
    bytes
}

fn record(out: &mut Vec<u8>, subtype: u16, body: &[u8]) {
    out.extend([0; 4]);
    out.extend(TABLE_DUMP_V2.to_be_bytes());
    out.extend(subtype.to_be_bytes());
    out.extend(u32::try_from(body.len()).unwrap_or_default().to_be_bytes());
    out.extend(body);
}

const TABLE_DUMP_V2: u16 = 13;
const PEER_INDEX_TABLE: u16 = 1;
const RIB_IPV4_UNICAST: u16 = 2;

const INJECTIONS: usize = 10;
const LOST_AT_MOST: usize = 4096;

const SOON: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_has_its_peer_and_each_route_and_some_again() {
        let bytes = dump(3);
        let (mut rest, mut subtypes, mut routes) = (&bytes[..], Vec::new(), Vec::new());
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(12);
            assert_eq!(head[..6], [0, 0, 0, 0, 0, 13]);
            let length = u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize;
            subtypes.push(head[7]);
            if head[7] == 2 {
                routes.push(Ipv4Addr::new(tail[5], tail[6], tail[7], tail[8]));
                // What an entry says of its length is what is left.
                assert_eq!(usize::from(u16::from_be_bytes([tail[17], tail[18]])), length - 19);
            } else {
                assert_eq!(length, 4 + 4 + 13);
            }
            rest = &tail[length..];
        }
        assert_eq!(subtypes, [&[1][..], &[2; 3 + LOST_AT_MOST]].concat());
        assert_eq!(routes[..6], [0, 1, 2, 0, 1, 2].map(services::address));
    }

    #[test]
    fn configurations_name_every_route_and_every_peer() {
        for text in [frr(8, 20), bird(8, 20)] {
            assert_eq!(text.matches("10.200.1.").count(), 20, "{text}");
        }
        for text in [frr(8, 1), bird(8, 1), gobgp(8)] {
            assert!((0..8).all(|index| text.contains(&peers::address(index).to_string())), "{text}");
        }
    }
}

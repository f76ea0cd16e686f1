// SPDX-License-Identifier: Apache-2.0
//! Other people's routers, feature by feature: a table of what each of them takes from the speakers.
//!
//! Every router runs once for every case that it can be asked for, at an address of its own, so that all sessions are there at once.
//! What a cell says is read from the router itself, and where the form of a message matters, from the wire.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use ferrolb_linux::Netlink;
use futures::future::{join_all, try_join_all};
use serde_json::Value;
use std::net::Ipv4Addr;

use super::cluster::{BGP_SESSION, eventually, text};
use super::conversation::Conversation;
use super::l2::HELLO;
use super::matrix::{Column, Matrix, Row};
use super::stage::{Example, SOON, Stage};
use super::story::{Report, Seen, Show, Story};
use crate::bench_handle::{Bench, DEMO, SYSTEM};
use crate::host::Host;
use features::{Cell, Feature};
use listener::Listener;
use makes::{Case, Make};
use router::Router;

mod changes;
mod configs;
mod distance;
mod features;
mod listener;
mod makes;
mod read;
mod router;

const PEERS: Example = manifest!("peers.yaml");
const SECRET: Example = manifest!("secret.yaml");
const ROUTES: Example = manifest!("routes.yaml");

/// The password of all that want one, at first.
const PASSWORD: &str = "one";

/// Where the peer of our own waits, as `peers.yaml` has it.
const LISTENER: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 151);

/// Plays the story from the first chapter to the last.
pub(super) async fn play(bench: &Bench, api: &str, show: Show) -> Report {
    let mut stage = Stage::new(bench, Story::new("interop", api, show));
    let makes: Vec<Make> = Make::ALL.into_iter().filter(|make| is_here(*make)).collect();
    let mut table = Matrix::default();
    stage.story.chapter("Routers");
    let mut ground = None;
    let routers = stage
        .step("routers", "each runs once for every case", async |stage: &mut Stage<'_>| {
            let (started, columns) = Ground::start(stage, &makes).await?;
            table.columns = columns;
            let versions = table.columns.iter().map(|column| format!("{} {}", column.name, column.version));
            stage.story.measured(versions.collect::<Vec<_>>().join(", "));
            ground = Some(started);
            Ok(format!("{}, each once for every case", names(&makes)))
        })
        .await;
    if let (true, Some(ground)) = (routers, &ground) {
        let sessions = stage
            .step("sessions", "every peer is Established", async |stage: &mut Stage<'_>| {
                sessions(stage, ground).await
            })
            .await;
        if sessions {
            stage.story.chapter("Routes");
            for feature in Feature::OF_ROUTES {
                row(&mut stage, ground, &mut table, feature).await;
            }
            stage.story.chapter("Changes");
            row(&mut stage, ground, &mut table, Feature::PasswordChanged).await;
            stage
                .step(
                    "with a peer that changes it on a connection, too",
                    "the session is the same as before",
                    async |stage: &mut Stage<'_>| changes::same_session(stage, ground).await,
                )
                .await;
            row(&mut stage, ground, &mut table, Feature::Limit).await;
            stage.story.chapter("Type frr");
            stage
                .step(
                    "two hops away without ebgpMultiHop",
                    "no session: packets go out with TTL 1",
                    async |stage: &mut Stage<'_>| distance::too_far(stage, ground).await,
                )
                .await;
            row(&mut stage, ground, &mut table, Feature::MultihopFrr).await;
        }
    }
    stage.story.table(table);
    stage.story.finish()
}

/// Whether a router is installed. Else its column is missing, and somebody should know.
fn is_here(make: Make) -> bool {
    let installed = make.installed();
    if let Err(error) = &installed {
        anstream::eprintln!("\nSKIPPED: {}, and with it its column of the table: {error:#}\n", make.name());
    }
    installed.is_ok()
}

/// What is on the bench beside the cluster.
struct Ground {
    makes: Vec<Make>,
    routers: BTreeMap<(Make, Case), Router>,
    listener: Listener,
    /// BGP on the router's interface, from the beginning.
    wire: Conversation,
}

impl Ground {
    async fn start(stage: &Stage<'_>, makes: &[Make]) -> Result<(Self, Vec<Column>)> {
        ensure!(!makes.is_empty(), "no router is installed");
        let wanted = || makes.iter().flat_map(|make| make.cases().map(move |case| (*make, case)));
        let (namespace, interface) = (stage.namespace(Host::Router), Host::Router.interface());
        let mut link = Netlink::open_in(namespace)?;
        link.add_address(interface, LISTENER.into(), 24)?;
        for (make, case) in wanted().filter(|(_, case)| *case != Case::Multihop) {
            let address = case.address(make);
            link.add_address(interface, address, if address.is_ipv4() { 24 } else { 64 })?;
        }
        let wire = Conversation::start(namespace, interface)?;
        let node = Case::Password.address_of(Host::Node1);
        let listener = Listener::start(namespace, LISTENER.into(), node, PASSWORD)?;
        let start = async |(make, case)| {
            let router = Router::start(stage.bench, make, case, PASSWORD).await;
            router.map(|router| ((make, case), router))
        };
        let routers = try_join_all(wanted().map(start)).await?.into_iter().collect();
        let version = async |make: &Make| {
            Ok::<_, anyhow::Error>(Column {
                name: make.name().to_owned(),
                version: make.version(stage.bench).await?,
            })
        };
        let columns = try_join_all(makes.iter().map(version)).await?;
        Ok((Self { makes: makes.to_vec(), routers, listener, wire }, columns))
    }

    fn router(&self, make: Make, case: Case) -> Result<&Router> {
        self.routers.get(&(make, case)).with_context(|| format!("there is no {} for {case:?}", make.name()))
    }
}

async fn sessions(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    stage.apply(HELLO).await?;
    stage.apply(SECRET).await?;
    stage.apply(PEERS).await?;
    let mut expected: Vec<(String, Host)> = ground
        .routers
        .keys()
        .flat_map(|(make, case)| case.nodes().iter().map(move |node| (case.peer(*make), *node)))
        .collect();
    expected.push((OWN.to_owned(), Host::Node1));
    eventually(SOON * 2, async || {
        let sessions = stage.cluster.list(BGP_SESSION, SYSTEM).await?;
        for (peer, node) in &expected {
            let session = of(&sessions, peer, *node);
            let session = session.with_context(|| format!("there is no BGPSession of {node} with {peer}"))?;
            is_up(&session)?;
        }
        Ok(())
    })
    .await?;
    eventually(SOON, async || {
        let pods = stage.bench.pods(DEMO, "hello").await?;
        let ready = pods.iter().filter(|pod| pod.ready).count();
        ensure!(ready == 3, "{ready} of {} Pods are ready", pods.len());
        Ok(())
    })
    .await?;
    stage.apply(ROUTES).await?;
    stage.addresses(DEMO, "shop").await?;
    Ok(format!("{} sessions: Established", expected.len()))
}

/// The BGPPeer of the peer of our own.
const OWN: &str = "own-md5";

/// Asks all routers for a feature at once, and writes a row of the table.
async fn row(stage: &mut Stage<'_>, ground: &Ground, table: &mut Matrix, feature: Feature) {
    let mut cells = Vec::new();
    stage
        .step(feature.name(), feature.expected(), async |stage: &mut Stage<'_>| {
            changes::prepare(stage, ground, feature).await?;
            let stage = &*stage;
            let asked =
                ground.makes.iter().map(async |make| features::cell(stage, ground, feature, *make).await);
            let seen = join_all(asked).await;
            cells =
                seen.iter().map(|cell| cell.as_ref().map_or("✗", |cell| cell.word()).to_owned()).collect();
            let mut failed = Vec::new();
            let mut good = Vec::new();
            for (make, cell) in ground.makes.iter().zip(seen) {
                match cell {
                    Err(error) => failed.push(format!("{}: {error:#}", make.name())),
                    Ok(Cell::No) => {}
                    Ok(_) => good.push(*make),
                }
            }
            ensure!(failed.is_empty(), "{}", failed.join("; "));
            Ok(format!("{}: {}", names(&good), feature.seen()))
        })
        .await;
    if cells.is_empty() {
        cells = ground.makes.iter().map(|_| "✗".to_owned()).collect();
    }
    table.rows.push(Row { name: feature.name().to_owned(), cells });
}

/// The BGPSession of a node with a peer.
fn of(sessions: &[Value], peer: &str, node: Host) -> Option<Value> {
    let is = |session: &&Value| {
        (text(session, "/status/peer"), text(session, "/status/node")) == (peer, node.name())
    };
    sessions.iter().find(is).cloned()
}

/// The same, asked for now.
async fn session(stage: &Stage<'_>, peer: &str) -> Result<Value> {
    let sessions = stage.cluster.list(BGP_SESSION, SYSTEM).await?;
    of(&sessions, peer, Host::Node1).with_context(|| format!("there is no BGPSession with {peer}"))
}

fn is_up(session: &Value) -> Result<()> {
    let (peer, state) = (text(session, "/status/peer"), text(session, "/status/state"));
    let reason = text(session, "/status/lastFailure/reason");
    ensure!(state == "Established", "the BGPSession with {peer} says {state:?}: {reason}");
    Ok(())
}

fn names(makes: &[Make]) -> String {
    let names: Vec<&str> = makes.iter().map(|make| make.name()).collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The manifest of this name in `docs/interop`.
macro_rules! manifest {
    ($name:literal) => {
        $crate::scenario::stage::Example {
            file: concat!("docs/interop/", $name),
            yaml: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/interop/", $name)),
        }
    };
}
use manifest;

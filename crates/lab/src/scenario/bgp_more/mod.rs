// SPDX-License-Identifier: Apache-2.0
//! The second story of BGP: several advertisements, pools, Services and peers at once, each change leaving all else alone.
//!
//! Two routers: one of another system, and one of the nodes' own, where LOCAL_PREF is heard. One file per chapter; each leaves the
//! advertisement `wide` and the Service `demo/shop` as it found them.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::bgp::{WORKERS, manifest, statuses};
use super::cluster::{BGP_ADVERTISEMENT, BGP_SESSION, eventually, text};
use super::conversation::{Conversation, Word};
use super::l2::HELLO;
use super::routing::{self, names, tellers};
use super::stage::{Example, SOON, Stage};
use super::story::{Report, Seen, Show, Story};
use crate::bench_handle::{Bench, DEMO, SYSTEM};
use crate::host::Host;
use crate::routers::Frr;

mod advertisements;
mod calico;
mod families;
mod neighbours;
mod safety;
mod selections;
mod services;

const ROUTER: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bgp/frr-more.conf"));
const INNER: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bgp/frr-inner.conf"));
const PEERS: Example = manifest!("peers.yaml");
const WIDE: Example = manifest!("wide.yaml");

/// The route of `demo/shop`.
const SHOP: &str = "192.168.20.10/32";

/// Plays the story from the first chapter to the last.
pub(super) async fn play(bench: &Bench, api: &str, show: Show) -> Report {
    let story = Story::new("bgp-more", api, show);
    let mut stage = Stage::new(bench, story);
    stage.story.chapter("Two routers");
    let mut ground = None;
    let ok = stage
        .step(
            "sessions and a route",
            "six sessions; both routers have the route from both workers, LOCAL_PREF 150 at the inner one alone",
            async |stage: &mut Stage<'_>| {
                let ground = ground.insert(Ground::start(stage).await?);
                begin(stage, ground).await
            },
        )
        .await;
    if let (true, Some(ground)) = (ok, &ground) {
        services::chapter(&mut stage, ground).await;
        advertisements::chapter(&mut stage, ground).await;
        selections::chapter(&mut stage, ground).await;
        neighbours::chapter(&mut stage, ground).await;
        calico::chapter(&mut stage, ground).await;
        safety::chapter(&mut stage, ground).await;
        families::chapter(&mut stage, ground).await;
    }
    stage.story.finish()
}

/// What is on the bench beside the cluster.
struct Ground {
    router: Frr,
    inner: Frr,
    /// BGP on the router's interface.
    wire: Conversation,
}

impl Ground {
    async fn start(stage: &Stage<'_>) -> Result<Self> {
        Ok(Self {
            wire: Conversation::start(stage.namespace(Host::Router), Host::Router.interface())?,
            router: Frr::start(stage.bench, Host::Router, ROUTER, true).await?,
            inner: Frr::start(stage.bench, Host::Client, INNER, false).await?,
        })
    }

    /// Waits until the router of the other system has the prefix from exactly these nodes.
    async fn outer(&self, prefix: &str, nodes: &[Host]) -> Result<()> {
        told(&self.router, prefix, nodes).await
    }

    /// Waits until both routers have it from exactly these nodes.
    async fn both(&self, prefix: &str, nodes: &[Host]) -> Result<()> {
        told(&self.router, prefix, nodes).await?;
        told(&self.inner, prefix, nodes).await
    }

    /// What the nodes said to the router since a mark, each with its node.
    fn words(&self, mark: usize) -> Vec<(Host, Word)> {
        let of = |node: Host| {
            self.wire.words(node.address().into(), mark).into_iter().map(move |word| (node, word))
        };
        Host::NODES.into_iter().flat_map(of).collect()
    }

    /// Sees that nothing was said about a prefix since a mark.
    fn untouched(&self, prefix: &str, mark: usize) -> Result<()> {
        let prefix = prefix.parse()?;
        let about: Vec<_> =
            self.words(mark).into_iter().filter(|(_, word)| word.prefix() == prefix).collect();
        ensure!(about.is_empty(), "about {prefix}: {about:?}");
        Ok(())
    }

    /// Sees that nothing was withdrawn since a mark.
    fn nothing_withdrawn(&self, mark: usize) -> Result<()> {
        let gone: Vec<_> =
            self.words(mark).into_iter().filter(|(_, word)| matches!(word, Word::Withdrawn(_))).collect();
        ensure!(gone.is_empty(), "withdrawn: {gone:?}");
        Ok(())
    }
}

/// Waits until a router was told of a prefix by exactly these nodes.
async fn told(router: &Frr, prefix: &str, nodes: &[Host]) -> Result<()> {
    eventually(SOON, async || {
        let told = tellers(router, prefix).await?;
        ensure!(
            told == nodes.iter().copied().collect(),
            "{} has {prefix} from {}",
            router.host(),
            names(&told)
        );
        Ok(())
    })
    .await
}

/// Waits until every path of a prefix at a router has these communities.
async fn says(router: &Frr, prefix: &str, communities: &[&str]) -> Result<()> {
    eventually(SOON, async || {
        let paths = routing::paths(router, prefix).await?;
        ensure!(paths.len() == WORKERS.len(), "{} paths to {prefix}", paths.len());
        for path in paths {
            let good = path.communities.iter().map(String::as_str).eq(communities.iter().copied());
            ensure!(good, "{} says {:?} of {prefix}", path.peer, path.communities);
        }
        Ok(())
    })
    .await
}

/// Changes fields of an advertisement; null takes one away.
async fn advertise(stage: &mut Stage<'_>, name: &str, spec: Value) -> Result<()> {
    stage.patch(BGP_ADVERTISEMENT, SYSTEM, name, false, json!({"spec": spec})).await
}

/// The BGPSession of a node with the router.
async fn session(stage: &Stage<'_>, node: Host) -> Result<Value> {
    let sessions = stage.cluster.list(BGP_SESSION, SYSTEM).await?;
    let own = sessions.into_iter().find(|session| {
        text(session, "/status/node") == node.name() && text(session, "/status/peer") == "router"
    });
    own.with_context(|| format!("there is no BGPSession of {node} with the router"))
}

/// Selects a node by its name.
fn hostname(node: Host) -> Value {
    json!([{"matchLabels": {"kubernetes.io/hostname": node.name()}}])
}

async fn begin(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    stage.apply(HELLO).await?;
    stage.apply(PEERS).await?;
    stage.apply(WIDE).await?;
    let addresses = stage.addresses(DEMO, "shop").await?;
    ensure!(addresses == ["192.168.20.10"], "demo/shop has {addresses:?}");
    let expected =
        [(Host::Master1, "Established", 0), (Host::Node1, "Established", 1), (Host::Node2, "Established", 1)];
    for router in [&ground.router, &ground.inner] {
        routing::settled(router, &expected).await?;
    }
    ground.both(SHOP, &WORKERS).await?;
    for path in routing::paths(&ground.inner, SHOP).await? {
        ensure!(path.local_pref == Some(150) && path.as_path == "Local", "{path:?}");
    }
    let said = ground.words(0);
    let with =
        said.iter().find(|(_, word)| matches!(word, Word::Announced(_, said) if said.local_pref.is_some()));
    ensure!(with.is_none(), "{with:?}");
    statuses(stage, "shop", &WORKERS, &["inner", "router"]).await?;
    Ok(format!(
        "{SHOP} by both workers to both; LOCAL_PREF 150 and no AS at the inner one; peers [inner, router]"
    ))
}

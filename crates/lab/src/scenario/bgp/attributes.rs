// SPDX-License-Identifier: Apache-2.0
//! Fifth chapter: what an advertisement says of its routes, and how a change of it reaches the router.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use ferrolb_bgp::wire::Community;
use ferrolb_net_types::Prefix;
use serde_json::{Value, json};

use super::super::cluster::{BGP_ADVERTISEMENT, eventually};
use super::super::conversation::Word;
use super::super::routing;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::{Ground, ROUTE, SYSTEM, WORKERS, address, manifest};
use crate::host::Host;

const COMMUNITIES: Example = manifest!("communities.yaml");

/// The prefix that all addresses of the pool are in.
const AGGREGATE: &str = "192.168.20.100/30";

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Attributes");
    stage
        .step(
            "communities",
            "by value and by name, in an UPDATE that replaces the route without a withdrawal",
            async |stage: &mut Stage<'_>| communities(stage, ground).await,
        )
        .await;
    stage
        .step(
            "local preference",
            "no LOCAL_PREF for a router of another system: nothing is said at all",
            async |stage: &mut Stage<'_>| local_preference(stage, ground).await,
        )
        .await;
    stage
        .step(
            "aggregation to /30",
            "the /30 is announced and the /32 withdrawn; the router refuses the /30, so nothing is left",
            async |stage: &mut Stage<'_>| aggregated(stage, ground).await,
        )
        .await;
    stage
        .step("and back", "the /32 is announced, the /30 withdrawn", async |stage: &mut Stage<'_>| {
            back(stage, ground).await
        })
        .await;
}

/// Changes fields of the advertisement; null takes one away.
async fn advertise(stage: &mut Stage<'_>, spec: Value) -> Result<()> {
    stage.patch(BGP_ADVERTISEMENT, SYSTEM, "routed", false, json!({"spec": spec})).await
}

fn prefix(text: &str) -> Result<Prefix> {
    Ok(text.parse()?)
}

async fn communities(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    stage.apply(COMMUNITIES).await?;
    let mark = ground.wire.mark();
    advertise(stage, json!({"communities": ["64512:1234", "backbone"]})).await?;
    let expected = BTreeSet::from(["64512:20".to_owned(), "64512:1234".to_owned()]);
    ground.asked(stage, &format!("show bgp ipv4 unicast {ROUTE} json"));
    eventually(SOON, async || {
        let paths = routing::paths(&ground.router, ROUTE).await?;
        ensure!(paths.len() == WORKERS.len(), "{} paths", paths.len());
        for path in &paths {
            ensure!(path.communities == expected, "{} says {:?}", path.peer, path.communities);
        }
        Ok(())
    })
    .await?;
    let on_wire = BTreeSet::from([Community::new(64_512, 20), Community::new(64_512, 1234)]);
    for node in WORKERS {
        // What the router knows may be captured only later.
        eventually(SOON, async || {
            match ground.wire.words(address(node), mark).as_slice() {
                [Word::Announced(announced, attributes)] => {
                    ensure!(*announced == prefix(ROUTE)?, "{node} announces {announced}");
                    ensure!(attributes.communities == on_wire, "{node} says {:?}", attributes.communities);
                }
                other => anyhow::bail!("{node} says {other:?}"),
            }
            Ok(())
        })
        .await?;
    }
    Ok("64512:20 64512:1234 at the router, by one UPDATE of each worker".to_owned())
}

async fn local_preference(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let mark = ground.wire.mark();
    advertise(stage, json!({"localPref": 150})).await?;
    // A change that is said follows: whatever the first one led to has been said before.
    advertise(stage, json!({"communities": ["64512:1234"]})).await?;
    for node in WORKERS {
        eventually(SOON, async || {
            ensure!(!ground.wire.words(address(node), mark).is_empty(), "{node} says nothing");
            Ok(())
        })
        .await?;
        for word in ground.wire.words(address(node), mark) {
            let Word::Announced(announced, attributes) = word else { anyhow::bail!("{node} says {word:?}") };
            ensure!(attributes.local_pref.is_none(), "{node} says LOCAL_PREF {:?}", attributes.local_pref);
            let only = BTreeSet::from([Community::new(64_512, 1234)]);
            ensure!(announced == prefix(ROUTE)? && attributes.communities == only, "{node}: {attributes:?}");
        }
    }
    advertise(stage, json!({"localPref": null, "communities": null})).await?;
    eventually(SOON, async || {
        let paths = routing::paths(&ground.router, ROUTE).await?;
        ensure!(paths.len() == 2 && paths.iter().all(|path| path.communities.is_empty()), "{paths:?}");
        Ok(())
    })
    .await?;
    Ok("localPref 150 changes nothing that is said; the next change of the communities is said, without LOCAL_PREF".to_owned())
}

/// Waits until each worker has announced one prefix and withdrawn another, in this order, and said nothing else.
async fn replaced(ground: &Ground, mark: usize, announced: &str, withdrawn: &str) -> Result<()> {
    let (announced, withdrawn) = (prefix(announced)?, prefix(withdrawn)?);
    for node in WORKERS {
        eventually(SOON, async || {
            let words = ground.wire.words(address(node), mark);
            let good = match words.as_slice() {
                [Word::Announced(one, _), Word::Withdrawn(other)] => *one == announced && *other == withdrawn,
                _ => false,
            };
            ensure!(good, "{node} says {words:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn aggregated(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let mark = ground.wire.mark();
    advertise(stage, json!({"aggregationLength": 30})).await?;
    replaced(ground, mark, AGGREGATE, ROUTE).await?;
    eventually(SOON, async || {
        let table = routing::table(&ground.router).await?;
        ensure!(table.is_empty(), "the router has {table:?}");
        let kernel = routing::in_kernel(stage, Host::Router, ROUTE).await?;
        ensure!(kernel.is_empty(), "its kernel has {ROUTE} via {kernel:?}");
        Ok(())
    })
    .await?;
    Ok(format!("{AGGREGATE} announced, {ROUTE} withdrawn; the router has no route"))
}

async fn back(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let mark = ground.wire.mark();
    advertise(stage, json!({"aggregationLength": null})).await?;
    replaced(ground, mark, ROUTE, AGGREGATE).await?;
    ground.via(stage, &WORKERS).await?;
    Ok(format!("{ROUTE} announced, {AGGREGATE} withdrawn; the router has two next hops again"))
}

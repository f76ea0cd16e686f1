// SPDX-License-Identifier: Apache-2.0
//! The end: the whole DaemonSet is rolled from one kind to the other and back, while a client goes on connecting.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::super::cluster::DAEMON_SET;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::super::watch::{Watch, longest};
use super::super::wire::Requests;
use super::swap::all_ready;
use super::tally::{Outcome, Tally};
use super::{Kind, SYSTEM, Situation};
use crate::host::Host;

/// From one new connection to the next.
const BETWEEN: Duration = Duration::from_millis(25);

pub(super) async fn chapter(stage: &mut Stage<'_>, watch: &Watch, situation: &mut Situation) {
    stage.story.chapter("A rolling swap under traffic");
    for kind in [Kind::Ours, Kind::Metallb] {
        let mut arrived = false;
        stage
            .step(
                &format!("every speaker to {}", kind.name()),
                "one node after the other; every connection succeeds",
                async |stage: &mut Stage<'_>| roll(stage, watch, situation, kind, &mut arrived).await,
            )
            .await;
        if !arrived {
            return;
        }
    }
}

async fn roll(
    stage: &mut Stage<'_>,
    watch: &Watch,
    situation: &mut Situation,
    kind: Kind,
    arrived: &mut bool,
) -> Seen {
    // One address of each node's.
    let led = Host::NODES.map(|node| {
        let mut all = situation.addresses().into_iter().map(|(address, _)| address);
        all.find(|address| situation.owner(*address) == Some(node))
    });
    let led: Vec<Ipv4Addr> = led.into_iter().flatten().collect();
    ensure!(led.len() == Host::NODES.len(), "not every node leads an address");
    let traffic = led
        .iter()
        .map(|address| Requests::until_told(stage.namespace(Host::Client), (*address, 80), BETWEEN))
        .collect::<Result<Vec<_>>>()?;
    let patch = json!([
        {"op": "add", "path": "/spec/updateStrategy", "value": {"type": "RollingUpdate"}},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": kind.image()},
    ]);
    let from = watch.now();
    stage.patch_json(DAEMON_SET, SYSTEM, "speaker", &patch).await?;
    all_ready(stage, SOON * 3).await?;
    let rolled = watch.now();
    situation.kinds = Host::NODES.map(|node| (node, kind)).into();
    let settled = watch.settled(&situation.expected(), 10, SOON).await?;
    *arrived = true;
    let (mut count, mut failures, mut slowest) = (0, Vec::new(), Duration::ZERO);
    for requests in traffic {
        let outcome = requests.enough().await?;
        count += outcome.count;
        slowest = slowest.max(outcome.slowest);
        failures.extend(outcome.failures);
    }
    // On its way the cluster is without each node in turn.
    let away = Host::NODES.map(|node| situation.without(node));
    let [a, b, c] = &away;
    let (tally, outcomes, moves) = watch.look(|seen| {
        let outcomes = Outcome::of(seen, from, settled, &[&*situation, a, b, c], false);
        (Tally::of(seen, from, settled, situation), outcomes, seen.moves(from, settled))
    });
    stage.story.measured(format!(
        "rolled in {} ms; {count} connections to {} addresses, the slowest {} ms, {} failed; {moves} moves\n      {}; any two \
         owners {}; dark {}",
        (rolled - from).as_millis(),
        led.len(),
        slowest.as_millis(),
        failures.len(),
        outcomes.words(),
        // Who is of which kind changes meanwhile.
        longest(tally.ours.iter().chain(&tally.between).chain(&tally.theirs)),
        longest(tally.dark.iter().chain(&tally.dark_theirs)),
    ));
    ensure!(failures.is_empty(), "{} of {count} connections failed: {failures:?}", failures.len());
    outcomes.judge()?;
    Ok("every connection succeeded".to_owned())
}

// SPDX-License-Identifier: Apache-2.0
//! What changes in a cluster, in each mixture: nodes are excluded and let in again, lose their network and get it back, Pods become
//! unready and ready, Services go and come.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::super::cluster::{NODE, POD, SERVICE, text};
use super::super::l2::EXCLUDE;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::super::watch::Watch;
use super::tally::{BOUND, Tally};
use super::{DEMO, Situation};
use crate::host::Host;
use crate::seed;

/// One change of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Excluded(Host, bool),
    Unavailable(Host, bool),
    Ready(bool),
    Present(bool),
}

/// There and back again, in order.
const CHANGES: [Change; 8] = [
    Change::Excluded(Host::Node1, true),
    Change::Excluded(Host::Node1, false),
    Change::Unavailable(Host::Node2, true),
    Change::Unavailable(Host::Node2, false),
    Change::Ready(false),
    Change::Ready(true),
    Change::Present(false),
    Change::Present(true),
];

/// Plays all of them.
pub(super) async fn steps(stage: &mut Stage<'_>, watch: &Watch, situation: &Situation) {
    stage
        .step(
            "exclusion, NetworkUnavailable, readiness, Services that go and come",
            "after each change exactly one node answers for each address: the formula's",
            async |stage: &mut Stage<'_>| play(stage, watch, situation.clone()).await,
        )
        .await;
}

async fn play(stage: &mut Stage<'_>, watch: &Watch, mut situation: Situation) -> Seen {
    let began = watch.now();
    let mut slowest = (Duration::ZERO, CHANGES[0]);
    let mut sum = Tally::default();
    let mut wrong = Vec::new();
    for change in CHANGES {
        let from = watch.now();
        make(stage, &mut situation, change).await.with_context(|| format!("{change:?}"))?;
        let mut expected = situation.expected();
        if change == Change::Present(false) {
            expected.insert(VICTIM, BTreeSet::new());
        }
        let settled = watch.settled(&expected, 10, SOON).await.with_context(|| format!("{change:?}"))?;
        let took = settled.saturating_sub(from);
        if took > slowest.0 {
            slowest = (took, change);
        }
        let mut tally = watch.look(|seen| Tally::of(seen, from, watch.now(), &situation));
        if matches!(change, Change::Present(_)) {
            tally.dark.retain(|span| span.address != VICTIM);
        }
        // What one change shows is no reason not to take it back.
        wrong.extend(tally.judge(BOUND).err().map(|error| format!("{change:?}: {error}")));
        sum.add(tally);
    }
    let rounds = watch.look(|seen| seen.rounds(began, watch.now()));
    stage.story.measured(format!(
        "{}; {rounds} rounds; slowest to settle: {:?}, {} ms",
        sum.words(),
        slowest.1,
        slowest.0.as_millis()
    ));
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(format!("{} changes, 20 addresses, one owner each", CHANGES.len()))
}

/// The address of `demo/plain-3`, which goes and comes.
const VICTIM: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 168, 10, 233);

async fn make(stage: &mut Stage<'_>, situation: &mut Situation, change: Change) -> Result<()> {
    let put = |set: &mut BTreeSet<Host>, host: Host, there: bool| {
        if there {
            set.insert(host)
        } else {
            set.remove(&host)
        };
    };
    match change {
        Change::Excluded(node, there) => {
            stage.label_node(node, EXCLUDE, there.then_some("")).await?;
            put(&mut situation.excluded, node, there);
        }
        Change::Unavailable(node, there) => {
            network_unavailable(stage, node, there).await?;
            put(&mut situation.unavailable, node, there);
        }
        Change::Ready(ready) => {
            switch(stage, if ready { "ready" } else { "unready" }).await?;
            put(&mut situation.endpoints, Host::Node1, ready);
        }
        Change::Present(false) => {
            stage.story.command("kubectl -n demo delete service plain-3");
            stage.cluster.delete(SERVICE, DEMO, "plain-3").await?;
        }
        Change::Present(true) => {
            stage.story.command("kubectl apply -f docs/mixed/services.yaml");
            let all = seed::documents(super::ground::SERVICES.yaml)?;
            let own = all.iter().find(|document| text(document, "/metadata/name") == "plain-3");
            stage.cluster.apply(own.context("no plain-3")?).await?;
        }
    }
    Ok(())
}

/// Says of a node that its network is there or not, as a cloud's route controller does.
pub(in crate::scenario) async fn network_unavailable(
    stage: &mut Stage<'_>,
    node: Host,
    unavailable: bool,
) -> Result<()> {
    let status = if unavailable { "True" } else { "False" };
    stage
        .story
        .command(format!("kubectl patch node {node} --subresource status …NetworkUnavailable={status}"));
    let stored = stage.cluster.read(NODE, "", node.name()).await?;
    let mut conditions = stored.pointer("/status/conditions").cloned().context("no conditions")?;
    let list = conditions.as_array_mut().context("no list of conditions")?;
    let own = list.iter_mut().find(|condition| condition["type"] == "NetworkUnavailable");
    own.context("no condition NetworkUnavailable")?["status"] = json!(status);
    stage.cluster.merge(NODE, "", node.name(), true, &json!({"status": {"conditions": conditions}})).await
}

/// Tells the Pod on k8s-node-1 to fail, or pass, its readiness probe.
async fn switch(stage: &mut Stage<'_>, path: &str) -> Result<()> {
    let pods = stage.cluster.list(POD, DEMO).await?;
    let pod = pods.iter().find(|pod| text(pod, "/spec/nodeName") == Host::Node1.name());
    let address = text(pod.context("no Pod on k8s-node-1")?, "/status/podIP").to_owned();
    ensure!(!address.is_empty(), "the Pod on k8s-node-1 has no address");
    stage.story.command(format!("ferrolb lab exec k8s-node-1 -- curl -X POST http://$pod:8080/{path}"));
    let url = format!("http://{address}:8080/{path}");
    stage.on_host(Host::Node1, &["curl", "-sS", "--max-time", "5", "-X", "POST", &url]).await?.success()?;
    Ok(())
}

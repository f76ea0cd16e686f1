// SPDX-License-Identifier: Apache-2.0
//! What changes in a cluster, in each mixture: nodes are excluded and let in again, lose their network and get it back, are cordoned and
//! drained; Pods become unready and ready; a policy, an advertisement and a pool are edited; Services go and come.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::super::cluster::{L2_ADVERTISEMENT, NODE, POD, SERVICE, eventually, text};
use super::super::l2::{EXCLUDE, REVERSED};
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::super::watch::Watch;
use super::tally::{BOUND, Outcome, Tally};
use super::{DEMO, SYSTEM, Situation, VICTIM};
use crate::host::Host;
use crate::seed;

/// One change of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Excluded(Host, bool),
    Unavailable(Host, bool),
    /// The Pod on k8s-node-1.
    Ready(bool),
    /// `demo/plain-0` has the policy Local.
    Local(bool),
    /// The advertisement `chosen` names k8s-node-1 instead of the others.
    Edited(bool),
    /// There is a pool that nobody can read.
    BadPool(bool),
    Cordoned(Host),
    Drained(Host),
    /// Neither cordoned nor without a Pod any more.
    Restored(Host),
    /// `demo/plain-3`.
    Present(bool),
}

/// There and back again, in order.
const CHANGES: [Change; 19] = [
    Change::Excluded(Host::Node1, true),
    Change::Excluded(Host::Node1, false),
    Change::Unavailable(Host::Node2, true),
    Change::Unavailable(Host::Node2, false),
    Change::Ready(false),
    Change::Ready(true),
    Change::Local(true),
    Change::Local(false),
    Change::Edited(true),
    Change::Edited(false),
    // A node is excluded while MetalLB's speakers keep to the last good configuration.
    Change::BadPool(true),
    Change::Excluded(Host::Node2, true),
    Change::Excluded(Host::Node2, false),
    Change::BadPool(false),
    Change::Cordoned(Host::Node1),
    Change::Drained(Host::Node1),
    Change::Restored(Host::Node1),
    Change::Present(false),
    Change::Present(true),
];

/// Plays all of them.
pub(super) async fn steps(stage: &mut Stage<'_>, watch: &Watch, situation: &Situation) {
    stage
        .step(
            "exclusion, NetworkUnavailable, readiness, policy, advertisement, a bad pool, cordon and drain, Services",
            "after each change exactly one node answers for each address: the formula's; what does not move is not disturbed",
            async |stage: &mut Stage<'_>| play(stage, watch, situation.clone()).await,
        )
        .await;
}

async fn play(stage: &mut Stage<'_>, watch: &Watch, mut situation: Situation) -> Seen {
    let began = watch.now();
    let mut slowest = (Duration::ZERO, CHANGES[0]);
    let (mut sum, mut outcomes) = (Tally::default(), Outcome::default());
    let mut wrong = Vec::new();
    for change in CHANGES {
        let (from, before) = (watch.now(), situation.clone());
        make(stage, &mut situation, change).await.with_context(|| format!("{change:?}"))?;
        let expected = situation.expected();
        let settled = watch.settled(&expected, 10, SOON).await.with_context(|| format!("{change:?}"))?;
        let took = settled.saturating_sub(from);
        if took > slowest.0 {
            slowest = (took, change);
        }
        let (mut tally, outcome) = watch.look(|seen| {
            (
                Tally::of(seen, from, settled, &situation),
                Outcome::of(seen, from, settled, &[&before, &situation], true),
            )
        });
        if matches!(change, Change::Present(_)) {
            tally.dark.retain(|span| span.address != VICTIM);
        }
        // What one change shows is no reason not to take it back.
        for judged in [outcome.judge(), tally.judge(BOUND)] {
            wrong.extend(judged.err().map(|error| format!("{change:?}: {error}")));
        }
        sum.add(tally);
        outcomes.add(outcome);
    }
    let rounds = watch.look(|seen| seen.rounds(began, watch.now()));
    stage.story.measured(format!(
        "{}\n      {}; {rounds} rounds; slowest to settle: {:?}, {} ms",
        outcomes.words(),
        sum.words(BOUND),
        slowest.1,
        slowest.0.as_millis()
    ));
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(format!("{} changes, {} addresses, one owner each", CHANGES.len(), situation.expected().len() + 1))
}

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
        Change::Local(local) => {
            let policy = if local { "Local" } else { "Cluster" };
            let patch = json!({"spec": {"externalTrafficPolicy": policy}});
            stage.patch(SERVICE, DEMO, "plain-0", false, patch).await?;
            situation.local = local;
        }
        Change::Edited(edited) => {
            let nodes: &[Host] = if edited { &[Host::Node1] } else { &[Host::Master1, Host::Node2] };
            let names: Vec<&str> = nodes.iter().map(|node| node.name()).collect();
            let selector = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": names});
            let patch = json!({"spec": {"nodeSelectors": [{"matchExpressions": [selector]}]}});
            stage.patch(L2_ADVERTISEMENT, SYSTEM, "chosen", false, patch).await?;
            situation.chosen = nodes.iter().copied().collect();
        }
        Change::BadPool(true) => stage.apply(REVERSED).await?,
        Change::BadPool(false) => stage.remove(&[REVERSED]).await?,
        Change::Cordoned(node) => stage.cordon(node, true).await?,
        Change::Drained(node) => {
            stage.drain(node, DEMO).await?;
            situation.endpoints.remove(&node);
        }
        Change::Restored(node) => {
            restore(stage, node).await?;
            situation.endpoints.insert(node);
        }
        Change::Present(false) => {
            situation.present = false;
            stage.story.command("kubectl -n demo delete service plain-3");
            stage.cluster.delete(SERVICE, DEMO, "plain-3").await?;
        }
        Change::Present(true) => {
            situation.present = true;
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

/// Lifts the cordon of a node, and has one of the application's Pods come there from elsewhere.
async fn restore(stage: &mut Stage<'_>, node: Host) -> Result<()> {
    stage.cordon(node, false).await?;
    let pods = stage.bench.pods(DEMO, "hello").await?;
    let other = pods.iter().find(|pod| !pod.ending && pod.node != Some(node)).context("no Pod elsewhere")?;
    stage.story.command(format!("kubectl -n {DEMO} delete pod --wait=false $pod"));
    stage.cluster.delete(POD, DEMO, &other.name).await?;
    eventually(SOON, async || {
        let pods = stage.bench.pods(DEMO, "hello").await?;
        ensure!(
            pods.iter().any(|pod| pod.ready && !pod.ending && pod.node == Some(node)),
            "no Pod on {node}"
        );
        Ok(())
    })
    .await
}

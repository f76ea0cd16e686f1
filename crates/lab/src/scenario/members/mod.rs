// SPDX-License-Identifier: Apache-2.0
//! The story of the speakers among themselves: they leave and come back, die, stand still, lose their cable, cannot reach each
//! other, and lose the API.
//!
//! The twenty addresses of the story of mixed clusters are asked for every 20 ms from the first step to the last.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::cluster::{POD, eventually};
use super::mixed::{BOUND, DETECTION, Kind, Outcome, Situation, Tally, begin};
use super::stage::{SOON, Stage};
use super::story::{Report, Seen, Show, Story};
use super::watch::{Watch, longest};
use crate::bench_handle::{Bench, Daemon, PodView, SYSTEM};
use crate::host::Host;

mod away;
mod dying;
mod keys;
mod leaving;

/// Plays the story from the first chapter to the last.
pub(super) async fn play(bench: &Bench, api: &str, show: Show) -> Report {
    let story = Story::new("members", api, show);
    let mut stage = Stage::new(bench, story);
    let situation = Situation::of(Kind::Ours);
    if let Some(watch) = begin(&mut stage, &situation).await {
        let scene = Scene { watch, situation };
        leaving::chapter(&mut stage, &scene).await;
        keys::chapter(&mut stage, &scene).await;
        dying::chapter(&mut stage, &scene).await;
        away::chapter(&mut stage, &scene).await;
        stage
            .step("all the while", "the watch missed nothing", async |stage: &mut Stage<'_>| {
                whole(stage, scene.watch)
            })
            .await;
    }
    stage.story.finish()
}

/// What every step works with.
struct Scene {
    watch: Watch,
    /// All speakers are ours, and everybody is well.
    situation: Situation,
}

impl Scene {
    /// Waits until everything is where it is when all are well.
    async fn as_usual(&self, limit: Duration) -> Result<Duration> {
        self.watch.settled(&self.situation.expected(), 10, limit).await
    }

    /// Waits until everything is where it is without a node.
    async fn without(&self, node: Host, limit: Duration) -> Result<Duration> {
        self.watch.settled(&self.away(node).expected(), 10, limit).await
    }

    fn away(&self, node: Host) -> Situation {
        self.situation.without(node)
    }

    /// What was seen from a moment until now, but for rounds that may still be answered.
    fn since(&self, from: Duration) -> Tally {
        self.watch.look(|seen| Tally::of(seen, from, seen.answered_until(), &self.situation))
    }

    /// That from a moment until now no address had two owners, and none was dark for longer than may be.
    fn nothing_happened(&self, from: Duration) -> Result<()> {
        let tally = self.since(from);
        let dark = tally.dark.iter().any(|span| span.is_beyond(BOUND));
        ensure!(tally.ours.is_empty() && !dark, "{}", tally.words(BOUND));
        Ok(())
    }

    /// That between two moments, while a node went or came, nothing happened to what it does not lead, and what it leads moved
    /// once; any number of times where `again`.
    fn undisturbed(&self, from: Duration, to: Duration, node: Host, again: bool) -> Result<()> {
        let away = self.away(node);
        let situations = [&self.situation, &away];
        self.watch.look(|seen| Outcome::of(seen, from, to, &situations, !again).judge())
    }

    /// The longest darkness and the longest contest from a moment until now, in words.
    fn words(&self, from: Duration) -> String {
        let tally = self.since(from);
        format!("dark {}, two owners {}", longest(&tally.dark), longest(&tally.ours))
    }

    /// That nobody but its owner announced anything from a moment until now.
    fn nobody_claimed(&self, from: Duration, by: Host) -> Result<()> {
        let expected = self.situation.expected();
        let all = self.watch.look(|seen| seen.gratuitous(from, self.watch.now()));
        let wrong = all.iter().find(|(mac, address)| {
            *mac == by.mac() && expected.get(address).is_some_and(|owners| !owners.contains(mac))
        });
        ensure!(wrong.is_none(), "{by} announced what it does not lead: {wrong:?}");
        Ok(())
    }
}

/// The speaker's Pod of a node.
async fn speaker(stage: &Stage<'_>, node: Host) -> Result<PodView> {
    let pods = stage.bench.pods(SYSTEM, Daemon::Speaker.name()).await?;
    let own = pods.into_iter().find(|pod| pod.node == Some(node) && !pod.ending);
    own.with_context(|| format!("no speaker on {node}"))
}

/// How one would delete it.
fn delete_command(node: Host) -> String {
    format!(
        "kubectl -n {SYSTEM} delete pod --wait=false -l component=speaker --field-selector spec.nodeName={node}"
    )
}

/// Replaces a node's speaker: its Pod is deleted, and the next is ready.
async fn renew(stage: &mut Stage<'_>, node: Host) -> Result<()> {
    let old = speaker(stage, node).await?;
    stage.story.command(delete_command(node));
    stage.cluster.delete(POD, SYSTEM, &old.name).await?;
    eventually(SOON, async || {
        let now = speaker(stage, node).await?;
        ensure!(now.name != old.name && now.ready, "{} is not replaced", old.name);
        Ok(())
    })
    .await
}

fn whole(stage: &mut Stage<'_>, watch: Watch) -> Seen {
    let end = watch.now();
    let seen = watch.stop()?;
    let begun = Duration::ZERO;
    let owners: BTreeSet<_> = seen.gratuitous(begun, end).into_iter().map(|(mac, _)| mac).collect();
    ensure!(owners.len() <= Host::NODES.len(), "announced by {owners:?}");
    stage.story.measured(format!(
        "{} rounds in {} s, {} moves, {} gratuitous frames",
        seen.rounds(begun, end),
        end.as_secs(),
        seen.moves(begun, end),
        seen.gratuitous(begun, end).len()
    ));
    Ok("asked for every address from the first step to the last".to_owned())
}

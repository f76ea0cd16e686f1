// SPDX-License-Identifier: Apache-2.0
//! X01, a speaker is killed among a hundred addresses, one of ours or one of MetalLB's: its addresses are dark until memberlist is sure,
//! and with their heirs then; nobody else's is disturbed; and it is back when it is back.

use nix::sys::signal::Signal;

use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::super::watch::Watch;
use super::tally::{BOUND, Outcome, Tally};
use super::{Kind, Situation, swap};
use crate::host::Host;

pub(super) async fn step(stage: &mut Stage<'_>, watch: &Watch, situation: &Situation, victim: Host) {
    let kind = situation.kinds.get(&victim).copied().unwrap_or(Kind::Ours);
    stage
        .step(
            &format!("X01: the speaker of {victim}, {}'s, is killed", kind.name()),
            "its addresses go to the heirs of the formula and come back; no other address is disturbed",
            async |stage: &mut Stage<'_>| killed(stage, watch, situation, victim, kind).await,
        )
        .await;
}

async fn killed(
    stage: &mut Stage<'_>,
    watch: &Watch,
    situation: &Situation,
    victim: Host,
    kind: Kind,
) -> Seen {
    let pod = swap::on(stage, victim).await?;
    let without = situation.without(victim);
    let led = situation.owners().values().filter(|owner| **owner == Some(victim)).count();
    stage.story.command(format!("kill -9 $(pidof speaker)   # of {victim}, which is not started again"));
    let held = stage.bench.hold(victim)?;
    let from = watch.now();
    stage.bench.signal(&pod.name, Signal::SIGKILL)?;
    let taken = watch.settled(&without.expected(), 10, super::DETECTION).await?;
    let later = watch.now();
    drop(held);
    let back = watch.settled(&situation.expected(), 10, SOON).await?;
    let (dead, came, outcomes) = watch.look(|seen| {
        let mut outcomes = Outcome::of(seen, from, taken, &[situation, &without], true);
        // MetalLB's speaker believes itself alone when it comes.
        outcomes.add(Outcome::of(seen, later, back, &[&without, situation], kind == Kind::Ours));
        (Tally::of(seen, from, taken, &without), Tally::of(seen, later, back, situation), outcomes)
    });
    stage.story.measured(format!(
        "with the heirs after {} ms, back {} ms after its start was allowed; {}\n      dead: {}\n      coming back: {}",
        taken.saturating_sub(from).as_millis(),
        back.saturating_sub(later).as_millis(),
        outcomes.words(),
        dead.words(BOUND),
        came.words(BOUND)
    ));
    outcomes.judge()?;
    if kind == Kind::Ours {
        came.judge(BOUND)?;
    }
    Ok(format!("{led} addresses to their heirs, and back to {victim}"))
}

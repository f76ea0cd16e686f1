// SPDX-License-Identifier: Apache-2.0
//! Fifth chapter: what speakers say of the configuration, each of what concerns it; and that one object nobody can read harms nothing
//! else.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::super::cluster::{CONFIGURATION_STATE, eventually, text};
use super::super::l2::EXCLUDE;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::{SHOP, SYSTEM, Segment, as_by_formula, manifest, owned_by};
use crate::host::Host;

const ALIAS: Example = manifest!("community-alias.yaml");
const COMMUNITY: Example = manifest!("community.yaml");
const PROFILE: Example = manifest!("bfd-profile.yaml");
const PEER: Example = manifest!("peer.yaml");
const UNREADABLE: Example = manifest!("unreadable.yaml");
const MEANWHILE: Example = manifest!("meanwhile.yaml");

/// The address of `demo/meanwhile`.
const NEW: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 168, 10, 206);

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("What speakers say of the configuration");
    stage
        .step(
            "C05: an alias that nothing defines",
            "every speaker says so until the Community is there",
            alias,
        )
        .await;
    stage
        .step("C03: a BFDProfile, without FRR", "every speaker is Invalid, the controller Valid", profile)
        .await;
    stage
        .step(
            "C10: a peer of one node, with a Secret that does not exist",
            "that node's speaker alone says so",
            peer,
        )
        .await;
    stage
        .step("C09, C11: the objects are deleted", "they come back as they were, Invalid and Valid", deleted)
        .await;
    stage
        .step(
            "an advertisement that nobody can read, written past the webhooks",
            "reported by every speaker; Services come, nodes go, all the others follow",
            unreadable,
        )
        .await;
}

/// What a speaker's ConfigurationState is to say.
#[derive(Clone, Copy, Debug)]
enum Says {
    Valid,
    /// Invalid, with this summary.
    Exactly(&'static str),
    /// Anything but something about this.
    NothingOf(&'static str),
}

/// Waits until the speakers' states are as wanted, node by node, and the controller's is Valid.
async fn says(stage: &Stage<'_>, of: impl Fn(Host) -> Says) -> Result<()> {
    eventually(SOON, async || {
        let controller = (String::from("controller"), Says::Valid);
        let speakers = Host::NODES.map(|node| (format!("speaker-{node}"), of(node)));
        for (name, expected) in std::iter::once(controller).chain(speakers) {
            let state = stage.cluster.read(CONFIGURATION_STATE, SYSTEM, &name).await?;
            let result = text(&state, "/status/result");
            let summary = text(&state, "/status/errorSummary");
            let good = match expected {
                Says::Valid => result == "Valid" && summary.is_empty(),
                Says::Exactly(text) => result == "Invalid" && summary == text,
                Says::NothingOf(text) => !result.is_empty() && !summary.contains(text),
            };
            ensure!(good, "{name} is {result:?}: {summary:?}, expected {expected:?}");
        }
        Ok(())
    })
    .await
}

async fn alias(stage: &mut Stage<'_>) -> Seen {
    const WHY: &str = "configuration error: invalid community format: nowhere\ninvalid community \"nowhere\" in BGP advertisement";
    stage.apply(ALIAS).await?;
    says(stage, |_| Says::Exactly(WHY)).await?;
    stage.apply(COMMUNITY).await?;
    says(stage, |_| Says::NothingOf("nowhere")).await?;
    stage.remove(&[COMMUNITY]).await?;
    says(stage, |_| Says::Exactly(WHY)).await?;
    stage.remove(&[ALIAS]).await?;
    says(stage, |_| Says::Valid).await?;
    Ok(format!("{WHY}; nothing of it with the Community, again without"))
}

/// What MetalLB says of any BFDProfile where there is no FRR.
const NO_FRR: &str = "configuration error: bfd profiles section set";

async fn profile(stage: &mut Stage<'_>) -> Seen {
    stage.apply(PROFILE).await?;
    says(stage, |_| Says::Exactly(NO_FRR)).await?;
    stage.remove(&[PROFILE]).await?;
    says(stage, |_| Says::Valid).await?;
    Ok(NO_FRR.to_owned())
}

async fn peer(stage: &mut Stage<'_>) -> Seen {
    const WHY: &str = "configuration error: parsing peer tor secret ref not found for peer config \
                       \"metallb-system\"/\"tor\"\nfailed to parse peer tor password secret";
    stage.apply(PEER).await?;
    says(stage, |node| if node == Host::Node1 { Says::Exactly(WHY) } else { Says::Valid }).await?;
    stage.remove(&[PEER]).await?;
    says(stage, |_| Says::Valid).await?;
    Ok(format!("speaker-k8s-node-1 alone: {WHY}"))
}

async fn deleted(stage: &mut Stage<'_>) -> Seen {
    stage.apply(PROFILE).await?;
    says(stage, |_| Says::Exactly(NO_FRR)).await?;
    let before = uids(stage).await?;
    stage.story.command(format!("kubectl -n {SYSTEM} delete configurationstates --all"));
    for name in before.iter().map(|(name, _)| name) {
        stage.cluster.delete(CONFIGURATION_STATE, SYSTEM, name).await?;
    }
    says(stage, |_| Says::Exactly(NO_FRR)).await?;
    stage.remove(&[PROFILE]).await?;
    says(stage, |_| Says::Valid).await?;
    let name = format!("speaker-{}", Host::Node2);
    stage.story.command(format!("kubectl -n {SYSTEM} delete configurationstate {name}"));
    stage.cluster.delete(CONFIGURATION_STATE, SYSTEM, &name).await?;
    says(stage, |_| Says::Valid).await?;
    let after = uids(stage).await?;
    ensure!(after.len() == 4 && after.iter().all(|uid| !before.contains(uid)), "{before:?}, then {after:?}");
    Ok("all four recreated, still Invalid; then Valid; one recreated, Valid".to_owned())
}

async fn uids(stage: &Stage<'_>) -> Result<Vec<(String, String)>> {
    let states = stage.cluster.list(CONFIGURATION_STATE, SYSTEM).await?;
    let uid =
        |state: &Value| (text(state, "/metadata/name").to_owned(), text(state, "/metadata/uid").to_owned());
    Ok(states.iter().map(uid).collect())
}

async fn unreadable(stage: &mut Stage<'_>) -> Seen {
    stage.apply(UNREADABLE).await?;
    let reported = eventually(SOON, async || {
        let mut told = Vec::new();
        for node in Host::NODES {
            let name = format!("speaker-{node}");
            let state = stage.cluster.read(CONFIGURATION_STATE, SYSTEM, &name).await?;
            let summary = text(&state, "/status/errorSummary").to_owned();
            ensure!(
                text(&state, "/status/result") == "Invalid" && summary.contains("Near"),
                "{name}: {summary:?}"
            );
            told.push(summary);
        }
        told.dedup();
        Ok(told.join("; "))
    })
    .await?;
    as_by_formula(stage).await?;
    stage.apply(MEANWHILE).await?;
    let owner = super::leader(NEW, &super::WORKERS);
    owned_by(stage, Segment::First, NEW, &owner.into_iter().collect::<Vec<_>>()).await?;
    stage.label_node(Host::Node1, EXCLUDE, Some("")).await?;
    owned_by(stage, Segment::First, SHOP, &[Host::Node2]).await?;
    stage.label_node(Host::Node1, EXCLUDE, None).await?;
    owned_by(stage, Segment::First, SHOP, &[Host::Node1]).await?;
    stage.remove(&[UNREADABLE, MEANWHILE]).await?;
    says(stage, |_| Says::Valid).await?;
    Ok(format!("{reported}; meanwhile demo/meanwhile gets {NEW}, and {SHOP} moves and comes back"))
}

// SPDX-License-Identifier: Apache-2.0
//! What changes while sessions are up: a password, and how many prefixes a router is told.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::super::cluster::{eventually, text, throughout};
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::features::{self, Cell, Feature};
use super::makes::{Case, Make};
use super::{Ground, OWN, distance, is_up, manifest, session};
use crate::host::Host;

const SECRET_CHANGED: Example = manifest!("secret-changed.yaml");
const MORE: Example = manifest!("more.yaml");

/// The other password.
const ANOTHER: &str = "another";

/// Longer than the hold time of the sessions with a password.
const LONGER_THAN_HOLD: Duration = Duration::from_secs(10);

/// Makes the change that a row is about.
pub(super) async fn prepare(stage: &mut Stage<'_>, ground: &Ground, feature: Feature) -> Result<()> {
    match feature {
        Feature::PasswordChanged => change_password(stage, ground).await,
        Feature::Limit => too_many(stage, ground).await,
        Feature::MultihopFrr => distance::prepare(stage).await,
        _ => Ok(()),
    }
}

async fn change_password(stage: &mut Stage<'_>, ground: &Ground) -> Result<()> {
    let routers = || {
        let has = |make: &&Make| Feature::PasswordChanged.is_of(**make);
        ground.makes.iter().filter(has).map(|make| ground.router(*make, Case::Password))
    };
    for router in routers() {
        router?.change_password(ANOTHER).await?;
    }
    // Each has ended its session, and takes no other with the password that the node has.
    for router in routers() {
        let router = router?;
        eventually(SOON, async || {
            let route = router.route(Host::Node1, features::prefix(Feature::PasswordChanged)).await?;
            ensure!(route.is_none(), "{} goes on as if nothing had happened", router.make.name());
            Ok(())
        })
        .await?;
    }
    ground.listener.change_password(ANOTHER);
    stage.apply(SECRET_CHANGED).await
}

/// Waits until a router has the route again.
pub(super) async fn password(ground: &Ground, make: Make) -> Result<Cell> {
    features::route(ground, Feature::PasswordChanged, make).await?;
    Ok(Cell::Yes)
}

/// Sees that the session with the peer of our own, both of whose ends have changed the password by now, is the first one still,
/// for longer than either would wait for a sign of life.
pub(super) async fn same_session(stage: &Stage<'_>, ground: &Ground) -> Seen {
    let before = session(stage, OWN).await?;
    is_up(&before)?;
    let (since, keepalives) = (text(&before, "/status/since"), ground.listener.heard().keepalives);
    throughout(LONGER_THAN_HOLD, async || {
        let now = session(stage, OWN).await?;
        is_up(&now)?;
        ensure!(text(&now, "/status/since") == since, "{since}: {}", now["status"]);
        ensure!(now.pointer("/status/drops").is_none_or(|drops| drops == 0), "{}", now["status"]);
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok(())
    })
    .await?;
    let heard = ground.listener.heard();
    ensure!(heard.sessions == 1 && heard.announced > 0, "{heard:?}");
    ensure!(heard.keepalives >= keepalives + 2, "{keepalives} KEEPALIVEs, and then {heard:?}");
    Ok("one session, since the beginning, beyond the hold time".to_owned())
}

async fn too_many(stage: &mut Stage<'_>, ground: &Ground) -> Result<()> {
    let (mark, began) = (ground.wire.dialled().len(), Instant::now());
    stage.apply(MORE).await?;
    let limited = || ground.makes.iter().filter(|make| Feature::Limit.is_of(**make));
    for make in limited() {
        eventually(SOON, async || {
            let session = session(stage, &Case::Limit.peer(*make)).await?;
            let reason = text(&session, "/status/lastFailure/reason");
            let told = REACHED.iter().all(|part| reason.contains(part));
            ensure!(told, "the last failure with {} is {reason:?}", make.name());
            Ok(())
        })
        .await?;
    }
    // It asks to be let in now and then, not all the time.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (dialled, most) = (ground.wire.dialled(), began.elapsed().as_secs() + 1);
    for make in limited() {
        let to = Case::Limit.address(*make);
        let attempts = dialled.iter().skip(mark).filter(|(_, dialled)| dialled.ip() == to).count();
        let attempts = u64::try_from(attempts)?;
        ensure!((1..=most).contains(&attempts), "{attempts} attempts at {} in {most} s", make.name());
    }
    stage.remove(&[MORE]).await
}

/// What a node makes of NOTIFICATION 6/1; some routers say in between how many they take.
const REACHED: [&str; 2] =
    ["Maximum Number of Prefixes Reached (6/1)", "more prefixes came than the sender is configured to take"];

/// Waits until a router that has been told less has its session and the route again.
pub(super) async fn limit(stage: &Stage<'_>, ground: &Ground, make: Make) -> Result<Cell> {
    let router = ground.router(make, Case::Limit)?;
    router.let_in_again().await.context("let it in again")?;
    features::route(ground, Feature::Limit, make).await?;
    eventually(SOON, async || is_up(&session(stage, &Case::Limit.peer(make)).await?)).await?;
    Ok(Cell::Yes)
}

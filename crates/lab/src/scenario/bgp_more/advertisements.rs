// SPDX-License-Identifier: Apache-2.0
//! Several advertisements of the same addresses, and changes of them.

use serde_json::json;

use super::super::stage::{Example, Stage};
use super::super::story::Seen;
use super::{Ground, SHOP, WORKERS, advertise, manifest, says, statuses};

pub(super) const ANOTHER: Example = manifest!("another.yaml");

pub(super) async fn chapter(stage: &mut Stage<'_>, ground: &Ground) {
    stage.story.chapter("Advertisements");
    stage
        .step(
            "two of one prefix",
            "the route has the communities of both, without a withdrawal",
            async |stage: &mut Stage<'_>| united(stage, ground).await,
        )
        .await;
    stage
        .step(
            "one to each router",
            "each hears what is for it alone; a third peer that nobody knows changes nothing",
            async |stage: &mut Stage<'_>| each_its_own(stage, ground).await,
        )
        .await;
}

async fn united(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    let mark = ground.wire.mark();
    advertise(stage, "wide", json!({"communities": ["64512:1"]})).await?;
    says(&ground.router, SHOP, &["64512:1"]).await?;
    stage.apply(ANOTHER).await?;
    for router in [&ground.router, &ground.inner] {
        says(router, SHOP, &["64512:1", "64512:2"]).await?;
    }
    advertise(stage, "another", json!({"communities": ["64512:3"]})).await?;
    for router in [&ground.router, &ground.inner] {
        says(router, SHOP, &["64512:1", "64512:3"]).await?;
    }
    ground.nothing_withdrawn(mark)?;
    Ok("64512:1, then 64512:1 64512:2, then 64512:1 64512:3; nothing withdrawn".to_owned())
}

async fn each_its_own(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    advertise(stage, "wide", json!({"peers": ["router", "nobody"]})).await?;
    advertise(stage, "another", json!({"peers": ["inner"]})).await?;
    says(&ground.router, SHOP, &["64512:1"]).await?;
    says(&ground.inner, SHOP, &["64512:3"]).await?;
    statuses(stage, "shop", &WORKERS, &["inner", "router"]).await?;
    stage.remove(&[ANOTHER]).await?;
    ground.outer(SHOP, &WORKERS).await?;
    super::told(&ground.inner, SHOP, &[]).await?;
    statuses(stage, "shop", &WORKERS, &["router"]).await?;
    advertise(stage, "wide", json!({"peers": null, "communities": null})).await?;
    ground.both(SHOP, &WORKERS).await?;
    statuses(stage, "shop", &WORKERS, &["inner", "router"]).await?;
    Ok("64512:1 at one router, 64512:3 at the other; peers [router] without the second advertisement"
        .to_owned())
}

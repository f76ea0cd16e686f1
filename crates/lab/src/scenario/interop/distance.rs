// SPDX-License-Identifier: Apache-2.0
//! Routers that are two hops away, in type frr: there `ebgpMultiHop` says whether they are reached.

use anyhow::{Result, ensure};

use super::super::bgp::type_frr;
use super::super::cluster::{eventually, text};
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::features::{self, Feature};
use super::makes::Case;
use super::{Ground, PEERS, manifest, session};
use crate::host::Host;

pub(super) const DIRECT: Example = manifest!("direct.yaml");
pub(super) const MULTIHOP: Example = manifest!("multihop.yaml");

/// Sees that none is reached whose peer does not say that it is so far away.
pub(super) async fn too_far(stage: &mut Stage<'_>, ground: &Ground) -> Seen {
    // Their systems differ, which this type does not have on one node.
    stage.remove(&[PEERS]).await?;
    type_frr(stage).await?;
    stage.apply(DIRECT).await?;
    for make in &ground.makes {
        let peer = Case::Multihop.peer(*make);
        eventually(SOON * 2, async || {
            let session = session(stage, &peer).await?;
            let (state, reason) =
                (text(&session, "/status/state"), text(&session, "/status/lastFailure/reason"));
            ensure!(state != "Established", "the session with {peer} is up");
            ensure!(reason.starts_with("cannot connect"), "the last failure with {peer} is {reason:?}");
            Ok(())
        })
        .await?;
        let route =
            ground.router(*make, Case::Multihop)?.route(Host::Node1, features::prefix(Feature::Multihop));
        ensure!(route.await?.is_none(), "{} has the route", make.name());
    }
    Ok("none is reached, and the BGPSession says so".to_owned())
}

/// Has the peers say how far away they are.
pub(super) async fn prepare(stage: &mut Stage<'_>) -> Result<()> {
    stage.apply(MULTIHOP).await
}

// SPDX-License-Identifier: Apache-2.0
//! The beginning: pools, an application, twenty addresses, and all three nodes take part.

use std::time::Duration;

use super::super::l2::{EXCLUDE, HELLO};
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::super::watch::Watch;
use super::{ODD, Situation, addresses, manifest};
use crate::host::Host;

const POOLS: Example = manifest!("pools.yaml");
pub(super) const SERVICES: Example = manifest!("services.yaml");

/// Gives the watch that lasts as long as the story; `None` when it cannot go on.
pub(in crate::scenario) async fn chapter(stage: &mut Stage<'_>, situation: &Situation) -> Option<Watch> {
    stage.story.chapter(&situation.words());
    let mut watch = None;
    stage
        .step(
            "twenty addresses",
            "each is answered by the node of the formula, the one without an endpoint by nobody",
            async |stage: &mut Stage<'_>| -> Seen {
                stage.label_node(Host::Master1, EXCLUDE, None).await?;
                stage.apply(HELLO).await?;
                stage.apply(POOLS).await?;
                stage.apply(SERVICES).await?;
                let all: Vec<_> = addresses().into_iter().map(|(address, _)| address).chain([ODD]).collect();
                let begun = Watch::start(stage.namespace(Host::Client), Host::Client.interface(), &all)?;
                begun.settled(&situation.expected(), 10, SOON * 2).await?;
                let leads = Host::NODES.map(|node| {
                    let expected = situation.expected();
                    let count = expected.values().filter(|owners| owners.contains(&node.mac())).count();
                    format!("{node} {count}")
                });
                let doubled = begun.contested(Duration::ZERO);
                stage.story.measured(format!("two owners while they came: {doubled}"));
                watch = Some(begun);
                Ok(format!("19 addresses as the formula says: {}; one in dispute", leads.join(", ")))
            },
        )
        .await;
    watch
}

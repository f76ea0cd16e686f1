// SPDX-License-Identifier: Apache-2.0
//! The beginning: pools, an application, twenty addresses, eighty more where the story wants them, and all three nodes take part.

use std::time::Duration;

use super::super::l2::{EXCLUDE, HELLO};
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::super::watch::Watch;
use super::{DUAL, ODD, Situation, manifest};
use crate::host::Host;

const POOLS: Example = manifest!("pools.yaml");
pub(super) const SERVICES: Example = manifest!("services.yaml");
const CROWD: Example = manifest!("crowd.yaml");

/// Gives the watch that lasts as long as the story; `None` when it cannot go on.
pub(in crate::scenario) async fn chapter(stage: &mut Stage<'_>, situation: &Situation) -> Option<Watch> {
    stage.story.chapter(&situation.words());
    let mut watch = None;
    let (name, number) =
        if situation.crowded { ("a hundred addresses", 99) } else { ("twenty addresses", 19) };
    stage
        .step(
            &format!("{name}, and three of IPv6"),
            "each is answered by the node of the formula, the one without an endpoint by nobody",
            async |stage: &mut Stage<'_>| -> Seen {
                stage.label_node(Host::Master1, EXCLUDE, None).await?;
                stage.apply(HELLO).await?;
                stage.apply(POOLS).await?;
                stage.apply(SERVICES).await?;
                if situation.crowded {
                    stage.apply(CROWD).await?;
                }
                let all = situation.addresses().into_iter().map(|(address, _)| address).chain([ODD]);
                let begun = Watch::start(
                    stage.namespace(Host::Client),
                    Host::Client.interface(),
                    &all.collect::<Vec<_>>(),
                    Host::Client.address6(),
                    &DUAL.map(|(_, six)| six),
                )?;
                begun.settled(&situation.expected(), 10, SOON * 2).await?;
                let leads = Host::NODES.map(|node| {
                    let owners = situation.owners();
                    format!("{node} {}", owners.values().filter(|owner| **owner == Some(node)).count())
                });
                let doubled = begun.contested(Duration::ZERO);
                stage.story.measured(format!("two owners while they came: {doubled}"));
                watch = Some(begun);
                Ok(format!(
                    "{number} addresses and 3 of IPv6 as the formula says: {}; one in dispute",
                    leads.join(", ")
                ))
            },
        )
        .await;
    watch
}

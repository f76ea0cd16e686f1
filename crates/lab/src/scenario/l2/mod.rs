// SPDX-License-Identifier: Apache-2.0
//! The layer-2 story: a Service gets an address, and the network finds it.
//!
//! One file per chapter, one function per step. Steps build on each other in order; each leaves the bench as it
//! found it, but for what the next ones need.

use std::net::Ipv4Addr;

use anyhow::Result;
use ferrolb_announce::digest;
use ferrolb_net_types::NodeName;

use super::stage::Stage;
use super::story::{Report, Show, Story};
use crate::bench_handle::{Bench, DEMO, SYSTEM};
use crate::host::Host;

mod address;
mod configuration;
mod farewell;
mod ground;
mod mishaps;
mod moves;
mod policy;
mod requests;
mod segment;

// What other stories use as well.
pub(super) use configuration::{ADVERTISEMENT, HELLO, HELLO_LB, POOL, definitions};
pub(super) use mishaps::{OVERLAPPING, REVERSED};
pub(super) use requests::{FOREIGN, SHARED};

/// The address that `demo/hello-lb` gets: the first of the pool.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 200);

/// The label that keeps a node out of the election.
pub(super) const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Plays the story from the first chapter to the last.
pub(super) async fn play(bench: &Bench, api: &str, show: Show) -> Report {
    let story = Story::new("l2", api, show);
    let mut stage = Stage::new(bench, story);
    ground::chapter(&mut stage).await;
    // Without configuration, application and address there is nothing to look at.
    if configuration::chapter(&mut stage).await && address::chapter(&mut stage).await {
        segment::chapter(&mut stage).await;
        moves::chapter(&mut stage).await;
        policy::chapter(&mut stage).await;
        requests::chapter(&mut stage).await;
        mishaps::chapter(&mut stage).await;
        farewell::chapter(&mut stage).await;
    }
    stage.story.finish()
}

/// Plays its beginning alone: a Service gets an address and is answered for.
pub(super) async fn begin(bench: &Bench, api: &str, show: Show) -> Report {
    let mut stage = Stage::new(bench, Story::new("hello", api, show));
    if configuration::chapter(&mut stage).await {
        address::chapter(&mut stage).await;
    }
    stage.story.finish()
}

/// What measurements need: one Service with an address that a node announces.
pub(super) async fn announce_one_service(bench: &Bench) -> Result<Ipv4Addr> {
    for example in [POOL, ADVERTISEMENT, HELLO, HELLO_LB] {
        bench.apply(example.yaml).await?;
    }
    bench.progress().step("waiting until the Service is announced");
    let stage = Stage::new(bench, Story::new("", "", Show::Json));
    segment::owner_is(&stage, ADDRESS, Host::Node1).await?;
    Ok(ADDRESS)
}

/// The node that announces an address when these are the candidates: the formula that every speaker computes.
pub(super) fn leader(address: Ipv4Addr, candidates: &[Host]) -> Option<Host> {
    candidates.iter().copied().min_by_key(|host| digest(&NodeName::from(host.name()), address.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_chooses_as_the_story_tells() {
        assert_eq!(leader(ADDRESS, &[Host::Node1, Host::Node2]), Some(Host::Node1));
        assert_eq!(leader(ADDRESS, &Host::NODES), Some(Host::Master1));
        for last in moves::LED_BY_THE_MASTER {
            assert_eq!(
                leader(Ipv4Addr::new(192, 168, 10, last), &Host::NODES),
                Some(Host::Master1),
                "{last}"
            );
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The story of two controllers, by ferrolb's own manifests: one decides, the other stands by, and what the first has
//! begun cannot harm what the second does.

use super::l2;
use super::stage::Stage;
use super::story::{Report, Show, Story};
use crate::bench_handle::{Bench, DEMO, SYSTEM};

mod leader;
mod two;

/// Plays the story from the first chapter to the last.
pub(super) async fn play(bench: &Bench, api: &str, show: Show) -> Report {
    let story = Story::new("replicas", api, show);
    let mut stage = Stage::new(bench, story);
    // Without leader, configuration and a Service there is nothing that another could take over.
    if two::chapter(&mut stage).await {
        leader::chapter(&mut stage).await;
    }
    stage.story.finish()
}

/// The manifest of this name in `docs/replicas`.
macro_rules! manifest {
    ($name:literal) => {
        $crate::scenario::stage::Example {
            file: concat!("docs/replicas/", $name),
            yaml: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/replicas/", $name)),
        }
    };
}
use manifest;

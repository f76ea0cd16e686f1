// SPDX-License-Identifier: Apache-2.0
//! The controller's story: what it admits, what it gives out, and what it survives.
//!
//! One file per chapter. Webhooks are asked by the API server itself, through the Service's cluster IP, and what is
//! refused is refused to `kubectl`.

use super::stage::Stage;
use super::story::{Report, Show, Story};
use crate::bench_handle::{Bench, DEMO, SYSTEM};

mod addresses;
mod admission;
mod certificates;
mod installation;
mod survival;

/// What other stories use as well.
pub(super) use installation::trusted_webhooks;

/// Plays the story from the first chapter to the last.
pub(super) async fn play(bench: &Bench, api: &str, show: Show) -> Report {
    let story = Story::new("controller", api, show);
    let mut stage = Stage::new(bench, story);
    // Without definitions and a trusted webhook no configuration gets in.
    if installation::chapter(&mut stage).await && admission::chapter(&mut stage).await {
        certificates::chapter(&mut stage).await;
        addresses::chapter(&mut stage).await;
        survival::chapter(&mut stage).await;
    }
    stage.story.finish()
}

/// The manifest of this name in `docs/controller`.
macro_rules! manifest {
    ($name:literal) => {
        $crate::scenario::stage::Example {
            file: concat!("docs/controller/", $name),
            yaml: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/controller/", $name)),
        }
    };
}
use manifest;

// SPDX-License-Identifier: Apache-2.0
//! Stories: what a person would try on a cluster, played on the bench with the tools a person would use.
//!
//! ```text
//!  play ─► l2, controller (chapters of steps) ─► stage: kubectl, tools on hosts, what is expected when
//!                                                  ├── cluster   objects and events, read from the API
//!                                                  ├── wire      frames heard and requests sent on a host
//!                                                  └── story     the record: report, transcript, picture
//! ```

use std::net::Ipv4Addr;

use anyhow::{Result, bail};

use crate::bench_handle::Bench;

mod announcing;
mod bgp;
mod bgp_more;
mod cli;
mod cluster;
mod controller;
mod conversation;
mod faults;
mod install;
mod interop;
mod l2;
pub mod matrix;
mod members;
mod mixed;
mod ndp;
pub mod picture;
mod recorded;
mod replicas;
mod routing;
mod segments;
mod stage;
pub mod story;
mod table;
mod watch;
mod wire;

pub use cli::{RunArgs, run};
pub use story::{Report, Show, Step};

/// The names of all stories.
pub const STORIES: [&str; 11] = [
    "hello",
    "l2",
    "bgp",
    "bgp-more",
    "interop",
    "announcing",
    "members",
    "mixed",
    "controller",
    "replicas",
    "install",
];

/// Plays a story on a bench that is up, and reports what was seen. `api` is what the report calls the API server.
///
/// The bench has to be as [`crate::Options`] makes it with daemons and without definitions; for `replicas` with
/// [`crate::Manifests::Ferrolb`], for `bgp`, `bgp-more` and `interop` with definitions, the latter two
/// with [`crate::Manifests::Ferrolb`] as well, for `mixed` with definitions and [`crate::Manifests::Strangers`], for `install` without daemons and with [`crate::Manifests::None`].
/// A step that is not as expected makes the report say so; it is no error.
///
/// # Errors
/// There is no story of this name.
pub async fn play(name: &str, bench: &Bench, api: &str, show: Show) -> Result<Report> {
    match name {
        "hello" => Ok(l2::begin(bench, api, show).await),
        "l2" => Ok(l2::play(bench, api, show).await),
        "bgp" => Ok(bgp::play(bench, api, show).await),
        "bgp-more" => Ok(bgp_more::play(bench, api, show).await),
        "interop" => Ok(interop::play(bench, api, show).await),
        "controller" => Ok(controller::play(bench, api, show).await),
        "replicas" => Ok(replicas::play(bench, api, show).await),
        "install" => Ok(install::play(bench, api, show).await),
        "announcing" => Ok(announcing::play(bench, api, show).await),
        "members" => Ok(members::play(bench, api, show).await),
        "mixed" => Ok(mixed::play(bench, api, show).await),
        _ => bail!("there is no story {name:?}; there are: {}", STORIES.join(", ")),
    }
}

/// Brings the bench to the state that measurements start from: the story's pool, advertisement, application and Service.
/// Gives the Service's address, once it is announced.
pub(crate) async fn announce_one_service(bench: &Bench) -> Result<Ipv4Addr> {
    l2::announce_one_service(bench).await
}

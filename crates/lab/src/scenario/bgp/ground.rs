// SPDX-License-Identifier: Apache-2.0
//! First chapter: a router that waits, and nodes whose port 179 is taken.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::super::cluster::eventually;
use super::super::conversation::Conversation;
use super::super::routing;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::Ground;
use crate::host::Host;
use crate::launch::quoted;
use crate::routers::{Bird, Frr};

const CONFIG: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bgp/frr.conf"));

/// What the later chapters stand on; `None` if it is not there.
pub(super) async fn chapter(stage: &mut Stage<'_>) -> Option<Ground> {
    stage.story.chapter("A router, and BIRD on every node");
    let mut router = None;
    stage
        .step(
            "a passive router",
            "FRR waits for three neighbours: Active, no prefix",
            async |stage: &mut Stage<'_>| {
                let (frr, wire) = started(stage).await?;
                let frr = router.insert((frr, wire));
                waits(stage, &frr.0).await
            },
        )
        .await;
    let (mut birds, mut sessions) = (Vec::new(), BTreeMap::new());
    let meshed = stage
        .step(
            "BIRD on the nodes",
            "it listens on port 179 of every node and has a session with both others",
            async |stage: &mut Stage<'_>| {
                birds = mesh(stage).await?;
                sessions = meshed(stage, &birds).await?;
                Ok("BIRD listens on port 179 of every node; its three sessions are up".to_owned())
            },
        )
        .await;
    let (router, wire) = router?;
    meshed.then_some(Ground { router, birds, meshed: sessions, wire })
}

async fn started(stage: &Stage<'_>) -> Result<(Frr, Conversation)> {
    let wire = Conversation::start(stage.namespace(Host::Router), Host::Router.interface())?;
    Ok((Frr::start(stage.bench, Host::Router, CONFIG, true).await?, wire))
}

async fn waits(stage: &mut Stage<'_>, router: &Frr) -> Seen {
    let words: Vec<String> = router.words(&[routing::SUMMARY]).iter().map(|word| quoted(word)).collect();
    stage.story.command(format!("ferrolb lab exec router -- {}", words.join(" ")));
    let expected = Host::NODES.map(|node| (node, "Active", 0));
    routing::settled(router, &expected).await?;
    Ok("AS 64513, passive; 192.168.10.17, .20 and .21: Active, no prefix".to_owned())
}

/// BIRD's configuration on a node, as Calico's mesh has it: the node's own block for every other node.
fn config(node: Host) -> String {
    let own = node.address();
    let mut text = format!("log stderr all;\nrouter id {own};\nprotocol device {{ }}\n");
    if let Some(network) = node.pod_network() {
        let _ = writeln!(text, "protocol static blocks {{ ipv4; route 172.20.{network}.0/24 unreachable; }}");
    }
    for other in Host::NODES.into_iter().filter(|other| *other != node) {
        let _ = write!(
            text,
            "protocol bgp {} {{\n  local {own} as 64512;\n  neighbor {} as 64512;\n  connect delay time 0; connect retry \
             time 1; error wait time 1, 2;\n  ipv4 {{ import all; export where source = RTS_STATIC; }};\n}}\n",
            session(other),
            other.address()
        );
    }
    text
}

/// What BIRD calls the session with a node.
fn session(node: Host) -> String {
    format!("mesh_{}", node.name().replace('-', "_"))
}

async fn mesh(stage: &Stage<'_>) -> Result<Vec<Bird>> {
    let mut birds = Vec::new();
    for node in Host::NODES {
        birds.push(Bird::start(stage.bench, node, &config(node)).await?);
    }
    Ok(birds)
}

/// Waits until every BIRD has a session with both others: its sessions.
async fn meshed(stage: &mut Stage<'_>, birds: &[Bird]) -> Result<BTreeMap<Host, BTreeMap<String, Duration>>> {
    let mut sessions = BTreeMap::new();
    for bird in birds {
        let words: Vec<String> = bird.words("show protocols").iter().map(|word| quoted(word)).collect();
        stage.story.command(format!("ferrolb lab exec {} -- {}", bird.host(), words.join(" ")));
        let up = eventually(SOON * 2, async || {
            let up = established(bird).await?;
            ensure!(up.len() == 2, "BIRD on {} has sessions {:?}", bird.host(), up.keys());
            Ok(up)
        })
        .await?;
        sessions.insert(bird.host(), up);
    }
    Ok(sessions)
}

/// BIRD's sessions that are up, each with the time of day since when it is.
pub(in super::super) async fn established(bird: &Bird) -> Result<BTreeMap<String, Duration>> {
    let said = bird.ask("show protocols").await?;
    let mut up = BTreeMap::new();
    for line in said.lines() {
        // Name, protocol, table, state, since, and the session's state.
        if let [name, "BGP", _, "up", since, "Established"] = line.split_whitespace().collect::<Vec<_>>()[..]
        {
            up.insert(name.to_owned(), time_of_day(since).with_context(|| line.to_owned())?);
        }
    }
    Ok(up)
}

/// `12:50:26.913`.
fn time_of_day(text: &str) -> Option<Duration> {
    let mut parts = text.splitn(3, ':');
    let (hours, minutes) = (parts.next()?.parse::<u64>().ok()?, parts.next()?.parse::<u64>().ok()?);
    let seconds = parts.next()?.parse::<f64>().ok()?;
    Some(Duration::from_secs(hours * 3600 + minutes * 60) + Duration::try_from_secs_f64(seconds).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_since_midnight() {
        assert_eq!(time_of_day("01:02:03.500"), Some(Duration::from_millis(3_723_500)));
        assert_eq!(time_of_day("2026-11-30"), None);
    }
}

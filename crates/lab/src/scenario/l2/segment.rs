// SPDX-License-Identifier: Apache-2.0
//! Fourth chapter: the address as the network sees it. ARP, silence, and traffic to the Pods.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::super::cluster::eventually;
use super::super::stage::{SOON, Stage, told};
use super::super::story::Seen;
use super::super::wire::{self, Operation};
use super::{ADDRESS, leader};
use crate::host::Host;

/// An address of the pool that nobody has asked for yet.
const UNASSIGNED: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 219);

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("The address, on the network");
    stage
        .step(
            "who has 192.168.10.200",
            "exactly one node answers, k8s-node-1, with the hardware address of its ens18, in frames of 60 bytes",
            answered_by_one,
        )
        .await;
    stage.step("an address not assigned", "silence", unassigned_is_silent).await;
    stage.step("no owner", "the address is on no interface of any host or Pod", on_no_interface).await;
    stage
        .step("TCP from the client", "all three Pods answer", async |stage: &mut Stage<'_>| {
            every_pod_answers(stage, Host::Client).await
        })
        .await;
    stage
        .step("UDP from the client", "a Pod answers", async |stage: &mut Stage<'_>| {
            echo_answers(stage, Host::Client).await
        })
        .await;
    stage
        .step(
            "TCP from outside",
            "all three Pods answer, through the router",
            async |stage: &mut Stage<'_>| every_pod_answers(stage, Host::Outside).await,
        )
        .await;
    stage
        .step("UDP from outside", "a Pod answers, through the router", async |stage: &mut Stage<'_>| {
            echo_answers(stage, Host::Outside).await
        })
        .await;
    stage.step("a port of no Service", "nothing comes back within 2 s", strange_port).await;
}

async fn answered_by_one(stage: &mut Stage<'_>) -> Seen {
    let leader = leader(ADDRESS, &[Host::Node1, Host::Node2]).context("no candidate")?;
    owner_is(stage, ADDRESS, leader).await?;
    let capture = wire::Capture::start(stage.namespace(Host::Node2), Host::Node2.interface())?;
    let address = ADDRESS.to_string();
    let said = stage.exec(Host::Node2, &["arping", "-d", "-c", "3", "-i", "ens18", &address]).await;
    let frames = capture.stop()?;
    let said = said?.success().context("arping")?;
    let mac = leader.mac().to_string();
    let answers = said.lines().filter(|line| line.contains(" bytes from ")).collect::<Vec<_>>();
    ensure!(answers.len() == 3, "{} answers: {said}", answers.len());
    for answer in answers {
        ensure!(answer.contains(&mac), "not {mac}: {answer}");
    }
    let mut lengths = BTreeSet::new();
    for frame in frames.iter().filter(|frame| frame.is_reply_for(ADDRESS)) {
        ensure!(
            frame.source == leader.mac() && frame.sender_mac == leader.mac(),
            "an answer from {} that says {}",
            frame.source,
            frame.sender_mac
        );
        lengths.insert(frame.length);
    }
    ensure!(lengths == BTreeSet::from([60]), "frames of {lengths:?} bytes");
    Ok(format!("{leader} alone, {mac}, 60 bytes"))
}

/// Waits until exactly one node answers for the address: this one.
pub(super) async fn owner_is(stage: &Stage<'_>, address: Ipv4Addr, node: Host) -> Result<()> {
    eventually(SOON, async || {
        let owners = owners(stage, address).await?;
        ensure!(owners == [node.name()], "{address} is answered by {owners:?}, not by {node} alone");
        Ok(())
    })
    .await
}

/// The hosts that answer the client's request for the address; a hardware address where it is no host's.
pub(super) async fn owners(stage: &Stage<'_>, address: Ipv4Addr) -> Result<Vec<String>> {
    let macs =
        wire::ask(stage.namespace(Host::Client), Host::Client, address, Duration::from_millis(120)).await?;
    Ok(macs
        .into_iter()
        .map(|mac| {
            Host::ALL
                .iter()
                .find(|host| host.mac() == mac)
                .map_or_else(|| mac.to_string(), ToString::to_string)
        })
        .collect())
}

async fn unassigned_is_silent(stage: &mut Stage<'_>) -> Seen {
    let capture = wire::Capture::start(stage.namespace(Host::Node2), Host::Node2.interface())?;
    let address = UNASSIGNED.to_string();
    let said = stage.exec(Host::Node2, &["arping", "-c", "2", "-w", "2", "-i", "ens18", &address]).await;
    let frames = capture.stop()?;
    let said = said?;
    let (code, said) = (said.code, told(&said));
    let asked = frames.iter().filter(|f| f.operation == Operation::Request && f.target == UNASSIGNED).count();
    ensure!(asked > 0, "arping asked nothing: {said}");
    ensure!(!frames.iter().any(|frame| frame.is_reply_for(UNASSIGNED)), "somebody answered: {said}");
    ensure!(code == Some(1), "{said}");
    Ok(format!("no answer for {UNASSIGNED}"))
}

async fn on_no_interface(stage: &mut Stage<'_>) -> Seen {
    let listed = stage.exec(Host::Node1, &["ip", "-brief", "address"]).await?.success()?;
    let node = Host::Node1.address().to_string();
    ensure!(listed.contains(&node) && !listed.contains(&ADDRESS.to_string()), "{listed}");
    let names = ferrolb_linux::netns::list(&format!("{}-", stage.bench.name()))?;
    ensure!(names.len() > Host::ALL.len(), "only {names:?}");
    for name in names {
        let namespace = ferrolb_linux::Namespace::open(&name)?;
        for interface in wire::interfaces(&namespace)? {
            if interface.addresses.iter().any(|(address, _)| *address == ADDRESS) {
                bail!("{ADDRESS} is on {} in {name}", interface.name);
            }
        }
    }
    Ok("on no interface of any host, node or Pod".into())
}

async fn every_pod_answers(stage: &mut Stage<'_>, host: Host) -> Seen {
    let answers = ask_pods(stage, host).await?;
    let pods: BTreeSet<&str> = answers.iter().map(|answer| answer.pod.as_str()).collect();
    ensure!(pods.len() == 3, "answers of {pods:?}");
    Ok(format!("{} of {REQUESTS} requests answered, by {} Pods", answers.len(), pods.len()))
}

/// Enough that one of three Pods is left out once in ten million runs.
const REQUESTS: usize = 40;

/// A Pod's answer.
pub(super) struct Answer {
    /// Who answered.
    pub(super) pod: String,
    /// Whom it saw asking.
    pub(super) peer: String,
}

/// Asks for the address by HTTP, on a new connection each time.
pub(super) async fn ask_pods(stage: &mut Stage<'_>, host: Host) -> Result<Vec<Answer>> {
    let script = format!("for i in {{1..{REQUESTS}}}; do curl -sS --max-time 2 http://{ADDRESS}/; done");
    let said = stage.exec(host, &["bash", "-c", &script]).await?.success()?;
    let answers: Vec<_> = said
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(pod, peer)| Answer { pod: pod.to_owned(), peer: peer.to_owned() })
        .collect();
    ensure!(answers.len() == REQUESTS, "{} of {REQUESTS} requests answered: {said}", answers.len());
    Ok(answers)
}

async fn echo_answers(stage: &mut Stage<'_>, host: Host) -> Seen {
    let script = format!("exec 3<>/dev/udp/{ADDRESS}/80; echo hello >&3; head -n 1 <&3");
    let said = stage.exec(host, &["timeout", "2", "bash", "-c", &script]).await?.success()?;
    ensure!(said.starts_with("hello-"), "{said:?}");
    Ok("answered by a Pod of demo/hello".into())
}

async fn strange_port(stage: &mut Stage<'_>) -> Seen {
    let url = format!("http://{ADDRESS}:81/");
    let done = stage.exec(Host::Client, &["curl", "-sS", "--max-time", "2", &url]).await?;
    // 28: curl's time was up. A refusal would be 7, an answer 0.
    ensure!(done.code == Some(28), "{}", told(&done));
    Ok("nothing within 2 s".into())
}

// SPDX-License-Identifier: Apache-2.0
//! Fifth chapter: who announces, and how the network follows when that changes.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::super::cluster::{DAEMON_SET, eventually};
use super::super::stage::{Example, SOON, Stage, example};
use super::super::story::Seen;
use super::super::wire::{self, Arp, Operation};
use super::address::l2_status_of;
use super::segment::{owner_is, owners};
use super::{ADDRESS, EXCLUDE, SYSTEM, leader};
use crate::bench_handle::Daemon;
use crate::host::Host;

/// Services that ask for addresses whose election k8s-master-1 would win.
const MASTERS: Example = example!("masters.yaml");
/// Last bytes of their addresses.
pub(super) const LED_BY_THE_MASTER: [u8; 4] = [201, 207, 210, 218];

const FLAG: &str = "--ignore-exclude-lb";

/// How many requests the client sends while the address moves, one every [`BETWEEN`].
const REQUESTS: usize = 70;
const BETWEEN: Duration = Duration::from_millis(100);

/// Gratuitous pairs after a gain, and the time between them.
const PAIRS: usize = 5;
const TICK: Duration = Duration::from_millis(1100);

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("Who announces, and how that moves");
    stage.step("election", "the leader is the formula's: k8s-node-1", election).await;
    stage
        .step(
            "exclude the leader",
            "the address moves to k8s-node-2: 5 gratuitous pairs (request, reply) 1.1 s apart, the client's neighbour \
             entry follows, none of 70 requests fails",
            exclude,
        )
        .await;
    stage
        .step(
            "lift the exclusion",
            "the address moves back to k8s-node-1 in the same way",
            async |stage: &mut Stage<'_>| {
                moved(stage, Host::Node2, Host::Node1, async |stage: &mut Stage<'_>| {
                    stage.label_node(Host::Node1, EXCLUDE, None).await
                })
                .await
            },
        )
        .await;
    stage
        .step(
            "the master stays out",
            "it would lead 192.168.10.201, .207, .210 and .218, but carries the exclude label: others announce them",
            master_stays_out,
        )
        .await;
    stage
        .step(
            "--ignore-exclude-lb",
            "with the flag on every speaker k8s-master-1 announces what the formula gives it",
            master_let_in,
        )
        .await;
    stage.step("without the flag again", "everything is back on the workers", master_out_again).await;
}

async fn election(stage: &mut Stage<'_>) -> Seen {
    let leader = leader(ADDRESS, &[Host::Node1, Host::Node2]).context("no candidate")?;
    ensure!(leader == Host::Node1, "the formula gives {leader}");
    owner_is(stage, ADDRESS, leader).await?;
    l2_status_of(stage, leader).await?;
    Ok(format!("SHA-256 of k8s-node-1#{ADDRESS} is smaller than of k8s-node-2#{ADDRESS}; {leader} announces"))
}

async fn exclude(stage: &mut Stage<'_>) -> Seen {
    moved(stage, Host::Node1, Host::Node2, async |stage: &mut Stage<'_>| {
        stage.label_node(Host::Node1, EXCLUDE, Some("")).await
    })
    .await
}

/// Makes a change that moves the address from one node to another, under traffic, and checks everything about it.
async fn moved(
    stage: &mut Stage<'_>,
    from: Host,
    to: Host,
    change: impl AsyncFnOnce(&mut Stage<'_>) -> Result<()>,
) -> Seen {
    owner_is(stage, ADDRESS, from).await?;
    // Bursts of earlier moves are over before this one is judged.
    wire::quiet(stage.namespace(Host::Client), ADDRESS, Duration::from_millis(1500), SOON).await?;
    // So that the client has an entry, and the right one.
    let before = client_entry(stage, from).await?;
    let capture = wire::Capture::start(stage.namespace(Host::Client), Host::Client.interface())?;
    let requests = wire::Requests::start(stage.namespace(Host::Client), (ADDRESS, 80), REQUESTS, BETWEEN)?;
    let began = Instant::now();
    change(stage).await?;
    owner_is(stage, ADDRESS, to).await?;
    let (took, arrived) = (began.elapsed(), Instant::now());
    let after = client_entry(stage, to).await?;
    l2_status_of(stage, to).await?;
    let assigned = format!(r#"announcing from node "{to}" with protocol "layer2""#);
    stage.event("hello-lb", "Normal", "nodeAssigned", &assigned).await?;
    let outcome = requests.finish().await?;
    // The last pair comes PAIRS - 1 ticks after the gain; none may follow it.
    let rest = (TICK * u32::try_from(PAIRS)?).saturating_sub(arrived.elapsed());
    tokio::time::sleep(rest).await;
    let frames = capture.stop()?;

    let pairs = gratuitous(&frames, to)?;
    let gaps: Vec<Duration> = pairs.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    let gap_texts: Vec<String> = gaps.iter().map(|gap| format!("{:.3}", gap.as_secs_f64())).collect();
    stage.story.measured(format!(
        "gaps between pairs: {} s; seen to have moved {} ms after the command was given; slowest request {} ms",
        gap_texts.join(", "),
        took.as_millis(),
        outcome.slowest.as_millis()
    ));
    ensure!(pairs.len() == PAIRS, "{} gratuitous pairs, not {PAIRS}", pairs.len());
    for gap in gaps {
        // The machine may be busy: only a gross deviation is one.
        ensure!(gap > TICK / 2 && gap < TICK * 2, "{gap:?} between two pairs");
    }
    ensure!(
        outcome.failures.is_empty(),
        "{} of {REQUESTS} requests failed: {:?}",
        outcome.failures.len(),
        outcome.failures
    );
    Ok(format!(
        "{from} -> {to}; {PAIRS} gratuitous pairs 1.1 s apart; the client's neighbour entry {before} -> {after}; \
         {REQUESTS} of {REQUESTS} requests answered"
    ))
}

/// The times at which pairs of gratuitous frames came: request form, then reply form. Anything else is an error.
fn gratuitous(frames: &[Arp], node: Host) -> Result<Vec<Duration>> {
    let own: Vec<&Arp> = frames.iter().filter(|frame| frame.is_gratuitous_for(ADDRESS)).collect();
    for frame in &own {
        ensure!(
            frame.sender_mac == node.mac() && frame.source == node.mac(),
            "a gratuitous frame of {}",
            frame.source
        );
        ensure!(
            frame.destination == ferrolb_net_types::Mac::BROADCAST,
            "a gratuitous frame to {}",
            frame.destination
        );
        ensure!(frame.length == 60, "a gratuitous frame of {} bytes", frame.length);
    }
    own.chunks(2)
        .map(|pair| match pair {
            [first, second]
                if first.operation == Operation::Request
                    && second.operation == Operation::Reply
                    && second.at.saturating_sub(first.at) < TICK / 2 =>
            {
                Ok(first.at)
            }
            _ => bail!("not a pair of request and reply form: {pair:?}"),
        })
        .collect()
}

/// The client's neighbour entry for the address, once it is this node's.
async fn client_entry(stage: &Stage<'_>, node: Host) -> Result<String> {
    eventually(SOON, async || {
        // A request makes the client look the address up when it has no entry.
        wire::touch(stage.namespace(Host::Client), (ADDRESS, 80)).await?;
        let entry = wire::neighbour(stage.namespace(Host::Client), ADDRESS)?;
        let entry = entry.context("the client has no neighbour entry")?;
        ensure!(entry == node.mac(), "the client's neighbour entry is {entry}, not that of {node}");
        Ok(entry.to_string())
    })
    .await
}

fn addresses() -> [Ipv4Addr; LED_BY_THE_MASTER.len()] {
    LED_BY_THE_MASTER.map(|last| Ipv4Addr::new(192, 168, 10, last))
}

async fn master_stays_out(stage: &mut Stage<'_>) -> Seen {
    let capture = wire::Capture::start(stage.namespace(Host::Client), Host::Client.interface())?;
    stage.apply(MASTERS).await?;
    let mut told = Vec::new();
    for address in addresses() {
        let expected = leader(address, &[Host::Node1, Host::Node2]).context("no candidate")?;
        owner_is(stage, address, expected).await?;
        told.push(format!("{address} {expected}"));
    }
    let by_master = capture
        .stop()?
        .into_iter()
        .find(|frame| frame.source == Host::Master1.mac() && addresses().contains(&frame.sender));
    ensure!(by_master.is_none(), "k8s-master-1 sent {by_master:?}");
    Ok(told.join(", "))
}

async fn master_let_in(stage: &mut Stage<'_>) -> Seen {
    set_speaker_arguments(stage, json!({"op": "add", "path": format!("{ARGUMENTS}/-"), "value": FLAG}))
        .await?;
    for address in addresses().into_iter().chain([ADDRESS]) {
        let expected = leader(address, &Host::NODES).context("no candidate")?;
        ensure!(expected == Host::Master1, "the formula gives {expected}");
        owner_is(stage, address, expected).await?;
    }
    wire::touch(stage.namespace(Host::Client), (ADDRESS, 80)).await?;
    l2_status_of(stage, Host::Master1).await?;
    Ok(format!("k8s-master-1 announces {ADDRESS}, .201, .207, .210 and .218"))
}

async fn master_out_again(stage: &mut Stage<'_>) -> Seen {
    let set = stage.cluster.read(DAEMON_SET, SYSTEM, "speaker").await?;
    let arguments =
        set.pointer(ARGUMENTS).and_then(Value::as_array).context("the speaker has no arguments")?;
    let index = arguments.iter().position(|argument| argument == FLAG).context("the flag is not there")?;
    set_speaker_arguments(stage, json!({"op": "remove", "path": format!("{ARGUMENTS}/{index}")})).await?;
    for address in addresses().into_iter().chain([ADDRESS]) {
        owner_is(stage, address, leader(address, &[Host::Node1, Host::Node2]).context("no candidate")?)
            .await?;
    }
    l2_status_of(stage, Host::Node1).await?;
    stage.remove(&[MASTERS]).await?;
    for address in addresses() {
        silent(stage, address).await?;
    }
    Ok(format!(
        "k8s-node-1 announces {ADDRESS} again; the four other Services are deleted, their addresses silent"
    ))
}

/// Waits until nobody answers for the address.
pub(super) async fn silent(stage: &Stage<'_>, address: Ipv4Addr) -> Result<()> {
    eventually(SOON, async || {
        let owners = owners(stage, address).await?;
        ensure!(owners.is_empty(), "{address} is answered by {owners:?}");
        Ok(())
    })
    .await
}

/// Where the speakers' arguments are in their DaemonSet.
const ARGUMENTS: &str = "/spec/template/spec/containers/0/args";

/// Changes the speakers' arguments, and waits until each has restarted with them.
async fn set_speaker_arguments(stage: &mut Stage<'_>, operation: Value) -> Result<()> {
    stage.patch_json(DAEMON_SET, SYSTEM, "speaker", &json!([operation])).await?;
    stage.bench.settled(Daemon::Speaker, SOON * 3).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(operation: Operation, at: u64) -> Arp {
        let mac = Host::Node2.mac();
        Arp {
            at: Duration::from_millis(at),
            length: 60,
            destination: ferrolb_net_types::Mac::BROADCAST,
            source: mac,
            operation,
            sender_mac: mac,
            sender: ADDRESS,
            target: ADDRESS,
        }
    }

    #[test]
    fn pairs_are_request_then_reply_from_the_new_node() {
        use Operation::{Reply, Request};
        let good = [frame(Request, 0), frame(Reply, 1), frame(Request, 1100), frame(Reply, 1101)];
        let times = gratuitous(&good, Host::Node2).unwrap();
        assert_eq!(times, [Duration::ZERO, Duration::from_millis(1100)]);
        assert!(gratuitous(&good, Host::Node1).is_err(), "another node's frames");
        for bad in [&good[1..], &good[..3], &[frame(Request, 0), frame(Reply, 900)]] {
            assert!(gratuitous(bad, Host::Node2).is_err(), "{bad:?}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What others' traffic costs the speakers, and whether those who ask for their addresses are answered meanwhile.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use ferrolb_linux::probe::Caller;
use ferrolb_linux::process::{self, Pid};
use serde::Serialize;

use super::crowd::{self, Crowd};
use super::latency::LIMIT;
use crate::bench_handle::{Bench, Daemon, SYSTEM};
use crate::host::Host;

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// ARP requests for addresses of no Service.
    Requests,
    /// Datagrams of random bytes to the port of one node's member list.
    Garbage,
}

/// What was sent, what it cost, who was answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flood {
    /// What was sent, and what went on meanwhile.
    pub what: String,
    /// Announced addresses, at the end.
    pub announced: usize,
    /// Frames or datagrams per second.
    pub per_second: f64,
    /// How long.
    pub seconds: f64,
    /// User and system time of the speaker that used most, in percent of one core.
    pub core_percent: f64,
    /// What that should not exceed; `None` where the work of announcing is in it.
    pub aim_percent: Option<f64>,
    /// Requests for announced addresses, ten per second.
    pub asked: usize,
    /// Those that were answered.
    pub answered: usize,
    /// Frames that the queues of this machine's cables had no room for; what got lost there reached no speaker.
    pub dropped: u64,
}

/// A flood that goes on, and somebody who asks for announced addresses.
pub(super) struct Running {
    kind: Kind,
    begin: Instant,
    speakers: Vec<(Pid, Duration)>,
    dropped: u64,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Result<u64>>,
    asker: JoinHandle<Result<(usize, usize)>>,
}

/// Frames or datagrams per second.
const RATE: u64 = 20_000;

/// Between two requests for announced addresses.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The port of the member list.
const MEMBERS: u16 = 7946;

impl Running {
    /// Begins.
    pub(super) async fn start(bench: &Bench, crowd: &Crowd<'_>, kind: Kind) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (caller, count) = (crowd.caller()?, crowd.count());
        let mut pids = Vec::new();
        for pod in bench.pods(SYSTEM, Daemon::Speaker.name()).await?.into_iter().filter(|pod| !pod.ending) {
            pids.push(bench.process(&pod.name)?.pid);
        }
        let sender = match kind {
            Kind::Requests => {
                let flood = crowd.caller()?;
                let mut number = 0_u32;
                spawn("flood", &stop, move |stop| {
                    paced(stop, || {
                        number = number.wrapping_add(1);
                        Ok(flood.call(crowd::foreign(number))?)
                    })
                })?
            }
            Kind::Garbage => {
                let bind = || UdpSocket::bind((Host::Client.address(), 0));
                let socket = bench.namespace(Host::Client).run(bind)??;
                let target = SocketAddr::from((Host::Node1.address(), MEMBERS));
                let mut state = 0x9e37_79b9_7f4a_7c15_u64;
                spawn("flood", &stop, move |stop| {
                    paced(stop, || {
                        let mut bytes = [0; 128];
                        for chunk in bytes.chunks_mut(8) {
                            state ^= state << 13;
                            state ^= state >> 7;
                            state ^= state << 17;
                            chunk.copy_from_slice(&state.to_le_bytes());
                        }
                        // A port that is closed refuses; that is its answer.
                        let _ = socket.send_to(&bytes[..1 + (state % 128) as usize], target);
                        Ok(())
                    })
                })?
            }
        };
        let asker = spawn("asker", &stop, move |stop| ask_around(stop, caller, count))?;
        let cpu = |pid: Pid| Ok((pid, used(pid)?));
        let speakers = pids.into_iter().map(cpu).collect::<Result<_>>()?;
        Ok(Self { kind, begin: Instant::now(), speakers, dropped: dropped()?, stop, sender, asker })
    }

    /// Ends it.
    pub(super) async fn end(self, what: &str, announced: usize, aim_percent: Option<f64>) -> Result<Flood> {
        let span = self.begin.elapsed().as_secs_f64();
        let mut most = 0.0_f64;
        for (pid, before) in &self.speakers {
            most = most.max(used(*pid)?.saturating_sub(*before).as_secs_f64() / span * 100.0);
        }
        self.stop.store(true, Ordering::Release);
        let (sender, asker) = (self.sender, self.asker);
        let ended = tokio::task::spawn_blocking(move || (sender.join(), asker.join())).await?;
        let panicked = |_| anyhow!("a thread of the flood ended");
        let sent = ended.0.map_err(panicked)??;
        let (asked, answered) = ended.1.map_err(panicked)??;
        let unit = if self.kind == Kind::Requests { "foreign requests" } else { "datagrams of garbage" };
        Ok(Flood {
            what: format!("{unit}{what}"),
            announced,
            per_second: sent as f64 / span,
            seconds: span,
            core_percent: most,
            aim_percent,
            asked,
            answered,
            dropped: dropped()?.saturating_sub(self.dropped),
        })
    }
}

/// Whether the speakers listen on the port of the member list.
pub(super) async fn is_open(bench: &Bench) -> Result<bool> {
    let pods = bench.pods(SYSTEM, Daemon::Speaker.name()).await?;
    let pod = pods.into_iter().find(|pod| !pod.ending).context("no speaker runs")?;
    let pid = bench.process(&pod.name)?.pid;
    let local = format!(":{MEMBERS:04X}");
    Ok(["udp", "udp6"].into_iter().any(|table| {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        table.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|it| it.ends_with(&local)))
    }))
}

fn spawn<T: Send + 'static>(
    name: &str,
    stop: &Arc<AtomicBool>,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
) -> Result<JoinHandle<Result<T>>> {
    let stop = stop.clone();
    Ok(std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&stop))?)
}

/// Sends at [`RATE`], in portions of a millisecond; how many.
fn paced(stop: &AtomicBool, mut send: impl FnMut() -> Result<()>) -> Result<u64> {
    let begin = Instant::now();
    let mut sent = 0;
    while !stop.load(Ordering::Acquire) {
        let due = begin.elapsed().as_millis() as u64 * RATE / 1000; // years would be needed to overflow
        // What could not be sent in time is not made up for all at once: the queues of the bench's cables hold a
        // thousand frames, and each goes to every host.
        for _ in 0..due.saturating_sub(sent).min(RATE / 500) {
            send()?;
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(sent)
}

/// Asks for one announced address after the other: how many, and how many were answered.
fn ask_around(stop: &AtomicBool, mut caller: Caller, count: usize) -> Result<(usize, usize)> {
    let (mut asked, mut answered) = (0, 0);
    let mut next = Instant::now();
    while !stop.load(Ordering::Acquire) {
        let address = crowd::address(asked * 7919 % count.max(1)); // all over the place
        asked += 1;
        answered += usize::from(caller.ask(address, LIMIT)?.is_some());
        next += ASK_EVERY;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok((asked, answered))
}

/// User and system time of a process.
fn used(pid: Pid) -> Result<Duration> {
    process::cpu_time(pid).with_context(|| format!("the process {pid} has ended"))
}

/// Frames that the queues between devices had no room for, since the machine started.
fn dropped() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/net/softnet_stat")?;
    let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    Ok(text.lines().filter_map(column).sum())
}

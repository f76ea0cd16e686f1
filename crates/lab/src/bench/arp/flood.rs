// SPDX-License-Identifier: Apache-2.0
//! What others' traffic costs the speakers, and whether those who ask for their addresses are answered meanwhile.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use ferrolb_linux::probe::Caller;
use ferrolb_linux::process::{self, Pid};
use serde::Serialize;
use socket2::{Domain, Socket, Type};

use super::crowd::{self, Crowd};
use super::latency::LIMIT;
use crate::bench_handle::{Bench, Daemon, SYSTEM};
use crate::host::Host;

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// ARP requests for addresses of no Service.
    Requests,
    /// Datagrams of random bytes to the port of this node's member list.
    Garbage(Host),
    /// Connections to the same port, each with some random bytes and reset a while later.
    Connections(Host),
}

impl Kind {
    /// The node whose addresses are asked for meanwhile; `None`: everybody's.
    const fn measured(self) -> Option<Host> {
        match self {
            Self::Requests => None,
            Self::Garbage(node) | Self::Connections(node) => Some(node),
        }
    }

    /// What comes, in the plural.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Requests => "foreign requests",
            Self::Garbage(_) => "datagrams of garbage",
            Self::Connections(_) => "connections",
        }
    }
}

/// What was sent, what it cost, who was answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flood {
    /// What was sent.
    pub what: String,
    /// What went on meanwhile, or whom it hit; empty for nothing.
    pub meanwhile: String,
    /// Announced addresses, at the end.
    pub announced: usize,
    /// Frames, datagrams or connections per second.
    pub per_second: f64,
    /// How long.
    pub seconds: f64,
    /// User and system time of the speaker that used most, in percent of one core.
    pub core_percent: f64,
    /// What that should not exceed; `None` where the work of announcing is in it.
    pub aim_percent: Option<f64>,
    /// Requests for announced addresses, ten per second; of a flood that hits one node, for addresses of that node.
    pub asked: usize,
    /// Those that were answered within half a second.
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

/// Connections per second, and how many are open at a time.
const CONNECTIONS: u64 = 2_000;
const OPEN: usize = 400;

/// How many of a node's addresses are asked for.
const OF_ONE: usize = 50;

/// Between two requests for announced addresses.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The port of the member list.
const MEMBERS: u16 = 7946;

impl Running {
    /// Begins.
    pub(super) async fn start(bench: &Bench, crowd: &Crowd<'_>, kind: Kind) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let addresses = match kind.measured() {
            Some(node) => crowd.led_by(node, OF_ONE).await?,
            None => (0..crowd.count()).map(crowd::address).collect(),
        };
        let caller = crowd.caller()?;
        let mut pids = Vec::new();
        for pod in bench.pods(SYSTEM, Daemon::Speaker.name()).await?.into_iter().filter(|pod| !pod.ending) {
            pids.push(bench.process(&pod.name)?.pid);
        }
        let sender = match kind {
            Kind::Requests => {
                let flood = crowd.caller()?;
                let mut number = 0_u32;
                spawn("flood", &stop, move |stop| {
                    paced(stop, RATE, || {
                        number = number.wrapping_add(1);
                        Ok(flood.call(crowd::foreign(number))?)
                    })
                })?
            }
            Kind::Garbage(node) => {
                let bind = || UdpSocket::bind((Host::Client.address(), 0));
                let socket = bench.namespace(Host::Client).run(bind)??;
                let (target, mut noise) = (SocketAddr::from((node.address(), MEMBERS)), Noise::default());
                spawn("flood", &stop, move |stop| {
                    paced(stop, RATE, || {
                        // A port that is closed refuses; that is its answer.
                        let _ = socket.send_to(noise.next(), target);
                        Ok(())
                    })
                })?
            }
            Kind::Connections(node) => {
                let namespace = Arc::clone(bench.namespace(Host::Client));
                let (target, mut noise) = (SocketAddr::from((node.address(), MEMBERS)), Noise::default());
                spawn("flood", &stop, move |stop| {
                    namespace.enter()?;
                    let mut open = VecDeque::new();
                    paced(stop, CONNECTIONS, || {
                        open.push_back(connect(target, noise.next())?);
                        if open.len() > OPEN {
                            open.pop_front();
                        }
                        Ok(())
                    })
                })?
            }
        };
        let asker = spawn("asker", &stop, move |stop| ask_around(stop, caller, &addresses))?;
        let cpu = |pid: Pid| Ok((pid, used(pid)?));
        let speakers = pids.into_iter().map(cpu).collect::<Result<_>>()?;
        Ok(Self { kind, begin: Instant::now(), speakers, dropped: dropped()?, stop, sender, asker })
    }

    /// Ends it.
    pub(super) async fn end(
        self,
        meanwhile: &str,
        announced: usize,
        aim_percent: Option<f64>,
    ) -> Result<Flood> {
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
        Ok(Flood {
            what: self.kind.unit().to_owned(),
            meanwhile: meanwhile.to_owned(),
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

/// Begins a connection and says something on it. It is reset when it is dropped, so that it leaves nothing behind.
fn connect(target: SocketAddr, text: &[u8]) -> Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    // It goes on by itself; whether it is refused or left waiting is the node's choice.
    let _ = socket.connect(&target.into());
    let _ = socket.send(text);
    Ok(socket)
}

/// Random bytes, up to 128 at a time.
struct Noise {
    state: u64,
    bytes: [u8; 128],
}

impl Default for Noise {
    fn default() -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15, bytes: [0; 128] }
    }
}

impl Noise {
    fn next(&mut self) -> &[u8] {
        for chunk in self.bytes.chunks_mut(8) {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            chunk.copy_from_slice(&self.state.to_le_bytes());
        }
        let length = 1 + (self.state % 128) as usize; // at most 128
        self.bytes.get(..length).unwrap_or(&self.bytes)
    }
}

/// Sends so often per second, in portions of a millisecond; how many.
fn paced(stop: &AtomicBool, rate: u64, mut send: impl FnMut() -> Result<()>) -> Result<u64> {
    let begin = Instant::now();
    let mut sent = 0;
    while !stop.load(Ordering::Acquire) {
        let due = begin.elapsed().as_millis() as u64 * rate / 1000; // years would be needed to overflow
        // What could not be sent in time is not made up for all at once: the queues of the bench's cables hold a
        // thousand frames, and each goes to every host.
        for _ in 0..due.saturating_sub(sent).min(rate / 500) {
            send()?;
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(sent)
}

/// Asks for one of these addresses after the other: how many, and how many were answered.
fn ask_around(stop: &AtomicBool, mut caller: Caller, addresses: &[Ipv4Addr]) -> Result<(usize, usize)> {
    let (mut asked, mut answered) = (0, 0);
    let mut next = Instant::now();
    while !stop.load(Ordering::Acquire) {
        // All over the place: the factor is prime.
        let address = addresses.get(asked * 7919 % addresses.len().max(1)).context("nothing is announced")?;
        asked += 1;
        answered += usize::from(caller.ask(*address, LIMIT)?.is_some());
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

// SPDX-License-Identifier: Apache-2.0
//! The loop of the wire thread: wait, hand in, carry out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrolb_announce::AddressPlans;
use ferrolb_l2::wire::{Frame, ndp};
use ferrolb_linux::{Error, LinkMonitor, Neighbourhoods, Netlink, PacketSocket, Poller, Waker, sched};
use ferrolb_net_types::{NodeName, Time};
use ferrolb_speaker_core::wire::{Input, Output, Peer, Purpose, Report, Wire};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::Wishes;
use super::clock::Clock;
use super::gossip::{Lines, MemberList};
use super::ports::{self, Place, Ports, Protocol};

/// Everything the thread has.
pub(super) struct Thread {
    wire: Wire,
    ports: Ports,
    poller: Poller,
    monitor: LinkMonitor,
    netlink: Netlink,
    wishes: Arc<Wishes>,
    /// The wishes that were handed in last.
    plan: Option<Arc<AddressPlans>>,
    peers: Option<Arc<Vec<Peer>>>,
    api_lost: bool,
    leaving: bool,
    /// Everything is handed over.
    stopped: bool,
    filters: Filters,
    /// What came in last.
    buffer: Box<[u8; LONGEST]>,
    reports: mpsc::Sender<Report>,
    /// When to try a complete report, after one did not fit.
    resync: Option<Time>,
    next_scan: Time,
    last_scan: Time,
    /// Whether the interfaces were listed at all; before, nothing is decided.
    told: bool,
    /// The sockets of the member list, if there is one.
    lines: Option<Lines>,
    /// Some that happened to streams is still to be taken.
    busy: bool,
    clock: Clock,
}

impl Thread {
    /// Opens what every node has; packet sockets come with the first scan.
    pub(super) fn new(
        node: NodeName,
        ports: Ports,
        list: Option<MemberList>,
        wishes: Arc<Wishes>,
        reports: mpsc::Sender<Report>,
    ) -> anyhow::Result<Self> {
        let poller = Poller::new()?;
        let monitor = LinkMonitor::open()?;
        poller.add(&monitor, MONITOR)?;
        let (gossip, lines) = match list {
            Some(MemberList { gossip, sockets }) => {
                let lines = Lines::open(&gossip, sockets, poller.waker())?;
                poller.add(&lines, DATAGRAMS)?;
                (Some(gossip), Some(lines))
            }
            None => (None, None),
        };
        Ok(Self {
            wire: Wire::new(node, gossip),
            ports,
            poller,
            monitor,
            netlink: Netlink::open()?,
            wishes,
            plan: None,
            peers: None,
            api_lost: false,
            leaving: false,
            stopped: false,
            filters: Filters::default(),
            buffer: Box::new([0; LONGEST]),
            reports,
            resync: None,
            next_scan: Time::ZERO,
            last_scan: Time::ZERO,
            told: false,
            lines,
            busy: false,
            clock: Clock::start(),
        })
    }

    /// What ends the thread's waiting.
    pub(super) fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Runs until told to stop.
    pub(super) fn run(mut self) {
        if let Err(error) = sched::take_short_turns() {
            tracing::debug!(op = "wire", %error, "requests may wait for other work of this node");
        }
        while !self.stopped && !self.wishes.stop.load(Ordering::Acquire) {
            if let Err(error) = self.turn() {
                // Nothing that a turn asks of the kernel can fail for long without the process being unusable.
                tracing::error!(op = "wire", %error, "the wire thread ends");
                return;
            }
        }
    }

    fn turn(&mut self) -> Result<(), Error> {
        let now = self.now();
        self.take_wishes(now);
        self.take_streams(now);
        if self.next_scan <= now {
            self.scan(now);
        }
        if self.resync.is_some_and(|at| at <= now) {
            self.resync = None;
            self.wire.handle(now, Input::Resync);
        }
        if self.wire.next_deadline().is_some_and(|at| at <= now) {
            self.wire.handle_timeout(now);
        }
        self.narrow(now);
        self.carry_out(now);
        let groups_due = self.ports.tend_groups().then_some(now);

        if self.stopped {
            return Ok(());
        }
        let deadlines =
            [Some(self.next_scan), self.resync, self.wire.next_deadline(), self.filters.due, groups_due];
        let busy = self.busy.then_some(now);
        let until = deadlines.into_iter().flatten().chain(busy).min().map(|at| self.clock.moment(at));
        let mut ready = [0; READY];
        let mut count = 0;
        for (place, token) in ready.iter_mut().zip(self.poller.wait(until)?) {
            *place = token;
            count += 1;
        }
        for token in ready.into_iter().take(count) {
            match ports::place(token) {
                Some(place) => self.receive(place),
                None if token == DATAGRAMS => self.receive_datagrams(),
                None => self.hear()?,
            }
        }
        Ok(())
    }

    /// Answers what came in on a socket, frame by frame, so that the first does not wait for the last.
    fn receive(&mut self, place: Place) {
        for _ in 0..FRAMES_PER_TURN {
            // The port may have been closed by what came in on another.
            let Some(socket) = self.ports.socket(place) else { return };
            match socket.receive(&mut self.buffer[..]) {
                Ok(Some(received)) => {
                    let now = self.now();
                    let bytes = self.buffer.get(..received.length).unwrap_or(&self.buffer[..]);
                    let interface = place.0;
                    self.wire.handle(now, Input::Frame { interface, vlan: received.vlan, bytes });
                    self.carry_out(now);
                }
                Ok(None) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let now = self.now();
                    self.ports.fail(now, place, &error);
                    self.tell_interfaces(now);
                    self.scan_at(now);
                    return;
                }
            }
        }
    }

    /// Hands in the datagrams that are there. Only so many: frames wait, too.
    fn receive_datagrams(&mut self) {
        for _ in 0..FRAMES_PER_TURN {
            let now = self.clock.now();
            let Some((source, bytes)) = self.lines.as_mut().and_then(Lines::receive) else { return };
            self.wire.handle(now, Input::Gossip(ferrolb_gossip::Input::Datagram { source, bytes }));
            self.carry_out(now);
        }
    }

    /// Hands in what happened to streams.
    fn take_streams(&mut self, now: Time) {
        self.busy = false;
        let mut taken = 0;
        while let Some(input) = self.lines.as_mut().and_then(Lines::next) {
            self.wire.handle(now, Input::Gossip(input));
            self.carry_out(now);
            taken += 1;
            if taken == EVENTS_PER_TURN {
                self.busy = true;
                return;
            }
        }
    }

    /// Sends frames and reports until there are none left.
    fn carry_out(&mut self, now: Time) {
        while let Some(output) = self.wire.poll(now) {
            match output {
                Output::Send { interface, address, purpose, frame } => {
                    let socket = self.ports.socket((interface, Protocol::of(address)));
                    if socket.is_none_or(|socket| socket.send(&frame).is_err()) {
                        self.wire.handle(now, Input::SendFailed { address, purpose });
                    } else if purpose == Purpose::Answer {
                        log_answer(self.ports.name(interface), &frame);
                    }
                }
                Output::Join { interface, group } => self.ports.want_group(interface, group, true),
                Output::Leave { interface, group } => self.ports.want_group(interface, group, false),
                Output::Report(report) => {
                    if let Err(TrySendError::Full(_)) = self.reports.try_send(report) {
                        self.resync = Some(now + RESYNC);
                    }
                }
                Output::Gossip(output) => {
                    let lines = self.lines.as_ref();
                    if let Some(happened) = lines.and_then(|lines| lines.carry_out(output)) {
                        self.wire.handle(now, Input::Gossip(happened));
                    }
                }
                Output::Stopped => self.stopped = true,
            }
        }
    }

    /// Lets only what this node owns, or asks about, wake this thread. While that changes quickly, those for neighbours pass
    /// as well: many addresses make a long program.
    fn narrow(&mut self, now: Time) {
        let changes = self.wire.take_owned_changes();
        let filters = &mut self.filters;
        filters.outdated |= changes.lost || !changes.gained.is_empty();
        if !filters.outdated {
            return;
        }
        if now < filters.not_before {
            filters.due = Some(filters.not_before);
            let near = match filters.near.take() {
                Some(mut near) => {
                    let new = changes.gained.into_iter().filter(|address| near.insert(*address)).count();
                    if new == 0 {
                        filters.near = Some(near);
                        return;
                    }
                    near
                }
                None if changes.gained.is_empty() => return,
                None => self.wire.heeded().collect(),
            };
            self.filter(now, |socket| socket.narrow_to_neighbourhoods(&near));
            self.filters.near = Some(near);
            return;
        }
        let begin = self.now();
        let heeded = self.wire.heeded().collect();
        self.filters = Filters::default();
        self.filter(now, |socket| socket.narrow(&heeded));
        let end = self.now();
        self.filters.not_before = end + end.since(begin) * NARROWING_SHARE;
    }

    /// Gives every socket another filter. One that refuses it may lack an address, so it is opened anew.
    fn filter(&mut self, now: Time, change: impl Fn(&PacketSocket) -> io::Result<()>) {
        let refused = |(place, socket)| change(socket).err().map(|error| (place, error));
        let failed: Vec<_> = self.ports.sockets().filter_map(refused).collect();
        for (place, error) in &failed {
            self.ports.fail(now, *place, error);
        }
        if !failed.is_empty() {
            self.tell_interfaces(now);
            self.scan_at(now);
        }
    }

    fn take_wishes(&mut self, now: Time) {
        let plan = self.wishes.plan.load();
        if let Some(plan) = plan.as_ref()
            && !self.plan.as_ref().is_some_and(|known| Arc::ptr_eq(known, plan))
        {
            self.plan = Some(plan.clone());
            self.wire.handle(now, Input::Plan(plan.clone()));
        }
        // Who goes on from what was kept says so before it joins anybody.
        let lost = self.wishes.api_lost.load(Ordering::Acquire);
        if lost != std::mem::replace(&mut self.api_lost, lost) {
            self.wire.handle(now, Input::Api { working: !lost });
        }
        let peers = self.wishes.peers.load();
        if let Some(peers) = peers.as_ref()
            && !self.peers.as_ref().is_some_and(|known| Arc::ptr_eq(known, peers))
        {
            self.peers = Some(peers.clone());
            self.wire.handle(now, Input::Peers(peers));
        }
        if !self.leaving && self.wishes.leave.load(Ordering::Acquire) {
            self.leaving = true;
            self.wire.handle(now, Input::Stop);
        }
    }

    fn hear(&mut self) -> Result<(), Error> {
        if self.monitor.take()? {
            self.scan_at(self.now());
        }
        Ok(())
    }

    /// Wants a scan soon, but not more often than makes sense while many interfaces come and go.
    fn scan_at(&mut self, time: Time) {
        self.next_scan = self.next_scan.min(time.max(self.last_scan + SCAN_GAP));
    }

    fn scan(&mut self, now: Time) {
        match self.ports.scan(now, &mut self.netlink, &self.poller) {
            Ok(changed) if changed || !self.told => self.tell_interfaces(now),
            Ok(_) => {}
            Err(error) => tracing::error!(op = "getInterfaces", %error, "couldn't list interfaces"),
        }
        let end = self.now();
        self.last_scan = end;
        self.next_scan = end + SCAN_EVERY;
        if let Some(retry) = self.ports.next_retry() {
            self.scan_at(retry);
        }
    }

    fn tell_interfaces(&mut self, now: Time) {
        self.told = true;
        // New sockets have filters of their own.
        self.filters.outdated = true;
        self.filters.not_before = now;
        self.wire.handle(now, Input::Interfaces(&self.ports.interfaces()));
    }

    fn now(&self) -> Time {
        self.clock.now()
    }
}

/// What the sockets let pass.
#[derive(Debug, Default)]
struct Filters {
    /// What this node owns has changed since, or the sockets have.
    outdated: bool,
    /// They let requests for these pass; `None`: just for what is owned, as it was when they were made.
    near: Option<Neighbourhoods>,
    /// When they may be narrowed again.
    not_before: Time,
    /// When they are to be narrowed.
    due: Option<Time>,
}

/// The line that MetalLB's users look for at log level debug.
fn log_answer(interface: &str, frame: &[u8]) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    if let Ok(Frame { packet, .. }) = Frame::parse(frame) {
        tracing::debug!(
            interface,
            ip = %packet.sender_ip,
            senderIP = %packet.target_ip,
            senderMAC = %packet.target_mac,
            responseMAC = %packet.sender_mac,
            "got ARP request for service IP, sending response"
        );
    } else if let Ok(ndp::Frame { destination, source, packet }) = ndp::Frame::parse(frame) {
        tracing::debug!(
            interface,
            ip = %packet.message.target(),
            senderIP = %packet.destination,
            senderLLAddr = %destination,
            responseMAC = %source,
            "got NDP request for service IP, sending response"
        );
    }
}

/// The monitor's token; those of packet sockets are smaller.
const MONITOR: u64 = 1 << 33;

/// The token of the member list's datagrams.
const DATAGRAMS: u64 = MONITOR + 1;

/// Room for one frame: an Ethernet frame of the usual size.
const LONGEST: usize = 2048;

/// After narrowing the filters so many times as long is no time for it.
const NARROWING_SHARE: u32 = 20;

/// Sockets that are served in one turn; the others' turn is next.
const READY: usize = 64;

/// Frames that are taken from one socket in a turn, so that a flood on one interface does not starve another.
const FRAMES_PER_TURN: usize = 64;

/// Events of streams that are handed in in one turn.
const EVENTS_PER_TURN: usize = 16;

/// How often interfaces are looked at without being told to.
const SCAN_EVERY: Duration = Duration::from_secs(10);

/// The shortest time between two looks.
const SCAN_GAP: Duration = Duration::from_millis(20);

/// How long to wait before another report is tried when the channel was full.
const RESYNC: Duration = Duration::from_millis(100);

// SPDX-License-Identifier: Apache-2.0
//! The task of one peer: a session with its socket and its timers.
//!
//! It waits for whatever comes first: a wish of the control side, a connection, bytes, room to write, a deadline. Each
//! time it hands that to the session and does what the session wants. What a peer says, and however fast it says it, is
//! heard by the buffer: after each one it is everybody else's turn, and the kernel is asked who has something to say. So
//! no peer keeps another one waiting.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ferrolb_bgp::{Close, ConnectionId, Down, Goodbye, Input, Notice, Output, Session, State, Untold};
use ferrolb_kube_support::daemon::Clocks;
use ferrolb_net_types::{IpFamily, NodeName, PeerName, Time};
use ferrolb_speaker_core::bgp::{PeerPlan, PeerReport, Rival};
use tokio::io::Ready;
use tokio::task::JoinSet;

use super::board::Presence;
use super::dial::{Dialled, NotDialled, dial};
use super::ends::{Ends, Holder, Pair, Taken, chosen};
use super::line::Line;
use super::lines::{self, Lines};
use super::{Change, Shared};

pub(super) struct Task {
    node: NodeName,
    /// The BGPPeer.
    name: PeerName,
    clocks: Clocks,
    shared: Arc<Shared>,
    _presence: Presence,
    lines: Lines,
    plan: PeerPlan,
    session: Session,
    /// Holds the two addresses of the connection.
    end: Arc<Holder>,
    dialling: Option<Dialling>,
    /// Whose session has the two addresses of the connection, as was found last.
    rival: Option<Rival>,
    /// The two addresses, while that somebody else has them is why there is no connection.
    awaited: Option<Pair>,
    line: Option<Line>,
    /// Connections that are closed once their last word is said.
    last_words: JoinSet<()>,
    findings: Findings,
    /// It is to end: the session's end is its own.
    leaves: bool,
    over: bool,
    /// What the peer is not told, and the session's number for that.
    untold: (u64, Arc<Untold>),
    /// What the board shows, and until when only a change of more than numbers is news.
    shown: Option<PeerReport>,
    quiet_until: Time,
    buffer: Box<[u8; READ]>,
}

struct Dialling {
    id: ConnectionId,
    attempt: Pin<Box<dyn Future<Output = Result<Dialled, NotDialled>> + Send>>,
}

/// What is wrong although the session goes on.
#[derive(Debug, Default)]
struct Findings {
    held_back: BTreeMap<IpFamily, String>,
    /// Of routes that cannot be told.
    too_long: Option<String>,
    /// Of what the peer tells.
    faults: Option<String>,
    /// What is found anew in the next session.
    session: Vec<String>,
}

impl Task {
    pub(super) fn new(
        node: NodeName,
        name: PeerName,
        plan: PeerPlan,
        seed: u64,
        clocks: Clocks,
        shared: Arc<Shared>,
        ends: &Arc<Ends>,
    ) -> Self {
        let now = clocks.now();
        Self {
            node,
            clocks,
            _presence: Presence(shared.clone()),
            shared,
            lines: Lines::new(&name, &plan),
            end: Arc::new(ends.holder(&name)),
            name,
            session: Session::new(now, plan.settings.clone(), seed),
            plan,
            dialling: None,
            rival: None,
            awaited: None,
            line: None,
            last_words: JoinSet::new(),
            findings: Findings::default(),
            leaves: false,
            over: false,
            untold: (0, Arc::default()),
            shown: None,
            quiet_until: now,
            buffer: Box::new([0; READ]),
        }
    }

    /// Keeps the session until somebody ends it.
    pub(super) async fn run(mut self) {
        loop {
            let more = self.carry_out();
            let due = self.show();
            if self.over {
                break;
            }
            if more {
                tokio::task::yield_now().await;
            } else {
                self.wait(due).await;
            }
            // However busy it is, what is due is done.
            if self.session.next_deadline().is_some_and(|deadline| deadline <= self.clocks.now()) {
                self.look();
                self.session.handle_timeout(self.clocks.now());
            }
        }
        while self.last_words.join_next().await.is_some() {}
    }

    /// Waits until something happens, and hands it to the session.
    async fn wait(&mut self, due: Option<Time>) {
        let deadline = self.session.next_deadline().into_iter().chain(due).min();
        tokio::select! {
            biased;
            () = self.shared.mailbox.written() => self.take_wishes(),
            (id, dialled) = connected(&mut self.dialling) => self.dialled(id, dialled),
            ready = ready(self.line.as_ref()) => self.attend(ready).await,
            () = free(&self.end, self.awaited) => {
                self.awaited = None;
                self.restart();
            }
            () = self.clocks.until(deadline) => {}
            Some(_) = self.last_words.join_next() => {}
        }
    }

    fn input(&mut self, input: Input<'_>) {
        self.session.handle(self.clocks.now(), input);
    }

    // ---- wishes ----

    fn take_wishes(&mut self) {
        let wishes = self.shared.mailbox.take();
        if let Some(plan) = wishes.plan {
            self.follow(*plan);
        }
        if !wishes.routes.is_empty() {
            let changes: Vec<Change> = wishes.routes.into_iter().collect();
            self.input(Input::Routes(&changes));
        }
        if let Some(goodbye) = wishes.goodbye
            && !self.leaves
        {
            self.leaves = true;
            self.input(Input::Stop(goodbye));
        }
    }

    /// Goes by another plan from now on.
    fn follow(&mut self, plan: PeerPlan) {
        let settings = Box::new(plan.settings.clone());
        if self.line.as_ref().is_some_and(|line| comes_from(&plan, line.address.ip())) {
            // To name the address that it comes from already, or not to name it, is no change.
            self.plan.source = plan.source;
        }
        if let Some(what) = moved(&self.plan, &plan) {
            // The session keeps its routes, and tells them to whom it is with now.
            self.input(Input::Stop(Goodbye::reset(&format!("{what} has changed"))));
            self.carry_out();
            self.plan = plan;
            self.lines = Lines::new(&self.name, &self.plan);
            self.input(Input::Configure(settings));
            self.restart();
            return;
        }
        let before = std::mem::replace(&mut self.plan, plan);
        self.lines = Lines::new(&self.name, &self.plan);
        if before.settings != self.plan.settings {
            self.input(Input::Configure(settings));
        }
        if before.password != self.plan.password {
            self.change_password();
        }
    }

    /// A live connection goes on with another password. One that is being dialled is dialled anew, since what was sent
    /// before is not answered any more.
    fn change_password(&mut self) {
        let password = self.plan.password.as_ref().map(|password| password.bytes()).unwrap_or_default();
        if let Some(line) = &self.line {
            match line.set_password(self.plan.remote.ip(), password) {
                Ok(()) => self.lines.password_changed(),
                Err(error) => {
                    self.lines.password_refused(&error);
                    self.input(Input::Stop(Goodbye::reset("the password has changed")));
                    self.restart();
                }
            }
        } else if let Some(Dialling { id, .. }) = self.dialling {
            self.dial(id);
        } else {
            self.restart();
        }
    }

    /// Connects at once: what was wrong may be right by now.
    fn restart(&mut self) {
        if !self.leaves {
            self.input(Input::Start);
        }
    }

    // ---- the connection ----

    fn dial(&mut self, id: ConnectionId) {
        self.awaited = None;
        let attempt = Box::pin(dial(self.plan.clone(), self.node.clone(), Arc::clone(&self.end)));
        self.dialling = Some(Dialling { id, attempt });
    }

    fn dialled(&mut self, id: ConnectionId, dialled: Result<Dialled, NotDialled>) {
        self.dialling = None;
        match dialled {
            Ok(Dialled { stream, address, local }) => {
                self.line = Some(Line::new(id, address, stream));
                self.input(Input::Connected { connection: id, local });
            }
            Err(error) => {
                self.input(Input::ConnectFailed { connection: id, error: error.to_string() });
                if let NotDialled::Excluded(taken) = error {
                    self.awaited = Some(taken.pair());
                    if let Taken::Session(rival) = taken {
                        self.rival = Some(rival);
                    }
                }
            }
        }
    }

    async fn attend(&mut self, ready: io::Result<Ready>) {
        match ready {
            // Only a socket that is no longer watched is not ready; that ends with the runtime.
            Err(error) => self.lost(Some(error.to_string())),
            Ok(ready) => {
                // What is to be written is, in any case.
                if ready.is_readable() || ready.is_read_closed() {
                    self.read(Line::read);
                }
            }
        }
        // A peer that never stops is one of several. Its socket stays ready, so that it would be heard again and again
        // before anybody else is asked.
        tokio::task::yield_now().await;
    }

    /// Hands over what has come, as far as one buffer holds it; whether there was something.
    fn read(&mut self, read: impl FnOnce(&Line, &mut [u8]) -> io::Result<Option<usize>>) -> bool {
        let Some(line) = &self.line else { return false };
        let connection = line.id;
        match read(line, &mut self.buffer[..]) {
            Ok(None) => return false,
            Ok(Some(0)) => self.lost(None),
            Ok(Some(count)) => {
                let bytes = self.buffer.get(..count).unwrap_or_default();
                self.session.handle(self.clocks.now(), Input::Received { connection, bytes });
            }
            Err(error) => self.lost(Some(error.to_string())),
        }
        true
    }

    /// Hands over what the operating system knows of the peer, before time is looked at.
    fn look(&mut self) {
        // A KEEPALIVE in a buffer is a sign of life. The first messages that lie there are enough.
        self.read(Line::look);
        if let Some(line) = &self.line {
            let (connection, bytes) = (line.id, line.unacknowledged());
            self.input(Input::Unacknowledged { connection, bytes });
        }
    }

    /// The connection is no more.
    fn lost(&mut self, error: Option<String>) {
        if let Some(line) = self.line.take() {
            self.input(Input::Closed { connection: line.id, error: line.broken.or(error) });
        }
    }

    // ---- what the session wants ----

    /// Does what the session wants; whether there is more.
    fn carry_out(&mut self) -> bool {
        for _ in 0..ROUNDS {
            while let Some(output) = self.session.poll() {
                self.carry_out_one(output);
            }
            let Some(line) = &mut self.line else { return false };
            match line.flush() {
                Ok(0) => return false,
                Ok(bytes) => {
                    let connection = line.id;
                    self.input(Input::Written { connection, bytes });
                }
                Err(error) => {
                    // What the peer still had to say, a NOTIFICATION maybe, comes first: by the buffer, too.
                    line.broken.get_or_insert_with(|| error.to_string());
                    if !self.read(Line::look) {
                        self.lost(None);
                    }
                }
            }
        }
        true
    }

    fn carry_out_one(&mut self, output: Output) {
        match output {
            Output::Connect(id) => self.dial(id),
            Output::Send { connection, bytes } => {
                if let Some(line) = self.line.as_mut().filter(|line| line.id == connection) {
                    line.send(bytes);
                }
            }
            Output::Close { connection, how } => {
                self.dialling.take_if(|dialling| dialling.id == connection);
                if let Some(line) = self.line.take_if(|line| line.id == connection) {
                    match how {
                        Close::AfterWriting => drop(self.last_words.spawn(line.say_last_word())),
                        Close::AtOnce => line.close(),
                    }
                }
            }
            Output::State { to, .. } => {
                self.end.set_up(to == State::Established);
                self.lines.state(to);
            }
            Output::Notice(notice) => {
                self.lines.notice(&notice);
                self.findings.note(&notice);
            }
            Output::Stopped => self.over = self.leaves,
        }
    }

    // ---- reports ----

    /// Shows how the session is, if that is news; else says when it will be.
    fn show(&mut self) -> Option<Time> {
        let report = self.report();
        let now = self.clocks.now();
        match &self.shown {
            Some(shown) if *shown == report => return None,
            Some(shown) if only_numbers_differ(shown, &report) && now < self.quiet_until => {
                return Some(self.quiet_until);
            }
            _ => {}
        }
        self.quiet_until = now + NUMBERS_EVERY;
        self.shared.board.show(Box::new(report.clone()));
        self.shown = Some(report);
        None
    }

    fn report(&mut self) -> PeerReport {
        let version = self.session.untold_version();
        if version != self.untold.0 {
            self.untold = (version, Arc::new(self.session.untold()));
        }
        let status = self.session.status();
        PeerReport {
            state: status.state,
            since: status.since,
            remote: status.peer.cloned(),
            local: self.line.as_ref().map(|line| line.address),
            wanted: status.wanted,
            told: status.told,
            settled: status.settled,
            next_attempt: status.next_attempt,
            last_down: status.last_down.cloned(),
            last_drop: status.last_drop.cloned(),
            drops: status.drops,
            counters: self.session.counters(),
            untold: Arc::clone(&self.untold.1),
            finding: self.findings.text(),
            rival: self.rival.clone().filter(|rival| is_why(status.last_down, status.state, rival)),
        }
    }
}

impl Findings {
    fn note(&mut self, notice: &Notice) {
        match (notice, lines::finding(notice)) {
            (Notice::HeldBack { family, .. }, Some(text)) => drop(self.held_back.insert(*family, text)),
            (Notice::HeldBack { family, .. }, None) => drop(self.held_back.remove(family)),
            (Notice::TooLong { .. } | Notice::AllFit, text) => self.too_long = text,
            (Notice::Faults(_), text) => self.faults = text,
            (Notice::Down { .. }, _) => self.end_session(),
            (_, Some(text)) if !self.session.contains(&text) => self.session.push(text),
            _ => {}
        }
    }

    /// Forgets what is found anew in the next session.
    fn end_session(&mut self) {
        self.session.clear();
        (self.too_long, self.faults) = (None, None);
    }

    fn text(&self) -> Option<String> {
        let all = self.held_back.values().chain(&self.too_long).chain(&self.session).chain(&self.faults);
        let all: Vec<&str> = all.map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// The connection that is being dialled, once it is there or cannot be had.
async fn connected(dialling: &mut Option<Dialling>) -> (ConnectionId, Result<Dialled, NotDialled>) {
    match dialling {
        Some(Dialling { id, attempt }) => (*id, attempt.as_mut().await),
        None => pending().await,
    }
}

/// Waits until nobody else has the two addresses that are waited for.
async fn free(end: &Holder, awaited: Option<Pair>) {
    match awaited {
        Some(pair) => end.freed(pair).await,
        None => pending().await,
    }
}

/// Whether it is still for this one that there is no session.
fn is_why(last_down: Option<&(Time, Down)>, state: State, rival: &Rival) -> bool {
    let found = |down: &Down| matches!(down, Down::NotConnected(error) if *error == rival.to_string());
    state != State::Established && last_down.is_some_and(|(_, down)| found(down))
}

async fn ready(line: Option<&Line>) -> io::Result<Ready> {
    match line {
        Some(line) => line.ready().await,
        None => pending().await,
    }
}

/// Whether a connection by this plan would come from this address.
fn comes_from(plan: &PeerPlan, address: IpAddr) -> bool {
    plan.source.or_else(|| chosen(plan.remote).ok()) == Some(address)
}

/// What of a plan only another connection has, by what somebody changed for it.
fn moved(before: &PeerPlan, after: &PeerPlan) -> Option<&'static str> {
    let hops = before.hops != after.hops;
    // How far a peer may be depends on whether it is of the own autonomous system.
    let own = before.settings.asn != after.settings.asn;
    let theirs = before.settings.peer != after.settings.peer;
    [
        (before.remote.ip() != after.remote.ip(), "the peer's address"),
        (before.remote != after.remote, "the peer's port"),
        (before.source != after.source, "the source address"),
        (hops && own, "the own autonomous system"),
        (hops && theirs, "the peer's autonomous system"),
        (hops, "the distance that a peer may have"),
        (before.router_id != after.router_id, "the router ID"),
    ]
    .into_iter()
    .find_map(|(moved, what)| moved.then_some(what))
}

fn only_numbers_differ(one: &PeerReport, other: &PeerReport) -> bool {
    let PeerReport { wanted, told, settled, counters, ref untold, .. } = *other;
    PeerReport { wanted, told, settled, counters, untold: Arc::clone(untold), ..one.clone() } == *other
}

/// Bytes that are read at a time: four messages at least.
pub(super) const READ: usize = 16 * 1024;

/// How often what was written makes room for more before others get their turn, and whether it does is seen.
const ROUNDS: usize = 2;

/// How often at most what only numbers say is news.
const NUMBERS_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use ferrolb_bgp::wire::{Families, Fault, FaultKind, RouterId, TooLong, Treatment};
    use ferrolb_bgp::{PeerAs, Settings};
    use ferrolb_net_types::Asn;
    use ferrolb_speaker_core::bgp::Hops;

    use super::super::board::Board;
    use super::super::mailbox::Mailbox;
    use super::*;

    #[test]
    fn what_has_changed_is_what_somebody_changed() {
        let asn = |number| Asn::new(number).unwrap();
        let before = PeerPlan {
            settings: Settings::frr(asn(64_512), PeerAs::Exactly(asn(64_513)), Families::V4),
            remote: "192.0.2.1:179".parse().unwrap(),
            source: None,
            password: None,
            hops: Hops::Direct,
            router_id: None,
        };
        let of = |change: &dyn Fn(&mut PeerPlan)| {
            let mut after = before.clone();
            change(&mut after);
            moved(&before, &after)
        };
        assert_eq!(of(&|_| {}), None);
        assert_eq!(of(&|plan| plan.remote.set_ip([192, 0, 2, 2].into())), Some("the peer's address"));
        assert_eq!(of(&|plan| plan.remote.set_port(1179)), Some("the peer's port"));
        assert_eq!(of(&|plan| plan.source = Some([192, 0, 2, 3].into())), Some("the source address"));
        assert_eq!(of(&|plan| plan.hops = Hops::Multihop), Some("the distance that a peer may have"));
        // From outside to inside, from either end.
        let own = |plan: &mut PeerPlan| (plan.settings.asn, plan.hops) = (asn(64_513), Hops::Multihop);
        assert_eq!(of(&own), Some("the own autonomous system"));
        for peer in [PeerAs::Exactly(asn(64_512)), PeerAs::Internal] {
            let theirs = |plan: &mut PeerPlan| (plan.settings.peer, plan.hops) = (peer, Hops::Multihop);
            assert_eq!(of(&theirs), Some("the peer's autonomous system"));
        }
        // What makes no difference to the connection is the session's business.
        assert_eq!(of(&|plan| plan.settings.asn = asn(64_514)), None);
        let id = RouterId::new([192, 0, 2, 9].into());
        assert_eq!(of(&|plan| plan.router_id = id), Some("the router ID"));
    }

    #[tokio::test]
    async fn who_was_refused_for_another_peer_connects_as_soon_as_that_one_is_gone() {
        let ends = Arc::new(Ends::default());
        let first = ends.holder(&"first".into());
        let remote = "127.10.41.1:9".parse().unwrap();
        let own = chosen(remote).unwrap();
        first.take((remote, own)).await.unwrap();
        first.set_up(true);

        let asn = |number| Asn::new(number).unwrap();
        let plan = PeerPlan {
            settings: Settings::native(asn(64_512), PeerAs::Exactly(asn(64_513))),
            remote,
            source: None,
            password: None,
            hops: Hops::Unlimited,
            router_id: None,
        };
        let shared = Arc::new(Shared { mailbox: Mailbox::default(), board: Board::new(Arc::default()) });
        let clocks = Clocks::start();
        let mut task = Task::new("n1".into(), "second".into(), plan, 1, clocks, shared, &ends);
        // As if it had tried for minutes.
        let mut last = None;
        for _ in 0..8 {
            if let Some(connection) = last {
                task.input(Input::ConnectFailed { connection, error: "refused".to_owned() });
            }
            let due = task.session.next_deadline().unwrap();
            task.session.handle_timeout(due);
            while let Some(output) = task.session.poll() {
                if let Output::Connect(id) = output {
                    last = Some(id);
                }
            }
        }
        let rival = Rival { peer: "first".into(), remote, own };
        task.dialled(last.unwrap(), Err(NotDialled::Excluded(Taken::Session(rival.clone()))));
        task.carry_out();
        assert_eq!(task.report().rival, Some(rival));
        let next = task.report().next_attempt.unwrap();
        assert!(next > clocks.now() + Duration::from_secs(60), "{next:?}");

        drop(first);
        while task.dialling.is_none() {
            task.wait(None).await;
            task.carry_out();
        }
        assert!(clocks.now() < next);
        assert_eq!(task.report().state, State::Connect);
    }

    #[test]
    fn a_finding_is_gone_with_its_cause() {
        let mut findings = Findings::default();
        for length in [5000, 6000] {
            findings.note(&Notice::TooLong { routes: 1, error: TooLong(length) });
        }
        findings.note(&Notice::FamilyRefused(IpFamily::V6));
        let text = findings.text().unwrap();
        assert_eq!(text.matches("cannot be told").count(), 1, "the latest: {text}");
        findings.note(&Notice::AllFit);
        assert_eq!(findings.text().unwrap(), "the peer does not take IPv6 routes");
        findings.note(&Notice::TooLong { routes: 1, error: TooLong(5000) });
        let fault =
            |attribute| Fault { attribute, kind: FaultKind::Malformed, treatment: Treatment::Withdraw };
        for faults in [vec![fault(2)], vec![fault(2), fault(8)]] {
            findings.note(&Notice::Faults(faults));
        }
        let text = findings.text().unwrap();
        assert_eq!(text.matches("AS_PATH").count(), 1, "all of them once: {text}");
        findings.end_session();
        assert_eq!(findings.text(), None);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Time, and everything that is on its way: news to processes, writes to the API server, answers back.
//!
//! What happens next is always the earliest of what lies ahead; nothing else makes time pass.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use ferrolb_api::Clock;
use ferrolb_api::request::ApiRequest;
use ferrolb_config::Config;
use ferrolb_controller_core::{LeaseRequest, WriteId};
use ferrolb_net_types::Time;
use jiff::Timestamp;

use super::api::{Api, Kind, News};
use super::process::{Arrival, Knowledge, Process, shown};
use super::shape::SERVICES;
use super::step::{Fate, Theft};
use super::tally::{Mark, Tally};
use super::{Verdict, Violation};
use crate::rng::Rng;

/// How many controllers there are, and what keeps them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// There is never more than one.
    Alone,
    /// There are two, and a Lease.
    Lease,
}

impl Mode {
    pub(crate) const fn replicas(self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Lease => 2,
        }
    }
}

/// When the simulated clocks stand at zero.
const EPOCH: i64 = 1_700_000_000;
/// How long a leader may be dead before somebody else leads.
pub(crate) const TAKEOVER: u64 = 5_000;
/// Where nothing but the Lease was written for so long, everything is at rest.
const PEACE: u64 = 8_000;
/// More than this many happenings in one sequence are a loop.
const TOO_MANY: u64 = 60_000;

/// A write on its way.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) process: u64,
    pub(crate) id: WriteId,
    pub(crate) request: ApiRequest,
    pub(crate) fate: Option<Fate>,
    /// What its sender knew, for the writes of Services.
    pub(crate) mind: Option<Box<Mind>>,
}

/// What a process knew when it decided.
#[derive(Debug)]
pub(crate) struct Mind {
    pub(crate) knows: Knowledge,
    pub(crate) config: Rc<Config>,
    /// The configuration before the last inputs: what was decided upon it may be sent in the same moment.
    pub(crate) before: Option<Rc<Config>>,
}

/// Something that is going to happen.
#[derive(Debug)]
pub(crate) enum Happening {
    News {
        process: u64,
        epoch: u64,
        news: News,
    },
    Relist {
        process: u64,
        epoch: u64,
        kind: Kind,
    },
    /// A write reaches the API server.
    Write(Box<Sent>),
    /// So does a request about the Lease.
    Lease {
        process: u64,
        turn: u64,
        request: Box<LeaseRequest>,
        fate: Option<Fate>,
    },
    /// And a fresh reading of all Services.
    List {
        process: u64,
    },
    /// Something reaches a process.
    Arrives {
        process: u64,
        arrival: Box<Arrival>,
    },
    /// A process may have something to do.
    Wake,
    GoOn {
        process: u64,
    },
    Start {
        pod: Option<u64>,
    },
    /// A stranger answers.
    Rival(usize),
    /// By now somebody leads in place of a leader that died.
    Succession(u64),
}

/// Everything.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) rng: Rng,
    /// Milliseconds since the clocks stood at zero.
    pub(crate) now: u64,
    pub(crate) ahead: BTreeMap<(u64, u64), Happening>,
    order: u64,
    pub(crate) api: Api,
    pub(crate) mode: Mode,
    /// Those that run.
    pub(crate) processes: Vec<Process>,
    /// How many there were.
    pub(crate) started: u64,
    /// No new process before this, where nothing but that keeps two apart.
    pub(crate) vacant_until: u64,
    /// What the next writes meet.
    pub(crate) fates: VecDeque<Fate>,
    /// What the next requests about the Lease meet.
    pub(crate) lease_fates: VecDeque<Fate>,
    pub(crate) outage_until: u64,
    /// Until when some process may not have got over a mishap with the Lease.
    pub(crate) lease_trouble_until: u64,
    /// A leader died, and somebody has to lead by then.
    pub(crate) succession: Option<u64>,
    /// How many more writes of each status a stranger answers.
    pub(crate) contests: [u8; SERVICES],
    /// When somebody other than the controller changed something, lately.
    pub(crate) disturbances: VecDeque<u64>,
    /// When a controller last wrote anything but the Lease.
    pub(crate) wrote: u64,
    pub(crate) tally: Tally,
    /// Whether to write the story down.
    pub(crate) recording: bool,
    pub(crate) story: Vec<String>,
}

impl World {
    pub(crate) fn new(mode: Mode, recording: bool) -> Self {
        Self {
            rng: Rng::new(0),
            now: 1,
            ahead: BTreeMap::new(),
            order: 0,
            api: Api::new(),
            mode,
            processes: Vec::new(),
            started: 0,
            vacant_until: 0,
            fates: VecDeque::new(),
            lease_fates: VecDeque::new(),
            outage_until: 0,
            lease_trouble_until: 0,
            succession: None,
            contests: [0; SERVICES],
            disturbances: VecDeque::new(),
            wrote: 0,
            tally: Tally::default(),
            recording,
            story: Vec::new(),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        let wall = Timestamp::UNIX_EPOCH + Duration::from_millis(EPOCH as u64 * 1000 + self.now);
        Clock { now: Time::millis(self.now), wall }
    }

    /// Writes a line of the story, if anybody will read it.
    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.recording {
            self.story.push(format!("{:>8} ms  {}", self.now, line()));
        }
    }

    /// Lets something happen then, or now if that is over.
    pub(crate) fn at(&mut self, when: u64, what: Happening) {
        self.order += 1;
        self.ahead.insert((when.max(self.now), self.order), what);
    }

    /// How long a message takes.
    pub(crate) fn delay(&mut self) -> u64 {
        match self.rng.below(20) {
            0..=9 => self.rng.below(2),
            10..=16 => self.rng.below(6),
            _ => self.rng.below(40),
        }
    }

    /// Lets everything happen that happens until then.
    pub(crate) fn run_until(&mut self, end: u64) -> Verdict {
        while let Some((&(when, _), _)) = self.ahead.first_key_value()
            && when <= end
        {
            self.instant(when)?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Lets everything happen that happens by itself.
    pub(crate) fn run_dry(&mut self) -> Verdict {
        self.fates.clear();
        self.lease_fates.clear();
        self.contests = [0; SERVICES];
        if self.processes.is_empty()
            && !self.ahead.values().any(|what| matches!(what, Happening::Start { .. }))
        {
            self.start(None);
        }
        let limit = self.now + 4 * 3_600_000;
        loop {
            let last = match self.mode {
                // Without a Lease there is an end to it.
                Mode::Alone => self.ahead.last_key_value().map(|(&(when, _), _)| when),
                // With one there is none, but it leaves everything else in peace.
                Mode::Lease => {
                    let busy =
                        |what: &Happening| matches!(what, Happening::Write(_) | Happening::GoOn { .. });
                    let last =
                        self.ahead.iter().rev().find(|(_, what)| busy(what)).map(|(&(when, _), _)| when);
                    let quiet = self.wrote.max(self.outage_until) + PEACE;
                    last.into_iter().chain((quiet > self.now).then_some(quiet)).max()
                }
            };
            let Some(last) = last else { return Ok(()) };
            if last > limit {
                let what = "it does not come to rest within hours".to_owned();
                return Err(Violation::of(Mark::QuietAtRest, what));
            }
            self.run_until(last)?;
        }
    }

    /// Everything of one millisecond, then the processes that are concerned.
    fn instant(&mut self, when: u64) -> Verdict {
        self.now = when;
        while let Some(entry) = self.ahead.first_entry()
            && entry.key().0 == when
        {
            let what = entry.remove();
            self.happen(what)?;
        }
        if self.order > TOO_MANY {
            return Err(Violation::of(Mark::BoundedWrites, "it goes on and on".to_owned()));
        }
        for which in 0..self.processes.len() {
            self.run_process(which)?;
        }
        self.processes.retain(|process| !process.leaves || !process.core.is_stopped());
        Ok(())
    }

    fn happen(&mut self, what: Happening) -> Verdict {
        match what {
            Happening::News { process: number, epoch, news } => {
                if let Some(process) = self.process_of(number)
                    && process.watches[&news.kind()].epoch == epoch
                {
                    process.inbox.push(Arrival::News(news));
                }
            }
            Happening::Relist { process: number, epoch, kind } => {
                let outage = self.outage_until;
                if self.process_of(number).is_none_or(|process| process.watches[&kind].epoch != epoch) {
                    return Ok(());
                }
                if self.now < outage {
                    self.at(outage, Happening::Relist { process: number, epoch, kind });
                    return Ok(());
                }
                let news = self.api.list(kind);
                if let Some(process) = self.process_of(number)
                    && let Some(watch) = process.watches.get_mut(&kind)
                {
                    watch.broken = false;
                }
                self.send_news(number, &news);
            }
            Happening::Write(sent) => return self.arrive(*sent),
            Happening::Lease { process, turn, request, fate } => {
                self.lease_arrives(process, turn, &request, fate);
            }
            Happening::List { process } => self.list_arrives(process),
            Happening::Arrives { process: number, arrival } => {
                if let Some(process) = self.process_of(number) {
                    process.inbox.push(*arrival);
                }
            }
            Happening::Wake => {}
            Happening::GoOn { process: number } => {
                if let Some(process) = self.process_of(number) {
                    process.asleep = false;
                    self.tell(|| format!("controller {number} goes on"));
                }
            }
            Happening::Start { pod } => {
                self.start(pod);
            }
            Happening::Rival(slot) => {
                self.tell(|| format!("a stranger answers with a status of {}", shown(slot)));
                let wall = self.clock().wall;
                if self.api.steal_status(slot, &[("9.9.9.9", "")], wall) {
                    self.disturbed();
                }
            }
            Happening::Succession(due) if self.succession == Some(due) => {
                let what = format!("nobody leads {TAKEOVER} ms after a leader died");
                return Err(Violation::of(Mark::Succession, what));
            }
            Happening::Succession(_) => {}
        }
        Ok(())
    }

    /// The controller that decides.
    pub(crate) fn leader(&self) -> Option<&Process> {
        match self.mode {
            Mode::Alone => self.processes.first(),
            Mode::Lease => self.processes.iter().find(|process| process.leads),
        }
    }

    /// A process that runs.
    pub(crate) fn process_of(&mut self, number: u64) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.number == number)
    }

    /// Lets the watches tell what the API server has news of.
    pub(crate) fn publish(&mut self) {
        for news in std::mem::take(&mut self.api.news) {
            for which in 0..self.processes.len() {
                self.send_news(self.processes[which].number, &news);
            }
        }
    }

    fn send_news(&mut self, number: u64, news: &News) {
        let when = self.now + self.delay();
        let Some(process) = self.process_of(number) else { return };
        let watch = process.watches.entry(news.kind()).or_default();
        if watch.broken {
            return;
        }
        watch.last = watch.last.max(when);
        let (when, epoch) = (watch.last, watch.epoch);
        self.at(when, Happening::News { process: number, epoch, news: news.clone() });
    }

    // ---- processes ----

    fn run_process(&mut self, which: usize) -> Verdict {
        let clock = self.clock();
        let now = self.now;
        let process = &mut self.processes[which];
        let due = process.wake.is_some_and(|at| at <= now);
        if process.asleep || process.inbox.is_empty() && !due {
            return Ok(());
        }
        process.before = process.configuration.config.clone();
        let inbox = std::mem::take(&mut process.inbox);
        if self.recording {
            let number = process.number;
            let heard: Vec<String> = inbox.iter().filter_map(Arrival::said).collect();
            if !heard.is_empty() {
                self.tell(|| format!("controller {number} hears {}", heard.join(", ")));
            }
        }
        let process = &mut self.processes[which];
        for arrival in inbox {
            if process.hear(clock, arrival) {
                self.tally.count(Mark::StaleEvent);
            }
        }
        if due {
            process.wake = None;
            process.core.handle_timeout(clock);
        }
        process.evaluate();
        while let Some(effect) = self.processes[which].core.poll() {
            self.carry_out(which, effect)?;
        }
        let process = &mut self.processes[which];
        let Some(deadline) = process.core.next_deadline() else {
            process.wake = None;
            return Ok(());
        };
        // Never early: a clock is read after the time has come.
        let nanos = deadline.since_start().as_nanos();
        let at = u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX).max(now + 1);
        if process.wake != Some(at) {
            process.wake = Some(at);
            self.at(at, Happening::Wake);
        }
        Ok(())
    }

    /// Somebody other than the controller changed something: watches hear of it.
    pub(crate) fn disturbed(&mut self) {
        self.disturbances.push_back(self.now);
        self.publish();
    }

    /// A stranger writes a status.
    pub(crate) fn steal(&mut self, slot: usize, theft: Theft) -> bool {
        let texts: Vec<String>;
        let entries: Vec<(&str, &str)> = match theft {
            Theft::Empty => vec![],
            Theft::These(entries) => entries.to_vec(),
            Theft::Of(other) => {
                let Some(victim) = &self.api.services[other] else { return false };
                texts = victim.facts.ips().map(|ip| ip.to_string()).collect();
                texts.iter().map(|text| (text.as_str(), "")).collect()
            }
        };
        let wall = self.clock().wall;
        self.api.steal_status(slot, &entries, wall)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What befalls processes, watches and the API server.

use super::api::Kind;
use super::process::{Arrival, Process};
use super::tally::Mark;
use super::world::{Happening, Mode, TAKEOVER, World};

impl World {
    /// Starts a controller, if there is room for one. Where there may be one only, that is not right after another
    /// one's death: what that one has sent must have arrived.
    ///
    /// `pod` is that of a process that died, if its container starts again.
    pub(crate) fn start(&mut self, pod: Option<u64>) -> bool {
        if self.processes.len() >= self.mode.replicas() {
            return false;
        }
        if self.mode == Mode::Alone && self.now < self.vacant_until {
            self.at(self.vacant_until, Happening::Start { pod });
            return true;
        }
        self.started += 1;
        let number = self.started;
        let pod = pod.unwrap_or(number);
        let process = Process::new(number, pod, self.mode, self.clock());
        self.processes.push(process);
        self.tell(|| format!("controller {number} starts in Pod {pod}"));
        for kind in Kind::ALL {
            let when = self.now.max(self.outage_until) + self.delay();
            self.at(when, Happening::Relist { process: number, epoch: 0, kind });
        }
        // The core may have something to do before it hears anything.
        self.at(self.now, Happening::Wake);
        true
    }

    /// The process that a step is about.
    fn chosen(&self, which: usize) -> Option<usize> {
        (!self.processes.is_empty()).then(|| which % self.processes.len())
    }

    /// Kills a controller; its Pod. What it had sent is lost, or arrives later.
    pub(crate) fn kill(&mut self, which: usize) -> Option<u64> {
        let which = self.chosen(which)?;
        let process = self.processes.remove(which);
        let number = process.number;
        self.tell(|| format!("controller {number} is killed"));
        let long = self.mode == Mode::Lease && self.rng.chance(50);
        let mut lingers = false;
        for key in self.sent_by(number) {
            let Some(mut what) = self.ahead.remove(&key) else { continue };
            if self.rng.chance(40) {
                continue;
            }
            match &mut what {
                Happening::Write(sent) => sent.fate = None,
                Happening::Lease { .. } => lingers = true,
                _ => {}
            }
            let when = self.now + self.rng.below(if long { 20_000 } else { 300 });
            self.at(when, what);
        }
        self.vacant_until = self.now + 400;
        self.succession = None;
        let heir = self.processes.iter().any(|other| !other.asleep && !other.leaves && !other.leads);
        lingers |= self.now < self.lease_trouble_until;
        if process.leads && heir && !lingers && self.now >= self.outage_until && self.lease_fates.is_empty() {
            let due = self.now + TAKEOVER;
            self.succession = Some(due);
            self.at(due, Happening::Succession(due));
        }
        Some(process.pod)
    }

    /// Kills a controller, whose container starts again after a moment.
    pub(crate) fn restart(&mut self, which: usize) -> bool {
        let Some(pod) = self.kill(which) else { return false };
        let when = self.now + self.rng.below(1500);
        self.at(when, Happening::Start { pod: Some(pod) });
        true
    }

    /// Asks a controller to end; it does so when it is ready.
    pub(crate) fn stop(&mut self, which: usize) -> bool {
        let Some(which) = self.chosen(which) else { return false };
        let process = &mut self.processes[which];
        if process.asleep || std::mem::replace(&mut process.leaves, true) {
            return false;
        }
        let number = process.number;
        process.inbox.push(Arrival::Stopping);
        self.tell(|| format!("controller {number} is asked to end"));
        self.vacant_until = self.now + 400;
        self.succession = None;
        self.at(self.now, Happening::Wake);
        if self.mode == Mode::Alone {
            // Nothing but time keeps what it sent apart from what its successor does.
            for key in self.sent_by(number) {
                if let Some(what) = self.ahead.remove(&key) {
                    let when = key.0.min(self.now + self.rng.below(300));
                    self.at(when, what);
                }
            }
        }
        true
    }

    /// What a process has sent and what has not arrived.
    fn sent_by(&self, number: u64) -> Vec<(u64, u64)> {
        let own = |what: &Happening| match what {
            Happening::Write(sent) => sent.process == number,
            Happening::Lease { process, .. } | Happening::List { process } => *process == number,
            _ => false,
        };
        self.ahead.iter().filter(|(_, what)| own(what)).map(|(key, _)| *key).collect()
    }

    /// A controller sleeps for a while. What it had sent goes on, or is held back until it is awake.
    pub(crate) fn pause(&mut self, which: usize, millis: u64) -> bool {
        let until = self.now + millis;
        let Some(which) = self.chosen(which) else { return false };
        let process = &mut self.processes[which];
        if process.asleep {
            return false;
        }
        process.asleep = true;
        let number = process.number;
        self.succession = None;
        self.tell(|| format!("controller {number} sleeps until {until} ms"));
        self.at(until, Happening::GoOn { process: number });
        for key in self.sent_by(number) {
            if self.rng.chance(50)
                && let Some(held) = self.ahead.remove(&key)
            {
                self.tally.count(Mark::HeldWrite);
                let when = until + self.rng.below(50);
                self.at(when, held);
            }
        }
        true
    }

    /// The API server is away: no write arrives, every watch breaks.
    pub(crate) fn outage(&mut self, millis: u64) {
        self.outage_until = self.outage_until.max(self.now + millis);
        self.succession = None;
        let until = self.outage_until;
        self.tell(|| format!("the API server is away until {until} ms"));
        for which in 0..self.processes.len() {
            for kind in Kind::ALL {
                self.break_watch(which, kind, millis);
            }
        }
    }

    /// A watch breaks and lists again after a while.
    pub(crate) fn break_watch(&mut self, which: usize, kind: Kind, millis: u64) -> bool {
        let when = (self.now + millis).max(self.outage_until) + self.delay();
        let Some(which) = self.chosen(which) else { return false };
        let process = &mut self.processes[which];
        let number = process.number;
        let watch = process.watches.entry(kind).or_default();
        watch.broken = true;
        watch.epoch += 1;
        let epoch = watch.epoch;
        self.at(when, Happening::Relist { process: number, epoch, kind });
        true
    }

    /// Nothing that a watch tells arrives before a while has passed.
    pub(crate) fn lag_watch(&mut self, which: usize, kind: Kind, millis: u64) -> bool {
        let until = self.now + millis;
        let Some(which) = self.chosen(which) else { return false };
        let process = &mut self.processes[which];
        let watch = process.watches.entry(kind).or_default();
        watch.last = watch.last.max(until);
        true
    }
}

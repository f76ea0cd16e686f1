// SPDX-License-Identifier: Apache-2.0
//! What processes and the API server have to say to each other.
//!
//! The one place where the effects of a core are carried out, and where what is sent meets its fate.

use std::net::IpAddr;

use ferrolb_api::request::{ApiRequest, Resource, WriteError, WriteResult};
use ferrolb_controller_core::{Effect, LeaseRequest, Neighbours, WriteId};
use k8s_openapi::api::coordination::v1::Lease;

use super::api::{Stored, refusal};
use super::judge;
use super::process::{Arrival, Doubt};
use super::shape::service_slot;
use super::step::Fate;
use super::tally::Mark;
use super::world::{Happening, Mind, Sent, World};
use super::{Verdict, Violation};

/// How long a process waits for an answer about the Lease.
const PATIENCE: u64 = 3_000;

impl World {
    /// The one place where the effects of a core are carried out.
    pub(crate) fn carry_out(&mut self, which: usize, effect: Effect) -> Verdict {
        match effect {
            Effect::Write { id, request } => self.send(which, id, request),
            Effect::Event(event) => {
                self.tell(|| format!("event {}: {} {}", event.regarding.name, event.reason, event.message));
                judge::event(self, which, &event)
            }
            Effect::PoolCounters { pool, counters } => {
                let gauges = &mut self.processes[which].gauges;
                match counters {
                    None => gauges.remove(pool.as_str()),
                    Some(c) => {
                        let figures = [c.ipv4.in_use, c.ipv6.in_use, c.ipv4.available(), c.ipv6.available()];
                        gauges.insert(pool.to_string(), figures)
                    }
                };
                Ok(())
            }
            Effect::Leads(leads) => {
                self.leads(which, leads);
                Ok(())
            }
            Effect::Lease(request) => {
                self.send_lease(which, request);
                Ok(())
            }
            Effect::ListServices => {
                let process = self.processes[which].number;
                let when = self.now + self.delay();
                self.at(when, Happening::List { process });
                Ok(())
            }
            // There are none.
            Effect::FindRivals => {
                let process = self.processes[which].number;
                let arrival = Arrival::Rivals(Neighbours::default());
                self.at(self.now + 1, Happening::Arrives { process, arrival: Box::new(arrival) });
                Ok(())
            }
            Effect::Configuration { .. } | Effect::Reconciled { .. } => Ok(()),
        }
    }

    fn send(&mut self, which: usize, id: WriteId, request: ApiRequest) -> Verdict {
        self.tally.requests += 1;
        self.wrote = self.now;
        self.check_pace(which, &request)?;
        let process = &mut self.processes[which];
        let number = process.number;
        let slot = match request.resource {
            Resource::Services => request.name.as_deref().and_then(service_slot),
            _ => None,
        };
        let mind = slot.zip(process.configuration.config.clone()).map(|(slot, config)| {
            let ips = addresses(&request);
            // Not the one that is known now: a write may be let go in the moment in which a newer one is heard of.
            let number = version(&request);
            let upon = self.api.history[slot].iter().rev().find(|version| version.number == number);
            if let Some(upon) = upon {
                process.knows.write(slot, upon, &ips);
            }
            process.under_way.insert(id, Doubt { slot, version: number, ips });
            Box::new(Mind { knows: process.knows.clone(), before: process.before.clone(), config })
        });
        let fate = self.fates.pop_front();
        let (arrives, gives_up) = match fate {
            Some(Fate::Late) => {
                let patience = self.rng.below(300);
                (patience + self.rng.below(2500), Some(patience))
            }
            Some(Fate::Slow) => (self.rng.below(4000), None),
            _ => (self.delay(), None),
        };
        self.tell(|| {
            let fate = fate.map(|fate| format!(" ({fate:?}, after {arrives} ms)")).unwrap_or_default();
            format!("controller {number} sends {}{fate}", said(&request))
        });
        if let Some(patience) = gives_up {
            self.answer(number, id, patience, Err(WriteError::no_answer("timeout")), Stored::Nothing);
        }
        let sent = Sent { process: number, id, request, fate, mind };
        self.at(self.now + arrives, Happening::Write(Box::new(sent)));
        Ok(())
    }

    fn leads(&mut self, which: usize, leads: bool) {
        let others = self.processes.iter().any(|process| process.leads);
        let process = &mut self.processes[which];
        process.leads = leads;
        let number = process.number;
        self.tell(|| {
            format!("controller {number} {}", if leads { "leads" } else { "does not lead any more" })
        });
        if leads {
            self.tally.count_if(others, Mark::TwoLeaders);
            self.tally.count_if(self.succession.take().is_some(), Mark::Succession);
        } else {
            self.tally.count(Mark::Deposed);
        }
    }

    fn send_lease(&mut self, which: usize, request: LeaseRequest) {
        let process = self.processes[which].number;
        let fate = self.lease_fates.pop_front();
        let arrives = match fate {
            Some(Fate::Late | Fate::Slow) => self.rng.below(4000),
            _ => self.delay(),
        };
        if let Some(fate) = fate {
            self.succession = None;
            self.lease_trouble_until = self.now + 2 * PATIENCE;
            self.tell(|| format!("a request of controller {process} about the Lease meets {fate:?}"));
        }
        let turn = self.processes[which].asks_for_lease();
        let request = Box::new(request);
        self.at(self.now + arrives, Happening::Lease { process, turn, request, fate });
        self.answer_lease(process, turn, PATIENCE, Err(WriteError::no_answer("timeout")));
    }

    fn answer_lease(&mut self, process: u64, turn: u64, after: u64, result: Result<Lease, WriteError>) {
        let arrival = Box::new(Arrival::Lease { turn, result: result.map(Box::new) });
        self.at(self.now + after, Happening::Arrives { process, arrival });
    }

    /// A request about the Lease reaches the API server.
    pub(crate) fn lease_arrives(
        &mut self,
        process: u64,
        turn: u64,
        request: &LeaseRequest,
        fate: Option<Fate>,
    ) {
        let back = self.delay();
        let refused = match fate {
            _ if self.now < self.outage_until => Some(WriteError::no_answer("connection refused")),
            Some(Fate::Refused) => Some(refusal(500, "InternalError")),
            Some(Fate::Throttled) => Some(refusal(429, "TooManyRequests")),
            Some(Fate::LostRequest) => Some(WriteError::no_answer("connection reset")),
            _ => None,
        };
        if let Some(error) = refused {
            self.tally.count(Mark::LeaseTrouble);
            return self.answer_lease(process, turn, back, Err(error));
        }
        let result = self.api.execute_lease(request);
        self.tally.count_if(matches!(&result, Err(error) if error.is_conflict()), Mark::LeaseConflict);
        if fate.is_some() {
            self.tally.count(Mark::LeaseTrouble);
        }
        match fate {
            // The sender finds out by itself that it waits in vain.
            Some(Fate::Late) => {}
            Some(Fate::LostAnswer) => {
                self.answer_lease(process, turn, back, Err(WriteError::no_answer("connection reset")));
            }
            _ => self.answer_lease(process, turn, back, result),
        }
    }

    /// A fresh reading of all Services reaches the API server.
    pub(crate) fn list_arrives(&mut self, process: u64) {
        let back = if self.rng.chance(10) { self.rng.below(1500) } else { self.delay() };
        let result = if self.now < self.outage_until {
            Err(WriteError::no_answer("connection refused"))
        } else {
            Ok(self.api.services.iter().flatten().cloned().collect())
        };
        self.tally.count(Mark::FreshReading);
        let arrival = Box::new(Arrival::Listed(result));
        self.at(self.now + back, Happening::Arrives { process, arrival });
    }

    fn answer(&mut self, process: u64, id: WriteId, after: u64, result: WriteResult, stored: Stored) {
        let arrival = Box::new(Arrival::Answer { id, result, stored });
        self.at(self.now + after, Happening::Arrives { process, arrival });
    }

    /// No object is written more often than news of it, or a growing back-off, can explain.
    fn check_pace(&mut self, which: usize, request: &ApiRequest) -> Verdict {
        let now = self.now;
        while self.disturbances.front().is_some_and(|at| at + 2000 < now) {
            self.disturbances.pop_front();
        }
        let process = &mut self.processes[which];
        let name = request.name.clone().unwrap_or_default();
        let times = process.attempts.entry(format!("{:?} {name}", request.resource)).or_default();
        times.retain(|at| at + 1000 >= now);
        times.push(now);
        if times.len() > 1 {
            self.tally.count(Mark::BoundedWrites);
        }
        if times.len() > 12 + 3 * self.disturbances.len() {
            let (n, d) = (times.len(), self.disturbances.len());
            return Err(Violation::of(
                Mark::BoundedWrites,
                format!("{n} writes of {name} within a second, with {d} changes by others within two"),
            ));
        }
        Ok(())
    }

    /// A write reaches the API server.
    pub(crate) fn arrive(&mut self, sent: Sent) -> Verdict {
        let Sent { process: number, id, .. } = sent;
        let back = self.delay();
        let given_up = sent.fate == Some(Fate::Late);
        if self.now < self.outage_until {
            self.tally.count(Mark::Outage);
            if !given_up {
                self.answer(
                    number,
                    id,
                    back,
                    Err(WriteError::no_answer("connection refused")),
                    Stored::Nothing,
                );
            }
            return Ok(());
        }
        let refused = match sent.fate {
            Some(Fate::Refused) => Some((Mark::Refused, refusal(500, "InternalError"))),
            Some(Fate::Throttled) => Some((Mark::Throttled, refusal(429, "TooManyRequests"))),
            Some(Fate::LostRequest) => Some((Mark::LostRequest, WriteError::no_answer("connection reset"))),
            _ => None,
        };
        if let Some((mark, error)) = refused {
            self.tally.count(mark);
            self.answer(number, id, back, Err(error), Stored::Nothing);
            return Ok(());
        }
        let (result, stored) = self.api.execute(&sent.request);
        let deposed = sent.mind.is_some() && self.processes.iter().any(|p| p.leads && p.number != number);
        self.tally.count_if(deposed && result.is_ok(), Mark::LateLeader);
        self.tally.count_if(deposed && result.is_err(), Mark::LateLeaderRefused);
        match &result {
            Err(error) if error.is_not_found() => self.tally.count(Mark::Missing),
            Err(error) if error.is_conflict() => self.tally.count(Mark::Conflicted),
            Err(_) => {}
            Ok(_) => {
                let dead = self.process_of(number).is_none();
                let mark = match sent.fate {
                    Some(Fate::LostAnswer) => Some(Mark::LostAnswer),
                    Some(Fate::Late) => Some(Mark::LateWrite),
                    Some(Fate::Slow) => Some(Mark::SlowWrite),
                    _ => dead.then_some(Mark::DeadWrite),
                };
                if let Some(mark) = mark {
                    self.tally.count(mark);
                }
            }
        }
        self.tell(|| {
            let outcome = result.as_ref().map_or_else(ToString::to_string, |_| "stored".to_owned());
            format!("API server: {} of controller {number}: {outcome}", said(&sent.request))
        });
        if let Stored::Service { before, after } = &stored {
            judge::commit(self, &sent, before, after)?;
            let slot = after.slot;
            if self.contests[slot] > 0 && before.number != after.number {
                self.contests[slot] -= 1;
                self.tally.count(Mark::StatusContested);
                self.at(self.now + 1, Happening::Rival(slot));
            }
        }
        self.publish();
        match sent.fate {
            Some(Fate::LostAnswer) => {
                self.answer(
                    number,
                    id,
                    back,
                    Err(WriteError::no_answer("connection reset")),
                    Stored::Nothing,
                );
            }
            Some(Fate::Late) => {}
            _ => self.answer(number, id, back, result, stored),
        }
        Ok(())
    }
}

/// The addresses that a write of a Service's status would store.
pub(crate) fn addresses(request: &ApiRequest) -> Vec<IpAddr> {
    let ingress = request.body.as_ref().map(|body| &body["status"]["loadBalancer"]["ingress"]);
    let entries = ingress.and_then(|ingress| ingress.as_array()).into_iter().flatten();
    entries.filter_map(|entry| entry["ip"].as_str()?.parse().ok()).collect()
}

/// The version of the object that a write replaces.
fn version(request: &ApiRequest) -> u64 {
    let number = request.body.as_ref().and_then(|body| body["metadata"]["resourceVersion"].as_str());
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// A write in a line of the story.
fn said(request: &ApiRequest) -> String {
    let name = request.name.as_deref().unwrap_or("a new object");
    match request.resource {
        Resource::Services => {
            format!("{name} = {:?} upon version {}", addresses(request), version(request))
        }
        other => format!("{} {} {name}", request.method(), other.kind()),
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The counters of pools: as figures for the metrics, and in the pools' status.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrolb_api::request::{ApiRequest, Resource, Verb, WriteError};
use ferrolb_api::{IPAddressPool, IPAddressPoolStatus};
use ferrolb_ipam::Counters;
use ferrolb_net_types::{PoolName, Time};

use crate::backoff::Backoff;
use crate::contest::{Contest, Round};
use crate::io::Effect;

/// Every pool whose counters were ever shown.
#[derive(Debug, Default)]
pub(crate) struct PoolStatuses {
    /// Pools to look at, each once for any number of changes.
    changed: BTreeSet<PoolName>,
    /// Those whose status is to be written as soon as anything may be.
    barred: BTreeSet<PoolName>,
    shown: BTreeMap<PoolName, Counters>,
    writers: BTreeMap<PoolName, Writer>,
}

/// What is going on around one pool's status.
#[derive(Debug, Default)]
struct Writer {
    writing: bool,
    /// When the last write was sent.
    wrote: Option<Time>,
    backoff: Backoff,
    contest: Contest<Option<IPAddressPoolStatus>>,
}

/// Whether a pool's status has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// No.
    Never,
    /// Yes, but not yet.
    At(Time),
    /// Yes.
    Now,
}

/// From one write of a pool's status to the next: changes in between are written together.
const PACE: Duration = Duration::from_secs(1);

impl PoolStatuses {
    /// The pool, or its counters, changed.
    pub(crate) fn changed(&mut self, pool: PoolName) {
        self.changed.insert(pool);
    }

    /// Looks again at those that could not be written.
    pub(crate) fn resume(&mut self) {
        self.changed.append(&mut self.barred);
    }

    /// A pool to look at.
    pub(crate) fn next(&mut self) -> Option<PoolName> {
        self.changed.pop_first()
    }

    /// Every pool that was shown.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &PoolName> {
        self.shown.keys()
    }

    /// The figures to show, if they differ from those shown; `None` counters if the pool is not in use any more.
    pub(crate) fn show(&mut self, pool: &PoolName, counters: Option<Counters>) -> Option<Effect> {
        let before = match counters {
            Some(counters) => self.shown.insert(pool.clone(), counters),
            None => {
                self.writers.remove(pool);
                self.shown.remove(pool)
            }
        };
        (before != counters).then(|| Effect::PoolCounters { pool: pool.clone(), counters })
    }

    /// Compares the object's status with the counters.
    pub(crate) fn due(&mut self, now: Time, object: &IPAddressPool, counters: Counters) -> Due {
        let writer = self.writers.entry(name(object)).or_default();
        if object.status == Some(wanted(counters)) || writer.writing {
            return Due::Never;
        }
        let paced = writer.wrote.map(|at| at + PACE).filter(|at| *at > now);
        let contested = writer.contest.waits_until(now, &object.status);
        writer.backoff.waits_until(now).max(contested).max(paced).map_or(Due::Now, Due::At)
    }

    /// What is due has to wait until anything may be written.
    pub(crate) fn bar(&mut self, pool: PoolName) {
        self.barred.insert(pool);
    }

    /// The write that is due now.
    pub(crate) fn write(&mut self, now: Time, object: &IPAddressPool, counters: Counters) -> ApiRequest {
        let pool = name(object);
        let writer = self.writers.entry(pool.clone()).or_default();
        if writer.contest.round(now, &object.status) == Round::Begins {
            tracing::warn!(
                controller = "PoolStatusReconciler",
                %pool,
                "somebody else keeps changing the status of the pool; it is put right at growing intervals"
            );
        }
        writer.writing = true;
        writer.wrote = Some(now);
        let object = IPAddressPool { status: Some(wanted(counters)), ..object.clone() };
        // A plain structure with string keys: there is nothing in it that JSON could not say.
        let body = serde_json::to_value(&object).unwrap_or_default();
        let namespace = object.metadata.namespace.unwrap_or_default();
        ApiRequest::status(Verb::Put, Resource::IPAddressPools, &namespace, pool.as_str(), body)
    }

    /// A write ended well, and this is stored now.
    pub(crate) fn wrote(&mut self, pool: &PoolName, stored: Option<IPAddressPoolStatus>) {
        if let Some(writer) = self.writers.get_mut(pool) {
            writer.writing = false;
            writer.backoff.reset();
            writer.contest.wrote(stored);
        }
        self.changed(pool.clone());
    }

    /// A write failed; when to try again.
    pub(crate) fn failed(&mut self, now: Time, pool: &PoolName, error: &WriteError) -> Option<Time> {
        let writer = self.writers.get_mut(pool)?;
        writer.writing = false;
        // What was not stored does not count as a write.
        writer.wrote = None;
        Some(writer.backoff.failed(now, error.retry_after))
    }
}

fn name(object: &IPAddressPool) -> PoolName {
    object.metadata.name.clone().unwrap_or_default().into()
}

fn wanted(counters: Counters) -> IPAddressPoolStatus {
    IPAddressPoolStatus {
        assigned_ipv4: counters.ipv4.in_use,
        assigned_ipv6: counters.ipv6.in_use,
        available_ipv4: counters.ipv4.available(),
        available_ipv6: counters.ipv6.available(),
    }
}

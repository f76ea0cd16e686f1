// SPDX-License-Identifier: Apache-2.0
//! The counters of pools: as figures for the metrics, and in the pools' status.

use std::collections::{BTreeMap, BTreeSet};

use ferrolb_api::request::{ApiRequest, Resource, Verb};
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
    shown: BTreeMap<PoolName, Counters>,
    writers: BTreeMap<PoolName, Writer>,
}

/// What is going on around one pool's status.
#[derive(Debug, Default)]
struct Writer {
    writing: bool,
    backoff: Backoff,
    contest: Contest<Option<IPAddressPoolStatus>>,
}

/// What looking at a pool comes to.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Nothing to write.
    Fine,
    /// This is to be written.
    Write(ApiRequest),
    /// Something is to be written, but not yet.
    Later(Time),
}

impl PoolStatuses {
    /// The pool, or its counters, changed.
    pub(crate) fn changed(&mut self, pool: PoolName) {
        self.changed.insert(pool);
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
    pub(crate) fn look(&mut self, now: Time, object: &IPAddressPool, counters: Counters) -> Verdict {
        let name = object.metadata.name.clone().unwrap_or_default();
        let writer = self.writers.entry(name.as_str().into()).or_default();
        let wanted = IPAddressPoolStatus {
            assigned_ipv4: counters.ipv4.in_use,
            assigned_ipv6: counters.ipv6.in_use,
            available_ipv4: counters.ipv4.available(),
            available_ipv6: counters.ipv6.available(),
        };
        if object.status == Some(wanted) || writer.writing {
            return Verdict::Fine;
        }
        if let Some(later) =
            writer.backoff.waits_until(now).max(writer.contest.waits_until(now, &object.status))
        {
            return Verdict::Later(later);
        }
        if writer.contest.round(now, &object.status) == Round::Begins {
            tracing::warn!(
                controller = "PoolStatusReconciler",
                pool = name,
                "somebody else keeps changing the status of the pool; it is put right at growing intervals"
            );
        }
        writer.writing = true;
        let object = IPAddressPool { status: Some(wanted), ..object.clone() };
        // A plain structure with string keys: there is nothing in it that JSON could not say.
        let body = serde_json::to_value(&object).unwrap_or_default();
        let namespace = object.metadata.namespace.unwrap_or_default();
        Verdict::Write(ApiRequest::status(Verb::Put, Resource::IPAddressPools, &namespace, &name, body))
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
    pub(crate) fn failed(&mut self, now: Time, pool: &PoolName) -> Option<Time> {
        let writer = self.writers.get_mut(pool)?;
        writer.writing = false;
        Some(writer.backoff.failed(now))
    }
}

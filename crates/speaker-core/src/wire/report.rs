// SPDX-License-Identifier: Apache-2.0
//! What the wire side tells the control side: only what is news to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ferrolb_net_types::{InterfaceName, Time};

use super::membership::Membership;
use super::{Counters, Wire};

/// What the wire side did, as far as the control side should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// `owned` and `counters` are all there is; otherwise only what changed. The first report that has anything to
    /// say of addresses is complete.
    pub complete: bool,
    /// Addresses that this node owns now, with the interfaces on which it answers for them: none if it has none
    /// of those selected. `None`: it no longer owns the address.
    pub owned: BTreeMap<IpAddr, Option<BTreeSet<InterfaceName>>>,
    /// The names of the interfaces that can answer, if they changed.
    pub interfaces: Option<BTreeSet<InterfaceName>>,
    /// Totals of addresses whose counters changed, at most once per second; `None` for one whose counters ended.
    pub counters: BTreeMap<IpAddr, Option<Counters>>,
    /// Who the members are and what keeps others from being some, if that changed.
    pub membership: Option<Membership>,
}

/// What is to be reported, and what the control side knows.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) complete: bool,
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) interfaces: bool,
    pub(super) membership: bool,
    /// Something was counted; to be reported then.
    counters: Option<Time>,
    counters_due: bool,
    told: BTreeMap<IpAddr, BTreeSet<InterfaceName>>,
    told_counters: BTreeMap<IpAddr, Counters>,
}

impl Pending {
    /// Everything is to be reported.
    pub(super) const fn all() -> Self {
        Self {
            complete: true,
            addresses: BTreeSet::new(),
            interfaces: true,
            membership: true,
            counters: None,
            counters_due: false,
            told: BTreeMap::new(),
            told_counters: BTreeMap::new(),
        }
    }

    /// A report was lost.
    pub(super) const fn again(&mut self) {
        self.complete = true;
        self.interfaces = true;
        self.membership = true;
        self.counters_due = true;
    }

    /// A frame was given out, so something was counted.
    pub(super) fn counted(&mut self, now: Time) {
        self.counters.get_or_insert(now + COUNTERS_EVERY);
    }

    pub(super) const fn deadline(&self) -> Option<Time> {
        self.counters
    }
}

impl Wire {
    /// Looks whether counters are to be reported.
    pub(super) fn look_at_counters(&mut self, now: Time) {
        if self.report.counters.is_some_and(|time| time <= now) {
            self.report.counters = None;
            self.report.counters_due = true;
        } else if self.counters_changed() {
            self.report.counted(now);
        }
    }

    /// What the control side does not know yet, if anything. Of addresses there is nothing to say before all that
    /// decides about them is known.
    pub(super) fn take_report(&mut self) -> Option<Report> {
        let mut report = if self.ready() { self.addresses_report() } else { Report::default() };
        report.membership = std::mem::take(&mut self.report.membership).then(|| self.membership());
        (report != Report::default()).then_some(report)
    }

    fn addresses_report(&mut self) -> Report {
        let complete = std::mem::take(&mut self.report.complete);
        let mut addresses = std::mem::take(&mut self.report.addresses);
        if complete {
            self.report.told.clear();
            self.report.told_counters.clear();
            addresses.clone_from(&self.owned);
        }
        let mut owned = BTreeMap::new();
        for ip in addresses {
            let standing = self.owned.contains(&ip).then(|| self.answering(ip));
            if self.report.told.get(&ip) == standing.as_ref() {
                continue;
            }
            match &standing {
                Some(interfaces) => self.report.told.insert(ip, interfaces.clone()),
                None => self.report.told.remove(&ip),
            };
            owned.insert(ip, standing);
        }
        let interfaces = std::mem::take(&mut self.report.interfaces)
            .then(|| self.interfaces.iter().flatten().map(|interface| interface.name.clone()).collect());
        let counters = if std::mem::take(&mut self.report.counters_due) {
            self.take_counters()
        } else {
            BTreeMap::new()
        };
        Report { complete, owned, interfaces, counters, membership: None }
    }

    fn take_counters(&mut self) -> BTreeMap<IpAddr, Option<Counters>> {
        let current: BTreeMap<_, _> = self.engine.counters().collect();
        let told = std::mem::take(&mut self.report.told_counters);
        let ended = told.keys().filter(|ip| !current.contains_key(*ip)).map(|ip| (*ip, None));
        let changed = current
            .iter()
            .filter(|(ip, counters)| told.get(*ip) != Some(*counters))
            .map(|(ip, counters)| (*ip, Some(*counters)));
        let news = ended.chain(changed).collect();
        self.report.told_counters = current;
        news
    }

    fn counters_changed(&self) -> bool {
        // The engine forgets an address on a deadline of its own; everything else that counts sends a frame.
        self.engine.counters().count() < self.report.told_counters.len()
    }

    fn answering(&self, ip: IpAddr) -> BTreeSet<InterfaceName> {
        self.engine.answering(ip).map(|interface| interface.name.clone()).collect()
    }
}

/// How often counters are reported while they move.
const COUNTERS_EVERY: Duration = Duration::from_secs(1);

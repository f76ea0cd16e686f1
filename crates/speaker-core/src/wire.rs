// SPDX-License-Identifier: Apache-2.0
//! The fast side: who answers for an address now, and the answering.
//!
//! It needs nothing from the control side but the latest plan, and never waits for it: a member that dies while
//! the API is away still hands its addresses over.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ferrolb_announce::{AddressPlan, Members, NodePlan, owner};
use ferrolb_l2::Engine;
pub use ferrolb_l2::{Counters, Interface, Purpose};
use ferrolb_net_types::{IfIndex, InterfaceName, NodeName, Time};

/// Who answers, and the answering. It does so from when plan, members and interfaces are all known.
///
/// Drive it like an engine: [`Wire::handle`] for every input, [`Wire::handle_timeout`] when
/// [`Wire::next_deadline`] has come (which may be at once), then [`Wire::poll`] until `None`.
///
/// Only IPv4 addresses are answered for; an IPv6 address is never reported as owned.
#[derive(Debug)]
pub struct Wire {
    node: NodeName,
    engine: Engine,
    plan: Option<Arc<NodePlan>>,
    members: Option<Members>,
    interfaces: Option<Vec<Interface>>,
    owned: BTreeSet<Ipv4Addr>,
    report: Pending,
    /// What the control side knows.
    told: BTreeMap<Ipv4Addr, BTreeSet<InterfaceName>>,
    told_counters: BTreeMap<Ipv4Addr, Counters>,
}

/// What is to be reported.
#[derive(Debug, Default)]
struct Pending {
    complete: bool,
    addresses: BTreeSet<Ipv4Addr>,
    interfaces: bool,
    /// Something was counted; to be reported then.
    counters: Option<Time>,
    counters_due: bool,
}

/// Something happened.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A plan of the control side, for this node.
    Plan(Arc<NodePlan>),
    /// Whose speakers live.
    Members(Members),
    /// The interfaces that can answer, all of them.
    Interfaces(&'a [Interface]),
    /// An Ethernet frame came in.
    Frame {
        /// The interface it came in on.
        interface: IfIndex,
        /// The VLAN of a tag that was taken off before the frame was handed over.
        vlan: Option<u16>,
        /// The frame.
        bytes: &'a [u8],
    },
    /// A frame that was given out could not be sent.
    SendFailed {
        /// Its address.
        address: Ipv4Addr,
        /// What it was for.
        purpose: Purpose,
    },
    /// A report was lost: make a complete one.
    Resync,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this frame.
    Send {
        /// The interface.
        interface: IfIndex,
        /// The address it is about.
        address: Ipv4Addr,
        /// What it is for.
        purpose: Purpose,
        /// The frame, padded to the minimum.
        frame: [u8; ferrolb_l2::wire::MINIMUM],
    },
    /// Tell the control side. If that cannot be done at once, drop it and pass [`Input::Resync`] later.
    Report(Report),
}

/// What the wire side did, as far as the control side should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// `owned` and `counters` are all there is; otherwise only what changed.
    pub complete: bool,
    /// Addresses that this node owns now, with the interfaces on which it answers for them: none if it has none
    /// of those selected. `None`: it no longer owns the address.
    pub owned: BTreeMap<IpAddr, Option<BTreeSet<InterfaceName>>>,
    /// The names of the interfaces that can answer, if they changed.
    pub interfaces: Option<BTreeSet<InterfaceName>>,
    /// Totals of addresses whose counters changed, at most once per second; `None` for one whose counters ended.
    pub counters: BTreeMap<IpAddr, Option<Counters>>,
}

impl Wire {
    /// The wire side of the speaker on this node.
    pub fn new(node: NodeName) -> Self {
        Self {
            node,
            engine: Engine::new(),
            plan: None,
            members: None,
            interfaces: None,
            owned: BTreeSet::new(),
            report: Pending { complete: true, interfaces: true, ..Pending::default() },
            told: BTreeMap::new(),
            told_counters: BTreeMap::new(),
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Frame { interface, vlan, bytes } => {
                self.engine.handle(now, ferrolb_l2::Input::Frame { interface, vlan, bytes });
            }
            Input::Plan(new) => {
                let former = self.plan.replace(new.clone());
                match former.filter(|_| self.ready()) {
                    Some(former) => differing(&former, &new).iter().for_each(|ip| self.decide(now, *ip)),
                    None => self.decide_all(now),
                }
            }
            Input::Members(members) => {
                if self.members.as_ref() != Some(&members) {
                    self.members = Some(members);
                    self.decide_all(now);
                }
            }
            Input::Interfaces(interfaces) => {
                if self.interfaces.as_deref() != Some(interfaces) {
                    let first = self.interfaces.replace(interfaces.to_vec()).is_none();
                    self.engine.handle(now, ferrolb_l2::Input::Interfaces(interfaces));
                    self.report.interfaces = true;
                    self.report.addresses.extend(&self.owned);
                    if first {
                        self.decide_all(now);
                    }
                }
            }
            Input::SendFailed { address, purpose } => {
                self.engine.handle(now, ferrolb_l2::Input::SendFailed { address, purpose });
            }
            Input::Resync => {
                self.report.complete = true;
                self.report.interfaces = true;
                self.report.counters_due = true;
            }
        }
    }

    /// Does what is due. It may be due again at once, so that frames are answered in between.
    pub fn handle_timeout(&mut self, now: Time) {
        self.engine.handle_timeout(now);
        if self.report.counters.is_some_and(|time| time <= now) {
            self.report.counters = None;
            self.report.counters_due = true;
        } else if self.report.counters.is_none() && self.counters_changed() {
            self.report.counters = Some(now + COUNTERS_EVERY);
        }
    }

    /// The next thing to do, if any.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        if let Some(ferrolb_l2::Output::Send { interface, address, purpose, frame }) = self.engine.poll() {
            if self.report.counters.is_none() {
                self.report.counters = Some(now + COUNTERS_EVERY);
            }
            return Some(Output::Send { interface, address, purpose, frame });
        }
        if self.ready() { self.take_report().map(Output::Report) } else { None }
    }

    /// When to call [`Wire::handle_timeout`] at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        self.engine.next_deadline().into_iter().chain(self.report.counters).min()
    }

    /// The addresses that this node owns now, ascending.
    pub fn owned(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.owned.iter().copied()
    }

    const fn ready(&self) -> bool {
        self.plan.is_some() && self.members.is_some() && self.interfaces.is_some()
    }

    fn decide_all(&mut self, now: Time) {
        let Some(plan) = self.plan.clone().filter(|_| self.ready()) else { return };
        let planned = plan.addresses.keys().filter_map(v4);
        let all: BTreeSet<_> = planned.chain(self.owned.iter().copied()).collect();
        all.into_iter().for_each(|ip| self.decide(now, ip));
    }

    /// Makes the engine agree with the plan and the members about one address.
    fn decide(&mut self, now: Time, ip: Ipv4Addr) {
        let (Some(plan), Some(members)) = (&self.plan, &self.members) else { return };
        let ours = plan
            .addresses
            .get(&IpAddr::V4(ip))
            .filter(|address| owner(address, members).is_some_and(|owner| *owner == self.node));
        match ours {
            Some(address) => {
                let interfaces = &address.interfaces;
                self.engine.handle(now, ferrolb_l2::Input::Announce { address: ip, interfaces });
                self.owned.insert(ip);
            }
            None if self.owned.remove(&ip) => {
                self.engine.handle(now, ferrolb_l2::Input::Withdraw { address: ip });
            }
            None => return,
        }
        self.report.addresses.insert(ip);
    }

    /// What the control side does not know yet, if anything.
    fn take_report(&mut self) -> Option<Report> {
        let complete = std::mem::take(&mut self.report.complete);
        let mut addresses = std::mem::take(&mut self.report.addresses);
        if complete {
            self.told.clear();
            self.told_counters.clear();
            addresses.clone_from(&self.owned);
        }
        let mut owned = BTreeMap::new();
        for ip in addresses {
            let standing = self.owned.contains(&ip).then(|| self.answering(ip));
            if self.told.get(&ip) == standing.as_ref() {
                continue;
            }
            match &standing {
                Some(interfaces) => self.told.insert(ip, interfaces.clone()),
                None => self.told.remove(&ip),
            };
            owned.insert(IpAddr::V4(ip), standing);
        }
        let interfaces = std::mem::take(&mut self.report.interfaces)
            .then(|| self.interfaces.iter().flatten().map(|interface| interface.name.clone()).collect());
        let counters = if std::mem::take(&mut self.report.counters_due) {
            self.take_counters()
        } else {
            BTreeMap::new()
        };
        let news = complete || !owned.is_empty() || interfaces.is_some() || !counters.is_empty();
        news.then_some(Report { complete, owned, interfaces, counters })
    }

    fn take_counters(&mut self) -> BTreeMap<IpAddr, Option<Counters>> {
        let current: BTreeMap<_, _> = self.engine.counters().collect();
        let ended = self.told_counters.keys().filter(|ip| !current.contains_key(*ip)).map(|ip| (*ip, None));
        let changed = current
            .iter()
            .filter(|(ip, counters)| self.told_counters.get(*ip) != Some(*counters))
            .map(|(ip, counters)| (*ip, Some(*counters)));
        let news = ended.chain(changed).map(|(ip, counters)| (IpAddr::V4(ip), counters)).collect();
        self.told_counters = current;
        news
    }

    fn counters_changed(&self) -> bool {
        // The engine forgets an address on a deadline of its own; everything else that counts sends a frame.
        self.engine.counters().count() < self.told_counters.len()
    }

    fn answering(&self, ip: Ipv4Addr) -> BTreeSet<InterfaceName> {
        self.engine.answering(ip).map(|interface| interface.name.clone()).collect()
    }
}

/// The IPv4 addresses whose plans are not the same.
fn differing(former: &NodePlan, new: &NodePlan) -> BTreeSet<Ipv4Addr> {
    let same = |ip: &IpAddr, plan: &Arc<AddressPlan>| {
        new.addresses.get(ip).is_some_and(|other| Arc::ptr_eq(other, plan))
    };
    let changed = former.addresses.iter().filter(|(ip, plan)| !same(ip, plan)).map(|(ip, _)| ip);
    let added = new.addresses.keys().filter(|ip| !former.addresses.contains_key(*ip));
    changed.chain(added).filter_map(v4).collect()
}

const fn v4(ip: &IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) => Some(*ip),
        IpAddr::V6(_) => None,
    }
}

/// How often counters are reported while they move.
const COUNTERS_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use ferrolb_announce::{Endpoint, Inputs, Service, Settings, plan};
    use ferrolb_config::{Config, L2Advertisement, Pool};
    use ferrolb_net_types::{Interfaces, Mac, PoolName, ServiceKey};

    use super::*;

    const NODE: &str = "k8s-node-2";
    const RIVAL: &str = "k8s-node-1";
    const NOW: Time = Time::ZERO;

    /// The plan of [`NODE`] for addresses 192.168.10.N, announced on these interfaces; [`RIVAL`] comes first for
    /// 192.168.10.200.
    fn plan_for(last_octets: &[u8], interfaces: Interfaces) -> Arc<NodePlan> {
        let nodes = [NODE, RIVAL].map(NodeName::from);
        let pool = Pool {
            name: PoolName::from("p"),
            blocks: vec!["192.168.10.0/24".parse().unwrap()],
            auto_assign: true,
            avoid_buggy_ips: false,
            allocation: None,
            l2_advertisements: vec![Arc::new(L2Advertisement {
                name: "ad".into(),
                nodes: nodes.clone().into(),
                interfaces,
                service_selectors: Vec::new(),
                preferences: BTreeMap::new(),
            })],
        };
        let service = |last: u8| Service {
            load_balancer: true,
            ingress: vec![ferrolb_announce::Ingress::Ip([192, 168, 10, last].into())],
            endpoints: [Endpoint::default()].into_iter().collect(),
            ..Service::default()
        };
        let services =
            last_octets.iter().map(|n| (ServiceKey::new("d", &n.to_string()), service(*n))).collect();
        let config = Config { pools: [(pool.name.clone(), Arc::new(pool))].into(), ..Config::default() };
        Arc::new(plan(&Inputs {
            node: &nodes[0],
            config: &config,
            nodes: &BTreeMap::new(),
            services: &services,
            settings: &Settings::default(),
        }))
    }

    fn alone() -> Members {
        Members::Known([NODE.into()].into())
    }

    fn both() -> Members {
        Members::Known([NODE.into(), RIVAL.into()].into())
    }

    fn ens18() -> Interface {
        Interface { index: IfIndex(2), name: "ens18".into(), mac: Mac([2, 0, 0, 0, 0, 1]) }
    }

    /// A wire that knows everything, alone among the members.
    fn running(plan: Arc<NodePlan>) -> Wire {
        let mut wire = Wire::new(NODE.into());
        wire.handle(NOW, Input::Plan(plan));
        wire.handle(NOW, Input::Members(alone()));
        wire.handle(NOW, Input::Interfaces(&[ens18()]));
        wire
    }

    /// What comes out now: the addresses of frames, and the reports.
    fn drain(wire: &mut Wire, now: Time) -> (Vec<Ipv4Addr>, Vec<Report>) {
        let (mut frames, mut reports) = (Vec::new(), Vec::new());
        while wire.next_deadline().is_some_and(|time| time <= now) {
            wire.handle_timeout(now);
        }
        while let Some(output) = wire.poll(now) {
            match output {
                Output::Send { address, .. } => frames.push(address),
                Output::Report(report) => reports.push(report),
            }
        }
        (frames, reports)
    }

    fn ip(last: u8) -> IpAddr {
        [192, 168, 10, last].into()
    }

    fn on(names: &[&str]) -> BTreeSet<InterfaceName> {
        names.iter().map(|name| InterfaceName::from(*name)).collect()
    }

    #[test]
    fn nothing_happens_until_plan_members_and_interfaces_are_known() {
        let inputs = [
            Input::Plan(plan_for(&[200], Interfaces::All)),
            Input::Members(alone()),
            Input::Interfaces(&[ens18()]),
        ];
        for last in 0..3 {
            let mut wire = Wire::new(NODE.into());
            for (i, input) in inputs.iter().enumerate().filter(|(i, _)| *i != last) {
                wire.handle(NOW, input.clone());
                assert_eq!(drain(&mut wire, NOW), (vec![], vec![]), "{i} of those without {last}");
            }
            wire.handle(NOW, inputs[last].clone());
            let (frames, reports) = drain(&mut wire, NOW);
            assert_eq!(frames.len(), 2, "after {last}");
            let expected = Report {
                complete: true,
                owned: [(ip(200), Some(on(&["ens18"])))].into(),
                interfaces: Some(on(&["ens18"])),
                counters: BTreeMap::new(),
            };
            assert_eq!(reports, [expected]);
        }
    }

    #[test]
    fn a_member_that_comes_takes_its_addresses_and_one_that_goes_leaves_them() {
        let mut wire = running(plan_for(&[200], Interfaces::All));
        drain(&mut wire, NOW);
        wire.handle(NOW, Input::Members(both()));
        let (frames, reports) = drain(&mut wire, Time::millis(1));
        assert_eq!(frames, Vec::<Ipv4Addr>::new(), "nothing is said on a loss");
        assert_eq!(reports, [Report { owned: [(ip(200), None)].into(), ..Report::default() }]);
        assert_eq!(wire.owned().count(), 0);

        wire.handle(NOW, Input::Members(alone()));
        let (frames, reports) = drain(&mut wire, Time::millis(2));
        assert_eq!(frames.len(), 2);
        assert_eq!(reports[0].owned, [(ip(200), Some(on(&["ens18"])))].into());
    }

    #[test]
    fn a_new_plan_concerns_only_what_it_changes() {
        let mut wire = running(plan_for(&[200], Interfaces::All));
        while let Some(time) = wire.next_deadline() {
            drain(&mut wire, time);
        }
        let later = Time::millis(60_000);
        // The plan is a new value throughout, but says the same of .200.
        wire.handle(later, Input::Plan(plan_for(&[200, 201], Interfaces::All)));
        let (frames, reports) = drain(&mut wire, later);
        assert!(
            !frames.is_empty() && frames.iter().all(|address| IpAddr::V4(*address) == ip(201)),
            "{frames:?}"
        );
        assert_eq!(reports[0].owned, [(ip(201), Some(on(&["ens18"])))].into());
        wire.handle(later, Input::Plan(plan_for(&[201], Interfaces::All)));
        assert_eq!(drain(&mut wire, later).1[0].owned, [(ip(200), None)].into());
    }

    #[test]
    fn an_owned_address_without_its_interface_is_reported_so() {
        let named = Interfaces::Named(on(&["ens19"]));
        let mut wire = running(plan_for(&[200], named));
        let (frames, reports) = drain(&mut wire, NOW);
        assert!(frames.is_empty());
        assert_eq!(reports[0].owned, [(ip(200), Some(on(&[])))].into());
        let ens19 = Interface { index: IfIndex(3), name: "ens19".into(), ..ens18() };
        wire.handle(NOW, Input::Interfaces(&[ens18(), ens19]));
        let (frames, reports) = drain(&mut wire, NOW);
        assert_eq!(frames.len(), 2);
        assert_eq!(reports[0].owned, [(ip(200), Some(on(&["ens19"])))].into());
        assert_eq!(reports[0].interfaces, Some(on(&["ens18", "ens19"])));
    }

    #[test]
    fn a_lost_report_is_made_good_by_a_complete_one() {
        let mut wire = running(plan_for(&[200, 201], Interfaces::All));
        let lost = drain(&mut wire, NOW).1;
        wire.handle(NOW, Input::Resync);
        let (_, reports) = drain(&mut wire, NOW);
        assert_eq!(reports.len(), 1);
        assert!(reports[0].complete);
        assert_eq!(reports[0].owned, lost[0].owned);
        assert_eq!(reports[0].counters.len(), 2);
        assert_eq!(drain(&mut wire, NOW).1, []);
    }

    #[test]
    fn counters_are_reported_once_a_second_while_they_move_and_end_with_the_address() {
        let mut wire = running(plan_for(&[200], Interfaces::All));
        let mut reports = Vec::new();
        let mut times = 0;
        while let Some(time) = wire.next_deadline() {
            reports.extend(drain(&mut wire, time).1);
            times += 1;
        }
        let sent: Vec<_> = reports
            .iter()
            .filter_map(|r| r.counters.get(&ip(200)).copied().flatten())
            .map(|c| c.gratuitous)
            .collect();
        assert_eq!(sent, [2, 4, 6, 8, 10]);
        assert!(times < 20, "then there is nothing to wake up for");

        wire.handle(NOW, Input::Plan(plan_for(&[], Interfaces::All)));
        let mut ended = Vec::new();
        while let Some(time) = wire.next_deadline() {
            ended.extend(drain(&mut wire, time).1);
        }
        assert_eq!(ended.last().unwrap().counters, [(ip(200), None)].into());
    }
}

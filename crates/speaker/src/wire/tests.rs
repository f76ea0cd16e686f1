// SPDX-License-Identifier: Apache-2.0
//! The thread between real interfaces: two hosts on a cable, in namespaces of their own.
//!
//! These tests need root. Without it each says loudly that it is skipped.

mod failing;
mod ndp;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ferrolb_announce::{AddressPlan, AddressPlans};
use ferrolb_l2::wire::{Frame, Operation};
use ferrolb_linux::link::{VethEnd, create_veth};
use ferrolb_linux::probe::{Listener, Prober};
use ferrolb_linux::{Namespace, Netlink, PacketSocket, inspect, netns};
use ferrolb_net_types::{IfIndex, InterfaceName, Interfaces, Mac, NodeName};
use ferrolb_speaker_core::wire::Report;
use tokio::sync::mpsc;

use super::ports::{Opener, Ports};
use super::{Handle, start_with};
use crate::Excluded;

const ASKER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
const ASKER_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x50]);
const NODE_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x20]);
const LONG: Duration = Duration::from_secs(10);
/// Long enough for an answer that would come.
const SHORT: Duration = Duration::from_millis(200);

#[test]
fn it_answers_and_announces_what_the_plan_gives_this_node_and_stops_with_it() {
    let Some(bench) = Bench::new("it_answers_and_announces_what_the_plan_gives_this_node") else {
        return;
    };
    let mut node = bench.node();
    let mut prober = bench.prober("ens18");
    let mut listener = bench.listener("ens18");
    node.handle.set_plan(plan(&[(VIP, "node", Interfaces::All)]));
    node.until("it owns the address", |seen| seen.owned.get(&VIP.into()) == Some(&names(&["ens18"])));

    let answers = prober.answers(VIP, SHORT).unwrap();
    assert_eq!(
        answers.iter().map(|answer| (answer.mac, answer.frame.len())).collect::<Vec<_>>(),
        [(NODE_MAC, 60)]
    );
    let rounds = announcements(&mut listener, NODE_MAC, 4);
    assert_eq!(rounds[..2], [Operation::Request, Operation::Reply]);
    node.until("it counted", |seen| {
        let counters = seen.counters.get(&VIP.into()).copied().flatten().unwrap_or_default();
        (counters.requests, counters.responses) == (1, 1) && counters.gratuitous >= 4
    });

    // Another node leads: silence.
    node.handle.set_plan(plan(&[(VIP, "other", Interfaces::All)]));
    node.until("it no longer owns the address", |seen| seen.owned.is_empty());
    assert_eq!(prober.answers(VIP, SHORT).unwrap(), []);
    // Back.
    node.handle.set_plan(plan(&[(VIP, "node", Interfaces::All)]));
    node.until("it owns the address again", |seen| seen.owned.contains_key(&VIP.into()));
    assert_eq!(prober.ask(VIP, LONG).unwrap().unwrap().mac, NODE_MAC);
    // An interface that the advertisement does not name: owned, not answered.
    node.handle.set_plan(plan(&[(VIP, "node", Interfaces::Named(names(&["ens19"])))]));
    node.until("it answers nowhere", |seen| seen.owned.get(&VIP.into()) == Some(&names(&[])));
    assert_eq!(prober.answers(VIP, SHORT).unwrap(), []);

    node.handle.set_plan(plan(&[(VIP, "node", Interfaces::All)]));
    node.until("it answers", |seen| seen.owned.get(&VIP.into()) == Some(&names(&["ens18"])));
    let Node { handle, mut reports, .. } = node;
    drop(handle);
    while reports.blocking_recv().is_some() {}
    assert_eq!(prober.answers(VIP, SHORT).unwrap(), []);
}

#[test]
fn requests_for_what_the_node_does_not_own_wake_nobody() {
    let Some(bench) = Bench::new("requests_for_what_the_node_does_not_own_wake_nobody") else { return };
    let mut node = bench.node();
    let mut prober = bench.prober("ens18");
    node.handle.set_plan(plan(&[(VIP, "node", Interfaces::All)]));
    node.until("it owns the address", |seen| seen.owned.contains_key(&VIP.into()));
    assert_eq!(prober.ask(VIP, LONG).unwrap().unwrap().mac, NODE_MAC);

    let before = wakes(&bench.node);
    for _ in 0..STRANGERS {
        // Waiting for the answer that never comes lets a thread that was woken wait again.
        assert_eq!(prober.ask(Ipv4Addr::new(192, 0, 2, 99), Duration::from_millis(2)).unwrap(), None);
    }
    let woken = wakes(&bench.node) - before;
    assert!(woken < STRANGERS / 4, "{STRANGERS} requests for another host woke the thread {woken} times");
    assert_eq!(prober.ask(VIP, LONG).unwrap().unwrap().mac, NODE_MAC);
}

/// Requests for somebody else.
const STRANGERS: u64 = 100;

/// How often the wire thread in this namespace has gone to wait.
fn wakes(namespace: &Namespace) -> u64 {
    let inode = |path: &Path| std::fs::metadata(path).ok().map(|found| found.ino());
    let wanted = inode(&namespace.path());
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let of_wire = |task: &PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "wire\n")
            && inode(&task.join("ns/net")) == wanted
    };
    let status = std::fs::read_to_string(tasks.into_iter().find(of_wire).unwrap().join("status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    count.trim().parse().unwrap()
}

#[test]
fn interfaces_that_change_come_or_go_are_noticed_at_once() {
    let Some(bench) = Bench::new("interfaces_that_change_come_or_go_are_noticed_at_once") else { return };
    let mut node = bench.node();
    let mut prober = bench.prober("ens18");
    let mut listener = bench.listener("ens18");
    node.handle.set_plan(plan(&[(VIP, "node", Interfaces::All)]));
    node.until("it answers on ens18", |seen| seen.owned.get(&VIP.into()) == Some(&names(&["ens18"])));
    let begin = Instant::now();

    // Another hardware address: announced and answered with.
    let moved = Mac([2, 0, 0, 0, 0, 0x21]);
    let mut in_node = Netlink::open_in(&bench.node).unwrap();
    in_node.set_mac("ens18", moved).unwrap();
    assert_eq!(announcements(&mut listener, moved, 2), [Operation::Request, Operation::Reply]);
    assert_eq!(prober.ask(VIP, LONG).unwrap().unwrap().mac, moved);

    // A new cable.
    bench.cable("ens19", Mac([2, 0, 0, 0, 0, 0x51]), Mac([2, 0, 0, 0, 0, 0x22]));
    node.until("it answers on ens19", |seen| {
        seen.owned.get(&VIP.into()) == Some(&names(&["ens18", "ens19"]))
    });
    assert_eq!(node.seen.interfaces, names(&["ens18", "ens19"]));
    let mut other = bench.prober("ens19");
    assert_eq!(other.ask(VIP, LONG).unwrap().unwrap().mac, Mac([2, 0, 0, 0, 0, 0x22]));

    // Down: no longer answers there, and goes on elsewhere. Up again: answers and announces.
    in_node.set_down("ens18").unwrap();
    node.until("it lost ens18", |seen| seen.owned.get(&VIP.into()) == Some(&names(&["ens19"])));
    assert_eq!(other.ask(VIP, LONG).unwrap().unwrap().mac, Mac([2, 0, 0, 0, 0, 0x22]));
    in_node.set_up("ens18").unwrap();
    node.until("it has ens18 again", |seen| seen.owned.get(&VIP.into()) == Some(&names(&["ens18", "ens19"])));
    assert_eq!(announcements(&mut listener, moved, 2), [Operation::Request, Operation::Reply]);

    // A port of a bridge answers nothing; removed from the node it is forgotten.
    in_node.create_bridge("br0").unwrap();
    in_node.set_master("ens19", Some("br0")).unwrap();
    node.until("it lost ens19", |seen| seen.owned.get(&VIP.into()) == Some(&names(&["ens18"])));
    in_node.delete_link("ens18").unwrap();
    node.until("it answers nowhere", |seen| seen.owned.get(&VIP.into()) == Some(&names(&[])));
    // All of this by being told: waiting for the scan every ten seconds would have taken longer.
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn an_excluded_interface_is_left_alone() {
    let Some(bench) = Bench::new("an_excluded_interface_is_left_alone") else { return };
    bench.cable("veth7", Mac([2, 0, 0, 0, 0, 0x51]), Mac([2, 0, 0, 0, 0, 0x22]));
    let mut node = bench.node();
    node.handle.set_plan(plan(&[(VIP, "node", Interfaces::All)]));
    node.until("it answers", |seen| seen.owned.get(&VIP.into()) == Some(&names(&["ens18"])));
    assert_eq!(node.seen.interfaces, names(&["ens18"]));
    assert_eq!(bench.prober("veth7").answers(VIP, SHORT).unwrap(), []);
}

#[test]
fn a_control_side_that_does_not_listen_delays_no_answer_and_gets_everything_later() {
    let Some(bench) = Bench::new("a_control_side_that_does_not_listen_delays_no_answer") else { return };
    let mut node = bench.node();
    let mut prober = bench.prober("ens18");
    let last = Ipv4Addr::new(192, 0, 2, 201);
    // Each of these plans is one report; far more than the channel holds.
    for round in 0..3 * super::REPORTS {
        let address = if round % 2 == 0 { VIP } else { last };
        node.handle.set_plan(plan(&[(address, "node", Interfaces::All)]));
        eventually("the answer of a plan", || prober.ask(address, Duration::from_millis(50)).unwrap());
    }
    // The first report is complete; another one is the thread's amends for those that did not fit.
    node.until("only the last is owned, and reports were lost meanwhile", |seen| {
        seen.complete >= 2 && seen.owned.keys().copied().collect::<Vec<_>>() == [IpAddr::V4(last)]
    });
}

/// Two hosts on a cable. Everything vanishes with it.
struct Bench {
    asker: Namespace,
    node: Namespace,
}

impl Bench {
    fn new(test: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("flw{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let make = |host: &str| Namespace::create(&format!("{prefix}{host}"));
        let (asker, node) = match (make("asker"), make("node")) {
            (Ok(asker), Ok(node)) => (asker, node),
            (Err(error), _) | (_, Err(error)) => {
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
                // Not eprintln, which the harness keeps to itself when a test passes.
                let _ = writeln!(std::io::stderr(), "SKIPPED {test}: needs root (network namespaces)");
                return None;
            }
        };
        let bench = Self { asker, node };
        bench.cable("ens18", ASKER_MAC, NODE_MAC);
        Some(bench)
    }

    /// Connects the two and waits until both ends are operational.
    fn cable(&self, name: &str, asker: Mac, node: Mac) {
        let end = |namespace, mac| VethEnd { namespace, name, mac: Some(mac) };
        create_veth(end(&self.asker, asker), end(&self.node, node)).unwrap();
        for namespace in [&self.asker, &self.node] {
            let mut netlink = Netlink::open_in(namespace).unwrap();
            netlink.set_up(name).unwrap();
        }
        for namespace in [&self.asker, &self.node] {
            let mut netlink = Netlink::open_in(namespace).unwrap();
            eventually("an end of the cable", || {
                let found = inspect::interfaces(&mut netlink).unwrap();
                found.into_iter().find(|i| i.name.as_str() == name && i.running)
            });
        }
    }

    fn node(&self) -> Node {
        self.node_with(Box::new(PacketSocket::open))
    }

    /// The same, with sockets that are opened so.
    fn node_with(&self, opener: Opener) -> Node {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "announcedInterfacesToExclude: ['^veth.*', '^br.*']\n").unwrap();
        let excluded = Excluded::read(file.path()).unwrap();
        // A thread starts in the namespace of the one that started it.
        let (handle, reports) = self
            .node
            .run(|| start_with("node".into(), Ports::opened_by(opener, excluded), None).unwrap())
            .unwrap();
        Node { handle, reports, seen: Seen::default() }
    }

    fn prober(&self, interface: &str) -> Prober {
        self.asker.run(|| Prober::open(interface, ASKER).unwrap()).unwrap()
    }

    fn listener(&self, interface: &str) -> Listener {
        let index = index_in(&self.asker, interface);
        self.asker.run(|| Listener::open(index).unwrap()).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for namespace in [&self.asker, &self.node] {
            let _ = netns::delete(namespace.name());
        }
    }
}

fn index_in(namespace: &Namespace, interface: &str) -> IfIndex {
    let found = inspect::interfaces(&mut Netlink::open_in(namespace).unwrap()).unwrap();
    found.into_iter().find(|i| i.name.as_str() == interface).unwrap().index
}

/// A wire thread, and what it reported.
struct Node {
    handle: Handle,
    reports: mpsc::Receiver<Report>,
    seen: Seen,
}

/// All reports together.
#[derive(Debug, Default)]
struct Seen {
    /// How many complete reports came.
    complete: usize,
    owned: BTreeMap<IpAddr, BTreeSet<InterfaceName>>,
    interfaces: BTreeSet<InterfaceName>,
    counters: BTreeMap<IpAddr, Option<ferrolb_l2::Counters>>,
}

impl Node {
    /// Takes reports until the condition holds.
    fn until(&mut self, what: &str, condition: impl Fn(&Seen) -> bool) {
        let Self { reports, seen, .. } = self;
        eventually(what, || {
            while let Ok(report) = reports.try_recv() {
                if report.complete {
                    seen.complete += 1;
                    seen.owned.clear();
                    seen.counters.clear();
                }
                for (address, owned) in report.owned {
                    match owned {
                        Some(interfaces) => seen.owned.insert(address, interfaces),
                        None => seen.owned.remove(&address),
                    };
                }
                seen.interfaces = report.interfaces.unwrap_or(std::mem::take(&mut seen.interfaces));
                seen.counters.extend(report.counters);
            }
            condition(seen).then_some(())
        });
    }
}

/// The next so many gratuitous frames for the address with this hardware address, all of the right form.
fn announcements(listener: &mut Listener, mac: Mac, count: usize) -> Vec<Operation> {
    let mut operations = Vec::new();
    let end = Instant::now() + LONG;
    while operations.len() < count {
        let heard = listener.next(end).unwrap().expect("an announcement");
        let Ok(Frame { destination, source, packet }) = Frame::parse(&heard.frame) else { continue };
        if heard.outgoing || destination != Mac::BROADCAST || packet.sender_mac != mac {
            continue;
        }
        assert_eq!((heard.frame.len(), source, packet.target_mac), (60, mac, Mac::BROADCAST));
        assert_eq!((packet.sender_ip, packet.target_ip), (VIP, VIP));
        operations.push(packet.operation);
    }
    operations
}

/// A plan of these addresses: candidates with commas between, interfaces.
fn plan(addresses: &[(impl Into<IpAddr> + Copy, &str, Interfaces)]) -> Arc<AddressPlans> {
    let mut plan = AddressPlans::default();
    for (address, candidates, interfaces) in addresses {
        let candidates: Arc<[NodeName]> = candidates.split(',').map(NodeName::from).collect();
        let address_plan = AddressPlan {
            services: Vec::new(),
            interfaces: interfaces.clone(),
            metallb: vec![candidates.clone()],
            candidates,
            finding: None,
        };
        plan.insert((*address).into(), Arc::new(address_plan));
    }
    Arc::new(plan)
}

fn names(names: &[&str]) -> BTreeSet<InterfaceName> {
    names.iter().map(|name| InterfaceName::from(*name)).collect()
}

/// Waits until the condition gives a value; fails after ten seconds.
fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

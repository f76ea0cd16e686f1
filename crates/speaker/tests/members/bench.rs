// SPDX-License-Identifier: Apache-2.0
//! Hosts on a switch, each in a namespace of its own, and wire threads on them.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ferrolb_announce::{AddressPlan, AddressPlans, Members, Standing};
use ferrolb_gossip::Settings;
use ferrolb_gossip::wire::{Codec, Key, KeyRule, Keyring};
use ferrolb_linux::link::{VethEnd, create_veth};
use ferrolb_linux::probe::Prober;
use ferrolb_linux::{Namespace, Netlink, netns};
use ferrolb_net_types::{Interfaces, Mac, NodeName};
use ferrolb_speaker::Excluded;
use ferrolb_speaker::wire::{Handle, MemberList, Sockets, start};
use ferrolb_speaker_core::wire::{Gossip, Peer};

pub(crate) const SECRET: &[u8] = b"Zm9vYmFyYmF6cXV4Zm9vYg";
pub(crate) const VIP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 79, 46, 200));
const PORT: u16 = 7946;
/// Far beyond every bound of the protocol: what is asserted is that it happens, not how fast.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn ip(host: usize) -> IpAddr {
    [10, 79, 46, 10 + u8::try_from(host).unwrap()].into()
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Everything vanishes with it.
pub(crate) struct Bench {
    hub: Namespace,
    asker: Namespace,
    pub(crate) hosts: Vec<Namespace>,
}

impl Bench {
    /// So many hosts; none, loudly, without the rights for it.
    pub(crate) fn new(test: &str, hosts: usize) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("flm{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let hub = match Namespace::create(&format!("{prefix}hub")) {
            Ok(hub) => hub,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
                skipped(test, "needs root (network namespaces)");
                return None;
            }
        };
        let make = |name: String| Namespace::create(&format!("{prefix}{name}")).unwrap();
        let bench = Self {
            hub,
            asker: make("asker".to_owned()),
            hosts: (0..hosts).map(|n| make(n.to_string())).collect(),
        };
        let mut hub = Netlink::open_in(&bench.hub).unwrap();
        hub.create_bridge("br0").unwrap();
        hub.set_up("br0").unwrap();
        let all =
            bench.hosts.iter().enumerate().map(|(host, namespace)| (namespace, ip(host), bench.mac(host)));
        for (number, (namespace, address, mac)) in
            all.chain([(&bench.asker, [10, 79, 46, 5].into(), Mac([2, 0, 0, 79, 46, 5]))]).enumerate()
        {
            let port = format!("p{number}");
            create_veth(
                VethEnd { namespace, name: "ens18", mac: Some(mac) },
                VethEnd { namespace: &bench.hub, name: &port, mac: None },
            )
            .unwrap();
            let mut host = Netlink::open_in(namespace).unwrap();
            host.set_up("lo").unwrap();
            host.set_up("ens18").unwrap();
            host.add_address("ens18", address, 24).unwrap();
            hub.set_master(&port, Some("br0")).unwrap();
            hub.set_up(&port).unwrap();
        }
        Some(bench)
    }

    pub(crate) fn mac(&self, host: usize) -> Mac {
        Mac([2, 0, 0, 79, 46, 10 + u8::try_from(host).unwrap()])
    }

    /// Takes a host's cable out of the switch, without either end noticing; or puts it back.
    pub(crate) fn cut(&self, host: usize, cut: bool) {
        let master = if cut { None } else { Some("br0") };
        Netlink::open_in(&self.hub).unwrap().set_master(&format!("p{host}"), master).unwrap();
    }

    /// Does something on a host that has no speaker.
    pub(crate) fn outside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        self.asker.run(what).unwrap()
    }

    /// Who answers for the address on the segment, or announces it meanwhile; each once.
    pub(crate) fn answers(&self, address: IpAddr) -> Vec<Mac> {
        let IpAddr::V4(address) = address else { return Vec::new() };
        let asked = self.asker.run(|| {
            let mut prober = Prober::open("ens18", Ipv4Addr::new(10, 79, 46, 5)).unwrap();
            prober.answers(address, Duration::from_millis(200)).unwrap()
        });
        let mut macs: Vec<Mac> = asked.unwrap().into_iter().map(|answer| answer.mac).collect();
        macs.sort_unstable();
        macs.dedup();
        macs
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for namespace in self.hosts.iter().chain([&self.hub, &self.asker]) {
            let _ = netns::delete(namespace.name());
        }
    }
}

pub(crate) fn skipped(test: &str, why: &str) {
    // Not eprintln, which the harness keeps to itself when a test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// What a wire thread has reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) members: BTreeMap<String, Standing>,
    owned: Vec<IpAddr>,
    ended: bool,
}

/// A wire thread on a host.
pub(crate) struct Ours {
    handle: Handle,
    view: Arc<Mutex<View>>,
}

impl Ours {
    /// Starts one that may announce [`VIP`] in this order of nodes, and awaits speakers on these hosts.
    pub(crate) fn start(
        bench: &Bench,
        host: usize,
        order: &str,
        awaited: &[usize],
        versions: [u8; 6],
    ) -> Self {
        static SEED: AtomicU32 = AtomicU32::new(1);
        let address = SocketAddr::new(ip(host), PORT);
        let node = format!("our-{host}");
        let key = Key::of_secret(SECRET, KeyRule::Truncated).unwrap();
        let codec = Codec::new(Some(Keyring::new(key, Vec::new())));
        let settings = Settings { versions, ..Settings::speaker(node.as_str().into(), address, codec) };
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&std::process::id().to_be_bytes());
        seed[4..8].copy_from_slice(&SEED.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let (handle, mut reports) = bench.hosts[host]
            .run(|| {
                let sockets = Sockets::bind(address).unwrap();
                let list = MemberList { gossip: Gossip { settings, seed }, sockets };
                start(node.as_str().into(), Excluded::default(), Some(list)).unwrap()
            })
            .unwrap();
        let view = Arc::new(Mutex::new(View::default()));
        let seen = view.clone();
        std::thread::spawn(move || {
            while let Some(report) = reports.blocking_recv() {
                let mut view = seen.lock().unwrap();
                if report.complete {
                    view.owned.clear();
                }
                for (address, owned) in report.owned {
                    view.owned.retain(|other| *other != address);
                    view.owned.extend(owned.map(|_| address));
                }
                if let Some(Members::Known(members)) = report.membership.map(|membership| membership.members)
                {
                    view.members =
                        members.into_iter().map(|(node, standing)| (node.to_string(), standing)).collect();
                }
            }
            seen.lock().unwrap().ended = true;
        });
        let ours = Self { handle, view };
        ours.expect(awaited);
        ours.handle.set_plan(plan(order));
        ours
    }

    /// From now on speakers should be on these hosts, whatever they are.
    pub(crate) fn expect(&self, hosts: &[usize]) {
        let peer = |host: &usize| Peer {
            node: NodeName::from(format!("host-{host}")),
            address: SocketAddr::new(ip(*host), PORT),
            awaited: true,
        };
        self.handle.set_peers(hosts.iter().map(peer).collect());
    }

    pub(crate) fn stop(&self) {
        self.handle.leave();
    }

    /// Ends it without a word, as a kill does; its port is free again afterwards.
    pub(crate) fn kill(self) {
        let Self { handle, view } = self;
        drop(handle);
        wait_for("the thread has ended", || view.lock().unwrap().ended);
    }

    pub(crate) fn view(&self) -> View {
        self.view.lock().unwrap().clone()
    }

    pub(crate) fn members(&self) -> std::collections::BTreeSet<String> {
        self.view().members.into_keys().collect()
    }

    pub(crate) fn owns(&self, address: IpAddr) -> bool {
        self.view().owned.contains(&address)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.view().ended
    }
}

/// A plan of [`VIP`] with these candidates, commas between.
fn plan(order: &str) -> Arc<AddressPlans> {
    let candidates: Arc<[NodeName]> = order.split(',').map(NodeName::from).collect();
    let address = AddressPlan {
        services: Vec::new(),
        interfaces: Interfaces::All,
        metallb: vec![candidates.clone()],
        candidates,
        finding: None,
    };
    let mut plan = AddressPlans::default();
    plan.insert(VIP, Arc::new(address));
    Arc::new(plan)
}

// SPDX-License-Identifier: Apache-2.0
//! Namespaces that vanish with the test, and the loud skip.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ferrolb_linux::link::{VethEnd, create_veth};
use ferrolb_linux::packet::Frames;
use ferrolb_linux::{Namespace, Netlink, PacketSocket, inspect, netns};
use ferrolb_net_types::{IfIndex, Mac};

/// Whether the test can run. Says so on the terminal if not.
pub(crate) fn is_root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        // Not eprintln, which the harness keeps to itself when a test passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: needs root (network namespaces)");
    }
    root
}

/// Namespaces of one test.
pub(crate) struct Bench {
    prefix: String,
    names: Vec<String>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { prefix: format!("flt{}-{number}-", std::process::id()), names: Vec::new() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn host(&mut self, name: &str) -> Namespace {
        let name = format!("{}{name}", self.prefix);
        let namespace = Namespace::create(&name).unwrap();
        self.names.push(name);
        namespace
    }

    /// Two hosts, `a` 192.0.2.1 and `b` 192.0.2.2, on one cable; `b` has the address only if `addressed`.
    pub(crate) fn pair(&mut self, addressed: bool) -> (Namespace, Namespace) {
        let (a, b) = (self.host("a"), self.host("b"));
        create_veth(
            VethEnd { namespace: &a, name: "ens18", mac: Some(MAC_A) },
            VethEnd { namespace: &b, name: "ens18", mac: Some(MAC_B) },
        )
        .unwrap();
        for (namespace, address) in [(&a, Some("192.0.2.1")), (&b, addressed.then_some("192.0.2.2"))] {
            let mut netlink = Netlink::open_in(namespace).unwrap();
            netlink.set_up("lo").unwrap();
            netlink.set_up("ens18").unwrap();
            if let Some(address) = address {
                netlink.add_address("ens18", address.parse().unwrap(), 24).unwrap();
            }
        }
        for (from, to) in [(&a, &b), (&b, &a)] {
            wait_for_cable(from, to);
        }
        (a, b)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = netns::delete(name);
        }
    }
}

/// A cable that was just plugged in may lose frames. Sends requests until one gets through.
fn wait_for_cable(from: &Namespace, to: &Namespace) {
    let open = |namespace: &Namespace| {
        let index = index(namespace);
        namespace.run(|| PacketSocket::open(index, Frames::ArpRequests).unwrap()).unwrap()
    };
    let (sender, receiver) = (open(from), open(to));
    let header = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1];
    let frame = [&Mac::BROADCAST.0[..], &MAC_A.0, &header, &MAC_A.0, &[0; 28]].concat();
    eventually("the cable carries frames", || {
        sender.send(&frame).unwrap();
        receiver.receive(&mut [0; 128]).unwrap()
    });
}

/// The index of `ens18`.
pub(crate) fn index(namespace: &Namespace) -> IfIndex {
    let mut netlink = Netlink::open_in(namespace).unwrap();
    inspect::interfaces(&mut netlink).unwrap().into_iter().find(|i| i.name.as_str() == "ens18").unwrap().index
}

pub(crate) const MAC_A: Mac = Mac([0x52, 0x54, 0, 0, 0, 0x0a]);
pub(crate) const MAC_B: Mac = Mac([0x52, 0x54, 0, 0, 0, 0x0b]);

/// Waits until the condition gives a value; fails after ten seconds.
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! How long a route takes from the control side to the wire: over loopback, to routers that do nothing but read.
//!
//! `cargo bench -p ferrolb-speaker --bench sessions`; times are from the call that hands a route over to the moment at
//! which the router has read the UPDATE, so waking the BGP thread, the session and the kernel are part of them. Unlike CPU
//! times they depend on what else the machine does.

#![allow(clippy::unwrap_used, reason = "what cannot be measured says so")]

#[allow(dead_code)] // each bench needs a part of it
#[path = "../../ipam/benches/allocation/table.rs"]
mod table;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ferrolb_bgp::wire::{
    Community, Context, Families, HoldTime, Message, Open, Reader, RouterId, Update, keepalive,
};
use ferrolb_bgp::{PeerAs, Route, Settings};
use ferrolb_kube_support::daemon::Clocks;
use ferrolb_net_types::{Asn, NodeName, PeerName, Prefix};
use ferrolb_speaker::bgp::{Change, Handle};
use ferrolb_speaker_core::bgp::{Hops, PeerPlan};

use crate::table::{Table, Unit};

/// Prefixes that a peer knows.
const ROUTES: u32 = 10_000;
/// Changes of one of them.
const CHANGES: u32 = 2_000;

fn main() -> ExitCode {
    let mut table = Table::from_arguments();
    // Cargo passes `--bench`, and its test harness asks for a list.
    if std::env::args().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    let ms = |time| Some(Duration::from_millis(time));
    for (peers, told, gone) in [(1, ms(20), ms(20)), (8, None, None)] {
        let routers: Vec<Router> = (0..peers).map(|_| Router::start()).collect();
        let mut handle = Handle::new(NodeName::from("k8s-node-1"), Clocks::start());
        let names: Vec<PeerName> =
            (0..peers).map(|n| PeerName::from(format!("router-{n}").as_str())).collect();
        let start = Instant::now();
        for (name, router) in names.iter().zip(&routers) {
            handle.session(name.clone(), Some(Box::new(plan(router.address))));
            handle.routes(name, all(1));
        }
        let ready = routers.iter().map(|router| router.wait(ROUTES)).max().unwrap();
        let what = format!("{ROUTES} routes to peers: {peers}, from nothing to the last one");
        table.time(&what, ready - start, told, Unit::Milliseconds);

        let mut waits: Vec<Duration> = (0..CHANGES)
            .map(|n| {
                let asked = Instant::now();
                for name in &names {
                    handle.routes(name, vec![change(n % ROUTES, n + 2)]);
                }
                routers.iter().map(|router| router.wait(1)).max().unwrap() - asked
            })
            .collect();
        waits.sort_unstable();
        let at = |share: usize| waits[waits.len() * share / 100];
        let what = format!("one route of {ROUTES} changed, at peers: {peers}, median");
        table.time(&what, at(50), ms(1), Unit::Microseconds);
        table.time("… 99 of 100", at(99), ms(5), Unit::Microseconds);

        let asked = Instant::now();
        for name in &names {
            handle.routes(name, (0..ROUTES).map(|n| (prefix(n), None)).collect());
        }
        let last = routers.iter().map(|router| router.wait(ROUTES)).max().unwrap();
        let what = format!("{ROUTES} routes withdrawn from peers: {peers}");
        table.time(&what, last - asked, gone, Unit::Milliseconds);
    }
    table.finish()
}

fn prefix(n: u32) -> Prefix {
    Prefix::host(Ipv4Addr::from_bits(0x0a00_0000 + n).into())
}

fn change(n: u32, generation: u32) -> Change {
    let [_, _, high, low] = generation.to_be_bytes();
    let community = Community::new(64_512, u16::from_be_bytes([high, low]));
    (prefix(n), Some(Arc::new(Route { communities: [community].into(), ..Route::default() })))
}

fn all(generation: u32) -> Vec<Change> {
    let (_, route) = change(0, generation);
    (0..ROUTES).map(|n| (prefix(n), route.clone())).collect()
}

fn asn(number: u32) -> Asn {
    Asn::new(number).unwrap()
}

fn plan(remote: SocketAddr) -> PeerPlan {
    PeerPlan {
        settings: Settings::native(asn(64_512), PeerAs::Exactly(asn(64_513))),
        remote,
        source: None,
        password: None,
        hops: Hops::Unlimited,
        router_id: None,
    }
}

/// A router that reads, and says how many prefixes were announced or withdrawn when.
struct Router {
    address: SocketAddr,
    told: Receiver<(u32, Instant)>,
}

impl Router {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let id = RouterId::new(Ipv4Addr::new(192, 0, 2, 1)).unwrap();
            let hold = HoldTime::seconds(0).unwrap();
            let open = Open::new(asn(64_513), hold, id, Families::V4, Vec::new()).encode();
            stream.write_all(&[open, keepalive()].concat()).unwrap();
            let context = Context { four_octet_as: true, internal: false, families: Families::V4 };
            let (mut reader, mut buffer) = (Reader::new(), vec![0; 65_536]);
            loop {
                let count = stream.read(&mut buffer).unwrap_or_default();
                if count == 0 {
                    return;
                }
                let read = Instant::now();
                let (mut rest, mut prefixes) = (&buffer[..count], 0);
                while let Some(message) = reader.read(&mut rest, &context).unwrap() {
                    let Message::Update(received) = message else { continue };
                    prefixes += received
                        .updates
                        .iter()
                        .map(|update| match update {
                            Update::Announce(announce) => announce.prefixes().len(),
                            Update::Withdraw(prefixes) => prefixes.as_slice().len(),
                            Update::EndOfRib(_) => 0,
                        })
                        .sum::<usize>();
                }
                if prefixes > 0 && tell.send((u32::try_from(prefixes).unwrap(), read)).is_err() {
                    return;
                }
            }
        });
        Self { address, told }
    }

    /// When so many prefixes had come.
    fn wait(&self, mut prefixes: u32) -> Instant {
        loop {
            let (count, read) = self.told.recv_timeout(Duration::from_secs(60)).unwrap();
            prefixes = prefixes.saturating_sub(count);
            if prefixes == 0 {
                return read;
            }
        }
    }
}

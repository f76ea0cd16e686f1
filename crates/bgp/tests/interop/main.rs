// SPDX-License-Identifier: Apache-2.0
//! Sessions with other people's routers, over loopback: GoBGP, BIRD and FRR take our routes with their attributes, of
//! both families, see them go, ask for them again, and read our last word as we read theirs.
//!
//! Each is skipped loudly where its daemon is not installed (Debian: gobgpd, bird2, frr; FRR needs root).

// The engine has no sockets, clock or threads; whoever tests it against a stranger needs them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod routers;
mod shell;

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferrolb_bgp::wire::{Capability, Code, Community, Detail, ExtendedCommunity, Families, LargeCommunity};
use ferrolb_bgp::{Down, Goodbye, NextHops, PeerAs, Route, Settings};
use ferrolb_net_types::{Asn, Prefix};
use routers::{Bird, Frr, GoBgp, Router};
use shell::{Ask, Change, Shell};

/// Far beyond every bound of the protocol: what is asserted is that it happens, not how fast.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn gobgp() {
    play("gobgpd", GoBgp::start());
}

#[test]
fn bird() {
    play("bird", Bird::start());
}

#[test]
fn frr() {
    play("FRR's bgpd, or root to run it", Frr::start());
}

fn play(needed: &str, router: Option<impl Router>) {
    match router {
        Some(router) => story(&router),
        // Not eprintln, which the harness keeps to itself when a test passes.
        None => drop(writeln!(std::io::stderr(), "SKIPPED: {needed} is not here")),
    }
}

#[track_caller]
fn wait_for(what: &str, router: &impl Router, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        let (name, peer, log) = (router.name(), router.peer(), router.log());
        assert!(began.elapsed() < PATIENCE, "{name}, in vain: {what}\n{peer}\n{log}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn settings() -> Settings {
    Settings {
        families: Families::BOTH,
        capabilities: vec![Capability::RouteRefresh],
        retry_at_most: Duration::from_secs(2),
        ..Settings::native(asn(64_512), PeerAs::Exactly(asn(64_513)))
    }
}

fn asn(number: u32) -> Asn {
    Asn::new(number).unwrap()
}

fn many(count: u32, there: bool) -> Vec<Change> {
    let route = Arc::new(Route::default());
    let nth = |n| Prefix::host(Ipv4Addr::from_bits(0x0a00_0000 + n).into());
    (0..count).map(|n| (nth(n), there.then(|| Arc::clone(&route)))).collect()
}

const V4: &str = "192.0.2.1/32";
const V6: &str = "fd00:20::1/128";

fn story(router: &impl Router) {
    let (from, to) = ((Ipv4Addr::new(127, 0, 0, 2), 0).into(), (Ipv4Addr::LOCALHOST, router.port()).into());
    let next_hops = NextHops {
        v4: Some("192.168.10.20".parse().unwrap()),
        v6: Some(("fd00:10::20".parse().unwrap(), None)),
    };
    let connect = || Shell::start(from, to, next_hops, settings());
    let shell = connect();
    wait_for("a session", router, || shell.seen().established);

    // Our last word, and what went before it.
    shell.ask(Ask::Routes(vec![(prefix(V4), Some(Arc::default()))]));
    wait_for("a route", router, || router.count(false) == 1);
    shell.ask(Ask::Stop(Goodbye::shutdown("node k8s-node-1 is drained", Duration::from_millis(200))));
    wait_for("no route", router, || router.count(false) == 0);
    wait_for("our last word", router, || {
        (router.peer() + &router.log()).contains("node k8s-node-1 is drained")
    });
    let shell = connect();
    wait_for("another session", router, || shell.seen().established);
    // Some want to be left alone for a while after the first one.
    let refused = shell.seen().downs.len();

    // Routes with everything that can be said of them, of both families.
    let route = Arc::new(Route {
        local_pref: Some(7),
        communities: [Community::new(64_512, 1234), Community::new(1, 2)].into(),
        large_communities: [LargeCommunity { global: 4_200_000_001, local1: 1, local2: 2 }].into(),
        extended_communities: [ExtendedCommunity::link_bandwidth(asn(64_512), 1_250_000.0, true)].into(),
    });
    shell.ask(Ask::Routes(vec![(prefix(V4), Some(Arc::clone(&route))), (prefix(V6), Some(route))]));
    for (address, next_hop) in [(V4, "192.168.10.20"), (V6, "fd00:10::20")] {
        wait_for(address, router, || !router.route(address).is_empty());
        let seen = router.route(address);
        for wanted in [next_hop, "64512", "1234", "4200000001"] {
            assert!(seen.contains(wanted), "{}: {wanted} in {seen}", router.name());
        }
    }

    // A thousand at once, and again when it asks for them, and gone.
    shell.ask(Ask::Routes(many(1000, true)));
    wait_for("1,001 routes", router, || router.count(false) == 1001);
    let before = shell.seen().received_refreshes;
    if router.refresh() {
        wait_for("a ROUTE-REFRESH", router, || shell.seen().received_refreshes > before);
    }
    shell.ask(Ask::Routes(many(1000, false)));
    wait_for("one route", router, || router.count(false) == 1 && router.count(true) == 1);
    assert_eq!((shell.seen().sessions, shell.seen().downs.len()), (1, refused), "{}", router.name());

    // It ends the session, and says why; we come back only when it lets us.
    router.shut_down("maintenance");
    wait_for("its last word", router, || shell.seen().downs.len() > refused);
    let Down::Told(last) = &shell.seen().downs[refused] else {
        panic!("{}: {:?}", router.name(), shell.seen())
    };
    assert_eq!(last.code, Code::ADMINISTRATIVE_SHUTDOWN, "{}", router.name());
    assert_eq!(last.detail(), Detail::Text("maintenance".to_owned()), "{}", router.name());
}

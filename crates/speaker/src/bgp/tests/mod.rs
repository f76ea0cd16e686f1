// SPDX-License-Identifier: Apache-2.0
//! Sessions over real sockets on loopback, with routers of every character.

mod log;
mod router;
mod trouble;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use ferrolb_bgp::wire::{Code, Detail, Families, HoldTime, Notification, RouteRefresh};
use ferrolb_bgp::{Down, Goodbye, PeerAs, Route, Settings, State};
use ferrolb_config::Password;
use ferrolb_kube_support::daemon::Clocks;
use ferrolb_linux::tcp;
use ferrolb_net_types::{IpFamily, NodeName, PeerName, Prefix};
use ferrolb_speaker_core::bgp::{Hops, PeerPlan, PeerReport, Rival};

use self::router::{Heard, OWN, PATIENCE, Router, THEIRS, Talk, asn};
use super::board::Board;
use super::mailbox::Mailbox;
use super::task::{READ, Task};
use super::{Change, Handle, Shared};

/// The control side.
struct Bench {
    handle: Handle,
    runtime: tokio::runtime::Runtime,
    /// What was said of each peer last; `None`: its session is over.
    said: BTreeMap<PeerName, Option<Box<PeerReport>>>,
}

impl Bench {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let handle = Handle::new(NodeName::from("k8s-node-1"), Clocks::start());
        Self { handle, runtime, said: BTreeMap::new() }
    }

    fn plan(&mut self, peer: &str, plan: PeerPlan) {
        self.handle.session(PeerName::from(peer), Some(Box::new(plan)));
    }

    fn remove(&mut self, peer: &str) {
        self.handle.session(PeerName::from(peer), None);
    }

    fn routes(&self, peer: &str, changes: Vec<Change>) {
        self.handle.routes(&PeerName::from(peer), changes);
    }

    /// Waits until what is said of a peer is so.
    #[track_caller]
    fn wait(&mut self, peer: &str, is: impl Fn(&PeerReport) -> bool) -> PeerReport {
        let name = PeerName::from(peer);
        let Self { handle, runtime, said } = self;
        let waiting = async {
            loop {
                if let Some(Some(report)) = said.get(&name)
                    && is(report)
                {
                    return PeerReport::clone(report);
                }
                said.extend(handle.news().await.unwrap());
            }
        };
        let outcome = runtime.block_on(async { tokio::time::timeout(PATIENCE, waiting).await });
        outcome.unwrap_or_else(|_| panic!("waited in vain; {peer} is {:?}", self.said.get(&name)))
    }

    fn established(&mut self, peer: &str) -> PeerReport {
        self.wait(peer, |report| report.state == State::Established)
    }

    /// Waits until a session is over.
    #[track_caller]
    fn over(&mut self, peer: &str) {
        let name = PeerName::from(peer);
        let Self { handle, runtime, said } = self;
        let waiting = async {
            while !matches!(said.get(&name), Some(None)) {
                said.extend(handle.news().await.unwrap());
            }
        };
        runtime.block_on(async { tokio::time::timeout(PATIENCE, waiting).await }).unwrap();
    }

    /// The thread of the sessions does nothing more until this is dropped.
    fn hold_up(&self) -> Sender<()> {
        let (go, waits) = channel();
        let (stands, stopped) = channel();
        self.handle.thread.as_ref().unwrap().runtime.spawn(async move {
            // They come to rest before.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            stands.send(()).unwrap();
            let _ = waits.recv();
        });
        stopped.recv().unwrap();
        go
    }

    /// Waits until every session has said goodbye.
    fn left(&self) {
        let left = async { tokio::time::timeout(PATIENCE, self.handle.left()).await };
        self.runtime.block_on(left).unwrap();
    }
}

fn plan(remote: SocketAddr) -> PeerPlan {
    PeerPlan {
        settings: Settings::native(asn(OWN), PeerAs::Exactly(asn(THEIRS))),
        remote,
        source: None,
        password: None,
        hops: Hops::Unlimited,
        router_id: None,
    }
}

fn prefix(n: u8) -> Prefix {
    Prefix::host(IpAddr::from([192, 168, 20, n]))
}

fn announce(n: u8) -> Vec<Change> {
    vec![(prefix(n), Some(Arc::default()))]
}

fn withdraw(n: u8) -> Vec<Change> {
    vec![(prefix(n), None)]
}

#[test]
fn a_route_reaches_the_router_goes_again_and_so_does_the_session() {
    let router = Router::on("127.10.0.1");
    let mut bench = Bench::new();
    bench.plan("router", plan(router.address));
    bench.routes("router", announce(100));
    let mut talk = router.session();
    assert_eq!(talk.hear(), Heard::Announced(vec![prefix(100)]));
    assert_eq!(talk.hear(), Heard::EndOfRib);
    let report = bench.wait("router", |report| report.told == 1 && report.settled);
    assert_eq!((report.wanted, report.drops, report.last_down), (1, 0, None));
    assert_eq!(report.local.unwrap(), talk.stream.peer_addr().unwrap());

    bench.routes("router", [announce(101), withdraw(100)].concat());
    assert_eq!(talk.hear(), Heard::Announced(vec![prefix(101)]));
    assert_eq!(talk.hear(), Heard::Withdrawn(vec![prefix(100)]));

    bench.remove("router");
    assert_eq!(talk.hear(), Heard::Withdrawn(vec![prefix(101)]));
    assert_eq!(talk.hear(), Heard::Notification(Code::PEER_DECONFIGURED.into()));
    assert_eq!(talk.hear(), Heard::Closed);
    drop(talk);
    bench.over("router");
}

#[test]
fn an_ipv6_router_is_dialled_like_any_other() {
    let router = Router::on("::1");
    let mut bench = Bench::new();
    bench.plan("router", plan(router.address));
    let _talk = router.session();
    let report = bench.established("router");
    // The interface's IPv4 address is the identifier, and where IPv4 routes lead.
    assert_eq!(report.finding, None);
}

#[test]
fn a_speaker_that_ends_tells_its_routes_to_be_about_to_go_withdraws_them_and_says_why() {
    let router = Router::on("127.10.1.1");
    let mut bench = Bench::new();
    bench.plan("router", plan(router.address));
    bench.routes("router", announce(100));
    let mut talk = router.session();
    assert_eq!(talk.hear(), Heard::Announced(vec![prefix(100)]));
    assert_eq!(talk.hear(), Heard::EndOfRib);
    bench.established("router");
    // One that was never up has nobody to say goodbye to.
    bench.plan("nobody", plan("127.10.1.2:9".parse().unwrap()));

    let text = "node k8s-node-1: the speaker is stopped";
    bench.handle.leave(&Goodbye::shutdown(text, Duration::from_millis(100)));
    assert_eq!(talk.hear(), Heard::AboutToGo(vec![prefix(100)]));
    assert_eq!(talk.hear(), Heard::Withdrawn(vec![prefix(100)]));
    let Heard::Notification(last) = talk.hear() else { panic!() };
    assert_eq!(last.code, Code::ADMINISTRATIVE_SHUTDOWN);
    assert_eq!(last.detail(), Detail::Text(text.to_owned()));
    drop(talk);
    bench.left();
}

#[test]
fn another_password_is_taken_on_the_live_session() {
    let router = Router::on("127.10.2.1");
    let source: IpAddr = "127.10.2.2".parse().unwrap();
    tcp::set_password(&router.listener, source, b"one").unwrap();
    let with = |password: &[u8]| PeerPlan {
        source: Some(source),
        password: Password::new(password),
        ..plan(router.address)
    };
    let mut bench = Bench::new();
    bench.plan("router", with(b"one"));
    let mut talk = router.session();
    assert_eq!(talk.hear(), Heard::EndOfRib);
    let before = bench.established("router");
    for password in [&b"two"[..], b"", b"three"] {
        bench.plan("router", with(password));
        bench.routes("router", announce(100));
        tcp::set_password(&talk.stream, source, password).unwrap();
        assert_eq!(talk.hear(), Heard::Announced(vec![prefix(100)]));
        bench.routes("router", withdraw(100));
        assert_eq!(talk.hear(), Heard::Withdrawn(vec![prefix(100)]));
    }
    let after = bench.wait("router", |report| report.counters.sent.updates >= 7);
    assert_eq!((after.since, after.drops), (before.since, 0));
}

#[test]
fn another_source_address_is_another_session_that_is_told_the_same_routes() {
    let router = Router::on("127.10.3.1");
    let from = |source: &str| PeerPlan { source: Some(source.parse().unwrap()), ..plan(router.address) };
    let mut bench = Bench::new();
    bench.plan("router", from("127.10.3.2"));
    bench.routes("router", announce(100));
    let mut talk = router.session();
    assert_eq!(talk.from, "127.10.3.2".parse::<IpAddr>().unwrap());
    assert_eq!(talk.hear(), Heard::Announced(vec![prefix(100)]));
    bench.plan("router", from("127.10.3.3"));
    let last = talk.last_word().unwrap();
    assert_eq!(last.code, Code::ADMINISTRATIVE_RESET);
    assert_eq!(last.detail(), Detail::Text("the source address has changed".to_owned()));
    let mut talk = router.session();
    assert_eq!(talk.from, "127.10.3.3".parse::<IpAddr>().unwrap());
    assert_eq!(talk.hear(), Heard::Announced(vec![prefix(100)]));

    // One that the peer does not see leaves the session up.
    let mut settings = from("127.10.3.3");
    settings.settings.retry_at_most = Duration::from_secs(7);
    bench.plan("router", settings);
    bench.routes("router", withdraw(100));
    assert_eq!(talk.hear(), Heard::EndOfRib);
    assert_eq!(talk.hear(), Heard::Withdrawn(vec![prefix(100)]));
    assert_eq!(bench.wait("router", |report| report.wanted == 0).drops, 1);
}

#[test]
fn a_peer_that_comes_again_while_it_says_goodbye_is_another_session() {
    let router = Router::on("127.10.4.1");
    let mut bench = Bench::new();
    bench.plan("router", plan(router.address));
    let mut first = router.session();
    bench.established("router");
    bench.remove("router");
    bench.plan("router", plan(router.address));
    bench.routes("router", announce(100));
    let mut second = router.session();
    assert_eq!(second.hear(), Heard::Announced(vec![prefix(100)]));
    assert_eq!(first.last_word(), Some(Code::PEER_DECONFIGURED.into()));
    drop(first);
    bench.wait("router", |report| report.told == 1);
    // The end of the first one passes without a word.
    let end = std::time::Instant::now() + PATIENCE;
    while !bench.handle.leaving.is_empty() {
        assert!(std::time::Instant::now() < end, "it does not end");
        let Bench { handle, runtime, .. } = &mut bench;
        let news = async { tokio::time::timeout(Duration::from_millis(10), handle.news()).await };
        if let Ok(news) = runtime.block_on(news) {
            assert!(news.unwrap().iter().all(|(_, report)| report.is_some()));
        }
    }
}

#[test]
fn s73_a_source_address_that_the_node_lacks_is_named() {
    let mut bench = Bench::new();
    let source = Some("192.0.2.77".parse().unwrap());
    bench.plan("router", PeerPlan { source, ..plan("127.10.5.1:9".parse().unwrap()) });
    let report = bench.wait("router", |report| report.last_down.is_some());
    let words = "address \"192.0.2.77\" doesn't exist on this host".to_owned();
    assert_eq!(report.last_down.unwrap().1, Down::NotConnected(words));
    let source = Some("::1".parse().unwrap());
    bench.plan("router", PeerPlan { source, ..plan("127.10.5.1:9".parse().unwrap()) });
    bench.wait("router", |report| {
        report.last_down.as_ref().is_some_and(|(_, down)| down.to_string().contains("another IP family"))
    });
}

/// A router behind which connections get no answer: its queue is full, so SYNs are dropped.
fn swallows(address: &str) -> (socket2::Socket, Vec<std::net::TcpStream>, SocketAddr) {
    let address: SocketAddr = (address.parse::<IpAddr>().unwrap(), 0).into();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200));
    let queue: Vec<_> = std::iter::from_fn(|| connect().ok()).collect();
    (socket, queue, address)
}

#[test]
fn peers_that_do_not_answer_read_stop_or_listen_delay_nobody() {
    let good = Router::on("127.10.6.1");
    let mut bench = Bench::new();
    bench.plan("good", plan(good.address));
    let mut talk = good.session();
    assert_eq!(talk.hear(), Heard::EndOfRib);
    let before = bench.established("good");

    // S02, S63: one refuses, one swallows SYNs, one is mute, one floods, one asks for everything over and over, one never
    // reads.
    let (_socket, _queue, nowhere) = swallows("127.10.6.2");
    let [mute, flood, full, asks] = ["127.10.6.3", "127.10.6.4", "127.10.6.5", "127.10.6.8"].map(Router::on);
    socket2::SockRef::from(&full.listener).set_recv_buffer_size(4096).unwrap();
    bench.plan("refuses", plan("127.10.6.6:9".parse().unwrap()));
    // A refusal that is not signed is dropped by the kernel: with a password it is like no answer at all.
    let password = Password::new(b"secret");
    bench.plan("silenced", PeerPlan { password, ..plan("127.10.6.7:9".parse().unwrap()) });
    for (name, remote) in [
        ("nowhere", nowhere),
        ("mute", mute.address),
        ("flood", flood.address),
        ("full", full.address),
        ("asks", asks.address),
    ] {
        bench.plan(name, plan(remote));
    }
    bench.routes("asks", small_routes(3000));
    let _mute = mute.accept();
    let flooders = [
        floods(flood.session(), ferrolb_bgp::wire::keepalive()),
        floods(asks.session(), RouteRefresh::new(IpFamily::V4).encode()),
    ];
    let _full = full.session();
    bench.established("full");
    // Far more than what the kernel holds for one that does not read.
    for generation in 0..20 {
        bench.routes("full", large_routes(generation));
        bench.routes("good", announce(100));
        assert_eq!(talk.hear(), Heard::Announced(vec![prefix(100)]));
        bench.routes("good", withdraw(100));
        assert_eq!(talk.hear(), Heard::Withdrawn(vec![prefix(100)]));
    }
    let stuck = bench.wait("full", |report| report.wanted == 1000 && !report.settled);
    assert_eq!(stuck.state, State::Established);
    assert!(bench.wait("refuses", |report| report.last_down.is_some()).next_attempt.is_some());
    // An attempt is given up at last.
    for name in ["nowhere", "silenced"] {
        bench.wait(name, |report| match &report.last_down {
            None => report.state == State::Connect,
            Some((_, down)) => *down == Down::NoAnswer,
        });
    }
    assert_eq!(bench.wait("mute", |report| report.state == State::OpenSent).drops, 0);
    assert!(bench.wait("flood", |report| report.counters.received.keepalives > 10_000).drops == 0);
    assert!(bench.wait("asks", |report| report.counters.received.route_refreshes > 10_000).drops == 0);
    // None of them keeps the speaker from ending, and the good one hears why.
    bench.handle.leave(&Goodbye::shutdown("node k8s-node-1: the speaker is stopped", Duration::ZERO));
    let last = talk.last_word().unwrap();
    assert_eq!(last.code, Code::ADMINISTRATIVE_SHUTDOWN);
    drop(talk);
    bench.left();
    // Those end with their connections.
    flooders.into_iter().for_each(|flooder| flooder.join().unwrap());
    let after = bench.said[&PeerName::from("good")].as_ref().unwrap().since;
    assert_eq!(after, before.since, "the session was the same all the time");
}

/// A router that says this as fast as it can for as long as there is a connection, and takes what it is told.
fn floods(mut talk: Talk, message: Vec<u8>) -> std::thread::JoinHandle<()> {
    let mut heard = talk.stream.try_clone().unwrap();
    std::thread::spawn(move || {
        let many = message.repeat(1000);
        std::thread::scope(|scope| {
            scope.spawn(|| std::io::copy(&mut heard, &mut std::io::sink()));
            while talk.try_say(&many) {}
        });
    })
}

#[test]
fn after_each_buffer_of_a_flood_it_is_everybody_elses_turn() {
    let router = Router::on("127.10.16.1");
    let mut bench = Bench::new();
    bench.plan("other", plan("127.10.16.2:9".parse().unwrap()));
    // As any other session, with its turns counted.
    let name = PeerName::from("router");
    let shared =
        Arc::new(Shared { mailbox: Mailbox::default(), board: Board::new(bench.handle.news.clone()) });
    let Handle { node, clocks, .. } = &bench.handle;
    let task = Task::new(
        node.clone(),
        name.clone(),
        plan(router.address),
        1,
        *clocks,
        shared.clone(),
        &bench.handle.ends,
    );
    let turns = Arc::new(AtomicU64::new(0));
    let counted = turns.clone();
    let mut run = Box::pin(task.run());
    bench.handle.thread.as_ref().unwrap().runtime.spawn(std::future::poll_fn(move |context| {
        counted.fetch_add(1, Ordering::Relaxed);
        run.as_mut().poll(context)
    }));
    bench.handle.sessions.insert(name, shared);

    let talk = router.session();
    bench.established("router");
    let keepalive = ferrolb_bgp::wire::keepalive();
    let length = keepalive.len() as u64;
    let flooder = floods(talk, keepalive);
    let report = bench.wait("router", |report| report.counters.received.keepalives > 200_000);
    let buffers = report.counters.received.keepalives * length / READ as u64;
    let turns = turns.load(Ordering::Relaxed);
    // Where something is due as well, one more is heard.
    assert!(turns >= buffers / 2, "{turns} turns for {buffers} buffers");
    bench.remove("router");
    bench.over("router");
    flooder.join().unwrap();
}

#[test]
fn bg_42_a_peer_that_was_never_reached_leaves_nothing_behind_however_often_it_comes_and_goes() {
    let (_socket, _queue, nowhere) = swallows("127.10.12.1");
    let mut bench = Bench::new();
    let tasks = |bench: &Bench| {
        bench.handle.thread.as_ref().map_or(0, |thread| thread.runtime.metrics().num_alive_tasks())
    };
    bench.plan("other", plan("127.10.12.2:9".parse().unwrap()));
    bench.wait("other", |report| report.last_down.is_some());
    let before = tasks(&bench);
    for _ in 0..1000 {
        bench.plan("nowhere", plan(nowhere));
        bench.wait("nowhere", |report| report.state == State::Connect);
        bench.remove("nowhere");
        bench.over("nowhere");
        bench.said.clear();
    }
    assert!(bench.handle.leaving.is_empty() && bench.handle.sessions.len() == 1);
    let end = std::time::Instant::now() + PATIENCE;
    while tasks(&bench) > before || half_open(nowhere) > 0 {
        assert!(std::time::Instant::now() < end, "{} tasks, {} sockets", tasks(&bench), half_open(nowhere));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How many connections of this host to the address wait for an answer.
fn half_open(to: SocketAddr) -> usize {
    let SocketAddr::V4(to) = to else { panic!() };
    // The kernel prints an address as the number that its bytes are in this machine's order.
    let remote = format!("{:08X}:{:04X} 02", u32::from_ne_bytes(to.ip().octets()), to.port());
    std::fs::read_to_string("/proc/net/tcp").unwrap().lines().filter(|line| line.contains(&remote)).count()
}

#[test]
fn bg_35_64_communities_are_told_and_stop_nobody_elses_updates() {
    let routers = ["127.10.13.1", "127.10.13.2"].map(Router::on);
    let mut bench = Bench::new();
    let community = |low| ferrolb_bgp::wire::Community::new(64_512, low);
    let many = Route { communities: (0..64).map(community).collect(), ..Route::default() };
    let mut talks = Vec::new();
    for (name, router) in ["one", "two"].iter().zip(&routers) {
        bench.plan(name, plan(router.address));
        bench.routes(name, vec![(prefix(100), Some(Arc::new(many.clone())))]);
        talks.push(router.session());
    }
    for (name, talk) in ["one", "two"].iter().zip(&mut talks) {
        assert_eq!(talk.hear(), Heard::Announced(vec![prefix(100)]));
        assert_eq!(talk.hear(), Heard::EndOfRib);
        bench.routes(name, [announce(101), withdraw(100)].concat());
        assert_eq!(talk.hear(), Heard::Announced(vec![prefix(101)]));
        assert_eq!(talk.hear(), Heard::Withdrawn(vec![prefix(100)]));
        assert_eq!(bench.wait(name, |report| report.told == 1).finding, None);
    }
}

#[test]
fn a_length_or_type_that_no_message_has_ends_the_session_and_is_named() {
    let cases = [
        ("zero", "0000", "04", Code::BAD_LENGTH),
        ("eighteen", "0012", "04", Code::BAD_LENGTH),
        ("four-thousand-ninety-seven", "1001", "02", Code::BAD_LENGTH),
        ("most", "ffff", "02", Code::BAD_LENGTH),
        ("type-0", "0013", "00", Code::BAD_TYPE),
        ("type-6", "0013", "06", Code::BAD_TYPE),
        ("type-255", "0013", "ff", Code::BAD_TYPE),
    ];
    let mut bench = Bench::new();
    for (number, (name, length, kind, code)) in cases.into_iter().enumerate() {
        let router = Router::on(&format!("127.10.14.{}", number + 1));
        bench.plan(name, plan(router.address));
        let mut talk = router.session();
        bench.established(name);
        talk.say(&[&[0xff; 16][..], &trouble::hex(length), &trouble::hex(kind)].concat());
        assert_eq!(talk.last_word().map(|last| last.code), Some(code), "{name}");
        drop(talk);
        let down = bench.wait(name, |report| report.drops == 1).last_down.unwrap().1;
        assert_eq!(down.notification().map(|last| last.code), Some(code), "{name}");
    }
}

/// So many routes that look the same.
fn small_routes(count: u16) -> Vec<Change> {
    let route = Arc::new(Route::default());
    let nth =
        |n: u16| (Prefix::host([10, 1, n.to_be_bytes()[0], n.to_be_bytes()[1]].into()), Some(route.clone()));
    (0..count).map(nth).collect()
}

/// A thousand routes, 300 KB of UPDATEs.
fn large_routes(generation: u16) -> Vec<Change> {
    let nth = |n: u16| {
        let community = |m| ferrolb_bgp::wire::Community::new(n, generation * 60 + m);
        let route = Route { communities: (0..60).map(community).collect(), ..Route::default() };
        (Prefix::host([10, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]].into()), Some(Arc::new(route)))
    };
    (0..1000).map(nth).collect()
}

#[test]
fn s79_a_router_that_checks_the_distance_is_reached_once_the_plan_says_so() {
    let router = Router::on("127.10.8.1");
    tcp::set_hops(&router.listener, IpFamily::V4, 255).unwrap();
    tcp::set_least_hops(&router.listener, IpFamily::V4, 255).unwrap();
    let with = |hops| PeerPlan { hops, ..plan(router.address) };
    let mut bench = Bench::new();
    bench.plan("router", with(Hops::Direct));
    bench.wait("router", |report| report.state == State::Connect);
    // It does not wait for the end of an attempt that is in vain.
    bench.plan("router", with(Hops::Gtsm(1)));
    let _talk = router.session();
    assert_eq!(bench.established("router").drops, 0);
}

#[test]
fn what_comes_from_farther_away_than_the_plan_allows_is_dropped() {
    let router = Router::on("127.10.15.1");
    // As if it were 191 routers away.
    tcp::set_hops(&router.listener, IpFamily::V4, 64).unwrap();
    let with = |hops| PeerPlan { hops, ..plan(router.address) };
    let mut bench = Bench::new();
    bench.plan("router", with(Hops::Gtsm(191)));
    bench.wait("router", |report| report.state == State::Connect);
    bench.plan("router", with(Hops::Gtsm(192)));
    let _talk = router.session();
    // The first plan's connection, which the router never heard the end of, is none.
    let report = bench.established("router");
    assert_eq!(report.drops, 0);
}

#[test]
fn the_right_password_connects_at_once_after_a_wrong_one() {
    let router = Router::on("127.10.9.1");
    let source: IpAddr = "127.10.9.2".parse().unwrap();
    tcp::set_password(&router.listener, source, b"right").unwrap();
    let with = |password: &[u8]| PeerPlan {
        source: Some(source),
        password: Password::new(password),
        ..plan(router.address)
    };
    let mut bench = Bench::new();
    bench.plan("router", with(b"wrong"));
    bench.wait("router", |report| report.state == State::Connect);
    bench.plan("router", with(b"right"));
    let mut talk = router.session();
    assert_eq!(talk.hear(), Heard::EndOfRib);
    assert_eq!(bench.established("router").last_down, None);
}

#[test]
fn routes_beyond_the_limit_are_held_back_and_named_until_there_is_room() {
    let router = Router::on("127.10.10.1");
    let mut limited = plan(router.address);
    limited.settings.max_prefixes = Some(1);
    let mut bench = Bench::new();
    bench.plan("router", limited);
    bench.routes("router", [announce(100), announce(101)].concat());
    let mut talk = router.session();
    assert_eq!(talk.hear(), Heard::Announced(vec![prefix(100)]));
    assert_eq!(talk.hear(), Heard::EndOfRib);
    let report = bench.wait("router", |report| report.told == 1 && report.finding.is_some());
    assert!(report.finding.unwrap().contains("max-prefixes"));
    assert_eq!(report.untold.prefixes, [prefix(101)].into());
    bench.routes("router", withdraw(100));
    // A router at its limit closes the session if the one comes before the other is gone.
    assert_eq!(talk.hear(), Heard::Withdrawn(vec![prefix(100)]));
    assert_eq!(talk.hear(), Heard::Announced(vec![prefix(101)]));
    let report = bench.wait("router", |report| report.finding.is_none());
    assert!(report.untold.prefixes.is_empty());
}

#[test]
fn a_peer_that_never_reads_is_dropped_although_the_kernel_has_room_for_what_it_is_told() {
    let router = Router::on("127.10.18.1");
    socket2::SockRef::from(&router.listener).set_recv_buffer_size(4096).unwrap();
    let mut bench = Bench::new();
    let mut short = plan(router.address);
    // The numbers are shown every second.
    short.settings.send_hold = Some(Duration::from_secs(5));
    bench.plan("router", short);
    let talk = router.session();
    bench.established("router");
    // More than fits into the router's buffer, and less than what the kernel would keep here for it.
    bench.routes("router", large_routes(0).into_iter().take(100).collect());
    bench.wait("router", |report| report.told == 100 && report.settled);
    let report = bench.wait("router", |report| report.drops == 1);
    assert_eq!(report.last_down.unwrap().1, Down::SendHoldTimer);
    // Nothing is left behind that the kernel would offer to it for minutes.
    let end = std::time::Instant::now() + PATIENCE;
    while talk.stream.take_error().unwrap().is_none() {
        assert!(std::time::Instant::now() < end, "it is not reset");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_was_held_up_blames_nobody_for_it() {
    let router = Router::on("127.10.19.1");
    let mut bench = Bench::new();
    let mut short = plan(router.address);
    short.settings.hold_time = HoldTime::seconds(9).unwrap();
    bench.plan("router", short);
    let mut talk = router.session();
    let since = bench.established("router").since;
    // Until there is something to be heard, the hold time is over, and a wish gives the task its turn before the kernel is
    // asked.
    let held_up = bench.hold_up();
    talk.say(&ferrolb_bgp::wire::keepalive());
    talk.say(&Notification::from(Code::HOLD_TIMER_EXPIRED).encode());
    while bench.handle.clocks.now() < since + Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    bench.routes("router", announce(100));
    drop(held_up);
    let report = bench.wait("router", |report| report.drops == 1);
    assert_eq!(report.last_down.unwrap().1, Down::Told(Code::HOLD_TIMER_EXPIRED.into()));
}

#[test]
fn a_last_word_that_lies_there_is_heard_where_nothing_can_be_said_any_more() {
    let router = Router::on("127.10.20.1");
    let mut bench = Bench::new();
    bench.plan("router", plan(router.address));
    let mut talk = router.session();
    bench.established("router");
    let held_up = bench.hold_up();
    // Several buffers of it.
    talk.say(&ferrolb_bgp::wire::keepalive().repeat(2000));
    talk.say(&Notification::from(Code::ADMINISTRATIVE_SHUTDOWN).encode());
    socket2::SockRef::from(&talk.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(talk);
    bench.routes("router", announce(100));
    drop(held_up);
    let report = bench.wait("router", |report| report.drops == 1);
    assert_eq!(report.last_down.unwrap().1, Down::Told(Code::ADMINISTRATIVE_SHUTDOWN.into()));
}

#[test]
fn of_two_peers_that_come_from_one_address_the_one_that_was_there_keeps_its_session() {
    let router = Router::on("127.10.21.1");
    let mut bench = Bench::new();
    bench.plan("first", plan(router.address));
    let mut talk = router.session();
    let own = bench.established("first").local.unwrap().ip();
    // The kernel chose what the other one names.
    let named = PeerPlan { source: Some(own), ..plan(router.address) };
    bench.plan("second", named.clone());
    let report = bench.wait("second", |report| report.last_down.is_some());
    let refused =
        format!("BGPPeer first has the session with {} from this node's address {own}", router.address);
    assert!(report.last_down.unwrap().1.to_string().contains(&refused));
    assert_eq!(report.rival, Some(Rival { peer: "first".into(), remote: router.address, own }));
    // From another one it is another session.
    bench.plan("third", PeerPlan { source: Some([127, 10, 21, 9].into()), ..plan(router.address) });
    let _third = router.session();
    bench.established("third");
    // To name the address that is there already, and then not to name it, resets nothing.
    for plan in [named, plan(router.address)] {
        bench.plan("first", plan);
        bench.routes("first", announce(100));
        bench.wait("first", |report| report.wanted == 1 && report.settled);
        bench.routes("first", withdraw(100));
        let report = bench.wait("first", |report| report.wanted == 0 && report.settled);
        assert_eq!((report.state, report.drops), (State::Established, 0));
    }
    assert_eq!(talk.hear(), Heard::EndOfRib);
    for _ in 0..2 {
        assert_eq!(talk.hear(), Heard::Announced(vec![prefix(100)]));
        assert_eq!(talk.hear(), Heard::Withdrawn(vec![prefix(100)]));
    }
    // Once the first one is gone, the second one has its turn.
    bench.remove("first");
    assert!(matches!(talk.hear(), Heard::Notification(_)));
    drop(talk);
    let _talk = router.session();
    assert_eq!(bench.established("second").rival, None);
}

#[test]
fn peers_may_swap_what_they_connect_to() {
    for (address, names) in [("127.10.22.1", &["a", "b"][..]), ("127.10.22.2", &["a", "b", "c"])] {
        let routers: Vec<Router> = names.iter().map(|_| Router::on(address)).collect();
        let mut bench = Bench::new();
        let mut before = Vec::new();
        for (name, router) in names.iter().zip(&routers) {
            bench.plan(name, plan(router.address));
            before.push(router.session());
            bench.established(name);
        }
        for (name, router) in names.iter().zip(routers.iter().cycle().skip(1)) {
            bench.plan(name, plan(router.address));
        }
        for mut talk in before {
            let last = talk.last_word().unwrap();
            assert_eq!(last.detail(), Detail::Text("the peer's port has changed".to_owned()));
        }
        let after: Vec<Talk> = routers.iter().map(Router::session).collect();
        for (name, talk) in names.iter().zip(after.iter().cycle().skip(1)) {
            let report = bench.wait(name, |report| report.state == State::Established && report.drops == 1);
            assert_eq!(
                (report.local, report.rival),
                (Some(talk.stream.peer_addr().unwrap()), None),
                "{name}"
            );
        }
    }
}

#[test]
fn who_moved_away_and_cannot_connect_is_in_nobodys_way() {
    let router = Router::on("127.10.23.1");
    let mut bench = Bench::new();
    bench.plan("moves", plan(router.address));
    let mut talk = router.session();
    bench.established("moves");
    bench.plan("comes", plan(router.address));
    let source = Some("192.0.2.77".parse().unwrap());
    bench.plan("moves", PeerPlan { source, ..plan(router.address) });
    assert_eq!(talk.last_word().unwrap().code, Code::ADMINISTRATIVE_RESET);
    drop(talk);
    let _talk = router.session();
    assert_eq!(bench.established("comes").rival, None);
    let report = bench.wait("moves", |report| {
        report
            .last_down
            .as_ref()
            .is_some_and(|(_, down)| down.to_string().contains("doesn't exist on this host"))
    });
    assert_eq!((report.rival, report.drops), (None, 1));
    // Nor does it come back before the other one is gone.
    bench.plan("moves", plan(router.address));
    let report = bench.wait("moves", |report| report.rival.is_some());
    assert_eq!(report.rival.unwrap().peer, "comes".into());
    assert_eq!(bench.established("comes").drops, 0);
}

#[test]
fn what_a_peer_does_not_take_is_named_for_as_long_as_the_session_lasts() {
    let router = Router::on("127.10.17.1");
    let mut bench = Bench::new();
    bench.plan("router", plan(router.address));
    bench.routes("router", announce(100));
    let mut talk = router.accept();
    talk.agree_on(Families::V6);
    bench.established("router");
    let report = bench.wait("router", |report| report.finding.is_some());
    assert_eq!((report.state, report.wanted, report.told), (State::Established, 1, 0));
    assert_eq!(report.finding.unwrap(), "the peer does not take IPv4 routes");
    assert!(report.untold.families.contains(IpFamily::V4));
    drop(talk);
    assert_eq!(bench.wait("router", |report| report.drops == 1).finding, None);
    // The next one is mended.
    let _talk = router.session();
    let report = bench.wait("router", |report| report.told == 1);
    assert_eq!((report.state, report.finding), (State::Established, None));
    assert!(!report.untold.families.contains(IpFamily::V4));
}

#[test]
fn s62_a_peer_that_falls_silent_is_given_up_and_told() {
    let router = Router::on("127.10.7.1");
    let mut bench = Bench::new();
    let mut short = plan(router.address);
    short.settings.hold_time = HoldTime::seconds(3).unwrap();
    bench.plan("router", short);
    let mut talk = router.session();
    bench.established("router");
    assert_eq!(talk.last_word(), Some(Code::HOLD_TIMER_EXPIRED.into()));
    let report = bench.wait("router", |report| report.drops == 1);
    assert_eq!(report.last_down.unwrap().1, Down::HoldTimer { state: State::Established });
    assert_eq!((report.told, report.local), (0, None));
}
